"""Rich Text Format: files of pandoc, and control words as word processors write them."""

from pathlib import Path

import pypandoc
import pytest

from vlmsearch import InvalidInputError
from vlmsearch.media.about import About
from vlmsearch.media.office.content import Content
from vlmsearch.media.office.rtf import read


def content_of(body: str | bytes, head: str = r"\ansi") -> Content:
    data = body if isinstance(body, bytes) else body.encode("latin-1")
    return read(b"{\\rtf1" + head.encode() + b" " + data + b"}", "'file.rtf'")


def text_of(body: str, head: str = r"\ansi") -> str:
    return content_of(body, head).text


def test_a_document_of_pandoc_is_read_whole(tmp_path: Path) -> None:
    path = tmp_path / "file.rtf"
    source = (
        "# Heading\n\nSee [link](https://e.org) and part*ly*.^[footnote]\n\n- item\n\n    1. nested\n\n"
        "| a | b |\n|---|---|\n| cell | Grüße 日本 😀 |\n\n> quote\n\n```\ncode = 1\n```\n\nline\\\nbreak\n"
    )
    pypandoc.convert_text(source, "rtf", format="md", outputfile=str(path), extra_args=["--standalone"])

    text = read(path.read_bytes(), "file").text
    assert "See link and partly." in text
    assert "a\tb\ncell\tGrüße 日本 😀" in text
    assert "line\nbreak" in text
    assert text.endswith("footnote")
    assert {"Heading", "quote", "code = 1"} <= set(text.split("\n\n"))


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (r"part{\b ly}\i bold\i0 word", "partlyboldword"),
        ("one\r\ntwo\\par\r\nthree\\\nfour", "onetwo\n\nthree\n\nfour"),
        (
            r"a\tab b\line c\~d\_e\-f\emdash g\lquote h\rquote\{\}\\",
            "a\tb\nc d-ef\u2014g\u2018h\u2019{}\\",
        ),
        (r"{\v hidden} {\revised new}{\deleted old}{\xe index}{\*\unknown no {deep}}{\*\generator no;}", "hidden new"),
        (r"{\field{\*\fldinst HYPERLINK {http://e.org}}{\fldrslt {\ul link}}} behind", "link behind"),
        (r"{\upr{\b ab?}{\*\ud{ab\u8364?}}}", "ab\u20ac"),
        (r"{\*\bkmkstart a}b{\*\bkmkend a}c", "bc"),
        (r"{\mmath{\*\moMath{\mf{\mfPr{\mtype bar}}{\mnum{\mr x}}}}}{\mmathPict no}", "x"),
        (r"\fs24\cf1\ul word\b0\fs20 s", "words"),
        (r"{\stylesheet{\s1\dropcapli2 A;}}a\par\pard\dropcapli3\dropcapt1 O\par\pard nce\par b", "a\n\nOnce\n\nb"),
    ],
)
def test_words_and_their_ends(body: str, text: str) -> None:
    assert text_of(body) == text


@pytest.mark.parametrize(
    ("head", "body", "text"),
    [
        (r"\ansi\ansicpg1251", r"\'cf\'f0\'e8\'e2\'e5\'f2", "Привет"),
        (r"\ansi\ansicpg1252", r"{\fonttbl{\f0 A;}{\f1\fcharset204 B;}}\'e9{\f1 \'e9}\'e9", "éйé"),
        (r"\ansi", r"{\fonttbl{\f3\fcharset128 MS;}}\f3 \'83\'56\'82\'a0\'83V\'83\\", "シあシソ"),
        (r"\ansi\ansicpg936", r"\uc2 \u20013\'d6\'d0\'ce\'c4", "中文"),
        (
            r"\ansi\deff1",
            r"{\fonttbl{\f0 A;}{\f1\fcharset128\cpg65001 B;}}\'e6\'97\'a5{\f0 a}\plain \'e6\'9c\'ac",
            "日a本",
        ),
        (r"\mac", r"\'8a", "ä"),
        (r"\ansi\ansicpg99999", r"\'93a\'94", "\u201ca\u201d"),
        (
            r"\ansi",
            r"\u-10179?\u-8704? \uc0\u8364 5 {\uc3\u8212abc\u8212\'97\'97\'97}\uc1\u8226\'95\u8226\bullet\u9?",
            "😀 €5 ——••",
        ),
    ],
)
def test_characters_of_code_pages_fonts_and_unicode(head: str, body: str, text: str) -> None:
    assert text_of(body, head) == text


def test_rows_are_lines_and_paragraphs_in_cells_do_not_break_them() -> None:
    row = r"\trowd\cellx1\cellx2\pard\intbl "
    nested = r"\itap2 in\nestcell ner\nestcell{\*\nesttableprops\trowd\nestrow}{\nonesttables\par}\itap1 "

    assert text_of(
        rf"before\par {row}a\par b\tab c\cell\cell\row {row}{nested}\cell d\cell\row\pard after\par "
        r"{\listtext\tab 1.\tab}one\par{\pntext\f1\'b7\tab}two\par end"
    ).split("\n\n") == ["before", "a b c\nin ner\td", "after", "\t1.\tone\n\u00b7\ttwo", "end"]


def test_notes_headers_comments_and_shapes_stand_once_behind() -> None:
    read = content_of(
        r"{\header head\par}{\headerf head\par}{\footer foot}sha{\shp{\*\shpinst{\sp{\sn pib}{\sv {\pict 00}}}"
        r"{\sp{\sn wzName}{\sv no}}{\sp{\sn wzDescription}{\sv a cat}}{\shptxt box\par twice\par}}"
        r"{\shprslt{\*\do{\dptxbxtext box}}}}pe{\*\footnote\chftn note}s{\*\atnid A}{\*\atnauthor Ann}{\*\annotation"
        r"{\*\atnref 1}comment}{\*\ftnsep\chftnsep}\par{\*\do{\dptxbxtext old box}}"
        r"{\field{\*\fldinst{FORMDROPDOWN{\*\formfield{\*\ffname no}{\*\ffl red}{\*\ffl blue}}}}{\fldrslt}}last"
    )

    assert read.text.split("\n\n") == [
        *("shapes", "a cat", "box", "twice", "last", "old box", "red", "blue"),
        *("head", "foot", "note", "comment"),
    ]
    assert read.unread == {"picture": 1}


def test_pictures_and_objects_are_counted_once_and_binary_data_is_no_text() -> None:
    read = content_of(
        b"a{\\*\\shppict{\\pict\\pngblip 89504e47}}{\\nonshppict{\\pict 00}}"
        b"{\\object{\\*\\objdata 00}{\\result{\\pict 00}shown}}"
        b"{\\pict\\bin9 }}{\\par\\'1}b\\\\bin3 c"
    )

    assert read.text == "ashownb\\bin3 c"
    assert read.unread == {"embedded document": 1, "picture": 2}


def test_the_description_is_in_the_code_page_of_the_document() -> None:
    read = content_of(
        r"{\fonttbl{\f0\fcharset0 A;}}{\info{\title \'ce\'f2\'f7\'b8\'f2}{\author Ann}"
        r"{\upr{\keywords no}{\*\ud{\keywords no}}}"
        r"{\operator no}{\creatim\yr2026}}{\stylesheet{\s1 no;}}{\colortbl;\red1;}text",
        r"\ansi\ansicpg1251\deff0",
    )

    assert (read.text, read.about) == ("text", About("Отчёт", "Ann"))


def test_what_is_cut_is_read_and_what_is_behind_the_end_is_said() -> None:
    assert read(rb"  {\rtf1\ansi one {\b two\par thr", "file").text == "one two\n\nthr"
    assert read(b"\xef\xbb\xbf{\\rtf1 one}\0\r\n", "file") == Content("one")
    assert read(rb"{\rtf1 one}{\rtf1 two}", "file").unread == {"other part": 1}
    for data in (b"one", b"{one}", b"PK\x03\x04"):
        with pytest.raises(InvalidInputError, match=r"its beginning is not '{\\rtf'") as caught:
            read(data, "file")
        assert caught.value.code == "corrupt"


def test_the_time_grows_with_the_length() -> None:
    assert text_of("{" * 100_000 + "deep" + "}" * 100_000) == "deep"
    assert text_of(r"\b0" * 300_000 + " word" + r"\u8364" * 100_000).startswith("word\u20ac")
