"""Parts of files on the command line: indexed with an option, shown by file, explained, deleted."""

import json
from pathlib import Path

from tests.support.cli import ok, run
from tests.support.facts import own
from tests.support.pdf_files import write_pdf


def test_pages_are_indexed_shown_explained_and_deleted(tmp_path: Path) -> None:
    path = write_pdf(tmp_path / "a.pdf", ["a red dog", "a blue car", "a red dog and a cat"])
    store = ("--store", f"sqlite:{tmp_path / 'index'}")
    left_out = run("index", tmp_path, *store, "--encoder", "onnx:demo")
    assert left_out.returncode == 1
    assert "were left out, since they are read with an option: --pdf\n" in left_out.stderr
    (tmp_path / "note.txt").write_text("stock prices")
    assert ok("index", tmp_path, *store, "--encoder", "onnx:demo").startswith("1 added")
    assert ok("index", tmp_path, "--pdf", *store).startswith("4 added, 0 updated, 1 unchanged")
    assert ok("index", path, *store).startswith("0 added, 0 updated, 1 unchanged")
    [line] = ok("search", "a red dog", "--min-score", "0.5", *store).splitlines()
    assert line.split("\t")[1:] == [f"{path}#page=1", "a red dog"]
    [match] = json.loads(ok("search", "a red dog", "--min-score", "0.5", "--json", *store))["matches"]
    assert own(match["metadata"]) == {"page": 1}
    assert next(iter(match["parts"])) == f"{path}#page=3"
    sheet = tmp_path / "sheet.html"
    ok("search", "a red dog", "--html", sheet, *store, cwd=tmp_path)
    assert "a.pdf, page 1 and" in sheet.read_text()
    why = json.loads(ok("explain", "a red dog", f"{path}#page=3", "--json", *store))
    assert (why["outcome"], why["place"]) == ("part", None)
    assert why["reason"].startswith(f"{path}#page=1 is a better part of the same file")
    assert ok("delete", path, *store) == "4 deleted\n"
    assert "note.txt" in ok("search", "stock prices", *store)


def test_files_that_an_option_takes_are_counted_where_it_is_not_given(tmp_path: Path) -> None:
    write_pdf(tmp_path / "a.pdf", ["a red dog"])
    write_pdf(tmp_path / "b.pdf", ["a blue car"])
    (tmp_path / "film.mp4").write_bytes(b"not looked at")
    (tmp_path / "note.txt").write_text("stock prices")
    settings = ("--store", f"sqlite:{tmp_path / 'index'}", "--encoder", "mock:")
    done = run("index", tmp_path, *settings)
    assert (done.returncode, done.stdout.partition(",")[0]) == (0, "1 added")
    assert done.stderr == "3 files left out: add --pdf, --video\n"
    assert json.loads(ok("index", tmp_path, *settings, "--json"))["left_out"] == {"pdf": 2, "video": 1}
    done = run("index", tmp_path, "--pdf", *settings)
    assert done.stdout.startswith("4 added, 0 updated, 1 unchanged")
    assert done.stderr == "1 file left out: add --video\n"


def test_nothing_that_can_be_used_is_exit_1(tmp_path: Path) -> None:
    settings = ("--store", f"sqlite:{tmp_path / 'index'}", "--encoder", "mock:")
    (tmp_path / "pics").mkdir()
    (tmp_path / "pics" / "bad.png").write_bytes(b"no image")
    for _ in range(2):
        done = run("index", tmp_path / "pics", *settings)
        assert (done.returncode, done.stdout.startswith("0 added, 0 updated, 0 unchanged, 1 rejected")) == (1, True)
        assert "unsupported" in done.stderr
    done = run("index", tmp_path / "pics", *settings, "--json")
    assert (done.returncode, json.loads(done.stdout)["rejects"][0]["code"]) == (1, "unsupported")
    (tmp_path / "pics" / "note.txt").write_text("a note")
    assert run("index", tmp_path / "pics", *settings).returncode == 0
    assert run("index", tmp_path / "pics", *settings).returncode == 0, "the note is there, unchanged"
