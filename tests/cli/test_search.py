"""``vlmsearch search``: what is asked, and how the answer is shown."""

import json
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from tests.support.cli import ok, run
from tests.support.terminal import on_a_terminal
from vlmsearch.search.relevance import THRESHOLD
from vlmsearch.wire import Json

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
    assert found(folder, "--like", "red star", "--all")[0] != "red star"
    several = found(folder, "--like", "red star", "--like", "blue ring", "--all", "--limit", "20")
    assert len(several) == 10
    assert not {"red star", "blue ring"} & set(several)
    assert set(found(folder, "star")) == {"red star", "green star", "blue star"}
    for without in (["--without-like", "red star"], ["--without", "red"]):
        assert set(found(folder, "star", *without)) == {"green star", "blue star"}
    assert answer(folder, "star -red")["matches"] == answer(folder, "star", "--without", "red")["matches"]
    picture = ["--image", "red.png", "--all", "--limit", "20"]
    assert found(folder, *picture)[0] == "picture red"
    assert "picture red" not in found(folder, *picture, "--without-image", "red.png")


def test_pages_follow_each_other(folder: Path) -> None:
    whole = found(folder, "red star", "--all", "--limit", "12")
    assert len(whole) == 12
    pages = [found(folder, "red star", "--all", "--limit", "4", "--page", page) for page in ("1", "2", "3")]
    assert [id for page in pages for id in page] == whole
    first = answer(folder, "red star", "--all", "--limit", "5")
    rest = answer(folder, "red star", "--all", "--limit", "10", "--cursor", first["cursor"])
    assert [match["id"] for page in (first, rest) for match in page["matches"]] == whole
    assert rest["cursor"] is None


def test_matches_are_sorted_and_counted(folder: Path) -> None:
    arguments = ("star", "--sort", "-number", "--limit", "2", "--facet", "colour", "--facet", "number")
    result = answer(folder, *arguments)
    assert [match["metadata"]["number"] for match in result["matches"]] == [2, 1]
    assert result["total"] == 3
    counts = {key: dict(map(tuple, values)) for key, values in result["facets"].items()}
    assert counts == {"colour": {"red": 1, "green": 1, "blue": 1}, "number": {0: 1, 1: 1, 2: 1}}
    lines = ok("search", *arguments, cwd=folder, **SETTINGS).splitlines()
    assert lines[2] == "colour\tdocuments"
    assert sorted(lines[3:6]) == ["blue\t1", "green\t1", "red\t1"]
    everything = ("star", "--limit", "12", "--all")
    assert sorted(found(folder, *everything, "--diversity", "0.9")) == sorted(found(folder, *everything))


def test_nothing_matches_and_how_to_see_the_rest(folder: Path) -> None:
    for arguments, said in (
        (["star", "--where", '{"number": 99}'], "Nothing matches: --all shows what comes closest.\n"),
        (["star", "--where", '{"number": 99}', "--all"], "Nothing matches.\n"),
        (["star", "--page", "7", "--all"], "Nothing matches on page 7.\n"),
    ):
        done = run("search", *arguments, cwd=folder, **SETTINGS)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", said)
    assert len(found(folder, "elephants", "--all", "--limit", "20")) == 12
    nothing: Json = {"matches": [], "cursor": None, "threshold": THRESHOLD, "total": None, "facets": {}, "closest": []}
    assert answer(folder, "star", "--where", '{"number": 99}') == nothing | {
        "uncalibrated": {}, "shown_for": {}, "unknown_keys": {},
    }  # fmt: skip
    assert answer(folder, "star", "--min-score", "0.5")["threshold"] == 0.5


def test_a_key_that_no_document_has_is_named_where_nothing_matches(folder: Path) -> None:
    said = "No document has the key 'numbre'; did you mean 'number'? there are colour, number.\n"
    done = run("search", "star", "--where", "numbre=1", cwd=folder, **SETTINGS)
    assert (done.stdout, done.stderr) == ("", f"{said}Nothing matches: --all shows what comes closest.\n")
    assert answer(folder, "star", "--where", "numbre=1")["unknown_keys"] == {"numbre": said[:-2]}
    assert answer(folder, "star", "--where", "number=1 or numbre=1")["unknown_keys"] == {}


def test_a_terminal_shows_that_there_is_more(folder: Path) -> None:
    shown = on_a_terminal("search", "red star", "--limit", "2", "--page", "2", cwd=folder, environment=SETTINGS)
    assert b"More: --page 3" in shown
    none = on_a_terminal("search", "star", "--where", "number=99", cwd=folder, environment=SETTINGS)
    assert b"Nothing matches: --all shows what comes closest." in none


def test_what_comes_closest_is_shown_where_nothing_matches(folder: Path) -> None:
    done = run("search", "elephants", cwd=folder, **SETTINGS)
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr.startswith("No match. Closest, not sure: green star (0.")
    found = answer(folder, "elephants")
    assert found["matches"] == []
    assert [match["id"] for match in found["closest"]][:1] == ["green star"]
    shown = on_a_terminal("search", "elephants", cwd=folder, environment=SETTINGS)
    assert shown.index(b"No match. Closest, not sure:") < shown.index(b"green star")
    ok("search", "elephants", "--html", "page.html", cwd=folder, **SETTINGS)
    assert "no match; closest, not sure" in (folder / "page.html").read_text()


def test_a_misspelt_word_is_said_wherever_matches_are_shown(folder: Path) -> None:
    note = "Shown for green (no document has grene)."
    done = run("search", "grene star", cwd=folder, **SETTINGS)
    assert done.stderr == f"{note}\n"
    assert done.stdout.splitlines()[0].split("\t")[1] == "green star"
    assert answer(folder, "grene star")["shown_for"] == {"grene": "green"}
    assert note.encode() in on_a_terminal("search", "grene star", cwd=folder, environment=SETTINGS)
    ok("search", "grene star", "--html", "page.html", cwd=folder, **SETTINGS)
    assert f"<p>{note}</p>" in (folder / "page.html").read_text()
    assert note in ok("explain", "grene star", "green star", cwd=folder, **SETTINGS)


def test_a_field_that_did_not_list_a_match_has_no_rank(folder: Path) -> None:
    matches = {each["id"]: each for each in answer(folder, "star", "--all", "--limit", "20")["matches"]}
    fields = matches["red ring"]["fields"]
    assert fields["minilm/text"]["rank"] is not None
    assert (fields["words"]["rank"], fields["words"]["score"]) == (None, 0.0)
    assert fields["words"]["evidence"] < matches["red star"]["fields"]["words"]["evidence"]
    shown = on_a_terminal("search", "star", "--all", "--limit", "20", cwd=folder, environment=SETTINGS)
    assert b"minilm/text #1" in shown
    assert b"None" not in shown


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["x", "--without", "a", "--without-like", "red star"], 2, "give one of --without, --without-image"),
        (["x", "--page", "2000"], 2, "--page goes to 1000 with --limit 10: a search shows the best 10,000"),
        (["x", "--page", "2", "--cursor", "AAAA"], 2, "give --page or --cursor"),
        (["x", "--all", "--min-score", "0.5"], 2, "give --all or --min-score"),
        (["x", "--min-score", "2"], 2, "2.0 is not in the range"),
        (["x", "--cursor", "AAAA"], 1, "not a cursor of a search: 'AAAA'; begin without one"),
        (["x", "--sort", "number", "--diversity", "0.5"], 1, "sorted by a key or chosen for --diversity, not both"),
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


def test_the_name_of_an_image_gets_a_hint_and_a_url_gets_one_line(folder: Path) -> None:
    done = run("search", "red.png", cwd=folder, **SETTINGS)
    assert done.returncode == 0
    assert done.stderr.splitlines()[0] == "This searches for words. To search by an image: --image red.png"
    for text in ("nosuch.png", "table.jsonl", "a star"):
        assert "To search by an image" not in run("search", text, cwd=folder, **SETTINGS).stderr
    done = run("search", "--image", "https://example.org/a.png", cwd=folder, **SETTINGS)
    assert done.returncode == 1
    assert done.stderr.startswith("Error: 'https://example.org/a.png' is on the web")
    assert len(done.stderr.splitlines()) == 1
