"""The open indexes of the service, and the threads that its requests run in."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TypeVar

from typing_extensions import ParamSpec, Self

from vlmsearch._util.async_threads import AsyncThreads
from vlmsearch._util.closable import Closable
from vlmsearch.encoders.batching import Batch, BatchingEncoder
from vlmsearch.errors import ConfigError
from vlmsearch.pipeline import Pipeline
from vlmsearch.registry import open_encoder, open_generator, open_reranker, open_store, open_usual_encoder
from vlmsearch.server.caller import Caller
from vlmsearch.server.errors import Json
from vlmsearch.server.images import Thumbnails, Uploads
from vlmsearch.server.jobs import Jobs
from vlmsearch.server.searchers import Searchers, SpreadPipeline
from vlmsearch.server.settings import IndexSettings, ServerSettings

P = ParamSpec("P")
T = TypeVar("T")
_WAITING_EACH = 16
"""Maximum number of calls that wait for each thread; further calls are refused."""
_DRAWING = 4
"""Threads that draw the images of documents: searches do not wait for a page that takes long."""


@dataclass(frozen=True)
class OpenIndex:
    """An index of the service.

    Attributes:
        name: What requests call it.
        settings: What the operator set.
        pipeline: What does the work.
    """

    name: str
    settings: IndexSettings
    pipeline: Pipeline

    def seen_by(self, caller: Caller) -> OpenIndex:
        """Return the index with the documents alone that a caller may read."""
        pipeline = self.pipeline
        for principals in caller.scopes:
            pipeline = pipeline.restricted(principals)
        return replace(self, pipeline=pipeline) if caller.scopes else self


class Service(Closable):
    """The open indexes by name. Encoders, generators and re-rankers of one URL are opened once.

    Args:
        settings: What the operator set.
        indexes: The open indexes, by name.

    Attributes:
        encoders: Encoders by their URLs.
        on_batch: Functions that are called after each batch, from threads of the encoders.
        threads: Threads of requests.
        uploads: Images that were sent.
        thumbnails: Thumbnails that were asked for last.
        jobs: Jobs.
        is_stopping: Whether the service was asked to stop.

    Example:
        >>> with Service.open(ServerSettings(indexes={"notes": IndexSettings("mock:", "mock:")})) as service:
        ...     list(service.indexes)
        ['notes']
    """

    def __init__(self, settings: ServerSettings, indexes: dict[str, OpenIndex]) -> None:
        self.settings = settings
        self.indexes = indexes
        self.uploads = Uploads(Path(settings.uploads))
        self.thumbnails = Thumbnails(settings.image_limits)
        self.jobs = Jobs()
        self.is_stopping = False
        self._stack = ExitStack()
        self.threads = AsyncThreads(settings.threads, _WAITING_EACH * settings.threads, owner="the server")
        self._drawing = AsyncThreads(_DRAWING, _WAITING_EACH * _DRAWING, owner="what draws images")
        self.encoders: dict[str, BatchingEncoder] = {}
        self.on_batch: list[Callable[[Batch], None]] = []

    @classmethod
    def open(cls, settings: ServerSettings, searchers: Searchers | None = None) -> Self:
        """Open the back ends of all indexes.

        Args:
            settings: Settings of the operator.
            searchers: Processes that search; None to search in this one.

        Returns:
            The service, which closes them.

        Raises:
            ConfigError: A URL is wrong, only the operator knows which encoder built an index, or there is no index and
                no encoder for a new one.
            MissingDependencyError: A back end needs a package that is not installed.
            ModelUnavailableError: A model is not on this machine and cannot be fetched.
            BackendError: A server refused, or cannot be reached.
        """
        service = cls(settings, {})
        with service._stack as stack:
            parts = _Parts(stack)
            for name, index in settings.indexes.items():
                store = stack.enter_context(open_store(index.store))
                manifest = store.manifest()
                if manifest is None and not index.encoder:
                    raise ConfigError(
                        f"no index at {store.name}: make one with "
                        f"`vlmsearch index PATHS --store {shlex.quote(index.store)}`, or give `encoder` for a new one"
                    )
                opening = partial(parts.open, service._open_encoder)
                encoder = open_usual_encoder(index.encoder, f"the index {name}", manifest, opening)
                generator = parts.open(open_generator, index.generator) if index.generator else None
                reranker = parts.open(open_reranker, index.reranker) if index.reranker else None
                limits = settings.image_limits
                pipeline = Pipeline(encoder, store, generator, reranker=reranker, image_limits=limits)
                if searchers is not None:
                    pipeline = SpreadPipeline(searchers, name, pipeline)
                service.indexes[name] = OpenIndex(name, index, pipeline)
            if searchers is not None:
                searchers.start()
            service._stack = stack.pop_all()
        service._stack.callback(service.threads.close)  # before the back ends that they use
        service._stack.callback(service._drawing.close)
        service._stack.callback(service.jobs.close)
        return service

    def seen_by(self, caller: Caller) -> Iterator[OpenIndex]:
        """Yield the indexes that a caller may see, with readable documents alone."""
        return (index.seen_by(caller) for index in self.indexes.values() if caller.sees(index.name))

    def _open_encoder(self, url: str) -> BatchingEncoder:
        """Return the encoder of a URL, which batches the inputs of many requests."""
        encoder = self.encoders[url] = BatchingEncoder(open_encoder(url), on_batch=self._note_batch)
        return encoder

    def _note_batch(self, batch: Batch) -> None:
        for listener in self.on_batch:
            listener(batch)

    def private_places(self) -> list[str]:
        """Return the files and folders of the service itself, with links resolved. No job reads them."""
        places = [Path(path) for path in (self.settings.uploads, self.settings.tokens, self.settings.tls_key) if path]
        for index in self.indexes.values():
            places += index.pipeline.store.places()
        return list(map(os.path.realpath, places))

    async def call(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a function in a thread and return its result.

        Cancelling the task ends the call: see `vlmsearch._util.cancellation`.

        Raises:
            OverloadedError: Too many calls are waiting.
        """
        return await self.threads.run(partial(function, *args, **kwargs))

    async def draw(self, function: Callable[[], T]) -> T:
        """Call a function that draws an image in one of the threads for that.

        Raises:
            OverloadedError: Too many calls are waiting.
        """
        return await self._drawing.run(function)

    async def answer(self, function: Callable[P, object], *args: P.args, **kwargs: P.kwargs) -> Json:
        """Call a function in a thread and return its result as JSON.

        The same thread writes the JSON.

        Raises:
            OverloadedError: As for `call`.
        """
        return await self.threads.run(lambda: Json(function(*args, **kwargs)))

    def stop(self) -> None:
        """Cancel the jobs and end their streams: the service is about to stop."""
        self.is_stopping = True
        self.jobs.cancel_all()

    def close(self) -> None:
        """Close all back ends."""
        self._stack.close()


@contextmanager
def pipelines(settings: ServerSettings) -> Iterator[Mapping[str, Pipeline]]:
    """Open the pipelines of a process that only searches, by the names of the indexes."""
    indexes = {name: replace(index, generator="") for name, index in settings.indexes.items()}
    with Service.open(replace(settings, indexes=indexes)) as service:
        yield {name: index.pipeline for name, index in service.indexes.items()}


class _Parts:
    """The back ends that indexes share, by their URLs."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self._opened: dict[tuple[object, str], Closable] = {}

    def open(self, opener: Callable[[str], T], url: str) -> T:
        """Return the back end of a URL, which is opened once."""
        key = (opener, url)
        if key not in self._opened:
            self._opened[key] = self._stack.enter_context(opener(url))  # type: ignore[arg-type]
        return self._opened[key]  # type: ignore[return-value]
