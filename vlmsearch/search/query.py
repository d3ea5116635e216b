"""What is asked for, and how the answer is wanted."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from vlmsearch._util.text import well_formed
from vlmsearch.errors import ConfigError, InvalidInputError
from vlmsearch.stores.filters import Filter, parse_filter
from vlmsearch.types import ImageSource, RemoteImage

if TYPE_CHECKING:
    from vlmsearch.rerankers.base import Reranker

LONGEST_PAGE = 10_000
"""How many matches one search can go through: of a page, of those before it, and of the set that is sorted."""
RERANK_FIRST = 50
"""How many matches a re-ranker reads."""
RERANK_SECONDS = 1.0
"""After how long a re-ranker begins no other batch."""
_EXCLUSION = re.compile(r'(?<!\S)-(?:"([^"]*)"|([^\W\d_]\S*))')


@dataclass(frozen=True)
class Query:
    """Say what is looked for: a text, an image, documents that are in the index, or several of these at once.

    Attributes:
        text: A text, taken as it is; `Pipeline.search` and `Pipeline.search_many` take ``-word`` out of strings only.
        image: A path, encoded bytes or a decoded image; for a `RemotePipeline` also the image of a document there.
        like: Ids of documents: more like these, which are not in the result themselves.
        without: What the matches must not be, each a query of its own that has no ``without``.

    Raises:
        InvalidInputError: There is nothing to look for.
        TypeError: A part is of another type.

    Example:
        >>> Query("a beach", without=[Query("people"), Query(like=["photos/7.jpg"])]).without[0].text
        'people'
    """

    text: str | None = None
    image: ImageSource | RemoteImage | None = None
    like: Sequence[str] = ()
    without: Sequence[Query] = ()

    def __post_init__(self) -> None:
        if not isinstance(self.text, (str, type(None))):
            raise TypeError(
                f"the text of a query is a string, not {type(self.text).__name__}; a picture goes into image="
            )
        if isinstance(self.like, str) or not all(isinstance(id, str) for id in self.like):
            raise TypeError(f"like= takes a list of ids, not {self.like!r}")
        if isinstance(self.without, Query) or not all(isinstance(each, Query) for each in self.without):
            raise TypeError(f"the `without` of a Query is a list of queries, not {self.without!r}")
        text = well_formed(self.text) if self.text and self.text.strip() else None
        if text is None and self.image is None and not self.like:
            raise InvalidInputError("empty", "a query needs a text, an image or both, or documents for `like`")
        if any(each.without for each in self.without):
            raise ConfigError("a query that is left out has no `without` of its own")
        for name, value in (("text", text), ("like", tuple(self.like)), ("without", tuple(self.without))):
            object.__setattr__(self, name, value)


def make_query(
    text: str | None,
    *,
    image: ImageSource | None = None,
    like: str | Iterable[str] = (),
    without: str | ImageSource | Sequence[str] | None = None,
) -> Query:
    """Return the query that a user gave: with ``-word`` and ``-"some words"`` of the text left out of the matches.

    ``without`` is a text where it is a string, ids where it is a list, else an image.
    """
    kept, excluded = split_text(text) if isinstance(text, str) else (text, [])
    left_out = [Query(each) for each in excluded]
    if isinstance(without, str):
        left_out.append(Query(without))
    elif isinstance(without, Sequence) and not isinstance(without, bytes):
        left_out.append(Query(like=without))
    elif without is not None:
        left_out.append(Query(image=without))
    return Query(kept, image, [like] if isinstance(like, str) else list(like), left_out)


def split_text(text: str) -> tuple[str, list[str]]:
    """What a text asks for, and the words that it excludes.

    A minus excludes where it begins a word that begins with a letter, or stands before a quotation mark, so that
    numbers, codes and dashes stay what they are.

    >>> split_text('a beach -people -"sun shade" at -5 degrees, AB-4711')
    ('a beach at -5 degrees, AB-4711', ['people', 'sun shade'])
    """
    excluded = [quoted or word for quoted, word in _EXCLUSION.findall(text)]
    excluded = [each for each in excluded if each.strip()]
    return (" ".join(_EXCLUSION.sub(" ", text).split()), excluded) if excluded else (text, [])


@dataclass(frozen=True)
class SearchOptions:
    """How the matches of a query are chosen and arranged; `Pipeline.search` says what each means."""

    limit: int = 10
    offset: int = 0
    cursor: str | None = None
    where: Mapping[str, object] | None = None
    weights: Mapping[str, float] | None = None
    min_score: float | None = None
    sort: str = "relevance"
    diversity: float = 0.0
    count: bool = False
    facets: Collection[str] = ()
    group: bool = True
    rerank: Reranker | None = None
    rerank_first: int = RERANK_FIRST
    rerank_seconds: float = RERANK_SECONDS

    def __post_init__(self) -> None:
        if not isinstance(self.limit, int) or not 1 <= self.limit <= LONGEST_PAGE:
            raise ConfigError(f"limit is from 1 to {LONGEST_PAGE}, not {self.limit!r}")
        most = LONGEST_PAGE - self.limit
        if not isinstance(self.offset, int) or not 0 <= self.offset <= most:
            raise ConfigError(f"with a limit of {self.limit}, offset is from 0 to {most}, not {self.offset!r}")
        if self.offset and self.cursor is not None:
            raise ConfigError("a page begins at `offset` or at `cursor`: give one of them")
        for name, share in (("min_score", self.min_score), ("diversity", self.diversity)):
            if share is not None and not (isinstance(share, (int, float)) and 0 <= share <= 1):
                raise ConfigError(f"`{name}` is from 0 to 1, not {share!r}")
        if not isinstance(self.sort, str) or not self.sort.removeprefix("-"):
            raise ConfigError(f"`sort` is relevance, a key of the metadata, or -KEY for falling values: {self.sort!r}")
        if self.diversity and self.sort != "relevance":
            raise ConfigError("matches are sorted by a key or chosen for `diversity`, not both")
        if isinstance(self.facets, str):
            raise ConfigError(f"`facets` is a list of keys of the metadata, such as [{self.facets!r}]")
        if not isinstance(self.rerank_first, int) or not 1 <= self.rerank_first <= LONGEST_PAGE:
            raise ConfigError(f"`rerank_first` is from 1 to {LONGEST_PAGE}, not {self.rerank_first!r}")
        if not isinstance(self.rerank_seconds, (int, float)) or not self.rerank_seconds > 0:
            raise ConfigError(f"`rerank_seconds` is above 0, not {self.rerank_seconds!r}")
        _ = self.condition

    @cached_property
    def condition(self) -> Filter | None:
        """What the metadata have to pass."""
        return None if self.where is None else parse_filter(self.where)

    @property
    def unasked(self) -> frozenset[str]:
        """The legs that count nothing, and so are not asked."""
        return frozenset(leg for leg, weight in (self.weights or {}).items() if weight == 0)

    @property
    def takes_all(self) -> bool:
        """Whether all relevant documents must be known, not only those of the page."""
        return bool(self.count or self.facets or self.sort != "relevance")
