"""``vlmsearch duplicates``."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

import click

from vlmsearch.cli.common import (
    SHARE,
    ServerIndex,
    command,
    encoder_option,
    json_option,
    limits_option,
    open_here_or_there,
    option,
    print_json,
    print_table,
    server_option,
    short_path,
    store_option,
    where_option,
    with_picture,
)
from vlmsearch.cli.duplicates_page import marks, write_duplicates, written_on
from vlmsearch.cli.progress import progress
from vlmsearch.media.limits import DEFAULT_LIMITS, ImageLimits
from vlmsearch.types import Document, DuplicateGroup
from vlmsearch.wire import duplicates_json

_SHOWN = 20


@command()
@option("--html", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE", help="Write them side by side.")
@option(
    "--threshold",
    type=SHARE,
    default=0.5,
    show_default=True,
    metavar="COSINE",
    help="The cosine of their vectors from which two images are compared.",
)
@where_option
@store_option
@encoder_option
@limits_option(DEFAULT_LIMITS)
@server_option
@json_option
def duplicates(
    html: Path | None,
    threshold: float,
    where: Mapping[str, object] | None,
    store: str,
    encoder: str | None,
    image_limits: ImageLimits,
    server: ServerIndex | None,
    as_json: bool,
) -> None:
    """Find duplicate images: scaled, cropped, turned, recoloured, written on, framed.

    Vectors find what may be a duplicate, and the files are compared pixel by pixel. Nothing is deleted:
    `vlmsearch delete ID` takes an image out of the index.
    """
    begun = time.monotonic()
    with (
        open_here_or_there(server, store, encoder, image_limits=image_limits) as pipeline,
        progress(pipeline.count(), quiet=as_json, what="comparing") as advance,
    ):
        found = pipeline.duplicates(threshold=threshold, where=where, on_progress=advance)
        if html is not None:
            write_duplicates(html, found, lambda file: with_picture(pipeline, Document(file.id, image=file.path)).image)
    if html is not None:
        click.echo(f"wrote {short_path(str(html.resolve()))}", err=True)
    if as_json:
        print_json({**duplicates_json(found), "seconds": round(time.monotonic() - begun, 3)})
        return
    rows = [row for number, group in enumerate(found.groups, 1) for row in _rows(number, group)]
    if rows:
        names = ("group", "image", "pixels", "KiB", "written", "")
        print_table(names, rows, left=("image", ""))
    count = sum(len(group.files) - 1 for group in found.groups)
    said = f"{count or 'no'} duplicates among {found.compared} images, in {len(found.groups)} groups"
    click.echo(f"{said}; {time.monotonic() - begun:.1f} s", err=True)
    for _, message in found.unread[:_SHOWN]:
        click.echo(f"  not compared  {message}", err=True)
    if len(found.unread) > _SHOWN:
        click.echo(f"  and {len(found.unread) - _SHOWN} more: see --json", err=True)


def _rows(number: int, group: DuplicateGroup) -> list[tuple[str, ...]]:
    return [
        (
            str(number),
            short_path(str(file.path)),
            f"{file.width} x {file.height}",
            f"{file.bytes / 1024:.0f}",
            written_on(file),
            ", ".join(marks(group, file)),
        )
        for file in group.files
    ]
