"""From a prompt to generated text, and to an answer whose citations hold."""

from __future__ import annotations

import collections.abc
from codecs import getincrementaldecoder
from collections.abc import Iterator
from dataclasses import replace
from string import Template
from typing import Union

from vlmsearch._util.cancellation import check_cancelled
from vlmsearch._util.closable import closing_at_end
from vlmsearch.answers.citations import CitationChecker
from vlmsearch.answers.prompts import Prompt, fit_prompt
from vlmsearch.answers.quotes import Encode, quote_lines
from vlmsearch.generators.base import (
    GenerationOptions,
    Generator,
    PicturesRefusedError,
    QuotesSources,
    SeesPictures,
)
from vlmsearch.generators.thoughts import EndOfThoughts
from vlmsearch.types import Answer, AnswerParts, Citation, Match

UNSURE = "Nothing surely matches the question. Closest: "
"""The beginning of an answer from unsure sources by a generator that only quotes."""
NOTHING_FOUND = "Nothing in the index matches the question."


def read_prompt(
    prompt: Prompt, generator: Generator, options: GenerationOptions, encode: Encode | None
) -> Iterator[str | Prompt]:
    """Yield the pieces of the text that a generator makes of a prompt.

    One that quotes gets the sentences that answer best, by words and by the vectors of ``encode``.

    A prompt between them takes the place of the one before: with fewer pictures, and at last none, where the generator
    refuses them, and with the number of its tokens where the generator tells it.
    """
    if isinstance(generator, QuotesSources):
        if prompt.is_unsure:
            yield UNSURE
        lines = quote_lines(prompt.question, prompt.sources, generator.max_words, encode, options.bad_words)
        yield from generator.stream(lines, options)
        return
    has_retried = False
    while True:
        tokens: list[int] = []
        try:
            is_seen = isinstance(generator, SeesPictures) and prompt.pictures
            yield from generator.answer(prompt.parts if is_seen else prompt.text, options, on_usage=tokens.append)
        except PicturesRefusedError as exc:
            count = len(prompt.pictures)
            if not count:
                raise
            fewer = count // 2 if exc.at_most is None else min(exc.at_most, count - 1)
            prompt = fit_prompt(prompt.with_pictures(0 if has_retried else fewer), generator, options)
            has_retried = True
            yield prompt
        else:
            if tokens:
                yield replace(prompt, tokens=tokens[-1])
            return


class AnswerStream(AnswerParts):
    """Iterate over an answer as it is made: pieces of its text, then its citations.

    `Pipeline.ask` with ``stream=True`` makes one. A citation is checked before it is shown, also where the generator
    makes it in two pieces. Thoughts of the model are left out. Where only their end has a tag, they have been shown
    before it, but `answer` has neither them nor their citations. Closing it, or leaving the ``with`` block, stops the
    generator. Use it from one thread.

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

    def __init__(self, prompt: Prompt, pieces: Iterator[Union[str, Prompt]]) -> None:
        self._prompt = prompt
        self._pieces = pieces
        self._checker = CitationChecker(len(prompt.sources))
        self._text: list[str] = []
        self._parts = self._run()

    def __next__(self) -> str | Citation:
        return next(self._parts)

    @property
    def matches(self) -> tuple[Match, ...]:  # type: ignore[override]
        """Return the sources, best first."""
        return tuple(source.match for source in self._prompt.sources)

    def answer(self) -> Answer:
        """Return the whole answer, after reading what is left of it.

        After `close` it is what there was until then.

        Returns:
            The answer with its sources.

        Raises:
            BackendError: The generator failed.
        """
        for _ in self:
            pass
        prompt = self._prompt
        return Answer(
            "".join(self._text),
            tuple(self._citations()),
            self.matches,
            tuple(source.match for source in prompt.dropped),
            self._checker.removed,
            prompt.is_unsure,
            {source.match.document.id: source.read_as for source in prompt.sources},
            prompt.tokens,
            {source.match.document.id: source.read_text for source in prompt.sources if source.match.document.text},
        )

    def close(self) -> None:
        """Stop the generator."""
        with closing_at_end(self._pieces):
            self._parts.close()

    def _run(self) -> collections.abc.Generator[str | Citation, None, None]:
        for text in self._texts():
            if text:
                self._text.append(text)
                yield text
        yield from self._citations()

    def _texts(self) -> Iterator[str]:
        """Yield pieces of the text, some of them empty, in valid Unicode, with checked citations."""
        whole = getincrementaldecoder("utf-16-le")("replace")  # pieces may cut a surrogate pair
        for piece in self._pieces:
            check_cancelled()
            if isinstance(piece, EndOfThoughts):
                self._text.clear()
                self._checker = CitationChecker(self._checker.sources)
            elif isinstance(piece, str):
                yield self._checker.feed(whole.decode(piece.encode("utf-16-le", "surrogatepass")))
            else:
                self._prompt = piece
                self._checker.sources = len(piece.sources)
        yield self._checker.feed(whole.decode(b"", final=True))
        yield self._checker.finish()

    def _citations(self) -> Iterator[Citation]:
        for number in self._checker.used:
            yield self._prompt.sources[number - 1].citation


def nothing_found(note: str) -> AnswerStream:
    """Return the answer where there is no source, with a note on the search."""
    return AnswerStream(Prompt("", template=Template("")), iter([f"{NOTHING_FOUND} {note}".rstrip()]))
