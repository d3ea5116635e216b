"""What a page of a PDF has beside its own text: fields of forms, comments, files.

What annotations show becomes a part of the page: filled fields, stamps, captions of buttons. What comments say, and
fields whose letters stand apart, are texts of their own. No text of a page are addresses of links, names of checked
boxes, scripts, bookmarks and thumbnails: they are not seen on it, or repeat what is.
"""

from __future__ import annotations

import ctypes
from collections import Counter
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from pypdfium2 import PdfPage

ATTACHMENT, FORM = "attachment", "XFA form"
"""Kinds of what is not read."""


class Annotations(NamedTuple):
    """The annotations of a page: whether it has any but links, their texts, and numbers of what is not read."""

    has_any: bool
    texts: list[str]
    unread: Mapping[str, int]

    def below(self, text: str) -> str:
        """Return the text of the page with what they say below it, unless it is there."""
        for said in self.texts:
            if f" {' '.join(said.split())} " not in f" {' '.join(text.split())} ":
                text = f"{text}\n\n{said.strip()}".strip()
        return text


def flatten(page: PdfPage) -> Annotations:
    """Make what annotations show a part of a page, and return what they are.

    The page has to be loaded anew unless it has nothing but links.
    """
    from pypdfium2 import raw

    unread_kinds = {
        raw.FPDF_ANNOT_FILEATTACHMENT: ATTACHMENT,
        raw.FPDF_ANNOT_MOVIE: "film",
        raw.FPDF_ANNOT_RICHMEDIA: "film",
        raw.FPDF_ANNOT_SCREEN: "film",
        raw.FPDF_ANNOT_SOUND: "sound",
        raw.FPDF_ANNOT_THREED: "3D model",
    }
    kinds, texts = list[int](), list[str]()
    for i in range(raw.FPDFPage_GetAnnotCount(page)):
        annotation = raw.FPDFPage_GetAnnot(page, i)
        kind = raw.FPDFAnnot_GetSubtype(annotation)
        is_hidden = raw.FPDFAnnot_GetFlags(annotation) & raw.FPDF_ANNOT_FLAG_HIDDEN
        if not is_hidden and kind not in (raw.FPDF_ANNOT_LINK, raw.FPDF_ANNOT_POPUP):  # that says what its comment says
            kinds.append(kind)
            texts.append(_value(page, annotation) if kind == raw.FPDF_ANNOT_WIDGET else _contents(annotation))
        raw.FPDFPage_CloseAnnot(annotation)
    if kinds:
        raw.FPDFPage_Flatten(page, raw.FLAT_NORMALDISPLAY)
    return Annotations(bool(kinds), texts, Counter(unread_kinds[kind] for kind in kinds if kind in unread_kinds))


def _contents(annotation: Any) -> str:
    from pypdfium2.raw import FPDFAnnot_GetStringValue

    return _string(lambda *buffer: FPDFAnnot_GetStringValue(annotation, b"Contents", *buffer))


def _value(page: PdfPage, field: Any) -> str:
    """Return what is filled into a field of text; "" for a password, which is not shown."""
    from pypdfium2 import raw

    form = page.formenv
    if form is None or raw.FPDFAnnot_GetFormFieldType(form, field) != raw.FPDF_FORMFIELD_TEXTFIELD:
        return ""
    if raw.FPDFAnnot_GetFormFieldFlags(form, field) & raw.FPDF_FORMFLAG_TEXT_PASSWORD:
        return ""
    return _string(lambda *buffer: raw.FPDFAnnot_GetFormFieldValue(form, field, *buffer))


def _string(read: Callable[[Any, int], int]) -> str:
    """Return a string that PDFium writes into a buffer, after it has said the size."""
    buffer = (ctypes.c_ushort * (read(None, 0) // 2 + 1))()
    read(buffer, ctypes.sizeof(buffer))
    return bytes(buffer).decode("utf-16-le", "replace").partition("\0")[0].replace("\r\n", "\n").replace("\r", "\n")
