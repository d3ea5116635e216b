"""``vlmsearch ask``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import click

from vlmsearch.cli.common import (
    encoder_option,
    generator_option,
    image_option,
    json_option,
    match_json,
    open_index,
    option,
    print_json,
    short_path,
    store_option,
    where_option,
)


@click.command()
@click.argument("question")
@image_option
@option("--limit", default=5, show_default=True, type=click.IntRange(1, 100), help="How many sources at most.")
@where_option
@store_option
@encoder_option
@generator_option
@json_option
def ask(
    question: str,
    image: Path | None,
    limit: int,
    where: Mapping[str, object] | None,
    store: str,
    encoder: str | None,
    generator: str,
    as_json: bool,
) -> None:
    """Answer a question from what is found, with citations."""
    if not question.strip():
        raise click.UsageError("the question is empty")
    with open_index(store, encoder, generator) as pipeline:
        answer = pipeline.ask(question, image=image, limit=limit, where=where)
    if as_json:
        citations = [{"number": citation.number, "id": citation.id} for citation in answer.citations]
        print_json({"text": answer.text, "citations": citations, "matches": [match_json(m) for m in answer.matches]})
        return
    click.echo(answer.text)
    for citation in answer.citations:
        click.echo(f"  [{citation.number}] {short_path(citation.id)}")
