"""Arguments of public verbs, checked by their names: a wrong one is one line that names it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from vlmsearch.errors import ConfigError

_FUNCTIONS = frozenset({"on_progress", "stop"})
_MAX_COUNT = 2**24
_SHOWN = 60
"""Characters of a wrong value that a message shows."""


def shown(value: object) -> str:
    """Return a wrong value for a message: its beginning, after its type if the value does not show it."""
    try:
        text = " ".join(f"{value!r:.{_SHOWN}}".split())
    except ValueError:  # Python writes no number of more than 4,300 digits
        text = "a value of too many digits"
    return text if isinstance(value, (str, int, float, bytes, type(None))) else f"{type(value).__name__} {text}"


def check_arguments(**given: object) -> None:
    """Check flags, and functions such as ``on_progress``; TypeError names the argument that is wrong."""
    for name, value in given.items():
        if name in _FUNCTIONS:
            if value is not None and not callable(value):
                raise TypeError(f"`{name}` is a function or None, not {shown(value)}")
        elif not isinstance(value, bool):
            raise TypeError(f"`{name}` is True or False, not {shown(value)}")


def strings(name: str, value: object, what: str = "ids") -> list[str]:
    """Return the strings of an argument that is one or several; TypeError names the argument."""
    return _several(f"`{name}` is a string or a list of {what}", value, (str,))


def paths(name: str, value: object) -> list[str | Path]:
    """Return the paths of an argument that is one or several; TypeError names the argument."""
    return _several(f"`{name}` is a path or a list of paths", value, (str, Path))


def _several(rule: str, value: object, kinds: tuple[type, ...]) -> list[Any]:
    if isinstance(value, kinds):
        return [value]
    if isinstance(value, (bytes, bytearray, Mapping)) or not isinstance(value, Iterable):
        raise TypeError(f"{rule}, not {shown(value)}")
    several = list(value)
    for item in several:
        if not isinstance(item, kinds):
            raise TypeError(f"{rule}, not a list with {shown(item)}")
    return several


def check_counts(**counts: int | None) -> None:
    """Raise ConfigError for a count out of its bounds; None is no count.

    They are 1 and 16,777,216.
    """
    check_bounds(1, _MAX_COUNT, **counts)


def check_bounds(low: float, high: float, **given: float | None) -> None:
    """Raise ConfigError for a number out of its bounds, by its name; None is no number."""
    for name, number in given.items():
        if number is not None and not low <= number <= high:
            raise ConfigError(f"`{name}` is from {low:,.12g} to {high:,.12g}, not {shown(number)}")


def check_kind(name: str, value: object, kind: type | tuple[type, ...], what: str) -> None:
    """Raise TypeError unless a value is of a type, which ``what`` describes."""
    if not isinstance(value, kind):
        raise TypeError(f"`{name}` is {what}, not {shown(value)}")
