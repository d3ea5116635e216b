"""The chaos harness, and many threads at once, on real servers."""

from pathlib import Path

import pytest

from tests.support import chaos
from tests.support.hammer import LEAST, hammer
from vlmsearch.registry import open_store
from vlmsearch.stores.mongodb_chroma.store import MongoChromaStore
from vlmsearch.stores.postgresql.store import PostgresStore
from vlmsearch.stores.sqlite.store import SqliteStore


@pytest.mark.server
def test_nothing_is_lost_when_a_writer_or_a_server_is_killed(tmp_path: Path) -> None:
    assert chaos.run(tmp_path, 3, chaos.SERVED)["documents"] > 0


@pytest.mark.slow
@pytest.mark.parametrize("count", [2, pytest.param(200, marks=pytest.mark.exhaustive)])
def test_nothing_of_a_file_is_lost_when_its_writer_is_killed(tmp_path: Path, count: int) -> None:
    found = chaos.run(tmp_path, 5, ["sqlite"] * count)
    assert found["documents"] > 0
    assert count < 200 or found["cut off"] > 20, "it was never killed while it wrote"


@pytest.mark.server
@pytest.mark.exhaustive
@pytest.mark.parametrize("target", chaos.SERVED)
def test_nothing_is_lost_however_often_it_is_killed(target: chaos.Target, tmp_path: Path) -> None:
    found = chaos.run(tmp_path, 1, [target] * 40)
    assert found["documents"] > 0
    assert target != "writer" or found["unfinished"] > 0, "it was never killed while it wrote"


@pytest.mark.server
@pytest.mark.parametrize("count", [1, pytest.param(40, marks=pytest.mark.exhaustive)])
def test_nothing_is_lost_when_a_writer_to_postgresql_or_its_machine_ends(count: int, tmp_path: Path) -> None:
    assert chaos.run(tmp_path, 7, [target for target in chaos.POSTGRES for _ in range(count)])["documents"] > 0


@pytest.mark.parametrize(
    ("by_index", "seconds"),
    [
        pytest.param(True, 1, id="by index"),  # the exact search is behind pgbouncer
        *(pytest.param(by_index, 60, marks=pytest.mark.exhaustive) for by_index in (False, True)),
    ],
)
def test_eight_threads_write_to_postgresql_and_eight_search(by_index: bool, seconds: float, postgres_url: str) -> None:
    url = f"{postgres_url}?table=threads_{seconds:g}_{by_index:d}&exact_up_to={0 if by_index else 20_000}"
    with open_store(url) as store:
        assert isinstance(store, PostgresStore)
        seen = hammer(store, seconds)
        assert seen.searches > LEAST
        assert seen.writes > LEAST
        assert store.check().clean


@pytest.mark.parametrize("seconds", [1, pytest.param(60, marks=pytest.mark.exhaustive)])
def test_eight_threads_write_and_eight_search(seconds: float, mongo_address: str, chroma_address: str) -> None:
    with MongoChromaStore(f"//{mongo_address}/threads-{seconds}", chroma=f"http://{chroma_address}") as store:
        seen = hammer(store, seconds)
        assert seen.searches > LEAST
        assert seen.writes > LEAST
        assert store.check().clean


@pytest.mark.parametrize("seconds", [1, pytest.param(60, marks=pytest.mark.exhaustive)])
def test_eight_threads_write_to_a_file_and_eight_search(seconds: float, tmp_path: Path) -> None:
    with SqliteStore(str(tmp_path / "index")) as store:
        seen = hammer(store, seconds)
        assert seen.searches > LEAST
        assert seen.writes > LEAST
        assert store.check().clean
