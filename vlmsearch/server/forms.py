"""The JSON of requests, which pydantic checks. `vlmsearch.wire` has the values that are answered."""

from __future__ import annotations

import base64
import binascii
from typing import Annotated, Any, Literal, TypeAlias, Union

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, RootModel, model_validator

from vlmsearch.answers.prompts import QUESTION_CHARS, TEMPLATE_CHARS
from vlmsearch.errors import InvalidInputError
from vlmsearch.index import SOURCES
from vlmsearch.indexing.items import SourceOptions
from vlmsearch.schema import Entries, Items, Key, Name, Positive, Where, Whole, whole, with_options
from vlmsearch.search.options import LONGEST_PAGE, ManyKeywords, RankingKeywords, SearchKeywords
from vlmsearch.types import MAX_ID_BYTES, MAX_KEY_CHARS, MAX_METADATA_BYTES, MAX_METADATA_KEYS

_MOST_DOCUMENTS = 10_000
_MOST_LIKE = 1000
_TEXT_CHARS = 16 * 2**20
"""Characters of a document's text."""
_IMAGE_CHARS = 2**30
"""Characters of an image: more than ``max_body`` usually lets pass. `ImageLimits` has the limits of images."""


Id: TypeAlias = Annotated[str, Field(min_length=1, max_length=MAX_ID_BYTES, description="The id of a document.")]
Text: TypeAlias = Annotated[str, Field(max_length=QUESTION_CHARS)]
LongText: TypeAlias = Annotated[str, Field(max_length=_TEXT_CHARS)]
Share: TypeAlias = Annotated[float, Field(ge=0, le=1)]
Scalar: TypeAlias = Union[bool, int, float, Annotated[str, Field(max_length=MAX_METADATA_BYTES)]]
Scalars: TypeAlias = Annotated[dict[Key, Scalar], Entries(MAX_METADATA_KEYS)]
_KEY: dict[str, Any] = {"pattern": r"^[^$\x00-\x1f\x7f-\x9f][^\x00-\x1f\x7f-\x9f]*$"}
_NEW_KEY: dict[str, Any] = {"minLength": 1, "maxLength": MAX_KEY_CHARS, **_KEY}
TextOrUrl: TypeAlias = Annotated[str, Field(min_length=1, max_length=_IMAGE_CHARS)]
NewKey: TypeAlias = Annotated[Key, Field(min_length=1, json_schema_extra=_KEY)]
EncodedImage: TypeAlias = Annotated[
    str, Field(min_length=1, max_length=_IMAGE_CHARS, description="An image in Base64, or as a data URL.")
]
Grades: TypeAlias = Annotated[dict[Id, Whole], Entries(_MOST_DOCUMENTS)]
Stops: TypeAlias = Annotated[list[Name], Items(100)]


class StrictForm(BaseModel):
    """A request, without unknown keys and values of other types."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _keep_one_unknown(cls, given: Any) -> Any:
        """Leave out unknown keys but the first: pydantic would make an error for each of them."""
        unknown = [key for key in given if key not in cls.model_fields] if isinstance(given, dict) else []
        return {key: given[key] for key in given if key in cls.model_fields or key == unknown[0]} if unknown else given


class ImageForm(StrictForm):
    """An image in the place of a text."""

    image: EncodedImage


def _one_of(**rules: dict[str, Any]) -> dict[str, Any]:
    """Return the JSON Schema of forms in which one of these keys, at least, has a value of use."""
    return {"anyOf": [{"required": [name], "properties": {name: rule}} for name, rule in rules.items()]}


_SOME_TEXT: dict[str, Any] = {"type": "string", "pattern": r"\S"}
_SOME_ITEMS: dict[str, Any] = {"type": "array", "minItems": 1}
QUERY_RULE = _one_of(text=_SOME_TEXT, image={"type": "string"}, like=_SOME_ITEMS)
"""The rule of a query without files beside it. Where there may be some, it is checked afterwards."""


class QueryForm(StrictForm):
    """A query: a text, an image, documents of the index, or several of these."""

    text: Text | None = Field(None, description='Text to look for. `-word` and `-"some words"` exclude what they say.')
    image: EncodedImage | None = None
    like: Annotated[list[Id], Items(_MOST_LIKE)] = Field([], description="Ids of documents whose vectors to look for.")
    without: Union[Text, ImageForm, Annotated[list[Id], Items(_MOST_LIKE)], None] = Field(
        None, description="Content to exclude: a text, an image, or ids of documents."
    )


@with_options(SearchKeywords)
class SearchForm(QueryForm):
    """A search, as `Pipeline.search` takes it."""


@with_options(ManyKeywords)
class SearchManyForm(StrictForm):
    """Several searches with the same options."""

    queries: Annotated[list[Annotated[QueryForm, Field(json_schema_extra=QUERY_RULE)]], Items(1000)] = Field(
        min_length=1
    )


@with_options(RankingKeywords)
class ExplainForm(QueryForm):
    """A search, and the document whose place in it is explained."""

    id: Id
    parts: bool = Field(False, description="Whether to find the sentences and the regions that mattered.")
    seconds: float = Field(10.0, gt=0, le=60, description="Seconds after which no more regions are tried.")


class GenerationForm(StrictForm):
    """Options of an answer: see `vlmsearch.GenerationOptions`."""

    max_tokens: Positive | None = None
    temperature: float | None = Field(None, ge=0)
    top_k: Positive | None = None
    top_p: float | None = Field(None, gt=0, le=1)
    repetition_penalty: float | None = Field(None, gt=0)
    stop: Stops | None = None
    bad_words: Stops | None = None
    seed: Whole | None = None
    beam_width: Positive | None = None


_FewPictures: TypeAlias = Annotated[int, Field(ge=0, le=16), BeforeValidator(whole)]
_Side: TypeAlias = Annotated[int, Field(ge=64, le=4096), BeforeValidator(whole)]
_Tokens: TypeAlias = Annotated[int, Field(ge=1, le=2**20), BeforeValidator(whole)]


_Concurrency: TypeAlias = Annotated[int, Field(ge=1, le=32), BeforeValidator(whole)]


class PicturesForm(StrictForm):
    """Pictures that a generator sees: see `vlmsearch.PictureOptions`."""

    limit: Union[_FewPictures, None] = None
    side: Union[_Side, None] = None
    tokens: Union[_Tokens, None] = None


@with_options(RankingKeywords, limit=SOURCES)
class AskForm(StrictForm):
    """A question, as `Pipeline.ask` takes it."""

    question: Text = Field(min_length=1, json_schema_extra={"pattern": r"\S"})
    image: EncodedImage | None = None
    stream: bool = Field(False, description="Whether to answer with server-sent events while the text is made.")
    options: GenerationForm | None = None
    pictures: PicturesForm | None = None
    template: str | None = Field(
        None, max_length=TEMPLATE_CHARS, description="A prompt with $sources and $question, each once."
    )


class DocumentForm(StrictForm):
    """A document to index; `image` is Base64, a data URL, or `part:NAME` for a file of the form."""

    id: Id
    text: LongText | None = None
    image: Annotated[str, Field(min_length=1, max_length=_IMAGE_CHARS)] | None = None
    metadata: Scalars = {}


class AddForm(StrictForm):
    """Documents to index."""

    documents: Annotated[list[DocumentForm], Items(_MOST_DOCUMENTS)]
    retry_rejects: bool = Field(False, description="Whether to try rejected inputs again.")


class IdsForm(StrictForm):
    """Documents, by their ids."""

    ids: Annotated[list[Id], Items(_MOST_DOCUMENTS)]


class MetadataForm(IdsForm):
    """Changes of the metadata of documents."""

    set: Scalars = Field(
        {},
        description="Values by their keys.",
        json_schema_extra={"propertyNames": {"maxLength": MAX_KEY_CHARS, **_KEY}},
    )
    unset: Annotated[list[Key], Items(MAX_METADATA_KEYS)] = Field([], description="Keys to remove.")


class LabelForm(StrictForm):
    """Labels to look for, as `Pipeline.label` takes them."""

    model_config = ConfigDict(
        json_schema_extra=_one_of(labels=_SOME_ITEMS, write={"const": True})  # to write none takes labels off
    )
    labels: Annotated[list[Annotated[Name, Field(json_schema_extra=_SOME_TEXT)]], Items(1000)]
    templates: Annotated[list[Name], Items(100)] = Field(
        ["{}"], min_length=1, description="Descriptions of images, with {} for the label."
    )
    where: Where = None
    min_score: Share | None = None
    single: bool = False
    write: bool = Field(False, description="Whether to put the labels into the index.")
    key: NewKey = "label"
    limit: Positive | None = Field(None, description="Maximum number of documents.")


class JudgedForm(StrictForm):
    """A query with its relevant documents."""

    model_config = ConfigDict(json_schema_extra=_one_of(query=_SOME_TEXT, image={"type": "string"}))
    id: Name | None = Field(None, description="Id of the query; by default its place in the list, from 1.")
    query: Text | None = None
    image: EncodedImage | None = None
    relevant: Union[Annotated[list[Id], Items(_MOST_DOCUMENTS)], Grades] = Field(
        description="Ids, or grades by ids; none for a query without an answer."
    )


class EvalForm(StrictForm):
    """Queries with known answers."""

    queries: Annotated[list[JudgedForm], Items(_MOST_DOCUMENTS)] = Field(min_length=1)
    limit: Whole = Field(10, ge=1, le=LONGEST_PAGE)
    rerank: bool = False


class IndexJob(StrictForm):
    """Paths of the server to index, below the folders that the operator allowed."""

    kind: Literal["index"]
    paths: Annotated[list[Annotated[str, Field(min_length=1, max_length=4096)]], Items(100)] = Field(min_length=1)
    prune: bool = Field(False, description="Whether to remove documents whose files are gone.")
    retry_rejects: bool = False
    pdf: bool = Field(False, description="Whether to take the pages of PDF files.")
    video: bool = Field(False, description="Whether to take a frame of each scene of films, with its subtitles.")
    office: bool = Field(False, description="Whether to take the text of office documents, e-books and web pages.")
    ocr: bool = Field(False, description="Whether to read the text in images, pages and frames without one.")

    @property
    def options(self) -> SourceOptions:
        """Return the options of reading files. Links are never followed."""
        return SourceOptions(pdf=self.pdf, video=self.video, office=self.office, ocr=self.ocr, follow_links=False)


class LabelJob(LabelForm):
    """A job that labels the documents of an index."""

    kind: Literal["label"]


class DescribeJob(StrictForm):
    """A job that describes the pictures of an index."""

    kind: Literal["describe"]
    prompt: Text | None = Field(None, json_schema_extra={"pattern": r"\S"})
    fields: Annotated[list[Name], Items(100)] = Field([], description="Keys of metadata to fill: NAME or NAME:TYPE.")
    where: Where = None
    limit: Positive | None = Field(None, description="Maximum number of pictures.")
    concurrency: _Concurrency = 1
    retry_rejects: bool = False
    dry_run: bool = Field(False, description="Whether to look at three pictures and write nothing.")


class DuplicatesJob(StrictForm):
    """A job that finds duplicate images."""

    kind: Literal["duplicates"]
    threshold: Share | None = None
    where: Where = None


class EvalJob(EvalForm):
    """A job that measures how well the index answers queries."""

    kind: Literal["eval"]


class CheckJob(StrictForm):
    """A job that checks whether all parts of the index agree."""

    kind: Literal["check"]
    repair: bool = False


class JobForm(RootModel[Union[IndexJob, LabelJob, DescribeJob, DuplicatesJob, EvalJob, CheckJob]]):
    """Long work, by its kind."""

    root: Annotated[
        Union[IndexJob, LabelJob, DescribeJob, DuplicatesJob, EvalJob, CheckJob], Field(discriminator="kind")
    ]


class EvalAnswer(BaseModel):
    """Measures of an index, as `vlmsearch eval --json` prints them."""

    model_config = ConfigDict(extra="allow")
    queries: int
    without_answer: int
    limit: int


class InfoAnswer(BaseModel):
    """The contents of an index and what built it, as `vlmsearch info --json` prints them."""

    model_config = ConfigDict(extra="allow")
    documents: int
    fingerprint: str


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
