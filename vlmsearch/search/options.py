"""The options of a search, and the arguments of the verbs that search: each is declared once.

`SearchOptions` has the name, the type, the default, the bounds and the help of every option. The verbs of an index take
them as keyword arguments, which `RankingKeywords`, `ManyKeywords` and `SearchKeywords` type for functions that pass
them on. The client, the command line, the service and the tools for assistants read `options_of` the requests. A new
option is a field here and a key of one of the three.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypedDict

from vlmsearch._util.arguments import check_kind, shown
from vlmsearch._util.options import Options, bounded, local, options_of, several, short
from vlmsearch._util.plain import MAX_KEY_CHARS, check_keys
from vlmsearch._util.text import well_formed
from vlmsearch.errors import ConfigError, InvalidInputError
from vlmsearch.rerankers.base import Reranker
from vlmsearch.search.query import MAX_QUERY_CHARS, Query, check_text, make_query
from vlmsearch.stores.filters import Filter, parse_filter
from vlmsearch.types import MAX_ID_BYTES, READERS, ImageInput, RemoteImage, check_metadata

MAX_PAGE = 10_000
"""The highest number of matches up to the end of a page, and of sorted matches."""
MAX_LIKE = 1000
"""Maximum number of documents that a query names."""
_CURSOR_CHARS = 2**17
"""A cursor after 10,000 documents has 80,016."""
_RERANK_SECONDS = 600.0
_LABELS, _TEMPLATES, _LABEL_CHARS = 1000, 100, 1024


class RankingKeywords(TypedDict, total=False):
    """Type the keyword arguments of every verb that searches: see `SearchOptions`.

    Example:
        >>> recent: RankingKeywords = {"limit": 5, "where": {"year": {"$gte": 2020}}}
        >>> SearchOptions(**recent).limit
        5
    """

    where: Mapping[str, object] | None
    limit: int
    min_score: float | None
    weights: Mapping[str, float] | None
    rerank: Reranker | str | bool
    rerank_first: int
    rerank_seconds: float


class ManyKeywords(RankingKeywords, total=False):
    """Type the keyword arguments of `Index.search_many`: see `SearchOptions`.

    Example:
        >>> by_year: ManyKeywords = {"sort": "-year"}
        >>> SearchOptions(**by_year).sort
        '-year'
    """

    sort: str
    diversity: float
    count: bool
    facets: Collection[str]
    group: bool


class SearchKeywords(ManyKeywords, total=False):
    """Type the keyword arguments of `Index.search`: see `SearchOptions`.

    Example:
        >>> second: SearchKeywords = {"limit": 10, "offset": 10}
        >>> SearchOptions(**second).offset
        10
    """

    offset: int
    cursor: str | None


@dataclass(frozen=True, kw_only=True)
class FilterOptions(Options):
    """Options with a filter.

    Attributes:
        where: Filter on metadata, such as ``{"year": {"$gte": 2020}}``. `vlmsearch.stores.filters` has its operators.

    """

    where: Mapping[str, object] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        _ = self.condition

    @cached_property
    def condition(self) -> Filter | None:
        """Return what the metadata have to pass."""
        return None if self.where is None else parse_filter(self.where)


@dataclass(frozen=True, kw_only=True)
class RankingOptions(FilterOptions):
    """The options of every verb that searches.

    Attributes:
        limit: Maximum number of matches.
        min_score: Lowest score to show, from 0 to 1; by default that of the index.
        weights: Weights of fields, such as ``{"words": 0.5, "clip/image": 2}``, from 0 to 1,000,000. A field that is
            left out has 1; one with 0 is not asked.
        rerank: Re-ranker that reads the text with each of the first matches and judges them anew. True is the one that
            the pipeline was opened with. A `Reranker` or the URL of one stays open until the pipeline is closed.
        rerank_first: Number of matches that the re-ranker reads.
        rerank_seconds: Seconds after which the re-ranker reads no more. The order so far stands.

    """

    limit: int = bounded(10, minimum=1, maximum=MAX_PAGE)
    min_score: float | None = bounded(None, minimum=0, maximum=1)
    weights: Mapping[str, float] | None = None
    rerank: Reranker | str | bool = False
    rerank_first: int = bounded(50, minimum=1, maximum=MAX_PAGE)
    rerank_seconds: float = bounded(1.0, above=0, maximum=_RERANK_SECONDS)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_kind("rerank", self.rerank, (Reranker, str, bool), "a re-ranker, the URL of one, True or False")

    @property
    def reranker(self) -> Reranker | None:
        """Return the open re-ranker; None where there is none."""
        return self.rerank if isinstance(self.rerank, Reranker) else None

    @property
    def unasked(self) -> frozenset[str]:
        """Return the fields with weight 0, which are not asked."""
        return frozenset(name for name, weight in (self.weights or {}).items() if weight == 0)

    def of_search(self, **others: Any) -> SearchOptions:
        """Return these as the options of a search, some of them changed."""
        names = options_of(SearchOptions).keys() & options_of(type(self)).keys()
        return SearchOptions(**{**{name: getattr(self, name) for name in names}, **others})


@dataclass(frozen=True, kw_only=True)
class ManyOptions(RankingOptions):
    """The options of `Index.search_many`.

    Attributes:
        sort: Order of the matches: ``relevance``, a metadata key, or ``-KEY`` for falling values. Documents without the
            key are last. On stores other than `sqlite:`, the up to 10,000 most relevant documents are sorted.
        diversity: Share from 0 to 1 by which a match is put behind for being like those before it. This is maximal
            marginal relevance (Carbonell and Goldstein, SIGIR 1998), among the 200 most relevant.
        count: Count the relevant documents. `Matches.total` has the number.
        facets: Metadata keys whose values to count among the relevant documents. `Matches.facets` has the counts.
        group: Show only the best part of a file, such as a page. `Match.parts` has the others, and pages, counts and
            facets are of files.

    """

    sort: str = short("relevance", MAX_KEY_CHARS + 1)
    diversity: float = bounded(0.0, minimum=0, maximum=1)
    count: bool = False
    facets: Collection[str] = several((), 100, MAX_KEY_CHARS)
    group: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        check_keys("`sort`", self.sort.removeprefix("-"))
        check_keys("`facets`", *self.facets)
        if self.diversity and self.sort != "relevance":
            raise ConfigError("matches are sorted by a key or chosen for `diversity`, not both")

    @property
    def takes_all(self) -> bool:
        """Return whether all relevant documents must be known, not only those of the page."""
        return bool(self.count or self.facets or self.sort != "relevance")


@dataclass(frozen=True, kw_only=True)
class SearchOptions(ManyOptions):
    """The options by which the matches of a query are chosen and arranged.

    Attributes:
        offset: Number of the best matches to pass over. With the limit at most 10,000.
        cursor: The ``cursor`` of the page before. While others write, a document that is there throughout is on exactly
            one page: at its place, or at the top of the next page if its place has been passed.

    Raises:
        ConfigError: An option is out of its range, or two contradict each other.

    Example:
        >>> SearchOptions(limit=5, where={"year": {"$gte": 2020}}).limit
        5
    """

    offset: int = bounded(0, minimum=0, maximum=MAX_PAGE - 1)
    cursor: str | None = short(None, _CURSOR_CHARS)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.offset + self.limit > MAX_PAGE:
            raise ConfigError(
                f"with a `limit` of {self.limit:,}, `offset` is from 0 to {MAX_PAGE - self.limit:,}, "
                f"not {self.offset:,}"
            )
        if self.offset and self.cursor is not None:
            raise ConfigError("a page begins at `offset` or at `cursor`: give one of them")


# ------------------------------------------------------------------------------------------- arguments of the verbs


@dataclass(frozen=True, kw_only=True)
class QueryParts(Options):
    """The parts of a query beside its text.

    Attributes:
        image: Image to look for: a path, encoded bytes, a PIL image or an array of pixels. With a service it can also
            be the image of one of its documents.
        like: Ids of documents whose vectors to look for. They are not in the result.
        without: Content to exclude: a text, an image, or a list of ids. A text excludes documents that say all its
            words in one passage, and pictures that show it. An image or ids exclude what is like them. A score is how
            likely a match is what was asked for and not this. What reaches the threshold for this is left out.
    """

    if TYPE_CHECKING:

        @property
        def text(self) -> str | None:
            """Return the text to look for, which subclasses declare at its place."""

    image: ImageInput | RemoteImage | None = None
    like: str | Iterable[str] = several((), MAX_LIKE, MAX_ID_BYTES)
    without: str | ImageInput | RemoteImage | Sequence[str] | None = None

    def __post_init__(self) -> None:
        check_text(self.text)
        super().__post_init__()
        _ = self.query

    @cached_property
    def query(self) -> Query:
        """Return what is asked for."""
        return make_query(self.text, image=self.image, like=self.like, without=self.without)


@dataclass(frozen=True)
class SearchRequest(SearchOptions, QueryParts):
    """The arguments of `Index.search`.

    Attributes:
        text: Text to look for. Matches say `"some words"` in quotation marks one after another. `-word` and
            `-"some words"` exclude what says them, as ``without`` does. What is longer than the model reads is cut,
            with a TextTruncatedWarning.
    """

    text: str | None = short(None, MAX_QUERY_CHARS)


@dataclass(frozen=True)
class SearchManyRequest(ManyOptions):
    """The arguments of `Index.search_many`.

    Attributes:
        queries: Strings, as `search` takes them, or queries of other kinds. To a service, a query excludes one thing at
            most.
    """

    queries: Iterable[str | Query]

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.queries, (str, Query, bytes, Mapping)) or not isinstance(self.queries, Iterable):
            given = shown(self.queries)
            raise TypeError(f"`queries`: search_many takes a list of queries, not {given}; `search` takes one")
        queries = tuple(self.queries)
        for query in queries:
            check_kind("queries", query, (str, Query), "a list of strings and queries")
        object.__setattr__(self, "queries", queries)
        _ = self.made

    @cached_property
    def made(self) -> list[Query]:
        """Return the queries, those of strings made."""
        return [query if isinstance(query, Query) else make_query(query) for query in self.queries]


@dataclass(frozen=True)
class ExplainRequest(RankingOptions, QueryParts):
    """The arguments of `Index.explain`.

    Attributes:
        text: Text that is asked for, as in `search`; None for an image or documents alone.
        id: Id of the document.
        parts: Find the sentences of the document's text and the regions of its image that mattered. Each is left out in
            turn and the rest is encoded: up to 65 texts and 100 images.
        seconds: Seconds after which no more regions are looked for, above 0. Those that are known by then are spread
            over the image.
        on_progress: Function that is called with the number of regions that are done; never by a service.
    """

    text: str | None = field(metadata={"max_chars": MAX_QUERY_CHARS})
    id: str
    _: KW_ONLY
    parts: bool = False
    seconds: float = bounded(10.0, above=0, maximum=600)
    on_progress: Callable[[int], None] | None = local()


@dataclass(frozen=True)
class LabelRequest(FilterOptions):
    """The arguments of `Index.label`.

    Attributes:
        labels: Labels such as ``["cat", "dog", "receipt"]``; none, with ``write``, to take the labels of a key off.
        templates: Descriptions of images, each with ``{}`` for the label; by default the label alone.
            `vlmsearch.search.labels.PHOTO_TEMPLATES` are the seven that CLIP's authors chose for photographs.
        where: Filter on metadata. Documents that do not pass are neither yielded nor written to.
        min_score: Lowest relevance of a label, from 0 to 1; by default that of the index.
        single: Give a document the most relevant label alone.
        write: Put the labels into the index.
        key: Key of the metadata.
        limit: Maximum number of documents; None for all.
        on_progress: Function that is called with the number of documents that were looked at.
    """

    labels: Iterable[str] = field(metadata={"max_items": _LABELS, "max_chars": _LABEL_CHARS})
    _: KW_ONLY
    templates: Sequence[str] = several(("{}",), _TEMPLATES, _LABEL_CHARS)
    min_score: float | None = bounded(None, minimum=0, maximum=1)
    single: bool = False
    write: bool = False
    key: str = short("label", MAX_KEY_CHARS)
    limit: int | None = bounded(None, minimum=1)
    on_progress: Callable[[int], None] | None = local()

    def __post_init__(self) -> None:
        super().__post_init__()
        labels = tuple(dict.fromkeys(" ".join(well_formed(label).split()) for label in self.labels))
        if not all(labels) or not (labels or self.write):
            raise ConfigError("labels are words such as `cat`; none only with `write`, which takes labels off")
        wrong = [template for template in self.templates if template.count("{}") != 1]
        if wrong or not self.templates:
            raise ConfigError(f"a `template` has {{}} once, where the label goes, such as 'a photo of a {{}}': {wrong}")
        if self.key == READERS:
            raise ConfigError(f"`key` {READERS!r} says who may read a document: write labels under another key")
        try:
            check_metadata({self.key: ""} | {f"{self.key}:{label}": 0.0 for label in labels})
        except InvalidInputError as exc:
            raise ConfigError(f"the labels cannot be written under `key` {self.key!r}: {exc}") from exc
        object.__setattr__(self, "labels", labels)


@dataclass(frozen=True, kw_only=True)
class DuplicatesRequest(FilterOptions):
    """The arguments of `Index.duplicates`.

    Attributes:
        threshold: Cosine of their vectors from which two images are compared, from 0 to 1. Of unrelated photographs
            CLIP's are about 0.5.
        where: Filter on metadata, which both images of a pair pass.
        on_progress: Function that is called with the number of documents that are done.
    """

    threshold: float = bounded(0.5, minimum=0, maximum=1)
    on_progress: Callable[[int], None] | None = local()
