"""Embedded stores: the collection that it makes up, its exact answers, and each part on a small one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from benchmarks.corpus import BLOCK, LIMIT, Condition, Corpus, ExactNearest
from benchmarks.stores import SHARES, main
from tests.support.tables import table
from vlmsearch.errors import ConfigError
from vlmsearch.stores.filters import parse_filter

SMALL = ("--documents", "1200", "--dim", "16", "--queries", "5")


def figures(*arguments: str) -> dict[str, dict[str, str]]:
    return {row["what"]: row for row in table(main, *SMALL, *arguments)}


@pytest.mark.parametrize("is_random", [False, True])
def test_a_collection_is_the_same_whoever_draws_it(is_random: bool) -> None:
    one, other = (Corpus(1200, 16, is_random) for _ in range(2))
    other.block(2)
    for number in (0, 2, 3):
        first, second = one.block(number), other.block(number)
        assert (first.ids, first.texts, first.metadata) == (second.ids, second.texts, second.metadata)
        assert (first.vectors == second.vectors).all()
        assert np.linalg.norm(first.vectors, axis=1) == pytest.approx(1, abs=1e-5)
    blocks = [one.block(number) for number in one.blocks]
    assert sum(len(block.ids) for block in blocks) == len({id for block in blocks for id in block.ids}) == 1200
    assert sorted(serial for block in blocks for serial in block.columns["serial"]) == list(range(1200))
    assert len(one.block(one.blocks.stop).ids) == BLOCK
    assert set(one.queries(5)[0]) == set(other.queries(5)[0])
    assert one.word_queries(5) == other.word_queries(5)


def test_vectors_come_in_clusters_unless_they_are_to_be_random() -> None:
    def nearest(corpus: Corpus) -> float:
        exact = corpus.queries(20) @ np.vstack([corpus.block(number).vectors for number in corpus.blocks]).T
        return float(np.median(exact.max(axis=1)) - np.median(exact))

    assert nearest(Corpus(4096, 64)) > 0.45
    assert Corpus(4096, 64).block(0).vectors.mean(axis=0) @ Corpus(4096, 64).queries(1)[0] > 0.1, "not centred"
    assert nearest(Corpus(4096, 64, random=True)) < 0.45


@pytest.mark.parametrize("share", SHARES)
def test_filters_keep_what_they_say_on_every_store(share: float) -> None:
    corpus = Corpus(20 * BLOCK, 4)
    blocks = [corpus.block(number) for number in corpus.blocks]
    for condition in corpus.conditions(share, 3):
        kept = np.concatenate([condition.passes(block.columns) for block in blocks])
        parsed = parse_filter(condition.where)
        assert kept.tolist() == [parsed.matches(metadata) for block in blocks for metadata in block.metadata]
        assert kept.mean() == pytest.approx(share, rel=0.3)


def test_exact_answers_are_those_of_one_scan() -> None:
    corpus = Corpus(1500, 8)
    conditions = [None, Condition("album", value="album-7"), Condition("serial", 3, 9), Condition("serial", -2, -1)]
    queries = corpus.queries(len(conditions))
    exact = ExactNearest(queries, conditions)
    blocks = [corpus.block(number) for number in corpus.blocks]
    for block in blocks:
        exact.add(block)
    ids = [id for block in blocks for id in block.ids]
    for place, condition in enumerate(conditions):
        scores = np.concatenate([block.vectors @ queries[place] for block in blocks])
        if condition:
            scores[~np.concatenate([condition.passes(block.columns) for block in blocks])] = -2
        order = [int(each) for each in np.argsort(-scores, kind="stable")[:LIMIT] if scores[each] > -2]
        assert exact.best(place) == [ids[each] for each in order]
    assert [len(exact.best(place)) for place in range(4)] == [10, 10, 6, 0]


def test_stores_are_written_and_searched_beside_each_other() -> None:
    found = figures("--stores", "sqlite,chroma", "--parts", "write,search,filters,words")
    for name, row in found.items():
        assert float(row["sqlite"].replace(",", "")) > 0
        assert bool(row["chroma"]) != name.startswith("words")
    for name in ("search", *(f"filter that keeps {100 * share:g} %" for share in SHARES)):
        row = found[f"{name}, recall@10"]
        assert row["sqlite"] == "1"
        assert float(row["chroma"]) == pytest.approx(1, abs=0.05)
    for share in SHARES:
        row = found[f"filter that keeps {100 * share:g} %, share of the page that is filled"]
        assert (row["sqlite"], row["chroma"]) == ("1", "1")


def test_processes_open_and_read_beside_a_writer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.stores._ROUNDS", 1)
    where = ("--folder", str(tmp_path))
    found = figures("--stores", "sqlite", "--parts", "readers", *where)
    assert found["4 readers beside a writer: errors"]["sqlite"] == "0"
    assert found["4 readers beside a writer: blocks never found"]["sqlite"] == "0"
    assert 0 < float(found["4 readers beside a writer: longest from commit to found"]["sqlite"]) < 60
    again = figures("--stores", "sqlite", "--parts", "write,process,command", *where)
    assert "write" not in again, "what is there is not written again"
    assert {"new process: peak memory", "`vlmsearch search`, CPU time"} < again.keys()
    assert all(float(row["sqlite"]) > 0 for row in again.values())
    with pytest.raises(ConfigError, match="sqlite holds 1,200 documents, not 1,300: remove it or give another folder"):
        figures("--stores", "sqlite", "--documents", "1300", *where)
