"""The JSON of requests, which pydantic checks. `vlmsearch.wire` has the values that are answered."""

from __future__ import annotations

import base64
import binascii
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias, Union

from pydantic import BaseModel, ConfigDict, Field, JsonValue, RootModel

from vlmsearch import verbs
from vlmsearch._util.options import options_of
from vlmsearch._util.plain import MAX_ENTRIES, MAX_KEY_CHARS
from vlmsearch.errors import InvalidInputError
from vlmsearch.indexing.items import SourceOptions
from vlmsearch.schema import (
    MAX_IMAGE_CHARS,
    EncodedImage,
    Entries,
    Id,
    Items,
    Key,
    Name,
    QueryText,
    StrictForm,
    Whole,
    with_options,
)
from vlmsearch.search.options import QueryParts
from vlmsearch.types import MAX_METADATA_BYTES, MAX_METADATA_KEYS, Document

_MAX_DOCUMENTS = 10_000
_TEXT_CHARS = 16 * 2**20
"""Characters of a document's text."""

LongText: TypeAlias = Annotated[str, Field(max_length=_TEXT_CHARS)]
_String: TypeAlias = Annotated[str, Field(max_length=MAX_METADATA_BYTES)]
_Value: TypeAlias = Union[bool, int, float, _String, Annotated[list[_String], Items(MAX_ENTRIES)]]
Metadata: TypeAlias = Annotated[dict[Key, _Value], Entries(MAX_METADATA_KEYS)]
_KEY: dict[str, Any] = {"pattern": r"^[^$\x00-\x1f\x7f-\x9f][^\x00-\x1f\x7f-\x9f]*$"}
TextOrUrl: TypeAlias = Annotated[str, Field(min_length=1, max_length=MAX_IMAGE_CHARS)]
NewKey: TypeAlias = Annotated[Key, Field(min_length=1, json_schema_extra=_KEY)]
Grades: TypeAlias = Annotated[dict[Id, Whole], Entries(_MAX_DOCUMENTS)]
Stops: TypeAlias = Annotated[list[Name], Items(100)]


def _one_of(**rules: dict[str, Any]) -> dict[str, Any]:
    """Return the JSON Schema of forms in which one of these keys has a value.

    At least one is needed, and the value is of use.
    """
    return {"anyOf": [{"required": [name], "properties": {name: rule}} for name, rule in rules.items()]}


_SOME_TEXT: dict[str, Any] = {"type": "string", "pattern": r"\S"}
_SOME_ITEMS: dict[str, Any] = {"type": "array", "minItems": 1}
QUERY_RULE = _one_of(text=_SOME_TEXT, image={"type": "string"}, like=_SOME_ITEMS)
"""The rule of a query without files beside it. Where there may be some, it is checked afterwards."""


@with_options(QueryParts)
class QueryForm(StrictForm):
    """A query: a text, an image, documents of the index, or several of these."""

    text: QueryText | None = Field(
        None, description='Text to look for. `-word` and `-"some words"` exclude what they say.'
    )


@with_options(verbs.SearchRequest)
class SearchForm(StrictForm):
    """A search, as `Pipeline.search` takes it."""


@with_options(verbs.SearchManyRequest)
class SearchManyForm(StrictForm):
    """Several searches with the same options."""

    queries: Annotated[list[Annotated[QueryForm, Field(json_schema_extra=QUERY_RULE)]], Items(1000)] = Field(
        min_length=1
    )


@with_options(verbs.ExplainRequest)
class ExplainForm(StrictForm):
    """A search, and the document whose place in it is explained."""

    text: QueryText | None = Field(None, description="Text that is asked for, as in a search.")
    id: Id


@with_options(verbs.AskRequest)
class AskForm(StrictForm):
    """A question, as `Pipeline.ask` takes it."""

    if TYPE_CHECKING:
        stream: bool
    question: QueryText = Field(min_length=1, json_schema_extra={"pattern": r"\S"})


@with_options(Document)
class DocumentForm(StrictForm):
    """A document to index.

    `image` is Base64, a data URL, or `part:NAME` for a file of the form.
    """

    id: Id
    text: LongText | None = None
    image: Annotated[str, Field(min_length=1, max_length=MAX_IMAGE_CHARS)] | None = None
    metadata: Annotated[dict[str, JsonValue], Entries(10 * MAX_METADATA_KEYS)] = Field({})  # with missing ones
    readers: Annotated[list[_String], Items(MAX_ENTRIES)] | None = Field(
        None, description="Who may read it, such as `group:hr`; none for nobody, and `*` for everyone."
    )


@with_options(verbs.AddRequest)
class AddForm(StrictForm):
    """Documents to index."""

    documents: Annotated[list[DocumentForm], Items(_MAX_DOCUMENTS)]


class IdsForm(StrictForm):
    """Documents, by their ids."""

    ids: Annotated[list[Id], Items(_MAX_DOCUMENTS)]


class MetadataForm(IdsForm):
    """Changes of the metadata of documents."""

    set: Metadata = Field(
        {},
        description="Values by their keys.",
        json_schema_extra={"propertyNames": {"maxLength": MAX_KEY_CHARS, **_KEY}},
    )
    unset: Annotated[list[Key], Items(MAX_METADATA_KEYS)] = Field([], description="Keys to remove.")


@with_options(verbs.LabelRequest)
class LabelForm(StrictForm):
    """Labels to look for, as `Pipeline.label` takes them."""

    model_config = ConfigDict(
        json_schema_extra=_one_of(labels=_SOME_ITEMS, write={"const": True})  # to write none takes labels off
    )
    labels: Annotated[list[Annotated[Name, Field(json_schema_extra=_SOME_TEXT)]], Items(1000)]
    key: NewKey = "label"


class JudgedForm(StrictForm):
    """A query with its relevant documents."""

    model_config = ConfigDict(json_schema_extra=_one_of(query=_SOME_TEXT, image={"type": "string"}))
    id: Name | None = Field(None, description="Id of the query; by default its place in the list, from 1.")
    query: QueryText | None = None
    image: EncodedImage | None = None
    relevant: Union[Annotated[list[Id], Items(_MAX_DOCUMENTS)], Grades] = Field(
        description="Ids, or grades by ids; none for a query without an answer."
    )


@with_options(verbs.EvaluateRequest)
class EvalForm(StrictForm):
    """Queries with known answers."""

    queries: Annotated[list[JudgedForm], Items(_MAX_DOCUMENTS)] = Field(min_length=1)


@with_options(SourceOptions)
@with_options(verbs.IndexRequest, leave_out=["options"])
class IndexJob(StrictForm):
    """Paths of the server to index, below the folders that the operator allowed."""

    kind: Literal["index"]
    columns: QueryText | None = Field(None, description=options_of(SourceOptions)["columns"].help)
    paths: Annotated[list[Annotated[str, Field(min_length=1, max_length=4096)]], Items(100)] = Field(min_length=1)


class LabelJob(LabelForm):
    """A job that labels the documents of an index."""

    kind: Literal["label"]


@with_options(verbs.DescribeRequest)
class DescribeJob(StrictForm):
    """A job that describes the pictures of an index."""

    kind: Literal["describe"]
    prompt: QueryText | None = Field(None, json_schema_extra={"pattern": r"\S"})


@with_options(verbs.DuplicatesRequest)
class DuplicatesJob(StrictForm):
    """A job that finds duplicate images."""

    kind: Literal["duplicates"]


class EvalJob(EvalForm):
    """A job that measures how well the index answers queries."""

    kind: Literal["eval"]


@with_options(verbs.CheckRequest)
class CheckJob(StrictForm):
    """A job that checks whether all parts of the index agree."""

    kind: Literal["check"]


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


def given_in(form: StrictForm) -> dict[str, Any]:
    """Return what a form has, by name: what it leaves out has its default."""
    return {name: getattr(form, name) for name in type(form).model_fields if name in form.model_fields_set}


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
