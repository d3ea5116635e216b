"""An empty store of each kind, over its real server where it has one."""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

import pytest

from vlmsearch import Store
from vlmsearch.registry import open_store


@pytest.fixture(params=["sqlite", "chroma", "chroma server", "mongodb", "mongodb+chroma"])
def any_store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    """An empty store of each kind."""
    name = f"test-{sha256(str(tmp_path).encode()).hexdigest()[:16]}"

    def address(fixture: str) -> str:
        return str(request.getfixturevalue(fixture))

    if request.param in ("sqlite", "chroma"):
        url = f"{request.param}:{tmp_path / 'index'}"
    elif request.param == "chroma server":
        url = f"chroma://{address('chroma_address')}/{name}"
    elif request.param == "mongodb":
        url = f"mongodb://{address('mongo_address')}/{name}"
    else:
        url = f"mongodb+chroma://{address('mongo_address')}/{name}?chroma=http://{address('chroma_address')}"
    with open_store(url) as opened:
        yield opened
