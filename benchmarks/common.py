"""Helpers that the benchmarks share."""

from __future__ import annotations

from collections.abc import Sequence

import click

from vlmsearch._util.machine import machine_name
from vlmsearch.cli.common import print_table

rounds_option = click.option(
    "--rounds", default=5, show_default=True, type=click.IntRange(1), help="How often everyone runs."
)


def print_figures(title: str, names: Sequence[str], rows: Sequence[Sequence[str]], *, left: int = 1) -> None:
    """Print a table under its title and the machine; the first ``left`` columns are on the left."""
    click.echo(f"{title}; {machine_name()}")
    print_table(names, rows, left=names[:left])
