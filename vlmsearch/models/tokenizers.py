"""Reading a ``tokenizer.json``, which anybody may have written, and what the tokenizers library does with it."""

from __future__ import annotations

import base64
import json
import math
import re
import unicodedata
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import compress
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tokenizers import Encoding, Tokenizer

from vlmsearch._util.text import well_formed
from vlmsearch.errors import ConfigError, one_line
from vlmsearch.models.bundle import TextPrompt

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


_LATIN, _UNSPACED = "[\0-\u024f\u1e00-\u1eff]", "[\u0e00-\u109f\u1780-\u17ff\u2e80-\U0003ffff]"
"""A letter of Latin script, and one of a script without spaces."""
_PIECE, _PIECE_OF_OTHERS = 4, 2
"""Letters of a part of a word that means something, in Latin script and in others."""
_UNSPACED_SHARE = 1.5
"""The share that letters of a script without spaces count: many words there have one letter."""
_RARE = "\U000f0000 \U00016a40 \U00012000 \u2d63"
"""Letters that most vocabularies lack. Some normalizers leave out a part of them."""


class TextTokenizer:
    """A tokenizer that reads special tokens in texts as the characters that they are written with.

    A text with ``</s>`` goes on behind it, then. Special tokens in a model's own prompts stay what they are.

    Args:
        raw: The tokenizer, which is changed.
        name: What it is called in messages.
        prompts: The ids of the model's own prompts.
    """

    def __init__(self, raw: Tokenizer, name: str, prompts: Sequence[Sequence[int]] = ()) -> None:
        self.raw, self._name = raw, name
        unknown: Sequence[int] = ()
        with no_panics(name):
            around = raw.encode("", "")
            with suppress(Exception):  # a model may have no token for letters like these
                unknown = raw.encode(_RARE, add_special_tokens=False).ids
        added = (id for id, token in raw.get_added_tokens_decoder().items() if token.special)
        marks = compress(around.ids, around.special_tokens_mask)
        self._unknown = frozenset(unknown)
        self._special = frozenset({*added, *marks}.difference(unknown))
        self._around = self._count(around)
        raw.encode_special_tokens = all(map(self._special.isdisjoint, prompts))

    def ids(self, texts: Sequence[str], prompts: Sequence[TextPrompt]) -> list[list[int]]:
        """Return the ids of whole texts, each with its prompt."""
        with no_panics(self._name):
            given = [prompt.text + text for text, prompt in zip(texts, prompts)]
            rows = [encoding.ids for encoding in self.raw.encode_batch_fast(given, add_special_tokens=False)]
            for place, prompt in enumerate(prompts):
                if not self._special.isdisjoint(rows[place][len(prompt.ids) :]):
                    given[place] = prompt.text + self.plain(texts[place])
                    rows[place] = self.raw.encode(given[place], add_special_tokens=False).ids
        return rows

    def known_letters(self, texts: Sequence[str]) -> float | None:
        """Return the share of letters in tokens that mean something; None without letters."""
        texts = list(map(well_formed, texts))
        with no_panics(self._name):
            encodings = self.raw.encode_batch(texts, add_special_tokens=False)
        known, letters = 0.0, 0
        for text, encoding in zip(texts, encodings):
            letters += sum(map(str.isalpha, text))
            spans = Counter(encoding.offsets)  # of a letter's bytes, each token has the same one
            for id, (start, end) in zip(encoding.ids, encoding.offsets):
                if id not in self._unknown and spans[start, end] == 1:
                    read = sum(map(str.isalpha, text[start:end]))
                    known += _known_part(text, start, end, read)
        return min(known / letters, 1.0) if letters else None

    def pairs(self, pairs: Sequence[tuple[str, str]]) -> list[Encoding]:
        """Return the tokens of pairs, with those that the model has around them."""
        with no_panics(self._name):
            encodings: list[Encoding] = self.raw.encode_batch(list(pairs))
            for place, (first, second) in enumerate(pairs):
                if self._count(encodings[place]) > self._around:
                    encodings[place] = self.raw.encode(self.plain(first), self.plain(second))
        return encodings

    def plain(self, text: str) -> str:
        """Return a text with spaces between the characters of what would be a special token.

        `Tokenizer.encode_special_tokens` alone is without effect where a vocabulary has those tokens as words: that of
        Unigram, and those of whole words.
        """
        encoding, parts, done = self.raw.encode(text, add_special_tokens=False), list[str](), 0
        for id, (start, end) in zip(encoding.ids, encoding.offsets):
            if id in self._special:
                parts += text[done:start], " ".join(text[start:end])
                done = end
        return "".join(parts) + text[done:]

    def _count(self, encoding: Encoding) -> int:
        return sum(map(self._special.__contains__, encoding.ids))


def _known_part(text: str, start: int, end: int, letters: int) -> float:
    """Return the letters of a token that mean something: of a whole word, or of no arbitrary piece of one."""
    if not re.match(_LATIN, text[start:end].lstrip()):
        share = _UNSPACED_SHARE if re.match(_UNSPACED, text[start:end].lstrip()) else 1.0
        return share * letters if letters >= _PIECE_OF_OTHERS else 0.0
    begins = text[start].isspace() or not _in_word(text[max(start - 1, 0) : start])
    is_whole = begins and not _in_word(text[end : end + 1])
    return letters if letters >= _PIECE or is_whole else 0.0


def _in_word(character: str) -> bool:
    return character.isalnum() or unicodedata.category(character or " ").startswith("M")


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
