"""The mistakes of a first hour: each gets one line that says what to do instead, and changes nothing."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.support.cli import run
from tests.support.servers import free_port
from vlmsearch import BackendError, ConfigError, Document, InvalidBatchError, InvalidInputError, Pipeline, connect
from vlmsearch._util.extras import install_command

NO_INDEX = "no index at sqlite:nosuch: make one with `vlmsearch index PATHS --store URL`"


@dataclass(frozen=True)
class Place:
    """A folder with an index, a port that refuses, and the port of another service."""

    folder: Path
    port: int
    other: int
    encoder: str

    def contents(self) -> dict[str, bytes]:
        """Return all files and folders with what is in them."""
        paths = sorted(self.folder.rglob("*"))
        return {str(path): path.read_bytes() if path.is_file() else b"" for path in paths}

    def fill(self, text: str) -> str:
        """Replace the names of attributes, and of the message that tells that there is no index."""
        minilm = self.encoder.partition("+")[2]
        for name, value in {**vars(self), "minilm": minilm, "no_index": NO_INDEX}.items():
            text = text.replace("{" + name + "}", str(value))
        return text


class OtherService(BaseHTTPRequestHandler):
    """A web site."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "5")
        self.end_headers()
        self.wfile.write(b"hello")

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.do_GET()

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    folder = tmp_path_factory.mktemp("first-hour")
    files = {
        "notes/a.txt": b"a dog in the snow",
        "binaries/run.exe": b"MZ",
        "no.jpg": b"not an image",
        "empty.jpg": b"",
        "empty.txt": b"",
        "text.index": b"This is a text.\n" * 200,
        "bad.json": b"nonsense",
        "table.csv": b"a,b\n1,2\n",
        "typo.toml": b"prot = 1\n",
    }
    for name, data in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(data)
    (folder / "empty").mkdir()
    with Pipeline.open(encoder="onnx:demo", store=f"sqlite:{folder / 'index'}") as pipeline:
        pipeline.index(folder / "notes")
        encoder = pipeline.encoder.fingerprint
    data = (folder / "index").read_bytes()
    (folder / "cut").write_bytes(data[: len(data) // 2])
    with closing(sqlite3.connect(folder / "other")) as connection:
        connection.execute("CREATE TABLE users (name)")
    with ThreadingHTTPServer(("127.0.0.1", 0), OtherService) as service:
        threading.Thread(target=service.serve_forever, daemon=True).start()
        yield Place(folder, free_port(), service.server_port, encoder)
        service.shutdown()


MISTAKES: list[Any] = [
    (
        "index notes --store sqlit:x",
        1,
        (
            "no store 'sqlit:'; did you mean 'sqlite:'? there are chroma:, mock:, mongodb:, mongodb+chroma:, "
            "postgresql:, sqlite:"
        ),
    ),
    (
        "index notes --store postgres://localhost/db",
        1,
        (
            "no store 'postgres:'; did you mean 'postgresql:'? there are chroma:, mock:, mongodb:, "
            "mongodb+chroma:, postgresql:, sqlite:"
        ),
    ),
    (
        "index notes --store http://localhost:8080",
        1,
        (
            "no store 'http:'; `connect` or --server opens a service of vlmsearch; other URLs name a kind, as "
            "openai:http://HOST/v1 does; there are chroma:, mock:, mongodb:, mongodb+chroma:, postgresql:, sqlite:"
        ),
    ),
    (
        "index notes --store ./myindex",
        1,
        (
            "'./myindex' is not the URL of a store; did you mean 'sqlite:./myindex'? it begins with one of "
            "chroma:, mock:, mongodb:, mongodb+chroma:, postgresql:, sqlite:"
        ),
    ),
    ("index notes --store sqlite:", 1, "store sqlite: needs a location after the colon"),
    (
        "index notes --store sqlite:notes",
        1,
        "{folder}/notes is a folder; an index of sqlite: is a file: name one, such as sqlite:{folder}/notes/index",
    ),
    (
        "index notes --store sqlite:notes/a.txt/index",
        1,
        "sqlite:notes/a.txt/index failed to make the database: {folder}/notes/a.txt: Not a directory",
    ),
    ("index notes --store sqlite:index?foo=1", 1, "store sqlite: has no option 'foo'; it has language, timeout"),
    ("index notes --store sqlite:index?timeout=abc", 1, "option timeout of store sqlite: is a number, not 'abc'"),
    (
        "index notes --encoder onnx/default",
        1,
        (
            "'onnx/default' is not the URL of an encoder; did you mean 'onnx:default'? it begins with one of "
            "mock:, onnx:, openai:, tensorrt:, torch:, triton:"
        ),
    ),
    (
        "index notes --encoder default",
        1,
        (
            "'default' is not the URL of an encoder; did you mean 'onnx:default'? it begins with one of mock:, "
            "onnx:, openai:, tensorrt:, torch:, triton:"
        ),
    ),
    (
        "index notes --encoder onnx:",
        1,
        "name a model: default, clip, demo, a bundle, one of the hub (ORG/NAME) or a folder",
    ),
    (
        "index notes --encoder onyx:demo",
        1,
        "no encoder 'onyx:'; did you mean 'onnx:'? there are mock:, onnx:, openai:, tensorrt:, torch:, triton:",
    ),
    (
        "index notes --encoder ./nosuch",
        1,
        (
            "'./nosuch' is not the URL of an encoder; did you mean 'onnx:./nosuch'? it begins with one of "
            "mock:, onnx:, openai:, tensorrt:, torch:, triton:"
        ),
    ),
    ("index notes --encoder onnx:./nosuch", 1, "nosuch is not a bundle: bundle.json: No such file or directory"),
    (
        "index notes --encoder http://localhost/v1",
        1,
        (
            "no encoder 'http:'; `connect` or --server opens a service of vlmsearch; other URLs name a kind, as "
            "openai:http://HOST/v1 does; there are mock:, onnx:, openai:, tensorrt:, torch:, triton:"
        ),
    ),
    (
        "index notes --encoder openai:http://127.0.0.1:{port}/v1",
        1,
        "openai: needs ?model=, the name by which the server knows its model",
    ),
    (
        "index notes --encoder onnx:demo-minilm",
        1,
        (
            "the index sqlite:index was built with {encoder}, not with {minilm}: open it with that encoder, "
            "build a new one with `vlmsearch index PATHS --store NEW`, or change this one with `vlmsearch "
            "reindex --encoder URL`"
        ),
    ),
    (
        "index notes --encoder triton:127.0.0.1:{port}/x",
        1,
        "a Triton server is triton://HOST:PORT/MODEL, such as triton://127.0.0.1:8001/vlm, not '127.0.0.1:{port}/x'",
    ),
    ("index nosuch", 1, "no such file or folder: 'nosuch'"),
    ("index notes/a.txt/b", 1, "no such file or folder: 'notes/a.txt/b'"),
    ("index empty", 1, "no images, texts or rows in empty: name files, or a folder that has some"),
    ("index binaries", 1, "no images, texts or rows in binaries, but other files: .exe 1; name a table itself"),
    ("index", 2, "Missing argument 'PATHS...'."),
    ("search dog --store sqlite:nosuch", 1, "{no_index}"),
    ("search dog --store sqlite:text.index", 1, "{folder}/text.index is not a database: give the index another name"),
    (
        "search dog --store sqlite:cut",
        1,
        (
            "sqlite:cut failed to look for the index: database disk image is malformed; the file is damaged: "
            "restore a copy of it, or index again under another name"
        ),
    ),
    (
        "search dog --store sqlite:other",
        1,
        "{folder}/other is a database of another program: give the index another name",
    ),
    (
        "search dog --encoder mock:",
        1,
        (
            "the index sqlite:index was built with {encoder}, not with mock:4f53cda18c2b: open it with that "
            "encoder, build a new one with `vlmsearch index PATHS --store NEW`, or change this one with "
            "`vlmsearch reindex --encoder URL`"
        ),
    ),
    ("search", 2, "give a text, an --image, --like or several of them"),
    ("search ''", 2, "give a text, an --image, --like or several of them"),
    ("search '   '", 2, "give a text, an --image, --like or several of them"),
    ("search dog cat", 2, "Got unexpected extra argument (cat)"),
    ("search dog --limit 0", 2, "Invalid value for '-n' / '--limit': 0 is not in the range 1<=x<=10000."),
    ("search dog --limit -1", 2, "Invalid value for '-n' / '--limit': -1 is not in the range 1<=x<=10000."),
    ("search dog --limit abc", 2, "Invalid value for '-n' / '--limit': 'abc' is not a valid integer."),
    ("search dog --min-score 2", 2, "Invalid value for '--min-score': 2.0 is not in the range 0<=x<=1."),
    ("search dog --min-score abc", 2, "Invalid value for '--min-score': 'abc' is not a valid number."),
    ("search dog --where year>", 2, "Invalid value for '--where': the filter needs a value at its end"),
    (
        "search dog --where year>=abc",
        2,
        "Invalid value for '--where': the filter needs a number: > >= < <= order numbers only at character 7, 'abc'",
    ),
    (
        "search dog --where nope",
        2,
        "Invalid value for '--where': the filter needs one of = == != > >= < <=, 'has', 'in' or 'not in' at its end",
    ),
    ("search dog --image nosuch.jpg", 1, "'nosuch.jpg' cannot be read: No such file or directory"),
    ("search dog --image notes", 1, "'notes' is a folder, not an image file"),
    (
        "search --image no.jpg",
        1,
        "'no.jpg' is in no format that can be read: JPEG, PNG, GIF, WebP, TIFF, BMP, JPEG 2000, PPM, AVIF, HEIC",
    ),
    ("search --image empty.jpg", 1, "'empty.jpg' is empty: 0 bytes"),
    (
        "search --image https://127.0.0.1/x.jpg",
        1,
        (
            "'https://127.0.0.1/x.jpg' is on the web, and nothing is fetched from there: download it first, as "
            "`curl -O https://127.0.0.1/x.jpg` does, and give the path of the file"
        ),
    ),
    (
        "search dog --like nosuch",
        1,
        "sqlite:index has no document 'nosuch': --like and --without name ids that are in the index",
    ),
    ("search dog --limt 3", 2, "No such option '--limt'. (Did you mean one of: '--like', '--limit', '--quiet'?)"),
    ("search dog --store", 2, "Option '--store' requires an argument."),
    (
        "search dog --rerank onnx:nosuch",
        1,
        (
            "no re-ranker 'nosuch'; there are demo-reranker, ms-marco-minilm-l6-v2, models of the hub "
            "(ORG/NAME) and folders (./NAME)"
        ),
    ),
    (
        "search dog --server http://127.0.0.1:{port}",
        1,
        "http://127.0.0.1:{port} cannot be reached: check its URL, and that it runs (Connection refused)",
    ),
    (
        "search dog --server 127.0.0.1:{port}",
        1,
        "a server is named by a URL such as http://127.0.0.1:8080, not 127.0.0.1:{port}",
    ),
    (
        "search dog --server http://127.0.0.1:{port} --store sqlite:index",
        2,
        "a server has its own settings: leave out --store",
    ),
    (
        "search dog --server http://127.0.0.1:{other}",
        1,
        "http://127.0.0.1:{other} answers with something else than JSON: is it vlmsearch?",
    ),
    (
        "list --server http://127.0.0.1:{other}",
        1,
        "http://127.0.0.1:{other} answers with something else than JSON: is it vlmsearch?",
    ),
    (
        "search dog --store mongodb://127.0.0.1:{port}/db",
        1,
        (
            "mongodb://127.0.0.1:{port}/db could not be reached to look for the index: 127.0.0.1:{port} refused "
            "a connection, or was silent: start MongoDB, or check the address"
        ),
    ),
    ("search dog --store mongodb:", 1, "store mongodb: needs a location after the colon"),
    pytest.param(
        "search dog --store chroma://127.0.0.1:{port}/x",
        1,
        "chroma://127.0.0.1:{port}/x could not be reached to look for x.about: Connection refused",
        marks=pytest.mark.slow,
    ),
    (
        "search dog --store chroma:./folder/x",
        1,
        (
            "chroma:./folder/x is a folder, and Chroma is used on a server, chroma://host:8000/name; in a "
            "folder, use sqlite:. To keep an index that is there already, start `chroma run --path folder/x` "
            "and run `vlmsearch copy --from chroma://localhost:8000/vlmsearch --to sqlite:./index`"
        ),
    ),
    (
        "search dog --store postgresql:localhost/db",
        1,
        "the address of a database is postgresql://user@host:5432/database, not postgresql:localhost/db",
    ),
    ("serach dog", 2, "No such command 'serach': did you mean 'search'?"),
    ("ask", 2, "Missing argument 'QUESTION'."),
    ("ask ''", 2, "the question is empty"),
    (
        "ask dog --generator openia:x",
        1,
        (
            "no generator 'openia:'; did you mean 'openai:'? there are extractive:, mock:, onnx:, openai:, "
            "transformers:, triton:"
        ),
    ),
    pytest.param(
        "ask dog --generator openai:http://127.0.0.1:{port}/v1",
        1,
        "openai:http://127.0.0.1:{port}/v1 cannot be reached: check its URL, and that it runs (Connection refused)",
        marks=pytest.mark.slow,
    ),
    ("ask dog --template nosuch", 1, "the template nosuch cannot be read: No such file or directory: 'nosuch'"),
    ("ask dog --temperature -1", 2, "Invalid value for '--temperature': -1.0 is not in the range x>=0."),
    ("ask dog --store sqlite:nosuch", 1, "{no_index}"),
    ("explain dog", 2, "Missing argument 'ID'."),
    ("explain dog a --store sqlite:nosuch", 1, "{no_index}"),
    ("get nosuch", 1, "not in the index: nosuch"),
    ("get nosuch --store sqlite:nosuch", 1, "{no_index}"),
    ("delete nosuch", 1, "none of these ids is in the index"),
    ("delete", 2, "Missing argument 'IDS...'."),
    ("list --page 0", 2, "Invalid value for '--page': 0 is not in the range x>=1."),
    ("list --page 2", 2, "--page needs --limit, the number of documents of a page"),
    ("count --store sqlite:nosuch", 1, "{no_index}"),
    ("info --store sqlite:nosuch", 1, "{no_index}"),
    ("check --store sqlite:nosuch", 1, "{no_index}"),
    ("label", 2, "name labels with --as cat,dog,receipt, or give --remove"),
    (
        "label --as cat --template 'no braces'",
        1,
        "a --template has {} once, where the label goes, such as 'a photo of a {}': ['no braces']",
    ),
    ("label --as cat --store sqlite:nosuch", 1, "{no_index}"),
    (
        "describe",
        1,
        (
            "extractive sees no pictures: open a generator that does, such as onnx:demo-vlm, transformers: with "
            "a model for images and texts, or openai:"
        ),
    ),
    ("duplicates --threshold 2", 2, "Invalid value for '--threshold': 2.0 is not in the range 0<=x<=1."),
    ("duplicates --store sqlite:nosuch", 1, "{no_index}"),
    ("export out.xyz", 1, "'out.xyz' ends in neither .parquet nor .csv: name the file to write"),
    ("export notes/a.txt/out.csv", 1, "Not a directory: 'notes/a.txt'"),
    ("export out.csv --store sqlite:nosuch", 1, "{no_index}"),
    ("import nosuch.parquet", 1, "no such file: 'nosuch.parquet'"),
    ("import table.csv", 1, "a CSV file has no vectors to import: run `vlmsearch index table.csv`"),
    ("eval nosuch.json", 2, "Invalid value for 'FILE': Path 'nosuch.json' does not exist."),
    ("eval bad.json", 1, "bad.json, line 1 is not JSON: Expecting value: line 1 column 1 (char 0)"),
    (
        "eval empty.txt",
        1,
        'empty.txt holds no queries: write lines such as {"query": "a dog", "relevant": ["ID", ...]}',
    ),
    ("copy --from sqlite:nosuch --to sqlite:new", 1, "{no_index}"),
    (
        "copy --from sqlite:index --to sqlite:index",
        1,
        "--from and --to are the same index, sqlite:index: name another place for the copy",
    ),
    ("diff sqlite:nosuch sqlite:index", 1, "{no_index}"),
    ("reindex --store sqlite:nosuch --encoder onnx:demo", 1, "{no_index}"),
    ("watch nosuch", 1, "no such file or folder: 'nosuch'"),
    ("watch notes/a.txt", 1, "'notes/a.txt' is not a folder: only folders can be watched"),
    pytest.param("mcp --store sqlite:nosuch", 1, "{no_index}", marks=pytest.mark.slow),
    ("serve --port abc", 2, "Invalid value for '--port': 'abc' is not a valid integer."),
    ("serve --port 99999", 2, "Invalid value for '--port': 99999 is not in the range 1<=x<=65535."),
    pytest.param(
        "serve --port {other}", 1, "cannot listen on 127.0.0.1:{other}: Address already in use", marks=pytest.mark.slow
    ),
    ("serve --rate 0", 2, "Invalid value for '--rate': 0.0 is not in the range x>0."),
    (
        "serve --host 0.0.0.0",
        1,
        (
            "--host 0.0.0.0 can be reached from other machines: name a file of --tokens, which `vlmsearch token "
            "add` writes, or listen on 127.0.0.1"
        ),
    ),
    ("serve --config nosuch.toml", 1, "nosuch.toml cannot be read: No such file or directory"),
    (
        "serve --config bad.json",
        1,
        "bad.json is not TOML: Expected '=' after a key in a key/value pair (at end of document)",
    ),
    (
        "serve --config typo.toml",
        1,
        (
            "typo.toml: unknown key 'prot'; did you mean 'port'? there are indexes, host, port, root_path, "
            "uploads, tokens, oidc, max_body, rate, cors, tls_cert, tls_key, log, threads, workers, stop_seconds"
        ),
    ),
    ("serve --tls-cert nosuch.pem", 1, "TLS takes a certificate and its key: give both --tls-cert and --tls-key"),
    ("token create", 2, "No such command 'create'"),
    ("token remove nosuch", 2, "Missing option '--tokens'."),
    ("demo nosuch", 2, "Got unexpected extra argument (nosuch)"),
    ("models nosuch", 2, "Got unexpected extra argument (nosuch)"),
    ("bench foo", 2, "No such command 'foo'"),
    ("--foo", 2, "No such option '--foo'."),
]
"""A command, its exit status and its last line, without "Error: "."""


@pytest.mark.parametrize(("line", "code", "message"), MISTAKES)
def test_a_mistake_gets_one_line_and_changes_nothing(place: Place, line: str, code: int, message: str) -> None:
    before = place.contents()
    environment = {"VLMSEARCH_STORE": "sqlite:index", "VLMSEARCH_ENCODER": "onnx:demo"}
    done = run(*shlex.split(place.fill(line)), cwd=place.folder, **environment)
    *usage, last = done.stderr.splitlines()
    assert last == f"Error: {place.fill(message)}"
    assert done.returncode == code
    if code == 2 and usage:
        assert [text.split()[0] for text in usage if text] == ["Usage:", "Try"]
    else:
        assert usage == []
    assert place.contents() == before


@pytest.mark.parametrize(
    ("variable", "value", "reason"),
    [
        ("HF_ENDPOINT", "http://127.0.0.1:{port}", "Connection refused"),
        ("HF_HUB_OFFLINE", "1", "HF_HUB_OFFLINE is set"),
    ],
)
def test_a_model_that_cannot_be_had_is_told_with_what_works_offline(
    place: Place, tmp_path: Path, variable: str, value: str, reason: str
) -> None:
    before = place.contents()
    environment = {"VLMSEARCH_CACHE": str(tmp_path), "HF_HOME": str(tmp_path / "hub"), variable: place.fill(value)}
    done = run("index", "notes", "--store", "sqlite:new", cwd=place.folder, **environment)
    model = "siglip2-base-patch32-256"
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        f"Error: google/{model} at 9e7ee6850617 cannot be downloaded ({reason}). With a copy of the checkpoint run "
        f"`vlmsearch build {model} --from DIR`; onnx:demo works offline\n"
    )
    assert place.contents() == before


PYTHON_MISTAKES: list[tuple[Callable[[Any], object], type[Exception], str]] = [
    (lambda p: p.search(b"x"), TypeError, "the `text` of a query is a string, not bytes; a picture goes into image="),
    (lambda p: p.search(None), InvalidInputError, "a query needs a text, an image or both, or documents for `like`"),
    (lambda p: p.search(["a"]), TypeError, "the `text` of a query is a string, not list; a picture goes into image="),
    (
        lambda p: p.search("a", limt=3),
        TypeError,
        (
            "there is no option 'limt' here: the options are text, image, like, without, where, limit, "
            "min_score, weights, rerank, rerank_first, rerank_seconds, sort, diversity, count, facets, group, "
            "offset, cursor"
        ),
    ),
    (lambda p: p.search("a", limit=0), ConfigError, "`limit` is from 1 to 10,000, not 0"),
    (
        lambda p: p.search("a", where="year>2020"),
        TypeError,
        "`where` is a filter such as {'year': 2024}, not 'year>2020'",
    ),
    (
        lambda p: p.search(image="nosuch.jpg"),
        InvalidBatchError,
        "'nosuch.jpg' cannot be read: No such file or directory",
    ),
    (lambda p: p.search("a", min_score=2), ConfigError, "`min_score` is from 0 to 1, not 2"),
    (
        lambda p: p.search(like="nosuch"),
        ConfigError,
        "sqlite:{folder}/index has no document 'nosuch': `like` and `without` name ids that are in the index",
    ),
    (lambda p: p.index(None), TypeError, "`paths` is a path or a list of paths, not None"),
    (lambda p: p.index("nosuch"), ConfigError, "no such file or folder: 'nosuch'"),
    (
        lambda p: p.add("text"),
        TypeError,
        (
            "`documents`: a Document, a dict, an image or a table is added, not str: write Document(text=...) "
            "for a text, Document(image=...) for an image, or call index(path) for files"
        ),
    ),
    (
        lambda p: p.add(["a", "b"]),
        TypeError,
        (
            "`documents`: a Document, a dict, an image or a table is added, not str at place 1: write "
            "Document(text=...) for a text, Document(image=...) for an image, or call index(path) for files"
        ),
    ),
    (
        lambda p: p.add(None),
        TypeError,
        (
            "`documents`: a Document, a dict, an image or a table is added, not NoneType: write Document(id, "
            "text=..., image=...)"
        ),
    ),
    (
        lambda p: p.add(Document("x"), strict=True),
        InvalidInputError,
        "x: the document has neither text nor image (and nothing after it was indexed: strict)",
    ),
    (
        lambda p: p.label([]),
        ConfigError,
        "labels are words such as `cat`; none only with `write`, which takes labels off",
    ),
    (lambda p: p.label("cat"), ConfigError, "`labels` is a list of strings, such as ['cat']"),
    (lambda p: p.thumbnail("nosuch"), ConfigError, "there is no document 'nosuch' in the index"),
    (
        lambda p: Pipeline.open(encoder="nosuch"),
        ConfigError,
        (
            "'nosuch' is not the URL of an encoder; did you mean 'onnx:nosuch'? it begins with one of mock:, "
            "onnx:, openai:, tensorrt:, torch:, triton:"
        ),
    ),
    (
        lambda p: Pipeline.open(store=Path("x")),  # type: ignore[arg-type]
        TypeError,
        "`store` is a URL, not PosixPath PosixPath('x'): write store='sqlite:x'",
    ),
    (
        lambda p: Pipeline("mock:", "sqlite:x"),  # type: ignore[arg-type]
        TypeError,
        "Pipeline takes open back ends: Pipeline.open(encoder='mock:') opens one by its URL",
    ),
    (
        lambda p: connect("localhost:8080"),
        ConfigError,
        "a server is named by a URL such as http://127.0.0.1:8080, not localhost:8080",
    ),
    (
        lambda p: connect("sqlite:x"),
        ConfigError,
        "a server is named by a URL such as http://127.0.0.1:8080, not sqlite:x",
    ),
]


@pytest.mark.parametrize(("call", "error", "message"), PYTHON_MISTAKES)
def test_a_mistake_in_python_is_told_in_one_line(
    place: Place, call: Callable[[Any], object], error: type[Exception], message: str
) -> None:
    with Pipeline.open(encoder="onnx:demo", store=f"sqlite:{place.folder / 'index'}") as pipeline:
        with pytest.raises(error) as caught:
            call(pipeline)
        assert (type(caught.value), str(caught.value)) == (error, place.fill(message))
        assert pipeline.count() == 1


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("index empty", "no images, texts or rows in empty: name files, or a folder that has some"),
        ("index empty/head.csv --columns text=nocol", "nocol"),
        ("index nosuch", "no such file or folder: 'nosuch'"),
    ],
)
def test_an_index_that_nothing_goes_into_is_not_made(tmp_path: Path, line: str, message: str) -> None:
    (tmp_path / "empty").mkdir()
    if "head.csv" in line:
        (tmp_path / "empty" / "head.csv").write_text("id,text\n1,a dog\n")
    done = run(*line.split(), "--store", "sqlite:new", cwd=tmp_path, VLMSEARCH_ENCODER="onnx:demo")
    assert done.returncode == 1
    assert message in done.stderr
    assert not (tmp_path / "new").exists()
    searched = run("search", "dog", "--store", "sqlite:new", cwd=tmp_path, VLMSEARCH_ENCODER="onnx:demo")
    assert searched.stderr.startswith("Error: no index at sqlite:new")


def test_a_closed_pipeline_says_so(place: Place) -> None:
    with Pipeline.open(encoder="onnx:demo", store=f"sqlite:{place.folder / 'index'}") as pipeline:
        pass
    for call in (lambda: pipeline.search("a dog"), lambda: pipeline.add(Document("new", text="a cat"))):
        with pytest.raises(BackendError, match=r"^the encoder is closed$"):
            call()


MISSING = {
    "chromadb": ("store chroma:", "chroma", "count --store chroma://127.0.0.1:9/x"),
    "pymongo": ("store mongodb:", "mongodb", "count --store mongodb://127.0.0.1:9/x"),
    "psycopg": ("store postgresql:", "postgresql", "count --store postgresql://127.0.0.1:9/x"),
    "tritonclient": ("encoder triton:", "triton", "index notes --encoder triton://127.0.0.1:9/x"),
    "torch": ("encoder torch:", "build", "index notes --encoder torch:demo"),
    "fastapi": ("`vlmsearch serve`", "serve", "serve"),
    "mcp": ("`vlmsearch mcp`", "mcp", "mcp"),
    "pyarrow": ("Parquet", "parquet", "export out.parquet"),
    "watchfiles": ("`vlmsearch watch`", "watch", "watch notes"),
    "ir_measures": ("measuring", "eval", "eval queries.jsonl"),
}
"""Packages, with the first words of a message, an extra, and a command."""
WITHOUT = """
import json, sys
from importlib.abc import MetaPathFinder
from tests.support.cli import run

class Absent(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in packages:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

packages = json.loads(sys.argv[1])
sys.meta_path.insert(0, Absent())
done = [run(*command.split()) for command in packages.values()]
print(json.dumps([(each.returncode, each.stderr.splitlines()[-1]) for each in done]))
"""
"""A process in which packages are not installed. It prints how their commands end."""


@pytest.mark.slow
def test_a_missing_extra_is_named_with_the_command_that_installs_it(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands = {package: command for package, (_, _, command) in MISSING.items()}
    (place.folder / "queries.jsonl").write_text('{"query": "a dog", "relevant": ["a"]}\n')
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT, json.dumps(commands)],
        cwd=place.folder,
        env=os.environ
        | {
            "PYTHONPATH": os.pathsep.join(sys.path),
            "VLMSEARCH_STORE": "sqlite:index",
            "VLMSEARCH_ENCODER": "onnx:demo",
        },
        capture_output=True,
        text=True,
        check=True,
    )
    monkeypatch.chdir(place.folder)  # which says how a checkout is named
    assert json.loads(done.stdout) == [
        [1, f"Error: {user} needs {package}, which is not installed: {install_command(extra)}"]
        for package, (user, extra, _) in MISSING.items()
    ]


LIMITED = """
import resource, sys
from vlmsearch.cli import main

resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv.pop(1)),) * 2)
main()
"""
"""A command whose files have a limit, as on a full disk."""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="there is no limit of the size of a file")
def test_a_full_disk_loses_nothing(place: Place, tmp_path: Path) -> None:
    shutil.copy(place.folder / "index", tmp_path / "index")
    (tmp_path / "notes").mkdir()
    for number in range(400):
        (tmp_path / "notes" / f"{number}.txt").write_text(f"the dog number {number}")
    limit = (tmp_path / "index").stat().st_size + 65536
    index = ["index", "notes", "--store", "sqlite:index", "--encoder", "onnx:demo"]
    command = [sys.executable, "-c", LIMITED, str(limit), *index]
    full = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert full.returncode == 1
    assert full.stderr == (
        "Error: sqlite:index failed to write documents: disk I/O error; nothing of it was done: see whether the disk "
        "or a quota is full, or the disk fails\n"
    )
    assert run("check", "--store", "sqlite:index", cwd=tmp_path).returncode == 0
    assert run("get", str(place.folder / "notes" / "a.txt"), "--store", "sqlite:index", cwd=tmp_path).returncode == 0


def test_an_export_makes_the_folder_of_its_file(place: Place, tmp_path: Path) -> None:
    store = f"sqlite:{place.folder / 'index'}"
    assert run("export", "new/folder/out.csv", "--store", store, cwd=tmp_path).returncode == 0
    assert [path.name for path in (tmp_path / "new" / "folder").iterdir()] == ["out.csv"]
