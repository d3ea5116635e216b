"""In-flight batching: texts join and leave a running batch between two tokens."""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vlmsearch._util.closable import Closable
from vlmsearch.generators.base import GenerationOptions
from vlmsearch.generators.local.decoding import BadWords, Beams
from vlmsearch.generators.local.rows import Rows
from vlmsearch.generators.local.sampling import Sampler, Scores, log_softmax
from vlmsearch.generators.text import Decode, Detokenizer

_STOP_SECONDS = 30.0
"""How long a stop is remembered."""
_CHECK_SECONDS = 0.05
"""How often a text is asked whether it is still wanted."""
_CLOSED = "the engine is closed"


@dataclass(frozen=True)
class GenerationTask:
    """A text to be made.

    ``options.max_tokens`` fits into the model's context with ``prompt``; ``options.stop`` ends the text with the token
    that completes one of them. ``tell`` gets each result, ``wanted`` says whether anybody still waits.
    """

    prompt: Sequence[int]
    options: GenerationOptions
    ends: frozenset[int]
    tell: Callable[[StepResult], None]
    wanted: Callable[[], bool]
    id: str = ""
    min_tokens: int = 0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    log_probs: bool = False


@dataclass(frozen=True)
class StepResult:
    """Tokens that are new, by beam (one without beam search), and whether these are the last.

    ``log_probs`` are theirs, ``cum_log_prob`` that of each whole text, where the task asked for them.
    """

    tokens: tuple[tuple[int, ...], ...]
    final: bool
    log_probs: tuple[float, ...] = ()
    cum_log_probs: tuple[float, ...] = ()
    error: str = ""


@dataclass
class _RunningText:
    """A task on its way: its tokens so far, of which ``told`` are told, and what is left to tell."""

    task: GenerationTask
    sampler: Sampler
    text: Detokenizer
    bad: BadWords
    tokens: list[int] = field(default_factory=list)
    log_probs: list[float] = field(default_factory=list)
    told: int = 0
    shown: str = ""
    checked: float = 0.0

    def is_wanted(self) -> bool:
        now = time.monotonic()
        if now - self.checked < _CHECK_SECONDS:
            return True
        self.checked = now
        return self.task.wanted()

    @property
    def unread(self) -> list[int]:
        return self.tokens[-1:] or list(self.task.prompt)

    @property
    def is_plain(self) -> bool:
        """Return whether the likeliest token is always the next one, so that the logits need not leave the device."""
        task, options = self.task, self.task.options
        penalties = (task.presence_penalty, task.frequency_penalty, options.repetition_penalty - 1, options.temperature)
        return not (any(penalties) or options.bad_words or task.log_probs or len(self.tokens) < task.min_tokens)


class BatchingEngine(Closable):
    """One causal language model of transformers and the texts that it is making, up to ``most`` at a time.

    A search with beams takes the place of as many texts, which are no more than ``most``. A thread of its own runs the
    model; ``note`` hears how many texts it works on, and how many wait for a place.
    """

    def __init__(self, model: Any, decode: Decode, *, most: int, note: Callable[[int, int], None]) -> None:
        self._model = model
        self._decode = decode
        self._most = most
        self._note = note
        self._rows = Rows(model)
        self._texts: list[_RunningText] = []
        self._searches: list[tuple[GenerationTask, Beams, Rows, NDArray[np.int64]]] = []
        self._waiting: deque[GenerationTask] = deque()
        self._changed = threading.Condition()
        self._stopped: dict[str, float] = {}
        self._looked = math.inf
        """When stops were last looked at for the texts that are being made."""
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="vlmsearch-llm", daemon=True)
        self._thread.start()

    def submit(self, task: GenerationTask) -> None:
        """Have a text made; once the engine is closed, the task is told so."""
        with self._changed:
            closed = self._closed
            if not closed:
                self._waiting.append(task)
                self._changed.notify()
        if closed:
            task.tell(StepResult((), True, error=_CLOSED))

    def stop(self, id: str) -> None:
        """End the texts of tasks with this id, also of those that are only on their way here."""
        with self._changed:
            self._forget_stops()
            self._stopped[id] = time.monotonic()
            self._changed.notify()

    def close(self) -> None:
        """End all texts, whose tasks are told so, and wait for the thread."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join(30)

    def _run(self) -> None:
        while True:
            with self._changed:
                if not (self._texts or self._searches):
                    self._looked = math.inf
                self._changed.wait_for(lambda: self._closed or self._waiting or self._texts or self._searches)
                if self._closed:
                    new = list(self._waiting)
                    self._waiting.clear()
                    break
                new = self._next()
                self._forget_stops()
                stopped, self._looked = frozenset(self._stopped), time.monotonic()
            try:
                self._turn(new, stopped)
            except Exception as exc:  # noqa: BLE001 - those who wait are told, and the next texts may do better
                self._fail(f"{type(exc).__name__}: {exc}", new)
            with self._changed, suppress(Exception):
                self._note(len(self._texts) + len(self._searches), len(self._waiting))
        self._fail(_CLOSED, new)

    def _next(self) -> list[GenerationTask]:
        """Return the waiting for whom there is room, in order."""
        room = self._most - len(self._texts) - sum(task.options.beam_width for task, *_ in self._searches)
        new = []
        while self._waiting and (needed := self._waiting[0].options.beam_width) <= room:
            new.append(self._waiting.popleft())
            room -= needed
        return new

    def _forget_stops(self) -> None:
        """Forget stops whose time is up, unless texts are being made that have not heard of them."""
        oldest = min(time.monotonic() - _STOP_SECONDS, self._looked)
        self._stopped = {id: since for id, since in self._stopped.items() if since > oldest}

    def _turn(self, new: Sequence[GenerationTask], stopped: frozenset[str]) -> None:
        """Generate one token for every text."""
        self._drop(stopped)
        if self._texts:
            self._advance(self._texts, self._rows)
        for task in new:
            if task.id in stopped:
                task.tell(StepResult(((),), final=True))
        new = [task for task in new if task.id not in stopped]
        fresh = [self._begin(task) for task in new if task.options.beam_width == 1]
        if fresh:
            rows = Rows(self._model)
            left = self._advance(fresh, rows)
            self._rows.join(rows)
            self._texts += left
        for task in new:
            if task.options.beam_width > 1:
                options = task.options
                beams = Beams(task.prompt, options, options.max_tokens, task.ends, self._decode)
                self._searches.append((task, beams, Rows(self._model), np.array([task.prompt], np.int64)))
        searches = (self._search(search, stopped) for search in self._searches)
        self._searches = [search for search in searches if search]

    def _begin(self, task: GenerationTask) -> _RunningText:
        text = Detokenizer(self._decode)
        return _RunningText(task, Sampler(task.options), text, BadWords(task.options.bad_words, text))

    def _advance(self, texts: list[_RunningText], rows: Rows) -> list[_RunningText]:
        """Read what is unread of these texts, choose the next tokens and keep the texts that go on."""
        logits = rows.read([text.unread for text in texts])
        best = logits.argmax(dim=-1).tolist()
        picky = [number for number, text in enumerate(texts) if not text.is_plain]
        scores = dict(zip(picky, logits[picky].cpu().numpy())) if picky else {}
        kept = []
        for number, text in enumerate(texts):
            token = self._choose(text, scores[number]) if number in scores else best[number]
            if self._goes_on(text, token):
                kept.append(number)
        rows.select(kept)
        if texts is self._texts:
            self._texts = [texts[number] for number in kept]
        return [texts[number] for number in kept]

    def _choose(self, text: _RunningText, scores: Scores) -> int | None:
        task = text.task
        chances = log_softmax(scores)
        if len(text.tokens) < task.min_tokens:
            scores = scores.copy()
            scores[list(task.ends)] = -np.inf
        if text.tokens and (task.presence_penalty or task.frequency_penalty):
            seen, counts = np.unique(text.tokens, return_counts=True)
            scores = scores.copy()
            scores[seen] -= task.presence_penalty + task.frequency_penalty * counts
        token = text.sampler.choose(scores, [*task.prompt, *text.tokens], text.bad)
        if token is not None and token not in task.ends:
            text.log_probs.append(float(chances[token]))
        return token

    def _goes_on(self, text: _RunningText, token: int | None) -> bool:
        """Add a token to a text and tell what is complete; False where that was the last."""
        task, options = text.task, text.task.options
        if token is None or token in task.ends:
            return self._tell(text, final=True)
        text.tokens.append(token)
        piece = text.text.push(token)
        text.bad.note(piece)
        text.shown += piece
        if len(text.tokens) >= options.max_tokens or any(word in text.shown for word in options.stop):
            return self._tell(text, final=True)
        if piece:
            self._tell(text, final=False)
        return True

    def _tell(self, text: _RunningText, *, final: bool) -> bool:
        """Tell the tokens that are not told; characters that lack bytes wait. The opposite of ``final``."""
        probs = tuple(text.log_probs[text.told :])
        result = StepResult((tuple(text.tokens[text.told :]),), final, probs, (sum(text.log_probs),))
        text.told = len(text.tokens)
        text.task.tell(result)
        return not final

    def _drop(self, stopped: frozenset[str]) -> None:
        """Let go of texts that nobody wants any more."""
        kept = []
        for number, text in enumerate(self._texts):
            if text.task.id not in stopped and text.is_wanted():
                kept.append(number)
            else:
                self._tell(text, final=True)
        if len(kept) < len(self._texts):
            self._rows.select(kept)
            self._texts = [self._texts[number] for number in kept]

    def _search(
        self, search: tuple[GenerationTask, Beams, Rows, NDArray[np.int64]], stopped: frozenset[str]
    ) -> tuple[GenerationTask, Beams, Rows, NDArray[np.int64]] | None:
        """Return one token for every beam of a search; None at its end."""
        task, beams, rows, unread = search
        if not beams.done and task.id not in stopped and task.wanted():
            kept, unread = beams.advance(rows.read(unread.tolist()).cpu().numpy())
            rows.select(kept)
            if not beams.done:
                return task, beams, rows, unread
        found = beams.ranked
        scores = tuple(score * max(len(tokens), 1) for score, tokens in found)
        task.tell(StepResult(tuple(tuple(tokens) for _, tokens in found), True, (), scores))
        return None

    def _fail(self, error: str, new: Sequence[GenerationTask]) -> None:
        """Tell everybody why there is no more to come, and begin anew."""
        told = {id(text.task) for text in self._texts} | {id(search[0]) for search in self._searches}
        tasks = [text.task for text in self._texts] + [search[0] for search in self._searches]
        tasks += [task for task in new if id(task) not in told]
        self._texts, self._searches, self._rows = [], [], Rows(self._model)
        for task in tasks:
            with suppress(Exception):  # one that cannot be told, as where memory has run out, keeps none of the others
                task.tell(StepResult((), True, error=error))
