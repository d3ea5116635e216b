"""Text on a terminal as it is: brackets that come from outside are no markup, colons no emoji, nothing a command."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable, Sequence

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from vlmsearch._util.text import unfiltered, visible


class _Console(Console):
    """A console whose texts are `visible`. It draws what it is told to in styles and on lines of its own."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for text, style, control in super().render(renderable, options):
            yield Segment(text if control else visible(text), style, control)


def make_console(*, stderr: bool = False) -> Console:
    """Return standard output, or standard error, without markup."""
    file = unfiltered(sys.stderr if stderr else sys.stdout)
    return _Console(file=file, stderr=stderr, markup=False, emoji=False, highlight=False)


def make_table(
    names: Sequence[str], rows: Iterable[Sequence[str | Text]], *, left: Collection[str] = (), title: str = ""
) -> Table:
    """Return a table without lines. Numbers are on the right, the columns of ``left`` on the left.

    Nothing in it is cut.
    """
    table = Table(title=title or None, title_justify="left", box=None, header_style="bold", pad_edge=False)
    for name in names:
        table.add_column(name, justify="left" if name in left else "right", overflow="fold")
    for row in rows:
        table.add_row(*(visible(cell) if isinstance(cell, str) else cell for cell in row))
    return table
