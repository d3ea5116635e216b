"""One ONNX model on the cores of a CPU."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable

import numpy as np

from vlmsearch.closing import Closable
from vlmsearch.encoders.onnx_session import Arrays, OnnxSession, Place
from vlmsearch.types import Vectors
from vlmsearch.workers import Workers

IMAGE_SHARE, TEXT_SHARE = 4, 32
"""How many items one core computes at a time: what fits its cache."""


class CoresSession(Closable):
    """A model on ``threads`` cores, ready to run from several threads; ``load`` gives the model or its path.

    A single item is spread over all cores. A batch is dealt out instead, ``share`` items a core at a time, so that
    no core waits for the others after every layer; the vectors are the same. That takes the weights a second time,
    from the first such batch on.
    """

    def __init__(self, load: Callable[[], bytes | str], name: str, *, threads: int, share: int) -> None:
        self._load, self._name, self._threads, self._share = load, name, threads, share
        self._spread = OnnxSession(load(), Place(threads), name)
        self._single: OnnxSession | None = None
        self._lock = threading.Lock()
        self._pool = Workers(threads, name="vlmsearch-onnx", owner=name)

    @property
    def providers(self) -> tuple[str, ...]:
        """The execution providers that are really bound."""
        return self._spread.providers

    def run(self, inputs: Arrays) -> Vectors:
        """Unit vectors, float32 (n, dim); BackendError where it fails."""
        count = len(next(iter(inputs.values())))
        if self._threads == 1 or count < 2 * self._threads:
            return self._spread.run(inputs)
        shares = math.ceil(count / (self._share * self._threads)) * self._threads
        parts = zip(*(np.array_split(array, shares) for array in inputs.values()))
        return np.concatenate(list(self._pool.map(self._one_core().run, (dict(zip(inputs, part)) for part in parts))))

    def close(self) -> None:
        """Stop the threads."""
        self._pool.close()

    def _one_core(self) -> OnnxSession:
        with self._lock:
            if self._single is None:
                self._single = OnnxSession(self._load(), Place(1), self._name)
            return self._single
