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


def test_a_long_list_of_values_works_and_one_that_is_too_long_is_refused(chroma: Store) -> None:
    fill(chroma, [{"x": i} for i in range(5)])
    assert passing(chroma, parse_filter({"x": {"$in": list(range(3, 10_003))}})) == {3, 4}
    too_long = parse_filter({"$or": [{"x": {"$in": list(range(6000))}}, {"x": {"$nin": list(range(6000))}}]})
    with pytest.raises(ConfigError, match="at most 10,000 values, not 12,000"):
        passing(chroma, too_long)


def test_conditions_that_are_many_work_and_too_many_are_refused(chroma: Store) -> None:
    rows: list[dict[str, Scalar]] = [{"x": i, f"k{i}": True} for i in range(5)]
    fill(chroma, rows)
    deep: dict[str, object] = {"x": 1}
    for level in range(60):
        deep = {("$or", "$and")[level % 2]: [deep, {"x": {"$gt": level % 4}}]}
    usable: list[dict[str, object]] = [
        {"$or": [{"x": i} for i in range(3, 10_003)]},
        {"$and": [{"x": {"$ne": i}} for i in range(3, 10_003)]},
        {"$and": [{"$or": [{"x": i}, {"x": "three"}, {"x": {"$in": [True, 2]}}]} for i in range(3)]},
        {"$or": [{f"k{i}": True} for i in range(3, 2003)]},
        {"$and": [{f"k{i}": {"$ne": True}} for i in range(3, 1503)]},
        deep,
    ]
    for each in usable:
        where = parse_filter(each)
        assert passing(chroma, where) == {i for i, row in enumerate(rows) if where.matches(row)}, str(each)[:60]
    for refused, said in (
        ({"$or": [{f"k{i}": True} for i in range(2001)]}, "at most 2,000 conditions, not 2,001"),
        ({"$or": [deep, {"x": 1}]}, r"nests \$and and \$or at most 60 deep, not 61"),
    ):
        with pytest.raises(ConfigError, match=said):
            passing(chroma, parse_filter(refused))


def nested(depth: int, operators: tuple[str, ...] = ("$and",)) -> dict[str, object]:
    where: dict[str, object] = {"x": 1}
    for level in range(depth):
        where = {operators[level % len(operators)]: [where]}
    return where


@pytest.mark.parametrize("where", [nested(100), nested(400), nested(100_000), {"x": nested(3000)}])
def test_a_filter_that_nests_too_deep_is_refused(where: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match="nests objects and lists at most 200 deep"):
        parse_filter(where)


def test_a_filter_that_contains_itself_is_refused() -> None:
    endless: list[object] = []
    endless += [{"$or": endless}, {"$and": endless}]
    with pytest.raises(ConfigError, match="at most 200 deep"):
        parse_filter({"$and": endless})


def test_deeply_nested_filters_work(chroma: Store) -> None:
    where: dict[str, object] = {"x": 1}
    for _ in range(80):
        where = {"$and": [where, {"x": {"$ne": 7}}]}
    fill(chroma, [{"x": 1}])
    for each in (where, nested(99, ("$and",)), nested(99, ("$and", "$or"))):
        assert passing(chroma, parse_filter(each)) == {0}
