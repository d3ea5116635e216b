"""``vlmsearch label`` and ``vlmsearch duplicates`` as a user runs them."""

import json
import os
from pathlib import Path

import pytest

from tests.support.cli import ok, run
from tests.support.facts import own
from tests.support.terminal import on_a_terminal
from vlmsearch.demo.scenes import make_scene

SETTINGS = {"VLMSEARCH_STORE": "sqlite:index", "VLMSEARCH_ENCODER": "onnx:demo"}
FIRST = 17_000_000


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Twenty scenes, indexed, of which one is there twice."""
    return make_folder(tmp_path)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same for all tests that change nothing."""
    return make_folder(tmp_path_factory.mktemp("shared"))


def make_folder(folder: Path) -> Path:
    (folder / "pics").mkdir()
    for i in range(20):
        make_scene(FIRST + i).draw().save(folder / "pics" / f"{i:02}.png")
    make_scene(FIRST + 3).draw(128).save(folder / "pics" / "03 small.jpg")
    os.utime(folder / "pics" / "03 small.jpg", (10**9, 10**9))
    ok("index", "pics", cwd=folder, **SETTINGS)
    return folder


def background(index: int) -> str:
    return make_scene(FIRST + index).background


def test_labels_are_counted_shown_and_written(folder: Path) -> None:
    label, count = background(3), sum(background(i) == background(3) for i in range(20)) + 1
    shown = run("label", "--as", f"{label}, {background(4)}", cwd=folder, **SETTINGS)
    rows = [line.split("\t") for line in shown.stdout.splitlines()]
    assert [row[0] for row in rows] == ["label", label, background(4), "(none)"]
    assert rows[1][1] == str(count)
    assert "21 documents in" in shown.stderr
    assert "--write saves the labels" in shown.stderr
    first = json.loads(ok("label", "--as", label, "--limit", "2", "--json", cwd=folder, **SETTINGS))
    assert len(first["documents"]) == 2
    found = json.loads(ok("label", "--as", label, "--write", "--json", cwd=folder, **SETTINGS, VLMSEARCH_LIMIT="2"))
    assert (found["labels"], found["written"], len(found["documents"])) == ({label: count}, count, 21)
    where = json.dumps({f"label:{label}": {"$gte": 0.3}})
    matches = json.loads(ok("search", "shapes", "--all", "--where", where, "--json", cwd=folder, **SETTINGS))["matches"]
    assert {Path(match["id"]).name for match in matches} >= {"03.png", "03 small.jpg"}
    assert len(matches) == count
    again = run("label", "--as", label, "--write", cwd=folder, **SETTINGS)
    assert again.stderr.endswith("0 changed\n")


def test_indexing_says_how_many_labels_are_gone_and_remove_takes_them_off(folder: Path) -> None:
    ok("label", "--as", background(3), "--write", cwd=folder, **SETTINGS)
    make_scene(FIRST + 50).draw().save(folder / "pics" / "03.png")
    done = run("index", "pics", cwd=folder, **SETTINGS)
    assert done.stdout.startswith("0 added, 1 updated, 20 unchanged")
    assert done.stderr == "1 changed and lost their labels: run `vlmsearch label --write` again\n"
    assert json.loads(ok("index", "pics", "--json", cwd=folder, **SETTINGS))["unlabelled"] == 0
    assert ok("label", "--remove", cwd=folder, **SETTINGS) == ""
    left = json.loads(ok("search", "a", "--all", "--json", "--limit", "30", cwd=folder, **SETTINGS))["matches"]
    assert [own(match["metadata"]) for match in left] == [{}] * 21


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        ((), 2, "name labels with --as"),
        (("--as", "cat", "--remove"), 2, "name labels with --as"),
        (("--as", "cat", "--photos", "--template", "a {}"), 2, "give --photos or --template"),
        (("--as", "cat", "--template", "a photo"), 1, "--template has {} once"),
        (("--as", "cat", "--key", "$x"), 1, "under --key '$x'"),
    ],
    ids=str,
)
def test_wrong_use_of_label_is_one_line(shared: Path, arguments: tuple[str, ...], code: int, message: str) -> None:
    done = run("label", *arguments, cwd=shared, **SETTINGS)
    assert done.returncode == code
    assert message in done.stderr


def test_duplicates_are_listed_with_the_largest_and_the_oldest(folder: Path) -> None:
    done = run("duplicates", cwd=folder, **SETTINGS)
    rows = [line.split("\t") for line in done.stdout.splitlines()]
    assert [(row[0], row[1], row[2], row[5]) for row in rows[1:]] == [
        ("1", "pics/03.png", "256 x 256", "largest"),
        ("1", "pics/03 small.jpg", "128 x 128", "oldest"),
    ]
    assert rows[2][4] == "2001-09-09"
    assert done.stderr.startswith("1 duplicates among 21 images, in 1 groups")
    (folder / "pics" / "03.png").unlink()
    done = run("duplicates", "--json", cwd=folder, **SETTINGS)
    found = json.loads(done.stdout)
    assert (found["groups"], found["compared"]) == ([], 20)
    assert [Path(id).name for id, _ in found["unread"]] == ["03.png"]
    assert "not compared" in run("duplicates", cwd=folder, **SETTINGS).stderr


def test_the_table_is_aligned_on_a_terminal(shared: Path) -> None:
    shown = on_a_terminal("label", "--as", "star", cwd=shared, environment=SETTINGS)
    assert b"the most relevant" in shown
    assert b"\t" not in shown
