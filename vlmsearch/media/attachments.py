"""Attachments of mails, by the readers of their formats."""

from __future__ import annotations

import mimetypes
import os
import re
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory

from vlmsearch.errors import InvalidInputError
from vlmsearch.media import office
from vlmsearch.media.decoding import COLOURS, decoded
from vlmsearch.media.images import encoded_size, format_of
from vlmsearch.media.limits import ImageLimits
from vlmsearch.media.mail import CARDS, Attachment, card_text
from vlmsearch.media.office.content import Content, clean

_TEXT = re.compile("text/|application/ics$")
"""Media types of texts. A name tells as well: with Excel installed, programs call ``.csv`` its files."""
_HEAD = 1024
"""Bytes in which a PDF says that it is one."""
_MIN_SIDE = 32
"""Pixels below which a picture counts readers, draws a line or is an icon: nobody would look for it."""


def read_attachment(attachment: Attachment, limits: ImageLimits) -> Content | bytes | None:
    """Return the content of an attachment, or the bytes of a picture.

    None for an attachment that is damaged, or that nothing here reads. A picture that is too small to see is empty.

    Raises:
        MissingDependencyError: What reads its format is not installed.
    """
    name, data = attachment.name, attachment.data
    suffixes = (os.path.splitext(name)[1].lower(), mimetypes.guess_extension(attachment.kind))
    suffix = next((suffix for suffix in suffixes if suffix in office.OFFICE_SUFFIXES), "")
    kind = next(filter(_TEXT.match, (attachment.kind, mimetypes.guess_type(name)[0] or "")), "")
    try:
        if attachment.mail:
            return Content(attachment.mail.text, unread=attachment.mail.unread)
        if format_of(data):
            return Content("") if min(encoded_size(data, repr(name), limits)) < _MIN_SIDE else data
        if b"%PDF-" in data[:_HEAD]:
            return _pdf(data, limits)
        if suffix:
            content = office.read_bytes(data, suffix, repr(name))
            return Content(content.about.over(content.text), unread=content.unread)
        if data and kind:
            text = decoded(data)
            plain = card_text(text.text) if kind in CARDS else COLOURS.sub("", text.text)
            return Content(clean(plain), unread=text.unread)
    except InvalidInputError:
        return None
    return None


def _pdf(data: bytes, limits: ImageLimits) -> Content:
    """Return the text of a PDF; pages without text count as not read."""
    from vlmsearch.media import pdf

    texts, unread = list[str](), Counter[str]()
    with TemporaryDirectory() as folder:
        path = Path(folder, "attachment.pdf")
        path.write_bytes(data)
        _, about, beside = pdf.describe(path)
        for page in pdf.read_pages(path, limits, is_drawn=False):
            text, left = (page.text, page.unread) if isinstance(page, pdf.Page) else ("", {})
            texts += [text] if text else []
            unread.update({**left, "page": not text})
    unread.update(beside)
    return Content(about.over("\n\n".join(texts)), unread=+unread)
