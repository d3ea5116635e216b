"""A `Pipeline` on another machine: the same verbs, over the HTTP interface of `vlmsearch serve`.

No numpy, no model and no store are loaded where it runs.
"""

from __future__ import annotations

import base64
import json
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from copy import copy
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, cast, get_args
from urllib.parse import quote, urlencode
from weakref import WeakValueDictionary

from typing_extensions import override

from vlmsearch import verbs
from vlmsearch._util.arguments import check_arguments, check_kind, paths as path_list, strings
from vlmsearch._util.closable import Closable
from vlmsearch._util.options import options_of
from vlmsearch._util.text import json_bytes
from vlmsearch.errors import (
    BackendError,
    BackendUnavailableError,
    ConfigError,
    InvalidInputError,
    OverloadedError,
    RejectCode,
    VlmsearchError,
    one_line,
)
from vlmsearch.index import Index
from vlmsearch.indexing.given import given_documents
from vlmsearch.principals import HEADER, principals_text
from vlmsearch.search.query import Query, split_phrases, split_text
from vlmsearch.types import (
    PASSAGE,
    Answer,
    AnswerParts,
    Citation,
    DescribeReport,
    Document,
    DocumentLabels,
    Duplicates,
    ImageInput,
    IndexReport,
    Match,
    Matches,
    Passage,
    Reject,
    RemoteImage,
    check_here,
    check_id,
    check_metadata,
    check_types,
    local_image,
    possible_ids,
)
from vlmsearch.verbs import verb
from vlmsearch.wire import (
    ERROR_TYPES,
    DeletedCount,
    DocumentCount,
    DocumentPage,
    ErrorAnswer,
    ErrorDetail,
    EventData,
    IndexList,
    LabelAnswer,
    LabelledId,
    ManyMatches,
    Origin,
    Rejects,
    from_json,
    to_json,
)

if TYPE_CHECKING:
    import httpx

    from vlmsearch.openai_api.http import HttpClient
    from vlmsearch.search.curves import Evaluation
    from vlmsearch.search.explanation import Explanation
    from vlmsearch.stores.base import CheckReport

TOKEN = "VLMSEARCH_TOKEN"  # noqa: S105 - the name of a variable
DEFAULT_INDEX = "default"
_API = "/api/v1"
_BATCH_DOCUMENTS = 256
_BATCH_BYTES = 8 * 2**20
"""Bytes of the images, texts and metadata in one request."""
_BATCH_IDS, _BATCH_DELETED = 100, 10_000
_PAGE = 100
_MAX_PRINCIPALS_CHARS = 32_768
"""Maximum length of a header: a server reads 64 KiB of all headers together."""
_MAX_BYTES = 512 * 2**20
"""Maximum length of an answer, and of a line of a stream: a job may name each document of the index."""
_CODES = frozenset(get_args(RejectCode))
T = TypeVar("T")
Form: TypeAlias = dict[str, Any]
"""The JSON of a request."""


def connect(
    url: str,
    *,
    index: str = DEFAULT_INDEX,
    token: str | None = None,
    timeout: float = 60.0,
    allow_plain_http: bool = False,
) -> RemotePipeline:
    """Use an index of a running `vlmsearch serve` as a pipeline. Nothing is sent before the first call.

    Args:
        url: URL of the server, such as ``http://127.0.0.1:8080`` or ``https://search.example.org/photos``.
        index: Name of the index.
        token: Token that `vlmsearch token add` printed; by default the one in ``VLMSEARCH_TOKEN``, if that is set.
        timeout: Seconds without an answer after which a call fails, above 0. A whole answer has ten times as long.
        allow_plain_http: Whether the token may go to another machine unencrypted.

    Returns:
        The pipeline, to be closed after use.

    Raises:
        ConfigError: The URL is wrong, or the token would leave this machine unencrypted.

    Example:
        >>> connect("http://127.0.0.1:8080", index="photos")
        RemotePipeline('http://127.0.0.1:8080', index='photos')
    """
    return RemotePipeline(url, index=index, token=token, timeout=timeout, allow_plain_http=allow_plain_http)


@dataclass(frozen=True)
class JobId:
    """The part of a job that a client follows it by."""

    id: str


_OPENED: WeakValueDictionary[tuple[str, str], RemotePipeline] = WeakValueDictionary()
"""The pipeline that was opened last, by server and index."""


def opened(image: RemoteImage) -> RemotePipeline | None:
    """Return an open pipeline that can fetch an image; None where there is none."""
    pipeline = _OPENED.get((image.server, image.index))
    return pipeline and pipeline._within(image.principals)  # noqa: SLF001


class RemotePipeline(Index):
    """An index on a server, with the verbs of `Pipeline`; see `connect` for the arguments.

    It may be used from several threads. Its methods raise what `Pipeline` would raise there. They also raise
    `BackendUnavailableError` if the server cannot be reached, and `ConfigError` for a wrong token or an index that the
    token may not see. Calls are repeated when a busy server says so. After a connection failed, those are repeated
    that can be.

    Example:
        >>> pipeline = connect("http://127.0.0.1:1")
        >>> try:
        ...     pipeline.search("a dog in the snow")
        ... except VlmsearchError as exc:
        ...     print(type(exc).__name__)
        BackendUnavailableError
    """

    def __init__(
        self,
        url: str,
        *,
        index: str = DEFAULT_INDEX,
        token: str | None = None,
        timeout: float = 60.0,
        allow_plain_http: bool = False,
    ) -> None:
        check_kind("url", url, str, "a string")
        check_kind("index", index, str, "a string")
        check_kind("token", token, (str, type(None)), "a string or None")
        check_kind("timeout", timeout, (int, float), "a number of seconds")
        check_arguments(allow_plain_http=allow_plain_http)
        if not index.strip("."):  # which a URL would take for the folder above
            raise ConfigError(f"no index is named {index!r}")
        from vlmsearch.openai_api.http import HttpClient, HttpOptions  # which take .1 s of a processor to import

        advice = "give an https:// URL, or connect(..., allow_plain_http=True) where the network is trusted"
        options = HttpOptions(
            timeout=timeout, connect_timeout=timeout, key_variable=TOKEN, plaintext_key=allow_plain_http
        )
        self._server = HttpClient(url, options, key=token, advice=advice)
        self._index = index
        self._origin = Origin(self._server.url, index)
        self._timeout = timeout
        self._whole: RemotePipeline | None = None
        _OPENED[self._origin.server, index] = self

    def __repr__(self) -> str:
        return f"RemotePipeline({self._server.url!r}, index={self._index!r})"

    # --------------------------------------------------------------------------------------------------------- verbs

    @override
    def restricted(self, principals: Iterable[str]) -> RemotePipeline:
        return self._within(";".join(filter(None, (self._origin.principals, principals_text([principals])))))

    def _within(self, principals: str) -> RemotePipeline:
        """Return a handle that sends this header with each request; itself where it is the one."""
        if principals == self._origin.principals:
            return self
        if len(principals) > _MAX_PRINCIPALS_CHARS:
            raise ConfigError(f"the principals take {len(principals):,} bytes of a request: give fewer of them")
        handle = copy(self)
        server, origin = self._server.with_headers({HEADER: principals}), replace(self._origin, principals=principals)
        vars(handle).update(_server=server, _origin=origin, _whole=self)
        return handle

    @override
    @verb(verbs.SearchRequest)
    def search(self, given: verbs.SearchRequest) -> Matches:
        matches = self._post(Matches, "search", self._form(given))
        self._warn(matches.uncalibrated)
        return matches

    @override
    @verb(verbs.SearchManyRequest)
    def search_many(self, given: verbs.SearchManyRequest) -> list[Matches]:
        queries = [{"text": query} if isinstance(query, str) else self._form_of(query) for query in given.queries]
        results = list(self._post(ManyMatches, "search_many", self._form(given, queries=queries)).results)
        for matches in results:
            self._warn(matches.uncalibrated)
        return results

    @override
    @verb(verbs.ExplainRequest)
    def explain(self, given: verbs.ExplainRequest) -> Explanation:
        from vlmsearch.search.explanation import Explanation

        return self._post(Explanation, "explain", self._form(given))

    @override
    def _ask(self, given: verbs.AskRequest) -> Answer | RemoteAnswerStream:
        if given.stream:
            return RemoteAnswerStream(self._events(self._path("ask"), self._form(given)))
        return self._post(Answer, "ask", self._form(given))

    @override
    def _add(self, given: verbs.AddRequest) -> IndexReport:
        whole = IndexReport()
        for batch, rejects in self._batches(given_documents(given.documents)):
            whole = _sum(whole, IndexReport(rejects=tuple(rejects)))
            if batch and not (given.strict and rejects):
                form = self._form(given, documents=batch)
                whole = _sum(whole, self._post(IndexReport, "documents", form))
            _strictly(whole, strict=given.strict)
            if given.on_progress is not None:
                given.on_progress(whole.seen)
        return whole

    @override
    @verb(verbs.IndexRequest)
    def index(self, given: verbs.IndexRequest) -> IndexReport:
        paths: Any = given.paths
        options = self._form(getattr(paths, "options", given.options))
        form = self._form(given, paths=list(map(str, path_list("paths", getattr(paths, "given", paths)))))
        form.pop("options", None)
        report = _strictly(self._job(IndexReport, "index", {**form, **options}, given.on_progress), strict=given.strict)
        self._warn(self.info()["uncalibrated"])
        return report

    @override
    def delete(self, ids: str | Iterable[str]) -> int:
        batches = _chunks(possible_ids(strings("ids", ids)), _BATCH_DELETED)
        return sum(self._post(DeletedCount, "documents/delete", {"ids": batch}).deleted for batch in batches)

    @override
    def get(self, ids: str | Iterable[str]) -> list[Document]:
        ids = strings("ids", ids)
        documents = {document.id: document for page in self._pages(ids) for document in page.documents}
        return [documents[id] for id in ids if id in documents]

    def passages(self, ids: Sequence[str]) -> dict[str, Passage]:
        """Return the passages of long texts that ids name.

        Args:
            ids: Ids of documents and passages.

        Returns:
            The passages, by their ids.
        """
        named = [id for id in ids if PASSAGE in id]
        return {id: passage for page in self._pages(named) for id, passage in page.passages.items()}

    def _pages(self, ids: Sequence[str]) -> Iterator[DocumentPage]:
        return (self._get(DocumentPage, "documents", id=batch) for batch in _chunks(possible_ids(ids), _BATCH_IDS))

    @override
    def documents(self) -> Iterator[Document]:
        page = self._get(DocumentPage, "documents", limit=_PAGE)
        yield from page.documents
        while page.after is not None:
            page = self._get(DocumentPage, "documents", limit=_PAGE, after=page.after)
            yield from page.documents

    def image(self, id: str) -> bytes:
        """Return the image of a document, as its file is.

        Args:
            id: Id of the document.

        Returns:
            The encoded bytes.

        Raises:
            ConfigError: The document is not there, or has no image.
            VlmsearchError: The server refused, or cannot be reached.
        """
        check_kind("id", id, str, "a string")
        return self._send("GET", self._path("image", id=id))

    @override
    @verb(verbs.ThumbnailRequest)
    def thumbnail(self, given: verbs.ThumbnailRequest) -> bytes:
        return self._send("GET", self._path("thumbnail", id=given.id, size=given.size))

    # --------------------------------------------------------------------------------------------------- whole index

    @override
    @verb(verbs.LabelRequest)
    def label(self, given: verbs.LabelRequest) -> Iterator[DocumentLabels]:
        answer = self._job(LabelAnswer, "label", self._form(given), given.on_progress)
        return self._labelled(answer.documents)

    def _labelled(self, labelled: Sequence[LabelledId]) -> Iterator[DocumentLabels]:
        for batch in _chunks(labelled, _BATCH_IDS):
            documents = {document.id: document for document in self.get([item.id for item in batch])}
            for item in batch:
                yield DocumentLabels(documents.get(item.id, Document(item.id)), item.labels, item.written)

    @override
    @verb(verbs.DescribeRequest)
    def describe(self, given: verbs.DescribeRequest) -> DescribeReport:
        return self._job(DescribeReport, "describe", self._form(given), given.on_progress)

    @override
    @verb(verbs.DuplicatesRequest)
    def duplicates(self, given: verbs.DuplicatesRequest) -> Duplicates:
        return self._job(Duplicates, "duplicates", self._form(given), given.on_progress)

    @override
    @verb(verbs.EvaluateRequest)
    def evaluate(self, given: verbs.EvaluateRequest) -> Evaluation:
        from vlmsearch.search.curves import Evaluation

        queries = [
            {
                "id": query.id,
                "query": query.text,
                "image": None if query.image is None else self._encoded(query.image),
                "relevant": dict(query.relevant),
            }
            for query in given.queries
        ]
        return Evaluation(self._job(dict, "eval", self._form(given, queries=queries), given.on_progress))

    @override
    @verb(verbs.CheckRequest)
    def check(self, given: verbs.CheckRequest) -> CheckReport:
        from vlmsearch.stores.base import CheckReport

        return self._job(CheckReport, "check", self._form(given))

    @override
    def count(self) -> int:
        return self._get(DocumentCount, "").documents

    @override
    def info(self) -> Mapping[str, Any]:
        return self._get(dict, "")

    def indexes(self) -> list[Mapping[str, Any]]:
        """List the indexes of the server.

        Returns:
            ``name``, ``documents``, ``spaces`` and ``can`` of each index that the token may see.

        Raises:
            VlmsearchError: The server refused, or cannot be reached.
        """
        return list(map(to_json, self._value(IndexList, self._send("GET", f"{_API}/indexes")).indexes))

    @override
    def rejects(self) -> list[Reject]:
        return list(self._get(Rejects, "rejects").rejects)

    # ---------------------------------------------------------------------------------------------------------- forms

    def _form(self, given: Any, **others: object) -> Form:
        """Return the arguments of a verb as they are sent: those that differ from their defaults."""
        form: Form = {}
        for name, option in options_of(type(given)).items():
            value = others[name] if name in others else getattr(given, name)
            is_default = value is option.default or (
                isinstance(value, (str, tuple, int, float)) and value == option.default
            )
            if not (is_default or option.is_local):
                form[name] = value if name in others else self._sent(name, value)
        return form

    def _sent(self, name: str, value: Any) -> object:
        """Return an argument as it is sent.

        ConfigError for a re-ranker, which a service has of its own.
        """
        if name == "rerank" and value is not True:
            raise ConfigError("a service has a re-ranker of its own: ask it with rerank=True")
        if is_dataclass(value) and not isinstance(value, RemoteImage):
            return self._form(value)
        if name == "image":
            return self._encoded(value)
        if name == "without" and not isinstance(value, (str, list, tuple)):
            return {"image": self._encoded(value)}
        return list(value) if isinstance(value, (tuple, list, frozenset, set)) else value

    def _form_of(self, query: Query) -> Form:
        """Return a `Query` as it is sent; ConfigError where it has phrases, or excludes several things."""
        excluded = [part for other in query.without for part in (other.text, other.image, other.like or None)]
        parts: list[Any] = [part for part in excluded if part is not None]
        has_phrases = any(part.phrases or split_phrases(part.text or "")[1] for part in (query, *query.without))
        if len(parts) > 1 or split_text(query.text or "")[1] or has_phrases:
            raise ConfigError(
                "a server takes a query that excludes one text, one image or ids: give `without` only once, "
                "and phrases in quotation marks in a string"
            )
        given = {"text": query.text, "image": query.image, "like": query.like or None, "without": (*parts, None)[0]}
        return {name: self._sent(name, value) for name, value in given.items() if value is not None}

    def _encoded(self, image: ImageInput | RemoteImage) -> str:
        """Return an image in Base64: the bytes of its file, here or on this server, or a PNG of what is decoded."""
        if isinstance(image, RemoteImage) and image.server == self._server.url:
            data = self._send("GET", self._path("image", image.index, id=image.id))
            return base64.b64encode(data).decode()
        source = local_image(image)
        if isinstance(source, Path):
            check_here(source)
            try:
                data = source.read_bytes()
            except (OSError, ValueError) as exc:
                reason = getattr(exc, "strerror", None) or exc
                raise InvalidInputError("unreadable", f"{str(source)!r} cannot be read: {reason}") from exc
            if not data:
                raise InvalidInputError("empty", f"{str(source)!r} is empty: 0 bytes")
        elif isinstance(source, bytes):
            data = source
        else:
            buffer = BytesIO()
            try:
                source.save(buffer, "PNG")
            except (OSError, ValueError) as exc:
                raise InvalidInputError("corrupt", f"the image cannot be read: {one_line(exc)}") from exc
            data = buffer.getvalue()
        return base64.b64encode(data).decode()

    def _document_form(self, document: Document) -> Form:
        check_id(document.id)
        check_types(document)
        check_metadata(document.metadata)
        image = None if document.image is None else self._encoded(document.image)
        return {**to_json(replace(document, image=None)), "image": image}

    def _batches(self, documents: Iterable[Document]) -> Iterator[tuple[list[Form], list[Reject]]]:
        """Yield the documents of each request, with the rejects among them that cannot be sent."""
        batch: list[Form] = []
        rejects: list[Reject] = []
        size = 0
        for document in documents:
            try:
                form = self._document_form(document)
            except InvalidInputError as exc:
                rejects.append(Reject(document.id, exc.code, str(exc)))
                continue
            length = len(str(form["image"] or "")) + len(json.dumps({**form, "image": None}))
            if batch and (size + length > _BATCH_BYTES or len(batch) == _BATCH_DOCUMENTS):
                yield batch, rejects
                batch, rejects, size = [], [], 0
            batch.append(form)
            size += length
        if batch or rejects:
            yield batch, rejects

    # ------------------------------------------------------------------------------------------------------ transport

    def close(self) -> None:
        """Close the connections. A restricted handle has none of its own."""
        if self._whole is not None:
            return
        if _OPENED.get((self._origin.server, self._index)) is self:
            del _OPENED[self._origin.server, self._index]
        self._server.close()

    def _path(self, verb: str, index: str | None = None, **query: Any) -> str:
        path = f"{_API}/indexes/{quote(index or self._index, safe='')}/{verb}".rstrip("/")
        return f"{path}?{urlencode(query, doseq=True)}" if query else path

    def _post(self, kind: type[T], verb: str, form: Form) -> T:
        return self._value(kind, self._send("POST", self._path(verb), form))

    def _get(self, kind: type[T], verb: str, **query: Any) -> T:
        return self._value(kind, self._send("GET", self._path(verb, **query)))

    def _value(self, kind: type[T], body: bytes) -> T:
        return _value(kind, _parse(body, self._origin), self._origin)

    def _send(self, method: str, target: str, form: Form | None = None, *, is_repeatable: bool = True) -> bytes:
        """Send a request, several times if need be, and return the body of the answer."""

        def attempt() -> bytes:
            with self._exchange(method, target, form) as response:
                return self._server.read(response, _MAX_BYTES)

        return self._server.again(attempt, is_repeatable=is_repeatable)

    def _events(self, target: str, form: Form | None = None) -> _Events:
        """Return the events of an answer, or of a job, which may take any time."""
        exchange = partial(self._exchange, "GET" if form is None else "POST", target, form)
        return self._server.again(lambda: _Events(exchange(), self._server, self._origin, is_job=form is None))

    @contextmanager
    def _exchange(self, method: str, target: str, form: Form | None) -> Iterator[httpx.Response]:
        """Yield the answer, unread; raise the error that it stands for."""
        body = None if form is None else json_bytes(form)
        with self._server.exchange(method, target, body) as response:
            if response.is_error:
                raise _error(response, self._server, self._origin)
            if response.headers.get(HEADER, "") != self._origin.principals:
                raise BackendError(f"{self._origin.server} answers for more than was asked: is it an earlier version?")
            yield response

    def _job(self, kind: type[T], name: str, form: Form, on_progress: Callable[[int], None] | None = None) -> T:
        """Run a job and return its result; cancel it when the call is interrupted."""
        started = self._send("POST", self._path("jobs"), {"kind": name, **form}, is_repeatable=False)
        path = f"{_API}/jobs/{quote(self._value(JobId, started).id, safe='')}"
        try:
            return _value(kind, self._follow(path, on_progress), self._origin)
        except BaseException:
            with suppress(VlmsearchError):
                self._send("POST", f"{path}/cancel")
            raise

    def _follow(self, path: str, on_progress: Callable[[int], None] | None) -> object:
        """Return the JSON of the result of a job."""
        while True:
            with self._events(f"{path}/events") as events:
                for name, data in events:
                    event = _value(EventData, data, self._origin)
                    if name == "done":
                        return event.result
                    if name == "cancelled":
                        raise BackendError("the job was cancelled on the server; what it did until then stays")
                    if event.error is not None:
                        raise _error_of(event.error)
                    if on_progress is not None:
                        on_progress(event.done)
            time.sleep(1)  # the connection was closed, by a proxy for example


class RemoteAnswerStream(AnswerParts):
    """An answer as a server makes it: an iterator over pieces of its text, then its citations.

    Closing it, or leaving the ``with`` block, stops the generator on the server. Use it from one thread.

    Attributes:
        matches: Sources, best first. They are known from the first piece of the text on.

    Example:
        >>> with connect("http://127.0.0.1:1") as pipeline:  # where nothing listens
        ...     try:
        ...         with pipeline.ask("What is the dog called?", stream=True) as parts:
        ...             text = "".join(part for part in parts if isinstance(part, str))
        ...     except VlmsearchError as exc:
        ...         print(type(exc).__name__)
        BackendUnavailableError
    """

    def __init__(self, events: _Events) -> None:
        self._events = events
        self.matches: tuple[Match, ...] = ()
        self._text: list[str] = []
        self._answer: Answer | None = None
        self._parts: Iterator[str | Citation] = self._run()

    def __next__(self) -> str | Citation:
        return next(self._parts)

    def answer(self) -> Answer:
        """Return the whole answer, after reading what is left of it.

        After `close`, it is what there was until then.

        Returns:
            The answer with its sources.

        Raises:
            BackendError: The generator failed, or the server went away.
        """
        for _ in self:
            pass
        return self._answer or Answer("".join(self._text), (), self.matches)

    def _run(self) -> Iterator[str | Citation]:
        for name, data in self._events:
            if name == "answer":
                self._answer = _value(Answer, data, self._events.origin)
                yield from self._answer.citations
                return
            event = _value(EventData, data, self._events.origin)
            if event.error is not None:
                raise _error_of(event.error)
            if name == "matches":
                self.matches = event.matches
            elif name == "token":
                self._text.append(event.text)
                yield event.text
        raise BackendUnavailableError("the server went away in the middle of the answer")

    def close(self) -> None:
        """Stop the generator."""
        self._parts = iter(())
        self._events.close()


class _Events(Closable):
    """The server-sent events of an answer: the name of each, and its JSON."""

    def __init__(
        self, exchange: AbstractContextManager[httpx.Response], server: HttpClient, origin: Origin, *, is_job: bool
    ) -> None:
        self.origin = origin
        self._max_bytes = None if is_job else _MAX_BYTES
        self._server = server
        self._entered = ExitStack()
        self._response = self._entered.enter_context(exchange)

    def __iter__(self) -> Iterator[tuple[str, object]]:
        with self._entered:
            for name, data in self._server.events(self._response, _MAX_BYTES, self._max_bytes):
                yield name, _parse(data, self.origin)

    def close(self) -> None:
        """Close the connection, by which the server knows that nobody reads on."""
        self._entered.close()


# ------------------------------------------------------------------------------------------------------------- answers


def _parse(text: str | bytes, origin: Origin) -> object:
    """Return the value of JSON; BackendError where it is none."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as exc:
        raise BackendError(f"{origin.server} answers with something else than JSON: is it vlmsearch?") from exc


def _value(kind: type[T], parsed: object, origin: Origin) -> T:
    if kind is dict and isinstance(parsed, dict):
        return cast("T", parsed)
    try:
        return from_json(kind, parsed, origin)
    except ValueError as exc:
        message = f"{origin.server} answers in another form, {exc}: is it another version of vlmsearch?"
        raise BackendError(message) from exc


# --------------------------------------------------------------------------------------------------------------- forms


def _strictly(report: IndexReport, *, strict: bool) -> IndexReport:
    """Return a report; if ``strict`` is set, raise the error of its first reject."""
    if strict and report.rejects:
        raise InvalidInputError(report.rejects[0].code, report.rejects[0].message)
    return report


def _chunks(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    return (items[start : start + size] for start in range(0, len(items), size))


def _sum(first: IndexReport, second: IndexReport) -> IndexReport:
    """Return the sums of two reports."""
    names = [field.name for field in fields(IndexReport) if field.name not in ("left_out", "others")]  # are not sent
    sums = {name: _added(getattr(first, name), getattr(second, name)) for name in names}
    return IndexReport(**sums)


def _added(first: Any, second: Any) -> Any:
    return dict(Counter(first) + Counter(second)) if isinstance(first, Mapping) else first + second


# -------------------------------------------------------------------------------------------------------------- errors

_KINDS: Mapping[str, type[VlmsearchError]] = {
    **ERROR_TYPES,
    "internal": BackendError,
    "rate_limited": OverloadedError,
    "shutting_down": BackendUnavailableError,
    "timeout": BackendUnavailableError,
}
"""The exceptions of a server's errors, by type; other types are a `ConfigError`."""


def _error(response: httpx.Response, server: HttpClient, origin: Origin) -> VlmsearchError:
    """Return the error that a server answered with."""
    from vlmsearch.openai_api.http import wait_asked

    status, retry_after = response.status_code, wait_asked(response)
    try:
        body = server.read(response, _MAX_BYTES)
        return _error_of(_value(ErrorAnswer, _parse(body, origin), origin).error, retry_after)
    except BackendError:
        message = f"{origin.server} answers {status}, and not as vlmsearch does: is it something else, or a proxy?"
        if status in (429, 502, 503, 504):
            return BackendUnavailableError(message, retry_after=retry_after)
        return BackendError(message)


def _error_of(error: ErrorDetail, retry_after: float = 0.0) -> VlmsearchError:
    """Return the error that the server names."""
    if error.type == "too_large":
        return InvalidInputError("too_large", error.message)
    if error.code in _CODES:
        return InvalidInputError(cast("RejectCode", error.code), error.message)
    kind = _KINDS.get(error.type, ConfigError)
    if issubclass(kind, BackendUnavailableError):
        return kind(error.message, retry_after=retry_after)
    return kind(error.message)
