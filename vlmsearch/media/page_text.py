"""The text of a page of a PDF, in lines, as a reader sees it.

PDFium gives the characters in the order of the page. Their boxes tell what it gets wrong:

* Raised and lowered characters stay on their line.
* Lines with letters in Arabic or Hebrew are read by the places of their characters.

A hyphen at the end of a line goes, unless the word has it anyway. Then the line break stays behind it, and terms of
both forms are in the index.
"""

from __future__ import annotations

import math
import re
import unicodedata
from array import array
from bisect import bisect
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from ctypes import c_double, c_void_p, cast, create_string_buffer
from itertools import groupby
from string import punctuation
from typing import TYPE_CHECKING, NamedTuple

from vlmsearch._util.text import well_formed

if TYPE_CHECKING:
    from pypdfium2 import PdfPage, PdfTextPage

_BREAK = re.compile(r"\r\n *(?=\S)")
_BESIDE = 0.3
"""Minimum share of its height that a character has beside its neighbour in the line."""
_NEAR, _SPACE = 0.6, 0.2
"""Distance of neighbours at most, and of words at least, as shares of the height."""
_SLANT = 0.01
"""Slope that gives a line a width."""
_HEBREW = "\u0591-\u05bd\u05bf-\u05f4\ufb1d-\ufb4f"
_ARABIC = "\u0610-\u061a\u0620-\u065f\u066e-\u06d3\u06d5-\u06ef\u06fa-\u08ff\ufb50-\ufdff\ufe70-\ufefc"
"""Letters, without signs and digits: numbers are written from the left."""
_FROM_RIGHT = re.compile(f"[{_HEBREW}{_ARABIC}]")
_PHRASE = re.compile(f"[{_HEBREW}{_ARABIC}]+(?: [{_HEBREW}{_ARABIC}]+)*")
_RIGHT_RUN = re.compile(rf"[{_HEBREW}{_ARABIC}](?:[\W\d_{_HEBREW}{_ARABIC}]*[{_HEBREW}{_ARABIC}])?")
_BETWEEN = re.compile(f"[^{_HEBREW}{_ARABIC}]+")
_LETTER = re.compile(r"[^\W\d_]")
_WORDS = re.compile(r"\w(?:.*\w)?")
_NUMBER = re.compile(r"(?:(?<!\S)[-+])?[$£€₪]?\d+(?:[-+.,:/]\d+)*[%°$£€₪]?")
_NUMBER_IN_ARABIC = re.compile(r"(?:(?<!\S)[-+])?\d+(?:[.,:/٫٬]\d+)*")  # noqa: RUF001
"""Words and numbers that are read from the left in such lines."""
_MARKS_OF_END, _BRACKETS = ".:!?،؛؟", "()[]{}«»"
_LEVEL = 0.4
"""Maximum share of a line's height by which a mark is raised or lowered."""
_LAST_LETTERS = "[ةىךםןףץ]"
"""Letters that words end with, and never begin with."""
_REVERSED = re.compile(rf"{_LAST_LETTERS}(?<!\w.)(?=\w)")
_IN_ORDER = re.compile(rf"{_LAST_LETTERS}(?<=\w.)(?!\w)")
_PRESENTATION_FORMS = re.compile("[\ufb1d-\ufdff\ufe70-\ufefc]+")
_LETTERS = r"[^\W\d_]+"
_CUT = re.compile(
    "[\ufffe\u00ad\x02\u2010-](?<=[^\\W\\d_].)"
    rf"(?:(?<=[-\u2010]) *\r\n|(?<![-\u2010]) *(?:\r\n)?) *(?=({_LETTERS})(-(?! *\r\n))?)"
)
"""A cut in a word at the end of a line.

PDFium has U+FFFE there, without a line break, or a hyphen and a line break.
"""
_LAST_WORD = re.compile(rf"(-?)({_LETTERS})\Z")
_AROUND_WORDS = f"{punctuation}‘’“”„«»…"  # noqa: RUF001
_SIGN = re.compile("\u2010( *(?:\r\n|\\Z))?")
_MIN_WORD, _MAX_WORD = 4, 50
"""Minimum letters of a word that is known to stand alone, and maximum of any."""
_UNNAMED = re.compile(r"[\x01\x03-\x08\x0b\x0c\x0e-\x1f](?=[^\W\d_]{2})")
"""A letter of a word that its font gives no name, as some do for ligatures."""
_NOT_TEXT = re.compile("[\x00-\x08\x0b-\x1f\x7f\u00ad\ufffe\uffff]")


class _Box(NamedTuple):
    """The place of a character in points, with the height of its font."""

    left: float
    bottom: float
    right: float
    top: float


class _Glyph(NamedTuple):
    """A character, its place, its base line, and the object that it is of."""

    character: str
    box: _Box
    y: float
    owner: int | None

    @property
    def rank(self) -> int:
        """0 for a letter, and the place of a mark among those of its letter."""
        return unicodedata.combining(self.character) if self.character else 255


class Spelling:
    """The spelling of a file, which tells what a hyphen at a line's end is.

    Chromium and WeasyPrint add U+2010 there, so that any other hyphen is a word's own.

    Attributes:
        producer: The program that wrote the file.
    """

    def __init__(self) -> None:
        self.producer = ""
        self._texts, self._words = list[str](), set[str]()
        self._has_signs = False

    def whole_words(self, text: str) -> str:
        """Return the text of the next page without the hyphens of its lines."""
        self._texts.append(text)
        at_ends = {sign[1] is not None for sign in _SIGN.finditer(text)}
        self._has_signs |= True in at_ends or any(name in self.producer for name in ("Skia/PDF", "WeasyPrint"))
        is_written = False in at_ends
        return _CUT.sub(lambda cut: self._end(cut, is_written), text)

    def _end(self, cut: re.Match[str], is_written: bool) -> str:
        """Return the end of a line behind the beginning of a word."""
        is_sign, (tail, after) = cut[0][0] == "\u2010", cut.groups()
        if (is_sign and not is_written) or (not is_sign and self._has_signs):
            return "" if is_sign else "-\r\n"
        while self._texts:
            whole = _CUT.sub("0", self._texts.pop()).casefold().split()
            self._words.update(word.strip(_AROUND_WORDS) for word in whole)
        [(before, head)] = _LAST_WORD.findall(cut.string[max(cut.start() - _MAX_WORD, 0) : cut.start()])
        first, last = head.casefold(), tail.casefold()
        if (compound := f"{first}-{last}") in self._words or f"{first}{last}" in self._words:
            is_own = compound in self._words
        else:
            is_name = tail[0].isupper() and not f"{head}{tail}".isupper()
            is_own = is_name or all(len(part) >= _MIN_WORD and part in self._words for part in (first, last))
        return "-\r\n" if is_own or is_sign or before or after else ""


def page_text(page: PdfPage, number: int, spelling: Spelling) -> str:
    """Return what a page says; "" for a scan.

    Args:
        page: The page.
        number: Its number, from 1.
        spelling: How the words of the pages before it are written.
    """
    from pypdfium2 import PdfDocument
    from pypdfium2.raw import FPDF_VIEWERREF_GetName

    FPDF_VIEWERREF_GetName(page.pdf, b"Direction", direction := create_string_buffer(4), 4)
    if direction.value != b"R2L":
        return _text(page, spelling)
    with closing(PdfDocument.new()) as copy:  # without what is said of the order of pages: PDFium turns lines by it
        copy.import_pages(page.pdf, [number - 1])
        return _text(copy[0], spelling)


def _text(page: PdfPage, spelling: Spelling) -> str:
    with closing(_content(page)) as content:
        text = content.get_text_range(errors="replace")
        if not text.isascii() and max(text) > "\uffff":  # places are counted in units of UTF-16
            text = "".join(map(chr, array("H", text.encode("utf-16-le"))))
        edits = [] if text.isascii() else [*_lines_from_right(page, content, text)]
        for more in (_breaks_in_lines(text, _boxes(content, len(text))), _gaps(content, text)):
            edits += [edit for edit in more if not any(start < edit[1] and edit[0] < end for start, end, _ in edits)]
    for start, end, replacement in sorted(edits, reverse=True):
        text = f"{text[:start]}{replacement}{text[end:]}"
    if edits and len(_REVERSED.findall(text)) > len(_IN_ORDER.findall(text)):  # drawn from their end
        text = _PHRASE.sub(lambda phrase: phrase[0][::-1], text)
    text = _UNNAMED.sub("\ufffd", text)
    text = _PRESENTATION_FORMS.sub(lambda forms: unicodedata.normalize("NFKC", forms[0]), text)
    return well_formed(_NOT_TEXT.sub("", spelling.whole_words(text).replace("\r\n", "\n"))).strip()


def _content(page: PdfPage) -> PdfTextPage:
    from pypdfium2.raw import FPDF_PAGEOBJ_TEXT, FPDFPageObj_Transform

    content = page.get_textpage()
    if content.count_chars():
        return content
    content.close()
    for line in page.get_objects((FPDF_PAGEOBJ_TEXT,), max_depth=1):  # vertical ones without a width, which it skips
        FPDFPageObj_Transform(line, 1, 0, _SLANT, 1, 0, 0)
    return page.get_textpage()


def _boxes(content: PdfTextPage, length: int) -> Callable[[int], _Box]:
    """Return a function that gives the box of a character in a text of this length."""
    from pypdfium2.raw import FS_RECTF, FPDFText_GetCharIndexFromTextIndex, FPDFText_GetLooseCharBox

    box, is_same = FS_RECTF(), content.count_chars() == length  # but for characters that are no text

    def box_at(place: int) -> _Box:
        index = place if is_same else FPDFText_GetCharIndexFromTextIndex(content, place)
        FPDFText_GetLooseCharBox(content, index, box)
        return _Box(box.left, box.bottom, box.right, box.top)

    return box_at


def _breaks_in_lines(text: str, box: Callable[[int], _Box]) -> Iterator[tuple[int, int, str]]:
    """Yield line breaks between neighbours in a line, and what stands in their place."""
    margin = math.nan
    for line_break in _BREAK.finditer(text):
        start, end = line_break.span()
        after = box(end)
        if abs(after.left - margin) < 1:  # most lines begin below each other: half of the work
            continue
        while text[start - 1] == " ":
            start -= 1
        margin, before = after.left, box(start - 1)
        heights = before.top - before.bottom, after.top - after.bottom
        if after.left < before.left:  # such as a letter drawn after its exponent
            continue
        distance = max(after.left - before.right, before.left - after.right)
        is_beside = min(before.top, after.top) - max(before.bottom, after.bottom) > _BESIDE * min(heights) > 0
        if is_beside and distance < _NEAR * max(heights):
            yield start, end, " " if " " in text[start:end] or distance > _SPACE * min(heights) else ""


def _gaps(content: PdfTextPage, text: str) -> Iterator[tuple[int, int, str]]:
    """Yield glyphs without a character before letters, and what stands in their place."""
    from pypdfium2.raw import FPDFText_GetTextIndexFromCharIndex, FPDFText_GetUnicode

    count = content.count_chars()
    for index in range(count - 1) if count > len(text) or "\ufffe" in text else ():
        if not FPDFText_GetUnicode(content, index):
            start, end = (FPDFText_GetTextIndexFromCharIndex(content, place) for place in (index, index + 1))
            if end >= 0 and text[end].isalpha():
                yield start if start >= 0 else end, end, "\ufffd"


def _lines_from_right(page: PdfPage, content: PdfTextPage, text: str) -> Iterator[tuple[int, int, str]]:
    """Yield lines with letters from the right, in the order in which they are read."""
    lines, unread = list[tuple[int, int, list[_Glyph], _Box, float]](), None
    for line in re.finditer(r"[^\r\n]+", text):
        start, end = line.span()
        if not _FROM_RIGHT.search(line[0]) or not (glyphs := _glyphs(content, text, start, end)):
            continue
        base = _around(glyph.box._replace(bottom=glyph.y, top=glyph.y) for glyph in glyphs)
        height = max(glyph.box.top - min(glyph.box.bottom, glyph.y) for glyph in glyphs)
        if lines and lines[-1][1] + 2 == start:  # perhaps begun by a raised mark
            first, _, before, other, size = lines[-1]
            size, both = max(size, height), _around((base, other))
            apart = max(base.left - other.right, other.left - base.right)
            if apart < _NEAR * size and max(base.bottom - other.top, other.bottom - base.top) < _LEVEL * size:
                before += glyphs
                lines[-1] = first, end, before, both, size
                continue
        lines.append((start, end, glyphs, base, height))
    for start, end, glyphs, (left, bottom, right, top), height in lines:
        if right - left <= top - bottom:
            yield start, end, "".join(_spelled([*same]) for _, same in groupby(glyphs, lambda glyph: glyph.box))
            continue
        drawn = glyphs
        if any(glyph.rank for glyph in glyphs):  # PDFium adds spaces to such words
            unread = [*_unread(page, content)] if unread is None else unread
            near = [part for part in unread if bottom < part.y < top + height and left - height < part.box.left < right]
            drawn = [part for part in glyphs if part.character != " " or part.box.left < part.box.right] + near
        yield start, end, _as_read(_clusters(drawn, _SPACE * height))


def _glyphs(content: PdfTextPage, text: str, start: int, end: int) -> list[_Glyph]:
    """Return the characters of a part of a text."""
    from pypdfium2.raw import FPDFText_GetCharIndexFromTextIndex, FPDFText_GetCharOrigin, FPDFText_GetTextObject

    glyphs, x, y, box_at = list[_Glyph](), c_double(), c_double(), _boxes(content, len(text))
    for place in range(start, end):
        index, box = FPDFText_GetCharIndexFromTextIndex(content, place), box_at(place)
        FPDFText_GetCharOrigin(content, index, x, y)
        owner = cast(FPDFText_GetTextObject(content, index), c_void_p).value
        glyphs.append(_Glyph(text[place], box, y.value, owner))
    return glyphs


def _unread(page: PdfPage, content: PdfTextPage) -> Iterator[_Glyph]:
    """Yield the places of letters that are read as part of their marks."""
    from pypdfium2.raw import FPDF_PAGEOBJ_TEXT, FPDFTextObj_GetText

    for part in page.get_objects((FPDF_PAGEOBJ_TEXT,), max_depth=1):
        box = _Box(*part.get_bounds())
        if box.left < box.right and FPDFTextObj_GetText(part, content, None, 0) <= 2:  # a zero
            yield _Glyph("", box, (box.bottom + box.top) / 2, None)


def _around(boxes: Iterable[_Box]) -> _Box:
    left, bottom, right, top = zip(*boxes, strict=True)
    return _Box(min(left), min(bottom), max(right), max(top))


def _clusters(glyphs: Sequence[_Glyph], space: float) -> list[str]:
    """Return the letters of a line from left to right, with their marks and the spaces."""
    glyphs = sorted(glyphs, key=lambda glyph: (glyph.rank, _middle(glyph.box)))
    count = max(sum(not glyph.rank for glyph in glyphs), 1)
    clusters = [list(cluster) for _, cluster in groupby(glyphs[:count], lambda letter: letter.box)]
    middles = [_middle(cluster[0].box) for cluster in clusters]
    for mark in glyphs[count:]:
        at = bisect(middles, _middle(mark.box))
        min(clusters[max(at - 2, 0) : at + 2], key=lambda cluster: _distance(cluster[0], mark)).append(mark)
    texts, before, gap = [" "], _Box(math.inf, 0, math.inf, 0), space
    for cluster in clusters:
        text, box = _spelled(cluster), _around(glyph.box for glyph in cluster)
        if text == " " and box.left == box.right:
            gap = space / 2
            continue
        common, width = min(box.right, before.right) - max(box.left, before.left), box.right - box.left
        if text == texts[-1] and (text == " " or common > min(width, before.right - before.left) / 3):
            before = _around((before, box))  # a mark may stand for its letter too
            continue
        if " " not in (text, texts[-1]) and box.left - before.right > gap:
            texts.append(" ")
        texts.append(text)
        before, gap = box, space
    return texts[1:]


def _middle(box: _Box) -> float:
    return (box.left + box.right) / 2


def _distance(letter: _Glyph, mark: _Glyph) -> tuple[bool, float]:
    apart = max(letter.box.left, mark.box.left) - min(letter.box.right, mark.box.right)
    return letter.owner != mark.owner, apart


def _spelled(cluster: Sequence[_Glyph]) -> str:
    """Return a letter or ligature with its marks."""
    letters = "".join(glyph.character for glyph in cluster if not glyph.rank)
    marks = "".join(glyph.character for glyph in cluster if glyph.rank)
    is_turned = _FROM_RIGHT.match(letters) and not letters.startswith(("ل", "الل"))
    return (letters[::-1] if is_turned else letters) + marks


def _as_read(clusters: Sequence[str]) -> str:
    """Return a line of letters that are given from left to right."""
    line, order = "".join(cluster[0] for cluster in clusters), [*clusters]
    parts = [(0, len(line))] if _is_from_right(line) else [run.span() for run in _RIGHT_RUN.finditer(line)]
    number = _NUMBER_IN_ARABIC if re.search(f"[{_ARABIC}]", line) else _NUMBER
    for start, end in parts:
        order[start:end] = clusters[start:end][::-1]
        for between in _BETWEEN.finditer(line, start, end):
            for run in (_WORDS if _LETTER.search(between[0]) else number).finditer(line, *between.span()):
                order[start + end - run.end() : start + end - run.start()] = clusters[run.start() : run.end()]
    is_word, depth = [False, *(text[0].isalnum() for text in order), False], Counter[int]()
    for i, text in enumerate(order):
        if (place := _BRACKETS.find(text)) >= 0:
            kind, (before, _, after) = place // 2, is_word[i : i + 3]
            is_open = depth[kind] <= 0 if before == after else after
            depth[kind] += 1 if is_open else -1
            order[i] = _BRACKETS[2 * kind + (not is_open)]
    return "".join(order)


def _is_from_right(line: str) -> bool:
    """Return whether a line that is given from its left is read from its right."""
    sides = [_FROM_RIGHT.match(letter) is not None for letter in line if letter.isalpha()]
    if len({*sides[:1], *sides[-1:]}) == 1:
        return sides[0]
    words = [1 if _FROM_RIGHT.search(word) else -1 for word in line.split() if _LETTER.search(word)]
    return ((line[0] in _MARKS_OF_END) - (line[-1] in _MARKS_OF_END) or sum(words)) > 0
