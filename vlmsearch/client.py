"""A `Pipeline` on another machine: the same verbs, over the HTTP interface of `vlmsearch serve`.

It takes nothing but Python: no numpy, no model and no store are loaded where it runs.
"""

from __future__ import annotations

import base64
import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, fields
from http import HTTPStatus
from http.client import HTTPResponse, IncompleteRead
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar, cast, get_args, overload
from urllib.parse import quote, urlencode

from typing_extensions import Unpack, override

from vlmsearch._util.closable import Closable
from vlmsearch._util.credentials import check_unencrypted
from vlmsearch._util.http import HttpConnections
from vlmsearch._util.retry import pauses
from vlmsearch.errors import (
    BackendError,
    BackendUnavailableError,
    ConfigError,
    InvalidInputError,
    OverloadedError,
    RejectCode,
    VlmsearchError,
)
from vlmsearch.index import Index
from vlmsearch.indexing.items import NO_OPTIONS, SourceOptions
from vlmsearch.media.limits import MAX_FILE_BYTES
from vlmsearch.search.options import ManyKeywords, RankingKeywords, SearchKeywords, make_options
from vlmsearch.search.query import Query, split_text
from vlmsearch.types import (
    Answer,
    AnswerParts,
    Citation,
    Document,
    Duplicates,
    ImageSource,
    IndexReport,
    Labelled,
    Match,
    Matches,
    Reject,
    RemoteImage,
    check_id,
    check_metadata,
    local_image,
)
from vlmsearch.wire import (
    ERROR_TYPES,
    Deleted,
    DocumentPage,
    ErrorAnswer,
    ErrorDetail,
    Event,
    IndexList,
    LabelReport,
    ManyMatches,
    Origin,
    RejectList,
    from_json,
    to_json,
)

if TYPE_CHECKING:
    from vlmsearch.generators.base import GenerationOptions
    from vlmsearch.indexing.sources import Paths
    from vlmsearch.rerankers.base import Reranker
    from vlmsearch.search.explanation import Explanation
    from vlmsearch.search.judged import JudgedQuery
    from vlmsearch.stores.base import CheckReport

TOKEN = "VLMSEARCH_TOKEN"  # noqa: S105 - the name of a variable
DEFAULT_INDEX = "default"
_API = "/api/v1"
_RETRIES = 3
_MOST_WAIT = 60.0
"""Seconds; a server that asks to be left alone for longer is reported at once."""
_BATCH_DOCUMENTS = 256
_BATCH_BYTES = 8 * 2**20
"""Of the images, texts and metadata that one request carries."""
_BATCH_IDS = 100
_PAGE = 100
_JSON_BYTES = 128 * 2**20
"""Of an answer, and of a line in a stream: a page of documents, of a MiB of text each."""
_RESULT_BYTES = 512 * 2**20
"""Of a line in the events of a job, whose result may name each document of the index."""
_THUMBNAIL_BYTES = 16 * 2**20
_RESENT_BYTES = 64 * 2**20
"""Of an image that is fetched to be sent back: what a server takes in a request."""
_ERROR_BYTES = 2**20
_TEXT_CHARS = 2**24
"""Of all pieces of a streamed answer."""
_CHUNK = 2**20
_CODES = frozenset(get_args(RejectCode))
T = TypeVar("T")


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
        url: Such as ``http://127.0.0.1:8080`` or ``https://search.example.org/photos``.
        index: The index, of several.
        token: What `vlmsearch token add` printed; by default that in ``VLMSEARCH_TOKEN``, if it is set.
        timeout: After how many seconds without an answer a call fails.
        allow_plain_http: Whether the token may go to another machine over a connection that all can read.

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
class DocumentCount:
    """The part of `Index.info` that a client counts by."""

    documents: int


@dataclass(frozen=True)
class JobId:
    """The part of a job that a client follows it by."""

    id: str


class RemotePipeline(Index):
    """Index, search and ask on a server, as `Pipeline` does here; see `connect` for the arguments.

    It may be used from several threads. What a method raises is what `Pipeline` would raise there;
    `BackendUnavailableError` also where the server cannot be reached, and `ConfigError` for a wrong token or an index
    that the token may not see. Calls that the server was too busy for are tried again when it says so, and so are calls
    that change nothing or can be repeated when the connection failed.

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
        self._server = HttpConnections(url, timeout=timeout)
        self._index = index
        self._origin = Origin(self._server.url, index)
        self._timeout = timeout
        token = os.environ.get(TOKEN) if token is None else token
        if token and not (self._server.is_encrypted or allow_plain_http):
            advice = "give an https:// URL, or connect(..., allow_plain_http=True) where the network is trusted"
            check_unencrypted(TOKEN, self._server.host, advice)
        self._headers = {"Accept": "application/json", "User-Agent": "vlmsearch"}
        self._headers |= {"Authorization": f"Bearer {token}"} if token else {}

    def __repr__(self) -> str:
        return f"RemotePipeline({self._server.url!r}, index={self._index!r})"

    # ------------------------------------------------------------------------------------------------------- queries

    @override
    def search(
        self,
        text: str | None = None,
        *,
        image: ImageSource | RemoteImage | None = None,
        like: str | Iterable[str] = (),
        without: str | ImageSource | RemoteImage | Sequence[str] | None = None,
        **options: Unpack[SearchKeywords],
    ) -> Matches:
        form = {**self._query_form(text, image, like, without), **_options_form(SearchKeywords, options)}
        return self._post(Matches, "search", form)

    @override
    def search_many(self, queries: Iterable[str | Query], **options: Unpack[ManyKeywords]) -> list[Matches]:
        if isinstance(queries, (str, Query)):
            raise TypeError("search_many takes a list of queries; `search` takes one")
        given = [{"text": query} if isinstance(query, str) else self._form_of(query) for query in queries]
        form = {"queries": given, **_options_form(ManyKeywords, options)}
        return list(self._post(ManyMatches, "search_many", form).results)

    @override
    def explain(
        self,
        text: str | None,
        id: str,
        *,
        image: ImageSource | RemoteImage | None = None,
        like: str | Iterable[str] = (),
        without: str | ImageSource | RemoteImage | Sequence[str] | None = None,
        parts: bool = False,
        seconds: float = 10.0,
        on_progress: Callable[[int], None] | None = None,
        **options: Unpack[RankingKeywords],
    ) -> Explanation:
        from vlmsearch.search.explanation import Explanation

        query = self._query_form(text, image, like, without)
        more = {"id": id, "parts": parts, "seconds": seconds}
        return self._post(Explanation, "explain", {**query, **_options_form(RankingKeywords, options), **more})

    @overload
    def ask(
        self,
        question: str,
        *,
        image: ImageSource | RemoteImage | None = None,
        stream: Literal[False] = False,
        options: GenerationOptions | None = None,
        template: str | None = None,
        **search: Unpack[RankingKeywords],
    ) -> Answer: ...

    @overload
    def ask(
        self,
        question: str,
        *,
        image: ImageSource | RemoteImage | None = None,
        stream: Literal[True],
        options: GenerationOptions | None = None,
        template: str | None = None,
        **search: Unpack[RankingKeywords],
    ) -> RemoteAnswerStream: ...

    @override
    def ask(
        self,
        question: str,
        *,
        image: ImageSource | RemoteImage | None = None,
        stream: bool = False,
        options: GenerationOptions | None = None,
        template: str | None = None,
        **search: Unpack[RankingKeywords],
    ) -> Answer | RemoteAnswerStream:
        form = {
            "question": question,
            "image": image if image is None else self._encoded(image),
            "options": options and asdict(options),
            "template": template,
            **_options_form(RankingKeywords, search),
        }
        if stream:
            return RemoteAnswerStream(
                self._events("POST", self._path("ask"), {**form, "stream": True}, most=_JSON_BYTES)
            )
        return self._post(Answer, "ask", form)

    # ----------------------------------------------------------------------------------------------------- documents

    @override
    def add(
        self,
        documents: Document | Iterable[Document],
        *,
        retry_rejects: bool = False,
        strict: bool = False,
        on_progress: Callable[[int], None] | None = None,
    ) -> IndexReport:
        whole = IndexReport()
        for batch, rejects in self._batches([documents] if isinstance(documents, Document) else documents):
            whole = _sum(whole, IndexReport(rejects=tuple(rejects)))
            if batch and not (strict and rejects):
                form = {"documents": batch, "retry_rejects": retry_rejects}
                whole = _sum(whole, self._post(IndexReport, "documents", form))
            _strictly(whole, strict=strict)
            if on_progress is not None:
                on_progress(whole.seen)
        return whole

    @override
    def index(
        self,
        paths: str | Path | Iterable[str | Path] | Paths,
        *,
        options: SourceOptions = NO_OPTIONS,
        prune: bool = False,
        retry_rejects: bool = False,
        strict: bool = False,
        on_progress: Callable[[int], None] | None = None,
    ) -> IndexReport:
        if isinstance(paths, (str, Path)):
            paths = [paths]
        given = getattr(paths, "given", paths)
        taken = asdict(getattr(paths, "options", options))
        del taken["follow_links"]  # never, there
        form = {"paths": [str(path) for path in given], "prune": prune, "retry_rejects": retry_rejects, **taken}
        return _strictly(self._job(IndexReport, "index", form, on_progress), strict=strict)

    @override
    def delete(self, ids: str | Iterable[str]) -> int:
        given = [ids] if isinstance(ids, str) else list(ids)
        return self._post(Deleted, "documents/delete", {"ids": given}).deleted

    @override
    def get(self, ids: str | Iterable[str]) -> list[Document]:
        given = [ids] if isinstance(ids, str) else list(ids)
        found: dict[str, Document] = {}
        for batch in _chunks(given, _BATCH_IDS):
            page = self._get(DocumentPage, "documents", [("id", id) for id in batch])
            found |= {document.id: document for document in page.documents}
        return [found[id] for id in given if id in found]

    @override
    def documents(self) -> Iterator[Document]:
        after: str | None = None
        while True:
            query = [("limit", str(_PAGE)), *([("after", after)] if after is not None else [])]
            page = self._get(DocumentPage, "documents", query)
            yield from page.documents
            after = page.after
            if after is None:
                return

    def image(self, id: str) -> bytes:
        """Return the image of a document, as its file is.

        Args:
            id: The document's.

        Returns:
            The encoded bytes.

        Raises:
            ConfigError: The document is not there, or has no image.
            VlmsearchError: The server refused, or cannot be reached.
        """
        return self._send("GET", _with_query(self._path("image"), [("id", id)]), most=MAX_FILE_BYTES)

    @override
    def thumbnail(self, id: str, *, size: int = 256) -> bytes:
        target = _with_query(self._path("thumbnail"), [("id", id), ("size", str(size))])
        return self._send("GET", target, most=_THUMBNAIL_BYTES)

    # --------------------------------------------------------------------------------------------------- whole index

    @override
    def label(
        self,
        labels: Iterable[str],
        *,
        templates: Sequence[str] = ("{}",),
        where: Mapping[str, object] | None = None,
        min_score: float | None = None,
        single: bool = False,
        write: bool = False,
        key: str = "label",
        limit: int | None = None,
        on_progress: Callable[[int], None] | None = None,
    ) -> Iterator[Labelled]:
        if isinstance(labels, str):
            raise TypeError(f"labels are a list of strings, such as [{labels!r}]")
        form = {
            "labels": list(labels),
            "templates": list(templates),
            "where": where,
            "min_score": min_score,
            "single": single,
            "write": write,
            "key": key,
            "limit": limit,
        }
        for batch in _chunks(self._job(LabelReport, "label", form, on_progress).documents, _BATCH_IDS):
            documents = {document.id: document for document in self.get([labelled.id for labelled in batch])}
            for labelled in batch:
                document = documents.get(labelled.id, Document(labelled.id))
                yield Labelled(document, labelled.labels, labelled.written)

    @override
    def duplicates(
        self,
        *,
        threshold: float | None = None,
        where: Mapping[str, object] | None = None,
        on_progress: Callable[[int], None] | None = None,
    ) -> Duplicates:
        return self._job(Duplicates, "duplicates", {"threshold": threshold, "where": where}, on_progress)

    @override
    def evaluate(
        self,
        queries: Iterable[JudgedQuery],
        *,
        limit: int = 10,
        rerank: Reranker | str | bool = False,
        on_progress: Callable[[int], None] | None = None,
    ) -> Mapping[str, Any]:
        judged = [
            {
                "id": each.id,
                "query": each.text,
                "image": None if each.image is None else self._encoded(each.image),
                "relevant": dict(each.relevant),
            }
            for each in queries
        ]
        form = {"queries": judged, "limit": limit, "rerank": _is_reranked(rerank)}
        return self._job(dict, "eval", form, on_progress)

    @override
    def check(self, *, repair: bool = False) -> CheckReport:
        from vlmsearch.stores.base import CheckReport

        return self._job(CheckReport, "check", {"repair": repair}, None)

    @override
    def count(self) -> int:
        return self._get(DocumentCount, "").documents

    @override
    def info(self) -> Mapping[str, Any]:
        return self._get(dict, "")

    def indexes(self) -> list[Mapping[str, Any]]:
        """Return what indexes the server has.

        Returns:
            For each that the token may see: ``name``, ``documents``, ``spaces`` and ``can``.

        Raises:
            VlmsearchError: The server refused, or cannot be reached.
        """
        return list(map(to_json, self._read(IndexList, "GET", f"{_API}/indexes").indexes))

    @override
    def rejects(self) -> list[Reject]:
        return list(self._get(RejectList, "rejects").rejects)

    # ---------------------------------------------------------------------------------------------------------- forms

    def _query_form(
        self,
        text: str | None,
        image: ImageSource | RemoteImage | None,
        like: str | Iterable[str],
        without: str | ImageSource | RemoteImage | Sequence[str] | None,
    ) -> dict[str, object]:
        """Return a query as it is sent, with what it leaves out."""
        left_out: object = without
        if isinstance(without, Sequence) and not isinstance(without, (str, bytes)):
            left_out = list(without)
        elif without is not None and not isinstance(without, str):
            left_out = {"image": self._encoded(without)}
        return {
            "text": text,
            "image": None if image is None else self._encoded(image),
            "like": [like] if isinstance(like, str) else list(like),
            "without": left_out,
        }

    def _form_of(self, query: Query) -> dict[str, object]:
        """Return a `Query` as it is sent; ConfigError where it leaves out more than one thing."""
        left_out = query.without[0] if query.without else None
        parts = [] if left_out is None else [left_out.text, left_out.image, left_out.like or None]
        given = [part for part in parts if part is not None]
        if len(query.without) > 1 or len(given) > 1 or (query.text and split_text(query.text)[1]):
            raise ConfigError(
                "a server takes a query that leaves out one text, one image or ids: give `without` only once"
            )
        return self._query_form(query.text, query.image, query.like, given[0] if given else None)

    def _encoded(self, image: ImageSource | RemoteImage) -> str:
        """Return an image in Base64: the bytes of its file, here or on this server, or a PNG of what is decoded."""
        if isinstance(image, RemoteImage) and image.server == self._server.url:
            target = _with_query(self._path("image", image.index), [("id", image.id)])
            return _base64(self._send("GET", target, most=_RESENT_BYTES))
        return _encoded(local_image(image))

    def _document_form(self, document: Document) -> dict[str, object]:
        if not isinstance(document, Document):
            raise TypeError(f"a Document is added, not {type(document).__name__}: Document(id, text=..., image=...)")
        check_id(document.id)
        check_metadata(document.metadata)
        return {
            "id": document.id,
            "text": document.text,
            "image": None if document.image is None else self._encoded(document.image),
            "metadata": dict(document.metadata),
        }

    def _batches(self, documents: Iterable[Document]) -> Iterator[tuple[list[dict[str, object]], list[Reject]]]:
        """Yield the forms of documents that one request carries, and which could not be sent."""
        batch: list[dict[str, object]] = []
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
        """Close the connections."""
        self._server.close()

    def _path(self, verb: str, index: str | None = None) -> str:
        return f"{_API}/indexes/{quote(index or self._index, safe='')}" + (f"/{verb}" if verb else "")

    def _post(self, kind: type[T], verb: str, form: Mapping[str, object]) -> T:
        return self._read(kind, "POST", self._path(verb), form)

    def _get(self, kind: type[T], verb: str, query: Sequence[tuple[str, str]] = ()) -> T:
        return self._read(kind, "GET", _with_query(self._path(verb), query))

    def _read(
        self,
        kind: type[T],
        method: str,
        target: str,
        form: Mapping[str, object] | None = None,
        *,
        is_repeatable: bool = True,
    ) -> T:
        """Send a request and return the value of the answer."""
        return _parse(kind, self._send(method, target, form, is_repeatable=is_repeatable), self._origin)

    def _send(
        self,
        method: str,
        target: str,
        form: Mapping[str, object] | None = None,
        *,
        most: int | None = None,
        is_repeatable: bool = True,
    ) -> bytes:
        """Send a request, several times if need be, and return the body of the answer.

        BackendError for more than ``most`` bytes, by default those of a page of documents.
        """

        def attempt() -> bytes:
            with self._exchange(method, target, form) as response:
                return _body(response, _JSON_BYTES if most is None else most, self._server.url)

        return self._retrying(attempt, is_repeatable=is_repeatable)

    @contextmanager
    def _exchange(self, method: str, target: str, form: Mapping[str, object] | None = None) -> Iterator[HTTPResponse]:
        """Yield the answer, unread; raise the error that it stands for."""
        body = None if form is None else json.dumps(form, separators=(",", ":")).encode()
        headers = self._headers if body is None else {**self._headers, "Content-Type": "application/json"}
        with self._server.exchange(method, target, body=body, headers=headers) as response:
            if response.status >= HTTPStatus.BAD_REQUEST:
                said = response.headers.get("Retry-After", "")
                wait = float(said) if said.isdecimal() else None
                error = _error(
                    response.status, _body(response, _ERROR_BYTES, self._server.url), self._origin, wait or 0.0
                )
                raise error if wait is None else _RefusedError(error, wait, response.status)
            yield response

    def _retrying(self, attempt: Callable[[], T], *, is_repeatable: bool) -> T:
        """Return what an attempt returns, made again where the server says when or nothing can be done twice."""
        for pause in (*pauses(_RETRIES), None):
            try:
                return attempt()
            except _RefusedError as exc:  # one that came too early was not looked at
                is_safe = is_repeatable or exc.status == HTTPStatus.TOO_MANY_REQUESTS
                if pause is None or not is_safe or exc.seconds > _MOST_WAIT:
                    raise exc.error from None
                time.sleep(max(exc.seconds, pause))
            except BackendUnavailableError as exc:
                if pause is None or not is_repeatable or isinstance(exc.__cause__, TimeoutError):
                    raise
                time.sleep(pause)
        raise AssertionError

    def _events(self, method: str, target: str, form: Mapping[str, object] | None = None, *, most: int) -> _Events:
        def attempt() -> _Events:
            return _Events(self._exchange(method, target, form), most, self._origin)

        return self._retrying(attempt, is_repeatable=True)

    def _job(
        self, kind: type[T], name: str, form: Mapping[str, object], on_progress: Callable[[int], None] | None
    ) -> T:
        """Run a job and return its result; cancel it when the call is interrupted."""
        job = self._read(JobId, "POST", self._path("jobs"), {"kind": name, **form}, is_repeatable=False)
        path = f"{_API}/jobs/{quote(job.id, safe='')}"
        try:
            return _value(kind, self._follow(path, on_progress), self._origin)
        except BaseException:
            with suppress(VlmsearchError):
                self._send("DELETE", path)
            raise

    def _follow(self, path: str, on_progress: Callable[[int], None] | None) -> object:
        """Return the JSON of the result of a job."""
        while True:
            with self._events("GET", f"{path}/events", most=_RESULT_BYTES) as events:
                for name, data in events:
                    if name == "done":
                        return data.get("result")
                    if name == "cancelled":
                        raise BackendError("the job was cancelled on the server; what it did until then stays")
                    event = _value(Event, data, self._origin)
                    if event.error is not None:
                        raise _error_of(event.error)
                    if on_progress is not None:
                        on_progress(event.done)
            time.sleep(1)  # the connection was closed, by a proxy for example


class RemoteAnswerStream(AnswerParts):
    """Iterate over an answer as a server makes it, as `AnswerStream` does: pieces of its text, then its citations.

    Closing it, or leaving the ``with`` block, stops the generator on the server. Use it from one thread.

    Attributes:
        matches: The sources, best first; known from the first piece of the text on.

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
        """Return the whole answer, after reading what is left of it; after `close`, what there was until then.

        Returns:
            The answer with its sources.

        Raises:
            BackendError: The generator failed, or the server went away.
        """
        for _ in self:
            pass
        return self._answer or Answer("".join(self._text), (), self.matches)

    def _run(self) -> Iterator[str | Citation]:
        length = 0
        for name, data in self._events:
            if name == "answer":
                self._answer = _value(Answer, data, self._events.origin)
                yield from self._answer.citations
                return
            event = _value(Event, data, self._events.origin)
            if event.error is not None:
                raise _error_of(event.error)
            if name == "matches":
                self.matches = event.matches
            elif name == "token":
                self._text.append(event.text)
                length += len(event.text)
                if length > _TEXT_CHARS:
                    raise BackendError(f"{self._events.origin.server} answers with a text that does not end")
                yield event.text
        raise BackendUnavailableError("the server went away in the middle of the answer")

    def close(self) -> None:
        """Stop the generator."""
        self._parts = iter(())
        self._events.close()


class _Events(Closable, Iterator[tuple[str, dict[str, Any]]]):
    """The server-sent events of an answer: what each is, and its data.

    As the WHATWG's HTML standard has them (9.2), from a server that writes an event's data on one line.
    """

    def __init__(self, exchange: AbstractContextManager[HTTPResponse], most: int, origin: Origin) -> None:
        self._most = most
        self.origin = origin
        self._entered = ExitStack()
        self._response = self._entered.enter_context(exchange)

    def __next__(self) -> tuple[str, dict[str, Any]]:
        kind = ""
        with ExitStack() as stack:  # an error ends the exchange, which says what it was about
            stack.push(self._entered.__exit__)
            while line := self._response.readline(self._most + 1):
                if len(line) > self._most:
                    raise _too_long(self.origin.server, self._most)
                name, _, value = line.decode("utf-8", "replace").rstrip("\r\n").partition(":")
                if name == "event":
                    kind = value.strip()
                elif name == "data":
                    stack.pop_all()
                    return kind, _parse(dict, value, self.origin)
        raise StopIteration

    def close(self) -> None:
        """Close the connection, which the server takes for having been given up."""
        self._entered.close()


# ------------------------------------------------------------------------------------------------------------- answers


def _body(response: HTTPResponse, most: int, url: str) -> bytes:
    """Return the body of an answer; BackendError for more than ``most`` bytes."""
    pieces: list[bytes] = []
    left = most
    while piece := response.read(min(_CHUNK, left + 1)):
        left -= len(piece)
        if left < 0:
            raise _too_long(url, most)
        pieces.append(piece)
    if response.length:  # it ended before what it said
        raise IncompleteRead(b"", response.length)
    return b"".join(pieces)


def _too_long(url: str, most: int) -> BackendError:
    return BackendError(f"{url} answers with more than {most:,} bytes, the most that is read of such an answer")


def _parse(kind: type[T], text: str | bytes, origin: Origin) -> T:
    """Return the value of JSON; BackendError where it is none."""
    try:
        parsed = json.loads(text)
    except (ValueError, RecursionError) as exc:
        raise BackendError(f"{origin.server} answers with something else than JSON: is it vlmsearch?") from exc
    return _value(kind, parsed, origin)


def _value(kind: type[T], parsed: object, origin: Origin) -> T:
    if kind is dict and isinstance(parsed, dict):
        return cast("T", parsed)
    try:
        return from_json(kind, parsed, origin)
    except ValueError as exc:
        message = f"{origin.server} answers in another form, {exc}: is it another version of vlmsearch?"
        raise BackendError(message) from exc


# --------------------------------------------------------------------------------------------------------------- forms


def _with_query(path: str, query: Sequence[tuple[str, str]]) -> str:
    return f"{path}?{urlencode(query)}" if query else path


def _options_form(keywords: type, given: Mapping[str, Any]) -> dict[str, object]:
    """Return the options of a search that are given, as they are sent: the server has the defaults."""
    rerank = _is_reranked(given.get("rerank", False))
    options = make_options(keywords, given, rerank=rerank)
    form = {name: getattr(options, name) for name in given}
    return {name: list(value) if name == "facets" else value for name, value in form.items()}


def _is_reranked(rerank: Reranker | str | bool) -> bool:
    if rerank and rerank is not True:
        raise ConfigError("a service has a re-ranker of its own: ask it with rerank=True")
    return bool(rerank)


def _strictly(report: IndexReport, *, strict: bool) -> IndexReport:
    """Return a report; the error of its first reject where that is asked for."""
    if strict and report.rejects:
        raise InvalidInputError(report.rejects[0].code, report.rejects[0].message)
    return report


def _encoded(image: ImageSource) -> str:
    """Return an image of this machine in Base64: the bytes of its file, or a PNG of what is decoded."""
    if isinstance(image, Path):
        try:
            data = image.read_bytes()
        except OSError as exc:
            raise InvalidInputError("unreadable", f"{str(image)!r} cannot be read: {exc.strerror}") from exc
        if not data:
            raise InvalidInputError("empty", f"{str(image)!r} is empty: 0 bytes")
    elif isinstance(image, bytes):
        data = image
    elif isinstance(image, str):
        raise TypeError(f"an image is a Path, bytes or a decoded image, not the string {image!r}")
    else:
        buffer = BytesIO()
        image.save(buffer, "PNG")
        data = buffer.getvalue()
    return _base64(data)


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _chunks(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    return (items[start : start + size] for start in range(0, len(items), size))


def _sum(first: IndexReport, second: IndexReport) -> IndexReport:
    """Return what two runs did together."""
    names = [field.name for field in fields(IndexReport)]
    return IndexReport(**{name: getattr(first, name) + getattr(second, name) for name in names})


# -------------------------------------------------------------------------------------------------------------- errors

_KINDS: Mapping[str, type[VlmsearchError]] = {
    **ERROR_TYPES,
    "internal": BackendError,
    "shutting_down": BackendUnavailableError,
    "timeout": BackendUnavailableError,
}
"""What an error of the server is here; what is not named is a `ConfigError`."""


_BUSY = frozenset({"overloaded", "rate_limited"})


class _RefusedError(Exception):
    """An error that may pass, and after how many seconds."""

    def __init__(self, error: VlmsearchError, seconds: float, status: int) -> None:
        super().__init__(str(error))
        self.error = error
        self.seconds = seconds
        self.status = status


def _error(status: int, body: bytes, origin: Origin, seconds: float) -> VlmsearchError:
    """Return the error that an answer stands for."""
    try:
        return _error_of(_parse(ErrorAnswer, body, origin).error, seconds)
    except BackendError:
        kind = BackendUnavailableError if status in (429, 502, 503, 504) else BackendError
        return kind(
            f"{origin.server} answers {status}, and not as vlmsearch does: is it something else, or a proxy before it?"
        )


def _error_of(error: ErrorDetail, seconds: float = 0.0) -> VlmsearchError:
    """Return the error that the server names; ``seconds`` is after how many it says to come back."""
    if error.type in _BUSY:
        return OverloadedError(error.message, retry_after=seconds)
    if error.type == "too_large":
        return InvalidInputError("too_large", error.message)
    if error.code in _CODES:
        return InvalidInputError(cast("RejectCode", error.code), error.message)
    return _KINDS.get(error.type, ConfigError)(error.message)
