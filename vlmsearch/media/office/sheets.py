"""Workbooks of Excel: ``.xlsx`` and ``.xlsm`` (ECMA-376, part 1, 18)."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache, lru_cache
from io import BytesIO
from typing import TYPE_CHECKING

from vlmsearch.media.about import About
from vlmsearch.media.office.content import Content, clean
from vlmsearch.media.office.number_formats import BUILT_IN, GENERAL, NumberFormat, general
from vlmsearch.media.office.package import NOTHING, PARSER_OPTIONS, Package

if TYPE_CHECKING:
    from lxml.etree import _Element

_KINDS = (
    (r"__MACOSX/.*|(.*/)?\.DS_Store|.*\.rels|\[Content_Types\]\.xml|_xmlsignatures/.*", NOTHING),  # of the archive
    (r"(docProps|docMetadata|(?i:customXml)|customUI)/.*|xl/xmlMaps\.xml|>\w+metadata", NOTHING),  # data of programs
    (r"xl/(styles|theme/.*|charts/(style|colors)\d*|diagrams/(layout|quickStyle|colors|drawing)\d*)\.xml", NOTHING),
    (r"xl/(printerSettings/.*|customProperty\d*\.bin|namedSheetViews/.*|ctrlProps/.*|persons/.*)", NOTHING),  # settings
    (r"xl/(calcChain|metadata|volatileDependencies|featurePropertyBag/.*|richData/.*)\.xml", NOTHING),  # how cells come
    (r"xl/(tables|queryTables|pivotTables|slicers|timelines)/.*", NOTHING),  # the cells have what they show
    (r"xl/(pivotCache|slicerCaches|timelineCaches|externalLinks)/.*|xl/connections\.xml", NOTHING),  # copies of sources
    (r".*>(work|chart|dialog)sheet", NOTHING),  # no program shows a sheet that is not listed
    (r".*>(hyperlink|externalLink\w*)", NOTHING),  # the text of a link is read; other workbooks are not this one
    (r"xl/revisions/.*|\[trash\]/.*|xl/activeX/.*\.bin|xl/vba.*", NOTHING),  # what was; states of controls; macros
    (r"xl/activeX/.*", "form control"),
    (r"xl/embeddings/.*", "embedded document"),
    (r"xl/model/.*", "data model"),
)
"""Kinds of members that were not read."""
_ESCAPE = re.compile("_x([0-9A-Fa-f]{4})_")
"""A character that XML cannot hold, or an underscore before what looks like one."""
_CODE = re.compile(r'&(?:"[^"]*"|K(?:[0-9A-F]{6}|\d\d[+-]\d{3})|[PN][+-]\d+|\d+|([LCR])|(&)|.)', re.IGNORECASE)
"""A code in a header or footer, such as a font or a page number."""
_COPIES = ("{*}Fallback", "{*}numCache", "{*}numLit", "{*}numDim", "{*}pivotSource")
"""Elements in drawings that repeat what is beside them or in cells, or name a source."""
_DRAWN = frozenset({"drawing", "chart", "chartEx", "chartUserShapes", "diagramData"})

_number_format = lru_cache(maxsize=2**10)(NumberFormat)  # files have the same ones
_Formatter = Callable[[str], str]
_Formats = Callable[["str | None"], tuple[_Formatter, _Formatter]]


def read(data: bytes, name: str) -> Content:
    """Return the content of a workbook: sheets, each with its comments and drawings, then headers and footers."""
    package = Package(data, name)
    top = dict(_relations(package, "").values())
    workbook = _Workbook(package, top.get("officeDocument", "xl/workbook.xml"))
    paragraphs = [*workbook.paragraphs(), *workbook.margins]
    about = package.about(top["core-properties"]) if "core-properties" in top else About()
    text = clean("\n\n".join(filter(None, map(str.strip, paragraphs))))
    return Content(text, about, package.unread(_KINDS, workbook.lost))


class _Workbook:
    def __init__(self, package: Package, member: str) -> None:
        self._package = package
        self._root = package.xml(member)
        self._relations = _relations(package, member)
        self._read: set[str] = set()
        self.lost: Counter[str] = Counter()
        """Numbers of what was not read in members that were, by kind."""
        self.margins: dict[str, None] = {}
        """Headers and footers, of all sheets once."""
        parts = dict(self._relations.values())
        strings = self._elements(parts["sharedStrings"], "{*}si") if "sharedStrings" in parts else ()
        self._strings = [_line(_rich(string)) for string in strings]
        is_1904 = any(item.get("date1904") in ("1", "true") for item in self._root.iter("{*}workbookPr"))
        styles = package.xml(parts["styles"]) if "styles" in parts else self._root  # which has no styles
        self._format = _formats(styles, is_1904)

    def paragraphs(self) -> Iterator[str]:
        """Yield the name of each sheet, its rows as one paragraph, and what lies on it."""
        for sheet in self._root.iter("{*}sheet"):
            yield _line(sheet.get("name", ""))
            key = next((value for name, value in sheet.attrib.items() if name.endswith("}id")), "")
            if key in self._relations:
                yield from self._sheet(self._relations[key][1])
            else:
                self.lost["sheet"] += 1

    def _sheet(self, member: str) -> Iterator[str]:
        rows, notes = [], []
        for element in self._elements(member, ("{*}row", "{*}headerFooter", "{*}dataValidation")):
            if element.tag.endswith("}row"):
                rows.append("\t".join(filter(None, self._cells(element))))
            elif element.tag.endswith("}headerFooter"):
                self.margins.update(dict.fromkeys(_margin(margin.text or "") for margin in element))
            else:
                notes.append(" ".join(filter(None, map(element.get, ("promptTitle", "prompt")))))
        yield "\n".join(filter(None, rows))
        yield from dict.fromkeys([*notes, *self._beside(member)])

    def _cells(self, row: _Element) -> Iterator[str]:
        strings, format_of = self._strings, self._format
        for cell in row:
            try:
                value = cell[-1].text
            except IndexError:  # an empty cell
                continue
            kind = cell.get("t")
            number, text = format_of(cell.get("s"))
            try:
                if kind is None or kind == "n":
                    yield number(value)
                elif kind == "s":
                    yield text(strings[int(value)])
                elif kind == "inlineStr":
                    yield text(_line(_rich(cell)))
                else:
                    yield self._other(cell, kind, text)
            except (AttributeError, IndexError, TypeError, ValueError):  # no value, or none of its kind
                yield self._other(cell, kind, text)

    def _other(self, cell: _Element, kind: str | None, text: _Formatter) -> str:
        value: str = cell.findtext("{*}v", "")
        if not value and not (kind == "str" and len(cell) > 1):
            self.lost["formula without value"] += cell.find("{*}f") is not None
        if kind == "b":
            return "TRUE" if value in ("1", "true") else "FALSE" if value else ""
        if kind == "e":
            return "" if cell.get("vm") else value  # the error of what cannot show the picture in the cell
        if kind == "d":
            return re.sub(r"(T00:00:00)?(\.0+)?Z?$", "", value).replace("T", " ")
        return text(_line(value))

    def _beside(self, member: str) -> Iterator[str]:
        """Yield what comments, drawings and charts say that a member refers to."""
        targets = [*_relations(self._package, member).values()]
        is_threaded = "threadedComment" in dict(targets)
        for role, target in targets:
            if target in self._read:
                continue
            self._read.add(target)
            if role == "vmlDrawing":
                yield from ("".join(box.itertext()) for box in self._elements(target, "{*}textbox"))
            elif role == "threadedComment":
                yield from (comment.findtext("{*}text", "") for comment in self._elements(target, "{*}threadedComment"))
            elif role == "comments":
                yield from self._comments(target, is_threaded)
            elif role in _DRAWN:
                yield from self._drawn(target)
                yield from self._beside(target)

    def _comments(self, member: str, is_threaded: bool) -> Iterator[str]:
        authors: dict[str, str] = {}
        for element in self._elements(member, ("{*}author", "{*}comment")):
            if element.tag.endswith("}author"):
                authors[str(len(authors))] = element.text or ""
            # A thread has a copy here for old programs, which begins with an advertisement.
            elif not (is_threaded and authors.get(element.get("authorId"), "").startswith("tc=")):
                yield _plain(_rich(element))

    def _drawn(self, member: str) -> Iterator[str]:
        """Yield texts, descriptions of pictures, and names of series and categories."""
        labels = []
        for element in self._elements(member, ("{*}p", "{*}cNvPr", "{*}v", "{*}pt", "{*}name")):
            if next(element.iterancestors(*_COPIES), None) is not None:
                continue
            if element.tag.endswith("}p"):
                pieces = element.iter("{*}t", "{*}br")
                yield "".join("\n" if piece.tag.endswith("}br") else piece.text or "" for piece in pieces)
            elif element.tag.endswith("}cNvPr"):
                yield element.get("descr", "")
            else:
                labels.append((element.text or "").strip())
        yield "\t".join(filter(None, dict.fromkeys(labels)))

    def _elements(self, member: str, names: str | tuple[str, ...]) -> Iterator[_Element]:
        """Yield the elements of names in a member, which are emptied afterwards."""
        from lxml import etree

        stream = etree.iterparse(BytesIO(self._package.read(member)), tag=names, recover=True, **PARSER_OPTIONS)
        try:
            for _, element in stream:
                yield element
                element.clear()
            is_damaged = bool(stream.error_log.filter_from_fatals())
        except etree.XMLSyntaxError:  # it is empty
            is_damaged = True
        self._package.damaged += is_damaged and not member.endswith(".vml")  # the HTML in those is not well formed


def _formats(styles: _Element, is_1904: bool) -> _Formats:
    """Return the function that gives what shows numbers, and what shows texts, of a style."""
    codes = {item.get("numFmtId"): item.get("formatCode", "") for item in styles.iter("{*}numFmt")}
    places = enumerate(styles.iterfind("{*}cellXfs/{*}xf"))
    numbers = {str(place): style.get("numFmtId", "0") for place, style in places}

    @cache
    def shown(style: str | None) -> tuple[_Formatter, _Formatter]:
        number = numbers.get(style or "0", "0")
        code = codes.get(number) or BUILT_IN.get(number, GENERAL)
        if code.lower() == GENERAL.lower():
            return _general, str
        form = _number_format(code, is_1904=is_1904)
        return form.number, form.text

    return shown


def _relations(package: Package, member: str) -> dict[str, tuple[str, str]]:
    """Return the type and the target of each relation of a member, or of the package."""
    relations = package.relations(member)
    return {id: (role.rpartition(">")[2], target) for id, (role, target) in relations.items()}


def _general(value: str) -> str:
    return value if value.isdigit() and len(value) < 16 else general(float(value))


def _rich(element: _Element) -> str:
    """Return the text of runs, without their readings in another script."""
    if len(element) == 1 and element[0].tag.endswith("}t"):
        return element[0].text or ""
    runs = (run for run in element.iter("{*}t") if not run.getparent().tag.endswith("}rPh"))
    return "".join(run.text or "" for run in runs)


def _plain(text: str) -> str:
    return _ESCAPE.sub(lambda escape: chr(int(escape[1], 16)), text) if "_x" in text else text


def _line(text: str) -> str:
    text = _plain(text)
    return text.strip() if text.isprintable() else re.sub(r"(?<!\s)\s*[\t\r\n]\s*", " ", text).strip()


def _margin(text: str) -> str:
    shown = _CODE.sub(lambda code: "\t" if code[1] else code[2] or "", _plain(text))
    return " ".join(shown.split())
