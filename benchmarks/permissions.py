"""Searches of documents that have readers, beside those of all documents, in turns."""

from __future__ import annotations

import gc
import json
import statistics
import tempfile
import time
import tracemalloc
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import NamedTuple

import click
import numpy as np

from benchmarks.common import in_turns, print_figures
from benchmarks.corpus import Corpus
from vlmsearch import Document, Pipeline
from vlmsearch.types import Field, Record, Stamp

_GROUPS = 10_000
_READERS = 10
_PRINCIPALS = (1, 20, 200)
_WHOLE, _PLAIN, _OPEN = "all documents", "no readers", "no readers, restricted"


class HandleFigure(NamedTuple):
    """The cost of a search through a handle."""

    cpu_ms: float
    """CPU time of this process: a server's is not in it."""
    wall_ms: float
    megabytes: float
    """The memory that the first search through the handle takes and keeps."""


@click.command()
@click.option("--store", default="", help="A store of this URL, whose index is new; else `sqlite:` in a new folder.")
@click.option(
    "--documents", default=100_000, show_default=True, type=click.IntRange(10_000), help="Number of documents."
)
@click.option("--queries", default=100, show_default=True, type=click.IntRange(5), help="How many searches are timed.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def main(store: str, documents: int, queries: int, *, as_json: bool) -> None:
    """Time searches of users in 1, 20 and 200 of 10,000 groups.

    Two indexes are made: one with 10 readers for each document, and one without, whose restricted handle should cost
    nothing. Searches are medians. A URL is that of the first; the second has `_plain` at its end.
    """
    with tempfile.TemporaryDirectory(prefix="vlmsearch-") as place, ExitStack() as stack:
        url, corpus = store or f"sqlite:{Path(place) / 'index'}", Corpus(documents, 176)
        opened = [stack.enter_context(Pipeline.open(encoder="mock:", store=name)) for name in (url, f"{url}_plain")]
        for pipeline, readers in zip(opened, (_READERS, 0)):
            fill(pipeline, corpus, readers)
        groups = np.random.default_rng(2).choice(_GROUPS, max(_PRINCIPALS), replace=False).tolist()
        handles = {_WHOLE: opened[0]}
        for count in _PRINCIPALS:
            name = f"{count} group{'s' * (count > 1)}"
            handles[name] = opened[0].restricted([f"group:{group}" for group in groups[:count]])
        handles |= {_PLAIN: opened[1], _OPEN: opened[1].restricted([])}
        with Pipeline.open(encoder="mock:", store=url) as other:  # which keeps nothing for the others
            asked = known_queries(other.restricted([f"group:{groups[0]}"]), queries)
        figures = measure(handles, asked)
    if as_json:
        click.echo(json.dumps({name: figure._asdict() for name, figure in figures.items()}))
        return
    whole, plain = figures[_WHOLE], figures[_PLAIN]
    rows = []
    for name, figure in figures.items():
        beside = plain if name == _OPEN else whole
        more = "" if name == _PLAIN else f"{figure.cpu_ms - beside.cpu_ms:+.2f}"
        ratio = f"{figure.cpu_ms / plain.cpu_ms:.3f}" if name == _OPEN else ""
        rows.append((name, f"{figure.cpu_ms:.2f}", more, ratio, f"{figure.wall_ms:.2f}", f"{figure.megabytes:.1f}"))
    names = ("handle", "CPU ms", "more", "ratio", "wall ms", "MB")
    print_figures(f"{documents:,} documents of {_READERS} in {_GROUPS:,} groups", names, rows)


def fill(pipeline: Pipeline, corpus: Corpus, readers: int) -> None:
    """Write all documents, each with so many readers."""
    pipeline.store.bind(pipeline.encoder.fingerprint, pipeline.encoder.spaces)
    rng, field = np.random.default_rng(1), Field("clip", "image")
    for block in map(corpus.block, corpus.blocks):
        records = []
        for id, text, vector, metadata in zip(block.ids, block.texts, block.vectors, block.metadata):
            names = [f"group:{group}" for group in rng.integers(_GROUPS, size=readers).tolist()] or None
            document = Document(id, text=text, metadata=metadata, readers=names)
            records.append(Record(document, {field: vector}, Stamp(id)))
        pipeline.store.upsert(records)


def known_queries(handle: Pipeline, count: int) -> list[str]:
    """Draw queries of three words that all handles know: others are compared with all words that they may be."""
    words = " ".join(document.text or "" for document in handle.documents()).split()
    return [" ".join(row) for row in np.random.default_rng(3).choice(words, (count, 3)).tolist()]


def measure(handles: Mapping[str, Pipeline], queries: Sequence[str]) -> dict[str, HandleFigure]:
    """Search through all handles in turns."""
    sizes = dict[str, float]()
    tracemalloc.start()
    for name, handle in handles.items():
        before = tracemalloc.get_traced_memory()[0]
        handle.search(queries[0])
        gc.collect()
        sizes[name] = (tracemalloc.get_traced_memory()[0] - before) / 2**20
    tracemalloc.stop()
    spent: dict[str, list[float]] = {name: [] for name in handles}

    def search(name: str, query: str) -> None:
        started = time.process_time()
        handles[name].search(query)
        spent[name].append(time.process_time() - started)

    seconds, _ = in_turns({name: partial(search, name) for name in handles}, queries)
    median = statistics.median
    return {
        name: HandleFigure(1000 * median(spent[name]), 1000 * median(seconds[name]), sizes[name]) for name in handles
    }


if __name__ == "__main__":
    main()
