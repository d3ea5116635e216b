"""Commands in a session of their own, with their output in a log. Nothing of them is left, however they end."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TextIO

from vlmsearch._util.credentials import child_environment
from vlmsearch.errors import BackendError

Show = Callable[[str], None]
_GRACE_SECONDS = 10.0
_ERROR = re.compile(r"^\S*(Error|Exception|error|Interrupt)\b|\berror: |\[E\]|\[ERROR\]|out of memory|^Killed$")
_LINE = 400


@dataclass(frozen=True)
class Command:
    """A command; ``on_stop`` is run too when it is stopped before its end."""

    arguments: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)
    on_stop: Sequence[str] = ()


def run_logged(command: Command, log: Path, *, show: Show) -> None:
    """Run a command, its output appended to ``log`` and each line handed to ``show``.

    BackendError if it fails: with the last error in its output, and the log's path. Ctrl-C stops the
    command and all that it started, then raises KeyboardInterrupt.
    """
    program = command.arguments[0]
    environment = {**child_environment(), "PYTHONUNBUFFERED": "1", **command.environment}
    if shutil.which(program, path=environment.get("PATH")) is None:
        raise BackendError(f"{program} is not on PATH")
    with log.open("a", encoding="utf-8") as file:
        file.write(f"$ {' '.join(command.arguments)}\n")
        file.flush()
        start = log.stat().st_size
        process = subprocess.Popen(  # noqa: S603
            list(command.arguments),
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        reader = threading.Thread(target=_copy, args=(process, file, show), daemon=True)
        reader.start()
        try:
            process.wait()
        except BaseException:
            _stop(process, command.on_stop)
            raise
        finally:
            kill_session(process.pid)
            reader.join(_GRACE_SECONDS)
    if process.returncode:
        raise BackendError(f"{_ending(process.returncode)}: {last_error(log, start)} (log: {log})")


def last_error(log: Path, start: int = 0) -> str:
    """Return the last line of a log that tells of an error, else its last line."""
    text = log.read_bytes()[start:].decode("utf-8", "replace")
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if _ERROR.search(line)]
    return (errors or lines or ["it said nothing"])[-1][:_LINE]


def _copy(process: subprocess.Popen[str], file: TextIO, show: Show) -> None:
    """Read to the end, even where the disk is full or whoever read along has gone: a full pipe would hold it up."""

    def keep(line: str) -> None:
        file.write(f"{line}\n")
        file.flush()

    takers = [keep, show]
    for line in process.stdout or ():
        for take in tuple(takers):
            try:
                take(line.rstrip())
            except (OSError, SystemExit):  # the latter from rich, for a pipe that nobody reads
                takers.remove(take)


def _ending(status: int) -> str:
    return f"killed by {signal_name(-status)}" if status < 0 else f"exit status {status}"


def signal_name(number: int) -> str:
    """Return the name of a signal, such as ``SIGKILL``; real-time signals have numbers alone."""
    return signal.Signals(number).name if number in set(signal.Signals) else f"signal {number}"


def _stop(process: subprocess.Popen[str], on_stop: Sequence[str]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
    if on_stop:
        with suppress(OSError):
            subprocess.run(list(on_stop), check=False, capture_output=True)  # noqa: S603
    try:
        process.wait(_GRACE_SECONDS)
    except subprocess.TimeoutExpired:
        kill_session(process.pid)
        process.wait()


def kill_session(leader: int) -> None:
    """Kill what is left of the session that a process began. mpirun, for one, gives each rank a group of its own."""
    for place in Path("/proc").glob("[0-9]*"):
        with suppress(OSError, ValueError, IndexError):
            _, _, rest = (place / "stat").read_text(encoding="utf-8").rpartition(")")
            if int(rest.split()[3]) == leader:
                os.kill(int(place.name), signal.SIGKILL)
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, signal.SIGKILL)
