"""Rich Text Format: ``.rtf``, as in its specification 1.9.1.

A text is read unless its destination is named here as unwanted, or is marked as one that readers may skip. Bytes that
stand together are decoded together, since a character may be several of them.
"""

from __future__ import annotations

import codecs
import re
from collections import Counter
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter

from vlmsearch.errors import InvalidInputError
from vlmsearch.media.about import About
from vlmsearch.media.office.content import Content, clean
from vlmsearch.media.office.layout import CELL, LINE, PARAGRAPH, laid_out
from vlmsearch.media.office.package import OTHER

_BINARY = re.compile(rb"\\bin(\d{1,10}) ?")
_ESCAPE = re.compile(rb"((?:\\'[0-9a-fA-F]{2}){1,9999})|\\([\\{}])")
_SYMBOLS = {
    **dict.fromkeys(("par", "sect", "page", "column", "\r", "\n"), PARAGRAPH),
    **dict.fromkeys(("line", "softline", "lbr"), "\n"),
    **dict.fromkeys(("nestcell", "emspace", "enspace", "qmspace", "~"), " "),
    **dict(zip(("row", "cell", "tab", "_"), (LINE, CELL, "\t", "-"), strict=True)),
    **dict(zip(("lquote", "rquote", "ldblquote", "rdblquote"), "\u2018\u2019\u201c\u201d", strict=True)),
    **dict(zip(("endash", "emdash", "bullet", "zwj", "zwnj"), "\u2013\u2014\u2022\u200d\u200c", strict=True)),
}
"""The text of control words and symbols."""
_UNWANTED = {
    *("fonttbl", "colortbl", "stylesheet", "listtable", "listoverridetable", "filetbl", "revtbl"),  # how it looks
    *("fldinst", "xe", "tc", "rxe", "txe", "template", "info", "sp"),  # codes, marks of indexes, and properties
    *("ftnsep", "ftnsepc", "ftncn", "aftnsep", "aftnsepc", "aftncn"),  # lines between a text and its notes
    *("keywords", "subject", "doccomm", "comment", "operator", "category"),  # descriptions of the file
    *("pict", "object", "upr"),  # counted; what is there in Unicode, too
}
"""Destinations without a text of their own, as those whose names end in ``Pr``: the properties of equations."""
_REPEATED = {"nonshppict", "shprslt", "mmathPict", "nonesttables", "listpicture"}
"""Destinations with nothing to read in them: repetitions for older readers, and pictures of bullets."""
_READ = {"shppict", "shpinst", "do", "ud", "result", "moMath", "moMathPara"}
"""Destinations that are read although they may be skipped, or stand in unwanted ones."""
_ASIDE = {"footnote", "annotation", *(edge + page for edge in ("header", "footer") for page in ("", "l", "r", "f"))}
"""Destinations whose text stands behind the document."""
_ANCHORED = {"shptxt", "dptxbxtext", "ffl"}
"""Destinations whose text stands behind its paragraph: shapes, and items of form fields."""
_SHOWN = {"wzDescription", "gtextUNICODE"}
"""Properties of shapes that a reader sees, whose values are as those destinations."""
_COUNTED = {"pict": "picture", "object": "embedded document"}
_STATES = {"uc": "fallback", "f": "font", "deleted": "is_deleted", "intbl": "in_table", "trowd": "in_table"}
"""Control words that set what holds until a group ends."""
_KNOWN = {*_SYMBOLS, *_UNWANTED, *_REPEATED, *_READ, *_ASIDE, *_ANCHORED, *_STATES, "u", "listtext", "pntext", "title"}
_KNOWN |= {"author", "dropcapli", "sn", "sv", "plain", "pard", "deff", "fcharset", "cpg", "ansicpg", "mac", "pc", "pca"}
"""Control words that say more than how the text looks."""
_CODE_PAGES = {77: 10000, 128: 932, 129: 949, 130: 1361, 134: 936, 136: 950, 161: 1253, 162: 1254, 163: 1258, 177: 1255}
_CODE_PAGES |= {0: 1252, 2: 1252, 178: 1256, 186: 1257, 204: 1251, 222: 874, 238: 1250, 254: 437, 255: 850}
"""Code pages of the character sets of fonts."""

_WORDS = groupby(sorted(filter(str.isalpha, _KNOWN)), itemgetter(0))
_BY_LETTER = "|".join(f"{letter}(?:{'|'.join(word[1:] for word in words)})" for letter, words in _WORDS)
_TOKEN = re.compile(
    rb"((?:\\(?!(?:%s|m\w+Pr)(?![a-zA-Z]))[a-zA-Z]+-?\d* ?){1,9999})|(\\\*\s*)?\\([a-zA-Z]+)(-?\d{1,10})? ?"
    rb"|((?:[^\\{}]+|\\'[0-9a-fA-F]{2}|\\[\\{}]){1,99999})|([{}])|\\(.)" % _BY_LETTER.encode(),
    re.DOTALL,
)
"""Words on looks; a mark, a word and its number; text; a brace; a symbol."""


@dataclass(slots=True)
class _Group:
    """Settings that hold until a group ends."""

    stream: list[str]
    is_read: bool = True
    is_repeated: bool = False
    is_object: bool = False
    is_deleted: bool = False
    in_table: bool = False
    font: int = 0
    fallback: int = 1

    def copy(self) -> _Group:
        """Return a group in this one."""
        states = (self.is_read, self.is_repeated, self.is_object, self.is_deleted, self.in_table)
        return _Group(self.stream, *states, self.font, self.fallback)


def read(data: bytes, name: str) -> Content:
    """Return the content of a document.

    Raises:
        InvalidInputError: ``corrupt`` where it does not begin as such a document.
    """
    start = re.match(rb"[\s\0\xef\xbb\xbf]*(?=\{\\rtf)", data)
    if not start:
        raise InvalidInputError("corrupt", f"{name} is not what its name says: its beginning is not '{{\\rtf'")
    document = _Document()
    document.read(_without_binaries(data[start.end() :]))
    texts = dict.fromkeys(map(laid_out, map("".join, [document.body, *document.asides])))
    title, author = (clean("".join(document.about[word])) for word in ("title", "author"))
    return Content(clean("\n\n".join(filter(None, texts))), About(title, author), dict(document.counts))


class _Document:
    """The text of a document, from its tokens."""

    def __init__(self) -> None:
        self.body: list[str] = []
        self.asides: list[list[str]] = []
        self.about: dict[str, list[str]] = {"title": [], "author": []}
        self.counts = Counter[str]()
        self._group = _Group(self.body)
        self._anchored: list[list[str]] = []
        self._property: list[str] = []
        self._fonts: dict[int, str] = {}
        self._code_page = "cp1252"
        self._font = self._fallback = 0
        self._is_item = self._is_initial = False

    def read(self, data: bytes) -> None:
        """Read until the group of the document ends."""
        outer: list[_Group] = []
        for match in _TOKEN.finditer(data):
            looks, marked, word, number, written, brace, symbol = match.groups()
            if looks:
                self._fallback = 0
            elif written:
                if self._group.is_read:
                    self._write(_ESCAPE.sub(_unescaped, written.translate(None, b"\r\n\0")))
            elif word:
                self._control(word.decode(), int(number or 1), marked is not None)
            elif symbol:
                self._put(_SYMBOLS.get(symbol.decode("latin-1"), ""))
            elif brace == b"{":
                outer.append(self._group)
                self._group, self._fallback = self._group.copy(), 0
            else:
                self._group, self._fallback = outer.pop(), 0
                if not outer:
                    self.counts.update([OTHER] if data[match.end() :].strip(b"\0\x1a \r\n") else [])
                    break
        self._group = _Group(self.body)
        self._put(PARAGRAPH)

    def _write(self, data: bytes) -> None:
        """Add bytes of text in the character set of their font."""
        charset = self._fonts.get(self._group.font, self._code_page)
        if text := data[self._fallback :].decode(charset, "replace"):
            self._fallback = 0
            self._put(text)
        self._fallback = max(0, self._fallback - len(data))

    def _put(self, text: str) -> None:
        """Add a text, unless it is unwanted or repeats a character for older readers."""
        group = self._group
        if self._fallback and text.isprintable():
            self._fallback -= 1
        elif group.is_read and not group.is_deleted:
            if text == PARAGRAPH and self._is_initial:  # of a large first letter, whose word goes on
                text, self._is_initial = "", False
            elif text in ("\t", "\n", PARAGRAPH) and group.in_table:
                text = " "
            elif text == PARAGRAPH and self._is_item:
                text, self._is_item = LINE, False
            elif group.stream[-1:] == [LINE] and not (group.in_table or self._is_item):
                text = PARAGRAPH + text
            group.stream.append(text)
            if text[-1:] in (PARAGRAPH, LINE) and group.stream is self.body:
                for anchored in self._anchored:
                    self.body += [*anchored, PARAGRAPH]
                self._anchored.clear()

    def _control(self, word: str, number: int, is_marked: bool) -> None:
        """Follow a control word."""
        group = self._group
        if word in _SYMBOLS:
            self._put(_SYMBOLS[word])
            group.in_table &= word != "row"
            return
        self._fallback = 0
        if word == "u":
            self._put(chr(number & 0xFFFF))
            self._fallback = group.fallback
        elif word in _STATES:
            setattr(group, _STATES[word], number)
        elif word == "pard":
            group.in_table = False
        elif word == "deff":
            self._font = group.font = number
        elif word == "plain":
            group.font, group.is_deleted = self._font, False
        elif word in ("ansicpg", "mac", "pc", "pca"):
            self._code_page = _charset({"mac": 10000, "pc": 437, "pca": 850}.get(word, number))
        elif word == "fcharset":
            self._fonts[group.font] = _charset(_CODE_PAGES[number]) if number in _CODE_PAGES else self._code_page
        elif word == "cpg":
            self._fonts[group.font] = _charset(number)
        elif word in ("listtext", "pntext"):
            self._is_item = True
        elif word == "dropcapli":
            self._is_initial = group.is_read
        else:
            self._destination(word, is_marked)

    def _destination(self, word: str, is_marked: bool) -> None:
        """Begin a destination, or do nothing for a word that only says how the text looks."""
        group, stream = self._group, list[str]()
        if word in _ASIDE:
            self.asides.append(stream)
        elif word in _ANCHORED or (word == "sv" and "".join(self._property) in _SHOWN):
            self._anchored.append(stream)
        elif word in self.about:
            self.about[word], group.font = stream, -1
        elif word == "sn":
            self._property = stream
        elif word in _READ:
            stream = group.stream
        else:
            if is_marked or word.endswith("Pr") or word in _UNWANTED or word in _REPEATED:
                group.is_read = False
                group.is_repeated |= word in _REPEATED
            if word in _COUNTED and not group.is_repeated and not group.is_object:
                self.counts[_COUNTED[word]] += 1
                group.is_object = word == "object"
            return
        group.stream, group.is_read, group.in_table = stream, not group.is_repeated, group.in_table and word in _READ


def _without_binaries(data: bytes) -> bytes:
    """Return a document without its pictures and objects that are not in letters."""
    parts, start = [], 0
    for match in _BINARY.finditer(data):
        if match.start() >= start and not data.endswith(b"\\", 0, match.start()):
            parts.append(data[start : match.start()])
            start = match.end() + int(match[1])
    return b"".join([*parts, data[start:]])


def _unescaped(match: re.Match[bytes]) -> bytes:
    return match[2] or bytes.fromhex(match[1].replace(b"\\'", b"").decode())


def _charset(code_page: int) -> str:
    """Return the name of the character set of a code page, or the Western one."""
    try:
        return codecs.lookup("mac_roman" if code_page == 10000 else f"cp{code_page}").name
    except LookupError:
        return "cp1252"
