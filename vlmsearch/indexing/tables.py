"""Rows of tables, as they are written: lines of JSONL, rows of CSV and Parquet, and samples of tars.

A tar is a shard in the form of WebDataset (https://github.com/webdataset/webdataset): files with the same name up to
the first dot are a sample, and the last ending says what is in a file.
"""

from __future__ import annotations

import csv
import errno
import io
import json
import math
import os
import re
import tarfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from itertools import groupby, islice
from types import ModuleType
from typing import IO, Any, TextIO, TypeAlias, Union

from vlmsearch._util.extras import install_command
from vlmsearch._util.plain import MAX_INT
from vlmsearch._util.unread import unread_text, with_unread
from vlmsearch.errors import ConfigError, InvalidInputError, MissingDependencyError, one_line
from vlmsearch.indexing.columns import RESERVED, Columns
from vlmsearch.indexing.given import arrow_rows
from vlmsearch.media.decoding import STRAY, UNCERTAIN, DecodedText, decoded, opened_text
from vlmsearch.media.images import IMAGE_SUFFIXES
from vlmsearch.media.limits import MAX_FILE_BYTES
from vlmsearch.media.remote import open_remote, remote_url
from vlmsearch.types import READERS, Scalar

Row: TypeAlias = Union[str, Mapping[str, object]]
"""A line of JSONL, a row of CSV or Parquet, or a sample of a tar.

The id of a sample is its place in the tar.
"""
Rows: TypeAlias = "Iterator[tuple[int, Row | OSError | InvalidInputError]]"
MAX_ROW_CHARS = 16 * 2**20
"""The longest line of JSONL or row of CSV, in characters.

A longer text goes into a file of its own.
"""
_Member: TypeAlias = "tuple[str, tuple[str, ...], tarfile.TarInfo]"
_LABELS = ("cls", "cls2", "class", "count", "index", "inx")
_ENDINGS = {
    **dict.fromkeys(("txt", "text", "caption", "transcript"), "text"),
    **dict.fromkeys(("json", "jsn"), "json"),
    **dict(zip(_LABELS, _LABELS)),
}
_PARQUET_ROWS = 64
_INTEGER = re.compile(r"-?(0|[1-9]\d{0,18})")
_SEPARATOR = re.compile(r'(?i)"?sep=([^\w"\r\n])"?[ \t]*(?:[\r\n]|$)')
"""The first line of a CSV file that says what separates its columns: Excel's own."""
_NO_DELIMITER = "\x1f"
_BOOLS = {"true": True, "false": False}
_NUMERIC = frozenset("-0123456789")
_COMMA = re.compile(r"-?(0|[1-9]\d*|[1-9]\d{0,2}([.\u00a0\u202f ]\d{3})+),\d+([eE][+-]?\d+)?")
"""A number with a decimal comma, which only tables with semicolons have."""
_GROUPED = re.compile(r"-?[1-9]\d{0,2}([.\u00a0\u202f]\d{3}){1,2}")
"""A whole number in groups of digits, in a table with decimal commas."""
_NUMBER = re.compile(r"-?(0|[1-9]\d*)(\.\d+([eE][+-]?\d+)?|[eE][+-]\d+)")  # Python writes 1e-05, a hash has no sign


def read_rows(table: str, columns: Columns) -> Rows:
    """Yield rows with their numbers: those of lines in JSONL and CSV; last the error of a table that cannot be read on.

    Bytes that are no text come as surrogates; a row that is too large comes as its error. ``columns`` are looked for in
    headers; `Columns.row` renames them.
    """
    try:
        with _open(table) as file:
            if table.lower().endswith(".parquet"):
                yield from _parquet_rows(table, file, columns)
            elif table.lower().endswith(".tar"):
                yield from _samples(table, file)
            elif table.lower().endswith((".csv", ".tsv")):
                yield from _csv_rows(table, *opened_text(file), columns)
            else:
                yield from _lines(opened_text(file, is_unicode=True)[0])
    except OSError as exc:
        yield 0, exc


def count_rows(table: str, columns: Columns) -> int:
    """Return how many rows a table has; those of Parquet and tars are not read."""
    if table.lower().endswith(".parquet"):
        with suppress(OSError, ValueError), _open(table) as file:
            return int(_parquet(table).ParquetFile(file).metadata.num_rows)
    if table.lower().endswith(".tar"):
        number = 0
        try:
            with _open(table) as file, _open_tar(table, file) as tar:
                for _ in _groups(tar, file):
                    number += 1
        except (OSError, tarfile.TarError):
            return max(number, 1)  # the last sample is cut
        return number
    return sum(1 for _ in read_rows(table, columns))


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


def _is_array(kind: Any) -> bool:
    """Return whether a type of Arrow has arrays of numbers.

    No store keeps them, and pyarrow cannot read a column where some are missing.
    """
    name = str(getattr(kind, "storage_type", kind))
    return name.startswith("fixed_size_list") and "string" not in name


def _parquet_rows(table: str, file: IO[bytes], columns: Columns) -> Rows:
    parquet = _parquet(table)
    number = 0
    try:
        opened = parquet.ParquetFile(file)
        schema = opened.schema_arrow
        ranges = [index for index in (schema.pandas_metadata or {}).get("index_columns", ()) if isinstance(index, dict)]
        ids = next((index for index in ranges if index.get("name") == "id" and "id" not in schema.names), None)
        columns.check(table, [*schema.names, *(["id"] if ids else [])])
        arrays = {field.name: ... for field in schema if _is_array(field.type) and field.name not in columns.known}
        names = [name for name in schema.names if name not in arrays] if arrays else None
        for batch in opened.iter_batches(batch_size=_PARQUET_ROWS, columns=names):
            for row in arrow_rows(batch, table):
                id = {"id": ids["start"] + number * ids["step"]} if ids else {}
                yield number + 1, {**id, **row, **arrays}
                number += 1
    except (ConfigError, OSError):
        raise
    except ValueError as exc:  # pyarrow's ArrowInvalid among them
        raise OSError(errno.EINVAL, f"it is damaged, or not Parquet: {one_line(exc)}") from exc


def _samples(table: str, file: IO[bytes]) -> Rows:
    """Yield the samples of a tar, in the order of their first members.

    A tar that is compressed or in object storage is read once. Of a plain one of this machine, the members of a sample
    may be anywhere.
    """
    number, keys = 0, set[str]()
    try:
        with _open_tar(table, file) as tar:
            for key, members in _groups(tar, file):
                number += 1
                try:
                    columns = _sample(tar, members)
                except InvalidInputError as exc:
                    yield number, InvalidInputError(exc.code, f"{key}: {exc}")
                    continue
                again = InvalidInputError("invalid", f"{key}: it comes again: put the members of a sample side by side")
                yield number, again if key in keys else {**columns, "id": f"{table}/{key}"}
                keys.add(key)
    except tarfile.TarError as exc:
        raise OSError(errno.EINVAL, f"it is damaged, cut short, or not a tar: {exc}") from exc


def _open_tar(table: str, file: IO[bytes]) -> tarfile.TarFile:
    if not remote_url(table):
        with suppress(tarfile.ReadError):
            return tarfile.open(fileobj=file, mode="r:")
        file.seek(0)
    return tarfile.open(fileobj=file, mode="r|*")


def _groups(tar: tarfile.TarFile, file: IO[bytes]) -> Iterator[tuple[str, Iterable[_Member]]]:
    return _gathered(tar) if tar.fileobj is file else groupby(_members(tar), key=lambda member: member[0])


def _members(tar: tarfile.TarFile) -> Iterator[_Member]:
    """Yield the members of a tar, each with the key of its sample and its endings."""
    for member in tar:
        folder, slash, name = member.name.rpartition("/")
        if not (member.isdir() or name.startswith((".", "__"))):
            key, *endings = name.split(".")
            yield f"{folder}{slash}{key}", tuple(map(str.lower, endings)), member


def _gathered(tar: tarfile.TarFile) -> Iterator[tuple[str, Iterable[_Member]]]:
    """Yield the keys of samples with their members.

    The last member of a name counts, as for tar. A hard link is what it links to.
    """
    groups: dict[str, dict[str, _Member]] = {}
    files: dict[str, tarfile.TarInfo] = {}
    error: tarfile.TarError | None = None
    try:
        for key, endings, member in _members(tar):
            files[member.name] = files.get(member.linkname, member) if member.islnk() else member
            groups.setdefault(key, {})[member.name] = key, endings, files[member.name]
        tar.fileobj.seek(tar.offset)
        if any(chunk.strip(b"\0") for chunk in iter(lambda: tar.fileobj.read(2**20), b"")):
            error = tarfile.ReadError("more comes after its end, as in tars that are joined")
    except tarfile.TarError as exc:
        error = exc
    yield from ((key, group.values()) for key, group in groups.items())
    if error:
        raise error


def _sample(tar: tarfile.TarFile, members: Iterable[_Member]) -> dict[str, object]:
    """Return the columns of one sample: an image, a text, labels, and the fields of a JSON object.

    Of two images or texts, that with one ending counts, and else the first.
    """
    columns: dict[str, Any] = {}
    counts: dict[str, int] = {}
    unread = Counter[str]()
    error: InvalidInputError | None = None
    for _, endings, member in members:
        ending = endings[-1] if endings else ""
        column = "image" if f".{ending}" in IMAGE_SUFFIXES else _ENDINGS.get(ending, "")
        kind = column if column in RESERVED else f"{ending or 'other'} file"
        is_later = column in columns and (counts[column] == 1 or len(endings) > 1)
        value: Any = None
        data: Any = None
        try:
            if column and (column == "json" or not is_later):  # once: of a stream, nothing is read again
                data = _content(tar, member, column)
            value = None if is_later else _json_object(data) if column == "json" and data is not None else data
        except InvalidInputError as exc:
            error = InvalidInputError(exc.code, f"{member.name}: {exc}")
        if column == "json" and value is None and f'"{READERS}"'.encode() in (data or b""):
            raise InvalidInputError("invalid", f"{member.name} names {READERS!r}: let it be JSON, and the only one")
        unread[kind if member.isfile() else "link"] += value is None or column in columns
        if value is not None:
            columns[column], counts[column] = value, len(endings)
    if not columns:
        raise error or InvalidInputError("empty", f"neither text nor image, but {unread_text(unread)}")
    image, fields = columns.pop("image", None), columns.pop("json", {})
    for decoded_text in columns.values():
        unread.update(decoded_text.unread)
    caption = fields.get("text") or fields.get("caption")
    caption = None if isinstance(caption, dict) else caption
    text = columns.pop("text").text if "text" in columns else caption
    labels = {column: typed(value.text.strip()) for column, value in columns.items()}
    rest = {key: value for key, value in fields.items() if key not in RESERVED}
    used = (None, text, *labels.values())
    unread.update(f"{key} value" for key in (*RESERVED, *labels) if fields.get(key) not in used)
    return dict(with_unread({**rest, **labels, "text": text, "image": image}, +unread))


def _content(tar: tarfile.TarFile, member: tarfile.TarInfo, column: str) -> Any:
    """Return what is in a member: bytes of an image or JSON, else a text; None for a link."""
    has_bytes = column in ("image", "json")
    _check_size(member.size, MAX_FILE_BYTES if has_bytes else MAX_ROW_CHARS)
    content = tar.extractfile(member) if member.isfile() else None
    data = content.read() if content else None
    return data if has_bytes or data is None else decoded(data)


def _check_size(size: int, limit: int) -> None:
    if size > limit:
        raise InvalidInputError("too_large", f"it has {size:,} bytes; at most {limit:,}")


def _json_object(data: bytes) -> dict[str, object]:
    _check_size(len(data), MAX_ROW_CHARS)
    try:
        fields = json.loads(data)
    except (ValueError, RecursionError) as exc:
        raise InvalidInputError("invalid", f"no JSON that can be read: {exc}") from exc
    if not isinstance(fields, dict):
        raise InvalidInputError("invalid", "no JSON object")
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


def _csv_rows(table: str, file: TextIO, head: DecodedText, columns: Columns) -> Iterator[tuple[int, Row]]:
    csv.field_size_limit(max(csv.field_size_limit(), MAX_ROW_CHARS))  # of the process: raised, and never lowered
    lines: list[str] = []
    rows = _noted(table, file, lines)
    named = _SEPARATOR.match(head.text)
    skipped = len(list(islice(rows, 1 if named else 0)))
    delimiter = named[1] if named else _delimiter(table, head.text.lstrip("\r\n"), columns)
    quoting = _quoting(head.text, delimiter)
    has_commas = delimiter == ";" and any(map(_COMMA.fullmatch, re.split(r'[;"\r\n]', head.text)))
    sign = re.escape(delimiter)
    null = re.compile(rf"(?<![^{sign}])\\N(?=[{sign}\r\n]|\Z)")  # of MySQL and PostgreSQL
    cleared = (null.sub("", line) if r"\N" in line else line for line in rows)
    reader = csv.reader(cleared, delimiter=delimiter, **quoting)
    unread = {UNCERTAIN: 1} if UNCERTAIN in head.unread else {}
    try:
        header = [READERS if name.strip() == READERS else name for name in next(filter(None, reader), [])]
        _check_header(table, header, columns)
        lines.clear()
        for cells in filter(None, reader):
            number = reader.line_num + skipped
            if len(lines) > 1:
                _check_quotes(table, number, lines, delimiter, quoting)
            said = unread if unread and not "".join(lines).isascii() else {}
            lines.clear()
            row: dict[Any, object] = {
                key: value if key in columns.known else _cell(value, has_commas) if key != READERS else _names(value)
                for key, value in zip(header, cells)
                if value
            }
            beyond = cells[len(header) :]
            row.update({None: beyond} if any(beyond) else {})
            yield number, with_unread(row, said)
    except csv.Error as exc:
        raise ConfigError(f"{table}, line {reader.line_num + skipped}, cannot be read as CSV: {exc}") from exc


def _delimiter(table: str, head: str, columns: Columns) -> str:
    """Return what separates the columns: that with which the header has the most known names.

    ConfigError where two are as likely.
    """
    signs = "\t,;|" if table.lower().endswith(".tsv") else ",;\t|"
    text = head.replace("\0", "")
    headers = {
        sign: next(csv.reader(io.StringIO(text, newline=""), delimiter=sign, skipinitialspace=True), [])
        for sign in signs
    }
    counts = {sign: len(columns.known.intersection(header)) for sign, header in headers.items()}
    first, second = sorted(signs, key=lambda sign: -counts[sign])[:2]
    if counts[first] == counts[second] > 0 and len(headers[second]) > 1:
        raise ConfigError(f"{table}: {first!r} or {second!r} may separate its columns; write sep=, or sep=; above them")
    return first if len(headers[first]) > 1 else _NO_DELIMITER


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


def _quoting(head: str, delimiter: str) -> dict[str, Any]:
    r"""Return how quotes are written: as Excel does, as ``\"`` in a quoted cell, or between tabs as any sign.

    In a table whose header has spaces after its signs, these spaces are no part of the cells.
    """
    spaces = {"skipinitialspace": True} if f"{delimiter} " in head.lstrip().partition("\n")[0] else {}
    ways: list[dict[str, Any]] = [{}, {"escapechar": "\\"}, {"quoting": csv.QUOTE_NONE} if delimiter == "\t" else {}]
    return next((spaces | way for way in ways if _is_strict(head, delimiter, spaces | way) is not False), spaces)


def _is_strict(text: str, delimiter: str, quoting: Mapping[str, Any]) -> bool | None:
    """Return whether no cell goes on after its quote; None where the last one stays open."""
    try:
        for _ in csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True, **quoting):
            pass
    except csv.Error as exc:
        return None if "unexpected end" in str(exc) else False
    return True


def _check_quotes(table: str, last: int, lines: Sequence[str], delimiter: str, quoting: Mapping[str, Any]) -> None:
    """Raise ConfigError where the quote of several lines stays open or is closed inside a cell.

    ``last`` is the number of its last line.

    It has taken in the rows after it, which would be missing.
    """
    if not _is_strict("".join(lines), delimiter, quoting):
        first = last - len(lines) + 1
        raise ConfigError(f"{table}, lines {first} to {last}, cannot be read as CSV: a quote is not closed")


def _check_header(table: str, header: Sequence[str], columns: Columns) -> None:
    if any(map(STRAY.search, header)):
        raise ConfigError(f"{table} cannot be read: its header is no text")
    columns.check(table, header)
    twice = [name for name, count in Counter(header).items() if count > 1 and name.strip()]
    if twice:
        raise ConfigError(f"{table} has two columns {twice[0]!r}: which one counts cannot be told")


def _cell(value: str, has_commas: bool) -> Scalar:
    """Return a cell of metadata: a number or bool where it is written as one."""
    is_comma = has_commas and (_COMMA.fullmatch(value) or _GROUPED.fullmatch(value))
    return typed(re.sub(r"[.\u00a0\u202f ]", "", value).replace(",", ".") if is_comma else value)


def _names(value: str) -> object:
    """Return a cell of readers: names with semicolons, or a list in JSON, which is ``...`` where it cannot be read."""
    if value.lstrip().startswith("["):
        try:
            return json.loads(value)
        except (ValueError, RecursionError):
            return ...
    cell = typed(value)
    names = [name.strip() for name in value.split(";") if name.strip()]
    return names if isinstance(cell, str) and names != [cell] else cell


def typed(value: str) -> Scalar:
    """Return a number or a bool that is written as one, and any other text."""
    if value[:1] in _NUMERIC:
        if _INTEGER.fullmatch(value) and abs(int(value)) <= MAX_INT:
            return int(value)
        if _NUMBER.fullmatch(value) and math.isfinite(float(value)):
            return float(value)
    return _BOOLS.get(value.lower(), value)
