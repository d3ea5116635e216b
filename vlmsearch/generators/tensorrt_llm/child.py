"""A Python process of our own that is spoken to in lines of JSON."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import IO

from vlmsearch._util.closable import Closable
from vlmsearch._util.credentials import child_environment, hub_tokens
from vlmsearch._util.process import signal_name
from vlmsearch.errors import BackendError

Message = Mapping[str, object]
_LAST_LINES = 12
_END_SECONDS = 10.0


class Child(Closable):
    """``python -m module FD``: requests on its standard input, answers on the file descriptor.

    Its standard output and error are read, and the last lines kept to say why it ended. It is in a session of its own:
    Ctrl-C does not reach it, and closing ends all that it started.
    """

    def __init__(self, module: str, name: str) -> None:
        self._name = name
        self._waiting: dict[int, queue.SimpleQueue[Message]] = {}
        self._lock = threading.Lock()
        self._lines: deque[str] = deque(maxlen=_LAST_LINES)
        self._ended: str | None = None
        reading, writing = os.pipe()
        self._process = subprocess.Popen(  # noqa: S603 - a module of ours
            [sys.executable, "-m", module, str(writing)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            pass_fds=[writing],
            start_new_session=True,
            # So no module of the current folder takes the place of another.
            env=child_environment() | hub_tokens() | {"PYTHONSAFEPATH": "1"},
            text=True,
            encoding="utf-8",
            errors="replace",
        )
        os.close(writing)
        self._log = threading.Thread(target=self._keep, args=(self._process.stdout,), daemon=True)
        self._reader = threading.Thread(target=self._deliver, args=(reading,), daemon=True)
        for thread in (self._log, self._reader, threading.Thread(target=self._watch, daemon=True)):
            thread.start()

    @contextmanager
    def request(self, id: int, message: Message) -> Iterator[queue.SimpleQueue[Message]]:
        """Send a request; its answers come into the queue, and ``{"ended": why}`` when the process ends."""
        answers: queue.SimpleQueue[Message] = queue.SimpleQueue()
        with self._lock:
            self._waiting[id] = answers
        try:
            self.send({"id": id, **message})
            yield answers
        finally:
            with self._lock:
                self._waiting.pop(id, None)

    def send(self, message: Message) -> None:
        """Send one message; BackendError where the process has ended."""
        pipe = self._process.stdin
        try:
            with self._lock:
                if pipe is None or pipe.closed:
                    raise BrokenPipeError
                pipe.write(json.dumps(message) + "\n")
                pipe.flush()
        except OSError as exc:
            self._reader.join(_END_SECONDS)
            raise BackendError(self._ended or f"the process of {self._name} takes no requests") from exc

    def last_words(self) -> str:
        """Return the last lines that the process printed, to be put behind a message."""
        lines = [line for line in list(self._lines) if line.strip()]  # at once, while the process may go on
        return "; its last lines:\n" + "\n".join(f"  {line}" for line in lines) if lines else ""

    def close(self) -> None:
        """End the process and all that it started."""
        with self._lock, suppress(OSError):
            self._ended = self._ended or f"{self._name} is closed"
            if self._process.stdin:
                self._process.stdin.close()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_END_SECONDS)
        self._kill()
        self._process.wait()
        self._reader.join(_END_SECONDS)
        self._log.join(_END_SECONDS)

    def _watch(self) -> None:
        """End what the process started when it ends: it may hold the pipes open."""
        self._process.wait()
        self._kill()

    def _kill(self) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def _deliver(self, descriptor: int) -> None:
        with os.fdopen(descriptor, encoding="utf-8") as lines:
            for line in lines:
                with suppress(ValueError):  # a line that the end of the process cut off
                    message: dict[str, object] = json.loads(line)
                    self._put(message)
        code = self._process.wait()
        self._log.join(_END_SECONDS)
        reason = f"was ended by {signal_name(-code)}" if code < 0 else f"ended with status {code}"
        with self._lock:
            self._ended = self._ended or f"the process of {self._name} {reason}{self.last_words()}"
            waiting = list(self._waiting.values())
        for answers in waiting:
            answers.put({"ended": self._ended})

    def _put(self, message: dict[str, object]) -> None:
        id = message.get("id", 0)
        with self._lock:
            answers = self._waiting.get(id) if isinstance(id, int) else None
        if answers is not None:
            answers.put(message)

    def _keep(self, pipe: IO[str] | None) -> None:
        for line in pipe or ():
            self._lines.append(line.rstrip())
