"""The Python functions that a search calls: their number, unlike a time, is the same on every machine."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from vlmsearch import Pipeline
from vlmsearch.bench.search import FACETS, WidenedEncoder, caption_queries, draw_captions, fill
from vlmsearch.registry import open_encoder, open_store

COUNTED: dict[str, tuple[dict[str, Any], int, float]] = {
    "2 words": ({}, 2500, 1.15),
    "a code": ({}, 2600, 1.25),
    "count and facets": ({"count": True, "facets": FACETS}, 3650, 1.4),
}
"""Options of searches, their calls at most, and the growth among 20 times the documents.

The calls that grow are those by document: of the few whose code leaves open whether they belong to the page or the
count, and more lie so close among many.
"""


@pytest.fixture(scope="module")
def indexes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Pipeline, Pipeline]]:
    """Indexes of 1,000 and of 20,000 captions."""
    with ExitStack() as stack, open_encoder("onnx:demo-minilm") as model:
        encoder, pipelines = WidenedEncoder(model, 64), []
        for count in (1000, 20_000):
            store = stack.enter_context(open_store(f"sqlite:{tmp_path_factory.mktemp('calls') / 'index'}"))
            fill(store, encoder, draw_captions(count, encoder))
            pipelines.append(Pipeline(encoder, store))
        yield pipelines[0], pipelines[1]


@pytest.mark.slow
@pytest.mark.parametrize("kind", COUNTED)
def test_a_search_calls_few_functions_and_no_more_among_more_documents(
    indexes: tuple[Pipeline, Pipeline], kind: str
) -> None:
    options, calls, growth = COUNTED[kind]
    queries = {own.name: own.texts for own in caption_queries()}
    few, many = (calls_of(pipeline, queries.get(kind, queries["2 words"]), options) for pipeline in indexes)
    more = ", ".join(f"{name} {times:+}" for name, times in (many - few).most_common(12))
    assert many.total() <= growth * few.total(), f"{few.total()} and {many.total()}; called more: {more}"
    often = ", ".join(f"{name} {times}" for name, times in many.most_common(12))
    assert many.total() <= calls, f"{many.total()}; called often: {often}"


def calls_of(pipeline: Pipeline, texts: Sequence[str], options: dict[str, Any]) -> Counter[str]:
    """Count the calls of a search by function: means of some searches by warm indexes."""
    calls: Counter[str] = Counter()

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            calls[f"{Path(frame.f_code.co_filename).name}:{frame.f_code.co_name}"] += 1

    for text in texts:
        pipeline.search(text, limit=10, **options)
    sys.setprofile(note)
    try:
        for text in texts:
            pipeline.search(text, limit=10, **options)
    finally:
        sys.setprofile(None)
    return Counter({name: round(times / len(texts)) for name, times in calls.items()})
