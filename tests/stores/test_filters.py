"""Filters: what is accepted, what is refused and how, and one meaning on every store."""

import math
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import pytest
from vlmsearch_mocks import MemoryStore

from tests.support.filters import FIELD, SPACE
from vlmsearch import ConfigError, Document, Record
from vlmsearch.stores.base import Store
from vlmsearch.stores.chroma.store import ChromaStore
from vlmsearch.stores.filters import Comparison, Filter, FilterGroup, parse_filter
from vlmsearch.types import Scalar


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


@pytest.fixture(scope="module", params=["memory", "embedded", "served"])
def store(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    made: dict[str, str] = {"embedded": str(tmp_path_factory.mktemp("filters") / "index")}
    if request.param == "served":
        made["served"] = f"//{request.getfixturevalue('chroma_address')}/doubles"
    with MemoryStore() if request.param == "memory" else ChromaStore(made[request.param]) as store:
        store.bind("encoder", [SPACE])
        yield store


def test_neighbouring_doubles_are_told_apart(store: Store) -> None:
    store.delete(list(store.ids()))
    rng = np.random.default_rng(3)
    values = [float(value) for value in np.concatenate([rng.normal(size=100), rng.uniform(-180, 180, 100)])]
    values += [math.nextafter(value, math.inf) for value in values] + [
        math.nextafter(value, -math.inf) for value in values
    ]
    vector = np.array([1, 0, 0, 0], np.float32)
    store.upsert([Record(Document(str(i), metadata={"x": x}), {FIELD: vector}) for i, x in enumerate(values)])
    for i, value in enumerate(values[:200:20]):
        for operator in ("$eq", "$gt", "$lte"):
            where = parse_filter({"x": {operator: value}})
            found = {int(hit.id) for hit in store.search(FIELD, vector[None], limit=1000, where=where)[0]}
            assert found == {j for j, other in enumerate(values) if where.matches({"x": other})}, (i, operator)


def test_a_long_list_of_values_works_and_one_that_is_too_long_is_refused(tmp_path: Path) -> None:
    vector = np.array([1, 0, 0, 0], np.float32)
    with ChromaStore(str(tmp_path / "index")) as store:
        store.bind("encoder", [SPACE])
        store.upsert([Record(Document(str(i), metadata={"x": i}), {FIELD: vector}) for i in range(5)])
        long = parse_filter({"x": {"$in": list(range(3, 10_003))}})
        assert {hit.id for hit in store.search(FIELD, vector[None], limit=9, where=long)[0]} == {"3", "4"}
        too_long = parse_filter({"$or": [{"x": {"$in": list(range(6000))}}, {"x": {"$nin": list(range(6000))}}]})
        with pytest.raises(ConfigError, match="at most 10,000 values, not 12,000"):
            store.search(FIELD, vector[None], limit=9, where=too_long)


def test_conditions_that_are_many_work_and_too_many_are_refused(tmp_path: Path) -> None:
    vector = np.array([1, 0, 0, 0], np.float32)
    with ChromaStore(str(tmp_path / "index")) as store:
        store.bind("encoder", [SPACE])
        rows: list[dict[str, Scalar]] = [{"x": i, f"k{i}": True} for i in range(5)]
        store.upsert([Record(Document(str(i), metadata=row), {FIELD: vector}) for i, row in enumerate(rows)])
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
            found = {int(hit.id) for hit in store.search(FIELD, vector[None], limit=9, where=where)[0]}
            assert found == {i for i, row in enumerate(rows) if where.matches(row)}, str(each)[:60]
        for refused, said in (
            ({"$or": [{f"k{i}": True} for i in range(2001)]}, "at most 2,000 conditions, not 2,001"),
            ({"$or": [deep, {"x": 1}]}, r"nests \$and and \$or at most 60 deep, not 61"),
        ):
            with pytest.raises(ConfigError, match=said):
                store.search(FIELD, vector[None], limit=9, where=parse_filter(refused))


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


def test_the_deepest_filter_works(tmp_path: Path) -> None:
    vector = np.array([1, 0, 0, 0], np.float32)
    with ChromaStore(str(tmp_path / "index")) as store:
        store.bind("encoder", [SPACE])
        store.upsert([Record(Document("a", metadata={"x": 1}), {FIELD: vector})])
        for operators in (("$and",), ("$and", "$or")):
            where = parse_filter(nested(99, operators))
            assert len(store.search(FIELD, vector[None], limit=9, where=where)[0]) == 1


def test_deeply_nested_filters_work(tmp_path: Path) -> None:
    vector = np.array([1, 0, 0, 0], np.float32)
    where: dict[str, object] = {"x": 1}
    for _ in range(80):
        where = {"$and": [where, {"x": {"$ne": 7}}]}
    with ChromaStore(str(tmp_path / "index")) as store:
        store.bind("encoder", [SPACE])
        store.upsert([Record(Document("a", metadata={"x": 1}), {FIELD: vector})])
        assert len(store.search(FIELD, vector[None], limit=9, where=parse_filter(where))[0]) == 1
