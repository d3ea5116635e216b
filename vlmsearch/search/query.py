"""What is asked for."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from vlmsearch._util.arguments import shown, strings
from vlmsearch._util.text import well_formed
from vlmsearch.errors import ConfigError, InvalidInputError
from vlmsearch.types import Field, ImageInput, RemoteImage, image_problem

if TYPE_CHECKING:
    from vlmsearch.types import Vectors

MAX_QUERY_CHARS = 2**15
"""Maximum length of a text that is looked for, or of a question."""
_PHRASE = re.compile(
    r"""(?:[„“]|(?<!\w)["”])(?!\s)([^"„“”]*[^\s"„“”])(?:[“”]|"(?!\w))|«\s?([^«»]*[^\s«»])\s?»|»([^\s«»][^«»]*)«|「([^「」]+)」"""
)
"""Words in quotation marks of any language. A mark behind a letter or a digit stands for inches and opens nothing."""
_EXCLUSION = re.compile(rf"(?<!\S)-({_PHRASE.pattern}|[^\W\d_]\S*)")


@dataclass(frozen=True)
class Query:
    """A query: a text, an image, documents that are in the index, or several of these at once.

    Attributes:
        text: A text, taken as it is; `Pipeline.search` and `Pipeline.search_many` read ``-word`` and quotation marks in
            strings only.
        image: A path, encoded bytes or a decoded image; for a `RemotePipeline` also the image of a document there.
        like: Ids of documents: more like these, which are not in the result themselves.
        without: What the matches must not be, each a query of its own that has no ``without``.
        phrases: What the text of a match says word for word.

    Raises:
        InvalidInputError: There is nothing to look for.
        TypeError: A part is of another type.

    Example:
        >>> Query("a beach", without=[Query("people"), Query(like=["photos/7.jpg"])]).without[0].text
        'people'
    """

    text: str | None = None
    image: ImageInput | RemoteImage | None = None
    like: Sequence[str] = ()
    without: Sequence[Query] = ()
    phrases: Sequence[str] = ()

    def __post_init__(self) -> None:
        check_text(self.text)
        check_image("image", self.image)
        if isinstance(self.like, str):
            raise TypeError(f"`like` is a list of ids, not {shown(self.like)}")
        like = strings("like", self.like)
        is_list = isinstance(self.without, Iterable) and not isinstance(self.without, (str, bytes))
        if not is_list or not all(isinstance(part, Query) for part in self.without):
            raise TypeError(f"the `without` of a Query is a list of queries, not {shown(self.without)}")
        text = well_formed(self.text) if self.text and self.text.strip() else None
        if text is None and self.image is None and not like:
            raise InvalidInputError("empty", "a query needs a text, an image or both, or documents for `like`")
        if any(part.without for part in self.without):
            raise ConfigError("a query that is left out has no `without` of its own")
        phrases = tuple(strings("phrases", self.phrases))
        known = {"text": text, "like": tuple(like), "without": tuple(self.without), "phrases": phrases}
        for name, value in known.items():
            object.__setattr__(self, name, value)


def make_query(
    text: str | None,
    *,
    image: ImageInput | RemoteImage | None = None,
    like: str | Iterable[str] = (),
    without: str | ImageInput | RemoteImage | Sequence[str] | None = None,
) -> Query:
    """Return the query that a user gave: that leaves out each ``-word`` of the text and has its phrases.

    ``without`` is a text where it is a string, ids where it is a list, else an image; nothing where it is empty.
    """
    kept, excluded = split_text(text) if isinstance(text, str) else (text, [])
    excluded += [without] if isinstance(without, str) and without else []
    left_out = [Query(text, phrases=phrases) for text, phrases in map(split_phrases, excluded)]
    if isinstance(without, (list, tuple)):
        left_out += [Query(like=strings("without", without))] if without else []
    elif without is not None and not isinstance(without, str):
        image_without: Any = without
        check_image("without", image_without)
        left_out.append(Query(image=image_without))
    kept, phrases = split_phrases(kept or "")
    return Query(kept, image, strings("like", like), left_out, phrases)


def check_text(text: object) -> None:
    """Raise an error for a query's text that is too long or no string.

    None stands for no text.
    """
    if not isinstance(text, (str, type(None))):
        raise TypeError(f"the `text` of a query is a string, not {type(text).__name__}; a picture goes into image=")
    if text is not None and len(text) > MAX_QUERY_CHARS:
        message = f"a query has at most {MAX_QUERY_CHARS:,} characters, not {len(text):,}: make it shorter"
        raise InvalidInputError("too_long", message)


def check_image(name: str, image: object) -> None:
    """Raise TypeError unless an argument is an image or None."""
    if image is not None and (problem := image_problem(image)):
        raise TypeError(f"`{name}`: {problem}")


def split_text(text: str) -> tuple[str, list[str]]:
    """Return what a text asks for, and the words that it excludes.

    A minus excludes if a letter or a quotation mark follows, and space comes before it. Numbers, codes and dashes stay
    as they are.

    >>> split_text('a beach -people -"sun shade" at -5 degrees, AB-4711')
    ('a beach at -5 degrees, AB-4711', ['people', '"sun shade"'])
    """
    excluded = [part[1] for part in _EXCLUSION.finditer(text)]
    return (" ".join(_EXCLUSION.sub(" ", text).split()), excluded) if excluded else (text, [])


def split_phrases(text: str) -> tuple[str, list[str]]:
    """Return a text without its quotation marks, and what is in them.

    >>> split_phrases('a "red bicycle" with 28" wheels')
    ('a red bicycle with 28" wheels', ['red bicycle'])
    """
    phrases = ["".join(part.groups("")) for part in _PHRASE.finditer(text)]
    return (" ".join(_PHRASE.sub(r" \1\2\3\4 ", text).split()), phrases) if phrases else (text, [])


@dataclass(frozen=True)
class PreparedQuery:
    """A query in the form in which a store is asked.

    Attributes:
        text: What the words are ranked by; "" for no words.
        vectors: The vector, of shape (1, dim), that each field is asked for.
        by_text: Whether the query is nothing but a text.
        without: What the matches must not be.
        phrases: What their text says word for word.
        shown_for: The words of the text that stand for misspelt ones, by these.
    """

    text: str
    vectors: Mapping[Field, Vectors]
    by_text: bool
    without: tuple[PreparedQuery, ...] = ()
    phrases: tuple[str, ...] = ()
    shown_for: Mapping[str, str] = field(default_factory=dict)
