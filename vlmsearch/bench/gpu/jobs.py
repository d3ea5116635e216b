"""Commands that run side by side, so many to a GPU, each seeing that GPU alone."""

from __future__ import annotations

import math
import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import IO, TypeVar

from vlmsearch._util.credentials import child_environment
from vlmsearch.errors import ConfigError

Job = TypeVar("Job", bound=Hashable)
_POLL_SECONDS = 0.2
_VISIBLE = "CUDA_VISIBLE_DEVICES"


@dataclass(frozen=True)
class Outcome:
    """How a command ended: what it printed, or why it failed, which is the end of what it said on standard error."""

    output: str
    failure: str = ""


def run_jobs(
    commands: Mapping[Job, Sequence[str]],
    *,
    gpus: Sequence[int] = (0,),
    on_each: int = 1,
    seconds: float = math.inf,
    report: Callable[[str], None],
) -> Iterator[tuple[Job, Outcome]]:
    """Run all commands, ``on_each`` at a time on each of the ``gpus``, in their order; each outcome as it comes.

    After ``seconds`` what still runs is killed, and that and what waits has failed. Nothing runs on once the caller
    stops asking.
    """
    waiting, running = list(commands), dict[Job, _Running]()
    free = [gpu for _ in range(on_each) for gpu in gpus]
    end = time.monotonic() + seconds
    try:
        while waiting or running:
            late = time.monotonic() >= end
            while waiting and free and not late:
                job = waiting.pop(0)
                running[job] = _Running(commands[job], free.pop(0))
            for job in [job for job, each in running.items() if each.ended()]:
                each = running.pop(job)
                free.append(each.gpu)
                outcome = each.outcome()
                report(f"{job}: {outcome.failure or f'done in {each.seconds:.0f} s'}")
                yield job, outcome
            if late:
                for job in (*running, *waiting):
                    yield job, Outcome("", "there was no time left")
                return
            time.sleep(_POLL_SECONDS)
    finally:
        for each in running.values():
            each.kill()


class _Running:
    """One command at work on one GPU."""

    def __init__(self, command: Sequence[str], gpu: int) -> None:
        self.gpu = gpu
        environment = {**child_environment(), _VISIBLE: _visible(gpu)}
        self._begun = time.monotonic()
        self._said: IO[str] = tempfile.TemporaryFile("w+")  # noqa: SIM115 - files, as pipes fill up unread
        self._printed: IO[str] = tempfile.TemporaryFile("w+")  # noqa: SIM115
        self._process = subprocess.Popen(  # noqa: S603 - our own interpreter and modules
            list(command), stdout=self._printed, stderr=self._said, env=environment
        )

    @property
    def seconds(self) -> float:
        """Since it began."""
        return time.monotonic() - self._begun

    def ended(self) -> bool:
        """Whether it has ended."""
        return self._process.poll() is not None

    def outcome(self) -> Outcome:
        """How it ended."""
        printed, said = _content(self._printed), _content(self._said)
        if self._process.returncode == 0:
            return Outcome(printed)
        lines = said.strip().splitlines() or [f"it ended with {self._process.returncode} and without a word"]
        return Outcome(printed, lines[-1][:600])

    def kill(self) -> None:
        """End it."""
        self._process.kill()
        self._process.wait()
        self._printed.close()
        self._said.close()


def _visible(gpu: int) -> str:
    """One GPU of those that this process sees, as the driver knows it."""
    seen = os.environ.get(_VISIBLE, "")
    names = seen.split(",")
    if seen and not 0 <= gpu < len(names):
        raise ConfigError(f"there is no GPU {gpu}: {_VISIBLE} is {seen}, whose first is number 0")
    return names[gpu].strip() if seen else str(gpu)


def _content(file: IO[str]) -> str:
    with file:
        file.seek(0)
        return file.read()


Say = Callable[[str], None]


DEFAULTS = "defaults"
"""What is compared with: FP16 with one profile, and everything else as TensorRT has it."""
