"""The parts that the tests are run in: none is left out, and `make quick` starts no server."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from itertools import product
from pathlib import Path

from tests.support.paths import ROOT

BY_FIXTURE = """
import pytest

@pytest.fixture
def mongo_address():
    return "a server"

@pytest.fixture
def database(mongo_address):
    return mongo_address

@pytest.fixture(params=["sqlite", "mongodb"])
def any_store(request):
    return request.param

def test_of_a_fixture(database): pass
def test_of_each_store(any_store): pass
def test_of_nothing(): pass
"""
BY_IMPORT = """
from tests.support.servers import chroma_server
def test_of_an_import(): pass
"""
GUARDED = """
import pytest
from tests.support import servers

def start(folder):
    with servers.running(["true"], folder / "log"):
        pass

def test_unmarked(tmp_path): start(tmp_path)
@pytest.mark.server
def test_marked(tmp_path): start(tmp_path)
"""
SHOWS_MARKS = """
def pytest_collection_finish(session):
    for item in session.items:
        if item.get_closest_marker("server"):
            print("\\nserver:", item.name)
"""


def marks_of(command: list[str]) -> str:
    """The expression of marks that a command of pytest selects tests by; the first ``-m`` is Python's."""
    return command[len(command) - command[::-1].index("-m")]


def runs(command: list[str], place: str) -> bool:
    """Whether a command of pytest runs what is in a folder: it names folders, or leaves some out."""
    names_some = any(word.startswith("tests/") for word in command)
    return place in command if names_some else f"--ignore={place}" not in command


def test_each_test_is_in_one_part() -> None:
    listed = subprocess.run(["make", "-n", "test"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    quick, *others = (shlex.split(line) for line in listed.splitlines() if "-m pytest" in line)
    for is_server, is_slow, is_exhaustive in product([False, True], repeat=3):
        marks = {"server": is_server, "slow": is_slow, "exhaustive": is_exhaustive}
        taken = [bool(eval(marks_of(part), {}, marks)) for part in (quick, *others)]
        rest = is_server or is_slow
        assert taken == ([False] * 4 if is_exhaustive else [not rest, *[rest] * 3])
    for place in (ROOT / "tests").iterdir():
        name = f"tests/{place.name}"
        assert sum(runs(part, name) for part in others) == 1, f"{name} is in no part, or in two"


def test_tests_are_marked_by_what_they_use_and_one_that_starts_a_server_unmarked_fails(tmp_path: Path) -> None:
    for name, text in {"by_fixture": BY_FIXTURE, "by_import": BY_IMPORT, "guarded": GUARDED}.items():
        (tmp_path / f"test_{name}.py").write_text(text)
    (tmp_path / "conftest.py").write_text(SHOWS_MARKS)
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers =\n  server\n  slow\n")
    options = ["-p", "tests.support.parts", "-p", "no:cacheprovider", "-v"]
    command = [sys.executable, "-m", "pytest", *options, str(tmp_path)]
    environment = os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, env=environment)
    marked = set(re.findall(r"^server: (\S+)$", done.stdout, re.MULTILINE))
    assert marked == {"test_of_a_fixture", "test_of_each_store[mongodb]", "test_of_an_import", "test_marked"}
    assert re.search(r"::test_unmarked FAILED", done.stdout)
    assert re.search(r"::test_marked PASSED", done.stdout)
    assert "starts a server: mark it `server`" in done.stdout
