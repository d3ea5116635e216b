"""Long work: it runs in threads of its own, says how far it is, and can be cancelled. It is kept in memory alone."""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Literal, TypeAlias

from vlmsearch._util.cancellation import CancelToken, running_under
from vlmsearch._util.closable import Closable
from vlmsearch.errors import OperationCancelledError
from vlmsearch.server.caller import Right
from vlmsearch.server.errors import ApiError, api_error, error_json
from vlmsearch.wire import Json

State = Literal["queued", "running", "done", "failed", "cancelled"]
Work: TypeAlias = "Callable[[Job], Json]"
"""Does a job and returns its result; it calls `Job.advance` on the way."""
_log = logging.getLogger(__name__)
_AT_A_TIME = 2
_MOST_WAITING = 100
_KEPT = 200
"""Jobs that are remembered after their end."""


@dataclass(eq=False)
class Job:
    """One piece of long work.

    Attributes:
        id: Names it.
        kind: What it does.
        index: The name of the index.
        right: What a caller needs to cancel it.
        details: What else is shown of it.
        state: How it is.
        done: How far it is.
        total: How far it has to go; None where that is not known.
        result: What came of it.
        error: Why it failed.
        created: When it was accepted.
        ended: When it was over.
        token: What cancels it.
    """

    id: str
    kind: str
    index: str
    right: Right
    details: Mapping[str, object]
    state: State = "queued"
    done: int = 0
    total: int | None = None
    result: Json | None = None
    error: ApiError | None = None
    created: datetime = field(default_factory=lambda: datetime.now(timezone.utc))
    ended: datetime | None = None
    token: CancelToken = field(default_factory=CancelToken)

    @property
    def is_over(self) -> bool:
        """Whether nothing changes any more."""
        return self.ended is not None

    def advance(self, done: int) -> None:
        """Note how far it is; OperationCancelledError where it was cancelled."""
        self.done = done
        self.total = self.total and max(self.total, done)  # files of several documents give more than one
        self.token.check()

    def json(self) -> Json:
        """Return its form."""
        form: Json = {
            "id": self.id,
            "kind": self.kind,
            "index": self.index,
            "state": self.state,
            "done": self.done,
            "total": self.total,
            "created": self.created.isoformat(timespec="seconds"),
            "ended": self.ended and self.ended.isoformat(timespec="seconds"),
            **self.details,
        }
        if self.result is not None:
            form["result"] = self.result
        if self.error is not None:
            form |= error_json(self.error, None)
        return form


class Jobs(Closable):
    """Run jobs, two at a time, and remember the last 200."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._jobs: dict[str, Job] = {}
        self._threads = ThreadPoolExecutor(_AT_A_TIME, thread_name_prefix="vlmsearch-job")
        self._is_closed = False

    def start(self, kind: str, index: str, right: Right, work: Work, details: Mapping[str, object]) -> Job:
        """Accept a job.

        Args:
            kind: What it does.
            index: The name of the index.
            right: What a caller needs to cancel it.
            work: Does it.
            details: What else is shown of it.

        Returns:
            The job, which waits for its turn.

        Raises:
            ApiError: Too many wait, or the server is stopping.
        """
        with self._lock:
            if self._is_closed:
                raise ApiError(503, "shutting_down", "the server is stopping: start the job again later", retry_after=5)
            if sum(job.state == "queued" for job in self._jobs.values()) >= _MOST_WAITING:
                message = f"{_MOST_WAITING} jobs are waiting: try again when some are done"
                raise ApiError(429, "overloaded", message, retry_after=30)
            job = Job(uuid.uuid4().hex, kind, index, right, details)
            self._jobs[job.id] = job
            over = [each.id for each in self._jobs.values() if each.is_over]
            for id in over[: max(0, len(over) - _KEPT)]:
                del self._jobs[id]
            self._threads.submit(self._run, job, work)
        return job

    def get(self, id: str) -> Job | None:
        """Return a job, or None where there is no such."""
        return self._jobs.get(id)

    def all(self) -> list[Job]:
        """Return all jobs, the newest first."""
        with self._lock:
            return list(self._jobs.values())[::-1]

    def cancel_all(self) -> None:
        """Cancel what is not over, and accept nothing more."""
        self._is_closed = True
        for job in list(self._jobs.values()):
            job.token.cancel()

    def close(self) -> None:
        """Cancel what is not over, and wait until it has ended."""
        self.cancel_all()
        self._threads.shutdown()

    def _run(self, job: Job, work: Work) -> None:
        state: State = "done"
        try:
            job.token.check()
            job.state = "running"
            with running_under(job.token):
                job.result = work(job)
        except OperationCancelledError:
            state = "cancelled"
        except Exception as exc:  # noqa: BLE001 - whoever follows the job is told
            job.error = api_error(exc)
            if job.error.status == 500:
                _log.error("job %s failed", job.id, exc_info=exc)
            state = "failed"
        job.state = state
        job.ended = datetime.now(timezone.utc)
