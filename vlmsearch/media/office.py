"""Office documents, e-books and web pages: their text, their title and their authors.

Kreuzberg (https://github.com/Goldziher/kreuzberg, MIT) reads documents and e-books in one wheel of 39 MB that needs no
other package; it is not asked for OCR, its cache or anything that it would download. Needs the extra ``office``.

Titles and authors of all formats in ZIP archives are Dublin Core, and are read here: Kreuzberg gives the last of the
authors of a book, the last editor of an OpenDocument text, and neither of a spreadsheet.

Web pages are read by lxml. Kreuzberg leaves out text in a ``div`` alone, or in a list of terms. The time of Python's
own parser grows with the square of a page.
"""

from __future__ import annotations

import os
import re
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING

from vlmsearch._util.extras import install_command
from vlmsearch._util.text import well_formed
from vlmsearch.errors import InvalidInputError, MissingDependencyError, one_line
from vlmsearch.media.about import About
from vlmsearch.media.images import read_regular

if TYPE_CHECKING:
    from kreuzberg import ExtractionConfig
    from lxml.etree import _Element

_OPEN_XML = "application/vnd.openxmlformats-officedocument."
_TYPES = {
    ".docx": f"{_OPEN_XML}wordprocessingml.document",
    ".epub": "application/epub+zip",
    ".odt": "application/vnd.oasis.opendocument.text",
    ".ods": "application/vnd.oasis.opendocument.spreadsheet",
    ".pptx": f"{_OPEN_XML}presentationml.presentation",
    ".rtf": "application/rtf",
    ".xlsx": f"{_OPEN_XML}spreadsheetml.sheet",
}
_PAGES = frozenset({".htm", ".html", ".xhtml"})
OFFICE_SUFFIXES = frozenset(_TYPES) | _PAGES
"""Endings, in lower case, of the files that are read."""
_SECONDS = 60
"""After how long a file is given up."""
_CHARSET = re.compile(
    rb"(?i)<meta[^>]{0,200}charset\s*=\s*[\"']?\s*([a-z0-9_.:-]{1,40})|<\?xml[^>]{0,200}encoding=[\"']([a-z0-9_.:-]{1,40})"
)
_HEAD = 4096
"""Bytes at the beginning of a page that may name its character set."""
_MARKS = {b"\xef\xbb\xbf": "utf-8-sig", b"\xff\xfe": "utf-16", b"\xfe\xff": "utf-16"}
_HIDDEN = frozenset({"script", "style", "template", "noscript", "svg", "math"})
_INLINE_NAMES = (
    "a abbr acronym b bdi bdo big cite code data del dfn em font i img input ins kbd label mark q ruby s samp "
    "small span strike strong sub sup time tt u var wbr"
)
_INLINE = frozenset(_INLINE_NAMES.split())
"""Elements that do not end a line."""
_ABOUT = re.compile(r"docProps/core\.xml|.*\.psmdcp|meta\.xml|.*\.opf", re.IGNORECASE)
"""Names of what says title and author: in Open XML, there as .NET writes it, in OpenDocument, in EPUB."""
_ABOUT_BYTES = 2**20
_AUTHORS = frozenset({"author", "citation_author", "dc.creator", "dcterms.creator"})
"""Names, in small letters, of what a web page says of its authors."""
_JOINT = "; "
"""Separator of authors."""
_HEADINGS = frozenset({"h1", "h2", "h3", "h4", "h5", "h6"})
_APART = "\n\0\n"
"""The place of an empty line while a page is read."""
_CELLS = frozenset({"td", "th"})
_NOT_TEXT = re.compile("[\x00-\x08\x0b-\x1f\x7f]")
_TOO_MUCH = re.compile(r"(?i)too (large|many|deep)|limit|bomb|exceed|timed? ?out")


@dataclass(frozen=True)
class OfficeText:
    """The text of a document.

    Attributes:
        text: Its text, paragraphs apart; cells of a row are apart by spaces.
        about: What the document says of itself.
    """

    text: str
    about: About


def read_office(path: Path) -> OfficeText:
    """Return the text of an office document, an e-book or a web page.

    Args:
        path: A file that ends in one of `OFFICE_SUFFIXES`, which says how it is read.

    Returns:
        Its text, title and author.

    Raises:
        InvalidInputError: ``unreadable``; ``empty`` (no text); ``corrupt``; ``too_large`` (it unpacks to too much, or
            takes longer than a minute).
        MissingDependencyError: Kreuzberg is not installed.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     page = Path(folder, "page.html")
        ...     _ = page.write_text("<title>Winter</title><p>A dog in the <b>snow</b>.")
        ...     read = read_office(page)
        >>> read.text, read.about.title
        ('A dog in the snow.', 'Winter')
    """
    suffix = os.path.splitext(path)[1].lower()
    data = read_regular(path, "a document")
    name = repr(str(path))
    read = _read_page(data) if suffix in _PAGES else _read_document(data, _TYPES[suffix], name)
    if not read.text:
        raise InvalidInputError("empty", f"{name} has no text")
    return read


def _read_document(data: bytes, kind: str, name: str) -> OfficeText:
    config = _config()
    from kreuzberg import KreuzbergError, extract_bytes_sync

    try:
        read = extract_bytes_sync(data, kind, config=config)
    except (KreuzbergError, RuntimeError, OSError, ValueError) as exc:
        if _TOO_MUCH.search(str(exc)):
            raise InvalidInputError("too_large", f"{name} is too large: {one_line(exc)}") from exc
        raise InvalidInputError("corrupt", f"{name} is damaged, or is not what its name says: {one_line(exc)}") from exc
    if data.startswith(b"PK"):
        return OfficeText(_clean(read.content), _dublin_core(data))
    title, authors = read.metadata.get("title"), read.metadata.get("authors")
    return OfficeText(_clean(read.content), About(title or "", _JOINT.join(authors or ())))


def _dublin_core(data: bytes) -> About:
    """Return what a document in a ZIP archive says of itself.

    A damaged description is none: the text was read by then.
    """
    from lxml import etree

    parser = etree.XMLParser(resolve_entities=False, no_network=True, recover=True)
    try:
        with zipfile.ZipFile(BytesIO(data)) as archive:
            part = next(filter(_ABOUT.fullmatch, archive.namelist()))
            root = etree.fromstring(archive.open(part).read(_ABOUT_BYTES), parser)
    except Exception:  # noqa: BLE001 - archives and XML fail in a dozen ways
        return About()
    names = ("{*}title", "{*}initial-creator", "{*}creator")
    title, first, last = ([] if root is None else [*filter(None, map(_text, root.iter(name)))] for name in names)
    return About(title[0] if title else "", _JOINT.join(dict.fromkeys(first or last)))


def _text(element: _Element) -> str:
    return " ".join("".join(map(str, element.itertext())).split())


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


def _read_page(data: bytes) -> OfficeText:
    """Return the text of a web page, each block on a line of its own, and headings between empty lines.

    Scripts and styles are left out.
    """
    try:
        from lxml import etree
    except ImportError as exc:
        raise MissingDependencyError(f"web pages need lxml: {install_command('office')}") from exc
    text = _clean(_decoded(data))
    if not text:
        return OfficeText("", About())
    page = _Page()
    parser = etree.HTMLParser(target=page, huge_tree=True, encoding="utf-8", remove_comments=True, remove_pis=True)
    parser.feed(text.encode())
    parser.close()
    lines = (" ".join(line.split()) for line in "".join(page.text).split("\n"))
    about = About("".join(page.title), _JOINT.join(dict.fromkeys(filter(None, page.authors))))
    text = re.sub(r"\n?(?:\0\n?)+", "\n\n", "\n".join(filter(None, lines)))
    return OfficeText(_clean(text), about)


def _decoded(data: bytes) -> str:
    """Return the text of a page in the character set that it names.

    The others are UTF-8 and the Western one of old pages.
    """
    named = _CHARSET.search(data[:_HEAD])
    mark = next((name for start, name in _MARKS.items() if data.startswith(start)), "")
    for charset in filter(None, (mark, (named[1] or named[2]).decode() if named else "", "utf-8")):
        try:
            return data.decode(charset)
        except (LookupError, UnicodeError):
            continue
    return data.decode("cp1252", "replace")


def _clean(text: str) -> str:
    return well_formed(_NOT_TEXT.sub("", text.replace("\r\n", "\n"))).strip()


@cache
def _config() -> ExtractionConfig:
    try:
        from kreuzberg import ExtractionConfig
    except ImportError as exc:
        raise MissingDependencyError(f"office documents need Kreuzberg: {install_command('office')}") from exc
    return ExtractionConfig(output_format="plain", use_cache=False, extraction_timeout_secs=_SECONDS)
