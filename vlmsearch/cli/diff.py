"""``vlmsearch diff``."""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from vlmsearch.cli.common import NumberRange, command, json_option, need_manifest, option, print_first, print_json
from vlmsearch.cli.completion import BackEndUrl
from vlmsearch.cli.progress import progress
from vlmsearch.registry import open_store

if TYPE_CHECKING:
    from vlmsearch.indexing.diff import DiffReport
    from vlmsearch.indexing.parquet import ParquetIndex
    from vlmsearch.stores.base import Store


@command()
@click.argument("first", type=BackEndUrl("store"))
@click.argument("second", type=BackEndUrl("store"))
@option(
    "--tolerance",
    type=NumberRange(0),
    default=1e-6,
    show_default=True,
    help="Tolerance of the numbers in vectors. 0 asks for the same bits.",
)
@json_option
def diff(first: str, second: str, tolerance: float, as_json: bool) -> None:
    """Compare two indexes: documents, metadata, vectors, stamps, reject lists and tuning.

    FIRST and SECOND are URLs of stores. One of them may be a Parquet file of `vlmsearch export`. The exit status is 0
    if they are the same, else 1. Their times of creation do not count.
    """
    from vlmsearch.indexing import diff as comparing

    with (
        _open(first) as first_index,
        _open(second) as second_index,
        progress(None, quiet=as_json, what="comparing") as advance,
    ):
        for index in (first_index, second_index):
            need_manifest(index)
        report = comparing.diff(first_index, second_index, tolerance=tolerance, on_progress=advance)
    if as_json:
        print_json({"same": report.same, **asdict(report)})
    else:
        _print(report)
    if not report.same:
        sys.exit(1)


def _open(url: str) -> Store | ParquetIndex:
    from vlmsearch.indexing.parquet import ParquetIndex, is_parquet

    return ParquetIndex(url) if is_parquet(url) else open_store(url)


def _print(report: DiffReport) -> None:
    for name in report.index:
        click.echo(f"{name:<12} of the index differs")
    for name, count in report.counts.items():
        click.echo(f"{name:<12} {count}")
    print_first([f"{difference.id}: {', '.join(difference.what)}" for difference in report.differences], err=False)
    if report.same:
        click.echo(f"{report.documents} documents are the same")
