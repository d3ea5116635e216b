"""``vlmsearch bench ocr``."""

from __future__ import annotations

from pathlib import Path

import click

from benchmarks.commands.reading import print_timings, rounds_option
from vlmsearch.cli.bench.data import read_images
from vlmsearch.cli.common import command, json_option, option


@command("ocr")
@click.argument("images", nargs=-1, type=click.Path(path_type=Path))
@option("--over", type=click.Path(path_type=Path), metavar="DIR",
        help="Draw words over the JPEG files in a folder.  [default: drawn scenes]")  # fmt: skip
@option(
    "--count",
    default=8,
    show_default=True,
    type=click.IntRange(1),
    help="How many pictures have words drawn over them.",
)
@rounds_option
@json_option
def bench_ocr(images: tuple[Path, ...], over: Path | None, count: int, rounds: int, as_json: bool) -> None:
    """Time reading the text in IMAGES, beside RapidOCR alone with the same models.

    Without IMAGES, words are drawn over other pictures, which are turned by 0, 90, 180 and 270 degrees, and it is
    counted how many of the words are read.
    """
    from benchmarks.ocr import time_drawn, time_files
    from vlmsearch.export.progress import steps

    if images and over:
        raise click.UsageError("--over draws words over pictures: leave out IMAGES, whose own text is read")
    more: list[dict[str, object]] = []
    with steps("bench ocr") as report:
        if images:
            timings = time_files(images, rounds=rounds, report=report)
        else:
            drawn = time_drawn(read_images(over, count), rounds=rounds, report=report)
            timings = [timing for timing, _ in drawn]
            more = [
                {"words": found.drawn, "rapidocr_found": found.bare, "vlmsearch_found": found.read}
                for _, found in drawn
            ]
    print_timings(timings, what="images", bare="rapidocr", rounds=rounds, as_json=as_json, more=more)
