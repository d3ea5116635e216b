"""Processes that search for a service, so that several searches rank at once.

One process has all else: requests, jobs, sessions, limits, uploads and metrics. So none of these has to be shared.
Before it opens a model or starts a thread, it reads the arrays of its indexes and forks the *nursery*. This forks the
processes that search, and others in the place of those that end. They have the arrays in the same memory, as nobody
writes to it. Each opens the models for itself, and reads for itself what is written to an index later.
"""

from __future__ import annotations

import gc
import itertools
import multiprocessing
import os
import queue
import signal
import socket
import sys
import threading
import traceback
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import CancelledError, Future
from contextlib import AbstractContextManager, suppress
from functools import partial
from multiprocessing.connection import Connection
from typing import Any, TypeAlias

from typing_extensions import override

from vlmsearch._util.cancellation import CancelToken, check_cancelled, on_cancel, running_under
from vlmsearch._util.closable import Closable
from vlmsearch._util.tracing import StageTiming, listen, operation, tell, trace_headers
from vlmsearch.errors import (
    BackendError,
    BackendUnavailableError,
    ConfigError,
    OperationCancelledError,
    VlmsearchError,
    one_line,
)
from vlmsearch.pipeline import Pipeline, RestrictedPipeline
from vlmsearch.registry import open_store
from vlmsearch.rerankers.base import Reranker
from vlmsearch.search.options import SearchOptions
from vlmsearch.search.query import Query
from vlmsearch.server.logs import REQUEST_ID
from vlmsearch.server.settings import ServerSettings
from vlmsearch.stores.filters import Filter
from vlmsearch.stores.overview import Preloads
from vlmsearch.types import Matches

Opening: TypeAlias = Callable[[ServerSettings], AbstractContextManager[Mapping[str, Pipeline]]]
"""A function that opens the pipelines of a process, by the names of the indexes."""
_ATTEMPTS = 3
"""Processes that a search is given to: where one ends, it is hardly the fault of the search."""


class Searchers(Closable):
    """Processes that search, each one search at a time.

    They are made before threads and models, which a forked process would not have.

    Args:
        settings: Settings of the operator: ``workers`` is the number of the processes.
        opening: Function that opens the pipelines in each of them.

    Raises:
        ConfigError: This system cannot share memory by forking.
        BackendError: A store cannot be read.
    """

    def __init__(self, settings: ServerSettings, opening: Opening) -> None:
        if sys.platform != "linux":
            raise ConfigError(f"`workers={settings.workers}` needs Linux: start several services behind a proxy")
        for index in settings.indexes.values():
            with open_store(index.store) as store:
                if isinstance(store, Preloads):
                    store.preload()
        self._count = settings.workers
        self._idle: list[_Searcher] = []
        self._waiting: deque[Future[_Searcher]] = deque()
        self._guard = threading.Lock()
        self._orders, orders = socket.socketpair()
        gc.freeze()  # a collection writes to all that it looks at
        with orders:
            args = self._orders, orders, settings, opening
            self._nursery = multiprocessing.get_context("fork").Process(target=_nurse, args=args)
            self._nursery.start()

    def start(self) -> None:
        """Start the processes, and wait until they can search. What their models need is there by now.

        Raises:
            BackendError: One of them cannot open what it needs.
        """
        self._idle = [_Searcher(self._order) for _ in range(self._count)]
        try:
            for searcher in self._idle:
                searcher.wait()
        except EOFError:
            raise BackendError("a process that searches ended before it could search") from None

    def search(
        self, index: str, scope: Filter | None, queries: Sequence[Query], options: SearchOptions
    ) -> list[Matches] | None:
        """Return the matches of each query.

        Args:
            index: Name of the index.
            scope: Filter of the documents that there are for the caller; None for all.
            queries: The queries.
            options: Options of all of them, without an open re-ranker.

        Returns:
            The matches; None where another process finds no index.

        Raises:
            BackendUnavailableError: The processes end, one after the other.
        """
        searcher = self._take()
        try:
            return searcher.search(index, scope, queries, options)
        finally:
            self._give(searcher)

    def _take(self) -> _Searcher:
        turn: Future[_Searcher] = Future()
        with self._guard:
            if self._idle:
                return self._idle.pop()
            self._waiting.append(turn)
        with on_cancel(turn.cancel), suppress(CancelledError):
            return turn.result()
        raise OperationCancelledError("it was cancelled while it waited for a process that searches")

    def _give(self, searcher: _Searcher) -> None:
        with self._guard:
            while self._waiting:
                turn = self._waiting.popleft()
                if turn.set_running_or_notify_cancel():
                    turn.set_result(searcher)
                    return
            self._idle.append(searcher)

    def _order(self) -> Connection:
        """Have another process started. It says for itself when it can search."""
        here, there = socket.socketpair()
        try:
            with there, self._guard:
                socket.send_fds(self._orders, [b"+"], [there.fileno()])
        except OSError as exc:
            here.close()
            raise BackendUnavailableError("no process can be started that searches: start the service again") from exc
        return Connection(here.detach())

    def close(self) -> None:
        """End the processes: each ends when nobody can ask it any more."""
        self._orders.close()
        for searcher in self._idle:
            searcher.close()
        self._nursery.join()


class _Searcher:
    """A process that searches, as the service sees it. Another one takes its place where it ends."""

    def __init__(self, order: Callable[[], Connection]) -> None:
        self._order, self._sending, self._numbers = order, threading.Lock(), itertools.count()
        self._connection, self._has_started = order(), False

    def wait(self) -> None:
        """Wait until it can search; BackendError where it cannot open what it needs."""
        if not self._has_started:
            if said := self._connection.recv():
                raise BackendError(f"a process that searches did not start: {said}")
            self._has_started = True

    def search(self, *call: object) -> list[Matches] | None:
        """Return what `Searchers.search` does."""
        for _ in range(_ATTEMPTS):
            try:
                result, stages = self._ask((REQUEST_ID.get(), trace_headers(), *call))
                break
            except (OSError, EOFError):  # it ended, now or before
                self.close()
                check_cancelled()
                self._connection, self._has_started = self._order(), False
        else:
            raise BackendUnavailableError(f"{_ATTEMPTS} processes ended in the middle of this search")
        tell(stages)
        if isinstance(result, BaseException):
            raise result
        matches: list[Matches] | None = result
        return matches

    def _ask(self, call: object) -> Any:
        self.wait()
        number = next(self._numbers)
        self._send(number, call)
        with on_cancel(partial(self._give_up, number)):
            return self._connection.recv()

    def _give_up(self, number: int) -> None:
        with suppress(OSError):  # it ended
            self._send(number, None)

    def _send(self, number: int, call: object) -> None:
        """Send a call, or with None that the one of this number was given up."""
        with self._sending:
            self._connection.send((number, call))

    def close(self) -> None:
        """End the process."""
        self._connection.close()


class _Spread(Pipeline):
    """A part of a pipeline whose searches run in other processes."""

    _searchers: Searchers
    _name: str
    _within: Filter | None = None

    @override
    def _search(self, queries: Sequence[Query], options: SearchOptions) -> list[Matches]:
        is_open_here = isinstance(options.rerank, Reranker)
        matches = None if is_open_here else self._searchers.search(self._name, self._within, queries, options)
        # an index in the memory of a process is this one's alone
        return super()._search(queries, options) if matches is None else matches


class SpreadPipeline(_Spread):
    """A pipeline whose searches run in other processes.

    Args:
        searchers: The processes.
        name: Name of its index there.
        pipeline: The pipeline of the index in this process, which does all else.
    """

    def __init__(self, searchers: Searchers, name: str, pipeline: Pipeline) -> None:
        super().__init__(
            pipeline.encoder,
            pipeline.store,
            pipeline.generator,
            reranker=pipeline.reranker,
            image_limits=pipeline.image_limits,
        )
        self._searchers, self._name = searchers, name

    @override
    def _new_handle(self, scope: Filter) -> RestrictedPipeline:
        return _SpreadHandle(self, scope)


class _SpreadHandle(_Spread, RestrictedPipeline):
    """A restricted handle whose searches run in other processes."""

    def __init__(self, whole: SpreadPipeline, scope: Filter) -> None:
        super().__init__(whole, scope)
        self._searchers, self._name, self._within = whole._searchers, whole._name, scope  # noqa: SLF001


# ---- in the other processes


def _nurse(service: socket.socket, orders: socket.socket, settings: ServerSettings, opening: Opening) -> None:
    """Fork a process for each order, until the service is gone."""
    service.close()
    for number in (signal.SIGINT, signal.SIGTERM):  # the service ends its processes when it has finished
        signal.signal(number, signal.SIG_IGN)
    fork = multiprocessing.get_context("fork")
    while descriptors := socket.recv_fds(orders, 1, 1)[1]:
        with Connection(descriptors[0]) as connection:
            fork.Process(target=_work, args=(orders, connection, settings, opening)).start()


def _work(orders: socket.socket, service: Connection, settings: ServerSettings, opening: Opening) -> None:
    """Search for the service, until it is gone."""
    orders.close()
    calls: queue.SimpleQueue[tuple[CancelToken, Any]] = queue.SimpleQueue()
    threading.Thread(target=_read, args=(service, calls), daemon=True).start()
    try:
        with opening(settings) as pipelines:
            service.send("")
            while True:
                service.send(_answer(pipelines, *calls.get()))
    except VlmsearchError as exc:
        service.send(one_line(exc))


def _read(service: Connection, calls: queue.SimpleQueue[tuple[CancelToken, Any]]) -> None:
    """Take calls, and what gives them up, and end with the service."""
    last, token = -1, CancelToken()
    with suppress(OSError, EOFError):
        while True:
            number, call = service.recv()
            if call is not None:
                last, token = number, CancelToken()
                calls.put((token, call))
            elif number == last:
                token.cancel()
    os._exit(0)


def _answer(pipelines: Mapping[str, Pipeline], token: CancelToken, call: Any) -> tuple[object, list[StageTiming]]:
    """Return the matches or the error, and the stages of the work."""
    id, headers, index, scope, queries, options = call
    stages: list[StageTiming] = []
    stop, before = listen(stages.append), REQUEST_ID.set(id)
    result: object
    try:
        with running_under(token), operation("search", carrier=headers):
            pipeline = pipelines[index] if scope is None else pipelines[index]._handle(scope)  # noqa: SLF001
            result = pipeline._search(queries, options)  # noqa: SLF001 - as `SpreadPipeline` is asked
            if not any(result) and pipeline.store.manifest() is None:
                result = None
    except VlmsearchError as exc:
        result = exc
    except Exception as exc:  # noqa: BLE001 - the service logs it
        result = RuntimeError("".join(traceback.format_exception(exc)))
    finally:
        stop()
        REQUEST_ID.reset(before)
    return result, stages
