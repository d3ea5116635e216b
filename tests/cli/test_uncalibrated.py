"""Documents that a model is not made for, on the command line: a note, a title, and facts in JSON."""

import json
from pathlib import Path

import pytest

from tests.support.cli import ok, run
from tests.support.terminal import on_a_terminal
from vlmsearch.building.data import sentences

SETTINGS = {"VLMSEARCH_STORE": "sqlite:index", "VLMSEARCH_ENCODER": "onnx:demo-minilm"}
NOTE = "Note: scores are uncalibrated: demo-minilm is made for drawn scenes, and"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("uncalibrated")
    rows = [json.dumps({"id": f"text-{i}", "text": text}) for i, text in enumerate(sentences()[:60])]
    (folder / "table.jsonl").write_text("\n".join(rows))
    done = run("index", "table.jsonl", cwd=folder, **SETTINGS)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count(NOTE) == 1
    return folder


def test_a_search_prints_one_note_and_keeps_its_output(folder: Path) -> None:
    done = run("search", "the weather", "--all", cwd=folder, **SETTINGS)
    assert done.returncode == 0
    assert done.stderr.count(NOTE) == 1
    assert all(len(line.split("\t")) == 3 for line in done.stdout.splitlines())
    answer = json.loads(ok("search", "the weather", "--json", cwd=folder, **SETTINGS))
    [reason] = answer["uncalibrated"].values()
    assert f"Note: scores are uncalibrated: {reason}." in done.stderr


def test_a_terminal_shows_that_scores_are_uncalibrated(folder: Path) -> None:
    shown = on_a_terminal("search", "the weather", "--all", cwd=folder, environment=SETTINGS)
    assert b"(uncalibrated)" in shown


def test_the_info_says_what_the_model_is_made_for(folder: Path) -> None:
    said = ok("info", cwd=folder, **SETTINGS)
    assert "made for    minilm/text: drawn scenes\n" in said
    assert "\nuncalibrated  minilm/text: demo-minilm is made for drawn scenes, and " in said
    facts = json.loads(ok("info", "--json", cwd=folder, **SETTINGS))
    assert list(facts["domains"]) == list(facts["uncalibrated"]) == ["minilm/text"]


def test_a_page_of_results_says_it(folder: Path) -> None:
    ok("search", "the weather", "--all", "--html", "page.html", cwd=folder, **SETTINGS)
    assert "<p>Scores are uncalibrated: demo-minilm is made for" in (folder / "page.html").read_text()


def test_models_say_what_they_are_made_for() -> None:
    rows = {row["name"]: row for row in json.loads(ok("models", "--json"))["built"]}
    assert rows["demo-clip"]["domain"] == rows["demo-minilm"]["domain"] == "drawn scenes"
