"""What is started once a process: servers that the tests of several folders share."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Any, TypeVar

import pytest

T = TypeVar("T")

_stack = ExitStack()
_entered: dict[object, Any] = {}


def once(context: Callable[[Path], AbstractContextManager[T]], folders: pytest.TempPathFactory) -> T:
    """Enter a context with a folder of its own, the first time that it is asked for.

    A fixture is another one in each folder whose conftest imports it; what it returns from here is the same in all.
    """
    if context not in _entered:
        _entered[context] = _stack.enter_context(context(folders.mktemp(context.__name__)))
    result: T = _entered[context]
    return result


def leave() -> None:
    """Leave every context, the last one first."""
    _entered.clear()
    _stack.close()
