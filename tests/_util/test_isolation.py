import os
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest

from vlmsearch._util import isolation
from vlmsearch._util.cancellation import CancelToken, running_under
from vlmsearch._util.isolation import ProcessLimits, call, stream
from vlmsearch.errors import InvalidInputError, OperationCancelledError

LIMITS = ProcessLimits(memory_bytes=2**29, cpu_seconds=30, seconds=300)
HERE = "tests.support.isolated_functions"


def rejection(function: str, value: object = None, limits: ProcessLimits = LIMITS) -> InvalidInputError:
    with pytest.raises(InvalidInputError) as caught:
        call(f"{HERE}:{function}", value, limits, name="'a.pdf'")
    return caught.value


def is_running(pid: int) -> bool:
    """Return whether a thread of a process runs: its first may have ended before the others."""
    for thread in Path(f"/proc/{pid}/task").glob("*/status"):
        with suppress(OSError):
            if "zombie" not in thread.read_text(encoding="utf-8"):
                return True
    return False


def wait_for_end(pid: int) -> None:
    until = time.monotonic() + 120
    while is_running(pid):
        assert time.monotonic() < until, f"process {pid} goes on"
        time.sleep(0.05)


def pid_of_a_child() -> int:
    value, _ = call(f"{HERE}:echo", None, LIMITS, name="x")
    assert isinstance(value, dict)
    return int(value["pid"])


def test_values_and_bytes_come_back_from_another_process_that_is_used_again() -> None:
    isolation._POOL.close()  # a child that other tests used may keep more than these limits let it
    value, data = call(f"{HERE}:echo", {"a": [1, "\udcff"]}, LIMITS, name="x", data=[b"one", b"", bytes(2**20)])
    assert isinstance(value, dict)
    assert value["value"] == {"a": [1, "\udcff"]}
    assert data == [b"one", b"", bytes(2**20)]
    assert value["pid"] == pid_of_a_child() != os.getpid()


def test_results_are_streamed() -> None:
    assert [value for value, _ in stream(f"{HERE}:count", 1000, LIMITS, name="x")] == list(range(1000))


def test_lack_of_memory_is_the_error_of_one_call() -> None:
    error = rejection("allocate", 2**30)
    assert (error.code, str(error)) == ("too_large", "'a.pdf' takes more than 536,870,912 bytes to read")
    assert call(f"{HERE}:allocate", 2**27, LIMITS, name="x")[0] == 2**27


def test_a_death_is_the_error_of_one_call_and_the_child_is_replaced() -> None:
    before = pid_of_a_child()
    error = rejection("crash")
    assert error.code == "corrupt"
    assert "SIGABRT" in str(error)
    assert pid_of_a_child() != before


def test_a_function_that_ends_its_process_is_the_error_of_one_call() -> None:
    error = rejection("leave", 3)
    assert (error.code, "status 3" in str(error)) == ("corrupt", True)
    error = rejection("kill")
    assert (error.code, "was killed" in str(error)) == ("unreadable", True)
    error = rejection("answer", 2**31)
    assert (error.code, "gives 2,147," in str(error)) == ("too_large", True)


def test_a_child_has_the_environment_of_now(monkeypatch: pytest.MonkeyPatch) -> None:
    first = pid_of_a_child()
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    assert first != pid_of_a_child() == pid_of_a_child()
    monkeypatch.setenv("PYTEST_CURRENT_TEST", "another")
    value, _ = call(f"{HERE}:environment", "AWS_ENDPOINT_URL", LIMITS, name="x")
    assert value == "http://127.0.0.1:9"


def test_an_idle_child_that_was_killed_is_replaced() -> None:
    before = pid_of_a_child()
    os.kill(before, 9)
    wait_for_end(before)
    assert pid_of_a_child() != before


@pytest.mark.slow
@pytest.mark.parametrize(("function", "limit"), [("spin", "cpu_seconds"), ("sleep", "seconds")])
def test_what_takes_too_long_is_ended(function: str, limit: str) -> None:
    limits = {"memory_bytes": 2**29, "cpu_seconds": 30, "seconds": 300, limit: 1}
    error = rejection(function, 60, ProcessLimits(**limits))
    assert error.code == "timeout"
    assert "'a.pdf' took more than 1 seconds" in str(error)


def test_each_result_has_the_whole_time() -> None:
    limits = ProcessLimits(2**29, 2, 300)
    for _ in range(3):
        assert call(f"{HERE}:spin", 0.9, limits, name="x")[0] == 1


def test_errors_keep_their_class_their_code_and_their_cause() -> None:
    error = rejection("reject")
    assert (error.code, str(error)) == ("empty", "it has nothing")
    assert "KeyError('inner')" in str(error.__cause__)
    assert (rejection("nest", 0).code, str(rejection("nest", 0))) == ("corrupt", "'a.pdf' is nested too deeply")
    with pytest.raises(FileNotFoundError, match="No such file"):
        call(f"{HERE}:fail", None, LIMITS, name="x")


def test_signals_and_prints_are_no_answers() -> None:
    assert call(f"{HERE}:read_sent_interrupt", None, LIMITS, name="x")[0] == 1


def test_cancelling_ends_a_call_and_its_process_at_once() -> None:
    token, pids = CancelToken(), list[int]()
    with running_under(token), pytest.raises(OperationCancelledError):  # noqa: PT012
        for value, _ in stream(f"{HERE}:sleep", 600, ProcessLimits(2**29, 600, 600), name="x"):
            pids.append(int(str(value)))
            threading.Timer(0.2, token.cancel).start()
    wait_for_end(pids[0])


def test_giving_a_stream_up_ends_its_process() -> None:
    results = stream(f"{HERE}:sleep", 600, LIMITS, name="x")
    pid = int(str(next(results)[0]))
    results.close()  # type: ignore[attr-defined]
    wait_for_end(pid)


@pytest.mark.parametrize("kill", ["SIGKILL", "SIGTERM"])
def test_children_end_with_their_parent_also_while_they_work(kill: str) -> None:
    program = (
        "from vlmsearch._util.isolation import *\n"
        f"for value, _ in stream('{HERE}:sleep', 600, ProcessLimits(2**29, 600, 600), name='x'):\n"
        "    print(value, flush=True)\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    parent.send_signal({"SIGKILL": 9, "SIGTERM": 15}[kill])
    parent.wait(120)
    parent.stdout.close()
    wait_for_end(child)


def test_nothing_that_lies_in_the_callers_folder_is_imported(tmp_path: Path) -> None:
    for name in ("numpy", "json", "queue", "vlmsearch"):
        (tmp_path / f"{name}.py").write_text("import os; os._exit(77)")
    root = str(Path(__file__).parents[2])
    program = (
        "import sys, os\n"
        f"sys.path.insert(0, {root!r})\n"
        "from vlmsearch._util.isolation import *\n"
        "os.chdir(sys.argv[1])\n"
        f"print(call('{HERE}:allocate', 5, ProcessLimits(2**29, 60, 60), name='x')[0])\n"
    )
    done = subprocess.run([sys.executable, "-c", program, str(tmp_path)], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "5", done.stderr


def test_a_fork_gets_children_of_its_own() -> None:
    before = pid_of_a_child()
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(writing, str(pid_of_a_child()).encode())
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    assert int(os.read(reading, 20)) != before
    assert pid_of_a_child() == before
