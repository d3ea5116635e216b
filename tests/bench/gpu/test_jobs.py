"""Commands side by side, each on one GPU."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pytest

from vlmsearch.bench.gpu.jobs import run_jobs
from vlmsearch.errors import ConfigError

SHOW = "import os; print(os.environ['CUDA_VISIBLE_DEVICES'])"


def silent(text: str) -> None:
    """Report nothing."""


def test_every_gpu_gets_its_share(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    commands = {name: [sys.executable, "-c", f"{SHOW}; import time; time.sleep(0.5)"] for name in "abcd"}
    found = dict(run_jobs(commands, gpus=(0, 2), on_each=2, report=silent))
    assert sorted(outcome.output.strip() for outcome in found.values()) == ["0", "0", "2", "2"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5, 7")
    found = dict(run_jobs({"a": [sys.executable, "-c", SHOW]}, gpus=(1,), report=silent))
    assert found["a"].output.strip() == "7"
    for number in (2, -1):
        with pytest.raises(ConfigError, match=f"there is no GPU {number}: CUDA_VISIBLE_DEVICES is 5, 7"):
            list(run_jobs({"a": [sys.executable, "-c", SHOW]}, gpus=(number,), report=silent))


def test_one_gpu_runs_one_command_at_a_time(tmp_path: Path) -> None:
    code = "import sys, time; p = sys.argv[1]; open(p, 'a').write('<'); time.sleep(0.3); open(p, 'a').write('>')"
    commands = {i: [sys.executable, "-c", code, str(tmp_path / "log")] for i in range(3)}
    assert len(list(run_jobs(commands, report=silent))) == 3
    assert (tmp_path / "log").read_text() == "<><><>"


def test_a_failure_is_told_by_its_last_line() -> None:
    said: list[str] = []
    fails = {
        "loud": [sys.executable, "-c", "import sys; print('out'); sys.exit('first\\nno such engine')"],
        "quiet": [sys.executable, "-c", "import os; os._exit(3)"],
        "much": [sys.executable, "-c", "import sys; sys.stderr.write('x' * 200_000); print('fine')"],
    }
    found = dict(run_jobs(fails, report=said.append))
    assert (found["loud"].failure, found["loud"].output) == ("no such engine", "out\n")
    assert found["quiet"].failure == "it ended with 3 and without a word"
    assert (found["much"].failure, found["much"].output) == ("", "fine\n")
    assert "loud: no such engine" in said


def test_what_takes_too_long_is_killed(tmp_path: Path) -> None:
    code = f"import os, time; open({str(tmp_path / 'pid')!r}, 'w').write(str(os.getpid())); time.sleep(60)"
    begun = time.monotonic()
    found = dict(run_jobs({n: [sys.executable, "-c", code] for n in ("runs", "waits")}, seconds=2, report=silent))
    assert time.monotonic() - begun < 30
    assert {outcome.failure for outcome in found.values()} == {"there was no time left"}
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)


def test_nothing_runs_on_once_nobody_asks(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    write = f"import os, time; open({str(pid)!r}, 'w').write(str(os.getpid())); time.sleep(60)"
    wait = f"import os, time\nwhile not os.path.exists({str(pid)!r}): time.sleep(0.05)"
    slow, quick = [sys.executable, "-c", write], [sys.executable, "-c", wait]
    outcomes = run_jobs({"slow": slow, "quick": quick}, on_each=2, report=silent)
    assert next(outcomes)[0] == "quick"
    outcomes.close()  # type: ignore[attr-defined]
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid.read_text()), 0)
