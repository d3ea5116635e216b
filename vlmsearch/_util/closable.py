"""Objects with files, models or connections behind them."""

from __future__ import annotations

from typing_extensions import Self


class Closable:
    """An object whose files, models or connections `close` or the end of a ``with`` block releases."""

    def close(self) -> None:
        """Release files, models and connections. Calling it twice is allowed."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
