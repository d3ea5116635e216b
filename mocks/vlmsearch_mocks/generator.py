"""A generator that says what it was told to say."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator, Sequence

from vlmsearch.generators.base import GenerationOptions, Generator


class MockGenerator(Generator):
    """Gives its replies one after the other, the last one again and again, or what a function makes of the prompt.

    A token is a word with the space before it. ``prompts`` and ``options`` are what it was asked, in order.
    """

    def __init__(self, replies: str | Sequence[str] | Callable[[str], str] = "A mock reply [1].") -> None:
        self.name = "mock:"
        self.prompts: list[str] = []
        self.options: list[GenerationOptions] = []
        self._replies = [replies] if isinstance(replies, str) else replies
        self._lock = threading.Lock()

    def stream(self, prompt: str, options: GenerationOptions | None = None) -> Iterator[str]:
        """The next reply, word by word, at most ``max_tokens`` of them."""
        options = options or GenerationOptions()
        with self._lock:
            turn = len(self.prompts)
            self.prompts.append(prompt)
            self.options.append(options)
        script = self._replies
        reply = script(prompt) if callable(script) else script[min(turn, len(script) - 1)]
        return (piece for piece in re.findall(r"\s*\S+|\s+$", reply)[: options.max_tokens])
