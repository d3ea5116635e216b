"""Filters: what is accepted, what is refused and how, and one meaning on every store."""

import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pytest
from vlmsearch_mocks import MemoryStore

from tests.support.filters import FIELD, SPACE
from vlmsearch import ConfigError, Document, Record
from vlmsearch.stores.base import Store
from vlmsearch.stores.chroma.store import ChromaStore
from vlmsearch.stores.filters import Comparison, Filter, FilterGroup, parse_filter
from vlmsearch.types import Scalar

VECTOR = np.array([[1, 0, 0, 0]], np.float32)


@pytest.mark.parametrize(
    ("where", "parsed"),
    [
        ({"year": 2024}, Comparison("year", "$eq", 2024.0)),
        ({"year": True}, Comparison("year", "$eq", True)),
        ({"city": ""}, Comparison("city", "$eq", "")),
        ({"year": {"$gte": 2020}}, Comparison("year", "$gte", 2020.0)),
        ({"a.b": {"$in": (1, "x", False)}}, Comparison("a.b", "$in", (1.0, "x", False))),
        ({"$or": [{"a": 1}]}, FilterGroup("$or", (Comparison("a", "$eq", 1.0),))),
        (
            {"year": {"$gte": 2020, "$lt": 2024}, "city": "Bonn"},
            FilterGroup(
                "$and",
                (
                    Comparison("year", "$gte", 2020.0),
                    Comparison("year", "$lt", 2024.0),
                    Comparison("city", "$eq", "Bonn"),
                ),
            ),
        ),
    ],
)
def test_what_a_filter_means(where: Mapping[str, object], parsed: Filter) -> None:
    assert parse_filter(where) == parsed


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ({}, "is a JSON object"),
        ([], "is a JSON object"),
        ("year", "is a JSON object"),
        ({"$and": []}, r"\$and takes a list of filters"),
        ({"$or": {"a": 1}}, r"\$or takes a list of filters"),
        ({"$or": "a"}, r"\$or takes a list of filters"),
        ({"$or": [3]}, "is a JSON object"),
        ({"$not": [{"a": 1}]}, r"'\$not'; .*\$and and \$or"),
        ({"": 1}, "no such operator: ''"),
        ({3: 1}, "no such operator: 3"),
        ({"year": {}}, r"empty condition on 'year'; there are \$eq"),
        ({"year": {"$between": [1, 2]}}, r"on 'year': '\$between'; there are \$eq"),
        ({"year": {"gte": 1}}, r"on 'year': 'gte'; there are \$eq"),
        ({"year": {"$gt": "2020"}}, r"\$gt on 'year' compares numbers, not '2020'"),
        ({"year": {"$lte": True}}, r"\$lte on 'year' compares numbers, not True"),
        ({"year": {"$in": 3}}, r"\$in on 'year' takes a list"),
        ({"year": {"$in": []}}, r"\$in on 'year' takes a list"),
        ({"year": {"$nin": "ab"}}, r"\$nin on 'year' takes a list"),
        ({"year": {"$in": [[1]]}}, "a value for 'year' is"),
        ({"year": None}, "a value for 'year' is"),
        ({"year": [1]}, "a value for 'year' is"),
        ({"year": math.nan}, "a value for 'year' is"),
        ({"year": math.inf}, "a value for 'year' is"),
        ({"year": 10**400}, "the number for 'year' is too large: 1000"),
        ({"year": 10**5000}, "the number for 'year' is too large: a value of too many digits"),
    ],
)
def test_a_wrong_filter_says_which_part_and_what_there_is(where: Mapping[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse_filter(where)


@pytest.fixture(scope="module")
def chroma(chroma_address: str) -> Iterator[Store]:
    """A store on a Chroma server, which each test fills anew."""
    with ChromaStore(f"//{chroma_address}/one-store-of-filters") as store:
        store.bind("encoder", [SPACE])
        yield store


@pytest.fixture(params=["memory", "served"])
def store(request: pytest.FixtureRequest) -> Store:
    if request.param == "served":
        return request.getfixturevalue("chroma")  # type: ignore[no-any-return]
    memory = MemoryStore()
    memory.bind("encoder", [SPACE])
    return memory


def fill(store: Store, rows: Sequence[Mapping[str, Scalar]]) -> None:
    """Have one document for each row of metadata."""
    store.delete(list(store.ids()))
    store.upsert([Record(Document(str(i), metadata=row), {FIELD: VECTOR[0]}) for i, row in enumerate(rows)])


def passing(store: Store, where: Filter) -> set[int]:
    """The numbers of the rows that pass."""
    return {int(hit.id) for hit in store.search(FIELD, VECTOR, limit=1000, where=where)[0]}


def test_neighbouring_doubles_are_told_apart(store: Store) -> None:
    rng = np.random.default_rng(3)
    values = [float(value) for value in np.concatenate([rng.normal(size=100), rng.uniform(-180, 180, 100)])]
    values += [math.nextafter(value, math.inf) for value in values] + [
        math.nextafter(value, -math.inf) for value in values
    ]
    fill(store, [{"x": x} for x in values])
    for i, value in enumerate(values[:200:20]):
        for operator in ("$eq", "$gt", "$lte"):
            where = parse_filter({"x": {operator: value}})
            assert passing(store, where) == {j for j, other in enumerate(values) if where.matches({"x": other})}, (
                i,
                operator,
            )


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ({"$or": [{"x": i} for i in range(101)]}, "at most 100 conditions, not 101"),
        ({f"k{i}": {"$gt": 0, "$lt": 2} for i in range(51)}, "at most 100 conditions, not 102"),
        ({"x": {"$in": list(range(1001))}}, "at most 1,000 values, not 1,001"),
        ({"$and": [{"x": {"$nin": ["a"] * 501}}, {"y": {"$in": ["a"] * 500}}]}, "at most 1,000 values, not 1,001"),
    ],
)
def test_a_filter_of_too_many_parts_is_refused(where: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse_filter(where)


@pytest.mark.parametrize("key", ["a\0b", "\ud800", "x" * 129, "tab\t", "\x85"])
def test_a_key_that_no_metadata_can_have_is_refused(key: str) -> None:
    for where in ({key: 1}, {key: {"$ne": 1}}, {"$or": [{"x": 1}, {key: {"$in": ["a"]}}]}):
        with pytest.raises(ConfigError, match="is no key of metadata: 1 to 128 characters"):
            parse_filter(where)


def nested(depth: int, operators: tuple[str, ...] = ("$and",)) -> dict[str, object]:
    where: dict[str, object] = {"x": 1}
    for level in range(depth):
        where = {operators[level % len(operators)]: [where]}
    return where


@pytest.mark.parametrize("where", [nested(50), nested(400), nested(100_000), {"x": nested(3000)}])
def test_a_filter_that_nests_too_deep_is_refused(where: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match="nests objects and lists at most 100 deep"):
        parse_filter(where)


def test_a_filter_that_contains_itself_is_refused() -> None:
    endless: list[object] = []
    endless += [{"$or": endless}, {"$and": endless}]
    with pytest.raises(ConfigError, match="at most 100 deep"):
        parse_filter({"$and": endless})


def test_deeply_nested_filters_work(chroma: Store) -> None:
    where: dict[str, object] = {"x": 1}
    for _ in range(48):
        where = {"$and": [where, {"x": {"$ne": 7}}]}
    fill(chroma, [{"x": 1}])
    for each in (where, nested(49, ("$and",)), nested(49, ("$and", "$or"))):
        assert passing(chroma, parse_filter(each)) == {0}
