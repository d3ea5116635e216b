"""Threads of what has been closed."""

import threading
import time

import pytest

from vlmsearch._util.threads import Workers
from vlmsearch.errors import BackendError


def test_work_that_runs_ends_and_other_work_is_refused_once_closed() -> None:
    workers, go, begun = Workers(1, name="some", owner="the engine"), threading.Event(), threading.Event()

    def work() -> str:
        begun.set()
        go.wait(60)
        return "done"

    running, waiting = workers.submit(work), workers.submit(work)
    assert begun.wait(60)
    workers.close()
    go.set()
    assert running.result(60) == "done"
    with pytest.raises(BackendError, match=r"^the engine is closed$"):
        waiting.result(60)
    with pytest.raises(BackendError, match=r"^the engine is closed$"):
        workers.submit(work)
    workers.close()


def test_results_come_in_order_and_what_waits_is_given_up_after_an_error() -> None:
    workers, begun = Workers(1, name="some", owner="the engine"), list[int]()

    def work(item: int) -> int:
        begun.append(item)
        time.sleep(0.001)  # so that the error is met before all are done
        return 6 // item

    assert list(workers.results([3, 2, 1], work)) == [2, 3, 6]
    assert list(workers.results([], work)) == []
    begun.clear()
    with pytest.raises(ZeroDivisionError):
        list(workers.results([1, 0, *range(1, 1000)], work))
    assert len(begun) < 1000
    assert list(workers.results([1], lambda _: threading.get_ident())) == [threading.get_ident()]


def test_an_error_of_the_work_is_its_own() -> None:
    workers = Workers(1, name="some", owner="the engine")
    with pytest.raises(ValueError, match="invalid literal"):
        workers.submit(int, "x").result(60)
    assert workers.submit(int, "11", base=2).result(60) == 3
    workers.close()


def test_a_thread_that_cannot_be_started_is_no_closed_owner(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    workers = Workers(1, name="some", owner="the engine")
    monkeypatch.setattr(threading.Thread, "start", refuse)
    with pytest.raises(BackendError, match=r"^the engine can do no work: can't start new thread$"):
        workers.submit(int)
    workers.close()
    with pytest.raises(BackendError, match=r"^the engine is closed$"):
        workers.submit(int)
