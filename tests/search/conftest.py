"""The fixtures that these tests share, some of them with other folders."""

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.mongo_servers import mongo_address
from tests.support.postgres_servers import postgres_url
from tests.support.servers import chroma_address
from vlmsearch import Store
from vlmsearch.registry import open_store

__all__ = ["chroma_address", "mongo_address", "postgres_url"]


@pytest.fixture(params=["mock", "sqlite", "mongodb", "postgresql"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    """Open an empty store of each kind."""
    if request.param == "mongodb":
        url = f"mongodb://{request.getfixturevalue('mongo_address')}/{uuid.uuid4().hex[:12]}"
    elif request.param == "postgresql":
        url = f"{request.getfixturevalue('postgres_url')}?table=t{uuid.uuid4().hex[:12]}"
    else:
        url = {"mock": "mock:", "sqlite": f"sqlite:{tmp_path / 'index'}"}[request.param]
    with open_store(url) as opened:
        yield opened
