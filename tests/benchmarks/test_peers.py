"""Our search beside others: a small collection in CISI's format, and figures that were computed by hand."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from benchmarks.fusion import OURS, measure_fusions
from benchmarks.labelled import read_cisi
from benchmarks.peers import measure_peers, ndcg
from tests.support.labelled import write_cisi
from vlmsearch.registry import open_encoder, open_store


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_cisi(tmp_path / "judged")


def test_what_was_found_is_measured_as_a_share_of_the_best(folder: Path) -> None:
    best = 1 + 1 / math.log2(3)
    found = {"1": ["2", "1"], "2": ["4", "1", "2"]}
    assert ndcg(read_cisi(folder), found) == pytest.approx((1 / math.log2(3) + (1 + 0.5) / best) / 2)


def test_ours_finds_what_fusion_has_measured(folder: Path, tmp_path: Path) -> None:
    with open_encoder("mock:") as encoder, open_store("mock:") as store:
        (ours,) = measure_peers(read_cisi(folder), encoder, {}, tmp_path, rounds=2)
        ways = measure_fusions(read_cisi(folder), encoder, store)
    assert (ours.name, ours.settings) == ("vlmsearch", "defaults")
    assert [ours.ndcg] == [pytest.approx(one.ndcg) for one in ways if one.way == OURS], "the threshold hides nothing"
    assert ours.index_seconds
    assert ours.query_ms > 0
