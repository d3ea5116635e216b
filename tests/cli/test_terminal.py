"""What comes from outside, shown on a terminal and in a pipe."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.support.cli import ok, run
from tests.support.openai_server import OpenAIServer, Script
from tests.support.terminal import on_a_terminal
from vlmsearch import Document, Pipeline
from vlmsearch._util.text import visible
from vlmsearch.cli import cli

TEXT = "a star [/INST] [red]:star: \x1b[31mand\x07 more"


def _index(folder: Path) -> str:
    store = f"sqlite:{folder / 'index'}"
    with Pipeline.open(store=store, encoder="onnx:demo-clip") as pipeline:
        pipeline.add([Document("one[/two]", text=TEXT)])
    return store


@pytest.mark.slow
def test_texts_on_a_terminal_are_neither_markup_nor_commands(tmp_path: Path) -> None:
    store = _index(tmp_path)
    shown = on_a_terminal("search", "a star", "--store", store, environment={"COLUMNS": "200"}).decode()
    assert "a star [/INST] [red]:star: \\u001b[31mand\\u0007 more" in shown
    assert "one[/two]" in shown


def test_a_match_in_a_pipe_is_one_line_of_three_cells(tmp_path: Path) -> None:
    (line,) = ok("search", "a star", "--store", _index(tmp_path)).splitlines()
    score, name, text = line.split("\t")
    assert float(score) > 0
    assert (name, text) == ("one[/two]", "a star [/INST] [red]:star: \\u001b[31mand\\u0007 more")


def test_json_of_what_is_no_utf8_has_escapes(tmp_path: Path) -> None:
    store = f"sqlite:{tmp_path / 'index'}"
    with Pipeline.open(store=store, encoder="onnx:demo-clip") as pipeline:
        pipeline.add([Document("one", text="a star \ud83d naïve", metadata={"k": "v\udc00"})])
    printed = CliRunner(charset="utf-8").invoke(cli, ["search", "a star", "--store", store, "--json"])
    assert printed.exit_code == 0, printed.output
    (match,) = json.loads(printed.stdout_bytes.decode("utf-8"))["matches"]
    assert (match["text"], match["metadata"]) == ("a star \ud83d naïve", {"k": "v\udc00"})
    assert "naïve" in printed.stdout
    sheet = tmp_path / "page.html"
    assert ok("search", "a star", "--store", store, "--html", sheet).endswith("\tone\ta star \\ud83d naïve\n")
    assert "a star ? naïve" in sheet.read_text(encoding="utf-8")


@pytest.mark.slow
def test_what_the_encoding_of_the_output_lacks_has_escapes(tmp_path: Path) -> None:
    store, text = f"sqlite:{tmp_path / 'index'}", "naïve → \U0001f600 \x93"
    with Pipeline.open(store=store, encoder="onnx:demo-clip") as pipeline:
        pipeline.add([Document("one", text=text)])
    printed = {}
    for form in ((), ("--json",)):
        done = subprocess.run(
            [sys.executable, "-m", "vlmsearch", "search", "a star", "--all", "--store", store, *form],
            capture_output=True, env=os.environ | {"PYTHONIOENCODING": "latin-1"}, check=False,
        )  # fmt: skip
        assert (done.returncode, done.stderr) == (0, b"")
        printed[form] = done.stdout.decode("latin-1")
    assert printed[()].endswith("\tnaïve \\u2192 \\U0001f600 \\u0093\n")
    assert json.loads(printed["--json",])["matches"][0]["text"] == text


def test_an_id_that_is_no_utf8_is_in_no_index(tmp_path: Path) -> None:
    result = CliRunner().invoke(cli, ["delete", "lat\udce9in.png", "--store", _index(tmp_path)])
    assert (result.exit_code, result.output) == (1, "0 deleted\nError: none of these ids is in the index\n")


def test_what_can_be_seen_stays() -> None:
    assert visible("naïve 星 \U0001f600 a\u200db") == "naïve 星 \U0001f600 a\u200db"
    assert visible("\x00\x85\udce9\u202e\u2028") == "\\u0000\\u0085\\udce9\\u202e\\u2028"
    assert visible("two\nlines\tand\r") == "two\nlines\tand\\u000d"


HOSTILE = "\x1b[2J\x1b]0;mine\x07 \u202egpj.exe\u2066 \x9b31m \r\u200f\x7f"
SHOWN = "\\u001b[2J\\u001b]0;mine\\u0007 \\u202egpj.exe\\u2066 \\u009b31m \\u000d\\u200f\\u007f"


def assert_harmless(printed: str) -> None:
    assert [char for char in printed if char != "\n" and visible(char) != char] == []


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An index, below the current folder, of a document with a hostile text."""
    folder = tmp_path_factory.mktemp("hostile")
    with Pipeline.open(store=f"sqlite:{folder / 'index'}", encoder="mock:") as pipeline:
        pipeline.add([Document(f"a{HOSTILE[15:22]}", text=f"star {HOSTILE}", metadata={"k": HOSTILE})])
    return folder


@pytest.fixture(scope="module")
def ask() -> Iterator[tuple[str, ...]]:
    """The command to ask a hostile generator."""
    with OpenAIServer(Script(reply=f"It is [1] {HOSTILE}.")) as server:
        yield "ask", "star", "--store", "sqlite:index", "--encoder", "mock:", "--generator", f"openai:{server.url}"


@pytest.mark.parametrize("form", ["--stream", "--no-stream"])
def test_an_answer_steers_no_terminal(hostile: Path, ask: tuple[str, ...], form: str) -> None:
    done = run(*ask, form, cwd=hostile)
    assert done.stdout.startswith(f"It is [1] {SHOWN}.\n  [1] a")
    assert_harmless(done.stdout + done.stderr)
    shown = on_a_terminal(*ask, form, cwd=hostile).decode().replace("\r\n", "\n")
    assert shown.startswith(f"It is [1] {SHOWN}.\n  [1] a")
    assert_harmless(shown)


def test_json_stays_json_and_steers_no_terminal(hostile: Path, ask: tuple[str, ...]) -> None:
    for command in (ask, ("search", *ask[1:-2])):
        printed = ok(*command, "--json", cwd=hostile)
        assert_harmless(printed)
        (match,) = json.loads(printed)["matches"]
        assert (match["text"], match["metadata"]) == (f"star {HOSTILE}", {"k": HOSTILE})
    assert json.loads(ok(*ask, "--json", cwd=hostile))["text"] == f"It is [1] {HOSTILE}."


def test_what_a_server_says_steers_no_terminal(hostile: Path, ask: tuple[str, ...]) -> None:
    with OpenAIServer(Script(models=("one", HOSTILE))) as server:
        done = run(*ask[:-1], f"openai:{server.url}", cwd=hostile)
    assert done.returncode == 1
    assert visible(" ".join(HOSTILE.split())) in done.stderr  # what a server says is one line
    assert_harmless(done.stderr)


def test_names_of_files_steer_no_terminal(tmp_path: Path) -> None:
    name = HOSTILE.replace("/", "")
    (tmp_path / f"{name}.csv").write_text("colour\nred\n")
    (tmp_path / f"{name}.png").write_bytes(b"no image at all")
    for arguments in (
        ("index", f"{name}.csv"),
        ("index", f"{name}.png"),
        ("index", f"no {name}"),
        ("ask", "a star?", "--template", f"no {name}"),
        ("models", name),
    ):
        done = run(*arguments, cwd=tmp_path, VLMSEARCH_ENCODER="mock:", VLMSEARCH_STORE="sqlite:index")
        assert "2J" in done.stderr
        assert_harmless(done.stdout + done.stderr)


def test_no_way_of_printing_reaches_the_terminal_unchanged() -> None:
    script = f"""
import sys, click, warnings
import vlmsearch.cli
from rich.progress import Progress
from vlmsearch.errors import TextTruncatedWarning
from vlmsearch._util.console import make_console, make_table

def command(**_):
    hostile = {HOSTILE!r}
    print(hostile)
    sys.stdout.writelines([hostile, "\\n"])
    click.echo(hostile)
    click.echo(hostile, err=True)
    sys.stderr.write(hostile + "\\n")
    make_console().print(hostile, soft_wrap=True)
    make_console(stderr=True).print(make_table(["a"], [[hostile]]))
    with Progress(console=make_console(stderr=True)) as bar:
        bar.add_task(hostile)
    warnings.warn(hostile, TextTruncatedWarning)
    raise ValueError(hostile)

vlmsearch.cli.cli.main = command
vlmsearch.cli.main()
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=False,
        env=os.environ | {"COLUMNS": "200"},
    )  # fmt: skip
    assert (done.stdout.count("mine"), done.stderr.count("mine")) == (4, 6)
    assert_harmless(done.stdout + done.stderr)
