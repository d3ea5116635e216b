import io
import re
import subprocess
import sys
import zipfile
from collections.abc import Callable, Mapping
from email.message import EmailMessage
from pathlib import Path
from typing import Any, ClassVar

import docx
import pptx
import pypandoc
import pytest
from docx.opc.packuri import PackURI
from docx.opc.part import Part
from docx.oxml import parse_xml
from lxml import etree
from PIL import Image
from pptx.chart.data import CategoryChartData
from pptx.enum.chart import XL_CHART_TYPE
from pptx.opc.package import Part as SlidePart
from pptx.opc.packuri import PackURI as SlideURI
from pptx.util import Inches

from vlmsearch import InvalidInputError, MissingDependencyError
from vlmsearch._util.extras import install_command
from vlmsearch.media.office import open_xml, read_bytes
from vlmsearch.media.office.content import Content
from vlmsearch.media.office.package import Package

TYPES = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
DRAWING = "http://schemas.openxmlformats.org/drawingml/2006"
OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006"
NAMES = {
    "w": "http://schemas.openxmlformats.org/wordprocessingml/2006/main",
    "r": TYPES,
    "m": f"{OFFICE}/math",
    "a": f"{DRAWING}/main",
    "c": f"{DRAWING}/chart",
    "dgm": f"{DRAWING}/diagram",
    "wp": f"{DRAWING}/wordprocessingDrawing",
    "p": "http://schemas.openxmlformats.org/presentationml/2006/main",
    "mc": "http://schemas.openxmlformats.org/markup-compatibility/2006",
    "v": "urn:schemas-microsoft-com:vml",
    "o": "urn:schemas-microsoft-com:office:office",
    "p188": "http://schemas.microsoft.com/office/powerpoint/2018/8/main",
}
ROOT = " ".join(f'xmlns:{prefix}="{name}"' for prefix, name in NAMES.items())


def add(document: Any, xml: str) -> None:
    """Put elements at the end of a document of python-docx, before its section."""
    for element in parse_xml(f"<w:body {ROOT}>{xml}</w:body>"):
        document.element.body.insert(len(document.element.body) - 1, element)


def relate(document: Any, kind: str, name: str, data: str | bytes) -> str:
    """Add a part to a document or a slide, and return the identifier of its relation."""
    blob = data if isinstance(data, bytes) else f"<w:root {ROOT}>{data}</w:root>".encode()
    package = document.part.package
    if hasattr(document, "paragraphs"):
        part: object = Part(PackURI(f"/word/{name}"), "application/octet-stream", blob, package)
    else:
        part = SlidePart(SlideURI(f"/ppt/{name}"), "application/octet-stream", package, blob)
    identifier: str = document.part.relate_to(part, f"{TYPES}/{kind}")
    return identifier


def saved(document: Any) -> bytes:
    document.save(file := io.BytesIO())
    return file.getvalue()


def read(document: Any) -> Content:
    return read_bytes(saved(document), ".docm" if hasattr(document, "paragraphs") else ".pptm", "'a'")


def word(xml: str) -> str:
    document = docx.Document()
    add(document, xml)
    return read(document).text


def members_of(data: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(data)) as file:
        return {name: file.read(name) for name in file.namelist()}


def read_members(members: Mapping[str, bytes]) -> Content:
    with zipfile.ZipFile(result := io.BytesIO(), "w") as file:
        for name, data in members.items():
            file.writestr(name, data)
    return read_bytes(result.getvalue(), ".docx", "'a'")


def r(xml: str) -> str:
    return f"<w:r>{xml}</w:r>"


def t(text: str) -> str:
    return r(f'<w:t xml:space="preserve">{text}</w:t>')


def field(code: str, result: str) -> str:
    begin, separate, end = (r(f'<w:fldChar w:fldCharType="{kind}"/>') for kind in ("begin", "separate", "end"))
    return f"{begin}{r('<w:instrText>IF </w:instrText>')}{code}{separate}{result}{end}"


def box(text: str) -> str:
    return f"<w:txbxContent><w:p>{t(text)}</w:p></w:txbxContent>"


def alternate(choice: str, fallback: str) -> str:
    contents = f'<mc:Choice Requires="wps">{choice}</mc:Choice><mc:Fallback>{fallback}</mc:Fallback>'
    return f"<mc:AlternateContent>{contents}</mc:AlternateContent>"


def a(text: str) -> str:
    return f"<a:p><a:r><a:t>{text}</a:t></a:r></a:p>"


def m(text: str) -> str:
    return f"<m:r><m:t>{text}</m:t></m:r>"


SYMBOL = r('<w:sym w:font="Wingdings" w:char="F0FE"/>')
PICTURE = '<w:drawing><wp:inline><wp:docPr id="1" name="Bild 1" descr="A dog"/></wp:inline></w:drawing>'
ENTRIES = '<w:listEntry w:val="red"/><w:listEntry w:val="green"/>'
DROP_DOWN = f'<w:ffData><w:ddList><w:result w:val="1"/>{ENTRIES}</w:ddList></w:ffData>'
LINES = {
    t("Photo") + t("synthesis"): "Photosynthesis",
    t("Customer") + r("<w:tab/>") + t("Miller"): "Customer\tMiller",
    t("Chapter") + r('<w:ptab w:alignment="right"/>') + t("3"): "Chapter\t3",
    '<w:pPr><w:tabs><w:tab w:val="left" w:pos="99"/></w:tabs></w:pPr>' + t("a"): "a",
    t("a") + r("<w:br/>") + t("b") + r("<w:cr/>") + t("c"): "a\nb\nc",
    t("co") + r("<w:noBreakHyphen/>") + t("opera") + r("<w:softHyphen/>") + t("te"): "co-operate",
    t("a ") + f"<w:ins>{t('new')}</w:ins><w:del><w:r><w:delText>old</w:delText></w:r></w:del>": "a new",
    f"<w:del>{t('old')}</w:del>" + t("new"): "new",
    f"<w:moveFrom>{t('here')}</w:moveFrom><w:moveTo>{t('there')}</w:moveTo>": "there",
    f'<w:fldSimple w:instr="AUTHOR">{t("Ann")}</w:fldSimple>': "Ann",
    t("Dear ") + field(field("", t("female")), t("Ms ") + field("", t("Lee"))) + t(","): "Dear Ms Lee,",
    r('<w:fldChar w:fldCharType="begin"/>') + t("no end"): "no end",
    r(f'<w:fldChar w:fldCharType="begin">{DROP_DOWN}</w:fldChar><w:fldChar w:fldCharType="end"/>'): "green",
    f"<w:sdt><w:sdtPr><w:text/></w:sdtPr><w:sdtContent>{t('a')}</w:sdtContent></w:sdt>" + t("b"): "ab",
    f'<w:smartTag w:uri="u" w:element="e">{t("Lon")}</w:smartTag>' + t("don"): "London",
    "".join(
        r(f"<w:ruby><w:rt>{t(reading)}</w:rt><w:rubyBase>{t(base)}</w:rubyBase></w:ruby>")
        for base, reading in (("東", "とう"), ("京", "きょう"))
    ): "東京\n\nとう\n\nきょう",
    t("5 ") + r('<w:sym w:font="Arial" w:char="03A9"/>'): "5 Ω",
    t("bet") + r(alternate(box("inside"), box("inside"))) + t("ween"): "between\n\ninside",
    t("bet") + r(alternate("<w:drawing/>", box("inside"))) + t("ween"): "between\n\ninside",
    t("bet") + r(alternate('<a:blip r:embed="rId1"/>', box("inside"))) + t("ween"): "between\n\ninside",
    r(alternate(PICTURE, f"<w:pict>{box('other')}</w:pict>")) + t("below"): "below\n\nA dog",
    r("<w:rPr><w:vanish/></w:rPr><w:t>hidden</w:t>"): "hidden",
    r('<w:pict><v:shape><v:textpath string="DRAFT"/></v:shape></w:pict>') + t("a"): "a\n\nDRAFT",
    r('<w:pict><v:group><v:rect alt="A red box"/></v:group></w:pict>') + t("a"): "a\n\nA red box",
    f"<m:oMath><m:f><m:num>{m('1')}</m:num><m:den>{m('2')}</m:den></m:f></m:oMath>": "1/2",
    f"<m:oMath>{m('f')}<m:d><m:e>{m('x')}</m:e><m:e>{m('y')}</m:e></m:d></m:oMath>": "f x y",
    f"<m:oMath><m:sSup><m:e>{m('x')}</m:e><m:sup>{m('2')}</m:sup></m:sSup></m:oMath>": "x^2",
    f"<m:oMath><m:func><m:fName>{m('sin')}</m:fName><m:e>{m('x')}</m:e></m:func></m:oMath>": "sin x",
}


@pytest.mark.parametrize("xml", LINES)
def test_a_line_of_a_text_document_reads_as_it_is_seen(xml: str) -> None:
    assert word(f"<w:p>{xml}</w:p>") == LINES[xml]


def test_a_symbol_of_a_font_without_letters_is_said() -> None:
    document = docx.Document()
    add(document, f"<w:p>{t('a')}{SYMBOL}</w:p>")

    assert (read(document).text, read(document).unread) == ("a", {"symbol": 1})


def test_blocks_are_apart_and_items_and_rows_are_lines() -> None:
    document = docx.Document()
    document.add_heading("Fruit", 1)
    for text in ("apples", "pears"):
        document.add_paragraph(text, "List Bullet")
    document.add_paragraph("Prices")
    table = document.add_table(3, 3)
    for row, texts in zip(table.rows, (("kind", "each", "all"), ("apple", "1", "12"), ("sum", "", "12"))):
        for cell, text in zip(row.cells, texts):
            cell.text = text
    table.cell(1, 1).text = "1\n\tpiece"
    table.cell(1, 1).add_paragraph("or more")
    table.cell(2, 2).add_table(1, 2).cell(0, 1).text = "inner"
    table.cell(2, 0).merge(table.cell(2, 1))
    table._tblPr.append(parse_xml(f'<w:tblDescription {ROOT} w:val="Prices of today"/>'))

    lines = "Prices of today\nkind\teach\tall\napple\t1 piece or more\t12\nsum\t12 inner"
    assert read(document).text == f"Fruit\n\napples\npears\n\nPrices\n\n{lines}"


def test_a_page_with_its_pictures_in_a_document_is_read() -> None:
    mail = EmailMessage()
    mail.set_content("<p>Größe", subtype="html", cte="quoted-printable")
    mail.add_related(b"a picture", "image", "png")
    document = docx.Document()
    for number, data in enumerate((bytes(mail), b"no mail")):
        chunk = relate(document, "aFChunk", f"afchunk{number}.mht", data)
        add(document, f'<w:altChunk r:id="{chunk}"/>')

    assert (read(document).text, read(document).unread) == ("Größe", {"embedded document": 1, "picture": 1})


def test_a_large_first_letter_is_a_part_of_its_word() -> None:
    document = docx.Document()
    document.add_paragraph("Before")
    add(
        document,
        f'<w:p><w:pPr><w:framePr w:dropCap="drop" w:lines="3"/></w:pPr>{t("O")}</w:p><w:p>{t("nce upon")}</w:p>',
    )

    assert read(document).text == "Before\n\nOnce upon"


def test_a_cell_that_is_merged_down_reads_once() -> None:
    document = docx.Document()
    table = document.add_table(2, 2)
    table.cell(0, 0).text, table.cell(0, 1).text, table.cell(1, 1).text = "both", "1", "2"
    table.cell(0, 0).merge(table.cell(1, 0))

    assert read(document).text == "both\t1\n\t2"


CHART = f"<c:chart><c:title><c:tx><c:rich>{a('Sales')}</c:rich></c:tx></c:title>{{}}</c:chart>"
SERIES = (
    "<c:ser><c:tx><c:strRef><c:f>A!B1</c:f><c:strCache><c:pt><c:v>North</c:v></c:pt></c:strCache></c:strRef></c:tx>"
    "<c:cat><c:strRef><c:strCache><c:pt><c:v>May</c:v></c:pt><c:pt><c:v>June</c:v></c:pt></c:strCache></c:strRef></c:cat>"
    "<c:val><c:numRef><c:numCache><c:formatCode>0.0</c:formatCode><c:pt><c:v>3</c:v></c:pt><c:pt><c:v>4</c:v></c:pt>"
    "</c:numCache></c:numRef></c:val><c:trendline><c:name>Trend</c:name></c:trendline></c:ser>"
)


def document_of_all() -> Any:
    """Return a text document with a part of each kind."""
    document = docx.Document()
    document.add_paragraph("Body")
    section = document.sections[0]
    section.different_first_page_header_footer = True
    for header in (section.header, section.first_page_header):
        header.paragraphs[0].text = "Letterhead"
    section.footer.paragraphs[0].text = "Page foot"
    document.add_comment(document.paragraphs[0].runs, "A comment", author="Ann")
    for kind in ("footnote", "endnote"):
        separator = f'<w:{kind} w:type="separator" w:id="0"><w:p>{r("<w:separator/>")}</w:p></w:{kind}>'
        note = f'{separator}<w:{kind} w:id="2"><w:p>{t(f"A {kind}")}</w:p></w:{kind}>'
        relate(document, f"{kind}s", f"{kind}s.xml", note)
    charts = [relate(document, "chart", f"charts/chart{i}.xml", CHART.format(SERIES * i)) for i in (1, 2)]
    diagram = relate(document, "diagramData", "diagrams/data1.xml", f"<dgm:t>{a('Step')}</dgm:t>")
    inner = docx.Document()
    inner.add_paragraph("Inner words")
    add(inner, f"<w:p>{SYMBOL}</w:p>")
    package = relate(document, "package", "embeddings/inner.docx", saved(inner))
    chunk = relate(document, "aFChunk", "chunk.htm", b"<p>A chunk")
    broken = relate(document, "package", "embeddings/broken.docx", b"no package")
    old = relate(document, "oleObject", "embeddings/oleObject1.bin", b"old")
    relate(document, "image", "media/image1.bin", b"picture")
    relate(document, "vbaProject", "vbaProject.bin", b"macros")
    relate(document, "documentmetadata", "metadata", b"of Google")
    relate(document, "image", "media/image2.svgz", b"picture")
    relate(document, "glossaryDocument", "glossary/document.xml", f"<w:p>{t('building block')}</w:p>")
    relate(document, "somethingNew", "new.xml", "new")
    document.part.relate_to("http://a.example/film", f"{TYPES}/video", is_external=True)
    document.part.relate_to("http://a.example/", f"{TYPES}/hyperlink", is_external=True)
    places = "".join(f'<o:OLEObject r:id="{identifier}"/>' for identifier in (package, broken, old))
    drawings = "".join(f'<c:chart r:id="{chart}"/>' for chart in charts) + f'<dgm:relIds r:dm="{diagram}"/>'
    add(document, f'<w:p>{t("End")}{r(places + drawings)}</w:p><w:altChunk r:id="{chunk}"/>')
    return document


def test_all_parts_that_a_reader_sees_are_read_and_others_said() -> None:
    content = read(document_of_all())

    series, again = "North\nMay\tJune\n3\t4\nTrend", "North\n3\t4\nTrend"
    body = ["Body", "End", "Inner words", "Sales", series, "Sales", series, again, "Step", "A chunk"]
    after = ["Letterhead", "Page foot", "A footnote", "A endnote", "A comment"]
    assert content.text.split("\n\n") == body + after
    said = {"embedded document": 2, "picture": 2, "film": 1, "other part": 1, "symbol": 1}
    assert content.unread == said


def letter() -> Any:
    document = docx.Document()
    document.add_paragraph("Body")
    document.sections[0].header.paragraphs[0].text = "Letterhead"
    return document


def test_parts_lie_where_relations_say_it() -> None:
    members = members_of(saved(letter()))
    relations = members.pop("word/_rels/document.xml.rels")
    members["_rels/.rels"] = members["_rels/.rels"].replace(b'"word/document.xml"', b'"/Text/Main%20part.xml"')
    members["Text/main part.xml"] = members.pop("word/document.xml")
    members["Text/_rels/main part.xml.rels"] = relations.replace(b"header1.xml", b"../HEAD%C3%A9R.xml#top")
    members["Headér.xml"] = members.pop("word/header1.xml")

    assert read_members(members).text == "Body\n\nLetterhead"


def test_strict_documents_read_as_the_others() -> None:
    document = letter()
    chart = relate(document, "chart", "charts/chart1.xml", CHART.format(SERIES))
    place = f'<c:chart r:id="{chart}"/>'
    add(document, f"<w:p>{r(place)}</w:p>")
    namespace = re.compile(rb"http://schemas.openxmlformats.org/(officeDocument|wordprocessingml|drawingml)/2006")
    members = members_of(saved(document)).items()
    strict = {name: namespace.sub(rb"http://purl.oclc.org/ooxml/\1", data) for name, data in members}

    assert "North" in read_members(strict).text
    assert read_members(strict) == read(document)


@pytest.mark.parametrize(
    ("damaged", "text"), [("", "Body"), ("no XML", "Body"), (f"<w:hdr {ROOT}><w:p>{t('Let')}<w:p", "Body\n\nLet")]
)
def test_a_damaged_part_is_said_and_the_rest_is_read(damaged: str, text: str) -> None:
    content = read_members(members_of(saved(letter())) | {"word/header1.xml": damaged.encode()})

    assert (content.text, content.unread) == (text, {"damaged part": 1})


@pytest.mark.parametrize("name", ["word/document.xml", "_rels/.rels"])
def test_a_document_without_its_main_part_is_damaged(name: str) -> None:
    with pytest.raises(InvalidInputError, match="'a' is damaged"):
        read_members(members_of(saved(letter())) | {name: b"no XML"})


def test_without_lxml_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    data = saved(letter())
    monkeypatch.setitem(sys.modules, "lxml", None)

    with pytest.raises(MissingDependencyError, match=re.escape(install_command("office"))):
        read_bytes(data, ".docx", "'a'")


def slides() -> Any:
    """Return slides with what PowerPoint offers, in another order than their files."""
    deck = pptx.Presentation()
    layout = deck.slide_layouts[5]
    layout.shapes._spTree.append(shape("Company"))
    deck.slide_master.shapes._spTree.append(shape("Confidential"))
    last, first = (deck.slides.add_slide(layout) for _ in range(2))
    deck.slides._sldIdLst.insert(0, deck.slides._sldIdLst[1])
    first.shapes.title.text, last.shapes.title.text = "First", "Last"
    last._element.set("show", "0")
    inner = first.shapes.add_group_shape().shapes.add_group_shape()
    inner.shapes.add_textbox(0, 0, 9, 9).text_frame.text = "Grouped"
    frame = first.shapes.add_textbox(0, 0, 9, 9).text_frame
    for text, is_bold in (("Photo", True), ("synthesis\v2", False)):
        run = frame.paragraphs[0].add_run()
        run.text, run.font.bold = text, is_bold
    frame.paragraphs[0].add_line_break()
    frame.paragraphs[0].add_run().text = "below"
    frame.add_paragraph().text = "second\titem"
    table = first.shapes.add_table(2, 2, 0, 0, 9, 9).table
    table.cell(0, 0).text, table.cell(0, 1).text, table.cell(1, 0).text = "a", "b\nb", "merged"
    table.cell(1, 0).merge(table.cell(1, 1))
    formula = first.shapes.add_textbox(0, 0, 9, 9)
    formula.text_frame.text = "Energy"
    alternative = etree.fromstring(f"<x {ROOT}>{alternate('', '<p:sp/>')}</x>")[0]
    formula._element.addprevious(alternative)
    alternative[0].append(formula._element)
    Image.new("RGB", (9, 9)).save(picture := io.BytesIO(), "PNG")
    first.shapes.add_picture(picture, 0, 0)._element.nvPicPr.cNvPr.set("descr", "A red bridge")
    data: Any = CategoryChartData()  # type: ignore[no-untyped-call]
    data.categories = ["May", "June"]
    data.add_series("North", (3, 4))
    first.shapes.add_chart(XL_CHART_TYPE.COLUMN_CLUSTERED, 0, 0, Inches(1), Inches(1), data)
    first.notes_slide.notes_text_frame.text = "Speak slowly"
    relate(first, "comments", "comments/comment1.xml", "<p:cm><p:text>Classic</p:text></p:cm>")
    reply = f"<p188:reply><p188:txBody>{a('Reply')}</p188:txBody></p188:reply>"
    thread = f"<p188:cm>{reply}<p188:txBody>{a('Modern')}</p188:txBody></p188:cm>"
    relate(last, "comments", "comments/modernComment1.xml", thread)
    first.shapes.add_movie(io.BytesIO(b"film"), 0, 0, 9, 9, mime_type="video/mp4")
    return deck


def shape(text: str) -> Any:
    """Return a shape that is no placeholder."""
    properties = "<p:nvSpPr><p:cNvPr id='9' name='n'/><p:nvPr/></p:nvSpPr>"
    return etree.fromstring(f"<x {ROOT}><p:sp>{properties}<p:txBody>{a(text)}</p:txBody></p:sp></x>")[0]


def test_slides_are_read_in_their_order_with_all_that_is_on_them() -> None:
    content = read(slides())

    lines, table, chart = "Photosynthesis 2\nbelow\nsecond\titem", "a\tb b\nmerged", "North\nMay\tJune\n3\t4"
    first = ["First", "Grouped", lines, table, "Energy", "A red bridge", chart, "Speak slowly", "Classic"]
    assert content.text.split("\n\n") == [*first, "Company", "Confidential", "Last", "Reply", "Modern"]
    assert content.unread == {"picture": 2, "film": 1}


MARKDOWN = """
# Heading

- item *one*
- item two[^1]

| a | b |
|---|---|
| c | $\\frac{x}{2} + \\sqrt{y}$ |

[A link](http://a.example/) and `code`.

[^1]: A note.
"""
UNWANTED = {
    "instrText": "the code of a field",
    "delText": "deleted",
    "f": "the place of values of a chart in a workbook",
    "formatCode": "the format of these values",
    "posOffset align pctWidth pctHeight": "places and sizes",
    "lastModifiedBy created modified revision version description keywords lastPrinted category": "states of the file",
    "title creator": "`About` has them, or leaves a default out",
    "attrName tableStyleId": "names for programs",
}


UNWANTED_NAMES = frozenset(" ".join(UNWANTED).split())


class RecordedPackage(Package):
    """A package that keeps the members that were read."""

    made: ClassVar[list["RecordedPackage"]] = []

    def __init__(self, data: bytes, name: str) -> None:
        super().__init__(data, name)
        self.members: dict[str, bytes] = {}
        self.made.append(self)

    def read(self, member: str) -> bytes:
        self.members[member] = super().read(member)
        return self.members[member]


def of_pandoc() -> bytes:
    command = [pypandoc.get_pandoc_path(), "--from=markdown", "--to=docx", "--output=-"]
    return subprocess.run(command, input=MARKDOWN.encode(), capture_output=True, check=True).stdout


def lost(data: bytes, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the texts of elements that are neither read nor unwanted, and the members that have no kind."""
    monkeypatch.setattr(open_xml, "Package", RecordedPackage)
    RecordedPackage.made.clear()
    content = open_xml.read(data, "'a'")
    text = " ".join(f"{content.text} {content.about.title} {content.about.author}".split())
    texts = ["other part"] * ("other part" in content.unread)
    for name, member in RecordedPackage.made[0].members.items():
        root = etree.fromstring(member) if member.startswith(b"<") and not name.endswith(".htm") else None
        for element in () if root is None else root.iter(etree.Element):
            owner = next(element.iterancestors("{*}sp"), None)
            is_placeholder = owner is not None and owner.find(".//{*}ph") is not None
            is_unwanted = etree.QName(element).localname in UNWANTED_NAMES
            is_unwanted |= is_placeholder and re.search("Master|Layout", name) is not None
            words = (element.text or "").replace("_x000B_", " ").split()
            if not is_unwanted and not all(word in text for word in words):
                texts.append(f"{name}: {element.text}")
    return texts


@pytest.mark.parametrize(
    "data",
    [
        of_pandoc,
        lambda: saved(slides()),
        lambda: saved(docx.Document()),
        lambda: saved(pptx.Presentation()),
        lambda: Path(pptx.__file__).with_name("templates").joinpath("default.pptx").read_bytes(),
    ],
)
def test_text_of_all_parts_is_read_or_said_or_unwanted(
    data: Callable[[], bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert lost(data(), monkeypatch) == []


def test_what_no_table_names_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    document = docx.Document()
    relate(document, "somethingNew", "new.xml", "new")
    add(document, f"<w:p>{r('<w:novelty>lost</w:novelty>')}</w:p>")

    assert lost(saved(document), monkeypatch) == ["other part", "word/document.xml: lost"]
