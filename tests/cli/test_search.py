"""``vlmsearch search``: what is asked, and how the answer is shown."""

import json
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from tests.support.cli import ok, run
from tests.support.terminal import on_a_terminal

SETTINGS = {"VLMSEARCH_STORE": "sqlite:index", "VLMSEARCH_ENCODER": "mock:"}
COLOURS = ("red", "green", "blue")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("search")
    rows: list[dict[str, Any]] = [
        {"id": f"{colour} {thing}", "text": f"{colour} {thing}", "colour": colour, "number": i}
        for i, (colour, thing) in enumerate(
            (colour, thing) for thing in ("star", "ring", "cross") for colour in COLOURS
        )
    ]
    for colour in COLOURS:
        Image.new("RGB", (8, 8), colour).save(folder / f"{colour}.png")
        rows.append({"id": f"picture {colour}", "image": f"{colour}.png"})
    (folder / "table.jsonl").write_text("\n".join(map(json.dumps, rows)))
    ok("index", "table.jsonl", cwd=folder, **SETTINGS)
    return folder


def found(folder: Path, *arguments: str) -> list[str]:
    return [line.split("\t")[1] for line in ok("search", *arguments, cwd=folder, **SETTINGS).splitlines()]


def answer(folder: Path, *arguments: str) -> dict[str, Any]:
    result: dict[str, Any] = json.loads(ok("search", *arguments, "--json", cwd=folder, **SETTINGS))
    return result


def test_like_and_without_take_texts_images_and_ids(folder: Path) -> None:
    assert found(folder, "--like", "red star")[0] != "red star"
    several = found(folder, "--like", "red star", "--like", "blue ring", "--limit", "20")
    assert not {"red star", "blue ring"} & set(several)
    assert "red star" in found(folder, "star", "--limit", "20")
    assert "red star" not in found(folder, "star", "--without-like", "red star", "--limit", "20")
    assert "red star" not in found(folder, "star", "--without", "red star", "--limit", "20")
    assert "picture red" in found(folder, "star", "--limit", "20")
    assert "picture red" not in found(folder, "star", "--without-image", "red.png", "--limit", "20")
    assert answer(folder, "star -ring")["matches"] == answer(folder, "star", "--without", "ring")["matches"]


def test_pages_follow_each_other(folder: Path) -> None:
    whole = found(folder, "red star", "--limit", "12")
    assert len(whole) == 12
    assert [id for page in ("1", "2", "3") for id in found(folder, "red star", "--limit", "4", "--page", page)] == whole
    first = answer(folder, "red star", "--limit", "5")
    rest = answer(folder, "red star", "--limit", "10", "--cursor", first["cursor"])
    assert [match["id"] for page in (first, rest) for match in page["matches"]] == whole
    assert rest["cursor"] is None


def test_matches_are_sorted_and_counted(folder: Path) -> None:
    arguments = ("star", "--sort", "-number", "--limit", "2", "--facet", "colour", "--facet", "number")
    result = answer(folder, *arguments)
    assert [match["metadata"]["number"] for match in result["matches"]] == [8, 7]
    assert result["total"] == 12
    assert sorted((each["value"], each["count"]) for each in result["facets"]["colour"]) == [
        ("blue", 3),
        ("green", 3),
        ("red", 3),
    ]
    lines = ok("search", *arguments, cwd=folder, **SETTINGS).splitlines()
    assert lines[2] == "colour\tdocuments"
    assert sorted(lines[3:6]) == ["blue\t3", "green\t3", "red\t3"]
    assert sorted(found(folder, "star", "--diverse", "0.9", "--limit", "12")) == sorted(
        found(folder, "star", "--limit", "12")
    )


def test_nothing_matches_and_how_to_see_the_rest(folder: Path) -> None:
    for arguments, said in (
        (["--where", '{"number": 99}'], "Nothing matches.\n"),
        (["--where", '{"number": 99}', "--min-score", "0.5"], "Nothing matches: --all shows what comes closest.\n"),
        (["--limit", "10", "--page", "7"], "Nothing matches on page 7.\n"),
    ):
        done = run("search", "red star", *arguments, cwd=folder, **SETTINGS)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", said)
    assert len(found(folder, "elephants", "--all", "--limit", "20")) == 12
    assert answer(folder, "red star", "--min-score", "0.5")["threshold"] == 0.5


def test_a_terminal_shows_that_there_is_more(folder: Path) -> None:
    shown = on_a_terminal("search", "red star", "--limit", "3", "--page", "2", cwd=folder, environment=SETTINGS)
    assert b"More: --page 3" in shown
    none = on_a_terminal(
        "search", "star", "--where", '{"number": 99}', "--min-score", "0.5", cwd=folder, environment=SETTINGS
    )
    assert b"Nothing matches: --all shows what comes closest." in none


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["x", "--without", "a", "--without-like", "red star"], 2, "give one of --without, --without-image"),
        (["x", "--page", "2000"], 2, "--page goes to 1000 with --limit 10: the best 10,000 can be seen"),
        (["x", "--page", "2", "--cursor", "AAAA"], 2, "give --page or --cursor"),
        (["x", "--all", "--min-score", "0.5"], 2, "give --all or --min-score"),
        (["x", "--min-score", "2"], 2, "2.0 is not in the range"),
        (["x", "--cursor", "AAAA"], 1, "not a cursor of a search: 'AAAA'; begin without one"),
        (["x", "--sort", "number", "--diverse", "0.5"], 1, "sorted by a key or chosen for --diverse, not both"),
        (["--like", "nobody"], 1, "sqlite:index has no document 'nobody': --like and --without name ids"),
        (["--", "-red"], 1, "a query needs a text, an image or both, or documents for --like"),
    ],
)
def test_wrong_options_get_one_clear_line(folder: Path, arguments: list[str], code: int, message: str) -> None:
    done = run("search", *arguments, cwd=folder, **SETTINGS)
    assert (done.returncode, done.stdout) == (code, "")
    assert message in done.stderr
    if code == 1:
        assert len(done.stderr.splitlines()) == 1
