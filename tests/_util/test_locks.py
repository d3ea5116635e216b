"""Lock files where the system has no locks, of forked processes, and in place of other things."""

import errno
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from vlmsearch._util.locks import take_lock

FORKED = """
import os, signal, sys, time
from pathlib import Path
from vlmsearch._util.locks import take_lock
lock = take_lock(Path(sys.argv[1]), wait=False)
child = os.fork()
if not child:
    time.sleep(60)
print(child, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="processes are not forked there")
def test_the_child_of_a_killed_process_does_not_hold_its_lock_on(tmp_path: Path) -> None:
    command = [sys.executable, "-c", FORKED, str(tmp_path / "a.lock")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        parent.wait(60)
        try:
            with take_lock(tmp_path / "a.lock", wait=True):
                pass
        finally:
            os.kill(child, signal.SIGKILL)


@pytest.mark.skipif(sys.platform == "win32", reason="flock is a call of Unix")
@pytest.mark.parametrize("code", [errno.ENOLCK, errno.EOPNOTSUPP])
def test_where_a_drive_has_no_locks_nothing_guards_the_file(
    code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr("fcntl.flock", refuse)
    with take_lock(tmp_path / "a.lock", wait=False), take_lock(tmp_path / "a.lock", wait=False):
        pass


@pytest.mark.skipif(sys.platform == "win32", reason="a path is no pipe there")
def test_what_is_not_a_regular_file_is_not_locked(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "precious")
    for name in ("pipe", "folder", "link"):
        with pytest.raises(OSError, match=f"{name} is not a regular file"):
            take_lock(tmp_path / name, wait=False)
    assert not (tmp_path / "precious").exists()
