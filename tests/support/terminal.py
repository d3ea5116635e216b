"""Commands on a terminal."""

from __future__ import annotations

import os
import pty
import select
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

_SECONDS = 60


def on_a_terminal(
    *arguments: str, until: Sequence[bytes] = (), cwd: Path | None = None, environment: dict[str, str] | None = None
) -> bytes:
    """What ``vlmsearch`` prints there; with ``until`` it gets Ctrl-C once it has printed all of these."""
    master, slave = pty.openpty()
    command = [sys.executable, "-m", "vlmsearch", *arguments]
    printed, end = b"", time.monotonic() + _SECONDS
    with subprocess.Popen(
        command, stdout=slave, stderr=subprocess.PIPE, cwd=cwd, env=os.environ | (environment or {})
    ) as child:
        os.close(slave)
        while time.monotonic() < end and not (until and all(part in printed for part in until)):
            if not select.select([master], [], [], 0.2)[0]:
                continue
            try:
                chunk = os.read(master, 65536)
            except OSError:  # how a terminal ends on Linux
                break
            if not chunk:
                break
            printed += chunk
        if until:
            child.send_signal(signal.SIGINT)
        try:
            child.wait(_SECONDS)
        finally:
            child.kill()
            os.close(master)
    return printed
