"""What is said of the recall of a search, against searches whose faults are known."""

from collections.abc import Callable

import numpy as np
import pytest
from vlmsearch_mocks.contracts.records import IMAGE, exact, make_records

from vlmsearch import Document, Hit, Record
from vlmsearch.stores.filters import Comparison, Filter
from vlmsearch.stores.recall import identical_share, measured_recall, sampled_filters
from vlmsearch.types import Vectors

RECORDS = make_records(200, metadata=[{"year": i // 2, "tag": f"t{i % 4}", "all": True} for i in range(200)])
SAMPLE = np.stack([record.vectors[IMAGE] for record in RECORDS[:50]])


def search(vectors: Vectors, limit: int, where: Filter | None, records: list[Record] = RECORDS) -> list[list[Hit]]:
    passing = [r for r in records if where is None or where.matches(r.document.metadata)]
    return [exact(passing, IMAGE, query)[:limit] for query in vectors]


def without_first(vectors: Vectors, limit: int, where: Filter | None) -> list[list[Hit]]:
    return [hits[1:] for hits in search(vectors, limit + 1, where)]


def short_under_ranges(vectors: Vectors, limit: int, where: Filter | None) -> list[list[Hit]]:
    is_range = isinstance(where, Comparison) and where.operator == "$gte"
    return search(vectors, limit // 2 if is_range else limit, where)


@pytest.mark.parametrize(
    ("approximate", "text"),
    [
        (search, "recall 1.000 of 10, 1.000 where an equality passes 1 %, the nearest first in 70 of 70 searches"),
        (
            without_first,
            "recall 0.900 of 10, 0.500 where an equality passes 1 %, the nearest first in 0 of 70 searches",
        ),
        (short_under_ranges, "recall 1.000 of 10, 0.500 where a range passes 10 %, the nearest first in 70 of 70"),
    ],
)
def test_the_weakest_filter_and_missing_first_hits_are_told(
    approximate: Callable[[Vectors, int, Filter | None], list[list[Hit]]], text: str
) -> None:
    filters = sampled_filters([record.document for record in RECORDS])
    assert measured_recall(SAMPLE, approximate, search, filters).startswith(f"approximate, {text}")


def test_of_equal_vectors_any_is_a_hit() -> None:
    twins = [Record(Document(f"x{r.document.id}"), r.vectors) for r in RECORDS for _ in range(20)]
    text = measured_recall(
        SAMPLE, search, lambda vectors, limit, where: search(vectors, limit, where, [*twins, *RECORDS]), {}
    )
    assert text.startswith("approximate, recall 0.")
    for records in (twins, [*RECORDS, *twins][::-1]):

        def others(vectors: Vectors, limit: int, where: Filter | None) -> list[list[Hit]]:
            return search(vectors, limit, where, records)  # noqa: B023

        assert measured_recall(SAMPLE, others, others, {}).startswith("approximate, recall 1.000")


def test_filters_are_of_each_kind_and_pass_what_is_said() -> None:
    filters = sampled_filters([record.document for record in RECORDS])
    assert sorted((where.operator, share) for where, share in filters.items()) == [
        ("$eq", 0.01), ("$eq", 0.25), ("$gte", 0.01), ("$gte", 0.1), ("$ne", 0.75),
    ]  # fmt: skip
    for where, share in filters.items():
        assert sum(where.matches(record.document.metadata) for record in RECORDS) == share * 200
    assert sampled_filters([]) == sampled_filters([Document("a")]) == {}


def test_nothing_is_said_of_an_empty_field() -> None:
    assert measured_recall(np.empty((0, 0), np.float32), search, search, {}) == "approximate"


@pytest.mark.parametrize(("count", "share"), [(0, 0.0), (4, 0.0), (20, 20 / 219)])
def test_the_share_of_equal_vectors_is_that_of_the_largest_group(count: int, share: float) -> None:
    vectors = np.stack([record.vectors[IMAGE] for record in RECORDS])
    nearly = vectors[:1] + np.random.default_rng(1).normal(0, 1e-7, (count, vectors.shape[1])).astype(np.float32)
    sample = np.concatenate([vectors[1:], nearly])[:219] if count else vectors
    assert identical_share(sample) == pytest.approx(share)
