"""Filters as people write them: what they mean, and what is said of a wrong one."""

from __future__ import annotations

import json
from collections.abc import Mapping

import pytest
from hypothesis import given, strategies as st

from tests.support.filters import conditions, metadata
from vlmsearch import ConfigError
from vlmsearch.stores.filter_text import read_filter
from vlmsearch.stores.filters import Filter, FilterGroup, parse_filter
from vlmsearch.types import Scalar

_SIGNS = {"$eq": "=", "$ne": "!=", "$gt": ">", "$gte": ">=", "$lt": "<", "$lte": "<="}


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("year>=2020", {"year": {"$gte": 2020}}),
        ("year >= 2020 and tag = cat", {"$and": [{"year": {"$gte": 2020}}, {"tag": "cat"}]}),
        ("a=1 or b=2 and c=3", {"$or": [{"a": 1}, {"$and": [{"b": 2}, {"c": 3}]}]}),
        ("(a=1 or b=2) AND c=3", {"$and": [{"$or": [{"a": 1}, {"b": 2}]}, {"c": 3}]}),
        ("tag in (cat, 'a dog', 3, true)", {"tag": {"$in": ["cat", "a dog", 3, True]}}),
        ("tag has cat and tag Has 'a dog'", {"$and": [{"tag": "cat"}, {"tag": "a dog"}]}),
        ("tag has 2024 and date has 2024", {"$and": [{"tag": "2024"}, {"date": "2024"}]}),
        ("has has has or has=has", {"$or": [{"has": "has"}, {"has": "has"}]}),
        ("tag Not In(cat)", {"tag": {"$nin": ["cat"]}}),
        ("a==.5 and b<=-1e3 and c!=False", {"$and": [{"a": 0.5}, {"b": {"$lte": -1000.0}}, {"c": {"$ne": False}}]}),
        ('city="New ""York"""', {"city": 'New "York"'}),
        ("city='it''s' or city=''", {"$or": [{"city": "it's"}, {"city": ""}]}),
        ("zip='01234' and flag='true'", {"$and": [{"zip": "01234"}, {"flag": "true"}]}),
        ("label:cat>=0.5 and camera=Pentax-K3/2", {"$and": [{"label:cat": {"$gte": 0.5}}, {"camera": "Pentax-K3/2"}]}),
        ("'not' = x and \"two words\" = andy", {"$and": [{"not": "x"}, {"two words": "andy"}]}),
        ("n=123456789012345678", {"n": 123456789012345678}),
        (' {"year": {"$gte": 2020}}', {"year": {"$gte": 2020}}),
        (" ", {}),
        ("{}", {}),
    ],
)
def test_what_a_condition_means(text: str, where: Mapping[str, object]) -> None:
    assert read_filter(text) == where
    assert json.dumps(read_filter(text)) == json.dumps(where)  # 1, 1.0 and true are equal


@pytest.mark.parametrize(
    ("text", "inside", "outside"),
    [
        ("date>=2024", [20240101, 20250101], [20231231]),
        ("date>2024", [20250101], [20241231, 20240612]),
        ("date<=2024-06", [20240630, 20230101], [20240701]),
        ("date<2024-06", [20240531], [20240601]),
        ("date=2024", [20240101, 20240612, 20241231], [20231231, 20250101]),
        ("date=2024-06", [20240601, 20240630], [20240531, 20240701]),
        ("date=2024-06-12", [20240612], [20240611, 20240613]),
        ("date=20240612", [20240612], [20240613]),
        ("date!=2024-06-12", [20240613], [20240612]),
        ("date in (2023, 2024-06, 2025-01-02)", [20230707, 20240630, 20250102], [20240701, 20250101]),
        ("date not in (2024-06-12, 20240613)", [20240614], [20240612, 20240613]),
        ("date>=2024-02-29 and date<2024-03", [20240229], [20240228, 20240301]),
    ],
)
def test_a_date_is_a_year_a_month_or_a_day(text: str, inside: list[int], outside: list[int]) -> None:
    condition = parse_filter(read_filter(text))
    assert [day for day in inside + outside if condition.matches({"date": day})] == inside


def test_only_the_key_date_without_quotes_has_dates() -> None:
    assert read_filter("date='2024-06-12'") == {"date": "2024-06-12"}
    assert read_filter("taken=2024-06-12 or taken>2024") == {"$or": [{"taken": "2024-06-12"}, {"taken": {"$gt": 2024}}]}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("(", "needs a key of the metadata, such as in year>=2020 at its end"),
        ("year", "needs one of = == != > >= < <=, 'has', 'in' or 'not in' at its end"),
        ("year>=", "needs a value at its end"),
        (
            "year>=2020 tag=cat",
            "needs 'and', 'or' or the end at character 12, 'tag=cat'; a text with spaces is written in",
        ),
        ("city=New York", "at character 10, 'York'; a text with spaces is written in quotes"),
        ("year=>2020", "needs a value at character 6, '>2020'"),
        ("year>='2020'", "needs a number: > >= < <= order numbers only at character 7, \"'2020'\""),
        ("year<true", "needs a number: .* at character 6, 'true'"),
        ("city='Oslo", 'needs the quote that ends the text at character 6, "\'Oslo"'),
        ("a=[1]", r"needs a text with this character in quotes at character 3, '\[1\]'"),
        ("(a=1 or b=2", "needs 'and', 'or' or '\\)' at its end"),
        ("a=1)", "needs 'and', 'or' or the end at character 4, '\\)'"),
        ("a in 3", "needs '\\(' and values with commas between them at character 6"),
        ("a in ()", "needs a value at character 7"),
        ("a in (1 2)", "needs ',' or '\\)' at character 9"),
        ("a not = 1", "needs 'in' at character 7"),
        ("not a=1", "needs a key of the metadata.* at character 1, 'not a=1'"),
        ("a=1e999", "needs a number up to 1.8e308 at character 3"),
        ("a\0=1", "no key of metadata"),
        ("a=" + "9" * 400, "needs a number up to 1.8e308 at character 3, '9{30}...'"),
        ("date=soon", "needs a date, such as 2024, 2024-06 or 2024-06-12; or a text in quotes at character 6, 'soon'"),
        ("date=2024-02-30", "needs a date that there is at character 6"),
        ("date!=2024", "needs a whole date, such as 2024-06-12, after != at character 7"),
        ("date not in (2024-06)", "needs a whole date, such as 2024-06-12, after 'not in' at character 14"),
        ("'$and'=1", "no such operator: '\\$and'|takes a list"),
        ("(" * 60 + "a=1" + ")" * 60, "at most 25 deep"),
        ("{", "no JSON: .*; write it as year>=2020, or"),
        ('{"a": ' * 100_000, "nests objects and lists at most 100 deep|no JSON"),
    ],
)
def test_a_wrong_condition_says_where_and_what_is_possible(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        read_filter(text)


@given(conditions, st.lists(metadata, min_size=5, max_size=5))
def test_every_filter_can_be_written(where: dict[str, object], documents: list[dict[str, Scalar]]) -> None:
    written, meant = parse_filter(read_filter(write(where))), parse_filter(where)
    assert simplify(written) == simplify(meant)
    assert [written.matches(each) for each in documents] == [meant.matches(each) for each in documents]


@given(st.text(alphabet="ab 1.-()=!<>,'\"[{}andorit\u00e9\n", max_size=30))
def test_any_text_is_a_filter_or_one_error(text: str) -> None:
    try:
        where = read_filter(text)
    except ConfigError:
        return
    if where == {}:  # an empty text is no filter
        return
    assert simplify(parse_filter(read_filter(write(where)))) == simplify(parse_filter(where))


def write(where: Mapping[str, object]) -> str:
    """Write a filter as a condition, with every text and key in quotes."""
    parts = []
    for key, value in where.items():
        if isinstance(value, list):
            parts.append(f" {key[1:]} ".join(f"({write(part)})" for part in value))
        else:
            for operator, operand in (value if isinstance(value, dict) else {"$eq": value}).items():
                parts.append(_comparison(key, operator, operand))
    return parts[0] if len(parts) == 1 else " and ".join(f"({part})" for part in parts)


def _comparison(key: str, operator: str, operand: object) -> str:
    name = _value(key)
    if operator in _SIGNS:
        return f"{name} {_SIGNS[operator]} {_value(operand)}"
    assert isinstance(operand, list)
    return f"{name} {'in' if operator == '$in' else 'not in'} ({', '.join(map(_value, operand))})"


def _value(value: object) -> str:
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    return str(value).lower() if isinstance(value, bool) else repr(value)


def simplify(condition: Filter) -> Filter:
    """Return a filter without groups of one part."""
    if not isinstance(condition, FilterGroup):
        return condition
    parts = tuple(map(simplify, condition.filters))
    return parts[0] if len(parts) == 1 else FilterGroup(condition.operator, parts)
