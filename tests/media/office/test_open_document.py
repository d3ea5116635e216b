"""OpenDocument: files of odfpy and pandoc, and elements as LibreOffice writes them."""

import re
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path

import pypandoc
import pytest
from lxml import etree
from odf import chart, dc, draw, office, style, table, text
from odf.element import Element
from odf.opendocument import (
    OpenDocument,
    OpenDocumentChart,
    OpenDocumentSpreadsheet,
    OpenDocumentText,
)

from vlmsearch import InvalidInputError
from vlmsearch.media.office import open_document, read_office
from vlmsearch.media.office.content import Content

P, Span = text.P, text.Span
PREFIXES = ("office", "text", "table", "style", "form", "presentation")
SPACES = "".join(f' xmlns:{prefix}="urn:oasis:names:tc:opendocument:xmlns:{prefix}:1.0"' for prefix in PREFIXES)
SPACES += (
    ' xmlns:draw="urn:oasis:names:tc:opendocument:xmlns:drawing:1.0" xmlns:dc="http://purl.org/dc/elements/1.1/"'
    ' xmlns:svg="urn:oasis:names:tc:opendocument:xmlns:svg-compatible:1.0" xmlns:xlink="http://www.w3.org/1999/xlink"'
    ' xmlns:loext="urn:org:documentfoundation:names:experimental:office:xmlns:loext:1.0"'
)


def with_parts(make: Callable[..., Element], *parts: Element | str, **attributes: object) -> Element:
    """Return an element with texts and elements in their order."""
    element = make(**attributes)
    for part in parts:
        if isinstance(part, str):
            element.addText(part)
        else:
            element.addElement(part)
    return element


def saved(tmp_path: Path, document: OpenDocument, suffix: str) -> Content:
    path = tmp_path / f"file.{suffix}"
    document.save(str(path))
    return read_office(path)


def text_of(tmp_path: Path, *parts: Element) -> str:
    document = OpenDocumentText()
    for part in parts:
        document.text.addElement(part)
    return saved(tmp_path, document, "odt").text


def packed(path: Path, body: str, masters: str = "", members: Mapping[str, bytes] = {}) -> Content:
    """Read a package with a body, master pages and other members."""
    kind = {".odt": "text", ".ods": "spreadsheet", ".odp": "presentation"}[path.suffix]
    with zipfile.ZipFile(path, "w") as file:
        document = f"<office:body><office:{kind}>{body}</office:{kind}></office:body>"
        file.writestr("content.xml", f"<office:document-content{SPACES}>{document}</office:document-content>")
        if masters:
            pages = f"<office:master-styles>{masters}</office:master-styles>"
            file.writestr("styles.xml", f"<office:document-styles{SPACES}>{pages}</office:document-styles>")
        for name, data in members.items():
            file.writestr(name, data)
    return read_office(path)


def test_nothing_behind_a_tab_a_break_a_link_a_note_or_a_span_is_lost(tmp_path: Path) -> None:
    note = with_parts(
        text.Note,
        text.NoteCitation(text="1"),
        with_parts(text.NoteBody, with_parts(P, "Note", Span(text="word"))),
        noteclass="footnote",
    )
    points = with_parts(
        text.List, with_parts(text.ListItem, P(text="Bullet")), with_parts(text.ListItem, P(text="two"))
    )
    cells = [with_parts(table.TableCell, points), with_parts(table.TableCell, P(text="first"), P(text="second"))]

    assert text_of(
        tmp_path,
        with_parts(P, with_parts(Span, "Customer", text.Tab(), "Millerson")),
        with_parts(P, with_parts(Span, "Street", text.LineBreak(), "Town")),
        with_parts(P, "See ", with_parts(text.A, Span(text="link"), href="http://e.org"), " behind"),
        with_parts(P, with_parts(Span, "before", note, " after")),
        with_parts(P, with_parts(Span, "out", Span(text="inn"), "er"), " tail"),
        with_parts(P, with_parts(Span, "a", text.S(c=3), "b"), text.S(), "c"),
        with_parts(table.Table, with_parts(table.TableRow, *cells)),
        P(text="end"),
    ).split("\n\n") == [
        "Customer\tMillerson",
        "Street\nTown",
        "See link behind",
        "before after",
        "outinner tail",
        "a   b c",
        "Bullet two\tfirst second",
        "end",
        "Noteword",
    ]


def test_lists_are_lines_and_a_text_box_does_not_split_a_word(tmp_path: Path) -> None:
    inner = with_parts(text.List, with_parts(text.ListItem, P(text="inner")))
    points = with_parts(
        text.List, with_parts(text.ListItem, P(text="one"), inner), with_parts(text.ListItem, P(text="two"))
    )
    box = with_parts(draw.Frame, with_parts(draw.TextBox, P(text="boxed"), P(text="twice")), anchortype="paragraph")
    picture = with_parts(draw.Frame, anchortype="as-char")
    picture.addElement(draw.Image(href="Pictures/none.png"))

    assert text_of(tmp_path, P(text="list"), points, with_parts(P, "wo", box, "rd ", picture, "end")).split("\n\n") == [
        "list",
        "one\ninner\ntwo",
        "word end",
        "boxed",
        "twice",
    ]


def test_changes_comments_ruby_fields_and_descriptions(tmp_path: Path) -> None:
    read = packed(
        tmp_path / "file.odt",
        "<text:tracked-changes><text:changed-region><text:deletion><office:change-info><dc:creator>Ann</dc:creator>"
        "</office:change-info><text:p>deleted</text:p></text:deletion></text:changed-region></text:tracked-changes>"
        "<office:forms><form:form><form:text form:label='Name' form:current-value='Miller'/>"
        "<form:hidden form:value='no'/>"
        "<form:listbox><form:option form:label='Red'/></form:listbox><form:password form:value='no'/>"
        "<form:properties><form:property office:value='0'/></form:properties></form:form></office:forms>"
        "<text:p>in<text:change-start/>sert<text:change-end/>ed<office:annotation><dc:creator>Ann</dc:creator>"
        "<dc:date>2026-01-01T00:00:00</dc:date><text:p>comment</text:p></office:annotation> word</text:p>"
        "<text:p><text:ruby><text:ruby-base>base</text:ruby-base><text:ruby-text>above</text:ruby-text></text:ruby>s</text:p>"
        "<text:p>On <text:date>May</text:date> <text:user-field-get>shown</text:user-field-get> page "
        "<text:page-number>7</text:page-number><loext:content-control>chosen</loext:content-control></text:p>"
        "<text:h><text:number>1.</text:number>Heading</text:h>"
        "<text:table-of-content><text:table-of-content-source><text:index-title-template>no</text:index-title-template>"
        "</text:table-of-content-source><text:index-body><text:p>entry<text:tab/>1</text:p></text:index-body>"
        "</text:table-of-content>"
        "<text:p>see<draw:frame text:anchor-type='char'><draw:image/><svg:title>a cat</svg:title><svg:desc>it sits"
        "</svg:desc></draw:frame></text:p>"
        "<text:p>\n  laid <text:span>\n out</text:span></text:p>",
    )

    assert read.text.split("\n\n") == [
        *("inserted word", "base(above)s", "On May shown page 7chosen", "1. Heading", "entry\t1", "see", "a cat"),
        *("it sits", "laid out", "Name Miller", "Red", "comment"),
    ]
    assert read.unread == {}


def test_headers_and_footers_stand_once_behind_the_document(tmp_path: Path) -> None:
    edges = (
        "<style:header><text:p>Company<text:tab/>Berlin</text:p></style:header>"
        "<style:footer><text:p>Page <text:page-number>3</text:page-number></text:p>"
        "<text:p><text:date text:fixed='true'>14 March</text:date><text:time>09:00</text:time></text:p>"
        "<text:p>(<text:title>x</text:title>)</text:p></style:footer>"
    )
    pages = "".join(f"<style:master-page style:name='{name}'>{edges}</style:master-page>" for name in "ab")

    assert packed(tmp_path / "file.odt", "<text:p>body</text:p>", pages).text.split("\n\n") == [
        *("body", "Company\tBerlin", "Page", "14 March"),
    ]


def test_cells_are_read_as_they_are_shown(tmp_path: Path) -> None:
    document = OpenDocumentSpreadsheet()
    shown = with_parts(table.TableCell, P(text="12.5%"), valuetype="percentage", value="0.125")
    untyped = with_parts(table.TableCell, P(text="untyped"), with_parts(office.Annotation, P(text="comment")))
    plain = with_parts(table.TableCell, valuetype="date", datevalue="2026-03-14")
    repeated = with_parts(table.TableCell, P(text="again"), numbercolumnsrepeated=1000)
    empty = table.TableCell(numbercolumnsrepeated=16000)
    for name, rows in (
        ("Costs", ([shown, untyped, table.TableCell(), plain, empty], [repeated], [table.TableCell()])),
        ("Secret", ([with_parts(table.TableCell, P(text="one"), P(text="two"))],)),
        ("Empty", ()),
    ):
        sheet = table.Table(name=name, stylename="hidden")
        for number, cells in enumerate(rows):
            sheet.addElement(with_parts(table.TableRow, *cells, numberrowsrepeated=number + 1))
        document.spreadsheet.addElement(sheet)

    assert saved(tmp_path, document, "ods").text == (
        "Costs\n\n12.5%\tuntyped\t\t2026-03-14\nagain\n\nSecret\n\none two\n\ncomment"
    )


def test_slides_notes_and_what_all_slides_show(tmp_path: Path) -> None:
    def shape(content: str, attributes: str = "") -> str:
        return f"<draw:frame {attributes}><draw:text-box>{content}</draw:text-box></draw:frame>"

    read = packed(
        tmp_path / "file.odp",
        "<presentation:footer-decl presentation:name='f'>Confidential</presentation:footer-decl>"
        f"<draw:page>{shape('<text:p>second</text:p>')}<draw:g>{shape('<text:p>grouped</text:p>')}</draw:g>"
        f"<presentation:notes>{shape('<text:p>spoken</text:p>')}</presentation:notes></draw:page>"
        f"<draw:page><draw:custom-shape><text:p>first</text:p></draw:custom-shape></draw:page>",
        "<style:master-page>"
        + shape(
            "<text:p>Click to edit the title</text:p>", "presentation:class='title' presentation:placeholder='true'"
        )
        + shape(
            "<text:p><text:page-number>&lt;number&gt;</text:page-number></text:p>", "presentation:class='page-number'"
        )
        + shape(
            "<text:p>Acme <presentation:footer>&lt;footer&gt;</presentation:footer></text:p>",
            "presentation:class='footer'",
        )
        + f"{shape('<text:p>logo</text:p>')}</style:master-page>",
    )

    assert read.text.split("\n\n") == ["Confidential", "second", "grouped", "spoken", "first", "Acme", "logo"]


def test_charts_equations_and_other_objects(tmp_path: Path) -> None:
    plot = OpenDocumentChart()
    axis = with_parts(chart.Axis, with_parts(chart.Title, P(text="years")), dimension="x")
    cells = [with_parts(table.TableCell, P(text=word)) for word in ("north", "7")]
    rows = with_parts(table.TableRows, with_parts(table.TableRow, *cells))
    local = with_parts(table.Table, rows, name="local-table")
    parts = (with_parts(chart.Title, P(text="Sales")), with_parts(chart.PlotArea, axis), local)
    plot.chart.addElement(with_parts(chart.Chart, *parts, attributes={"class": "chart:bar"}))
    document = OpenDocumentText()
    document.addPicture("cat.png", "image/png", b"picture")
    shown = with_parts(draw.Frame, draw.Object(href=document.addObject(plot)), anchortype="paragraph")
    document.text.addElement(with_parts(P, "before", shown))
    document.text.addElement(P(text="after"))
    read = saved(tmp_path, document, "odt")
    pypandoc.convert_text("See $mc^2$ now", "odt", format="md", outputfile=str(tmp_path / "equation.odt"))

    assert read.text.split("\n\n") == ["before", "Sales", "years", "north\t7", "after"]
    assert read.unread == {"picture": 1}
    assert re.sub(r"\s+", " ", read_office(tmp_path / "equation.odt").text) == "See mc2 now"


def test_embedded_documents_are_read_where_they_stand_or_said(tmp_path: Path) -> None:
    def member(body: str) -> bytes:
        return f"<office:document-content{SPACES}><office:body>{body}</office:body></office:document-content>".encode()

    math = (
        "<draw:object><math xmlns='http://www.w3.org/1998/Math/MathML'><semantics><mrow><mi>E</mi></mrow>"
        "<annotation>E twice</annotation></semantics></math></draw:object>"
    )
    read = packed(
        tmp_path / "file.odt",
        "<text:p><draw:frame text:anchor-type='as-char'><draw:object xlink:href='./Object 1'/></draw:frame> "
        f"and <draw:frame text:anchor-type='as-char'>{math}</draw:frame></text:p><text:p>again<draw:frame>"
        "<draw:object xlink:href='./Object 1'/></draw:frame><draw:object-ole xlink:href='./Object 9'/></text:p>",
        members={
            "Object 1/content.xml": member("<text:p>one<draw:object xlink:href='./Object 2'/></text:p>"),
            "Object 1/Object 2/content.xml": member("<text:p>two<draw:object xlink:href='../../Object 1'/></text:p>"),
            "Object 5/content.xml": member("<text:p>of an older version</text:p>"),
            "Object 9": b"\xd0\xcf\x11\xe0",
            "ObjectReplacements/Object 1": b"picture",
            "Thumbnails/thumbnail.png": b"picture",
            "Basic/Standard/Module1.xml": b"program",
            "Configurations2/images/a.png": b"picture",
            "Pictures/cat.svm": b"picture",
            "Versions/Version1": b"document",
        },
    )

    assert read.text == "one two and E\n\nagain"
    assert read.unread == {"embedded document": 2, "other part": 1, "picture": 1}


def test_an_encrypted_document_is_refused_and_one_with_encrypted_macros_is_read(tmp_path: Path) -> None:
    def manifest(member: str) -> bytes:
        return (
            '<m:manifest xmlns:m="urn:oasis:names:tc:opendocument:xmlns:manifest:1.0"><m:file-entry m:full-path="/"/>'
            f'<m:file-entry m:full-path="{member}"><m:encryption-data/></m:file-entry></m:manifest>'
        ).encode()

    for member in ("content.xml", "encrypted-package"):
        with pytest.raises(InvalidInputError, match="is encrypted") as caught:
            packed(tmp_path / "file.odt", "<text:p>x</text:p>", members={"META-INF/manifest.xml": manifest(member)})
        assert caught.value.code == "unsupported"
    macros = manifest("Basic/Standard/Module1.xml")
    assert packed(tmp_path / "file.odt", "<text:p>x</text:p>", members={"META-INF/manifest.xml": macros}).text == "x"


def test_what_is_around_an_unknown_name_and_in_unknown_elements_is_read(tmp_path: Path) -> None:
    path = tmp_path / "file.odt"
    packed(path, "<text:p>one &amp;name; two<new:thing xmlns:new='urn:x'>three</new:thing>four</text:p>")
    with zipfile.ZipFile(path) as file:
        content = file.read("content.xml").replace(b"&amp;name;", b"&name;")
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("content.xml", b'<!DOCTYPE d [<!ENTITY name SYSTEM "/etc/passwd">]>' + content)

    assert read_office(path).text == "one two" + "threefour"


def test_deep_and_long_documents_are_read_in_time(tmp_path: Path) -> None:
    deep = "<text:span>" * 1500 + "deep" + "</text:span>" * 1500

    assert packed(tmp_path / "file.odt", f"<text:p>{deep} end</text:p>").text == "deep end"
    pieces = "<text:span>a</text:span>b" * 300_000
    assert len(packed(tmp_path / "file.odt", f"<text:p>{pieces}</text:p>").text) == 600_000


def test_all_texts_of_a_document_are_read_or_named_as_unwanted(tmp_path: Path) -> None:
    source = (
        "# Heading\n\nSee [link](https://e.org) and *part*ly.^[note with `code`]\n\n- item\n\n    1. nested\n\n"
        "| a | b |\n|---|---|\n| cell | two |\n\n: caption\n\n> quote\n\nterm\n:   definition\n\n$$e = 1$$\n\n"
        "```python\nx = 1\n```\n\n![picture](none.png)\n"
    )
    path = tmp_path / "file.odt"
    pypandoc.convert_text(source, "odt", format="md", outputfile=str(path), extra_args=["--toc", "--standalone"])
    rich = OpenDocumentText()
    layout = style.PageLayout(name="L")
    rich.automaticstyles.addElement(layout)
    header = with_parts(style.Header, with_parts(P, "header ", text.PageNumber(text="1")))
    rich.masterstyles.addElement(with_parts(style.MasterPage, header, name="M", pagelayoutname=layout))
    comment = with_parts(office.Annotation, dc.Creator(text="Ann"), P(text="comment"))
    box = with_parts(draw.Frame, with_parts(draw.TextBox, P(text="boxed")))
    rich.text.addElement(with_parts(P, "body", comment, " of ", box, Span(text="text")))
    rich.save(str(tmp_path / "rich.odt"))
    unwanted = set(open_document._NAMES["unwanted"]) | set(open_document._NAMES["changing"])

    nodes = 0
    for file in (path, tmp_path / "rich.odt"):
        content = "".join(read_office(file).text.split())
        with zipfile.ZipFile(file) as archive:
            members = [
                archive.read(name) for name in archive.namelist() if name.endswith(("content.xml", "styles.xml"))
            ]
        for node in (
            node for member in members for node in etree.fromstring(member).xpath("//text()[normalize-space()]")
        ):
            parent = node.getparent() if node.is_text else node.getparent().getparent()
            names = {open_document._named(up.tag)[0] for up in (parent, *parent.iterancestors())}
            assert names & unwanted or "".join(node.split()) in content, (node, names)
            nodes += 1
    assert nodes > 30
