"""OpenAI's interface: embeddings of the indexes' encoders, and answers from the indexes as chat completions.

The forms are those of OpenAI's API reference, with infinity's ``modality`` for images
(https://github.com/michaelfeil/infinity); what is not known is ignored, as OpenAI's clients send more with each release.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Literal, Union

from fastapi import APIRouter, Body, Request
from fastapi.responses import Response
from pydantic import BaseModel, ConfigDict, Field

from vlmsearch.encoders.base import Encoder, TokenizesTexts, prepared_image
from vlmsearch.errors import ConfigError, InvalidInputError, apply_to_each
from vlmsearch.models.inputs import cut_vectors
from vlmsearch.server.caller import Caller
from vlmsearch.server.dependencies import CallerHere, ServiceHere
from vlmsearch.server.errors import ApiError
from vlmsearch.server.forms import image_bytes
from vlmsearch.server.service import OpenIndex, Service
from vlmsearch.types import ImageLimits, Space, Vectors

router = APIRouter(prefix="/v1", tags=["openai"])
MOST_INPUTS = 2048
"""As OpenAI has it."""


class OpenForm(BaseModel):
    """A request in the form of another API: what we do not know is left out, as its clients send more than we read."""

    model_config = ConfigDict(extra="ignore", strict=True, allow_inf_nan=False)


class EmbeddingsForm(OpenForm):
    """What to encode."""

    input: Union[
        str,
        Annotated[list[str], Field(min_length=1, max_length=MOST_INPUTS)],
        Annotated[list[int], Field(min_length=1)],
        Annotated[list[Annotated[list[int], Field(min_length=1)]], Field(min_length=1, max_length=MOST_INPUTS)],
    ] = Field(description="A string, several, or token ids of the model's own tokenizer; images as data URLs.")
    model: str = Field(
        description="`INDEX/SPACE`, a space, or the name of an encoder's model: GET /v1/models lists them."
    )
    encoding_format: Literal["float", "base64"] = "float"
    dimensions: int | None = Field(None, ge=1, description="A length that the model was trained to be cut to.")
    modality: Literal["text", "image"] = "text"
    input_type: Literal["query", "document"] = Field("document", description="What the texts are encoded as.")


class EmbeddingAnswer(BaseModel):
    """One vector."""

    object: Literal["embedding"]
    index: int
    embedding: Union[list[float], str]


class UsageAnswer(BaseModel):
    """What was read; 0 where the encoder does not count tokens, and for images."""

    prompt_tokens: int
    total_tokens: int


class EmbeddingsAnswer(BaseModel):
    """The vectors, in the order of the inputs."""

    object: Literal["list"]
    data: list[EmbeddingAnswer]
    model: str
    usage: UsageAnswer


@dataclass(frozen=True)
class SpaceModel:
    """A space of an index as a model that makes embeddings.

    Attributes:
        index: The index.
        space: The space.
        source: The name of the encoder's model for it, where it has one.
    """

    index: OpenIndex
    space: Space
    source: str | None

    @property
    def id(self) -> str:
        """Return its name, of which there is one."""
        return f"{self.index.name}/{self.space.name}"

    def is_called(self, name: str) -> bool:
        """Return whether a name is its own, or one that it may share."""
        return name in (self.id, self.space.name, self.source)


def _space_models(service: Service, caller: Caller) -> Iterator[SpaceModel]:
    for index in service.indexes.values():
        if caller.sees(index.name):
            encoder = index.pipeline.encoder
            # a bundle has one part of the fingerprint, NAME:DIGEST, and one space
            names = [part.partition(":")[0] for part in encoder.fingerprint.split("+")]
            sources = names if len(names) == len(encoder.spaces) else [None] * len(encoder.spaces)
            yield from (SpaceModel(index, *each) for each in zip(encoder.spaces, sources))


def _find_space(service: Service, caller: Caller, name: str) -> SpaceModel:
    """The space of that name; where indexes share its encoder, that of any of them."""
    models = list(_space_models(service, caller))
    found = [model for model in models if model.id == name] or [model for model in models if model.is_called(name)]
    if not found:
        raise _no_model(name)
    if len({model.index.pipeline.encoder.fingerprint for model in found}) > 1:
        full = ", ".join(model.id for model in found)
        raise ApiError(400, "invalid_request", f"{name!r} is a model of several indexes: write {full}", param="model")
    return found[0]


def _no_model(name: str) -> ApiError:
    message = f"no model {name!r} for you: GET /v1/models lists them"
    return ApiError(404, "not_found", message, code="model_not_found", param="model")


# ---------------------------------------------------------------------------------------------------------- models


class ModelAnswer(BaseModel):
    """A model: a space of an index, for embeddings, or an index, for chat completions."""

    id: str
    object: Literal["model"] = "model"
    created: int = 0
    owned_by: Literal["vlmsearch"] = "vlmsearch"


class ModelsAnswer(BaseModel):
    """The models that the caller may use."""

    object: Literal["list"] = "list"
    data: list[ModelAnswer]


def _model_ids(service: Service, caller: Caller) -> list[str]:
    chats = [index.name for index in service.indexes.values() if caller.sees(index.name) and index.pipeline.generator]
    return [*(model.id for model in _space_models(service, caller)), *chats]


@router.get("/models")
async def models(service: ServiceHere, caller: CallerHere) -> ModelsAnswer:
    """List the models: `INDEX/SPACE` for embeddings, `INDEX` for chat completions."""
    return ModelsAnswer(data=[ModelAnswer(id=id) for id in _model_ids(service, caller)])


@router.get("/models/{model:path}")
async def model(model: str, service: ServiceHere, caller: CallerHere) -> ModelAnswer:
    """Describe one model."""
    if model not in _model_ids(service, caller):
        raise _no_model(model)
    return ModelAnswer(id=model)


# ------------------------------------------------------------------------------------------------------ embeddings


@router.post("/embeddings", response_model=EmbeddingsAnswer)
async def embeddings(
    form: Annotated[EmbeddingsForm, Body()], request: Request, service: ServiceHere, caller: CallerHere
) -> Response:
    """Encode texts, or images as data URLs with `modality: image`; `dimensions` cuts Matryoshka models alone."""
    found = _find_space(service, caller, form.model)
    request.state.index = found.index.name
    data = await service.call(_embed, form, found, service.settings.image_limits)
    return Response(data, media_type="application/json")


def _embed(form: EmbeddingsForm, model: SpaceModel, limits: ImageLimits) -> bytes:
    """The answer as JSON; in a thread, as it may have a million numbers."""
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
    """The length of the vectors; ConfigError for one that the model was not trained to be cut to."""
    shorter = encoder.shorter.get(space.name, ()) if isinstance(encoder, TokenizesTexts) else ()
    if wanted is None or wanted == space.dim or wanted in shorter:
        return wanted or space.dim
    lengths = ", ".join(map(str, (space.dim, *shorter)))
    raise ConfigError(
        f"`dimensions` of {space.name} is one of {lengths}, not {wanted}: its model was trained for no other"
    )


def _written(row: Vectors, form: Literal["float", "base64"]) -> list[float] | str:
    if form == "base64":
        return base64.b64encode(row.astype("<f4").tobytes()).decode()
    values: list[float] = row.tolist()
    return values


def _embed_images(given: object, encoder: Encoder, space: Space, limits: ImageLimits) -> Vectors:
    """The vectors of images that are written as data URLs."""
    urls = [given] if isinstance(given, str) else given

    def prepare(url: object) -> object:
        if not isinstance(url, str) or not url.startswith("data:"):
            raise InvalidInputError(
                "unsupported", "an image is a data URL, data:image/...;base64,...: nothing is fetched"
            )
        return prepared_image(encoder, image_bytes(url), limits)

    return encoder.encode_images(apply_to_each(prepare, urls))[space.name]
