"""What generators in this process share: prompts to tokens, tokens to text."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from vlmsearch.errors import BackendError, InvalidInputError
from vlmsearch.generators.base import GenerationOptions, Generator, Picture
from vlmsearch.generators.local.decoding import LanguageModel, generate_text
from vlmsearch.generators.local.sampling import log_softmax
from vlmsearch.generators.pictures import images_in
from vlmsearch.generators.text import sum_by_word, until_stop
from vlmsearch.generators.thoughts import thought_tag

_LIKELY = 1e-5
"""Probability of the least likely token that counts for a word."""
_TAG_TOKENS = 16
"""Number of the last tokens of a prompt in which a tag of thoughts may be."""


class LocalGenerator(Generator):
    """A language model and its tokenizer in this process; implements `CountsTokens` and `HasLikelihoods`.

    A subclass with ``max_side`` and ``picture_tokens`` implements `SeesPictures`, too.
    """

    context: int
    max_pictures = 0

    def __init__(self, name: str, model: LanguageModel) -> None:
        self.name = name
        self.context = model.context
        self._model: LanguageModel | None = model

    def close(self) -> None:
        """Let go of the model and its memory. A text that is under way is finished first."""
        self._model = None

    @abstractmethod
    def encode(self, prompt: str) -> list[int]:
        """Return the token ids of a prompt, with all that a chat template adds."""

    @abstractmethod
    def decode(self, tokens: Sequence[int]) -> str:
        """Return the text of token ids, without special tokens."""

    def read_parts(self, parts: Sequence[str | Picture]) -> tuple[list[int], Any]:
        """Return the token ids of a prompt with pictures, and the pictures as `LanguageModel.open` takes them."""
        return self.encode("".join(part for part in parts if isinstance(part, str))), None

    def count_tokens(self, prompt: str) -> int:
        """Return how many tokens a prompt has; see `CountsTokens`."""
        return len(self.encode(prompt))

    def stream(self, prompt: str, options: GenerationOptions | None = None) -> Iterator[str]:
        """Return the text in pieces; see `Generator.stream`. Beams come as one piece.

        Raises InvalidInputError (``too_long``) for a prompt that leaves no room in the model's context.
        """
        return self.stream_parts([prompt], options)

    def stream_parts(
        self,
        parts: Sequence[str | Picture],
        options: GenerationOptions | None = None,
        *,
        on_usage: Callable[[int], None] | None = None,
    ) -> Iterator[str]:
        """Return the text in pieces; see `SeesPictures`."""
        model, tokens, pictures = self._read(parts)
        chosen = options or GenerationOptions()
        if on_usage is not None:
            on_usage(len(tokens))
        pieces = generate_text(model, tokens, chosen, self.decode, pictures)
        return until_stop(pieces, chosen.stop, self._tag_before(tokens))

    def next_word_likelihoods(self, parts: Sequence[str | Picture], words: Sequence[str]) -> list[float] | None:
        """Return how likely the next token is each word; None where thoughts come first. See `HasLikelihoods`."""
        model, tokens, pictures = self._read(parts)
        if self._tag_before(tokens):
            return None
        likelihoods = np.exp(log_softmax(model.open(pictures).step(np.array([tokens], np.int64))[0]))
        likely = np.flatnonzero(likelihoods >= _LIKELY).tolist()
        return sum_by_word(((self.decode([token]), float(likelihoods[token])) for token in likely), words)

    def _tag_before(self, tokens: Sequence[int]) -> str:
        """Return the tag of thoughts that a prompt ends with."""
        return thought_tag(self.decode(tokens[-_TAG_TOKENS:]))

    def _read(self, parts: Sequence[str | Picture]) -> tuple[LanguageModel, list[int], Any]:
        """Return the model with the tokens and pictures of a prompt that it can read."""
        images_in(parts, self.name, self.max_pictures)
        tokens, pictures = self.read_parts(parts)
        model = self._model
        if model is None:
            raise BackendError(f"{self.name} is closed")
        if not tokens:
            raise InvalidInputError("empty", f"{self.name} was given a prompt without a token")
        if len(tokens) >= self.context:
            raise InvalidInputError(
                "too_long", f"the prompt is {len(tokens)} tokens, and {self.name} reads {self.context} with its answer"
            )
        return model, tokens, pictures
