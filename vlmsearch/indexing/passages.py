"""Long texts in passages: cut at headings, paragraphs and sentences, none longer than a model reads.

A paragraph of some size is a passage of its own, since a vector of one subject is found better than one of several.
Small paragraphs are put together. What is too long is cut at sentences, lines, words and characters, in this order.
Any script will do: sentences end with the marks of many, and those without spaces are cut at marks or characters.

Time grows with the length of the text. Tokens are counted of many sentences in a call, and once more of the passages.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

from vlmsearch._util.batching import batches
from vlmsearch._util.text import well_formed
from vlmsearch.encoders.base import Encoder, MeasuresTexts
from vlmsearch.types import Passage

_MAX_TOKENS = 256
"""The longest passage, for models that read more."""
_CHARS = 4
"""Characters of a token, where the encoder does not count."""
_WINDOW = 250
"""Tokens that an encoder reads which does not say how many."""
_MAX_CHARS = 16
"""Characters that count as a token at least: a tokenizer may make one of any word that it does not know."""
_COUNTED = 1024
"""Texts that are counted in one call."""
_TITLE_CHARS = 100
_WRAPPED = 160
"""Characters of a line above which each line of a text is a paragraph: its lines are not wrapped."""
_TITLE, _NUMBERS, _CAPITALS, _ALONE = 1, 10, 20, 30
"""Levels of headings, a paragraph has 0: those with numbers are above those in capitals, and these above short lines.

The title of all comes first, then those with marks.
"""
_JOINT = " > "
_STOPS = ".!?:;,…。！？：；，、।؟"  # noqa: RUF001 - the marks of other scripts
_MARKED = re.compile(r"(#{1,6})\s+[^\s#]")
_UNDERLINE = re.compile(r"={3,}|-{3,}|~{3,}")
_NUMBERED = re.compile(r"((?:\d{1,3}\.)*\d{1,3})\.?\s+")
_LETTERS = 3
"""Letters of a heading in capitals, at least."""
_LISTED = re.compile(r"[-*+•>|]|\(?\w{1,2}[.)]\s")
_SENTENCE = re.compile(
    r"""(?s:.)+?(?:[.!?…]["'”’»)\]]{0,3}\s+(?![\sa-zß-ÿа-я]) | [。！？｡؟۔।॥]["”’」』）)]{0,3}\s* | \n(?=[\ \t]{0,8}(?:[-*+•]|\d{1,3}[.)])\s) | \Z)""",  # noqa: E501, RUF001
    re.VERBOSE,
)
_WORDS = r"(?s).{{0,{0}}}\n\s*|.{{0,{0}}}(?:\s+|[，、；：])|.{{1,{0}}}"  # noqa: RUF001
"""As many lines as so many characters hold, or else words, or else characters."""


_MARK = ":passages"
"""The end of the digest of a long text that is in passages. It comes before other marks, and those of labels."""


def with_passages(digest: str) -> str:
    """Return the digest of a document in passages, from its digest with or without them."""
    return re.sub("^[^~+]+", rf"\g<0>{_MARK}", without_passages(digest))


def without_passages(digest: str) -> str:
    """Return the digest of a document that is encoded as a whole."""
    return digest.replace(_MARK, "", 1)


@dataclass
class _Unit:
    """A paragraph or a heading: its lines, and the headings above it."""

    level: int
    title: str
    lines: list[str] = field(default_factory=list)
    tokens: int = 0
    above: str = ""

    @property
    def text(self) -> str:
        """Return its lines."""
        return "".join(self.lines)


@dataclass(frozen=True)
class _Part:
    """Some text, with the headings in front of its beginning, and in front of what follows."""

    heading: str
    inner: str
    text: str


@dataclass(frozen=True)
class Splitter:
    r"""A splitter of texts for an encoder.

    Attributes:
        window: Tokens that the model reads.
        count: Function that returns how many tokens some texts have.
        chars: Characters that a token has at least, so that shorter texts need not be counted.

    Example:
        >>> splitter = Splitter(40, lambda texts: [len(text.split()) for text in texts])
        >>> passages = splitter.split("# Keys\n\n" + "The key hangs at the door. " * 10)
        >>> [(passage.number, passage.heading, len(passage.text.split())) for passage in passages]
        [(1, '', 32), (2, 'Keys', 30)]
    """

    window: int
    count: Callable[[Sequence[str]], list[int]]
    chars: int = 1

    @classmethod
    def of(cls, encoder: Encoder) -> Splitter:
        """Return the splitter for an encoder.

        One that does not measure texts reads 1,000 characters.
        """
        if isinstance(encoder, MeasuresTexts):
            return cls(encoder.text_window, encoder.text_tokens)
        return cls(_WINDOW, _by_characters, _CHARS)

    def is_long(self, text: str | None) -> bool:
        """Check whether a text may be longer than the window, by its characters alone."""
        return 0 < self.window * self.chars < len(text or "")

    def fits(self, text: str) -> bool:
        """Check whether the model reads all of a text."""
        return not self.is_long(text) or self._tokens([text])[0] <= self.window

    def split(self, text: str) -> tuple[Passage, ...]:
        """Return the passages of a text, in order; none where the model reads all of it."""
        if self.fits(text):
            return ()
        units = _units(text)
        self._measure(units)
        groups = [
            _Part(group[0].above, max(group, key=lambda unit: unit.tokens).above, "".join(unit.text for unit in group))
            for group in self._groups(units)
        ]
        parts = list(self._fitted(groups))
        ends = accumulate(len(part.text) for part in parts)
        return tuple(
            Passage(number, end - len(part.text), end, part.heading, part.text)
            for number, (part, end) in enumerate(zip(parts, ends), 1)
        )

    @property
    def _limit(self) -> int:
        """Return how many tokens a passage has at most."""
        return min(self.window, _MAX_TOKENS)

    def _tokens(self, texts: Sequence[str]) -> list[int]:
        """Count tokens, of a text that is far too long only those of its beginning."""
        fewest = [len(text.strip()) // _MAX_CHARS for text in texts]
        end = (self.window + 1) * _MAX_CHARS
        begins = [well_formed(text[:end] if few > self.window else text) for text, few in zip(texts, fewest)]
        counts = [count for some in batches(begins, _COUNTED) for count in self.count(list(some))]
        return list(map(max, fewest, counts))

    def _measure(self, units: Sequence[_Unit]) -> None:
        """Set the tokens of units, and the headings above: the nearest, in a quarter of a passage at most."""
        open_units: list[_Unit] = []
        for unit, tokens in zip(units, self._tokens([unit.text for unit in units])):
            unit.tokens = tokens
            while unit.level and open_units and open_units[-1].level >= unit.level:
                open_units.pop()
            sizes = accumulate(heading.tokens + 1 for heading in reversed(open_units))
            left_out = sum(size > self._limit // 4 for size in sizes)
            unit.above = _JOINT.join(heading.title for heading in open_units[left_out:])
            if unit.level:
                open_units.append(unit)

    def _groups(self, units: Sequence[_Unit]) -> Iterator[list[_Unit]]:
        """Yield units in groups, each a passage or several.

        A heading and a paragraph of some size begin a group, and what does not fit; small ones are put together.
        """
        tiny, small = self._limit // 8, self._limit // 4
        group: list[_Unit] = []
        size, left = 0, sum(unit.tokens for unit in units)
        for unit in units:
            is_apart = unit.level or size + unit.tokens > 3 * small or min(size, unit.tokens) >= small
            if is_apart and min(size, left) >= tiny:
                yield group
                group, size = [], 0
            group.append(unit)
            size += unit.tokens
            left -= unit.tokens
        yield group

    def _fitted(self, parts: Sequence[_Part]) -> Iterator[_Part]:
        """Yield parts, those that are too long in several."""
        encoded = [Passage(0, 0, 0, part.heading, part.text).encoded for part in parts]
        for part, tokens in zip(parts, self._tokens(encoded)):
            is_long = tokens > self._limit and len(part.text) > 1
            yield from self._fitted(self._cut(part)) if is_long else (part,)

    def _cut(self, part: _Part) -> list[_Part]:
        """Return a part as several of about one length: whole sentences, or else words, or else halves."""
        pieces = _SENTENCE.findall(part.text)
        for pattern in (_WORDS.format(self._limit), f"(?s).{{1,{-(-len(part.text) // 2)}}}"):
            pieces = pieces if len(pieces) > 1 else re.findall(pattern, part.text)
        sizes = [max(tokens, 1) for tokens in self._tokens(pieces)]
        left = sum(sizes)
        room = min(self._limit - max(self._tokens([part.heading, part.inner])), left - 1)
        texts, size = [""], 0
        for piece, tokens in zip(pieces, sizes):
            if texts[-1] and size + tokens > min(room, left / math.ceil(left / room) + tokens / 2):
                texts.append("")
                left, size = left - size, 0
            texts[-1] += piece
            size += tokens
        return [_Part(part.inner if number else part.heading, part.inner, text) for number, text in enumerate(texts)]


def _by_characters(texts: Sequence[str]) -> list[int]:
    """Return about how many tokens texts have."""
    return [-(-len(text.strip()) // _CHARS) for text in texts]


def _units(text: str) -> list[_Unit]:
    """Return the paragraphs and headings of a text.

    Lines that stand alone are headings where text follows. A first one is the title, above its authors and the like.
    """
    lines = text.splitlines(keepends=True)
    units: list[_Unit] = []
    is_code, is_begin, before = False, True, ""
    for line, after in zip(lines, [*lines[1:], ""]):
        shown, is_unwrapped = line.strip(), len(line) > _WRAPPED
        is_code ^= shown.startswith("```")
        level = 0 if is_code else _level(shown, after.strip(), is_begin, before)
        if not units or (shown and (level or is_begin or is_unwrapped)):
            units.append(_Unit(level, shown.strip("# \t")))
        units[-1].lines.append(line)
        is_begin, before = not shown or level > 0 or is_unwrapped, shown
    if units[0].level == _ALONE:
        units[0].level = _TITLE
    for unit, following in zip(units, [*units[1:], units[-1]]):
        if {unit.level, following.level} <= {_NUMBERS, _ALONE}:
            unit.level = 0
    return units


def _level(line: str, after: str, is_begin: bool, before: str) -> int:
    """Return the level of a line as a heading; 0 for any other line."""
    if not line or len(line) > _TITLE_CHARS:
        return 0
    if mark := _MARKED.match(line):
        return _TITLE + len(mark[1])
    number = _NUMBERED.match(line)
    is_sub = number is not None and "." in number[1] and before[-1:] in _STOPS  # it may follow a sentence directly
    if not (is_begin or is_sub):
        return 0
    if _UNDERLINE.fullmatch(after):
        return _TITLE + 1 + ("=" not in after)
    if line[-1] in _STOPS or not any(map(str.isalpha, line)):
        return 0
    if number and not line[number.end()].islower() and ("." in number[1] or not after):
        return _NUMBERS + number[1].count(".")
    if line.isupper() and sum(map(str.isalpha, line)) >= _LETTERS:
        return _CAPITALS
    return _ALONE if is_begin and not after and not _LISTED.match(line) else 0
