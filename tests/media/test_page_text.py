"""Texts of pages that programs people use have written: Chromium, WeasyPrint, typst, reportlab and pypdf."""

import json
import shutil
import subprocess
import unicodedata
from collections.abc import Callable
from pathlib import Path

import pytest
import typst
import weasyprint
from pypdf import PdfWriter
from pypdf.annotations import FreeText, Highlight, Link, Popup, Text
from pypdf.generic import (
    ArrayObject,
    BooleanObject,
    DecodedStreamObject,
    DictionaryObject,
    FloatObject,
    NameObject,
    NumberObject,
    TextStringObject,
)
from reportlab.pdfbase import pdfmetrics
from reportlab.pdfbase.cidfonts import UnicodeCIDFont
from reportlab.pdfbase.ttfonts import TTFont
from reportlab.pdfgen.canvas import Canvas

from vlmsearch import Paths, Pipeline, SourceOptions
from vlmsearch.media import pdf

ARABIC = "مرحبا بالعالم. اللغة العربية جميلة، وفي عام 2024 كان عدد السكان 1,234 نسمة. سلام إلى الأطفال"
HEBREW = "שלום עולם. בשנת 2024 היו בעיר 1,234 תושבים, וספרים רבים היו שם"
RAISED = [("x", "2"), (" and y", "3"), (" hold on the 1", "st"), (" of May", "12"), (" we met", "")]
Print = Callable[[Path, str], Path]


def by_chromium(path: Path, body: str) -> Path:
    page = path.with_suffix(".html")
    page.write_text(f'<meta charset=utf-8><style>body{{font:16px "DejaVu Sans"}}</style>{body}')
    browser = shutil.which("chromium") or "chromium"
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--no-pdf-header-footer", f"--print-to-pdf={path}"]
    subprocess.run([browser, *options, page.as_uri()], check=True, capture_output=True, timeout=120)
    return path


def by_weasyprint(path: Path, body: str) -> Path:
    weasyprint.HTML(string=f'<style>body{{font:16px "DejaVu Sans"}}</style>{body}').write_pdf(path)
    return path


BROWSERS = pytest.mark.parametrize("printed", [by_chromium, by_weasyprint])


def by_typst(path: Path, body: str) -> Path:
    source = path.with_suffix(".typ")
    source.write_text(f'#set text(font: "DejaVu Sans")\n{body}')
    typst.compile(str(source), output=str(path))
    return path


def text_of(path: Path) -> str:
    return "\n".join(page.text for page in pdf.read_pages(path) if isinstance(page, pdf.Page))


def on_one_page(path: Path, *lines: str) -> Path:
    canvas = Canvas(str(path))
    for i, line in enumerate(lines):
        canvas.drawString(80, 760 - 16 * i, line)
    canvas.save()
    return path


def annotations_of(writer: PdfWriter) -> ArrayObject:
    annotations = writer.pages[0]["/Annots"]
    assert isinstance(annotations, ArrayObject)
    return annotations


# ---- lines


@BROWSERS
def test_raised_and_lowered_characters_stay_on_their_line(tmp_path: Path, printed: Print) -> None:
    body = "".join(f"{text}<sup>{raised}</sup>" for text, raised in RAISED)
    text = text_of(printed(tmp_path / "a.pdf", f"<p>{body}. H<sub>2</sub>O and CO<sub>2</sub> too.</p><p>Next</p>"))
    assert text == "x2 and y3 hold on the 1st of May12 we met. H2O and CO2 too.\nNext"


def test_raised_characters_and_formulas_of_typst_stay_on_their_line(tmp_path: Path) -> None:
    body = "".join(f"{text}#super[{raised}]" for text, raised in RAISED)
    assert text_of(by_typst(tmp_path / "a.pdf", f"{body}\n\n$x^2 + y_1 = z$ here")) == (
        "x2 and y3 hold on the 1st of May12 we met\n\U0001d4652 + \U0001d4661 = \U0001d467 here"
    )


def test_columns_and_lines_below_each_other_stay_apart(tmp_path: Path) -> None:
    canvas = Canvas(str(tmp_path / "a.pdf"))
    for left, name in ((60, "left"), (320, "right")):
        for i in range(4):
            canvas.drawString(left, 760 - 12 * i, f"{name} {i}")
    canvas.drawString(80, 600, "a")
    canvas.drawString(86, 588, "b")
    canvas.save()
    expected = [f"{name} {i}" for name in ("left", "right") for i in range(4)]
    assert text_of(tmp_path / "a.pdf").split("\n") == [*expected, "a", "b"]


def test_a_letter_that_is_drawn_after_its_exponent_is_not_behind_it(tmp_path: Path) -> None:
    canvas = Canvas(str(tmp_path / "a.pdf"))
    canvas.drawString(60, 780, "Female 33")
    canvas.setFont("Helvetica", 7)
    canvas.drawString(67, 766, "2")
    canvas.setFont("Helvetica", 12)
    canvas.drawString(60, 760, "v = 17")
    canvas.save()
    assert text_of(tmp_path / "a.pdf") == "Female 33\n2\nv = 17"


def test_lines_from_top_to_bottom_are_read(tmp_path: Path) -> None:
    pdfmetrics.registerFont(UnicodeCIDFont("HeiseiMin-W3", isVertical=True))
    canvas = Canvas(str(tmp_path / "a.pdf"))
    canvas.setFont("HeiseiMin-W3", 20)
    canvas.drawString(500, 760, "吾輩は猫である")
    canvas.save()
    assert text_of(tmp_path / "a.pdf") == "吾輩は猫である"


def test_a_letter_that_its_font_does_not_name_is_said(tmp_path: Path) -> None:
    writer = PdfWriter(clone_from=on_one_page(tmp_path / "a.pdf", "cases"))
    stream = DecodedStreamObject()
    stream.set_data(b"BT /F1 12 Tf 60 760 Td (Con\\037rmed cases) Tj ET")
    writer.pages[0][NameObject("/Contents")] = writer._add_object(stream)
    writer.write(tmp_path / "b.pdf")
    [page] = pdf.read_pages(tmp_path / "b.pdf", is_drawn=False)
    assert isinstance(page, pdf.Page)
    assert (page.text, page.unread) == ("Con\ufffdrmed cases", {"unreadable character": 1})


def test_a_letter_without_a_character_is_said(tmp_path: Path) -> None:
    weasyprint.HTML(string="<p>Quay wall").write_pdf(tmp_path / "a.pdf")
    writer = PdfWriter(clone_from=tmp_path / "a.pdf")
    [font] = writer.pages[0]["/Resources"]["/Font"].values()  # type: ignore[index]
    names = font.get_object()["/ToUnicode"]
    names.set_data(names.get_data().replace(b"<0077>", b"<0000>"))  # as Chromium has it for the first of some fonts
    writer.write(tmp_path / "b.pdf")
    [page] = pdf.read_pages(tmp_path / "b.pdf", is_drawn=False)
    assert isinstance(page, pdf.Page)
    assert (page.text, page.unread) == ("Quay \ufffdall", {"unreadable character": 1})


# ---- hyphens


@BROWSERS
def test_a_hyphen_that_a_line_adds_goes_and_that_of_a_word_stays(tmp_path: Path, printed: Print) -> None:
    body = '<div style="width:90px"><p>manu&shy;facturing</p><p>a well-known fact</p><p>a self-employed</p></div>'
    path = printed(tmp_path / "a.pdf", body)
    assert text_of(path) == "manufacturing\na well-\nknown fact\na self-\nemployed"
    with Pipeline.open(encoder="onnx:demo", store=f"sqlite:{tmp_path / 'index'}") as pipe:
        pipe.index(Paths([path], options=SourceOptions(pdf=True)))
        for query in ("manufacturing", "well-known", "wellknown", "employed", "self-employed"):
            ranks = {match.document.id[-7:]: match.fields["words"].rank for match in pipe.search(query, min_score=0)}
            assert ranks["#page=1"] == 1, query


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (["a long hyphen-", "ation word"], "a long hyphenation word"),
        (["as is well-known, a well-", "known fact"], "as is well-known, a well-\nknown fact"),
        (["The author Jean-", "Paul wrote"], "The author Jean-\nPaul wrote"),
        (["Bonn hat eine S-", "Bahn"], "Bonn hat eine S-\nBahn"),
        (["long or short term, long-", "term plans"], "long or short term, long-\nterm plans"),
        (["the longer words, longer-", "words both"], "the longer words, longer-\nwords both"),
        (["state-of-", "the-art work"], "state-of-\nthe-art work"),
        (["pages 12-", "13 of it"], "pages 12-\n13 of it"),
    ],
)
def test_a_hyphen_is_judged_by_the_words_of_the_file(tmp_path: Path, lines: list[str], expected: str) -> None:
    assert text_of(on_one_page(tmp_path / "a.pdf", *lines)) == expected


def test_words_of_earlier_pages_tell_how_a_word_is_written(tmp_path: Path) -> None:
    canvas = Canvas(str(tmp_path / "a.pdf"))
    for lines in (["a re-election"], ["their re-", "election"]):
        for i, line in enumerate(lines):
            canvas.drawString(80, 700 - 16 * i, line)
        canvas.showPage()
    canvas.save()
    assert text_of(tmp_path / "a.pdf") == "a re-election\ntheir re-\nelection"


# ---- from the right


@BROWSERS
def test_arabic_and_hebrew_are_read_from_their_beginning(tmp_path: Path, printed: Print) -> None:
    body = f"<p dir=rtl lang=ar>{ARABIC}</p><p dir=rtl lang=he>{HEBREW}</p><p>The words كتب كثيرة mean many books.</p>"
    lines = text_of(printed(tmp_path / "a.pdf", body)).split("\n")
    assert " ".join(lines[:-2]) == ARABIC
    assert lines[-2:] == [HEBREW, "The words كتب كثيرة mean many books."]


def test_a_file_in_arabic_has_its_english_lines_in_order(tmp_path: Path) -> None:
    body = f'#set text(dir: rtl, lang: "ar")\n{ARABIC}\n\n#text(dir: ltr, lang: "en")[The area is 42 of 50.]'
    *lines, last = text_of(by_typst(tmp_path / "a.pdf", body)).split("\n")
    assert " ".join(" ".join(lines).split()) == ARABIC
    assert last == "The area is 42 of 50."


MIXED = {
    "اتصل بنا على test@example.com أو 0123-456 اليوم": "ar",
    "الطراز ABC-12 (الجديد) متاح [الآن] هنا": "ar",
    "زوروا https://example.com/a_b?x=1 قبل 2024-05-17 شكرا": "ar",
    "درجة الحرارة -5 والنسبة 25% والوقت 10:30 مساء": "ar",
    "قال: «السلام عليكم» للفريق (Hello World).": "ar",
    "يستخدم الفريق Microsoft Teams.": "ar",
    "أ) البند الأول": "ar",
    "العدد ١٢٣٤ والسنة ٢٠٢٤ هنا": "ar",
    "(א) סעיף ראשון [ראו הערה (ב) למטה]": "he",
    "כתבו אל test@example.com או חייגו 03-1234567 בין 9:00-17:00": "he",
    "דגם ABC-12 של Microsoft Office 365 עולה $50 בלבד, או 25% פחות": "he",
    'צה"ל ב-15 במאי 1948, -5 מעלות': "he",
    "قیمت ۱۲٬۵۰۰ تومان و ۲۵٪ تخفیف (ویژه) است": "fa",  # noqa: RUF001
    "In Hebrew שלום עולם means hello; in Arabic مرحبا (greeting) too.": "en",
    "He said «سلام» (peace), then left 3-4 times.": "en",
    "كَتَبَ الوَلَدُ الدَّرْسَ": "ar",
}


def written(printed: Print, path: Path, lines: dict[str, str]) -> list[str]:
    body = ""
    for line, language in lines.items():
        direction = "ltr" if language == "en" else "rtl"
        if printed is by_typst:
            text = json.dumps(line, ensure_ascii=False)
            body += f'#text(dir: {direction}, lang: "{language}", {text})\n\n'
        else:
            body += f"<p dir={direction} lang={language}>{line}</p>"
    return text_of(printed(path, body)).split("\n")


@pytest.mark.parametrize("printed", [by_chromium, by_weasyprint, by_typst])
def test_lines_from_right_have_what_is_from_left_and_brackets_and_marks_in_order(
    tmp_path: Path, printed: Print
) -> None:
    assert written(printed, tmp_path / "a.pdf", MIXED) == [unicodedata.normalize("NFC", line) for line in MIXED]


def test_words_with_points_are_whole(tmp_path: Path) -> None:
    arabic = ("قَالَ رَسُولُ اللَّهِ", "إِنَّا أَعْطَيْنَاكَ الْكَوْثَرَ", "قُلْ هُوَ اللَّهُ أَحَدٌ", "مَالِكِ يَوْمِ الدِّينِ")
    lines = dict.fromkeys(arabic, "ar") | dict.fromkeys(("בְּרֵאשִׁית בָּרָא אֱלֹהִים", "שְׁמַע יִשְׂרָאֵל"), "he")
    assert written(by_chromium, tmp_path / "a.pdf", lines) == [unicodedata.normalize("NFC", line) for line in lines]


def test_joiners_stay_between_their_letters(tmp_path: Path) -> None:
    line = "می‌خواهم کتاب‌ها را بخوانم (۱۲۳) در سال ۱۴۰۳"  # noqa: RUF001
    assert written(by_typst, tmp_path / "a.pdf", {line: "fa"}) == [line]


def test_presentation_forms_and_words_drawn_from_their_end_are_put_right(tmp_path: Path) -> None:
    canvas = Canvas(str(tmp_path / "a.pdf"))
    pdfmetrics.registerFont(TTFont("DejaVu", "DejaVuSans.ttf"))
    for drawn in ("\ufedd\ufe8e\ufed3\ufec1\ufef7\ufe8d \ufee1\ufefc\ufeb3", "םולש", "مدرسة كبيرة مرحبا"):
        canvas.setFont("DejaVu", 14)
        canvas.drawString(80, 760, drawn)
        canvas.showPage()
    canvas.save()
    assert text_of(tmp_path / "a.pdf").split("\n") == ["سلام الأطفال", "שלום", "مدرسة كبيرة مرحبا"]


# ---- forms and annotations


def test_a_form_says_once_what_is_filled_in(tmp_path: Path) -> None:
    canvas = Canvas(str(tmp_path / "form.pdf"))
    canvas.drawString(80, 760, "Surname:")
    form = canvas.acroForm
    form.textfield(name="surname", x=220, y=750, width=200, height=22, value="Quetzalcoatl", fontName="Helvetica")
    form.textfield(name="notes", x=80, y=600, width=300, height=60, value="nuts\nmilk", fieldFlags="multiline")
    form.choice(name="city", x=220, y=700, options=[("Tallinn, Estonia", "TLL"), "Oslo"], value="TLL", width=100)
    form.checkbox(name="agreed", x=80, y=700, checked=True)
    canvas.save()
    shown = text_of(tmp_path / "form.pdf")
    assert shown.split() == ["Surname:", "Quetzalcoatl", "nuts", "milk", "Tallinn,", "Estonia"]
    writer = PdfWriter(clone_from=tmp_path / "form.pdf")
    for annotation in annotations_of(writer):  # as programs leave it that fill in values and draw nothing
        annotation.get_object().pop("/AP", None)
    writer.write(tmp_path / "bare.pdf")
    assert text_of(tmp_path / "bare.pdf").split() == shown.split()


def test_what_fields_hide_is_not_read(tmp_path: Path) -> None:
    canvas = Canvas(str(tmp_path / "a.pdf"))
    canvas.drawString(80, 760, "Two fields")
    canvas.acroForm.textfield(name="p", x=80, y=600, value="sesame", fieldFlags="password", fontName="Helvetica")
    canvas.acroForm.textfield(name="c", x=80, y=500, value="heron", fieldFlags="comb", maxlen=8, fontName="Helvetica")
    canvas.save()
    writer = PdfWriter(clone_from=tmp_path / "a.pdf")
    for annotation in annotations_of(writer):
        annotation.get_object().pop("/AP", None)
    writer.write(tmp_path / "b.pdf")
    assert text_of(tmp_path / "b.pdf").split() == ["Two", "fields", "******", *"heron", "heron"]


def test_comments_follow_the_page_and_files_and_films_are_said(tmp_path: Path) -> None:
    writer = PdfWriter(clone_from=on_one_page(tmp_path / "a.pdf", "Report about lakes"))
    corners = ArrayObject(map(FloatObject, (80, 775, 200, 775, 80, 755, 200, 755)))
    remark = Highlight(rect=(80, 755, 200, 775), quad_points=corners)
    remark[NameObject("/Contents")] = TextStringObject("a remark")
    note = writer.add_annotation(0, Text(text="a note", rect=(300, 500, 320, 520)))
    popup = Popup(rect=(300, 300, 400, 400), parent=note)
    popup[NameObject("/Contents")] = TextStringObject("a note")
    hidden = FreeText(text="hidden", rect=(80, 400, 300, 440))
    hidden[NameObject("/F")] = NumberObject(2)
    link = Link(rect=(1, 1, 20, 20), url="https://example.org/secret")
    for annotation in (remark, popup, hidden, link, FreeText(text="typed here", rect=(80, 500, 300, 540))):
        writer.add_annotation(0, annotation)
    for kind in ("FileAttachment", "Sound", "Movie", "RichMedia", "3D"):
        rectangle = ArrayObject(map(FloatObject, (10, 10, 30, 30)))
        names = {"/Type": NameObject("/Annot"), "/Subtype": NameObject(f"/{kind}"), "/Rect": rectangle}
        writer.add_annotation(0, DictionaryObject({NameObject(name): value for name, value in names.items()}))
    writer.add_attachment("a.txt", b"x")
    writer.write(tmp_path / "b.pdf")
    [page] = pdf.read_pages(tmp_path / "b.pdf")
    assert isinstance(page, pdf.Page)
    assert page.text == "Report about lakes\n\na note\n\na remark\n\ntyped here"
    assert page.unread == {"film": 2, "attachment": 1, "sound": 1, "3D model": 1}
    assert pdf.describe(tmp_path / "b.pdf")[2] == {"attachment": 1}
    with Pipeline.open(encoder="onnx:demo", store=f"sqlite:{tmp_path / 'index'}") as pipe:
        pipe.index(Paths([tmp_path / "b.pdf"], options=SourceOptions(pdf=True)))
        [document] = pipe.get(str(tmp_path / "b.pdf"))
    assert document.metadata["unread"] == "2 attachments, 2 films, 1 3D model, 1 sound"
    assert document.metadata["unread_count"] == 6


def test_hidden_layers_are_read_and_forms_without_pages_are_said(tmp_path: Path) -> None:
    canvas = Canvas(str(tmp_path / "a.pdf"))
    canvas._code.append("/OC /MC0 BDC")
    canvas.drawString(80, 700, "a heron")
    canvas._code.append("EMC")
    canvas.acroForm.textfield(name="p", x=80, y=600, value="")
    canvas.save()
    writer = PdfWriter(clone_from=tmp_path / "a.pdf")
    layer = writer._add_object(
        DictionaryObject({NameObject("/Type"): NameObject("/OCG"), NameObject("/Name"): TextStringObject("x")})
    )
    off = DictionaryObject({NameObject("/OFF"): ArrayObject([layer])})
    layers = DictionaryObject({NameObject("/OCGs"): ArrayObject([layer]), NameObject("/D"): off})
    writer.root_object[NameObject("/OCProperties")] = layers
    resources = writer.pages[0]["/Resources"].get_object()
    assert isinstance(resources, DictionaryObject)
    resources[NameObject("/Properties")] = DictionaryObject({NameObject("/MC0"): layer})
    form = writer.root_object["/AcroForm"].get_object()
    assert isinstance(form, DictionaryObject)
    writer.root_object[NameObject("/NeedsRendering")] = BooleanObject(True)
    form[NameObject("/XFA")], form[NameObject("/Fields")] = ArrayObject(), ArrayObject()
    writer.write(tmp_path / "b.pdf")
    assert text_of(tmp_path / "b.pdf") == "a heron"
    assert pdf.describe(tmp_path / "b.pdf")[2] == {"XFA form": 1}
