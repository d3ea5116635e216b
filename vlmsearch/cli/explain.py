"""``vlmsearch explain``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import click

from vlmsearch.cli.common import (
    SECONDS,
    ServerIndex,
    command,
    encoder_option,
    image_option,
    json_option,
    limits_option,
    one_of,
    open_here_or_there,
    option,
    print_json,
    print_table,
    query_options,
    search_flags,
    search_keywords,
    server_option,
    short_path,
    store_option,
    with_picture,
)
from vlmsearch.cli.explained import best_region, lacking, many, unfitted, usual
from vlmsearch.cli.progress import progress
from vlmsearch.media.limits import DEFAULT_LIMITS, ImageLimits
from vlmsearch.search.explanation import LEAST_FALL, WINDOWS, Explanation, FieldEvidence
from vlmsearch.search.options import RankingKeywords
from vlmsearch.types import WORDS
from vlmsearch.wire import explanation_json

_MOST_PASSAGES = 5


@command()
@click.argument("text", metavar="QUERY")
@click.argument("id")
@image_option
@query_options
@search_flags(RankingKeywords)
@store_option
@encoder_option
@limits_option(DEFAULT_LIMITS)
@server_option
@option("--parts", is_flag=True, help="Find the sentences and the regions of the image that mattered; --html does.")
@option("--seconds", default=10.0, show_default=True, type=SECONDS, help="How long to look for regions.")
@json_option
@option("--html", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE", help="Write a page that shows it.")
def explain(
    text: str,
    id: str,
    image: Path | None,
    like: tuple[str, ...],
    without: str | None,
    without_image: Path | None,
    without_like: tuple[str, ...],
    store: str,
    encoder: str | None,
    image_limits: ImageLimits,
    server: ServerIndex | None,
    parts: bool,
    seconds: float,
    as_json: bool,
    html: Path | None,
    **options: Any,
) -> None:
    """Explain why a search for QUERY shows the document ID, or does not.

    ID is that of a document, or the path of a file. QUERY may be "" beside --image or --like. The other options are
    those of the search.
    """
    if not text.strip() and image is None and not like:
        raise click.UsageError("give a QUERY, an --image, --like or several of them")
    left_out = one_of(without, without_image, without_like)
    has_parts = parts or html is not None
    with open_here_or_there(server, store, encoder, image_limits=image_limits) as pipeline:
        is_quiet = as_json or not has_parts or server is not None
        with progress(WINDOWS, quiet=is_quiet, what="covering") as advance:
            explain: Callable[[str], Explanation] = partial(
                pipeline.explain,
                text if text.strip() else None,
                image=image,
                like=like,
                without=left_out,
                parts=has_parts,
                seconds=seconds,
                on_progress=advance,
                **search_keywords(server, options),
            )
            found = explain(id)
            if found.outcome == "absent" and (of_file := explain(_file_id(id))).outcome != "absent":
                found = of_file
        if html is not None and found.document is not None:
            found = replace(found, document=with_picture(pipeline, found.document))
    if html is not None:
        from vlmsearch.cli.explain_page import write_explanation

        given = [text.strip(), image.name if image else "", *map(short_path, like)]
        write_explanation(html, found, " + ".join(part for part in given if part))
        click.echo(f"wrote {short_path(str(html.resolve()))}", err=True)
    if as_json:
        print_json(explanation_json(found))
    else:
        _print(found)


def _file_id(path: str) -> str:
    from vlmsearch.indexing.sources import file_id

    return file_id(path)


def _print(found: Explanation) -> None:
    click.echo(f"{short_path(found.id)}: {found.reason}")
    if found.document is None:
        return
    place = f", place {found.place} of {found.candidates}" if found.place else ""
    click.echo(f"Relevance {found.relevance:.3f}, shown from {found.threshold:.3f}{place}.")
    click.echo()
    print_table(
        ("field", "rank", "value", "usually", "evidence", "weight", "adds"),
        [
            *(_row(name, field, found) for name, field in found.fields.items()),
            ("any document", "", "", "", "", "", f"{found.prior:+.2f}"),
            *([("words alone", "", "", "", "", "", f"{found.words_alone:+.2f}")] if found.words_alone else []),
            ("log-odds", "", "", "", "", "", f"{found.log_odds:+.2f}"),
        ],
        left=("field",),
    )
    for line in (lacking(found), unfitted(found)):
        if line:
            click.echo(line)
    if found.words_alone:
        click.echo("The words are met so well that they decide alone, whatever the other fields say.")
    for what, score in found.without:
        click.echo(f"Left out: {what} (relevance {score:.3f}).")
    if found.judged is not None:
        click.echo(f"The re-ranker gave it {found.judged:.3f}.")
    if found.words:
        click.echo()
        print_table(
            ("word", "compared as", "documents", "adds to BM25", "at most"),
            [
                (word.word, word.stem, many(word.documents), f"{word.score:.2f}", f"{word.max_score:.2f}")
                for word in found.words
            ],
            left=("word", "compared as"),
        )
    mattered = [part for part in found.passages if part.evidence >= LEAST_FALL]
    if mattered and found.document.text:
        click.echo()
        ordered = sorted(mattered, key=lambda part: -part.evidence)[:_MOST_PASSAGES]
        text = found.document.text
        print_table(
            ("adds", "part of its text"),
            [(f"{part.evidence:+.2f}", " ".join(text[part.start : part.end].split())) for part in ordered],
            left=("part of its text",),
        )
    for line in (best_region(found), *found.notes):
        if line:
            click.echo(line)


def _row(name: str, field: FieldEvidence, found: Explanation) -> tuple[str, ...]:
    value = f"{field.value:.2f} of {found.most_words:.2f}" if name == WORDS else f"{field.value:.3f}"
    adds = f"{field.weight * field.evidence:+.2f}" if field.counts else ""
    return name, str(field.rank or "-"), value, usual(field), f"{field.evidence:+.2f}", f"{field.weight:g}", adds
