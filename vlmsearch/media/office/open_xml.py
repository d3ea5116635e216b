"""Office Open XML (ECMA-376): ``.docx``, ``.docm``, ``.pptx`` and ``.pptm``.

One walk reads the text of Word, slides, drawings, charts and equations. Parts are reached by their relations, wherever
they lie. Elements are known by their local names, so that strict and transitional documents are the same.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from functools import lru_cache
from typing import TYPE_CHECKING

from vlmsearch.errors import InvalidInputError
from vlmsearch.media.about import About
from vlmsearch.media.office import OFFICE_SUFFIXES, read_bytes
from vlmsearch.media.office.content import Content, clean
from vlmsearch.media.office.package import NOTHING, Package

if TYPE_CHECKING:
    from lxml.etree import _Element

_EMBEDDED = re.compile(r".*>(aFChunk|package|oleObject)")
"""Roles of documents with a reader of their own."""
_INLINE = re.compile(rf"officeDocument>slide|.*>(chart|chartEx|chartUserShapes|diagramData)|{_EMBEDDED.pattern}")
"""Roles of parts that are read at the place that names them."""
_AFTER = (
    *(f"officeDocument>{kind}" for kind in ("header", "footer", "footnotes", "endnotes", "comments", "handoutMaster")),
    *("slide>notesSlide", "slide>comments", "slide>slideLayout", "slideLayout>slideMaster", "notesSlide>notesMaster"),
)
"""Roles of parts that are read after the part that has the relation, in this order."""
_MASTERS = re.compile(r".*>(slideLayout|(slide|notes|handout)Master)")
_KINDS = (
    (r".*\.rels|\[Content_Types\]\.xml", NOTHING),  # the relations and types of the parts
    (r">.*thumbnail|>(extended|custom)-?[pP]roperties|docProps/.*", NOTHING),  # statistics, fields of programs
    (r".*/ink/.*", "drawing by hand"),
    (r".*>(customXml|customXmlProps)|customXml/.*", NOTHING),  # data that the document shows by a copy of its own
    (r".*>(styles|stylesWithEffects|numbering|tableStyles|theme|themeOverride|font|fontTable)|.*/theme/.*", NOTHING),
    (r".*>(chart(Color)?Style|diagram(Layout|QuickStyle|Colors))", NOTHING),  # looks, as in the line above
    (r".*>(settings|webSettings|presProps|viewProps|printerSettings|tags|attachedTemplate)", NOTHING),  # of programs
    (r".*>(comments(Extended|Ids|Extensible)|people|commentAuthors|authors|changesInfo|revisionInfo)", NOTHING),  # who
    (r".*>(glossaryDocument)|.*/glossary/.*", NOTHING),  # building blocks that the document could be given
    (r".*>(slideMaster|slideLayout)|.*/slide(Master|Layout)s/.*", NOTHING),  # those that no slide has
    (r".*>(vbaProject|wordVbaData|keyMapCustomizations)|.*/vba\w+\.(bin|xml)", NOTHING),  # macros
    (r"chart(Ex)?>package|.*>(diagramDrawing|vmlDrawing)", NOTHING),  # what a chart, a diagram and others repeat
    (r".*>hyperlink", NOTHING),  # the text of a link is read
    (r".*>(package|oleObject|aFChunk|subDocument)", "embedded document"),
    (r".*>(control|activeXControlBinary)", "form control"),
    (r".*>image", "picture"),
    (r".*>video", "film"),
    (r".*>audio", "sound"),
)
_LEFT = frozenset({"del", "moveFrom", "tabs", "tabLst"})
"""Elements that a reader does not see: what was deleted or moved away, and the places of tabs."""
_VALUES = frozenset({"v", "pt", "text"})
"""Elements with a text that is a block: a value of a chart, in both formats of them, and a comment on a slide."""
_CHARACTERS = {"tab": "\t", "ptab": "\t", "br": "\n", "cr": "\n", "noBreakHyphen": "-"}
_CHARACTERS |= {"den": "/", "sup": "^", "lim": " ", "mr": " "}
"""The character that an element is, or that stands before a part of an equation."""
_JOINTS = {"p": "", "rt": "", "tc": " ", "tr": "\t", "tbl": "\n", "txBody": "\n", "ser": "\n"}
_JOINTS |= dict.fromkeys(("cat", "val", "xVal", "yVal", "bubbleSize", "lvl"), "\t")
"""Elements that are blocks, with what is between the blocks inside them; "" leaves those apart."""
_ALTERNATIVES = frozenset({"docPr", "cNvPr", "shape", "textpath", "tblCaption", "tblDescription"})
_ALTERNATIVE_KEYS = frozenset({"title", "descr", "alt", "string", "val"})
"""Attributes with a text that stands for a picture, a table or a shape."""
_PLACES = frozenset({"sldId", "chart", "relIds", "altChunk", "OLEObject", "oleObj", "userShapes"})
"""Elements with the relation of a part that is read at this place."""
_OTHERS = frozenset({"sp", "Choice", "Fallback", "numPr", "pStyle", "fldChar", "sym", "d", "e", "t"})
_TAGS = [
    f"{{*}}{name}" for name in sorted({*_LEFT, *_VALUES, *_CHARACTERS, *_JOINTS, *_ALTERNATIVES, *_PLACES, *_OTHERS})
]
_DOUBTFUL = frozenset({*_LEFT, "sp", "Choice", "Fallback"})
_ENDING = frozenset({*_JOINTS, "d"})
_ITEM = "\0"
"""The mark at both ends of an item of a list while a document is read."""
_HAS_CONTENT = "boolean(.//*[local-name()='t'][text()]|.//@descr|.//@*[contains(namespace-uri(),'/relationships')])"


def read(data: bytes, name: str) -> Content:
    """Return the content of a text document, or of slides."""
    package = Package(data, name)
    relations = dict(package.relations().values())
    if ">officeDocument" not in relations:
        raise InvalidInputError("corrupt", f"{name} is damaged, or is not what its name says: it has no main part")
    parts = Parts(package, name)
    text = parts.text(relations[">officeDocument"], ">officeDocument").replace(f"{_ITEM}\n\n{_ITEM}", "\n")
    text = re.sub("_x00[01][0-9A-F]_", " ", text)  # how PowerPoint writes a control character, such as a line break
    about = package.about(relations[">core-properties"]) if ">core-properties" in relations else About()
    return Content(clean(text), about, package.unread(_KINDS, parts.unread))


class Parts:
    """The texts of the parts of a package.

    Args:
        package: The package.
        name: The name of the file in messages, quoted.

    Attributes:
        unread: Numbers of what was not read inside the parts, by kind.
    """

    def __init__(self, package: Package, name: str) -> None:
        self._package = package
        self._name = name
        self._taken: set[str] = set()
        self.unread: Counter[str] = Counter()

    def text(self, member: str, role: str) -> str:
        """Return the text of a part, with that of the parts that belong to it.

        The second time that is "".
        """
        if member in self._taken:
            return ""
        self._taken.add(member)
        if _EMBEDDED.fullmatch(role):
            return self._embedded(member)
        root = self._package.xml(member) if role == ">officeDocument" else self._package.part(member)
        relations = self._package.relations(member, role)
        texts = [] if root is None else [_Walk(self, relations, bool(_MASTERS.fullmatch(role))).text(root)]
        after = sorted((_AFTER.index(role), target, role) for role, target in relations.values() if role in _AFTER)
        texts += [self.text(target, role) for _, target, role in after]
        return "\n\n".join(filter(None, dict.fromkeys(texts)))

    def _embedded(self, member: str) -> str:
        suffix = os.path.splitext(member)[1].lower()
        if suffix not in OFFICE_SUFFIXES:
            return ""
        try:
            content = read_bytes(self._package.read(member), suffix, self._name)
        except (InvalidInputError, RecursionError):  # a document may hold itself
            self._package.leave(member)
            return ""
        self.unread.update(content.unread)
        return content.text


class _Walk:
    """The text of one part, from its elements in their order.

    Each open block has the text of its line and the blocks inside it. Those follow the line, so that a text box does
    not split the word that it is anchored in.
    """

    def __init__(self, parts: Parts, relations: dict[str, tuple[str, str]], is_master: bool) -> None:
        self._parts = parts
        self._relations = relations
        self._is_master = is_master
        self._open: list[tuple[list[str], list[str]]] = [([], [])]
        self._codes: list[tuple[list[str], int]] = []
        self._alternative = self._categories = ""

    def text(self, root: _Element) -> str:
        """Return the text below an element."""
        from lxml import etree

        walk = etree.iterwalk(root, events=("start", "end"), tag=_TAGS)
        for event, element in walk:
            name = _local(element.tag)
            if event == "end":
                if name in _ENDING:
                    self._end(name, element)
            elif name in _DOUBTFUL and self._is_left(name, element):
                walk.skip_subtree()
            else:
                self._start(name, element)
        line, blocks = self._open[0]
        return "\n\n".join(filter(None, ["".join(line).strip(), *blocks]))

    def _is_left(self, name: str, element: _Element) -> bool:
        if name in ("Choice", "Fallback"):
            branches = element.getparent()
            return element is not next((branch for branch in branches if branch.xpath(_HAS_CONTENT)), None)
        return name in _LEFT or (self._is_master and next(element.iter("{*}ph"), None) is not None)

    def _start(self, name: str, element: _Element) -> None:
        line, blocks = self._open[-1]
        if name == "t":
            line.append((element.text or "").replace("\n", " "))
        elif name in _JOINTS:
            self._open.append(([], []))
        elif name in _CHARACTERS:
            line.append(_CHARACTERS[name])
        elif name in _VALUES:
            blocks += filter(str.strip, [element.text or ""])
        elif name in _ALTERNATIVES:
            texts = [value for key, value in element.attrib.items() if _local(key) in _ALTERNATIVE_KEYS]
            blocks += [text for text in texts if text != self._alternative]
            self._alternative = texts[-1] if texts else self._alternative
        elif name in _PLACES:
            ids = [value for key, value in element.attrib.items() if "/relationships}" in key]
            relations = [self._relations[id] for id in ids if id in self._relations]
            blocks += filter(
                None, [self._parts.text(part, role) for role, part in relations if _INLINE.fullmatch(role)]
            )
        else:
            self._mark(name, element, line)

    def _mark(self, name: str, element: _Element, line: list[str]) -> None:
        if name == "numPr" or (name == "pStyle" and _value(element).startswith("List")):
            line.append(_ITEM)
        elif name == "fldChar":
            self._field(_value(element, "fldCharType"), element, line)
        elif name == "sym" and re.fullmatch("[0-9A-Fa-f]{4}", code := _value(element, "char")):
            is_symbol = "E" <= code.upper() < "F9"  # a place in the font, such as Wingdings, and no character
            self._parts.unread.update(["symbol"] * is_symbol)
            line += [chr(int(code, 16))] * (not is_symbol)
        elif name == "d":
            line.append(_delimiter(element, "begChr", "("))
        elif name == "e" and (before := element.getprevious()) is not None and not before.tag.endswith("Pr"):
            line.append(" ")

    def _field(self, kind: str, element: _Element, line: list[str]) -> None:
        """Take out what a field has before its result: its code, with the results of other fields in it."""
        if kind == "begin":
            line += _choices(element)
            self._codes.append((line, len(line)))
        elif self._codes:
            code, start = self._codes.pop()
            if code is line:
                del line[start:]
            if kind == "separate":
                self._codes.append(([], 0))

    def _end(self, name: str, element: _Element) -> None:
        if name == "d":
            self._open[-1][0].append(_delimiter(element, "endChr", ")"))
            return
        line, blocks = self._open.pop()
        text = "".join(line)
        if text := text.replace(_ITEM, "").strip():
            blocks.insert(0, f"{_ITEM}{text}{_ITEM}" if _ITEM in line else text)
        outer, joint = self._open[-1][1], _JOINTS[name]
        text = joint.join(blocks)
        if not joint:
            outer += blocks
        elif name == "tc":
            outer.append(" ".join(text.split()))
        elif text.strip() and (name != "cat" or text != self._categories):
            outer.append(text.rstrip())
        self._categories = text if name == "cat" else self._categories


@lru_cache(maxsize=512)
def _local(name: str) -> str:
    return name.rpartition("}")[2]


def _value(element: _Element | None, name: str = "val", default: str = "") -> str:
    attributes = {} if element is None else element.attrib
    return next((value for key, value in attributes.items() if _local(key) == name), default)


def _delimiter(element: _Element, name: str, default: str) -> str:
    return _value(element.find(f"{{*}}dPr/{{*}}{name}"), default=default)


def _choices(element: _Element) -> list[str]:
    """Return the entry that a drop-down list of a form shows."""
    entries = [_value(entry) for entry in element.iter("{*}listEntry")]
    number = _value(next(element.iter("{*}result"), None), default="0")
    return entries[int(number) :][:1] if number.isdecimal() else []
