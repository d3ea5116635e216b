"""OpenAI's interface: embeddings of the indexes' encoders, and answers from the indexes as chat completions.

The forms are those of OpenAI's API reference, with infinity's ``modality`` for images
(https://github.com/michaelfeil/infinity).
"""

from __future__ import annotations

import base64
import json
import re
import time
import uuid
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal, TypeAlias, Union
from urllib.parse import urlencode

from fastapi import APIRouter, Depends, Request
from pydantic import ConfigDict, Field
from starlette.responses import Response

from vlmsearch.answers.prompts import default_options
from vlmsearch.async_pipeline import AsyncAnswerStream
from vlmsearch.encoders.base import Encoder, TokenizesTexts, prepared_image
from vlmsearch.encoders.batching import BatchingEncoder
from vlmsearch.errors import ConfigError, InvalidInputError, apply_to_each
from vlmsearch.generators.base import CountsTokens, GenerationOptions, Generator
from vlmsearch.media.limits import ImageLimits
from vlmsearch.models.inputs import cut_vectors
from vlmsearch.schema import EncodedImage, Entries, Items, Name, ObjectForm, Positive, Where, Whole
from vlmsearch.search.arrange import row_of
from vlmsearch.search.options import MAX_PAGE
from vlmsearch.server.bodies import form_docs, form_of
from vlmsearch.server.caller import Caller
from vlmsearch.server.dependencies import CallerHere, ServiceHere
from vlmsearch.server.errors import ApiError, api_error, error_of, json_line, request_id
from vlmsearch.server.events import EventStream
from vlmsearch.server.forms import (
    LongText,
    Stops,
    TextOrUrl,
    image_bytes,
)
from vlmsearch.server.service import OpenIndex, Service
from vlmsearch.types import Answer, AnswerParts, ImageSource, Match, Role, Space, Vectors

router = APIRouter(prefix="/v1", tags=["openai"])
MAX_INPUTS = 2048
"""Inputs of a request, as at OpenAI."""
MAX_TOKENS = 8192
"""Tokens of an input, as at OpenAI."""


Tokens: TypeAlias = Annotated[list[Whole], Field(min_length=1), Items(MAX_TOKENS)]


class OpenForm(ObjectForm):
    """A request in the form of another API. Unknown keys are ignored: new clients send more of them."""

    model_config = ConfigDict(extra="ignore")


class EmbeddingsForm(OpenForm):
    """Texts or images to encode."""

    input: Union[
        TextOrUrl,
        Annotated[list[TextOrUrl], Field(min_length=1), Items(MAX_INPUTS)],
        Tokens,
        Annotated[list[Tokens], Field(min_length=1), Items(MAX_INPUTS)],
    ] = Field(description="A string, several, or token ids of the model's own tokenizer; images as data URLs.")
    model: Name = Field(
        description="`INDEX/SPACE`, a space, or the name of an encoder's model: GET /v1/models lists them."
    )
    encoding_format: Literal["float", "base64"] = "float"
    dimensions: Positive | None = Field(None, description="A length that the model was trained to be cut to.")
    modality: Literal["text", "image"] = "text"
    input_type: Literal["query", "document"] = Field("document", description="What the texts are encoded as.")


@dataclass(frozen=True)
class SpaceModel:
    """A space of an index as a model that makes embeddings.

    Attributes:
        index: Index.
        space: Space.
        source: Name of the encoder's model for it; "" without a name.
    """

    index: OpenIndex
    space: Space
    source: str

    @property
    def id(self) -> str:
        """Return its unique name."""
        return f"{self.index.name}/{self.space.name}"

    def is_called(self, name: str) -> bool:
        """Check whether a name, which others may share, is one of its names."""
        return name != "" and name in (self.space.name, self.source)


def _space_models(service: Service, caller: Caller) -> Iterator[SpaceModel]:
    for index in service.seen_by(caller):
        encoder = index.pipeline.encoder
        # a bundle has one part of the fingerprint, NAME:DIGEST, and one space
        names = [part.partition(":")[0] for part in encoder.fingerprint.split("+")]
        sources = names if len(names) == len(encoder.spaces) else [""] * len(encoder.spaces)
        yield from (SpaceModel(index, *space_source) for space_source in zip(encoder.spaces, sources))


def _find_space(service: Service, caller: Caller, name: str) -> SpaceModel:
    """Return the space of that name. If indexes share its encoder, it is of any of them."""
    models = list(_space_models(service, caller))
    matches = [model for model in models if model.id == name] or [model for model in models if model.is_called(name)]
    if not matches:
        raise _no_model(name)
    if len({model.index.pipeline.encoder.fingerprint for model in matches}) > 1:
        full = ", ".join(model.id for model in matches)
        raise ApiError(400, "invalid_request", f"{name!r} is a model of several indexes: write {full}", param="model")
    return matches[0]


def _no_model(name: str) -> ApiError:
    message = f"no model {name!r:.60} for you: GET /v1/models lists them"
    return ApiError(404, "not_found", message, code="model_not_found", param="model")


# ---------------------------------------------------------------------------------------------------------- models


def _model_ids(service: Service, caller: Caller) -> list[str]:
    chats = [index.name for index in service.seen_by(caller) if index.pipeline.generator]
    return [*(model.id for model in _space_models(service, caller)), *chats]


@router.get("/models")
async def models(service: ServiceHere, caller: CallerHere) -> dict[str, Any]:
    """List the models: `INDEX/SPACE` for embeddings, `INDEX` for chat completions."""
    return {"object": "list", "data": [_model(id) for id in _model_ids(service, caller)]}


@router.get("/models/{model:path}")
async def model(model: str, service: ServiceHere, caller: CallerHere) -> dict[str, Any]:
    """Describe one model."""
    if model not in _model_ids(service, caller):
        raise _no_model(model)
    return _model(model)


def _model(id: str) -> dict[str, Any]:
    return {"id": id, "object": "model", "created": 0, "owned_by": "vlmsearch"}


# ------------------------------------------------------------------------------------------------------ embeddings


@router.post("/embeddings", openapi_extra=form_docs(EmbeddingsForm))
async def embeddings(
    form: Annotated[EmbeddingsForm, Depends(form_of(EmbeddingsForm))],
    request: Request,
    service: ServiceHere,
    caller: CallerHere,
) -> Response:
    """Encode texts, or images as data URLs with `modality: image`; `dimensions` cuts Matryoshka models alone."""
    model = _find_space(service, caller, form.model)
    request.state.index = model.index.name
    data = await service.call(_embed, form, model, service.settings.image_limits)
    return Response(data, media_type="application/json")


def _embed(form: EmbeddingsForm, model: SpaceModel, limits: ImageLimits) -> bytes:
    """Return the answer as JSON, which may have a million numbers."""
    encoder, space = model.index.pipeline.encoder, model.space
    length = _check_length(encoder, space, form.dimensions)
    if form.modality not in space.modalities:
        raise ConfigError(f"{model.id} encodes {' and '.join(sorted(space.modalities))}, not {form.modality}")
    if form.modality == "image":
        vectors, tokens = _embed_images(form.input, encoder, space, limits), 0
    else:
        vectors, tokens = _embed_texts(form.input, encoder, space, form.input_type)
    answer = {
        "object": "list",
        "data": [
            {"object": "embedding", "index": number, "embedding": _written(row, form.encoding_format)}
            for number, row in enumerate(cut_vectors(vectors, length))
        ],
        "model": form.model,
        "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
    }
    return json.dumps(answer, separators=(",", ":")).encode()


def _check_length(encoder: Encoder, space: Space, wanted: int | None) -> int:
    """Return the length of the vectors.

    ConfigError for a length that the model was not trained for.
    """
    tokenizer = _tokenizer_of(encoder)
    shorter = tokenizer.shorter.get(space.name, ()) if tokenizer else ()
    if wanted is None or wanted == space.dim or wanted in shorter:
        return wanted or space.dim
    lengths = ", ".join(map(str, (space.dim, *shorter)))
    raise ConfigError(f"`dimensions` of {space.name}, by what its model was trained for: {lengths}; not {wanted}")


def _written(row: Vectors, form: Literal["float", "base64"]) -> list[float] | str:
    if form == "base64":
        return base64.b64encode(row.astype("<f4").tobytes()).decode()
    values: list[float] = row.tolist()
    return values


def _tokenizer_of(encoder: Encoder) -> TokenizesTexts | None:
    beneath = encoder.encoder if isinstance(encoder, BatchingEncoder) else encoder
    return beneath if isinstance(beneath, TokenizesTexts) else None


def _embed_images(given: object, encoder: Encoder, space: Space, limits: ImageLimits) -> Vectors:
    """Return the vectors of images in data URLs."""

    def prepare(url: object) -> ImageSource:
        if not isinstance(url, str) or not url.startswith("data:"):
            raise InvalidInputError("unsupported", "an image is sent as a data URL, data:image/...;base64,...")
        return prepared_image(encoder, image_bytes(url), limits)

    images = apply_to_each(prepare, given if isinstance(given, list) else [given])
    return encoder.encode_images(images)[space.name]


def _embed_texts(given: Any, encoder: Encoder, space: Space, role: Role) -> tuple[Vectors, int]:
    """Return the vectors of texts or token ids, and the number of tokens."""
    items = given if isinstance(given, list) and not isinstance(given[0], int) else [given]
    tokenizer = _tokenizer_of(encoder)
    if isinstance(items[0], str):
        tokens = sum(tokenizer.count_tokens(items, space=space.name, role=role)) if tokenizer else 0
    elif tokenizer is None:
        raise ConfigError(f"{space.name} takes texts, not token ids: the tokenizer of its model is not on this server")
    else:
        tokens = sum(map(len, items))
        items = tokenizer.decode_tokens(items, space=space.name)
    return encoder.encode_texts(items, role=role)[space.name], tokens


# ------------------------------------------------------------------------------------------------ chat completions


class UrlForm(OpenForm):
    """The URL of an image."""

    url: EncodedImage = Field(description="A data URL.")


class PartForm(OpenForm):
    """A part of a message."""

    type: Name
    text: LongText | None = None
    image_url: UrlForm | None = None


class MessageForm(OpenForm):
    """A message of a conversation."""

    role: Name
    content: Union[LongText, Annotated[list[PartForm], Items(1000)], None] = None


class TypeForm(OpenForm):
    """The format of an answer."""

    type: Name


class StreamForm(OpenForm):
    """The options of a stream."""

    include_usage: bool | None = None


class ChatForm(OpenForm):
    """A conversation. Its last message by a user is the question; earlier messages are not read."""

    model: Name = Field(description="The name of an index.")
    messages: Annotated[list[MessageForm], Items(10_000)] = Field(min_length=1)
    stream: bool | None = None
    stream_options: StreamForm | None = None
    max_tokens: Positive | None = None
    max_completion_tokens: Positive | None = None
    temperature: float | None = Field(None, ge=0)
    top_p: float | None = Field(None, gt=0, le=1)
    stop: Union[Name, Stops, None] = None
    seed: Whole | None = None
    n: Whole | None = None
    logprobs: bool | None = None
    response_format: TypeForm | None = None
    tool_choice: Union[Name, Annotated[dict[Name, Any], Entries(100)], None] = None
    limit: Whole = Field(5, ge=1, le=MAX_PAGE, description="The most sources; not of OpenAI's interface.")
    where: Where = None


_CHUNKS: dict[int | str, dict[str, Any]] = {
    200: {
        "content": {"text/event-stream": {"schema": {"type": "string"}}},
        "description": "The answer; with `stream` in chunks, of which the last has the citations and the sources.",
    }
}


@router.post("/chat/completions", responses=_CHUNKS, openapi_extra=form_docs(ChatForm))
async def chat(
    form: Annotated[ChatForm, Depends(form_of(ChatForm))], request: Request, service: ServiceHere, caller: CallerHere
) -> Response:
    """Answer the last question of a conversation from an index, with citations."""
    index = next((index for index in service.seen_by(caller) if index.name == form.model), None)
    if index is None:
        raise _no_model(form.model)
    request.state.index = index.name
    generator = index.pipeline.generator
    if generator is None:
        raise ApiError(501, "not_available", f"the index {index.name!r} answers no questions: it has no generator")
    question, image = _question(form)
    options = _options(form, generator)
    parts = await service.threads.run(
        lambda: index.pipeline.ask(
            question, image=image, limit=form.limit, where=form.where, options=options, stream=True
        ),
        unwanted=AnswerParts.close,
    )
    reply = _Reply(form, index, parts, f"{request.base_url}api/v1/indexes/{index.name}")
    if form.stream:
        return EventStream(reply.chunks(service, request_id(request)))
    data = await service.call(lambda: json_line(reply.whole(parts.answer())).encode())
    return Response(data, media_type="application/json")


def _question(form: ChatForm) -> tuple[str, bytes | None]:
    """Return the text and the image of the last message of a user."""
    refused = {
        "n": form.n not in (None, 1),
        "logprobs": bool(form.logprobs),
        "response_format": form.response_format is not None and form.response_format.type != "text",
        "tool_choice": form.tool_choice not in (None, "none", "auto"),
    }
    for name, is_refused in refused.items():
        if is_refused:
            raise ApiError(400, "invalid_request", f"`{name}`: an answer from an index is one text", param=name)
    content = next((message.content for message in reversed(form.messages) if message.role == "user"), None)
    if content is None:
        raise ApiError(
            400, "invalid_request", "the last message of a `user` is the question: there is none", param="messages"
        )
    if isinstance(content, str):
        return content, None
    texts = [part.text for part in content if part.type == "text" and part.text]
    images = [part.image_url.url for part in content if part.image_url is not None]
    if len(images) > 1 or any(not url.startswith("data:") for url in images):
        raise ApiError(400, "invalid_request", "a question has at most one image, as a data URL", param="messages")
    return "\n".join(texts), image_bytes(images[0]) if images else None


def _options(form: ChatForm, generator: Generator) -> GenerationOptions | None:
    given: dict[str, Any] = {
        "max_tokens": form.max_completion_tokens or form.max_tokens,
        "temperature": form.temperature,
        "top_p": form.top_p,
        "stop": (form.stop,) if isinstance(form.stop, str) else tuple(form.stop or ()) or None,
        "seed": form.seed,
    }
    given = {name: value for name, value in given.items() if value is not None}
    return replace(default_options(generator), **given) if given else None


def _facts(answer: Answer) -> dict[str, object]:
    """Return what an answer here has beside that of OpenAI."""
    return {"matches": answer.matches, "is_unsure": answer.is_unsure, "read_as": answer.read_as, "read": answer.read}


class _Reply:
    """An answer in OpenAI's forms."""

    def __init__(self, form: ChatForm, index: OpenIndex, parts: AnswerParts, where: str) -> None:
        self._form = form
        self._generator = index.pipeline.generator
        self._parts = parts
        self._where = where
        self._id = f"chatcmpl-{uuid.uuid4().hex}"
        self._created = int(time.time())
        self._counts = bool(form.stream_options and form.stream_options.include_usage)

    def whole(self, answer: Answer) -> dict[str, object]:
        """Return the whole answer."""
        message = {
            "role": "assistant",
            "content": answer.text,
            "refusal": None,
            "annotations": self._annotations(answer),
        }
        choice = {"index": 0, "message": message, "finish_reason": "stop", "logprobs": None}
        return {
            **self._head("chat.completion"),
            "choices": [choice],
            "usage": self._usage(answer),
            **_facts(answer),
        }

    async def chunks(self, service: Service, request: str | None) -> AsyncIterator[bytes]:
        """Yield the answer as it is made. A client that goes stops the generator."""
        async with AsyncAnswerStream(self._parts, service.threads) as stream:
            try:
                yield self._chunk({"role": "assistant", "content": ""})
                async for part in stream:
                    if isinstance(part, str):
                        yield self._chunk({"content": part})
                answer = await stream.answer()
                yield self._chunk({"annotations": self._annotations(answer)}, "stop", **_facts(answer))
                if self._counts:
                    usage = await service.call(self._usage, answer)
                    yield _data({**self._head("chat.completion.chunk"), "choices": [], "usage": usage})
                yield b"data: [DONE]\n\n"
            except Exception as exc:  # noqa: BLE001 - the answer has begun: its end says what went wrong
                yield _data(error_of(api_error(exc), request))

    def _head(self, kind: str) -> dict[str, object]:
        return {"id": self._id, "object": kind, "created": self._created, "model": self._form.model}

    def _chunk(self, delta: Mapping[str, object], finish: str | None = None, **more: object) -> bytes:
        choice = {"index": 0, "delta": delta, "finish_reason": finish, "logprobs": None}
        usage = {"usage": None} if self._counts else {}
        return _data({**self._head("chat.completion.chunk"), "choices": [choice], **usage, **more})

    def _annotations(self, answer: Answer) -> list[dict[str, object]]:
        """Return each place of the text that cites a source: `CitationChecker` writes them as ``[1, 3]``."""
        cited = {citation.number: answer.matches[citation.number - 1] for citation in answer.citations}
        return [
            {
                "type": "url_citation",
                "url_citation": {
                    "start_index": place.start(),
                    "end_index": place.end(),
                    "title": cited[number].document.id,
                    "url": self._address(cited[number]),
                },
            }
            for place in re.finditer(r"\[(\d+(?:, \d+)*)\]", answer.text)
            for number in map(int, place[1].split(", "))
            if number in cited
        ]

    def _address(self, match: Match) -> str:
        if match.document.image is not None:
            return f"{self._where}/image?{urlencode({'id': match.document.id})}"
        return f"{self._where}/documents?{urlencode({'id': row_of(match)})}"

    def _usage(self, answer: Answer) -> dict[str, int]:
        prompt, completion = answer.prompt_tokens or 0, 0
        if isinstance(self._generator, CountsTokens):
            # what a template adds to a prompt is not part of an answer
            completion = self._generator.count_tokens(answer.text) - self._generator.count_tokens("")
        return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}


def _data(value: object) -> bytes:
    return f"data: {json_line(value)}\n\n".encode()
