"""What ``vlmsearch bench pdf``, ``video`` and ``ocr`` share."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import click

from vlmsearch.cli.common import option, print_json, print_table

if TYPE_CHECKING:
    from benchmarks.reading import ReadTiming

rounds_option = option(
    "--rounds", default=5, show_default=True, type=click.IntRange(1), help="How often everyone runs."
)


def print_timings(
    timings: Sequence[ReadTiming],
    *,
    what: str,
    bare: str,
    rounds: int,
    as_json: bool,
    more: Sequence[Mapping[str, object]] = (),
) -> None:
    """Print a row for each timing: medians of rates and of CPU seconds, and the ratio.

    Args:
        timings: What was measured.
        what: What the items are, such as ``pages``.
        bare: The library that vlmsearch is measured beside.
        rounds: How often everyone ran.
        as_json: Whether to print JSON.
        more: What each row has beside that, by names as of JSON.
    """
    from vlmsearch.export.inputs import machine

    rows = [{**_row(timing, what, bare), **(more[item] if more else {})} for item, timing in enumerate(timings)]
    if as_json:
        print_json({"machine": machine(), "rounds": rounds, "files": rows})
        return
    names = [name.replace("_per_second", f" {what}/s").replace("_", " ") for name in rows[0]]
    print_table(
        names, [tuple(map(str, row.values())) for row in rows], left=("file",),
        title=f"{machine()}, {rounds} rounds, CPU time",
    )  # fmt: skip


def _row(timing: ReadTiming, what: str, bare: str) -> dict[str, object]:
    seconds = {bare: statistics.median(timing.bare), "vlmsearch": statistics.median(timing.read)}
    return {
        "file": timing.name,
        what: timing.items,
        **{f"{who}_cpu_seconds": round(each, 4) for who, each in seconds.items()},
        **{f"{who}_per_second": round(timing.items / each, 2) for who, each in seconds.items()},
        "ratio": round(timing.ratio, 3),
    }
