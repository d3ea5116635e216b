"""The manual's page on testing, run as a user's project with the wheel installed."""

import os
import re
import subprocess
import sys
from pathlib import Path

from tests.support.paths import ROOT

PAGE = ROOT / "docs" / "howto" / "testing.md"


def test_the_page_on_testing_works_as_a_users_project(installed: Path, tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    files = re.findall(r'```python title="(\S+\.py)"\n(.*?)```', PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert [name for name, _ in files] == ["conftest.py", "test_app.py"]
    for name, code in files:
        (project / name).write_text(code, encoding="utf-8")
    where = "import vlmsearch, vlmsearch_mocks; print(vlmsearch.__file__, vlmsearch_mocks.__file__)"
    environment = {**os.environ, "PYTHONPATH": str(installed)}
    for command, wanted in (
        (["-c", where], f"{installed}{os.sep}vlmsearch_mocks"),
        (["-m", "pytest", "-q"], " passed"),
    ):
        done = subprocess.run(
            [sys.executable, *command], cwd=project, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert wanted in done.stdout
