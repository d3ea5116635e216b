"""Objects with files, models or connections behind them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing_extensions import Self


class Closable:
    """An object whose files, models or connections `close` or the end of a ``with`` block releases."""

    def close(self) -> None:
        """Release files, models and connections. Calling it twice is allowed."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@contextmanager
def closing_at_end(items: object) -> Iterator[None]:
    """Close an iterator at the end of the ``with`` block, if it can be closed."""
    try:
        yield
    finally:
        if close := getattr(items, "close", None):
            close()
