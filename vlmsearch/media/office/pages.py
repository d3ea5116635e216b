"""Web pages: their text, title and authors, by lxml.

The time of Python's own parser grows with the square of a page.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from vlmsearch._util.extras import install_command
from vlmsearch.errors import MissingDependencyError
from vlmsearch.media.about import About
from vlmsearch.media.decoding import decoded, page_label
from vlmsearch.media.office.content import AUTHORS_JOINT, Content, clean

_HIDDEN = frozenset({"script", "style", "template", "noscript", "svg", "math"})
_INLINE_NAMES = (
    "a abbr acronym b bdi bdo big cite code data del dfn em font i img input ins kbd label mark q ruby s samp "
    "small span strike strong sub sup time tt u var wbr"
)
_INLINE = frozenset(_INLINE_NAMES.split())
"""Elements that do not end a line."""
_AUTHORS = frozenset({"author", "citation_author", "dc.creator", "dcterms.creator"})
"""Names, in small letters, of what a web page says of its authors."""
_HEADINGS = frozenset({"h1", "h2", "h3", "h4", "h5", "h6"})
_APART = "\n\0\n"
"""The place of an empty line while a page is read."""
_CELLS = frozenset({"td", "th"})


class _Page:
    """The text of a web page, its title and its authors, from what lxml's parser calls."""

    def __init__(self) -> None:
        self.text: list[str] = []
        self.title: list[str] = []
        self.authors: list[str] = []
        self._hidden = ""
        self._depth = 0
        self._is_title = False

    def start(self, tag: str, attributes: Mapping[str, str]) -> None:
        """Begin an element."""
        if self._hidden:
            self._depth += tag == self._hidden
        elif tag == "title" and not self.title:
            self._is_title = True
        elif tag == "meta" and attributes.get("name", "").lower() in _AUTHORS:
            self.authors.append(attributes.get("content") or "")
        elif tag in _HIDDEN:
            self._hidden, self._depth = tag, 1
        elif tag not in _INLINE:
            self.text.append(" " if tag in _CELLS else _APART if tag in _HEADINGS else "\n")
        elif tag == "img":
            self.text.append(f" {attributes.get('alt') or ''} ")

    def end(self, tag: str) -> None:
        """End an element."""
        if tag == "title":
            self._is_title = False
        elif self._hidden:
            self._depth -= tag == self._hidden
            self._hidden = self._hidden if self._depth else ""
        elif tag not in _INLINE and tag not in _CELLS:
            self.text.append(_APART if tag in _HEADINGS else "\n")

    def data(self, data: str) -> None:
        """Take text."""
        if self._is_title:
            self.title.append(data)
        elif not self._hidden:
            self.text.append(" ".join(data.split("\n")))

    def close(self) -> _Page:
        """End the page."""
        return self


def read(data: bytes, _: str) -> Content:
    """Return the text of a web page, each block on a line of its own.

    Headings are between empty lines. Scripts and styles are left out.

    Raises:
        MissingDependencyError: lxml is not installed.
    """
    try:
        from lxml import etree
    except ImportError as exc:
        raise MissingDependencyError(f"web pages need lxml: {install_command('office')}") from exc
    source = decoded(data, label=page_label(data))
    text = clean(source.text)
    if not text:
        return Content("", unread=source.unread)
    page = _Page()
    parser = etree.HTMLParser(target=page, huge_tree=True, encoding="utf-8", remove_comments=True, remove_pis=True)
    parser.feed(text.encode())
    parser.close()
    lines = (" ".join(line.split()) for line in "".join(page.text).split("\n"))
    about = About("".join(page.title), AUTHORS_JOINT.join(dict.fromkeys(filter(None, page.authors))))
    text = re.sub(r"\n?(?:\0\n?)+", "\n\n", "\n".join(filter(None, lines)))
    return Content(clean(text), about, source.unread)
