"""Searches by words and vectors beside LanceDB's hybrid search, and words alone beside tantivy and bm25s.

All have the same drawn documents and queries, captions and texts of 50 words: see `vlmsearch.bench.search`. The
encoding of the query is in all figures of words and vectors together. ``--against FOLDER`` has another checkout of
vlmsearch take part, each in a process of its own. Needs `pip install lancedb tantivy bm25s`.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from itertools import chain, cycle, islice
from pathlib import Path
from statistics import median
from typing import Any

import click
import pyarrow as pa

import vlmsearch
from benchmarks.build_process import Cost, Meter
from benchmarks.builds import Contender, build
from benchmarks.common import print_figures
from vlmsearch import Record
from vlmsearch.bench.search import (
    FACETS,
    Queries,
    WidenedEncoder,
    caption_queries,
    draw_captions,
    draw_documents,
    marked_queries,
)  # fmt: skip
from vlmsearch.registry import open_encoder

_CALLS: dict[str, tuple[str, dict[str, Any] | None]] = {
    "search": ("search", {}),
    "words alone": ("words", None),
    "search, count and 3 facets": ("search", {"count": True, "facets": FACETS}),
}
"""Kinds of calls: the name and the second argument of what the process of a build is asked."""
_DRAWN = {
    "captions": (draw_captions, caption_queries()),
    "texts of 50 words": (draw_documents, marked_queries()),
}


@click.command()
@click.option(
    "--documents", default=100_000, show_default=True, type=click.IntRange(1), help="Number of drawn documents."
)
@click.option("--dim", default=384, show_default=True, type=click.IntRange(8), help="Numbers of a vector.")
@click.option("--calls", default=50, show_default=True, type=click.IntRange(1), help="Calls that are timed.")
@click.option("--against", type=click.Path(exists=True, file_okay=False, path_type=Path), metavar="FOLDER",
              help="Another checkout of vlmsearch, to compare with.")  # fmt: skip
@click.option("--no-peers", is_flag=True, help="Leave out LanceDB, tantivy and bm25s.")
def main(documents: int, dim: int, calls: int, against: Path | None, no_peers: bool) -> None:
    """Measure searches beside those of peers: milliseconds on the wall in the middle, and of processors."""
    folders = [Path(vlmsearch.__file__).parents[1], *([against] if against else [])]
    for title, (draw, kinds) in _DRAWN.items():
        with ExitStack() as stack:
            place = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            encoder = stack.enter_context(WidenedEncoder(open_encoder("onnx:demo-minilm"), dim))
            batches = list(draw(documents, encoder))
            builds = {
                str(folder) if n else "vlmsearch": stack.enter_context(build(folder, f"sqlite:{place}/{n}", dim))
                for n, folder in enumerate(folders)
            }
            written = ", ".join(f"{who} {rate:,.0f}" for who, rate in _written(builds, batches).items())
            peers: dict[str, dict[str, Callable[[str], object]]] = {} if no_peers else {
                "search": {"LanceDB, hybrid": lance_search(place / "lance", encoder, batches)},
                "words alone": {"tantivy": tantivy_search(place / "tantivy", batches), "bm25s": bm25s_search(batches)},
            }  # fmt: skip
            columns = [*builds, *(name for own in peers.values() for name in own), "ratio", "same"]
            rows = []
            for name, call in _CALLS.items():
                for queries in kinds:
                    asked: dict[str, Callable[[str], tuple[Cost, Any]]] = {
                        who: partial(_asked, own, call) for who, own in builds.items()
                    }
                    asked |= {who: partial(_measured, own) for who, own in peers.get(name, {}).items()}
                    cells = _cells(asked, queries, calls, list(builds))
                    rows.append([f"{name}, {queries.name}", *(cells.get(column, "") for column in columns)])
        what = f"{documents:,} {title} x {dim}; written in a CPU second: {written}"
        print_figures(what, ("call", *columns), rows)


def _asked(build: Contender, call: tuple[str, dict[str, Any] | None], query: str) -> tuple[Cost, Any]:
    return build.ask(call[0], query, call[1])


def _measured(search: Callable[[str], object], query: str) -> tuple[Cost, Any]:
    return Meter().measure(partial(search, query))


def _written(builds: dict[str, Contender], batches: Sequence[list[Record]]) -> dict[str, float]:
    """Write all documents in turns, and return documents a second of a processor."""
    used = dict.fromkeys(builds, 0.0)
    for records in batches:
        plain = [(r.document.id, r.document.text, dict(r.document.metadata), *r.vectors.values()) for r in records]
        for who, contender in builds.items():
            used[who] += contender.ask("write", plain)[0].client / 1000
    return {who: sum(map(len, batches)) / seconds for who, seconds in used.items()}


def _cells(
    contenders: Mapping[str, Callable[[str], tuple[Cost, Any]]], queries: Queries, calls: int, builds: list[str]
) -> dict[str, str]:
    """Make calls in turns, and return the cells of a row by column. The first call of each query does not count."""
    asked = [*queries.texts, *islice(cycle(queries.texts), calls)]
    answers = [{who: ask(query) for who, ask in contenders.items()} for query in asked]
    costs = {who: [answer[who][0] for answer in answers[-calls:]] for who in contenders}
    used = {who: sum(cost.client for cost in own) / calls for who, own in costs.items()}
    cells = {who: f"{median(cost.wall for cost in own):.1f} ({used[who]:.1f})" for who, own in costs.items()}
    for other in builds[1:]:
        same = sum(answer[builds[0]][1] == answer[other][1] for answer in answers)
        cells |= {"ratio": f"{used[other] / used[builds[0]]:.2f}", "same": f"{same} of {len(answers)}"}
    return cells


def lance_search(path: Path, encoder: WidenedEncoder, drawn: Sequence[list[Record]]) -> Callable[[str], object]:
    """Return the hybrid search of a table of LanceDB with an index of the texts."""
    import lancedb

    schema = pa.schema(
        [("id", pa.string()), ("text", pa.string()), ("vector", pa.list_(pa.float32(), encoder.spaces[0].dim))]
    )

    def batches() -> Iterator[pa.RecordBatch]:
        for records in drawn:
            rows = [
                {"id": r.document.id, "text": r.document.text, "vector": next(iter(r.vectors.values()))}
                for r in records
            ]
            yield pa.RecordBatch.from_pylist(rows, schema)

    table = lancedb.connect(path).create_table("documents", batches(), schema=schema)
    table.create_fts_index("text")

    def search(query: str) -> object:
        (vector,) = encoder.encode_texts([query], role="query").values()
        return table.search(query_type="hybrid").vector(vector[0]).text(query).limit(10).to_list()

    return search


def tantivy_search(path: Path, drawn: Sequence[list[Record]]) -> Callable[[str], object]:
    """Return the search of an index of tantivy of the texts."""
    import tantivy

    path.mkdir()
    builder = tantivy.SchemaBuilder()
    builder.add_text_field("id", stored=True)
    builder.add_text_field("text", tokenizer_name="en_stem")
    index = tantivy.Index(builder.build(), str(path))
    writer = index.writer()
    for record in chain.from_iterable(drawn):
        writer.add_document(tantivy.Document(id=record.document.id, text=record.document.text))
    writer.commit()
    writer.wait_merging_threads()
    index.reload()
    return lambda query: index.searcher().search(index.parse_query(query, ["text"]), 100)


def bm25s_search(drawn: Sequence[list[Record]]) -> Callable[[str], object]:
    """Return the search of a ranker of bm25s."""
    import bm25s

    documents = [record.document for records in drawn for record in records]
    ranker = bm25s.BM25()
    ranker.index(
        bm25s.tokenize([document.text or "" for document in documents], show_progress=False), show_progress=False
    )
    ids = [document.id for document in documents]

    def search(query: str) -> object:
        tokens = bm25s.tokenize([query], show_progress=False, return_ids=False)
        return ranker.retrieve(tokens, corpus=ids, k=min(100, len(ids)), show_progress=False)

    return search


if __name__ == "__main__":
    main()
