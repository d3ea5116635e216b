"""What everything with files, models or connections behind it can do."""

from __future__ import annotations

from types import TracebackType

from typing_extensions import Self


class Closable:
    """Let go of what is behind an object after use: by `close`, or by leaving a ``with`` block."""

    def close(self) -> None:
        """Let go of files, models and connections. Calling it twice is allowed."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
