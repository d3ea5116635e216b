"""A generator that says what it was told to say."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator, Sequence

from vlmsearch.generators.base import GenerationOptions, Generator, Picture
from vlmsearch.generators.pictures import check_reading, images_in
from vlmsearch.generators.text import until_stop

_TOKEN = re.compile(r"\s*\S+|\s+$")


class MockGenerator(Generator):
    """A generator that gives its replies one after the other, the last one again and again.

    Instead of replies it takes a function of the prompt. A token is a word with the space before it; ``context`` is the
    most of them in prompt and answer together. Stop words end a reply, tokens with a bad word in them are left out, and
    there is nothing to sample. ``prompts`` and ``options`` are what it was asked, in order, and ``pieces`` how many
    tokens were read of each reply.

    It sees ``pictures`` at most, and reads a token for each square of 32 pixels. ``parts`` are the prompts with them.
    """

    def __init__(
        self,
        replies: str | Sequence[str] | Callable[[str], str] = "A mock reply [1].",
        *,
        context: int = 1_000_000,
        pictures: int = 0,
    ) -> None:
        check_reading(context, pictures, None)
        self.name = "mock:"
        self.context = context
        self.max_pictures = pictures
        self.max_side = 2048
        self.parts: list[tuple[str | Picture, ...]] = []
        self.prompts: list[str] = []
        self.options: list[GenerationOptions] = []
        self.pieces: list[int] = []
        self._replies = [replies] if isinstance(replies, str) else replies
        self._lock = threading.Lock()

    def stream(self, prompt: str, options: GenerationOptions | None = None) -> Iterator[str]:
        """Return the next reply, word by word, at most ``max_tokens`` of them."""
        options = options or GenerationOptions()
        with self._lock:
            turn = len(self.prompts)
            self.prompts.append(prompt)
            self.options.append(options)
            self.pieces.append(0)
        script = self._replies
        reply = script(prompt) if callable(script) else script[min(turn, len(script) - 1)]
        return until_stop(self._tokens(reply, turn, options), options.stop)

    def stream_parts(
        self,
        parts: Sequence[str | Picture],
        options: GenerationOptions | None = None,
        *,
        on_usage: Callable[[int], None] | None = None,
    ) -> Iterator[str]:
        """Return the next reply to a prompt with pictures. Its texts are noted as a prompt, too."""
        shown = images_in(parts, self.name, self.max_pictures)
        text = "".join(part for part in parts if isinstance(part, str))
        if on_usage is not None:
            on_usage(self.count_tokens(text) + sum(self.picture_tokens(*image.size) for image in shown))
        with self._lock:
            self.parts.append(tuple(parts))
        return self.stream(text, options)

    def picture_tokens(self, width: int, height: int) -> int:
        """Return the number of squares of 32 pixels that a picture has, at least one."""
        return max(width // 32, 1) * max(height // 32, 1)

    def count_tokens(self, prompt: str) -> int:
        """Return how many words it has."""
        return len(_TOKEN.findall(prompt))

    def _tokens(self, reply: str, turn: int, options: GenerationOptions) -> Iterator[str]:
        fit = [token for token in _TOKEN.findall(reply) if not any(word in token for word in options.bad_words)]
        for token in fit[: options.max_tokens]:
            self.pieces[turn] += 1
            yield token
