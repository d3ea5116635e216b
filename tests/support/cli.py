"""The command line, run in a process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

Result = subprocess.CompletedProcess[str]


def run(*arguments: str | Path, cwd: Path | None = None, **environment: str) -> Result:
    command = [sys.executable, "-m", "vlmsearch", *map(str, arguments)]
    return subprocess.run(
        command, capture_output=True, text=True, cwd=cwd, env=os.environ | environment, timeout=120, check=False
    )


def ok(*arguments: str | Path, cwd: Path | None = None, **environment: str) -> str:
    done = run(*arguments, cwd=cwd, **environment)
    assert done.returncode == 0, done.stderr
    return done.stdout


def assert_one_line(done: Result, message: str) -> None:
    assert done.returncode == 1, done.stderr
    assert done.stderr.startswith("Error: ")
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1, done.stderr
