"""Panics of the tokenizers library, which are not an `Exception` and so pass by what handles errors."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from vlmsearch.errors import ConfigError, one_line


@contextmanager
def no_panics(name: str) -> Iterator[None]:
    """Raise ConfigError for a panic in this block, such as of a regular expression that gives up on a text.

    Args:
        name: The tokenizer, for the message.
    """
    try:
        yield
    except Exception:
        raise
    except BaseException as exc:
        if type(exc).__name__ != "PanicException":  # pyo3 exports it from no module
            raise
        raise ConfigError(f"the tokenizer of {name} cannot be used: {one_line(exc)}") from exc
