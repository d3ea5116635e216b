"""Every public verb with every wrong type: one line that names the argument, and nothing else."""

import asyncio
import inspect
import re
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import islice, product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from vlmsearch import (
    AsyncPipeline,
    Document,
    Index,
    JudgedQuery,
    Pipeline,
    Query,
    RemotePipeline,
    SearchOptions,
    VlmsearchError,
    connect,
)
from vlmsearch._util.options import options_of

WRONG: dict[str, Any] = {
    "None": None,
    "an int": 7,
    "a float": 1.5,
    "NaN": float("nan"),
    "bytes": b"x",
    "a string": "x\ny",
    "an object": object(),
    "a mixed list": [1, "a", None],
    "a list of lists": [["a"], []],
    "a dict": {"a": 1},
    "a dict of lists": {"a": [object()]},
    "a set": {1, 2},
    "a tuple": (None,),
    "a path": Path("nosuch"),
    "a class": Document,
    "a function": print,
    "an array": np.zeros((2, 3)),
    "a bool": True,
    "a query": Query("a"),
    "a document": Document("a", text="a"),
}
GOOD: dict[str, dict[str, Any]] = {
    "search": {"text": "a dog"},
    "search_many": {"queries": ["a dog"]},
    "explain": {"text": "a dog", "id": "a"},
    "ask": {"question": "Which dog?"},
    "add": {"documents": Document("b", text="a car")},
    "index": {"paths": "."},
    "watch": {"folders": ".", "stop": lambda: True},
    "delete": {"ids": "z"},
    "get": {"ids": "a"},
    "documents": {},
    "count": {},
    "thumbnail": {"id": "a"},
    "label": {"labels": ["dog"]},
    "describe": {},
    "duplicates": {},
    "evaluate": {"queries": [JudgedQuery("q", {"a": 1}, "a dog")]},
    "check": {},
    "restricted": {"principals": ["group:hr"]},
    "info": {},
    "rejects": {},
}
"""The verbs, with arguments that are right; their result does not matter here."""


def parameters(verb: str) -> list[str]:
    """The arguments of a verb."""
    return [name for name in inspect.signature(getattr(Pipeline, verb)).parameters if name != "self"]


def attempt(call: Callable[[], object], name: str, what: str) -> None:
    """Make a call, which works or says in one line what is wrong with which argument."""
    try:
        call()
    except (VlmsearchError, TypeError, ValueError) as exc:
        said = str(exc)
        assert "\n" not in said, what
        assert 15 < len(said) < 600, what
        if isinstance(exc, TypeError):
            assert re.search(rf"`{name}`|open\({name}=", said), f"{what}: {said}"
    except Exception as exc:  # noqa: BLE001 - this is what the test is about
        pytest.fail(f"{what}: {type(exc).__name__}: {exc}")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "note.txt").write_text("a dog in the snow")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def pipeline(folder: Path) -> Iterator[Pipeline]:
    with Pipeline.open(encoder="mock:", store="mock:") as opened:
        opened.add(Document("a", text="a dog"))
        yield opened


@pytest.fixture
def remote(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RemotePipeline]:
    """A pipeline whose server answers nothing: what is wrong is told before it is asked, or else by it."""

    def send(self: RemotePipeline, *args: object, **kwargs: object) -> bytes:
        raise VlmsearchError("the server would have been asked")

    monkeypatch.setattr(RemotePipeline, "_send", send)
    monkeypatch.setattr(RemotePipeline, "_events", send)
    with connect("http://127.0.0.1:1") as opened:
        yield opened


def run(verb: Callable[..., Any], arguments: dict[str, Any]) -> object:
    result = verb(**arguments)
    return list(islice(result, 1)) if isinstance(result, Iterator) else result  # watch goes on


async def run_async(verb: Callable[..., Any], arguments: dict[str, Any]) -> object:
    result = verb(**arguments)
    if inspect.isasyncgen(result):
        async for _ in result:
            break
        await result.aclose()
        return None
    return await result


def test_all_verbs_are_called() -> None:
    public = {name for name, value in vars(Index).items() if callable(value) and not name.startswith("_")}
    assert public <= set(GOOD)
    assert set(GOOD) - public == {"watch"}


def attempt_all(pipeline: Index, verb: str) -> None:
    for name, (kind, value) in product(parameters(verb), WRONG.items()):
        call = partial(run, getattr(pipeline, verb), {**GOOD[verb], name: value})
        attempt(call, name, f"{verb}({name}={kind})")


@pytest.mark.parametrize("verb", GOOD)
def test_a_pipeline_names_the_argument(pipeline: Pipeline, verb: str) -> None:
    attempt_all(pipeline, verb)


@pytest.mark.parametrize("verb", [verb for verb in GOOD if verb != "watch"])
def test_a_remote_pipeline_names_the_argument(remote: RemotePipeline, verb: str) -> None:
    attempt_all(remote, verb)


@pytest.mark.parametrize("verb", GOOD)
def test_an_asynchronous_pipeline_names_the_argument(pipeline: Pipeline, verb: str) -> None:
    there = AsyncPipeline(pipeline, threads=1)
    for name, (kind, value) in product(parameters(verb), WRONG.items()):
        make = partial(run_async, getattr(there, verb), {**GOOD[verb], name: value})
        attempt(lambda make=make: asyncio.run(make()), name, f"{verb}({name}={kind})")  # type: ignore[misc]


def attempt_to_make(kind: Callable[..., object], right: dict[str, Any], names: Iterable[str]) -> None:
    """Make a value with one wrong argument after the other."""
    for name, (wrong, value) in product(names, WRONG.items()):
        attempt(partial(kind, **{**right, name: value}), name, f"{kind}({name}={wrong})")


def test_a_document_takes_anything_and_adding_it_says_what_is_wrong(pipeline: Pipeline) -> None:
    for name, (kind, value) in product(("id", "text", "image", "metadata"), WRONG.items()):
        document = Document(**{"id": "a", "text": "a dog", name: value})
        attempt(partial(pipeline.add, document), "documents", f"Document({name}={kind})")


def test_a_query_and_the_options_of_a_search_name_the_argument() -> None:
    attempt_to_make(Query, {"text": "a"}, ("text", "image", "like", "without"))
    attempt_to_make(SearchOptions, {}, options_of(SearchOptions))


def test_opening_names_the_argument(folder: Path) -> None:
    parts = ("encoder", "store", "generator", "reranker", "next_encoders")
    right: dict[str, Any] = {"encoder": "mock:", "store": "mock:"}
    attempt_to_make(lambda **given: Pipeline.open(**given).close(), right, (*parts, "image_limits"))
    with Pipeline.open(**right) as opened:
        attempt_to_make(Pipeline, {"encoder": opened.encoder, "store": opened.store}, parts)


def test_connecting_names_the_argument() -> None:
    names = ("url", "index", "token", "timeout", "allow_plain_http")
    attempt_to_make(connect, {"url": "http://127.0.0.1:1"}, names)
