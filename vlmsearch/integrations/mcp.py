"""An index for assistants: a server of the Model Context Protocol over an `Index`.

The protocol is that of https://modelcontextprotocol.io, by its official SDK. Tools search, ask, look and label;
documents and their pictures are resources, too. Nothing is written unless that is allowed.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection
from functools import wraps
from typing import Annotated, Any, TypeVar, Union
from urllib.parse import quote

from mcp.server.mcpserver import Image, MCPServer, ResourceSecurity
from mcp.server.mcpserver.exceptions import ResourceError, ToolError
from mcp.server.transport_security import TransportSecuritySettings
from mcp.types import ToolAnnotations
from pydantic import Field
from typing_extensions import ParamSpec, TypedDict

import vlmsearch
from vlmsearch._util.address import parse_address
from vlmsearch.errors import ConfigError, InvalidInputError, VlmsearchError
from vlmsearch.index import Index
from vlmsearch.schema import option_field
from vlmsearch.search.options import LabelRequest, ManyOptions
from vlmsearch.types import PASSAGE, Document, Match, Matches, MetadataValue, document_of
from vlmsearch.verbs import AskRequest, simple_options

P = ParamSpec("P")
T = TypeVar("T")
_EDGE = 768
"""The longer side of a picture, in pixels: about what models see."""
_MAX_TEXT = 2000
"""Characters of a document's text that a list shows; `read` gives all."""
_MAX_LABELLED = 100
_MAX_PARTS = 20
_INSTRUCTIONS = """Search an index of images and texts. `search` finds documents by a description in plain words,
`similar` by documents, and `look` shows the picture of one. A score is the probability that a document is what was
asked for; an empty list means that nothing matches, and `closest` then has what may be meant. Ids are opaque: give
them back as they are. Of the parts of a file, such as pages, and of the passages of a long text, a list has the best;
`parts` are the ids of others that are relevant. `read` gives a whole text, or a passage and with the next number the
one behind it."""
_READ = ToolAnnotations(read_only_hint=True, open_world_hint=False)
_WRITE = ToolAnnotations(read_only_hint=False, destructive_hint=False, idempotent_hint=True, open_world_hint=False)

Labels = Annotated[list[str], Field(min_length=1, max_length=100, description='Such as ["cat", "dog", "receipt"].')]
_LABEL = (
    "Say which of some labels fit each document of the index. Nothing is changed.",
    "Say which of some labels fit each document of the index, and keep them if that is asked.",
)
"""Descriptions of the tool that labels: where it may not write, and where it may."""
Id = Annotated[str, Field(description="The id of a document, as another tool gave it.")]


class FoundDocument(TypedDict):
    """A document that was found.

    Of a long text, `text` is the passage that fits best, and `passage` its id.
    """

    id: str
    score: float
    text: str | None
    passage: str | None
    has_image: bool
    metadata: dict[str, MetadataValue]
    parts: list[str]


class FoundDocuments(TypedDict):
    """The matches of a search, best first, and why scores of some fields are no probabilities.

    Where nothing matches, `closest` has documents that may be meant. `shown_for` has the words that were searched for
    in the place of misspelt ones.
    """

    matches: list[FoundDocument]
    closest: list[FoundDocument]
    threshold: float
    uncalibrated: dict[str, str]
    shown_for: dict[str, str]
    unknown_keys: dict[str, str]


class CitedSource(TypedDict):
    """A source that an answer cites, and the id of its best passage."""

    number: int
    id: str
    passage: str | None


class AnswerWithSources(TypedDict):
    """An answer; ``[1]`` in its text is the citation of that number.

    It is unsure where nothing matches the question, and the sources are what comes closest. `read_as` says of each
    source whether the model read it as a picture, a text, both or neither. `read` says which part of a text it did not
    read.
    """

    text: str
    citations: list[CitedSource]
    sources: list[FoundDocument]
    is_unsure: bool
    read_as: dict[str, str]
    read: dict[str, str]


class LabelledDocument(TypedDict):
    """A document with the relevance of the labels that fit it."""

    id: str
    labels: dict[str, float]


class LabelReport(TypedDict):
    """The numbers of documents by label, and the first of them."""

    counts: dict[str, int]
    documents: list[LabelledDocument]
    more: int


def create_mcp_server(index: Index, *, allow_write: bool = False) -> MCPServer[Any]:
    """Return a server of the Model Context Protocol for an index.

    Its ``run("stdio")`` serves one client on standard input and output, and ``run("streamable-http")`` many over HTTP.

    Args:
        index: The index, here or on a server; it stays open as long as the server runs.
        allow_write: Whether `label` may put labels into the index.

    Returns:
        The server, with tools and resources.

    Example:
        >>> import asyncio
        >>> from vlmsearch import Pipeline
        >>> with Pipeline.open(encoder="mock:", store="mock:") as pipeline:
        ...     tools = asyncio.run(create_mcp_server(pipeline).list_tools())
        >>> [tool.name for tool in tools]
        ['search', 'similar', 'ask', 'read', 'look', 'label', 'info']
    """
    server: MCPServer[Any] = MCPServer(
        "vlmsearch", instructions=_INSTRUCTIONS, version=vlmsearch.__version__, log_level="WARNING"
    )
    _add_searches(server, index)
    _add_labels(server, index, allow_write=allow_write)
    _add_resources(server, index)
    return server


def allow_hosts(hosts: Collection[str]) -> TransportSecuritySettings:
    """Return the settings that let in requests for this machine and for other names.

    Proxies pass these on.

    Args:
        hosts: What ``Host`` may be, with or without a port. Pages at these names may send requests, too.

    Returns:
        The argument ``transport_security`` of ``run("streamable-http", ...)``.

    Raises:
        ConfigError: One is no host.

    Example:
        >>> allow_hosts(["search.example.com"]).allowed_hosts[-1]
        'search.example.com:*'
    """
    for host in hosts:
        if parse_address(host) is None:
            raise ConfigError(f"a host is a name such as search.example.com, or search.example.com:8443, not {host!r}")
    allowed = ["127.0.0.1", "localhost", "[::1]", *map(str.lower, hosts)]
    names = [form for host in allowed for form in (host, f"{host}:*")]
    origins = [f"{scheme}://{name}" for scheme in ("http", "https") for name in names]
    return TransportSecuritySettings(allowed_hosts=names, allowed_origins=origins)


def _add_searches(server: MCPServer[Any], index: Index) -> None:
    @server.tool(annotations=_READ)
    @_explained(ToolError)
    @_with_options(ManyOptions, le=100)
    def search(
        query: Annotated[str, Field(description='What to look for; matches say "quoted words", and no -word.')],
        without: Annotated[str | None, Field(description="What the matches must not show or say.")] = None,
        **options: Any,
    ) -> FoundDocuments:
        """Find images and texts by a description."""
        return _documents(index.search(query, without=without, **options))

    @server.tool(annotations=_READ)
    @_explained(ToolError)
    @_with_options(ManyOptions, le=100)
    def similar(
        ids: Annotated[list[str], Field(min_length=1, description="Ids of documents.")], **options: Any
    ) -> FoundDocuments:
        """Find documents that are like some of the index."""
        return _documents(index.search(like=ids, **options))

    @server.tool(annotations=_READ)
    @_explained(ToolError)
    @_with_options(AskRequest, leave_out=("stream", "template"), le=20)
    def ask(
        question: Annotated[str, Field(description="The question, in plain words.")], **options: Any
    ) -> AnswerWithSources:
        """Answer a question from the documents of the index, with citations."""
        answer = index.ask(question, **options)
        return {
            "text": answer.text,
            "citations": [{"number": c.number, "id": c.id, "passage": c.passage} for c in answer.citations],
            "sources": list(map(_entry, answer.matches)),
            "is_unsure": answer.is_unsure,
            "read_as": dict(answer.read_as),
            "read": {id: read.name for id, read in answer.read.items() if read.unread},
        }

    @server.tool(annotations=_READ)
    @_explained(ToolError)
    def read(
        id: Annotated[str, Field(description="The id of a document, or that of a passage, which ends in #passage=N.")],
    ) -> dict[str, Any]:
        """Read the text of a document, or of a passage of it."""
        return _content(_document(index, id))

    @server.tool(annotations=_READ, structured_output=False)
    @_explained(ToolError)
    def look(
        id: Id,
        size: Annotated[int | None, Field(ge=64, le=1568, description="The longer side, in pixels.")] = _EDGE,
    ) -> list[Image | str]:
        """Show the picture of a document, with its text."""
        document = _document(index, document_of(id))
        picture = Image(data=_picture(index, document, size or _EDGE), format="jpeg")
        return [picture, document.text] if document.text else [picture]


def _add_labels(server: MCPServer[Any], index: Index, *, allow_write: bool) -> None:
    def run(labels: list[str], **options: Any) -> LabelReport:
        counts = dict.fromkeys(labels, 0)
        documents: list[LabelledDocument] = []
        more = 0
        for match in index.label(labels, **options):
            for name in match.labels:
                counts[name] = counts.get(name, 0) + 1
            if not match.labels:
                continue
            if len(documents) < _MAX_LABELLED:
                relevances = {name: round(relevance, 4) for name, relevance in match.labels.items()}
                documents.append({"id": match.document.id, "labels": relevances})
            else:
                more += 1
        return {"counts": counts, "documents": documents, "more": more}

    @server.tool(annotations=_WRITE if allow_write else _READ, description=_LABEL[allow_write])
    @_explained(ToolError)
    @_with_options(LabelRequest, leave_out=() if allow_write else ("write", "key"))
    def label(labels: Labels, **options: Any) -> LabelReport:
        return run(labels, **options)

    @server.tool(annotations=_READ)
    @_explained(ToolError)
    def info() -> dict[str, Any]:
        """Say how many documents the index has, and what it can be searched by."""
        return _info(index)


def _add_resources(server: MCPServer[Any], index: Index) -> None:
    # ids may be paths, but they are looked up in the index and never opened
    security = ResourceSecurity(exempt_params=frozenset({"id"}))

    @server.resource("vlmsearch://info", name="info", mime_type="application/json")
    @_explained(ResourceError)
    def about() -> dict[str, Any]:
        """Return what is in the index and what built it."""
        return _info(index)

    @server.resource("vlmsearch://documents/{id}", name="document", mime_type="application/json", security=security)
    @_explained(ResourceError)
    def document(id: str) -> dict[str, Any]:
        """Return a document with its text and metadata; its id is percent-encoded."""
        return _content(_document(index, id))

    @server.resource("vlmsearch://images/{id}", name="image", mime_type="image/jpeg", security=security)
    @_explained(ResourceError)
    def image(id: str) -> bytes:
        """Return the picture of a document, scaled; its id is percent-encoded."""
        return _picture(index, _document(index, id), _EDGE)


def _explained(kind: type[Exception]) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Have the messages of our own errors reach the client.

    Of others it is told that there was one.
    """

    def decorate(function: Callable[P, T]) -> Callable[P, T]:
        @wraps(function)
        def wrapper(*args: P.args, **kwargs: P.kwargs) -> T:
            try:
                return function(*args, **kwargs)
            except VlmsearchError as exc:
                raise kind(str(exc)) from exc

        return wrapper

    return decorate


def _with_options(
    request: type, leave_out: Collection[str] = (), **limit: int
) -> Callable[[Callable[..., T]], Callable[..., T]]:
    """Return a decorator that names the options of a verb in a tool's signature.

    The SDK reads them there. ``limit`` is what differs of the option of that name. The re-ranker is the one of the
    index. A null is left out.
    """

    def decorate(function: Callable[..., T]) -> Callable[..., T]:
        signature = inspect.signature(function, eval_str=True)
        own = [
            parameter
            for parameter in signature.parameters.values()
            if parameter.kind is not inspect.Parameter.VAR_KEYWORD
        ]
        added = []
        for name, option in simple_options(request).items():
            if name not in leave_out:
                kind, field = option_field(option, **(limit if name == "limit" else {}))
                annotation: Any = Annotated[Union[kind, None], field]
                kw = inspect.Parameter.KEYWORD_ONLY
                added.append(inspect.Parameter(name, kw, default=field.default, annotation=annotation))

        @wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> T:
            return function(*args, **kwargs)

        wrapper.__signature__ = signature.replace(parameters=[*own, *added])  # type: ignore[attr-defined]
        wrapper.__annotations__ = {parameter.name: parameter.annotation for parameter in (*own, *added)} | {
            "return": signature.return_annotation
        }
        return wrapper

    return decorate


def _document(index: Index, id: str) -> Document:
    """Return a document of the index; ConfigError where there is none of that id."""
    documents = index.get([id])
    if not documents:
        raise ConfigError(f"there is no document {id!r}: give an id as `search` gave it")
    return documents[0]


def _content(document: Document) -> dict[str, Any]:
    picture = {"image": f"vlmsearch://images/{quote(document.id, safe='')}"} if document.image is not None else {}
    return {"id": document.id, "text": document.text, "metadata": dict(document.metadata), **picture}


def _picture(index: Index, document: Document, size: int) -> bytes:
    if document.image is None:
        raise InvalidInputError("empty", f"{document.id!r} has no picture; its text is in the resource of its id")
    return index.thumbnail(document.id, size=size)


def _info(index: Index) -> dict[str, Any]:
    return {name: value for name, value in index.info().items() if name not in ("store", "path")}


def _documents(matches: Matches) -> FoundDocuments:
    return {
        "matches": list(map(_entry, matches)),
        "closest": list(map(_entry, matches.closest)),
        "threshold": matches.threshold,
        "uncalibrated": dict(matches.uncalibrated),
        "shown_for": dict(matches.shown_for),
        "unknown_keys": dict(matches.unknown_keys),
    }


def _entry(match: Match) -> FoundDocument:
    document, passage = match.document, match.passage
    text = (document.text or "") if passage is None else passage.encoded
    return {
        "id": document.id,
        "score": round(match.score, 4),
        "text": text[:_MAX_TEXT] or None,
        "passage": f"{document.id}{PASSAGE}{passage.number}" if passage is not None else None,
        "has_image": document.image is not None,
        "metadata": dict(document.metadata),
        "parts": list(match.parts)[:_MAX_PARTS],
    }
