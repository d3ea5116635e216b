"""Jobs: long work in threads, with progress and cancellation. Jobs are kept in memory."""

from __future__ import annotations

import logging
import threading
import uuid
from collections import Counter, deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import TypeAlias

from vlmsearch._util.cancellation import CancelToken, running_under
from vlmsearch._util.closable import Closable
from vlmsearch.errors import OperationCancelledError
from vlmsearch.server.errors import ApiError, api_error, error_of
from vlmsearch.wire import JobAnswer, JobState

Work: TypeAlias = "Callable[[Job], object]"
"""A function that does a job and returns its result. It calls `Job.advance` on the way."""
_log = logging.getLogger(__name__)
_AT_A_TIME = 2
_PLACES = 10
"""Maximum number of jobs of a token that run or wait."""
_STREAMS = 20
"""Maximum number of clients with one token that follow a job."""
_KEPT = 50
"""Maximum number of jobs of a token that are remembered after their end."""


@dataclass(eq=False)
class Job:
    """One piece of long work.

    Attributes:
        id: Id.
        kind: Kind of the work.
        index: Name of the index.
        owner: SHA-256 of the token that started it; "" without tokens.
        paths: Paths that it indexes; None for another kind of job.
        scopes: Sets of principals that it runs under; see `vlmsearch.server.caller.Caller`.
        state: State.
        done: Number of inputs that are done.
        total: Number of inputs; None if unknown.
        result: Result of a job that is done.
        error: Error of a job that failed.
        created: Time when it was accepted.
        ended: Time when it ended.
        token: Token that cancels it.
        listeners: Functions that are called after each change, from any thread.
    """

    id: str
    kind: str
    index: str
    owner: str
    paths: tuple[str, ...] | None
    scopes: tuple[frozenset[str], ...] = ()
    state: JobState = "queued"
    done: int = 0
    total: int | None = None
    result: object = None
    error: ApiError | None = None
    created: datetime = field(default_factory=lambda: datetime.now(timezone.utc))
    ended: datetime | None = None
    token: CancelToken = field(default_factory=CancelToken)
    listeners: set[Callable[[], None]] = field(default_factory=set)

    @property
    def is_over(self) -> bool:
        """Return whether the job has ended."""
        return self.ended is not None

    def advance(self, done: int) -> None:
        """Note the progress; OperationCancelledError if the job was cancelled."""
        self.done = done
        self.total = self.total and max(self.total, done)  # files of several documents give more than one
        self.notify()
        self.token.check()

    def notify(self) -> None:
        """Call the listeners."""
        for listener in tuple(self.listeners):
            listener()

    def answer(self, *, has_result: bool = True) -> JobAnswer:
        """Return the job as it is answered."""
        return JobAnswer(
            self.id,
            self.kind,
            self.index,
            self.state,
            self.done,
            self.total,
            created=self.created.isoformat(timespec="seconds"),
            ended=self.ended.isoformat(timespec="seconds") if self.ended else None,
            paths=self.paths,
            result=self.result if has_result else None,
            error=error_of(self.error).error if self.error else None,
        )


class Jobs(Closable):
    """The jobs of a service. Two run at a time, indexes take turns, and the last jobs of each token are remembered."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._jobs: dict[str, Job] = {}
        self._waiting: dict[str, deque[tuple[Job, Work]]] = {}
        """Waiting jobs by index, in the order of their turns."""
        self._running: Counter[str] = Counter()
        self._streams: Counter[str] = Counter()
        self._threads = ThreadPoolExecutor(_AT_A_TIME, thread_name_prefix="vlmsearch-job")
        self._is_closed = False

    def start(
        self,
        kind: str,
        index: str,
        owner: str,
        work: Work,
        paths: tuple[str, ...] | None,
        scopes: tuple[frozenset[str], ...] = (),
    ) -> Job:
        """Accept a job.

        Args:
            kind: Kind of the work.
            index: Name of the index.
            owner: SHA-256 of the token that starts it.
            work: Function that does the work.
            paths: Paths that it indexes; None for another kind of job.
            scopes: Sets of principals that it runs under.

        Returns:
            The job, which waits for its turn.

        Raises:
            ApiError: The token has too many jobs, or the server is stopping.
        """
        with self._lock:
            if self._is_closed:
                raise ApiError(503, "shutting_down", "the server is stopping: start the job again later", retry_after=5)
            own = [job for job in self._jobs.values() if job.owner == owner]
            over = [job for job in own if job.is_over]
            if len(own) - len(over) >= _PLACES:
                message = (
                    f"{_PLACES} jobs of this token run or wait, and more are not accepted: try again when one is done"
                )
                raise ApiError(429, "overloaded", message, retry_after=30)
            for job in over[: max(0, len(over) - _KEPT)]:
                del self._jobs[job.id]
            job = Job(uuid.uuid4().hex, kind, index, owner, paths, scopes)
            self._jobs[job.id] = job
            self._waiting.setdefault(index, deque()).append((job, work))
            self._threads.submit(self._run_next)
        return job

    @contextmanager
    def following(self, owner: str) -> Iterator[None]:
        """Count a client that follows a job, as long as the ``with`` block lasts.

        Args:
            owner: SHA-256 of its token.

        Raises:
            ApiError: Too many clients with that token follow a job.
        """
        if self._streams[owner] >= _STREAMS:
            message = f"{_STREAMS} clients with this token follow a job, and more are not accepted: close one"
            raise ApiError(429, "overloaded", message, retry_after=30)
        self._streams[owner] += 1
        try:
            yield
        finally:
            self._streams[owner] -= 1

    def get(self, id: str) -> Job | None:
        """Return a job; None if it does not exist."""
        return self._jobs.get(id)

    def all(self) -> list[Job]:
        """Return all jobs, the newest first."""
        with self._lock:
            return list(self._jobs.values())[::-1]

    def cancel_all(self) -> None:
        """Cancel all jobs, and accept no more."""
        self._is_closed = True
        for job in list(self._jobs.values()):
            job.token.cancel()
            job.notify()

    def close(self) -> None:
        """Cancel all jobs, and wait for their ends."""
        self.cancel_all()
        self._threads.shutdown()

    def _run_next(self) -> None:
        """Run a job of the index with the fewest running jobs.

        Among several such indexes, it is the one whose turn it is.
        """
        with self._lock:
            index = min(self._waiting, key=self._running.__getitem__)
            queue = self._waiting.pop(index)
            job, work = queue.popleft()
            if queue:
                self._waiting[index] = queue
            self._running[index] += 1
        self._run(job, work)
        with self._lock:
            self._running[index] -= 1

    def _run(self, job: Job, work: Work) -> None:
        state: JobState = "done"
        try:
            job.token.check()
            job.state = "running"
            job.notify()
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
        job.notify()
