"""TOML read strictly into dataclasses: a mistake is one line that says what there is instead."""

from __future__ import annotations

import dataclasses
import difflib
import sys
import typing
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Literal

from vlmsearch.errors import ConfigError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib  # type: ignore[import-not-found,unused-ignore]

T = typing.TypeVar("T")
_PLAIN: dict[object, tuple[tuple[type, ...], str]] = {
    float: ((float, int), "a number"),
    int: ((int,), "a whole number"),
    str: ((str,), "a text"),
    bool: ((bool,), "true or false"),
}


def read_table(path: Path) -> dict[str, object]:
    """The table of a file; ConfigError where it cannot be read."""
    try:
        table: dict[str, object] = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as exc:
        raise ConfigError(f"{path} cannot be read: {exc.strerror}") from exc
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as exc:
        raise ConfigError(f"{path} is no TOML: {exc}") from exc
    return table


def as_dataclass(kind: type[T], table: Mapping[str, object], where: str) -> T:
    """A dataclass from a table with the same keys; ConfigError, with ``where``, for the first that is wrong."""
    hints = typing.get_type_hints(kind)
    fields = {f.name: f for f in dataclasses.fields(kind) if f.metadata.get("given", True)}  # type: ignore[arg-type]
    for key in table:
        if key not in fields:
            raise ConfigError(f"{where}: unknown key {key!r}; {suggest(key, fields)}there are {', '.join(fields)}")
    missing = [
        name
        for name, f in fields.items()
        if f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING and name not in table
    ]
    if missing:
        raise ConfigError(f"{where}: {', '.join(missing)} must be given")
    return kind(**{key: _value(hints[key], value, f"{where}: {key}") for key, value in table.items()})


def suggest(given: str, known: Iterable[str]) -> str:
    """``did you mean X? `` with the nearest of the known names, or nothing."""
    near = difflib.get_close_matches(given, list(known), 1, 0.5)
    return f"did you mean {near[0]!r}? " if near else ""


def _value(kind: object, value: object, where: str) -> object:
    """A TOML value as the annotated type."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if dataclasses.is_dataclass(kind) and isinstance(kind, type):
        return as_dataclass(kind, _table(value, where), where)
    if origin is Literal:
        if value not in arguments:
            raise ConfigError(f"{where} is one of {', '.join(map(str, arguments))}, not {value!r}")
        return value
    if origin is tuple:
        fixed = Ellipsis not in arguments
        if not isinstance(value, list) or (fixed and len(value) != len(arguments)):
            raise ConfigError(f"{where} is a list{f' of {len(arguments)}' if fixed else ''}, not {value!r}")
        return tuple(_value(arguments[0], item, where) for item in value)
    if origin is Mapping:
        return {key: _value(arguments[1], item, f"{where}: {key}") for key, item in _table(value, where).items()}
    types, name = _PLAIN[kind]
    if not isinstance(value, types) or (isinstance(value, bool) and kind is not bool):
        raise ConfigError(f"{where} is {name}, not {value!r}")
    return float(value) if kind is float and isinstance(value, int) else value


def _table(value: object, where: str) -> dict[str, object]:
    if not isinstance(value, dict):
        raise ConfigError(f"{where} is a table, not {value!r}")
    return value
