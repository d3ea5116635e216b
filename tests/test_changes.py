"""The fragments of the changelog become a release."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

from tests.support.paths import ROOT


def test_fragments_have_names_that_are_collected() -> None:
    names = {path.name for path in (ROOT / "changes").iterdir()} - {"README.md"}
    collected = re.compile(r"(\d+|\+[\w-]+)\.(added|changed|fixed|removed)\.md")
    assert [name for name in names if not collected.fullmatch(name)] == []


def test_a_release_is_made_of_them(tmp_path: Path) -> None:
    for name in ("pyproject.toml", "CHANGELOG.md"):
        shutil.copy(ROOT / name, tmp_path)
    (tmp_path / "changes").mkdir()
    (tmp_path / "changes" / "+faster.changed.md").write_text("Searching is faster.\n", encoding="utf-8")
    (tmp_path / "changes" / "12.fixed.md").write_text("A search ends.\n", encoding="utf-8")
    release = ["--version", "9.9.0", "--date", "2030-01-02", "--yes"]
    command = [sys.executable, "-m", "towncrier", "build", *release]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    changelog = (tmp_path / "CHANGELOG.md").read_text(encoding="utf-8")
    assert "## 9.9.0 - 2030-01-02" in changelog, done.stdout + done.stderr
    new, _, old = changelog.partition("## 0.1.0")
    assert re.search(r"### Changed\s+- Searching is faster\.", new)
    assert re.search(r"### Fixed\s+- A search ends\. \(#12\)", new)
    assert "The first release." in old
