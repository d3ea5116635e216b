"""What generators in this process share: prompts to tokens, tokens to text."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence

from vlmsearch.errors import BackendError, ConfigError, InvalidInputError
from vlmsearch.generators.base import GenerationOptions, Generator
from vlmsearch.generators.local.decoding import LanguageModel, generate_text
from vlmsearch.generators.text import until_stop


class LocalGenerator(Generator):
    """A language model and its tokenizer in this process; implements `CountsTokens`."""

    context: int

    def __init__(self, name: str, model: LanguageModel) -> None:
        self.name = name
        self.context = model.context
        self._model: LanguageModel | None = model

    def close(self) -> None:
        """Let go of the model and its memory; a text that is under way is finished first."""
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
        """Return the text that follows the tokens of a prompt; ``with_pictures`` makes a model that sees its own."""
        model, chosen = self._model, options or GenerationOptions()
        if model is None:
            raise BackendError(f"{self.name} is closed")
        if chosen.beam_width > 1 and chosen.temperature:
            raise ConfigError("beam search finds the likeliest text: beam_width goes with temperature 0")
        if not tokens:
            raise InvalidInputError("empty", f"{self.name} was given a prompt without a token")
        if len(tokens) >= self.context:
            raise InvalidInputError(
                "too_long", f"the prompt is {len(tokens)} tokens, and {self.name} reads {self.context} with its answer"
            )
        return until_stop(generate_text(with_pictures(model), tokens, chosen, self.decode), chosen.stop)
