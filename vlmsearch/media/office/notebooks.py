"""Notebooks of Jupyter: ``.ipynb`` (https://nbformat.readthedocs.io/en/latest/format_description.html)."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping
from typing import Any

from vlmsearch.errors import InvalidInputError, one_line
from vlmsearch.media.about import About
from vlmsearch.media.decoding import COLOURS
from vlmsearch.media.office import pages
from vlmsearch.media.office.content import AUTHORS_JOINT, Content, clean
from vlmsearch.media.office.package import OTHER

_CHART = re.compile(r"application/vnd\.(plotly|vega|bokeh)")
_NOTHING = re.compile(r"text/plain|application/(javascript|vnd\.(\w+_load|jupyter\.widget))")
"""Programs, and controls: only a running program knows their state."""
_OLD = {"text": "text/plain", "html": "text/html", "latex": "text/latex"}
_OLD |= {name: f"image/{name}" for name in ("jpeg", "png", "svg")}
"""Media types of what an output of format 3 holds under other names."""
_STAND_IN = re.compile(r"(?s)\s*<.*>\s*")
"""The text of an object that is shown in another form, such as ``<Figure size 640x480>``."""
_HEADING = re.compile(r"(?m)^#{1,6}[ \t]+(.+)$|^(\S.*)\n=+[ \t]*$")
_EMPHASIS = re.compile(
    r"(?s)((?P<mark>(?<!`)`+(?!`)|(?<!\$)\$+(?!\$)).+?(?P=mark))"
    r"|(?<=\w)(\*{1,3})(\w[\w ]*)\3|(\*{1,3})(\w[\w ]*)\5(?=\w)|</?(?:b|em|i|strong|sub|sup|u)>"
)
"""Marks in words that a reader does not see, and code and TeX that have none."""
_DATA = re.compile(r"data:(\w+/[\w.+-]+);base64,[\w+/=]+")


def read(data: bytes, name: str) -> Content:
    """Return the content of a notebook: its cells, each with what it printed and showed.

    Its title is the first heading where it has no other. The traces of errors are left out, since they repeat the code.

    Raises:
        InvalidInputError: ``corrupt``.
    """
    try:
        book = _object(json.loads(data))
        sheets = _objects(book["worksheets"]) if "worksheets" in book else [{"cells": book["cells"]}]
    except (ValueError, RecursionError, KeyError) as exc:
        raise InvalidInputError("corrupt", f"{name} is damaged, or is not what its name says: {one_line(exc)}") from exc
    cells = [cell for sheet in sheets for cell in _objects(sheet.get("cells"))]
    metadata = _object(book.get("metadata"))
    title = _joined(metadata.get("title"))
    unread: Counter[str] = Counter()
    texts = []
    for cell in cells:
        source = _joined(cell.get("source", cell.get("input")))
        is_markdown = cell.get("cell_type") == "markdown"
        source = _EMPHASIS.sub(r"\1\4\6", source) if is_markdown else source
        if is_markdown and not title and (heading := _HEADING.search(source)):
            title = (heading[1] or heading[2]).strip(" \t#")
            source = source[: heading.start()] + title + source[heading.end() :]
        texts += [source, *(_output(output, unread) for output in _objects(cell.get("outputs")))]
        attachments = _objects([*_object(cell.get("attachments")).values()])
        unread.update(_kind(media_type) for attachment in attachments for media_type in attachment)
    text = _DATA.sub(lambda match: unread.update({_kind(match[1]): 1}) or "", "\n\n".join(filter(str.strip, texts)))
    authors = [_joined(author.get("name")) for author in _objects(metadata.get("authors"))]
    return Content(clean(text), About(title, AUTHORS_JOINT.join(authors)), dict(unread))


def _output(output: Mapping[str, Any], unread: Counter[str]) -> str:
    """Return the text of an output: that in plain text, or else that in another form."""
    if "ename" in output:
        return _printed(f"{_joined(output['ename'])}: {_joined(output.get('evalue'))}")
    data = _object(output.get("data")) or {_OLD[key]: value for key, value in output.items() if key in _OLD}
    plain = _printed(_joined(data.get("text/plain")))
    page = pages.read_markup(_joined(data.get("text/html")))
    others = (_joined(data.get(kind)) for kind in ("text/markdown", "text/latex"))
    text = next(filter(str.strip, ("" if _STAND_IN.fullmatch(plain) else plain, page.text, *others)), "")
    kinds = set(page.unread) | {_kind(name) for name in data if not _NOTHING.match(name)}
    kinds = kinds - {OTHER} or (set() if text else kinds)
    unread.update(kinds)
    return text or ("" if kinds - {OTHER} else plain)


def _kind(media_type: str) -> str:
    return pages.EMBEDDED.get(media_type[:5]) or ("chart" if _CHART.match(media_type) else OTHER)


def _printed(text: str) -> str:
    """Return what stays on a terminal: no colours, and of lines that were written over the last."""
    lines = COLOURS.sub("", text).replace("\r\n", "\n").split("\n")
    return "\n".join(line.rstrip("\r").rpartition("\r")[2] for line in lines)


def _joined(value: object) -> str:
    """Return a text that may be a list of its lines."""
    return value if isinstance(value, str) else "".join(map(str, value)) if isinstance(value, list) else ""


def _object(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _objects(value: object) -> list[dict[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []
