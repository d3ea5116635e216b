"""``vlmsearch search``."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from vlmsearch.cli.common import (
    ServerIndex,
    command,
    encoder_option,
    image_option,
    is_terminal,
    json_option,
    limits_option,
    one_of,
    open_here_or_there,
    option,
    print_json,
    print_matches,
    print_table,
    query_options,
    search_flags,
    search_keywords,
    server_option,
    short_path,
    store_option,
    with_picture,
)
from vlmsearch.media.limits import DEFAULT_LIMITS, ImageLimits
from vlmsearch.search.options import LONGEST_PAGE, SearchKeywords
from vlmsearch.types import Matches
from vlmsearch.wire import to_json


@command()
@click.argument("text", required=False)
@image_option
@query_options
@search_flags(SearchKeywords, leave_out=["offset"])
@option(
    "--page",
    type=click.IntRange(1, LONGEST_PAGE),
    default=1,
    show_default=True,
    metavar="N",
    help="Number of the page, each as long as --limit.",
)
@option("--all", "show_all", is_flag=True, help="Show what comes closest, however little it matches.")
@store_option
@encoder_option
@limits_option(DEFAULT_LIMITS)
@server_option
@json_option
@option("--html", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE", help="Write a contact sheet.")
def search(
    text: str | None,
    image: Path | None,
    like: tuple[str, ...],
    without: str | None,
    without_image: Path | None,
    without_like: tuple[str, ...],
    page: int,
    show_all: bool,
    store: str,
    encoder: str | None,
    image_limits: ImageLimits,
    server: ServerIndex | None,
    as_json: bool,
    html: Path | None,
    **options: Any,
) -> None:
    """Find documents by a text, an image, or documents that are like them."""
    if not (text and text.strip()) and image is None and not like:
        raise click.UsageError("give a TEXT, an --image, --like or several of them")
    left_out = one_of(without, without_image, without_like)
    limit = options["limit"]
    if page * limit > LONGEST_PAGE:
        last = LONGEST_PAGE // limit
        raise click.UsageError(f"--page goes to {last} with --limit {limit}: the best {LONGEST_PAGE:,} can be seen")
    if page > 1 and options["cursor"]:
        raise click.UsageError("give --page or --cursor")
    if show_all and options["min_score"] is not None:
        raise click.UsageError("give --all or --min-score")
    if show_all:
        options["min_score"] = 0.0
    chosen = search_keywords(server, {**options, "offset": (page - 1) * limit})
    with open_here_or_there(server, store, encoder, image_limits=image_limits) as pipeline:
        matches = pipeline.search(text, image=image, like=like, without=left_out, **chosen)
        shown = [replace(match, document=with_picture(pipeline, match.document)) for match in (matches if html else ())]
    if html is not None:
        from vlmsearch.cli.contact_sheet import Section, write_sheet

        given = [text, image.name if image else None, *map(short_path, like)]
        write_sheet(html, [Section(" + ".join(part for part in given if part), shown, image)])
        click.echo(f"wrote {short_path(str(html.resolve()))}", err=True)
    if as_json:
        print_json(to_json(matches))
    else:
        _print(matches, page)


def _print(matches: Matches, page: int) -> None:
    if matches:
        print_matches(matches)
    else:
        said = "Nothing matches" if page == 1 else f"Nothing matches on page {page}"
        hint = ": --all shows what comes closest" if matches.threshold else ""
        click.echo(f"{said}{hint}.", err=not is_terminal())
    if matches.total is not None:
        click.echo(f"{matches.total:,} in all", err=not is_terminal())
    for key, counts in matches.facets.items():
        print_table((key, "documents"), [(str(value), str(count)) for value, count in counts.items()], left=(key,))
    if matches.cursor and is_terminal():
        click.echo(f"More: --page {page + 1}")
