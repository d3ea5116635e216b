"""`vlmsearch bench peers`: a small collection in CISI's format, and figures that were computed by hand."""

from __future__ import annotations

import math
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from benchmarks.fusion import OURS, measure_fusions
from benchmarks.labelled import read_cisi
from benchmarks.peers import measure_peers, ndcg
from tests.support.labelled import write_cisi
from vlmsearch.cli import cli
from vlmsearch.errors import ConfigError, MissingDependencyError
from vlmsearch.registry import open_encoder, open_store


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_cisi(tmp_path / "judged")


def test_what_was_found_is_measured_as_a_share_of_the_best(folder: Path) -> None:
    best = 1 + 1 / math.log2(3)
    found = {"1": ["2", "1"], "2": ["4", "1", "2"]}
    assert ndcg(read_cisi(folder), found) == pytest.approx((1 / math.log2(3) + (1 + 0.5) / best) / 2)


def test_searches_are_measured_beside_each_other(folder: Path, tmp_path: Path) -> None:
    steps: list[tuple[str, int, int]] = []
    with open_encoder("mock:") as encoder:
        (ours,) = measure_peers(
            read_cisi(folder), encoder, tmp_path, [], tmp_path, rounds=2, progress=lambda *step: steps.append(step)
        )
        with open_store("mock:") as store:
            ways = measure_fusions(read_cisi(folder), encoder, store, progress=lambda *_: None)
    assert (ours.name, ours.settings) == ("vlmsearch", "defaults")
    assert [ours.ndcg] == [pytest.approx(one.ndcg) for one in ways if one.way == OURS], "the threshold hides nothing"
    assert ours.index_seconds
    assert ours.index_seconds > 0
    assert ours.query_ms > 0
    assert steps == [("vlmsearch indexes", 0, 2), ("all answer the queries", 1, 2)]


def test_peers_that_cannot_be_measured_are_named(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(*options: str) -> Result:
        return CliRunner().invoke(cli, ["bench", "peers", str(folder), "--encoder", "mock:", *options])

    checkpoint = ("--from", str(tmp_path))
    for peer in ("txtai", "lancedb"):
        monkeypatch.setitem(sys.modules, peer, None)
        result = run("--peers", peer, *checkpoint)
        assert isinstance(result.exception, MissingDependencyError)
        assert str(result.exception) == (
            f"{peer} cannot be measured without {peer}: pip install {peer} sentence-transformers"
        )
    result = run("--peers", "txtai")
    assert result.exit_code == 2
    assert "Missing option '--from'" in result.stderr
    result = run("--peers", "elastic", *checkpoint)
    assert result.exit_code == 2
    assert "some of txtai, lancedb, not elastic" in result.stderr
    with open_encoder("mock:") as encoder, pytest.raises(ConfigError, match="holds no model that the peers can load"):
        measure_peers(read_cisi(folder), encoder, tmp_path, ["txtai"], tmp_path, progress=lambda *_: None)
