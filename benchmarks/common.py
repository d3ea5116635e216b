"""Helpers that the benchmarks share: calls in turns, and tables under the name of the machine."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

import click

from vlmsearch._util.machine import machine_name
from vlmsearch.cli.common import print_table

Item = TypeVar("Item")
Answer = TypeVar("Answer")

rounds_option = click.option(
    "--rounds", default=5, show_default=True, type=click.IntRange(1), help="How often everyone runs."
)


def in_turns(
    contenders: Mapping[str, Callable[[Item], Answer]], items: Sequence[Item]
) -> tuple[dict[str, list[float]], dict[str, list[Answer]]]:
    """Call all contenders with one item after the other, so that other work on the machine meets all of them alike.

    Before, each is called once with the last item, which does not count.

    Args:
        contenders: Functions by the names of those that are compared.
        items: What each of them is called with, at least one.

    Returns:
        The seconds of the calls of each contender, and what they returned.
    """
    for call in contenders.values():
        call(items[-1])
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    answers: dict[str, list[Answer]] = {name: [] for name in contenders}
    for item in items:
        for name, call in contenders.items():
            started = time.perf_counter()
            answer = call(item)
            seconds[name].append(time.perf_counter() - started)
            answers[name].append(answer)
    return seconds, answers


def print_figures(title: str, names: Sequence[str], rows: Sequence[Sequence[str]], *, left: int = 1) -> None:
    """Print a table under its title and the machine; the first ``left`` columns are on the left."""
    click.echo(f"{title}; {machine_name()}")
    print_table(names, rows, left=names[:left])
