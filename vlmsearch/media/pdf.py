"""The pages of a PDF: what each says and shows, by PDFium.

PDFium is not safe in threads, and a page may take it any memory and time: these functions run in a child process of
one thread. A file is opened by its path and read as it is needed.
"""

from __future__ import annotations

import ctypes
import math
import os
import struct
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING

from vlmsearch._util.extras import install_command
from vlmsearch.errors import InvalidInputError, MissingDependencyError, one_line
from vlmsearch.media.about import About
from vlmsearch.media.annotations import ATTACHMENT, FORM, flatten
from vlmsearch.media.decoding import UNREADABLE
from vlmsearch.media.files import open_regular
from vlmsearch.media.limits import DEFAULT_LIMITS, ImageLimits, check_count
from vlmsearch.media.page_text import Spelling, page_text

if TYPE_CHECKING:
    from pypdfium2 import PdfDocument, PdfPage

LONG_EDGE = 1600
"""Pixels of the longer edge of a page: A4 at 137 dots an inch, in which small print can be read."""
_MAX_DPI = 300
"""Small pages are not enlarged beyond this."""
_POINTS = 72
_REOPENED = 256
"""Pages after which a file is opened again: PDFium keeps fonts and images of all pages that it has seen."""
_END = 2048
"""Bytes at the end of a file, among which a whole file has its mark."""
_FILE, _FORMAT, _PASSWORD, _SECURITY = 2, 3, 4, 5
"""PDFium's reasons for not opening a file: fpdfview.h, FPDF_ERR."""
_HEADER = 54
"""Bytes of a BMP before its pixels."""
_FORM_WITHOUT_PAGES = 2
"""A form whose pages are made by a program as it is filled in: fpdf_formfill.h, FORMTYPE_XFA_FULL."""


@dataclass(frozen=True)
class Page:
    """A page of a PDF.

    Attributes:
        number: From 1.
        text: The text, in lines; "" for a scan.
        image: The picture of the page, as the bytes of a BMP; empty where it is not drawn.
        unread: Numbers of what is not read, by kind.
    """

    number: int
    text: str
    image: bytes
    unread: Mapping[str, int]


def describe(path: Path) -> tuple[int, About, Mapping[str, int]]:
    """Return the number of pages of a PDF, its title, and what is not read.

    The last are numbers by kind, beside those of its pages.

    Raises:
        InvalidInputError: It cannot be opened: ``unreadable``, ``empty``, ``corrupt``, ``truncated``, or
            ``unsupported`` where a password opens it.
        MissingDependencyError: pypdfium2 is not installed.
    """
    with _opened(path) as document:
        about = About(*(_said(document, key) for key in ("Title", "Author", "Subject", "Keywords")))
        unread = {ATTACHMENT: document.count_attachments(), FORM: int(document.get_formtype() == _FORM_WITHOUT_PAGES)}
        return len(document), about, +Counter(unread)


def read_pages(
    path: Path, limits: ImageLimits = DEFAULT_LIMITS, *, is_drawn: bool = True
) -> Iterator[Page | tuple[int, InvalidInputError]]:
    """Yield the pages of a PDF in order, one in memory at a time.

    A page that cannot be read comes as its number and the reason. Without ``is_drawn`` pages have no picture.

    Raises:
        InvalidInputError: The file cannot be opened, as for `describe`.
        MissingDependencyError: pypdfium2 is not installed.
    """
    number, count, spelling = 0, 1, Spelling()
    document: PdfDocument | None = None
    try:
        while number < count:
            if document is None or number % _REOPENED == 0:
                if document is not None:
                    document.close()
                document = _open(path)
                spelling.producer = _said(document, "Producer")
                count = len(document)
            if number >= count:  # it became shorter meanwhile
                return
            number += 1
            yield _read_page(document, path, number, limits if is_drawn else None, spelling)
    finally:
        if document is not None:
            document.close()


def page_image(path: Path, number: int, limits: ImageLimits = DEFAULT_LIMITS) -> bytes:
    """Return what a page shows, as `read_pages` gives it.

    Raises:
        InvalidInputError: The file cannot be opened, as for `describe`, or has no such page, or that is ``corrupt``.
        MissingDependencyError: pypdfium2 is not installed.
    """
    with _opened(path) as document:
        if number > len(document):
            raise InvalidInputError("invalid", f"{str(path)!r} has {len(document):,} pages, and no page {number}")
        with _loaded(document, path, number) as page:
            return _draw(page, _name(path, number), limits)


def _read_page(
    document: PdfDocument, path: Path, number: int, limits: ImageLimits | None, spelling: Spelling
) -> Page | tuple[int, InvalidInputError]:
    try:
        with _loaded(document, path, number) as page:
            image = _draw(page, _name(path, number), limits) if limits else b""
            annotations = flatten(page)
            text = "" if annotations.has_any else page_text(page, number, spelling)
        if annotations.has_any:
            with _loaded(document, path, number) as page:
                text = annotations.below(page_text(page, number, spelling))
        unread = Counter({**annotations.unread, UNREADABLE: text.count("\ufffd")})
        return Page(number, text, image, +unread)
    except InvalidInputError as exc:
        return number, exc


def _name(path: Path, number: int) -> str:
    return f"page {number} of {str(path)!r}"


@contextmanager
def _loaded(document: PdfDocument, path: Path, number: int) -> Iterator[PdfPage]:
    """Give a page; what PDFium says against it is ``corrupt``."""
    from pypdfium2 import PdfiumError

    try:
        page = document[number - 1]
        try:
            yield page
        finally:
            page.close()
    except (PdfiumError, ValueError) as exc:
        if isinstance(exc, InvalidInputError):
            raise
        raise InvalidInputError("corrupt", f"{_name(path, number)} is damaged: {one_line(exc)}") from exc
    except MemoryError as exc:
        raise InvalidInputError("too_large", f"{_name(path, number)} needs more memory than there is") from exc


def scale_of(page: PdfPage) -> float:
    """Return how many pixels a point of a page gets."""
    width, height = page.get_size()
    return min(LONG_EDGE / float(max(width, height)), _MAX_DPI / _POINTS)


def _draw(page: PdfPage, name: str, limits: ImageLimits) -> bytes:
    """Return a page upright on white, as a BMP: what PDFium draws is that already, and every program reads it."""
    from pypdfium2 import PdfBitmap

    width, height = page.get_size()  # as it is turned
    if not (math.isfinite(width) and math.isfinite(height) and min(width, height) > 0):
        raise InvalidInputError("corrupt", f"{name} is {width:g} by {height:g} points large")
    scale = scale_of(page)
    columns, rows = math.ceil(width * scale), math.ceil(height * scale)
    check_count(columns * rows, "pixels", limits.pixels, name)
    stride = -(-columns * 3 // 4) * 4
    size = stride * rows
    file = BytesIO(bytes(_HEADER + size))
    file.write(struct.pack("<2sIHHI", b"BM", _HEADER + size, 0, 0, _HEADER))
    file.write(struct.pack("<IiiHHIIiiII", 40, columns, -rows, 1, 24, 0, size, 0, 0, 0, 0))  # rows from the top
    canvas = (ctypes.c_ubyte * size).from_buffer(file.getbuffer(), _HEADER)
    page.render(scale=scale, bitmap_maker=partial(PdfBitmap.new_native, buffer=canvas, stride=stride)).close()
    del canvas
    return file.getvalue()  # the same memory, as nothing else has it: a copy takes a fifth of the time


def _said(document: PdfDocument, key: str) -> str:
    try:
        return str(document.get_metadata_value(key))
    except UnicodeDecodeError:
        return ""


@contextmanager
def _opened(path: Path) -> Iterator[PdfDocument]:
    document = _open(path)
    try:
        yield document
    finally:
        document.close()


def _open(path: Path) -> PdfDocument:
    """Open a file."""
    try:
        from pypdfium2 import PdfDocument, PdfiumError
    except ImportError as exc:
        raise MissingDependencyError(f"reading PDF needs pypdfium2: {install_command('pdf')}") from exc
    name = repr(str(path))
    with open_regular(path, "a PDF") as file:
        file.seek(max(os.fstat(file.fileno()).st_size - _END, 0))
        end = file.read()
    try:
        document = PdfDocument(path)
    except PdfiumError as exc:
        if exc.err_code in (_PASSWORD, _SECURITY):
            raise InvalidInputError("unsupported", f"{name} is encrypted: save it without its password") from exc
        if exc.err_code == _FILE:
            raise InvalidInputError("unreadable", f"{name} cannot be read: {one_line(exc)}") from exc
        if b"%%EOF" not in end and exc.err_code == _FORMAT:
            raise InvalidInputError("truncated", f"{name} is cut short, or is not a PDF: it has no end") from exc
        raise InvalidInputError("corrupt", f"{name} is damaged, or is not a PDF: {one_line(exc)}") from exc
    try:
        if document.get_formtype():
            document.init_forms()  # before the first page, or what is filled in is not drawn
    except PdfiumError:  # of a form that needs what PDFium was built without
        pass
    return document
