"""Values as people have them, made plain: numpy scalars, dates, missing values, and arrays of pixels.

`plain_mapping` is how metadata come in, by every way there is: what no store keeps is left out, and said as unread.
Nothing is imported that the caller has not imported: a numpy scalar is known by what it has.
"""

from __future__ import annotations

import math
import os
import re
import sys
from collections import Counter
from collections.abc import Collection, Mapping
from datetime import date, time, timedelta
from decimal import Decimal
from enum import Enum
from functools import lru_cache
from typing import Any, cast
from uuid import UUID

from vlmsearch._util.arguments import shown
from vlmsearch._util.frozen import FrozenDict
from vlmsearch._util.unread import with_unread
from vlmsearch.errors import ConfigError

MAX_KEY_CHARS = 128
MAX_ENTRIES = 1000
"""Strings in one list of a document's metadata."""
MAX_INT = 2**63 - 1
_MIN = -MAX_INT
CONTROLS = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
"""Characters that ids and keys do not have: controls, and halves of surrogate pairs."""
_KEY_RULE = f"1 to {MAX_KEY_CHARS} characters, no controls, no $ first"
_PLAIN = frozenset({str, int, bool, float})
_DICTS = frozenset({dict, FrozenDict})
_MISSING = frozenset({"NAType", "NaTType", "MaskedConstant"})
"""The types of missing values of pandas and numpy; NaT counts as a date elsewhere."""
_LISTS = (list, tuple, set, frozenset)
_TEXT_KINDS = frozenset({"O", "U", "T"})
"""The kinds of arrays that may have strings: of objects, of numpy's strings and of its strings of any length."""
_YEARS = range(1, 10_000)
"""The years that Python has; pandas has more."""
_CHANNELS = frozenset({1, 3, 4})
_SHOWN_CHARS = 40
"""Characters of a key in the name of an unread value."""


def plain_value(value: Any) -> Any:
    """Return a value as a string, a number, a bool or a tuple of strings. It is None for a missing one.

    Any other object stays as it is. Dates and times are in ISO 8601, to the microsecond, and durations are seconds.
    None, NaN, NaT, pandas' NA, and empty lists and mappings are missing. Of a list of strings, missing entries and
    duplicates are left out.

    >>> from datetime import date, timedelta
    >>> plain_value(date(2024, 5, 1)), plain_value(float("nan")), plain_value(timedelta(minutes=1))
    ('2024-05-01', None, 60.0)
    """
    kind = type(value)
    if kind is float:
        return None if value != value else value + 0.0  # which is 0 for -0.0
    if kind in _PLAIN:
        return value
    if value is None or kind.__name__ in _MISSING or (kind is Decimal and value.is_nan()):
        return None
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, (date, time)) and getattr(value, "year", 1) in _YEARS:
        return (value.to_pydatetime(warn=False) if hasattr(value, "to_pydatetime") else value).isoformat()
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, Decimal):
        return int(value) if value.as_tuple().exponent == 0 else float(value)
    if isinstance(value, (int, float)):
        return plain_value(int(value) if isinstance(value, int) else float(value))
    if isinstance(value, (Enum, UUID, os.PathLike)):
        return plain_value(value.value if isinstance(value, Enum) else str(value))
    if isinstance(value, _LISTS) or (getattr(value, "ndim", None) == 1 and _kind(value) in _TEXT_KINDS):
        return _list_value(value)
    if getattr(value, "ndim", None) == 0 and hasattr(value, "dtype") and hasattr(value, "item"):
        return _numpy_value(value)
    return None if isinstance(value, Collection) and not len(value) else value


def _kind(array: Any) -> str | None:
    return getattr(getattr(array, "dtype", None), "kind", None)


def _list_value(value: Any) -> Any:
    entries = value if isinstance(value, _LISTS) else value.tolist()
    known = [entry for entry in entries if isinstance(entry, (str, *_LISTS)) or plain_value(entry) is not None]
    if not all(isinstance(entry, str) for entry in known):
        return value
    strings = dict.fromkeys(map(str.__str__, known))
    return tuple(sorted(strings) if isinstance(value, (set, frozenset)) else strings) or None


def _numpy_value(value: Any) -> Any:
    item, unit = value.item(), value.dtype.str[1:]
    if unit in ("M8[ns]", "m8[ns]"):  # which Python does not have
        item = value.astype(f"{unit[:3]}us]").item()
    is_odd = isinstance(item, int) if unit[0] in "Mm" else item is value or hasattr(item, "dtype")
    return value if is_odd else plain_value(item)


def finite_number(value: object) -> float | None:
    """Return a number as a float, 0 for -0.0.

    It is None for other objects, and for numbers that are not finite or beyond all floats.
    """
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) <= sys.float_info.max
    return cast("float", value) + 0.0 if is_number else None


def plain_text(value: Any) -> Any:
    """Return a plain value, which is a text where it is a number."""
    value = f"{value:f}" if isinstance(value, Decimal) and value.is_finite() else plain_value(value)
    return str(value) if isinstance(value, (int, float)) else list(value) if isinstance(value, tuple) else value


def is_key(key: object) -> bool:
    """Check whether metadata can have a key: 1 to 128 characters, no controls, no ``$`` first."""
    if not isinstance(key, str) or not 0 < len(key) <= MAX_KEY_CHARS or key[0] == "$":
        return False
    return key.isprintable() or not CONTROLS.search(key)  # which takes ten times as long


def check_keys(name: str, *keys: object) -> None:
    """Raise ConfigError for a key that no metadata can have; ``name`` is what takes it."""
    for key in keys:
        if not is_key(key):
            raise ConfigError(f"{name}: {shown(key)} is no key of metadata: {_KEY_RULE}")


def value_problem(key: object, value: object) -> str:
    """Return why no store keeps a key of metadata with a plain value.

    It is "" where all keep it, and filter on it.
    """
    if not is_key(key):
        return f"metadata {key!r} must have a key of {_KEY_RULE}"
    if isinstance(value, tuple) and all(isinstance(entry, str) for entry in value):
        return f"metadata {key!r} must have at most {MAX_ENTRIES:,} strings" if len(value) > MAX_ENTRIES else ""
    if not isinstance(value, (str, int, float)):
        return f"metadata {key!r} must be a string, number, bool or list of strings"
    if isinstance(value, float) and not math.isfinite(value):
        return f"metadata {key!r} must be a finite number"
    return f"metadata {key!r} must fit 64 bits" if isinstance(value, int) and abs(value) > MAX_INT else ""


def plain_mapping(values: Mapping[Any, Any]) -> Mapping[str, Any]:
    """Return metadata that every store keeps. It is the same mapping where all are and it is a plain dict.

    Missing values are left out. What cannot be kept is left out and counts among the unread parts, as ``1 KEY value``.

    >>> plain_mapping({"year": 2024, "place": None, "shape": [3, 4]})
    {'year': 2024, 'unread': '1 shape value', 'unread_count': 1}
    """
    for value in values.values():
        kind = type(value)
        if kind is not str and not (
            value - value == 0 and (value or math.copysign(1, value) > 0)
            if kind is float
            else kind in _PLAIN and _MIN <= value <= MAX_INT
        ):
            break
    else:
        if _are_plain(tuple(values)):
            return values if type(values) in _DICTS else dict(values)  # pickle takes no view, and others may change
    kept: dict[str, Any] = {}
    lost: Counter[str] = Counter()
    for key, value in values.items():
        name, plain = key if type(key) is str else str(plain_value(key)), plain_value(value)
        if plain is not None and (name in kept or value_problem(name, plain)):
            lost[_unread(name)] += 1
        elif plain is not None:
            kept[name] = plain
    return with_unread(kept, lost)


@lru_cache(maxsize=256)
def _are_plain(keys: tuple[object, ...]) -> bool:
    """Return whether keys are certainly kept as they are."""
    return all(type(key) is str and not value_problem(key, "") for key in keys)


def _unread(key: str) -> str:
    """Return what a value that cannot be kept is called among the unread parts."""
    return f"{CONTROLS.sub('?', key)[:_SHOWN_CHARS].replace(',', ' ') or 'nameless'} value"


def is_array(value: object) -> bool:
    """Check whether a value is a numpy array."""
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(value, numpy.ndarray)


def is_image_array(value: Any) -> bool:
    """Check whether a value is an array of numbers with the dimensions of one picture. `is_pixels` is stricter."""
    return is_array(value) and value.dtype.kind in "buif" and value.ndim in (2, 3)


def is_pixels(value: Any) -> bool:
    """Check whether a value is an array of one picture: uint8 of shape (height, width) with 1, 3 or 4 channels."""
    if not is_array(value) or value.dtype != "uint8" or 0 in value.shape:
        return False
    return value.ndim == 2 or (value.ndim == 3 and value.shape[2] in _CHANNELS)


def is_picture(value: object) -> bool:
    """Check whether a value is a PIL image."""
    pillow = sys.modules.get("PIL.Image")
    return pillow is not None and isinstance(value, pillow.Image)
