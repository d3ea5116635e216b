"""Re-ranking by a generator, which is asked of each document whether it answers the query.

The score is the probability of "yes" against "no" as the first token, as with the "true" and "false" of monoT5
(arXiv:2003.06713).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from functools import partial

from vlmsearch._util.arguments import check_counts
from vlmsearch._util.text import sanitise, utf8_bytes, well_formed
from vlmsearch._util.threads import Workers
from vlmsearch.errors import InvalidInputError
from vlmsearch.generators.base import (
    GenerationOptions,
    Generator,
    HasLikelihoods,
    Picture,
    PicturesRefusedError,
    SeesPictures,
)
from vlmsearch.generators.thoughts import UnfinishedThoughtsError, text_of
from vlmsearch.rerankers.base import Reranker
from vlmsearch.types import Document, RemoteImage

QUESTION = 'Does this {what} answer or show: "{query}"? Answer yes or no.'
"""Question behind a picture, a text, or a picture and its text."""
WORDS = ("yes", "no")
YES, NO = 0.9, 0.05
"""Scores of a generator that only says "yes" or "no". A confident "no" is more often right than a "yes"."""
_ANSWER = re.compile(r"[\W_]*(yes|no)\b", re.IGNORECASE)
_OPTIONS = GenerationOptions(max_tokens=8)
_LIKELY = 1e-3
"""Probability of both words together from which the first token is an answer, and no thought."""
_FITTING_CHARS = 16
"""Characters of a text that no model finds too long."""


class GeneratorReranker(Reranker):
    """A generator as a judge: ``judge:openai:http://host:8000/v1?model=NAME``, or any other URL of a generator.

    A generator that sees is shown the document's picture, with its text if it has one. It is asked whether they answer
    the query. A generator that tells likelihoods (`HasLikelihoods`) gives P(yes) / (P(yes) + P(no)).
    Of any other, "yes" counts as 0.9 and "no" as 0.05, and another answer judges nothing. A document whose picture
    cannot be read, or is refused, is judged by its text; one with neither is not judged.

    Pictures have ``image_size`` pixels on the longer side at most, and ``max_chars`` characters of a text are read.
    ``concurrency`` is the number of documents that are asked about at a time. All other options of the URL are those
    of the generator, which is closed with the re-ranker.
    """

    def __init__(
        self, generator: Generator, *, image_size: int = 1024, max_chars: int = 4000, concurrency: int = 4
    ) -> None:
        check_counts(image_size=image_size, max_chars=max_chars, concurrency=concurrency)
        self.name = f"judge:{generator.name}"
        self._generator, self._image_size, self._max_chars = generator, image_size, max_chars
        self._workers = Workers(concurrency, name="vlmsearch-judge", owner=f"the re-ranker {self.name}")

    def score(self, query: str, documents: Sequence[Document]) -> list[float | None]:
        """Judge documents by their pictures and texts, several at a time; see `Reranker.score`."""
        self._workers.check_open()
        utf8_bytes(query)
        return list(self._workers.results(documents, partial(self._judge, query)))

    def close(self) -> None:
        """Close the generator."""
        self._workers.close()
        self._generator.close()

    def _judge(self, query: str, document: Document) -> float | None:
        text = well_formed(document.text or "")[: self._max_chars].strip()
        picture = self._picture(document)
        if picture is not None:
            try:
                return self._by_beginning(query, picture, text)
            except (InvalidInputError, PicturesRefusedError):
                pass  # too large, too many or not wanted: the text says what it says
        return self._by_beginning(query, None, text) if text else None

    def _picture(self, document: Document) -> Picture | None:
        """Return the picture of a document. None where there is none to read, or the generator does not see."""
        from vlmsearch.media.images import shrunk_image

        generator, image = self._generator, document.image
        if image is None or isinstance(image, RemoteImage):
            return None
        if not isinstance(generator, SeesPictures) or not generator.max_pictures:
            return None
        try:
            return Picture(shrunk_image(image, edge=min(self._image_size, generator.max_side)))
        except InvalidInputError:
            return None

    def _by_beginning(self, query: str, picture: Picture | None, text: str) -> float | None:
        """Return the probability of a document, or of the text that the generator reads."""
        try:
            return self._ask(_prompt(query, picture, text))
        except InvalidInputError as exc:
            if exc.code != "too_long" or len(text) <= _FITTING_CHARS:
                raise
        return self._by_beginning(query, picture, text[: len(text) // 2])

    def _ask(self, parts: Sequence[str | Picture]) -> float | None:
        generator = self._generator
        if isinstance(generator, HasLikelihoods):
            likelihoods = generator.next_word_likelihoods(parts, WORDS)
            if likelihoods is not None:
                yes, no = likelihoods
                if yes + no >= _LIKELY:
                    return yes / (yes + no)
        texts = [part for part in parts if isinstance(part, str)]
        prompt = "".join(texts) if len(texts) == len(parts) else parts
        for options in (_OPTIONS, GenerationOptions()):  # one that thinks needs more than a word
            with suppress(UnfinishedThoughtsError):
                if match := _ANSWER.match(text_of(generator.answer(prompt, options))):
                    return YES if match[1].casefold() == "yes" else NO
        return None


def _prompt(query: str, picture: Picture | None, text: str) -> list[str | Picture]:
    """Return what a generator reads: the picture, the text, and the question behind both."""
    query, text = ("\n".join(map(sanitise, given.splitlines())) for given in (query, text))
    what = "text" if picture is None else "picture with its text" if text else "picture"
    parts: list[str | Picture] = [] if picture is None else [picture, "\n"]
    parts.append((f"Text: {text}\n\n" if text else "") + QUESTION.format(what=what, query=query))
    return parts
