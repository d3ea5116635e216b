"""Functions that tests run in child processes."""

import ctypes
import os
import signal
import time
from collections.abc import Iterator
from typing import Any

from vlmsearch.errors import InvalidInputError


def echo(value: Any, data: list[bytes]) -> Iterator[tuple[Any, list[bytes]]]:
    yield {"value": value, "pid": os.getpid()}, data


def environment(name: str, _: list[bytes]) -> Iterator[tuple[str | None, list[bytes]]]:
    yield os.environ.get(name), []


def count(value: int, _: list[bytes]) -> Iterator[tuple[int, list[bytes]]]:
    for number in range(value):
        yield number, []


def sleep(value: float, _: list[bytes]) -> Iterator[tuple[int, list[bytes]]]:
    yield os.getpid(), []
    time.sleep(value)
    yield 1, []


def spin(value: float, _: list[bytes]) -> Iterator[tuple[int, list[bytes]]]:
    until = time.process_time() + value
    while time.process_time() < until:
        pass
    yield 1, []


def allocate(value: int, _: list[bytes]) -> Iterator[tuple[int, list[bytes]]]:
    yield len(bytearray(value)), []


def crash(_: Any, __: list[bytes]) -> Iterator[tuple[int, list[bytes]]]:
    ctypes.string_at(0)
    yield 1, []


def nest(value: int, _: list[bytes]) -> Iterator[tuple[int, list[bytes]]]:
    def inner(depth: int) -> int:
        return inner(depth + 1)

    yield inner(value), []


def reject(_: Any, __: list[bytes]) -> Iterator[tuple[int, list[bytes]]]:
    try:
        {}["inner"]  # type: ignore[index]
    except KeyError as exc:
        raise InvalidInputError("empty", "it has nothing") from exc
    yield 1, []


def fail(_: Any, __: list[bytes]) -> Iterator[tuple[int, list[bytes]]]:
    raise FileNotFoundError(2, "No such file")
    yield 1, []


def read_sent_interrupt(_: Any, __: list[bytes]) -> Iterator[tuple[int, list[bytes]]]:
    os.kill(os.getpid(), signal.SIGTERM)
    os.kill(os.getpid(), signal.SIGINT)
    print("what a library prints is no answer")
    yield 1, []


def leave(value: int, _: list[bytes]) -> Iterator[tuple[int, list[bytes]]]:
    os._exit(value)
    yield 1, []
