"""``vlmsearch bench pdf``."""

from __future__ import annotations

from pathlib import Path

import click

from benchmarks.commands.reading import print_timings, rounds_option
from vlmsearch.cli.common import command, json_option, option


@command("pdf")
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
@option("--count", default=200, show_default=True, type=click.IntRange(1), help="How many pages of each file at most.")
@rounds_option
@json_option
def bench_pdf(files: tuple[Path, ...], count: int, rounds: int, as_json: bool) -> None:
    """Time the pages of PDF files on their way to text and image, beside pypdfium2 alone on the same pages."""
    from benchmarks.pdf import time_pages
    from vlmsearch.export.progress import steps

    with steps("bench pdf") as report:
        timings = time_pages(files, count=count, rounds=rounds, report=report)
    print_timings(timings, what="pages", bare="pypdfium2", rounds=rounds, as_json=as_json)
