"""What a user can put into a file, by format: files that real programs write, with a word of their own for each thing.

`table` reads them and gives the table of the manual: which things are read, and which are said to be not read.
"""

from __future__ import annotations

import io
import json
import re
import subprocess
from collections.abc import Callable, Iterator, Mapping
from email.message import EmailMessage
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from vlmsearch import Paths, Pipeline, SourceOptions
from vlmsearch._util.unread import UNREAD
from vlmsearch.stores.terms import NONE, terms_of

ROWS: Mapping[str, tuple[str, str]] = {
    "title": ("title and author", "titleword authorword"),
    "heading": ("headings", "headingword"),
    "format": ("a word that is formatted in part", "partlyboldword"),
    "tab": ("what follows a tab, a line break", "tabword behindtab breakword behindbreak"),
    "link": ("texts of links", "linkword behindlink"),
    "hyphen": ("a soft hyphen in a word", "softhyphenword"),
    "list": ("lists, nested ones too", "itemword nestedword"),
    "definition": ("terms and definitions", "termword definitionword"),
    "quote": ("quotations", "quoteword"),
    "code": ("code", "codeword"),
    "table": ("tables", "cellword celltwo"),
    "merged": ("merged cells; tables and lists in cells", "mergedword innerword"),
    "caption": ("captions", "captionword"),
    "note": ("footnotes", "footnoteword"),
    "header": ("headers and footers", "headerword footerword"),
    "comment": ("comments", "commentword"),
    "box": ("text boxes", "boxword"),
    "chart": ("charts", "charttitleword seriesword categoryword"),
    "equation": ("equations", "equationword"),
    "changed": ("text that was inserted with changes tracked", "insertedword"),
    "alt": ("descriptions of pictures", "altword"),
    "picture": ("pictures", "said: picture"),
    "embedded": ("files inside", "attachedword"),
    "speaker": ("speaker notes", "speakerword"),
    "hidden": ("hidden slides, sheets, rows and columns", "hiddenword"),
    "group": ("shapes in groups", "groupedword"),
    "shown": ("numbers and dates as they are shown", "12.5% INV-0004711 2026-03-14"),
    "formula": ("results of formulas", "formulaword"),
    "field": ("values of form fields", "fieldword"),
    "output": ("outputs of code", "outputword"),
    "sender": ("sender, recipient, subject", "senderword recipientword subjectword"),
}
"""Rows of the table: a thing in words, and the words that are read where a file has it; or the kind that is said."""

Written = Callable[[Path], set[str]]
"""A function that writes a file, or another one beside it, too, and returns the rows that they have."""

_MARKDOWN = """\
---
title: titleword
author: authorword
---

# headingword

See [linkword](https://example.org/) behindlink and part*ly*bold**word**, soft\u00adhyphen\u00adword.^[footnoteword]

breakword\\
behindbreak

- itemword

    1. nestedword

| a | b |
|---|---|
| cellword | celltwo |

: captionword

> quoteword

```
codeword = 1
```

$$equationword = 1$$

![altword](pic.png)

termword
:   definitionword
"""
_WRITTEN = {"title", "heading", "format", "link", "hyphen", "list", "quote", "code", "table", "caption", "note"}
_WRITTEN |= {"equation", "alt", "picture", "definition"}
"""Rows of what pandoc makes of the text."""


def pandoc(path: Path, source: str = _MARKDOWN, *options: str) -> Path:
    """Write a file with pandoc, in the format that its name ends in."""
    import pypandoc
    from PIL import Image

    Image.new("RGB", (64, 64), "red").save(path.parent / "pic.png")
    command = [pypandoc.get_pandoc_path(), "--standalone", *options, "--output", path.name]
    subprocess.run(command, input=source.encode(), cwd=path.parent, check=True, capture_output=True)
    return path


def write_docx(path: Path) -> set[str]:
    import docx
    from docx.oxml import parse_xml

    space = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'
    document = docx.Document(str(pandoc(path)))
    document.add_paragraph("tabword\tbehindtab")
    document.sections[0].header.paragraphs[0].text = "headerword"
    document.sections[0].footer.paragraphs[0].text = "footerword"
    commented = document.add_paragraph("commented ")
    document.add_comment(commented.runs, text="commentword", author="A")
    table = document.add_table(2, 2)
    table.cell(0, 0).merge(table.cell(0, 1)).text = "mergedword"
    table.cell(1, 0).add_table(1, 1).cell(0, 0).text = "innerword"
    run = f"<w:r {space}><w:t>insertedword</w:t></w:r>"
    deleted = f'<w:del {space} w:id="8" w:author="A"><w:r><w:delText>deletedword</w:delText></w:r></w:del>'
    for change in (f'<w:ins {space} w:id="7" w:author="A">{run}</w:ins>', deleted):
        commented._element.append(parse_xml(change))
    box = (
        f'<w:r {space} xmlns:v="urn:schemas-microsoft-com:vml"><w:pict><v:shape><v:textbox><w:txbxContent><w:p><w:r>'
        "<w:t>boxword</w:t></w:r></w:p></w:txbxContent></v:textbox></v:shape></w:pict></w:r>"
    )
    document.add_paragraph()._element.append(parse_xml(box))
    document.save(str(path))
    return {*_WRITTEN, "tab", "header", "comment", "merged", "changed", "box"}


def write_pptx(path: Path) -> set[str]:
    from PIL import Image
    from pptx import Presentation
    from pptx.chart.data import CategoryChartData
    from pptx.enum.chart import XL_CHART_TYPE
    from pptx.util import Inches

    deck = Presentation()
    deck.core_properties.title, deck.core_properties.author = "titleword", "authorword"
    size = (Inches(1), Inches(1), Inches(4), Inches(2))
    slide = deck.slides.add_slide(deck.slide_layouts[5])
    slide.shapes.title.text = "headingword"
    frame = slide.shapes.add_textbox(*size).text_frame
    frame.text = "boxword tabword\tbehindtab breakword\vbehindbreak soft\u00adhyphen\u00adword"
    paragraph = frame.add_paragraph()
    for text, is_bold in (("part", False), ("lybold", True), ("word", False)):
        run = paragraph.add_run()
        run.text, run.font.bold = text, is_bold
    link = paragraph.add_run()
    link.text, link.hyperlink.address = " linkword", "https://example.org/"
    paragraph.add_run().text = " behindlink"
    for level, text in enumerate(("itemword", "nestedword")):
        item = frame.add_paragraph()
        item.text, item.level = text, level
    table = slide.shapes.add_table(2, 2, *size).table
    table.cell(0, 0).merge(table.cell(0, 1))
    table.cell(0, 0).text = "mergedword innerword"
    table.cell(1, 0).text, table.cell(1, 1).text = "cellword", "celltwo"
    group = slide.shapes.add_group_shape().shapes.add_group_shape()
    group.shapes.add_textbox(*size).text_frame.text = "groupedword"
    data: Any = CategoryChartData()  # type: ignore[no-untyped-call]
    data.categories = ["categoryword"]
    data.add_series("seriesword", (3,))
    chart = slide.shapes.add_chart(XL_CHART_TYPE.COLUMN_CLUSTERED, *size, data).chart
    chart.has_title, chart.chart_title.text_frame.text = True, "charttitleword"
    slide.notes_slide.notes_text_frame.text = "speakerword"
    picture = io.BytesIO()
    Image.new("RGB", (64, 64), "red").save(picture, "PNG")
    slide.shapes.add_picture(picture, *size[:2])._element.nvPicPr.cNvPr.set("descr", "altword")
    hidden = deck.slides.add_slide(deck.slide_layouts[5])
    hidden.shapes.title.text = "hiddenword"
    hidden._element.set("show", "0")
    deck.save(str(path))
    rows = "title heading box tab hyphen format link list table merged group chart speaker alt picture hidden"
    return set(rows.split())


def write_xlsx(path: Path) -> set[str]:
    from datetime import date

    import xlsxwriter
    from PIL import Image

    book = xlsxwriter.Workbook(str(path))
    book.set_properties({"title": "titleword", "author": "authorword"})
    sheet = book.add_worksheet("headingword")
    bold, shares = book.add_format({"bold": True}), book.add_format({"num_format": "0.0%"})
    numbers, days = (book.add_format({"num_format": form}) for form in ('"INV-"0000000', "yyyy-mm-dd"))
    sheet.write_row("A1", ["cellword", "celltwo", "breakword\nbehindbreak", "tabword\tbehindtab"])
    sheet.write_rich_string("A2", "part", bold, "lybold", "word")
    sheet.write_number("A3", 0.125, shares)
    sheet.write_number("B3", 4711, numbers)
    sheet.write_datetime("C3", date(2026, 3, 14), days)
    sheet.write_formula("D3", '="formula"&"word"', None, "formulaword")
    sheet.merge_range("A4:C4", "mergedword innerword")
    sheet.write_url("A5", "https://example.org/", string="linkword behindlink soft\u00adhyphen\u00adword")
    sheet.write_comment("A5", "commentword")
    sheet.insert_textbox("F6", "boxword")
    sheet.set_header("&Lheaderword&R&P")
    sheet.set_footer("&Cfooterword")
    sheet.write("A9", "hiddenword")
    sheet.set_row(8, None, None, {"hidden": True})
    picture = io.BytesIO()
    Image.new("RGB", (64, 64), "red").save(picture, "PNG")
    sheet.insert_image("F20", "pic.png", {"image_data": picture, "description": "altword"})
    chart = book.add_chart({"type": "column"})
    values = {"name": "seriesword", "categories": "=data!$A$1:$A$1", "values": "=data!$B$1:$B$1"}
    chart.add_series({**values, "categories_data": ["categoryword"], "values_data": [1]})
    chart.set_title({"name": "charttitleword"})
    sheet.insert_chart("F30", chart)
    data = book.add_worksheet("data")
    data.write_row("A1", ["categoryword", 1])
    data.hide()
    book.close()
    rows = "title heading table tab format shown formula merged link hyphen comment box header hidden alt picture chart"
    return set(rows.split())


def write_odt(path: Path) -> set[str]:
    from odf import dc, draw, office, style, table, text
    from odf.opendocument import OpenDocumentText

    pandoc(path)
    document = OpenDocumentText()
    body = document.text
    paragraph = text.P()
    span = text.Span(text="tabword")
    for element in (text.Tab(), text.Span(text="behindtab breakword"), text.LineBreak()):
        span.addElement(element)
    span.addText("behindbreak")
    note = office.Annotation()
    note.addElement(dc.Creator(text="A"))
    note.addElement(text.P(text="commentword"))
    frame, box = draw.Frame(width="5cm", height="2cm"), draw.TextBox()
    box.addElement(text.P(text="boxword"))
    frame.addElement(box)
    for element in (span, note, frame):
        paragraph.addElement(element)
    body.addElement(paragraph)
    grid, row, cell = table.Table(), table.TableRow(), table.TableCell(numbercolumnsspanned=2)
    points, point = text.List(), text.ListItem()
    point.addElement(text.P(text="innerword"))
    points.addElement(point)
    cell.addElement(text.P(text="mergedword"))
    cell.addElement(points)
    row.addElement(cell)
    grid.addElement(row)
    body.addElement(grid)
    layout = style.PageLayout(name="L")
    document.automaticstyles.addElement(layout)
    master = style.MasterPage(name="M", pagelayoutname=layout)
    for kind, word in ((style.Header, "headerword"), (style.Footer, "footerword")):
        edge = kind()
        edge.addElement(text.P(text=word))
        master.addElement(edge)
    document.masterstyles.addElement(master)
    document.save(str(path.with_name("more.odt")))
    return {*_WRITTEN, "tab", "comment", "box", "merged", "header"}


def write_ods(path: Path) -> set[str]:
    from odf import dc, office, table, text
    from odf.opendocument import OpenDocumentSpreadsheet

    document = OpenDocumentSpreadsheet()
    document.meta.addElement(dc.Title(text="titleword"))
    document.meta.addElement(dc.Creator(text="authorword"))
    sheet, row = table.Table(name="headingword"), table.TableRow()
    shown = {"percentage": ("0.125", "12.5%"), "float": ("4711", "INV-0004711")}
    for kind, (value, written) in shown.items():
        cell = table.TableCell(valuetype=kind, value=value)
        cell.addElement(text.P(text=written))
        row.addElement(cell)
    day = table.TableCell(valuetype="date", datevalue="2026-03-14")
    day.addElement(text.P(text="2026-03-14"))
    formula = table.TableCell(valuetype="string", stringvalue="formulaword", formula='of:="formula"&"word"')
    formula.addElement(text.P(text="formulaword"))
    untyped = table.TableCell()
    untyped.addElement(text.P(text="cellword"))
    note = office.Annotation()
    note.addElement(text.P(text="commentword"))
    untyped.addElement(note)
    merged = table.TableCell(numbercolumnsspanned=2)
    linked = text.P(text="part")
    linked.addElement(text.Span(text="lybold"))
    linked.addText("word ")
    linked.addElement(text.A(href="https://example.org/", text="linkword"))
    linked.addText(" behindlink celltwo soft\u00adhyphen\u00adword")
    for paragraph in (text.P(text="mergedword"), text.P(text="innerword"), linked):
        merged.addElement(paragraph)
    for cell in (day, formula, untyped, merged, table.CoveredTableCell()):
        row.addElement(cell)
    sheet.addElement(row)
    document.spreadsheet.addElement(sheet)
    secret, hidden_row, hidden = table.Table(name="b"), table.TableRow(visibility="collapse"), table.TableCell()
    hidden.addElement(text.P(text="hiddenword"))
    hidden_row.addElement(hidden)
    secret.addElement(hidden_row)
    document.spreadsheet.addElement(secret)
    document.save(str(path))
    return {"title", "heading", "shown", "formula", "table", "comment", "merged", "format", "link", "hyphen", "hidden"}


def write_odp(path: Path) -> set[str]:
    from odf import dc, draw, presentation, style, text
    from odf.opendocument import OpenDocumentPresentation

    document = OpenDocumentPresentation()
    document.meta.addElement(dc.Title(text="titleword"))
    document.meta.addElement(dc.Creator(text="authorword"))
    layout = style.PageLayout(name="L")
    document.automaticstyles.addElement(layout)
    master = style.MasterPage(name="M", pagelayoutname=layout)
    document.masterstyles.addElement(master)
    page, group = draw.Page(masterpagename=master, name="one"), draw.G()
    paragraph = text.P(text="boxword part")
    paragraph.addElement(text.Span(text="lybold"))
    paragraph.addText("word tabword")
    paragraph.addElement(text.Tab())
    paragraph.addText("behindtab breakword")
    paragraph.addElement(text.LineBreak())
    paragraph.addText("behindbreak soft\u00adhyphen\u00adword")
    notes = presentation.Notes()
    for where, content in ((page, paragraph), (group, text.P(text="groupedword")), (notes, text.P(text="speakerword"))):
        frame, box = draw.Frame(width="5cm", height="2cm"), draw.TextBox()
        box.addElement(content)
        frame.addElement(box)
        where.addElement(frame)
    page.addElement(group)
    page.addElement(notes)
    document.presentation.addElement(page)
    document.save(str(path))
    return {"title", "box", "format", "tab", "hyphen", "group", "speaker"}


def write_rtf(path: Path) -> set[str]:
    pandoc(path)
    return set(_WRITTEN)


def write_epub(path: Path) -> set[str]:
    pandoc(path, _MARKDOWN, "--mathml")
    return set(_WRITTEN)


def write_html(path: Path) -> set[str]:
    pandoc(path, _MARKDOWN, "--mathml", "--embed-resources")
    page = path.read_text()
    more = (
        "<pre>tabword\tbehindtab</pre><table><tr><td colspan=2>mergedword<table><tr><td>innerword</table></table>"
        "<ins>insertedword</ins><form><input value=fieldword></form><div hidden>hiddenword</div></body>"
    )
    path.write_text(page.replace("</body>", more))
    return {*_WRITTEN, "tab", "merged", "changed", "field", "hidden"}


def write_pdf(path: Path) -> set[str]:
    from pypdf import PdfWriter
    from pypdf.annotations import FreeText, Text
    from reportlab.pdfgen import canvas
    from weasyprint import HTML

    page = pandoc(path.with_suffix(".html"), _MARKDOWN, "--mathml", "--embed-resources", "--to", "html").read_text()
    running = "<style>@page { @top-center { content: 'headerword' } @bottom-center { content: 'footerword' } }</style>"
    HTML(string=page.replace("</head>", f"{running}</head>")).write_pdf(str(path))
    form = canvas.Canvas(str(path.with_name("_form.pdf")))
    form.drawString(80, 800, "form")
    form.acroForm.textfield(name="f", x=80, y=750, width=200, height=22, value="fieldword", fontName="Helvetica")
    form.save()
    writer = PdfWriter(clone_from=str(path))
    writer.append(str(path.with_name("_form.pdf")))
    writer.add_annotation(0, FreeText(text="boxword", rect=(80, 500, 300, 540)))
    writer.add_annotation(0, Text(text="commentword", rect=(80, 400, 100, 420)))
    writer.add_metadata({"/Title": "titleword", "/Author": "authorword"})
    writer.add_attachment("notes.txt", b"attachedword")
    writer.write(str(path))
    return _WRITTEN - {"alt", "picture", "equation"} | {"header", "field", "box", "comment", "embedded"}


def write_eml(path: Path) -> set[str]:
    mail = EmailMessage()
    mail["From"], mail["To"] = "senderword <a@example.org>", "recipientword <b@example.org>"
    mail["Subject"] = "titleword subjectword"
    mail.set_content("quoteword tabword\tbehindtab breakword\nbehindbreak linkword behindlink")
    page = (
        "<p>quoteword tabword behindtab breakword<br>behindbreak <a href='https://example.org/'>linkword</a> behindlink"
    )
    mail.add_alternative(page, subtype="html")
    mail.add_attachment("attachedword", filename="notes.txt")
    path.write_bytes(mail.as_bytes())
    return {"sender", "quote", "tab", "link", "embedded"}


def write_ipynb(path: Path) -> set[str]:
    pandoc(path, _MARKDOWN.replace("```\n", "```code\n", 1))
    book = json.loads(path.read_text())
    output = {"output_type": "stream", "name": "stdout", "text": ["outputword\n"]}
    shown = {"output_type": "display_data", "metadata": {}, "data": {"image/png": "iVBORw0KGgo="}}
    cell = {"cell_type": "code", "execution_count": 1, "metadata": {}, "source": ["codeword = 1"]}
    book["cells"].append({**cell, "outputs": [output, shown]})
    path.write_text(json.dumps(book))
    return {"heading", "link", "list", "quote", "code", "table", "output", "picture"}


def write_md(path: Path) -> set[str]:
    path.write_text(_MARKDOWN)
    return {
        "title",
        "heading",
        "link",
        "hyphen",
        "list",
        "quote",
        "code",
        "table",
        "caption",
        "note",
        "equation",
        "alt",
        "definition",
    }


FORMATS: Mapping[str, Written] = {
    "docx": write_docx,
    "odt": write_odt,
    "rtf": write_rtf,
    "xlsx": write_xlsx,
    "ods": write_ods,
    "pptx": write_pptx,
    "odp": write_odp,
    "pdf": write_pdf,
    "epub": write_epub,
    "html": write_html,
    "eml": write_eml,
    "ipynb": write_ipynb,
    "md": write_md,
}
"""The columns of the table, by the ending of their files."""


def outcomes(suffix: str, folder: Path) -> dict[str, str]:
    """Write a file, index it, and return what became of each thing in it: ``read``, ``said`` or ``lost``."""
    path = folder / f"file.{suffix}"
    rows = FORMATS[suffix](path)
    with Pipeline.open(encoder="mock:", store="mock:") as pipeline:
        files = sorted(folder.glob(f"[!_]*.{suffix}"))
        report = pipeline.index(Paths(files, options=SourceOptions(office=True, pdf=True)))
        assert not report.rejects, report.rejects
        documents = pipeline.store.get(list(pipeline.store.ids()))
    texts = " ".join(f"{document.text} {' '.join(map(str, document.metadata.values()))}" for document in documents)
    assert "deletedword" not in texts
    unread = " ".join(str(document.metadata.get(UNREAD, "")) for document in documents)
    return {row: _outcome(row, texts, unread) for row in rows}


def _outcome(row: str, texts: str, unread: str) -> str:
    words = ROWS[row][1]
    if words.startswith("said: "):
        return "said" if words.removeprefix("said: ") in unread else "lost"
    if row == "hyphen":  # texts keep it, and words do not have it
        return "read" if set(words.split()) <= set(terms_of(texts, NONE)[0]) else "lost"
    if all(re.search(rf"(?<!\w){re.escape(word)}(?!\w)", texts.casefold()) for word in words.casefold().split()):
        return "read"
    kinds = {"embedded": "attachment", "chart": "chart"}
    return "said" if kinds.get(row, row) in unread else "lost"


def table(folder: Path) -> str:
    """Return the table of the manual, in Markdown."""
    columns = {}
    for suffix in FORMATS:
        (folder / suffix).mkdir()
        columns[suffix] = outcomes(suffix, folder / suffix)
    return "\n".join(_lines(columns))


def _lines(columns: Mapping[str, Mapping[str, str]]) -> Iterator[str]:
    yield f"| | {' | '.join(f'`.{suffix}`' for suffix in columns)} |"
    yield f"|---|{'---|' * len(columns)}"
    for row, (name, _) in ROWS.items():
        yield f"| {name} | {' | '.join(column.get(row, '') for column in columns.values())} |"


def in_manual(text: str) -> dict[str, dict[str, str]]:
    """Return the outcomes that the table in the manual says, by ending."""
    names = {name: row for row, (name, _) in ROWS.items()}
    lines = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line.startswith("|")
    ]
    head = next(number for number, line in enumerate(lines) if line[0] == "" and line[1] == "`.docx`")
    columns = [cell.strip("`.") for cell in lines[head][1:]]
    said: dict[str, dict[str, str]] = {suffix: {} for suffix in columns}
    for name, *cells in lines[head + 2 : head + 2 + len(names)]:
        for suffix, cell in zip(columns, cells, strict=True):
            said[suffix] |= {names[name]: cell} if cell else {}
    return said


if __name__ == "__main__":  # python -m tests.support.media_matrix, where what is read has changed
    with TemporaryDirectory() as written:
        print(table(Path(written)))
