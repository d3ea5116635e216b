"""Real Triton servers for the tests: the wheel's, installed once beside the environment that runs the tests."""

import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
import tritonclient.grpc as grpc
from numpy.typing import NDArray

from tests.support.parts import check_server_mark
from vlmsearch.triton.server.commands import Binary, Endpoints, server_command
from vlmsearch.triton.server.install import ensure_installed
from vlmsearch.triton.server.server import Server

_STUB = "triton_python_backend_stub"
CACHE = Path(sys.prefix) / "vlmsearch-tests"


def free_ports() -> Endpoints:
    probes = [socket.socket() for _ in range(3)]
    for probe in probes:
        probe.bind(("127.0.0.1", 0))
    http, grpc_port, metrics = (probe.getsockname()[1] for probe in probes)
    for probe in probes:
        probe.close()
    return Endpoints("127.0.0.1", http, grpc_port, metrics)


class Running:
    """A server and how to talk to it."""

    def __init__(self, binary: Binary, folder: Path, extra: Sequence[str] = (), ends: Endpoints | None = None) -> None:
        self.ends = ends or free_ports()
        flags = ["--log-info=false", *extra]
        self.command = server_command(binary, folder, self.ends, extra=flags)
        self.environment = binary.environment
        self.lines: list[str] = []
        self.server = self._new()

    def _new(self) -> Server:
        return Server(self.command, self.ends, environment=self.environment, show=self.lines.append)

    @property
    def url(self) -> str:
        return f"triton://127.0.0.1:{self.ends.grpc}/vlm"

    def start(self) -> "Running":
        check_server_mark()
        self.server.start()
        self.server.wait_ready(seconds=240)
        return self

    def kill(self) -> None:
        """kill -9 of the server; its stubs end by themselves."""
        os.kill(self.server.pid, signal.SIGKILL)
        self.server.wait()
        self.server.sweep()

    def again(self) -> None:
        """The same server, a new process."""
        self.server = self._new()
        self.start()

    def client(self) -> grpc.InferenceServerClient:
        return grpc.InferenceServerClient(f"127.0.0.1:{self.ends.grpc}")

    def ask(
        self,
        outputs: Sequence[str] = (),
        *,
        model: str = "vlm",
        parameters: dict[str, bool] | None = None,
        **inputs: list[bytes] | NDArray[np.generic],
    ) -> dict[str, NDArray[np.generic]]:
        """What a client without vlmsearch sends and gets; lists are columns of BYTES."""
        tensors = []
        for name, given in inputs.items():
            array = column(given) if isinstance(given, list) else given
            tensor = grpc.InferInput(name, list(array.shape), grpc.np_to_triton_dtype(array.dtype))
            tensor.set_data_from_numpy(array)
            tensors.append(tensor)
        wanted = [grpc.InferRequestedOutput(name) for name in outputs] or None
        done = threading.Event()
        answer: list[object] = []

        def note(result: grpc.InferResult, error: Exception | None) -> None:
            answer.extend([result, error])
            done.set()

        client = self.client()
        client.async_infer(model, tensors, note, outputs=wanted, parameters=parameters)
        assert done.wait(60), "no answer"
        client.close()
        result, error = answer
        if isinstance(error, Exception):
            raise error
        assert isinstance(result, grpc.InferResult)
        return {output.name: result.as_numpy(output.name) for output in result.get_response().outputs}


@contextmanager
def started(binary: Binary, folder: Path, *extra: str) -> Iterator[Running]:
    """A server that is ready, and stopped at the end even where it was killed and started again meanwhile."""
    running = Running(binary, folder, extra)
    try:
        yield running.start()
    finally:
        running.server.stop(seconds=20)


def stubs(group: int) -> dict[int, str]:
    """The processes that run Python models for a server, and their command lines."""
    found = {}
    for place in Path("/proc").glob("[0-9]*"):
        with suppress(OSError, ValueError, IndexError):
            line = (place / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            if int((place / "stat").read_text().rpartition(")")[2].split()[2]) == group and _STUB in line:
                found[int(place.name)] = line
    return found


def children(pid: int) -> list[int]:
    """The processes that a process has started."""
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


@contextmanager
def serving(folder: Path, *flags: str) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """`vlmsearch triton serve` as a process of its own, ready; its location for a TritonEncoder."""
    check_server_mark()
    ends = free_ports()
    ports = [f"--http-port={ends.http}", f"--grpc-port={ends.grpc}", f"--metrics-port={ends.metrics}"]
    command = [sys.executable, "-m", "vlmsearch", "triton", "serve", str(folder), *ports, *flags]
    environment = os.environ | {"VLMSEARCH_CACHE": str(CACHE)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline().startswith("ready: ")
            yield f"//127.0.0.1:{ends.grpc}/vlm", process
        finally:
            process.terminate()
            process.wait(60)


def column(items: list[bytes]) -> NDArray[np.object_]:
    array = np.empty((len(items), 1), np.object_)
    array[:, 0] = items
    return array


def install_once() -> Binary:
    """The server that the tests share, installed by the first of several processes that need it."""
    before = os.environ.get("VLMSEARCH_CACHE")
    os.environ["VLMSEARCH_CACHE"] = str(CACHE)
    try:
        return ensure_installed(report=print)
    finally:
        if before is None:
            del os.environ["VLMSEARCH_CACHE"]
        else:
            os.environ["VLMSEARCH_CACHE"] = before
