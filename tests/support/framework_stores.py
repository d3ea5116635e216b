"""Empty places on every kind of store, by URL, as a framework is given them."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path

import pytest

STORES = ["sqlite", "chroma", "mongodb", "mongodb+chroma"]


def store_url(kind: str, tmp_path: Path, request: pytest.FixtureRequest) -> str:
    """The URL of a new index on a store of this kind, on the real server where it has one."""
    name = f"t{sha256(str(tmp_path).encode()).hexdigest()[:16]}"
    if kind == "sqlite":
        return f"sqlite:{tmp_path / 'index'}"
    if kind == "chroma":
        return f"chroma://{request.getfixturevalue('chroma_address')}/{name}"
    mongo = f"{kind}://{request.getfixturevalue('mongo_address')}/{name}"
    return mongo if kind == "mongodb" else f"{mongo}?chroma=http://{request.getfixturevalue('chroma_address')}"
