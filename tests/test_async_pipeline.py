"""The asynchronous pipeline does what the pipeline does, and what is cancelled ends."""

from __future__ import annotations

import asyncio
import inspect
import json
import threading
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from itertools import accumulate
from pathlib import Path
from typing import Any, TypeVar

import pytest
from vlmsearch_mocks import MemoryStore, MockEncoder, MockGenerator, MockReranker

from tests.support.threads import no_thread_left
from vlmsearch import (
    AsyncPipeline,
    BackendError,
    BatchingEncoder,
    ConfigError,
    Document,
    Field,
    GenerationOptions,
    Generator,
    Hit,
    InvalidInputError,
    MetadataChange,
    OperationCancelledError,
    OverloadedError,
    Pipeline,
    Query,
    Record,
    Role,
    Store,
    Vectors,
)
from vlmsearch.demo.scenes import make_scene
from vlmsearch.stores.filters import Filter
from vlmsearch.stores.sqlite.store import SqliteStore
from vlmsearch.types import ImageSource

T = TypeVar("T")
TEXTS = {"a": "a dog in the snow", "b": "a dog in the rain", "c": "a blue car", "d": "The dog is called Laika."}
DOCUMENTS = [Document(id, text=text, metadata={"year": 2000 + i}) for i, (id, text) in enumerate(TEXTS.items())]
FREE = 0.5
"""Seconds within which a cancelled task is free, on a machine that does other things too."""


def run(main: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(asyncio.wait_for(main, 60))


async def until(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < end
        await asyncio.sleep(0.005)


class Slow:
    """Holds calls up until it is told to go on."""

    def __init__(self) -> None:
        self.begun, self.go_on = threading.Event(), threading.Event()
        self.go_on.set()
        self.passed = 0

    def hold(self) -> None:
        self.begun.clear()
        self.go_on.clear()

    def pass_by(self) -> None:
        self.begun.set()
        assert self.go_on.wait(60)
        self.passed += 1


class SlowEncoder(MockEncoder):
    def __init__(self) -> None:
        super().__init__()
        self.slow = Slow()
        self.encoded: list[str] = []

    def encode_texts(self, texts: Sequence[str], *, role: Role = "document") -> dict[str, Vectors]:
        self.encoded += texts
        self.slow.pass_by()
        return super().encode_texts(texts, role=role)

    def encode_images(self, images: Sequence[ImageSource]) -> dict[str, Vectors]:
        self.slow.pass_by()
        return super().encode_images(images)


class SlowStore(MemoryStore):
    def __init__(self) -> None:
        super().__init__()
        self.slow, self.writing = Slow(), Slow()
        self.searches = 0

    def search(self, field: Field, vectors: Vectors, *, limit: int, where: Filter | None = None) -> list[list[Hit]]:
        self.searches += 1
        self.slow.pass_by()
        return super().search(field, vectors, limit=limit, where=where)

    def upsert(self, records: Sequence[Record]) -> None:
        self.writing.pass_by()
        super().upsert(records)

    def update_metadata(self, changes: Sequence[MetadataChange]) -> list[str]:
        self.writing.pass_by()
        return super().update_metadata(changes)


class SlowGenerator(Generator):
    name = "slow"

    def __init__(self) -> None:
        self.slow = Slow()
        self.closed = threading.Event()

    def stream(self, prompt: str, options: GenerationOptions | None = None) -> Iterator[str]:
        try:
            for number in range(1000):
                yield f"word{number} "
                self.slow.pass_by()
        finally:
            self.closed.set()


class Parts:
    def __init__(self, *, batching: bool = False) -> None:
        self.encoder, self.store, self.generator = SlowEncoder(), SlowStore(), SlowGenerator()
        encoder = BatchingEncoder(self.encoder) if batching else self.encoder
        self.pipeline = Pipeline(encoder, self.store, self.generator)

    @asynccontextmanager
    async def opened(self, **options: int) -> AsyncIterator[AsyncPipeline]:
        async with AsyncPipeline(self.pipeline, **options) as pipeline:
            await pipeline.add(DOCUMENTS)
            try:
                yield pipeline
            finally:
                for slow in (self.encoder.slow, self.store.slow, self.store.writing, self.generator.slow):
                    slow.go_on.set()


async def cancelled(work: Coroutine[Any, Any, object], begun: threading.Event) -> None:
    """Cancel a call once it has begun; it is free at once."""
    task = asyncio.ensure_future(work)
    await until(begun.is_set)
    at = time.monotonic()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert time.monotonic() - at < FREE


# ---- the same results


def shown(value: object) -> str:
    """A result in a form that can be compared, without how long it took."""
    return json.dumps(value, default=lambda one: one.__dict__ if hasattr(one, "__dict__") else str(one), sort_keys=True)


VERBS: dict[str, Callable[[Any], Any]] = {
    "search": lambda p: p.search("a dog", without="rain", where={"year": {"$lt": 2003}}, count=True, facets=["year"]),
    "search image": lambda p: p.search(image=make_scene(1).draw(96), limit=2, min_score=0),
    "search reranked": lambda p: p.search("dog", rerank=MockReranker(), min_score=0),
    "search_many": lambda p: p.search_many(["dog", Query(like=["a"])], min_score=0, limit=2),
    "explain": lambda p: p.explain("dog", "a", parts=True),
    "duplicates": lambda p: p.duplicates(),
    "ask": lambda p: p.ask("What is the dog called?", limit=2),
    "delete": lambda p: p.delete(["a", "not there"]),
    "check": lambda p: p.check(),
}


def test_verbs_give_what_the_pipeline_gives(tmp_path: Path) -> None:
    picture = make_scene(1).draw(128)
    for name, size in (("large.png", 128), ("small.jpg", 64)):
        picture.resize((size, size)).save(tmp_path / name)

    def open_one(name: str) -> Pipeline:
        pipeline = Pipeline.open(encoder="onnx:demo", store=f"sqlite:{tmp_path}/{name}", generator=None)
        pipeline.generator = MockGenerator("It is called Laika [1].")
        pipeline.index([tmp_path / "large.png", tmp_path / "small.jpg"])
        pipeline.add(DOCUMENTS)
        return pipeline

    async def main() -> list[object]:
        async with AsyncPipeline(open_one("index-2")) as pipeline:
            return [await call(pipeline) for call in VERBS.values()]

    with open_one("index-1") as pipeline:
        wanted = {verb: shown(call(pipeline)) for verb, call in VERBS.items()}
    assert {
        verb: shown(result).replace("index-2", "index-1") for verb, result in zip(VERBS, run(main()), strict=True)
    } == wanted


def test_add_and_index_report_what_the_pipeline_reports(tmp_path: Path) -> None:
    (tmp_path / "note.txt").write_text("a dog in the snow")
    done: list[int] = []

    async def main() -> list[tuple[int, ...]]:
        async with await AsyncPipeline.open(encoder="mock:", store="mock:") as pipeline:
            reports = [
                await pipeline.add(iter([*DOCUMENTS, Document("bad", image=b"no image")]), on_progress=done.append),
                await pipeline.add(DOCUMENTS[0]),
                await pipeline.index(tmp_path, prune=True),
            ]
            return [(each.added, each.unchanged, each.pruned, len(each.rejects)) for each in reports]

    assert run(main()) == [(4, 0, 0, 1), (0, 1, 0, 0), (1, 0, 0, 0)]
    assert done[-1] == 5


def test_labels_come_as_they_are_worked_out_and_are_written() -> None:
    async def main() -> list[tuple[str, list[str]]]:
        async with await AsyncPipeline.open(encoder="mock:", store="mock:") as pipeline:
            await pipeline.add(Document(f"{i:03}", text=["a dog", "a car"][i % 2]) for i in range(200))
            found = [(each.document.id, list(each.labels)) async for each in pipeline.label(["dog"], write=True)]
            written = await pipeline.search("a", where={"label": "dog"}, min_score=0, limit=200)
            assert len(written) == 100
            return found

    assert run(main()) == [(f"{i:03}", [["dog"], []][i % 2]) for i in range(200)]


def test_an_answer_comes_in_pieces_then_its_citations() -> None:
    async def main() -> None:
        pipeline = Pipeline(MockEncoder(), MemoryStore(), MockGenerator("She is called Laika [1]."))
        async with AsyncPipeline(pipeline) as asked:
            await asked.add(DOCUMENTS)
            wanted = list(pipeline.ask("What is the dog called?", stream=True))
            async with await asked.ask("What is the dog called?", stream=True) as parts:
                assert [part async for part in parts] == wanted
                assert len(wanted) > 2
                assert await parts.answer() == pipeline.ask("What is the dog called?")

    run(main())


def test_verbs_and_arguments_are_those_of_the_pipeline() -> None:
    verbs = [name for name, value in vars(Pipeline).items() if inspect.isfunction(value) and not name.startswith("_")]
    assert len(verbs) > 9
    for name in verbs:
        ours, theirs = (inspect.signature(getattr(cls, name)).parameters for cls in (AsyncPipeline, Pipeline))
        assert list(ours) == list(theirs), name


def test_errors_are_those_of_the_pipeline() -> None:
    async def main() -> None:
        with pytest.raises(ConfigError, match="onyx"):
            await AsyncPipeline.open(encoder="onyx:demo")
        async with Parts().opened() as pipeline:
            with pytest.raises(InvalidInputError):
                await pipeline.search("")
            with pytest.raises(TypeError):
                await pipeline.search_many("one")
            with pytest.raises(ConfigError):
                _ = [each async for each in pipeline.label([])]

    run(main())
    for options in ({"threads": 0}, {"queue": 0}):
        with pytest.raises(ConfigError, match="at least 1"):
            AsyncPipeline(Parts().pipeline, **options)


# ---- many at once


def test_many_tasks_are_served_at_once_and_batched() -> None:
    parts = Parts(batching=True)
    encoder = parts.pipeline.encoder
    assert isinstance(encoder, BatchingEncoder)
    threads, tasks = 64, 300

    async def main() -> None:
        async with parts.opened(threads=threads) as pipeline:
            parts.encoder.slow.hold()
            before = len(parts.encoder.encoded)
            searches = asyncio.gather(*(pipeline.search(TEXTS["abc"[i % 3]], limit=1) for i in range(tasks)))
            await until(lambda: len(parts.encoder.encoded) - before + encoder.stats().waiting_items == threads)
            parts.encoder.slow.go_on.set()
            found = await searches
            assert [matches[0].document.id for matches in found] == ["abc"[i % 3] for i in range(tasks)]

    run(main())
    stats = encoder.stats()
    assert stats.items == tasks + len(DOCUMENTS)
    assert stats.batches <= stats.items - (threads - 2), "what waited behind the first batch was one batch"


def test_the_event_loop_is_free_meanwhile_and_calls_run_side_by_side() -> None:
    async def main() -> None:
        parts = Parts()
        async with parts.opened() as pipeline:
            parts.encoder.slow.hold()
            held = asyncio.ensure_future(pipeline.search("a dog"))
            await until(parts.encoder.slow.begun.is_set)
            assert await pipeline.delete("c") == 1
            parts.encoder.slow.go_on.set()
            assert len(await held) > 0

    run(main())


def test_more_calls_than_may_wait_are_refused() -> None:
    async def main() -> None:
        parts = Parts()
        async with parts.opened(threads=1, queue=2) as pipeline:
            parts.encoder.slow.hold()
            held = [asyncio.ensure_future(pipeline.search("a dog")) for _ in range(3)]
            await until(parts.encoder.slow.begun.is_set)
            with pytest.raises(OverloadedError, match="3 calls are under way or waiting") as caught:
                await pipeline.search("one more")
            assert caught.value.retry_after > 0
            parts.encoder.slow.go_on.set()
            assert all(await asyncio.gather(*held))
            assert await pipeline.search("a dog")

    run(main())


# ---- cancelling


@pytest.mark.parametrize("batching", [False, True])
def test_a_search_that_is_cancelled_while_it_encodes_does_not_search(batching: bool) -> None:
    async def main() -> None:
        parts = Parts(batching=batching)
        async with parts.opened() as pipeline:
            parts.encoder.slow.hold()
            await cancelled(pipeline.search("a dog"), parts.encoder.slow.begun)
            parts.encoder.slow.go_on.set()
            await asyncio.sleep(0.1)
            assert parts.store.searches == 0
            assert await pipeline.search("a dog")

    run(main())


def test_a_search_that_is_cancelled_in_the_store_asks_it_nothing_more() -> None:
    async def main() -> None:
        parts = Parts()
        async with parts.opened() as pipeline:
            await pipeline.search("a dog")
            usual, parts.store.searches = parts.store.searches, 0
            assert usual > 1
            parts.store.slow.hold()
            await cancelled(pipeline.search("a dog"), parts.store.slow.begun)
            parts.store.slow.go_on.set()
            await asyncio.sleep(0.1)
            assert parts.store.searches == 1

    run(main())


def test_a_call_that_is_cancelled_before_it_has_a_thread_never_runs() -> None:
    async def main() -> None:
        parts = Parts()
        async with parts.opened(threads=1) as pipeline:
            parts.encoder.slow.hold()
            held = asyncio.ensure_future(pipeline.search("first"))
            await until(parts.encoder.slow.begun.is_set)
            waiting = asyncio.ensure_future(pipeline.search("second"))
            await asyncio.sleep(0.02)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            parts.encoder.slow.go_on.set()
            await held
            assert "second" not in parts.encoder.encoded

    run(main())


def test_a_timeout_frees_its_task() -> None:
    async def main() -> None:
        parts = Parts()
        async with parts.opened() as pipeline:
            parts.encoder.slow.hold()
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(pipeline.search("a dog"), 0.05)

    run(main())


@pytest.mark.parametrize("where", ["encoder", "store", "documents"])
@pytest.mark.parametrize("kind", ["mock", "sqlite", "mongodb+chroma"])
def test_an_index_run_that_is_cancelled_leaves_nothing_half_written(where: str, kind: str, tmp_path: Path) -> None:
    """The next run completes it, and the store is in order in between."""
    from vlmsearch_mocks import MockStore

    inner: dict[str, Callable[[], Store]] = {
        "mock": MemoryStore, "sqlite": lambda: SqliteStore(f"{tmp_path}/index"), "mongodb+chroma": MockStore
    }  # fmt: skip
    store, slow = inner[kind](), Slow()
    encoder = SlowEncoder()
    upsert, batches = store.upsert, [0]

    def slowly(records: Sequence[Record]) -> None:
        if where == "store":
            slow.pass_by()
        batches.append(len(records))
        upsert(records)  # which may end with the cancellation, after it has stored them

    store.upsert = slowly  # type: ignore[method-assign]
    if where == "encoder":
        encoder.slow = slow

    def documents() -> Iterator[Document]:
        for i in range(2000):
            if where == "documents" and i == 700:
                slow.pass_by()
            yield Document(f"{i:04}", text=f"a dog of {i}")

    async def main() -> None:
        async with AsyncPipeline(Pipeline(encoder, store)) as pipeline:
            slow.hold()
            await cancelled(pipeline.add(documents()), slow.begun)
            slow.go_on.set()
            await until(lambda: not [each for each in threading.enumerate() if each.name.startswith("vlmsearch-save")])
            stored = len(store)
            assert stored < 2000
            assert stored in accumulate(batches), "each batch is stored whole or not at all"
            if kind != "mock":
                assert (await pipeline.check()).clean
            report = await pipeline.add(documents())
            assert (report.added, report.unchanged) == (2000 - stored, stored)

    run(main())


def test_labels_that_are_not_read_on_are_not_worked_out() -> None:
    async def main() -> None:
        parts = Parts()
        async with parts.opened() as pipeline:
            await pipeline.add(Document(f"{i:05}", text="a dog") for i in range(3000))
            got: list[int] = []
            async for _ in pipeline.label(["dog"], write=True, on_progress=got.append):
                break
            await asyncio.sleep(0.1)
            labelled = await pipeline.search("dog", where={"label": "dog"}, min_score=0, limit=10_000)
            assert 0 < len(labelled) < 3000
            assert (await pipeline.check()).clean

    run(main())


def test_labelling_that_is_cancelled_ends() -> None:
    async def main() -> None:
        parts = Parts()
        async with parts.opened() as pipeline:

            async def label() -> None:
                async for _ in pipeline.label(["dog"], write=True):
                    pass

            parts.store.writing.hold()
            await cancelled(label(), parts.store.writing.begun)
            parts.store.writing.go_on.set()
            assert await pipeline.search("a dog")

    run(main())


def test_an_answer_that_is_cancelled_stops_the_generator() -> None:
    async def main() -> None:
        parts = Parts()
        async with parts.opened() as pipeline:
            parts.generator.slow.hold()
            await cancelled(pipeline.ask("What is the dog called?"), parts.generator.slow.begun)
            assert not parts.generator.closed.is_set()
            parts.generator.slow.go_on.set()
            await until(parts.generator.closed.is_set)
            assert parts.generator.slow.passed == 1

    run(main())


def test_a_stream_that_is_cancelled_stops_the_generator() -> None:
    async def main() -> None:
        parts = Parts()
        async with parts.opened() as pipeline:
            read: list[object] = []

            async def ask() -> None:
                async with await pipeline.ask("What is the dog called?", stream=True) as stream:
                    async for part in stream:
                        read.append(part)
                        if len(read) == 3:
                            parts.generator.slow.hold()

            await cancelled(ask(), parts.generator.slow.begun)
            await asyncio.sleep(0)
            parts.generator.slow.go_on.set()
            await until(parts.generator.closed.is_set)
            assert parts.generator.slow.passed < 10

    run(main())


def test_leaving_a_stream_stops_the_generator_and_what_there_was_stays() -> None:
    async def main() -> None:
        parts = Parts()
        async with parts.opened() as pipeline:
            async with await pipeline.ask("What is the dog called?", stream=True) as stream:
                assert await stream.__anext__() == "word0"
            await until(parts.generator.closed.is_set)
            assert (await stream.answer()).text == "word0"

    run(main())


def test_a_stream_that_nobody_waits_for_is_closed() -> None:
    """The task is cancelled between the search and the first piece."""

    async def main() -> None:
        parts = Parts()
        async with parts.opened() as pipeline:
            parts.store.slow.hold()
            await cancelled(pipeline.ask("What is the dog called?", stream=True), parts.store.slow.begun)
            parts.store.slow.go_on.set()
            await asyncio.sleep(0.1)
            assert parts.generator.slow.passed == 0

    run(main())


# ---- the end


def test_closing_finishes_what_was_accepted_and_takes_nothing_more() -> None:
    async def main() -> None:
        parts = Parts()
        async with parts.opened() as pipeline:
            parts.encoder.slow.hold()
            held = asyncio.ensure_future(pipeline.search("a dog"))
            await until(parts.encoder.slow.begun.is_set)
            closing = asyncio.ensure_future(pipeline.close())
            await asyncio.sleep(0.05)
            with pytest.raises(BackendError, match="the pipeline is closed"):
                await pipeline.search("late")
            assert not closing.done()
            parts.encoder.slow.go_on.set()
            assert await held
            await closing

    with no_thread_left("vlmsearch-async"):
        run(main())


def test_one_pipeline_serves_several_event_loops() -> None:
    parts = Parts()
    shared = AsyncPipeline(parts.pipeline)
    asyncio.run(shared.add(DOCUMENTS))
    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(lambda _: asyncio.run(shared.search("a dog", limit=1)), range(8)))
    assert {matches[0].document.id for matches in found} <= {"a", "b", "d"}
    asyncio.run(shared.close())


def test_a_call_in_a_thread_sees_the_context_of_its_task() -> None:
    from contextvars import ContextVar

    name: ContextVar[str] = ContextVar("name")
    seen: list[str] = []

    class Seeing(MockEncoder):
        def encode_texts(self, texts: Sequence[str], *, role: Role = "document") -> dict[str, Vectors]:
            seen.append(name.get("nobody"))
            return super().encode_texts(texts, role=role)

    async def search(pipeline: AsyncPipeline, who: str) -> None:
        name.set(who)
        await pipeline.search("a dog")

    async def main() -> None:
        async with AsyncPipeline(Pipeline(Seeing(), MemoryStore())) as pipeline:
            name.set("main")
            await pipeline.add(DOCUMENTS)
            await asyncio.gather(search(pipeline, "one"), search(pipeline, "other"))

    run(main())
    assert set(seen) == {"main", "one", "other"}


def test_cancellation_is_an_error_of_ours_where_a_token_is_used_without_asyncio() -> None:
    from vlmsearch._util.cancellation import CancelToken, running_under

    token = CancelToken()
    token.cancel()
    with Parts().pipeline as pipeline, running_under(token), pytest.raises(OperationCancelledError):
        pipeline.add(DOCUMENTS)
