"""Facts about a file that become metadata of its documents.

Searches filter by them and sort by them.

============  =====================================================================================================
``type``      the kind of the file, by its ending, such as ``jpg`` or ``pdf``; ``jpeg`` is ``jpg``.
``folder``    the name of the folder that the file is in.
``date``      a whole number such as 20240612, which filters order. It is the day on which a photograph was taken, or on
              which the file was changed last.
============  =====================================================================================================

They are no part of a document's digest. A file that was only touched is unchanged, and keeps the date that it has in
the index. Rows of tables and documents from Python have no facts.
"""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import replace
from datetime import date, datetime

from vlmsearch.media.remote import remote_url
from vlmsearch.media.taken import day_taken
from vlmsearch.types import Document, Scalar

TYPE, FOLDER, DATE = "type", "folder", "date"
_SAME = {
    "apng": "png",
    "dib": "bmp",
    "heif": "heic",
    "hif": "heic",
    "htm": "html",
    "jfif": "jpg",
    "jpe": "jpg",
    "jpeg": "jpg",
    "m4v": "mp4",
    "mpg": "mpeg",
    "tiff": "tif",
    "xhtml": "html",
}
_FIRST_YEAR = 1000
"""Earlier years make shorter numbers, which are out of order; no file is as old."""


def with_facts(document: Document, source: str, file: str, image: bytes | None) -> Document:
    """Return a document with the facts about its file.

    Metadata of its own with these keys stay.

    Args:
        document: The document, which is the file or a part of it.
        source: The id of the file.
        file: The name of the file, or its URL.
        image: The bytes of its image file, if it is one.
    """
    facts: dict[str, Scalar] = {}
    folder, name = os.path.split(source)
    ending = os.path.splitext(name)[1][1:].lower()
    if ending:
        facts[TYPE] = _SAME.get(ending, ending)
    if parent := os.path.basename(folder):
        facts[FOLDER] = parent
    facts |= day_metadata((image and day_taken(image)) or _day_changed(file))
    return replace(document, metadata={**facts, **document.metadata})


def day_metadata(day: date | None) -> dict[str, Scalar]:
    """Return the metadata that say a day; none for no day."""
    return {DATE: 10_000 * day.year + 100 * day.month + day.day} if day and day.year >= _FIRST_YEAR else {}


def _day_changed(file: str) -> date | None:
    """Return the day on which a file was changed last, in this machine's time zone.

    None for one in object storage.
    """
    if not remote_url(file):
        with suppress(OSError, ValueError, OverflowError):
            return datetime.fromtimestamp(os.stat(file).st_mtime).astimezone().date()
    return None
