"""Who may ask for what, over real connections."""

from __future__ import annotations

import logging
import re
import ssl
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
import trustme
from fastapi import FastAPI
from fastapi.routing import APIRoute
from starlette.routing import BaseRoute

from tests.support.cli import assert_one_line, run
from tests.support.service import RunningService, free_socket, serving
from vlmsearch import Document
from vlmsearch.server.access import SESSION_SECONDS, Sessions
from vlmsearch.server.app import create_app
from vlmsearch.server.settings import IndexSettings, ServerSettings
from vlmsearch.server.tokens import TokenFile

PUBLIC = {"/", "/healthz", "/readyz", "/api/v1/session"}
SEARCH = "/api/v1/indexes/notes/search"


@dataclass(frozen=True)
class GuardedService:
    """A service with tokens: ``reader`` reads ``notes``, ``writer`` writes to it, ``all`` is an admin of all."""

    running: RunningService
    tokens: TokenFile
    secrets: Mapping[str, str]

    def send(self, method: str, path: str, *, by: str | None = None, **given: Any) -> httpx.Response:
        headers = {**given.pop("headers", {})}
        if by is not None:
            headers["Authorization"] = f"Bearer {self.secrets[by]}"
        cookies = given.pop("cookies", None)
        # no certificates are loaded for plain HTTP
        with httpx.Client(base_url=self.running.url, cookies=cookies, timeout=30, verify=False) as http:
            return http.request(method, path, headers=headers, **given)


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GuardedService]:
    folder = tmp_path_factory.mktemp("guarded")
    tokens = TokenFile(folder / "tokens.json")
    secrets = {
        "reader": tokens.add("reader", role="read", indexes=["notes"]),
        "writer": tokens.add("writer", role="write", indexes=["notes"]),
        "all": tokens.add("all", role="admin"),
    }
    back_ends = IndexSettings("mock:", "mock:", "extractive:", "mock:")
    settings = ServerSettings(
        indexes={"notes": back_ends, "secret": back_ends}, tokens=str(tokens.path), uploads=str(folder / "uploads")
    )
    with serving(settings) as running:
        for name, index in running.service.indexes.items():
            index.pipeline.add(Document("a", text=f"a dog of {name}"))
        yield GuardedService(running, tokens, secrets)


def settings_of(tokens: TokenFile, **more: Any) -> ServerSettings:
    """Return the settings of a service with one index, ``notes``, and these tokens."""
    indexes = {"notes": IndexSettings("mock:", "mock:")}
    return ServerSettings(indexes=indexes, tokens=str(tokens.path), uploads=str(tokens.path.parent), **more)


def all_routes(routes: Sequence[BaseRoute]) -> Iterator[BaseRoute]:
    """The routes of an application; newer releases of FastAPI keep those of a router together."""
    for route in routes:
        router = getattr(route, "original_router", None)
        yield from [route] if router is None else all_routes(router.routes)


def requests_for(app: FastAPI) -> list[tuple[str, str]]:
    """Method and path for each route; places of paths are filled with what might be there."""
    found = []
    for route in all_routes(app.routes):
        path = re.sub(r"\{[^}]*\}", "x", getattr(route, "path", "").replace("{index}", "secret"))
        found += [(method, path) for method in sorted(getattr(route, "methods", None) or {"GET"})]
    return found


def test_every_route_is_refused_without_a_token(guarded: GuardedService) -> None:
    app = create_app(guarded.running.service)
    routes = [
        (method, path) for method, path in requests_for(app) if path not in PUBLIC and not path.startswith("/page")
    ]
    assert ("POST", "/api/v1/indexes/secret/search") in routes
    for method, path in [*routes, ("GET", "/metrics"), ("GET", "/no/such/path"), ("POST", "/page/index.html")]:
        for headers in ({}, {"Authorization": "Bearer vlms_none"}, {"Authorization": "Basic YTpi"}):
            refused = guarded.send(method, path, headers=headers)
            assert refused.status_code == 401, (method, path, refused.text)
            assert refused.headers["WWW-Authenticate"] == "Bearer"
            if method != "HEAD":
                assert refused.json()["error"]["type"] == "unauthenticated"


def test_health_needs_no_token(guarded: GuardedService) -> None:
    assert guarded.send("GET", "/healthz").status_code == 200
    assert guarded.send("GET", "/readyz").status_code == 200


def test_an_index_that_a_token_may_not_see_is_not_there(guarded: GuardedService) -> None:
    app = create_app(guarded.running.service)
    paths = [(method, path) for method, path in requests_for(app) if "/secret" in path]
    assert paths
    for method, path in paths:
        hidden = guarded.send(method, path, by="reader")
        missing = guarded.send(method, path.replace("secret", "nowhere"), by="reader")
        assert hidden.status_code == missing.status_code == 404, (method, path, hidden.text)
        if method != "HEAD":
            said = [re.sub("secret|nowhere", "X", each.json()["error"]["message"]) for each in (hidden, missing)]
            assert said[0] == said[1]


def test_listings_show_what_a_token_may_see(guarded: GuardedService) -> None:
    names = {
        by: [index["name"] for index in guarded.send("GET", "/api/v1/indexes", by=by).json()["indexes"]]
        for by in ("reader", "all")
    }
    assert names == {"reader": ["notes"], "all": ["notes", "secret"]}


CHANGES = {
    "documents": {"documents": [{"id": "z", "text": "z"}]},
    "documents/delete": {"ids": ["z"]},
    "documents/metadata": {"ids": ["z"], "set": {"n": 1}},
    "label": {"labels": ["dog"], "write": True},
    "jobs": {"kind": "label", "labels": ["dog"], "write": True},
}
"""What changes documents, by the end of its path."""


@pytest.mark.parametrize("path", CHANGES)
def test_a_reader_changes_nothing(guarded: GuardedService, path: str) -> None:
    said = {
        by: guarded.send("POST", f"/api/v1/indexes/notes/{path}", by=by, json=CHANGES[path])
        for by in ("reader", "writer")
    }
    assert said["reader"].status_code == 403, said["reader"].text
    assert said["reader"].json()["error"]["type"] == "forbidden"
    assert said["writer"].status_code in (200, 202), said["writer"].text


def test_what_may_change_documents_is_in_the_list_above(guarded: GuardedService) -> None:
    reading = {"", "search", "search_many", "explain", "ask", "eval", "image", "thumbnail", "file", "rejects", "facets"}
    prefix = "/api/v1/indexes/secret"
    about = {
        path.removeprefix(prefix).strip("/")
        for _, path in requests_for(create_app(guarded.running.service))
        if path.startswith(prefix)
    }
    assert about == reading | set(CHANGES)


def test_repairing_needs_an_admin(guarded: GuardedService) -> None:
    job = {"kind": "check", "repair": True}
    assert guarded.send("POST", "/api/v1/indexes/notes/jobs", by="writer", json=job).status_code == 403
    assert guarded.send("POST", "/api/v1/indexes/notes/jobs", by="all", json=job).status_code == 202


def test_jobs_of_an_index_that_a_token_may_not_see_are_not_there(guarded: GuardedService) -> None:
    job = guarded.send("POST", "/api/v1/indexes/secret/jobs", by="all", json={"kind": "check"}).json()["id"]
    listed = {by: guarded.send("GET", "/api/v1/jobs", by=by).json()["jobs"] for by in ("reader", "all")}
    assert job in [each["id"] for each in listed["all"]]
    assert all(each["index"] == "notes" for each in listed["reader"])
    for method, path in (
        ("GET", f"/api/v1/jobs/{job}"),
        ("GET", f"/api/v1/jobs/{job}/events"),
        ("POST", f"/api/v1/jobs/{job}/cancel"),
    ):
        assert guarded.send(method, path, by="reader").status_code == 404
        assert guarded.send(method, path.replace(job, "nothing"), by="reader").status_code == 404
    assert guarded.send("GET", f"/api/v1/jobs/{job}", by="all").status_code == 200


def test_a_change_of_the_file_holds_at_once(guarded: GuardedService) -> None:
    secret = guarded.tokens.add("guest", role="read", indexes=["notes"])
    headers = {"Authorization": f"Bearer {secret}"}
    assert guarded.send("POST", SEARCH, headers=headers, json={"text": "dog"}).status_code == 200
    guarded.tokens.remove("guest")
    assert guarded.send("POST", SEARCH, headers=headers, json={"text": "dog"}).status_code == 401


@pytest.fixture
def session(guarded: GuardedService) -> dict[str, str]:
    """The cookie of a session of the reader."""
    started = guarded.send("POST", "/api/v1/session", json={"token": guarded.secrets["reader"]})
    assert started.json() == {"name": "reader", "role": "read", "indexes": ["notes"]}
    cookie = started.headers["set-cookie"]
    for attribute in ("HttpOnly", "SameSite=strict", "Path=/", f"Max-Age={SESSION_SECONDS}"):
        assert attribute in cookie
    assert "Secure" not in cookie, "over plain HTTP it would not be sent back"
    return dict([cookie.partition(";")[0].split("=", 1)])


def own(guarded: GuardedService) -> dict[str, str]:
    return {"Origin": guarded.running.url}


def test_a_session_stands_for_its_token(guarded: GuardedService, session: dict[str, str]) -> None:
    assert guarded.send("GET", "/api/v1/indexes", cookies=session).status_code == 200
    found = guarded.send("POST", SEARCH, json={"text": "dog"}, cookies=session, headers=own(guarded))
    assert [match["id"] for match in found.json()["matches"]] == ["a"]
    ended = guarded.send("DELETE", "/api/v1/session", cookies=session, headers=own(guarded))
    assert ended.status_code == 204
    assert guarded.send("GET", "/api/v1/indexes", cookies=session).status_code == 401


def test_a_session_does_not_begin_with_a_token_that_is_not_in_force(guarded: GuardedService) -> None:
    refused = guarded.send("POST", "/api/v1/session", json={"token": "vlms_none"})
    assert refused.status_code == 401
    assert "set-cookie" not in refused.headers


@pytest.mark.parametrize("origin", ["https://evil.example", "null", None, "http://127.0.0.1:1", "http://["])
def test_a_page_of_another_site_cannot_use_a_session(
    guarded: GuardedService, session: dict[str, str], origin: str | None
) -> None:
    headers = {"Origin": origin} if origin else {}
    refused = guarded.send("POST", SEARCH, json={"text": "dog"}, cookies=session, headers=headers)
    assert refused.status_code == 403
    assert guarded.send("DELETE", "/api/v1/session", cookies=session, headers=headers).status_code == 403


def test_a_body_without_a_token_is_short(guarded: GuardedService) -> None:
    refused = guarded.send("POST", "/api/v1/session", json={"token": "x" * 70_000})
    assert refused.status_code == 413


def test_a_session_ends_by_time_and_with_its_token(tmp_path: Path) -> None:
    now = [0.0]
    tokens = TokenFile(tmp_path / "tokens.json")
    secret = tokens.add("page", role="read")
    sessions = Sessions(tokens, clock=lambda: now[0])
    assert sessions.start("vlms_none") is None
    started = [sessions.start(secret) for _ in range(2)]
    first, second = [each[0] for each in started if each]
    now[0] = SESSION_SECONDS - 1
    assert sessions.find(first)
    now[0] = SESSION_SECONDS
    assert sessions.find(first) is None
    now[0] = 0.0
    assert sessions.find(first) is None, "it ended"
    assert sessions.find(second)
    tokens.remove("page")
    tokens.add("page", role="read")
    assert sessions.find(second) is None


def test_a_crowd_of_sessions_ends_the_oldest_of_its_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vlmsearch.server.access._MAX_SESSIONS", 2)
    tokens = TokenFile(tmp_path / "tokens.json")
    sessions = Sessions(tokens)
    operator = sessions.start(tokens.add("operator", role="admin"))
    secret = tokens.add("page", role="read")
    started = [sessions.start(secret) for _ in range(3)]
    assert [sessions.find(each[0]) is not None for each in started if each] == [False, True, True]
    assert operator
    assert sessions.find(operator[0])


def test_a_session_that_begins_is_a_request_of_its_token(tmp_path: Path) -> None:
    tokens = TokenFile(tmp_path / "tokens.json")
    secret, other = tokens.add("page", role="read"), tokens.add("other", role="read")
    with serving(settings_of(tokens, rate=0.5)) as running:
        own = {"Origin": running.url}
        said = [running.http.post("/api/v1/session", json={"token": secret}, headers=own) for _ in range(7)]
        assert said[0].status_code == 200
        assert (said[-1].status_code, said[-1].json()["error"]["type"]) == (429, "rate_limited")
        assert "set-cookie" not in said[-1].headers
        headers = {"Authorization": f"Bearer {secret}"}
        assert running.http.get("/api/v1/indexes", headers=headers).status_code == 429
        running.http.cookies.clear()
        assert running.http.post("/api/v1/session", json={"token": other}).status_code == 200


def test_a_cookie_never_writes_for_a_site_that_may_ask(tmp_path: Path) -> None:
    site = "https://photos.example.com"
    tokens = TokenFile(tmp_path / "tokens.json")
    secret = tokens.add("page", role="write")
    add = {"documents": (None, '{"documents": [{"id": "planted", "text": "x"}]}')}
    path = "/api/v1/indexes/notes/documents"
    with serving(settings_of(tokens, cors=(site,))) as running, httpx.Client(base_url=running.url) as browser:
        assert browser.post("/api/v1/session", json={"token": secret}).status_code == 200
        assert browser.post(path, files=add, headers={"Origin": site}).status_code == 403
        assert browser.delete("/api/v1/session", headers={"Origin": site}).status_code == 403
        assert browser.post(path, files=add, headers={"Origin": running.url}).status_code == 200
        with_token = {"Origin": site, "Authorization": f"Bearer {secret}"}
        assert running.http.post(path, files=add, headers=with_token).status_code == 200


def test_the_cookie_is_for_tls_alone_behind_a_proxy_that_is_elsewhere(guarded: GuardedService) -> None:
    elsewhere = httpx.HTTPTransport(local_address="127.0.0.2")  # as the gateway of a container's network is
    headers = {"Host": "photos.example.com", "X-Forwarded-Proto": "https", "Origin": "https://photos.example.com"}
    with httpx.Client(base_url=guarded.running.url, transport=elsewhere, headers=headers) as proxy:
        started = proxy.post("/api/v1/session", json={"token": guarded.secrets["reader"]})
        cookie = started.headers["set-cookie"]
        assert cookie.startswith("__Host-")
        assert "Secure" in cookie
        found = proxy.post(SEARCH, json={"text": "dog"}, headers={"Cookie": cookie.partition(";")[0]})
        assert found.status_code == 200


# ------------------------------------------------------------------------------------------- without tokens


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "", "192.168.1.2:8080", "localhost.evil"])
def test_another_name_for_this_machine_is_refused(running_service: RunningService, host: str) -> None:
    refused = running_service.http.get("/healthz", headers={"Host": host})
    assert refused.status_code == 403
    assert "localhost alone" in refused.json()["error"]["message"]


@pytest.mark.parametrize("host", ["localhost", "localhost:1", "127.0.0.1:8080", "[::1]:8080", "LOCALHOST"])
def test_the_names_of_this_machine_are_known(running_service: RunningService, host: str) -> None:
    assert running_service.http.get("/healthz", headers={"Host": host}).status_code == 200


def test_a_page_of_another_site_cannot_post_a_form(running_service: RunningService) -> None:
    form = {"request": (None, '{"text": "dog"}')}
    for origin, status in (("https://evil.example", 403), ("null", 403), (running_service.url, 200), (None, 200)):
        headers = {"Origin": origin} if origin else {}
        found = running_service.http.post(SEARCH, files=form, headers=headers)
        assert found.status_code == status, (origin, found.text)


def test_a_session_without_tokens_is_everybodys(running_service: RunningService) -> None:
    started = running_service.http.post("/api/v1/session", json={"token": ""})
    assert started.json() == {"name": "", "role": "admin", "indexes": None}
    assert "set-cookie" not in started.headers


# ------------------------------------------------------------------------------------------------- headers


def test_answers_say_what_browsers_may_do_with_them(guarded: GuardedService) -> None:
    for answer in (
        guarded.send("GET", "/healthz"),
        guarded.send("GET", "/api/v1/indexes"),
        guarded.send("GET", "/nothing", by="all"),
        guarded.send("POST", SEARCH, by="reader", json={"text": "dog"}),
    ):
        policy = answer.headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy
        assert "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        assert answer.headers["Cross-Origin-Resource-Policy"] == "same-origin"
        assert "access-control-allow-origin" not in answer.headers


PREFLIGHT = {
    "Origin": "https://photos.example.com",
    "Access-Control-Request-Method": "POST",
    "Access-Control-Request-Headers": "authorization,content-type",
}


def test_other_sites_may_ask_where_the_operator_says_so(tmp_path: Path) -> None:
    tokens = TokenFile(tmp_path / "tokens.json")
    secret = tokens.add("page", role="read")
    with serving(settings_of(tokens, cors=("https://photos.example.com",))) as running:
        allowed = running.http.options(SEARCH, headers=PREFLIGHT)
        assert allowed.headers["access-control-allow-origin"] == "https://photos.example.com"
        assert "access-control-allow-credentials" not in allowed.headers
        refused = running.http.options(SEARCH, headers={**PREFLIGHT, "Origin": "https://evil.example"})
        assert "access-control-allow-origin" not in refused.headers
        headers = {"Origin": "https://photos.example.com", "Authorization": f"Bearer {secret}"}
        found = running.http.post(SEARCH, json={"text": "a"}, headers=headers)
        assert (found.status_code, found.headers["access-control-allow-origin"]) == (200, "https://photos.example.com")


def test_other_sites_may_not_ask_by_default(running_service: RunningService) -> None:
    assert "access-control-allow-origin" not in running_service.http.options(SEARCH, headers=PREFLIGHT).headers


# --------------------------------------------------------------------------------------------- rate and audit


def test_a_token_that_asks_too_often_waits(tmp_path: Path) -> None:
    tokens = TokenFile(tmp_path / "tokens.json")
    secrets = [tokens.add(name, role="read") for name in ("busy", "quiet")]
    with serving(settings_of(tokens, rate=0.3)) as running:
        busy, quiet = ({"Authorization": f"Bearer {secret}"} for secret in secrets)
        answers = [running.http.get("/api/v1/indexes", headers=busy) for _ in range(5)]
        assert [answer.status_code for answer in answers] == [200, 200, 200, 429, 429]
        assert answers[-1].json()["error"]["type"] == "rate_limited"
        assert 1 <= int(answers[-1].headers["Retry-After"]) <= 4
        assert running.http.get("/api/v1/indexes", headers=quiet).status_code == 200
        assert running.http.get("/healthz", headers=busy).status_code == 200


def test_each_request_leaves_a_line_without_its_contents(
    guarded: GuardedService, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "vlmsearch.audit")
    guarded.send("POST", SEARCH, by="reader", json={"text": "private words"})
    guarded.send("GET", "/private/words?private=words", by="all")
    guarded.send("GET", "/api/v1/indexes")
    guarded.send("POST", "/api/v1/indexes/private%0Awords/search", by="reader", json={"text": "private"})
    patterns = [
        r"reader POST /api/v1/indexes/\{index\}/search notes 200 [\d.]+ ms",
        r"all GET - - 404 [\d.]+ ms",
        r"- GET - - 401 [\d.]+ ms",
        r"reader POST /api/v1/indexes/\{index\}/search - 404 [\d.]+ ms",
    ]
    deadline = time.monotonic() + 60
    while len(lines := audited(caplog)) < len(patterns) and time.monotonic() < deadline:
        time.sleep(0.01)  # the line of a request is written after its answer
    assert len(lines) == len(patterns)
    for line, pattern in zip(lines, patterns):
        assert re.fullmatch(pattern, line), line
    assert caplog.records[0].__dict__["who"] == "reader"


def audited(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == "vlmsearch.audit"]


def test_a_caller_is_needed_by_each_route_of_an_index(guarded: GuardedService) -> None:
    """What guards the indexes is a dependency of their routes, which a new route could forget."""
    app = create_app(guarded.running.service)
    routes = [route for route in all_routes(app.routes) if isinstance(route, APIRoute)]
    about = [route for route in routes if "{index}" in route.path]
    assert about
    for route in about:
        called: list[Callable[..., Any] | None] = [each.call for each in route.dependant.dependencies]
        assert any(getattr(call, "__name__", "") == "get_index" for call in called), route.path


# ------------------------------------------------------------------------------------------------- starting


def test_a_file_without_tokens_is_said_when_the_service_starts(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    tokens = TokenFile(tmp_path / "tokens.json")
    with serving(settings_of(tokens)) as running:
        assert "holds no tokens" in caplog.text
        assert running.http.get("/api/v1/indexes").status_code == 401
        secret = tokens.add("first", role="read")
        headers = {"Authorization": f"Bearer {secret}"}
        assert running.http.get("/api/v1/indexes", headers=headers).status_code == 200


def test_what_keeps_a_service_from_starting_is_one_line(tmp_path: Path) -> None:
    damaged = tmp_path / "tokens.json"
    damaged.write_text("{")
    with free_socket() as free:
        port = str(free.getsockname()[1])
    index = ("--store", "mock:", "--encoder", "mock:", "--port", port, "--uploads", tmp_path / "uploads")
    assert_one_line(run("serve", *index, "--tokens", damaged), "is not a file of tokens")
    assert_one_line(run("serve", *index, "--host", "0.0.0.0"), "vlmsearch token add")
    assert_one_line(
        run("serve", *index, "--tls-cert", damaged, "--tls-key", tmp_path / "none.pem"), "--tls-cert and --tls-key"
    )
    assert_one_line(run("serve", *index, "--tls-cert", damaged), "--tls-key")


def test_tls_is_served_and_its_sessions_are_for_tls_alone(tmp_path: Path) -> None:
    authority = trustme.CA()
    identity = authority.issue_cert("localhost")
    certificate, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    identity.private_key_pem.write_to_path(key)
    for part in identity.cert_chain_pems:
        part.write_to_path(certificate, append=True)
    tokens = TokenFile(tmp_path / "tokens.json")
    secret = tokens.add("page", role="read")
    settings = settings_of(tokens, tls_cert=str(certificate), tls_key=str(key))
    trusted = ssl.create_default_context()
    authority.configure_trust(trusted)
    with serving(settings) as running:
        url = running.url.replace("http://127.0.0.1", "https://localhost")
        with httpx.Client(base_url=url, verify=trusted) as http:
            started = http.post("/api/v1/session", json={"token": secret}, headers={"Origin": url})
            assert started.status_code == 200
            assert started.headers["set-cookie"].startswith("__Host-")
            assert "Secure" in started.headers["set-cookie"]
            found = http.post(SEARCH, json={"text": "dog"}, headers={"Origin": url})
            assert found.status_code == 200
        with pytest.raises(httpx.HTTPError):
            running.http.get("/healthz")
