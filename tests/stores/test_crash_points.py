"""A process that dies at any point of a write, a delete or a repair loses nothing, on any store."""

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.crash_points import ACTIONS, Action, World, check_point, mock_world, no_waiting, points
from vlmsearch.stores.chroma.collections import connect as connect_chroma
from vlmsearch.stores.mongodb.connection import MongoAddress, MongoOptions
from vlmsearch.stores.mongodb.connection import connect as connect_mongo

SAMPLE = 7
"""Of so many points, a normal run looks at one."""
MOCKS = ["chroma", "mongodb", "mongodb+chroma"]
REAL = ["embedded", "served", "mongodb", "mongodb+chroma"]


@pytest.fixture(autouse=True)
def _at_once() -> Iterator[None]:
    with no_waiting():
        yield


def run(make: Callable[[], World], action: Action, step: int = 1) -> None:
    looked = 0
    for number, mode in itertools.islice(points(make, action), 0, None, step):
        try:
            check_point(make, action, number, mode)
        except AssertionError as exc:
            raise AssertionError(f"{action}: died at call {number}, {mode}") from exc
        looked += 1
    assert looked


@pytest.mark.parametrize("action", ACTIONS)
@pytest.mark.parametrize("kind", MOCKS)
def test_some_points_on_the_mocks(kind: str, action: Action) -> None:
    run(lambda: mock_world(kind), action, SAMPLE)


@pytest.mark.exhaustive
@pytest.mark.parametrize("action", ACTIONS)
@pytest.mark.parametrize("kind", MOCKS)
def test_every_point_on_the_mocks(kind: str, action: Action) -> None:
    run(lambda: mock_world(kind), action)


@pytest.fixture
def real_world(mongo_address: str, chroma_address: str, tmp_path: Path) -> Callable[[str], World]:
    turns = itertools.count()

    def make(kind: str) -> World:
        turn = next(turns)
        name = f"crash-{abs(hash(str(tmp_path))) % 10**9}-{turn}"
        served = connect_chroma(f"//{chroma_address}/{name}", retries=0)
        if kind == "embedded":
            return World(chroma=connect_chroma(str(tmp_path / str(turn))))
        if kind == "served":
            return World(chroma=served)
        mongo = connect_mongo(MongoAddress.parse(f"//{mongo_address}/{name}"), MongoOptions(retries=0))
        return World(mongo, served if "chroma" in kind else None)

    return make


@pytest.mark.parametrize("action", ["update"])
@pytest.mark.parametrize("kind", REAL)
def test_some_points_on_real_servers(kind: str, action: Action, real_world: Callable[[str], World]) -> None:
    run(lambda: real_world(kind), action, 5 * SAMPLE)


@pytest.mark.exhaustive
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("action", ACTIONS)
@pytest.mark.parametrize("kind", REAL)
def test_every_point_on_real_servers(kind: str, action: Action, real_world: Callable[[str], World]) -> None:
    run(lambda: real_world(kind), action)
