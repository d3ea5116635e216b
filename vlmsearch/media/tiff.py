"""The pages of a TIFF: its chain of directories, as far as headers say.

Thumbnails, smaller copies and masks are no pages (TIFF 6.0, NewSubfileType), and neither is a directory of no picture.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from io import BytesIO
from itertools import islice
from typing import IO

from vlmsearch.errors import InvalidInputError
from vlmsearch.media.files import open_regular
from vlmsearch.media.remote import remote_url

TIFF_SUFFIXES = frozenset({".tif", ".tiff"})
_KIND, _OLD_KIND, _WIDTH = 254, 255, 256
"""Tags: NewSubfileType, SubfileType and ImageWidth."""
_COPY_OR_MASK, _OLD_COPY = 0b101, 2
_SHORT = 3
_MAX_DIRECTORIES = 2**20


def page_offsets(file: IO[bytes]) -> Iterator[int]:
    """Yield where the directory of each page is.

    Where the chain breaks off, the last one is no directory. It ends where it comes back to one that was there. All
    directories together are no longer than the file.
    """
    left = end = file.seek(0, 2)
    file.seek(0)
    head = file.read(16)
    order = {b"II*\0": "<I", b"MM\0*": ">I", b"II+\0": "<Q", b"MM\0+": ">Q"}.get(head[:4], "")
    pointer, counter = struct.Struct(order), struct.Struct(order.replace("I", "H"))
    entry = struct.Struct(order[:1] + ("HHI4s" if order[1:] == "I" else "HHQ8s"))
    if not order or len(head) < 2 * pointer.size:
        return
    (at,) = pointer.unpack_from(head, pointer.size)
    known = {0}
    while at not in known and len(known) < _MAX_DIRECTORIES:
        known.add(at)
        file.seek(min(at, end))
        start = file.read(counter.size)
        size = counter.unpack(start)[0] * entry.size if len(start) == counter.size else 0
        left -= size
        data = file.read(size + pointer.size) if left >= 0 else b""
        if len(data) < size + pointer.size or not size:
            yield at
            return
        entries = entry.iter_unpack(data[:size])
        tags = {tag: struct.unpack_from(order[0] + "HI"[kind != _SHORT], value)[0] for tag, kind, _, value in entries}
        if _WIDTH in tags and not tags.get(_KIND, 0) & _COPY_OR_MASK and tags.get(_OLD_KIND) != _OLD_COPY:
            yield at
        (at,) = pointer.unpack_from(data, size)


def has_pages(name: str) -> bool:
    """Return whether a file is a TIFF of several pages.

    So it is for one that cannot be read, and not for one in object storage.
    """
    if remote_url(name):
        return False
    try:
        with open_regular(name, "an image") as file:
            return len(list(islice(page_offsets(file), 2))) > 1
    except InvalidInputError:
        return True


def unread_pages(data: bytes) -> dict[str, int]:
    """Return how many further pages an image file has, as what is not read."""
    count = sum(1 for _ in page_offsets(BytesIO(data)))
    return {"page": count - 1} if count > 1 else {}
