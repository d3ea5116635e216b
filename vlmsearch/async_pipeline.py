"""The pipeline for asyncio: the same verbs, in threads of its own, with cancellation that reaches what they do.

There is one implementation of every verb, that of `Pipeline`. A search takes milliseconds of a model's or a store's
time, and a thread costs nothing beside them. Cancelling an awaiting task frees it at once. Its call ends at the next
step: no further batch is encoded, and the stream of a language model is closed (`vlmsearch._util.cancellation`).
"""

from __future__ import annotations

import asyncio
import inspect
import re
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Iterable, Iterator, Sequence
from functools import partial, wraps
from types import TracebackType
from typing import Any, Concatenate, Literal, ParamSpec, TypeVar, cast, overload

from typing_extensions import Self, Unpack, override

from vlmsearch._util.async_threads import AsyncThreads, ThreadReading
from vlmsearch.errors import ConfigError
from vlmsearch.media.limits import DEFAULT_LIMITS, ImageLimits
from vlmsearch.pipeline import Pipeline
from vlmsearch.registry import DEFAULT_GENERATOR, DEFAULT_STORE
from vlmsearch.types import Answer, AnswerParts, Citation
from vlmsearch.verbs import AskKeywords, AskRequest, verb

P = ParamSpec("P")
T = TypeVar("T")
THREADS, QUEUE = 64, 1024
_TOGETHER = 64
"""Labelled documents that a thread hands over at once."""


def _documented(verb: Callable[..., object], first: str | None) -> str:
    """Return the docstring of an asynchronous verb: a sentence of its own, and the sections of the verb."""
    sections = re.search(r"^(?:Args|Returns):.*?(?=^Example:|\Z)", inspect.getdoc(verb) or "", re.DOTALL | re.MULTILINE)
    return f"{inspect.cleandoc(first or '')}\n\n{sections[0] if sections else ''}"


def _verb(
    verb: Callable[Concatenate[Pipeline, P], T],
) -> Callable[[Callable[[AsyncPipeline], None]], Callable[Concatenate[AsyncPipeline, P], Coroutine[Any, Any, T]]]:
    """Make the asynchronous form of a pipeline's verb.

    Its name and first sentence are those of the decorated method.
    """

    def decorate(
        form: Callable[[AsyncPipeline], None],
    ) -> Callable[Concatenate[AsyncPipeline, P], Coroutine[Any, Any, T]]:
        @wraps(verb)
        async def run(self: AsyncPipeline, /, *args: P.args, **kwargs: P.kwargs) -> T:
            return await self._threads.run(partial(verb, self.pipeline, *args, **kwargs))

        run.__doc__ = _documented(verb, form.__doc__)
        return run

    return decorate


def _streamed(
    verb: Callable[Concatenate[Pipeline, P], Iterator[T]], together: int
) -> Callable[[Callable[[AsyncPipeline], None]], Callable[Concatenate[AsyncPipeline, P], AsyncGenerator[T, None]]]:
    """Make the asynchronous form of a verb that is a generator.

    A thread hands over ``together`` results at a time.
    """

    def decorate(
        form: Callable[[AsyncPipeline], None],
    ) -> Callable[Concatenate[AsyncPipeline, P], AsyncGenerator[T, None]]:
        @wraps(verb)
        async def run(self: AsyncPipeline, /, *args: P.args, **kwargs: P.kwargs) -> AsyncGenerator[T, None]:
            read = ThreadReading(self._threads, partial(verb, self.pipeline, *args, **kwargs), together)
            try:
                while some := await read.next():
                    for result in some:
                        yield result
            finally:
                read.stop()

        run.__doc__ = _documented(verb, form.__doc__)
        return run

    return decorate


class AsyncPipeline:
    """A pipeline for asyncio: it has the verbs of `Pipeline`, awaited, with the same arguments and results.

    Each call runs in one of its threads. A task that is cancelled is free at once. Its call is not begun, or ends at
    its next step, and what was stored until then is whole. ``on_progress`` is called in such a thread.

    Args:
        pipeline: The pipeline that does the work. Closing this closes it.
        threads: Number of calls that run at a time, at least 1. An encoder that many of them use is fastest behind a
            `BatchingEncoder`.
        queue: Number of further calls that wait, at least 1. More are refused with an OverloadedError.

    Raises:
        ConfigError: A number is below 1.

    Example:
        >>> import asyncio
        >>> from vlmsearch import AsyncPipeline, Document
        >>> async def main():
        ...     async with await AsyncPipeline.open(encoder="mock:", store="mock:") as pipeline:
        ...         await pipeline.add([Document("a", text="a dog in the snow"), Document("b", text="a blue car")])
        ...         found = await asyncio.gather(pipeline.search("dog snow", limit=1), pipeline.search("car", limit=1))
        ...         return [matches[0].document.id for matches in found]
        >>> asyncio.run(main())
        ['a', 'b']
    """

    def __init__(self, pipeline: Pipeline, *, threads: int = THREADS, queue: int = QUEUE) -> None:
        if threads < 1 or queue < 1:
            raise ConfigError(f"`threads` and `queue` are at least 1, not {threads} and {queue}")
        self.pipeline = pipeline
        self._threads = AsyncThreads(threads, queue, owner="the pipeline")

    @classmethod
    async def open(
        cls,
        *,
        encoder: str | None = None,
        store: str = DEFAULT_STORE,
        generator: str | None = DEFAULT_GENERATOR,
        reranker: str | None = None,
        next_encoders: Sequence[str] = (),
        image_limits: ImageLimits = DEFAULT_LIMITS,
        threads: int = THREADS,
        queue: int = QUEUE,
    ) -> Self:
        """Open a pipeline whose back ends are named by URLs; see `Pipeline.open`.

        Args:
            encoder: URL such as ``onnx:default`` or ``triton://host:8001/vlm``; None for the encoder of the index.
            store: URL such as ``sqlite:./index`` or ``postgresql://host/photos``.
            generator: URL such as ``extractive:``; None for no answers.
            reranker: URL such as ``onnx:demo-reranker``, for ``rerank=True``; None for none.
            next_encoders: URLs of encoders to change to, as for `Pipeline`.
            image_limits: Limits of images.
            threads: Number of calls that run at a time, at least 1.
            queue: Number of further calls that wait, at least 1.

        Returns:
            The pipeline, which closes its back ends.

        Raises:
            ConfigError: A URL or a number is wrong.
            MissingDependencyError: A back end needs a package that is not installed.
            ModelUnavailableError: A model is not on this machine and cannot be fetched.
            BackendError: A server refused, or cannot be reached.
        """
        opening = AsyncThreads(1, 1, owner="the pipeline")
        begin = partial(
            Pipeline.open,
            encoder=encoder,
            store=store,
            generator=generator,
            reranker=reranker,
            next_encoders=next_encoders,
            image_limits=image_limits,
        )
        try:
            pipeline = await opening.run(begin, unwanted=Pipeline.close)
        finally:
            opening.close(wait=False)
        return cls(pipeline, threads=threads, queue=queue)

    @_verb(Pipeline.search)
    def search(self) -> None:
        """Return the best matches, best first; see `Index.search`."""

    @_verb(Pipeline.search_many)
    def search_many(self) -> None:
        """Return the matches of several queries; see `Index.search_many`."""

    @_verb(Pipeline.explain)
    def explain(self) -> None:
        """Return why a document is shown for a query, or is not; see `Index.explain`."""

    @_verb(Pipeline.duplicates)
    def duplicates(self) -> None:
        """Return the duplicate images of the index; see `Index.duplicates`."""

    @_streamed(Pipeline.label, _TOGETHER)
    def label(self) -> None:
        """Yield the documents with those of some labels that fit them, by `async for`; see `Index.label`."""

    @_verb(Pipeline.describe)
    def describe(self) -> None:
        """Describe the pictures that have no text by the generator; see `Index.describe`."""

    @_verb(Pipeline.evaluate)
    def evaluate(self) -> None:
        """Measure how well the index answers queries whose answers are known; see `Index.evaluate`."""

    @_verb(Pipeline.add)
    def add(self) -> None:
        """Index documents; see `Index.add`. Those of a generator are read in the thread."""

    @_verb(Pipeline.index)
    def index(self) -> None:
        """Index what paths name; see `Index.index`."""

    @_streamed(Pipeline.watch, 1)
    def watch(self) -> None:
        """Keep the index in step with folders, by `async for`; see `Pipeline.watch`."""

    @_verb(Pipeline.delete)
    def delete(self) -> None:
        """Remove documents with their vectors; see `Index.delete`."""

    @_verb(Pipeline.get)
    def get(self) -> None:
        """Return documents of the index; see `Index.get`."""

    @_streamed(Pipeline.documents, _TOGETHER)
    def documents(self) -> None:
        """Yield all documents of the index, by `async for`; see `Index.documents`."""

    @_verb(Pipeline.count)
    def count(self) -> None:
        """Return the number of documents in the index; see `Index.count`."""

    @_verb(Pipeline.thumbnail)
    def thumbnail(self) -> None:
        """Return the image of a document, scaled; see `Index.thumbnail`."""

    @_verb(Pipeline.check)
    def check(self) -> None:
        """Check that all parts of the store agree; see `Index.check`."""

    @_verb(Pipeline.info)
    def info(self) -> None:
        """Return what is in the index and what built it; see `Index.info`."""

    @_verb(Pipeline.rejects)
    def rejects(self) -> None:
        """Return the reject list of the index; see `Index.rejects`."""

    @overload
    async def ask(self, question: str, *, stream: Literal[False] = False, **options: Unpack[AskKeywords]) -> Answer: ...

    @overload
    async def ask(
        self, question: str, *, stream: Literal[True], **options: Unpack[AskKeywords]
    ) -> AsyncAnswerStream: ...

    @verb(AskRequest)  # type: ignore[misc]  # it takes the keywords by their names
    async def ask(self, given: AskRequest) -> Answer | AsyncAnswerStream:
        """Answer a question from the best matches, with citations; see `Index.ask`.

        Returns:
            The answer with its sources; with ``stream`` an AsyncAnswerStream, which gives the pieces of the text as
            they are made, then the citations.

        Raises:
            ConfigError: There is no generator, or the template or the limit is wrong.
            InvalidInputError: The question is empty, or not even one source fits into the model's context.
            IndexMismatchError: Another encoder built the index.
            BackendError: A back end failed.
        """
        answering = partial(self.pipeline._ask, given)  # noqa: SLF001
        if not given.stream:
            return cast("Answer", await self._threads.run(answering))
        parts = await self._threads.run(cast("Callable[[], AnswerParts]", answering), unwanted=AnswerParts.close)
        return AsyncAnswerStream(parts, self._threads)

    def restricted(self, principals: Iterable[str]) -> AsyncPipeline:
        """Return a handle on the documents that some principals may read: see `Pipeline.restricted`.

        Args:
            principals: Who asks, such as ``["user:ann", "group:hr"]``.

        Returns:
            The handle, which uses the same threads. Closing it closes nothing.
        """
        return _RestrictedPipeline(self, self.pipeline.restricted(principals))

    async def close(self) -> None:
        """Take no more calls, finish those that were accepted, and close the pipeline.

        To end calls early, cancel their tasks before.
        """
        await asyncio.to_thread(self._close)

    def _close(self) -> None:
        self._threads.close()
        self.pipeline.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


class _RestrictedPipeline(AsyncPipeline):
    """A restricted handle on a pipeline for asyncio."""

    def __init__(self, whole: AsyncPipeline, restricted: Pipeline) -> None:
        self.pipeline = restricted
        self._threads = whole._threads  # noqa: SLF001

    @override
    async def close(self) -> None:
        pass


class AsyncAnswerStream(AsyncIterator["str | Citation"]):
    """Iterate over an answer as it is made, by ``async for``: pieces of its text, then its citations.

    `AsyncPipeline.ask` with ``stream=True`` makes one. Leaving the ``async with`` block, as cancelling the task that
    reads, stops the generator.

    Example:
        >>> import asyncio
        >>> from vlmsearch import AsyncPipeline, Document
        >>> async def main():
        ...     async with await AsyncPipeline.open(encoder="mock:", store="mock:") as pipeline:
        ...         await pipeline.add(Document("a", text="The dog is called Laika."))
        ...         async with await pipeline.ask("What is the dog called?", stream=True) as parts:
        ...             text = "".join([part async for part in parts if isinstance(part, str)])
        ...             return text, (await parts.answer()).citations[0].id
        >>> asyncio.run(main())
        ('“The dog is called Laika.” [1]', 'a')
    """

    def __init__(self, answer: AnswerParts, threads: AsyncThreads) -> None:
        self._answer = answer
        self._reading = ThreadReading(threads, lambda: answer, 1)

    async def __anext__(self) -> str | Citation:
        for part in await self._reading.next():
            return part
        raise StopAsyncIteration

    async def answer(self) -> Answer:
        """Return the whole answer, after reading what is left of it.

        After `close`, it is what there was until then.

        Returns:
            The answer with its sources.

        Raises:
            BackendError: The generator failed.
        """
        async for _ in self:
            pass
        return self._answer.answer()

    async def close(self) -> None:
        """Stop the generator, without waiting for it."""
        self._reading.stop()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
