"""Long work over HTTP: started, followed, cancelled."""

import base64
import hashlib
import json
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.films import film
from tests.support.object_storage import object_storage, put
from tests.support.service import RunningService, serving
from vlmsearch.demo.scenes import make_scene
from vlmsearch.errors import BackendError
from vlmsearch.server.jobs import Job, Jobs
from vlmsearch.server.service import Service
from vlmsearch.server.settings import IndexSettings, ServerSettings
from vlmsearch.server.tokens import TokenFile
from vlmsearch.wire import Json

JOBS = "/api/v1/indexes/default/jobs"


@pytest.fixture
def service(tmp_path: Path) -> Iterator[RunningService]:
    photos = tmp_path / "photos"
    photos.mkdir()
    for seed in (1, 2, 3):
        make_scene(seed).draw(64).save(photos / f"{seed}.png")
    (photos / "broken.png").write_bytes(b"not an image")
    (tmp_path / "secret").mkdir()
    make_scene(4).draw(64).save(tmp_path / "secret" / "4.png")
    index = IndexSettings(f"sqlite:{tmp_path / 'index'}", "mock:", allow=(str(photos),))
    other = IndexSettings("mock:", "mock:")
    with serving(ServerSettings(indexes={"default": index, "other": other}, uploads=str(tmp_path / "up"))) as running:
        yield running


def start(service: RunningService, request: dict[str, object]) -> dict[str, Any]:
    found = service.http.post(JOBS, json=request)
    assert found.status_code == 202, found.text
    job: dict[str, Any] = found.json()
    return job


def follow(service: RunningService, id: str) -> list[tuple[str, dict[str, Any]]]:
    found, name = [], ""
    with service.http.stream("GET", f"/api/v1/jobs/{id}/events") as answer:
        for line in answer.iter_lines():
            kind, _, value = line.partition(": ")
            if kind == "event":
                name = value
            elif kind == "data":
                found.append((name, json.loads(value)))
    return found


def test_a_folder_is_indexed_with_progress(service: RunningService, tmp_path: Path) -> None:
    job = start(service, {"kind": "index", "paths": [str(tmp_path / "photos")]})
    assert (job["state"] in ("queued", "running"), job["index"], job["paths"]) == (
        True, "default", [str(tmp_path / "photos")],
    )  # fmt: skip
    *progress, (name, data) = follow(service, job["id"])
    assert name == "done"
    assert (data["result"]["added"], len(data["result"]["rejects"])) == (3, 1)
    assert progress[-1] == ("progress", {"done": 4, "total": 4})
    now = service.http.get(f"/api/v1/jobs/{job['id']}").json()
    assert (now["state"], now["result"]) == ("done", data["result"])
    assert [each["id"] for each in service.http.get("/api/v1/jobs").json()["jobs"]] == [job["id"]]
    assert service.http.get("/api/v1/indexes/default").json()["documents"] == 3


def test_a_path_may_be_relative_to_an_allowed_folder(service: RunningService) -> None:
    job = start(service, {"kind": "index", "paths": ["1.png"]})
    assert follow(service, job["id"])[-1][1]["result"]["added"] == 1


@pytest.mark.parametrize(
    "path", ["../secret", "{root}/secret", "{root}/photos/../secret", "/etc", "/", "nothing", "*.png", "a\0b"]
)
def test_what_was_not_allowed_is_not_read(service: RunningService, tmp_path: Path, path: str) -> None:
    found = service.http.post(JOBS, json={"kind": "index", "paths": [path.format(root=tmp_path)]})
    assert (found.status_code, found.json()["error"]["type"]) == (400, "invalid_request")


def test_links_and_tables_do_not_lead_out_of_an_allowed_folder(service: RunningService, tmp_path: Path) -> None:
    photos, secret = tmp_path / "photos", tmp_path / "secret"
    (photos / "link.png").symlink_to(secret / "4.png")
    (photos / "folder").symlink_to(secret)
    rows = [
        {"id": "in", "image": "1.png"},
        {"id": "out", "image": "../secret/4.png"},
        {"id": "through", "image": "link.png"},
    ]
    (photos / "table.jsonl").write_text("\n".join(map(json.dumps, rows)))
    for path in ("link.png", "folder", "folder/4.png"):
        assert service.http.post(JOBS, json={"kind": "index", "paths": [path]}).status_code == 400
    job = start(service, {"kind": "index", "paths": [str(photos), "table.jsonl"]})
    result = follow(service, job["id"])[-1][1]["result"]
    assert {each["id"] for each in result["rejects"]} == {str(photos / "broken.png"), "out", "through"}
    ids = {each["id"] for each in service.http.get("/api/v1/indexes/default/documents").json()["documents"]}
    assert ids == {"in", *(str(photos / f"{n}.png") for n in (1, 2, 3))}


def test_a_table_leads_to_no_object_storage(
    service: RunningService, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path / "photos")  # where a path that looks like a URL is one below the folder
    with object_storage(tmp_path):
        row = {"id": "there", "image": put("a.png", (tmp_path / "secret" / "4.png").read_bytes())}
        (tmp_path / "photos" / "table.jsonl").write_text(json.dumps(row))
        job = start(service, {"kind": "index", "paths": ["table.jsonl"]})
        [reject] = follow(service, job["id"])[-1][1]["result"]["rejects"]
    assert (reject["id"], reject["code"]) == ("there", "unreadable")
    assert "not in a folder that the operator allowed" in reject["message"]


def test_subtitles_that_are_a_link_do_not_lead_out_of_an_allowed_folder(
    service: RunningService, tmp_path: Path
) -> None:
    film(tmp_path / "photos" / "holiday.mp4", (3,))
    (tmp_path / "secret" / "private.srt").write_text("1\n00:00:00,000 --> 00:00:02,000\nthe salaries\n\n")
    (tmp_path / "photos" / "holiday.srt").symlink_to(tmp_path / "secret" / "private.srt")
    job = start(service, {"kind": "index", "paths": ["holiday.mp4"]})  # it is named, and needs no option
    assert follow(service, job["id"])[-1][1]["result"]["added"] == 2
    assert "salaries" not in service.http.get("/api/v1/indexes/default/documents").text


def test_a_job_says_what_was_not_read_and_what_nothing_takes(service: RunningService, tmp_path: Path) -> None:
    (tmp_path / "photos" / "a.log").touch()
    unread = {"unread": "2 comments, 1 chart", "unread_count": 3}
    (tmp_path / "photos" / "table.jsonl").write_text(json.dumps({"id": "a", "text": "a dog", **unread}))
    for partly_read, parts, in_all in ((1, {"comment": 2, "chart": 1}, 0), (0, {}, 1)):
        job = start(service, {"kind": "index", "paths": [".", "table.jsonl"]})
        result = follow(service, job["id"])[-1][1]["result"]
        assert result["others"] == {".log": 1, ".jsonl": 1}
        counts = [result[name] for name in ("partly_read", "unread", "partly_read_in_all")]
        assert counts == [partly_read, parts, in_all]
    info = service.http.get("/api/v1/indexes/default").json()
    assert (info["partly_read"], info["unread"]) == (1, {"comment": 2, "chart": 1})
    where = {"where": json.dumps({"unread_count": {"$gte": 1}})}
    [document] = service.http.get("/api/v1/indexes/default/documents", params=where).json()["documents"]
    assert document["metadata"] == unread


def test_what_is_the_services_own_is_not_read_below_an_allowed_folder(tmp_path: Path) -> None:
    root, link = tmp_path / "root", tmp_path / "link"
    root.mkdir()
    link.symlink_to(root)
    make_scene(1).draw(64).save(root / "mine.png")
    settings = ServerSettings(
        indexes={
            "default": IndexSettings(f"sqlite:{root / 'index.txt'}", "mock:", allow=(str(link),)),
            "other": IndexSettings(f"sqlite:{link / 'other.txt'}", "mock:"),
        },
        uploads=str(root / "up"),
    )
    with serving(settings) as service:
        picture = base64.b64encode((root / "mine.png").read_bytes()).decode()
        sent = {"documents": [{"id": "secret of another", "image": picture}]}
        assert service.http.post("/api/v1/indexes/other/documents", json=sent).json()["added"] == 1
        [upload] = (root / "up").rglob("*.png")
        for path in (upload, upload.parent, "up", "index.txt", "other.txt"):
            assert service.http.post(JOBS, json={"kind": "index", "paths": [str(path)]}).status_code == 400
        (root / "table.jsonl").write_text(json.dumps({"id": "row", "image": str(upload.relative_to(root))}))
        job = start(service, {"kind": "index", "paths": [".", "table.jsonl"]})
        result = follow(service, job["id"])[-1][1]["result"]
        assert [each["id"] for each in result["rejects"]] == ["row"]
        found = service.http.get("/api/v1/indexes/default/documents").json()["documents"]
        assert {Path(each["id"]).name for each in found} == {"mine.png"}
    guarded = replace(settings, tokens=str(link / "tokens"), tls_cert=str(root / "cert"), tls_key=str(root / "key"))
    with Service.open(guarded) as opened:
        assert {str(root / name) for name in ("tokens", "key", "up", "index.txt", "other.txt")} == set(
            opened.private_places()
        )


def test_an_index_without_allowed_folders_reads_none(service: RunningService) -> None:
    found = service.http.post("/api/v1/indexes/other/jobs", json={"kind": "index", "paths": ["/"]})
    assert (found.status_code, "allow" in found.json()["error"]["message"]) == (400, True)


def test_the_other_kinds_of_jobs_give_what_the_commands_give(service: RunningService) -> None:
    follow(service, start(service, {"kind": "index", "paths": ["."]})["id"])
    service.http.post("/api/v1/indexes/default/documents", json={"documents": [{"id": "a", "text": "a dog"}]})
    requests: list[tuple[dict[str, object], str]] = [
        ({"kind": "label", "labels": ["dog"], "write": True}, "labels"),
        ({"kind": "duplicates"}, "groups"),
        ({"kind": "eval", "queries": [{"query": "a dog", "relevant": ["a"]}]}, "fields"),
        ({"kind": "check"}, "clean"),
    ]
    for request, key in requests:
        name, data = follow(service, start(service, request)["id"])[-1]
        assert name == "done", data
        assert key in data["result"]
    assert (
        service.http.get("/api/v1/indexes/default/documents", params={"id": "a"}).json()["documents"][0]["metadata"][
            "label"
        ]
        == "dog"
    )


def test_a_job_that_fails_says_why(service: RunningService, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(**_: object) -> None:
        raise BackendError("the disk is gone")

    monkeypatch.setattr(service.service.indexes["default"].pipeline, "check", broken)
    job = start(service, {"kind": "check"})
    name, data = follow(service, job["id"])[-1]
    assert (name, data["error"]["type"], data["error"]["message"]) == ("failed", "backend_failed", "the disk is gone")
    assert service.http.get(f"/api/v1/jobs/{job['id']}").json()["error"] == data["error"]


@pytest.mark.parametrize(
    "asked",
    [
        {"kind": "label", "labels": ["dog"], "templates": ["no place"]},
        {"kind": "label", "labels": []},
        {"kind": "label", "labels": ["dog"], "where": {"$no": 1}},
        {"kind": "duplicates", "where": {"n": {}}},
        {"kind": "eval", "queries": [{"relevant": ["a"]}]},
        {"kind": "eval", "queries": [{"query": "a dog", "image": "AAA", "relevant": ["a"]}]},
    ],
)
def test_a_job_that_would_fail_at_once_is_not_begun(service: RunningService, asked: dict[str, object]) -> None:
    before = service.http.get("/api/v1/jobs").json()
    refused = service.http.post(JOBS, json=asked)
    assert (refused.status_code, refused.json()["error"]["type"]) == (400, "invalid_request")
    assert service.http.get("/api/v1/jobs").json() == before


def test_a_job_is_cancelled_and_what_it_did_stays(service: RunningService, tmp_path: Path) -> None:
    table = tmp_path / "photos" / "many.jsonl"
    table.write_text("\n".join(json.dumps({"id": f"{n:06}", "text": f"text {n}"}) for n in range(60_000)))
    job = start(service, {"kind": "index", "paths": ["many.jsonl"]})
    deadline = time.monotonic() + 60
    while not service.http.get(f"/api/v1/jobs/{job['id']}").json()["done"]:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert service.http.post(f"/api/v1/jobs/{job['id']}/cancel").status_code == 202
    assert follow(service, job["id"])[-1][0] == "cancelled"
    assert service.http.get(f"/api/v1/jobs/{job['id']}").json()["state"] == "cancelled"
    kept = service.http.get("/api/v1/indexes/default").json()["documents"]
    assert 0 < kept < 60_000
    assert follow(service, start(service, {"kind": "check"})["id"])[-1][1]["result"]["clean"]


def test_there_is_no_job_that_nobody_started(service: RunningService) -> None:
    for method, path in (
        ("GET", "/api/v1/jobs/x"),
        ("GET", "/api/v1/jobs/x/events"),
        ("POST", "/api/v1/jobs/x/cancel"),
    ):
        found: httpx.Response = service.http.request(method, path)
        assert (found.status_code, found.json()["error"]["type"]) == (404, "not_found")
    assert service.http.post(JOBS, json={"kind": "dance"}).status_code == 422


# ---- tokens and indexes share the threads


@pytest.fixture
def shared(tmp_path: Path) -> Iterator[tuple[RunningService, dict[str, dict[str, str]], threading.Event]]:
    """A service with the headers of two tokens, and what ends the jobs of `until`."""
    tokens, index, end = TokenFile(tmp_path / "tokens.json"), IndexSettings("mock:", "mock:"), threading.Event()
    headers = {name: {"Authorization": f"Bearer {tokens.add(name, role='read')}"} for name in ("greedy", "modest")}
    with serving(ServerSettings(indexes={"a": index, "b": index}, tokens=str(tokens.path))) as running:
        try:
            yield running, headers, end
        finally:
            end.set()


def owner_of(headers: dict[str, str]) -> str:
    """Return the owner of the jobs that a token starts."""
    return hashlib.sha256(headers["Authorization"].removeprefix("Bearer ").encode()).hexdigest()


def until(end: threading.Event) -> Callable[[Job], Json]:
    """The work of a job that goes on until then."""

    def work(job: Job) -> Json:
        end.wait(30)
        return {}

    return work


def test_the_jobs_of_one_token_leave_places_to_others(
    shared: tuple[RunningService, dict[str, dict[str, str]], threading.Event],
) -> None:
    running, headers, end = shared
    for _ in range(2):
        running.service.jobs.start("check", "a", owner_of(headers["greedy"]), until(end), None)
    path, check = "/api/v1/indexes/a/jobs", {"kind": "check"}
    taken = 0
    while (found := running.http.post(path, json=check, headers=headers["greedy"])).status_code == 202:
        taken += 1
        assert taken < 50
    assert (found.status_code, found.json()["error"]["type"]) == (429, "overloaded")
    assert found.headers["Retry-After"]
    assert taken > 5
    assert running.http.post(path, json=check, headers=headers["modest"]).status_code == 202


def test_indexes_take_turns() -> None:
    end, order = threading.Event(), list[str]()
    with closing(Jobs()) as jobs:

        def work(job: Job) -> Json:
            order.append("".join((job.index, *(job.paths or ()))))
            return {}

        first = [jobs.start("check", index, "x", until(end), None) for index in ("a", "c")]
        while any(job.state == "queued" for job in first):
            time.sleep(0.01)
        started = [jobs.start("check", "a", "x", work, (str(n),)) for n in range(4)]
        started += [jobs.start("check", "b", "y", work, (str(n),)) for n in range(2)]
        first[1].token.cancel()
        end.set()
        while not all(job.is_over for job in started):
            time.sleep(0.01)
    assert order.index("b1") < order.index("a2"), order
    assert [each for each in order if each[0] == "a"] == ["a0", "a1", "a2", "a3"]


def test_what_one_token_did_is_not_forgotten_for_another() -> None:
    with closing(Jobs()) as jobs:
        kept = jobs.start("check", "a", "modest", lambda job: {}, None)
        for _ in range(300):
            job = jobs.start("check", "a", "greedy", lambda job: {}, None)
            while not job.is_over:
                time.sleep(0.001)
        assert jobs.get(kept.id) is kept
        assert len(jobs.all()) < 100


def test_those_who_follow_a_job_are_counted_by_their_token(
    shared: tuple[RunningService, dict[str, dict[str, str]], threading.Event],
) -> None:
    running, headers, end = shared
    job = running.service.jobs.start("check", "a", owner_of(headers["greedy"]), until(end), None)
    other = running.service.jobs.start("check", "a", owner_of(headers["modest"]), until(end), None)
    followed = {"greedy": job, "modest": other}
    with ExitStack() as stack, httpx.Client(base_url=running.url, limits=httpx.Limits(max_connections=None)) as http:

        def follow_as(name: str) -> httpx.Response:
            path = f"/api/v1/jobs/{followed[name].id}/events"
            return stack.enter_context(http.stream("GET", path, headers=headers[name]))

        streams = []
        while (found := follow_as("greedy")).status_code == 200:
            streams.append(found)
            assert len(streams) < 100
        assert (found.status_code, json.loads(found.read())["error"]["type"]) == (429, "overloaded")
        assert len(streams) > 5
        assert follow_as("modest").status_code == 200
        streams[0].close()
        while follow_as("greedy").status_code != 200:
            time.sleep(0.05)
        end.set()
        assert "event: done" in streams[1].read().decode()


def test_a_stream_on_which_nothing_happens_does_nothing(
    shared: tuple[RunningService, dict[str, dict[str, str]], threading.Event], monkeypatch: pytest.MonkeyPatch
) -> None:
    running, headers, end = shared
    reads = []

    def is_over(job: Job) -> bool:
        reads.append(job)
        return job.ended is not None

    job = running.service.jobs.start("check", "a", owner_of(headers["greedy"]), until(end), None)
    while job.state == "queued":
        time.sleep(0.01)
    monkeypatch.setattr(Job, "is_over", property(is_over))
    with running.http.stream("GET", f"/api/v1/jobs/{job.id}/events", headers=headers["greedy"]) as answer:
        lines = answer.iter_lines()
        assert next(lines) == "event: progress"
        time.sleep(0.3)
        before = len(reads)
        time.sleep(0.7)
        assert len(reads) == before
        job.advance(3)
        assert '{"done":3,"total":null}' in next(line for line in lines if "3" in line)
        end.set()
        assert "event: done" in list(lines)


# ---- a job belongs to the token that started it


@dataclass(frozen=True)
class Owned:
    """A service with tokens, and what ends the jobs of `until`."""

    running: RunningService
    tokens: TokenFile
    headers: Mapping[str, dict[str, str]]
    end: threading.Event

    def start(self, by: str) -> Job:
        return self.running.service.jobs.start("check", "a", owner_of(self.headers[by]), until(self.end), None)

    def ask(self, method: str, path: str, by: str) -> httpx.Response:
        return self.running.http.request(method, f"/api/v1/jobs{path}", headers=self.headers[by])

    def answers(self, id: str, by: str) -> list[tuple[int, str]]:
        """Return the answers of the routes of a job, with the id left out."""
        doors = (("GET", f"/{id}"), ("HEAD", f"/{id}"), ("GET", f"/{id}/events"), ("POST", f"/{id}/cancel"))
        answers = [self.ask(method, path, by) for method, path in doors]
        return [
            (answer.status_code, re.sub(r'"request_id":"[^"]*"', "", answer.text.replace(id, "ID")))
            for answer in answers
        ]


@pytest.fixture
def owned(tmp_path: Path) -> Iterator[Owned]:
    tokens, index, end = TokenFile(tmp_path / "tokens.json"), IndexSettings("mock:", "mock:"), threading.Event()
    secrets = {
        "owner": tokens.add("owner", role="read", indexes=["a"]),
        "reader": tokens.add("reader", role="read"),
        "writer": tokens.add("writer", role="write", indexes=["a"]),
        "admin": tokens.add("admin", role="admin", indexes=["a"]),
        "admin of b": tokens.add("other", role="admin", indexes=["b"]),
    }
    headers = {name: {"Authorization": f"Bearer {secret}"} for name, secret in secrets.items()}
    with serving(ServerSettings(indexes={"a": index, "b": index}, tokens=str(tokens.path))) as running:
        try:
            yield Owned(running, tokens, headers, end)
        finally:
            end.set()


def test_a_job_and_its_result_are_there_for_its_owner_and_an_admin(owned: Owned) -> None:
    job = owned.start("owner")
    for other in ("reader", "writer", "admin of b"):
        assert owned.answers(job.id, other) == owned.answers("0" * 32, other)
        assert {status for status, _ in owned.answers(job.id, other)} == {404}
        assert owned.ask("GET", "", other).json()["jobs"] == []
    assert not job.token.cancelled
    owned.end.set()
    for by in ("owner", "admin"):
        assert "event: done" in owned.ask("GET", f"/{job.id}/events", by).text
        assert owned.ask("GET", f"/{job.id}", by).json()["result"] == {}
        assert [shown["id"] for shown in owned.ask("GET", "", by).json()["jobs"]] == [job.id]
        assert owned.ask("POST", f"/{job.id}/cancel", by).status_code == 202
    assert {status for status, _ in owned.answers(job.id, "reader")} == {404}, "nor when it is over"


def test_a_session_of_the_page_sees_the_jobs_of_its_token(owned: Owned) -> None:
    job = owned.start("owner")
    for by, status in (("owner", 200), ("reader", 404)):
        with httpx.Client(base_url=owned.running.url) as browser:
            secret = owned.headers[by]["Authorization"].removeprefix("Bearer ")
            assert browser.post("/api/v1/session", json={"token": secret}).status_code == 200
            assert browser.get(f"/api/v1/jobs/{job.id}").status_code == status


def test_an_admin_cancels_the_job_of_another(owned: Owned) -> None:
    job = owned.start("owner")
    assert owned.ask("POST", f"/{job.id}/cancel", "admin").status_code == 202
    assert job.token.cancelled


def test_a_new_token_of_the_same_name_does_not_see_the_jobs_before(owned: Owned) -> None:
    job = owned.start("owner")
    owned.tokens.remove("owner")
    owned.headers["owner"]["Authorization"] = f"Bearer {owned.tokens.add('owner', role='read', indexes=['a'])}"
    assert {status for status, _ in owned.answers(job.id, "owner")} == {404}
    assert owned.ask("GET", "", "owner").json()["jobs"] == []


def test_a_token_that_lost_an_index_does_not_see_its_jobs_there(owned: Owned) -> None:
    job = owned.start("owner")
    written = json.loads(owned.tokens.path.read_text())
    for row in written["tokens"]:
        row["indexes"] = ["b"]
    owned.tokens.path.write_text(json.dumps(written))
    assert {status for status, _ in owned.answers(job.id, "owner")} == {404}
    assert owned.ask("GET", "", "owner").json()["jobs"] == []


def test_a_stream_gives_nothing_to_a_token_that_was_removed(owned: Owned) -> None:
    job = owned.start("owner")
    path = f"/api/v1/jobs/{job.id}/events"
    with owned.running.http.stream("GET", path, headers=owned.headers["owner"]) as answer:
        lines = answer.iter_lines()
        assert next(lines) == "event: progress"
        owned.tokens.remove("owner")
        owned.end.set()
        assert not [line for line in lines if line.startswith("event:")]
    assert owned.ask("GET", f"/{job.id}", "admin").json()["state"] == "done"
