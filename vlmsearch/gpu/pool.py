"""Lanes that threads take and give back."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from vlmsearch.closing import Closable
from vlmsearch.errors import BackendError
from vlmsearch.gpu.cuda import OutOfMemoryError
from vlmsearch.gpu.lanes import Lane


class Pool(Closable):
    """Up to ``size`` lanes, made by ``make`` when they are first needed; fewer once the memory did not suffice."""

    def __init__(self, make: Callable[[], Lane], size: int) -> None:
        self.all: list[Lane] = []
        self.size = size
        self._make = make
        self._idle: list[Lane] = []
        self._making = 0
        self._closed = False
        self._changed = threading.Condition()

    @contextmanager
    def take(self, wanted: int = 1) -> Iterator[list[Lane]]:
        """One lane, waited for, and more up to ``wanted`` where they are free; BackendError after `close`."""
        first = self._one()
        held = [first] if first else []
        try:
            while len(held) < wanted and (lane := self._one(wait=False)):
                held.append(lane)
            yield held
        finally:
            with self._changed:
                self._idle.extend(held)
                self._changed.notify_all()

    def close(self) -> None:
        """Wait for the lanes that are in use, and close all."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
            self._changed.wait_for(lambda: len(self._idle) == len(self.all) and not self._making)
            lanes, self.all, self._idle = self.all, [], []
        for lane in lanes:
            lane.close()

    def _one(self, *, wait: bool = True) -> Lane | None:
        with self._changed:
            while not self._idle:
                if self._closed:
                    break
                if len(self.all) + self._making < self.size:
                    return self._another(wait=wait)
                if not wait:
                    return None
                self._changed.wait()
            if self._closed:
                raise BackendError("the engine is closed")
            return self._idle.pop()

    def _another(self, *, wait: bool) -> Lane | None:
        """A lane that is made now, with the lock given back meanwhile; if there is no memory, one that is there."""
        self._making += 1
        self._changed.release()
        try:
            lane = self._make()
        except OutOfMemoryError:
            lane = None
            if not self.all:
                raise
        finally:
            self._changed.acquire()
            self._making -= 1
            self._changed.notify_all()
        if lane is None:
            self.size = max(1, len(self.all) + self._making)
            return self._one(wait=wait)
        self.all.append(lane)
        return lane
