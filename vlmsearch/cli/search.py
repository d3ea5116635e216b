"""``vlmsearch search``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import click

from vlmsearch.cli.common import (
    command,
    encoder_option,
    image_option,
    json_option,
    limit_option,
    limits_option,
    match_json,
    open_index,
    option,
    print_json,
    print_matches,
    short_path,
    store_option,
    where_option,
)
from vlmsearch.media.limits import DEFAULT_LIMITS, ImageLimits


@command()
@click.argument("text", required=False)
@image_option
@limit_option
@where_option
@store_option
@encoder_option
@limits_option(DEFAULT_LIMITS)
@json_option
@option("--html", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE", help="Write a contact sheet.")
def search(
    text: str | None,
    image: Path | None,
    limit: int,
    where: Mapping[str, object] | None,
    store: str,
    encoder: str | None,
    image_limits: ImageLimits,
    as_json: bool,
    html: Path | None,
) -> None:
    """Find documents by a text, an image or both."""
    if not (text and text.strip()) and image is None:
        raise click.UsageError("give a TEXT, an --image or both")
    with open_index(store, encoder, image_limits=image_limits) as pipeline:
        matches = pipeline.search(text, image=image, limit=limit, where=where)
    if html is not None:
        from vlmsearch.cli.contact_sheet import Section, write_sheet

        title = " + ".join(part for part in (text, image.name if image else None) if part)
        write_sheet(html, [Section(title, matches, image)])
        click.echo(f"wrote {short_path(str(html.resolve()))}", err=True)
    if as_json:
        print_json({"matches": [match_json(match) for match in matches]})
    else:
        print_matches(matches)
