"""Functions that tests run in child processes, and readers of files that do what the name of a file says."""

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from vlmsearch.errors import InvalidInputError

Results = Iterator[tuple[Any, list[bytes]]]


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
    os.abort()
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


def kill(_: Any, __: list[bytes]) -> Iterator[tuple[int, list[bytes]]]:
    os.kill(os.getpid(), signal.SIGKILL)
    yield 1, []


def answer(value: int, _: list[bytes]) -> Results:
    part = bytes(2**24)
    yield 1, [part] * (value // len(part))


READERS: dict[str, tuple[Callable[[Any, list[bytes]], Results], int]] = {
    "allocate": (allocate, 2**30),
    "answer": (answer, 2**31),
    "abort": (crash, 0),
    "kill": (kill, 0),
    "leave": (leave, 3),
    "nest": (nest, 0),
    "sleep": (sleep, 600),
    "spin": (spin, 600),
}
"""The readers by the name of a file: a function, and its argument."""


def read_by_name(value: dict[str, Any], _: list[bytes]) -> Results:
    """Read a file as `vlmsearch.indexing.containers.child_parts` does: harmless text, or what its name says."""
    path = Path(value["path"])
    if path.stem in READERS:
        function, argument = READERS[path.stem]
        for _result, data in function(argument, []):
            yield [], data  # messages without a document
    form = {"id": value["id"], "source": value["id"], "digest": value["version"], "ocr": False}
    yield [{**form, "text": path.read_text(encoding="utf-8"), "metadata": {}}], []
