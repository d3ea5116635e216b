"""The JSON of the values that vlmsearch takes and gives: what ``--json`` prints, a service answers and a client reads.

A value is a dataclass, and its JSON an object with a key for each of its fields. `fields_of` derives them from the type
hints, `to_json` writes them and `from_json` reads them. `vlmsearch.schema` describes them for OpenAPI.

- A tuple is a list, and so is a mapping whose keys are not strings: of pairs of a key and a value.
- An image is the path that the index keeps, and is read as a `RemoteImage`.
- `SPREAD` and `HIDDEN` in the metadata of a field say what is different about it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import MISSING, dataclass, field as with_default, fields, is_dataclass, replace
from functools import cache
from types import NoneType, SimpleNamespace
from typing import Any, Literal, TypeAlias, TypeVar, cast, get_args, get_origin, get_type_hints

from vlmsearch._util.options import UNIONS, without_none
from vlmsearch._util.plain import finite_number
from vlmsearch.errors import (
    BackendError,
    BackendUnavailableError,
    ConfigError,
    IndexMismatchError,
    MissingDependencyError,
    ModelUnavailableError,
    OverloadedError,
    QualityError,
    VlmsearchError,
)
from vlmsearch.types import HIDDEN, SPREAD, Document, Match, Matches, Passage, Reject, RemoteImage, Scalar, Space
from vlmsearch.verbs import is_image

Json: TypeAlias = dict[str, object]
"""A JSON object."""
JobState: TypeAlias = Literal["queued", "running", "done", "failed", "cancelled"]
T = TypeVar("T")
ERROR_TYPES: Mapping[str, type[VlmsearchError]] = {
    "index_mismatch": IndexMismatchError,
    "invalid_request": ConfigError,
    "missing_dependency": MissingDependencyError,
    "model_unavailable": ModelUnavailableError,
    "low_quality": QualityError,
    "overloaded": OverloadedError,
    "backend_unavailable": BackendUnavailableError,
    "backend_failed": BackendError,
}
"""Exceptions by the ``type`` of an error that a service sends. An `InvalidInputError` is an ``invalid_request`` with a
``code``."""
_PLAIN = (str, int, float, bool, NoneType)
_NAMES = {"PIL": SimpleNamespace(Image=SimpleNamespace(Image=bytes))}
"""A stand-in for Pillow in type hints: reading JSON does not import it."""


@dataclass(frozen=True)
class Origin:
    """The index that JSON comes from: the URL of its server, and its name there."""

    server: str
    index: str
    id: str = ""
    """Id of the document that is read."""
    principals: str = ""
    """Principals that it is asked for, as a header has them."""


@dataclass(frozen=True)
class JsonField:
    """A field of a value, as its JSON has it.

    Attributes:
        name: Name of the field, and the key.
        type: Type hint.
        write: Function that writes a value.
        is_spread: Whether the JSON has the fields of the field's value in its place.
    """

    name: str
    type: Any
    write: Callable[[Any], object]
    is_spread: bool


@cache
def fields_of(kind: Any) -> tuple[JsonField, ...]:
    """Return the fields of a dataclass that its JSON has."""
    hints = get_type_hints(kind, localns=_NAMES)
    return tuple(
        JsonField(field.name, hints[field.name], _writer(hints[field.name]), is_spread=SPREAD in field.metadata)
        for field in fields(kind)
        if HIDDEN not in field.metadata
    )


def to_json(value: Any) -> Json:
    """Return the JSON of a dataclass."""
    kind: Any = type(value)
    json: Json = {}
    for field in fields_of(kind):
        part = getattr(value, field.name)
        if field.is_spread:
            json |= to_json(part)
        else:
            json[field.name] = field.write(part)
    return json


def _writer(hint: Any) -> Callable[[Any], object]:
    """Return the function that writes values of a type hint. To read the hint takes longer than to write a value."""
    parts = get_args(without_none(hint))
    writers = [_writer(part) for part in parts]

    def write(value: Any) -> object:
        if hint is Any or isinstance(value, _PLAIN):
            return value
        if is_dataclass(value) and not isinstance(value, RemoteImage):
            return to_json(value)
        if isinstance(value, Mapping):
            pairs = [[name, writers[1](part)] for name, part in value.items()]
            return dict(pairs) if parts[0] is str else pairs
        if isinstance(value, frozenset):
            return sorted(value)
        if isinstance(value, (tuple, list)):
            rows = writers[:1] * len(value) if parts[-1] is Ellipsis else writers
            return [write(part) for write, part in zip(rows, value)]
        return str(value)

    return write


def from_json(kind: type[T], json: Any, origin: Origin) -> T:
    """Return the dataclass of a JSON object, which may come from anywhere.

    Args:
        kind: The dataclass.
        json: The object. Keys that are no field are ignored.
        origin: The index that it comes from.

    Returns:
        The value. Fields that are missing have their defaults.

    Raises:
        ValueError: A field is missing, or of another type.
    """
    if not isinstance(json, dict):
        raise _unexpected("an object", json)
    origin = replace(origin, id=json.get("id", ""))
    declared: Any = kind
    values = {}
    for field in fields_of(declared):
        try:
            if field.is_spread:
                values[field.name] = from_json(field.type, json, origin)
            elif field.name in json:
                values[field.name] = _read(field.type, json[field.name], origin)
        except ValueError as exc:
            raise ValueError(f"{field.name}: {exc}") from None
    for name in _required(declared):
        if name not in values:
            raise ValueError(f"{name!r} is missing")
    return kind(**values)


@cache
def _required(kind: Any) -> tuple[str, ...]:
    """Return the fields of a dataclass that have no default, and the matches of `Matches`: none are an answer, too."""
    given = ("matches",) if kind is Matches else ()
    has_none = (field.name for field in fields(kind) if field.default is MISSING and field.default_factory is MISSING)
    return (*given, *has_none)


def _read(hint: Any, value: Any, origin: Origin) -> Any:
    inner = get_args(hint)
    kind: Any = get_origin(hint) or hint
    if is_image(hint) and isinstance(value, str):
        return RemoteImage(origin.server, origin.index, _read(str, origin.id, origin), value, origin.principals)
    if kind in UNIONS:
        for part in inner:
            with suppress(ValueError):
                return _read(part, value, origin)
    elif kind in (tuple, frozenset, Mapping):
        return _read_container(kind, inner, value, origin)
    elif kind is Any or (kind is Literal and value in inner) or (kind in _PLAIN and type(value) is kind):
        return value
    elif kind is float and (number := finite_number(value)) is not None:
        return number
    elif is_dataclass(kind) and kind is not RemoteImage:
        return from_json(cast("Any", kind), value, origin)
    raise _unexpected(hint, value)


def _read_container(kind: Any, inner: tuple[Any, ...], value: Any, origin: Origin) -> Any:
    if kind is Mapping and inner[0] is str:
        if not isinstance(value, dict):
            raise _unexpected("an object", value)
        return {key: _read(inner[1], part, origin) for key, part in value.items()}
    if not isinstance(value, list):
        raise _unexpected("a list", value)
    if kind is Mapping:
        return dict(_read_container(tuple, inner, pair, origin) for pair in value)
    if kind is frozenset:
        return frozenset(_read(inner[0], part, origin) for part in value)
    hints = inner[:1] * len(value) if inner[-1] is Ellipsis else inner
    if len(hints) != len(value):
        raise _unexpected(f"{len(hints)} values", value)
    return tuple(_read(part, child, origin) for part, child in zip(hints, value))


def _unexpected(wanted: object, value: object) -> ValueError:
    return ValueError(f"{wanted} is expected, not {value!r:.60}")


# ------------------------------------------------------------------------------------- answers that are no other value


@dataclass(frozen=True)
class ManyMatches:
    """The matches of each query, in the order of the queries."""

    results: tuple[Matches, ...]


@dataclass(frozen=True)
class DocumentPage:
    """Documents of an index.

    Attributes:
        documents: Documents by the ids that were given, or a page of all.
        missing: Ids that are not in the index.
        passages: Places and headings of the passages whose ids were given.
        after: Value of `after` with which the next page begins; None at the end.
    """

    documents: tuple[Document, ...]
    missing: tuple[str, ...] = ()
    passages: Mapping[str, Passage] = with_default(default_factory=dict)
    after: str | None = None


@dataclass(frozen=True)
class ValueCount:
    """A value of metadata, and the number of documents that have it."""

    value: Scalar
    count: int


@dataclass(frozen=True)
class ValueCounts:
    """The numbers of documents of an index that pass a filter.

    Attributes:
        total: Number of documents; None where the index is too large to count in its store.
        facets: The values of each key, the most frequent first.
    """

    total: int | None
    facets: Mapping[str, tuple[ValueCount, ...]]


@dataclass(frozen=True)
class Rejects:
    """The reject list of an index."""

    rejects: tuple[Reject, ...]


@dataclass(frozen=True)
class DocumentCount:
    """The number of documents that an index has."""

    documents: int


@dataclass(frozen=True)
class DeletedCount:
    """The number of documents that were deleted."""

    deleted: int


@dataclass(frozen=True)
class ChangedCount:
    """The number of documents whose metadata changed."""

    changed: int


@dataclass(frozen=True)
class LabelledId:
    """The labels of a document.

    Attributes:
        id: Id of the document.
        labels: Relevance of each label.
        written: Whether this run put other labels into the index than were there.
    """

    id: str
    labels: Mapping[str, float]
    written: bool


@dataclass(frozen=True)
class LabelAnswer:
    """The labels of documents.

    Attributes:
        labels: Number of documents that have each label.
        documents: Documents with their labels.
        written: Number of documents whose labels changed in the index.
        seconds: Duration of the run.
    """

    labels: Mapping[str, int]
    documents: tuple[LabelledId, ...]
    written: int
    seconds: float


@dataclass(frozen=True)
class ErrorDetail:
    """An error.

    Attributes:
        type: Kind of the error, in one word.
        message: What was given, what is possible, what to do.
        code: Why an input cannot be used, in one word.
        param: Part of the request that is wrong.
        request_id: Id of the request in the log.
    """

    type: str
    message: str
    code: str | None = None
    param: str | None = None
    request_id: str | None = None


@dataclass(frozen=True)
class ErrorAnswer:
    """The JSON of every error."""

    error: ErrorDetail


@dataclass(frozen=True)
class JobAnswer:
    """A job.

    Attributes:
        id: Id of the job.
        kind: Kind of the work.
        index: Name of the index.
        state: State of the job.
        done: Number of inputs that are done.
        total: Number of inputs; None if unknown.
        created: Time when the job was accepted, in ISO 8601.
        ended: Time when it ended.
        paths: Paths that it indexes.
        result: Result of a job that is done.
        error: Error of a job that failed.
    """

    id: str
    kind: str
    index: str
    state: JobState
    done: int
    total: int | None
    created: str
    ended: str | None = None
    paths: tuple[str, ...] | None = None
    result: Any = None
    error: ErrorDetail | None = None


@dataclass(frozen=True)
class JobList:
    """The jobs that the caller may see, the newest first."""

    jobs: tuple[JobAnswer, ...]


@dataclass(frozen=True)
class Rights:
    """The rights of the caller on an index.

    Attributes:
        write: Whether the caller may change it.
        admin: Whether the caller may repair it.
        ask: Whether it answers questions.
        rerank: Whether it has a re-ranker.
        images: Whether it can be searched by an image.
        words: Whether it ranks documents by words, too.
        jobs: Whether the caller may index folders of the server: the operator allows some.
        describe: Whether the caller may have its pictures described: its generator sees.
    """

    write: bool
    admin: bool
    ask: bool
    rerank: bool
    images: bool
    words: bool
    jobs: bool
    describe: bool = False


@dataclass(frozen=True)
class IndexSummary:
    """An index of the service.

    Attributes:
        files: Number of documents that are no parts of files; 0 for unknown, above 100,000 documents.
    """

    name: str
    documents: int
    files: int
    passages: int
    spaces: tuple[Space, ...]
    can: Rights


@dataclass(frozen=True)
class IndexList:
    """The indexes that the caller may see."""

    indexes: tuple[IndexSummary, ...]


@dataclass(frozen=True)
class EventData:
    """The data of a server-sent event: each kind of event has some of these.

    Attributes:
        done: Number of inputs that a job has done.
        total: Number of inputs; None if unknown.
        result: Result of a job.
        matches: Sources of an answer.
        text: Piece of an answer.
        error: Error that ends the job or the answer.
    """

    done: int = 0
    total: int | None = None
    result: Any = None
    matches: tuple[Match, ...] = ()
    text: str = ""
    error: ErrorDetail | None = None
