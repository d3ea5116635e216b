"""``vlmsearch bench pdf``."""

from __future__ import annotations

import statistics
from pathlib import Path

import click

from vlmsearch.cli.common import command, json_option, option, print_json, print_table


@command("pdf")
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
@option("--count", default=200, show_default=True, type=click.IntRange(1), help="How many pages of each file at most.")
@option("--rounds", default=5, show_default=True, type=click.IntRange(1), help="How often everyone runs.")
@json_option
def bench_pdf(files: tuple[Path, ...], count: int, rounds: int, as_json: bool) -> None:
    """Time the pages of PDF files on their way to text and image, beside pypdfium2 alone on the same pages."""
    from vlmsearch.bench.pdf import time_pages
    from vlmsearch.export.inputs import machine
    from vlmsearch.export.progress import steps

    with steps("bench pdf") as report:
        timings = time_pages(files, count=count, rounds=rounds, report=report)
    rows: list[dict[str, object]] = [
        {
            "file": timing.file.name,
            "pages": timing.pages,
            "pypdfium2_per_second": round(statistics.median(timing.bare), 1),
            "vlmsearch_per_second": round(statistics.median(timing.read), 1),
            "ratio": round(timing.ratio, 3),
        }
        for timing in timings
    ]
    if as_json:
        print_json({"machine": machine(), "rounds": rounds, "files": rows})
        return
    names = ("file", "pages", "pypdfium2 pages/s", "vlmsearch pages/s", "ratio")
    title = f"{machine()}, {rounds} rounds, one core"
    print_table(names, [tuple(map(str, row.values())) for row in rows], left=("file",), title=title)
