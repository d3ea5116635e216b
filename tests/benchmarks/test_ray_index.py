"""Indexing on a cluster with several encoders, and with processes that are killed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.support.paths import ROOT


def run(*arguments: str) -> list[list[str]]:
    """The rows that a run in a process of its own prints, without the title."""
    with TemporaryDirectory(dir="/tmp") as place:  # Ray's sockets are in it, whose names may be 107 bytes long
        command = [sys.executable, "-m", "benchmarks.ray_index", *arguments]
        environment = {**os.environ, "TMPDIR": place}
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert not list(Path(place).glob("vlmsearch-*"))
    return [line.split("\t") for line in done.stdout.splitlines()[1:]]


def test_encoders_are_timed_in_turns() -> None:
    names, one, two = run("workers", "--documents", "700", "--rounds", "1", "--encoder", "mock:")
    assert names == ["workers", "documents/s", "as many times as 1"]
    assert (one[0], one[2], two[0]) == ("1", "1.000", "2")
    rates = float(one[1]), float(two[1])
    assert float(two[2]) == pytest.approx(rates[1] / rates[0], rel=0.1)


def test_an_index_is_compared_with_its_rows_after_kills() -> None:
    found = dict(run("kills", "--rows", "900", "--every", "3"))
    assert found["indexed"].startswith("900 rows in ")
    assert found["killed"], "of a run of seconds some processes are killed"
    assert found["index"] == "0 missing, 0 doubled, 0 foreign"
    assert found["check"] == "clean"
