"""Requests of many threads are merged into batches, fairly, and each gets just what is its own."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np
import pytest
from vlmsearch_mocks import MockEncoder
from vlmsearch_mocks.contracts import EncoderContract

from tests.support.threads import no_thread_left
from vlmsearch import (
    BackendError,
    BackendUnavailableError,
    ConfigError,
    InvalidBatchError,
    InvalidInputError,
    OperationCancelledError,
    OverloadedError,
)
from vlmsearch._util.cancellation import CancelToken, running_under
from vlmsearch.encoders.base import BatchSizes, Encoder, MeasuresTexts
from vlmsearch.encoders.batching import Batch, BatchingEncoder
from vlmsearch.encoders.onnx import OnnxEncoder
from vlmsearch.integrations.framework_index import ExternalEncoder
from vlmsearch.types import ImageSource, Role, Vectors


class Gate(MockEncoder):
    """Encodes only while the gate is open, and remembers what it was given."""

    def __init__(self) -> None:
        super().__init__()
        self.open = threading.Event()
        self.open.set()
        self.begun = threading.Event()
        self.calls: list[tuple[str, list[object]]] = []
        self.failures: list[Exception] = []
        self.closed = False

    def encode_texts(self, texts: Sequence[str], *, role: Role = "document") -> dict[str, Vectors]:
        self._note(role, texts)
        if any(text == "impossible" for text in texts):
            raise ValueError("what no encoder expects")
        return super().encode_texts(texts, role=role)

    def encode_images(self, images: Sequence[ImageSource]) -> dict[str, Vectors]:
        self._note("image", images)
        return super().encode_images(images)

    def close(self) -> None:
        self.closed = True

    def _note(self, kind: str, items: Sequence[object]) -> None:
        self.calls.append((kind, list(items)))
        self.begun.set()
        assert self.open.wait(60)
        if self.failures:
            raise self.failures.pop(0)


@dataclass
class Scene:
    """A batching encoder whose first batch, of the text `first`, is held up by the gate."""

    gate: Gate
    encoder: BatchingEncoder
    threads: ThreadPoolExecutor
    first: Future[dict[str, Vectors]] = field(init=False)

    def hold(self) -> None:
        self.gate.open.clear()
        self.gate.begun.clear()
        self.first = self.threads.submit(self.encoder.encode_texts, ["first"])
        assert self.gate.begun.wait(60)

    def ask(self, *texts: str, role: Role = "document") -> Future[dict[str, Vectors]]:
        """Submit a request and wait until it is in the queue."""
        before = self.encoder.stats().waiting
        future = self.threads.submit(self.encoder.encode_texts, texts, role=role)
        until(lambda: self.encoder.stats().waiting > before or future.done())
        return future

    def release(self) -> list[list[object]]:
        """Open the gate, and return what was encoded after the first batch once nothing is left."""
        self.gate.open.set()
        self.first.result(60)
        until(lambda: self.encoder.stats().waiting == 0)
        return [items for _, items in self.gate.calls[1:]]


def until(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.001)


@contextmanager
def scene(**options: float) -> Iterator[Scene]:
    gate = Gate()
    with ThreadPoolExecutor(40) as threads, BatchingEncoder(gate, **options) as encoder:  # type: ignore[arg-type]
        try:
            yield Scene(gate, encoder, threads)
        finally:
            gate.open.set()


class TestBatched(EncoderContract):
    def make_encoder(self) -> Encoder:
        return BatchingEncoder(OnnxEncoder("demo", batch_size=4))


def test_it_measures_texts_where_its_encoder_does() -> None:
    with BatchingEncoder(MockEncoder()) as encoder:
        assert isinstance(encoder, MeasuresTexts)
        assert (encoder.text_window, encoder.text_tokens(["a dog"])) == (200, [2])
    with BatchingEncoder(ExternalEncoder(3)) as bare:
        assert not isinstance(bare, MeasuresTexts)


def test_what_waits_is_encoded_together_and_each_thread_gets_its_own_rows() -> None:
    alone = MockEncoder()
    with scene() as s:
        s.hold()
        asked = [tuple(f"text {i} {j}" for j in range(1 + i % 3)) for i in range(12)]
        futures = [s.ask(*texts) for texts in asked]
        [together] = s.release()
        assert sorted(map(str, together)) == sorted(text for texts in asked for text in texts)
        for texts, future in zip(asked, futures):
            for space, rows in alone.encode_texts(texts).items():
                np.testing.assert_array_equal(future.result(60)[space], rows)
    stats = s.encoder.stats()
    assert (stats.batches, stats.items, stats.waiting, stats.refused) == (2, 25, 0, 0)


def test_vectors_of_a_real_model_are_those_of_the_encoder_alone(demo_images: list[bytes]) -> None:
    texts = [f"a photo of {i} {'red ' * (i % 7)}boats" for i in range(60)]
    with OnnxEncoder("demo") as alone:
        wanted, shown = alone.encode_texts(texts), alone.encode_images(demo_images)
        with BatchingEncoder(alone, batch=16) as encoder, ThreadPoolExecutor(16) as threads:
            rows = list(threads.map(lambda text: encoder.encode_texts([text]), texts))
            pictures = list(threads.map(lambda image: encoder.encode_images([image]), demo_images))
            batches = encoder.stats().batches
    assert batches < len(texts) + len(demo_images)
    for space, vectors in wanted.items():
        found = np.concatenate([row[space] for row in rows])
        assert (found * vectors).sum(axis=1).min() > 0.999
    for space, vectors in shown.items():
        found = np.concatenate([row[space] for row in pictures])
        assert (found * vectors).sum(axis=1).min() > 0.999


@pytest.fixture(scope="module")
def demo_images() -> list[bytes]:
    from io import BytesIO

    from vlmsearch.demo.scenes import make_scene

    found = []
    for seed in range(12):
        out = BytesIO()
        make_scene(seed).draw(96).save(out, "PNG")
        found.append(out.getvalue())
    return found


def test_a_large_request_does_not_hold_back_small_ones() -> None:
    with scene(batch=32) as s:
        s.hold()
        large = s.ask(*(f"large {i}" for i in range(1000)))
        small = [s.ask(f"small {i}") for i in range(5)]
        batches = s.release()
        assert {f"small {i}" for i in range(5)} <= set(batches[0])
        assert len(batches[0]) == 8  # the large one goes on meanwhile, with few items
        assert [len(batch) for batch in batches[1:4]] == [8, 32, 32]
        for future in small:
            assert future.result(60)["minilm"].shape == (1, 128)
        wanted = MockEncoder().encode_texts([f"large {i}" for i in range(1000)])["minilm"]
        np.testing.assert_array_equal(large.result(60)["minilm"], wanted)


def test_two_large_requests_share_every_batch() -> None:
    with scene(batch=8) as s:
        s.hold()
        one, other = s.ask(*["one"] * 20), s.ask(*["other"] * 20)
        batches = s.release()
        assert [len([item for item in batch if item == "one"]) for batch in batches] == [4] * 5
        assert len(one.result(60)["clip"]) == len(other.result(60)["clip"]) == 20


def test_a_batch_has_one_kind_of_item_and_long_texts_fill_it() -> None:
    with scene() as s:
        s.hold()
        asked = [s.ask("a query", role="query"), s.ask("a document")]
        asked.append(s.threads.submit(s.encoder.encode_images, [png((255, 0, 0))]))
        until(lambda: s.encoder.stats().waiting == 3)
        long = [s.ask("x" * 10_000) for _ in range(3)]
        s.release()
        for future in (*asked, *long):
            future.result(60)
    kinds = [(kind, len(items)) for kind, items in s.gate.calls[1:]]
    assert sorted(kinds) == [("document", 1), ("document", 1), ("document", 2), ("image", 1), ("query", 1)]


def png(colour: tuple[int, int, int]) -> bytes:
    from io import BytesIO

    from PIL import Image

    out = BytesIO()
    Image.new("RGB", (8, 8), colour).save(out, "PNG")
    return out.getvalue()


def test_a_bad_item_fails_its_own_request_by_its_place_there() -> None:
    good, bad = [png((i * 20, 0, 0)) for i in range(4)], b"no image"
    with scene() as s:
        s.hold()
        requests = [[good[0]], [good[1], bad, good[2]], [good[3]], [bad]]
        futures = []
        for number, images in enumerate(requests, 1):
            futures.append(s.threads.submit(s.encoder.encode_images, images))
            until(lambda number=number: s.encoder.stats().waiting == number)  # type: ignore[misc]
        s.release()
        wanted = MockEncoder().encode_images(good)["clip"]
        np.testing.assert_array_equal(futures[0].result(60)["clip"], wanted[:1])
        np.testing.assert_array_equal(futures[2].result(60)["clip"], wanted[3:])
        with pytest.raises(InvalidBatchError) as caught:
            futures[1].result(60)
        assert list(caught.value.items) == [1]
        assert caught.value.code == "unsupported"
        assert caught.value.vectors is not None
        np.testing.assert_array_equal(caught.value.vectors["clip"], wanted[1:3])
        with pytest.raises(InvalidInputError):
            futures[3].result(60)


def test_a_request_that_breaks_the_encoder_breaks_alone() -> None:
    with scene() as s:
        s.hold()
        futures = [s.ask("a dog"), s.ask("impossible"), s.ask("a cat")]
        s.release()
        with pytest.raises(ValueError, match="what no encoder expects"):
            futures[1].result(60)
        assert [len(futures[i].result(60)["clip"]) for i in (0, 2)] == [1, 1]


def test_where_the_server_is_away_all_are_told_at_once_and_the_next_one_is_served() -> None:
    with scene() as s:
        s.hold()
        s.gate.failures = [BackendUnavailableError("first"), BackendUnavailableError("away")]
        futures = [s.ask("a dog"), s.ask("a cat")]
        s.gate.open.set()
        for future, said in ((s.first, "first"), (futures[0], "away"), (futures[1], "away")):
            with pytest.raises(BackendUnavailableError, match=said):
                future.result(60)
        assert len(s.gate.calls) == 2
        assert len(s.encoder.encode_texts(["a bird"])["clip"]) == 1


def test_a_full_queue_refuses_and_says_when_to_come_again() -> None:
    with scene(queue=2) as s:
        s.encoder.encode_texts(["so that the speed is known"])
        s.hold()
        accepted = [s.ask("one"), s.ask("two")]
        with pytest.raises(OverloadedError, match="2 requests to encode are waiting") as caught:
            s.encoder.encode_texts(["three"])
        assert caught.value.retry_after > 0
        s.release()
        assert all(len(future.result(60)["clip"]) == 1 for future in accepted)
        assert len(s.encoder.encode_texts(["three"])["clip"]) == 1
        assert s.encoder.stats().refused == 1


def test_what_is_not_begun_in_time_is_given_up_and_not_encoded() -> None:
    with scene(deadline=0.05) as s:
        s.hold()
        with pytest.raises(OverloadedError, match=r"nothing of the request was begun within 0\.05 s"):
            s.encoder.encode_texts(["late"])
        assert s.release() == []
        assert len(s.first.result(60)["clip"]) == 1  # which was begun, and took longer


def test_a_cancelled_request_frees_its_thread_at_once_and_is_not_encoded() -> None:
    token = CancelToken()

    def ask(texts: Sequence[str]) -> dict[str, Vectors]:
        with running_under(token):
            return s.encoder.encode_texts(texts)

    with scene(batch=4) as s:
        s.hold()
        waiting = s.threads.submit(ask, ["given up"] * 100)
        other = s.ask("a dog")
        until(lambda: s.encoder.stats().waiting == 2)
        token.cancel()
        with pytest.raises(OperationCancelledError):
            waiting.result(60)  # while the gate is closed
        assert s.release() == [["a dog"]]
        assert len(other.result(60)["clip"]) == 1
        assert s.encoder.stats().cancelled == 1


def test_a_request_that_is_cancelled_while_it_is_encoded_frees_its_thread_and_nothing_more_of_it_is_encoded() -> None:
    token = CancelToken()

    def ask() -> dict[str, Vectors]:
        with running_under(token):
            return s.encoder.encode_texts(["x"] * 100)

    with scene(batch=4) as s:
        s.gate.open.clear()
        asked = s.threads.submit(ask)
        assert s.gate.begun.wait(60)
        token.cancel()
        with pytest.raises(OperationCancelledError):
            asked.result(60)
        s.gate.open.set()
        s.encoder.encode_texts(["after"])
        assert [len(items) for _, items in s.gate.calls] == [4, 1]


def test_closing_finishes_what_was_accepted() -> None:
    with no_thread_left("vlmsearch-batch"), scene(batch=2) as s:
        s.hold()
        futures = [s.ask(f"text {i}") for i in range(5)]
        closing = s.threads.submit(s.encoder.close)
        until(lambda: is_closed(s.encoder))
        assert not s.gate.closed
        s.gate.open.set()
        assert all(len(future.result(60)["clip"]) == 1 for future in futures)
        closing.result(60)
        assert s.gate.closed


def test_a_query_that_finds_nothing_under_way_is_encoded_in_its_own_thread_and_what_comes_then_is_a_batch() -> None:
    encoding: list[str] = []

    class Told(Gate):
        def encode_texts(self, texts: Sequence[str], *, role: Role = "document") -> dict[str, Vectors]:
            encoding.append(threading.current_thread().name)
            return super().encode_texts(texts, role=role)

    gate = Told()
    with ThreadPoolExecutor(4, "caller") as threads, BatchingEncoder(gate, delay=0) as encoder:
        s = Scene(gate, encoder, threads)
        gate.open.clear()
        s.first = threads.submit(encoder.encode_texts, ["first"], role="query")
        assert gate.begun.wait(60)
        others = [s.ask(text, role="query") for text in ("a dog", "a car")]
        assert s.release() == [["a dog", "a car"]]
        assert all(len(future.result(60)["clip"]) == 1 for future in (s.first, *others))
        encoder.encode_texts(["after"], role="query")
    assert [name.partition("_")[0] for name in encoding] == ["caller", "vlmsearch-batch-0", "MainThread"]


@pytest.mark.parametrize("fails", [False, True])
def test_closing_waits_for_a_query_that_is_encoded_in_its_own_thread(fails: bool) -> None:
    with no_thread_left("vlmsearch-batch"), scene() as s:
        s.gate.open.clear()
        s.gate.failures = [ValueError("a bug")] if fails else []
        asked = s.threads.submit(s.encoder.encode_texts, ["first"], role="query")
        assert s.gate.begun.wait(60)
        closing = s.threads.submit(s.encoder.close)
        until(lambda: is_closed(s.encoder))
        assert not s.gate.closed
        s.gate.open.set()
        assert (asked.exception(60) is not None) == fails
        closing.result(60)
        assert s.gate.closed


def test_a_query_that_is_cancelled_in_its_own_thread_is_counted_and_has_no_vectors() -> None:
    token = CancelToken()

    def ask() -> dict[str, Vectors]:
        with running_under(token):
            return s.encoder.encode_texts(["given up"], role="query")

    with scene() as s:
        s.gate.open.clear()
        asked = s.threads.submit(ask)
        assert s.gate.begun.wait(60)
        token.cancel()
        s.gate.open.set()
        with pytest.raises(OperationCancelledError):
            asked.result(60)
        assert s.encoder.stats().cancelled == 1


def is_closed(encoder: BatchingEncoder) -> bool:
    try:
        encoder.encode_texts(["late"])
    except BackendError as exc:
        return "closed" in str(exc)
    return False


def test_a_request_alone_does_not_wait_for_others() -> None:
    with BatchingEncoder(MockEncoder(), delay=20.0) as encoder:
        begun = time.monotonic()
        for _ in range(5):
            encoder.encode_texts(["a dog"])
        assert time.monotonic() - begun < 20


class Timed(MockEncoder):
    """Takes some seconds for a batch, and remembers when it began each."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.seconds = seconds
        self.calls: list[tuple[float, list[str]]] = []

    def encode_texts(self, texts: Sequence[str], *, role: Role = "document") -> dict[str, Vectors]:
        self.calls.append((time.monotonic(), list(texts)))
        time.sleep(self.seconds)
        return super().encode_texts(texts, role=role)


@pytest.mark.slow
def test_a_batch_waits_for_as_many_requests_as_there_were_but_for_a_part_of_its_time() -> None:
    alone = Timed(0.8)
    with BatchingEncoder(alone, delay=60.0) as encoder, ThreadPoolExecutor(4) as threads:

        def ask(*texts: str) -> list[Future[dict[str, Vectors]]]:
            return [threads.submit(encoder.encode_texts, [text]) for text in texts]

        first = ask("first")
        until(lambda: bool(alone.calls))
        for future in (*first, *ask("a", "b", "c")):
            future.result(60)
        for future in ask("d", "e", "f"):
            future.result(60)
        assert [sorted(texts) for _, texts in alone.calls[1:]] == [["a", "b", "c"], ["d", "e", "f"]]
        asked = time.monotonic()
        encoder.encode_texts(["alone"])
        encoder.encode_texts(["alone again"])
    assert 0.15 < alone.calls[-2][0] - asked < 0.6  # a quarter of 0.8 seconds
    assert alone.calls[-1][0] - alone.calls[-2][0] < 1.0


def test_every_batch_is_told_of() -> None:
    batches: list[Batch] = []
    with BatchingEncoder(MockEncoder(), batch=4, on_batch=batches.append) as encoder:
        encoder.encode_texts(["a"] * 6, role="query")
        until(lambda: len(batches) == 2)
    assert [(batch.kind, batch.items, batch.requests) for batch in batches] == [("query", 4, 1), ("query", 2, 1)]


@pytest.mark.parametrize("options", [{"batch": 0}, {"queue": 0}, {"delay": -1}, {"deadline": 0}])
def test_numbers_out_of_range_are_refused(options: dict[str, int]) -> None:
    with pytest.raises(ConfigError):
        BatchingEncoder(MockEncoder(), **options)  # type: ignore[arg-type]


def test_a_request_of_nothing_has_no_rows() -> None:
    with BatchingEncoder(MockEncoder()) as encoder:
        assert encoder.encode_texts([])["minilm"].shape == (0, 128)
        assert len(encoder.encode_images([])["clip"]) == 0
        assert encoder.stats().batches == 0


def test_nothing_is_lost_or_mixed_up_among_many_threads() -> None:
    """Requests of all sizes and kinds, some of them bad or cancelled, for a second."""
    alone = MockEncoder()
    wanted = {i: alone.encode_texts([f"text {i}"])["minilm"][0] for i in range(50)}
    end = time.monotonic() + 1.0

    def client(seed: int) -> int:
        rng, done = np.random.default_rng(seed), 0
        while time.monotonic() < end:
            numbers = rng.integers(50, size=rng.choice([1, 1, 1, 7, 100])).tolist()
            texts = [f"text {i}" for i in numbers]
            bad = seed % 4 == 0 and int(rng.integers(len(texts)))
            if seed % 4 == 0:
                texts[bad] = "\ud800"
                numbers.pop(bad)
            try:
                rows = encoder.encode_texts(texts, role="query" if seed % 3 else "document")
            except InvalidBatchError as exc:
                rows = dict(exc.vectors or {}) if list(exc.items) == [bad] else {}
            np.testing.assert_array_equal(rows["minilm"], np.array([wanted[i] for i in numbers]).reshape(-1, 128))
            done += 1
        return done

    with BatchingEncoder(MockEncoder(), batch=16) as encoder, ThreadPoolExecutor(16) as threads:
        assert sum(threads.map(client, range(16))) > 16
        assert encoder.stats().waiting == encoder.stats().waiting_items == 0


def test_clients_that_come_again_and_again_fill_the_batches() -> None:
    """As soon as a batch is done, the next one waits for those that it answered: not for half of them."""

    def client(_: int) -> None:
        for number in range(12):
            encoder.encode_texts([f"text {number}"])

    with BatchingEncoder(Timed(0.08), delay=0.1) as encoder, ThreadPoolExecutor(16) as threads:
        list(threads.map(client, range(16)))
        stats = encoder.stats()
    assert stats.items == 192
    assert stats.items / stats.batches > 11


def test_an_encoder_that_gains_from_it_computes_several_batches_at_a_time() -> None:
    class Two(Gate):
        batch_sizes = BatchSizes(texts=4, calls=2)

    gate = Two()
    gate.open.clear()
    with BatchingEncoder(gate) as encoder, ThreadPoolExecutor(4) as threads:
        try:
            futures = [threads.submit(encoder.encode_texts, [text] * 6) for text in ("one", "other")]
            until(lambda: len(gate.calls) == 2)
            time.sleep(0.05)
            assert len(gate.calls) == 2
        finally:
            gate.open.set()
        wanted = MockEncoder().encode_texts(["one", "other"])["clip"]
        for future, row in zip(futures, wanted):
            np.testing.assert_array_equal(future.result(60)["clip"], np.tile(row, (6, 1)))


def test_encoders_say_what_batches_they_compute_best() -> None:
    with OnnxEncoder("demo", threads=2) as encoder:
        assert encoder.batch_sizes == BatchSizes(images=8, texts=32, characters=2048)
    with OnnxEncoder("demo", threads=1, batch_size=2) as encoder:
        assert encoder.batch_sizes == BatchSizes(images=2, texts=2, characters=1024)
