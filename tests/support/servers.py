"""Real servers for tests, started on free ports and stopped at the end."""

import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx
import pytest

from tests.support.once import once
from tests.support.parts import check_server_mark

START_SECONDS = 240


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@contextmanager
def running(command: list[str], log: Path) -> Iterator["subprocess.Popen[bytes]"]:
    """A process that is asked to end at the end, and killed if it does not."""
    check_server_mark()
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
        try:
            yield process
        finally:
            process.terminate()
            with suppress(subprocess.TimeoutExpired):
                process.wait(10)
            process.kill()
            process.wait()


def chroma_command(folder: Path, address: str) -> list[str]:
    """What runs a Chroma server at an address."""
    program = shutil.which("chroma", path=str(Path(sys.executable).parent)) or "chroma"
    return [program, "run", "--path", str(folder / "data"), "--host", "127.0.0.1", "--port", address.split(":")[1]]


@contextmanager
def chroma_server(folder: Path, address: str = "") -> Iterator[str]:
    """The address, ``127.0.0.1:PORT``, of a Chroma server that keeps its data in ``folder``."""
    address = address or f"127.0.0.1:{free_port()}"
    log = folder / "chroma.log"
    with running(chroma_command(folder, address), log) as process:
        for _ in range(START_SECONDS * 10):
            with suppress(httpx.HTTPError):
                if httpx.get(f"http://{address}/api/v2/heartbeat", timeout=5).is_success:
                    break
            assert process.poll() is None, log.read_text()
            time.sleep(0.1)
        else:
            pytest.fail(f"Chroma did not start: {log.read_text()}")
        yield address


@pytest.fixture(scope="session")
def chroma_address(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A Chroma server for the whole session."""
    return once(chroma_server, tmp_path_factory)
