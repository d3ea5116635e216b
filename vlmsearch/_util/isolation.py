"""Functions that run in child processes with limits, for input that somebody else made.

A parser that is led astray takes memory, time or the process with it. In a child these are bounded: what breaks a
limit, or dies, is the error of one call, and the child is replaced. A child is used for many calls. It bounds what a
call costs; it is no sandbox, for it may read what this process may.

The child is ``sys.executable -m vlmsearch._util.isolated`` with pipes: nothing is forked, as there are threads, and no
``__main__`` runs twice. A message is a JSON value and any number of byte strings, in both directions; see
`vlmsearch._util.messages`. A child whose parent is gone ends, however that went.
"""

from __future__ import annotations

import atexit
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import IO, NoReturn, cast

from vlmsearch._util.cancellation import check_cancelled, on_cancel
from vlmsearch._util.messages import Bytes, data_bytes, read_message, write_message
from vlmsearch._util.process import signal_name
from vlmsearch.errors import (
    BackendError,
    BackendUnavailableError,
    ConfigError,
    InvalidInputError,
    MissingDependencyError,
)

_ERRORS = {cls.__name__: cls for cls in (BackendError, ConfigError, MissingDependencyError)}
_IDLE_SECONDS = 30.0
_MAX_IDLE = 4
_LOOK_SECONDS = 0.1
_NO_MEMORY = re.compile(rb"(?i)bad_alloc|memory allocation|out of memory|cannot allocate|allocation failed")
_START_SECONDS = 60.0
"""For a child to start, on a machine that is busy."""
_CALLS = max(2, os.cpu_count() or 1)
"""Calls that run at a time; streams are not counted, for they may wait for calls."""


@dataclass(frozen=True)
class ProcessLimits:
    """Limits of what a call in a child may take.

    Attributes:
        memory_bytes: Private memory of the child (``RLIMIT_DATA``; Linux alone enforces it).
        cpu_seconds: Processor time from one result to the next (``RLIMIT_CPU``; not on Windows).
        seconds: Time to wait for the next result.
    """

    memory_bytes: int
    cpu_seconds: int
    seconds: int


def call(
    function: str, value: object, limits: ProcessLimits, *, name: str, data: Sequence[Bytes] = ()
) -> tuple[object, list[bytes]]:
    """Return the one result of a function that runs in a child. Arguments and errors are those of `stream`.

    So many calls run at a time as there are cores, and two at least.
    """
    with _POOL.place():
        (result,) = stream(function, value, limits, name=name, data=data)
    return result


def stream(
    function: str, value: object, limits: ProcessLimits, *, name: str, data: Sequence[Bytes] = ()
) -> Iterator[tuple[object, list[bytes]]]:
    """Yield the results of a function that runs in a child, as it gives them.

    Args:
        function: ``module:name`` of a function that takes a JSON value and byte strings, and yields the same.
        value: The JSON value.
        limits: Limits of the call.
        name: Whatever is read, for messages.
        data: The byte strings.

    Yields:
        JSON values with byte strings.

    Raises:
        InvalidInputError: The function raised it; ``too_large`` where the memory did not suffice, ``timeout`` where
            it took too long, ``corrupt`` where the child died otherwise.
        OSError: The function raised it.
        ConfigError: The function raised it.
        MissingDependencyError: The function raised it.
        OperationCancelledError: The current call was given up.
    """
    check_cancelled()
    request = {"function": function, "value": value, "name": name, "folder": _folder(), **asdict(limits)}
    child = _POOL.take()
    try:
        with on_cancel(child.kill):
            yield from child.run(request, data, limits, name)
    finally:
        if child.is_idle and child.is_running:
            _POOL.put(child)
        else:
            _POOL.drop(child)


def _folder() -> str:
    """Return the folder that relative paths belong to; the root, where it was removed."""
    try:
        return os.getcwd()
    except FileNotFoundError:
        return os.sep


def _environment() -> dict[str, str]:
    """Return the environment of a child: that of this process as it is now, with the paths of its imports."""
    package = find_spec("vlmsearch")
    root = str(Path(package.origin).parents[1]) if package and package.origin else ""
    paths = dict.fromkeys([*(path for path in sys.path if os.path.isabs(path)), root])
    imports = {"PYTHONPATH": os.pathsep.join(filter(None, paths)), "PYTHONSAFEPATH": "1"}
    environment = {**os.environ, **imports, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    environment.pop("PYTEST_CURRENT_TEST", None)  # else each test of a user would start children of its own
    return environment


class _Child:
    """A process that runs one function at a time."""

    def __init__(self, environment: dict[str, str]) -> None:
        self._said: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the child
        self.environment = environment
        try:
            process = subprocess.Popen(
                [sys.executable, "-m", "vlmsearch._util.isolated"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._said,
                cwd=os.sep,  # nothing that lies in the caller's folder is imported
                env=environment,
                start_new_session=True,  # Ctrl-C is for this process, which ends its children
            )
        except OSError as exc:
            self._said.close()
            raise BackendUnavailableError(f"no process can be started to read files in: {exc}") from exc
        self._process = process
        self._requests, self._answers = cast("IO[bytes]", process.stdin), cast("IO[bytes]", process.stdout)
        self.is_idle = True
        self.idle_since = 0.0
        self.deadline: float | None = None
        self._is_late = False
        self._has_started = False
        self._peak = 0

    def run(
        self, request: object, data: Sequence[Bytes], limits: ProcessLimits, name: str
    ) -> Iterator[tuple[object, list[bytes]]]:
        """Yield the results of one call. The child is idle once it has answered to the end."""
        self.is_idle, self._peak = False, 0
        try:
            write_message(self._requests, request, data)
        except OSError:
            self._fail(limits, name)
        if not self._has_started:
            self._next(_START_SECONDS, limits, name)  # it says that it is there
            self._has_started = True
        while True:
            answer, more = self._next(limits.seconds, limits, name)
            if "value" in answer:
                yield answer["value"], more
                continue
            self.is_idle = not answer["is_worn"]
            if error := answer.get("error"):
                _raise(*cast("tuple[str, str, str, str]", error))
            return

    def _next(self, seconds: float, limits: ProcessLimits, name: str) -> tuple[dict[str, object], list[bytes]]:
        self.deadline = time.monotonic() + seconds
        try:
            message = read_message(self._answers)
        except (OSError, ValueError):
            message = None
        finally:
            self.deadline = None
        if message is None or not isinstance(message[0], dict):
            self._fail(limits, name)
        return message

    def _fail(self, limits: ProcessLimits, name: str) -> NoReturn:
        """Raise the error that the end of the process means."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(1)
        self.kill()
        check_cancelled()
        ended = -self._process.returncode
        if not self._has_started:
            self._said.seek(0)
            said = self._said.read(2**16).decode("utf-8", "replace").strip().rpartition("\n")[2]
            raise BackendUnavailableError(f"the process that reads files did not start (status {-ended}): {said}")
        if self._is_late:
            raise InvalidInputError("timeout", f"{name} took more than {limits.seconds:,} seconds to read")
        if ended == getattr(signal, "SIGXCPU", None):
            said = f"{name} took more than {limits.cpu_seconds:,} seconds of processor time to read"
            raise InvalidInputError("timeout", said)
        self._said.seek(0)
        if _NO_MEMORY.search(self._said.read(2**16)) or (ended > 0 and self._peak > limits.memory_bytes // 2):
            raise InvalidInputError("too_large", f"{name} takes more than {limits.memory_bytes:,} bytes to read")
        if ended == getattr(signal, "SIGKILL", None):
            raise InvalidInputError("unreadable", f"{name} was not read: the process that read it was killed")
        how = signal_name(ended) if ended > 0 else f"status {-ended}"
        raise InvalidInputError("corrupt", f"{name} is damaged: it ends what reads it ({how})")

    def look(self, now: float) -> None:
        """Note how much memory the process has, and end it where its next result is late."""
        self._peak = max(self._peak, data_bytes(self._process.pid))
        deadline = self.deadline
        if deadline is not None and now > deadline:
            self._is_late = True
            self.kill()

    @property
    def is_running(self) -> bool:
        """Return whether the process has not ended."""
        return self._process.poll() is None

    def kill(self) -> None:
        """End the process at once."""
        self._process.kill()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(10)

    def close(self) -> None:
        """End the process, and free what belongs to it."""
        self.kill()
        for file in (self._requests, self._answers, self._said):
            with suppress(OSError):
                file.close()


class _Pool:
    """The children of this process: those at work, whose deadlines are watched, and some that are idle."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._idle: list[_Child] = []
        self._working: set[_Child] = set()
        self._calls = 0
        self._watcher: threading.Thread | None = None
        self._owner = 0

    @contextmanager
    def place(self) -> Iterator[None]:
        """Wait until fewer than the most calls run; OperationCancelledError where this one is given up meanwhile."""
        with on_cancel(self._notify), self._changed:
            while self._calls >= _CALLS:
                check_cancelled()
                self._changed.wait()
            self._calls += 1
        try:
            yield
        finally:
            with self._changed:
                self._calls -= 1
                self._changed.notify_all()

    def _notify(self) -> None:
        with self._changed:
            self._changed.notify_all()

    def take(self) -> _Child:
        """Return an idle child with the environment of this process, or a new one."""
        environment = _environment()
        with self._changed:
            if self._owner != os.getpid():  # after a fork the children are another process's
                self._idle, self._working, self._watcher, self._calls = [], set(), None, 0
                self._owner = os.getpid()
                atexit.register(self.close)
            unusable = [child for child in self._idle if not child.is_running or child.environment != environment]
            self._idle = [child for child in self._idle if child not in unusable]
            child = self._idle.pop() if self._idle else None
        for old in unusable:
            old.close()
        child = child or _Child(environment)
        with self._changed:
            self._working.add(child)
            if self._watcher is None:
                self._watcher = threading.Thread(target=self._watch, name="vlmsearch-children", daemon=True)
                self._watcher.start()
        return child

    def put(self, child: _Child) -> None:
        """Keep a child for the next call."""
        child.idle_since = time.monotonic()
        with self._changed:
            self._working.discard(child)
            self._idle.append(child)
            extra = self._idle[:-_MAX_IDLE]
            del self._idle[:-_MAX_IDLE]
        for surplus in extra:
            surplus.close()

    def drop(self, child: _Child) -> None:
        """End a child."""
        with self._changed:
            self._working.discard(child)
        child.close()

    def close(self) -> None:
        """End all children."""
        with self._changed:
            children = [*self._idle, *self._working] if self._owner == os.getpid() else []
            self._idle = []
        for child in children:
            child.kill()

    def _watch(self) -> None:
        """End children that are late, or idle for long, until there is none."""
        while True:
            time.sleep(_LOOK_SECONDS)
            now = time.monotonic()
            with self._changed:
                old = [child for child in self._idle if now - child.idle_since > _IDLE_SECONDS]
                self._idle = [child for child in self._idle if child not in old]
                working = list(self._working)
                is_over = not self._idle and not working
                if is_over:
                    self._watcher = None
            for child in old:
                child.close()
            for child in working:
                child.look(now)
            if is_over:
                return


def _raise(kind: str, code: str, message: str, cause: str) -> NoReturn:
    """Raise the error that a function raised in a child, from what caused it there."""
    error: Exception
    if kind == "OSError":
        error = OSError(int(code), message)
    elif kind in _ERRORS:
        error = _ERRORS[kind](message)
    else:
        error = InvalidInputError(code, message)  # type: ignore[arg-type]
    raise error from RuntimeError(cause) if cause else None


_POOL = _Pool()
