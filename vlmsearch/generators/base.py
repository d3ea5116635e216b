"""What a generator is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, cast, runtime_checkable

from vlmsearch._util.closable import Closable
from vlmsearch._util.options import Options, bounded, local, options_of, several
from vlmsearch.errors import BackendError, ConfigError, InvalidInputError

if TYPE_CHECKING:
    import PIL.Image

PROMPT_CHARS = 2**20
"""Maximum number of characters of a prompt. Passages beyond are left out, also where nobody counts tokens."""
_THOUGHT_TOKENS = 4096
"""Tokens of a text with thoughts where the user sets no limit."""


@dataclass(frozen=True)
class GenerationOptions(Options):
    """The options of a generated text.

    Attributes:
        max_tokens: Maximum number of tokens of the answer.
        temperature: Randomness of the sampling: 0 takes the likeliest text. Logits are divided by it. By default it is
            0 for a model that runs here or behind Triton, and what a server with OpenAI's interface has.
        top_k: Number of the likeliest tokens to sample from; all by default.
        top_p: Share of probability of the likeliest tokens to sample from (nucleus sampling, arXiv:1904.09751).
        repetition_penalty: Penalty of tokens that the text has, from 1 for none up (CTRL, arXiv:1909.05858).
        stop: Texts before which the answer ends.
        bad_words: Texts that the answer must not contain.
        seed: Seed of the sampling. The same seed samples the same text.
        beam_width: Number of beams of a beam search; 1 for none.
        cache_salt: Name of those who share what a server keeps of prompts. A restricted pipeline sets it for
            ``openai:``; vLLM keeps to it.

    Raises:
        ConfigError: A value is one that no generator can follow.

    Example:
        >>> GenerationOptions(max_tokens=64, stop=("END",)).stop
        ('END',)
    """

    max_tokens: int = bounded(256, minimum=1)
    temperature: float | None = bounded(None, minimum=0)
    top_k: int | None = bounded(None, minimum=1)
    top_p: float = bounded(1.0, above=0, maximum=1)
    repetition_penalty: float = bounded(1.0, above=0)
    stop: tuple[str, ...] = several((), 100, 1024)
    bad_words: tuple[str, ...] = several((), 100, 1024)
    seed: int | None = None
    beam_width: int = bounded(1, minimum=1)
    cache_salt: str | None = local()

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("stop", "bad_words"):
            if not all(getattr(self, name)):
                raise ConfigError(f"`{name}` holds no empty string")
        if self.beam_width > 1 and self.temperature:
            raise ConfigError("beam search finds the likeliest text: beam_width goes with temperature 0")


class Generator(Closable, ABC):
    """A language model that continues a prompt. Several threads may use one generator.

    Subclasses set ``name`` and implement `stream`.

    Example:
        >>> class Parrot(Generator):
        ...     name = "parrot"
        ...     def stream(self, prompt, options=None):
        ...         yield from prompt.split(" ")[-2:]
        >>> Parrot().generate("say: hello there")
        'hellothere'
    """

    name: str
    """Name in messages; it never holds a secret."""
    _usual_tokens = GenerationOptions.max_tokens
    """Limit where the user sets none."""

    @abstractmethod
    def stream(self, prompt: str, options: GenerationOptions | None = None) -> Iterator[str]:
        """Generate a text in pieces, as it is made, with the thoughts of the model.

        Args:
            prompt: What to continue.
            options: How; None for the defaults.

        Returns:
            An iterator over the pieces. Closing it stops the generation.

        Raises:
            InvalidInputError: The prompt is longer than the model reads.
            ConfigError: The generator cannot follow an option.
            BackendError: The model or its server failed.
        """

    def answer(
        self,
        prompt: str | Sequence[str | Picture],
        options: GenerationOptions | None = None,
        *,
        on_usage: Callable[[int], None] | None = None,
    ) -> Iterator[str]:
        """Generate a text in pieces without the thoughts before it.

        Where thoughts take all of the default ``max_tokens``, texts have room for both from then on, if the model has.

        Args:
            prompt: What to continue; texts and pictures for a generator that `SeesPictures`.
            options: How; None for the defaults.
            on_usage: Called with the number of tokens of a prompt with pictures, once it is known.

        Returns:
            An iterator over the pieces. Those before an `EndOfThoughts` are no part of the text. Closing it stops the
            generation.

        Raises:
            InvalidInputError: The prompt is longer than the model reads, or there are only thoughts.
            ConfigError: The generator cannot follow an option.
            BackendError: The model or its server failed.
        """
        from vlmsearch.generators.thoughts import UnfinishedThoughtsError, without_thoughts

        chosen, seeing, is_lower = options or GenerationOptions(), cast("Any", self), False
        usual = GenerationOptions.max_tokens
        limit = self._usual_tokens if chosen.max_tokens == usual else chosen.max_tokens
        stream = self.stream if isinstance(prompt, str) else partial(seeing.stream_parts, on_usage=on_usage)
        while True:
            try:
                yield from without_thoughts(stream(prompt, replace(chosen, max_tokens=limit)))  # type: ignore[arg-type]
            except UnfinishedThoughtsError:
                if limit != usual or is_lower:
                    raise
                limit = self._usual_tokens = _THOUGHT_TOKENS
            except (ConfigError, InvalidInputError):  # there may be no room for as many
                if limit in (usual, chosen.max_tokens):
                    raise
                limit, is_lower = limit // 2, True
            else:
                return

    def generate(self, prompt: str, options: GenerationOptions | None = None) -> str:
        """Generate a whole text without the thoughts before it; see `answer`.

        Args:
            prompt: What to continue.
            options: How; None for the defaults.

        Returns:
            The text, without the prompt.

        Raises:
            InvalidInputError: The prompt is longer than the model reads, or there are only thoughts.
            ConfigError: The generator cannot follow an option.
            BackendError: The model or its server failed.
        """
        from vlmsearch.generators.thoughts import text_of

        return text_of(self.answer(prompt, options))


@runtime_checkable
class CountsTokens(Protocol):
    """A generator that counts tokens, so that a prompt can be fitted to its model.

    Example:
        >>> from vlmsearch.registry import open_generator
        >>> isinstance(open_generator("extractive:"), CountsTokens)
        False
    """

    context: int
    """Maximum number of tokens of prompt and answer together."""

    def count_tokens(self, prompt: str) -> int:
        """Count the tokens of a prompt, with all that a chat template adds.

        Args:
            prompt: The prompt.

        Returns:
            How many there are.
        """


@runtime_checkable
class QuotesSources(Protocol):
    """A generator that quotes: its prompt is sentences that answer, best first, each behind its source's number.

    Example:
        >>> from vlmsearch.registry import open_generator
        >>> isinstance(open_generator("extractive:"), QuotesSources)
        True
    """

    max_words: int
    """Maximum number of words of all quotes. Two characters of a script without spaces count as a word."""


@dataclass(frozen=True, eq=False)
class Picture:
    """A picture in a prompt.

    Attributes:
        image: Upright image, 8-bit RGB.

    Example:
        >>> import PIL.Image
        >>> ["[1] the image a.png", Picture(PIL.Image.new("RGB", (64, 64))), "Question: What is it?"][1].image.size
        (64, 64)
    """

    image: PIL.Image.Image


@dataclass(frozen=True)
class PictureOptions:
    """The pictures that a question shows to a generator that sees.

    Attributes:
        limit: Maximum number of pictures. The question's own is the first, then come those of the best matches.
        side: Longer side in pixels to which larger pictures are scaled down.
        tokens: Tokens that all pictures share. They are scaled down until they fit, and not left out.

    Raises:
        ConfigError: A value is out of its range.

    Example:
        >>> PictureOptions(limit=1).side
        1024
    """

    limit: int = bounded(4, minimum=0, maximum=16)
    side: int = bounded(1024, minimum=64, maximum=4096)
    tokens: int = bounded(4000, minimum=1, maximum=2**20)

    def __post_init__(self) -> None:
        for name, option in options_of(PictureOptions).items():
            option.check(getattr(self, name), " of pictures")


@runtime_checkable
class SeesPictures(Protocol):
    """A generator that reads pictures, too.

    Example:
        >>> from vlmsearch.registry import open_generator
        >>> isinstance(open_generator("extractive:"), SeesPictures)
        False
    """

    max_pictures: int
    """Maximum number of pictures in a prompt."""
    max_side: int
    """Longer side, in pixels, beyond which the model sees nothing more."""

    def picture_tokens(self, width: int, height: int) -> int:
        """Return how many tokens of the context a picture takes.

        It is an estimate for a model of another machine.

        Args:
            width: Width in pixels.
            height: Height in pixels.

        Returns:
            The number of tokens.
        """

    def stream_parts(
        self,
        parts: Sequence[str | Picture],
        options: GenerationOptions | None = None,
        *,
        on_usage: Callable[[int], None] | None = None,
    ) -> Iterator[str]:
        """Generate a text in pieces, as it is made, from a prompt with pictures.

        Args:
            parts: Texts and pictures, in the order in which the model reads them.
            options: How; None for the defaults.
            on_usage: Called with the number of tokens of the prompt, pictures among them, once it is known.

        Returns:
            An iterator over the pieces. Closing it stops the generation.

        Raises:
            PicturesRefusedError: The model takes fewer pictures, or none.
            InvalidInputError: The prompt is longer than the model reads.
            ConfigError: The generator cannot follow an option.
            BackendError: The model or its server failed.
        """


@runtime_checkable
class HasLikelihoods(Protocol):
    """A generator that knows how likely a word is as its answer.

    Example:
        >>> from vlmsearch.registry import open_generator
        >>> with open_generator("onnx:demo-gpt2") as generator:
        ...     isinstance(generator, HasLikelihoods)
        True
    """

    def next_word_likelihoods(self, parts: Sequence[str | Picture], words: Sequence[str]) -> Sequence[float] | None:
        """Return how likely the next token is each of some words.

        Args:
            parts: Texts and pictures, in the order in which the model reads them.
            words: Words in lower case. A token counts for a word whatever its case and the spaces around it.

        Returns:
            Probabilities, in the order of the words; 0 for a word that is not among the likely tokens. None where the
            server does not tell them.

        Raises:
            PicturesRefusedError: The model takes fewer pictures, or none.
            InvalidInputError: The prompt is longer than the model reads.
            BackendError: The model or its server failed.
        """


class PicturesRefusedError(BackendError):
    """A refusal of a prompt because of its pictures.

    Attributes:
        at_most: How many pictures it takes; None where it says only that there are too many.
    """

    def __init__(self, message: str, at_most: int | None = None) -> None:
        super().__init__(message)
        self.at_most = at_most
