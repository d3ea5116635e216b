"""A progress bar, and the report of an indexing run."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sized
from contextlib import contextmanager

import click

from vlmsearch.cli.common import print_first, with_flags
from vlmsearch.indexing.unread import SHOWN, endings_text, partly_read
from vlmsearch.types import IndexReport, files_text


@contextmanager
def progress(
    total: int | Sized | None, *, quiet: bool, what: str = "indexing"
) -> Iterator[Callable[[int], None] | None]:
    """Show a bar with rate and remaining time on a terminal; elsewhere yield None."""
    if quiet or not sys.stderr.isatty():
        yield None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TimeRemainingColumn
    from rich.text import Text

    from vlmsearch._util.console import make_console

    class Rate(ProgressColumn):
        def render(self, task: Task) -> Text:
            speed = task.speed or (task.completed / task.elapsed if task.elapsed else 0)  # a few have no speed yet
            return Text(f"{speed:.0f}/s")

    bar = Progress(
        what, BarColumn(), MofNCompleteColumn(), Rate(), TimeRemainingColumn(), console=make_console(stderr=True)
    )
    with bar:
        known = len(total) if isinstance(total, Sized) else total
        task = bar.add_task("", total=known)
        yield lambda done: bar.update(task, completed=done, total=known and max(known, done))  # more with their parts


def print_report(report: IndexReport, *, verbose: bool = False) -> None:
    """Print the report of a run, with the first rejected files and the most frequent endings.

    With ``verbose`` all of them are printed.
    """
    limit = None if verbose else SHOWN
    rate = report.seen / report.seconds if report.seconds else 0.0
    parts = [f"{report.added} added", f"{report.updated} updated", f"{report.unchanged} unchanged"]
    parts += [f"{report.pruned} pruned"] if report.pruned else []
    parts += [f"{len(report.rejects)} rejected"] if report.rejects else []
    click.echo(f"{', '.join(parts)} in {report.seconds:.1f} s ({rate:.0f}/s)")
    if has_parts := files_text(report.indexed, report.files):
        click.echo(f"{report.indexed:,} documents{has_parts}")
    if report.passages:
        click.echo(f"{report.passages} passages of long texts")
    if report.cut:
        click.echo(f"{report.cut} long texts are found by their beginnings alone: add --passages", err=True)
    if report.left_out:
        total = sum(report.left_out.values())
        flags = ", ".join(with_flags(f"`{name}`") for name in report.left_out)
        click.echo(f"{total} {'file' if total == 1 else 'files'} left out: add {flags}", err=True)
    if report.others:
        total = sum(report.others.values())
        click.echo(
            f"{total:,} other {'file' if total == 1 else 'files'}: {endings_text(report.others, limit)}", err=True
        )
    if note := partly_read(report, limit):
        click.echo(f"{note} (vlmsearch list --unread)", err=True)
    if report.repeated:
        click.echo(
            f"{report.repeated:,} had the id of an earlier one of this run and replaced it: in tables, "
            "`--columns id=COLUMN` names ids that differ",
            err=True,
        )
    if report.unlabelled:
        click.echo(f"{report.unlabelled} changed and lost their labels: run `vlmsearch label --write` again", err=True)
    print_rejects(report, verbose=verbose)


def print_rejects(report: IndexReport, *, verbose: bool = False) -> None:
    """Print the first rejected files, or with ``verbose`` all of them."""
    lines = [f"{reject.code:<12} {with_flags(reject.message)}" for reject in report.rejects]
    print_first(lines, "see `vlmsearch info --rejects`", limit=len(lines) if verbose else 20)
