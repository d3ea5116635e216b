"""Small office documents, e-books and web pages, written part by part as their formats want them."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

_XML = '<?xml version="1.0" encoding="UTF-8" standalone="yes"?>'
_OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
_PACKAGE = "http://schemas.openxmlformats.org/package/2006"
_CORE = (
    '<cp:coreProperties xmlns:cp="http://schemas.openxmlformats.org/package/2006/metadata/core-properties" '
    'xmlns:dc="http://purl.org/dc/elements/1.1/">{about}</cp:coreProperties>'
)
_KINDS = {
    "docx": "wordprocessingml.document.main",
    "pptx": "presentationml.presentation.main",
    "xlsx": "spreadsheetml.sheet.main",
}


def write(path: Path, text: str, title: str = "A title", authors: Sequence[str] = ()) -> Path:
    """Write a document with a text, of the kind that its name ends in, and return its path."""
    suffix = path.suffix[1:]
    about = f"<dc:title>{title}</dc:title>" + "".join(f"<dc:creator>{author}</dc:creator>" for author in authors)
    if suffix in ("html", "htm"):
        names = "".join(f'<meta name="Author" content="{author}">' for author in authors)
        head = f"<head><title>{title}</title>{names}<style>p {{color: red}}</style><script>hidden()</script></head>"
        path.write_text(f"<html>{head}<body><h1>Heading</h1><p>{text}</p></body></html>", "utf-8")
    elif suffix == "rtf":
        info = rf"{{\title {title}}}{{\author {'; '.join(authors)}}}"
        path.write_text(rf"{{\rtf1\ansi {{\info{info}}} {text}\par}}", "ascii")
    elif suffix == "epub":
        _zip(path, _epub(text, about))
    elif suffix in ("odt", "ods", "odp"):
        _zip(path, _open_document(suffix, text, about))
    else:
        _zip(path, _office(suffix, text, about))
    return path


def _zip(path: Path, parts: Mapping[str, str]) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for name, content in parts.items():
            file.writestr(name, content)


def _relations(*targets: tuple[str, str]) -> str:
    links = "".join(
        f'<Relationship Id="rId{number}" Type="{kind}" Target="{target}"/>'
        for number, (kind, target) in enumerate(targets, 1)
    )
    return f'{_XML}<Relationships xmlns="{_PACKAGE}/relationships">{links}</Relationships>'


def _office(suffix: str, text: str, about: str) -> dict[str, str]:
    folder, main = {"docx": ("word", "document"), "pptx": ("ppt", "presentation"), "xlsx": ("xl", "workbook")}[suffix]
    prefix = "application/vnd.openxmlformats-officedocument."
    types = [(f"/{folder}/{main}.xml", _KINDS[suffix])]
    parts = {}
    if suffix == "docx":
        space = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'
        body = f"<w:body><w:p><w:r><w:t>{text}</w:t></w:r></w:p></w:body>"
        parts["word/document.xml"] = f"{_XML}<w:document {space}>{body}</w:document>"
    elif suffix == "pptx":
        spaces = (
            'xmlns:a="http://schemas.openxmlformats.org/drawingml/2006/main" '
            f'xmlns:p="http://schemas.openxmlformats.org/presentationml/2006/main" xmlns:r="{_OFFICE}"'
        )
        shown = '<p:sldIdLst><p:sldId id="256" r:id="rId1"/></p:sldIdLst>'
        parts["ppt/presentation.xml"] = f"{_XML}<p:presentation {spaces}>{shown}</p:presentation>"
        parts["ppt/_rels/presentation.xml.rels"] = _relations((f"{_OFFICE}/slide", "slides/slide1.xml"))
        shape = (
            '<p:sp><p:nvSpPr><p:cNvPr id="2" name="t"/><p:cNvSpPr/><p:nvPr/></p:nvSpPr><p:spPr/>'
            f"<p:txBody><a:bodyPr/><a:p><a:r><a:t>{text}</a:t></a:r></a:p></p:txBody></p:sp>"
        )
        group = '<p:nvGrpSpPr><p:cNvPr id="1" name=""/><p:cNvGrpSpPr/><p:nvPr/></p:nvGrpSpPr><p:grpSpPr/>'
        parts["ppt/slides/slide1.xml"] = (
            f"{_XML}<p:sld {spaces}><p:cSld><p:spTree>{group}{shape}</p:spTree></p:cSld></p:sld>"
        )
        types.append(("/ppt/slides/slide1.xml", "presentationml.slide"))
    else:
        space = f'xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main" xmlns:r="{_OFFICE}"'
        sheets = '<sheets><sheet name="Sheet1" sheetId="1" r:id="rId1"/></sheets>'
        parts["xl/workbook.xml"] = f"{_XML}<workbook {space}>{sheets}</workbook>"
        parts["xl/_rels/workbook.xml.rels"] = _relations((f"{_OFFICE}/worksheet", "worksheets/sheet1.xml"))
        cells = f'<row r="1"><c r="A1" t="inlineStr"><is><t>{text}</t></is></c><c r="B1"><v>42</v></c></row>'
        parts["xl/worksheets/sheet1.xml"] = f"{_XML}<worksheet {space}><sheetData>{cells}</sheetData></worksheet>"
        types.append(("/xl/worksheets/sheet1.xml", "spreadsheetml.worksheet"))
    overrides = "".join(f'<Override PartName="{name}" ContentType="{prefix}{kind}+xml"/>' for name, kind in types)
    defaults = (
        '<Default Extension="rels" ContentType="application/vnd.openxmlformats-package.relationships+xml"/>'
        '<Default Extension="xml" ContentType="application/xml"/>'
    )
    core = (f"{_PACKAGE}/relationships/metadata/core-properties", "docProps/core.xml")
    return {
        "[Content_Types].xml": f'{_XML}<Types xmlns="{_PACKAGE}/content-types">{defaults}{overrides}</Types>',
        "_rels/.rels": _relations((f"{_OFFICE}/officeDocument", f"{folder}/{main}.xml"), core),
        "docProps/core.xml": _XML + _CORE.format(about=about),
        **parts,
    }


def _open_document(suffix: str, text: str, about: str) -> dict[str, str]:
    space = "urn:oasis:names:tc:opendocument:xmlns"
    kind = {"odt": "text", "ods": "spreadsheet", "odp": "presentation"}[suffix]
    spaces = f'xmlns:office="{space}:office:1.0" xmlns:text="{space}:text:1.0" xmlns:table="{space}:table:1.0"'
    body = f"<text:p>{text}</text:p>"
    if suffix == "ods":
        cell = f'<table:table-cell office:value-type="string">{body}</table:table-cell>'
        body = f'<table:table table:name="Sheet1"><table:table-row>{cell}</table:table-row></table:table>'
    listed = '<manifest:manifest xmlns:manifest="urn:oasis:names:tc:opendocument:xmlns:manifest:1.0"/>'
    content = f"<office:body><office:{kind}>{body}</office:{kind}></office:body>"
    spaces += ' xmlns:dc="http://purl.org/dc/elements/1.1/"'
    return {
        "mimetype": f"application/vnd.oasis.opendocument.{kind}",
        "META-INF/manifest.xml": f"{_XML}{listed}",
        "content.xml": f"{_XML}<office:document-content {spaces}>{content}</office:document-content>",
        "meta.xml": f"{_XML}<office:document-meta {spaces}><office:meta>{about}</office:meta></office:document-meta>",
    }


def _epub(text: str, about: str) -> dict[str, str]:
    container = (
        '<container version="1.0" xmlns="urn:oasis:names:tc:opendocument:xmlns:container"><rootfiles>'
        '<rootfile full-path="book.opf" media-type="application/oebps-package+xml"/></rootfiles></container>'
    )
    about = f'<metadata xmlns:dc="http://purl.org/dc/elements/1.1/">{about}</metadata>'
    book = (
        f'<package xmlns="http://www.idpf.org/2007/opf" version="3.0">{about}<manifest><item id="one" href="one.xhtml" '
        'media-type="application/xhtml+xml"/></manifest><spine><itemref idref="one"/></spine></package>'
    )
    page = f'<html xmlns="http://www.w3.org/1999/xhtml"><head><title>x</title></head><body><p>{text}</p></body></html>'
    return {
        "mimetype": "application/epub+zip",
        "META-INF/container.xml": container,
        "book.opf": book,
        "one.xhtml": page,
    }
