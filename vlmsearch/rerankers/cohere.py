"""Re-ranking on a server with Cohere's interface, or with that of text-embeddings-inference.

- Cohere: its API reference, ``/v2/rerank``; also Jina, infinity and vLLM. With images: vLLM's ``/rerank``, whose
  documents have parts of a message as their content.
- text-embeddings-inference: https://github.com/huggingface/text-embeddings-inference
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any, Literal, TypeAlias

from vlmsearch._util.arguments import check_counts
from vlmsearch._util.batching import groups
from vlmsearch._util.plain import finite_number
from vlmsearch._util.text import utf8_bytes, well_formed
from vlmsearch.errors import ConfigError, InvalidInputError
from vlmsearch.openai_api.api import (
    FITTING_CHARS,
    REQUEST_BYTES,
    JsonApi,
    RefusedError,
    half_of,
    in_order,
    in_parts,
    plain_image,
    warn_cut,
)
from vlmsearch.openai_api.http import DEFAULT_OPTIONS, HttpOptions
from vlmsearch.rerankers.base import Reranker
from vlmsearch.types import Document, RemoteImage

RerankForm: TypeAlias = Literal["cohere", "tei"]
ScoreKind: TypeAlias = Literal["probability", "logit"]
_ANSWER_BYTES = 2**16
"""Maximum size of the answer without the documents, which some servers repeat."""
_ROUNDING = 1e-6


class CohereReranker(Reranker):
    """``cohere:http://host:8000/v1?model=NAME``: re-ranking by Cohere, Jina, vLLM, infinity or TEI.

    ``form`` is the form of the requests: ``cohere``, which most servers take, or ``tei``. With ``images``, documents
    are sent in vLLM's form, with their images as JPEG of ``image_size`` pixels on the longer side at most. Without it,
    it reads texts, and a document without one is not judged. ``scores`` says whether the server answers probabilities
    or logits; scores outside of 0 to 1 are refused unless it is ``logit``.

    ``max_chars`` characters of a document are sent at most, and fewer if the server finds them too many. ``batch_size``
    is the maximum number of documents of a request. The key comes from the environment variable CO_API_KEY, unless
    `HttpOptions` name another.
    """

    def __init__(
        self,
        location: str,
        *,
        model: str = "",
        form: RerankForm = "cohere",
        images: bool = False,
        scores: ScoreKind = "probability",
        max_chars: int = 8000,
        image_size: int = 1024,
        batch_size: int = 32,
        options: HttpOptions = DEFAULT_OPTIONS,
    ) -> None:
        check_counts(max_chars=max_chars, image_size=image_size, batch_size=batch_size)
        if images and form != "cohere":
            raise ConfigError(f"?form={form} has no place for images; leave it out for vLLM's form")
        hint = "the base URL ends before /rerank"
        self._server = JsonApi("cohere", location, options, key_variable="CO_API_KEY", hint=hint)
        self.name = f"{self._server.name}?model={model}" if model else self._server.name
        self._model, self._form, self._has_images, self._is_logit = model, form, images, scores == "logit"
        self._max_chars, self._image_size, self._batch_size = max_chars, image_size, batch_size
        self._has_answered = self._has_seen = False

    def score(self, query: str, documents: Sequence[Document]) -> list[float | None]:
        """Judge documents by their texts, and by their images where it reads them; see `Reranker.score`."""
        self._server.check_open()
        utf8_bytes(query)
        if len(query) > self._max_chars:
            warn_cut(self._max_chars)
        asked = query[: self._max_chars]
        contents = {place: content for place, document in enumerate(documents) if (content := self._content(document))}
        scores: list[float | None] = [None] * len(documents)
        sizes = [content.size for content in contents.values()]
        for places in groups(contents, sizes, total=REQUEST_BYTES, max_items=self._batch_size):
            batch = [contents[place] for place in places]
            for place, score in zip(places, in_parts(batch, partial(self._ask, asked), partial(self._alone, asked))):
                scores[place] = score
        return scores

    def close(self) -> None:
        """Close the connections."""
        self._server.close()

    def _content(self, document: Document) -> _Content | None:
        """Return what is sent of a document; None where there is nothing to judge."""
        text = well_formed(document.text or "")[: self._max_chars].strip()
        image = self._image_url(document) if self._has_images else ""
        return _Content(text, image) if text or image else None

    def _image_url(self, document: Document) -> str:
        """Return the image of a document. It is "" where there is none, or none that can be read here."""
        from vlmsearch.media.images import data_url

        if document.image is None or isinstance(document.image, RemoteImage):
            return ""
        try:
            return data_url(document.image, edge=self._image_size)
        except InvalidInputError:  # its file is gone: the text says what it says
            return ""

    def _ask(self, query: str, contents: Sequence[_Content]) -> list[float | None]:
        """Return the scores of the documents of one request; RefusedError where the server refuses it."""
        size = sum(content.size for content in contents)
        answer = self._server.post("rerank", self._body(query, contents), max_bytes=_ANSWER_BYTES + 8 * size)
        try:
            scores = _scores_of(answer, len(contents))
            self._has_answered = True
            self._has_seen = self._has_seen or any(content.image for content in contents)
            return [_sigmoid(score) if self._is_logit else _checked(score) for score in scores]
        except ValueError as exc:
            raise self._server.other(str(exc), str(answer)) from exc

    def _body(self, query: str, contents: Sequence[_Content]) -> dict[str, object]:
        texts = [content.text for content in contents]
        if self._form == "tei":
            return {"query": query, "texts": texts, "raw_scores": self._is_logit, "truncate": True}
        documents: Sequence[object] = [content.parts() for content in contents] if self._has_images else texts
        named = {"model": self._model} if self._model else {}
        return {**named, "query": query, "documents": documents, "top_n": len(contents)}

    def _alone(self, query: str, content: _Content, refused: RefusedError) -> float | None:
        """Return the score of a document that was refused by itself: that of its beginning or its text, or None.

        ConfigError where the server refuses every request, or every picture.
        """
        if refused.is_too_long:
            if len(content.text) > FITTING_CHARS:
                cut = _Content(content.text[: half_of(content.text)], content.image)
                return in_parts([cut], partial(self._ask, query), partial(self._alone, query))[0]
            if not content.image:
                message = f"{self.name} finds the query too long ({refused.message})"
                raise InvalidInputError("too_long", message) from refused
        elif not self._has_answered:
            try:
                self._ask(query, [_Content("a", "")])
            except RefusedError:
                raise refused.error from refused
        if content.image:
            self._check_sight(query)
            if content.text:
                return in_parts([_Content(content.text, "")], partial(self._ask, query), partial(self._alone, query))[0]
        return None

    def _check_sight(self, query: str) -> None:
        """Raise ConfigError where the server refuses pictures as such: a plain one tells it from a bad document."""
        if self._has_seen:
            return
        try:
            self._ask(query, [_Content("", plain_image())])
        except RefusedError as exc:
            message = f"{self.name} refuses pictures ({exc.message}): leave ?images=true out, and it judges texts"
            raise ConfigError(message) from exc


class _Content:
    """The text and the image of a document, as they are sent; "" for none."""

    def __init__(self, text: str, image: str) -> None:
        self.text, self.image = text, image
        self.size = len(text.encode()) + len(image)

    def parts(self) -> dict[str, object]:
        """Return it in vLLM's form."""
        image = [{"type": "image_url", "image_url": {"url": self.image}}] if self.image else []
        text = [{"type": "text", "text": self.text}] if self.text else []
        return {"content": [*image, *text]}


def _scores_of(answer: Any, count: int) -> list[float]:
    """Return the scores of an answer in the order of the documents. ValueError where it is no such answer."""
    given = in_order(answer, "results", ["relevance_score", "score"], count, "scores", is_sorted=True)
    scores = [score for score in map(finite_number, given) if score is not None]
    if len(scores) < len(given):
        raise ValueError("a list of scores that are finite numbers")
    return scores


def _checked(score: float) -> float:
    if not -_ROUNDING <= score <= 1 + _ROUNDING:
        raise ValueError(f"a list of probabilities ({score:g} is none; ?scores=logit takes logits)")
    return min(max(score, 0.0), 1.0)


def _sigmoid(logit: float) -> float:
    return 1 / (1 + math.exp(-max(min(logit, 500.0), -500.0)))
