"""``vlmsearch search``."""

from __future__ import annotations

import os
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from vlmsearch.cli.common import (
    command,
    is_terminal,
    json_option,
    option,
    print_json,
    print_matches,
    print_table,
    short_path,
)
from vlmsearch.cli.documents import check_files_options, files_option, print_paths
from vlmsearch.cli.opening import IndexChoice, index_options, with_picture
from vlmsearch.cli.search_options import flags, query_options
from vlmsearch.search.options import MAX_PAGE, SearchRequest
from vlmsearch.types import Matches


@command()
@click.argument("text", required=False)
@query_options
@flags(SearchRequest, leave_out=["offset"])
@option(
    "--page",
    type=click.IntRange(1, MAX_PAGE),
    default=1,
    show_default=True,
    metavar="N",
    help="Number of the page. A page has --limit matches.",
)
@option("--all", "show_all", is_flag=True, help="Show the closest documents, also those below the threshold.")
@index_options("encoder", "image_limits", "server", "principals", "quiet")
@files_option
@json_option
@option("--html", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE", help="Write a page with the images.")
def search(
    query: dict[str, Any],
    page: int,
    show_all: bool,
    files: bool,
    null: bool,
    chosen: IndexChoice,
    as_json: bool,
    html: Path | None,
    **options: Any,
) -> None:
    """Find documents by a text, an image or similar documents.

    Matches say what TEXT has in quotation marks ('a "red bicycle"'), and not what has a minus before it (-word).
    """
    check_files_options(files, null, {"--json": as_json})
    _hint_at_image(query["text"], has_image=query["image"] is not None)
    limit = options["limit"]
    if page * limit > MAX_PAGE:
        last = MAX_PAGE // limit
        raise click.UsageError(f"--page goes to {last} with --limit {limit}: a search shows the best {MAX_PAGE:,}")
    if page > 1 and options["cursor"]:
        raise click.UsageError("give --page or --cursor")
    if show_all and options["min_score"] is not None:
        raise click.UsageError("give --all or --min-score")
    if show_all:
        options["min_score"] = 0.0
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # numpy's threads cost one search more than they give
    keywords = chosen.search_keywords({**options, "offset": (page - 1) * limit})
    with chosen.open() as index:
        matches = index.search(**query, **keywords)
        drawn = (matches.matches or matches.closest) if html else ()
        shown = [replace(match, document=with_picture(index, match.document)) for match in drawn]
        if html is not None:
            from vlmsearch.cli.contact_sheet import Section, write_sheet

            image = query["image"]
            parts = [query["text"], image and image.name, *map(short_path, query["like"])]
            title = " + ".join(filter(None, parts))
            section = Section(title, shown, image, matches.uncalibrated, matches.spelling, is_unsure=not matches)
            write_sheet(html, [section])
            click.echo(f"wrote {short_path(str(html.resolve()))}", err=True)
        if as_json:
            from vlmsearch.wire import to_json

            print_json(to_json(matches))
        elif files:
            print_paths((match.document for match in matches), null=null)
        else:
            _print(matches, page, query["text"] or "")


def _hint_at_image(text: str | None, *, has_image: bool) -> None:
    """Say how to search by an image where the text is a file's name.

    It is the name of an image that is here.
    """
    if text is None or has_image or not os.path.isfile(text):
        return
    from vlmsearch.media.images import IMAGE_SUFFIXES

    if os.path.splitext(text)[1].lower() in IMAGE_SUFFIXES:
        click.echo(f"This searches for words. To search by an image: --image {shlex.quote(text)}", err=True)


def _print(matches: Matches, page: int, query: str) -> None:
    if matches.spelling:
        click.echo(matches.spelling, err=not is_terminal())
        query = " ".join([query, *matches.shown_for.values()])
    if matches:
        print_matches(matches, query, is_calibrated=not matches.uncalibrated)
    elif matches.closest and is_terminal():
        click.echo("No match. Closest, not sure:")
        print_matches(matches.closest, query, is_calibrated=not matches.uncalibrated)
    elif matches.closest:  # what reads the output takes each line for a match
        named = ", ".join(f"{match.document.id} ({match.score:.2f})" for match in matches.closest)
        click.echo(f"No match. Closest, not sure: {named}", err=True)
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
