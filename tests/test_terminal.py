"""What comes from outside, shown on a terminal and in a pipe."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from click.testing import CliRunner

from tests.terminal import on_a_terminal
from vlmsearch import Document, Pipeline
from vlmsearch.cli import cli
from vlmsearch.plain import visible

TEXT = "a star [/INST] [red]:star: \x1b[31mand\x07 more"


def _index(folder: Path) -> str:
    store = f"chroma:{folder / 'index'}"
    with Pipeline.open(store=store, encoder="onnx:demo-clip") as pipeline:
        pipeline.add([Document("one[/two]", text=TEXT)])
    return store


def test_texts_on_a_terminal_are_neither_markup_nor_commands(tmp_path: Path) -> None:
    store = _index(tmp_path)
    shown = on_a_terminal("search", "a star", "--store", store, environment={"COLUMNS": "200"}).decode()
    assert "a star [/INST] [red]:star: \\x1b[31mand\\x07 more" in shown
    assert "one[/two]" in shown


def test_a_match_in_a_pipe_is_one_line_of_three_cells(tmp_path: Path) -> None:
    result = CliRunner().invoke(cli, ["search", "a star", "--store", _index(tmp_path)])
    assert result.exit_code == 0, result.output
    (line,) = result.output.splitlines()
    score, name, text = line.split("\t")
    assert float(score) > 0
    assert (name, text) == ("one[/two]", "a star [/INST] [red]:star: \\x1b[31mand\\x07 more")


def test_json_of_what_is_no_utf8_has_escapes(tmp_path: Path) -> None:
    store = f"chroma:{tmp_path / 'index'}"
    with Pipeline.open(store=store, encoder="onnx:demo-clip") as pipeline:
        pipeline.add([Document("one", text="a star \ud83d naïve", metadata={"k": "v\udc00"})])
    printed = CliRunner(charset="utf-8").invoke(cli, ["search", "a star", "--store", store, "--json"])
    assert printed.exit_code == 0, printed.output
    (match,) = json.loads(printed.stdout_bytes.decode("utf-8"))["matches"]
    assert (match["text"], match["metadata"]) == ("a star \ud83d naïve", {"k": "v\udc00"})
    assert "naïve" in printed.stdout
    sheet = tmp_path / "page.html"
    lines = CliRunner().invoke(cli, ["search", "a star", "--store", store, "--html", str(sheet)])
    assert lines.exit_code == 0, lines.output
    assert "a star ? naïve" in sheet.read_text(encoding="utf-8")


def test_what_the_encoding_of_the_output_lacks_has_escapes(tmp_path: Path) -> None:
    store, text = f"chroma:{tmp_path / 'index'}", "naïve → \U0001f600 \x93"
    with Pipeline.open(store=store, encoder="onnx:demo-clip") as pipeline:
        pipeline.add([Document("one", text=text)])
    printed = {}
    for form in ((), ("--json",)):
        done = subprocess.run(
            [sys.executable, "-m", "vlmsearch", "search", "a star", "--store", store, *form],
            capture_output=True, env=os.environ | {"PYTHONIOENCODING": "latin-1"}, check=False,
        )  # fmt: skip
        assert (done.returncode, done.stderr) == (0, b"")
        printed[form] = done.stdout.decode("latin-1")
    assert printed[()].endswith("\tnaïve \\u2192 \\U0001f600 \\x93\n")
    assert json.loads(printed["--json",])["matches"][0]["text"] == text


def test_an_id_that_is_no_utf8_is_in_no_index(tmp_path: Path) -> None:
    result = CliRunner().invoke(cli, ["delete", "lat\udce9in.png", "--store", _index(tmp_path)])
    assert (result.exit_code, result.output) == (1, "0 deleted\nError: none of these ids is in the index\n")


def test_what_can_be_seen_stays() -> None:
    assert visible("naïve 星 \U0001f600 a\u200db") == "naïve 星 \U0001f600 a\u200db"
    assert visible("\x00\x85\udce9") == "\\x00\\x85\\udce9"
