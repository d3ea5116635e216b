"""A process that dies at any point of a write, a delete or a repair loses nothing, on any store."""

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

import pytest

from tests.support.crash_points import ACTIONS, Action, check_point, no_waiting, points
from tests.support.worlds import KINDS, Kind, World, folder_world, mock_world, real_world

SAMPLE = 7
"""Of so many points, a normal run looks at one."""


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
@pytest.mark.parametrize("kind", KINDS)
def test_some_points_on_the_mocks(kind: Kind, action: Action) -> None:
    run(lambda: mock_world(kind), action, SAMPLE)


@pytest.mark.exhaustive
@pytest.mark.parametrize("action", ACTIONS)
@pytest.mark.parametrize("kind", KINDS)
def test_every_point_on_the_mocks(kind: Kind, action: Action) -> None:
    run(lambda: mock_world(kind), action)


@pytest.fixture
def make_real(mongo_address: str, chroma_address: str, tmp_path: Path) -> Callable[[Kind | Literal["embedded"]], World]:
    """What makes the next world of real servers, or of an embedded Chroma."""
    turns = itertools.count()

    def make(kind: Kind | Literal["embedded"]) -> World:
        turn = next(turns)
        if kind == "embedded":
            return folder_world(tmp_path / str(turn))
        return real_world(kind, mongo_address, chroma_address, f"crash-{abs(hash(str(tmp_path))) % 10**9}-{turn}")

    return make


@pytest.mark.parametrize("action", ["update"])
@pytest.mark.parametrize("kind", ["embedded", *KINDS])
def test_some_points_on_real_servers(kind: Any, action: Action, make_real: Callable[[Any], World]) -> None:
    run(lambda: make_real(kind), action, 5 * SAMPLE)


@pytest.mark.exhaustive
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("action", ACTIONS)
@pytest.mark.parametrize("kind", ["embedded", *KINDS])
def test_every_point_on_real_servers(kind: Any, action: Action, make_real: Callable[[Any], World]) -> None:
    run(lambda: make_real(kind), action)
