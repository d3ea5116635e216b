"""Spaces, vectors and records for the suites."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeVar

import numpy as np
import pytest

from vlmsearch.stores.base import Store
from vlmsearch.types import Document, Field, Hit, Record, Scalar, Space, Stamp, Vectors

IMAGE = Field("clip", "image")
CAPTION = Field("clip", "text")
TEXT = Field("minilm", "text")
SPACES = (Space("clip", 32, frozenset({"text", "image"})), Space("minilm", 24, frozenset({"text"})))
DIMS = {IMAGE: 32, CAPTION: 32, TEXT: 24}
TOLERANCE = 1e-5
_MADE: pytest.StashKey[Any] = pytest.StashKey()


def unit_vectors(count: int, field: Field = IMAGE, *, seed: int = 0) -> Vectors:
    """Random vectors for a field of the suite's spaces."""
    rows = np.random.default_rng(seed).normal(size=(count, DIMS[field])).astype(np.float32)
    unit: Vectors = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    return unit


def make_records(
    count: int, fields: Sequence[Field] = (IMAGE,), *, seed: int = 0, metadata: Sequence[Mapping[str, Scalar]] = ()
) -> list[Record]:
    """Records ``id-0``, ``id-1``, ... with random vectors."""
    vectors = {field: unit_vectors(count, field, seed=seed + i) for i, field in enumerate(fields)}
    return [
        Record(
            Document(f"id-{i}", text=f"text {i}", metadata=metadata[i] if metadata else {"number": i}),
            {field: rows[i] for field, rows in vectors.items()},
            Stamp(f"digest {i}", f"source {i % 3}"),
        )
        for i in range(count)
    ]


def exact(records: Sequence[Record], field: Field, query: Vectors) -> list[Hit]:
    """Return all documents with that field, best first; equal cosines in the order of their ids."""
    hits = [Hit(r.document.id, float(r.vectors[field] @ query)) for r in records if field in r.vectors]
    return sorted(hits, key=lambda hit: (-hit.score, hit.id))


class Closeable(Protocol):
    """An object that a suite opens once and closes at its end."""

    def close(self) -> None:
        """Let go of it."""


T = TypeVar("T", bound=Closeable)


def once_a_class(request: pytest.FixtureRequest, make: Callable[[], T]) -> T:
    """Make an object at a class's first test, and close it after the last one."""
    node = request.node.getparent(pytest.Class)
    if _MADE not in node.stash:
        made = node.stash[_MADE] = make()
        node.addfinalizer(made.close)
    opened: T = node.stash[_MADE]
    return opened


class StoreSuite(ABC):
    """Settings of the suites for stores.

    ``durable`` stores find what they had after `close`; ``recall`` is the least share of the true neighbours among
    those found in collections of thousands, 1 for exact search.
    """

    durable = False
    recall = 1.0

    @abstractmethod
    def make_store(self, tmp_path: Path) -> Store:
        """Return a store.

        One that is ``durable`` is the same for the same path, and nothing yet for a new one.
        """

    @pytest.fixture
    def store(self, tmp_path: Path) -> Iterator[Store]:
        """Yield a store bound to the suite's spaces."""
        with self.make_store(tmp_path) as store:
            store.bind("encoder 1", SPACES)
            yield store
