"""Values as people have them, made plain: numpy scalars, dates, missing values, and arrays of pixels.

Nothing is imported that the caller has not imported: a numpy scalar is known by what it has.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from datetime import date, time
from decimal import Decimal
from typing import Any

_PLAIN = frozenset({str, int, bool, float})
_MISSING = frozenset({"NAType", "NaTType"})
"""The types of pandas' missing values; NaT counts as a date elsewhere."""
_LISTS = (list, tuple, set, frozenset)
_CHANNELS = frozenset({1, 3, 4})


def plain_value(value: Any) -> Any:
    """Return a value as a string, a number, a bool or a tuple of strings. It is None for a missing one.

    Any other object stays as it is. Dates and times are in ISO 8601. None, NaN, NaT, pandas' NA and empty lists are
    missing. Of a list of strings, missing entries and duplicates are left out.

    >>> from datetime import date
    >>> plain_value(date(2024, 5, 1)), plain_value(float("nan"))
    ('2024-05-01', None)
    """
    kind = type(value)
    if kind in _PLAIN:
        return None if value != value else value
    if value is None or kind.__name__ in _MISSING:
        return None
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, (date, time)):
        return value.isoformat()
    if isinstance(value, (int, float, Decimal)):
        number = int(value) if isinstance(value, int) else float(value)
        return plain_value(number)
    if isinstance(value, _LISTS) or (getattr(value, "ndim", None) == 1 and value.dtype.kind in "OUT"):
        return _list_value(value)
    if getattr(value, "ndim", None) == 0 and hasattr(value, "dtype") and hasattr(value, "item"):
        return _numpy_value(value)
    return value


def _list_value(value: Any) -> Any:
    entries = value if isinstance(value, _LISTS) else value.tolist()
    plain = [entry if isinstance(entry, _LISTS) else plain_value(entry) for entry in entries]
    strings = [entry for entry in plain if entry is not None]
    if not all(isinstance(entry, str) for entry in strings):
        return value
    return tuple(sorted(strings) if isinstance(value, (set, frozenset)) else dict.fromkeys(strings)) or None


def _numpy_value(value: Any) -> Any:
    item = value.item()
    if value.dtype.kind == "M" and isinstance(item, int):  # nanoseconds, which datetime does not have
        item = value.astype("datetime64[us]").item()
    return value if item is value or hasattr(item, "dtype") else plain_value(item)


def plain_mapping(values: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a mapping with plain values, without those that are missing. It is the same one where all are plain."""
    for value in values.values():
        if type(value) not in _PLAIN or value != value:
            plain = {key: plain_value(value) for key, value in values.items()}
            return {key: value for key, value in plain.items() if value is not None}
    return values


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
