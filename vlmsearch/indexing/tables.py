"""Rows of tables: lines of JSONL and rows of CSV, as they are written."""

from __future__ import annotations

import csv
import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TextIO, TypeAlias, Union

from vlmsearch.errors import ConfigError, InvalidInputError
from vlmsearch.types import LARGEST_INT

Row: TypeAlias = Union[str, Mapping[str, object]]
"""A line of JSONL or a row of CSV."""
MAX_ROW_CHARS = 16 * 2**20
"""Of a line of JSONL or a row of CSV; what is longer goes into a file of its own."""
STRAY = re.compile("[\udc80-\udcff]")
"""What a byte that is not UTF-8 is read as."""
_INTEGER = re.compile(r"-?(0|[1-9]\d{0,18})")
_NUMBER = re.compile(r"-?(0|[1-9]\d*)(\.\d+([eE][+-]?\d+)?|[eE][+-]\d+)")  # Python writes 1e-05, a hash has no sign


def read_rows(table: str) -> Iterator[tuple[int, Row | OSError | InvalidInputError]]:
    """Rows with their line numbers: lines of JSONL, rows of CSV, last the error of a table that cannot be read on.

    Bytes that are not UTF-8 come as surrogates; a line of JSONL that is too long comes as its error.
    """
    try:
        with open(table, encoding="utf-8-sig", errors="surrogateescape", newline="") as file:
            if table.lower().endswith(".csv"):
                yield from _csv_rows(table, file)
                return
            yield from _lines(file)
    except OSError as exc:
        yield 0, exc


def _lines(file: TextIO) -> Iterator[tuple[int, str | InvalidInputError]]:
    number = 0
    while line := file.readline(MAX_ROW_CHARS + 1):
        number += 1
        if len(line) > MAX_ROW_CHARS:
            yield number, InvalidInputError("too_large", f"a line has at most {MAX_ROW_CHARS:,} characters")
            while line and not line.endswith(("\n", "\r")):
                line = file.readline(MAX_ROW_CHARS)
        elif line.strip():
            yield number, line


def _csv_rows(table: str, file: TextIO) -> Iterator[tuple[int, Row]]:
    csv.field_size_limit(max(csv.field_size_limit(), MAX_ROW_CHARS))  # of the process: raised, and never lowered
    lines: list[str] = []
    reader = csv.DictReader(_noted(table, file, lines))
    try:
        _check_header(table, reader.fieldnames)
        lines.clear()
        for row in reader:
            _check_quotes(table, reader.line_num, lines)
            lines.clear()
            named = {key: value for key, value in row.items() if key is None or key.strip()}
            yield reader.line_num, {key: _cell(key, value) for key, value in named.items() if _is_filled(value)}
    except csv.Error as exc:
        raise ConfigError(f"{table}, line {reader.line_num}, cannot be read as CSV: {exc}") from exc


def _noted(table: str, file: TextIO, lines: list[str]) -> Iterator[str]:
    """The lines of a file, each of which is added to ``lines`` as it is read; ConfigError where these are too long."""
    number = size = 0
    while line := file.readline(MAX_ROW_CHARS + 1):
        number += 1
        size = len(line) + (size if lines else 0)
        if size > MAX_ROW_CHARS:
            where = f"{table}, lines {number - len(lines)} to {number}, cannot be read as CSV"
            raise ConfigError(f"{where}: a row has at most {MAX_ROW_CHARS:,} characters; is a quote not closed?")
        lines.append(line)
        yield line


def _check_quotes(table: str, last: int, lines: Sequence[str]) -> None:
    """ConfigError where a row of several lines, the last one being ``last``, has a quote that is opened and not closed.

    It has taken in the rows after it, which would be missing.
    """
    if sum(1 for line in lines if line.strip()) > 1 and sum(line.count('"') for line in lines) % 2:
        first = last - len(lines) + 1
        raise ConfigError(f"{table}, lines {first} to {last}, cannot be read as CSV: a quote is not closed")


def _check_header(table: str, header: Sequence[str] | None) -> None:
    if any(map(STRAY.search, header or ())):
        raise ConfigError(f"{table} cannot be read: its header is not UTF-8 text")
    if not {"id", "text", "image"} & set(header or ()):
        raise ConfigError(f"{table} needs a header with at least one of id, text and image; it has {header}")
    twice = [name for name, count in Counter(header).items() if count > 1 and name.strip()]
    if twice:
        raise ConfigError(f"{table} has two columns {twice[0]!r}: which one counts cannot be told")


def _is_filled(value: object) -> bool:
    """Whether a cell has anything in it, or any of the cells beyond the last column."""
    return any(value) if isinstance(value, list) else bool(value)


def _cell(column: str, value: object) -> object:
    """A CSV cell, in a column of metadata as a number or bool where it is written as one."""
    if not isinstance(value, str) or column in ("id", "text", "image"):
        return value
    if _INTEGER.fullmatch(value) and abs(int(value)) <= LARGEST_INT:
        return int(value)
    if _NUMBER.fullmatch(value) and math.isfinite(float(value)):
        return float(value)
    return {"true": True, "false": False}.get(value.lower(), value)
