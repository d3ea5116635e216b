"""Values from outside, checked against annotations: TOML tables, and the options of URLs and the command line.

A mistake is one line that says what there is instead.
"""

from __future__ import annotations

import dataclasses
import sys
import typing
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Literal

from vlmsearch._util.options import without_none
from vlmsearch.errors import ConfigError

T = typing.TypeVar("T")
_WORDS = {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False}
_PLAIN: dict[object, tuple[tuple[type, ...], str]] = {
    float: ((float, int), "a number"),
    int: ((int,), "a whole number"),
    str: ((str,), "a string"),
    bool: ((bool,), "true or false"),
}


def read_table(path: Path) -> dict[str, object]:
    """Return the table of a file; ConfigError where it cannot be read."""
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib  # type: ignore[import-not-found,unused-ignore]

    try:
        table: dict[str, object] = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as exc:
        raise ConfigError(f"{path} cannot be read: {exc.strerror}") from exc
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as exc:
        raise ConfigError(f"{path} is not TOML: {exc}") from exc
    return table


def as_dataclass(
    kind: type[T], table: Mapping[str, object], where: str, read: Callable[..., object] | None = None
) -> T:
    """Return the dataclass that a table with the same keys stands for.

    Args:
        kind: The dataclass. A field whose metadata say ``given: False`` is not read.
        table: The values by the names of the fields.
        where: Name of the table, for messages.
        read: The function that makes a value of the annotated type: `check`, or `convert` for strings.

    Raises:
        ConfigError: A key is unknown or missing, or a value is of another type.
    """
    make = read or check
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
    return kind(**{key: make(value, hints[key], f"{where}: {key}") for key, value in table.items()})


def suggest(given: str, known: Iterable[str]) -> str:
    """Return ``did you mean X? `` with the nearest of the known names, or nothing."""
    import difflib

    near = difflib.get_close_matches(given, list(known), 1, 0.54)
    return f"did you mean {near[0]!r}? " if near else ""


def convert(text: str, kind: object, where: str) -> object:
    """Convert a string to the annotated type; ConfigError, beginning with ``where``, says what may be.

    >>> convert("yes", bool, "tls"), convert("3", int | None, "threads")
    (True, 3)
    """
    kind = without_none(kind)
    if kind is bool:
        return check(_WORDS.get(text.lower(), text), kind, where)
    if kind in (int, float):
        with suppress(ValueError):
            return int(text) if kind is int else float(text)
    if kind in _PLAIN or typing.get_origin(kind) is Literal:
        return check(text, kind, where)
    return Path(text) if kind is Path else text


def check(value: object, kind: object, where: str) -> object:
    """Check a value of TOML or JSON of the annotated type. ConfigError, beginning with ``where``, says what may be."""
    kind = without_none(kind)
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
        return tuple(check(item, arguments[0], where) for item in value)
    if origin is Mapping:
        return {key: check(item, arguments[1], f"{where}: {key}") for key, item in _table(value, where).items()}
    allowed, name = _PLAIN[kind]
    if not isinstance(value, allowed) or (isinstance(value, bool) and kind is not bool):
        raise ConfigError(f"{where} is {name}, not {value!r}")
    return float(value) if kind is float and isinstance(value, int) else value


def _table(value: object, where: str) -> dict[str, object]:
    if not isinstance(value, dict):
        raise ConfigError(f"{where} is a table, not {value!r}")
    return value
