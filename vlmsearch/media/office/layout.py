"""Marks in a text until it is laid out. No XML has their characters."""

from __future__ import annotations

import re

CELL, PARAGRAPH, LINE, SPACE = "\x1c", "\x1d", "\x1e", "\x1f"
"""A tab or the end of a cell, the ends of a paragraph and of a line, and a space that stays at the end of a line."""


def laid_out(text: str) -> str:
    """Return a text with tabs, line breaks and spaces for the marks, and nothing for empty paragraphs and rows."""
    for end in (CELL, PARAGRAPH, LINE):
        text = text.replace(f" {end}", end).replace(f"{end} ", end)
    text = re.sub(f"{CELL}+(?=[{LINE}{PARAGRAPH}])", "", text)
    text = re.sub(f"{LINE}*{PARAGRAPH}[{PARAGRAPH}{LINE}]*", "\n\n", text)
    text = re.sub(f"{LINE}+", "\n", text)
    return re.sub(r"\n\s*\n", "\n\n", text.replace(CELL, "\t").replace(SPACE, " ")).strip()
