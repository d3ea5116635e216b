"""Embedded stores: the collection that it makes up, its exact answers, and each part on a small one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from benchmarks.corpus import BLOCK, Corpus
from benchmarks.stores import SHARES, main
from tests.support.tables import table
from vlmsearch.errors import ConfigError
from vlmsearch.stores.filters import parse_filter


def figures(folder: Path, *arguments: str, documents: int = 1200) -> dict[str, str]:
    sizes = ("--documents", str(documents), "--dim", "16", "--queries", "5", "--folder", str(folder))
    return {row["what"]: row["sqlite"] for row in table(main, *sizes, *arguments)}


@pytest.mark.parametrize("is_random", [False, True])
def test_a_collection_is_the_same_whoever_draws_it(is_random: bool) -> None:
    one, other = (Corpus(1200, 16, is_random) for _ in range(2))
    blocks = [one.block(number) for number in one.blocks]
    for number in (2, 0):
        first, again = blocks[number], other.block(number)
        assert (first.ids, first.texts, first.metadata) == (again.ids, again.texts, again.metadata)
        assert (first.vectors == again.vectors).all()
    assert np.linalg.norm(blocks[0].vectors, axis=1) == pytest.approx(1, abs=1e-5)
    assert sum(len(block.ids) for block in blocks) == len({id for block in blocks for id in block.ids}) == 1200
    assert sorted(serial for block in blocks for serial in block.columns["serial"]) == list(range(1200))
    assert set(one.queries(5)[0]) == set(other.queries(5)[0])
    assert one.word_queries(5) == other.word_queries(5)
    cosines = one.queries(20) @ np.vstack([block.vectors for block in blocks]).T
    is_clustered = float(np.median(cosines.mean(axis=1))) > 0.1
    assert is_clustered != is_random, "vectors of models are not centred, and near to some others"


def test_filters_keep_what_they_say_on_every_store() -> None:
    corpus = Corpus(20 * BLOCK, 4)
    blocks = [corpus.block(number) for number in corpus.blocks]
    for share, condition in ((kept, each) for kept in SHARES for each in corpus.conditions(kept, 2)):
        kept = np.concatenate([condition.passes(block.columns) for block in blocks])
        parsed = parse_filter(condition.where)
        assert kept.tolist() == [parsed.matches(metadata) for block in blocks for metadata in block.metadata]
        assert kept.mean() == pytest.approx(share, rel=0.3)


def test_a_store_is_written_searched_and_opened_by_new_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("benchmarks.stores._ROUNDS", 1)
    found = figures(tmp_path)
    assert all(float(value.replace(",", "")) > 0 for value in found.values())
    recalls = {name: value for name, value in found.items() if "recall" in name}
    assert len(recalls) == 1 + 2 * len(SHARES)
    assert set(recalls.values()) == {"1"}, "the store compares with all vectors, and so does one scan of the blocks"
    assert {"write", "words, p50", "new process: peak memory"} < found.keys()
    again = figures(tmp_path, "--parts", "write,search")
    assert "search, p50" in again
    assert "write" not in again, "what is there is not written again"
    with pytest.raises(ConfigError, match="sqlite holds 1,200 documents, not 1,300: remove it or give another folder"):
        figures(tmp_path, documents=1300)
