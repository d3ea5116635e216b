"""Helpers that the benchmarks share."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

import click

from vlmsearch._util.machine import machine_name
from vlmsearch.build.quantize import Report
from vlmsearch.cli.common import print_table

rounds_option = click.option(
    "--rounds", default=5, show_default=True, type=click.IntRange(1), help="How often everyone runs."
)


def in_turns(
    step: str,
    contenders: Mapping[str, Callable[[], object]],
    *,
    rounds: int,
    report: Report,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, list[float]]:
    """Time contenders in turns, so that whatever else the machine does meets all of them alike.

    Args:
        step: What is reported.
        contenders: What each of them does.
        rounds: How often everyone runs, after one turn that does not count.
        report: Takes the step, how many turns of it are done, and how many there are.
        clock: Tells the time in seconds.

    Returns:
        The seconds of each contender, round by round.
    """
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    turns = [turn for _ in range(rounds + 1) for turn in contenders.items()]
    for done, (name, run) in enumerate(turns):
        report(step, done, len(turns))
        started = clock()
        run()
        seconds[name].append(clock() - started)
    return {name: times[1:] for name, times in seconds.items()}


def print_figures(title: str, names: Sequence[str], rows: Sequence[Sequence[str]], *, left: int = 1) -> None:
    """Print a table under its title and the machine; the first ``left`` columns are on the left."""
    click.echo(f"{title}; {machine_name()}")
    print_table(names, rows, left=names[:left])
