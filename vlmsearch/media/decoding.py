"""The text in bytes of any character set."""

from __future__ import annotations

import re

_CHARSET = re.compile(
    rb"(?i)<meta[^>]{0,200}charset\s*=\s*[\"']?\s*([a-z0-9_.:-]{1,40})|<\?xml[^>]{0,200}encoding=[\"']([a-z0-9_.:-]{1,40})"
)
_HEAD = 4096
"""Bytes at the beginning of a page that may name its character set."""
_MARKS = {b"\xef\xbb\xbf": "utf-8-sig", b"\xff\xfe": "utf-16", b"\xfe\xff": "utf-16"}


def decoded(data: bytes) -> str:
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
