"""Stand-ins for the back ends of vlmsearch, and the suites that back ends pass.

>>> from vlmsearch import Document, Pipeline
>>> from vlmsearch_mocks import MemoryStore, MockEncoder, MockGenerator
>>> pipeline = Pipeline(MockEncoder(), MemoryStore(), MockGenerator(["It is on the mat [1]."]))

`MemoryStore` is a dictionary with exact search. `MockStore` is ``mongodb+chroma:`` over `MockMongo` and `MockChroma`,
where faults can be planted; it needs the drivers, ``vlmsearch[chroma,mongodb]``. None needs a server. The fixtures are
in ``vlmsearch_mocks.fixtures`` (one line in a conftest: ``pytest_plugins = ["vlmsearch_mocks.fixtures"]``), the suites
in ``vlmsearch_mocks.contracts``; those two need pytest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from vlmsearch.errors import MissingDependencyError
from vlmsearch_mocks.encoder import MockEncoder
from vlmsearch_mocks.faults import Faults
from vlmsearch_mocks.generator import MockGenerator
from vlmsearch_mocks.reranker import MockReranker
from vlmsearch_mocks.store import MemoryStore

if TYPE_CHECKING:
    from vlmsearch_mocks.chroma import MockChroma
    from vlmsearch_mocks.mongo import MockMongo
    from vlmsearch_mocks.pair import MockStore

__all__ = [
    "Faults",
    "MemoryStore",
    "MockChroma",
    "MockEncoder",
    "MockGenerator",
    "MockMongo",
    "MockReranker",
    "MockStore",
]

_LATE = {
    "MockChroma": "vlmsearch_mocks.chroma",
    "MockMongo": "vlmsearch_mocks.mongo",
    "MockStore": "vlmsearch_mocks.pair",
}


def __getattr__(name: str) -> object:
    """Return the stand-ins that need the drivers, when they are asked for."""
    if name not in _LATE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    from vlmsearch._util.extras import install_command

    try:
        return getattr(importlib.import_module(_LATE[name]), name)
    except ModuleNotFoundError as exc:
        raise MissingDependencyError(
            f"{name} needs {exc.name}, which is not installed: {install_command('chroma', 'mongodb')}"
        ) from exc
