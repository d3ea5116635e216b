"""Stand-ins for the back ends of vlmsearch, and the suites that a real one has to pass.

>>> from vlmsearch import Document, Pipeline
>>> from vlmsearch_mocks import MockEncoder, MockGenerator, MockStore
>>> pipeline = Pipeline(MockEncoder(), MockStore(), MockGenerator(["It is on the mat [1]."]))

`MockStore` is the store of production over `MockMongo` and `MockChroma`, which need ``vlmsearch[mongo]``; `MemoryStore`
needs nothing and is exact. The fixtures are in ``vlmsearch_mocks.fixtures`` (one line in a conftest:
``pytest_plugins = ["vlmsearch_mocks.fixtures"]``), the suites in ``vlmsearch_mocks.contracts``; those two need pytest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from vlmsearch_mocks.encoder import MockEncoder
from vlmsearch_mocks.faults import Faults
from vlmsearch_mocks.generator import MockGenerator
from vlmsearch_mocks.store import MemoryStore

if TYPE_CHECKING:
    from vlmsearch_mocks.chroma import MockChroma
    from vlmsearch_mocks.mongo import MockMongo
    from vlmsearch_mocks.pair import MockStore

__all__ = ["Faults", "MemoryStore", "MockChroma", "MockEncoder", "MockGenerator", "MockMongo", "MockStore"]

_LATE = {
    "MockChroma": "vlmsearch_mocks.chroma",
    "MockMongo": "vlmsearch_mocks.mongo",
    "MockStore": "vlmsearch_mocks.pair",
}


def __getattr__(name: str) -> object:
    """The stand-ins whose drivers are heavy, or optional, when they are asked for."""
    if name not in _LATE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    from vlmsearch.errors import MissingDependencyError

    try:
        return getattr(importlib.import_module(_LATE[name]), name)
    except ModuleNotFoundError as exc:
        if exc.name not in ("pymongo", "bson"):
            raise
        raise MissingDependencyError(f"{name} needs {exc.name}: pip install 'vlmsearch[mongo]'") from exc
