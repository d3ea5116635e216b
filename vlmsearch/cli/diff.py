"""``vlmsearch diff``."""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from vlmsearch.cli.common import command, json_option, need_manifest, option, print_first, print_json
from vlmsearch.cli.progress import progress
from vlmsearch.registry import open_store

if TYPE_CHECKING:
    from vlmsearch.indexing.diff import DiffReport
    from vlmsearch.indexing.parquet import ParquetIndex
    from vlmsearch.stores.base import Store


@command()
@click.argument("first")
@click.argument("second")
@option(
    "--tolerance",
    type=click.FloatRange(0),
    default=1e-6,
    show_default=True,
    help="By how much a number of a vector may differ; 0 for the same bits.",
)
@option("--limit", type=click.IntRange(0), default=1000, show_default=True, help="How many differences --json lists.")
@json_option
def diff(first: str, second: str, tolerance: float, limit: int, as_json: bool) -> None:
    """Compare two indexes: documents, metadata, vectors, stamps, reject lists and tuning.

    FIRST and SECOND are URLs of stores, as of --store; one of them may be a Parquet file that `vlmsearch export` wrote.
    Exits 0 where they are the same, 1 where they differ. When they were made does not count.
    """
    from vlmsearch.indexing import diff as comparing

    with (
        _opened(first) as one,
        _opened(second) as other,
        progress(None, quiet=as_json, what="comparing") as advance,
    ):
        found = comparing.diff(one, other, tolerance=tolerance, limit=limit, on_progress=advance)
    if as_json:
        print_json({"same": found.same, **asdict(found)})
    else:
        _print(found)
    if not found.same:
        sys.exit(1)


def _opened(url: str) -> Store | ParquetIndex:
    from vlmsearch.indexing.parquet import ParquetIndex, is_parquet

    if is_parquet(url):
        return ParquetIndex(url)
    store = open_store(url)
    try:
        need_manifest(store)
    except BaseException:
        store.close()
        raise
    return store


def _print(found: DiffReport) -> None:
    for name in found.index:
        click.echo(f"{name:<12} of the index differs")
    for name, count in found.counts.items():
        click.echo(f"{name:<12} {count}")
    print_first([f"{difference.id}: {', '.join(difference.what)}" for difference in found.differences], err=False)
    if found.same:
        click.echo(f"{found.documents} documents are the same")
