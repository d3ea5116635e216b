"""``vlmsearch bench words``."""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from vlmsearch.cli.bench.data import Names
from vlmsearch.cli.common import command, json_option, option, print_json, print_table

if TYPE_CHECKING:
    from vlmsearch.bench.peers import SearchFigures


@command("words")
@click.argument("folder", type=click.Path(path_type=Path, exists=True, file_okay=False))
@option("--encoder", default="onnx:all-minilm-l6-v2", show_default=True, metavar="URL", help="What makes the vectors.")
@option("--into", metavar="URL", help="An empty store to index into.  [default: sqlite: in a temporary folder]")
@option("--peers", type=Names(("txtai", "lancedb")), metavar="LIST",
        help="Hybrid searches to measure beside ours: txtai, lancedb or both. It takes some minutes.")  # fmt: skip
@option("--from", "checkpoint", type=click.Path(path_type=Path), metavar="DIR",
        help="The checkpoint that the peers load: what the encoder was built from.")  # fmt: skip
@option("--rounds", default=3, show_default=True, type=click.IntRange(1), help="How often queries are timed.")
@json_option
def bench_words(
    folder: Path, encoder: str, into: str | None, peers: list[str] | None, checkpoint: Path | None, rounds: int,
    as_json: bool,
) -> None:  # fmt: skip
    """How well words, vectors and `vlmsearch search`, which fuses them, find what was judged: nDCG@10.

    FOLDER holds CISI.ALL, CISI.QRY and CISI.REL, or others in their format. Peers are measured as they come, and with
    the best of their settings, chosen by the same queries. A query is timed with its encoding and with the texts found.
    """
    from vlmsearch.bench.collections import read_cisi
    from vlmsearch.bench.peers import check_peers, measure_peers
    from vlmsearch.bench.words import measure_words
    from vlmsearch.export.inputs import machine
    from vlmsearch.export.progress import steps
    from vlmsearch.registry import open_encoder, open_store

    if peers and checkpoint is None:
        raise click.UsageError("--peers needs --from DIR: the checkpoint that the peers load")
    check_peers(peers or ())
    collection = read_cisi(folder)
    beside: list[SearchFigures] = []
    with ExitStack() as stack:
        place = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="vlmsearch-bench-")))
        store = stack.enter_context(open_store(into or f"sqlite:{place}/index"))
        model = stack.enter_context(open_encoder(encoder))
        figures = measure_words(collection, model, store)
        if peers and checkpoint:
            progress = stack.enter_context(steps("bench words"))
            beside = measure_peers(collection, model, checkpoint, peers, place, rounds=rounds, progress=progress)
        name = model.fingerprint
    counts = {"documents": len(collection.documents), "queries": len(collection.answered)}
    if as_json:
        result = {"encoder": name, **counts, "ndcg@10": {way: round(value, 4) for way, value in figures.items()}}
        if beside:
            result |= {"machine": machine(), "searches": [asdict(each) for each in beside]}
        print_json(result)
        return
    click.echo(f"{name}: {counts['documents']:,} documents, {counts['queries']} queries")
    for way, value in figures.items():
        click.echo(f"{way}\t{value:.3f}")
    if beside:
        columns = ("search", "settings", "nDCG@10", "indexing (s)", "query, median (ms)")
        rows = [
            (
                each.name,
                each.settings,
                f"{each.ndcg:.4f}",
                f"{each.index_seconds:.1f}" if each.index_seconds else "",
                f"{each.query_ms:.1f}",
            )
            for each in beside
        ]
        print_table(columns, rows, left=columns[:2], title=machine())
