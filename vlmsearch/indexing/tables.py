"""Rows of tables, as they are written: lines of JSONL, rows of CSV and Parquet, and samples of tars.

A tar is a shard in the form of WebDataset (https://github.com/webdataset/webdataset): files that follow one another and
have the same name up to the first dot are a sample.
"""

from __future__ import annotations

import csv
import errno
import json
import math
import os
import re
import tarfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from itertools import groupby
from types import ModuleType
from typing import IO, TextIO, TypeAlias, Union

from vlmsearch._util.extras import install_command
from vlmsearch._util.plain import MAX_INT
from vlmsearch._util.unread import unread_metadata
from vlmsearch.errors import ConfigError, InvalidInputError, MissingDependencyError, one_line
from vlmsearch.indexing.given import arrow_rows
from vlmsearch.media.decoding import STRAY, UNCERTAIN, DecodedText, opened_text
from vlmsearch.media.images import IMAGE_SUFFIXES
from vlmsearch.media.limits import MAX_FILE_BYTES
from vlmsearch.media.remote import open_remote, remote_url
from vlmsearch.types import Scalar


@dataclass(frozen=True)
class TarSample(Mapping[str, object]):
    """A sample of a tar as a row, with the name that its files share."""

    key: str
    columns: Mapping[str, object]

    def __getitem__(self, name: str) -> object:
        """Return a column."""
        return self.columns[name]

    def __iter__(self) -> Iterator[str]:
        """Return the names of the columns."""
        return iter(self.columns)

    def __len__(self) -> int:
        """Return how many columns there are."""
        return len(self.columns)


Row: TypeAlias = Union[str, Mapping[str, object]]
"""A line of JSONL, a row of CSV or Parquet, or a TarSample."""
Rows: TypeAlias = "Iterator[tuple[int, Row | OSError | InvalidInputError]]"
MAX_ROW_CHARS = 16 * 2**20
"""The longest line of JSONL or row of CSV, in characters.

A longer text goes into a file of its own.
"""
_RESERVED = ("id", "text", "image")
_ENDINGS = {".txt": "text", ".text": "text", ".caption": "text", ".json": "json"}
_PARQUET_ROWS = 64
_INTEGER = re.compile(r"-?(0|[1-9]\d{0,18})")
_NUMBER = re.compile(r"-?(0|[1-9]\d*)(\.\d+([eE][+-]?\d+)?|[eE][+-]\d+)")  # Python writes 1e-05, a hash has no sign


def read_rows(table: str) -> Rows:
    """Yield rows with their numbers: those of lines in JSONL and CSV; last the error of a table that cannot be read on.

    Bytes that are no text come as surrogates; a row that is too large comes as its error.
    """
    try:
        with _open(table) as file:
            if table.lower().endswith(".parquet"):
                yield from _parquet_rows(table, file)
            elif table.lower().endswith(".tar"):
                yield from _samples(file)
            elif table.lower().endswith((".csv", ".tsv")):
                yield from _csv_rows(table, *opened_text(file))
            else:
                yield from _lines(opened_text(file, is_unicode=True)[0])
    except OSError as exc:
        yield 0, exc


def count_rows(table: str) -> int:
    """Return how many rows a table has; those of Parquet are not read."""
    if table.lower().endswith(".parquet"):
        with suppress(OSError, ValueError), _open(table) as file:
            return int(_parquet(table).ParquetFile(file).metadata.num_rows)
    return sum(1 for _ in read_rows(table))


def row_word(table: str) -> str:
    """Return what the number of a row counts."""
    return {".parquet": "row", ".tar": "sample"}.get(os.path.splitext(table)[1].lower(), "line")


def _open(table: str) -> AbstractContextManager[IO[bytes]]:
    url = remote_url(table)
    return open_remote(url) if url else open(table, "rb")


def _parquet(table: str) -> ModuleType:
    try:
        import pyarrow.parquet
    except ImportError as exc:
        raise MissingDependencyError(
            f"{table} is read by pyarrow, which is not installed: {install_command('parquet')}"
        ) from exc
    parquet: ModuleType = pyarrow.parquet
    return parquet


def _parquet_rows(table: str, file: IO[bytes]) -> Rows:
    parquet = _parquet(table)
    number = 0
    try:
        opened = parquet.ParquetFile(file)
        _check_columns(table, opened.schema_arrow.names)
        for batch in opened.iter_batches(batch_size=_PARQUET_ROWS):
            for row in arrow_rows(batch, table):
                number += 1
                yield number, row
    except (ConfigError, OSError):
        raise
    except ValueError as exc:  # pyarrow's ArrowInvalid among them
        raise OSError(errno.EINVAL, f"it is damaged, or not Parquet: {one_line(exc)}") from exc


def _samples(file: IO[bytes]) -> Rows:
    """Yield the samples of a tar, which is read once from its beginning to its end."""
    number = 0
    try:
        with tarfile.open(fileobj=file, mode="r|*") as tar:
            for key, members in groupby(filter(_is_member, tar), key=_key_of):
                number += 1
                try:
                    yield number, TarSample(key, _sample(tar, members))
                except InvalidInputError as exc:
                    yield number, InvalidInputError(exc.code, f"{key}: {exc}")
    except tarfile.TarError as exc:
        raise OSError(errno.EINVAL, f"it is damaged, cut short, or not a tar: {exc}") from exc


def _is_member(member: tarfile.TarInfo) -> bool:
    return member.isfile() and not os.path.basename(member.name).startswith((".", "__"))


def _key_of(member: tarfile.TarInfo) -> str:
    folder, slash, name = member.name.rpartition("/")
    return f"{folder}{slash}{name.partition('.')[0]}"


def _sample(tar: tarfile.TarFile, members: Iterable[tarfile.TarInfo]) -> dict[str, object]:
    """Return the columns of one sample: the first image, the text, and the fields of a JSON object."""
    columns: dict[str, object] = {}
    fields: dict[str, object] = {}
    too_large = None
    for member in members:
        ending = "." + os.path.basename(member.name).partition(".")[2].lower()
        column = "image" if ending in IMAGE_SUFFIXES else _ENDINGS.get(ending, "")
        if not column or column in columns:
            continue
        limit = MAX_FILE_BYTES if column == "image" else MAX_ROW_CHARS
        if member.size > limit:
            too_large = InvalidInputError("too_large", f"{member.name} has {member.size:,} bytes; at most {limit:,}")
            continue
        content = tar.extractfile(member)
        data = content.read() if content else b""
        if column == "json":
            fields = _json_object(member.name, data)
        columns[column] = data if column == "image" else data.decode("utf-8", "surrogateescape")
    if too_large:
        raise too_large
    columns.pop("json", None)
    caption = fields.get("text") or fields.get("caption")
    rest = {key: value for key, value in fields.items() if key not in _RESERVED}
    return {"text": caption if isinstance(caption, str) else None, **rest, **columns}


def _json_object(name: str, data: bytes) -> dict[str, object]:
    try:
        fields = json.loads(data)
    except (ValueError, RecursionError) as exc:
        raise InvalidInputError("invalid", f"{name} is no JSON that can be read: {exc}") from exc
    if not isinstance(fields, dict):
        raise InvalidInputError("invalid", f"{name} holds no JSON object")
    return fields


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


def _csv_rows(table: str, file: TextIO, head: DecodedText) -> Iterator[tuple[int, Row]]:
    csv.field_size_limit(max(csv.field_size_limit(), MAX_ROW_CHARS))  # of the process: raised, and never lowered
    lines: list[str] = []
    header = next(iter(head.text.splitlines()), "")
    has_tabs = table.lower().endswith(".tsv") or ("\t" in header and "," not in header)  # "Unicode text" of Excel
    reader = csv.DictReader(_noted(table, file, lines), delimiter="\t" if has_tabs else ",")
    unread = unread_metadata({UNCERTAIN: 1} if UNCERTAIN in head.unread else {})
    try:
        _check_header(table, reader.fieldnames)
        lines.clear()
        for row in reader:
            _check_quotes(table, reader.line_num, lines)
            said = {} if "".join(lines).isascii() else unread
            lines.clear()
            named = {key: value for key, value in row.items() if key is None or key.strip()}
            cells = {key: _cell(key, value) for key, value in named.items() if _is_filled(value)}
            yield reader.line_num, {**cells, **said}
    except csv.Error as exc:
        raise ConfigError(f"{table}, line {reader.line_num}, cannot be read as CSV: {exc}") from exc


def _noted(table: str, file: TextIO, lines: list[str]) -> Iterator[str]:
    """Yield the lines of a file and add them to ``lines``.

    ConfigError where a row is too long.
    """
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
    """Raise ConfigError where a row of several lines has a quote that stays open.

    ``last`` is the number of its last line.

    It has taken in the rows after it, which would be missing.
    """
    if sum(1 for line in lines if line.strip()) > 1 and sum(line.count('"') for line in lines) % 2:
        first = last - len(lines) + 1
        raise ConfigError(f"{table}, lines {first} to {last}, cannot be read as CSV: a quote is not closed")


def _check_header(table: str, header: Sequence[str] | None) -> None:
    if any(map(STRAY.search, header or ())):
        raise ConfigError(f"{table} cannot be read: its header is no text")
    if not set(_RESERVED) & set(header or ()):
        raise ConfigError(f"{table} needs a header with at least one of id, text and image; it has {header}")
    twice = [name for name, count in Counter(header).items() if count > 1 and name.strip()]
    if twice:
        raise ConfigError(f"{table} has two columns {twice[0]!r}: which one counts cannot be told")


def _check_columns(table: str, columns: Sequence[str]) -> None:
    if not set(_RESERVED) & set(columns):
        raise ConfigError(f"{table} needs at least one of the columns id, text and image; it has {', '.join(columns)}")


def _is_filled(value: object) -> bool:
    """Return whether a cell has anything in it.

    The cells beyond the last column come as a list.
    """
    return any(value) if isinstance(value, list) else bool(value)


def _cell(column: str, value: object) -> object:
    """Return a CSV cell.

    In a column of metadata it is a number or bool where it is written as one.
    """
    return value if not isinstance(value, str) or column in _RESERVED else typed(value)


def typed(value: str) -> Scalar:
    """Return a number or a bool that is written as one, and any other text."""
    if _INTEGER.fullmatch(value) and abs(int(value)) <= MAX_INT:
        return int(value)
    if _NUMBER.fullmatch(value) and math.isfinite(float(value)):
        return float(value)
    return {"true": True, "false": False}.get(value.lower(), value)
