"""``vlmsearch search``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import click

from vlmsearch.cli.common import (
    SHARE,
    PlainText,
    ServerIndex,
    command,
    encoder_option,
    image_option,
    is_terminal,
    json_option,
    limit_option,
    limits_option,
    one_of,
    open_here_or_there,
    option,
    print_json,
    print_matches,
    print_table,
    query_options,
    rerank_options,
    reranker_of,
    server_option,
    short_path,
    store_option,
    where_option,
    with_picture,
)
from vlmsearch.media.limits import DEFAULT_LIMITS, ImageLimits
from vlmsearch.types import Matches
from vlmsearch.wire import matches_json

_MOST = 10_000


@command()
@click.argument("text", required=False)
@image_option
@query_options
@limit_option
@option(
    "--page", type=click.IntRange(1, _MOST), default=1, show_default=True, help="Which page, each as long as --limit."
)
@option("--cursor", metavar="CURSOR", help="The page after the one whose JSON gave this; it repeats and skips nothing.")
@option(
    "--sort",
    default="relevance",
    show_default=True,
    metavar="KEY",
    help="By a metadata key, or -KEY for falling values.",
)
@option(
    "--diverse", "diversity", default=0.0, type=SHARE, metavar="SHARE", help="How far to avoid likeness, from 0 to 1."
)
@option(
    "--min-score", type=SHARE, metavar="SCORE", help="The lowest score to show, from 0 to 1.  [default: the index's]"
)
@option("--all", "show_all", is_flag=True, help="Show what comes closest, however little it matches.")
@option("--facet", "facets", multiple=True, type=PlainText(), metavar="KEY", help="Count the values of a metadata key.")
@rerank_options
@where_option
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
    limit: int,
    page: int,
    cursor: str | None,
    sort: str,
    diversity: float,
    min_score: float | None,
    show_all: bool,
    facets: tuple[str, ...],
    rerank: str | None,
    rerank_first: int,
    rerank_seconds: float,
    where: Mapping[str, object] | None,
    store: str,
    encoder: str | None,
    image_limits: ImageLimits,
    server: ServerIndex | None,
    as_json: bool,
    html: Path | None,
) -> None:
    """Find documents by a text, an image, or documents that are like them."""
    if not (text and text.strip()) and image is None and not like:
        raise click.UsageError("give a TEXT, an --image, --like or several of them")
    left_out = one_of(without, without_image, without_like)
    if page * limit > _MOST:
        raise click.UsageError(f"--page goes to {_MOST // limit} with --limit {limit}: the best {_MOST:,} can be seen")
    if page > 1 and cursor:
        raise click.UsageError("give --page or --cursor")
    if show_all and min_score is not None:
        raise click.UsageError("give --all or --min-score")
    with open_here_or_there(server, store, encoder, image_limits=image_limits) as pipeline:
        matches = pipeline.search(
            text,
            image=image,
            like=like,
            without=left_out,
            where=where,
            limit=limit,
            offset=(page - 1) * limit,
            cursor=cursor,
            sort=sort,
            diversity=diversity,
            min_score=0.0 if show_all else min_score,
            facets=facets,
            rerank=reranker_of(server, rerank),
            rerank_first=rerank_first,
            rerank_seconds=rerank_seconds,
        )
        shown = [replace(match, document=with_picture(pipeline, match.document)) for match in (matches if html else ())]
    if html is not None:
        from vlmsearch.cli.contact_sheet import Section, write_sheet

        given = [text, image.name if image else None, *map(short_path, like)]
        write_sheet(html, [Section(" + ".join(part for part in given if part), shown, image)])
        click.echo(f"wrote {short_path(str(html.resolve()))}", err=True)
    if as_json:
        print_json(matches_json(matches))
    else:
        _print(matches, page)


def _print(matches: Matches, page: int) -> None:
    if matches:
        print_matches(matches)
    else:
        said = "Nothing matches" if page == 1 else f"Nothing matches on page {page}"
        hint = ": --all shows what comes closest" if matches.threshold else ""
        click.echo(f"{said}{hint}.", err=not is_terminal())
    for key, counts in matches.facets.items():
        print_table((key, "documents"), [(str(value), str(count)) for value, count in counts.items()], left=(key,))
    if matches.cursor and is_terminal():
        click.echo(f"More: --page {page + 1}")
