"""The verbs of an index, and the arguments of each: declared once, with their types, bounds, defaults and help.

A verb's arguments are the fields of one dataclass: its request. `verb` gives a method the request's signature, so the
local, the remote and the asynchronous pipeline take the same. Forms of the service, OpenAPI, flags of commands and
tools for assistants read `vlmsearch._util.options.options_of`. Every door takes an explicit None for "left out".
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import KW_ONLY, dataclass, field, is_dataclass
from functools import update_wrapper
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar, get_args

from vlmsearch._util.arguments import check_kind, shown
from vlmsearch._util.options import Option, Options, attribute_docs, bounded, local, options_of, short
from vlmsearch.errors import ConfigError
from vlmsearch.generators.base import PROMPT_CHARS, GenerationOptions, PictureOptions
from vlmsearch.indexing.given import ArrowTable, DocumentInput
from vlmsearch.indexing.items import NO_OPTIONS, SourceOptions
from vlmsearch.indexing.options import DescribeRequest
from vlmsearch.rerankers.base import Reranker
from vlmsearch.search.judged import JudgedQuery
from vlmsearch.search.options import (
    MAX_PAGE,
    DuplicatesRequest,
    ExplainRequest,
    LabelRequest,
    RankingKeywords,
    RankingOptions,
    SearchManyRequest,
    SearchRequest,
)
from vlmsearch.search.query import MAX_QUERY_CHARS, check_image, check_text
from vlmsearch.types import MAX_ID_BYTES, ImageInput, RemoteImage

if TYPE_CHECKING:
    from vlmsearch.indexing.sources import Paths
else:
    Paths = Iterable

__all__ = [
    "AddRequest",
    "AskKeywords",
    "AskRequest",
    "CheckRequest",
    "DescribeRequest",
    "DuplicatesRequest",
    "EvaluateRequest",
    "ExplainRequest",
    "IndexRequest",
    "LabelRequest",
    "SearchManyRequest",
    "SearchRequest",
    "ThumbnailRequest",
    "WatchRequest",
    "is_image",
    "simple_options",
    "verb",
]

P = ParamSpec("P")
A = TypeVar("A")
S = TypeVar("S")
T = TypeVar("T")


class AskKeywords(RankingKeywords, total=False):
    """Type the keyword arguments of `Index.ask`: see `AskRequest`."""

    image: ImageInput | RemoteImage | None
    options: GenerationOptions | None
    pictures: PictureOptions | None
    source_chars: int
    template: str | None


@dataclass(frozen=True)
class AskRequest(RankingOptions):
    """The arguments of `Index.ask`.

    Attributes:
        question: Question to answer, and to search for.
        image: Image to search for beside the question, and to show to a generator that sees.
        stream: Return the pieces of the text as they are made, then the citations.
        options: How to generate. By default greedily, with an answer of at most 256 tokens and a quarter of the model's
            context.
        pictures: How many pictures of the sources a generator sees, and how large. `Answer.read_as` says how each
            source was read.
        source_chars: Maximum number of characters of all sources. The best passage of each source is read first, then
            the others that were found, then those beside them. `Answer.read` says what was left out.
        template: Prompt with ``$sources`` and ``$question``, each once, in the form of `string.Template`.
        limit: Maximum number of sources.
    """

    question: str = field(metadata={"max_chars": MAX_QUERY_CHARS})
    _: KW_ONLY
    image: ImageInput | RemoteImage | None = None
    stream: bool = False
    options: GenerationOptions | None = None
    pictures: PictureOptions = PictureOptions()
    source_chars: int = bounded(12_000, minimum=1, maximum=PROMPT_CHARS)
    template: str | None = short(None, MAX_QUERY_CHARS)
    limit: int = bounded(5, minimum=1, maximum=MAX_PAGE)

    def __post_init__(self) -> None:
        check_kind("question", self.question, str, "a string")
        check_text(self.question)
        super().__post_init__()
        check_image("image", self.image)
        check_kind("options", self.options, (GenerationOptions, type(None)), "GenerationOptions or None")
        check_kind("pictures", self.pictures, PictureOptions, "PictureOptions, such as PictureOptions(limit=2)")


@dataclass(frozen=True)
class AddRequest(Options):
    """The arguments of `Index.add`.

    Attributes:
        documents: One document, or any number of them, which are read as they are needed: a `Document`, a dict, or an
            image. A table of pandas or Arrow has a row for each.
        passages: Encode a text that is longer than the model reads in passages. Otherwise its beginning alone is
            encoded.
        retry_rejects: Try those that were rejected again, too.
        strict: Raise for the first document that cannot be used. A service has indexed the others of its request.
        on_progress: Function that is called with the number of documents that are done.
    """

    documents: DocumentInput | Iterable[DocumentInput] | ArrowTable
    _: KW_ONLY
    passages: bool = True
    retry_rejects: bool = False
    strict: bool = local(False)
    on_progress: Callable[[int], None] | None = local()


@dataclass(frozen=True)
class IndexRequest(Options):
    """The arguments of `Index.index`.

    Attributes:
        paths: One path or several, or `Paths`, which have options of their own.
        options: What to take of files. Links to files are followed, also out of a folder, unless this says otherwise; a
            service never follows them.
        prune: Remove the documents that came from these folders and tables and are there no longer; never one from
            below a folder that could not be read.
        retry_rejects: Try those that were rejected again, too.
        strict: Raise for the first input that cannot be used. A service has indexed the others.
        on_progress: Function that is called with the number of inputs that are done.
    """

    paths: str | Path | Iterable[str | Path] | Paths
    _: KW_ONLY
    options: SourceOptions = NO_OPTIONS
    prune: bool = False
    retry_rejects: bool = False
    strict: bool = local(False)
    on_progress: Callable[[int], None] | None = local()

    def __post_init__(self) -> None:
        super().__post_init__()
        check_kind("options", self.options, SourceOptions, "SourceOptions")


@dataclass(frozen=True)
class WatchRequest(Options):
    """The arguments of `Pipeline.watch`.

    Attributes:
        folders: One folder or several, or `Paths`, which have options of their own.
        options: What to take of files.
        retry_rejects: Try rejected files again in the first run.
        on_progress: Function that is called in the first run, with the number of inputs that are done.
        stop: Function that is called twice a second, and ends the iteration when it returns True.
    """

    folders: str | Path | Iterable[str | Path] | Paths
    _: KW_ONLY
    options: SourceOptions = NO_OPTIONS
    retry_rejects: bool = False
    on_progress: Callable[[int], None] | None = local()
    stop: Callable[[], bool] | None = local()

    def __post_init__(self) -> None:
        super().__post_init__()
        check_kind("options", self.options, SourceOptions, "SourceOptions")


@dataclass(frozen=True)
class EvaluateRequest(Options):
    """The arguments of `Index.evaluate`.

    Attributes:
        queries: Queries, such as those that `vlmsearch.search.judged.read_queries` reads.
        limit: Number of matches of each that count.
        rerank: Re-ranker that judges the first matches anew: see `SearchOptions`.
        on_progress: Function that is called with the number of searches that are done.
    """

    queries: Iterable[JudgedQuery]
    _: KW_ONLY
    limit: int = bounded(10, minimum=1, maximum=MAX_PAGE)
    rerank: Reranker | str | bool = False
    on_progress: Callable[[int], None] | None = local()

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.queries, (str, bytes, Mapping)) or not isinstance(self.queries, Iterable):
            raise TypeError(f"`queries` is a list of judged queries, not {shown(self.queries)}")
        queries = tuple(self.queries)
        for query in queries:
            check_kind("queries", query, JudgedQuery, "a list of judged queries")
        if not queries:
            raise ConfigError("`queries` is empty: give at least one query, with the ids that answer it")
        check_kind("rerank", self.rerank, (Reranker, str, bool), "a re-ranker, the URL of one, True or False")
        object.__setattr__(self, "queries", queries)


@dataclass(frozen=True, kw_only=True)
class CheckRequest(Options):
    """The arguments of `Index.check`.

    Attributes:
        repair: Finish or roll back what does not agree.
    """

    repair: bool = False


@dataclass(frozen=True)
class ThumbnailRequest(Options):
    """The arguments of `Index.thumbnail`.

    Attributes:
        id: Id of the document.
        size: Longer side in pixels.
    """

    id: str = field(metadata={"max_chars": MAX_ID_BYTES})
    _: KW_ONLY
    size: int = bounded(256, minimum=1, maximum=4096)


def verb(request: Callable[P, A]) -> Callable[[Callable[[S, A], T]], Callable[Concatenate[S, P], T]]:
    """Return a decorator that gives a method the arguments of a verb.

    The method gets them as one request.

    Args:
        request: Dataclass of the arguments. What its docstring says of them goes into that of the method.

    Raises:
        TypeError: An argument is missing or unknown.
    """
    kind: Any = request
    given_by = inspect.signature(kind)
    names = list(given_by.parameters)

    def decorate(method: Callable[[S, A], T]) -> Callable[Concatenate[S, P], T]:
        hint = method.__annotations__["return"]
        own = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)
        signature = given_by.replace(parameters=[own, *given_by.parameters.values()], return_annotation=hint)

        def run(self: S, /, *args: P.args, **kwargs: P.kwargs) -> T:
            for name in kwargs:
                if name not in names:
                    raise TypeError(f"there is no option {name!r} here: the options are {', '.join(names)}")
            try:
                given = request(*args, **kwargs)
            except TypeError:
                signature.bind(self, *args, **kwargs)  # whose message names the method's arguments
                raise
            return method(self, given)

        update_wrapper(run, method)
        del run.__wrapped__  # type: ignore[attr-defined]
        run.__signature__ = signature  # type: ignore[attr-defined]
        run.__annotations__ = {name: parameter.annotation for name, parameter in signature.parameters.items()}
        run.__annotations__ = {**run.__annotations__, "return": hint}
        run.__annotations__.pop("self")
        run.__doc__ = _documented(method.__doc__, {name: attribute_docs(kind).get(name, "") for name in names})
        return run

    return decorate


def _documented(text: str | None, arguments: Mapping[str, str]) -> str | None:
    """Return a docstring with a section of arguments.

    None for none, so that the docstring is inherited.
    """
    if not text:
        return None
    first, returns, rest = inspect.cleandoc(text).partition("Returns:\n")
    listed = "".join(f"    {name}: {help}\n" for name, help in arguments.items())
    return f"{first}Args:\n{listed}\n{returns}{rest}"


def is_image(hint: Any) -> bool:
    """Return whether a type hint is that of an image, which JSON has as a path."""
    return RemoteImage in get_args(hint)


def simple_options(request: Any) -> Mapping[str, Option]:
    """Return the arguments of a verb that one flag, or one value of JSON, can set.

    Those that must be given are not among them, nor are queries beside a text, other options and functions.
    """
    return {
        name: option
        for name, option in options_of(request).items()
        if not (option.is_required or option.is_local or is_dataclass(option.kind) or is_image(option.type))
        and name not in ("like", "text")
    }
