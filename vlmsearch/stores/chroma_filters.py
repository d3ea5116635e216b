"""Filters in Chroma's terms, with the meaning that they have on every store."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any

from vlmsearch.errors import ConfigError
from vlmsearch.filters import Comparison, Filter, normalise
from vlmsearch.types import Scalar

Where = dict[str, Any]
MOST_VALUES = 10_000
"""How many values a filter may name: SQLite, below Chroma, takes no more."""


def filterable(metadata: Mapping[str, Scalar]) -> dict[str, str | int | bool]:
    """Metadata as they are kept beside a vector."""
    return {_key(key): _stored(normalise(value)) for key, value in metadata.items()}


def compile_filter(where: Filter) -> Where:
    """The filter in Chroma's terms, over metadata as `filterable` gives them."""
    if _values(where) > MOST_VALUES:
        raise ConfigError(f"a filter on Chroma has at most {MOST_VALUES:,} values, not {_values(where):,}")
    return _compile(where)


def _values(where: Filter) -> int:
    if isinstance(where, Comparison):
        return len(where.value) if isinstance(where.value, tuple) else 1
    return sum(_values(part) for part in where.filters)


def _compile(where: Filter) -> Where:
    if isinstance(where, Comparison):
        return _compile_comparison(where)
    return _join(where.operator, [_compile(part) for part in where.filters])


def _compile_comparison(where: Comparison) -> Where:
    key = _key(where.key)
    if not isinstance(where.value, tuple):
        return {key: {where.operator: _stored(where.value)}}
    kinds: dict[type, list[str | int | bool]] = {}  # Chroma takes values of one type only
    for value in where.value:
        stored = _stored(value)
        kinds.setdefault(type(stored), []).append(stored)
    parts: list[Where] = [{key: {where.operator: values}} for values in kinds.values()]
    return _join("$or" if where.operator == "$in" else "$and", parts)


def _join(operator: str, parts: list[Where]) -> Where:
    """The parts as one condition; nested ones of the same kind are taken in, for Chroma limits the depth."""
    flat = [inner for part in parts for inner in part.get(operator, [part])]
    return flat[0] if len(flat) == 1 else {operator: flat}


def _key(key: str) -> str:
    return f"m:{key}"


def _stored(value: str | bool | float) -> str | int | bool:
    """A value as Chroma keeps it: a number becomes an integer in the same order.

    Chroma's JSON reader is off by one unit in the last place for some doubles, never for integers.
    """
    if isinstance(value, bool):
        return value
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    (bits,) = struct.unpack("<q", struct.pack("<d", value + 0.0))  # + 0.0: -0.0 equals 0.0
    return int(bits) if bits >= 0 else -int(bits & 0x7FFF_FFFF_FFFF_FFFF)
