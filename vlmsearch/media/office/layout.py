"""Marks in a text until it is laid out. No XML has their characters."""

from __future__ import annotations

import re

CELL, PARAGRAPH, LINE, SPACE = "\x1c", "\x1d", "\x1e", "\x1f"
"""Marks of a tab, a paragraph's end, a line's end, and a space that stays."""


def laid_out(text: str) -> str:
    """Return a text with tabs, line breaks and spaces for its marks."""
    for end in (CELL, PARAGRAPH, LINE):
        text = text.replace(f" {end}", end).replace(f"{end} ", end)
    text = re.sub(f"(?<!{CELL}){CELL}+(?=[{LINE}{PARAGRAPH}])", "", text)
    text = re.sub(f"{LINE}+", "\n", text).replace(PARAGRAPH, "\n\n").replace(CELL, "\t").replace(SPACE, " ")
    return re.sub(r"\n\s*\n", "\n\n", text).strip()
