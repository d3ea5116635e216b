"""What generators in this process share: prompts to tokens, tokens to text."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from vlmsearch.errors import BackendError, ConfigError, InvalidInputError
from vlmsearch.generators.base import GenerationOptions, Generator, Picture, PicturesRefusedError
from vlmsearch.generators.local.decoding import LanguageModel, generate_text
from vlmsearch.generators.local.sampling import log_softmax
from vlmsearch.generators.text import sum_by_word, until_stop

_LIKELY = 1e-5
"""Probability of the least likely token that counts for a word."""


class LocalGenerator(Generator):
    """A language model and its tokenizer in this process; implements `CountsTokens` and `HasLikelihoods`."""

    context: int

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

    def count_tokens(self, prompt: str) -> int:
        """Return how many tokens a prompt has; see `CountsTokens`."""
        return len(self.encode(prompt))

    def stream(self, prompt: str, options: GenerationOptions | None = None) -> Iterator[str]:
        """Return the text in pieces; see `Generator.stream`. Beams come as one piece.

        Raises InvalidInputError (``too_long``) for a prompt that leaves no room in the model's context.
        """
        return self.continue_tokens(self.encode(prompt), options)

    def continue_tokens(
        self,
        tokens: list[int],
        options: GenerationOptions | None,
        with_pictures: Callable[[LanguageModel], LanguageModel] = lambda model: model,
    ) -> Iterator[str]:
        """Return the text that follows the tokens of a prompt. ``with_pictures`` makes a model that sees its own."""
        model, chosen = self._model_for(tokens), options or GenerationOptions()
        if chosen.beam_width > 1 and chosen.temperature:
            raise ConfigError("beam search finds the likeliest text: beam_width goes with temperature 0")
        return until_stop(generate_text(with_pictures(model), tokens, chosen, self.decode), chosen.stop)

    def next_word_likelihoods(self, parts: Sequence[str | Picture], words: Sequence[str]) -> list[float]:
        """Return how likely the next token is each word; see `HasLikelihoods`."""
        texts = [part for part in parts if isinstance(part, str)]
        if len(texts) < len(parts):
            raise PicturesRefusedError(f"{self.name} takes 0 pictures", 0)
        return self.likelihoods_after(self.encode("".join(texts)), words)

    def likelihoods_after(
        self,
        tokens: list[int],
        words: Sequence[str],
        with_pictures: Callable[[LanguageModel], LanguageModel] = lambda model: model,
    ) -> list[float]:
        """Return how likely each word follows the tokens of a prompt; ``with_pictures`` as in `continue_tokens`."""
        cache = with_pictures(self._model_for(tokens)).open()
        likelihoods = np.exp(log_softmax(cache.step(np.array([tokens], np.int64))[0]))
        likely = np.flatnonzero(likelihoods >= _LIKELY).tolist()
        return sum_by_word(((self.decode([token]), float(likelihoods[token])) for token in likely), words)

    def _model_for(self, tokens: list[int]) -> LanguageModel:
        """Return the model. An error where it is closed, or cannot read a prompt of these tokens."""
        model = self._model
        if model is None:
            raise BackendError(f"{self.name} is closed")
        if not tokens:
            raise InvalidInputError("empty", f"{self.name} was given a prompt without a token")
        if len(tokens) >= self.context:
            raise InvalidInputError(
                "too_long", f"the prompt is {len(tokens)} tokens, and {self.name} reads {self.context} with its answer"
            )
        return model
