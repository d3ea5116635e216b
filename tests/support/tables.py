"""What a benchmark prints."""

from __future__ import annotations

import click
from click.testing import CliRunner


def tables(command: click.Command, *arguments: str) -> dict[str, list[dict[str, str]]]:
    """Run a benchmark in this process, and return the rows of its tables, which are by their titles."""
    result = CliRunner().invoke(command, arguments)
    if isinstance(result.exception, Exception):
        raise result.exception
    assert result.exit_code == 0, result.output
    found: dict[str, list[dict[str, str]]] = {}
    title, names = "", [""]
    for line in result.stdout.splitlines():
        cells = line.split("\t")
        if len(cells) == 1:
            title, names = line, []
            found[title] = []
        elif not names:
            names = cells
        else:
            found[title].append(dict(zip(names, cells, strict=True)))
    return found


def table(command: click.Command, *arguments: str) -> list[dict[str, str]]:
    """Run a benchmark in this process, and return the rows of its only table."""
    (rows,) = tables(command, *arguments).values()
    return rows
