"""Office documents, e-books, web pages and notebooks: their text, their title and authors, and what was not read."""

from __future__ import annotations

import os
from importlib import import_module
from pathlib import Path

from vlmsearch.errors import InvalidInputError
from vlmsearch.media.files import read_regular
from vlmsearch.media.office.content import Content

_READERS = {
    ".docm": "open_xml",
    ".docx": "open_xml",
    ".epub": "books",
    ".htm": "pages",
    ".html": "pages",
    ".ipynb": "notebooks",
    ".odp": "open_document",
    ".ods": "open_document",
    ".odt": "open_document",
    ".pptm": "open_xml",
    ".pptx": "open_xml",
    ".rtf": "rtf",
    ".xhtml": "pages",
    ".xlsm": "sheets",
    ".xlsx": "sheets",
}
"""The module of this room that reads files with an ending, by its function ``read``."""
OFFICE_SUFFIXES = frozenset(_READERS)
"""Endings, in lower case, of the files that are read."""


def read_office(path: Path) -> Content:
    """Return the content of an office document, an e-book, a web page or a notebook.

    Args:
        path: A file that ends in one of `OFFICE_SUFFIXES`, which says how it is read.

    Returns:
        Its text, title, authors, and what was not read.

    Raises:
        InvalidInputError: ``unreadable``; ``empty`` (it has neither text nor parts that were not read); ``corrupt``;
            ``unsupported`` (it is encrypted); ``too_large`` (it unpacks to too much).
        MissingDependencyError: lxml is not installed.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     page = Path(folder, "page.html")
        ...     _ = page.write_text("<title>Winter</title><p>A dog in the <b>snow</b>.")
        ...     content = read_office(page)
        >>> content.text, content.about.title
        ('A dog in the snow.', 'Winter')
    """
    content = read_bytes(read_regular(path, "a document"), os.path.splitext(path)[1], repr(str(path)))
    if not content.text and not content.unread:
        raise InvalidInputError("empty", f"{str(path)!r} has no text")
    return content


def read_bytes(data: bytes, suffix: str, name: str) -> Content:
    """Return the content of a document that is in memory, such as an attachment.

    Args:
        data: The bytes of the file.
        suffix: How its name ends, one of `OFFICE_SUFFIXES` in any case.
        name: Its name in messages, quoted.

    Raises:
        InvalidInputError: As for `read_office`, but not ``empty``.
        MissingDependencyError: lxml is not installed.
    """
    content: Content = import_module(f"{__name__}.{_READERS[suffix.lower()]}").read(data, name)
    return content
