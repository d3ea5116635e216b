"""Front matter of Markdown, and texts and tables in other character sets than UTF-8."""

import csv
from io import StringIO
from pathlib import Path

import pytest

from vlmsearch import Document, Reject
from vlmsearch.indexing.front_matter import front_matter
from vlmsearch.indexing.items import SourceDocument
from vlmsearch.indexing.records import digest
from vlmsearch.indexing.sources import Paths


def documents(*paths: Path) -> list[Document]:
    return [item.document for item in Paths(paths) if isinstance(item, SourceDocument)]


YAML = """---
# a comment
title: "The Lighthouse: a story"
author: Ann Lee
date: 2024-05-01
tags: [dog, "snow, fresh"]
draft: false
rating: 4.5
country: no
number: 0123
summary: >
  Two lines
  are one.
seo:
  image: a.png
empty:
---

# Winter

A dog.
"""


def test_the_fields_in_front_of_a_text_are_its_metadata(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text(YAML)
    (document,) = documents(tmp_path)
    assert document.text == "The Lighthouse: a story\n\nAnn Lee\n\n# Winter\n\nA dog.\n"
    assert document.metadata == {
        "title": "The Lighthouse: a story",
        "author": "Ann Lee",
        "date": 20240501,
        "tags": ("dog", "snow, fresh"),
        "draft": False,
        "rating": 4.5,
        "country": "no",
        "number": "0123",
        "summary": "Two lines are one.\n",
        "seo.image": "a.png",
    }


def test_an_empty_block_is_no_text() -> None:
    assert front_matter("---\r\n---\r\n\r\nA dog.\r\n")[2] == "A dog.\r\n"
    assert front_matter("+++\n+++\nA dog.\n")[2] == "A dog.\n"


def test_toml_and_lists_of_mappings_are_read() -> None:
    toml = '+++\ntitle = "Winter"\ndate = 2024-05-01T10:00:00Z\nmade = 2023-01-02\ntags = ["a", "b"]\n+++\nA dog.\n'
    fields, about, text = front_matter(toml)
    assert (fields, about.title, text) == (
        {"date": 20240501, "made": "2023-01-02", "tags": ("a", "b")},
        "Winter",
        "A dog.\n",
    )
    fields, about, _ = front_matter("---\nauthor:\n  - name: Ann\n    at: X\n  - name: Bo\n---\n")
    assert (fields, about.author) == ({"author.at": "X"}, "Ann; Bo")


@pytest.mark.parametrize(
    "text",
    [
        "---\ntitle: [open\n---\nA dog.\n",
        "---\nA dog between two rules.\n---\nA cat.\n",
        "---\ntitle: never closed\n",
        "A dog.\n---\ntitle: x\n---\n",
        "---\n$key: 1\n---\n",
        "---\nbig: " + "x" * 40_000 + "\n---\n",
        "---\na: &a [x, x]\n"
        + "".join(f"{b}: &{b} [*{a}, *{a}]\n" for a, b in zip("abcdefghijkl", "bcdefghijklm"))
        + "---\n",
        "---\na: &a []\n"
        + "".join(f"{b}: &{b} [*{a}, *{a}]\n" for a, b in zip("abcdefghijkl", "bcdefghijklm"))
        + "---\n",
        "+++\nx = nan\n+++\n",
        "+++\nx = \n+++\n",
        "",
        "---\n",
    ],
)
def test_a_block_that_is_none_stays_text(text: str) -> None:
    assert front_matter(text)[2] == text


def test_texts_in_other_character_sets_are_read_and_doubts_are_said(tmp_path: Path) -> None:
    texts = {
        "de.txt": ("Die Straße führt über die Brücke – für 12 €.", "cp1252"),  # noqa: RUF001
        "notes.ru.md": ("Смотритель маяка открывает дверь.", "koi8-r"),
        "wide.txt": ("Смотритель маяка", "utf-16"),
        "short.txt": ("café", "cp1252"),
    }
    for name, (text, charset) in texts.items():
        (tmp_path / name).write_bytes(text.encode(charset))
    read = {Path(document.id).name: document for document in documents(tmp_path)}
    assert {name: document.text for name, document in read.items()} == {name: text for name, (text, _) in texts.items()}
    said = {name: document.metadata for name, document in read.items() if document.metadata}
    assert said == {"short.txt": {"unread": "1 uncertain character set", "unread_count": 1}}


def test_the_digest_of_a_text_in_utf_8_is_that_of_its_text_alone(tmp_path: Path) -> None:
    text = "Grüße\r\n--- aus Łódź\x0c\n"
    for name in ("a.txt", "a.md"):
        (tmp_path / name).write_bytes(b"\xef\xbb\xbf" + text.encode())
    for document in documents(tmp_path):
        assert digest(document, None) == digest(Document(document.id, text), None)


ROWS = [["id", "text", "größe"], ["a", "Straße über die Brücke", "groß"], ["b", "zwei\nZeilen, “x”", "klein"]]


@pytest.mark.parametrize(
    ("name", "charset", "delimiter"),
    [
        ("a.csv", "utf-8-sig", ","),
        ("a.csv", "cp1252", ","),
        ("a.csv", "utf-16", "\t"),  # "Unicode text" of Excel
        ("a.tsv", "utf-8", "\t"),
        ("a.TSV", "cp1252", "\t"),
        ("a.tsv", "utf-16-be", "\t"),
    ],
)
def test_tables_of_excel_are_read(tmp_path: Path, name: str, charset: str, delimiter: str) -> None:
    table = StringIO()
    csv.writer(table, delimiter=delimiter).writerows(ROWS)
    path = tmp_path / name
    path.write_bytes(table.getvalue().encode(charset))
    assert documents(path) == [Document(id, text, None, {"größe": size}) for id, text, size in ROWS[1:]]


def test_rows_of_a_table_in_an_uncertain_character_set_say_so(tmp_path: Path) -> None:
    table = tmp_path / "a.csv"
    table.write_bytes(b"id,text\na,plain\nb,caf\xe9\n")
    plain, other = documents(table)
    assert (plain.metadata, other.text) == ({}, "café")
    assert other.metadata == {"unread": "1 uncertain character set", "unread_count": 1}


def test_a_table_of_binary_data_is_rejected(tmp_path: Path) -> None:
    table = tmp_path / "a.csv"
    table.write_bytes(bytes(range(256)) * 9)
    (reject,) = Paths([table])
    assert isinstance(reject, Reject)
    assert (reject.id, reject.code) == (str(table), "unsupported")
