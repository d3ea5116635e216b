"""The command line: run in this process, which takes a tenth of the time, or in one of its own."""

from __future__ import annotations

import io
import os
import runpy
import signal
import subprocess
import sys
import tempfile
import traceback
import warnings
from contextlib import redirect_stdout
from pathlib import Path

import pytest

from vlmsearch.cli import main

Result = subprocess.CompletedProcess[str]


def run(*arguments: str | Path, cwd: Path | None = None, **environment: str) -> Result:
    """What ``vlmsearch`` does with pipes for its output: the same as `run_process`, but for a process of its own."""
    given = ["vlmsearch", *map(str, arguments)]
    with _pipe() as output, _pipe() as errors, pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        for name, stream in (("stdin", io.StringIO()), ("stdout", output), ("stderr", errors), ("argv", given)):
            patch.setattr(sys, name, stream)
        for name, value in environment.items():
            patch.setenv(name, value)
        if cwd is not None:
            patch.chdir(cwd)
        terminated = signal.getsignal(signal.SIGTERM)
        try:
            code = _call()
        finally:
            signal.signal(signal.SIGTERM, terminated)
        return Result(given, code, _read(output), _read(errors))


def _call() -> int:
    try:
        main()
    except SystemExit as exc:
        return exc.code if isinstance(exc.code, int) else int(exc.code is not None)
    except Exception:  # noqa: BLE001 - what the interpreter does with it
        traceback.print_exc()
        return 1
    return 0


def _pipe() -> io.TextIOWrapper:
    """A stream with a descriptor, as a process has, that may be overwritten."""
    return io.TextIOWrapper(tempfile.TemporaryFile(), encoding="utf-8", write_through=True)


def _read(stream: io.TextIOWrapper) -> str:
    stream.seek(0)
    return stream.read()


def run_process(*arguments: str | Path, cwd: Path | None = None, **environment: str) -> Result:
    """What ``python -m vlmsearch`` does in a process of its own."""
    command = [sys.executable, "-m", "vlmsearch", *map(str, arguments)]
    return subprocess.run(
        command, capture_output=True, text=True, cwd=cwd, env=os.environ | environment, timeout=300, check=False
    )


def script(path: Path, *arguments: str, cwd: Path) -> str:
    """What ``python PATH ...`` prints, run in this process."""
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(io.StringIO()) as printed:
        patch.setattr(sys, "argv", [str(path), *arguments])
        patch.chdir(cwd)
        runpy.run_path(str(path), run_name="__main__")
    return printed.getvalue()


def ok(*arguments: str | Path, cwd: Path | None = None, **environment: str) -> str:
    done = run(*arguments, cwd=cwd, **environment)
    assert done.returncode == 0, done.stderr
    return done.stdout


def assert_one_line(done: Result, message: str) -> None:
    assert done.returncode == 1, done.stderr
    assert done.stderr.startswith("Error: ")
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1, done.stderr
