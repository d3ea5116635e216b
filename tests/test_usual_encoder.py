"""An index is opened with the encoder that built it, wherever nobody names one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
from vlmsearch_mocks import MockEncoder

from tests.support.cli import assert_one_line, run
from vlmsearch import AsyncPipeline, ConfigError, Document, Pipeline
from vlmsearch.integrations.framework_index import FrameworkDocument, FrameworkIndex
from vlmsearch.integrations.haystack import VlmsearchDocumentStore
from vlmsearch.integrations.llama_index import VlmsearchMultiModalRetriever, VlmsearchNodeStore
from vlmsearch.registry import open_store


def _of_pipeline(url: str) -> list[str]:
    with Pipeline.open(store=url) as pipeline:
        return [match.document.id for match in pipeline.search("a red star", limit=1)]


def _of_async_pipeline(url: str) -> list[str]:
    async def ids() -> list[str]:
        async with await AsyncPipeline.open(store=url) as pipeline:
            return [match.document.id for match in await pipeline.search("a red star", limit=1)]

    return asyncio.run(ids())


def _of_framework_index(url: str) -> list[str]:
    with FrameworkIndex(url) as index:
        return [document.id for document, _ in index.search("a red star", limit=1)]


def _of_haystack(url: str) -> list[str]:
    store = VlmsearchDocumentStore(url)
    try:
        return [document.id for document in store.search("a red star", limit=1)]
    finally:
        store.close()


def _of_llama_index(url: str) -> list[str]:
    store = VlmsearchNodeStore(url)
    try:
        return [
            hit.node.node_id for hit in VlmsearchMultiModalRetriever(store, similarity_top_k=1).retrieve("a red star")
        ]
    finally:
        store.close()


DOORS = [_of_pipeline, _of_async_pipeline, _of_framework_index, _of_haystack, _of_llama_index]


@pytest.mark.parametrize("door", DOORS)
def test_an_index_is_opened_with_the_encoder_that_built_it(door: Callable[[str], list[str]], tmp_path: Path) -> None:
    url = f"sqlite:{tmp_path / 'index'}"
    with Pipeline.open(encoder="onnx:demo", store=url) as pipeline:
        pipeline.add([Document("a", text="a red star"), Document("b", text="a blue circle")])
    assert door(url) == ["a"]


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize(
    ("fingerprint", "message"),
    [
        ("mock:123", "{} was built with mock:123, which has no name here: give its URL with `encoder`"),
        (
            "demo-clip:123/7",
            "{} was built with onnx:demo-clip?dim=7, which cannot be opened: dim=7 is a length that no",
        ),
    ],
)
def test_an_encoder_that_cannot_be_opened_is_named_with_the_index(
    door: Callable[[str], list[str]], fingerprint: str, message: str, tmp_path: Path
) -> None:
    encoder = MockEncoder()
    encoder.fingerprint = fingerprint
    url = f"sqlite:{tmp_path / 'index'}"
    with Pipeline(encoder, open_store(url)) as pipeline:
        pipeline.add(Document("a", text="a red star"))
    with pytest.raises(ConfigError) as caught:
        door(url)
    assert str(caught.value).startswith(message.format(url))
    assert "`encoder`" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_command_line_and_the_service_name_both_too(tmp_path: Path) -> None:
    encoder = MockEncoder()
    encoder.fingerprint = "demo-clip:123/7"
    with Pipeline(encoder, open_store(f"sqlite:{tmp_path / 'index'}")) as pipeline:
        pipeline.add(Document("a", text="a red star"))
    for command in (["search", "star"], ["index", __file__], ["reindex"], ["serve", "--port", "1"]):
        done = run(*command, "--store", "sqlite:index", cwd=tmp_path)
        assert_one_line(done, "was built with onnx:demo-clip?dim=7, which cannot be opened: dim=7")
        assert "--encoder" in done.stderr


def test_an_encoder_that_is_named_is_the_one(tmp_path: Path) -> None:
    url = f"sqlite:{tmp_path / 'index'}"
    with Pipeline.open(encoder="onnx:demo", store=url) as pipeline:
        pipeline.add(Document("a", text="a red star"))
    with Pipeline.open(encoder="mock:", store=url) as pipeline:
        assert pipeline.encoder.fingerprint.startswith("mock")


def test_a_new_index_asks_for_the_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def open_encoder(url: str) -> MockEncoder:
        asked.append(url)
        return MockEncoder()

    monkeypatch.setattr("vlmsearch.registry.open_usual_encoder.__defaults__", (open_encoder,))
    Pipeline.open(store=f"sqlite:{tmp_path / 'new'}").close()
    VlmsearchDocumentStore(f"sqlite:{tmp_path / 'other'}").search("a red star")
    assert asked == ["onnx:default", "onnx:default"]


@pytest.mark.parametrize("make", [FrameworkIndex, lambda url: VlmsearchDocumentStore(url).index])
def test_an_index_of_given_vectors_takes_them_again(make: Callable[[str], FrameworkIndex], tmp_path: Path) -> None:
    url = f"sqlite:{tmp_path / 'index'}"
    with FrameworkIndex(url, dim=2) as index:
        index.write([FrameworkDocument("a", "a red star", embedding=[3, 4])])
    with make(url) as index:
        [(document, _)] = index.nearest([1, 0], limit=1)
    assert document.id == "a"
