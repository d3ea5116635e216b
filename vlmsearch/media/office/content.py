"""The content of a document: what its reader gives, and what the reader leaves out."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from vlmsearch._util.text import well_formed
from vlmsearch.media.about import About

AUTHORS_JOINT = "; "
"""Separator of authors."""
_NOT_TEXT = re.compile("[\x00-\x08\x0b-\x1f\x7f\xad]")


@dataclass(frozen=True)
class Content:
    """The content of a document.

    Attributes:
        text: Its text. A paragraph and a heading are between empty lines; a row of a table is a line, and a tab is
            between its cells.
        about: Description of the document by itself.
        unread: Numbers of the parts that hold something for a reader and were not read, by kind. A kind is a noun in
            the singular, such as ``picture``.
    """

    text: str
    about: About = field(default_factory=About)
    unread: Mapping[str, int] = field(default_factory=dict)


def clean(text: str) -> str:
    """Return a text in valid Unicode, without control characters, soft hyphens and space around it."""
    return well_formed(_NOT_TEXT.sub("", text.replace("\r\n", "\n"))).strip()
