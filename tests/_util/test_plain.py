"""Values as people have them, made plain."""

import math
from decimal import Decimal
from enum import Enum, IntEnum
from typing import Any

import numpy as np
import pandas as pd
import pytest

from vlmsearch._util.plain import finite_number, is_pixels, plain_mapping, plain_value


class Colour(str, Enum):
    RED = "red"


class Level(IntEnum):
    HIGH = 3


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        ("a", "a"),
        (["b", None, np.str_("a"), "b", float("nan")], ("b", "a")),
        pytest.param({"b", "a"}, ("a", "b"), id="a set"),
        (np.array(["a", "b"]), ("a", "b")),
        (pd.Series(["a", pd.NA], dtype="string"), ("a",)),
        (7, 7),
        (1.5, 1.5),
        (True, True),
        (np.int64(7), 7),
        (np.uint8(7), 7),
        (np.float32(1.5), 1.5),
        (np.float64(1.5), 1.5),
        (np.bool_(True), True),
        (np.str_("a"), "a"),
        (np.array(7), 7),
        (Colour.RED, "red"),
        (Level.HIGH, 3),
        (np.datetime64("2024-05-01"), "2024-05-01"),
        (np.datetime64("2024-05-01T12:00:00.000000007"), "2024-05-01T12:00:00"),
        (pd.Timestamp("2024-05-01 12:00"), "2024-05-01T12:00:00"),
    ],
    ids=repr,
)
def test_a_value_is_plain_and_of_pythons_own_type(value: Any, plain: Any) -> None:
    made = plain_value(value)
    assert made == plain
    assert type(made) is type(plain)


@pytest.mark.parametrize(
    "value",
    [
        None,
        [],
        (None,),
        np.array([], object),
        np.ma.masked,
        float("nan"),
        np.float32("nan"),
        np.datetime64("NaT"),
        pd.NaT,
        pd.NA,
        Decimal("NaN"),
    ],
    ids=repr,
)
def test_a_missing_value_is_none(value: Any) -> None:
    assert plain_value(value) is None


@pytest.mark.parametrize(
    "value",
    [[1], ["a", 1], [["a"]], memoryview(b"x"), {"a": 1}, b"x", np.array([1, 2]), 1 + 2j, np.complex64(1), object()],
)
def test_any_other_value_stays_as_it_is(value: Any) -> None:
    made = plain_value(value)
    assert made is value or made == value.item()


def test_a_plain_mapping_is_not_copied_and_missing_values_are_left_out() -> None:
    plain = {"a": 1, "b": "x", "c": 0.5, "d": False}
    assert plain_mapping(plain) is plain
    assert plain_mapping({"a": np.int8(1), "b": None, "c": float("nan"), "d": float("inf")}) == {
        "a": 1,
        "unread": "1 d value",
        "unread_count": 1,
    }


def test_keys_are_texts_and_one_that_no_store_takes_costs_its_value() -> None:
    given = {2024: 1, np.int8(7): 2, "7": 3, "": 4, "$price": 5, "a\nb": 6, "k" * 129: 7, "größe\u00a0": 8}
    assert plain_mapping(given) == {
        "2024": 1,
        "7": 2,
        "größe\u00a0": 8,
        "unread": f"1 $price value, 1 7 value, 1 a?b value, 1 {'k' * 40} value, 1 nameless value",
        "unread_count": 5,
    }


def test_values_that_are_left_out_are_added_to_what_a_reader_left_out() -> None:
    made = plain_mapping({"unread": "2 comments, 1 chart", "unread_count": 3, "a,b": [1], "c": b"x"})
    assert made == {"unread": "2 comments, 1 a b value, 1 c value, 1 chart", "unread_count": 5}
    assert plain_mapping(made) is made
    own = plain_mapping({"unread": True, "mails": [1]})
    assert own == {"unread": "1 mails value, 1 unread value", "unread_count": 2}


class Odd:
    def __repr__(self) -> str:
        raise ValueError("no text")


def test_an_object_of_any_kind_costs_its_value_alone() -> None:
    odd = {"a": Odd(), "b": 10**5000, "c": Decimal("sNaN"), "d": Decimal("1e999"), "e": "x"}
    assert plain_mapping(odd) == {"e": "x", "unread": "1 a value, 1 b value, 1 d value", "unread_count": 3}


@pytest.mark.parametrize(
    ("shape", "kind", "is_one"),
    [
        ((4, 5), "uint8", True),
        ((4, 5, 1), "uint8", True),
        ((4, 5, 3), "uint8", True),
        ((4, 5, 4), "uint8", True),
        ((3, 4, 5), "uint8", False),
        ((4, 5, 3), "float32", False),
        ((0, 5, 3), "uint8", False),
        ((5,), "uint8", False),
        ((2, 4, 5, 3), "uint8", False),
    ],
)
def test_pixels_are_bytes_in_rows(shape: tuple[int, ...], kind: str, is_one: bool) -> None:
    assert is_pixels(np.zeros(shape, kind)) == is_one


def test_a_negative_zero_is_zero_and_no_other_number_changes() -> None:
    assert [str(plain_value(value)) for value in (-0.0, 0.0, -0.5)] == ["0.0", "0.0", "-0.5"]
    assert str(plain_mapping({"a": -0.0, "b": 1})) == "{'a': 0.0, 'b': 1}"


def test_only_a_number_that_a_float_can_hold_is_one() -> None:
    assert [finite_number(value) for value in (1, 2.5, 10**300)] == [1.0, 2.5, 1e300]
    for value in (10**400, -(10**400), math.inf, math.nan, True, "1", None):
        assert finite_number(value) is None
