"""Office Open XML (ECMA-376): ``.docx``, ``.docm``, ``.pptx`` and ``.pptm``.

One walk reads the text of Word, slides, drawings, charts and equations. Parts are reached by their relations, wherever
they lie. Elements are known by their local names, so that strict and transitional documents are the same.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from email import message_from_bytes
from functools import lru_cache
from typing import TYPE_CHECKING, Any

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
    # Relations, types and signatures of the parts: they say where the others are, and who vouches for them.
    (r".*\.rels|\[Content_Types\]\.xml|>origin|_xmlsignatures/.*|\[trash\]/.*", NOTHING),
    # Statistics, names of programs, fields that fields of the text show, and a small picture of the first page.
    (r">(.*thumbnail|(extended|custom)-?[pP]roperties|classificationlabels)|docProps/.*", NOTHING),
    (r".*/ink/.*", "hand drawing"),
    # Data behind content controls: the document has a copy where it shows them. What Google's programs keep.
    (r".*>(customXml(Props)?|\w+metadata)|(?i:customXml)/.*", NOTHING),
    # Looks: their texts are names of styles, and patterns of numbers of lists.
    (r".*>((table)?[sS]tyles|stylesWith\w*|numbering|theme(Override)?|font(Table)?)|.*/theme/.*", NOTHING),
    (r".*>(chart(Color)?Style|diagram(Layout|QuickStyle|Colors))", NOTHING),
    # What programs keep for themselves, and who wrote comments and changes.
    (r".*>(settings|webSettings|presProps|viewProps|printerSettings|tags|attachedTemplate|intelligence)", NOTHING),
    (r".*>(comments(Extended|Ids|Extensible)|people|commentAuthors|authors|changesInfo|revisionInfo)", NOTHING),
    # Building blocks that a user could insert, and masters and layouts that no slide has.
    (r".*>glossaryDocument|.*/glossary/.*", NOTHING),
    (r".*>((slide|notes)Master|slideLayout)|.*/slide(Master|Layout)s/.*", NOTHING),
    # Macros.
    (r".*>(vbaProject|wordVbaData|keyMapCustomizations|extensibility)|.*/vba\w+\.(bin|xml)", NOTHING),
    # The workbook behind a chart, copies of what is read, and targets of links.
    (r"chart(Ex)?>package|.*>(diagramDrawing|vmlDrawing|legacyDocTextInfo|hyperlink)", NOTHING),
    (r".*>(package|oleObject|aFChunk|subDocument)", "embedded document"),
    (r".*>(control|activeXControlBinary)", "form control"),
    (r".*>image", "picture"),
    (r".*>video", "film"),
    (r".*>audio", "sound"),
)
"""Kinds of parts that were not read."""
_LEFT = frozenset({"del", "moveFrom", "tabs", "tabLst", "custGeom", "pivotSource"})
"""Elements that hold no text for a reader: what was deleted or moved away, places of tabs, outlines, sources."""
_CHECKED = frozenset({*_LEFT, "sp", "Choice", "Fallback"})
_VALUES = frozenset({"v", "pt", "name", "text"})
"""Elements with a text that is a block: a value of a chart or the name of a trend, and a comment on a slide."""
_CHARACTERS = {"tab": "\t", "ptab": "\t", "br": "\n", "cr": "\n", "noBreakHyphen": "-"}
"""Elements that are a character."""
_OPERATORS = {"den": "/", "sup": "^", "d": " ", "lim": " ", "mr": " "}
"""Parts of equations with what is before them."""
_JOINTS = {"p": "", "rt": "", "tc": " ", "tr": "\t", "tbl": "\n", "txBody": "\n", "ser": "\n"}
_JOINTS |= dict.fromkeys(("cat", "val", "xVal", "yVal", "bubbleSize", "lvl"), "\t")
"""Elements that are blocks, with what is between the blocks inside them; "" leaves those apart."""
_ALTERNATIVES = dict.fromkeys(("docPr", "cNvPr"), ("title", "descr")) | {"textpath": ("string",)}
_ALTERNATIVES |= dict.fromkeys(("shape", "rect", "roundrect", "oval", "group"), ("alt",))
"""Elements with attributes that have a text in the place of a picture or a shape."""
_PLACES = frozenset({"sldId", "chart", "relIds", "altChunk", "OLEObject", "oleObj", "userShapes"})
"""Elements with the relation of a part that is read at this place."""
_OTHERS = ("t", "tblCaption", "tblDescription", "numPr", "pStyle", "framePr", "fldChar", "sym", "e")
_NAMES = {*_CHECKED, *_VALUES, *_CHARACTERS, *_OPERATORS, *_JOINTS, *_ALTERNATIVES, *_PLACES, *_OTHERS}
_TAGS = [f"{{*}}{name}" for name in sorted(_NAMES)]
_ITEM = "\0"
"""The mark at both ends of an item of a list while a document is read."""
_INITIAL = "\1"
"""The mark of a large first letter: a paragraph whose word goes on behind it."""
_RELATED = ".//@*[contains(namespace-uri(), '/relationships')][local-name() != 'embed']"
_HAS_CONTENT = f"boolean(.//*[local-name() = 't'][text()] | .//@descr | {_RELATED})"
"""A text, or the relation of a part that may have one, such as a chart."""


def read(data: bytes, name: str) -> Content:
    """Return the content of a text document, or of slides."""
    package = Package(data, name)
    relations = dict(package.relations().values())
    if ">officeDocument" not in relations:
        raise InvalidInputError("corrupt", f"{name} is damaged, or is not what its name says: it has no main part")
    parts = Parts(package, name)
    text = parts.text(relations[">officeDocument"], ">officeDocument").replace(f"{_ITEM}\n\n{_ITEM}", "\n")
    text = re.sub(f"{_INITIAL}(.*)\n+", r"\1", text)
    text = re.sub("_x00[01][0-9A-F]_", " ", text)  # how PowerPoint writes a control character, such as a line break
    about = package.about(relations[">core-properties"]) if ">core-properties" in relations else About()
    return Content(clean(text), about, package.unread(_KINDS, parts.unread))


class Parts:
    """The texts of the parts of a package.

    Each open block has the text of its line and the blocks inside it. Those follow the line, so that a text box does
    not split the word that it is anchored in.

    Args:
        package: The package.
        name: The name of the file in messages, quoted.

    Attributes:
        unread: Numbers of what was not read inside the parts, by kind.
    """

    def __init__(self, package: Package, name: str) -> None:
        self.unread: Counter[str] = Counter()
        self._package = package
        self._name = name
        self._taken: set[str] = set()
        self._open: list[tuple[list[str], list[str]]] = []
        self._codes: list[tuple[list[str], int]] = []

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
        texts = [] if root is None else [self._walk(root, relations, bool(_MASTERS.fullmatch(role)))]
        after = sorted((_AFTER.index(role), target, role) for role, target in relations.values() if role in _AFTER)
        texts += [self.text(target, role) for _, target, role in after]
        return "\n\n".join(filter(None, dict.fromkeys(texts)))

    def _embedded(self, member: str) -> str:
        suffix = os.path.splitext(member)[1].lower()
        if suffix not in (*OFFICE_SUFFIXES, ".mht"):
            return ""
        try:
            data = self._package.read(member)
            if suffix == ".mht":  # a page with its pictures in a mail, which programs in browsers write
                parts = [*message_from_bytes(data).walk()]
                page: Any = next(part for part in parts if part.get_content_type() == "text/html")
                suffix, data = ".htm", page.get_payload(decode=True)
                self.unread["picture"] += sum(part.get_content_maintype() == "image" for part in parts)
            content = read_bytes(data, suffix, self._name)
        except (InvalidInputError, RecursionError, StopIteration):  # it may hold itself; or a mail no page
            self._package.leave(member)
            return ""
        self.unread.update(content.unread)
        return content.text

    def _walk(self, root: _Element, relations: dict[str, tuple[str, str]], is_master: bool) -> str:
        from lxml import etree

        self._open.append(([], []))
        self._categories = ""
        walk = etree.iterwalk(root, events=("start", "end"), tag=_TAGS)
        for event, element in walk:
            name = _local(element.tag)
            if event == "end":
                if name in _JOINTS:
                    self._close(name)
            elif name in _CHECKED:
                if _is_left(name, element, is_master):
                    walk.skip_subtree()
            elif name in _PLACES:
                ids = [value for key, value in element.items() if "/relationships}" in key]
                places = [relations[id] for id in ids if id in relations and _INLINE.fullmatch(relations[id][0])]
                self._open[-1][1].extend(filter(None, (self.text(part, role) for role, part in places)))
            else:
                self._start(name, element)
        line, blocks = self._open.pop()
        return "\n\n".join(filter(None, ["".join(line).strip(), *blocks]))

    def _start(self, name: str, element: _Element) -> None:
        line, blocks = self._open[-1]
        if name == "t":
            line.append((element.text or "").replace("\n", " "))
        elif name in _JOINTS:
            self._open.append(([], []))
        elif name in _CHARACTERS:
            line.append(_CHARACTERS[name])
        elif name in _OPERATORS:
            line += [_OPERATORS[name]] * (element.find(".//{*}t") is not None)
        elif name in _VALUES:
            blocks += filter(str.strip, [element.text or ""])
        elif name in _ALTERNATIVES:
            texts = filter(None, map(element.get, _ALTERNATIVES[name]))
            blocks += [text for text in texts if text not in blocks[-1:]]  # both elements of a picture may have it
        else:
            self._mark(name, element, line, blocks)

    def _mark(self, name: str, element: _Element, line: list[str], blocks: list[str]) -> None:
        if name in ("tblCaption", "tblDescription"):
            blocks += filter(None, [_value(element)])
        elif name == "numPr" or (name == "pStyle" and _value(element).startswith("List")):
            line.append(_ITEM)
        elif name == "framePr" and _value(element, "dropCap") in ("drop", "margin"):
            line.append(_INITIAL)
        elif name == "fldChar":
            self._field(_value(element, "fldCharType"), element, line)
        elif name == "sym" and re.fullmatch("[0-9A-Fa-f]{4}", code := _value(element, "char")):
            is_symbol = "E" <= code.upper() < "F9"  # a place in the font, such as Wingdings, and no character
            self.unread.update(["symbol"] * is_symbol)
            line += [chr(int(code, 16))] * (not is_symbol)
        elif name == "e" and (before := element.getprevious()) is not None and not before.tag.endswith("Pr"):
            line.append(" ")

    def _field(self, kind: str, element: _Element, line: list[str]) -> None:
        """Take out what a field has before its result: its code, with the results of other fields in it."""
        if kind == "begin":
            line += _choice(element)
            self._codes.append((line, len(line)))
        elif self._codes:
            code, start = self._codes.pop()
            if code is line:
                del line[start:]
            if kind == "separate":
                self._codes.append(([], 0))

    def _close(self, name: str) -> None:
        line, blocks = self._open.pop()
        if text := "".join(line).replace(_ITEM, "").strip():
            blocks.insert(0, f"{_ITEM}{text}{_ITEM}" if _ITEM in line else text)
        outer, text = self._open[-1][1], _JOINTS[name].join(blocks)
        if name == "tc":
            outer.append(" ".join(text.split()))
        elif not _JOINTS[name]:
            outer += blocks
        elif text.strip() and (name != "cat" or text != self._categories):
            outer.append(text.rstrip())
        self._categories = text if name == "cat" else self._categories


def _is_left(name: str, element: _Element, is_master: bool) -> bool:
    if name in ("Choice", "Fallback"):
        return element is not next((branch for branch in element.xpath("../*") if branch.xpath(_HAS_CONTENT)), None)
    return name in _LEFT or (is_master and element.find(".//{*}ph") is not None)


@lru_cache(maxsize=512)
def _local(name: str) -> str:
    return name.rpartition("}")[2]


def _value(element: _Element, name: str = "val") -> str:
    return next((value for key, value in element.items() if _local(key) == name), "")


def _choice(element: _Element) -> list[str]:
    """Return the entry that a drop-down list of a form shows, or nothing."""
    number = next((_value(result) for result in element.iter("{*}result")), "0")
    return [_value(entry) for entry in element.iter("{*}listEntry")][int(number) :][:1] if number.isdecimal() else []
