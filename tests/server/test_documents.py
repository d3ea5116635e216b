"""Documents over HTTP: read, add with images, change, delete."""

import base64
import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from io import BytesIO
from pathlib import Path

import httpx
import pytest
from PIL import Image

from tests.support.cli import ok
from tests.support.long_texts import PASSAGES, long_record
from tests.support.odd_images import encoded
from tests.support.service import RunningService, serving
from vlmsearch import connect
from vlmsearch.demo.scenes import make_scene
from vlmsearch.errors import BackendError
from vlmsearch.server.settings import IndexSettings, ServerSettings
from vlmsearch.stores.sqlite.store import SqliteStore

DOCUMENTS = "/api/v1/indexes/default/documents"


def png(seed: int = 1, size: int = 64) -> bytes:
    return encoded(make_scene(seed).draw(size), "PNG")


@pytest.fixture
def service(tmp_path: Path) -> Iterator[RunningService]:
    settings = ServerSettings(
        indexes={"default": IndexSettings(f"sqlite:{tmp_path / 'index'}", "mock:")}, uploads=str(tmp_path / "uploads")
    )
    with serving(settings) as running:
        yield running


def add(service: RunningService, *documents: Mapping[str, object]) -> httpx.Response:
    return service.http.post(DOCUMENTS, json={"documents": documents})


def files(tmp_path: Path) -> list[str]:
    return sorted(path.name for path in (tmp_path / "uploads").rglob("*") if path.is_file())


def test_documents_are_added_found_read_and_deleted(service: RunningService) -> None:
    report = add(service, {"id": "a", "text": "a dog", "metadata": {"n": 1}}, {"id": "b/../b", "text": "a car"})
    assert report.json() | {"seconds": 0} == {
        "added": 2, "updated": 0, "unchanged": 0, "pruned": 0,
        "unlabelled": 0, "rejects": [], "seconds": 0, "left_out": {}, "partly_read": 0, "unread": {},
        "partly_read_in_all": 0, "others": {},
        "passages": 0, "cut": 0, "files": 2, "repeated": 0,
    }  # fmt: skip
    assert add(service, {"id": "a", "text": "a dog", "metadata": {"n": 1}}).json()["unchanged"] == 1
    found = service.http.get(DOCUMENTS, params={"id": ["b/../b", "nowhere", "a"]}).json()
    assert [document["id"] for document in found["documents"]] == ["b/../b", "a"]
    assert found["documents"][1] == {"id": "a", "text": "a dog", "image": None, "metadata": {"n": 1}}
    assert found["missing"] == ["nowhere"]
    assert service.http.post(f"{DOCUMENTS}/delete", json={"ids": ["a", "nowhere"]}).json() == {"deleted": 1}
    assert service.http.get(DOCUMENTS).json()["documents"] == [
        {"id": "b/../b", "text": "a car", "image": None, "metadata": {}}
    ]


def ids_page_by_page(service: RunningService, **asked: str | int) -> list[str]:
    """Return the ids of all documents, read from the first page to the last."""
    ids: list[str] = []
    after = None
    while True:
        page = service.http.get(DOCUMENTS, params=asked | ({"after": after} if after else {})).json()
        ids += [document["id"] for document in page["documents"]]
        after = page["after"]
        if after is None:
            return ids


def test_all_documents_are_read_page_by_page(service: RunningService) -> None:
    ids = [f"{n:03}" for n in range(25)]
    add(service, *({"id": id, "text": id} for id in reversed(ids)))
    assert ids_page_by_page(service, limit=10) == ids


def test_documents_that_pass_a_filter_are_read_page_by_page(service: RunningService) -> None:
    add(service, *({"id": f"{n:02}", "text": str(n), "metadata": {"odd": n % 2}} for n in range(25)))
    odd: dict[str, str | int] = {"where": json.dumps({"odd": 1}), "limit": 7}
    assert ids_page_by_page(service, **odd) == [f"{n:02}" for n in range(1, 25, 2)]
    assert ids_page_by_page(service, where="odd=1", limit=7) == ids_page_by_page(service, **odd)


def test_documents_are_read_pictures_and_the_newest_first(service: RunningService) -> None:
    encoded = base64.b64encode(png(1)).decode()
    add(
        service,
        {"id": "text", "text": "a", "metadata": {"date": 20240103}},
        *({"id": f"{n}\u00e9 b", "image": encoded, "metadata": {"date": 20240101 + n % 2}} for n in range(4)),
        {"id": "undated", "image": encoded},
    )
    asked: dict[str, str | int] = {"order": "gallery", "limit": 2}
    assert ids_page_by_page(service, **asked) == ["1\u00e9 b", "3\u00e9 b", "0\u00e9 b", "2\u00e9 b", "undated", "text"]
    asked["where"] = json.dumps({"date": {"$gt": 20240101}})
    page = service.http.get(DOCUMENTS, params=asked | {"limit": 9}).json()
    assert [document["id"] for document in page["documents"]] == ["1\u00e9 b", "3\u00e9 b", "text"]
    assert service.http.get(DOCUMENTS, params=asked | {"after": "1\u00e9 b"}).status_code == 400
    assert service.http.get(DOCUMENTS, params={"order": "size"}).status_code == 422


def test_a_passage_is_read_by_its_id_and_documents_alone_are_listed(service: RunningService, tmp_path: Path) -> None:
    picture = tmp_path / "picture.png"
    picture.write_bytes(png())
    add(service, {"id": "note", "text": "a red kite", "metadata": {"kind": "note"}})
    pipeline = service.service.indexes["default"].pipeline
    long = long_record(pipeline.encoder, "handbook", metadata={"kind": "book"})
    pipeline.store.upsert([replace(long, document=replace(long.document, image=picture))])
    ids = ["handbook#passage=2", "note", "handbook#passage=4"]
    found = service.http.get(DOCUMENTS, params={"id": ids}).json()
    assert [document["text"] for document in found["documents"]] == [PASSAGES[1], "a red kite"]
    assert found["missing"] == ["handbook#passage=4"]
    place = {"number": 2, "start": len(PASSAGES[0]), "end": len(PASSAGES[0] + PASSAGES[1])}
    assert found["passages"] == {ids[0]: {**place, "heading": "Opening hours", "text": PASSAGES[1]}}
    for order in ("id", "gallery"):
        listed = service.http.get(DOCUMENTS, params={"order": order}).json()["documents"]
        assert [document["id"] for document in listed] == ["handbook", "note"]
        assert listed[0]["text"] == "".join(PASSAGES)
    facets = service.http.get("/api/v1/indexes/default/facets", params={"key": "kind"}).json()
    assert facets["total"] == 2
    assert {value["value"]: value["count"] for value in facets["facets"]["kind"]} == {"book": 1, "note": 1}
    about = service.http.get("/api/v1/indexes/default").json()
    assert (about["documents"], about["files"], about["passages"]) == (2, 2, 3)
    pipeline.store.upsert([long_record(pipeline.encoder, "lease.pdf#page=1")])
    [summary] = service.http.get("/api/v1/indexes").json()["indexes"]
    assert (summary["documents"], summary["files"]) == (3, 2)
    pipeline.store.delete(["lease.pdf#page=1"])
    for name in ("image", "thumbnail"):
        sent = service.http.get(f"/api/v1/indexes/default/{name}", params={"id": "handbook#passage=2"})
        assert sent.status_code == 200, sent.text
    query = "emergency number of the plumber"
    with connect(service.url) as remote:
        [match] = remote.search(query, limit=1)
        assert match.passage == pipeline.search(query, limit=1)[0].passage == long.passages[2].passage
        assert match.document.text == "".join(PASSAGES)
        [document] = remote.get(ids[0])
        assert (document.text, remote.count()) == (PASSAGES[1], 2)
    shown = ok("get", ids[0], "--server", service.url)
    assert "place  Opening hours, characters 272-" in shown
    assert service.http.post(f"{DOCUMENTS}/delete", json={"ids": ["handbook"]}).json() == {"deleted": 1}
    assert service.http.get("/api/v1/indexes/default").json()["passages"] == 0


def test_values_are_counted(service: RunningService) -> None:
    add(service, *({"id": str(n), "text": str(n), "metadata": {"odd": n % 2, "kind": "a"}} for n in range(5)))
    asked = {"key": ["odd", "kind", "none"]}
    facets = "/api/v1/indexes/default/facets"
    found = service.http.get(facets, params=asked).json()
    odd, even = {"value": 1, "count": 2}, {"value": 0, "count": 3}
    assert found == {"total": 5, "facets": {"odd": [even, odd], "kind": [{"value": "a", "count": 5}], "none": []}}
    found = service.http.get(facets, params={**asked, "where": json.dumps({"odd": 1})}).json()
    assert found == {"total": 2, "facets": {"odd": [odd], "kind": [{"value": "a", "count": 2}], "none": []}}
    assert service.http.get(facets).json() == {"total": 5, "facets": {}}


@pytest.mark.parametrize("path", ["documents?after=a%00", "documents?order=gallery&after=0+0+%00", "facets?key=a%00"])
def test_a_place_or_a_key_that_cannot_be_is_refused(service: RunningService, path: str) -> None:
    assert service.http.get(f"/api/v1/indexes/default/{path}").status_code == 400


@pytest.mark.parametrize("where", ["{", "[]", "odd=", '{"a": {"$near": 1}}', '{"a\\u0000": 1}', '{"a": 1e999}'])
def test_a_filter_that_is_none_is_refused(service: RunningService, where: str) -> None:
    assert service.http.get(DOCUMENTS, params={"where": where}).status_code == 400


def test_images_come_in_base64_as_data_urls_and_as_parts(service: RunningService, tmp_path: Path) -> None:
    encoded = base64.b64encode(png(1)).decode()
    assert add(service, {"id": "in/base64.png", "image": encoded}).json()["added"] == 1
    assert add(service, {"id": "url", "image": f"data:image/png;base64,{encoded}"}).json()["added"] == 1
    report = service.http.post(
        DOCUMENTS,
        data={"documents": json.dumps({"documents": [{"id": "part", "image": "part:it", "text": "a scene"}]})},
        files={"it": ("../../evil.png", png(2))},
    )
    assert report.json()["added"] == 1, report.text
    assert files(tmp_path) == ["base64.png", "part.png", "url.png"]
    image = service.http.get("/api/v1/indexes/default/image", params={"id": "part"})
    assert image.content == png(2)
    assert image.headers["content-type"] == "image/png"
    assert image.headers["x-content-type-options"] == "nosniff"
    again = service.http.get(
        "/api/v1/indexes/default/image", params={"id": "part"}, headers={"If-None-Match": image.headers["etag"]}
    )
    assert (again.status_code, again.content) == (304, b"")


@pytest.mark.parametrize("id", ["../../../etc/passwd", "/etc/passwd", "..", "a\\..\\b", "con.png", "%2e%2e", "ü" * 500])
def test_no_part_of_an_id_leads_out_of_the_uploads(service: RunningService, tmp_path: Path, id: str) -> None:
    def elsewhere() -> set[Path]:
        beside = (place for parent in list(tmp_path.parents)[:3] for place in parent.iterdir())
        found = {*tmp_path.rglob("*"), *beside} - {uploads, *uploads.rglob("*")}
        return {path for path in found if not path.name.startswith("index")}

    uploads = tmp_path / "uploads"
    before = elsewhere()
    assert add(service, {"id": id, "image": base64.b64encode(png()).decode()}).json()["added"] == 1
    assert elsewhere() == before
    [name] = files(tmp_path)
    assert name.endswith(".png")
    assert name.isascii()
    assert not name.startswith(".")


def test_an_image_that_is_replaced_or_deleted_leaves_nothing(service: RunningService, tmp_path: Path) -> None:
    for seed in (1, 2):
        add(service, {"id": "a", "image": base64.b64encode(png(seed)).decode()})
    assert files(tmp_path) == ["a.png"]
    assert service.http.get("/api/v1/indexes/default/image", params={"id": "a"}).content == png(2)
    add(service, {"id": "a", "text": "no picture now"})
    assert files(tmp_path) == []
    add(service, {"id": "a", "image": base64.b64encode(png(1)).decode()})
    service.http.post(f"{DOCUMENTS}/delete", json={"ids": ["a"]})
    assert files(tmp_path) == []
    assert service.http.get("/api/v1/indexes/default/image", params={"id": "a"}).status_code == 404


def test_what_cannot_be_used_is_listed_without_paths_of_the_server(service: RunningService, tmp_path: Path) -> None:
    damaged = base64.b64encode(png()[:200]).decode()
    report = add(
        service, {"id": "bad.png", "image": damaged}, {"id": "good", "text": "a dog"}, {"id": "no\x00id", "text": "a"}
    )
    assert (report.json()["added"], len(report.json()["rejects"])) == (1, 2)
    listed = service.http.get("/api/v1/indexes/default/rejects").json()["rejects"]
    assert [(each["id"], each["code"]) for each in listed] == [("bad.png", "truncated")]
    for each in (*listed, *report.json()["rejects"]):
        assert str(tmp_path) not in each["message"]
    assert files(tmp_path) == []
    assert service.http.get("/api/v1/indexes/default").json()["rejected"] == {"truncated": 1}


def test_metadata_are_changed_and_kept(service: RunningService) -> None:
    document = {"id": "a", "text": "a dog", "metadata": {"n": 1, "old": True}}
    add(service, document, {"id": "b", "text": "a car"})
    change = {"ids": ["a", "b", "nowhere"], "set": {"place": ["Rome", "Bari"], "n": 2}, "unset": ["old"]}
    assert service.http.post(f"{DOCUMENTS}/metadata", json=change).json() == {"changed": 2}
    assert service.http.post(f"{DOCUMENTS}/metadata", json=change).json() == {"changed": 0}
    found = service.http.get(DOCUMENTS, params={"id": "a"}).json()["documents"][0]
    assert found["metadata"] == {"n": 2, "place": ["Rome", "Bari"]}
    search = {"text": "a dog", "where": {"place": "Rome"}}
    assert service.http.post("/api/v1/indexes/default/search", json=search).json()["matches"][0]["id"] == "a"
    assert add(service, document).json()["unchanged"] == 1
    assert service.http.get(DOCUMENTS, params={"id": "a"}).json()["documents"][0]["metadata"]["place"][0] == "Rome"
    both = service.http.post(f"{DOCUMENTS}/metadata", json={"ids": ["a"], "set": {"x": 1}, "unset": ["x"]})
    assert (both.status_code, "`unset`" in both.json()["error"]["message"]) == (400, True)
    wrong = service.http.post(f"{DOCUMENTS}/metadata", json={"ids": ["a"], "set": {"$x": 1}})
    assert (wrong.status_code, wrong.json()["error"]["code"]) == (400, "invalid")


def test_thumbnails_are_small_jpegs(service: RunningService, tmp_path: Path) -> None:
    add(service, {"id": "a", "image": base64.b64encode(png(1, 500)).decode()}, {"id": "text", "text": "a dog"})
    place = "/api/v1/indexes/default/thumbnail"
    found = service.http.get(place, params={"id": "a", "size": 100})
    assert found.headers["content-type"] == "image/jpeg"
    assert max(Image.open(BytesIO(found.content)).size) == 100
    etag = found.headers["etag"]
    assert service.http.get(place, params={"id": "a", "size": 100}, headers={"If-None-Match": etag}).status_code == 304
    assert service.http.get(place, params={"id": "a", "size": 101}).headers["etag"] != etag
    assert service.http.get(place, params={"id": "text"}).status_code == 404
    assert service.http.get(place, params={"id": "a", "size": 100_000}).status_code == 422
    [path] = (tmp_path / "uploads").rglob("*.png")
    path.unlink()
    gone = service.http.get(place, params={"id": "a"})
    assert (gone.status_code, "not there any more" in gone.json()["error"]["message"]) == (404, True)


def test_an_image_that_is_no_image_is_not_served(service: RunningService, tmp_path: Path) -> None:
    """A document whose file became something else, such as a page, is not handed to a browser."""
    add(service, {"id": "a", "image": base64.b64encode(png()).decode()})
    [path] = (tmp_path / "uploads").rglob("*.png")
    path.write_bytes(b"<script>alert(1)</script>")
    for kind in ("image", "thumbnail"):
        found = service.http.get(f"/api/v1/indexes/default/{kind}", params={"id": "a"})
        assert (found.status_code, found.json()["error"]["code"]) == (400, "unsupported")


def test_uploads_that_cannot_be_written_are_a_clear_error(service: RunningService, tmp_path: Path) -> None:
    (tmp_path / "uploads").write_text("a file where the folder should be")
    found = add(service, {"id": "a", "image": base64.b64encode(png()).decode()})
    assert (found.status_code, found.json()["error"]["type"]) == (503, "backend_unavailable")
    (tmp_path / "uploads").unlink()
    assert add(service, {"id": "a", "image": base64.b64encode(png()).decode()}).json()["added"] == 1


def test_a_store_that_fails_leaves_uploads_to_the_next_write(
    service: RunningService, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise BackendError("the disk is gone")

    encoded = [base64.b64encode(png(seed)).decode() for seed in (1, 2)]
    with monkeypatch.context() as patch:
        patch.setattr(SqliteStore, "upsert", fail)
        patch.setattr(SqliteStore, "get", fail)
        assert add(service, {"id": "a", "image": encoded[0]}).status_code == 502
    assert add(service, {"id": "a", "image": encoded[1]}).json()["added"] == 1
    assert files(tmp_path) == ["a.png"]
    assert service.http.get("/api/v1/indexes/default/image", params={"id": "a"}).content == png(2)
