"""Errors in other processes: what is raised there arrives here as it was."""

from __future__ import annotations

import copy
import inspect
import multiprocessing
import pickle
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from functools import partial

import numpy as np
import pytest

import vlmsearch
from vlmsearch import errors
from vlmsearch.errors import (
    BackendUnavailableError,
    InvalidBatchError,
    InvalidInputError,
    OverloadedError,
    VlmsearchError,
)

SIGNATURES: Mapping[tuple[str, ...], tuple[tuple[object, ...], Mapping[str, object]]] = {
    (): (("a message",), {}),  # Python's own
    ("code", "message"): (("corrupt", "'cat.jpg' is damaged"), {}),
    ("message", "retry_after"): (("the server is restarting",), {"retry_after": 2.5}),
    ("message", "at_most"): (("too many pictures", 2), {}),
    ("items", "vectors"): (
        (
            {5: InvalidInputError("empty", "'b.jpg' is empty"), 2: InvalidInputError("truncated", "'a.jpg' ends")},
            {"clip": np.arange(6, dtype=np.float32).reshape(2, 3)},
        ),
        {},
    ),
}
"""Arguments of errors, by the names of their parameters."""
KINDS = sorted(
    {
        value
        for module in (errors, vlmsearch)
        for value in map(module.__getattribute__, dir(module))
        if inspect.isclass(value) and issubclass(value, BaseException)
    },
    key=lambda kind: kind.__name__,
)


def through_pickle(protocol: int, error: BaseException) -> BaseException:
    """An error that was pickled."""
    arrived = pickle.loads(pickle.dumps(error, protocol))
    assert isinstance(arrived, BaseException)
    return arrived


ROUND_TRIPS: dict[str, Callable[[BaseException], BaseException]] = {
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    **{f"pickle-{number}": partial(through_pickle, number) for number in range(pickle.HIGHEST_PROTOCOL + 1)},
}


class ForeignError(Exception):
    """An error of another package, which cannot be pickled."""

    def __reduce__(self) -> str:
        raise TypeError("cannot pickle a socket")


def make(kind: type[BaseException]) -> BaseException:
    """An error with all that its class takes."""
    init = vars(next(base for base in kind.__mro__ if "__init__" in vars(base)))["__init__"]
    is_own = inspect.isfunction(init)
    names = tuple(inspect.signature(init).parameters)[1:] if is_own else ()
    args, options = SIGNATURES[names]
    return kind(*args, **options)


def state(error: BaseException) -> dict[str, object]:
    """What can be seen of an error; numpy compares arrays in its own way."""
    shown = {name: getattr(error, name) for name in dir(error) if not name.startswith("_") and name != "with_traceback"}
    return {name: repr(value) for name, value in shown.items() if not callable(value)}


@pytest.mark.parametrize("trip", ROUND_TRIPS)
def test_every_error_survives(trip: str) -> None:
    for error in map(make, KINDS):
        arrived = ROUND_TRIPS[trip](error)
        assert (type(arrived), str(arrived), arrived.args) == (type(error), str(error), error.args)
        assert state(arrived) == state(error), type(error)
        assert arrived.__cause__ is None, type(error)


def test_all_that_is_exported_is_tested() -> None:
    names = {kind.__name__ for kind in KINDS}
    assert names == {name for name in vlmsearch.__all__ if name.endswith(("Error", "Warning"))}
    assert len(names) > 10


@pytest.mark.parametrize("trip", ROUND_TRIPS)
def test_what_caused_an_error_can_be_read(trip: str) -> None:
    cause = BackendUnavailableError("no answer", retry_after=3)
    cause.__cause__ = ForeignError("connection refused")
    error = OverloadedError("too many calls")
    error.__cause__ = cause
    arrived = ROUND_TRIPS[trip](error)
    assert isinstance(arrived.__cause__, BackendUnavailableError)
    assert arrived.__cause__.retry_after == 3
    assert "ForeignError('connection refused')" in repr(arrived.__cause__.__cause__)


def test_attributes_and_the_parts_of_a_missing_module_arrive() -> None:
    error = vlmsearch.MissingDependencyError("films need PyAV: pip install 'vlmsearch[video]'", name="av")
    error.more = [1]  # type: ignore[attr-defined]
    arrived = pickle.loads(pickle.dumps(error))
    assert (arrived.msg, arrived.name, arrived.more) == (error.msg, "av", [1])


def test_the_vectors_of_a_batch_arrive() -> None:
    error = make(InvalidBatchError)
    arrived = pickle.loads(pickle.dumps(error))
    np.testing.assert_array_equal(arrived.vectors["clip"], error.vectors["clip"])  # type: ignore[attr-defined]
    assert [item.code for item in arrived.items.values()] == ["truncated", "empty"]


class RefusedError(VlmsearchError):
    """An error of a back end of one's own."""

    def __init__(self, host: str, *, port: int) -> None:
        super().__init__(f"{host}:{port} refused")
        self.port = port


def fail(number: int) -> int:
    """Raise an error of another kind for each number; return the others."""
    if number == 1:
        raise OverloadedError("too many calls are waiting", retry_after=4)
    if number == 2:
        raise InvalidInputError("empty", "'cat.jpg' is empty: 0 bytes")
    if number == 3:
        raise make(InvalidBatchError)
    if number == 4:
        raise RefusedError("db", port=27017)
    return number


def test_a_pool_of_processes_goes_on_after_an_error() -> None:
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        calls = [pool.submit(fail, number) for number in range(6)]
        overloaded, invalid, batch, refused = (call.exception(60) for call in calls[1:5])
        assert calls[5].result(60) == 5
    assert isinstance(overloaded, OverloadedError)
    assert overloaded.retry_after == 4
    assert isinstance(invalid, InvalidInputError)
    assert (invalid.code, str(invalid)) == ("empty", "'cat.jpg' is empty: 0 bytes")
    assert isinstance(batch, InvalidBatchError)
    assert list(batch.items) == [2, 5]
    assert isinstance(refused, RefusedError)
    assert (str(refused), refused.port) == ("db:27017 refused", 27017)
