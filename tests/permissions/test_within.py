"""Words, samples and overviews within a scope are those of an index of only these documents, bit for bit."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from vlmsearch_mocks.contracts.passages import make_long
from vlmsearch_mocks.contracts.readers import records_for, with_readers
from vlmsearch_mocks.contracts.records import IMAGE, SPACES, TEXT

from vlmsearch.errors import InvalidBatchError
from vlmsearch.registry import open_store
from vlmsearch.stores.base import CountsWords, Store
from vlmsearch.stores.filters import Filter, parse_filter
from vlmsearch.stores.overview import Overview, OverviewsWithin
from vlmsearch.stores.readers import ChecksWrites, RanksWithin, SamplesWithin, readable
from vlmsearch.stores.samples import sampling_key
from vlmsearch.types import READERS, WORDS, Field, MetadataValue


@pytest.fixture(params=["mock:", "sqlite:"])
def make_store(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[str], Store]:
    return lambda name: open_store(request.param if request.param == "mock:" else f"{request.param}{tmp_path / name}")


def test_words_samples_and_overviews_are_of_the_readable_alone(make_store: Callable[[str], Store]) -> None:
    texts = ["dog snow", "dog dog house", "pay rise", "pay dog", "snow " * 30 + "dog", "Häuser im Wald", "dogs"]
    groups: list[MetadataValue | None] = [None, ("a",), ("b",), ("a", "b"), ("b", "c"), ("c",), ("*",)]
    records = [
        replace(record, document=replace(record.document, text=f"{texts[n % 7]} {n % 5}"))
        for n, record in enumerate(records_for([groups[n % 7] for n in range(60)]))
    ]
    last = ["id-9", "id-10", "id-11"]
    order = [*(id for n in range(60) if (id := f"id-{n}") not in last), "open", "pay", *last]
    with make_store("whole") as store:
        store.bind("encoder 1", SPACES)
        store.upsert([*records, make_long("open"), with_readers(make_long("pay", first=4), ("a",))])
        store.delete(["id-5", "id-6"])
        store.upsert(records[9:12])
        for principals in ([], ["a"], ["b", "c"], ["none"]):
            scope = readable(principals)
            with make_store("-".join(["few", *principals])) as few:
                few.bind("encoder 1", SPACES)
                few.upsert([own for own in store.records(order) if scope.matches(own.document.metadata)])
                _assert_like(store, few, scope)


def test_a_write_within_a_scope_checks_what_it_replaces(make_store: Callable[[str], Store]) -> None:
    with make_store("whole") as store:
        store.bind("encoder 1", SPACES)
        assert isinstance(store, ChecksWrites)
        store.upsert(records_for([None, ("a",), ("b",)]))
        scope = readable(["b"])
        with pytest.raises(InvalidBatchError):
            store.upsert_within(records_for([None, None]), scope)
        store.upsert_within([*records_for([None]), records_for([None, None, None])[2]], scope)
        assert [document.metadata.get(READERS) for document in store.get(["id-0", "id-2"])] == [None, ("b",)]
        assert store.delete_within(["id-0", "id-1", "id-2", "never"], scope) == 2
        assert list(store.ids()) == ["id-1"]


def _assert_like(store: Store, few: Store, scope: Filter) -> None:
    """Check that a store says within a scope what an index of these documents says."""
    if isinstance(store, RanksWithin) and isinstance(few, CountsWords):
        own, rows = store.words_within(scope), list(store.row_ids())
        assert own.count_words(["dog", "pay", "zebra"]) == few.count_words(["dog", "pay", "zebra"])
        for query in ("dog", "pay snow", "house Haus code", "zebra", ""):
            for where in (None, parse_filter({"number": {"$lt": 30}})):
                assert own.search_words(query, limit=50, where=where) == few.search_words(query, limit=50, where=where)
                assert own.compare_words(query, rows, where) == few.compare_words(query, rows, where)
    if isinstance(store, SamplesWithin):
        for field in (IMAGE, TEXT):
            assert store.sample_ids_within(field, 7, scope) == _drawn(few, field)[:7]
            assert store.sample_ids_within(field, 100, scope) == _drawn(few, field)
    if isinstance(store, OverviewsWithin) and isinstance(few, OverviewsWithin):
        for asked in (None, parse_filter({"number": {"$lt": 30}})):
            within = store.overview_within((WORDS,), asked, {"number"}, scope)
            assert _summary(within) == _summary(few.overview((WORDS,), asked, {"number"}))


def _summary(looking: AbstractContextManager[Overview]) -> object:
    with looking as overview:
        places = overview.documents_passing()
        passing = np.flatnonzero(overview.passing)
        groups = overview.groups(by_file=True)
        numbers = None if groups is None else np.unique(groups[passing], return_inverse=True)[1].tolist()
        scores, highest = overview.words("dog pay")
        return (
            overview.ids(passing.tolist()),
            overview.facet("number", places),
            scores[passing].tolist(),
            highest,
            numbers,
        )


def _drawn(store: Store, field: Field) -> list[str]:
    fields = store.fields(list(store.row_ids()))
    return sorted((id for id in fields if field in fields[id]), key=lambda id: (sampling_key(id), id))
