import csv
import json
import os
import subprocess
import sys
from array import array
from io import BytesIO
from pathlib import Path

import pytest
from hypothesis import example, given, strategies as st
from PIL import Image

from tests.support.folders import shut
from vlmsearch import ConfigError, Document, Reject, Stamp
from vlmsearch._util.plain import CONTROLS
from vlmsearch.indexing.items import SourceDocument, SourceOptions, id_of
from vlmsearch.indexing.sources import Paths, file_id
from vlmsearch.media.limits import MAX_FILE_BYTES


def documents(*paths: Path) -> list[Document]:
    found = list(Paths(paths))
    assert len(found) == len(Paths(paths))
    return [item.document for item in found if isinstance(item, SourceDocument)]


def rejects(*paths: Path) -> list[Reject]:
    return [item for item in Paths(paths) if isinstance(item, Reject)]


def touch(path: Path, data: bytes = b"x") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def test_a_folder_gives_images_and_texts_below_it_in_order(tmp_path: Path) -> None:
    for name in ("b.jpg", "a/z.PNG", "a/note.txt", "skip.pdf", ".hidden.jpg", ".cache/c.jpg"):
        touch(tmp_path / name)
    found = documents(tmp_path)
    assert [doc.id for doc in found] == [str(tmp_path / name) for name in ("b.jpg", "a/note.txt", "a/z.PNG")]
    assert [doc.image for doc in found] == [tmp_path / "b.jpg", None, tmp_path / "a/z.PNG"]
    assert found[1].text == "x"


def test_the_colours_of_a_log_are_in_no_word(tmp_path: Path) -> None:
    touch(tmp_path / "a.txt", b"\x1b[1;31mERROR\x1b[0m disk full\n")
    assert [document.text for document in documents(tmp_path)] == ["ERROR disk full\n"]


def test_a_folder_that_cannot_be_listed_is_rejected_and_covers_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a.txt", "shut/b.txt", "z/c.txt"):
        touch(tmp_path / name)
    source, inside = Paths([tmp_path]), str(tmp_path / "shut/b.txt")
    with monkeypatch.context() as patch:
        shut(patch, tmp_path / "shut")
        assert len(source) == 3
        found = {id_of(item): item for item in source}
    assert list(found) == [str(tmp_path / name) for name in ("a.txt", "shut", "z/c.txt")]
    reject = found[str(tmp_path / "shut")]
    assert isinstance(reject, Reject)
    assert (reject.code, reject.stamp.source) == ("unreadable", reject.id)
    assert "Permission denied" in reject.message
    assert not source.covers(inside, Stamp("", inside))
    assert source.covers(f"{inside[:-6]}2", Stamp("", f"{inside[:-6]}2"))
    assert len(list(source)) == 3
    assert source.covers(inside, Stamp("", inside))


def test_a_single_file_is_taken_whatever_its_name(tmp_path: Path) -> None:
    path = touch(tmp_path / "photo.unknown", b"\x89PNG and so on")
    assert documents(path) == [Document(str(path), image=path)]


def test_a_file_of_no_kind_that_is_taken_is_rejected_with_those_that_are(tmp_path: Path) -> None:
    (found,) = rejects(touch(tmp_path / "x.json", b"{}"))
    assert found.code == "unsupported"
    assert found.message.startswith(f"'{tmp_path}/x.json' is neither an image in a format that can be read nor named")
    assert "a text (.md, .txt) or a table (.csv, .jsonl, .ndjson, .parquet, .tar, .tsv)" in found.message


def test_messages_hold_no_byte_that_no_store_takes(tmp_path: Path) -> None:
    text = touch(tmp_path / "two\nlines\udcff.txt", b"caf\xe9")
    table = touch(tmp_path / "two\nlines\udcff.jsonl", b"no json")
    for reject in rejects(text, table):
        assert not CONTROLS.search(reject.id + reject.message)


def test_a_glob_is_expanded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("1.jpg", "2.jpg", "3.png"):
        touch(tmp_path / name)
    monkeypatch.chdir(tmp_path)
    assert [doc.id for doc in documents(Path("*.jpg"))] == [str(tmp_path / "1.jpg"), str(tmp_path / "2.jpg")]


def test_a_file_whose_name_looks_like_a_glob_is_itself(tmp_path: Path) -> None:
    path = touch(tmp_path / "a[1].jpg")
    touch(tmp_path / "a1.jpg")
    assert [doc.id for doc in documents(path)] == [str(path)]


def test_a_dangling_link_reaches_the_intake(tmp_path: Path) -> None:
    (tmp_path / "gone.jpg").symlink_to(tmp_path / "nowhere.jpg")
    assert [doc.id for doc in documents(tmp_path / "gone.jpg")] == [str(tmp_path / "gone.jpg")]


def test_a_name_that_no_id_can_have_is_escaped(tmp_path: Path) -> None:
    path = touch(tmp_path / "two\nlines\udcff.jpg")
    assert documents(tmp_path) == [Document(f"{tmp_path}/two%0Alines%FF.jpg", image=path)]
    assert Paths([tmp_path]).covers(f"{tmp_path}/two%0Alines%FF.jpg", Stamp("", f"{tmp_path}/two%0Alines%FF.jpg"))


def test_no_two_files_share_an_id(tmp_path: Path) -> None:
    odd = ["a\x1b.png", "a%1B.png", "a%251B.png", "a\udcff.png", "a%FF.png", "a\x85.png", "a%C2%85.png", "a%\x1b.png"]
    usual = ["100%.png", "my%20photo.png", "%7d.png", "a%ff.png"]
    for name in (*odd, *usual):
        touch(tmp_path / name)
    ids = {doc.image.name: Path(doc.id).name for doc in documents(tmp_path) if isinstance(doc.image, Path)}
    assert len(set(ids.values())) == len(odd) + len(usual)
    assert {name: ids[name] for name in usual} == {name: name for name in usual}
    assert (ids["a\x1b.png"], ids["a%1B.png"], ids["a%\x1b.png"]) == ("a%1B.png", "a%251B.png", "a%%1B.png")


@given(*[st.text(st.sampled_from("%0125789ABCDEFacf\x01\x1b\x7f\x85\xe9\udc80\udcff"), max_size=8)] * 2)
@example("a\x1b", "a%1B")
@example("a%1B", "a%251B")
@example("%4\x1b", "%4%1B")
def test_ids_of_files_are_as_different_as_the_files(one: str, other: str) -> None:
    assert (file_id(f"/{one}") == file_id(f"/{other}")) == (os.fsencode(one) == os.fsencode(other))


def test_links_to_files_are_followed_unless_they_are_not_to_be(tmp_path: Path) -> None:
    touch(tmp_path / "outside.txt", b"secret")
    touch(tmp_path / "elsewhere/b.txt", b"far")
    touch(tmp_path / "photos/a.txt", b"here")
    (tmp_path / "photos/link.txt").symlink_to(tmp_path / "outside.txt")
    (tmp_path / "photos/folder").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "photos/gone.txt").symlink_to(tmp_path / "nowhere.txt")
    assert [doc.text for doc in documents(tmp_path / "photos")[:2]] == ["here", "secret"]
    source = Paths([tmp_path / "photos"], options=SourceOptions(follow_links=False))
    assert [item.document.text for item in source if isinstance(item, SourceDocument)] == ["here"]
    assert len(source) == len(list(source)) == 1
    (named,) = Paths([tmp_path / "photos/link.txt"], options=SourceOptions(follow_links=False))
    assert isinstance(named, SourceDocument)
    assert named.document.text == "secret"


def test_folders_are_listed_once_to_be_counted_and_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a.txt", "b/c.txt", "b/d.txt"):
        touch(tmp_path / name)
    listed: list[str] = []
    scandir = os.scandir

    def note(path: str) -> object:
        listed.append(str(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", note)
    source = Paths([tmp_path])
    assert len(source) == sum(1 for _ in source) == 3  # list() asks for the length once more
    assert sorted(listed) == [str(tmp_path), str(tmp_path / "b")]
    touch(tmp_path / "e.txt")
    assert len(list(source)) == 4


def test_a_line_that_is_too_long_is_rejected_and_the_others_are_taken(tmp_path: Path) -> None:
    table = tmp_path / "docs.jsonl"
    with table.open("wb") as file:
        file.write(b'{"id": "a", "text": "one"}\n{"id": "long", "text": "')
        file.write(b"x" * 40_000_000 + b'"}\n{"id": "b", "text": "two"}\n')
    assert [doc.id for doc in documents(table)] == ["a", "b"]
    (found,) = rejects(table)
    assert (found.id, found.code) == (f"{table}:2", "too_large")
    assert found.message == "docs.jsonl, line 2: a line has at most 16,777,216 characters"
    sheet = tmp_path / "docs.csv"
    for rows in (b"id,text\na,one\nb," + b"x" * 17_000_000 + b"\n", b'id,text\na,one\nb,"' + b"xxxxxxx\n" * 2_200_000):
        sheet.write_bytes(rows)
        with pytest.raises(ConfigError, match=r"docs\.csv, lines 3 to .* a row has at most 16,777,216 characters"):
            list(Paths([sheet]))


def test_an_image_with_a_name_that_no_file_has_is_no_crash(tmp_path: Path) -> None:
    table = touch(tmp_path / "docs.jsonl", b'{"image": "\\ud800.png"}\n{"id": "a", "text": "fine"}\n')
    assert [Path(doc.id).name for doc in documents(table)] == ["%ED%A0%80.png", "a"]


_SWAPPED = """
import os, sys
from vlmsearch.indexing.sources import Paths

os.chdir(sys.argv[1])
os.mkfifo("pipe")
os.mkdir("in")
open("in/a.txt", "w").write("a red star")

def swap(event, arguments):
    if event == "open" and str(arguments[0]).endswith("a.txt"):
        os.replace("pipe", "in/a.txt")

source = Paths(["in"])
sys.addaudithook(swap)
print(*[(item.code, item.message) for item in source])
"""


def test_a_file_that_becomes_a_pipe_as_it_is_opened_is_not_waited_for(tmp_path: Path) -> None:
    command = [sys.executable, "-c", _SWAPPED, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    assert "is a pipe, a socket or a device, not a text file" in done.stdout


@pytest.mark.parametrize(("name", "message"), [("nowhere", "no such file"), ("*.gif", "nothing matches")])
def test_a_path_that_names_nothing_is_an_error(tmp_path: Path, name: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Paths([tmp_path / name])


def test_jsonl_rows_become_documents(tmp_path: Path) -> None:
    table = tmp_path / "docs.jsonl"
    rows = [
        {"id": "one", "text": "first", "year": 2020, "score": 0.5, "ok": True, "tag": "x", "gone": None},
        {"id": 2, "image": "pics/a.jpg"},
        {"text": "no id"},
    ]
    table.write_text("\ufeff" + "\n\n".join(map(json.dumps, rows)) + "\n", encoding="utf-8")
    one, two, three = documents(table)
    assert one == Document("one", "first", None, {"year": 2020, "score": 0.5, "ok": True, "tag": "x"})
    assert two == Document("2", None, tmp_path / "pics/a.jpg")
    assert three.text == "no id"
    assert len(three.id) == 32
    assert documents(table)[2].id == three.id


def test_an_image_row_without_id_has_the_id_of_its_file(tmp_path: Path) -> None:
    table = tmp_path / "docs.jsonl"
    table.write_text('{"image": "../a.jpg"}\n')
    assert documents(table)[0].id == str(tmp_path.parent / "a.jpg")


def test_bad_rows_are_rejected_one_by_one(tmp_path: Path) -> None:
    table = tmp_path / "docs.jsonl"
    rows = ['{"id": "a", "text": "fine"}', "not json", "[1]", '{"id": "b", "text": {"x": 1}}', '{"id": "c", "m": {}}']
    table.write_text("\n".join(rows))
    assert [doc.id for doc in documents(table)] == ["a", "c"]
    assert [(r.id, r.code) for r in rejects(table)] == [(f"{table}:{n}", "invalid") for n in (2, 3, 4)]
    assert "line 2" in rejects(table)[0].message


def test_csv_cells_are_typed(tmp_path: Path) -> None:
    table = tmp_path / "docs.csv"
    with table.open("w", newline="") as file:
        csv.writer(file).writerows(
            [
                ["id", "text", "image", "year", "zip", "share", "open", "note"],
                ["a", "two\nlines, quoted", "", "2020", "01234", "0.5", "true", ""],
                ["1.50", "", "b.jpg", "-3", "1e5", "1.5e3", "False", "nan"],
            ]
        )
    first, second = documents(table)
    assert first == Document(
        "a", "two\nlines, quoted", None, {"year": 2020, "zip": "01234", "share": 0.5, "open": True}
    )
    assert second.id == "1.50"
    assert second.image == tmp_path / "b.jpg"
    assert second.metadata == {"year": -3, "zip": "1e5", "share": 1500.0, "open": False, "note": "nan"}


def test_numbers_are_read_as_python_and_pandas_write_them(tmp_path: Path) -> None:
    values = [5e-05, 1e16, 1.5e-07, 1e17, -1e-05, 2**63 - 1, -(2**63 - 1), 0.5, 0]
    table = tmp_path / "docs.csv"
    with table.open("w", newline="") as file:
        csv.writer(file).writerows([["text", "n"], *([f"row {value}", value] for value in values)])
    found = [doc.metadata["n"] for doc in documents(table)]
    assert found == values
    assert list(map(type, found)) == list(map(type, values))
    odd = ["1e5", "12e4567", "1e+999", "9223372036854775808", "1.", ".5", "+1", "0x1", "007"]
    table.write_text("text,n\n" + "".join(f"row {value},{value}\n" for value in odd))
    assert [doc.metadata["n"] for doc in documents(table)] == odd


@pytest.mark.parametrize(
    ("rows", "lines"),
    [
        ('a,fine\nb,"a cat\nc,a bird\nd,a fish\n', "3 to 5"),
        ('a,"a cat\nb,"a bird"\nc,a fish\n', "2 to 3"),
        ('a,"a cat\n\nb,a bird', "2 to 4"),
    ],
)
def test_a_quote_that_is_not_closed_takes_no_rows_in(tmp_path: Path, rows: str, lines: str) -> None:
    table = tmp_path / "docs.csv"
    table.write_text("id,text\n" + rows)
    with pytest.raises(ConfigError, match=f"docs.csv, lines {lines}, cannot be read as CSV: a quote is not closed"):
        len(Paths([table]))


def test_quotes_that_close_or_are_a_text_s_own_are_no_error(tmp_path: Path) -> None:
    table = tmp_path / "docs.csv"
    table.write_text('id,text\n\na,a 5" disk\nb,"two\n\nlines"\n\nc,"she said ""no"""\nd,"Hello" she said\ne,"open\n')
    texts = ['a 5" disk', "two\n\nlines", 'she said "no"', "Hello she said", "open\n"]
    assert [doc.text for doc in documents(table)] == texts


def test_cells_beyond_the_last_column_are_named_unless_they_are_empty(tmp_path: Path) -> None:
    table = tmp_path / "docs.csv"
    table.write_text("id,text\na,a dog, running, fast\nb,a cat,,\n")
    (reject,) = rejects(table)
    assert (reject.id, reject.code) == (f"{table}:2", "invalid")
    assert "line 2: more cells than columns: [' running', ' fast']; quote a text that has commas" in reject.message
    assert documents(table) == [Document("b", "a cat", None, {})]


def test_a_column_without_a_name_is_left_out_and_one_that_is_there_twice_refused(tmp_path: Path) -> None:
    table = tmp_path / "docs.csv"
    table.write_text(",id,text, \n0,a,a dog,1\n1,b,a cat,\n")
    assert documents(table) == [Document("a", "a dog", None, {}), Document("b", "a cat", None, {})]
    table.write_text("id,text,text\na,a dog,a cat\n")
    with pytest.raises(ConfigError, match="has two columns 'text'"):
        list(Paths([table]))


def test_a_table_that_is_none_is_an_error(tmp_path: Path) -> None:
    touch(tmp_path / "a.csv", b"colour,size\nred,3\n")
    with pytest.raises(ConfigError, match="needs at least one of the columns id, text and image; it has colour, size"):
        list(Paths([tmp_path / "a.csv"]))
    touch(tmp_path / "b.csv", "id,größe\na,Größe 3\n".encode().replace(b"\xc3\xb6", b"\xff", 1))
    with pytest.raises(ConfigError, match="header is no text"):
        list(Paths([tmp_path / "b.csv"]))


def test_rows_are_rejected_where_they_are_nested_too_deeply_to_be_read(tmp_path: Path) -> None:
    depths = [*range(sys.getrecursionlimit() - 200, sys.getrecursionlimit() + 50), 100_000]
    rows = [f'{{"id": "{depth}", "m": {"[" * depth}{"]" * depth}}}\n' for depth in depths]
    table = touch(tmp_path / "deep.jsonl", "".join([*rows, '{"id": "a", "text": "fine"}']).encode())
    *nested, fine = documents(table)
    assert {document.metadata["unread"] for document in nested} == {"1 m value"}
    assert fine == Document("a", "fine")
    assert [(r.id, r.code) for r in rejects(table)] == [
        (f"{table}:{number}", "invalid") for number in range(len(nested) + 1, len(rows) + 1)
    ]
    assert "no JSON that can be read: it is nested too deeply" in rejects(table)[-1].message


def test_long_cells_are_read(tmp_path: Path) -> None:
    text = "many words " * 20_000
    table = touch(tmp_path / "long.csv", f'id,text\na,"{text}"\nb,short\n'.encode())
    assert [(doc.id, doc.text) for doc in documents(table)] == [("a", text), ("b", "short")]


@pytest.mark.parametrize(
    ("name", "data"),
    [
        (
            "docs.jsonl",
            b'{"id": "a", "text": "one"}\n{"id": "b", "text": "caf\xe9"}\n{"id": "c", "text": "caf\xc3\xa9"}\n',
        ),
        ("docs.csv", b'id,text\na,one\nb,"caf\xe9"\nc,caf\xc3\xa9\n'),
    ],
)
def test_a_row_that_is_no_text_is_rejected_and_the_others_are_taken(tmp_path: Path, name: str, data: bytes) -> None:
    table = touch(tmp_path / name, data)
    assert [(doc.id, doc.text) for doc in documents(table)] == [("a", "one"), ("c", "café")]
    (found,) = rejects(table)
    assert found.code == "unsupported"
    line = 2 if name == "docs.jsonl" else 3
    assert (found.id, found.message) == (
        f"{table}:{line}",
        f"{name}, line {line}: no text in the character set of the table",
    )


def test_a_table_that_cannot_be_read_is_rejected_and_covers_nothing(tmp_path: Path) -> None:
    (tmp_path / "gone.csv").symlink_to(tmp_path / "nowhere.csv")
    source = Paths([tmp_path / "gone.csv", touch(tmp_path / "docs.jsonl", b'{"text": "fine"}')])
    assert len(source) == 2
    reject, document = source
    assert isinstance(reject, Reject)
    assert (reject.id, reject.code) == (str(tmp_path / "gone.csv"), "unreadable")
    assert isinstance(document, SourceDocument)
    assert not source.covers("row", reject.stamp)
    assert source.covers("row", Stamp("", document.source))
    assert not source.was_read(reject.id, reject.stamp)
    touch(tmp_path / "nowhere.csv", b"id,text\na,fine\n")
    assert len(list(source)) == 2
    assert source.was_read(reject.id, reject.stamp)


def test_text_files_that_cannot_be_read_are_rejected(tmp_path: Path) -> None:
    picture = BytesIO()
    Image.new("RGB", (8, 8), "red").save(picture, "PNG")
    names = {
        "png.txt": picture.getvalue(),
        "doubles.md": array("d", range(1, 99)).tobytes(),
        "noise.txt": b"caf\xe9\0x",
    }
    for name, data in names.items():
        touch(tmp_path / name, data)
    os.symlink(tmp_path / "nowhere", tmp_path / "gone.md")
    codes = dict.fromkeys(names, "unsupported") | {"gone.md": "unreadable"}
    assert {Path(r.id).name: r.code for r in rejects(tmp_path)} == codes
    assert f"'{tmp_path}/png.txt' is binary data, and no text" in [r.message for r in rejects(tmp_path)]


def test_pipes_and_devices_are_never_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.txt")
    os.symlink("/dev/zero", tmp_path / "zero.md")
    found = rejects(tmp_path)
    assert [(Path(r.id).name, r.code) for r in found] == [("pipe.txt", "unreadable"), ("zero.md", "unreadable")]
    assert all("is a pipe, a socket or a device, not a text file" in r.message for r in found)
    os.mkfifo(tmp_path / "pipe.csv")
    os.symlink("/dev/zero", tmp_path / "zero.jsonl")
    for table in ("pipe.csv", "zero.jsonl"):
        with pytest.raises(ConfigError, match=f"{table}' is a pipe, a socket or a device; a table is a file"):
            Paths([tmp_path / table])
    assert [(Path(r.id).name, r.code) for r in rejects(tmp_path / "*.csv")] == [("pipe.csv", "unreadable")]


def test_a_text_file_that_is_too_large_is_rejected_with_its_size(tmp_path: Path) -> None:
    os.truncate(touch(tmp_path / "long.txt"), MAX_FILE_BYTES + 1)
    (found,) = rejects(tmp_path)
    assert found.code == "too_large"
    assert "long.txt' has 536,870,913 bytes; at most 536,870,912 are read" in found.message


def test_what_a_run_covers(tmp_path: Path) -> None:
    folder, table = tmp_path / "photos", touch(tmp_path / "docs.jsonl", b"{}")
    folder.mkdir()
    source, inside = Paths([folder, table]), str(folder / "a.jpg")
    assert source.covers(inside, Stamp("", inside))
    assert source.covers("anything", Stamp("", str(table)))
    assert not source.covers(inside, Stamp("", "other.jsonl"))
    assert not source.covers(f"{folder}2/a.jpg", Stamp("", f"{folder}2/a.jpg"))
    assert not source.covers("from-python", Stamp("", ""))
