"""Where a long command is: its steps, and what the running one prints."""

from __future__ import annotations

from rich.text import Text
from typing_extensions import Self

from vlmsearch._util.console import make_console


class StepLines:
    """Steps as lines on standard error, and on a terminal what the running one printed last."""

    def __init__(self, *, verbose: bool) -> None:
        self._console = make_console(stderr=True)
        self._status = self._console.status("") if self._console.is_terminal and not verbose else None
        self._verbose = verbose

    def __enter__(self) -> Self:
        if self._status:
            self._status.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._status:
            self._status.stop()

    def say(self, line: str) -> None:
        """Show a step."""
        if self._status:
            self._status.update("")
        self._console.print(line, soft_wrap=True)

    def show(self, line: str) -> None:
        """Show what the step printed: all of it, or the last line only."""
        if self._verbose:
            self.say(line)
        elif self._status:
            self._status.update(Text(line[: self._console.width - 4]))
