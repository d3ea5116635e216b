"""Passages of long texts on the command line: found, shown, read and counted."""

import json
from pathlib import Path

import pytest

from tests.support.cli import ok, run
from tests.support.long_texts import PASSAGES, long_record
from tests.support.terminal import on_a_terminal
from vlmsearch import Document, Pipeline

STORE = ("--store", "sqlite:index")
SEARCH = ("search", "--limit", "1", "--encoder", "mock:", *STORE)
QUERY = "emergency number of the plumber"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of an index with a handbook and a note."""
    folder = tmp_path_factory.mktemp("passages")
    with Pipeline.open(encoder="mock:", store=f"sqlite:{folder / 'index'}") as pipeline:
        pipeline.add(Document("note", text="a red kite"))
        pipeline.store.upsert([long_record(pipeline.encoder, str(folder / "handbook.txt"))])
    return folder


def test_a_match_is_shown_by_its_passage(folder: Path) -> None:
    [line] = ok(*SEARCH, QUERY, cwd=folder).splitlines()
    assert line.split("\t")[1:] == [str(folder / "handbook.txt"), " ".join(PASSAGES[2].split())]
    [match] = json.loads(ok(*SEARCH, QUERY, "--json", cwd=folder))["matches"]
    start = len(PASSAGES[0] + PASSAGES[1])
    place = {"number": 3, "start": start, "end": start + len(PASSAGES[2]), "heading": "Keys", "text": PASSAGES[2]}
    assert (match["id"], match["text"]) == (str(folder / "handbook.txt"), "".join(PASSAGES))
    assert match["passage"] == place
    [match] = json.loads(ok(*SEARCH, "red kite", "--json", cwd=folder))["matches"]
    assert (match["id"], match["passage"]) == ("note", None)
    sheet = folder / "sheet.html"
    ok(*SEARCH, QUERY, "--html", sheet, cwd=folder)
    written = sheet.read_text()
    assert "Keys, characters 512-" in written
    assert "handbook.txt, passage 3" in written


def test_a_table_shows_where_the_words_are(folder: Path) -> None:
    wide = {"COLUMNS": "300"}
    shown = on_a_terminal(*SEARCH, QUERY, cwd=folder, environment=wide).decode()
    assert "handbook.txt, passage 3" in shown
    assert "Keys, characters 512-" in shown
    assert "... " in shown
    assert "The emergency number of the plumber is 4471. Bring back" in " ".join(shown.split())
    assert "carps" not in shown


def test_a_passage_is_read_by_its_id_and_the_whole_by_that_of_its_document(folder: Path) -> None:
    shown = ok("get", "handbook.txt#passage=3", *STORE, cwd=folder)
    assert shown.startswith(f"{folder / 'handbook.txt'}#passage=3\n  place  Keys, characters 512-")
    assert "is 4471" in shown
    assert "carps" not in shown
    assert "carps" in ok("get", "handbook.txt", *STORE, cwd=folder)
    read = json.loads(ok("get", "handbook.txt#passage=1", "note", "--json", *STORE, cwd=folder))
    assert [document["text"] for document in read["documents"]] == [PASSAGES[0], "a red kite"]
    [(id, place)] = read["passages"].items()
    assert (id, place["number"], place["start"], place["end"]) == (f"{folder}/handbook.txt#passage=1", 1, 0, 272)
    assert "not in the index" in run("get", "handbook.txt#passage=4", *STORE, cwd=folder).stderr


def test_an_explanation_names_the_passage(folder: Path) -> None:
    settings = ("--encoder", "mock:", *STORE)
    shown = ok("explain", QUERY, "handbook.txt", *settings, cwd=folder)
    assert "It is shown at place 1." in shown
    assert "passage 3" in shown
    told = json.loads(ok("explain", QUERY, "handbook.txt#passage=2", "--json", *settings, cwd=folder))
    assert told["passage"]["number"] == 2


def test_counts_are_of_documents_and_say_passages_beside(folder: Path) -> None:
    done = run("count", *STORE, cwd=folder)
    assert (done.stdout, done.stderr) == ("2\n", "and 3 passages of long texts\n")
    assert json.loads(ok("count", "--json", *STORE, cwd=folder)) == {"documents": 2, "files": 2, "passages": 3}
    shown = ok("info", *STORE, cwd=folder)
    assert "documents   2\npassages    3\n" in shown
    assert len(ok("list", *STORE, cwd=folder).splitlines()) == 2
