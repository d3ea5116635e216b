"""A load generator for Triton over gRPC: clients that wait for their answers and ask again."""

from __future__ import annotations

import statistics
import threading
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from vlmsearch._util.closable import Closable
from vlmsearch.bench.llm import Percentiles
from vlmsearch.encoders.base import Encoder
from vlmsearch.errors import BackendError, ConfigError
from vlmsearch.triton.client import protocol
from vlmsearch.triton.client.batches import split_location
from vlmsearch.triton.client.connection import Connection

Workload = Literal["images", "texts"]
_TIMEOUT = 60.0
_START_SECONDS = 1.0
"""Seconds before clients are counted, so that all are at work."""


@dataclass(frozen=True)
class TritonLevel:
    """The figures of one number of clients: items a second, seconds of requests, and errors by message."""

    concurrency: int
    items_per_second: float
    requests: int
    p50: float
    p95: float
    p99: float
    errors: tuple[tuple[str, int], ...] = ()

    @property
    def failed(self) -> int:
        """Return how many requests were answered with an error."""
        return sum(count for _, count in self.errors)

    def to_json(self) -> dict[str, object]:
        """Return as JSON has it, times in milliseconds."""
        times = {name: round(1000 * getattr(self, name), 3) for name in ("p50", "p95", "p99")}
        return {
            "concurrency": self.concurrency,
            "items_per_second": round(self.items_per_second, 2),
            "requests": self.requests,
            **{f"{name}_ms": value for name, value in times.items()},
            "errors": dict(self.errors),
        }


@dataclass
class _Count:
    """The requests of clients so far."""

    times: list[float] = field(default_factory=list)
    errors: Counter[str] = field(default_factory=Counter)


class TritonLoad(Closable):
    """Requests to one ensemble, ``items`` to a request, of ``data`` in turn.

    No failed request is repeated.
    """

    def __init__(self, location: str, kind: Workload, data: Sequence[bytes], *, items: int = 1) -> None:
        if not data:
            raise ConfigError("there is nothing to send")
        address, self._model = split_location(location)
        self._connection = Connection(address, timeout=_TIMEOUT, deadline=_TIMEOUT, retries=False)
        config = self._connection.config(self._model)
        self._input = protocol.IMAGE if kind == "images" else protocol.TEXT
        suffix = "_IMAGE" if kind == "images" else ""
        dense = [tensor.name for tensor in config.output if not tensor.name.endswith(("_TOKENS", protocol.STATUS))]
        self._outputs = [name for name in dense if name.endswith("_IMAGE") == bool(suffix)]
        if not self._outputs:
            raise ConfigError(f"{self._model} at {address} takes no {kind}")
        repeated = [data[i % len(data)] for i in range(max(len(data), items))]
        starts = range(0, len(repeated) - items + 1, items)
        columns = (_column(repeated[start : start + items]) for start in starts)
        self._requests = [self._connection.prepare({self._input: column}) for column in columns]
        self._items = items

    def run(self, concurrency: int, seconds: float) -> TritonLevel:
        """Return what ``concurrency`` clients get in ``seconds``, after a moment to get going."""
        count, stop, lock = _Count(), threading.Event(), threading.Lock()
        with ThreadPoolExecutor(concurrency, thread_name_prefix="load") as pool:
            clients = [pool.submit(self._client, number, stop, count, lock) for number in range(concurrency)]
            try:
                time.sleep(min(_START_SECONDS, seconds / 4))
                with lock:
                    count.times.clear()
                started = time.perf_counter()
                time.sleep(seconds)
                with lock:
                    times, took = list(count.times), time.perf_counter() - started
            finally:
                stop.set()
            for client in clients:
                client.result()
        rate = len(times) * self._items / took
        spread, errors = Percentiles.of(times), tuple(count.errors.items())
        return TritonLevel(concurrency, rate, len(times), spread.p50, spread.p95, spread.p99, errors)

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def _client(self, number: int, stop: threading.Event, count: _Count, lock: threading.Lock) -> None:
        turn = number * 7
        while not stop.is_set():
            inputs = self._requests[turn % len(self._requests)]
            turn += 1
            started = time.perf_counter()
            try:
                self._connection.infer(self._model, inputs, self._outputs)
            except BackendError as exc:
                with lock:
                    count.errors[str(exc)[:200]] += 1
                continue
            took = time.perf_counter() - started
            with lock:
                count.times.append(took)


def in_process(encoder: Encoder, kind: Workload, data: Sequence[bytes], seconds: float) -> float:
    """Return the items a second of an encoder in this process.

    It is called again and again with all of ``data``.
    """
    done, started = 0, time.perf_counter()
    texts = [item.decode() for item in data] if kind == "texts" else []
    while time.perf_counter() - started < seconds:
        if kind == "images":
            encoder.encode_images(data)
        else:
            encoder.encode_texts(texts)
        done += len(data)
    return done / (time.perf_counter() - started)


def median_level(rounds: Sequence[TritonLevel]) -> TritonLevel:
    """Return one level measured several times: the median of each figure, all errors."""
    errors: Counter[str] = Counter()
    for level in rounds:
        errors.update(dict(level.errors))
    return TritonLevel(
        rounds[0].concurrency,
        statistics.median(level.items_per_second for level in rounds),
        sum(level.requests for level in rounds),
        statistics.median(level.p50 for level in rounds),
        statistics.median(level.p95 for level in rounds),
        statistics.median(level.p99 for level in rounds),
        tuple(errors.items()),
    )


def _column(items: Sequence[bytes]) -> NDArray[np.object_]:
    column = np.empty((len(items), 1), np.object_)
    column[:, 0] = items
    return column
