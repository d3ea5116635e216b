"""An empty index on each kind of store, on its real server where it has one."""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256
from itertools import count
from pathlib import Path

import pytest

from vlmsearch import Store
from vlmsearch.registry import open_store

MakeStore = Callable[[str], Store]
_numbers = count()


def store_url(kind: str, tmp_path: Path, request: pytest.FixtureRequest) -> str:
    """The URL of a new index on a store of this kind."""
    name = f"test-{sha256(str(tmp_path).encode()).hexdigest()[:16]}-{next(_numbers)}"
    if kind == "memory":
        return "mock:"
    if kind == "sqlite":
        return f"sqlite:{tmp_path / name}"
    if kind == "chroma server":
        return f"chroma://{request.getfixturevalue('chroma_address')}/{name}"
    if kind == "postgresql":
        return f"{request.getfixturevalue('postgres_url')}?table={name.replace('-', '_')}"
    mongo = f"{kind}://{request.getfixturevalue('mongo_address')}/{name}"
    return mongo if kind == "mongodb" else f"{mongo}?chroma=http://{request.getfixturevalue('chroma_address')}"


@pytest.fixture
def make_store(tmp_path: Path, request: pytest.FixtureRequest) -> MakeStore:
    """Make an empty store of a kind, which whoever asks closes."""
    return lambda kind: open_store(store_url(kind, tmp_path, request))
