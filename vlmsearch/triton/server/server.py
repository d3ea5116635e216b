"""A running Triton server: start it, wait for its models, stop it."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from typing_extensions import Self

from vlmsearch._util.closable import Closable
from vlmsearch._util.credentials import child_environment
from vlmsearch._util.process import kill_session, signal_name
from vlmsearch.errors import BackendError
from vlmsearch.openai_api.http import HttpClient, HttpOptions
from vlmsearch.triton.server.commands import Endpoints, shm_prefix

_LINES = 60
"""Lines of the server's output that are kept, to be shown if it fails."""
_POLL = 0.1
_ANSWER_BYTES = 2**24
"""Size of the largest answer that is read."""
_LAST_LINES = 2.0
"""Seconds that the last lines of a server that has ended may take to arrive."""
_STUB_NAME = "triton_python_b"
"""The kernel's name of the processes of Python models."""
_RACE = "boost::interprocess::lock_exception"
_STARTS = 3
"""Starts of a server that ends over a race of its own."""


def _reason(model: Mapping[str, str]) -> str:
    """Return why a model failed, without the traceback of a Python model."""
    return " ".join(model.get("reason", "no reason given").partition("\nAt:")[0].split())


def _advice(failed: Sequence[str]) -> str:
    """Return what to do about models that failed; "" if nothing is known."""
    if not any("No module named 'vlmsearch'" in reason for reason in failed):
        return ""
    return " (the server's Python lacks what the models need: pip install -r requirements.txt, in the repository)"


class Server(Closable):
    """A server process; leaving its context stops it and all that it started."""

    def __init__(
        self,
        command: Sequence[str],
        ends: Endpoints,
        *,
        environment: Mapping[str, str] | None = None,
        show: Callable[[str], None] | None = None,
    ) -> None:
        self.endpoints = ends
        self._command = list(command)
        self._environment = {**child_environment(), **(environment or {})}
        self._show = show
        self._lines: deque[str] = deque(maxlen=_LINES)
        self._process: subprocess.Popen[str] | None = None
        self._reader: threading.Thread | None = None

    @property
    def pid(self) -> int:
        """Return the process, which is also the group of all that it started."""
        if self._process is None:
            raise BackendError("the server was not started")
        return self._process.pid

    def start(self) -> Self:
        """Start the process; BackendError if there is no such program or a port is taken."""
        for name in ("http", "grpc", "metrics"):
            self._check_port(name, getattr(self.endpoints, name))
        try:
            self._process = subprocess.Popen(  # noqa: S603
                self._prefixed(),
                env=self._environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                text=True,
                errors="replace",
                start_new_session=True,
            )
        except OSError as exc:
            raise BackendError(f"{self._command[0]} cannot be run: {exc.strerror}") from exc
        self._lines.clear()
        self._reader = threading.Thread(target=self._read, daemon=True, name="triton-log")
        self._reader.start()
        return self

    def wait_ready(self, *, seconds: float = 600) -> list[str]:
        """Return the names of the models once all are ready; BackendError says which failed and why."""
        end, starts = time.monotonic() + seconds, 1
        while time.monotonic() < end:
            if self.poll() is not None:
                if self._reader:
                    self._reader.join(_LAST_LINES)
                if starts < _STARTS and self._met_its_own_race():
                    starts += 1
                    self.start()
                    continue
                raise BackendError(f"the server ended ({self.ending()}): {self.tail()}")
            models = self._index()
            self.protect()  # all that is loaded by then, before anybody is told that it is ready
            if models is not None:
                failed = [f"{m['name']}: {_reason(m)}" for m in models if m["state"] != "READY"]
                if not failed and self._is_ready():
                    return [str(m["name"]) for m in models]
                if failed and not any(m["state"] in ("LOADING", "UNLOADING") for m in models):
                    told = "; ".join(failed) + _advice(failed)
                    raise BackendError(f"{len(failed)} of {len(models)} models failed: {told}")
            time.sleep(_POLL)
        raise BackendError(f"the server was not ready after {seconds:g} s: {self.tail()}")

    def _met_its_own_race(self) -> bool:
        """Return whether it ended over a lock in its own shared memory.

        Triton rarely does so while models load.
        """
        self.sweep()
        return any(_RACE in line for line in self._lines)

    def poll(self) -> int | None:
        """Return the exit status, or None while it runs."""
        return None if self._process is None else self._process.poll()

    @property
    def is_running(self) -> bool:
        """Return whether it was started and has not ended."""
        return self._process is not None and self.poll() is None

    def ending(self) -> str:
        """Return how it ended, in words."""
        code = self.poll()
        return signal_name(-code) if code is not None and code < 0 else f"exit status {code}"

    def tail(self) -> str:
        """Return the errors among the last lines of its output, or the last line."""
        kept = list(self._lines)  # at once, while the server may go on
        lines = [line for line in kept if line.startswith(("E", "error", "terminate"))] or kept
        return " | ".join(line.strip()[:300] for line in lines[-3:])

    def signal(self, number: int) -> None:
        """Send a signal to the server alone."""
        if self._process and self.is_running:
            self._process.send_signal(number)

    def wait(self) -> int:
        """Return the exit status, once it has ended."""
        return 0 if self._process is None else self._process.wait()

    def lost(self) -> set[int]:
        """Processes of Python models that have died; Triton does not start them again."""
        processes = set()
        for place in Path("/proc").glob("[0-9]*"):
            with suppress(OSError, ValueError, IndexError):
                name, _, rest = (place / "stat").read_text().rpartition(")")
                state, _, _, session = rest.split()[:4]
                if state == "Z" and int(session) == self.pid and name.endswith(_STUB_NAME):
                    processes.add(int(place.name))
        return processes

    def protect(self) -> None:
        """Let nobody but this user read what is asked and answered.

        Triton makes the shared memory of Python models readable for all, whatever the umask.
        """
        for path in self._regions():
            with suppress(OSError):
                path.chmod(0o600)

    def stop(self, *, seconds: float = 40) -> None:
        """Let requests under way end, stop the server, and remove what it leaves; killed after ``seconds``."""
        if self._process is None:
            return
        self.signal(signal.SIGTERM)
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self.sweep()

    def sweep(self) -> None:
        """Remove the processes and shared memory that a server which died on its own leaves behind."""
        if self._process is None or self._process.poll() is None:
            return
        kill_session(self._process.pid)
        if self._reader:
            self._reader.join(5)
        for path in self._regions():
            path.unlink(missing_ok=True)

    def close(self) -> None:
        """Stop it, if it runs."""
        self.stop()

    def _regions(self) -> Iterator[Path]:
        return Path("/dev/shm").glob(f"{shm_prefix(self.endpoints)}*")  # noqa: S108

    def _prefixed(self) -> list[str]:
        flags = [part for part in self._command if part.startswith("--backend-config=python")]
        if not flags or any("shm-region-prefix-name" in flag for flag in flags):
            return self._command
        return [*self._command, f"--backend-config=python,shm-region-prefix-name={shm_prefix(self.endpoints)}"]

    def _read(self) -> None:
        if self._process is None or self._process.stdout is None:
            return
        show = self._show
        for line in self._process.stdout:
            self._lines.append(line)
            try:
                if show:
                    show(line.rstrip())
            except OSError:  # whoever read along has gone, and the server would wait for its full pipe
                show = None

    def _check_port(self, name: str, port: int) -> None:
        family = socket.AF_INET6 if ":" in self.endpoints.host else socket.AF_INET
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((self.endpoints.host, port))
            except OSError as exc:
                raise BackendError(
                    f"port {port} of {self.endpoints.host} cannot be used: {exc.strerror}; choose another --{name}-port"
                ) from exc

    def _is_ready(self) -> bool:
        return self._ask("v2/health/ready", None) is not None

    def _index(self) -> list[dict[str, str]] | None:
        answer = self._ask("v2/repository/index", b"{}")
        if answer is None:
            return None
        return [model for model in json.loads(answer) if "state" in model]

    def _ask(self, path: str, body: bytes | None) -> bytes | None:
        try:
            with (
                HttpClient(self.endpoints.url(""), HttpOptions(timeout=5)) as client,
                client.exchange("GET" if body is None else "POST", f"/{path}", body) as answer,
            ):
                return client.read(answer, _ANSWER_BYTES) if answer.is_success else None
        except BackendError:
            return None
