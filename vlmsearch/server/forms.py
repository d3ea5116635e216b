"""Requests and answers as JSON has them. What is answered is made by `vlmsearch.wire`; the forms here document it."""

from __future__ import annotations

import base64
import binascii
from typing import Annotated, TypeAlias, Union

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from vlmsearch.errors import InvalidInputError
from vlmsearch.search.query import LONGEST_PAGE, RERANK_FIRST, RERANK_SECONDS

Id: TypeAlias = Annotated[str, Field(min_length=1, max_length=1024, description="The id of a document.")]
Share: TypeAlias = Annotated[float, Field(ge=0, le=1)]
Scalars: TypeAlias = dict[str, Union[bool, int, float, str]]
Where: TypeAlias = Annotated[
    Union[dict[str, JsonValue], None],
    Field(description='A filter on metadata, such as {"year": {"$gte": 2020}}.'),
]
EncodedImage: TypeAlias = Annotated[str, Field(min_length=1, description="An image in Base64, or as a data URL.")]


class Form(BaseModel):
    """What a request holds: nothing that is not asked for, and nothing of another type."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)


class ImageForm(Form):
    """An image where a text could stand."""

    image: EncodedImage


class QueryForm(Form):
    """What is looked for: a text, an image, documents of the index, or several of these."""

    text: str | None = Field(None, description='What to look for; `-word` and `-"some words"` leave out what they say.')
    image: EncodedImage | None = None
    like: list[Id] = Field([], description="Ids of documents whose vectors to look for.")
    without: Union[str, ImageForm, list[Id], None] = Field(
        None, description="What the matches must not be: a text, an image, or ids of documents."
    )


class RankingForm(Form):
    """What both a search and an explanation of it take."""

    where: Where = None
    limit: int = Field(10, ge=1, le=LONGEST_PAGE, description="The most matches.")
    min_score: Share | None = Field(None, description="The lowest score that is shown; by default that of the index.")
    weights: dict[str, Annotated[float, Field(ge=0)]] | None = Field(
        None, description="How much some legs count, such as `words` or `clip/image`."
    )
    rerank: bool = Field(False, description="Whether the server's re-ranker reads the first matches.")
    rerank_first: int = Field(RERANK_FIRST, ge=1, le=LONGEST_PAGE)
    rerank_seconds: float = Field(RERANK_SECONDS, gt=0)


class SearchOptionsForm(RankingForm):
    """How the matches are chosen and arranged."""

    sort: str = Field("relevance", min_length=1, description="`relevance`, a key of the metadata, or `-KEY`.")
    diversity: Share = 0.0
    count: bool = Field(False, description="Whether to count the relevant documents: `total`.")
    facets: list[str] = Field([], description="Keys of the metadata whose values to count.")


class SearchForm(QueryForm, SearchOptionsForm):
    """A search, as `Pipeline.search` takes it."""

    offset: int = Field(0, ge=0, lt=LONGEST_PAGE, description="How many of the best to pass over.")
    cursor: str | None = Field(None, description="The `cursor` of the page before.")


class LegAnswer(BaseModel):
    """What one field, or the ranking of words, says of a match."""

    rank: int | None
    score: float
    evidence: float


class DocumentAnswer(BaseModel):
    """A document; `image` is where the server has its file."""

    id: str
    text: str | None
    image: str | None
    metadata: Scalars


class MatchAnswer(DocumentAnswer):
    """A document that was found, and why."""

    score: float
    legs: dict[str, LegAnswer]


class CountAnswer(BaseModel):
    """How many of the relevant documents have a value."""

    value: Union[bool, int, float, str]
    count: int


class MatchesAnswer(BaseModel):
    """The matches of a search, best first."""

    matches: list[MatchAnswer]
    cursor: str | None
    threshold: float
    total: int | None = None
    facets: dict[str, list[CountAnswer]] | None = None


class SpaceAnswer(BaseModel):
    """An embedding space."""

    name: str
    dim: int
    modalities: list[str]


class RightsAnswer(BaseModel):
    """What the caller can do with an index."""

    write: bool
    admin: bool
    ask: bool
    rerank: bool
    images: bool = Field(description="Whether it can be searched by an image.")
    words: bool = Field(description="Whether it ranks documents by words, too.")


class IndexAnswer(BaseModel):
    """An index of the service."""

    name: str
    documents: int
    spaces: list[SpaceAnswer]
    can: RightsAnswer


class IndexesAnswer(BaseModel):
    """The indexes that the caller may see."""

    indexes: list[IndexAnswer]


class StatusAnswer(BaseModel):
    """How the service is."""

    status: str


class ErrorDetail(BaseModel):
    """What went wrong."""

    type: str
    message: str
    code: str | None
    param: str | None
    request_id: str | None


class ErrorAnswer(BaseModel):
    """The form of every error."""

    error: ErrorDetail


def image_bytes(encoded: str) -> bytes:
    """Return the bytes of an image in Base64 or of a data URL.

    Raises:
        InvalidInputError: It is neither.
    """
    start, comma, data = encoded.partition(",")
    if comma and not (start.startswith("data:") and start.endswith(";base64")):
        raise InvalidInputError("unsupported", "an image is sent in Base64, or as data:image/...;base64,...")
    try:
        return base64.b64decode("".join((data if comma else start).split()), validate=True)
    except (binascii.Error, ValueError) as exc:
        raise InvalidInputError("corrupt", f"the image is not in Base64: {exc}") from exc
