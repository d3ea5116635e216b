"""Requests to a Triton server without pause, for tests of what may not cost an answer."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from vlmsearch.encoders.triton import TritonEncoder
from vlmsearch.types import Vectors


class Load:
    """Threads that encode batch after batch and check every vector."""

    def __init__(self, encoder: TritonEncoder, pictures: list[bytes], expected: Vectors, threads: int = 3) -> None:
        self.encoder, self.pictures, self.expected = encoder, pictures, expected
        self.stop = threading.Event()
        self.answers = 0
        self.pool = ThreadPoolExecutor(threads)
        self.futures = [self.pool.submit(self._run, number) for number in range(threads)]

    def _run(self, number: int) -> int:
        rounds = 0
        while not self.stop.is_set():
            start = (number * 17 + rounds * 29) % 200
            found = self.encoder.encode_images(self.pictures[start : start + 12])["clip"]
            assert np.array_equal(found, self.expected[start : start + 12])
            rounds += 1
            self.answers += 1
            self.stop.wait(0.02)  # for the cores that the server needs to start again
        return rounds

    def settle(self) -> None:
        """Until three more answers have come."""
        goal, end = self.answers + 3, time.monotonic() + 60
        while self.answers < goal and time.monotonic() < end and not any(future.done() for future in self.futures):
            time.sleep(0.05)

    def finish(self) -> None:
        self.stop.set()
        assert all(future.result(60) > 0 for future in self.futures)
        self.pool.shutdown()
