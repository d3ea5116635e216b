"""TIFF files of several pages: each page is a document, as in a PDF."""

import struct
from collections.abc import Sequence
from email.message import EmailMessage
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageDraw, ImageFont

from tests.support.facts import own
from tests.support.object_storage import put
from vlmsearch import Document, ImageLimits, InvalidInputError, Paths, Pipeline, SourceOptions
from vlmsearch.indexing.records import digest
from vlmsearch.media.images import open_image, read_image
from vlmsearch.media.tiff import page_offsets
from vlmsearch.server.images import original

COLOURS = [(200, 40, 40), (40, 160, 60), (30, 60, 200)]
SIZES = [(60, 40), (50, 90), (120, 80)]
FULL, REDUCED, PAGE, MASK = 0, 1, 2, 4


@pytest.fixture
def pipeline() -> Pipeline:
    return Pipeline.open(encoder="mock:", store="mock:", generator=None)


def sheet(number: int, mode: str = "RGB") -> Image.Image:
    return Image.new("RGB", SIZES[number], COLOURS[number]).convert(mode)


def write(path: Path, pages: Sequence[Image.Image], **options: Any) -> Path:
    pages[0].save(path, save_all=True, append_images=pages[1:], **options)
    return path


def names(pipeline: Pipeline) -> list[str]:
    return sorted(Path(id).name for id in pipeline.store.ids())


def offsets(path: Path) -> list[int]:
    with path.open("rb") as file:
        return list(page_offsets(file))


def directories(kinds: Sequence[tuple[int, int]], order: str = "<", last: int = 0) -> bytes:
    """Return a TIFF of grey pixels with a directory for each tag of its kind and its value."""
    data = struct.pack(f"{order}2sHI", b"II" if order == "<" else b"MM", 42, 9) + b"\x80"
    for number, (tag, value) in enumerate(kinds, start=1):
        tags = [(256, 1), (257, 1), (258, 8), (259, 1), (262, 1), (273, 8), (277, 1), (278, 1), (279, 1)]
        entries = sorted([*tags, (tag, value)])
        rows = b"".join(struct.pack(f"{order}HHII", key, 4, 1, count) for key, count in entries)
        after = len(data) + 2 + len(rows) + 4 if number < len(kinds) else last
        data += struct.pack(f"{order}H", len(entries)) + rows + struct.pack(f"{order}I", after)
    return data


@pytest.mark.parametrize("options", [{}, {"compression": "tiff_lzw"}, {"compression": "jpeg"}, {"big_tiff": True}])
def test_each_page_is_a_document(pipeline: Pipeline, tmp_path: Path, options: dict[str, Any]) -> None:
    path = write(tmp_path / "scan.tif", [sheet(0), sheet(1), sheet(2, "L")], **options)
    assert pipeline.index(tmp_path).added == 4
    [whole, second] = pipeline.store.get([str(path), f"{path}#page=2"])
    assert own(whole.metadata) == {"pages": 3, "parts": 3}
    assert (whole.text, whole.image) == ("scan", Path(f"{path}#page=1"))
    assert (own(second.metadata), second.image) == ({"page": 2}, Path(f"{path}#page=2"))
    assert [open_image(Path(f"{path}#page={number}")).size for number in (1, 2, 3)] == SIZES
    assert np.abs(np.asarray(open_image(Path(f"{path}#page=2")), np.int16) - COLOURS[1]).max() <= 6
    assert original(Path(f"{path}#page=2"), ImageLimits()).type == "image/png"
    found = pipeline.search(image=Path(f"{path}#page=2"), group=False, limit=1)
    assert found[0].document.id == f"{path}#page=2"
    report = pipeline.index(tmp_path)
    assert (report.unchanged, report.seen) == (1, 1)
    with pytest.raises(InvalidInputError, match="has no page 4"):
        read_image(Path(f"{path}#page=4"))
    assert pipeline.delete(str(path)) == 4


def test_one_page_is_a_plain_image(pipeline: Pipeline, tmp_path: Path) -> None:
    path = write(tmp_path / "one.tiff", [sheet(0)])
    pipeline.index(tmp_path)
    [document] = pipeline.store.get(list(pipeline.store.ids()))
    assert (document.id, document.text, document.image, own(document.metadata)) == (str(path), None, path, {})
    assert pipeline.store.stamps([str(path)])[str(path)].digest == digest(Document(str(path), image=path), path)


def test_a_file_that_gains_or_loses_pages_is_read_anew(pipeline: Pipeline, tmp_path: Path) -> None:
    path = write(tmp_path / "scan.tif", [sheet(0)])
    reports = [pipeline.index(tmp_path)]
    for pages in ([sheet(0), sheet(1), sheet(2)], [sheet(0)]):
        write(path, pages)
        reports.append(pipeline.index(tmp_path))
    reports.append(pipeline.index(tmp_path))
    assert [(report.added, report.updated, report.pruned) for report in reports] == [
        *[(1, 0, 0), (3, 1, 0), (0, 1, 3), (0, 0, 0)]
    ]
    assert names(pipeline) == ["scan.tif"]


@pytest.mark.parametrize("order", ["<", ">"])
def test_thumbnails_masks_and_copies_are_no_pages(pipeline: Pipeline, tmp_path: Path, order: str) -> None:
    pyramid = tmp_path / "pyramid.tif"
    pyramid.write_bytes(directories([(254, REDUCED), (254, FULL), (254, MASK), (254, REDUCED | MASK), (255, 2)], order))
    fax = tmp_path / "fax.tif"
    fax.write_bytes(directories([(254, PAGE), (254, PAGE | REDUCED), (255, 3), (255, 1)], order))
    assert [len(offsets(path)) for path in (pyramid, fax)] == [1, 3]
    assert offsets(pyramid)[0] > 9  # where the first directory is
    pipeline.index(tmp_path)
    assert names(pipeline) == ["fax.tif", "fax.tif#page=1", "fax.tif#page=2", "fax.tif#page=3", "pyramid.tif"]


def test_a_chain_that_comes_back_ends_there_and_one_that_breaks_off_says_so(pipeline: Pipeline, tmp_path: Path) -> None:
    (tmp_path / "circle.tif").write_bytes(directories([(254, PAGE), (254, PAGE)], last=9))
    (tmp_path / "broken.tif").write_bytes(directories([(254, PAGE), (254, PAGE)], last=9_000))
    report = pipeline.index(tmp_path)
    assert [len(offsets(tmp_path / name)) for name in ("circle.tif", "broken.tif")] == [2, 3]
    assert [(Path(reject.id).name, reject.code) for reject in report.rejects] == [("broken.tif#page=3", "truncated")]


def test_directories_that_share_their_bytes_cost_no_more_than_the_file() -> None:
    shared = directories([(254, PAGE)] * 30_000)
    assert len(list(page_offsets(BytesIO(shared)))) == 30_000
    nested = b"II*\0\x08\0\0\0" + struct.pack("<H", 5_000) * 40_000
    assert len(list(page_offsets(BytesIO(nested)))) <= 1


def test_a_damaged_page_is_rejected_alone(pipeline: Pipeline, tmp_path: Path) -> None:
    noise = Image.fromarray(np.random.default_rng(1).integers(0, 255, (80, 80, 3), np.uint8))
    path = write(tmp_path / "scan.tif", [sheet(0), noise, sheet(2)], compression="tiff_lzw")
    data = bytearray(path.read_bytes())
    with Image.open(path) as image:
        image.seek(1)
        start = image.tag_v2[273][0]
    data[start : start + 2_000] = b"\xff" * 2_000
    path.write_bytes(data)
    report = pipeline.index(tmp_path)
    assert [Path(reject.id).name for reject in report.rejects] == ["scan.tif#page=2"]
    assert names(pipeline) == ["scan.tif", "scan.tif#page=1", "scan.tif#page=3"]
    pipeline.image_limits = ImageLimits(pixels=7_000)
    report = pipeline.index(Paths([tmp_path]), retry_rejects=True)
    assert [(reject.id[-6:], reject.code) for reject in report.rejects] == [
        ("page=2", "corrupt"),
        ("page=3", "too_large"),
    ]


def test_a_fax_is_read_page_by_page(pipeline: Pipeline, tmp_path: Path) -> None:
    def fax(text: str) -> Image.Image:
        image = Image.new("1", (700, 300), 1)
        ImageDraw.Draw(image).text((40, 100), text, font=ImageFont.load_default(size=64), fill=0)
        return image

    path = write(tmp_path / "fax.tif", [fax("HARBOUR"), fax("LIGHTHOUSE"), fax("SEAGULLS")], compression="group4")
    pipeline.index(Paths([tmp_path], options=SourceOptions(ocr=True)))
    pages = pipeline.store.get([f"{path}#page={number}" for number in (1, 2, 3)])
    assert [(page.text or "").strip() for page in pages] == ["HARBOUR", "LIGHTHOUSE", "SEAGULLS"]


def test_each_page_has_its_own_orientation(tmp_path: Path) -> None:
    pages = [sheet(0), sheet(0)]
    pages[1].encoderinfo = {"tiffinfo": {274: 6}}
    path = write(tmp_path / "scan.tif", pages)
    assert [open_image(Path(f"{path}#page={number}")).size for number in (1, 2)] == [(60, 40), (40, 60)]


def test_pages_of_a_mail_a_table_and_python_are_said(pipeline: Pipeline, tmp_path: Path) -> None:
    scan = write(tmp_path / "scan.tif", [sheet(0), sheet(1), sheet(2)])
    mail = EmailMessage()
    mail["Subject"] = "Fax"
    mail.set_content("see there")
    mail.add_attachment(scan.read_bytes(), maintype="image", subtype="tiff", filename="fax.tif")
    (tmp_path / "mail.eml").write_bytes(bytes(mail))
    (tmp_path / "table.csv").write_text("id,image\nrow,scan.tif\n")
    pipeline.index(Paths([tmp_path / "mail.eml", tmp_path / "table.csv"]))
    pipeline.add(Document("mine", image=scan))
    documents = pipeline.store.get([f"{tmp_path}/mail.eml#attachment=1", "row", "mine"])
    assert [document.metadata["unread"] for document in documents] == ["2 pages"] * 3


@pytest.mark.usefixtures("storage")
def test_in_object_storage_the_first_page_is_read_and_the_others_are_said(pipeline: Pipeline, tmp_path: Path) -> None:
    url = put("faxes/scan.tif", write(tmp_path / "scan.tif", [sheet(0), sheet(1)]).read_bytes())
    assert pipeline.index(Paths([url])).unread == {"page": 1}
    assert list(pipeline.store.ids()) == [str(url)]
