"""JSON from outside: nothing but standard JSON, nested no deeper than what reads it can follow."""

from __future__ import annotations

import json
from typing import Any, NoReturn

MAX_DEPTH = 64
"""Lists and objects that may be within each other."""


def parse_json(text: str | bytes, *, with_nan: bool = False) -> Any:
    """Parse a JSON text.

    Args:
        text: The text, from whoever wrote it. Bytes are in UTF-8, UTF-16 or UTF-32.
        with_nan: Whether NaN and Infinity are numbers, which Python writes.

    Returns:
        The value.

    Raises:
        ValueError: The text is not JSON of RFC 8259, or is nested deeper than `MAX_DEPTH`.

    Example:
        >>> parse_json('{"a": [1]}')
        {'a': [1]}
    """
    text = text.decode(json.detect_encoding(text), "surrogatepass") if isinstance(text, bytes) else text
    try:
        value = (_LENIENT if with_nan else _DECODER).decode(text)
    except RecursionError:
        raise _too_deep() from None
    level = [value]
    for _ in range(MAX_DEPTH + 1):
        inner = [container for container in level if isinstance(container, (dict, list))]
        if not inner:
            return value
        level = [
            child for container in inner for child in (container.values() if isinstance(container, dict) else container)
        ]
    raise _too_deep()


def _too_deep() -> ValueError:
    return ValueError(f"JSON is nested deeper than {MAX_DEPTH} levels")


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no number in JSON")


_DECODER, _LENIENT = json.JSONDecoder(parse_constant=_refuse), json.JSONDecoder()
