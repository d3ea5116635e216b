"""From matches to a prompt, and from generated text to an answer whose citations hold."""

from __future__ import annotations

import collections.abc
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate, takewhile
from pathlib import Path
from string import Template
from typing import TypeAlias

from vlmsearch._util.cancellation import check_cancelled
from vlmsearch._util.text import sanitise
from vlmsearch.answers.citations import CitationChecker
from vlmsearch.answers.pictures import PromptPictures, with_pictures
from vlmsearch.errors import ConfigError, InvalidInputError
from vlmsearch.generators.base import (
    CountsTokens,
    GenerationOptions,
    Generator,
    HasPromptTemplate,
    Picture,
    PictureOptions,
    PicturesRefusedError,
    SeesPictures,
)
from vlmsearch.types import Answer, AnswerParts, Citation, Document, Match, Reading

TEMPLATE = Template(
    "Answer the question from the numbered sources. Cite each source that you use by its number in brackets, "
    "such as [1]. If the sources do not answer the question, say so.\n\n"
    "Sources:\n$sources\n\nQuestion: $question\nAnswer:"
)
"""The prompt of `Pipeline.ask`; ``$sources`` and ``$question`` are filled in, each source on a line of its own."""
NOTHING_FOUND = "Nothing in the index matches the question."
UNSURE = "Nothing surely matches the question. Closest: "
"""The beginning of an answer from unsure sources, where the generator does not read the question."""
SOURCE_CHARS = 1000
"""Characters of a source's text in a prompt."""
QUESTION_CHARS = TEMPLATE_CHARS = 32_768
"""The most characters of a question and of a template."""
PROMPT_CHARS = 2**20
"""The most characters of a prompt. Sources beyond are left out before it is built, also where nobody counts tokens."""
_MARK = "\0"
"""The place of the sources in a text: a character that neither sources nor questions have."""
_NO_PICTURES = PromptPictures()
_PLACES = frozenset({"sources", "question"})


def parse_template(text: str) -> Template:
    """Return a template of one's own; ConfigError unless it has ``$sources`` and ``$question`` once and no other place.

    The form is that of `string.Template`: ``$$`` is a dollar sign.
    """
    if len(text) > TEMPLATE_CHARS:
        raise ConfigError(f"a template has at most {TEMPLATE_CHARS:,} characters, not {len(text):,}: make it shorter")
    template = Template(text)
    counts = _places_of(template)
    if None in counts:
        raise ConfigError("a template has a $ that begins no place; write $$ for a dollar sign")
    if counts.keys() != _PLACES:
        names = ", ".join(sorted(f"${name}" for name in counts)) or "none"
        raise ConfigError(f"a template has the places $sources and $question and no other; this one has {names}")
    for name, count in counts.items():
        if count > 1:
            raise ConfigError(f"a template has each place once; this one has ${name} {count:,} times")
    return template


def _places_of(template: Template) -> Counter[str | None]:
    """Return how often a template has each place; None stands for a $ that begins none."""
    places = (match for match in template.pattern.finditer(template.template) if match["escaped"] is None)
    return Counter(match["named"] or match["braced"] for match in places)


def check_question(question: str) -> None:
    """Raise InvalidInputError for a question that is no question any more."""
    if isinstance(question, str) and len(question) > QUESTION_CHARS:
        raise InvalidInputError(
            "too_long", f"a question has at most {QUESTION_CHARS:,} characters, not {len(question):,}: ask shorter"
        )


def build_prompt(question: str, matches: Sequence[Match], template: Template = TEMPLATE) -> str:
    """Return the prompt for a question: the matches as sources, numbered from 1.

    Neither a source nor the question can break out of its place: see `vlmsearch._util.text`.
    """
    return "".join(part for part in build_parts(question, matches, template, PromptPictures()) if isinstance(part, str))


def build_parts(
    question: str, matches: Sequence[Match], template: Template, pictures: PromptPictures
) -> tuple[str | Picture, ...]:
    """Return the prompt for a question as parts: see `build_prompt`, with pictures behind their sources."""
    text = template.substitute(sources=_MARK, question=sanitise(question))
    return with_pictures(text, list(_source_lines(matches)), pictures, _MARK)


def _source_lines(matches: Iterable[Match]) -> Iterator[str]:
    return (f"[{i}] {sanitise(_describe(match.document))}" for i, match in enumerate(matches, 1))


def default_options(generator: Generator) -> GenerationOptions:
    """Return the options of `Pipeline.ask` where none are given.

    Answers of a quarter of the model's context at most.
    """
    options = GenerationOptions()
    if not isinstance(generator, CountsTokens):
        return options
    return GenerationOptions(max_tokens=max(1, min(options.max_tokens, generator.context // 4)))


@dataclass(frozen=True)
class Prompt:
    """A prompt.

    Attributes:
        text: What a generator reads that sees no pictures.
        matches: Its sources.
        dropped: Weaker matches that did not fit into the model's context.
        is_unsure: Whether the sources are only what comes closest to the question.
        preface: How the answer begins.
        parts: What a generator reads that sees pictures; empty for a prompt without any.
        read_as: How each source is read, by its id.
        tokens: Number of tokens of the prompt, by the model itself; None where it is unknown.
    """

    text: str
    matches: tuple[Match, ...]
    dropped: tuple[Match, ...] = ()
    is_unsure: bool = False
    preface: str = ""
    parts: tuple[str | Picture, ...] = ()
    read_as: Mapping[str, Reading] = field(default_factory=dict)
    tokens: int | None = None


def fit_prompt(
    question: str,
    matches: Sequence[Match],
    generator: Generator,
    options: GenerationOptions,
    template: Template = TEMPLATE,
    *,
    is_unsure: bool = False,
    pictures: PromptPictures = _NO_PICTURES,
    picture_tokens: int = PictureOptions.tokens,
) -> Prompt:
    """Return the prompt with as many of the matches, best first, as leave room for the answer in the model's context.

    Where the matches are unsure, and the generator does not read the question, the answer begins by saying so. A
    generator that does not count tokens gets all that `PROMPT_CHARS` hold, and one with a template of its own gets
    that one. Pictures are scaled down until they fit; of the context they get what texts leave, at least half. Raises
    InvalidInputError (``too_long``) where not even the best match fits.
    """
    if isinstance(generator, HasPromptTemplate):
        template = generator.prompt_template
    left = PROMPT_CHARS - len(template.template) - len(sanitise(question))
    lengths = accumulate(len(line) + 1 for line in _source_lines(matches))
    max_sources = sum(1 for _ in takewhile(lambda length: length <= left, lengths))
    room = generator.context - options.max_tokens if isinstance(generator, CountsTokens) else None
    if isinstance(generator, SeesPictures) and pictures:
        if room is not None and isinstance(generator, CountsTokens):
            texts = generator.count_tokens(build_prompt(question, matches[:max_sources], template))
            picture_tokens = min(picture_tokens, max(room - texts, room // 2))
        pictures = pictures.scaled(generator, picture_tokens)

    def prompt_of(sources: int) -> Prompt:
        text = build_prompt(question, matches[:sources], template)
        preface = UNSURE if is_unsure and "question" not in _places_of(template) else ""
        shown = pictures.of_first(sources)
        parts = build_parts(question, matches[:sources], template, shown) if shown else ()
        read_as = {
            match.document.id: _reading(match.document, is_seen=at in shown.of_sources)
            for at, match in enumerate(matches[:sources])
        }
        kept, dropped = tuple(matches[:sources]), tuple(matches[sources:])
        return Prompt(text, kept, dropped, is_unsure, preface, parts, read_as)

    if room is None or not isinstance(generator, CountsTokens):
        return prompt_of(max_sources)

    def count(sources: int) -> int:
        tokens = generator.count_tokens(build_prompt(question, matches[:sources], template))
        return tokens + (pictures.of_first(sources).tokens(generator) if isinstance(generator, SeesPictures) else 0)

    kept = max_sources if count(max_sources) <= room else bisect_right(range(1, max_sources), room, key=count)
    if matches and not kept:
        raise InvalidInputError(
            "too_long",
            f"the question and one source are {count(1)} tokens; {generator.name} reads {generator.context}, of which "
            f"{options.max_tokens} are kept for the answer: ask shorter, lower `max_tokens` or take another model",
        )
    return prompt_of(kept)


def _reading(document: Document, *, is_seen: bool) -> Reading:
    if document.text:
        return "both" if is_seen else "text"
    return "picture" if is_seen else "neither"


_Fit: TypeAlias = Callable[[PromptPictures], Prompt]
"""A function that makes the prompt with some pictures."""


class PromptReader(Iterator[str]):
    """The pieces of the text that a generator makes of a prompt.

    Where it takes fewer pictures, or none, it gets a prompt with fewer, and at last the texts alone.

    Attributes:
        prompt: The prompt that it read.
    """

    def __init__(self, generator: Generator, options: GenerationOptions, pictures: PromptPictures, fit: _Fit) -> None:
        self.prompt = fit(pictures)
        self._pieces = self._read(generator, options, pictures, fit)

    def __next__(self) -> str:
        return next(self._pieces)

    def close(self) -> None:
        """Stop the generator."""
        self._pieces.close()

    def _read(
        self, generator: Generator, options: GenerationOptions, pictures: PromptPictures, fit: _Fit
    ) -> collections.abc.Generator[str, None, None]:
        has_retried = False
        while True:
            try:
                yield from self._open(generator, options)
            except PicturesRefusedError as exc:
                if not pictures:
                    raise
                fewer = len(pictures) // 2 if exc.at_most is None else min(exc.at_most, len(pictures) - 1)
                pictures = pictures.first(0 if has_retried else fewer)
                has_retried = True
                self.prompt = fit(pictures)
            else:
                return

    def _open(self, generator: Generator, options: GenerationOptions) -> Iterator[str]:
        if not isinstance(generator, SeesPictures) or not self.prompt.parts:
            return generator.stream(self.prompt.text, options)
        return generator.stream_parts(self.prompt.parts, options, on_usage=self._note)

    def _note(self, tokens: int) -> None:
        self.prompt = replace(self.prompt, tokens=tokens)


class AnswerStream(AnswerParts):
    """Iterate over an answer as it is made: pieces of its text, then its citations.

    `Pipeline.ask` with ``stream=True`` makes one. A citation is checked before it is shown, also where the generator
    makes it in two pieces. Closing it, or leaving the ``with`` block, stops the generator. Use it from one thread.

    Example:
        >>> from vlmsearch import Document, Pipeline
        >>> with Pipeline.open(encoder="mock:", store="mock:") as pipeline:
        ...     _ = pipeline.add(Document("a", text="The dog is called Laika."))
        ...     with pipeline.ask("What is the dog called?", stream=True) as parts:
        ...         text = "".join(part for part in parts if isinstance(part, str))
        ...         answer = parts.answer()
        >>> text == answer.text, answer.citations[0].id
        (True, 'a')
    """

    def __init__(self, pieces: Iterator[str], prompt: Prompt | Callable[[], Prompt]) -> None:
        self._pieces = pieces
        self._given = prompt
        self._checker = CitationChecker(0)
        self._text: list[str] = []
        self._parts = self._run()

    def __next__(self) -> str | Citation:
        return next(self._parts)

    @property
    def matches(self) -> tuple[Match, ...]:  # type: ignore[override]
        """Return the sources, best first."""
        return self._prompt.matches

    @property
    def prompt(self) -> str:
        """Return the text that the generator was given; "" where there is no source, so that none was asked."""
        return self._prompt.text

    @property
    def _prompt(self) -> Prompt:
        return self._given if isinstance(self._given, Prompt) else self._given()

    def answer(self) -> Answer:
        """Return the whole answer, after reading what is left of it; after `close`, what there was until then.

        Returns:
            The answer with its sources.

        Raises:
            BackendError: The generator failed.
        """
        for _ in self:
            pass
        return Answer(
            "".join(self._text),
            tuple(self._citations()),
            self._prompt.matches,
            self._prompt.dropped,
            self._checker.removed,
            self._prompt.is_unsure,
            self._prompt.read_as,
            self._prompt.tokens,
        )

    def close(self) -> None:
        """Stop the generator."""
        self._parts.close()
        close = getattr(self._pieces, "close", None)
        if close:
            close()

    def _run(self) -> collections.abc.Generator[str | Citation, None, None]:
        if self._prompt.preface:
            yield self._note(self._prompt.preface)
        for number, piece in enumerate(self._pieces):
            check_cancelled()
            if not number:  # a prompt with fewer pictures may have taken the place of another
                self._checker = CitationChecker(len(self.matches))
            if shown := self._note(self._checker.feed(piece)):
                yield shown
        if shown := self._note(self._checker.finish()):
            yield shown
        yield from self._citations()

    def _note(self, shown: str) -> str:
        self._text.append(shown)
        return shown

    def _citations(self) -> Iterator[Citation]:
        for number in self._checker.used:
            yield Citation(number, self._prompt.matches[number - 1].document.id)


def nothing_found() -> AnswerStream:
    """Return the answer where there is no source."""
    return AnswerStream(iter([NOTHING_FOUND]), Prompt("", ()))


def _describe(document: Document) -> str:
    """Return what a source says: the text, or the name of the image."""
    if document.text:
        return document.text[:SOURCE_CHARS]
    name = document.image.name if isinstance(document.image, Path) else document.id
    return f"the image {name}"
