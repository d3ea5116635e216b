"""``vlmsearch demo``: what it says at its end works."""

from __future__ import annotations

import shlex
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest

from tests.support.cli import ok
from tests.support.service import free_socket


@pytest.mark.slow
def test_it_ends_with_the_command_that_serves_what_it_indexed(tmp_path: Path) -> None:
    said = ok("demo", "--scenes", "10", cwd=tmp_path).splitlines()[-1]
    assert "http://127.0.0.1:8080" in said
    program, *arguments = shlex.split(said.partition("8080: ")[2])
    assert program == "vlmsearch"
    with free_socket() as taken:
        port = taken.getsockname()[1]
    command = [sys.executable, "-m", "vlmsearch", *arguments, "--port", str(port)]
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as served:
        try:
            url = f"http://127.0.0.1:{port}"
            deadline = time.monotonic() + 60
            while True:
                try:
                    page = httpx.get(url)
                    break
                except httpx.TransportError:
                    assert served.poll() is None, served.stderr.read()  # type: ignore[union-attr]
                    assert time.monotonic() < deadline
                    time.sleep(0.1)
            assert "page/app.js" in page.text
            assert httpx.get(f"{url}/api/v1/indexes").json()["indexes"][0]["documents"] == 10
        finally:
            served.terminate()
