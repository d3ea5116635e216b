"""Stand-ins for the back ends of vlmsearch, and the suites that a real one has to pass.

>>> from vlmsearch import Document, Pipeline
>>> from vlmsearch_mocks import MockEncoder, MockGenerator, MockStore
>>> pipeline = Pipeline(MockEncoder(), MockStore(), MockGenerator(["It is on the mat [1]."]))

`MockStore` is the store of production over `MockMongo` and `MockChroma`; `MemoryStore` is a dictionary with exact
search. None needs a server, nor more than vlmsearch itself. The fixtures are in ``vlmsearch_mocks.fixtures`` (one line
in a conftest: ``pytest_plugins = ["vlmsearch_mocks.fixtures"]``), the suites in ``vlmsearch_mocks.contracts``; those
two need pytest.
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
    """The stand-ins whose drivers are heavy, when they are asked for."""
    if name not in _LATE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(_LATE[name]), name)
