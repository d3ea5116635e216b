import datetime as dt
import io
import re
import time
import zipfile
from collections.abc import Callable
from pathlib import Path

import openpyxl
import xlsxwriter
from openpyxl.comments import Comment
from openpyxl.utils.datetime import CALENDAR_MAC_1904
from PIL import Image

from vlmsearch.media.office import read_office
from vlmsearch.media.office.content import Content
from vlmsearch.media.office.layout import CELL, laid_out
from vlmsearch.media.office.sheets import _line


def written(tmp_path: Path, write: Callable[[xlsxwriter.Workbook], None]) -> Path:
    path = tmp_path / "book.xlsx"
    with xlsxwriter.Workbook(path) as book:
        write(book)
    return path


def saved(tmp_path: Path, book: openpyxl.Workbook) -> Content:
    book.save(tmp_path / "book.xlsx")
    return read_office(tmp_path / "book.xlsx")


def changed(path: Path, change: Callable[[dict[str, str]], None]) -> Content:
    """Read a workbook of which text members are changed."""
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name).decode() for name in archive.namelist()}
    change(members)
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in members.items():
            archive.writestr(name, text)
    return read_office(path)


def test_a_row_is_a_line_of_what_a_reader_sees(tmp_path: Path) -> None:
    book = openpyxl.Workbook()
    sheet = book.active
    sheet.title = "Orders"
    day = dt.datetime(2026, 3, 14, 15, 9, 26)  # noqa: DTZ001 - workbooks know no zones
    sheet.append(["Kumquat Ltd", day.date(), 0.125, 1234.5, day, True, None, dt.time(12), "#N/A", "0012345"])
    sheet["B1"].number_format, sheet["C1"].number_format, sheet["D1"].number_format = (
        "mm-dd-yy",
        "0.0%",
        '#,##0.00 "EUR"',
    )
    sheet["H1"].number_format = "h:mm"
    sheet["A2"], sheet["B2"] = "two\nlines\tand a tab", 0.1 + 0.2
    sheet["A4"] = "merged"
    sheet.merge_cells("A4:C4")
    sheet["XFD1048576"] = "far away"

    read = saved(tmp_path, book)

    first = "Kumquat Ltd\t2026-03-14\t12.5%\t1,234.50 EUR\t2026-03-14 15:09:26\tTRUE\t12:00\t#N/A\t0012345"
    assert read.text == f"Orders\n\n{first}\ntwo lines and a tab\t0.3\nmerged\nfar away"
    assert not read.unread


def test_sheets_come_in_their_order_with_hidden_ones(tmp_path: Path) -> None:
    book = openpyxl.Workbook()
    book.active["A1"] = "last"
    book.create_sheet("First", 0)["A1"] = "first"
    hidden = book.create_sheet("Secret", 1)
    hidden.sheet_state = "veryHidden"
    hidden["A8"] = "hidden row"
    hidden.row_dimensions[8].hidden = True

    assert saved(tmp_path, book).text == "First\n\nfirst\n\nSecret\n\nhidden row\n\nSheet\n\nlast"


def test_what_lies_on_a_sheet_follows_it_and_headers_end_the_text(tmp_path: Path) -> None:
    picture = io.BytesIO()
    Image.new("RGB", (8, 8)).save(picture, "PNG")

    def write(book: xlsxwriter.Workbook) -> None:
        sheet = book.add_worksheet("S")
        sheet.write_rich_string("A1", "rich", book.add_format({"bold": True}), "lychee", " text")
        sheet.write_formula("A2", '="for"&"mula"', None, "cached")
        sheet.write_url("A3", "https://example.org", string="a link")
        sheet.write_comment("A1", "a comment")
        sheet.insert_textbox("C3", "a text box")
        sheet.insert_button("C9", {"caption": "a button"})
        sheet.insert_image("G5", "p.png", {"image_data": picture, "description": "a description"})
        sheet.data_validation("A9", {"validate": "integer", "criteria": ">", "value": 0, "input_message": "a prompt"})
        sheet.write_column("E1", ["north", "south"])
        sheet.write_column("F1", [1, 2])
        chart = book.add_chart({"type": "column"})
        trend = {"type": "linear", "name": "a trend"}
        ranges = {"categories": "=S!$E$1:$E$2", "values": "=S!$F$1:$F$2"}
        chart.add_series({"name": "a series", **ranges, "trendline": trend})
        chart.set_title({"name": "a title"})
        sheet.insert_chart("J5", chart)
        sheet.set_header('&L&"Arial,Bold"&14Left&KFF0000 red&RR && D')
        sheet.set_footer("&CPage &P of &N")
        own = book.add_chart({"type": "line"})
        own.add_series({"values": "=S!$F$1:$F$2"})
        own.set_title({"name": "a chart's own sheet"})
        book.add_chartsheet("C").set_chart(own)

    read = read_office(written(tmp_path, write))

    cells, *beside = read.text.split("\n\n")[1:]
    assert cells == "richlychee text\tnorth\t1\ncached\tsouth\t2\na link"
    on_sheet, on_chart_sheet = beside[: beside.index("C")], beside[beside.index("C") :]
    texts = [
        "a prompt",
        "a text box",
        "a description",
        "a title",
        "a series\ta trend\tnorth\tsouth",
        "a button",
        "a comment",
    ]
    assert sorted(on_sheet) == sorted(texts)
    assert on_chart_sheet == ["C", "a chart's own sheet", "Left red R & D", "Page of"]
    assert read.unread == {"picture": 1}


def test_backslashes_in_names_of_members_are_slashes(tmp_path: Path) -> None:
    path = written(tmp_path, lambda book: book.add_worksheet("S").write("A1", "a word"))

    def write_as_dot_net(members: dict[str, str]) -> None:
        renamed = {name.replace("/", "\\"): text for name, text in members.items()}
        members.clear()
        members["[trash]/0000.dat"] = "what Excel threw away"
        members.update(renamed)

    read = changed(path, write_as_dot_net)

    assert (read.text, read.unread) == ("S\n\na word", {})


def test_a_thread_of_comments_is_read_once(tmp_path: Path) -> None:
    book = openpyxl.Workbook()
    book.active["A1"] = "cell"
    book.active["A1"].comment = Comment("[Threaded comment] Your version of Excel ... a remark", "tc={1}")
    book.active["A2"].comment = Comment("an old note", "Ben")
    saved(tmp_path, book)

    def change(members: dict[str, str]) -> None:
        rels = "xl/worksheets/_rels/sheet1.xml.rels"
        kind = "http://schemas.microsoft.com/office/2017/10/relationships/threadedComment"
        target = f'<Relationship Id="t" Type="{kind}" Target="../threadedComments/threadedComment1.xml"/>'
        members[rels] = members[rels].replace("</Relationships>", f"{target}</Relationships>")
        members["xl/threadedComments/threadedComment1.xml"] = (
            '<ThreadedComments xmlns="http://schemas.microsoft.com/office/spreadsheetml/2018/threadedcomments">'
            '<threadedComment ref="A1" id="{1}"><text>a remark</text></threadedComment>'
            '<threadedComment ref="A1" id="{2}" parentId="{1}"><text>an answer</text></threadedComment>'
            "</ThreadedComments>"
        )

    read = changed(tmp_path / "book.xlsx", change)

    assert sorted(read.text.split("\n\n")[1:]) == ["a remark", "an answer", "an old note", "cell"]
    assert not read.unread


def test_strict_names_prefixes_readings_and_escapes(tmp_path: Path) -> None:
    def change(members: dict[str, str]) -> None:
        strings = "xl/sharedStrings.xml"
        members[strings] = members[strings].replace("<t>kanji</t>", '<t>課</t><rPh sb="0" eb="1"><t>カ</t></rPh>')
        for name, text in members.items():
            strict = text.replace("http://schemas.openxmlformats.org/", "http://purl.oclc.org/ooxml/")
            members[name] = text if "package" in text and name.startswith("_rels") else strict
        sheet = members["xl/worksheets/sheet1.xml"]
        members["xl/worksheets/sheet1.xml"] = re.sub(r"<(/?)(\w)", r"<\1x:\2", sheet).replace("xmlns=", "xmlns:x=")

    path = written(
        tmp_path, lambda book: book.add_worksheet("S").write_row("A1", ["kanji", "_x0041_ is A", 5]) and None
    )

    assert changed(path, change).text == "S\n\n課\t_x0041_ is A\t5"


def test_a_formula_without_a_value_and_a_sheet_without_its_member_are_said(tmp_path: Path) -> None:
    book = openpyxl.Workbook()
    book.active["A1"], book.active["B1"] = "=SUM(1,2)", "text"
    book.create_sheet("Lost")
    saved(tmp_path, book)

    read = changed(tmp_path / "book.xlsx", lambda members: members.__delitem__("xl/worksheets/sheet2.xml"))

    assert read.text == "Sheet\n\ntext\n\nLost"
    assert read.unread == {"formula without value": 1, "sheet": 1}


def test_days_from_1904_and_days_that_are_written_out(tmp_path: Path) -> None:
    for epoch, is_written_out in ((CALENDAR_MAC_1904, False), (None, True)):
        book = openpyxl.Workbook()
        book.epoch = epoch or book.epoch
        book.iso_dates = is_written_out
        day = dt.datetime(2026, 3, 14, 15, 9, 26)  # noqa: DTZ001
        book.active.append([day.date(), day])

        assert saved(tmp_path, book).text == "Sheet\n\n2026-03-14\t2026-03-14 15:09:26"


def test_of_a_damaged_sheet_the_beginning_is_read_and_the_damage_said(tmp_path: Path) -> None:
    path = written(tmp_path, lambda book: book.add_worksheet("S").write_column("A1", [1, 2, 3]) and None)

    def change(members: dict[str, str]) -> None:
        sheet = members["xl/worksheets/sheet1.xml"]
        members["xl/worksheets/sheet1.xml"] = sheet[: sheet.index("<v>3")]

    read = changed(path, change)

    assert read.text == "S\n\n1\n2"
    assert read.unread == {"damaged part": 1}


def test_long_space_in_a_cell_is_read_in_linear_time() -> None:
    started = time.process_time()
    assert _line("a \n b" + " " * 30_000 + "c") == "a b" + " " * 30_000 + "c"
    assert laid_out("a" + CELL * 30_000 + "b") == "a" + "\t" * 30_000 + "b"
    assert time.process_time() - started < 3
