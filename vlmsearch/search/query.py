"""What is asked for."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from vlmsearch._util.text import well_formed
from vlmsearch.errors import ConfigError, InvalidInputError
from vlmsearch.types import ImageSource, RemoteImage

_EXCLUSION = re.compile(r'(?<!\S)-(?:"([^"]*)"|([^\W\d_]\S*))')


@dataclass(frozen=True)
class Query:
    """A query: a text, an image, documents that are in the index, or several of these at once.

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
        if isinstance(self.without, Query) or not all(isinstance(part, Query) for part in self.without):
            raise TypeError(f"the `without` of a Query is a list of queries, not {self.without!r}")
        text = well_formed(self.text) if self.text and self.text.strip() else None
        if text is None and self.image is None and not self.like:
            raise InvalidInputError("empty", "a query needs a text, an image or both, or documents for `like`")
        if any(part.without for part in self.without):
            raise ConfigError("a query that is left out has no `without` of its own")
        for name, value in (("text", text), ("like", tuple(self.like)), ("without", tuple(self.without))):
            object.__setattr__(self, name, value)


def make_query(
    text: str | None,
    *,
    image: ImageSource | RemoteImage | None = None,
    like: str | Iterable[str] = (),
    without: str | ImageSource | RemoteImage | Sequence[str] | None = None,
) -> Query:
    """Return the query that a user gave: with ``-word`` and ``-"some words"`` of the text left out of the matches.

    ``without`` is a text where it is a string, ids where it is a list, else an image.
    """
    kept, excluded = split_text(text) if isinstance(text, str) else (text, [])
    left_out = [Query(word) for word in excluded]
    if isinstance(without, str):
        left_out.append(Query(without))
    elif isinstance(without, Sequence) and not isinstance(without, bytes):
        left_out.append(Query(like=without))
    elif without is not None:
        left_out.append(Query(image=without))
    return Query(kept, image, [like] if isinstance(like, str) else list(like), left_out)


def split_text(text: str) -> tuple[str, list[str]]:
    """Return what a text asks for, and the words that it excludes.

    A minus excludes if a letter or a quotation mark follows, and space comes before it. Numbers, codes and dashes stay
    as they are.

    >>> split_text('a beach -people -"sun shade" at -5 degrees, AB-4711')
    ('a beach at -5 degrees, AB-4711', ['people', 'sun shade'])
    """
    excluded = [quoted or word for quoted, word in _EXCLUSION.findall(text)]
    excluded = [phrase for phrase in excluded if phrase.strip()]
    return (" ".join(_EXCLUSION.sub(" ", text).split()), excluded) if excluded else (text, [])
