"""Searches of two builds of vlmsearch beside each other."""

from pathlib import Path

import pytest
from click.testing import CliRunner

import vlmsearch
from benchmarks.search_peers import main


@pytest.mark.slow
def test_builds_stand_beside_each_other_and_find_the_same() -> None:
    other = str(Path(vlmsearch.__file__).parents[1])
    sizes = ["--documents", "1500", "--dim", "32", "--calls", "2"]
    done = CliRunner().invoke(main, ["--against", other, "--no-peers", *sizes], catch_exceptions=False)
    lines = [line.split("\t") for line in done.output.splitlines()]
    titles = [line[0].split(";")[0] for line in lines if len(line) == 1]
    assert titles == ["1,500 captions x 32", "1,500 texts of 50 words x 32"]
    rows = [line for line in lines if len(line) > 1 and line[0] != "call"]
    asked = ("2 words", "8 words", "a code", "2 usual", "8 frequent", "2 rare")
    calls = ("search", "words alone", "search, count and 3 facets")
    assert {row[0] for row in rows} == {f"{call}, {name}" for call in calls for name in asked}
    for _, *costs, ratio, same in rows:
        assert len(costs) == 2
        assert all(float(number) > 0 for cost in costs for number in cost.rstrip(")").split(" ("))
        assert float(ratio) > 0
        assert same == "10 of 10", "8 queries, and 2 calls that are timed"
