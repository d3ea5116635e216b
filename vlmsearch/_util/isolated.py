"""The child process of `vlmsearch._util.isolation`: ``python -m vlmsearch._util.isolated``."""

from __future__ import annotations

import math
import os
import queue
import signal
import sys
import threading
from contextlib import suppress
from errno import EIO
from importlib import import_module
from typing import IO, Any

from vlmsearch._util.messages import data_bytes, read_message, write_message
from vlmsearch.errors import BackendError, ConfigError, InvalidInputError, MissingDependencyError, one_line

try:
    import resource
except ImportError:  # Windows
    resource = None  # type: ignore[assignment]

_LOG_BYTES = 2**20
"""The largest file that the child may write, which is what its libraries say."""
_WORN = 4
"""A child that keeps more than this part of its memory limit is replaced: what is left must do for the next file."""


def main() -> None:
    """Answer calls until the parent closes the pipe, or is gone."""
    for name in ("SIGINT", "SIGTERM", "SIGHUP"):  # the parent decides
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_IGN)
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a library prints is no answer
    _set_limits({"RLIMIT_CORE": 0, "RLIMIT_FSIZE": _LOG_BYTES})
    write_message(answers, {"started": True})
    calls: queue.SimpleQueue[tuple[Any, list[bytes]]] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(sys.stdin.buffer, calls), daemon=True).start()
    while True:
        _answer(*calls.get(), answers)


def _listen(file: IO[bytes], calls: queue.SimpleQueue[tuple[Any, list[bytes]]]) -> None:
    """Take calls, also while one runs, and end with the parent."""
    with suppress(OSError, ValueError):
        while (message := read_message(file)) is not None:
            calls.put(message)
    os._exit(0)


def _answer(request: dict[str, Any], data: list[bytes], answers: IO[bytes]) -> None:
    name = request["name"]
    error: tuple[str, str, str, str] | None = None
    is_worn = False
    try:
        os.chdir(request["folder"])
        _set_limits({"RLIMIT_DATA": request["memory_bytes"]})
        _allow_seconds(request["cpu_seconds"])
        module, _, function = request["function"].partition(":")
        for value, more in getattr(import_module(module), function)(request["value"], data):
            write_message(answers, {"value": value}, more)
            _allow_seconds(request["cpu_seconds"])
    except BrokenPipeError:
        os._exit(0)
    except MemoryError:
        said = f"{name} takes more than {request['memory_bytes']:,} bytes to read"
        error, is_worn = ("InvalidInputError", "too_large", said, ""), True
    except RecursionError:
        error = ("InvalidInputError", "corrupt", f"{name} is nested too deeply", "")
    except (InvalidInputError, BackendError, ConfigError, MissingDependencyError) as exc:
        error = (type(exc).__name__, getattr(exc, "code", ""), str(exc), _cause(exc))
    except OSError as exc:
        error = ("OSError", str(exc.errno or EIO), exc.strerror or str(exc), _cause(exc))
    except Exception as exc:  # noqa: BLE001 - a parser raises anything for input that it did not expect
        said = f"{type(exc).__name__}: {one_line(exc)}"
        error = ("InvalidInputError", "corrupt", f"{name} cannot be read: {said}", said)
    is_worn = is_worn or data_bytes(os.getpid()) * _WORN > request["memory_bytes"]
    write_message(answers, {"error": error, "is_worn": is_worn})


def _cause(exc: BaseException) -> str:
    return repr(exc.__cause__) if exc.__cause__ else ""


def _set_limits(limits: dict[str, int]) -> None:
    for name, limit in limits.items():
        if resource is not None and hasattr(resource, name):
            _, hard = resource.getrlimit(getattr(resource, name))
            allowed = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
            with suppress(OSError, ValueError):
                resource.setrlimit(getattr(resource, name), (allowed, hard))


def _allow_seconds(seconds: int) -> None:
    """Allow so much processor time from now on."""
    if resource is not None:
        used = resource.getrusage(resource.RUSAGE_SELF)
        _set_limits({"RLIMIT_CPU": math.ceil(used.ru_utime + used.ru_stime) + seconds})


if __name__ == "__main__":
    main()
