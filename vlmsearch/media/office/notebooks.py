"""Notebooks of Jupyter: ``.ipynb``."""

from __future__ import annotations

from vlmsearch.media.office.content import Content


def read(data: bytes, _: str) -> Content:
    """Return the content of a notebook."""
    return Content(data.decode("utf-8", "replace"))
