import random
import zipfile
from pathlib import Path

import pytest

from tests.support.office import write
from vlmsearch import InvalidInputError
from vlmsearch.media.office import OFFICE_SUFFIXES, read_office
from vlmsearch.media.office.content import Content

WRITTEN = ("docx", "epub", "htm", "html", "odt", "pptx", "rtf", "xlsx")


def code_of(path: Path) -> str:
    with pytest.raises(InvalidInputError) as caught:
        read_office(path)
    assert repr(str(path)) in str(caught.value)
    return caught.value.code


@pytest.mark.parametrize("suffix", WRITTEN)
def test_a_document_gives_its_text_and_its_title(tmp_path: Path, suffix: str) -> None:
    path = write(tmp_path / f"report.{suffix}", "A dog in the snow", "Winter")

    read = read_office(path)

    assert "A dog in the snow" in read.text.splitlines() or (suffix == "xlsx" and "A dog in the snow\t42" in read.text)
    assert read.about.title == "Winter"
    assert "hidden" not in read.text
    assert "color" not in read.text
    assert f".{suffix}" in OFFICE_SUFFIXES


def test_letters_of_all_alphabets_stay(tmp_path: Path) -> None:
    text = "Grüße aus Łódź, 日本 и мир"
    for suffix in ("docx", "epub", "html", "odt", "pptx", "xlsx"):
        assert text in read_office(write(tmp_path / f"report.{suffix}", text)).text


def page(tmp_path: Path, data: str | bytes) -> Content:
    path = tmp_path / "page.html"
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    return read_office(path)


@pytest.mark.parametrize(
    "data",
    [
        "<p>Grüße".encode(),
        "<p>Grüße".encode("utf-8-sig"),
        "<p>Grüße".encode("utf-16"),
        "<p>Grüße".encode("cp1252"),
        "<meta charset='iso-8859-1'><p>Grüße".encode("latin-1"),
        '<meta http-equiv="Content-Type" content="text/html; charset=koi8-r"><p>Gr\u0418e'.replace(
            "\u0418", "и"
        ).encode("koi8-r"),
        '<?xml version="1.0" encoding="iso-8859-15"?><p>Grüße</p>'.encode("iso-8859-15"),
        "<meta charset='no-such-set'><p>Grüße".encode(),
    ],
)
def test_a_page_is_read_in_its_character_set(tmp_path: Path, data: bytes) -> None:
    assert page(tmp_path, data).text in ("Grüße", "Grиe")


def test_what_is_no_document_is_refused(tmp_path: Path) -> None:
    (tmp_path / "text.docx").write_text("no document")
    (tmp_path / "empty.docx").touch()
    cut = write(tmp_path / "cut.docx", "A dog")
    cut.write_bytes(cut.read_bytes()[:-200])

    assert code_of(tmp_path / "text.docx") == "corrupt"
    assert code_of(tmp_path / "empty.docx") == "empty"
    assert code_of(tmp_path / "missing.docx") == "unreadable"
    assert code_of(cut) == "corrupt"


@pytest.mark.slow
def test_a_document_that_unpacks_to_too_much_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "bomb.docx", "x")
    with zipfile.ZipFile(path) as file:
        parts = {name: file.read(name) for name in file.namelist()}
    parts["word/document.xml"] = parts["word/document.xml"].replace(b">x<", b">" + b"a" * 150_000_000 + b"<")
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for name, content in parts.items():
            file.writestr(name, content)

    assert path.stat().st_size < 1_000_000
    assert code_of(path) == "too_large"


def test_no_other_file_is_read_by_an_entity(tmp_path: Path) -> None:
    (tmp_path / "secret.txt").write_text("secret")
    path = write(tmp_path / "report.docx", "before &x; after")
    with zipfile.ZipFile(path) as file:
        parts = {name: file.read(name).decode() for name in file.namelist()}
    head = f'<!DOCTYPE d [<!ENTITY x SYSTEM "file://{tmp_path}/secret.txt">]>'
    parts["word/document.xml"] = parts["word/document.xml"].replace("?>", f"?>{head}", 1)
    with zipfile.ZipFile(path, "w") as file:
        for name, content in parts.items():
            file.writestr(name, content)

    assert "secret" not in read_office(path).text


def test_random_damage_never_raises_anything_else(tmp_path: Path) -> None:
    rng = random.Random(1)
    results = set()
    for suffix in WRITTEN:
        whole = write(tmp_path / f"whole.{suffix}", "A dog in the snow").read_bytes()
        for number in range(25):
            data = bytearray(whole)
            for _ in range(5):
                data[rng.randrange(len(data))] = rng.randrange(256)
            path = tmp_path / f"bad.{suffix}"
            path.write_bytes(data[: rng.randrange(1, len(data))] if number % 4 == 0 else data)
            try:
                read_office(path)
                results.add("read")
            except InvalidInputError as exc:
                results.add(exc.code)
    assert results >= {"read", "corrupt"}
