"""The options of a search, each declared once.

`SearchOptions` has the name, the type, the default, the bounds and the help of every option. The verbs of `Pipeline`
take them as keyword arguments, which `RankingKeywords`, `ManyKeywords` and `SearchKeywords` type for editors and
checkers. The client, the command line, the service and the tools for assistants read `search_options`. A
new option is a field here and a key of one of the three.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, fields
from functools import cache, cached_property
from typing import Any, get_type_hints

from typing_extensions import TypedDict

from vlmsearch._util.arguments import check_arguments, check_kind, shown, strings
from vlmsearch.errors import ConfigError
from vlmsearch.rerankers.base import Reranker
from vlmsearch.stores.filters import Filter, parse_filter
from vlmsearch.types import MAX_KEY_CHARS

LONGEST_PAGE = 10_000
"""Maximum number of matches of a page with those before it, and of the matches that are sorted."""
_CURSOR_CHARS = 2**17
"""A cursor after 10,000 documents has 80,016."""
_RERANK_SECONDS = 600.0


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


def _bounded(
    default: float | None, *, minimum: float | None = None, above: float | None = None, maximum: float | None = None
) -> Any:
    """Return a field with a number from ``minimum``, or above ``above``, to ``maximum``."""
    return field(default=default, metadata={"minimum": minimum, "above": above, "maximum": maximum})


def _short(default: str | None, max_chars: int) -> Any:
    """Return a field with a string of at most ``max_chars``."""
    return field(default=default, metadata={"max_chars": max_chars})


@dataclass(frozen=True)
class SearchOptions:
    """The options by which the matches of a query are chosen and arranged.

    Attributes:
        where: Filter on metadata, such as ``{"year": {"$gte": 2020}}``. `vlmsearch.stores.filters` has its operators.
        limit: Maximum number of matches.
        min_score: Lowest score to show, from 0 to 1; by default that of the index.
        weights: Weights of fields, such as ``{"words": 0.5, "clip/image": 2}``. A field that is left out has 1; one
            with 0 is not asked.
        rerank: Re-ranker that reads the text with each of the first matches and judges them anew. True is the one that
            the pipeline was opened with. A `Reranker` or the URL of one stays open until the pipeline is closed.
        rerank_first: Number of matches that the re-ranker reads.
        rerank_seconds: Seconds after which the re-ranker reads no more. The order so far stands.
        sort: Order of the matches: ``relevance``, a metadata key, or ``-KEY`` for falling values. Documents without the
            key are last. On stores other than `sqlite:`, the up to 10,000 most relevant documents are sorted.
        diversity: Share from 0 to 1 by which a match is put behind for being like those before it. This is maximal
            marginal relevance (Carbonell and Goldstein, SIGIR 1998), among the 200 most relevant.
        count: Count the relevant documents. `Matches.total` has the number.
        facets: Metadata keys whose values to count among the relevant documents. `Matches.facets` has the counts.
        group: Show only the best part of a file, such as a page. `Match.parts` has the others, and pages, counts and
            facets are of files.
        offset: Number of the best matches to pass over. With the limit at most 10,000.
        cursor: The ``cursor`` of the page before. While others write, a document that is there throughout is on exactly
            one page: at its place, or at the top of the next page if its place has been passed.

    Raises:
        ConfigError: An option is out of its range, or two contradict each other.

    Example:
        >>> SearchOptions(limit=5, where={"year": {"$gte": 2020}}).limit
        5
    """

    where: Mapping[str, object] | None = None
    limit: int = _bounded(10, minimum=1, maximum=LONGEST_PAGE)
    min_score: float | None = _bounded(None, minimum=0, maximum=1)
    weights: Mapping[str, float] | None = None
    rerank: Reranker | str | bool = False
    rerank_first: int = _bounded(50, minimum=1, maximum=LONGEST_PAGE)
    rerank_seconds: float = _bounded(1.0, above=0, maximum=_RERANK_SECONDS)
    sort: str = _short("relevance", MAX_KEY_CHARS + 1)
    diversity: float = _bounded(0.0, minimum=0, maximum=1)
    count: bool = False
    facets: Collection[str] = ()
    group: bool = True
    offset: int = _bounded(0, minimum=0, maximum=LONGEST_PAGE - 1)
    cursor: str | None = _short(None, _CURSOR_CHARS)

    def __post_init__(self) -> None:
        for option in search_options().values():
            option.check(getattr(self, option.name))
        if self.offset + self.limit > LONGEST_PAGE:
            raise ConfigError(
                f"with a `limit` of {self.limit:,}, `offset` is from 0 to {LONGEST_PAGE - self.limit:,}, "
                f"not {self.offset:,}"
            )
        if self.offset and self.cursor is not None:
            raise ConfigError("a page begins at `offset` or at `cursor`: give one of them")
        if not self.sort.removeprefix("-"):
            raise ConfigError(f"`sort` is relevance, a key of the metadata, or -KEY for falling values: {self.sort!r}")
        if self.diversity and self.sort != "relevance":
            raise ConfigError("matches are sorted by a key or chosen for `diversity`, not both")
        _ = self.condition

    @cached_property
    def condition(self) -> Filter | None:
        """Return what the metadata have to pass."""
        return None if self.where is None else parse_filter(self.where)

    @property
    def reranker(self) -> Reranker | None:
        """Return the open re-ranker; None where there is none."""
        return self.rerank if isinstance(self.rerank, Reranker) else None

    @property
    def unasked(self) -> frozenset[str]:
        """Return the fields with weight 0, which are not asked."""
        return frozenset(name for name, weight in (self.weights or {}).items() if weight == 0)

    @property
    def takes_all(self) -> bool:
        """Return whether all relevant documents must be known, not only those of the page."""
        return bool(self.count or self.facets or self.sort != "relevance")


@dataclass(frozen=True)
class SearchOption:
    """An option of a search.

    Attributes:
        name: Name of the keyword argument.
        type: Its type, such as ``int`` or ``Collection[str]``.
        default: Its default.
        help: One sentence about it.
        minimum: Smallest number.
        above: Number that it is above, where it has no smallest one.
        maximum: Largest number.
        max_chars: Maximum length of a string.
    """

    name: str
    type: Any
    default: Any
    help: str
    minimum: float | None = None
    above: float | None = None
    maximum: float | None = None
    max_chars: int | None = None

    def check(self, value: object) -> None:
        """Raise ConfigError unless a value is of the type and within the bounds."""
        if value is None and self.default is None:
            return
        if self.maximum is not None and not self._is_within(value):
            low = f"above {self.above:g} and at most" if self.above is not None else f"from {self.minimum:g} to"
            raise ConfigError(f"`{self.name}` is {low} {self.maximum:,g}, not {shown(value)}")
        if self.max_chars is not None and not (isinstance(value, str) and len(value) <= self.max_chars):
            raise ConfigError(f"`{self.name}` is a string of at most {self.max_chars:,} characters, not {shown(value)}")
        if self.name == "facets":
            if isinstance(value, str):
                raise ConfigError(f"`facets` is a list of keys of the metadata, such as [{value!r}]")
            strings("facets", value, "keys of the metadata")
        elif self.name == "where":
            check_kind("where", value, Mapping, "a filter such as {'year': 2024}")
        elif self.name == "weights":
            self._check_weights(value)
        elif self.type is bool:
            check_arguments(**{self.name: value})
        elif self.name == "rerank":
            check_kind("rerank", value, (Reranker, str, bool), "a re-ranker, the URL of one, True or False")

    def _check_weights(self, value: object) -> None:
        example = "a mapping of fields to numbers, such as {'words': 0.5}"
        check_kind(self.name, value, Mapping, example)
        for name, weight in dict(value).items():  # type: ignore[call-overload]
            is_weight = isinstance(weight, (int, float)) and not isinstance(weight, bool)
            if not isinstance(name, str) or not is_weight:
                raise ConfigError(f"`{self.name}` is {example}: weights are numbers of at least 0, not {shown(value)}")

    def _is_within(self, value: object) -> bool:
        kinds = (int,) if self.type is int else (int, float)
        if not isinstance(value, kinds) or isinstance(value, bool) or self.maximum is None or value > self.maximum:
            return False
        return value > self.above if self.above is not None else value >= (self.minimum or 0)


@cache
def search_options(keywords: type = SearchKeywords) -> Mapping[str, SearchOption]:
    """Return the options that a verb takes, by name.

    Args:
        keywords: `RankingKeywords`, `ManyKeywords` or `SearchKeywords`.

    Returns:
        The options, in the order of `SearchOptions`.

    Example:
        >>> list(search_options(RankingKeywords))[:3]
        ['where', 'limit', 'min_score']
    """
    hints, texts = get_type_hints(SearchOptions), attribute_docs(SearchOptions)
    taken = get_type_hints(keywords)
    return {
        declared.name: SearchOption(
            declared.name,
            hints[declared.name],
            declared.default,
            texts.get(declared.name, "").partition(". ")[0],
            **declared.metadata,
        )
        for declared in fields(SearchOptions)
        if declared.name in taken
    }


def make_options(keywords: type, given: Mapping[str, Any], **more: Any) -> SearchOptions:
    """Return the options that a verb was given; TypeError for one that it does not take."""
    taken = search_options(keywords)
    for name in given:
        if name not in taken:
            raise TypeError(f"there is no option {name!r} here: the options are {', '.join(taken)}")
    return SearchOptions(**{**given, **more})


def attribute_docs(cls: type) -> dict[str, str]:
    """Return what the docstring of a class says of its attributes, by name; nothing where docstrings are stripped."""
    section = re.search(r"^Attributes:\n(.*?)(?=^\S|\Z)", inspect.getdoc(cls) or "", re.MULTILINE | re.DOTALL)
    parts = re.findall(r"^    (\w+): (.*?)(?=^    \w|\Z)", section[1] if section else "", re.MULTILINE | re.DOTALL)
    return {name: " ".join(text.split()) for name, text in parts}
