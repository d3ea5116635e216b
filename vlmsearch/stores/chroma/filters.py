"""Filters in Chroma's terms, with the meaning that they have on every store."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any

from vlmsearch.errors import ConfigError
from vlmsearch.stores.filters import MAX_VALUES, ORDERINGS, Comparison, Filter, normalise
from vlmsearch.types import HALVES, READERS, MetadataValue

Where = dict[str, Any]
_ESCAPED = "\0escaped:"
"""The beginning of escaped strings: of those that are not valid Unicode, or that begin so themselves."""
_WIDEST = 100
_HAS_READERS = "readers"
"""The key of rows whose document has readers. Rows of earlier versions lack it: see `compile_filter`."""
_MAX_PRINCIPALS = MAX_VALUES
"""Principals at most: the time of a search grows with them times rows."""


def filterable(metadata: Mapping[str, MetadataValue]) -> dict[str, str | int | bool]:
    """Return metadata as they are kept beside a vector. Each string of a list is a key."""
    lists = {key: value for key, value in metadata.items() if isinstance(value, tuple)}
    kept = {_key(key): _stored(normalise(value)) for key, value in metadata.items() if key not in lists}
    if READERS in metadata:
        kept[_HAS_READERS] = True
    return {**kept, **{_listed(key, text): True for key, value in lists.items() for text in value}}


def compile_filter(where: Filter) -> Where:
    """Return the filter in Chroma's terms, over metadata as `filterable` gives them.

    Of a filter with a scope, it passes all rows that the filter does, and perhaps others: rows of earlier versions do
    not say whether their documents have readers. So whoever searches compares the documents once more.
    """
    if isinstance(where, Comparison):
        return _compile_comparison(where)
    return _join(where.operator, [compile_filter(part) for part in where.filters])


def _compile_comparison(where: Comparison) -> Where:
    key, values = _key(where.key), where.value if isinstance(where.value, tuple) else (where.value,)
    if where.operator in ORDERINGS:
        return {key: {where.operator: _stored(values[0])}}
    is_any = where.operator in ("$eq", "$in")
    single = "$eq" if is_any else "$ne"
    parts: list[Where] = []
    for value in values:
        parts.append({key: {single: _stored(value)}})
        if isinstance(value, str):
            parts.append({_listed(where.key, value): {single: True}})
    if where.or_absent:
        if len(values) > _MAX_PRINCIPALS + 1:  # and everyone
            raise ConfigError(
                f"Chroma compares at most {_MAX_PRINCIPALS:,} principals, not {len(values) - 1:,}: name fewer groups, "
                "or copy the index to `sqlite:`"
            )
        parts.append({_HAS_READERS: {"$ne": True}})
    return _join("$or" if is_any else "$and", parts)


def _join(operator: str, parts: list[Where]) -> Where:
    """Return the parts as one condition: nested ones of the same kind are taken in, values of one key become a list."""
    single, several = ("$eq", "$in") if operator == "$or" else ("$ne", "$nin")
    lists: dict[tuple[str, type], list[str | int | bool]] = {}
    others: list[Where] = []
    for part in parts:
        for inner in part.get(operator, [part]):
            ((key, condition),) = inner.items()
            if isinstance(condition, dict) and (single in condition or several in condition):
                for value in condition.get(several) or [condition[single]]:
                    lists.setdefault((key, type(value)), []).append(value)
            else:
                others.append(inner)
    merged = [
        {key: {several: values} if len(values) > 1 else {single: values[0]}} for (key, _), values in lists.items()
    ]
    return _pack(operator, [*merged, *others])


def _pack(operator: str, parts: list[Where]) -> Where:
    """Return a condition of groups of at most `_WIDEST`.

    SQLite, below Chroma, takes a long one for as deep as it is long.
    """
    while len(parts) > _WIDEST:
        groups = [parts[start : start + _WIDEST] for start in range(0, len(parts), _WIDEST)]
        parts = [{operator: group} if len(group) > 1 else group[0] for group in groups]
    return {operator: parts} if len(parts) > 1 else parts[0]


def _key(key: str) -> str:
    return _text(f"m:{key}")


def _listed(key: str, text: str) -> str:
    """Return the key that says that a list has a string. No key of metadata has the character between them."""
    return _text(f"m:{key}\0{text}")


def _stored(value: str | bool | float) -> str | int | bool:
    """Return a value as Chroma keeps it: a number becomes an integer in the same order.

    Chroma's JSON reader is off by one unit in the last place for some doubles, never for integers.
    """
    if isinstance(value, bool):
        return value
    if isinstance(value, str):
        return _text(value)
    (bits,) = struct.unpack("<q", struct.pack("<d", value + 0.0))  # + 0.0: -0.0 equals 0.0
    return int(bits) if bits >= 0 else -int(bits & 0x7FFF_FFFF_FFFF_FFFF)


def _text(text: str) -> str:
    """Return a string in valid Unicode, another one for each."""
    is_odd = text.startswith(_ESCAPED) or HALVES.search(text)
    return _ESCAPED + text.encode("unicode_escape").decode() if is_odd else text
