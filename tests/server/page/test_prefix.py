"""The service and its page behind real proxies, at a path of another site's URL."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
import uvicorn
from playwright.sync_api import Browser, expect
from starlette.applications import Starlette
from starlette.background import BackgroundTask
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from tests.support.service import free_socket, serving
from vlmsearch import Document, connect
from vlmsearch.demo.scenes import make_scene
from vlmsearch.server.settings import IndexSettings, ServerSettings
from vlmsearch.server.tokens import TokenFile

PREFIX = "/tools/search"
METHODS = ["GET", "HEAD", "POST", "DELETE"]


@dataclass(frozen=True)
class Proxied:
    """A service behind a proxy: its URL there, a token, and whether the proxy cuts the prefix off."""

    url: str
    secret: str
    cuts: bool


def proxy_app(target: str, *, cuts: bool, tells: bool) -> Starlette:
    """A proxy that may cut its prefix off, and may tell of it."""
    client = httpx.AsyncClient(base_url=target, timeout=60, limits=httpx.Limits(max_keepalive_connections=0))

    async def forward(request: Request) -> Response:
        client.cookies.clear()
        path = request.url.path.removeprefix(PREFIX) if cuts else request.url.path
        headers = [*request.headers.raw, *([(b"X-Forwarded-Prefix", PREFIX.encode())] if tells else [])]
        asked = client.build_request(
            request.method, f"{path}?{request.url.query}", headers=headers, content=await request.body()
        )
        answer = await client.send(asked, stream=True)
        passed = StreamingResponse(answer.aiter_raw(), answer.status_code, background=BackgroundTask(answer.aclose))
        passed.raw_headers = [pair for pair in answer.headers.raw if pair[0].lower() != b"transfer-encoding"]
        return passed

    return Starlette(routes=[Route(PREFIX + "{path:path}", forward, methods=METHODS)])


@pytest.fixture(
    scope="module",
    params=[(PREFIX, True, False), (f"{PREFIX}/", False, False), ("", True, True)],
    ids=["cut off", "passed on", "told"],
)
def proxied(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxied]:
    root_path, cuts, tells = request.param
    folder = tmp_path_factory.mktemp("prefix")
    make_scene(1).draw(64).save(folder / "scene.png")
    tokens = TokenFile(folder / "tokens.json")
    secret = tokens.add("all", role="admin")
    index = IndexSettings("mock:", "mock:", "extractive:")
    settings = ServerSettings({"default": index}, uploads=f"{folder}/up", tokens=str(tokens.path), root_path=root_path)
    with serving(settings) as running, free_socket() as listening:
        running.service.indexes["default"].pipeline.add(
            [Document("a", text="a dog in the snow"), Document("b", text="a scene", image=folder / "scene.png")]
        )
        app = proxy_app(running.url, cuts=cuts, tells=tells)
        server = uvicorn.Server(uvicorn.Config(app, log_config=None, server_header=False))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        while not server.started:
            time.sleep(0.01)
        yield Proxied(f"http://127.0.0.1:{listening.getsockname()[1]}{PREFIX}", secret, cuts)
        server.should_exit = True
        thread.join(60)


def test_all_links_of_the_interface_have_the_prefix(proxied: Proxied) -> None:
    with httpx.Client(headers={"Authorization": f"Bearer {proxied.secret}"}, timeout=60) as client:
        assert client.get(f"{proxied.url}/openapi.json").json()["servers"] == [{"url": PREFIX}]
        asked = {"model": "default", "messages": [{"role": "user", "content": "Which dog is in the snow?"}]}
        answer = client.post(f"{proxied.url}/v1/chat/completions", json=asked).json()
        citation = answer["choices"][0]["message"]["annotations"][0]["url_citation"]
        assert citation["url"].startswith(f"{proxied.url}/api/v1/indexes/default/")
        assert client.get(citation["url"]).json()["documents"][0]["id"] == "a"
        if not proxied.cuts:
            assert client.get(proxied.url).headers["Location"] == f"{proxied.url}/"
    started = httpx.post(f"{proxied.url}/api/v1/session", json={"token": proxied.secret})
    assert f"; Path={PREFIX};" in started.headers["Set-Cookie"]


def test_a_client_uses_an_index_behind_the_prefix(proxied: Proxied) -> None:
    with connect(proxied.url, token=proxied.secret) as pipeline:
        assert pipeline.search("snow")[0].document.id == "a"
        [document] = pipeline.get("b")
        assert httpx.get(document.image.url).status_code == 401  # type: ignore[union-attr]
        assert pipeline.image("b").startswith(b"\x89PNG")
        assert "dog" in "".join(map(str, pipeline.ask("Which dog is in the snow?", stream=True)))
        assert pipeline.check().clean


def test_the_page_stays_below_the_prefix(proxied: Proxied, browser: Browser) -> None:
    context = browser.new_context()
    page = context.new_page()
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto(f"{proxied.url}/?q=scene")
    dialog = page.get_by_role("dialog", name="Sign in")
    dialog.get_by_label("Token").fill(proxied.secret)
    dialog.get_by_role("button", name="Sign in").click()
    picture = page.locator("img").first
    expect(picture).to_be_visible()
    assert picture.evaluate("async image => { await image.decode(); return image.naturalWidth }") > 0
    page.reload()
    expect(picture).to_be_visible()
    assert len(asked) > 30
    assert all(url.startswith((f"{proxied.url}/", "blob:", "data:")) for url in asked)
    context.close()


HARMFUL = ["//evil.example", "javascript:alert(1)", "/a//evil", "/..", "/a/../b", "/a\\b", '/a"b', "/a?b", "/é", "/a b"]


@pytest.mark.parametrize("prefix", HARMFUL)
def test_a_harmful_prefix_is_none(tmp_path: Path, prefix: str) -> None:
    with serving(ServerSettings({}, uploads=f"{tmp_path}/up")) as running:
        answer = running.http.get("/openapi.json", headers={b"X-Forwarded-Prefix": prefix.encode()})
        assert "servers" not in answer.json()


def test_prefixes_of_several_proxies_are_joined_and_change_no_route(tmp_path: Path) -> None:
    with serving(ServerSettings({}, uploads=f"{tmp_path}/up")) as running:
        several = [("X-Forwarded-Prefix", "/a/"), ("X-Forwarded-Prefix", "/b, /c")]
        assert running.http.get("/openapi.json", headers=several).json()["servers"] == [{"url": "/a/b/c"}]
        assert running.http.get("/x/healthz", headers={"X-Forwarded-Prefix": "/x"}).status_code == 404


def test_a_prefix_may_be_the_beginning_of_our_own_paths(tmp_path: Path) -> None:
    with serving(ServerSettings({}, uploads=f"{tmp_path}/up", root_path="/api")) as running:
        for path in ("/healthz", "/api/healthz", "/api/v1/indexes", "/api/api/v1/indexes", "/api/v1/models"):
            assert running.http.get(path).status_code == 200
