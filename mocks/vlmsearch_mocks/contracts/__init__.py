"""Suites that every back end has to pass, your own included.

Subclass one as ``Test...``, say how the back end is made, and pytest runs it:

>>> class TestMyStore(StoreContract):
...     def make_store(self, tmp_path: Path) -> Store:
...         return MyStore(str(tmp_path / "index"))

What only some back ends do has a suite of its own, to be subclassed beside: `RejectListContract`,
`TuningContract` and `WordsContract`.
"""

import pytest

pytest.register_assert_rewrite(
    *(
        f"vlmsearch_mocks.contracts.{name}"
        for name in (
            "documents",
            "metadata",
            "passages",
            "readers",
            "reject_list",
            "search",
            "tuning",
            "words",
            "encoder",
            "generator",
            "reranker",
        )
    )
)

from vlmsearch_mocks.contracts.documents import DocumentsSuite, IndexSuite  # noqa: E402 - asserts are to explain
from vlmsearch_mocks.contracts.encoder import EncoderContract  # noqa: E402
from vlmsearch_mocks.contracts.generator import GeneratorContract  # noqa: E402
from vlmsearch_mocks.contracts.metadata import MetadataSuite  # noqa: E402
from vlmsearch_mocks.contracts.passages import PassagesSuite  # noqa: E402
from vlmsearch_mocks.contracts.readers import ReadersSuite  # noqa: E402
from vlmsearch_mocks.contracts.reject_list import RejectListContract  # noqa: E402
from vlmsearch_mocks.contracts.reranker import RerankerContract  # noqa: E402
from vlmsearch_mocks.contracts.search import SearchSuite  # noqa: E402
from vlmsearch_mocks.contracts.tuning import TuningContract  # noqa: E402
from vlmsearch_mocks.contracts.words import WordsContract  # noqa: E402


class StoreContract(IndexSuite, ReadersSuite, PassagesSuite, MetadataSuite, SearchSuite, DocumentsSuite):
    """Every sentence of `Store`; ``durable`` and ``recall`` say what the store is.

    pytest runs the last of these suites first. So tests come from the simple to the composed, and the first that fails
    names the fault.

    ``durable``: it finds what it had after `close`. ``recall``: the least share of the true neighbours among those
    that it finds in collections of thousands, 1 for exact search.
    """


__all__ = [
    "EncoderContract",
    "GeneratorContract",
    "RejectListContract",
    "RerankerContract",
    "StoreContract",
    "TuningContract",
    "WordsContract",
]
