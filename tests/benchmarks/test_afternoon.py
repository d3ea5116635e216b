"""Both galleries do the whole task, and their figures are printed; the environment is that of the tests."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from benchmarks.afternoon import Workplace, main
from tests.support.tables import table


def test_both_galleries_do_the_task(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Workplace, "python", Path(sys.executable))
    monkeypatch.setattr(Workplace, "install", lambda place, packages: None)
    rows = {row["what"]: row for row in table(main, "--documents", "10")}
    lines = rows["lines of the program"]
    assert 0 < int(lines["vlmsearch"]) < int(lines["chromadb"])
    assert float(rows["seconds from then to the first result"]["chromadb"]) > 0
    assert rows["an index in PostgreSQL"]["chromadb"] == "no"
