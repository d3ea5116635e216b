"""Films, office documents and the text in images: into an index and out of it, with a real store."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageDraw, ImageFont
from vlmsearch_mocks import MockEncoder

from tests.support.cli import ok
from tests.support.facts import own
from tests.support.films import film, pattern
from tests.support.office import write
from vlmsearch import Document, Pipeline, SourceOptions
from vlmsearch.indexing.sources import Paths
from vlmsearch.media import ocr, office, video
from vlmsearch.media.images import open_image, thumbnail
from vlmsearch.stores.sqlite.store import SqliteStore

ALL = SourceOptions(video=True, office=True, ocr=True)


@pytest.fixture
def pipeline(tmp_path: Path) -> Iterator[Pipeline]:
    with Pipeline(MockEncoder(), SqliteStore(str(tmp_path / "index"))) as opened:
        yield opened


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "files"
    folder.mkdir()
    return folder


def sign(path: Path, text: str) -> Path:
    image = Image.new("RGB", (360, 80), "white")
    ImageDraw.Draw(image).text((20, 20), text, font=ImageFont.load_default(size=32), fill="black")
    image.save(path)
    return path


def counts(pipeline: Pipeline, folder: Path, **options: Any) -> tuple[int, int, int, int, int]:
    prune = options.pop("prune", False)
    report = pipeline.index(Paths([folder], options=SourceOptions(**options)), prune=prune)
    return report.added, report.updated, report.unchanged, report.pruned, len(report.rejects)


def documents(pipeline: Pipeline) -> dict[str, Document]:
    ids = sorted(pipeline.store.ids())
    return {Path(document.id).name: document for document in pipeline.store.get(ids) if document is not None}


# ----------------------------------------------------------------------------------------------------------- films


def test_subtitles_that_are_a_link_are_taken_where_links_are_followed(
    pipeline: Pipeline, folder: Path, tmp_path: Path
) -> None:
    path = film(folder / "holiday.mp4", (3,))
    (tmp_path / "private.srt").write_text("1\n00:00:00,000 --> 00:00:02,000\nthe salaries\n\n")
    (folder / "holiday.srt").symlink_to(tmp_path / "private.srt")
    assert counts(pipeline, folder, video=True, follow_links=False)[0] == 2
    assert not any("salaries" in (each.text or "") for each in documents(pipeline).values())
    assert counts(pipeline, folder, video=True)[1] == 2
    assert documents(pipeline)["holiday.mp4#t=0.000"].text == "the salaries"
    assert video.subtitles_beside(path, follow_links=False) is None


def test_a_film_gives_a_document_a_scene_and_one_for_the_whole(pipeline: Pipeline, folder: Path) -> None:
    path = film(folder / "holiday.mp4", (3, 4, 3), subtitles=[(3.5, 5, "A dog runs in the snow")])
    sign(folder / "note.png", "market")

    assert counts(pipeline, folder) == (1, 0, 0, 0, 0)  # without the option films are left out
    assert counts(pipeline, folder, video=True) == (4, 0, 1, 0, 0)

    found = documents(pipeline)
    assert list(found) == [f"holiday.mp4{part}" for part in ("", "#t=0.000", "#t=3.000", "#t=7.000")] + ["note.png"]
    scene = found["holiday.mp4#t=3.000"]
    assert scene.text == "A dog runs in the snow"
    assert own(scene.metadata) == {"seconds": 3.0}
    assert scene.part is not None
    assert scene.part.seconds == 3.0
    assert isinstance(scene.image, Path)
    assert np.abs(np.asarray(open_image(scene.image), np.int16) - pattern(1)).mean() < 12
    assert thumbnail(scene.image, edge=64)[:2] == b"\xff\xd8"
    whole = found["holiday.mp4"]
    assert whole.text == "holiday"
    assert own(whole.metadata) == {"parts": 3, "duration": pytest.approx(10, abs=0.05)}
    assert whole.image == Path(f"{path}#t=3.000")

    (match,) = pipeline.search("dog runs snow", limit=1)
    assert match.document.id == f"{path}#t=3.000"


def test_a_film_is_opened_again_only_when_it_or_its_subtitles_change(
    pipeline: Pipeline, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    film(folder / "holiday.mp4", (3, 3))
    sign(folder / "note.png", "market")
    assert counts(pipeline, folder, video=True) == (4, 0, 0, 0, 0)
    with monkeypatch.context() as patch:
        patch.setattr(video, "scenes", None)  # nothing is decoded
        assert counts(pipeline, folder, video=True) == (0, 0, 2, 0, 0)
        assert counts(pipeline, folder, prune=True) == (0, 0, 1, 0, 0)  # left out, and kept

    (folder / "holiday.srt").write_text("1\n00:00:04,000 --> 00:00:05,000\nA red kite\n")
    assert counts(pipeline, folder, video=True) == (0, 2, 2, 0, 0)
    assert documents(pipeline)["holiday.mp4#t=3.000"].text == "A red kite"

    film(folder / "holiday.mp4", (5, 3))
    assert counts(pipeline, folder, video=True)[3] == 1  # the scene at 3 seconds is gone
    assert list(documents(pipeline)) == ["holiday.mp4", "holiday.mp4#t=0.000", "holiday.mp4#t=5.000", "note.png"]

    os.remove(folder / "holiday.mp4")
    assert counts(pipeline, folder, video=True, prune=True) == (0, 0, 1, 3, 0)
    assert list(documents(pipeline)) == ["note.png"]


@pytest.mark.slow
def test_of_a_film_that_is_cut_short_the_scenes_that_are_there_are_found(pipeline: Pipeline, folder: Path) -> None:
    path = film(folder / "broken.mkv", [3] * 8)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])

    report = pipeline.index(Paths([folder], options=ALL))

    (reject,) = report.rejects
    assert (reject.id, reject.code) == (str(path), "truncated")
    assert report.added >= 2
    assert str(path) not in documents(pipeline)
    again = pipeline.index(Paths([folder], options=ALL))
    assert (again.added, again.updated, len(again.rejects)) == (0, 0, 1)


# ------------------------------------------------------------------------------------------------- office documents


def test_office_documents_are_found_by_their_text(
    pipeline: Pipeline, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(folder / "report.docx", "Revenue grew in the north", "Annual report")
    write(folder / "page.html", "A lighthouse on the cliff")
    write(folder / "broken.xlsx", "x").write_bytes(b"no workbook")

    report = pipeline.index(Paths([folder], options=SourceOptions(office=True)))
    assert report.added == 2
    assert [(Path(reject.id).name, reject.code) for reject in report.rejects] == [("broken.xlsx", "corrupt")]
    found = documents(pipeline)
    assert found["report.docx"].text == "Annual report\n\nRevenue grew in the north"
    assert own(found["report.docx"].metadata) == {"title": "Annual report"}
    assert pipeline.search("lighthouse on a cliff", limit=1)[0].document.id == str(folder / "page.html")

    monkeypatch.setattr(office, "read_office", None)
    again = pipeline.index(Paths([folder], options=SourceOptions(office=True)))
    assert (again.added, again.unchanged, len(again.rejects)) == (0, 2, 1)


# ------------------------------------------------------------------------------------------------- text in images


@pytest.mark.slow
def test_the_text_in_images_is_found_by_its_words_and_says_where_it_is(pipeline: Pipeline, folder: Path) -> None:
    sign(folder / "sign.png", "harbour")
    Image.new("RGB", (64, 64), "grey").save(folder / "plain.png")

    assert counts(pipeline, folder, ocr=True) == (2, 0, 0, 0, 0)

    found = documents(pipeline)
    assert found["sign.png"].text == "harbour"
    left, top, width, height = map(int, str(found["sign.png"].metadata["ocr"]).split(","))
    assert 0 <= left <= 20 <= left + width <= 360
    assert 0 <= top <= 30 <= top + height <= 80
    assert found["plain.png"].text is None
    assert own(found["plain.png"].metadata) == {}
    assert pipeline.search("harbour", limit=1)[0].document.id == str(folder / "sign.png")


@pytest.mark.slow
def test_images_are_read_once_and_a_run_without_reading_leaves_their_text(
    pipeline: Pipeline, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sign(folder / "sign.png", "harbour")
    Image.new("RGB", (64, 64), "grey").save(folder / "plain.png")
    assert counts(pipeline, folder) == (2, 0, 0, 0, 0)
    assert counts(pipeline, folder, ocr=True) == (0, 2, 0, 0, 0)

    with monkeypatch.context() as patch:
        patch.setattr(ocr, "read_text", None)  # nothing is read
        assert counts(pipeline, folder, ocr=True) == (0, 0, 2, 0, 0)
        assert counts(pipeline, folder) == (0, 0, 2, 0, 0)
        assert documents(pipeline)["sign.png"].text == "harbour"

    sign(folder / "sign.png", "market")
    assert counts(pipeline, folder, ocr=True) == (0, 1, 1, 0, 0)
    assert documents(pipeline)["sign.png"].text == "market"
    sign(folder / "sign.png", "winter")
    assert counts(pipeline, folder) == (0, 1, 1, 0, 0)
    assert documents(pipeline)["sign.png"].text is None


@pytest.mark.slow
def test_a_text_of_its_own_comes_before_the_text_in_the_image(pipeline: Pipeline, folder: Path) -> None:
    sign(folder / "sign.png", "harbour")
    rows = [{"id": "own", "image": "sign.png", "text": "my own"}, {"id": "none", "image": "sign.png"}]
    (folder / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))

    pipeline.index(Paths([folder / "rows.jsonl"], options=SourceOptions(ocr=True)))

    assert {id: document.text for id, document in documents(pipeline).items()} == {"own": "my own", "none": "harbour"}


@pytest.mark.slow
def test_the_words_in_frames_are_read_where_there_are_no_subtitles(pipeline: Pipeline, folder: Path) -> None:
    slide = np.asarray(Image.open(sign(folder / "slide.png", "harbour")).convert("RGB"))
    os.remove(folder / "slide.png")
    film(folder / "talk.mp4", [2], size=(360, 80), pictures=[slide])

    assert counts(pipeline, folder, video=True, ocr=True) == (2, 0, 0, 0, 0)
    assert documents(pipeline)["talk.mp4#t=0.000"].text == "harbour"
    assert counts(pipeline, folder, video=True) == (0, 0, 1, 0, 0)


def test_signs_without_two_letters_are_no_text(
    pipeline: Pipeline, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Image.new("RGB", (64, 64), "white").save(folder / "rings.png")
    read = [ocr.Line(text, (0, 20 * row, 40, 20), 0.9) for row, text in enumerate(("0", "++", "B4", "é!", "* ok *"))]
    monkeypatch.setattr(ocr, "read_text", lambda _: read)
    pipeline.index(Paths([folder / "rings.png"], options=SourceOptions(ocr=True)))
    [document] = pipeline.store.get([str(folder / "rings.png")])
    assert document.text == "B4\n* ok *"
    assert document.metadata["ocr"] == "0,40,40,20;0,80,40,20"


def test_a_broken_image_is_rejected_as_it_is_without_reading(pipeline: Pipeline, folder: Path) -> None:
    (folder / "bad.png").write_bytes(b"\x89PNG\r\n\x1a\n no image")

    codes = []
    for option in (False, True):
        report = pipeline.index(Paths([folder], options=SourceOptions(ocr=option)))
        codes += [reject.code for reject in report.rejects]

    assert len(codes) == 2
    assert codes[0] == codes[1]


# ------------------------------------------------------------------------------------------------- the command line


@pytest.mark.slow
def test_the_options_of_the_command_line(tmp_path: Path, folder: Path) -> None:
    film(folder / "holiday.mp4", (3, 3))
    write(folder / "page.html", "A lighthouse on the cliff")
    sign(folder / "sign.png", "harbour")
    index = ("index", folder, "--store", f"sqlite:{tmp_path}/index", "--encoder", "mock:")

    assert ok(*index).startswith("1 added, 0 updated, 0 unchanged in")
    assert ok(*index, "--video", "--office", "--ocr").startswith("4 added, 1 updated, 0 unchanged in")
    assert ok(*index, "--video", "--office", "--ocr").startswith("0 added, 0 updated, 3 unchanged in")

    named = ok("index", folder / "holiday.mp4", "--store", f"sqlite:{tmp_path}/other", "--encoder", "mock:")
    assert named.startswith("3 added, 0 updated, 0 unchanged in")
