"""Searches by words and vectors beside LanceDB's hybrid search, and words alone beside tantivy and bm25s.

All have the same drawn documents and queries: see `vlmsearch.bench.search`. The encoding of the query is in all figures
of words and vectors together. Needs `pip install lancedb tantivy bm25s`.
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import click
import pyarrow as pa

from benchmarks.common import in_turns, print_figures
from vlmsearch import Pipeline
from vlmsearch.bench.search import WidenedEncoder, draw_documents, fill, queries_of
from vlmsearch.registry import open_encoder
from vlmsearch.stores.sqlite.store import SqliteStore


@click.command()
@click.option(
    "--documents", default=100_000, show_default=True, type=click.IntRange(1), help="Number of drawn documents."
)
@click.option("--dim", default=512, show_default=True, type=click.IntRange(8), help="Numbers of a vector.")
@click.option("--calls", default=50, show_default=True, type=click.IntRange(1), help="Calls that are timed.")
def main(documents: int, dim: int, calls: int) -> None:
    """Measure searches beside those of peers."""
    with tempfile.TemporaryDirectory() as folder, WidenedEncoder(open_encoder("onnx:demo-minilm"), dim) as encoder:
        ours = SqliteStore(f"{folder}/index")
        fill(ours, encoder, documents)
        pipeline = Pipeline(encoder, ours)
        table = lance_table(Path(folder, "lance"), encoder, documents)
        index = tantivy_index(Path(folder, "tantivy"), encoder, documents)
        ranker, ids = bm25s_index(encoder, documents)

        def hybrid(query: str) -> Any:
            (vector,) = encoder.encode_texts([query], role="query").values()
            return table.search(query_type="hybrid").vector(vector[0]).text(query).limit(10).to_list()

        def tantivy_words(query: str) -> Any:
            return index.searcher().search(index.parse_query(query, ["text"]), 100)

        def bm25s_words(query: str) -> Any:
            import bm25s

            tokens = bm25s.tokenize([query], show_progress=False, return_ids=False)
            return ranker.retrieve(tokens, corpus=ids, k=100, show_progress=False)

        contenders: dict[str, Callable[[str], object]] = {
            "search": partial(pipeline.search, limit=10),
            "LanceDB, hybrid": hybrid,
            "words alone, 100 hits": partial(ours.search_words, limit=100),
            "tantivy": tantivy_words,
            "bm25s": bm25s_words,
        }
        rows = []
        for kind, length in (("usual", 2), ("usual", 8), ("frequent", 2), ("frequent", 8), ("rare", 2)):
            queries = queries_of(kind, length)
            in_turns(contenders, queries)  # what first calls make is not measured
            times, _ = in_turns(contenders, list(islice(cycle(queries), calls)))
            rows.append([f"{length} {kind}", *(f"{1000 * statistics.median(times[name]):.2f}" for name in contenders)])
    print_figures(f"{documents:,} x {dim}", ("words", *(f"{name}, ms" for name in contenders)), rows)


def lance_table(path: Path, encoder: WidenedEncoder, count: int) -> Any:
    """Return a table of LanceDB with an index of the texts."""
    import lancedb

    schema = pa.schema(
        [("id", pa.string()), ("text", pa.string()), ("vector", pa.list_(pa.float32(), encoder.spaces[0].dim))]
    )

    def batches() -> Iterator[pa.RecordBatch]:
        for records in draw_documents(count, encoder):
            rows = [
                {"id": r.document.id, "text": r.document.text, "vector": next(iter(r.vectors.values()))}
                for r in records
            ]
            yield pa.RecordBatch.from_pylist(rows, schema)

    table = lancedb.connect(path).create_table("documents", batches(), schema=schema)
    table.create_fts_index("text")
    return table


def tantivy_index(path: Path, encoder: WidenedEncoder, count: int) -> Any:
    """Return an index of tantivy of the texts."""
    import tantivy

    path.mkdir()
    builder = tantivy.SchemaBuilder()
    builder.add_text_field("id", stored=True)
    builder.add_text_field("text", tokenizer_name="en_stem")
    index = tantivy.Index(builder.build(), str(path))
    writer = index.writer()
    for records in draw_documents(count, encoder):
        for record in records:
            writer.add_document(tantivy.Document(id=record.document.id, text=record.document.text))
    writer.commit()
    writer.wait_merging_threads()
    index.reload()
    return index


def bm25s_index(encoder: WidenedEncoder, count: int) -> tuple[Any, list[str]]:
    """Return a ranker of bm25s, and the ids of its documents."""
    import bm25s

    documents = [record.document for records in draw_documents(count, encoder) for record in records]
    ranker = bm25s.BM25()
    ranker.index(
        bm25s.tokenize([document.text or "" for document in documents], show_progress=False), show_progress=False
    )
    return ranker, [document.id for document in documents]


if __name__ == "__main__":
    main()
