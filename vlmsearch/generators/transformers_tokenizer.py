"""Tokenizers of transformers, without the models."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from transformers import AutoTokenizer

from vlmsearch.generators.bundle import generator_folder
from vlmsearch.generators.hub import load_checkpoint


def load_tokenizer(location: str, *, revision: str | None = None) -> Any:
    """The tokenizer of a name, a folder or the hub; ModelUnavailableError where it is not to be had."""
    return load_checkpoint(AutoTokenizer.from_pretrained, location, generator_folder(location), revision=revision)


def decode_tokens(tokenizer: Any, tokens: Sequence[int]) -> str:
    """The text of token ids, without special tokens, and with the spaces that they have."""
    text: str = tokenizer.decode(list(tokens), skip_special_tokens=True, clean_up_tokenization_spaces=False)
    return text
