"""Attachments of mails, by the readers of their formats."""

from __future__ import annotations

import mimetypes
import os
from pathlib import Path
from tempfile import TemporaryDirectory

from vlmsearch.errors import InvalidInputError, MissingDependencyError
from vlmsearch.media import office
from vlmsearch.media.decoding import decoded
from vlmsearch.media.images import encoded_size, format_of
from vlmsearch.media.limits import ImageLimits
from vlmsearch.media.mail import CARDS, Attachment, card_text
from vlmsearch.media.office.content import Content, clean

_MIN_SIDE = 32
"""Pixels below which a picture counts readers, draws a line or is an icon: nobody would look for it."""


def read_attachment(attachment: Attachment, limits: ImageLimits) -> Content | bytes | None:
    """Return the content of an attachment, or the bytes of a picture.

    None for an attachment that is damaged, or that nothing here reads. A picture that is too small to see is empty.
    """
    name, data = attachment.name, attachment.data
    suffix = os.path.splitext(name)[1].lower() or mimetypes.guess_extension(attachment.kind) or ""
    is_vague = attachment.kind == "application/octet-stream"
    kind = mimetypes.guess_type(name)[0] or "" if is_vague else attachment.kind
    try:
        if attachment.mail:
            return Content(attachment.mail.text, unread=attachment.mail.unread)
        if format_of(data):
            return Content("") if min(encoded_size(data, repr(name), limits)) < _MIN_SIDE else data
        if suffix in office.OFFICE_SUFFIXES:
            content = office.read_bytes(data, suffix, repr(name))
            return Content(content.about.over(content.text), unread=content.unread)
        if suffix == ".pdf":
            return _pdf(data)
    except (InvalidInputError, MissingDependencyError):
        return None
    if not data or not (kind.startswith("text/") or kind in CARDS):
        return None
    text = decoded(data)
    return Content(clean(card_text(text.text) if kind in CARDS else text.text), unread=text.unread)


def _pdf(data: bytes) -> Content:
    """Return the text of a PDF; pages without text count as not read."""
    from vlmsearch.media import pdf

    with TemporaryDirectory() as folder:
        path = Path(folder, "attachment.pdf")
        path.write_bytes(data)
        texts = list(pdf.page_texts(path))
        about = pdf.describe(path)[1]
    empty = texts.count("")
    return Content(about.over("\n\n".join(filter(None, texts))), unread={"page": empty} if empty else {})
