"""``vlmsearch ask``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import click

from vlmsearch._util.options import options_of
from vlmsearch.cli.common import (
    add_options,
    command,
    is_terminal,
    json_option,
    option,
    print_json,
    short_path,
)
from vlmsearch.cli.opening import IndexChoice, index_options
from vlmsearch.cli.search_options import flag_of, flags, image_option
from vlmsearch.generators.base import GenerationOptions, PictureOptions
from vlmsearch.verbs import AskRequest
from vlmsearch.wire import to_json

if TYPE_CHECKING:
    from vlmsearch.generators.base import Generator
    from vlmsearch.types import Answer, AnswerParts, Citation


_PICTURES = {"limit": "--pictures", "side": "--picture-side", "tokens": "--picture-tokens"}
"""The flags of `PictureOptions`."""
_FOR_PROGRAMS = ("bad_words", "repetition_penalty", "beam_width", "cache_salt")
"""Options of a generated text without a flag."""
_SAMPLING = {name: option for name, option in options_of(GenerationOptions).items() if name not in _FOR_PROGRAMS}
_READ = {"picture": " (seen)", "both": " (seen and read)", "text": " (its text)", "neither": " (its name)"}
"""Words for how a source with a picture was read."""


@command()
@click.argument("question")
@image_option
@flags(AskRequest, leave_out=["stream", "template"])
@index_options("encoder", "generator", "image_limits", "server", "principals", "quiet")
@option("--stream/--no-stream", "stream", default=None, help="Print the answer as it comes.  [default: on a terminal]")
@add_options([flag_of(declared, is_unset=True) for declared in _SAMPLING.values()])
@add_options([flag_of(options_of(PictureOptions)[name], flag, is_unset=True) for name, flag in _PICTURES.items()])
@option("--template", type=click.Path(path_type=Path), metavar="FILE", help="A prompt with $sources and $question.")
@json_option
def ask(
    question: str,
    image: Path | None,
    chosen: IndexChoice,
    stream: bool | None,
    template: Path | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Answer a question from the documents of an index, with citations."""
    if not question.strip():
        raise click.UsageError("the question is empty")
    if stream and as_json:
        raise click.UsageError("--json prints the whole answer: leave out --stream")
    text = _read(template) if template else None
    given = {name: options.pop(flag.lstrip("-").replace("-", "_")) for name, flag in _PICTURES.items()}
    shown = PictureOptions(**{name: value for name, value in given.items() if value is not None})
    sampling = {name: options.pop(name) for name in _SAMPLING}
    keywords = chosen.search_keywords(options)
    with chosen.open() as index:
        writer = getattr(index, "generator", None)  # a server's is not known here
        chosen_options = _options(writer, sampling)
        ask = partial(
            index.ask, question, image=image, options=chosen_options, pictures=shown, template=text, **keywords
        )
        if is_terminal() and not as_json if stream is None else stream:
            with cast("AnswerParts", ask(stream=True)) as parts:
                _show(parts)
                answer = parts.answer()
        else:
            answer = ask()
            if as_json:
                print_json(to_json(answer))
            else:
                print_answer(answer)
        _note(answer, writer)


def _options(generator: Generator | None, sampling: Mapping[str, object]) -> GenerationOptions | None:
    from vlmsearch.answers.prompts import default_options

    given = {name: value for name, value in sampling.items() if value not in (None, ())}
    usual = default_options(generator) if generator else GenerationOptions()
    return replace(usual, **given) if given else None  # type: ignore[arg-type]


def _read(template: Path) -> str:
    from vlmsearch.errors import ConfigError, one_line

    try:
        return template.read_text(encoding="utf-8").rstrip("\n")
    except (OSError, UnicodeDecodeError) as exc:
        raise ConfigError(f"the template {template} cannot be read: {one_line(exc)}") from exc


def _show(parts: AnswerParts) -> None:
    """Print the text while it comes, then a line for each source."""
    from vlmsearch.errors import VlmsearchError

    try:
        for part in parts:
            if not isinstance(part, str):
                break
            click.echo(part, nl=False)
    except VlmsearchError:
        click.echo()
        raise
    click.echo()
    answer = parts.answer()
    for citation in answer.citations:
        click.echo(_source(answer, citation))


def print_answer(answer: Answer) -> None:
    """Print the text, then a line for each source that it cites."""
    click.echo("\n".join([answer.text, *(_source(answer, citation) for citation in answer.citations)]))


def _source(answer: Answer, citation: Citation) -> str:
    document = answer.matches[citation.number - 1].document
    how = _READ.get(answer.read_as.get(citation.id, ""), "") if document.image is not None else ""
    part = read.name if (read := answer.read.get(citation.id)) else ""
    return f"  [{citation.number}] {short_path(citation.id)}{how}{f' ({part})' if part else ''}"


def _note(answer: Answer, generator: Generator | None) -> None:
    """Print what is wrong with an answer: unsure or dropped sources, and removed citations."""
    name = generator.name if generator else "the server's generator"
    if answer.is_unsure:
        click.echo("Note: nothing surely matches the question; the answer is from what comes closest", err=True)
    blind = [match.document.id for match in answer.matches if answer.read_as.get(match.document.id) == "neither"]
    if blind:
        click.echo(
            f"Note: {len(blind)} of {len(answer.matches)} sources were read by their names alone: "
            f"{', '.join(map(short_path, blind))}",
            err=True,
        )
    if answer.dropped:
        total, ids = len(answer.matches) + len(answer.dropped), [match.document.id for match in answer.dropped]
        click.echo(
            f"Note: {len(ids)} of {total} sources did not fit into the prompt of {name}: "
            f"{', '.join(map(short_path, ids))}",
            err=True,
        )
    if answer.removed:
        numbers = ", ".join(f"[{number}]" for number in answer.removed)
        click.echo(f"Note: {numbers} cited no source and was removed from the answer", err=True)
