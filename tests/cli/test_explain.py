"""``vlmsearch explain``: the table and the JSON."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from tests.support.cli import ok, run
from tests.support.terminal import on_a_terminal

SETTINGS = {"VLMSEARCH_STORE": "sqlite:index", "VLMSEARCH_ENCODER": "mock:"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("explain")
    picture = Image.new("RGB", (40, 30), "white")
    picture.paste("red", (0, 0, 20, 15))
    picture.save(folder / "red.png")
    rows: list[dict[str, Any]] = [
        {"id": "star", "text": "A red star. <b>It</b> is over water.", "image": "red.png", "year": 2019},
        {"id": "ring", "text": "a blue ring", "year": 2024},
        {"id": "cross", "text": "a green cross", "year": 2024},
    ]
    (folder / "table.jsonl").write_text("\n".join(map(json.dumps, rows)))
    (folder / "note.txt").write_text("a yellow boat")
    (folder / "broken.png").write_bytes(b"nothing")
    run("index", "table.jsonl", "note.txt", "broken.png", cwd=folder, **SETTINGS)
    return folder


def explain(folder: Path, *arguments: str) -> str:
    return ok("explain", *arguments, cwd=folder, **SETTINGS)


def test_a_document_that_is_shown_is_explained_in_tables(folder: Path) -> None:
    said = explain(folder, "red star boats", "star", "--parts").splitlines()
    assert said[0] == "star: It is shown at place 1."
    assert re.fullmatch(r"Relevance 0\.\d{3}, shown from 0\.300, place 1 of 4\.", said[1])
    rows = {line.split("\t")[0]: line.split("\t") for line in said if "\t" in line}
    assert rows["field"] == ["field", "rank", "value", "usually", "evidence", "weight", "adds"]
    adds = [float(rows[name][-1]) for name in ("clip/image", "minilm/text", "words", "any document", "log-odds")]
    assert sum(adds[:-1]) == pytest.approx(adds[-1], abs=0.03)
    assert rows["minilm/text"][1] == "1"
    assert rows["words"][2].endswith(
        f" of {json.loads(explain(folder, 'red star boats', 'star', '--json'))['max_bm25']:.2f}"
    )
    assert rows["boats"][1:4] == ["boat", "1", "0.00"]
    assert any(line.endswith("\tA red star.") for line in said)


def test_what_takes_a_document_out_is_said_first(folder: Path) -> None:
    first = {
        ("ring",): "ring: Its relevance of ",
        (
            "star",
            "--where",
            '{"year": {"$gte": 2020}}',
        ): "The filter leaves it out: year is at least 2020, but it is 2019",
        ("star", "--without", "red"): "It is what the query leaves out: red (1.00).",
        ("nobody",): "nobody: There is no document with this id in the index.",
        ("note.txt",): "note.txt: Its relevance of ",
        ("broken.png",): "broken.png: It could not be indexed and is in the reject list (unsupported): ",
    }
    for arguments, said in first.items():
        assert said in explain(folder, "red star", *arguments).splitlines()[0]
    assert "It is what the query leaves out: red (1.00)." in explain(folder, "star -red", "star")
    assert "The re-ranker gave it 0.980." in explain(folder, "red star", "star", "--rerank", "mock:")
    assert "Left out: boats (relevance 0." in explain(folder, "red star", "star", "--without", "boats")


def test_json_holds_all_of_it(folder: Path) -> None:
    found = json.loads(explain(folder, "red star", "star", "--json", "--parts", "--without", "boats"))
    assert found["outcome"] == "shown"
    assert found["document"]["metadata"] == {"year": 2019}
    assert found["fields"]["minilm/text"]["basis"]["fitted"] is True
    assert [word["word"] for word in found["words"]] == ["red", "star"]
    assert found["without"][0][0] == "boats"
    assert len(found["passages"]) == 2
    assert len(found["regions"]["evidence"]) == 7
    assert json.loads(explain(folder, "red star", "nobody", "--json"))["document"] is None


def test_a_query_is_needed(folder: Path) -> None:
    for arguments in ([""], [" ", "star"], ["a", "star", "--without", "b", "--without-like", "ring"]):
        assert run("explain", *arguments, cwd=folder, **SETTINGS).returncode == 2
    assert explain(folder, "", "star", "--image", "red.png").startswith("star: It is shown at place 1.")
    assert explain(folder, "", "ring", "--like", "star").startswith("ring: ")


def test_a_terminal_gets_tables(folder: Path) -> None:
    arguments = ["explain", "", "star", "--image", "red.png", "--parts"]
    shown = on_a_terminal(*arguments, cwd=folder, environment=SETTINGS).decode()
    assert "star: It is shown at place 1." in shown
    assert re.search(r"clip/image +1 +1\.000 ", shown)
    assert "The part of its image that mattered most is " in shown
