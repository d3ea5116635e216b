"""The steps of a build, as they are shown."""

from __future__ import annotations

import os
import pty
from contextlib import suppress
from typing import Any

import pytest

from vlmsearch.building.progress import steps

REFUSAL = "no implementation for {ForeignNode[/image/embed...]} [optimizer.cpp::computeCosts::3873]"


def test_steps_in_a_pipe_are_whole_lines_with_what_was_said(capsys: pytest.CaptureFixture[str]) -> None:
    with steps("clip") as report:
        report("image: building fp16", 0, 1)
        report(REFUSAL, 1, 1)
        report(REFUSAL, 1, 1)
    assert capsys.readouterr().err.splitlines() == ["clip: image: building fp16", f"clip: {REFUSAL}"]


def test_steps_on_a_terminal_show_brackets_as_they_are(monkeypatch: Any) -> None:
    reader, writer = pty.openpty()
    monkeypatch.setenv("COLUMNS", "160")
    with os.fdopen(writer, "w") as terminal:
        monkeypatch.setattr("sys.stderr", terminal)
        with steps("clip") as report:
            report(REFUSAL, 0, 1)
    shown = b""
    with suppress(OSError):  # how a terminal ends on Linux
        while chunk := os.read(reader, 65536):
            shown += chunk
    os.close(reader)
    assert REFUSAL in shown.decode()
