"""`vlmsearch mcp`, with the SDK's own client: in this process, as a program on standard input, and over HTTP."""

from __future__ import annotations

import asyncio
import base64
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

import httpx
import pytest
from mcp import Client, MCPError, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client
from mcp.types import CallToolResult, ImageContent, TextContent, TextResourceContents
from PIL import Image

from tests.support.cli import assert_one_line, run
from tests.support.long_texts import PASSAGES, long_record
from tests.support.service import RunningService, free_socket
from vlmsearch import Document, Pipeline, connect
from vlmsearch._util.extras import install_command
from vlmsearch.demo.scenes import make_scene
from vlmsearch.integrations.mcp import create_mcp_server

T = TypeVar("T")
CONFORMANCE = "@modelcontextprotocol/conformance@0.1.16"
NODE = "node@22"
"""What the suite needs; from npm as well."""
SCENARIOS = (
    "server-initialize",
    "ping",
    "tools-list",
    "server-sse-multiple-streams",
    "resources-list",
    "prompts-list",
    "dns-rebinding-protection",
)
"""Those that any server can pass; the others call tools, resources and prompts that the suite's own server has."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An index of two texts and a picture."""
    folder = tmp_path_factory.mktemp("mcp")
    make_scene(1).draw(600).save(folder / "scene.png")
    with Pipeline.open(encoder="mock:", store=f"sqlite:{folder / 'index'}") as pipeline:
        pipeline.add(
            [
                Document("a", text="The dog in the snow is called Laika.", metadata={"year": 2019}),
                Document("b", text="a blue car", metadata={"year": 2021}),
                Document(str(folder / "scene.png"), text="a drawing", image=folder / "scene.png"),
            ]
        )
    return folder


@pytest.fixture(scope="module")
def pipeline(folder: Path) -> Iterator[Pipeline]:
    with Pipeline.open(encoder="mock:", store=f"sqlite:{folder / 'index'}") as pipeline:
        yield pipeline


def command(folder: Path) -> list[str]:
    return ["-m", "vlmsearch", "mcp", "--store", f"sqlite:{folder / 'index'}", "--encoder", "mock:"]


def with_client(server: Any, use: Callable[[Client], Awaitable[T]]) -> T:
    """What is done with a client of a server, of a command or of a URL."""

    async def main() -> T:
        async with Client(server) as client:
            return await use(client)

    return asyncio.run(asyncio.wait_for(main(), 60))


def call(server: Any, tool: str, **arguments: object) -> CallToolResult:
    return with_client(server, lambda client: client.call_tool(tool, arguments))


def structured(server: Any, tool: str, **arguments: object) -> dict[str, Any]:
    found = call(server, tool, **arguments)
    assert not found.is_error, found
    content: dict[str, Any] | None = found.structured_content
    assert content is not None
    return content


def said(found: CallToolResult) -> str:
    assert found.is_error
    [content] = found.content
    assert isinstance(content, TextContent)
    return content.text


async def everything(client: Client) -> tuple[list[str], dict[str, Any] | None]:
    tools = await client.list_tools()
    found = await client.call_tool("search", {"query": "dog snow"})
    return [tool.name for tool in tools.tools], found.structured_content


EXPECTED = ["search", "similar", "ask", "read", "look", "label", "info"]


def test_tools_search_and_answer_as_the_pipeline_does(pipeline: Pipeline) -> None:
    server = create_mcp_server(pipeline)
    expected = pipeline.search("dog snow")
    found = structured(server, "search", query="dog snow")
    assert found == {
        "matches": [
            {
                "id": "a",
                "score": round(expected[0].score, 4),
                "text": "The dog in the snow is called Laika.",
                "passage": None,
                "has_image": False,
                "metadata": {"year": 2019},
                "parts": [],
            }
        ],
        "threshold": expected.threshold,
        "closest": [],
        "uncalibrated": {},
        "shown_for": {},
        "unknown_keys": {},
    }
    late = structured(server, "search", query="dog", where={"year": {"$gte": 2020}}, min_score=0.0, limit=1)
    assert [match["id"] for match in late["matches"]] == ["b"]
    like = structured(server, "similar", ids=["a"], limit=5)
    assert [match["id"] for match in like["matches"]] == [
        match.document.id for match in pipeline.search(like=["a"], limit=5)
    ]
    answer = structured(server, "ask", question="What is the dog called?")
    expected_answer = pipeline.ask("What is the dog called?")
    assert answer["text"] == expected_answer.text
    assert answer["citations"] == [{"number": 1, "id": "a", "passage": None}]
    assert [source["id"] for source in answer["sources"]] == [match.document.id for match in expected_answer.matches]
    assert structured(server, "info")["documents"] == 3


def test_a_picture_is_looked_at_scaled(pipeline: Pipeline, folder: Path) -> None:
    server, id = create_mcp_server(pipeline), str(folder / "scene.png")
    found = call(server, "look", id=id, size=128)
    picture, text = found.content
    assert isinstance(picture, ImageContent)
    assert picture.mime_type == "image/jpeg"
    with Image.open(BytesIO(base64.b64decode(picture.data))) as image:
        assert max(image.size) == 128
    assert isinstance(text, TextContent)
    assert text.text == "a drawing"
    assert "'a' has no picture" in said(call(server, "look", id="a"))
    assert "no document '/etc/passwd'" in said(call(server, "look", id="/etc/passwd"))


def test_a_long_text_is_found_by_its_passage_and_read_on() -> None:
    with Pipeline.open(encoder="mock:", store="mock:") as pipeline:
        pipeline.store.bind(pipeline.encoder.fingerprint, pipeline.encoder.spaces)
        pipeline.store.upsert([long_record(pipeline.encoder, "handbook", metadata={"year": 2020})])
        server = create_mcp_server(pipeline)
        [match] = structured(server, "search", query="emergency number of the plumber", limit=1)["matches"]
        assert (match["id"], match["passage"]) == ("handbook", "handbook#passage=3")
        assert match["text"] == f"Keys\n\n{PASSAGES[2]}"
        before = structured(server, "read", id="handbook#passage=2")
        assert before == {"id": "handbook#passage=2", "text": PASSAGES[1], "metadata": {"year": 2020}}
        assert structured(server, "read", id="handbook")["text"] == "".join(PASSAGES)
        assert "no document 'handbook#passage=4'" in said(call(server, "read", id="handbook#passage=4"))


def test_labels_are_written_only_where_that_is_allowed(tmp_path: Path) -> None:
    with Pipeline.open(encoder="mock:", store=f"sqlite:{tmp_path / 'index'}") as pipeline:
        pipeline.add([Document("a", text="a dog in the snow"), Document("b", text="a blue car")])
        server = create_mcp_server(pipeline)
        found = structured(server, "label", labels=["dog", "car"])
        assert found["counts"] == {"dog": 1, "car": 1}
        assert [(each["id"], list(each["labels"])) for each in found["documents"]] == [("a", ["dog"]), ("b", ["car"])]
        structured(server, "label", labels=["dog"], write=True)  # which the tool does not have
        assert not pipeline.store.get(["a"])[0].metadata
        writer = create_mcp_server(pipeline, allow_write=True)
        structured(writer, "label", labels=["dog", "car"], write=True, key="kind")
        assert pipeline.store.get(["a"])[0].metadata["kind"] == "dog"
        hints = {
            name: with_client(each, lambda client: client.list_tools()).tools[EXPECTED.index("label")].annotations
            for name, each in (("reader", server), ("writer", writer))
        }
        assert hints["reader"] is not None
        assert hints["writer"] is not None
        assert (hints["reader"].read_only_hint, hints["writer"].read_only_hint) == (True, False)


def test_documents_and_pictures_are_resources(pipeline: Pipeline, folder: Path) -> None:
    server, id = create_mcp_server(pipeline), str(folder / "scene.png")

    async def read(client: Client) -> list[Any]:
        uris = [
            "vlmsearch://info",
            f"vlmsearch://documents/{quote(id, safe='')}",
            f"vlmsearch://images/{quote(id, safe='')}",
        ]
        return [(await client.read_resource(uri)).contents[0] for uri in uris]

    info, document, image = with_client(server, read)
    assert json.loads(info.text)["documents"] == 3
    assert json.loads(document.text) == {
        "id": id,
        "text": "a drawing",
        "metadata": {},
        "image": f"vlmsearch://images/{quote(id, safe='')}",
    }
    assert base64.b64decode(image.blob).startswith(b"\xff\xd8")
    absent = ("vlmsearch://documents/none", f"vlmsearch://images/{quote('/etc/passwd', safe='')}")

    async def fail(client: Client) -> None:
        for uri in absent:
            with pytest.raises(MCPError, match="no document"):
                await client.read_resource(uri)

    with_client(server, fail)


@pytest.mark.parametrize(
    ("tool", "arguments", "message"),
    [
        ("search", {"query": " "}, "a query needs a text"),
        ("search", {"query": "a", "limit": 0}, "limit"),
        ("search", {"query": "a", "where": {"year": {"$near": 1}}}, "$near"),
        ("similar", {"ids": ["none"]}, "none"),
        ("ask", {"question": " "}, "a query needs a text"),
    ],
)
def test_an_error_says_what_to_do(tool: str, arguments: dict[str, Any], message: str, pipeline: Pipeline) -> None:
    assert message in said(call(create_mcp_server(pipeline), tool, **arguments))


def test_an_index_on_a_server_is_used_in_the_same_way(running_service: RunningService) -> None:
    with connect(running_service.url, index="notes") as remote:
        server = create_mcp_server(remote)
        assert structured(server, "search", query="dog snow")["matches"][0]["id"] == "a"
        picture = next(document.id for document in remote.documents() if document.image is not None)
        assert isinstance(call(server, "look", id=picture, size=64).content[0], ImageContent)
        assert structured(server, "info")["documents"] == remote.info()["documents"]
        assert structured(server, "label", labels=["dog", "car"])["counts"]["dog"] >= 1
        found = with_client(server, lambda client: client.read_resource("vlmsearch://documents/a")).contents[0]
        assert isinstance(found, TextResourceContents)
        assert json.loads(found.text)["text"] == "a dog in the snow"


@pytest.mark.slow
def test_a_client_starts_it_as_a_program(folder: Path, running_service: RunningService) -> None:
    local = StdioServerParameters(command=sys.executable, args=command(folder))
    names, found = with_client(local, everything)
    assert names == EXPECTED
    assert found is not None
    assert found["matches"][0]["text"] == "The dog in the snow is called Laika."
    remote = ["-m", "vlmsearch", "mcp", "--server", running_service.url, "--index", "notes"]
    names, found = with_client(StdioServerParameters(command=sys.executable, args=remote), everything)
    assert names == EXPECTED
    assert found is not None
    assert found["matches"][0]["text"] == "a dog in the snow"


@pytest.mark.slow
def test_a_program_ends_with_its_input(folder: Path) -> None:
    done = subprocess.run(
        [sys.executable, *command(folder)], stdin=subprocess.DEVNULL, capture_output=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout) == (0, b"")


@contextmanager
def over_http(folder: Path, *options: str) -> Iterator[str]:
    """The URL of a process that serves over HTTP."""
    with free_socket() as free:
        port = free.getsockname()[1]
    with subprocess.Popen(
        [sys.executable, *command(folder), "--http", "--port", str(port), *options], stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stderr is not None
            assert process.stderr.readline() == f"Serving at http://127.0.0.1:{port}/mcp\n"
            with httpx.Client(transport=httpx.HTTPTransport(retries=10)) as http:
                http.get(f"http://127.0.0.1:{port}/mcp")
            yield f"http://127.0.0.1:{port}/mcp"
        finally:
            process.terminate()
            process.wait(30)


@pytest.mark.slow
def test_clients_come_over_http_from_this_machine_alone(folder: Path) -> None:
    with over_http(folder) as url:
        names, found = with_client(url, everything)
        assert names == EXPECTED
        assert found is not None
        assert found["matches"][0]["id"] == "a"
        for headers in ({"Host": "evil.example"}, {"Origin": "http://evil.example"}):
            answer = httpx.post(url, headers={"Accept": "application/json", **headers}, json={})
            assert answer.status_code in (403, 421)
    refused = run("mcp", "--http", "--host", "0.0.0.0")
    assert refused.returncode == 2
    assert "serves this machine alone" in refused.stderr


@pytest.mark.slow
def test_a_proxy_may_pass_on_the_names_that_are_allowed(folder: Path) -> None:
    def client_of(name: str) -> Any:
        headers = {"Host": name, "Origin": f"https://{name}"}
        return streamable_http_client(url, http_client=create_mcp_http_client(headers=headers))

    with over_http(folder, "--allow-host", "Search.example.com", "--allow-host", "[fd00::1]:8443") as url:
        for name in ("search.example.com", "search.example.com:8443", "[fd00::1]:8443", url.split("/")[2]):
            assert with_client(client_of(name), everything)[0] == EXPECTED
        for name in ("evil.example", "search.example.com.evil.example", "evil.search.example.com"):
            for headers, status in (({"Host": name}, 421), ({"Origin": f"https://{name}"}, 403)):
                assert httpx.post(url, headers=headers, json={}).status_code == status
    assert_one_line(run("mcp", "--http", "--allow-host", "https://a/", cwd=folder), "a host is a name such as")


def test_what_is_wrong_is_said_in_one_line(tmp_path: Path) -> None:
    assert_one_line(run("mcp", "--store", f"sqlite:{tmp_path / 'none'}"), "no index at")
    assert_one_line(run("mcp", "--server", "nowhere"), "a server is named by a URL")


def test_without_the_sdk_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "mcp"]:
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.delitem(sys.modules, "vlmsearch.integrations.mcp", raising=False)
    assert_one_line(
        run("mcp", "--store", "mock:"),
        f"`vlmsearch mcp` needs mcp, which is not installed: {install_command('mcp')}",
    )


@pytest.mark.exhaustive
@pytest.mark.timeout(600)
def test_the_suite_of_the_protocol_passes(folder: Path, tmp_path: Path) -> None:
    npm = shutil.which("npm")
    assert npm, "the conformance suite comes from npm: install Node.js"
    subprocess.run([npm, "install", "--prefix", tmp_path, CONFORMANCE, NODE], check=True, capture_output=True)
    modules = tmp_path / "node_modules"
    suite = modules / "@modelcontextprotocol" / "conformance" / "dist" / "index.js"
    with over_http(folder) as url:
        for scenario in SCENARIOS:
            done = subprocess.run(
                [modules / ".bin" / "node", suite, "server", "--url", url, "--scenario", scenario],
                capture_output=True,
                text=True,
                check=False,
                cwd=tmp_path,
            )
            assert done.returncode == 0, (scenario, done.stdout[-2000:])
            assert re.search(r"Passed: [1-9]\d*/|✓", done.stdout), (scenario, done.stdout[-2000:])


ON_AN_ID: dict[str, dict[str, Any]] = {
    "similar": {"ids": ["ID"]},
    "read": {"id": "ID"},
    "look": {"id": "ID"},
    "search": {"query": "dog", "without": "car"},
    "ask": {"question": "Is there a dog?"},
    "label": {"labels": ["dog"], "where": {"title": "ID"}},
    "info": {},
}


@pytest.fixture(scope="module")
def restricted(folder: Path) -> Iterator[Pipeline]:
    """What ann may read of an index with a document of bob."""
    with Pipeline.open(encoder="mock:", store="mock:") as pipeline:
        image = folder / "scene.png"
        pipeline.add(Document("doc-b", text="a dog in the snow", image=image, readers=["user:bob"]))
        pipeline.add([Document("mine", text="a dog", readers=["user:ann"]), Document("all", text="a blue car")])
        yield pipeline.restricted(["user:ann"])


@pytest.mark.parametrize("tool", EXPECTED)
def test_a_document_that_is_not_readable_is_absent_for_each_tool(tool: str, restricted: Pipeline) -> None:
    server = create_mcp_server(restricted, allow_write=True)

    def told(id: str) -> str:
        arguments = json.loads(json.dumps(ON_AN_ID[tool]).replace("ID", id))
        return call(server, tool, **arguments).model_dump_json().replace(id, "ID")

    assert told("doc-b") == told("doc-z")
    assert "snow" not in told("doc-b")


def test_resources_of_a_document_that_is_not_readable_are_absent(restricted: Pipeline) -> None:
    server = create_mcp_server(restricted)

    async def told(client: Client, uri: str) -> str:
        with pytest.raises(MCPError) as caught:
            await client.read_resource(uri)
        return str(caught.value)

    for kind in ("documents", "images"):
        messages = [
            with_client(server, partial(told, uri=f"vlmsearch://{kind}/{id}")).replace(id, "ID")
            for id in ("doc-b", "doc-z")
        ]
        assert messages == ["there is no document 'ID': give an id as `search` gave it"] * 2
    found = structured(server, "search", query="dog", min_score=0.0)
    assert {match["id"] for match in found["matches"]} == {"mine", "all"}
    assert structured(server, "info")["documents"] == 2


def test_the_command_serves_what_principals_may_read(tmp_path: Path) -> None:
    with Pipeline.open(encoder="mock:", store=f"sqlite:{tmp_path / 'index'}") as pipeline:
        pipeline.add(Document(name, text="a dog", readers=[f"user:{name}"]) for name in ("ann", "bob"))
    server = StdioServerParameters(command=sys.executable, args=[*command(tmp_path), "--principals", "user:ann"])
    assert structured(server, "info")["documents"] == 1
    assert [match["id"] for match in structured(server, "search", query="dog", min_score=0.0)["matches"]] == ["ann"]
