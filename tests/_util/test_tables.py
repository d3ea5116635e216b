from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import pytest

from vlmsearch import ConfigError
from vlmsearch._util.tables import as_dataclass, check, convert

Device = Literal["cpu", "cuda"]


@pytest.mark.parametrize(
    ("text", "kind", "expected"),
    [
        ("3", int, 3),
        ("3", int | None, 3),
        ("0.5", float, 0.5),
        ("yes", bool, True),
        ("0", bool, False),
        ("a/b", Path, Path("a/b")),
        ("a/b", Path | None, Path("a/b")),
        ("cpu", Device, "cpu"),
        ("cuda", Device | None, "cuda"),
        ("text", str, "text"),
        ("as it is", dict, "as it is"),
    ],
)
def test_a_string_becomes_what_the_annotation_says(text: str, kind: object, expected: object) -> None:
    assert convert(text, kind, "x") == expected
    assert type(convert(text, kind, "x")) is type(expected)


@pytest.mark.parametrize(
    ("text", "kind", "message"),
    [
        ("two", int, "x is a whole number, not 'two'"),
        ("0.5", int, "x is a whole number, not '0.5'"),
        ("half", float | None, "x is a number, not 'half'"),
        ("maybe", bool, "x is true or false, not 'maybe'"),
        ("tpu", Device, "x is one of cpu, cuda, not 'tpu'"),
    ],
)
def test_a_string_that_stands_for_nothing_is_refused(text: str, kind: object, message: str) -> None:
    with pytest.raises(ConfigError, match=f"^{message}$"):
        convert(text, kind, "x")


@pytest.mark.parametrize(
    ("value", "kind", "message"),
    [
        ("3", int, "x is a whole number, not '3'"),
        (True, int, "x is a whole number, not True"),
        (1, bool, "x is true or false, not 1"),
        (1, str, "x is a string, not 1"),
        (7, Device, "x is one of cpu, cuda, not 7"),
        ([1, 2], tuple[int, int, int], r"x is a list of 3, not \[1, 2\]"),
        ({"a": "b"}, Mapping[str, float], "x: a is a number, not 'b'"),
    ],
)
def test_a_typed_value_is_not_converted(value: object, kind: object, message: str) -> None:
    with pytest.raises(ConfigError, match=f"^{message}$"):
        check(value, kind, "x")


@dataclass(frozen=True)
class Inner:
    size: int = 1


@dataclass(frozen=True)
class Outer:
    name: str
    share: float = 0.5
    inner: Inner = Inner()
    folder: Path = field(default=Path(), metadata={"given": False})


def test_a_table_is_read_into_its_dataclass() -> None:
    found = as_dataclass(Outer, {"name": "a", "share": 1, "inner": {"size": 3}}, "T")
    assert found == Outer("a", 1.0, Inner(3))
    assert as_dataclass(Outer, {"name": "a", "share": "0.25"}, "T", convert) == Outer("a", 0.25)


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({}, "T: name must be given"),
        ({"name": "a", "shares": 1}, "T: unknown key 'shares'; did you mean 'share'[?] there are name, share, inner"),
        ({"name": "a", "folder": "b"}, "T: unknown key 'folder'"),
        ({"name": "a", "inner": {"size": "b"}}, "T: inner: size is a whole number, not 'b'"),
    ],
)
def test_a_wrong_table_says_what_there_is(table: Mapping[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=f"^{message}"):
        as_dataclass(Outer, table, "T")
