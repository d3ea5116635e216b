"""Reading files, beside the library that does it underneath: both in turns, by CPU time.

CPU time is that of the whole process, which other work on the machine mostly leaves alone.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

Report = Callable[[str, int, int], None]
"""Takes a step's name, how many turns of it are done, and how many there are."""


@dataclass(frozen=True)
class ReadTiming:
    """CPU seconds, round by round, in which the same items were read.

    ``bare`` is the library alone, ``read`` what `vlmsearch.media` makes of it.
    """

    name: str
    items: int
    bare: tuple[float, ...]
    read: tuple[float, ...]

    @property
    def ratio(self) -> float:
        """The median of the rounds' ratios: 1 where nothing is added to what the library takes."""
        return statistics.median(alone / ours for alone, ours in zip(self.bare, self.read))


def time_reading(
    name: str,
    *,
    bare: Callable[[], Iterable[object]],
    read: Callable[[], Iterable[object]],
    rounds: int,
    report: Report,
) -> ReadTiming:
    """Time two ways to read the same; the items that count are those that ``bare`` gives."""
    for work in (read, bare):  # what is loaded once in a process is loaded then
        next(iter(work()), None)
    turns = []
    for turn in range(rounds):
        report(f"reading {name}", turn, rounds)
        turns.append((*_spend(bare), _spend(read)[0]))
    alone, items, ours = zip(*turns)
    return ReadTiming(name, items[0], alone, ours)


def _spend(work: Callable[[], Iterable[object]]) -> tuple[float, int]:
    """CPU seconds, and how many items there were."""
    started, count = time.process_time(), 0
    for _ in work():  # each is kept until the next is there
        count += 1
    return time.process_time() - started, count
