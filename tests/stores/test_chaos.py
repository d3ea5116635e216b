"""A short round of the chaos harness, and many threads at once, on real servers."""

from pathlib import Path

import pytest

from tests.support import chaos
from tests.support.hammer import LEAST, hammer
from vlmsearch.stores.mongodb_chroma.store import MongoChromaStore


@pytest.mark.parametrize(("target", "count"), [("writer", 3), ("mongo", 1), ("chroma", 1)])
def test_nothing_is_lost_when_a_process_is_killed(target: chaos.Target, count: int, tmp_path: Path) -> None:
    found = chaos.run(tmp_path, seed=3, count=count, target=target)
    assert found["documents"] > 0


def test_eight_threads_write_and_eight_search(mongo_address: str, chroma_address: str) -> None:
    with MongoChromaStore(f"//{mongo_address}/threads", chroma=f"http://{chroma_address}") as store:
        seen = hammer(store, seconds=6)
        assert seen.searches > LEAST
        assert seen.writes > LEAST
        assert store.check().clean
