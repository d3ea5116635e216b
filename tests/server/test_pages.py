"""Pages of PDF files over HTTP: indexed by a job, found by file, looked at, opened, deleted."""

import os
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path

import pytest
from PIL import Image

from tests.support.pdf_files import write_pdf
from tests.support.service import RunningService, serving
from vlmsearch import RemotePipeline, SourceOptions, connect
from vlmsearch.demo.scenes import make_scene
from vlmsearch.media.images import open_image
from vlmsearch.server.settings import IndexSettings, ServerSettings

INDEX = "/api/v1/indexes/default"


@pytest.fixture
def papers(tmp_path: Path) -> Path:
    folder = tmp_path / "papers"
    folder.mkdir()
    write_pdf(folder / "a.pdf", ["a red dog", "a blue car", "a red dog and a cat"])
    return folder


@pytest.fixture
def service(papers: Path, tmp_path: Path) -> Iterator[RunningService]:
    index = IndexSettings(f"sqlite:{tmp_path / 'index'}", "onnx:demo", allow=(str(papers),))
    with serving(ServerSettings(indexes={"default": index}, uploads=str(tmp_path / "uploads"))) as running:
        yield running


@pytest.fixture
def remote(service: RunningService) -> Iterator[RemotePipeline]:
    with connect(service.url) as pipeline:
        yield pipeline


def test_pages_are_indexed_found_by_file_and_deleted_with_it(
    service: RunningService, remote: RemotePipeline, papers: Path
) -> None:
    path = papers / "a.pdf"
    assert remote.index("a.pdf").added == 4
    assert remote.index([papers], options=SourceOptions(pdf=True)).unchanged == 1
    found = remote.search("a red dog", min_score=0.5)
    assert len(found) == 1
    assert found[0].document.id == f"{path}#page=1"
    assert next(iter(found[0].parts)) == f"{path}#page=3"
    every = remote.search("a red dog", min_score=0.5, group=False)
    assert {f"{path}#page=1", f"{path}#page=3"} <= {match.document.id for match in every}
    assert [len(each) for each in remote.search_many(["a red dog"], min_score=0.5, group=False)] == [len(every)]
    form = service.http.post(f"{INDEX}/search", json={"text": "a red dog", "min_score": 0.5}).json()["matches"][0]
    assert form["parts"] == dict(found[0].parts)
    assert remote.delete(str(path)) == 4


def test_a_page_is_seen_as_a_picture_and_opened_in_its_file(
    service: RunningService, remote: RemotePipeline, papers: Path
) -> None:
    remote.index([papers], options=SourceOptions(pdf=True))
    page = f"{papers / 'a.pdf'}#page=2"
    shown = service.http.get(f"{INDEX}/image", params={"id": page})
    assert shown.headers["content-type"] == "image/png"
    drawn = open_image(Path(page))
    assert Image.open(BytesIO(shown.content)).tobytes() == drawn.tobytes()
    again = service.http.get(f"{INDEX}/image", params={"id": page}, headers={"If-None-Match": shown.headers["etag"]})
    assert again.status_code == 304
    small = service.http.get(f"{INDEX}/thumbnail", params={"id": page, "size": 64})
    assert Image.open(BytesIO(small.content)).size == (45, 64)
    for id in (page, str(papers / "a.pdf")):
        file = service.http.get(f"{INDEX}/file", params={"id": id})
        assert (file.headers["content-type"], file.content) == ("application/pdf", (papers / "a.pdf").read_bytes())
    some = service.http.get(f"{INDEX}/file", params={"id": page}, headers={"Range": "bytes=0-3"})
    assert (some.status_code, some.content) == (206, b"%PDF")
    make_scene(1).draw(64).save(papers / "scene.png")
    assert remote.index("scene.png").added == 1
    for id in ("nowhere", "a.pdf#page=1", str(papers / "scene.png")):  # only files of several documents are given
        assert service.http.get(f"{INDEX}/file", params={"id": id}).status_code == 404


def test_a_row_names_no_page_of_a_file_elsewhere(remote: RemotePipeline, papers: Path, tmp_path: Path) -> None:
    secret = write_pdf(tmp_path / "secret.pdf", ["secret"])
    os.symlink(secret, papers / "link.pdf")
    (papers / "t.jsonl").write_text(
        f'{{"id": "a", "image": "link.pdf#page=1"}}\n{{"id": "b", "image": "{secret}#page=1"}}\n'
        '{"id": "c", "image": "a.pdf#page=1"}\n'
    )
    report = remote.index("t.jsonl")
    assert {reject.id: reject.code for reject in report.rejects} == {"a": "unreadable", "b": "unreadable"}
    assert report.added == 1
