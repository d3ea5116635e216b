"""Completion in real shells, each on a terminal of its own, where a key is pressed."""

from __future__ import annotations

import os
import pty
import select
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.cli import assert_one_line, run

_SECONDS = 60
_START = {
    "bash": ["bash", "--norc", "--noprofile", "-i"],
    "zsh": ["zsh", "-f", "-i"],
    "fish": ["fish", "--no-config", "-i"],
}
_PRINT = b"end\x01printf '<''%s>' \n"
"""Keys that make a line print its words: a last one, and a command at its beginning."""
_SETUP = {
    "bash": 'eval "$(_VLMSEARCH_COMPLETE=bash_source vlmsearch)"',
    "zsh": 'autoload -Uz compinit; compinit -D; eval "$(_VLMSEARCH_COMPLETE=zsh_source vlmsearch)"',
    "fish": "_VLMSEARCH_COMPLETE=fish_source vlmsearch | source",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with ``vlmsearch`` in ``bin``, and things to complete."""
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / "vlmsearch"
    program.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m vlmsearch "$@"\n')
    program.chmod(0o755)
    (tmp_path / "pictures").mkdir()
    (tmp_path / "photograph.jpg").touch()
    return tmp_path


def environment(folder: Path) -> dict[str, str]:
    path = f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}"
    libraries = os.pathsep.join(filter(None, sys.path))
    return os.environ | {"PATH": path, "PYTHONPATH": libraries, "HOME": str(folder), "TERM": "dumb", "EDITOR": ""}


@contextmanager
def terminal(shell: str, folder: Path) -> Iterator[int]:
    """A shell on a terminal, in which completion is set up."""
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    master, slave = pty.openpty()
    with subprocess.Popen(
        _START[shell],
        stdin=slave,
        stdout=slave,
        stderr=slave,
        cwd=folder,
        env=environment(folder),
        start_new_session=True,
    ) as child:
        os.close(slave)
        try:
            os.write(master, f"{_SETUP[shell]}; echo rea''dy\n".encode())
            read_until(master, b"ready")
            yield master
        finally:
            child.kill()
            os.close(master)


def read_until(master: int, text: bytes) -> bytes:
    """Return what a terminal shows until a text comes."""
    shown, end = b"", time.monotonic() + _SECONDS
    while text not in shown:
        if time.monotonic() > end:
            pytest.fail(f"{text!r} does not come; there is {shown!r}")
        if select.select([master], [], [], 0.2)[0]:
            shown += os.read(master, 65536)
    return shown


@pytest.mark.parametrize(
    ("typed", "completed"),
    [
        ("vlmsearch dupl", ["duplicates"]),
        ("vlmsearch search --cur", ["search", "--cursor"]),
        ("vlmsearch search -e onn", ["search", "-e", "onnx:end"]),
        ("vlmsearch search --encoder onnx:siglip2-l", ["search", "--encoder", "onnx:siglip2-large-patch16-256"]),
        ("vlmsearch count --store sqlite:./pict", ["count", "--store", "sqlite:./pictures"]),
        ("vlmsearch index photog", ["index", "photograph.jpg"]),
    ],
)
@pytest.mark.parametrize("shell", ["bash", "zsh"])
@pytest.mark.slow
def test_tab_completes_a_word(shell: str, typed: str, completed: list[str], folder: Path) -> None:
    with terminal(shell, folder) as keyboard:
        os.write(keyboard, typed.encode() + b"\t" + _PRINT)
        words = ["vlmsearch", *completed, *([] if completed[-1].endswith("end") else ["end"])]  # no space after a colon
        assert "".join(f"<{word}>" for word in words).encode() in read_until(keyboard, b"end>")


@pytest.mark.parametrize(
    ("typed", "completions"),
    [
        ("vlmsearch dupl", "duplicates\tFind duplicate images."),
        ("vlmsearch search --cur", "--cursor"),
        ("vlmsearch search -e onn", "onnx:"),
        ("vlmsearch search --encoder onnx:siglip2-l", "onnx:siglip2-large-patch16-256"),
        ("vlmsearch count --store sqlite:./pict", "sqlite:./pictures"),
        ("vlmsearch index photog", "photograph.jpg"),
    ],
)
@pytest.mark.slow
def test_fish_completes_a_word(typed: str, completions: str, folder: Path) -> None:
    if shutil.which("fish") is None:
        pytest.skip("fish is not installed")
    script = f"{_SETUP['fish']}; complete -C {shlex.quote(typed)}"
    command = ["fish", "--no-config", "-c", script]
    done = subprocess.run(
        command, capture_output=True, text=True, cwd=folder, env=environment(folder), timeout=_SECONDS, check=False
    )
    assert completions in done.stdout, done
    assert len(done.stdout.splitlines()) == 1
    assert done.stderr == ""


def answer(line: str, breaks: str = " \t:=") -> list[str]:
    """What bash is answered where a line is begun."""
    done = run(_VLMSEARCH_COMPLETE="bash_complete", COMP_LINE=line, COMP_BREAKS=breaks)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()


def test_bash_gets_what_comes_behind_the_colon() -> None:
    assert answer("vlmsearch search -e onnx:clip-vit-l") == ["plain,clip-vit-large-patch14"]
    assert answer("vlmsearch search --encoder=onnx:clip-vit-l") == ["plain,clip-vit-large-patch14"]
    assert answer("vlmsearch search -e onnx:clip-vit-l", " \t=") == ["plain,onnx:clip-vit-large-patch14"]
    assert answer("vlmsearch search --encoder=onnx:clip-vit-l", " \t") == [
        "plain,--encoder=onnx:clip-vit-large-patch14"
    ]
    assert {"plain,sqlite:", "plain,chroma:"} <= set(answer("vlmsearch search --store "))


def test_every_command_is_completed_with_its_group() -> None:
    assert answer("vlmsearch llm b") == ["plain,build"]
    assert answer("vlmsearch e") == ["plain,explain", "plain,eval", "plain,export"]
    assert answer("vlmsearch --vers") == ["plain,--version"]


def test_a_shell_that_there_is_not_is_one_line() -> None:
    done = run(_VLMSEARCH_COMPLETE="csh_source")
    assert_one_line(done, "_VLMSEARCH_COMPLETE is one of bash_source, zsh_source, fish_source, not 'csh_source'")
