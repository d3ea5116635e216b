"""The Makefile on a machine that is not ready yet."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from tests.support.paths import ROOT

MAKEFILE = ROOT / "Makefile"
PYTHON = f"""#!/bin/sh
# as where the package with Python's ensurepip is missing: the environment is begun, and not completed
mkdir -p .venv/bin && ln -sf {sys.executable} .venv/bin/python
test -e ready
"""


def test_an_environment_that_was_not_completed_is_made_again(tmp_path: Path) -> None:
    shutil.copy(MAKEFILE, tmp_path)
    (tmp_path / "python").write_text(PYTHON)
    (tmp_path / "python").chmod(0o755)
    command = ["make", "PYTHON=./python", ".venv/bin/python"]
    for is_ready in (False, False, True):
        if is_ready:
            (tmp_path / "ready").touch()
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert "./python -m venv .venv" in done.stdout
        assert (done.returncode == 0) is is_ready
