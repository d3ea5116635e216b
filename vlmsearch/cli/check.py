"""``vlmsearch check``."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import click

from vlmsearch.cli.common import (
    command,
    json_option,
    option,
    print_first,
    print_json,
)
from vlmsearch.cli.opening import IndexChoice, index_options
from vlmsearch.stores.base import CheckReport, check_store
from vlmsearch.types import files_text
from vlmsearch.wire import to_json


@command()
@index_options()
@option("--repair", is_flag=True, help="Finish interrupted writes, remove orphans, rebuild damaged parts.")
@json_option
def check(chosen: IndexChoice, repair: bool, as_json: bool) -> None:
    """Check that the documents, vectors and journal of an index agree.

    The exit status is 0 if they do or were repaired, else 1. Others may read and write meanwhile, unless the index is
    in a folder.
    """
    with chosen.open_store() as store:
        report = check_store(store, repair=repair)
    if as_json:
        print_json({**to_json(report), "clean": report.clean})
    else:
        _print(report)
    if not report.clean and not report.repaired:
        sys.exit(1)


def _print(report: CheckReport) -> None:
    click.echo(f"store       {report.store}")
    click.echo(f"documents   {report.documents}{files_text(report.documents, report.files)}")
    for field, count in report.vectors.items():
        click.echo(f"vectors     {count} {field}")
    for kind in ("orphans", "stale", "missing", "unindexed", "unfinished", "damaged"):
        lines: Sequence[str] = getattr(report, kind)
        click.echo(f"{kind:<11} {len(lines) or 'none'}")
        print_first(lines, limit=10, err=False)
    if report.in_progress:
        click.echo(f"in progress {report.in_progress}")
    for exposure in report.exposed:
        click.echo(f"exposed     {exposure}", err=True)
    for field in report.identical:
        click.echo(f"identical   {field}", err=True)
    if report.missing and report.repaired:
        click.echo("Documents with missing vectors count as changed: index their sources again.", err=True)
    if report.damaged and report.repaired:
        click.echo("The undamaged parts of damaged documents are kept: index their sources again.", err=True)
    if not report.clean and not report.repaired:
        click.echo("Not in order: run `vlmsearch check --repair`.", err=True)
