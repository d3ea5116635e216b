"""Documents that a model is not made for, on the command line: a note, a title, and facts in JSON."""

import json
import shutil
from pathlib import Path
from uuid import uuid4

import pytest

from tests.support.cli import ok, run
from tests.support.terminal import on_a_terminal
from vlmsearch.building.data import sentences
from vlmsearch.models.bundle import cache_folder

SETTINGS = {"VLMSEARCH_STORE": "sqlite:index", "VLMSEARCH_ENCODER": "onnx:demo-minilm"}
NOTE = "Note: scores are uncalibrated: demo-minilm is made for drawn scenes, and"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp(f"uncalibrated-{uuid4().hex}")  # an index of this name had no note yet
    rows = [json.dumps({"id": f"text-{i}", "text": text}) for i, text in enumerate(sentences()[:60])]
    (folder / "table.jsonl").write_text("\n".join(rows))
    done = run("index", "table.jsonl", cwd=folder, **SETTINGS)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count(NOTE) == 1
    return folder


@pytest.fixture
def unnoted(folder: Path, tmp_path: Path) -> Path:
    """A copy of the index, about which nothing was printed yet."""
    return Path(shutil.copytree(folder, tmp_path / uuid4().hex))


def test_the_note_is_printed_once_for_an_index(folder: Path, unnoted: Path) -> None:
    for place in (f"sqlite:{unnoted}/index", "sqlite:index", "sqlite:./index"):
        done = run("search", "the weather", cwd=unnoted, **(SETTINGS | {"VLMSEARCH_STORE": place}))
        assert done.stderr.count(NOTE) == (place == f"sqlite:{unnoted}/index"), place
    assert NOTE not in run("ask", "What about the weather?", cwd=folder, **SETTINGS).stderr
    assert NOTE not in run("index", "table.jsonl", cwd=folder, **SETTINGS).stderr


def test_quiet_prints_no_note(unnoted: Path) -> None:
    assert NOTE not in run("search", "the weather", "--quiet", cwd=unnoted, **SETTINGS).stderr
    assert run("search", "the weather", cwd=unnoted, **SETTINGS).stderr.count(NOTE) == 1


def test_a_cache_that_takes_no_files_changes_nothing_else(unnoted: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    cache.mkdir()
    for folder in cache_folder().iterdir():
        if folder.name != "noted":
            (cache / folder.name).symlink_to(folder)
    (cache / "noted").write_text("a file in the place of the folder")
    for _ in range(2):
        done = run("search", "the weather", cwd=unnoted, VLMSEARCH_CACHE=str(cache), **SETTINGS)
        assert (done.returncode, done.stderr.count(NOTE)) == (0, 1)


def test_a_search_prints_one_note_and_keeps_its_output(unnoted: Path) -> None:
    folder = unnoted
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
