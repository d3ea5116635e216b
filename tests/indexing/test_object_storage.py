"""Sources in object storage, by a real client and a server of this machine."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from vlmsearch_mocks import MemoryStore, MockEncoder

from tests.support.cli import ok
from tests.support.object_storage import client, put, put_folder
from tests.support.shards import png, write_parquet, write_tar
from vlmsearch import ConfigError, Document, ImageLimits, InvalidInputError, Pipeline, Reject
from vlmsearch.index import add_reported
from vlmsearch.indexing.items import SourceDocument
from vlmsearch.indexing.reindex import reindex
from vlmsearch.indexing.sources import Paths
from vlmsearch.media.images import open_image, thumbnail
from vlmsearch.registry import open_encoder

REMOTE = ImageLimits(remote=True)
pytestmark = pytest.mark.usefixtures("storage")


def documents(*paths: str | Path) -> list[Document]:
    return [item.document for item in Paths(paths) if isinstance(item, SourceDocument)]


def test_a_prefix_is_a_folder(tmp_path: Path) -> None:
    for name in ("b.png", "a/c.PNG", "a/note.txt", ".hidden/d.png", "skip.pdf"):
        put(f"folder/{name}", png(1) if name.lower().endswith("png") else b"a note")
    found = documents("s3://photos/folder")
    assert [doc.id for doc in found] == [f"s3://photos/folder/{name}" for name in ("a/c.PNG", "a/note.txt", "b.png")]
    assert [doc.text for doc in found] == [None, "a note", None]
    assert len(Paths(["s3://photos/folder/"])) == 3


def test_a_glob_and_a_file(tmp_path: Path) -> None:
    for name in ("glob/1.png", "glob/2.png", "glob/3.txt"):
        put(name, png(1))
    assert [doc.id for doc in documents("s3://photos/glob/*.png")] == [f"s3://photos/glob/{n}.png" for n in (1, 2)]
    assert [doc.id for doc in documents("s3://photos/glob/1.png")] == ["s3://photos/glob/1.png"]
    with pytest.raises(ConfigError, match="no such file or folder, and nothing matches: 's3://photos/none'"):
        Paths(["s3://photos/none"])


def test_tables_name_images_beside_them_and_elsewhere(tmp_path: Path) -> None:
    put("tables/a.png", png(1))
    rows = [{"id": "near", "image": "a.png"}, {"id": "far", "image": "s3://photos/tables/a.png"}, {"image": "a.png"}]
    lines = "\n".join(map(json.dumps, rows)).encode()
    near, far, unnamed = documents(put("tables/rows.jsonl", lines))
    assert near.image == far.image == unnamed.image
    assert unnamed.id == "s3://photos/tables/a.png"
    assert isinstance(near.image, Path)
    assert open_image(near.image, limits=REMOTE).size == (96, 96)
    here = tmp_path / "rows.jsonl"
    here.write_bytes(lines)
    assert documents(here)[1].image == far.image


def test_the_index_is_the_one_of_the_same_files_here(tmp_path: Path) -> None:
    folder = tmp_path / "all"
    write_tar(folder / "s.tar", {"0.png": png(0), "0.json": {"year": 2024}, "1.txt": "a dog"})
    write_parquet(folder / "t.parquet", [{"id": "p", "image": png(3), "year": 2020}, {"id": "q", "text": "a cat"}])
    (folder / "rows.csv").write_text("id,text,year\nc,a bird,2019\n")
    (folder / "one.png").write_bytes(png(5))
    (folder / "bad.png").write_bytes(b"\x89PNG broken")
    url = put_folder(folder, "same")
    stores = []
    for place in (str(folder), url):
        pipeline = Pipeline(MockEncoder(), MemoryStore())
        report = pipeline.index([place, *(f"{place}/{name}" for name in ("s.tar", "t.parquet", "rows.csv"))])
        assert (report.added, [reject.id for reject in report.rejects]) == (6, [f"{place}/bad.png"])
        assert pipeline.index([place]).unchanged == 1
        stores.append(pipeline.store)
    here, there = ({id.replace(url, str(folder)) for id in store.ids()} for store in stores)
    assert here == there
    matches = Pipeline(MockEncoder(), stores[1]).search("a dog", limit=1, min_score=0)
    assert matches[0].document.id == f"{url}/s.tar/1"


def test_a_picture_is_read_from_there_and_what_is_gone_is_pruned(tmp_path: Path) -> None:
    first, second = put("prune/1.png", png(1)), put("prune/2.png", png(2))
    pipeline = Pipeline(MockEncoder(), MemoryStore())
    assert pipeline.index("s3://photos/prune").added == 2
    (found,) = pipeline.store.get([first])
    assert isinstance(found.image, Path)
    assert thumbnail(found.image, edge=32, limits=REMOTE).startswith(b"\xff\xd8")
    client().delete_object(Bucket="photos", Key="prune/1.png")
    assert pipeline.index("s3://photos/prune", prune=True).pruned == 1
    assert list(pipeline.store.ids()) == [second]


def test_what_cannot_be_read_there_is_rejected(tmp_path: Path) -> None:
    gone, empty = "s3://photos/tables/gone.png", put("empty.png", b"")
    put("missing.jsonl", json.dumps({"id": "a", "image": gone}).encode())
    report = Pipeline(MockEncoder(), MemoryStore()).index(["s3://photos/missing.jsonl", empty])
    found = {reject.id: reject for reject in report.rejects}
    assert {id: reject.code for id, reject in found.items()} == {"a": "unreadable", empty: "empty"}
    assert isinstance(found["a"], Reject)
    assert gone in found["a"].message


def requested(prefix: str, log: pytest.LogCaptureFixture) -> list[str]:
    """The paths below a prefix that the storage was asked for."""
    return [record.getMessage() for record in log.records if f"/photos/{prefix}" in record.getMessage()]


def test_a_table_leads_to_no_other_place_in_object_storage(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    secret = put("private/a.png", png(1))
    below = put("shared/below/b.png", png(2))
    rows = [
        {"id": "absolute", "image": secret},
        {"id": "up", "image": "../private/a.png"},
        {"id": "below", "image": below},
        {"id": "beside", "image": "below/b.png"},
    ]
    lines = "\n".join(map(json.dumps, rows)).encode()
    there, here = put("shared/rows.jsonl", lines), tmp_path / "rows.jsonl"
    here.write_bytes(lines)
    caplog.set_level("INFO", "werkzeug")
    caplog.clear()
    report = Pipeline(MockEncoder(), MemoryStore()).index(there)
    assert (report.added, {reject.id: reject.code for reject in report.rejects}) == (
        2,
        {"absolute": "unreadable", "up": "unreadable"},
    )
    assert requested("shared/below", caplog)
    report = Pipeline(MockEncoder(), MemoryStore()).index(here)
    assert {reject.id for reject in report.rejects} == {"absolute", "up", "below", "beside"}
    assert "is in object storage" in report.rejects[0].message
    assert not requested("private", caplog)
    with Pipeline(MockEncoder(), MemoryStore(), image_limits=REMOTE) as pipeline:
        assert {reject.id for reject in pipeline.index(here).rejects} == {"up", "beside"}
    assert requested("private", caplog)


def test_an_index_from_elsewhere_leads_to_no_place_in_object_storage(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    secret = put("private/dog.png", png(1))
    store = f"sqlite:{tmp_path / 'index'}"
    with Pipeline.open(encoder="mock:", store=store) as pipeline:
        pipeline.index(secret)
    page = tmp_path / "page.html"
    caplog.set_level("INFO", "werkzeug")
    caplog.clear()
    with Pipeline.open(encoder="mock:", store=store) as pipeline:
        [match] = pipeline.search("dog", min_score=0)
        assert isinstance(match.document.image, Path)
        with pytest.raises(InvalidInputError, match="is in object storage"):
            pipeline.search(image=match.document.image)
        assert "object storage" in pipeline.explain("dog", secret, min_score=0, parts=True).notes[0]
        pipeline.duplicates()
        list(pipeline.label(["dog"], min_score=0))
        [reject] = add_reported(pipeline, replace(match.document, id="again")).rejects
        assert reject.code == "unreadable"
        moved = reindex(pipeline.store, open_encoder("onnx:demo"))
        assert moved.lost == (secret,)
    ok("search", "dog", "--min-score", "0", "--store", store, "--encoder", "mock:", "--html", page)
    assert not requested("private", caplog)
    assert "data:image" not in page.read_text()
    limits = ("--image-limits", "remote")
    ok("search", "dog", "--min-score", "0", "--store", store, "--encoder", "mock:", "--html", page, *limits)
    assert "data:image" in page.read_text()
