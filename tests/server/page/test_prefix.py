"""The service and its page behind real proxies, at a path of another site's URL."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
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

from tests.support.service import RunningService, free_socket, serving
from vlmsearch import Document, connect
from vlmsearch.demo.scenes import make_scene
from vlmsearch.server.settings import IndexSettings, ServerSettings
from vlmsearch.server.tokens import TokenFile

PREFIX = "/tools/search"


def proxy_app(target: str, *, cuts: bool, tells: bool) -> Starlette:
    """A proxy that may cut its prefix off, and may tell of it."""

    async def forward(request: Request) -> Response:
        path = request.url.path.removeprefix(PREFIX) if cuts else request.url.path
        headers = [*request.headers.raw, *([(b"X-Forwarded-Prefix", PREFIX.encode())] if tells else [])]
        client = httpx.AsyncClient(base_url=target, timeout=60)  # of this request, without cookies of others
        url, body = f"{path}?{request.url.query}", await request.body()
        asked = client.build_request(request.method, url, headers=headers, content=body)
        answer = await client.send(asked, stream=True)
        passed = StreamingResponse(answer.aiter_raw(), answer.status_code, background=BackgroundTask(client.aclose))
        passed.raw_headers = [pair for pair in answer.headers.raw if pair[0].lower() != b"transfer-encoding"]
        return passed

    return Starlette(routes=[Route(PREFIX + "{path:path}", forward, methods=["GET", "POST", "DELETE"])])


@pytest.fixture(
    scope="module",
    params=[(PREFIX, True, False), (f"{PREFIX}/", False, False), ("", True, True)],
    ids=["cut off", "passed on", "told"],
)
def proxied(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """The URL of a service behind a proxy, and a token."""
    root_path, cuts, tells = request.param
    folder = tmp_path_factory.mktemp("prefix")
    make_scene(1).draw(64).save(folder / "scene.png")
    tokens = TokenFile(folder / "tokens.json")
    secret = tokens.add("all", role="admin")
    index = IndexSettings("mock:", "mock:", "extractive:")
    settings = ServerSettings({"default": index}, uploads=f"{folder}/up", tokens=str(tokens.path), root_path=root_path)
    with serving(settings) as running, free_socket() as listening:
        scene = Document("b", text="a scene", image=folder / "scene.png")
        running.service.indexes["default"].pipeline.add([Document("a", text="a dog in the snow"), scene])
        app = proxy_app(running.url, cuts=cuts, tells=tells)
        server = uvicorn.Server(uvicorn.Config(app, log_config=None))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        while not server.started:
            time.sleep(0.01)
        yield f"http://127.0.0.1:{listening.getsockname()[1]}{PREFIX}", secret
        server.should_exit = True
        thread.join(60)


def test_links_and_clients_have_the_prefix(proxied: tuple[str, str]) -> None:
    url, secret = proxied
    with httpx.Client(headers={"Authorization": f"Bearer {secret}"}, timeout=60) as client:
        assert client.get(f"{url}/openapi.json").json()["servers"] == [{"url": PREFIX}]
        asked = {"model": "default", "messages": [{"role": "user", "content": "Which dog is in the snow?"}]}
        answer = client.post(f"{url}/v1/chat/completions", json=asked).json()
        citation = answer["choices"][0]["message"]["annotations"][0]["url_citation"]
        assert citation["url"].startswith(f"{url}/api/v1/indexes/default/")
        assert client.get(citation["url"]).json()["documents"][0]["id"] == "a"
        assert client.get(url).headers.get("Location") in (None, f"{url}/")  # the first from a proxy that cuts off
    started = httpx.post(f"{url}/api/v1/session", json={"token": secret})
    assert f"; Path={PREFIX};" in started.headers["Set-Cookie"]
    with connect(url, token=secret) as pipeline:
        assert pipeline.search("snow")[0].document.id == "a"
        assert pipeline.image("b").startswith(b"\x89PNG")
        assert "dog" in "".join(map(str, pipeline.ask("Which dog is in the snow?", stream=True)))
        assert pipeline.check().clean


def test_the_page_stays_below_the_prefix(proxied: tuple[str, str], browser: Browser) -> None:
    url, secret = proxied
    with browser.new_context() as context:
        page = context.new_page()
        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.url))
        page.goto(f"{url}?q=scene")
        page.get_by_label("Token").fill(secret)
        page.get_by_role("dialog", name="Sign in").get_by_role("button", name="Sign in").click()
        picture = page.locator("img").first
        expect(picture).to_be_visible()
        page.reload()
        expect(picture).to_be_visible()
        assert picture.evaluate("async image => { await image.decode(); return image.naturalWidth }") > 0
        assert len(asked) > 30
        assert all(each.startswith((f"{url}/", f"{url}?", "blob:", "data:")) for each in asked)


def test_a_prefix_of_a_header_is_a_path_and_changes_no_route(running_service: RunningService) -> None:
    get = running_service.http.get
    for prefix in (
        "//evil.example",
        "javascript:alert(1)",
        "/a//evil",
        "/a/../b",
        "/a\\b",
        '/a"b',
        "/a?b",
        "/é",
        "/a b",
    ):
        headers = [(b"X-Forwarded-Prefix", prefix.encode())]
        assert "servers" not in get("/openapi.json", headers=headers).json(), prefix
    several = [("X-Forwarded-Prefix", "/a/"), ("X-Forwarded-Prefix", "/b, /c")]
    assert get("/openapi.json", headers=several).json()["servers"] == [{"url": "/a/b/c"}]
    assert get("/x/healthz", headers={"X-Forwarded-Prefix": "/x"}).status_code == 404


def test_a_prefix_may_be_the_beginning_of_our_own_paths(tmp_path: Path) -> None:
    with serving(ServerSettings({}, uploads=f"{tmp_path}/up", root_path="/api")) as running:
        for path in ("/healthz", "/api/healthz", "/api/v1/indexes", "/api/api/v1/indexes", "/api/v1/models"):
            assert running.http.get(path).status_code == 200
