"""``vlmsearch bench peers``."""

from __future__ import annotations

import tempfile
from dataclasses import asdict
from pathlib import Path

import click

from vlmsearch.cli.bench.data import Names
from vlmsearch.cli.common import command, json_option, option, print_json, print_table


@command("peers")
@click.argument("folder", type=click.Path(path_type=Path, exists=True, file_okay=False))
@option("--encoder", default="onnx:all-minilm-l6-v2", show_default=True, metavar="URL", help="What makes our vectors.")
@option("--from", "checkpoint", required=True, type=click.Path(path_type=Path), metavar="DIR",
        help="The checkpoint that the peers load: what the encoder was built from.")  # fmt: skip
@option("--peers", type=Names(("txtai", "lancedb")), default="txtai,lancedb", show_default=True, metavar="LIST",
        help="The hybrid searches to measure beside ours.")  # fmt: skip
@option("--rounds", default=3, show_default=True, type=click.IntRange(1), help="How often queries are timed.")
@json_option
def bench_peers(folder: Path, encoder: str, checkpoint: Path, peers: list[str], rounds: int, as_json: bool) -> None:
    """Compare `vlmsearch search` with the hybrid searches of txtai and LanceDB: nDCG@10 and times. It takes minutes.

    FOLDER holds CISI.ALL, CISI.QRY and CISI.REL, or others in their format. Peers are measured as they come, and with
    the best of their settings, chosen by the same queries. A query is timed with its encoding and with the texts found.
    """
    from benchmarks.labelled import read_cisi
    from benchmarks.peers import check_peers, measure_peers
    from vlmsearch.export.inputs import machine
    from vlmsearch.export.progress import steps
    from vlmsearch.registry import open_encoder

    check_peers(peers)
    collection = read_cisi(folder)
    with (
        tempfile.TemporaryDirectory(prefix="vlmsearch-bench-") as place,
        open_encoder(encoder) as model,
        steps("bench peers") as progress,
    ):
        found = measure_peers(collection, model, checkpoint, peers, Path(place), rounds=rounds, progress=progress)
        name = model.fingerprint
    counts = {"documents": len(collection.documents), "queries": len(collection.answered)}
    if as_json:
        print_json({"encoder": name, **counts, "machine": machine(), "searches": [asdict(each) for each in found]})
        return
    columns = ("search", "settings", "nDCG@10", "indexing (s)", "query, median (ms)")
    rows = [
        (
            each.name,
            each.settings,
            f"{each.ndcg:.4f}",
            f"{each.index_seconds:.1f}" if each.index_seconds else "",
            f"{each.query_ms:.1f}",
        )
        for each in found
    ]
    click.echo(f"{name}: {counts['documents']:,} documents, {counts['queries']} queries")
    print_table(columns, rows, left=columns[:2], title=machine())
