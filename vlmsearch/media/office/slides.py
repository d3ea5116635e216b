"""Slides of PowerPoint: ``.pptx`` and ``.pptm``."""

from __future__ import annotations

from vlmsearch.media.office import kreuzberg
from vlmsearch.media.office.content import Content


def read(data: bytes, name: str) -> Content:
    """Return the content of a document."""
    return kreuzberg.read_as("application/vnd.openxmlformats-officedocument.presentationml.presentation", data, name)
