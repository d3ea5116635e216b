"""The requests of many threads, merged into the batches that an encoder computes best.

::

    callers' threads     put requests into the queue of their kind, and wait.
    one thread a call    takes items of each request in turn, encodes them together and deals the vectors out.

While a batch is computed, the next one gathers. So batches grow with the load. A query that finds nothing under way is
encoded in its own thread: to wake another takes as long as many an encoder. Requests take turns: one of a thousand
texts gets the room in a batch that others leave.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Literal, TypeAlias

import numpy as np
from opentelemetry.trace import Span, get_current_span

from vlmsearch._util.arguments import check_bounds, check_counts
from vlmsearch._util.cancellation import check_cancelled, on_cancel
from vlmsearch._util.retry import MAX_SECONDS, check_seconds
from vlmsearch._util.tracing import together
from vlmsearch.encoders.base import Encoder, MeasuresTexts, prepared_image
from vlmsearch.errors import (
    BackendError,
    BackendUnavailableError,
    InvalidBatchError,
    InvalidInputError,
    OverloadedError,
)
from vlmsearch.media.limits import DEFAULT_LIMITS, ImageLimits
from vlmsearch.types import ImageSource, Role, Vectors

_Lane: TypeAlias = Literal["query", "document", "image"]
"""The content of a batch: texts of a role, or images."""
_LANES: tuple[_Lane, ...] = ("query", "image", "document")
_Outcome: TypeAlias = "tuple[Mapping[str, Vectors], Mapping[int, InvalidInputError]]"
"""The vectors of usable items, by space, and the errors of others, by their place."""
_SMOOTHING = 0.1
"""Weight of the newest batch in the average time of a batch."""
_MIN_WAIT = 0.1
_PATIENCE = 0.25
"""Share of the time of a batch that the next one waits for more."""
_MIXED = 4
"""Divisor of the size of a batch that small requests and a large one share.

Such a batch costs a small request a few times its time alone, and the large one a third of its speed.
"""


@dataclass(frozen=True)
class Batch:
    """A batch that was encoded.

    Attributes:
        kind: Its content: ``query``, ``document`` or ``image``.
        items: Number of its items.
        requests: Number of requests that these are from.
        seconds: Time to encode it.

    Example:
        >>> from vlmsearch.registry import open_encoder
        >>> batches = []
        >>> with BatchingEncoder(open_encoder("mock:"), on_batch=batches.append) as encoder:
        ...     _ = encoder.encode_texts(["a dog", "a car"], role="query")
        >>> batches[0].kind, batches[0].items
        ('query', 2)
    """

    kind: _Lane
    items: int
    requests: int
    seconds: float


@dataclass(frozen=True)
class BatchingStats:
    """Counters of a `BatchingEncoder` since it was opened.

    Attributes:
        waiting: Number of requests in the queue.
        waiting_items: Number of their items that no batch has taken yet.
        batches: Number of batches that were encoded.
        items: Number of the items in these.
        refused: Number of requests that found the queue full or waited for too long.
        cancelled: Number of requests that their callers gave up.

    Example:
        >>> from vlmsearch.registry import open_encoder
        >>> with BatchingEncoder(open_encoder("mock:")) as encoder:
        ...     _ = encoder.encode_texts(["a dog", "a car"])
        ...     encoder.stats().waiting
        0
    """

    waiting: int
    waiting_items: int
    batches: int
    items: int
    refused: int
    cancelled: int


@dataclass(eq=False)
class _Request:
    """The request of one thread."""

    kind: _Lane
    items: Sequence[object]
    taken: int = 0
    """Number of items, from the first on, that went into batches."""
    under_way: int = 0
    """Number of parts that are being encoded."""
    parts: dict[int, Mapping[str, Vectors]] = field(default_factory=dict)
    """Vectors by the place of the first item that they are of."""
    bad: dict[int, InvalidInputError] = field(default_factory=dict)
    error: BaseException | None = None
    span: Span = field(default_factory=get_current_span)
    """Span that it is part of."""
    over: bool = False
    waiting: threading.Lock = field(default_factory=threading.Lock)
    """Held until the request is over. A lock wakes a thread for half of what an event costs."""

    def __post_init__(self) -> None:
        self.waiting.acquire()

    def end(self) -> None:
        """Let the thread that waits go on."""
        if not self.over:
            self.over = True
            self.waiting.release()

    @property
    def left(self) -> int:
        """Return how many items no batch has taken."""
        return len(self.items) - self.taken

    def outcome(self) -> dict[str, Vectors]:
        """Return the vectors by space, or raise what went wrong."""
        if self.error is not None:
            raise self.error
        parts = [self.parts[start] for start in sorted(self.parts)]
        vectors = {
            space: np.concatenate([part[space] for part in parts]) if len(parts) > 1 else rows.copy()
            for space, rows in parts[0].items()
        }
        if self.bad:
            raise InvalidBatchError(self.bad, vectors)
        return vectors


@dataclass(frozen=True)
class _Part:
    """Some neighbouring items of a request, in a batch."""

    request: _Request
    start: int
    end: int

    @property
    def items(self) -> Sequence[object]:
        return self.request.items[self.start : self.end]


class _Queue:
    """The requests of one kind that have items left, in the order of their turns."""

    def __init__(self, items: int, weigh: Callable[[object], int], weight: int) -> None:
        self.requests: deque[_Request] = deque()
        self.usual = 1
        """Probable number of requests: those of the batch before, and those that waited at its end."""
        self.since = 0.0
        """Time when the first request came, or the batch before ended."""
        self.patience = 0.0
        """Seconds after that for which a batch may wait, short beside the batch before."""
        self.under_way = 0
        self.seconds = 0.0
        """Seconds that an item takes."""
        self._items, self._weigh, self._weight = items, weigh, weight
        self._mixed = False

    @property
    def left(self) -> int:
        """Return how many items no batch has taken."""
        return sum(request.left for request in self.requests)

    @property
    def is_full(self) -> bool:
        """Return whether there is enough for a batch."""
        return len(self.requests) >= self.usual or self.left >= self._items

    def put(self, request: _Request) -> None:
        """Add a request, whose turn is last."""
        if not self.requests:
            self.since = time.monotonic()
        self.requests.append(request)

    def take(self) -> list[_Part]:
        """Take the items of a batch: one of each request in turn, until it is full."""
        starts: dict[_Request, int] = {}
        room, weight = self._room(), self._weight
        while self.requests and room:
            request = self.requests[0]
            weighs = self._weigh(request.items[request.taken])
            if starts and weighs > weight:
                break  # the next batch begins with it
            starts.setdefault(request, request.taken)
            request.taken += 1
            room, weight = room - 1, weight - weighs
            self.requests.popleft()
            if request.left:
                self.requests.append(request)
        return [_Part(request, start, request.taken) for request, start in starts.items()]

    def _room(self) -> int:
        """Return how many items a batch has: few where small requests wait for a large one, and once after they did."""
        few = min(max(self._items // _MIXED, len(self.requests)), self._items)
        lefts = [request.left for request in self.requests]
        was, self._mixed = self._mixed, min(lefts) <= few < self._items < max(lefts)
        return few if was or self._mixed else self._items

    def note(self, parts: Sequence[_Part], items: int, seconds: float) -> None:
        """Learn from a batch that is done."""
        self.since, self.usual = time.monotonic(), len({part.request for part in parts} | set(self.requests))
        self.patience = seconds * _PATIENCE
        self.under_way -= items
        was = self.seconds or seconds / items
        self.seconds = was + _SMOOTHING * (seconds / items - was)


class BatchingEncoder(Encoder):
    """An encoder that merges the requests of many threads into batches; the vectors are the same.

    A batch has items of one kind: texts of one role, or images. An item that cannot be used fails its own request
    alone. The items of a request that its caller gave up are not encoded.

    Args:
        encoder: Encoder that computes; closing this closes it.
        batch: Maximum number of items of a batch; by default what the encoder computes fastest (`Encoder.batch_sizes`).
        queue: Maximum number of requests that wait, whatever their size.
        delay: Maximum seconds for which a batch waits until there are as many requests as at the end of the one before.
            It waits for no more than a quarter of the time of that batch. A request that comes alone, after another
            that was alone, does not wait.
        deadline: Seconds after which a request is given up, if nothing of it was begun.
        on_batch: Function that is called after each batch, from the thread that encoded it.

    Raises:
        ConfigError: A number is out of its range.

    Example:
        >>> from concurrent.futures import ThreadPoolExecutor
        >>> from vlmsearch.registry import open_encoder
        >>> with BatchingEncoder(open_encoder("mock:")) as encoder, ThreadPoolExecutor(8) as threads:
        ...     rows = list(threads.map(lambda text: encoder.encode_texts([text])["minilm"], ["a dog", "a car"] * 8))
        >>> len(rows), rows[0].shape
        (16, (1, 128))
    """

    def __init__(
        self,
        encoder: Encoder,
        *,
        batch: int | None = None,
        queue: int = 256,
        delay: float = 0.002,
        deadline: float = 30.0,
        on_batch: Callable[[Batch], None] | None = None,
    ) -> None:
        check_counts(batch=batch, queue=queue)
        check_bounds(0, MAX_SECONDS, delay=delay)
        check_seconds(deadline=deadline)
        self._encoder = encoder
        self.fingerprint, self.spaces, self.relevance = encoder.fingerprint, encoder.spaces, encoder.relevance
        self.domains = encoder.domains
        self.batch_sizes = sizes = encoder.batch_sizes
        if isinstance(encoder, MeasuresTexts):
            self.text_window, self.text_tokens = encoder.text_window, encoder.text_tokens
        self._limit, self._delay, self._deadline = queue, delay, deadline
        self._on_batch = on_batch
        self._changed = threading.Condition()
        texts, images = batch or sizes.texts, batch or sizes.images
        self._queues: dict[_Lane, _Queue] = {
            kind: _Queue(images, _single, images) if kind == "image" else _Queue(texts, _length, sizes.characters)
            for kind in _LANES
        }
        self._turns: deque[_Lane] = deque(_LANES)
        self._closed = False
        self._under_way = self._batches = self._items = self._refused = self._cancelled = 0
        self._threads = [
            threading.Thread(target=self._work, name=f"vlmsearch-batch-{number}", daemon=True)
            for number in range(sizes.calls)
        ]
        for thread in self._threads:
            thread.start()

    def known_letters(self, texts: Sequence[str]) -> float | None:
        """Return the share of letters in tokens that mean something; see `Encoder.known_letters`.

        Args:
            texts: Any number of them.

        Returns:
            A number from 0 to 1; None where the encoder has no tokenizer at hand.
        """
        return self._encoder.known_letters(texts)

    def encode_texts(self, texts: Sequence[str], *, role: Role = "document") -> dict[str, Vectors]:
        """Encode texts, together with those of other threads; see `Encoder.encode_texts`.

        Args:
            texts: Any number of them.
            role: Whether they are queries or documents.

        Returns:
            Float32 arrays of shape (len(texts), dim) by the names of the spaces.

        Raises:
            OverloadedError: The queue is full, or nothing of the request was begun in time.
            OperationCancelledError: The caller gave it up.
            InvalidBatchError: Some texts cannot be used; it has the vectors of the others.
            BackendError: The encoder failed, or is closed.
        """
        if not texts:
            return self._encoder.encode_texts(texts, role=role)
        return self._ask(_Request(role, texts))

    def encode_images(self, images: Sequence[ImageSource]) -> dict[str, Vectors]:
        """Encode images, together with those of other threads; see `Encoder.encode_images`.

        Args:
            images: Any number of them.

        Returns:
            Float32 arrays of shape (len(images), dim) by the names of the spaces.

        Raises:
            OverloadedError: The queue is full, or nothing of the request was begun in time.
            OperationCancelledError: The caller gave it up.
            InvalidBatchError: Some images cannot be used; it has the vectors of the others.
            BackendError: The encoder failed, or is closed.
        """
        if not images:
            return self._encoder.encode_images(images)
        return self._ask(_Request("image", images))

    def prepare_image(self, image: ImageSource, limits: ImageLimits = DEFAULT_LIMITS) -> ImageSource:
        """Prepare one image in the caller's thread; see `PreparesImages.prepare_image`.

        Args:
            image: The image.
            limits: How large it may be.

        Returns:
            What the encoder takes with the least work left.

        Raises:
            InvalidInputError: The image cannot be used.
        """
        return prepared_image(self._encoder, image, limits)

    @property
    def encoder(self) -> Encoder:
        """Return what computes."""
        return self._encoder

    def stats(self) -> BatchingStats:
        """Count what waits and what was done.

        Returns:
            The figures of this moment.
        """
        with self._changed:
            left = sum(queue.left for queue in self._queues.values())
            return BatchingStats(self._waiting, left, self._batches, self._items, self._refused, self._cancelled)

    def close(self) -> None:
        """Finish what was accepted, take nothing more, and close the encoder."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
            self._changed.wait_for(lambda: not self._under_way)  # a query may be encoded in its own thread
        for thread in self._threads:
            thread.join()
        self._encoder.close()

    # ---- callers' threads

    def _ask(self, request: _Request) -> dict[str, Vectors]:
        check_cancelled()
        parts = self._accept(request)
        try:
            with on_cancel(partial(self._give_up, request)):
                if parts:
                    self._encode(request.kind, parts)
                elif not request.waiting.acquire(timeout=self._deadline):
                    self._expire(request)
                    request.waiting.acquire()
            check_cancelled()
        except BaseException:
            self._give_up(request)
            raise
        return request.outcome()

    def _accept(self, request: _Request) -> list[_Part]:
        """Put a request into its queue. Return the batch of a query that finds nothing under way."""
        with self._changed:
            if self._closed:
                raise BackendError("the encoder is closed")
            if self._waiting >= self._limit:
                raise self._overloaded(f"{self._waiting} requests to encode are waiting, and no more are accepted")
            queue = self._queues[request.kind]
            is_alone = not self._under_way and not self._waiting
            queue.put(request)
            if is_alone and request.kind == "query" and len(request.items) == 1:
                return self._begin(request.kind)
            if len(queue.requests) == 1 or queue.is_full:  # else a thread waits for more already, or is busy
                self._changed.notify()
            return []

    def _give_up(self, request: _Request) -> None:
        """Encode no more of a request; nobody waits for it any longer."""
        with self._changed:
            if not request.over:
                self._cancelled += 1
                self._end(request)

    def _expire(self, request: _Request) -> None:
        """Raise OverloadedError where nothing of a request was begun."""
        with self._changed:
            if request.taken == 0 and not request.over:
                self._end(request)
                raise self._overloaded(f"nothing of the request was begun within {self._deadline:g} s")

    def _end(self, request: _Request) -> None:
        """Take a request out of its queue and say that it is over."""
        if request.left and request in self._queues[request.kind].requests:
            self._queues[request.kind].requests.remove(request)
        request.end()

    def _overloaded(self, why: str) -> OverloadedError:
        self._refused += 1
        left = sum((queue.under_way + queue.left) * queue.seconds for queue in self._queues.values())
        wait = max(_MIN_WAIT, left)
        return OverloadedError(f"the encoder is overloaded: {why}; try again in {wait:.1f} s", retry_after=wait)

    @property
    def _waiting(self) -> int:
        return sum(len(queue.requests) for queue in self._queues.values())

    # ---- threads that encode

    def _work(self) -> None:
        while True:
            with self._changed:
                kind = self._next_kind()
                if kind is None:
                    return
                parts = self._begin(kind)
            self._encode(kind, parts)

    def _begin(self, kind: _Lane) -> list[_Part]:
        """Take the items of a batch, which is under way from now on."""
        parts = self._queues[kind].take()
        self._under_way += 1
        for part in parts:
            self._queues[kind].under_way += part.end - part.start
            part.request.under_way += 1
        return parts

    def _encode(self, kind: _Lane, parts: Sequence[_Part]) -> None:
        """Encode a batch and deal the vectors out."""
        count = sum(part.end - part.start for part in parts)
        begun = time.monotonic()
        with together("batch", {"vlmsearch.kind": kind, "vlmsearch.count": count}, [p.request.span for p in parts]):
            outcomes = self._outcomes(kind, parts)
        seconds = time.monotonic() - begun
        with self._changed:
            self._under_way -= 1
            self._queues[kind].note(parts, count, seconds)
            self._batches += 1
            self._items += count
            for part, outcome in zip(parts, outcomes):
                self._deal(part, outcome)
            if self._waiting or self._closed:  # a thread waits for its turn, or all are to end
                self._changed.notify_all()
        if self._on_batch:
            self._on_batch(Batch(kind, count, len(parts), seconds))

    def _next_kind(self) -> _Lane | None:
        """Return the kind whose turn it is, as soon as a batch is to begin. None when all is done."""
        while True:
            ready = [kind for kind in self._turns if self._queues[kind].requests]
            if not ready and self._closed:
                return None
            if not ready or self._under_way == len(self._threads):
                self._changed.wait()
                continue
            waits = {kind: self._wait_for_more(self._queues[kind]) for kind in ready}
            kind = min(waits, key=waits.__getitem__)  # the first of those that wait no longer
            if waits[kind] == 0:
                self._turns.remove(kind)
                self._turns.append(kind)
                return kind
            self._changed.wait(waits[kind])

    def _wait_for_more(self, queue: _Queue) -> float:
        """Return how many seconds to wait yet for the requests that probably come: as many as in the batch before."""
        if queue.is_full or self._closed:
            return 0.0
        return max(0.0, queue.since + min(self._delay, queue.patience) - time.monotonic())

    def _deal(self, part: _Part, outcome: _Outcome | BaseException) -> None:
        """Give a request what became of a part of it; the last one ends it."""
        request = part.request
        request.under_way -= 1
        if request.over:
            return
        if isinstance(outcome, BaseException):
            request.error = outcome
            self._end(request)
            return
        vectors, bad = outcome
        request.parts[part.start] = vectors
        request.bad.update({part.start + place: error for place, error in bad.items()})
        if not request.left and not request.under_way:
            request.end()

    def _outcomes(self, kind: _Lane, parts: Sequence[_Part]) -> list[_Outcome | BaseException]:
        """Return what becomes of each part of a batch.

        A failure that is not the back end's is looked for part by part.
        """
        try:
            return list(_dealt(self._encoded(kind, [item for part in parts for item in part.items]), parts))
        except BackendUnavailableError as exc:
            return [exc for _ in parts]
        except BaseException as exc:  # noqa: BLE001 - raised again in the threads that wait
            if len(parts) == 1:
                return [exc]
            return [outcome for part in parts for outcome in self._outcomes(kind, [part])]

    def _encoded(self, kind: _Lane, items: Sequence[object]) -> _Outcome:
        """Return the vectors of the items that can be used, by space, and why others cannot."""
        encode: Callable[[Sequence[object]], dict[str, Vectors]] = (
            self._encoder.encode_images if kind == "image" else partial(self._encoder.encode_texts, role=kind)  # type: ignore[assignment]
        )
        try:
            return encode(items), {}
        except InvalidBatchError as exc:
            if exc.vectors is not None:
                return exc.vectors, exc.items
            return encode([item for place, item in enumerate(items) if place not in exc.items]), exc.items


def _dealt(outcome: _Outcome, parts: Sequence[_Part]) -> list[_Outcome]:
    """Return what belongs to each part, of what a batch gave."""
    vectors, bad = outcome
    outcomes: list[_Outcome] = []
    place = row = 0
    for part in parts:
        count = part.end - part.start
        own = {item - place: bad[item] for item in range(place, place + count) if item in bad}
        rows = count - len(own)
        outcomes.append(({space: all_rows[row : row + rows] for space, all_rows in vectors.items()}, own))
        place, row = place + count, row + rows
    return outcomes


def _single(_: object) -> int:
    return 1


def _length(text: object) -> int:
    return len(text) if isinstance(text, str) else 1
