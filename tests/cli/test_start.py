"""The start of a command: it loads what it uses, and computes nothing that the index keeps."""

import os
import subprocess
import sys

import pytest

from vlmsearch import Document, Pipeline

HEAVY = {
    "asyncio",
    "chromadb",
    "fastapi",
    "httpx",
    "importlib.metadata",
    "onnx",
    "opentelemetry.trace",
    "PIL",
    "psycopg",
    "pymongo",
    "random",
    "rich",
    "socket",
    "ssl",
    "statistics",
    "subprocess",
    "tempfile",
    "tomllib",
    "torch",
    "transformers",
    "urllib.request",
    "vlmsearch._util.gpu",
    "vlmsearch.answers.prompts",
    "vlmsearch.answers.stream",
    "vlmsearch.building",
    "vlmsearch.client",
    "vlmsearch.indexing.flow",
    "vlmsearch.media.images",
    "vlmsearch.search.agreement",
    "vlmsearch.search.rerank",
    "vlmsearch.server",
    "vlmsearch.stores.filter_text",
    "vlmsearch.stores.sqlite.check",
    "vlmsearch.stores.sqlite.upgrade",
    "vlmsearch.wire",
}
"""Modules that a search for words in an index of SQLite needs none of."""
CODE = """import sys
from vlmsearch.cli import main
try:
    main()
finally:
    print(*sys.modules, file=sys.stderr)
"""


def loaded(*arguments: str) -> set[str]:
    environment = {**os.environ, "COLUMNS": "100"}
    command = [sys.executable, "-c", CODE, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    return set(done.stderr.split())


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> str:
    store = f"sqlite:{tmp_path_factory.mktemp('start') / 'index'}"
    with Pipeline.open(encoder="onnx:demo-minilm", store=store) as pipeline:
        pipeline.add([Document(f"{n}", text=f"a red circle and {n} green squares") for n in range(60)])
    return store


def test_a_search_loads_what_it_uses(index: str) -> None:
    modules = loaded("search", "a red circle", "--store", index)
    assert {"numpy", "onnxruntime", "vlmsearch.search.arrays"} <= modules
    assert sorted(modules & HEAVY) == []


@pytest.mark.parametrize("arguments", [["--help"], ["search", "--help"]], ids=" ".join)
def test_help_loads_neither_numpy_nor_a_model(arguments: list[str]) -> None:
    modules = loaded(*arguments)
    assert "vlmsearch.cli" in modules
    assert sorted(modules & (HEAVY | {"numpy", "onnxruntime", "tokenizers", "vlmsearch.pipeline"})) == []
