"""Generators under load: so many requests at a time over a dataset of prompts, timed token by token.

Time to first token and inter-token latency are those of NVIDIA's GenAI-Perf: from the request to the first piece of
text, and from there to the last, divided by the tokens after the first.
"""

from __future__ import annotations

import queue
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import numpy as np

from vlmsearch._util.strict_json import parse_json
from vlmsearch.errors import ConfigError, VlmsearchError, one_line
from vlmsearch.generators.base import CountsTokens, GenerationOptions, Generator

Count = Callable[[str], int]
"""A function that counts the tokens of a text."""


@dataclass(frozen=True)
class Percentiles:
    """Three percentiles, in seconds."""

    p50: float = 0.0
    p95: float = 0.0
    p99: float = 0.0

    @classmethod
    def of(cls, values: Sequence[float]) -> Percentiles:
        """Return those of ``values``; zeros where there are none."""
        return cls(*np.percentile(values, (50, 95, 99)).tolist()) if values else cls()

    def to_json(self) -> dict[str, float]:
        """Return as JSON has it, in milliseconds."""
        return {f"{name}_ms": round(1000 * getattr(self, name), 3) for name in ("p50", "p95", "p99")}


@dataclass(frozen=True)
class GenerationRequest:
    """One answered request: seconds to its first piece and to its end, and the text."""

    first: float
    seconds: float
    text: str
    pieces: int


@dataclass(frozen=True)
class Level:
    """The figures of one number of concurrent requests. Rates are per second of ``seconds``, the time of all."""

    concurrency: int
    requests: int
    tokens: int
    seconds: float
    first_token: Percentiles
    inter_token: Percentiles
    latency: Percentiles
    errors: tuple[tuple[str, int], ...] = ()
    is_interrupted: bool = False

    @property
    def tokens_per_second(self) -> float:
        """Tokens of answers a second."""
        return self.tokens / self.seconds if self.seconds else 0.0

    @property
    def requests_per_second(self) -> float:
        """Answered requests a second."""
        return self.requests / self.seconds if self.seconds else 0.0

    @property
    def failed(self) -> int:
        """Return how many requests ended in an error."""
        return sum(count for _, count in self.errors)

    def to_json(self) -> dict[str, object]:
        """Return as JSON has it."""
        return {
            "concurrency": self.concurrency,
            "requests": self.requests,
            "tokens": self.tokens,
            "total_seconds": round(self.seconds, 4),
            "tokens_per_second": round(self.tokens_per_second, 2),
            "requests_per_second": round(self.requests_per_second, 3),
            "time_to_first_token": self.first_token.to_json(),
            "inter_token_latency": self.inter_token.to_json(),
            "latency": self.latency.to_json(),
            "errors": dict(self.errors),
        } | ({"interrupted": True} if self.is_interrupted else {})


@dataclass
class _AnswerLog:
    """The answers to clients so far; ``lock`` guards them."""

    requests: list[GenerationRequest] = field(default_factory=list)
    errors: Counter[str] = field(default_factory=Counter)
    lock: threading.Lock = field(default_factory=threading.Lock)


def read_prompts(path: Path) -> list[str]:
    """Return the prompts of a dataset: JSON or JSONL of objects with ``instruction``, ``input`` or both.

    ``output``, the answer that the dataset has, is not sent. ConfigError names the row that is none.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as exc:
        raise ConfigError(f"the dataset {path} cannot be read: {exc}") from exc
    try:
        rows = parse_json(text, with_nan=True) if text.lstrip().startswith("[") else _lines(text)
    except ValueError as exc:
        raise ConfigError(f"the dataset {path} is neither JSON nor JSONL: {exc}") from exc
    prompts = []
    for number, row in enumerate(rows, 1):
        parts = [row.get(name) or "" for name in ("instruction", "input")] if isinstance(row, dict) else []
        if not all(isinstance(part, str) for part in parts) or not any(parts):
            raise ConfigError(f"row {number} of {path} has no text in instruction or input")
        prompts.append("\n".join(part for part in parts if part))
    if not prompts:
        raise ConfigError(f"the dataset {path} has no rows")
    return prompts


def counter(generator: Generator, tokenizer: Path | None) -> tuple[Count | None, str]:
    """Return how tokens are counted, and in words: by a tokenizer, by the generator, or as pieces (None)."""
    if tokenizer is not None:
        from vlmsearch.generators.text import token_counter

        return token_counter(tokenizer), f"the tokenizer {tokenizer}"
    if isinstance(generator, CountsTokens):
        around = generator.count_tokens("")
        return lambda text: generator.count_tokens(text) - around, "the generator's own tokenizer"
    return None, "pieces of the stream"


def run(
    generator: Generator,
    prompts: Sequence[str],
    options: GenerationOptions,
    *,
    concurrency: int,
    requests: int,
    count: Count | None = None,
    on_request: Callable[[], None] | None = None,
) -> Level:
    """Send ``requests`` prompts in turn, ``concurrency`` at a time; no failed one is sent again.

    Ctrl-C ends it: what was answered until then is the level, which is marked.
    """
    taken, stop = _AnswerLog(), threading.Event()
    waiting: queue.SimpleQueue[str] = queue.SimpleQueue()
    for number in range(requests):
        waiting.put(prompts[number % len(prompts)])

    def client() -> None:
        with suppress(queue.Empty):
            while not stop.is_set():
                _ask(generator, waiting.get_nowait(), options, taken, stop)
                if on_request:
                    on_request()

    started = time.perf_counter()
    with ThreadPoolExecutor(concurrency, thread_name_prefix="load") as pool:
        clients = [pool.submit(client) for _ in range(concurrency)]
        try:
            for running in clients:
                running.result()
        except BaseException as exc:
            stop.set()
            if not isinstance(exc, KeyboardInterrupt):
                raise
        took = time.perf_counter() - started
    return _level(taken, concurrency, took, count, is_interrupted=stop.is_set())


def _ask(
    generator: Generator, prompt: str, options: GenerationOptions, taken: _AnswerLog, stop: threading.Event
) -> None:
    started = time.perf_counter()
    times, pieces = [], []
    try:
        with closing(cast("Any", generator.stream(prompt, options))) as stream:
            for piece in stream:
                times.append(time.perf_counter() - started)
                pieces.append(piece)
                if stop.is_set():
                    return
    except VlmsearchError as exc:
        with taken.lock:
            taken.errors[one_line(exc)] += 1
        return
    took = time.perf_counter() - started
    with taken.lock:
        taken.requests.append(GenerationRequest(times[0] if times else took, took, "".join(pieces), len(pieces)))


def _level(taken: _AnswerLog, concurrency: int, took: float, count: Count | None, *, is_interrupted: bool) -> Level:
    done = taken.requests
    tokens = [count(request.text) if count else request.pieces for request in done]
    gaps = [(request.seconds - request.first) / (n - 1) for request, n in zip(done, tokens) if n > 1]
    return Level(
        concurrency,
        len(done),
        sum(tokens),
        took,
        Percentiles.of([request.first for request in done]),
        Percentiles.of(gaps),
        Percentiles.of([request.seconds for request in done]),
        tuple(taken.errors.items()),
        is_interrupted,
    )


def speed_up(first: Level, second: Level) -> dict[str, float]:
    """Return how many times as fast the first is: above 1 in each figure where it is the better one."""

    def ratio(better: float, worse: float) -> float:
        return round(better / worse, 3) if worse else 0.0

    return {
        "tokens_per_second": ratio(first.tokens_per_second, second.tokens_per_second),
        "requests_per_second": ratio(first.requests_per_second, second.requests_per_second),
        "time_to_first_token": ratio(second.first_token.p50, first.first_token.p50),
        "inter_token_latency": ratio(second.inter_token.p50, first.inter_token.p50),
        "latency": ratio(second.latency.p50, first.latency.p50),
    }


def with_model(url: str, model: str) -> str:
    """Return the URL of a generator with the name of a model.

    It is in the place that the scheme has for it.
    """
    place, question, options = url.partition("?")
    scheme, _, location = place.partition(":")
    if scheme == "openai":
        return f"{url}{'&' if question else '?'}model={model}"
    if scheme == "triton" and "/" not in location.removeprefix("//").rstrip("/"):
        return f"{place.rstrip('/')}/{model}{question}{options}"
    if not location:
        return f"{place}{model}{question}{options}"
    raise ConfigError(f"{url} already says which model: leave out `model`, or give `url` once a model")


def _lines(text: str) -> list[object]:
    """Return the values of lines, which end in LF: JSON may hold the other ends of lines."""
    return [parse_json(line, with_nan=True) for line in text.split("\n") if line.strip()]
