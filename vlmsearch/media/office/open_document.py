"""OpenDocument: ``.odt``, ``.ods`` and ``.odp``.

One walk reads the body with the documents embedded in it, and another one the master pages. All text is read, unless an
element is named here as holding nothing for a reader. So an element that nobody thought of loses nothing.
"""

from __future__ import annotations

import posixpath
import re
from collections import Counter
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING

from vlmsearch.errors import InvalidInputError
from vlmsearch.media.office.content import Content, clean
from vlmsearch.media.office.layout import CELL, LINE, PARAGRAPH, SPACE, laid_out
from vlmsearch.media.office.package import NOTHING, Package

if TYPE_CHECKING:
    from lxml.etree import _Element

_MEMBERS = (
    (r"mimetype|META-INF/.*|manifest\.rdf|layout-cache", NOTHING),  # what the package is
    (r"(.*/)?((meta|settings|styles)\.xml|Configurations2?/.*)|Fonts/.*", NOTHING),  # how it looks
    (r"(.*/)?(Thumbnails|ObjectReplacements)/.*", NOTHING),  # pictures of what is read, or said itself
    (r"(Basic|Scripts|Dialogs)/.*", NOTHING),  # programs
    (r"(.*/)?(Obj[^/]*|content\.xml)", "embedded document"),
)
_MARKS = {"text:tab": (CELL, ""), "text:line-break": (LINE, ""), "text:number": ("", " "), "text:ruby-text": ("(", ")")}
"""Text before and behind that of an element."""
_MARKS |= dict.fromkeys(("MathML:mn", "MathML:mrow"), ("", " "))
_NAMES = {
    "unwanted": (
        *("office:styles", "office:automatic-styles", "office:font-face-decls"),  # how it looks
        *("office:scripts", "text:script"),  # programs
        *("text:tracked-changes", "table:tracked-changes"),  # deleted text, and former values of cells
        *("elements:creator", "elements:date", "meta:creator-initials", "meta:date-string"),  # of a comment
        "text:note-citation",  # the number of a note, which would become a part of the word before it
        *("presentation:header", "presentation:footer", "presentation:date-time"),  # places of what is declared once
        *("form:hidden", "form:password", "form:properties"),  # values that are not shown
        *("MathML:annotation", "MathML:annotation-xml"),  # an equation for a second time
        *("office:binary-data", "entity"),  # a picture, which is counted; a name that is not resolved
    ),
    "paragraph": (
        *("text:p", "text:h", "svg-compatible:title", "svg-compatible:desc", "table:title", "table:desc"),
        *("presentation:header-decl", "presentation:footer-decl", "presentation:date-time-decl"),
    ),
    "changing": (  # differ from page to page and day to day, or repeat the title: unwanted on master pages
        *("text:page-number", "text:page-count", "text:sheet-name", "text:title", "text:date", "text:time"),
    ),
    "list": ("text:list",),
    "spaces": ("text:s",),
    "mark": tuple(_MARKS),
    "table": ("table:table",),
    "row": ("table:table-row",),
    "cell": ("table:table-cell", "table:covered-table-cell"),
    "box": ("drawing",),  # shapes
    "aside": ("text:note", "office:annotation", "table:content-validations"),  # stands behind the document
    "control": ("form",),  # stands there, too
}
"""Names of elements and namespaces by the role of their text, if it has one."""
_PLAIN = [
    f"{{urn:oasis:names:tc:opendocument:xmlns:text:1.0}}{name}"
    for name in ("span", "a", "bookmark-start", "bookmark-end", "bookmark-ref", "soft-page-break")
]
"""Frequent elements whose texts are put into those around them at once, for speed."""
_ROLES = {name: role for role, names in _NAMES.items() for name in names}
_VALUES = ("string-value", "date-value", "time-value", "boolean-value", "value")
"""Attributes of a cell without a text."""


@dataclass(slots=True)
class _Block:
    """An element with a text of its own, and the texts that are anchored in it."""

    element: _Element
    role: str = ""
    parts: list[str] = field(default_factory=list)
    anchored: list[str] = field(default_factory=list)


def read(data: bytes, name: str) -> Content:
    """Return the content of a document.

    Raises:
        InvalidInputError: ``corrupt``; ``unsupported`` where it is encrypted; ``too_large``.
        MissingDependencyError: lxml is not installed.
    """
    package = Package(data, name)
    if "META-INF/manifest.xml" in package.names:
        for entry in package.xml("META-INF/manifest.xml").iterfind("{*}file-entry/{*}encryption-data/.."):
            if _attribute(entry, "full-path") in ("content.xml", "encrypted-package"):
                raise InvalidInputError("unsupported", f"{name} is encrypted: save it without its password")
    aside: list[str] = []
    counts = Counter[str]()
    text = _text(_whole(package, "content.xml"), aside, counts)
    if "styles.xml" in package.names:
        masters = _text(_whole(package, "styles.xml"), aside, counts, is_master=True)
        aside += dict.fromkeys(filter(re.compile(r"\w").search, masters.split("\n\n")))
    text = clean("\n\n".join(filter(None, [text, *aside])))
    return Content(text, package.about("meta.xml"), package.unread(_MEMBERS, counts))


def _whole(package: Package, member: str) -> _Element:
    """Return the root of a member, with the embedded documents in the elements that show them."""
    parts, done = [(package.xml(member), "")], {member}
    for part, folder in parts:
        for place in [*part.iter("{*}object")]:
            target = posixpath.normpath(posixpath.join(folder, _attribute(place, "href")))
            inner = f"{target}/content.xml"
            if inner in package.names and inner not in done:
                done.add(inner)
                parts.append((package.xml(inner), target))
                place.append(parts[-1][0])
    return parts[0][0]


def _text(root: _Element, aside: list[str], counts: Counter[str], *, is_master: bool = False) -> str:
    """Return the text of a member; add texts behind it and counts of the unread."""
    from lxml import etree

    if max(map(len, root.iter())) < 10_000:  # the time for a text of that many pieces grows with their square
        etree.strip_tags(root, *_PLAIN)
    block = _Block(root)
    blocks = [block]
    walk = etree.iterwalk(root, events=("start", "end"))
    for event, element in walk:
        name, role = _named(element.tag)
        is_start = event == "start"
        if role:
            if role == "mark":
                block.parts.append(_MARKS[name][not is_start])
            elif not is_start:
                if block.element is element:
                    _close(blocks, aside)
            elif role == "unwanted" or (is_master and _is_place(element, role)):
                counts["picture"] += name == "office:binary-data"
                walk.skip_subtree()
                continue
            elif role == "spaces":
                block.parts.append(SPACE * int(re.sub(r"\D", "", _attribute(element, "c"))[:3] or 1))
            elif role != "changing":
                blocks.append(_Block(element, role))
            block = blocks[-1]
        text = element.text if is_start else element.tail
        if text and (block.role == "paragraph" or not text.isspace()):
            block.parts.append(text)
    return _laid_out(blocks[0].parts)


def _close(blocks: list[_Block], aside: list[str]) -> None:
    """Take the last block away, and put its text where it stands."""
    block, outer = blocks.pop(), blocks[-1]
    element, text = block.element, "".join(block.parts)
    if block.role == "cell":
        text = (" ".join(text.split()) or _attribute(element, *_VALUES)) + CELL
    elif block.role == "control":
        entered = _attribute(element, "current-value", "value")
        text = " ".join(filter(None, [_attribute(element, "label"), entered, text]))
    elif block.role == "table" and text.strip() and _named(element.getparent().tag)[0] == "office:spreadsheet":
        text = f"{_attribute(element, 'name')}{PARAGRAPH}{text}{PARAGRAPH}"
    else:
        text += LINE if block.role == "row" or outer.role == "list" else PARAGRAPH
    parts = [text, *block.anchored]
    if block.role in ("aside", "control"):
        aside.append(_laid_out(parts))
    elif outer.role != "paragraph":
        outer.parts += parts
    elif _attribute(element, "anchor-type") == "as-char":
        outer.parts.append(f" {' '.join(''.join(parts).split())} ")
    else:
        outer.anchored += parts


def _laid_out(parts: list[str]) -> str:
    return laid_out(re.sub("  +", " ", re.sub(r"[\t\r\n]", " ", "".join(parts))))


def _is_place(element: _Element, role: str) -> bool:
    """Check whether an element of a master page is the place of what a page has."""
    if role == "changing":
        return _attribute(element, "fixed") != "true"
    return _attribute(element, "class") not in ("", "header", "footer", "date-time")


@lru_cache(1024)
def _named(tag: object) -> tuple[str, str]:
    """Return the short name of an element and the role of its text."""
    space, _, local = str(tag).rpartition("}")
    space = "".join(re.findall(r"[a-zA-Z-]+", space)[-1:])
    name = f"{space}:{local}" if isinstance(tag, str) else "entity"
    is_source = name.startswith("text:") and name.endswith("-source")  # it says how an index is made
    return name, "unwanted" if is_source else _ROLES.get(name) or _ROLES.get(space, "")


def _attribute(element: _Element, *names: str) -> str:
    """Return the first attribute of any namespace that has one of some names and a value."""
    values = {str(key).rpartition("}")[2]: str(value) for key, value in element.attrib.items()}
    return next(filter(None, map(values.get, names)), "")
