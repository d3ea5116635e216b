"""A process that dies at any point of a write, a delete or a repair loses nothing, on any store."""

import itertools
from collections.abc import Callable, Iterable, Iterator
from operator import itemgetter
from pathlib import Path

import pytest

from tests.support.crash_points import ACTIONS, Action, check_point, no_waiting, points
from tests.support.worlds import KINDS, Kind, Moment, World, mock_world, postgres_world, real_world


@pytest.fixture(autouse=True)
def _at_once() -> Iterator[None]:
    with no_waiting():
        yield


def run(make: Callable[[], World], action: Action, chosen: Iterable[tuple[int, Moment]]) -> None:
    looked = 0
    for number, moment in chosen:
        try:
            check_point(make, action, number, moment)
        except AssertionError as exc:
            raise AssertionError(f"{action}: died at call {number}, {moment}") from exc
        looked += 1
    assert looked


def each_call_once(found: Iterable[tuple[int, Moment]]) -> Iterator[tuple[int, Moment]]:
    """Of the points of each call the one whose turn it is: after one call is before the next."""
    for number, of_call in itertools.groupby(found, key=itemgetter(0)):
        moments = list(of_call)
        yield moments[number % len(moments)]


@pytest.mark.parametrize("action", ACTIONS)
@pytest.mark.parametrize("kind", KINDS)
def test_some_points_on_the_mocks(kind: Kind, action: Action) -> None:
    def make() -> World:
        return mock_world(kind)

    run(make, action, each_call_once(points(make, action)))


@pytest.mark.exhaustive
@pytest.mark.parametrize("action", ACTIONS)
@pytest.mark.parametrize("kind", KINDS)
def test_every_point_on_the_mocks(kind: Kind, action: Action) -> None:
    def make() -> World:
        return mock_world(kind)

    run(make, action, points(make, action))


@pytest.fixture
def make_real(mongo_address: str, chroma_address: str, tmp_path: Path) -> Callable[[Kind], World]:
    """What makes the next world of real servers."""
    turns = itertools.count()

    def make(kind: Kind) -> World:
        name = f"crash-{abs(hash(str(tmp_path))) % 10**9}-{next(turns)}"
        return real_world(kind, mongo_address, chroma_address, name)

    return make


@pytest.mark.parametrize("action", ["update", "relabel"])
@pytest.mark.parametrize("kind", KINDS)
def test_some_points_on_real_servers(kind: Kind, action: Action, make_real: Callable[[Kind], World]) -> None:
    def make() -> World:
        return make_real(kind)

    run(make, action, itertools.islice(each_call_once(points(make, action)), 2, None, 8))


@pytest.mark.parametrize("action", ["update", "relabel", "delete"])
@pytest.mark.parametrize("step", [4, pytest.param(1, marks=pytest.mark.exhaustive)])
def test_points_on_postgresql(action: Action, step: int, postgres_url: str, tmp_path: Path) -> None:
    names = (f"crash_{abs(hash(str(tmp_path))) % 10**9}_{turn}" for turn in itertools.count())

    def make() -> World:
        return postgres_world(postgres_url, next(names))

    chosen = (
        points(make, action) if step == 1 else itertools.islice(each_call_once(points(make, action)), 2, None, step)
    )
    run(make, action, chosen)


@pytest.mark.exhaustive
@pytest.mark.parametrize("action", ACTIONS)
@pytest.mark.parametrize("kind", KINDS)
def test_every_point_on_real_servers(kind: Kind, action: Action, make_real: Callable[[Kind], World]) -> None:
    def make() -> World:
        return make_real(kind)

    run(make, action, points(make, action))
