"""What many clients at once get: of an encoder behind `BatchingEncoder`, and of searches by `AsyncPipeline`.

The contenders take turns, so that whatever else the machine does meets all of them alike; figures are medians of the
rounds.
"""

from __future__ import annotations

import asyncio
import statistics
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from itertools import cycle, islice
from typing import TypeAlias

import numpy as np

from vlmsearch.async_pipeline import AsyncPipeline
from vlmsearch.encoders.base import Encoder
from vlmsearch.encoders.batching import BatchingEncoder
from vlmsearch.pipeline import Pipeline

LARGE = 1000
"""How many texts a request has beside which single ones are timed."""
LOADS = (0.25, 0.5)
"""The shares of the encoder's speed at which texts come at random."""
Ask: TypeAlias = Callable[[list[str]], object]
"""Does with some texts what is measured."""
_LONGEST = 3
"""How many times the length of a round is waited for its last texts."""


@dataclass(frozen=True)
class ConcurrencyFigure:
    """What some clients got.

    Attributes:
        name: What they did.
        rate: Texts a second, of all of them.
        p50_ms: What a call took, in the middle.
        p99_ms: What 99 of 100 calls did not exceed.
        batch: How many texts a batch had on average.
    """

    name: str
    rate: float
    p50_ms: float
    p99_ms: float
    batch: float


@dataclass
class Run:
    """One round of one contender.

    Attributes:
        seconds: How long it took.
        texts: How many texts were asked.
        times: How long each call took, in seconds.
        batches: How large the batches were.
    """

    seconds: float = 0.0
    texts: int = 0
    times: list[float] = field(default_factory=list)
    batches: list[int] = field(default_factory=list)


def measure_batching(
    encoder: Encoder, texts: Sequence[str], *, clients: Sequence[int], seconds: float, rounds: int
) -> list[ConcurrencyFigure]:
    """Time an encoder alone, with single texts and in batches, then behind a `BatchingEncoder`.

    Args:
        encoder: What computes; it is closed afterwards.
        texts: Queries, which are taken in turn.
        clients: How many threads ask, each one text after the other.
        seconds: How long each figure is measured in a round.
        rounds: How often every contender has its turn.

    Returns:
        The figures of one text alone, of batches in one thread, of the clients, of a client beside requests of a
        thousand texts, and of as many as the most clients whose texts come at random.
    """
    best = encoder.batch_sizes.texts
    sizes: list[int] = []
    with BatchingEncoder(encoder, on_batch=lambda batch: sizes.append(batch.items)) as batching:
        alone, merged = (partial(each.encode_texts, role="query") for each in (encoder, batching))
        contenders: dict[str, Callable[[], Run]] = {"one text alone": partial(_alone, alone, texts, 1, seconds)}
        for size in sorted({*clients, best} - {1}):
            contenders[f"batches of {size}"] = partial(_alone, alone, texts, size, seconds)
        for number in clients:
            contenders[f"{number} clients"] = partial(run_clients, merged, texts, number, seconds)
        contenders[f"1 client beside requests of {LARGE:,}"] = partial(_beside, batching, texts, seconds)
        runs = _in_turns(contenders, rounds, sizes)
        speed = _figure("", runs[f"batches of {best}"]).rate
        at_random: dict[str, Callable[[], Run]] = {
            f"{max(clients)} clients at random, {share:.0%} load": partial(
                _at_random, batching, texts, max(clients), share * speed, seconds
            )
            for share in LOADS
        }
        runs |= _in_turns(at_random, rounds, sizes)
    return [_figure(name, each) for name, each in runs.items()]


def measure_async(pipeline: Pipeline, texts: Sequence[str], *, rounds: int) -> tuple[float, float]:
    """Time searches by a pipeline and by an `AsyncPipeline` over it, one after the other.

    Args:
        pipeline: What searches; it is closed afterwards.
        texts: What is searched for, by both in turns.
        rounds: How often each text is searched for.

    Returns:
        The medians of both, in milliseconds.
    """

    async def measure() -> tuple[float, float]:
        times: tuple[list[float], list[float]] = ([], [])
        async with AsyncPipeline(pipeline) as awaited:
            for number, text in enumerate(list(texts) * rounds):
                for which in (0, 1) if number % 2 else (1, 0):
                    started = time.perf_counter()
                    if which:
                        await awaited.search(text)
                    else:
                        pipeline.search(text)
                    times[which].append(time.perf_counter() - started)
        ours, theirs = (1000 * statistics.median(each[2:]) for each in times)
        return ours, theirs

    return asyncio.run(measure())


def _in_turns(contenders: dict[str, Callable[[], Run]], rounds: int, sizes: list[int]) -> dict[str, list[Run]]:
    """Note how large the batches of each run were, too."""
    runs: dict[str, list[Run]] = {name: [] for name in contenders}
    for name, contender in islice(cycle(contenders.items()), len(contenders) * rounds):
        sizes.clear()
        run = contender()
        run.batches = run.batches or list(sizes)
        runs[name].append(run)
    return runs


def _figure(name: str, runs: Sequence[Run]) -> ConcurrencyFigure:
    return ConcurrencyFigure(
        name, *rate_and_times(runs), statistics.median(statistics.mean(run.batches) for run in runs)
    )


def rate_and_times(runs: Sequence[Run]) -> tuple[float, float, float]:
    """Return texts a second, and p50 and p99 of a call in milliseconds: medians of the rounds of one contender."""

    def middle(value: Callable[[Run], float]) -> float:
        return statistics.median(value(run) for run in runs)

    return (
        middle(lambda run: run.texts / run.seconds),
        middle(lambda run: 1000 * float(np.percentile(run.times, 50))),
        middle(lambda run: 1000 * float(np.percentile(run.times, 99))),
    )


def _alone(ask: Ask, texts: Sequence[str], size: int, seconds: float) -> Run:
    """One thread, one call after the other."""
    run, given = Run(batches=[size]), cycle(texts)
    started = time.perf_counter()
    while run.seconds < seconds:
        asked = list(islice(given, size))
        before = time.perf_counter()
        ask(asked)
        now = time.perf_counter()
        run.times.append(now - before)
        run.texts += size
        run.seconds = now - started
    return run


def run_clients(ask: Ask, texts: Sequence[str], number: int, seconds: float) -> Run:
    """Have threads ask one text after the other, each beginning at another one.

    Args:
        ask: What is called with a list of one text.
        texts: What they ask, in turns.
        number: How many threads there are.
        seconds: How long they ask.

    Returns:
        What each call took.
    """
    with ThreadPoolExecutor(number) as threads:
        shares = [[*texts[i % len(texts) :], *texts[: i % len(texts)]] for i in range(0, 7 * number, 7)]
        runs = list(threads.map(lambda share: _alone(ask, share, 1, seconds), shares))
    return Run(
        max(run.seconds for run in runs), sum(run.texts for run in runs), [each for run in runs for each in run.times]
    )


def _beside(encoder: Encoder, texts: Sequence[str], seconds: float) -> Run:
    """One client with single texts, while another asks for a thousand at a time."""
    over = threading.Event()
    large = list(islice(cycle(texts), LARGE))

    def ask() -> None:
        while not over.is_set():
            encoder.encode_texts(large, role="query")

    with ThreadPoolExecutor(1) as threads:
        asking = threads.submit(ask)
        try:
            run = run_clients(partial(encoder.encode_texts, role="query"), texts, 1, seconds)
        finally:
            over.set()
        asking.result()
    return run


def _at_random(encoder: Encoder, texts: Sequence[str], number: int, rate: float, seconds: float) -> Run:
    """Texts that come as a Poisson process, whether or not those before are done; waiting for a thread counts."""
    rng = np.random.default_rng(number)
    at = np.cumsum(rng.exponential(1 / rate, size=max(int(rate * seconds), 10)))
    run, given = Run(), cycle(texts)
    started = time.perf_counter()

    def ask(due: float, text: str) -> float:
        encoder.encode_texts([text], role="query")
        return time.perf_counter() - due

    with ThreadPoolExecutor(number) as threads:
        asked = []
        for due in started + at:
            wait = due - time.perf_counter()
            if wait > 0:
                time.sleep(wait)
            asked.append(threads.submit(ask, due, next(given)))
        run.times = [each.result(_LONGEST * seconds + 60) for each in asked]
    run.seconds, run.texts = time.perf_counter() - started, len(asked)
    return run
