"""``vlmsearch list``, ``get`` and ``count``, and the files of documents for other programs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.cli import ok, run
from tests.support.terminal import on_a_terminal
from vlmsearch import Document, Part, Pipeline
from vlmsearch.demo.scenes import make_scene

STORE = ("--store", "sqlite:index")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("documents")
    (folder / "notes").mkdir()
    for name, text in (("one.txt", "a dog\nin the snow"), ("two\nlines.txt", "a cat")):
        (folder / "notes" / name).write_text(text)
    make_scene(1).draw(64).save(folder / "scene.png")
    with Pipeline.open(encoder="mock:", store=f"sqlite:{folder / 'index'}") as pipeline:
        pipeline.index(folder / "notes")
        years = (
            Document(f"row-{year}", text=f"a row of {year}", metadata={"year": year}) for year in range(2000, 2025)
        )
        pipeline.add(years)
        pipeline.add(Document("scene", image=folder / "scene.png", metadata={"year": 2030, "date": 20240612}))
        pages = (Document(str(Part(str(folder / "report.pdf"), page=page)), text="a page") for page in (1, 2))
        pipeline.add(pages)
    return folder


def listed(folder: Path, *options: str) -> list[str]:
    return [line.split("\t")[0] for line in ok("list", *STORE, *options, cwd=folder).splitlines()]


def test_a_pipe_gets_all_documents_with_their_texts(folder: Path) -> None:
    lines = ok("list", *STORE, cwd=folder).splitlines()
    assert len(lines) == int(ok("count", *STORE, cwd=folder)) == 30
    assert lines == sorted(lines)
    assert f"{folder / 'notes' / 'one.txt'}\ta dog in the snow" in lines
    assert "row-2024\ta row of 2024" in lines


def test_pages_are_the_documents_in_order(folder: Path) -> None:
    pages = [listed(folder, "-n", "13", "--page", str(page)) for page in (1, 2, 3, 4)]
    assert [len(page) for page in pages] == [13, 13, 4, 0]
    assert [id for page in pages for id in page] == listed(folder)
    assert "--page needs --limit" in run("list", *STORE, "--page", "2", cwd=folder).stderr


@pytest.mark.parametrize("command", ["count", "list"])
def test_a_key_that_no_document_has_is_named(command: str, folder: Path) -> None:
    done = run(command, *STORE, "--where", "yaer=2020", cwd=folder)
    assert done.stderr == "No document has the key 'yaer'; did you mean 'year'? there are date, folder, type, year.\n"
    assert run(command, *STORE, "--where", "year=1999", cwd=folder).stderr == ""
    assert run("list", *STORE, "--unread", cwd=folder).stderr == ""


@pytest.mark.parametrize(
    ("where", "count"),
    [("year>=2020 and year!=2024", 5), ('{"year": {"$lt": 2003}}', 3), ("date=2024-06", 1), ("year=1999", 0)],
)
def test_a_filter_chooses_documents(where: str, count: int, folder: Path) -> None:
    assert int(ok("count", *STORE, "--where", where, cwd=folder)) == count
    assert json.loads(ok("count", *STORE, "--where", where, "--json", cwd=folder)) == {
        "documents": count,
        "files": count,
    }
    assert len(listed(folder, "--where", where)) == count
    documents = json.loads(ok("list", *STORE, "--where", where, "--json", cwd=folder))["documents"]
    assert len(documents) == count


def test_a_wrong_filter_is_wrong_usage(folder: Path) -> None:
    done = run("count", *STORE, "--where", "year>=2020 tag=cat", cwd=folder)
    assert (done.returncode, done.stdout) == (2, "")
    assert "--where': the filter needs 'and', 'or' or the end at character 12, 'tag=cat'" in done.stderr


def test_a_terminal_gets_a_page_and_how_to_go_on(folder: Path) -> None:
    first = on_a_terminal("list", *STORE, cwd=folder).decode()
    assert first.count("row-20") == 16
    assert "year=2000" in first
    assert "More: --page 2" in first
    last = on_a_terminal("list", *STORE, "--page", "2", cwd=folder).decode()
    assert last.count("row-20") == 9
    assert "scene" in last
    assert "More" not in last
    assert "No documents." in on_a_terminal("list", *STORE, "--where", "year=1", cwd=folder).decode()


def test_files_are_printed_once_as_other_programs_read_them(folder: Path) -> None:
    done = run("list", *STORE, "--files", "--null", cwd=folder)
    names = [f"{folder}/notes/one.txt", f"{folder}/notes/two\nlines.txt", f"{folder}/report.pdf", f"{folder}/scene.png"]
    assert sorted(done.stdout.split("\0")) == sorted([*names, ""])
    assert done.stderr == "25 documents have no file\n"
    printed = ok("search", "dog", "--all", "-n", "5", "-f", *STORE, "-e", "mock:", cwd=folder)
    assert f"{folder}/notes/one.txt" in printed.splitlines()
    shown = on_a_terminal("list", *STORE, "-f", "--where", "date=2024", cwd=folder)
    assert shown.decode().split() == [f"{folder}/scene.png"]


def test_a_name_that_is_no_text_comes_as_its_bytes(tmp_path: Path) -> None:
    name = os.fsencode(tmp_path) + b"/b\xe9.txt"
    Path(os.fsdecode(name)).write_text("a dog")
    ok("index", ".", *STORE, "--encoder", "mock:", cwd=tmp_path)
    command = [sys.executable, "-m", "vlmsearch", "list", "-f0", "-s", "sqlite:index"]
    done = subprocess.run(command, capture_output=True, cwd=tmp_path, check=True)
    assert done.stdout == name + b"\0"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("list", "--null"), "--null ends the paths of --files: give both"),
        (("list", "-f", "--json"), "give --files or --json"),
        (("search", "dog", "-f", "--json"), "give --files or --json"),
    ],
)
def test_options_that_do_not_go_together_are_refused(options: tuple[str, ...], message: str, folder: Path) -> None:
    done = run(*options, *STORE, cwd=folder)
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr


def test_documents_are_shown_by_id_and_by_path(folder: Path) -> None:
    printed = ok("get", "scene", "notes/one.txt", *STORE, cwd=folder)
    assert printed.splitlines()[:7] == [
        "scene",
        f"  image  {folder / 'scene.png'}",
        "  year   2030",
        "  date   20240612",
        str(folder / "notes" / "one.txt"),
        "  text    a dog in the snow",
        "  type    txt",
    ]
    found = json.loads(ok("get", "scene", *STORE, "--json", cwd=folder))
    assert found["documents"][0]["metadata"] == {"year": 2030, "date": 20240612}


def test_a_document_that_is_missing_is_named_after_the_others(folder: Path) -> None:
    done = run("get", "nowhere", "row-2000", *STORE, cwd=folder)
    assert done.returncode == 1
    assert done.stdout.splitlines()[0] == "row-2000"
    assert done.stderr == "Error: not in the index: nowhere\n"


@pytest.mark.parametrize("command", [("list",), ("count",), ("get", "a"), ("count", "--where", "a=1")])
def test_no_index_is_one_line(command: tuple[str, ...], tmp_path: Path) -> None:
    done = run(*command, "--store", "sqlite:nowhere", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("Error: no index at sqlite:nowhere")
