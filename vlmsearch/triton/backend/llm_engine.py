"""In-flight batching: texts join and leave a running batch between two tokens."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from vlmsearch._util.closable import Closable
from vlmsearch.generators.base import GenerationOptions
from vlmsearch.generators.local.decoding import BadWords
from vlmsearch.generators.local.rows import Rows
from vlmsearch.generators.local.sampling import Sampler, Scores
from vlmsearch.generators.text import Decode, Detokenizer

_CHECK_SECONDS = 0.05
"""Seconds between checks that a text is still wanted."""
_CLOSED = "the engine is closed"


@dataclass(frozen=True)
class StepResult:
    """A piece of text that is new, and whether it is the last."""

    text: str
    final: bool
    error: str = ""


@dataclass(eq=False)
class GenerationTask:
    """A text to generate.

    ``options.max_tokens`` and ``prompt`` fit into the model's context. ``options.stop`` ends the text with the token
    that completes one of them. ``tell`` gets each result. ``wanted`` says whether anybody still waits.
    """

    prompt: Sequence[int]
    options: GenerationOptions
    ends: frozenset[int]
    tell: Callable[[StepResult], None]
    wanted: Callable[[], bool]
    id: str = ""
    stopped: bool = False


@dataclass
class _Text:
    """A task that the model works on, and its tokens so far."""

    task: GenerationTask
    sampler: Sampler
    text: Detokenizer
    bad: BadWords
    tokens: list[int] = field(default_factory=list)
    shown: str = ""
    checked: float = 0.0

    @property
    def is_wanted(self) -> bool:
        now = time.monotonic()
        if self.task.stopped or now - self.checked < _CHECK_SECONDS:
            return not self.task.stopped
        self.checked = now
        return self.task.wanted()

    @property
    def unread(self) -> list[int]:
        return self.tokens[-1:] or list(self.task.prompt)

    @property
    def is_greedy(self) -> bool:
        """Return whether the likeliest token is always the next one.

        Then the logits need not leave the device.
        """
        options = self.task.options
        return not (options.temperature or options.repetition_penalty != 1 or options.bad_words)

    def choose(self, scores: Scores) -> int | None:
        return self.sampler.choose(scores, [*self.task.prompt, *self.tokens], self.bad)

    def push(self, token: int) -> str:
        self.tokens.append(token)
        piece = self.text.push(token)
        self.bad.note(piece)
        self.shown += piece
        return piece

    @property
    def is_complete(self) -> bool:
        options = self.task.options
        return len(self.tokens) >= options.max_tokens or any(word in self.shown for word in options.stop)


class BatchingEngine(Closable):
    """A causal language model of transformers and the texts that it generates.

    There are up to ``max_texts`` at a time.

    A thread of its own runs the model. ``note`` is told how many texts are generated and how many wait.
    """

    def __init__(self, model: Any, decode: Decode, *, max_texts: int, note: Callable[[int, int], None]) -> None:
        self._model = model
        self._decode = decode
        self._max_texts = max_texts
        self._note = note
        self._rows = Rows(model)
        self._texts: list[_Text] = []
        self._waiting: deque[GenerationTask] = deque()
        self._open: list[GenerationTask] = []
        self._changed = threading.Condition()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="vlmsearch-llm", daemon=True)
        self._thread.start()

    def submit(self, task: GenerationTask) -> None:
        """Generate a text; a closed engine tells the task so."""
        with self._changed:
            closed = self._closed
            if not closed:
                self._open.append(task)
                self._waiting.append(task)
                self._changed.notify()
        if closed:
            task.tell(StepResult("", True, _CLOSED))

    def stop(self, id: str) -> None:
        """End the texts of the tasks with this id."""
        with self._changed:
            for task in self._open:
                task.stopped = task.stopped or task.id == id

    def close(self) -> None:
        """End all texts, whose tasks are told so, and wait for the thread."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join(30)

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._closed or self._waiting or self._texts)
                if self._closed:
                    break
                room = min(self._max_texts - len(self._texts), len(self._waiting))
                new = [self._waiting.popleft() for _ in range(room)]
            try:
                self._turn(new)
            except Exception as exc:  # noqa: BLE001 - those who wait are told, and the next texts may do better
                self._fail(f"{type(exc).__name__}: {exc}", [*(text.task for text in self._texts), *new])
            with suppress(Exception):
                self._note(len(self._texts), len(self._waiting))
        self._fail(_CLOSED, list(self._open))

    def _turn(self, new: Sequence[GenerationTask]) -> None:
        """Generate one token for every text."""
        kept = [number for number, text in enumerate(self._texts) if text.is_wanted or self._finish(text)]
        self._rows.select(kept)
        self._texts = [self._texts[number] for number in kept]
        if self._texts:
            self._texts = self._advance(self._texts, self._rows)
        fresh = [text for text in map(self._begin, new) if text.is_wanted or self._finish(text)]
        if fresh:
            rows = Rows(self._model)
            fresh = self._advance(fresh, rows)
            self._rows.join(rows)
            self._texts += fresh

    def _begin(self, task: GenerationTask) -> _Text:
        text = Detokenizer(self._decode)
        return _Text(task, Sampler(task.options), text, BadWords(task.options.bad_words, text))

    def _advance(self, texts: list[_Text], rows: Rows) -> list[_Text]:
        """Read the unread tokens of texts, choose the next ones and keep unfinished texts."""
        logits = rows.read([text.unread for text in texts])
        best = logits.argmax(dim=-1).tolist()
        sampled = [number for number, text in enumerate(texts) if not text.is_greedy]
        scores = dict(zip(sampled, logits[sampled].cpu().numpy())) if sampled else {}
        kept = []
        for number, text in enumerate(texts):
            token = text.choose(scores[number]) if number in scores else best[number]
            if self._goes_on(text, token):
                kept.append(number)
        rows.select(kept)
        return [texts[number] for number in kept]

    def _goes_on(self, text: _Text, token: int | None) -> bool:
        """Add a token to a text, tell the new piece, and return whether more follow."""
        if token is None or token in text.task.ends:
            return self._finish(text)
        piece = text.push(token)
        if text.is_complete:
            return self._finish(text, piece)
        if piece:
            text.task.tell(StepResult(piece, final=False))
        return True

    def _finish(self, text: _Text, piece: str = "") -> bool:
        """Tell the last piece of a text, and return False."""
        text.task.tell(StepResult(piece + text.text.finish(), final=True))
        self._forget(text.task)
        return False

    def _forget(self, task: GenerationTask) -> bool:
        """Return whether a task was open; it is not from now on."""
        with self._changed:
            was_open = task in self._open
            if was_open:
                self._open.remove(task)
        return was_open

    def _fail(self, error: str, tasks: Sequence[GenerationTask]) -> None:
        """Tell tasks why there is no more to come, and begin anew."""
        self._texts, self._rows = [], Rows(self._model)
        for task in filter(self._forget, tasks):
            with suppress(Exception):  # a task that cannot be told, as where memory has run out, stops no others
                task.tell(StepResult("", True, error))
