"""Web pages: their text, title and authors, by lxml.

The time of Python's own parser grows with the square of a page. XHTML is read as XML, since ``<script/>`` and CDATA
mean something there, and as HTML where it is not well-formed.

What a page hides until somebody clicks is read, and so is what it shows without scripts. Not read are ``placeholder``,
``aria-label`` and ``title``, which repeat or explain what is beside them, the addresses of links, and `_UNWANTED`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache
from html import escape
from html.entities import html5
from itertools import pairwise
from typing import Any

from vlmsearch._util.extras import install_command
from vlmsearch.errors import InvalidInputError, MissingDependencyError
from vlmsearch.media.about import About
from vlmsearch.media.decoding import decoded, page_label
from vlmsearch.media.office.content import AUTHORS_JOINT, Content, clean

_UNWANTED_NAMES = "annotation annotation-xml iframe link metadata noembed rp script style template xml"
_UNWANTED = frozenset(_UNWANTED_NAMES.split())
"""Elements that hold nothing for a reader.

- ``annotation``, ``annotation-xml``: a formula once more, in TeX
- ``iframe``, ``noembed``: text for browsers without frames; the page in ``srcdoc`` is read
- ``link``, ``style``: icons and styles
- ``metadata``: the licence of a drawing
- ``rp``: brackets for browsers without ruby
- ``script``: programs, and JSON-LD, which says to search engines what the page says to readers
- ``template``: what a program fills in before it is shown, save that of a shadow root, which is read
- ``xml``: settings of Word in the pages that it saves
"""
_PARAGRAPH, _LINE, _SPACE, _TAB = "\x1d", "\n", "\x0e", "\x0f"
"""Marks of empty and new lines, and of spaces and tabs that stay."""
_NAMES = {
    _PARAGRAPH: "address article aside blockquote body center details dialog dir fieldset figure footer form h1 h2 h3 "
    "h4 h5 h6 head header hgroup hr html iframe listing main menu nav noframes noscript p plaintext pre search section "
    "table xmp",
    _LINE: "br caption dd desc div dl dt figcaption foreignobject frameset legend li ol optgroup option summary tbody "
    "td text tfoot th thead title tr ul",
    " ": "area audio button canvas embed input marquee meter mfrac mtd mtr object progress select svg textarea video",
}
_BREAKS = {tag: mark for mark, tags in _NAMES.items() for tag in tags.split()}
"""Marks before and after an element. All others are inside of lines, and do not break words."""
_LINES_KEPT = frozenset({"listing", "plaintext", "pre", "textarea", "xmp"})
_SPECIAL = _UNWANTED | _LINES_KEPT | {"rt", "rtc", "ruby", "table", "td", "th", "title", "tr"}
_LABELS = {"area": "alt", "img": "alt", "input": "value", "optgroup": "label", "option": "label"}
"""Attributes that are shown as text."""
_UNSEEN_INPUTS = frozenset({"checkbox", "color", "file", "hidden", "password", "radio", "range"})
"""Types of inputs with a value that is not shown as text."""
_AUTHOR = re.compile(r"(?i)(citation_)?author|dc(terms)?\.creator")
_DESCRIPTION = re.compile(r"(?i)(dc\.|og:)?description")
EMBEDDED = {"image": "picture", "video": "film", "audio": "sound"}
"""Kinds of parts that are not read, by the beginning of their media types."""
_DOT = 100
"""Characters in the address of a dot that holds the place of a picture, at most."""
_MAX_LEVELS = 8
"""Pages inside of one another that are read."""
_HEAD = 1000
"""Characters at the beginning of a page that say that it is XHTML."""
_XHTML = re.compile(r"\A<\?xml|\bxmlns(?::\w+)?=[\"']http://www\.w3\.org/(?:1999/xhtml|2000/svg)")
_ENTITY = re.compile(r"&(?!(?:amp|lt|gt|quot|apos);)([A-Za-z]\w*;)")
_CDATA = re.compile(r"(?s)<!--.*?(?:-->|\Z)|<!\[CDATA\[(.*?)(?:\]\]>|\Z)")
_STRAY_END = re.compile(r"(?i)</(?:p|br)\s*>")
"""Ends that browsers take for a paragraph where none is open, and lxml for nothing."""


class _Page:
    """The text of a web page, its title and its authors, from what lxml's parser calls.

    Args:
        level: Number of pages that this one is inside of.
    """

    def __init__(self, level: int) -> None:
        self.title: list[str] = []
        self.meta: list[tuple[str, str]] = []
        self.unread: Counter[str] = Counter()
        self._level = level
        self._parts: list[str] = []
        self._ruby: list[str] = []
        self._out = self._parts
        self._open = [""]
        self._hidden = 0
        self._lines_kept = 0
        self._rows: list[list[int]] = [[]]

    def start(self, name: str, attributes: Mapping[str, str]) -> None:
        """Begin an element."""
        (tag, mark, is_plain), above = _element(name), self._open[-1]
        self._open.append(tag)
        if self._hidden:
            return
        if not is_plain:
            self._lines_kept += tag in _LINES_KEPT
            if tag in _UNWANTED and "shadowrootmode" not in attributes:
                self._hidden = len(self._open)
            elif tag in ("rt", "rtc"):
                self._out = self._ruby
            elif tag == "title" and above in ("head", "html", "body") and not self.title:
                self._out = self.title
            elif tag == "table":
                self._rows[-1].clear()
                self._rows.append([])
            elif tag == "tr":
                self._end_row()
            elif tag in ("td", "th"):
                self._rows[-1].append(len(self._parts))
        is_apart = above == "mfrac" or (tag in ("a", "sup") and tag != above in ("a", "sup"))  # the number of a note
        self._out.append(" " if is_apart else mark)
        if attributes:
            self._attributes(tag, attributes)

    def end(self, name: str) -> None:
        """End an element."""
        tag, mark, is_plain = _element(name)
        self._open.pop()
        if self._hidden:
            self._hidden *= self._hidden <= len(self._open)
            return
        self._out.append(mark)
        if is_plain:
            return
        self._lines_kept -= tag in _LINES_KEPT
        if tag in ("rt", "rtc", "title"):
            self._out = self._parts
        elif tag == "ruby" and self._ruby:
            self._parts += [" ", *self._ruby, " "]
            self._ruby.clear()
        elif tag in ("table", "tr"):
            self._end_row()
            if tag == "table":
                self._rows.pop()

    def data(self, data: str) -> None:
        """Take text."""
        if self._hidden:
            return
        if self._lines_kept:
            data = re.sub(r"\n\s*\n", _PARAGRAPH, data).replace(" ", _SPACE).replace("\t", _TAB)
        self._out.append(data if self._lines_kept else data.replace("\n", " "))

    def close(self) -> None:
        """End the page."""

    def text(self) -> str:
        """Return the text that was taken."""
        paragraphs = "".join([*self._parts, *self._ruby]).split(_PARAGRAPH)
        lines = ((" ".join(line.split()) for line in paragraph.split(_LINE)) for paragraph in paragraphs)
        text = "\n\n".join(filter(None, map("\n".join, (filter(None, part) for part in lines))))
        return clean(text.replace(_SPACE, " ").replace(_TAB, "\t"))

    def _attributes(self, tag: str, attributes: Mapping[str, str]) -> None:
        label, kind = attributes.get(_LABELS.get(tag, ""), ""), attributes.get("type", "").lower()
        if tag == "meta":
            self.meta.append((attributes.get("name", attributes.get("property", "")), attributes.get("content", "")))
        elif tag == "iframe" and "srcdoc" in attributes:
            self._embed(attributes["srcdoc"])
        elif tag == "input" and (kind == "image" or kind in _UNSEEN_INPUTS):
            label = attributes.get("alt", "") if kind == "image" else ""
        elif tag == "nav" and {"landmarks", "page-list"} & set(attributes.values()):
            self._hidden = len(self._open)  # where a program finds parts and printed pages of a book
        elif tag == "a" and {"noteref", "doc-noteref", "footnote-ref"} & set(attributes.values()):
            self._out.append(" ")
        elif tag == "tspan" and "x" in attributes and ("y" in attributes or "dy" in attributes):
            self._out.append(_LINE)
        if label or tag == "img":
            self._out.append(label if len(label) == 1 else f" {label} ")  # one is the large first letter of a word
        for key, value in attributes.items():
            if value[:5] == "data:" and len(value) > _DOT and key[:5] != "data-" and tag not in ("link", "script"):
                self.unread[EMBEDDED.get(value[5:10], "embedded document")] += 1

    def _embed(self, markup: str) -> None:
        if self._level == _MAX_LEVELS:
            self.unread["embedded document"] += 1
            return
        page = _parsed(markup, self._level + 1)
        self._out += [_PARAGRAPH, page.text().replace("\n\n", _PARAGRAPH), _PARAGRAPH]
        self.unread.update(page.unread)

    def _end_row(self) -> None:
        """Make one line of the cells since the last row.

        A cell alone, and cells up to one with a table, are the layout of a page, and keep their paragraphs.
        """
        row = self._rows[-1]
        if len(row) > 1:
            cells = ("".join(self._parts[start:end]) for start, end in pairwise([*row, len(self._parts)]))
            line = _TAB.join(" ".join(re.split(f"[\\s{_SPACE}{_TAB}]+", cell)).strip() for cell in cells)
            self._parts[row[0] :] = [_LINE, line.rstrip(_TAB), _LINE]
        row.clear()


@lru_cache(1024)
def _element(name: str) -> tuple[str, str, bool]:
    """Return the name of an element, its marks, and whether that is all about it."""
    tag = name.rpartition("}")[2].lower()
    return tag, _BREAKS.get(tag, ""), tag not in _SPECIAL


def read(data: bytes, name: str) -> Content:
    """Return the content of a web page or a drawing in SVG.

    Raises:
        InvalidInputError: ``unsupported`` for binary data.
        MissingDependencyError: lxml is not installed.
    """
    try:
        source = decoded(data, label=page_label(data))
    except InvalidInputError as exc:
        raise InvalidInputError(exc.code, f"{name} is no page: {exc}") from exc
    content = read_markup(source.text)
    return replace(content, unread={**content.unread, **source.unread})


def read_markup(markup: str) -> Content:
    """Return the content of a web page or a part of one.

    A description that is in the text as well is not said again.

    Raises:
        MissingDependencyError: lxml is not installed.
    """
    page = _parsed(markup)
    text = page.text()
    said = (" ".join(value.split()) for name, value in page.meta if _DESCRIPTION.fullmatch(name))
    subject = next(filter(None, said), "")
    subject = "" if subject in " ".join(text.split()) else subject
    authors = dict.fromkeys(value for name, value in page.meta if value and _AUTHOR.fullmatch(name))
    return Content(text, About("".join(page.title), AUTHORS_JOINT.join(authors), subject), dict(page.unread))


def _parsed(markup: str, level: int = 0) -> _Page:
    try:
        from lxml import etree
    except ImportError as exc:
        raise MissingDependencyError(f"web pages need lxml: {install_command('office')}") from exc
    text = markup.replace("\0", "").strip()
    if _XHTML.search(text[:_HEAD]):
        xml = _ENTITY.sub(lambda match: html5.get(match[1], f"&amp;{match[1]}"), text)
        with suppress(etree.XMLSyntaxError):
            return _fed(etree.XMLParser, xml, level)
    html = _CDATA.sub(lambda match: escape(match[1]) if match[1] else match[0], text)
    html = re.sub(r"(?i)(</?)noframes\b", r"\1div", _STRAY_END.sub(r"\g<0> ", html))
    return _fed(etree.HTMLParser, html or "<p>", level)


def _fed(parser_class: Any, text: str, level: int) -> _Page:
    page = _Page(level)
    parser = parser_class(target=page, huge_tree=True, encoding="utf-8", remove_comments=True, remove_pis=True)
    parser.feed(text.encode("utf-8", "replace"))
    parser.close()
    return page
