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
from dataclasses import dataclass, field, replace

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
_NUMBERS, _CAPITALS, _ALONE = 10, 20, 30
"""Levels of headings without a mark: those with numbers are above those in capitals, and these above short lines."""
_MAX_ABOUT = 6
"""Lines alone at the beginning of a text of which the first is its title."""
_JOINT = " > "
_STOPS = ".!?:;,…。！？：；，、।؟"  # noqa: RUF001 - the marks of other scripts
_MARKED = re.compile(r"(#{1,6})\s+(\S.*?)[\s#]*")
_UNDERLINE = re.compile(r"={3,}|-{3,}|~{3,}")
_NUMBERED = re.compile(r"((?:\d{1,3}\.)*\d{1,3})\.?\s+(\S.*)")
_LETTERS = 3
"""Letters of a heading in capitals, at least."""
_LISTED = re.compile(r"[-*+•>|]|\(?\w{1,2}[.)]\s")
_SENTENCE = re.compile(
    r"""[.!?…]["'”’»)\]]{0,3}\s+(?![\sa-zß-ÿа-я]) | [。！？｡؟۔।॥]["”’」』）)]{0,3}\s* | \n(?=[\ \t]{0,8}(?:[-*+•]|\d{1,3}[.)])\s)""",  # noqa: E501, RUF001
    re.VERBOSE,
)
_LINE = re.compile(r"\n\s*")
_WORDS = r"(?s).{{0,{0}}}(?:\s+|[，、；：])|.{{1,{0}}}"  # noqa: RUF001


_MARK = ":passages"
"""The end of the digest of a long text that is in passages. It comes before other marks, and those of labels."""


def with_passages(digest: str) -> str:
    """Return the digest of a document in passages, from its digest with or without them."""
    return re.sub("^[^~+]+", rf"\g<0>{_MARK}", without_passages(digest))


def without_passages(digest: str) -> str:
    """Return the digest of a document that is encoded as a whole."""
    return digest.replace(_MARK, "", 1)


@dataclass(frozen=True)
class _Path:
    """The headings above a passage that are written in front of it, and their tokens."""

    title: str = ""
    tokens: int = 0


@dataclass(eq=False)
class _Unit:
    """A paragraph or a heading, with its sentences.

    ``above`` is the path of the headings above it, and ``path`` that of what follows it.
    """

    start: int
    level: int | None = None
    title: str = ""
    is_weak: bool = False
    above: _Path = field(default_factory=_Path)
    pieces: list[_Piece] = field(default_factory=list)
    tokens: int = 0


@dataclass
class _Piece:
    """Some characters of a unit that stay together, such as a sentence.

    They have -1 tokens before these are counted.
    """

    start: int
    end: int
    unit: _Unit
    tokens: int = -1


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
        size, left = (self.window + 1) * _MAX_CHARS, self.window
        for at in range(0, len(text) if self.is_long(text) else 0, size):
            left -= self._tokens([text[at : at + size]])[0]
            if left < 0:
                return False
        return True

    def split(self, text: str) -> tuple[Passage, ...]:
        """Return the passages of a text, in order; none where the model reads all of it."""
        if self.fits(text):
            return ()
        units = _units(text)
        self._measure(text, units)
        self._find_paths(units)
        cut = (part for group in self._groups(units) for part in self._balanced(group))
        places = ((part[0].start, part[-1].end, part[0].unit.above.title) for part in cut)
        passages = self._fitted([Passage(0, start, end, title, text[start:end]) for start, end, title in places])
        return tuple(replace(passage, number=number) for number, passage in enumerate(passages, 1))

    @property
    def _limit(self) -> int:
        """Return how many tokens a passage has at most."""
        return min(self.window, _MAX_TOKENS)

    def _tokens(self, texts: Sequence[str]) -> list[int]:
        counts = [count for some in batches(texts, _COUNTED) for count in self.count(list(map(well_formed, some)))]
        return [max(count, len(text.strip()) // _MAX_CHARS) for text, count in zip(texts, counts)]

    def _measure(self, text: str, units: Sequence[_Unit]) -> None:
        """Cut units into sentences, and long ones into lines and words; count their tokens."""
        ends = [*(unit.start for unit in units[1:]), len(text)]
        pieces = [_Piece(unit.start, end, unit) for unit, end in zip(units, ends)]
        words = re.compile(_WORDS.format(self._limit))
        for pattern in (_SENTENCE, _LINE, words):
            pieces = [part for piece in pieces for part in _cut(piece, pattern, text, self._limit)]
            new = [piece for piece in pieces if piece.tokens < 0]
            short = [piece for piece in new if pattern is words or piece.end - piece.start <= self._limit * _MAX_CHARS]
            for piece, tokens in zip(short, self._tokens([text[piece.start : piece.end] for piece in short])):
                piece.tokens = tokens
        for piece in pieces:
            piece.unit.pieces.append(piece)
            piece.unit.tokens += piece.tokens

    def _find_paths(self, units: Sequence[_Unit]) -> None:
        """Set the headings above each unit, which take a quarter of a passage at most."""
        open_units: list[_Unit] = []
        path = _Path()
        for unit in units:
            if unit.level is not None:
                while open_units and (open_units[-1].level or 0) >= unit.level:
                    open_units.pop()
                path = self._path(open_units)
            unit.above = path
            if unit.level is not None:
                open_units.append(unit)
                path = self._path(open_units)

    def _path(self, headings: Sequence[_Unit]) -> _Path:
        path = _Path()
        for heading in reversed(headings):
            tokens = path.tokens + heading.tokens + 1
            if tokens > self._limit // 4:
                break
            path = _Path(f"{heading.title}{_JOINT}{path.title}" if path.title else heading.title, tokens)
        return path

    def _groups(self, units: Sequence[_Unit]) -> Iterator[list[_Unit]]:
        """Yield units in groups, a passage or several of each.

        A paragraph of some size is a group. Small ones are put together, the last one to those before it. A heading
        begins a group, unless there is next to nothing before it.
        """
        tiny, small = self._limit // 8, self._limit // 4
        groups: list[list[_Unit]] = []
        size = 0
        for unit in units:
            whole = size + unit.tokens
            is_heading = unit.level is not None
            has_text = bool(groups) and any(other.level is None for other in groups[-1])
            is_rest = len(groups) > 1 and groups[-1][0].level is None
            if not groups or (is_heading and (size >= tiny or is_rest)):
                is_new = True
            elif size < small:
                is_new = size >= tiny and has_text and whole > self._room(groups[-1])
            else:
                is_new = unit.tokens >= small or whole > self._limit // 2
            if is_new:
                self._close(groups)
                groups.append([])
                size = 0
            groups[-1].append(unit)
            size += unit.tokens
        self._close(groups)
        return iter(groups)

    def _close(self, groups: list[list[_Unit]]) -> None:
        """Add the last group to the one before it where it is too small."""
        if len(groups) < 2:
            return
        size, before = (sum(unit.tokens for unit in group) for group in (groups[-1], groups[-2]))
        is_room = size + before <= self._room(groups[-2])
        is_section = groups[-1][0].level is not None
        is_tiny = size < self._limit // 8
        if (is_room and (is_tiny or (size < self._limit // 4 and not is_section))) or (is_tiny and not is_section):
            last = groups.pop()
            groups[-1] += last

    def _room(self, group: Sequence[_Unit]) -> int:
        return self._limit - group[0].above.tokens

    def _balanced(self, group: Sequence[_Unit]) -> Iterator[list[_Piece]]:
        """Yield the pieces of a group in passages of about one length."""
        pieces = [piece for unit in group for piece in unit.pieces]
        left = sum(piece.tokens for piece in pieces)
        part: list[_Piece] = []
        size, room, goal = 0, 0, 0.0
        for piece in pieces:
            if part and (size + piece.tokens > room or size + piece.tokens / 2 > goal):
                yield part
                part, left, size = [], left - size, 0
            if not part:
                room = self._limit - piece.unit.above.tokens
                goal = left / max(math.ceil(left / room), 1)
            part.append(piece)
            size += piece.tokens
        yield part

    def _fitted(self, passages: Sequence[Passage]) -> list[Passage]:
        """Return passages, halved where they are too long: counts of parts may not add up."""
        counts = self._tokens([passage.encoded for passage in passages])
        fitted: list[Passage] = []
        for passage, count in zip(passages, counts):
            is_over = count > self.window and len(passage.text) > 1
            fitted += self._fitted(_halves(passage)) if is_over else [passage]
        return fitted


def _halves(passage: Passage) -> list[Passage]:
    """Return a passage as two without headings, cut at a space near its middle."""
    text, half = passage.text, len(passage.text) // 2
    at = text.rfind(" ", half // 2, half) + 1 or half
    middle = passage.start + at
    return [Passage(0, passage.start, middle, "", text[:at]), Passage(0, middle, passage.end, "", text[at:])]


def _cut(piece: _Piece, pattern: re.Pattern[str], text: str, limit: int) -> Iterator[_Piece]:
    """Yield a piece, or its parts where it is too long."""
    if 0 <= piece.tokens <= limit:
        yield piece
        return
    start = piece.start
    for match in pattern.finditer(text, start, piece.end):
        yield _Piece(start, match.end(), piece.unit)
        start = match.end()
    if start < piece.end:
        yield _Piece(start, piece.end, piece.unit)


def _by_characters(texts: Sequence[str]) -> list[int]:
    """Return about how many tokens texts have."""
    return [-(-len(text.strip()) // _CHARS) for text in texts]


def _units(text: str) -> list[_Unit]:
    """Return the paragraphs and headings of a text, which begin where the one before ends."""
    lines = text.splitlines(keepends=True)
    units: list[_Unit] = []
    at = 0
    is_blank, is_code, was_line, was_heading = True, False, "", False
    underlined = -1
    for number, line in enumerate(lines):
        shown = line.strip()
        is_fence = shown.startswith("```")
        is_code ^= is_fence
        if shown and number != underlined:
            after = lines[number + 1].strip() if number + 1 < len(lines) else ""
            heading = None if is_code or is_fence else _heading(shown, after, is_blank or was_heading, was_line)
            is_unwrapped = max(len(line), len(was_line)) > _WRAPPED
            if heading or is_blank or was_heading or is_unwrapped:
                units.append(heading or _Unit(at))
                units[-1].start = at
            if heading and _UNDERLINE.fullmatch(after):
                underlined = number + 1
            was_heading = heading is not None
        is_blank, was_line = not shown, shown
        at += len(line)
    units = units or [_Unit(0)]
    units[0].start = 0
    _check_weak(units)
    return units


def _heading(line: str, after: str, is_begin: bool, before: str) -> _Unit | None:
    """Return a line as a heading, by the lines around it; None for any other line."""
    if len(line) > _TITLE_CHARS:
        return None
    if mark := _MARKED.fullmatch(line):
        return _Unit(0, len(mark[1]), mark[2])
    if is_begin and _UNDERLINE.fullmatch(after):
        return _Unit(0, 1 if after[0] == "=" else 2, line)
    if line[-1] in _STOPS or not any(map(str.isalpha, line)):
        return None
    is_alone = is_begin and not after
    number = _NUMBERED.fullmatch(line)
    if number and not number[2][0].islower():
        depth = number[1].count(".")
        is_after = is_begin or before[-1:] in _STOPS
        return _Unit(0, _NUMBERS + depth, line, not depth) if is_alone or (depth and is_after) else None
    if is_begin and line.isupper() and sum(map(str.isalpha, line)) >= _LETTERS:
        return _Unit(0, _CAPITALS, line)
    return _Unit(0, _ALONE, line, True) if is_alone and not _LISTED.match(line) else None


def _check_weak(units: Sequence[_Unit]) -> None:
    """Take lines that stand alone for text where several follow one another, or none follows.

    A first line that stands alone is the title of all, above its authors and the like.
    """
    following = _MAX_ABOUT
    for unit in reversed(units):
        following = following + 1 if unit.is_weak else 0
        if following > (_MAX_ABOUT if unit is units[0] else 1):
            unit.level = None
    if units[0].is_weak and units[0].level is not None:
        units[0].level = 0
