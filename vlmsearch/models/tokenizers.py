"""Reading a ``tokenizer.json``, which anybody may have written, and what the tokenizers library does with it."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from vlmsearch.errors import ConfigError, one_line

_MAX_GROWTH = 256
"""Factor by which a normalizer may make a text longer. SentencePiece's rules have 33 bytes for one letter, U+FDFA."""


def read_tokenizer(data: bytes, name: str) -> Tokenizer:
    """Return the tokenizer of a ``tokenizer.json``, as it is.

    Args:
        data: The file.
        name: What it is called in messages.

    Raises:
        ConfigError: It is damaged, or writes so much for a letter that a text could take all memory.
    """
    with no_panics(name):
        try:
            tokenizer = Tokenizer.from_buffer(data)
        except Exception as exc:  # the library raises nothing more particular
            raise ConfigError(f"the tokenizer of {name} is damaged: {one_line(exc)}") from exc
        normalizer = tokenizer.normalizer
        growth = _growth(json.loads(normalizer.__getstate__())) if normalizer else 1
    if growth > _MAX_GROWTH:
        raise ConfigError(f"the tokenizer of {name} makes texts {growth:,} times longer; {_MAX_GROWTH} is the most")
    return tokenizer


def _growth(normalizer: Mapping[str, Any]) -> int:
    """Return the most bytes that a normalizer writes for one.

    They follow from the rules that its file brings.
    """
    parts: Sequence[Mapping[str, Any]] = normalizer.get("normalizers", ())
    written = normalizer.get("content") or normalizer.get("prepend") or ""
    sizes = [len(written.encode())]
    if rules := normalizer.get("precompiled_charsmap"):
        data = base64.b64decode(rules)
        start = 4 + int.from_bytes(data[:4], "little")  # of what is written, each ended by a zero; before it is a trie
        sizes += map(len, data[start:].split(b"\0"))
    return max(1, *sizes) * math.prod(map(_growth, parts))


def token_row(ids: Sequence[int]) -> NDArray[np.int32]:
    """Return token ids as models take them.

    ConfigError where the tokenizer gives ids that no model has.
    """
    try:
        return np.array(ids, np.int32)
    except OverflowError as exc:
        raise ConfigError("the tokenizer gives token ids above 2,147,483,647, which no model has") from exc


@contextmanager
def no_panics(name: str) -> Iterator[None]:
    """Raise ConfigError for a panic in this block.

    A regular expression that gives up on a text panics, for instance.

    The library's panics are not an `Exception`, and so pass by what handles errors.

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
