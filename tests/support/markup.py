"""HTML and SVG that a test reads back."""

from __future__ import annotations

import re
from xml.etree import ElementTree as ET

SVG = "{http://www.w3.org/2000/svg}"
_VOID = re.compile(r"<(img|br|meta)((?:\s[^<>]*?)?)>")
_ALLOWED = {
    *("div", "p", "b", "br", "span", "code", "pre", "mark", "img", "table", "thead", "tbody", "tr", "th", "td"),
    *(f"{SVG}{name}" for name in ("svg", "title", "desc", "g", "line", "path", "rect", "circle", "text")),
}
_OUTSIDE = re.compile(r"(?i)url\(|@import|javascript:|expression\(")


def parse(html: str) -> ET.Element:
    """The tree of HTML, which must be well formed, of known elements, and take nothing from another place."""
    tree = ET.fromstring(_VOID.sub(r"<\1\2/>", html))
    for element in tree.iter():
        assert element.tag in _ALLOWED, element.tag
        for name, value in element.attrib.items():
            assert not name.lower().startswith("on"), name
            assert name not in ("href", "{http://www.w3.org/1999/xlink}href"), name
            assert name != "src" or value.startswith("data:image/jpeg;base64,"), value[:60]
            assert name != "style" or not _OUTSIDE.search(value), value
    return tree


def text_of(tree: ET.Element) -> str:
    """What a tree says, with a space between its parts."""
    return " ".join(" ".join(tree.itertext()).split())


def points_of(path: str) -> list[list[tuple[float, float]]]:
    """The points of a path of lines, those of each stretch in a list."""
    stretches: list[list[tuple[float, float]]] = []
    for kind, x, y in re.findall(r"([ML])([\d.]+) ([\d.]+)", path):
        if kind == "M":
            stretches.append([])
        stretches[-1].append((float(x), float(y)))
    return stretches
