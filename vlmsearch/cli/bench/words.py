"""``vlmsearch bench words``."""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from pathlib import Path

import click

from vlmsearch.cli.common import command, json_option, option, print_json


@command("words")
@click.argument("folder", type=click.Path(path_type=Path, exists=True, file_okay=False))
@option("--encoder", default="onnx:all-minilm-l6-v2", show_default=True, metavar="URL", help="What makes the vectors.")
@option("--into", metavar="URL", help="An empty store to index into.  [default: sqlite: in a temporary folder]")
@json_option
def bench_words(folder: Path, encoder: str, into: str | None, as_json: bool) -> None:
    """How well words, vectors and `vlmsearch search`, which fuses them, find what was judged: nDCG@10.

    FOLDER holds CISI.ALL, CISI.QRY and CISI.REL, or others in their format.
    """
    from vlmsearch.bench.collections import read_cisi
    from vlmsearch.bench.words import measure_words
    from vlmsearch.registry import open_encoder, open_store

    collection = read_cisi(folder)
    with ExitStack() as stack:
        place = stack.enter_context(tempfile.TemporaryDirectory(prefix="vlmsearch-bench-"))
        store = stack.enter_context(open_store(into or f"sqlite:{place}/index"))
        model = stack.enter_context(open_encoder(encoder))
        figures = measure_words(collection, model, store)
        name = model.fingerprint
    counts = {"documents": len(collection.documents), "queries": len(collection.queries)}
    if as_json:
        print_json({"encoder": name, **counts, "ndcg@10": {way: round(value, 4) for way, value in figures.items()}})
        return
    click.echo(f"{name}: {counts['documents']:,} documents, {counts['queries']} queries")
    for way, value in figures.items():
        click.echo(f"{way}\t{value:.3f}")
