"""``vlmsearch duplicates``."""

from __future__ import annotations

import time
from datetime import datetime, timezone
from typing import Any

import click

from vlmsearch.cli.common import (
    command,
    json_option,
    print_first,
    print_json,
    print_table,
    short_path,
)
from vlmsearch.cli.opening import IndexChoice, index_options
from vlmsearch.cli.progress import progress
from vlmsearch.cli.search_options import flags
from vlmsearch.search.options import DuplicatesRequest
from vlmsearch.types import DuplicateGroup, ImageFile
from vlmsearch.wire import to_json


@command()
@flags(DuplicatesRequest)
@index_options("encoder", "image_limits", "server", "principals")
@json_option
def duplicates(chosen: IndexChoice, as_json: bool, **options: Any) -> None:
    """Find duplicate images: scaled, cropped, turned, recoloured, written on or framed.

    Vectors find candidates, whose files are compared pixel by pixel. Nothing is deleted:
    `vlmsearch delete ID` takes an image out of the index. The page of `vlmsearch serve` shows duplicates side by side.
    """
    begun = time.monotonic()
    with chosen.open() as index, progress(index.count(), quiet=as_json, what="comparing") as advance:
        result = index.duplicates(**options, on_progress=advance)
    if as_json:
        print_json({**to_json(result), "seconds": round(time.monotonic() - begun, 3)})
        return
    rows = [row for number, group in enumerate(result.groups, 1) for row in _rows(number, group)]
    if rows:
        names = ("group", "image", "pixels", "KiB", "written", "")
        print_table(names, rows, left=("image", ""))
    count = sum(len(group.files) - 1 for group in result.groups)
    said = f"{count or 'no'} duplicates among {result.compared} images, in {len(result.groups)} groups"
    click.echo(f"{said}; {time.monotonic() - begun:.1f} s", err=True)
    print_first([f"not compared  {message}" for _, message in result.unread])


def _rows(number: int, group: DuplicateGroup) -> list[tuple[str, ...]]:
    return [
        (
            str(number),
            short_path(str(file.path)),
            f"{file.width} x {file.height}",
            f"{file.bytes / 1024:.0f}",
            f"{datetime.fromtimestamp(file.modified, timezone.utc):%Y-%m-%d}",
            ", ".join(_marks(group, file)),
        )
        for file in group.files
    ]


def _marks(group: DuplicateGroup, file: ImageFile) -> list[str]:
    return [mark for mark, marked in (("largest", group.files[0]), ("oldest", group.oldest)) if marked == file]
