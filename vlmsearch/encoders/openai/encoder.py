"""Encoding on a server with OpenAI's interface, or with one that is like it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property, partial
from typing import TypeAlias, Union
from urllib.parse import quote, urlencode

import numpy as np
from numpy.typing import NDArray

from vlmsearch._util.arguments import check_counts
from vlmsearch._util.batching import groups
from vlmsearch._util.text import utf8_bytes
from vlmsearch._util.threads import Workers
from vlmsearch.encoders.base import BatchSizes, Encoder
from vlmsearch.encoders.openai.forms import REQUEST_FORMS, Form, Inputs, vectors_of
from vlmsearch.errors import (
    BackendError,
    ConfigError,
    InvalidBatchError,
    InvalidInputError,
    RejectCode,
    apply_to_each,
)
from vlmsearch.media.limits import DEFAULT_LIMITS, ImageLimits
from vlmsearch.models.inputs import cut_vectors
from vlmsearch.openai_api.api import (
    FITTING_CHARS,
    REQUEST_BYTES,
    JsonApi,
    RefusedError,
    half_of,
    in_parts,
    plain_image,
    warn_cut,
)
from vlmsearch.openai_api.http import DEFAULT_OPTIONS, HttpOptions
from vlmsearch.types import ImageSource, Modality, Role, Space, Vectors

Outcome: TypeAlias = Union[NDArray[np.float32], InvalidInputError]
"""The vector of an input, or why it has none."""
_ANSWER_BYTES = 2**20
"""Maximum size of the answer for each input, and of what is around them: a vector of 4,096 numbers takes 90 kB."""


class OpenAIEncoder(Encoder):
    """``openai:http://host:8000/v1?model=NAME``: embeddings of OpenAI, vLLM, infinity, NIM, Jina or TEI.

    ``form`` is the form of the requests: ``openai``, or that of the server. With ``images``, images are encoded into
    the same space as texts, if the form has a place for them. They are sent as JPEG with ``image_size`` pixels on the
    longer side at most. ``dim`` is the length of the vectors. The server is asked to cut them (Matryoshka), and they
    are cut here if it does not. Without it, the server is asked for one vector before the first use.

    ``query_prompt`` and ``document_prompt`` are instructions of the model. They are put before the texts; in the form
    ``vllm`` they are the system message, for images as well. ``query_role`` and ``document_role`` are what the server
    is told about inputs: ``input_type``, the ``task`` of Jina, the ``prompt_name`` of TEI, the role of a message to
    vLLM. ``space`` is the name of the space, by default that of the model.

    A text with more than ``max_chars`` characters, or one that the server finds too long, is cut. Nothing says how
    many tokens the model reads, so indexing splits documents as for a model that reads little. ``batch_size`` is the
    maximum number of inputs of a request, and ``concurrency`` the number of requests at a time. The key comes from the
    environment variable OPENAI_API_KEY, unless `HttpOptions` name another.
    """

    def __init__(
        self,
        location: str,
        *,
        model: str = "",
        form: Form = "openai",
        images: bool = False,
        dim: int | None = None,
        query_prompt: str = "",
        document_prompt: str = "",
        query_role: str | None = None,
        document_role: str | None = None,
        space: str = "",
        max_chars: int = 8000,
        image_size: int = 1024,
        batch_size: int = 32,
        concurrency: int = 4,
        options: HttpOptions = DEFAULT_OPTIONS,
    ) -> None:
        request_form = REQUEST_FORMS[form]
        check_counts(
            max_chars=max_chars, image_size=image_size, batch_size=batch_size, concurrency=concurrency, dim=dim
        )
        if not model:
            raise ConfigError("openai: needs ?model=, the name by which the server knows its model")
        if images and not request_form.has_images:
            able = ", ".join(name for name, other in REQUEST_FORMS.items() if other.has_images)
            raise ConfigError(f"?form={form} has no place for images; these have one: {able}")
        if request_form.is_chat and "" in (query_role, document_role):
            raise ConfigError(f"a message of ?form={form} has a role: query_role and document_role are not empty")
        self._server = JsonApi("openai", location, options, hint=request_form.hint)
        self._model, self._form, self._request_form, self._has_images = model, form, request_form, images
        self._dim, self._sends_dim, self._refused_dim = dim, dim is not None, ""
        self._whole = 0
        self._prompts: dict[Role, str] = {"query": query_prompt, "document": document_prompt}
        self._roles: dict[Role, str] = {
            "query": request_form.roles[0] if query_role is None else query_role,
            "document": request_form.roles[1] if document_role is None else document_role,
        }
        self._space = space or _space_name(model)
        self._max_chars, self._image_size = max_chars, image_size
        self._together = 1 if request_form.is_chat else batch_size
        self.batch_sizes = BatchSizes(batch_size, batch_size, batch_size * max_chars, concurrency)
        self._accepted: set[tuple[Modality, Role]] = set()
        """Kinds of inputs that the server has encoded some of."""
        self._pool = Workers(concurrency, name="vlmsearch-openai", owner="the encoder")

    @cached_property
    def fingerprint(self) -> str:  # type: ignore[override]
        """Return what vectors depend on: the model, their length, and what the model is told about inputs."""
        told = {f"{role}_prompt": prompt for role, prompt in self._prompts.items()}
        told |= {f"{role}_role": name for role, name in self._roles.items()}
        given = {"dim": self._length, "images": "true" if self._has_images else "", **told}
        settings = urlencode({name: value for name, value in given.items() if value}, quote_via=quote)
        return f"openai:{quote(self._model)}?{settings}"

    @cached_property
    def spaces(self) -> tuple[Space, ...]:  # type: ignore[override]
        """Return the one space of the model."""
        modalities: frozenset[Modality] = frozenset({"text", "image"} if self._has_images else {"text"})
        return (Space(self._space, self._length, modalities),)

    @cached_property
    def _length(self) -> int:
        """Return the length of the vectors. The server is asked where the user does not say it."""
        try:
            return self._dim or self._send("text", "document", ["a"]).shape[1]
        except RefusedError as exc:
            raise exc.error from exc

    def encode_texts(self, texts: Sequence[str], *, role: Role = "document") -> dict[str, Vectors]:
        """Vectors of the space; see `Encoder.encode_texts`."""
        self._server.check_open()
        apply_to_each(utf8_bytes, texts)
        starts = [self._beginning(text, role) for text in texts]
        sizes = [len(start.encode()) for start in starts]
        planned = list(groups(starts, sizes, total=REQUEST_BYTES, max_items=self._together))
        return self._result(
            [row for rows in self._pool.results(planned, partial(self._encode_starts, role)) for row in rows]
        )

    def encode_images(self, images: Sequence[ImageSource]) -> dict[str, Vectors]:
        """Vectors of the space, where it has images; see `Encoder.encode_images`."""
        self._server.check_open()
        if not self._has_images:
            return {}
        starts = range(0, len(images), self._together)
        planned = [images[start : start + self._together] for start in starts]
        return self._result([row for rows in self._pool.results(planned, self._encode_batch) for row in rows])

    def prepare_image(self, image: ImageSource, limits: ImageLimits = DEFAULT_LIMITS) -> ImageSource:
        """Return the image in the size that is sent."""
        from vlmsearch.media.images import shrunk_image

        return shrunk_image(image, edge=self._image_size, limits=limits)

    def close(self) -> None:
        """Close the connections; requests that wait for their turn are given up."""
        self._pool.close()
        self._server.close()

    def _result(self, outcomes: Sequence[Outcome]) -> dict[str, Vectors]:
        [space] = self.spaces
        bad = {place: error for place, error in enumerate(outcomes) if isinstance(error, InvalidInputError)}
        rows = [row for row in outcomes if not isinstance(row, InvalidInputError)]
        vectors = {space.name: np.array(rows, np.float32).reshape(len(rows), space.dim)}
        if bad:
            raise InvalidBatchError(bad, vectors)
        return vectors

    def _beginning(self, text: str, role: Role) -> str:
        """Return what is sent of a text: as much of its beginning as may be."""
        if len(text) <= self._max_chars:
            return text
        end = text.rfind(" ", self._max_chars // 2, self._max_chars) + 1 or self._max_chars
        return self._cut_text(text, end, role)

    def _cut_text(self, text: str, end: int, role: Role) -> str:
        if role == "query":
            warn_cut(end)
        return text[:end]

    def _encode_starts(self, role: Role, starts: Sequence[str]) -> list[Outcome]:
        """Return the outcome for the beginning of each text. One that the model finds too long is cut again."""
        return in_parts(starts, partial(self._ask, "text", role), partial(self._encode_alone, role))

    def _encode_alone(self, role: Role, start: str, refused: RefusedError) -> Outcome:
        if not refused.is_too_long or len(start) <= FITTING_CHARS:
            return InvalidInputError("invalid", f"the server refuses a text ({refused.status}: {refused.message})")
        return self._encode_starts(role, [self._cut_text(start, half_of(start), role)])[0]

    def _encode_batch(self, images: Sequence[ImageSource]) -> list[Outcome]:
        """Return the outcome for each image."""
        from vlmsearch.media.images import data_url

        urls, outcomes = dict[int, str](), dict[int, Outcome]()
        for place, image in enumerate(images):
            try:
                urls[place] = data_url(image, edge=self._image_size)
            except InvalidInputError as exc:
                outcomes[place] = exc
        for places in groups(urls, map(len, urls.values()), total=REQUEST_BYTES):
            ask = partial(self._ask, "image", "document")
            outcomes |= zip(places, in_parts([urls[place] for place in places], ask, _refused_image))
        return [outcomes[place] for place in range(len(images))]

    def _ask(self, modality: Modality, role: Role, items: Sequence[str]) -> list[Outcome]:
        """Return the vectors of some inputs. RefusedError where it is one of them that the server refuses.

        If it has never taken an input of that kind, it is asked for a plain one, to tell that from a wrong option.
        """
        try:
            rows = self._send(modality, role, items)
        except RefusedError as exc:
            if (modality, role) not in self._accepted and not exc.is_too_long:
                self._check_plain(modality, role, exc)
            raise
        self._accepted.add((modality, role))
        return list(rows)

    def _check_plain(self, modality: Modality, role: Role, refused: RefusedError) -> None:
        try:
            self._send(modality, role, [plain_image() if modality == "image" else "a"])
        except RefusedError:
            raise refused.error from refused
        self._accepted.add((modality, role))

    def _send(self, modality: Modality, role: Role, items: Sequence[str]) -> Vectors:
        """Return the vectors of one request, of the length that was asked for."""
        sends_dim, prompt = self._sends_dim, self._prompts[role]
        if modality == "text" and prompt and not self._request_form.is_chat:
            items = [prompt + item for item in items]
        dim = self._dim if sends_dim else None
        inputs = Inputs(self._model, modality, items, self._roles[role], prompt, dim)
        limit = _ANSWER_BYTES * (1 + len(items))
        try:
            answer = self._server.post(self._request_form.path, self._request_form.body(inputs), max_bytes=limit)
        except RefusedError as exc:
            if not sends_dim or not any(word in exc.message.lower() for word in ("dimension", "matryoshka")):
                raise
            self._sends_dim, self._refused_dim = False, f": {exc.message}"  # it may have that length uncut
            return self._send(modality, role, items)
        try:
            vectors = vectors_of(answer, self._form, len(items))
        except ValueError as exc:
            raise self._server.other(str(exc), str(answer)) from exc
        return self._cut(vectors)

    def _cut(self, vectors: Vectors) -> Vectors:
        """Return vectors of the length that was asked for. An error where the model has no such vectors."""
        whole, dim = vectors.shape[1], self._dim
        if self._whole not in (0, whole):
            what = f"sent vectors of {self._whole} numbers before and sends {whole} now"
            raise BackendError(f"{self._server.name} {what}: it has another model by now")
        if dim is not None and (whole < dim or (whole > dim and not self._sends_dim)):
            what = f"{self._model} has vectors of {whole} numbers, not of {dim}"
            raise ConfigError(f"{self._server.name}: {what}; set ?dim={whole}, or leave it out{self._refused_dim}")
        self._whole = whole
        return vectors if dim is None else cut_vectors(vectors, dim)


def _refused_image(_: str, refused: RefusedError) -> Outcome:
    code: RejectCode = "too_large" if refused.is_too_long else "unsupported"
    return InvalidInputError(code, f"the server refuses an image ({refused.status}: {refused.message})")


def _space_name(model: str) -> str:
    """Return the name of a model as that of a space.

    >>> _space_name("Qwen/Qwen3-VL-Embedding-2B"), _space_name("default/minilm")
    ('qwen3-vl-embedding-2b', 'minilm')
    """
    name = model.rstrip("/").rpartition("/")[2].lower()
    return "".join(char if char.isascii() and char.isalnum() else "-" for char in name).strip("-") or "embedding"
