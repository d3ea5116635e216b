"""What is compared by codes and signs is what comparing all vectors finds."""

import numpy as np
import pytest
from numpy.typing import NDArray

from vlmsearch.stores.sqlite import codes
from vlmsearch.stores.sqlite.codes import CodeRows, CodeTable, signs_of
from vlmsearch.types import Vectors

ROWS, DIM = 40_000, 128


def unit(rows: NDArray[np.floating]) -> Vectors:
    vectors: Vectors = (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)
    return vectors


def table_of(vectors: Vectors, some: int = 7000) -> CodeTable:
    table = CodeTable(vectors.shape[1])
    for start in range(0, len(vectors), some):
        numbers = range(start, min(start + some, len(vectors)))
        table = table.with_rows(CodeRows.of(numbers, vectors[start : start + some]))
    return table


@pytest.fixture(scope="module")
def collections() -> dict[str, Vectors]:
    rng = np.random.default_rng(5)
    drawn = rng.normal(size=(ROWS, DIM))
    centres = rng.normal(size=(400, DIM)) * 2
    biased = drawn * np.arange(1, DIM + 1) ** -0.7 + rng.normal(size=DIM)
    return {
        "independent": unit(drawn),
        "clusters": unit(drawn + centres[rng.integers(400, size=ROWS)]),
        "biased": unit(biased),
        "equal": unit(np.repeat(drawn[:4], ROWS // 4, axis=0)),
    }


@pytest.fixture(scope="module")
def made(collections: dict[str, Vectors]) -> dict[str, CodeTable]:
    return {name: table_of(vectors) for name, vectors in collections.items()}


@pytest.mark.parametrize("name", ["independent", "clusters", "biased", "equal"])
@pytest.mark.parametrize("share", [None, 0.6, 0.01])
@pytest.mark.parametrize("limit", [1, 10, 300])
def test_the_nearest_are_among_those_that_are_found(
    collections: dict[str, Vectors], made: dict[str, CodeTable], name: str, share: float | None, limit: int
) -> None:
    vectors, table, rng = collections[name], made[name], np.random.default_rng(6)
    passing = None if share is None else rng.random(ROWS) < share
    for place in rng.integers(ROWS, size=6):
        query = unit(vectors[place : place + 1] + rng.normal(size=(1, DIM)) * 0.03)[0]
        cosines = vectors @ query
        if passing is not None:
            cosines[~passing] = -2
        best = np.sort(cosines)[-limit]
        found = table.nearest(query, limit, passing)
        assert set(np.flatnonzero(cosines > best + 1e-6)) <= set(found.tolist())
        assert (cosines[found] > -2).all()
        assert np.sort(cosines[found])[-limit] >= best - 1e-6


def test_signs_leave_few_codes_to_compare_in_clusters_and_give_way_elsewhere(
    collections: dict[str, Vectors], monkeypatch: pytest.MonkeyPatch
) -> None:
    compared: list[int] = []
    dots = codes._Comparison._dots

    def counted(self: codes._Comparison, rows: codes.Codes, steps: Vectors) -> Vectors:
        compared.append(len(rows))
        return dots(self, rows, steps)

    monkeypatch.setattr(codes._Comparison, "_dots", counted)
    for name, most in (("clusters", ROWS // 4), ("independent", 2 * ROWS)):
        table = table_of(collections[name])
        compared.clear()
        table.nearest(collections[name][11], 10, None)
        assert sum(compared) <= most
        assert name == "clusters" or sum(compared) >= ROWS


def test_codes_are_all_compared_only_where_signs_tell_nothing(
    collections: dict[str, Vectors], made: dict[str, CodeTable]
) -> None:
    query = collections["clusters"][11]
    cosines = collections["clusters"] @ query
    kinds = (np.arange(ROWS) % 100 == 0).astype(np.uint8)
    for bars, compares_all in (((0.1, 0.1), True), ((0.9, 0.1), False), ((2.0, -np.inf), False), ((0.1, 2.0), True)):
        compared = made["clusters"].compared(query, ROWS, None)
        places = compared.above(np.array(bars), kinds)
        assert set(np.flatnonzero(cosines >= np.array(bars)[kinds])) <= set(places.tolist())
        assert ("_all" in vars(compared)) == compares_all
        if not compares_all:
            assert len(places) < ROWS // 8


@pytest.mark.parametrize("share", [1.0, 0.5])
def test_what_leads_by_signs_has_the_nearest_and_ranks_are_those_of_all_codes(
    collections: dict[str, Vectors], made: dict[str, CodeTable], share: float
) -> None:
    passing = None if share == 1 else np.random.default_rng(1).random(ROWS + 1) < share
    for query in collections["clusters"][:5]:
        compared, whole = (made["clusters"].compared(query, ROWS + 1, passing) for _ in range(2))  # one has no vector
        nearest = np.sort(np.argsort(-np.nan_to_num(whole._all, nan=-2))[:10])
        assert set(nearest.tolist()) <= set(compared.leading(76).tolist())
        known = np.array([1 + np.count_nonzero(whole._all > whole._all[place]) for place in nearest])
        assert compared.ranks(np.append(nearest, ROWS)).tolist() == [*known.tolist(), 0]
        assert "_all" not in vars(compared)


def test_bits_differ_as_angles_do(collections: dict[str, Vectors]) -> None:
    vectors = collections["biased"][:2000]
    signs = signs_of(vectors)
    off = []
    for place in range(50):
        others = np.arange(2000) != place
        angles = np.arccos(np.clip(vectors[others] @ vectors[place], -1, 1)) / np.pi
        shares = np.unpackbits(signs[others] ^ signs[place], axis=1).sum(axis=1) / DIM
        off.append((shares - angles) / np.sqrt(angles * (1 - angles) / DIM))
    assert abs(np.mean(off)) < 0.5
    assert np.std(off) < 1.2
    assert np.abs(off).max() < 5
