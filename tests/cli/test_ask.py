"""`vlmsearch ask` as a user runs it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.cli import Result, run
from tests.support.terminal import on_a_terminal
from vlmsearch import Document, Pipeline

STARS = [f"red star number {i}" for i in range(3)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("ask")
    with Pipeline.open(encoder="mock:", store=f"sqlite:{folder / 'index'}") as pipeline:
        pipeline.add(Document(f"star-{i}", text=text) for i, text in enumerate(STARS))
    return folder


ASK = ("ask", "red star", "--store", "sqlite:index", "--encoder", "mock:")


def ask(folder: Path, *arguments: str) -> Result:
    return run(*ASK, *arguments, cwd=folder)


def test_a_pipe_gets_the_answer_and_its_sources(folder: Path) -> None:
    done = ask(folder, "--generator", "mock:See [2] and [9].")
    found = json.loads(ask(folder, "--generator", "mock:See [2] and [9].", "--json").stdout)
    assert done.stdout == f"See [2] and.\n  [2] {found['citations'][0]['id']}\n"
    assert done.stderr == "Note: [9] cited no source and was removed from the answer\n"
    assert found["text"] == "See [2] and."
    assert found["removed"] == [9]
    assert found["citations"] == [{"number": 2, "id": found["matches"][1]["id"], "passage": None}]
    assert len(found["matches"]) == 3


def test_a_long_source_says_how_much_of_it_was_not_read(tmp_path: Path) -> None:
    with Pipeline.open(encoder="mock:", store=f"sqlite:{tmp_path / 'index'}") as pipeline:
        pipeline.add(Document("book", text="red star " * 400))
    given = ("--generator", "mock:See [1].", "--source-chars", "1000", "--min-score", "0")
    found = json.loads(ask(tmp_path, *given, "--json").stdout)
    read = found["read"]["book"]
    [number] = read["passages"]
    assert found["citations"] == [{"number": 1, "id": "book", "passage": f"book#passage={number}"}]
    assert 2600 <= read["unread"] < 3600
    part = f"passage {number} of {read['count']}; {read['unread']:,} characters not read"
    assert ask(tmp_path, *given).stdout == f"See [1].\n  [1] book ({part})\n"


def test_streamed_it_is_the_same(folder: Path) -> None:
    whole = ask(folder, "--generator", "mock:See [2] and [9].", "--no-stream")
    streamed = ask(folder, "--generator", "mock:See [2] and [9].", "--stream")
    assert (streamed.stdout, streamed.stderr) == (whole.stdout, whole.stderr)


def test_a_terminal_gets_a_stream(folder: Path) -> None:
    first, second = on_a_terminal(*ASK, "--generator", "mock:See [1].", cwd=folder).decode().splitlines()
    assert first == "See [1]."
    assert second.startswith("  [1] star-")


def test_sources_that_do_not_fit_are_named(folder: Path) -> None:
    done = ask(folder, "--generator", "mock:Yes [1].?context=57", "--max-tokens", "8")
    assert done.returncode == 0
    assert done.stderr.startswith("Note: 1 of 3 sources did not fit into the prompt of mock:: star-")
    found = json.loads(ask(folder, "--generator", "mock:Yes [1].?context=57", "--max-tokens", "8", "--json").stdout)
    assert (len(found["matches"]), len(found["dropped"])) == (2, 1)


def test_options_are_followed(folder: Path) -> None:
    generator = ("--generator", "mock:one two three four")
    assert ask(folder, *generator, "--max-tokens", "3").stdout == "one two three\n"
    assert ask(folder, *generator, "--stop", "three", "--stop", "two").stdout == "one\n"
    assert ask(folder, *generator, "--temperature", "0.7", "--top-p", "0.9", "--top-k", "5", "--seed", "1").stdout


def test_a_template_of_ones_own(folder: Path) -> None:
    (folder / "mine.txt").write_text("$question? Look:\n$sources\n")
    (folder / "bad.txt").write_text("$question alone")
    done = ask(folder, "--template", "mine.txt", "--generator", "extractive:?quotes=1")
    assert done.stdout.startswith("“red star number")
    bad = ask(folder, "--template", "bad.txt")
    assert (bad.returncode, bad.stdout) == (1, "")
    assert "a template has the places $sources and $question" in bad.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--stream", "--json"], 2, "leave out --stream"),
        (["--max-tokens", "0"], 2, "0 is not in the range x>=1"),
        (["--temperature", "-1"], 2, "-1.0 is not in the range x>=0"),
        (["--top-p", "2"], 2, "2.0 is not in the range 0<x<=1"),
        (["--template", "nowhere.txt"], 1, "the template nowhere.txt cannot be read"),
        (["--generator", "mock:?context=9"], 1, "ask shorter, lower --max-tokens or take another model"),
        (["--generator", "nonsense:"], 1, "no generator 'nonsense:'; "),
    ],
)
def test_what_cannot_be_gets_one_clear_line(folder: Path, arguments: list[str], code: int, message: str) -> None:
    done = ask(folder, *arguments)
    assert (done.returncode, done.stdout) == (code, "")
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_the_environment_has_one_text_to_stop_at_a_line(folder: Path) -> None:
    whole = ask(folder).stdout
    assert run(*ASK, cwd=folder, VLMSEARCH_STOP="blue number").stdout == whole
    stopped = run(*ASK, cwd=folder, VLMSEARCH_STOP="blue number\nar num").stdout
    assert stopped.splitlines()[0] == whole.partition("ar num")[0]
