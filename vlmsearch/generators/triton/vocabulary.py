"""The tokenizer on this side of a model that reads token ids."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from vlmsearch._util.strict_json import parse_json
from vlmsearch._util.text import well_formed
from vlmsearch.errors import BackendError, ConfigError, one_line
from vlmsearch.models.tokenizers import no_panics


@dataclass(frozen=True)
class Vocabulary:
    """A tokenizer, and the tokens that end a text.

    ``ends`` has at least one: ``eos_token_id`` of ``generation_config.json``, and ``eos_token`` of
    ``tokenizer_config.json``.
    """

    tokenizer: Tokenizer
    ends: tuple[int, ...]

    @classmethod
    def of(cls, tokenizer: Tokenizer, path: Path) -> Vocabulary:
        """Return the vocabulary of a folder; ConfigError where no file says which token ends a text."""
        ends: list[object] = []
        try:
            for name in ("generation_config.json", "tokenizer_config.json"):
                file = path / name
                settings = parse_json(file.read_text(encoding="utf-8")) if file.is_file() else {}
                given = settings.get("eos_token_id")
                ends += given if isinstance(given, list) else [given]
                if token := settings.get("eos_token"):
                    ends.append(tokenizer.token_to_id(token["content"] if isinstance(token, dict) else token))
        except (OSError, AttributeError, KeyError, TypeError, ValueError) as exc:
            raise ConfigError(f"{file} cannot be read: {one_line(exc)}") from exc
        ids = tuple(dict.fromkeys(end for end in ends if isinstance(end, int)))
        if not ids:
            raise ConfigError(
                f"{path} does not say which token ends a text: give the folder of the tokenizer, with its "
                "tokenizer_config.json or generation_config.json"
            )
        return cls(tokenizer, ids)

    def encode(self, text: str, *, is_whole: bool = True) -> list[int]:
        """Return the ids of a text, with the tokens around a whole one."""
        with no_panics("the tokenizer"):
            return self.tokenizer.encode(well_formed(text), add_special_tokens=is_whole).ids

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of ids, without special tokens.

        BackendError for ids that the tokenizer does not have.
        """
        with no_panics("the tokenizer"):
            strange = next((token for token in ids if token < 0 or self.tokenizer.id_to_token(token) is None), None)
            if strange is not None:
                raise BackendError(
                    f"the model answers with token {strange}, which the tokenizer does not have: is it another's?"
                )
            return self.tokenizer.decode(list(ids))

    def words(self, words: Sequence[str], ends: Sequence[int] = ()) -> NDArray[np.int32] | None:
        """Return words and single tokens as TensorRT-LLM's lists have them; None for none.

        Returns:
            int32 [2, N]: the ids of all, one after the other, and where each ends, filled up with -1.
            Source: ``_to_word_list_format`` of the model ``preprocessing`` in NVIDIA/TensorRT-LLM.
        """
        lists = [ids for word in words if (ids := self.encode(word, is_whole=False))] + [[end] for end in ends]
        if not lists:
            return None
        ids = [token for part in lists for token in part]
        stops = np.cumsum([len(part) for part in lists])
        return np.array([ids, [*stops, *[-1] * (len(ids) - len(stops))]], np.int32)
