"""``vlmsearch bench video``."""

from __future__ import annotations

from pathlib import Path

import click

from benchmarks.commands.reading import print_timings, rounds_option
from vlmsearch.cli.common import command, json_option


@command("video")
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
@rounds_option
@json_option
def bench_video(files: tuple[Path, ...], rounds: int, as_json: bool) -> None:
    """Time films on their way to a frame of each scene, beside PyAV alone, which decodes the same frames."""
    from benchmarks.video import time_films
    from vlmsearch.export.progress import steps

    with steps("bench video") as report:
        timings = time_films(files, rounds=rounds, report=report)
    print_timings(timings, what="frames", bare="pyav", rounds=rounds, as_json=as_json)
