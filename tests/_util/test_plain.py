"""Values as people have them, made plain."""

from datetime import date, datetime, time, timezone
from decimal import Decimal
from enum import Enum, IntEnum
from typing import Any

import numpy as np
import pandas as pd
import pytest

from vlmsearch._util.plain import is_pixels, plain_mapping, plain_value


class Colour(str, Enum):
    RED = "red"


class Level(IntEnum):
    HIGH = 3


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        ("a", "a"),
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
        (Decimal("1.50"), 1.5),
        (Colour.RED, "red"),
        (Level.HIGH, 3),
        (date(2024, 5, 1), "2024-05-01"),
        (datetime(2024, 5, 1, 12, tzinfo=timezone.utc), "2024-05-01T12:00:00+00:00"),
        (time(12, 30), "12:30:00"),
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
    [None, float("nan"), np.float32("nan"), np.float64("nan"), np.datetime64("NaT"), pd.NaT, pd.NA, Decimal("NaN")],
    ids=repr,
)
def test_a_missing_value_is_none(value: Any) -> None:
    assert plain_value(value) is None


@pytest.mark.parametrize("value", [[1], {"a": 1}, b"x", np.array([1, 2]), 1 + 2j, np.complex64(1), object()])
def test_any_other_value_stays_as_it_is(value: Any) -> None:
    made = plain_value(value)
    assert made is value or made == value.item()


def test_a_plain_mapping_is_not_copied_and_missing_values_are_left_out() -> None:
    plain = {"a": 1, "b": "x", "c": 0.5, "d": False}
    assert plain_mapping(plain) is plain
    assert plain_mapping({"a": np.int8(1), "b": None, "c": float("nan"), "d": float("inf")}) == {
        "a": 1,
        "d": float("inf"),
    }


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
