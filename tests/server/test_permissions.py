"""What a token with principals is told: what an index of the documents alone would say that these may read."""

from __future__ import annotations

import base64
import json
import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.server.test_access import GuardedService
from tests.support.odd_images import encoded
from tests.support.openai_server import OpenAIServer
from tests.support.pdf_files import write_pdf
from tests.support.scripted_http import Answer, scripted_server
from tests.support.service import serving
from vlmsearch import BackendError, ConfigError, Document, Pipeline, RemoteImage, RemotePipeline, connect
from vlmsearch.client import opened
from vlmsearch.demo.scenes import make_scene
from vlmsearch.indexing.items import SourceOptions
from vlmsearch.principals import HEADER, read_principals
from vlmsearch.server.app import create_app
from vlmsearch.server.settings import IndexSettings, ServerSettings
from vlmsearch.server.tokens import TokenFile

API = "/api/v1/indexes"
WHOLE, SMALL = f"{API}/whole", f"{API}/small"
HR = ["group:hr"]


def png(seed: int) -> str:
    return base64.b64encode(encoded(make_scene(seed).draw(64), "PNG")).decode()


READABLE: Sequence[Mapping[str, Any]] = [
    {"id": "a", "text": "a dog in the snow", "image": png(1), "metadata": {"year": 2020}},
    {"id": "b", "text": "a blue car and a dog", "metadata": {"year": 2021}, "readers": ["user:bob", "group:hr"]},
    {"id": "c", "text": "two cats on a sofa", "image": png(1), "readers": ["*"]},
]
HIDDEN: Sequence[Mapping[str, Any]] = [
    {"id": "hidden", "text": "a dog of hr", "image": png(2), "metadata": {"year": 2020, "pay": 3}, "readers": HR},
    *({"id": f"h{n}", "text": "a secret dog", "metadata": {"year": 1999}, "readers": HR} for n in range(20)),
    {"id": "nobody", "text": "a dog of nobody", "image": png(1), "readers": []},
]


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GuardedService]:
    """A service with the index ``whole`` of all documents, and ``small`` of those alone that bob may read."""
    folder = tmp_path_factory.mktemp("permissions")
    tokens = TokenFile(folder / "tokens.json")
    secrets = {
        "root": tokens.add("root", role="admin"),
        "bob": tokens.add("bob", role="admin", principals=["user:bob"]),
        "hr": tokens.add("hr", role="write", principals=["group:hr", "user:ann"]),
        "anyone": tokens.add("anyone", role="read", principals=["*"]),
    }
    back_ends = IndexSettings("mock:", "mock:", "extractive:", "mock:", allow=(str(folder),))
    settings = ServerSettings(
        indexes=dict.fromkeys(("whole", "small"), back_ends),
        tokens=str(tokens.path),
        uploads=str(folder / "uploads"),
    )
    with serving(settings) as running:
        service = GuardedService(running, tokens, secrets)
        for path, documents in ((WHOLE, [*READABLE[:1], *HIDDEN, *READABLE[1:]]), (SMALL, READABLE)):
            report = service.send("POST", f"{path}/documents", by="root", json={"documents": documents}).json()
            assert (report["added"], report["rejects"]) == (len(documents), [])
        yield service


def ids(service: GuardedService, by: str, index: str = WHOLE, **headers: str) -> set[str]:
    page = service.send("GET", f"{index}/documents", by=by, params={"limit": 1000}, headers=headers).json()
    return {document["id"] for document in page["documents"]}


def test_a_token_reads_the_documents_of_its_principals(guarded: GuardedService) -> None:
    everything = {document["id"] for document in (*READABLE, *HIDDEN)}
    assert ids(guarded, "root") == everything
    assert ids(guarded, "bob") == {"a", "b", "c"}
    assert ids(guarded, "hr") == everything - {"nobody"}
    assert ids(guarded, "anyone") == {"a", "c"}


def reading(image: str) -> list[tuple[str, str, dict[str, Any]]]:
    """Requests that read an index, by name: what it tells of all of its documents."""
    search = {"text": "dog", "min_score": 0, "count": True, "facets": ["year", "readers"], "limit": 2}
    return [
        ("GET", "", {}),
        ("GET", "/documents", {"params": {"limit": 2}}),
        ("GET", "/documents", {"params": {"order": "gallery"}}),
        ("GET", "/documents", {"params": {"where": "year=2020"}}),
        ("GET", "/facets", {"params": {"key": ["year", "readers", "pay"]}}),
        ("GET", "/rejects", {}),
        ("POST", "/search", {"json": search}),
        ("POST", "/search", {"json": {**search, "text": "secret"}}),
        ("POST", "/search", {"json": {"text": "dgo", "sort": "year"}}),
        ("POST", "/search", {"json": {"image": image, "min_score": 0, "rerank": True}}),
        ("POST", "/search", {"json": {"like": ["a"], "without": "car", "min_score": 0}}),
        ("POST", "/search", {"json": {"text": "dog", "where": {"pay": 3}}}),
        ("POST", "/search_many", {"json": {"queries": [{"text": "dog"}, {"text": "cats"}], "min_score": 0}}),
        ("POST", "/explain", {"json": {"text": "dog", "id": "b"}}),
        ("POST", "/ask", {"json": {"question": "Where is the dog?"}}),
        ("POST", "/ask", {"json": {"question": "Where is the dog?", "stream": True}}),
        ("POST", "/label", {"json": {"labels": ["dog", "car"], "min_score": 0}}),
        ("POST", "/eval", {"json": {"queries": [{"query": "dog", "relevant": ["a", "hidden"]}]}}),
    ]


def settled(answer: httpx.Response, index: str) -> str:
    """The text of an answer, without what differs between two indexes with the same documents."""
    text = re.sub(r"/[0-9a-f]{2}/[0-9a-f]{64}/", "/", answer.text.replace(index, "INDEX"))
    return re.sub(r'"(request_id|seconds|created|p50|p95)":("[^"]*"|[\d.e-]+)', r'"\1":0', text)


def test_every_answer_is_that_of_an_index_of_the_readable_documents(guarded: GuardedService) -> None:
    for method, path, given in reading(png(1)):
        whole = guarded.send(method, WHOLE + path, by="bob", **given)
        small = guarded.send(method, SMALL + path, by="bob", **given)
        plain = guarded.send(method, SMALL + path, by="root", **given)
        assert settled(whole, "whole") == settled(small, "small"), (method, path, given)
        if path not in ("", "/rejects"):  # which say what the token may do, too
            assert settled(small, "small") == settled(plain, "small"), (method, path, given)
        assert whole.status_code == small.status_code
    counts = guarded.send("GET", API, by="bob").json()["indexes"]
    assert [(index["documents"], index["files"], index["can"]) for index in counts] == [(3, 3, counts[1]["can"])] * 2


BY_ID: dict[str, list[tuple[str, dict[str, Any]]]] = {
    "": [],
    "/ask": [],
    "/documents": [
        ("GET", {"params": {"id": "ID"}}), ("GET", {"params": {"after": "ID"}}),
        ("GET", {"params": {"id": ["a", "ID#page=1", "ID#passage=1"]}}),
    ],
    "/documents/delete": [("POST", {"json": {"ids": ["ID", "ID#page=1"]}})],
    "/documents/metadata": [("POST", {"json": {"ids": ["ID"], "set": {"n": 1}, "unset": ["readers"]}})],
    "/eval": [("POST", {"json": {"queries": [{"query": "dog", "relevant": ["ID", "a"]}]}})],
    "/explain": [("POST", {"json": {"text": "dog", "id": "ID"}}), ("POST", {"json": {"like": ["ID"], "id": "a"}})],
    "/facets": [],
    "/file": [("GET", {"params": {"id": "ID"}})],
    "/image": [
        ("GET", {"params": {"id": "ID"}}), ("HEAD", {"params": {"id": "ID"}}),
        ("GET", {"params": {"id": "ID"}, "headers": {"If-None-Match": "TAG"}}),
    ],
    "/jobs": [("POST", {"json": {"kind": "eval", "queries": [{"query": "dog", "relevant": ["ID"]}]}})],
    "/label": [],
    "/rejects": [],
    "/search": [
        ("POST", {"json": {"like": ["ID"]}}), ("POST", {"json": {"text": "dog", "without": ["ID"]}}),
        ("POST", {"json": {"like": ["a", "ID"]}}),
    ],
    "/search_many": [("POST", {"json": {"queries": [{"like": ["ID"]}]}})],
    "/thumbnail": [
        ("GET", {"params": {"id": "ID"}}), ("GET", {"params": {"id": "ID", "size": 32}}),
        ("GET", {"params": {"id": "ID"}, "headers": {"If-None-Match": "TAG"}}),
    ],
}  # fmt: skip
"""The requests of each path with an id; a path without one has none."""


def test_a_hidden_id_is_an_absent_one_for_every_route(guarded: GuardedService) -> None:
    paths = create_app(guarded.running.service).openapi()["paths"]
    start = "/api/v1/indexes/{index}"
    assert {path.removeprefix(start) for path in paths if path.startswith(start)} == set(BY_ID)
    shown = {path: guarded.send("GET", f"{WHOLE}{path}?id=hidden", by="hr") for path in ("/image", "/thumbnail")}
    assert {answer.headers["Cache-Control"].split(",")[0] for answer in shown.values()} == {"private"}
    assert all(HEADER in answer.headers["Vary"] and "Cookie" in answer.headers["Vary"] for answer in shown.values())
    for path, requests in BY_ID.items():
        for method, given in requests:
            answers = []
            for id in ("hidden", "hiddem"):  # ids are in the order of the alphabet
                tag = shown[path].headers["ETag"] if path in shown else ""
                filled = json.loads(json.dumps(given).replace("ID", id).replace("TAG", json.dumps(tag)[1:-1]))
                answer = guarded.send(method, WHOLE + path, by="bob", **filled)
                differing = {"date", "x-request-id"} | ({"content-length"} if path == "/eval" else set())  # times
                headers = {name: value for name, value in answer.headers.items() if name not in differing}
                text = re.sub(r'"(request_id|id)":"[0-9a-f]{12,}"', "", settled(answer, "whole"))
                answers.append((answer.status_code, headers, text.replace(id, "ID")))
            assert answers[0] == answers[1], (method, path, given)
            assert answers[0][0] != 500
    assert "hidden" in ids(guarded, "hr")


def test_what_is_about_all_documents_needs_a_token_without_principals(guarded: GuardedService) -> None:
    refused = [
        ("GET", "/metrics", None),
        ("POST", f"{WHOLE}/jobs", {"kind": "check"}),
        ("POST", f"{WHOLE}/jobs", {"kind": "check", "repair": True}),
        ("POST", f"{WHOLE}/jobs", {"kind": "index", "paths": ["."]}),
        ("POST", f"{WHOLE}/jobs", {"kind": "index", "paths": ["."], "prune": True}),
    ]
    for method, path, form in refused:
        answer = guarded.send(method, path, by="bob", json=form)
        assert (answer.status_code, answer.json()["error"]["type"]) == (403, "forbidden"), path
        assert "a token without principals" in answer.json()["error"]["message"]
    assert guarded.send("GET", "/metrics", by="root").status_code == 200
    assert guarded.send("GET", "/metrics", by="root", headers={HEADER: "*"}).status_code == 403
    can = guarded.send("GET", WHOLE, by="bob").json()["can"]
    assert (can["write"], can["ask"], can["admin"], can["jobs"]) == (True, True, False, False)


def test_the_header_narrows_and_never_widens(guarded: GuardedService) -> None:
    assert ids(guarded, "root", **{HEADER: "user:bob"}) == {"a", "b", "c"}
    assert ids(guarded, "hr", **{HEADER: "user:bob"}) == {"a", "b", "c"}
    assert ids(guarded, "bob", **{HEADER: "group:hr,user:ann"}) == {"a", "b", "c"}
    assert ids(guarded, "anyone", **{HEADER: "group:hr,user:bob"}) == {"a", "c"}
    assert ids(guarded, "root", **{HEADER: "user:bob;group:none"}) == {"a", "c"}
    for wrong in ("", ",", "a,", "a, b", "a;;b", "%zz", "a b", ";".join("a" * 11), "a" * 300, "%0A", "*,a,*,b"):
        answer = guarded.send("GET", f"{WHOLE}/documents", by="root", headers={HEADER: wrong})
        assert answer.status_code == 400, wrong
        assert answer.json()["error"]["param"] == HEADER
    with pytest.raises(ValueError, match="percent-encoded"):
        read_principals("ä")


def test_a_writer_writes_what_it_reads_before_and_after(guarded: GuardedService) -> None:
    def add(by: str, **document: object) -> dict[str, Any]:
        form = {"documents": [{"id": "new", "text": "a note", **document}, {"id": "beside", "text": "a note"}]}
        report: dict[str, Any] = guarded.send("POST", f"{WHOLE}/documents", by=by, json=form).json()
        return report

    before = guarded.send("GET", f"{WHOLE}/image?id=hidden", by="hr").content
    taken = add("bob", id="hidden", text="mine", image=png(3))
    assert [(reject["id"], reject["code"]) for reject in taken["rejects"]] == [("hidden", "invalid")]
    assert taken["added"] == 1
    assert guarded.send("GET", f"{WHOLE}/image?id=hidden", by="hr").content == before
    assert add("bob", readers=["user:bob"])["added"] == 1
    assert add("bob", readers=["group:hr"])["rejects"][0]["code"] == "invalid"
    assert {"new", "beside"} <= ids(guarded, "bob")
    assert "new" not in ids(guarded, "hr")
    assert add("bob", text="a note again")["updated"] == 1
    assert "new" not in ids(guarded, "hr")  # the readers stay where none are given
    change = {"ids": ["new", "hidden"], "set": {"readers": ["group:hr"]}}
    assert guarded.send("POST", f"{WHOLE}/documents/metadata", by="bob", json=change).status_code == 400
    both = {"ids": ["new", "hidden"], "set": {"readers": ["group:hr", "user:bob"]}}
    assert guarded.send("POST", f"{WHOLE}/documents/metadata", by="bob", json=both).json() == {"changed": 1}
    assert "new" in ids(guarded, "hr")
    [page] = guarded.send("GET", f"{WHOLE}/documents?id=new", by="hr").json()["documents"]
    assert page["metadata"]["readers"] == ["group:hr", "user:bob"]
    gone = {"ids": ["new", "beside", "hidden"]}
    assert guarded.send("POST", f"{WHOLE}/documents/delete", by="bob", json=gone).json() == {"deleted": 2}
    assert guarded.send("GET", f"{WHOLE}/image?id=hidden", by="hr").content == before


@pytest.mark.parametrize("form", [{"readers": []}, {"metadata": {"readers": []}}, {"metadata": {"readers": {"a": 1}}}])
def test_what_is_no_name_is_nobody(guarded: GuardedService, form: dict[str, Any]) -> None:
    document = {"id": "closed", "text": "closed", **form}
    assert guarded.send("POST", f"{WHOLE}/documents", by="root", json={"documents": [document]}).json()["rejects"] == []
    assert "closed" in ids(guarded, "root")
    assert not any("closed" in ids(guarded, by) for by in ("bob", "hr", "anyone"))
    guarded.send("POST", f"{WHOLE}/documents/delete", by="root", json={"ids": ["closed"]})


def test_a_change_of_metadata_to_no_readers_is_for_nobody(guarded: GuardedService) -> None:
    document = {"id": "closing", "text": "closing"}
    guarded.send("POST", f"{WHOLE}/documents", by="root", json={"documents": [document]})
    change = {"ids": ["closing"], "set": {"readers": []}}
    guarded.send("POST", f"{WHOLE}/documents/metadata", by="root", json=change)
    assert not any("closing" in ids(guarded, by) for by in ("bob", "hr", "anyone"))
    guarded.send("POST", f"{WHOLE}/documents/delete", by="root", json={"ids": ["closing"]})


def test_a_file_is_for_its_readers_also_where_a_page_is_for_everyone(guarded: GuardedService, tmp_path: Path) -> None:
    path = write_pdf(tmp_path / "a.pdf", ["one", "two"])
    pipeline = guarded.running.service.indexes["whole"].pipeline
    pipeline.index(path, options=SourceOptions(readers=HR))
    page = Document(f"{path}#page=2", text="for all", image=Path(f"{path}#page=2"), readers=["*"])
    pipeline.add(page)
    answers = {
        (by, name): guarded.send("GET", f"{WHOLE}/{name}", by=by, params={"id": page.id}).status_code
        for by in ("hr", "bob")
        for name in ("thumbnail", "file")
    }
    assert answers == {
        ("hr", "thumbnail"): 200, ("hr", "file"): 200, ("bob", "thumbnail"): 200, ("bob", "file"): 404
    }  # fmt: skip
    pipeline.delete(str(path))


def test_samples_are_of_those_who_may_read_since_a_change_of_readers(guarded: GuardedService) -> None:
    def scores(by: str, **headers: str) -> list[float]:
        form = {"text": "a fox in the fog", "min_score": 0, "like": ["fox"]}
        answer = guarded.send("POST", f"{WHOLE}/search", by=by, json=form, headers=headers).json()
        return [match["score"] for match in answer["matches"]]

    documents = [{"id": f"fox{n}" if n else "fox", "text": f"a fox in the fog {n}"} for n in range(30)]
    guarded.send("POST", f"{WHOLE}/documents", by="root", json={"documents": documents})
    before = scores("bob")
    change = {"ids": ["fox1", "fox2"], "set": {"readers": ["group:hr"]}}
    guarded.send("POST", f"{WHOLE}/documents/metadata", by="root", json=change)
    assert before != scores("bob") == scores("root", **{HEADER: "user:bob,user:of-a-new-handle"})
    guarded.send("POST", f"{WHOLE}/documents/delete", by="root", json={"ids": [form["id"] for form in documents]})


def test_jobs_are_their_owners(guarded: GuardedService) -> None:
    form = {"kind": "label", "labels": ["dog"], "min_score": 0}
    job = guarded.send("POST", f"{WHOLE}/jobs", by="bob", json=form).json()
    path = f"/api/v1/jobs/{job['id']}"
    done = guarded.send("GET", f"{path}/events", by="bob").text
    assert '"id":"b"' in done
    assert "hidden" not in done
    assert guarded.send("GET", "/api/v1/jobs", by="bob").json()["jobs"][0]["id"] == job["id"]
    for by, headers in (("hr", {}), ("anyone", {}), ("bob", {HEADER: "user:bob"})):
        assert guarded.send("GET", "/api/v1/jobs", by=by, headers=headers).json() == {"jobs": []}
        for method, verb in (("GET", ""), ("GET", "/events"), ("POST", "/cancel")):
            hidden = guarded.send(method, path + verb, by=by, headers=headers)
            absent = guarded.send(method, f"/api/v1/jobs/{'0' * 32}{verb}", by=by, headers=headers)
            assert hidden.status_code == absent.status_code == 404
            assert settled(hidden, job["id"]) == settled(absent, "0" * 32)
    assert guarded.send("GET", path, by="root").json()["result"]
    theirs = guarded.send("POST", f"{WHOLE}/jobs", by="root", json=form).json()
    assert guarded.send("GET", f"/api/v1/jobs/{theirs['id']}", by="bob").status_code == 404


def test_a_chat_answers_from_what_is_readable(guarded: GuardedService) -> None:
    form = {"model": "whole", "messages": [{"role": "user", "content": "What is the dog of hr?"}], "limit": 20}
    answers = {by: guarded.send("POST", "/v1/chat/completions", by=by, json=form) for by in ("bob", "hr")}
    assert "hidden" in answers["hr"].text
    assert not re.search("hidden|secret|nobody", answers["bob"].text)
    small = guarded.send("POST", "/v1/chat/completions", by="bob", json={**form, "model": "small"})
    texts = [answer.json()["choices"][0]["message"]["content"] for answer in (answers["bob"], small)]
    assert texts[0] == texts[1]


def test_a_session_has_the_principals_of_its_token(guarded: GuardedService) -> None:
    with httpx.Client(base_url=guarded.running.url) as http:
        http.post("/api/v1/session", json={"token": guarded.secrets["bob"]}).raise_for_status()
        page = http.get(f"{WHOLE}/documents").json()
    assert {document["id"] for document in page["documents"]} == {"a", "b", "c"}


def test_the_log_names_no_principals(guarded: GuardedService, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        ids(guarded, "bob", **{HEADER: "group:telltale"})
        guarded.send("POST", f"{WHOLE}/search", by="bob", json={"text": "dog"})
    said = [record for record in caplog.records if record.name.startswith("vlmsearch")]
    assert said
    assert not re.search("telltale|user:bob", "".join(f"{record.getMessage()}{vars(record)}" for record in said))


def test_a_prompt_is_cached_for_those_alone_who_read_the_same(tmp_path: Path) -> None:
    with (
        OpenAIServer() as server,
        Pipeline.open(encoder="mock:", store="mock:", generator=f"openai:{server.url}") as pipeline,
    ):
        make_scene(1).draw(64).save(tmp_path / "a.png")
        pipeline.add([Document("a", text="a red star"), Document("b", image=tmp_path / "a.png")])
        for handle in (
            pipeline, pipeline.restricted(["x", "y"]), pipeline.restricted(["y", "x"]), pipeline.restricted(["x"]),
            pipeline.restricted(["x"]).restricted(["y"]),
        ):  # fmt: skip
            handle.ask("What is the red star?")
        salts = [request.get("cache_salt") for request in server.script.requests]
        assert pipeline.restricted(["x"]).describe().described == 1
        assert server.script.requests[-1]["cache_salt"] == salts[3]
    assert salts[0] is None
    assert salts[1] == salts[2]
    assert len(set(salts)) == 4
    assert not any(salt == "x" or "group" in str(salt) for salt in salts)


# ---- a restricted handle on a server


@pytest.fixture
def remote(guarded: GuardedService) -> Iterator[RemotePipeline]:
    with connect(guarded.running.url, index="whole", token=guarded.secrets["root"]) as pipeline:
        yield pipeline


def test_a_restricted_handle_on_a_server_reads_as_one_there(guarded: GuardedService, remote: RemotePipeline) -> None:
    whole = guarded.running.service.indexes["whole"].pipeline
    for principals in (["user:bob"], ["group:hr", "user:ä, b"], []):
        there, here = remote.restricted(principals), whole.restricted(principals)
        assert [document.id for document in there.documents()] == [document.id for document in here.documents()]
        assert there.count() == here.count() < remote.count()
        found, expected = (pipeline.search("dog", min_score=0, count=True) for pipeline in (there, here))
        assert [(match.document.id, match.score) for match in found] == [
            (match.document.id, match.score) for match in expected
        ]
        assert found.total == expected.total
        assert list(there.label(["dog"], min_score=0)) != []
        with pytest.raises(ConfigError, match="principals"):
            there.check()
    bob = remote.restricted(["user:bob"])
    assert [document.id for document in bob.restricted(["group:none"]).documents()] == ["a", "c"]
    with pytest.raises(ConfigError, match="no document 'hidden'"):
        bob.image("hidden")
    assert bob.get(["hidden", "b"]) == remote.get("b")
    assert bob.delete("hidden") == 0
    bob.close()
    assert remote.count() == len(HIDDEN) + len(READABLE)


def test_wrong_principals_are_told_before_anything_is_sent(remote: RemotePipeline) -> None:
    with pytest.raises(TypeError, match="principals"):
        remote.restricted([1])  # type: ignore[list-item]
    with pytest.raises(ConfigError, match="at most 256 bytes"):
        remote.restricted(["x" * 257])
    with pytest.raises(ConfigError, match="give fewer"):
        remote.restricted([f"group:{n:08}" for n in range(5000)])


def test_an_image_of_a_restricted_handle_is_fetched_by_its_principals(
    guarded: GuardedService, remote: RemotePipeline
) -> None:
    [document] = remote.restricted(["group:hr"]).get("hidden")
    image = document.image
    assert isinstance(image, RemoteImage)
    pipeline = opened(image)
    assert pipeline is not None
    assert pipeline.image("hidden")
    change = {"ids": ["hidden"], "set": {"readers": ["user:eve"]}}
    guarded.send("POST", f"{WHOLE}/documents/metadata", by="root", json=change)
    try:
        with pytest.raises(ConfigError, match="no document 'hidden'"):
            pipeline.image("hidden")
    finally:
        change["set"] = {"readers": HR}
        guarded.send("POST", f"{WHOLE}/documents/metadata", by="root", json=change)


def test_a_server_that_does_not_know_the_header_is_refused() -> None:
    answer = b'{"documents": 1}'
    with (
        scripted_server(Answer(200, answer), Answer(200, answer, {HEADER: "*,user:ann"})) as server,
        connect(server.url) as pipeline,
    ):
        for _ in range(2):
            with pytest.raises(BackendError, match="for more than was asked"):
                pipeline.restricted(["user:bob"]).count()
