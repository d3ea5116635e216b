"""Tokenizers of transformers, without the models."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from transformers import AutoTokenizer

from vlmsearch.errors import ModelUnavailableError
from vlmsearch.generators.bundle import generator_folder


def load_tokenizer(location: str, *, revision: str | None = None) -> Any:
    """The tokenizer of a name, a folder or the hub; ModelUnavailableError where it is not to be had."""
    folder = generator_folder(location)
    try:
        return AutoTokenizer.from_pretrained(str(folder or location), revision=revision)
    except (OSError, ValueError, RuntimeError) as exc:
        raise unavailable(location, exc) from exc


def decode_tokens(tokenizer: Any, tokens: Sequence[int]) -> str:
    """The text of token ids, without special tokens, and with the spaces that they have."""
    text: str = tokenizer.decode(list(tokens), skip_special_tokens=True, clean_up_tokenization_spaces=False)
    return text


def unavailable(location: str, exc: Exception) -> ModelUnavailableError:
    """The error for a model that transformers cannot load."""
    reason = " ".join(str(exc).split())[:200]
    if Path(location).expanduser().is_dir():
        return ModelUnavailableError(f"transformers cannot load {location}: {reason}")
    return ModelUnavailableError(
        f"{location} is not on this machine and cannot be fetched from the Hugging Face hub: {reason}. "
        "transformers:demo-gpt2 works offline, and so does a folder with a checkpoint"
    )
