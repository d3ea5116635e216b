"""What many clients at once get of an encoder behind `BatchingEncoder`.

The contenders take turns, so that whatever else the machine does meets all of them alike; figures are medians of the
rounds.
"""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import cycle, islice
from typing import NamedTuple

import click
import numpy as np

from benchmarks.common import print_figures, rounds_option
from vlmsearch.bench.service import Run, rate_and_times, run_alone, run_clients
from vlmsearch.cli.bench.data import numbers, read_texts
from vlmsearch.cli.common import SECONDS
from vlmsearch.encoders.base import Encoder
from vlmsearch.encoders.batching import BatchingEncoder
from vlmsearch.registry import open_encoder

LARGE = 1000
"""Texts of a large request, beside which single texts are timed."""
LOADS = (0.25, 0.5)
"""The shares of the encoder's speed at which texts come at random."""
_TEXTS = 512
_LONGEST = 3
"""The longest wait for the last texts of a round, in lengths of a round."""


class BatchingFigure(NamedTuple):
    """The figures of some clients: texts a second of all, milliseconds of a call, and the mean of texts in a batch."""

    name: str
    rate: float
    p50_ms: float
    p99_ms: float
    batch: float


@click.command()
@click.argument("encoder")
@click.option(
    "--clients", type=numbers, metavar="N,M", default="1,16,64", show_default=True, help="Threads that ask at once."
)
@click.option("--seconds", default=2.0, show_default=True, type=SECONDS, help="How long each figure takes in a round.")
@rounds_option
def main(encoder: str, clients: list[int], seconds: float, rounds: int) -> None:
    """Time ENCODER, a URL, in batches of one thread and behind what merges the requests of many clients."""
    texts = read_texts(None, _TEXTS)
    figures = measure_batching(open_encoder(encoder), texts, clients=clients, seconds=seconds, rounds=rounds)
    alone = figures[0].p50_ms
    rows = [
        (f.name, f"{f.rate:.0f}", f"{f.p50_ms:.2f}", f"{f.p99_ms:.2f}", f"{f.p99_ms / alone:.1f}", f"{f.batch:.1f}")
        for f in figures
    ]
    print_figures(encoder, ("what", "texts/s", "p50 ms", "p99 ms", "p99 / alone", "batch"), rows)


def measure_batching(
    encoder: Encoder, texts: Sequence[str], *, clients: Sequence[int], seconds: float, rounds: int
) -> list[BatchingFigure]:
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
        contenders: dict[str, Callable[[], Run]] = {"one text alone": partial(run_alone, alone, texts, 1, seconds)}
        for size in sorted({*clients, best} - {1}):
            contenders[f"batches of {size}"] = partial(run_alone, alone, texts, size, seconds)
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


def _in_turns(contenders: dict[str, Callable[[], Run]], rounds: int, sizes: list[int]) -> dict[str, list[Run]]:
    """Note how large the batches of each run were, too."""
    runs: dict[str, list[Run]] = {name: [] for name in contenders}
    for name, contender in islice(cycle(contenders.items()), len(contenders) * rounds):
        sizes.clear()
        run = contender()
        run.batches = run.batches or list(sizes)
        runs[name].append(run)
    return runs


def _figure(name: str, runs: Sequence[Run]) -> BatchingFigure:
    return BatchingFigure(name, *rate_and_times(runs), statistics.median(statistics.mean(run.batches) for run in runs))


def _beside(encoder: Encoder, texts: Sequence[str], seconds: float) -> Run:
    """Return one client with single texts, while another asks for a thousand at a time."""
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


if __name__ == "__main__":
    main()
