"""Texts of many languages in many character sets, and the labels of web pages."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path

import pytest

from vlmsearch.errors import InvalidInputError
from vlmsearch.media.decoding import (
    STRAY,
    UNCERTAIN,
    UNREADABLE,
    DecodedText,
    decoded,
    language_of,
    opened_text,
    page_label,
)
from vlmsearch.media.office import read_bytes

WESTERN = "de fr es it pt nl sv da fi"
SETS = {
    "utf-8": "de ru ja pl ar",
    "utf-16-le": "de ru ja zh",
    "utf-16-be": "de ru ja zh",
    "utf-32-le": "de ja",
    "cp1252": f"{WESTERN} en",
    "latin-1": WESTERN,
    "iso8859-15": "fr fi de",
    "cp850": "de fr",
    "mac_roman": "de fr es",
    "cp1250": "pl cs hu hr",
    "iso8859-2": "pl cs hu hr",
    "cp852": "pl cs",
    "cp1251": "ru uk bg",
    "koi8-r": "ru bg",
    "koi8-u": "uk",
    "cp866": "ru",
    "iso8859-5": "ru bg",
    "mac_cyrillic": "ru",
    "cp1253": "el",
    "iso8859-7": "el",
    "cp1254": "tr",
    "cp1255": "he",
    "iso8859-8": "he",
    "cp1256": "ar",
    "iso8859-6": "ar",
    "cp1257": "lt lv et",
    "iso8859-13": "lt lv",
    "cp874": "th",
    "cp932": "ja",
    "euc_jp": "ja",
    "iso2022_jp": "ja",
    "gbk": "zh",
    "big5": "zh-Hant",
    "cp949": "ko",
}
PLAIN = str.maketrans(dict(zip("“”„«»’–—", '"""""\'--')) | {"œ": "oe", "€": "EUR"})  # what older sets lack  # noqa: RUF001


def sentences() -> dict[str, list[str]]:
    by_language = defaultdict(list)
    for line in Path(__file__).with_name("sentences.tsv").read_text(encoding="utf-8").splitlines():
        language, sentence = line.split("\t")
        by_language[language].append(sentence)
    return by_language


def samples(size: int) -> Iterator[tuple[str, str, str]]:
    """Yield texts of about so many bytes, that have others than ASCII, with their character sets and languages."""
    order, texts = random.Random(7), sentences()
    for charset, languages in SETS.items():
        for language in languages.split():
            for _ in range(5):
                some = [
                    text if charset.startswith(("cp12", "utf")) else text.translate(PLAIN) for text in texts[language]
                ]
                order.shuffle(some)
                text = "\n".join(some * 20)
                while len(text.encode(charset)) > size:
                    text = text[: -max(1, (len(text.encode(charset)) - size) // 4)]
                if not text.isascii():
                    yield charset, language, text


def read(data: bytes, language: str) -> DecodedText:
    """Return a text; one that is taken for binary data, as short Chinese in UTF-16 is, counts as unsure."""
    try:
        return decoded(data, language=language)
    except InvalidInputError:
        return DecodedText("", "", {UNREADABLE: 1})


@pytest.mark.parametrize("has_name", [False, True], ids=["alone", "with the language"])
@pytest.mark.parametrize(
    ("size", "right", "surely_wrong", "unsure"), [(1000, 0.99, 0, 0.05), (200, 0.98, 0, 0.1), (50, 0.95, 0.005, 0.3)]
)
def test_character_sets_are_told_apart(
    size: int, right: float, surely_wrong: float, unsure: float, has_name: bool
) -> None:
    given = list(samples(size))
    texts = [read(text.encode(charset), language * has_name) for charset, language, text in given]
    is_right = [text.text == expected for text, (*_, expected) in zip(texts, given)]
    is_sure = [not text.unread for text in texts]
    wrong = [(*names, text.encoding) for text, (*names, _), good in zip(texts, given, is_right) if not good]
    total = len(given)
    surely = sum(sure and not good for sure, good in zip(is_sure, is_right)) / total
    print(f"{size} bytes: {total} samples, right {sum(is_right) / total:.3f}, surely wrong {surely:.4f}", wrong)
    print(f"unsure {1 - sum(is_sure) / total:.3f}")
    assert sum(is_right) / total >= right, wrong
    assert surely <= surely_wrong
    assert 1 - sum(is_sure) / total <= unsure


@pytest.mark.parametrize(
    ("label", "data", "text"),
    [
        ("iso-8859-1", b"\x93x\x94 \x80 \x81", "“x” € \x81"),
        ("US-ASCII", b"caf\xe9", "café"),
        ("iso-8859-9", b"\xfe\x80", "ş€"),
        ("gb2312", "朱镕基喆".encode("gbk"), "朱镕基喆"),
        ("gbk", b"\x80 12 \xa2\xe3", "€ 12 €"),
        ("shift_jis", "①髙".encode("cp932"), "①髙"),
        ("x-sjis", "表示".encode("cp932"), "表示"),
        ("euc-jp", b"\xad\xa1\xb9\xe2", "①高"),
        ("ks_c_5601-1987", "똠방각하".encode("cp949"), "똠방각하"),
        ("big5", "粵語嘅".encode("big5hkscs"), "粵語嘅"),
        ("tis-620", "สวัสดี".encode("tis-620") + b"\x85", "สวัสดี…"),
        ("iso-8859-8-i", "שלום".encode("iso8859-8"), "שלום"),
        ("x-cp1251", "ёж".encode("cp1251"), "ёж"),
        ("koi8", "ёж".encode("koi8-r"), "ёж"),
        ("koi8-u", "їжак".encode("koi8-u"), "їжак"),
        ("macintosh", "Œuvre".encode("mac_roman"), "Œuvre"),
        ("x-mac-cyrillic", "ёж".encode("mac_cyrillic"), "ёж"),
        ("utf-16", "каша".encode("utf-16-le"), "каша"),
        ("unicode-1-1-utf-8", "каша".encode(), "каша"),
        ("windows-1252", "каша".encode(), "каша"),
        ("utf-8", "Die Straße führt über die Brücke".encode("cp1252"), "Die Straße führt über die Brücke"),
        ("no-such-set", "каша".encode(), "каша"),
        ("gbk", "耻逼".encode("gbk"), "耻逼"),  # whose bytes are valid UTF-8
        ("gbk", "каша и 家居".encode(), "каша и 家居"),
        ("gb2312", "Смотритель маяка".encode(), "Смотритель маяка"),
        ("utf-8", "家".encode("utf-16"), "家"),
        ("IBM850", "Größe".encode("cp850"), "Größe"),
        ("cp437", "Größe".encode("cp437"), "Größe"),
        ("", "größe\0 und länge der straße".encode(), "größe\0 und länge der straße"),
    ],
)
def test_labels_mean_what_the_encoding_standard_says(label: str, data: bytes, text: str) -> None:
    assert decoded(data, label=label).text == text


@pytest.mark.parametrize(
    ("head", "label"),
    [
        (b'<meta charset="gb2312">', "gb2312"),
        (b"<META HTTP-EQUIV=content-type CONTENT='text/html; charset=x-sjis'>", "x-sjis"),
        (b'<meta content="text/html;charset = koi8-r" http-equiv="Content-Type"/>', "koi8-r"),
        (b"<?xml version='1.0' encoding='windows-1251'?><html>", "windows-1251"),
        (b'<!-- <meta charset="koi8-r"> --><meta charset=big5>', "big5"),
        (b'<meta name="keywords" content="charset=koi8-r"><title>x</title>', ""),
        (b'<meta charset="utf-16">', "utf-8"),
        (b"<p>charset=gbk</p>", ""),
    ],
)
def test_a_page_names_its_character_set(head: bytes, label: str) -> None:
    assert page_label(head) == label


def test_a_page_is_read_in_the_set_that_it_names_or_else_in_a_likely_one() -> None:
    page = '<html><head><meta charset="{}"><title>Х</title></head><body><p>Смотритель маяка</p></body></html>'  # noqa: RUF001
    assert read_bytes(page.format("windows-1251").encode("cp1251"), ".html", "x").text == "Смотритель маяка"
    unnamed = page.replace('<meta charset="{}">', "").encode("koi8-r")
    content = read_bytes(unnamed, ".html", "x")
    assert (content.text, content.about.title) == ("Смотритель маяка", "Х")  # noqa: RUF001


@pytest.mark.parametrize(
    "text",
    ["It’s late – isn’t it?", "“Yes,” he said.", "It was €12, see § 5.", "It is 25°C"],  # noqa: RUF001
)
def test_signs_of_windows_in_english_are_sure(text: str) -> None:
    assert decoded(text.encode("cp1252")) == DecodedText(text, "cp1252")


def test_what_is_not_read_for_sure_is_said() -> None:
    assert decoded(b"caf\xe9").unread == {UNCERTAIN: 1}
    assert decoded("Смотритель маяка".encode()[:-1]).unread == {UNREADABLE: 1}
    assert decoded("Смотритель маяка".encode()[:-1]).text == "Смотритель маяк\ufffd"
    assert decoded(b"\xff\xfea\0b").unread == {UNREADABLE: 1}
    assert decoded("家居用品".encode("gbk") + b"\xff" + "家居用品".encode("gbk"), label="gbk").unread == {UNREADABLE: 1}
    for plain in (b"", b"plain", "Grüße \ufffd".encode(), b"\xef\xbb\xbfGr\xc3\xbc\xc3\x9fe"):
        assert decoded(plain).unread == {}
    assert decoded("Grüße \ufffd".encode()).text == "Grüße \ufffd"


@pytest.mark.parametrize("between", ["\n", "<br>"])
def test_letters_late_in_a_long_text_decide(between: str) -> None:
    text = (
        f"plain words{between}" * 9_000 + f"Die Straße führt über die Brücke.{between}" * 9 + f"more{between}" * 9_000
    )
    assert decoded(text.encode("cp1252")) == DecodedText(text, "cp1252")


@pytest.mark.parametrize(
    "data", [b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\x01\0", bytes(range(256)) * 4, b"\x01\x02\x03\x01" * 9]
)
def test_binary_data_are_no_text(data: bytes) -> None:
    with pytest.raises(InvalidInputError, match="binary data, and no text"):
        decoded(data)


def test_a_language_picks_among_the_sets_of_short_texts() -> None:
    assert decoded("Ёлка и кот".encode("cp866"), language="ru").text == "Ёлка и кот"
    assert decoded("Łódź, śnieg".encode("iso8859-2"), language="pol").text == "Łódź, śnieg"
    assert decoded("Ağrı".encode("cp1254"), language="tr-TR").text == "Ağrı"  # noqa: RUF001
    names = ("film.ru.srt", "notes.ja.txt", "film.pt-BR.srt", "a.eng.forced.srt", "film.srt", "v1.2.txt", "Dr. No.srt")
    assert [language_of(name) for name in names] == ["ru", "ja", "pt-BR", "eng", "", "", ""]


@pytest.mark.parametrize("charset", ["cp1252", "utf-8-sig", "utf-16", "gb18030"])
def test_a_stream_is_read_in_the_set_of_its_beginning(charset: str) -> None:
    line = "商店里的面包很好吃，大家都喜欢。\r\n" if charset == "gb18030" else "Die Straße führt über die Brücke.\r\n"  # noqa: RUF001
    text = line * 9_000
    file, head = opened_text(BytesIO(text.encode(charset)))
    assert file.read() == text
    assert text.startswith(head.text[: 60_000 // 4])
    assert UNCERTAIN not in head.unread


def test_a_stream_marks_what_its_set_does_not_have() -> None:
    file, _ = opened_text(BytesIO("Größe, größer\n".encode() * 9_000 + b"Gr\xf6\xdfe\n"))
    assert len(STRAY.findall(file.read())) == 2
