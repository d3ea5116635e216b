"""The tokenizer of a model that is somewhere else."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tokenizers import Tokenizer

from vlmsearch.errors import ConfigError, one_line
from vlmsearch.panics import no_panics


def read_tokenizer(path: Path) -> Tokenizer:
    """The ``tokenizer.json`` at ``path`` or in that folder, which neither cuts nor fills up; ConfigError if none is."""
    file = path / "tokenizer.json" if path.is_dir() else path
    with no_panics(str(file)):
        try:
            tokenizer = Tokenizer.from_file(str(file))
        except Exception as exc:  # the library raises nothing more particular
            raise ConfigError(f"{file} is no tokenizer.json of the tokenizers library: {one_line(exc)}") from exc
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def token_counter(path: Path) -> Callable[[str], int]:
    """How many tokens a text has for a tokenizer at ``path``, special ones left out."""
    tokenizer = read_tokenizer(path)

    def count(text: str) -> int:
        with no_panics(str(path)):
            return len(tokenizer.encode(text, add_special_tokens=False).ids)

    return count
