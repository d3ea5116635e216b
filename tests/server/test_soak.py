"""Ten minutes of everything at once: nothing fails, and the service has no more memory, threads or files at the end."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import httpx
import psutil
import pytest

from tests.support.mixed_requests import MixedClient
from tests.support.openai_server import OpenAIServer, Script
from tests.support.servers import free_port, running

CLIENTS = 2
SECONDS = 600
WARM_UP = 0.3
"""The share of the time after which memory does not grow: caches, pools and the last 200 jobs are full by then."""
PAUSE = 0.02
GROWTH_MIB = 15.0
"""What the cache of small images grows by, and what malloc keeps of freed memory where two arenas share it."""


@dataclass(frozen=True)
class Use:
    """What a process has of the machine."""

    mib: float
    threads: int
    files: int


def use_of(pid: int) -> Use:
    process = psutil.Process(pid)
    return Use(process.memory_info().rss / 2**20, process.num_threads(), process.num_fds())


def wait_until_ready(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    for _ in range(600):
        with suppress(httpx.HTTPError):
            if httpx.get(f"{url}/readyz").is_success:
                return
        assert process.poll() is None, log.read_text()
        time.sleep(0.1)
    pytest.fail(log.read_text())


@pytest.mark.exhaustive
@pytest.mark.timeout(SECONDS + 120)
@pytest.mark.parametrize("encoder", ["onnx:demo"])
def test_the_memory_of_a_service_does_not_grow(tmp_path: Path, encoder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MALLOC_ARENA_MAX", "2")  # as in the image of the production set
    port, log = free_port(), tmp_path / "log"
    url = f"http://127.0.0.1:{port}"
    with OpenAIServer(Script(reply="It shows a dog [1]. " * 20, delay=0.005)) as llm:
        command = [sys.executable, "-m", "vlmsearch", "serve", "--port", str(port), "--encoder", encoder]
        command += ["--store", f"sqlite:{tmp_path / 'index'}", "--uploads", str(tmp_path / "uploads")]
        command += ["--generator", f"openai:{llm.url}?model=tiny"]
        with running(command, log) as process, ThreadPoolExecutor(CLIENTS) as threads:
            wait_until_ready(url, process, log)
            begun = time.monotonic()
            until = begun + SECONDS
            clients = [threads.submit(MixedClient(url, each).work, until, PAUSE) for each in range(CLIENTS)]
            uses: list[Use] = []
            while time.monotonic() < until and not any(each.done() for each in clients):
                time.sleep(SECONDS / 60)
                llm.script.requests.clear()
                llm.script.headers.clear()
                uses.append(use_of(process.pid))
                print(f"{time.monotonic() - begun:5.0f} s", uses[-1], flush=True)
            done = sum((each.result(120) for each in clients), Counter())
            print(dict(done))
            time.sleep(2)  # for what was given up
            uses.append(use_of(process.pid))
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 0
    assert "Traceback" not in log.read_text()
    assert len(done) == 15
    warm, last = uses[int(WARM_UP * len(uses))], uses[-1]
    print(f"{done.total()} requests; after {WARM_UP:.0%} of the time {warm}, at the end {last}")
    assert last.mib - warm.mib <= GROWTH_MIB
    assert last.files <= warm.files + 10
