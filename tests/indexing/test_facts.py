"""What is known of a file beside its content: its kind, its folder, its day."""

from __future__ import annotations

import os
import struct
import time
import zlib
from datetime import date, datetime
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
from PIL import ExifTags, Image
from pillow_heif import from_pillow, register_heif_opener

from tests.support.films import film
from tests.support.pdf_files import write_pdf
from vlmsearch import Document, Pipeline
from vlmsearch.demo.scenes import make_scene
from vlmsearch.indexing.items import SourceOptions
from vlmsearch.indexing.sources import Paths
from vlmsearch.media.taken import day_taken

PHOTOS = Path(__file__).parents[2] / "../shared/data/photos"


@pytest.fixture
def pipe() -> Pipeline:
    return Pipeline.open(encoder="mock:", store="mock:", generator=None)


def write_photo(path: Path, taken: str | None = None, *, changed: date = date(2024, 6, 12)) -> Path:
    """Write a picture that says when it was taken, and was changed at noon of a day."""
    exif = Image.Exif()
    exif[ExifTags.Base.DateTime] = "2001:01:01 00:00:00"  # when an editor saved it
    if taken is not None:
        exif.get_ifd(ExifTags.IFD.Exif)[ExifTags.Base.DateTimeOriginal] = taken
    path.parent.mkdir(parents=True, exist_ok=True)
    make_scene(len(path.name)).draw(64).save(path, exif=exif)
    touch(path, changed)
    return path


def touch(path: Path, day: date) -> None:
    noon = datetime(day.year, day.month, day.day, 12).astimezone().timestamp()
    os.utime(path, (noon, noon))


def metadata(pipe: Pipeline, path: Path, part: str = "") -> dict[str, object]:
    return dict(pipe.store.get([f"{path}{part}"])[0].metadata)


def test_a_file_has_its_type_its_folder_and_the_day_on_which_it_changed(pipe: Pipeline, tmp_path: Path) -> None:
    note = tmp_path / "Paris" / "note.MD"
    note.parent.mkdir()
    note.write_text("a note")
    touch(note, date(2024, 2, 29))
    scan = write_photo(tmp_path / "scans" / "scan.TIFF")
    pipe.index(tmp_path)
    assert metadata(pipe, note) == {"type": "md", "folder": "Paris", "date": 20240229}
    assert metadata(pipe, scan) == {"type": "tif", "folder": "scans", "date": 20240612}
    assert [match.document.id for match in pipe.search("a note", where={"date": {"$lt": 20240601}}, min_score=0)] == [
        str(note)
    ]


@pytest.mark.parametrize("name", ["a.jpg", "a.jpeg", "a.png", "a.webp", "a.avif"])
def test_a_photograph_has_the_day_on_which_it_was_taken(pipe: Pipeline, tmp_path: Path, name: str) -> None:
    photo = write_photo(tmp_path / name, "2019:07:04 23:59:59")
    pipe.index(tmp_path)
    assert metadata(pipe, photo)["date"] == 20190704


@pytest.mark.parametrize("taken", [None, "0000:00:00 00:00:00", "2019:13:40 00:00:00", "yesterday"])
def test_a_photograph_that_says_no_day_has_that_of_its_file(pipe: Pipeline, tmp_path: Path, taken: str | None) -> None:
    photo = write_photo(tmp_path / "a.jpg", taken)
    pipe.index(tmp_path)
    assert metadata(pipe, photo)["date"] == 20240612


def test_exif_data_that_are_cut_or_changed_never_raise(tmp_path: Path) -> None:
    data = write_photo(tmp_path / "a.jpg", "2019:07:04 23:59:59").read_bytes()
    start = data.index(b"Exif\0\0")
    assert day_taken(data) == day_taken(data[start + 6 :]) == date(2019, 7, 4)  # the second is as a TIFF has them
    for at in range(start, start + 200):
        day_taken(data[:at])
        for byte in (0, 127, 255):
            day_taken(data[:at] + bytes([byte]) + data[at + 1 :])
    began = time.process_time()
    circle = b"II*\0\x08\0\0\0\xff\xff" + b"\x69\x87\x04\0\xff\xff\xff\xff\x08\0\0\0" * 2**16
    assert day_taken(data[: start + 6] + circle) is None
    assert time.process_time() - began < 5


def exif(original: str | None = None, digitized: str | None = None) -> bytes:
    written = Image.Exif()
    written[ExifTags.Base.DateTime] = "2001:01:01 00:00:00"
    tags = {ExifTags.Base.DateTimeOriginal: original, ExifTags.Base.DateTimeDigitized: digitized}
    written.get_ifd(ExifTags.IFD.Exif).update({tag: f"{day} 10:00:00" for tag, day in tags.items() if day})
    return written.tobytes()


def encoded(kind: str, **options: object) -> bytes:
    make_scene(1).draw(96).save(written := BytesIO(), kind, **options)
    return written.getvalue()


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "TIFF", "AVIF", "HEIF"])
def test_a_scan_has_the_day_on_which_it_was_digitized(kind: str) -> None:
    register_heif_opener()
    days = (exif(None, "2019:07:04"), exif("0000:00:00", "2019:07:04"), exif("2019:07:04", "2024:01:01"), exif())
    assert [day_taken(encoded(kind, exif=day)) for day in days] == [*[date(2019, 7, 4)] * 3, None]


def test_exif_data_may_be_in_the_middle_of_a_heic() -> None:
    noise = np.random.default_rng(1).integers(0, 255, (2, 700, 700, 3), np.uint8)
    images = from_pillow(Image.fromarray(noise[0]))
    images.add_from_pillow(Image.fromarray(noise[1]))
    images.save(written := BytesIO(), quality=100, exif=exif("2019:07:04"))
    data = written.getvalue()
    assert 2**18 < max(data.find(b"MM\0*"), data.find(b"II*\0")) < len(data) - 2**18
    assert day_taken(data) == day_taken(data.replace(b"Exif\0\0", bytes(6))) == date(2019, 7, 4)


def test_exif_data_may_come_after_all_else() -> None:
    jpeg, png, tiff = encoded("JPEG"), encoded("PNG"), exif("2019:07:04").removeprefix(b"Exif\0\0")
    segments = [b"http://ns.adobe.com/xap/1.0/\0<x:xmpmeta/>", *[bytes(60_000)] * 9, b"Exif\0\0" + tiff]
    before = b"".join(b"\xff\xe1" + struct.pack(">H", len(data) + 2) + data for data in segments)
    assert day_taken(jpeg[:2] + before + jpeg[2:]) == date(2019, 7, 4)
    chunks = b"".join(
        struct.pack(">I", len(data) - 4) + data + struct.pack(">I", zlib.crc32(data))
        for data in (b"eXIf" + tiff, b"tEXtComment\0" + b"x" * 600_000)
    )
    assert day_taken(png[:-12] + chunks + png[-12:]) == date(2019, 7, 4)


def test_the_day_may_be_in_xmp_alone() -> None:
    tags = 'xmp:CreateDate="2020-01-01T00:00:00" photoshop:DateCreated="2019-07-04" xmp:ModifyDate="2021-01-01"'
    packet = f"<x:xmpmeta><rdf:RDF><rdf:Description {tags}/></rdf:RDF></x:xmpmeta>".encode()
    assert day_taken(encoded("JPEG", xmp=packet)) == date(2019, 7, 4)
    assert day_taken(encoded("JPEG", xmp=packet, exif=exif("2018:01:01"))) == date(2018, 1, 1)


def test_a_film_and_its_scenes_have_the_day_on_which_it_was_made(pipe: Pipeline, tmp_path: Path) -> None:
    path = film(tmp_path / "walk.mp4", (3,), tags={"creation_time": "2019-07-04T12:30:00.000000Z"})
    pipe.index(path)
    assert metadata(pipe, path)["date"] == metadata(pipe, path, "#t=0.000")["date"] == 20190704


def test_parts_of_a_file_have_the_facts_of_the_file(pipe: Pipeline, tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    report = write_pdf(tmp_path / "work" / "report.pdf", ["a red circle", "a printer"], title="Shapes")
    touch(report, date(2023, 12, 24))
    pipe.index(Paths([tmp_path], options=SourceOptions(pdf=True)))
    facts = {"type": "pdf", "folder": "work", "date": 20231224}
    assert metadata(pipe, report, "#page=2") == {**facts, "page": 2}
    assert metadata(pipe, report) == {**facts, "pages": 2, "parts": 2, "title": "Shapes"}


def test_rows_of_tables_and_documents_from_python_have_none(pipe: Pipeline, tmp_path: Path) -> None:
    photo = write_photo(tmp_path / "a.png")
    table = tmp_path / "table.csv"
    table.write_text(f"id,image,date\nrow,{photo},yesterday\n")
    pipe.index(table)
    pipe.add(Document(str(photo), image=photo))
    assert metadata(pipe, Path("row")) == {"date": "yesterday"}
    assert metadata(pipe, photo) == {}


def test_a_file_that_was_only_touched_is_not_encoded_again(pipe: Pipeline, tmp_path: Path) -> None:
    photo = write_photo(tmp_path / "a.png")
    pipe.index(tmp_path)
    touch(photo, date(2025, 1, 1))
    report = pipe.index(tmp_path)
    assert (report.unchanged, report.updated) == (1, 0)
    assert metadata(pipe, photo)["date"] == 20240612
    make_scene(99).draw(64).save(photo)
    touch(photo, date(2025, 1, 2))
    assert pipe.index(tmp_path).updated == 1
    assert metadata(pipe, photo)["date"] == 20250102


@pytest.mark.skipif(not PHOTOS.is_dir(), reason="photographs are not part of the repository")
def test_photographs_have_a_day(pipe: Pipeline) -> None:
    pipe.index(PHOTOS)
    photographs = pipe.store.get(sorted(pipe.store.ids()))
    assert photographs
    assert all(10_000_101 <= int(str(document.metadata["date"])) <= 99_991_231 for document in photographs)
    assert {document.metadata["folder"] for document in photographs} >= {"photos"}
