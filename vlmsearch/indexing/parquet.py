"""An index as one Parquet file, which pandas, DuckDB, Daft and others read.

==================  ==================================================================================================
``id``              the id of the document.
``text``            the text, or null.
``image``           the path of the image, or null.
``metadata``        a JSON object; a key may have a string in one document and a number in another.
``source``          the file or table that the document was read from.
``digest``          the version that was indexed.
``clip/image`` ...  a column for each field of the index: its vector as a list of float32 of one length, or null.
``escaped``         a JSON object with the columns that are not valid Unicode, as names of files may be. The columns
                    themselves then have U+FFFD. Null for most documents.
==================  ==================================================================================================

A passage of a long text has a row of its own, before that of its document, with the id ``DOCUMENT#passage=N``: see
`vlmsearch.stores.passages`.

The metadata of the file itself have two keys: ``vlmsearch`` is a JSON object with the manifest and the tuning of the
index, and ``vlmsearch.rejects`` has its reject list.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from vlmsearch._util.batching import batches
from vlmsearch._util.closable import Closable
from vlmsearch._util.extras import install_command
from vlmsearch._util.files import file_in_the_making
from vlmsearch._util.strict_json import parse_json
from vlmsearch.errors import ConfigError, MissingDependencyError, one_line
from vlmsearch.stores.base import RejectList, Store, dim_of, needed_manifest, space_of
from vlmsearch.stores.documents import StoredDocument
from vlmsearch.stores.filters import values_of
from vlmsearch.stores.passages import record_of, rows_of
from vlmsearch.types import HALVES, PASSAGE, Field, Manifest, Record, Reject, Stamp, document_of

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

_VERSION = 2
_READ = (1, _VERSION)
_MANIFEST, _REJECTS = "vlmsearch", "vlmsearch.rejects"
_STRINGS = ("id", "text", "image", "metadata", "source", "digest", "escaped")
_NULLABLE = {"text", "image", "escaped"}
_REQUIRED = set(_STRINGS) - _NULLABLE
_READ_TOGETHER = 512
"""Documents that a store is asked for at a time."""
_GROUP_ROWS = 8192
_GROUP_BYTES = 32 * 2**20
"""The highest numbers of rows and, about, of bytes of a row group.

A group is in memory while it is written and read.
"""
_LENGTH_ERROR = 0.01
"""By how much the length of a vector may differ from one: float16 keeps three digits."""


@dataclass(frozen=True)
class ExportReport:
    """A report of `export_index`.

    Attributes:
        documents: The number of documents in the file.
        rejects: The length of its reject list; None where the store keeps no such list.
        bytes: The size of the file.
        seconds: The time of the run.
    """

    documents: int
    rejects: int | None
    bytes: int
    seconds: float


def export_index(source: Store, path: str | Path, *, on_progress: Callable[[int], None] | None = None) -> ExportReport:
    """Write all documents of an index into a Parquet file.

    Vectors, stamps, the reject list and the tuning come with them.

    The file appears when it is complete, and what was there stays until then. Others may search and write meanwhile:
    each document is in the file as it was at some instant of the run. `vlmsearch.indexing.copy.copy` takes the file,
    opened as `ParquetIndex`, in place of a store.

    Args:
        source: The index to read.
        path: The file to write; its name ends in ``.parquet``.
        on_progress: Called with the number of documents done so far.

    Returns:
        What was written.

    Raises:
        ConfigError: The source is not an index, or the path is a folder or has another ending.
        MissingDependencyError: pyarrow is not installed.
        IndexMismatchError: The source was built anew meanwhile, and what this run was reading is gone.

    Example:
        >>> import tempfile
        >>> from vlmsearch import Document, Pipeline
        >>> from vlmsearch.indexing.copy import copy
        >>> from vlmsearch.registry import open_encoder, open_store
        >>> with tempfile.TemporaryDirectory() as folder, open_store("mock:") as store, open_store("mock:") as other:
        ...     report = Pipeline(open_encoder("mock:"), store).add(Document("a", text="a dog"))
        ...     written = export_index(store, f"{folder}/index.parquet")
        ...     with ParquetIndex(f"{folder}/index.parquet") as exported:
        ...         (written.documents, copy(exported, other).copied)
        (1, 1)
    """
    pa = _pyarrow()
    started = time.monotonic()
    path = Path(path)
    manifest = needed_manifest(source)
    if not is_parquet(path) or path.is_dir():
        what = "is a folder" if path.is_dir() else "does not end in .parquet"
        raise ConfigError(f"{str(path)!r} {what}: name the file to write, such as index.parquet")
    fields = [field for space in manifest.spaces for field in space.fields]
    schema = _schema(manifest)
    count = 0
    with file_in_the_making(path) as making:
        settings = {
            "compression": dict.fromkeys(_STRINGS, "zstd"),  # floats are not made smaller by it
            "use_dictionary": ["source"],
            "write_statistics": ["id", "source"],
            "write_page_checksum": True,
        }
        with pa.parquet.ParquetWriter(making, schema, **settings) as writer:
            for group in _groups(source):
                cells = [_cells(row) for row in group]
                columns = [[row[name] for row in cells] for name in _STRINGS]
                columns += [_vectors(field, group, schema) for field in fields]
                writer.write_table(pa.table(columns, schema=schema), row_group_size=len(group))
                count += sum(PASSAGE not in row.document.id for row in group)
                if on_progress:
                    on_progress(count)
            rejects = source.rejects() if isinstance(source, RejectList) else None
            about = {
                _MANIFEST: json.dumps({**_manifest_form(source.manifest() or manifest), "documents": count}),
                _REJECTS: json.dumps(None if rejects is None else [asdict(reject) for reject in rejects]),
            }
            writer.add_key_value_metadata(about)
        size = making.stat().st_size
    return ExportReport(count, None if rejects is None else len(rejects), size, time.monotonic() - started)


def is_parquet(path: str | Path) -> bool:
    """Return whether a name is that of a Parquet file, by its ending."""
    return os.fspath(path).lower().endswith(".parquet")


class ParquetIndex(Closable):
    """An index that `export_index` wrote, to copy from in place of a store.

    Args:
        path: The file.

    Raises:
        ConfigError: The file cannot be read, or was written by something else.
        MissingDependencyError: pyarrow is not installed.
    """

    def __init__(self, path: str | Path) -> None:
        pa = _pyarrow()
        self.name = os.fspath(path)
        if not Path(path).is_file():
            raise ConfigError(f"no such file: {self.name!r}")
        try:
            self._file: Any = pa.parquet.ParquetFile(
                self.name, page_checksum_verification=True, pre_buffer=False, memory_map=False
            )
        except (pa.ArrowException, OSError, UnicodeDecodeError) as exc:
            raise ConfigError(f"{self.name!r} cannot be read as Parquet: {one_line(exc)}") from exc
        self._known: set[str] | None = None
        try:
            self._manifest, self._rejects = self._about()
            self._schema = _schema(self._manifest)
            self._check_columns()
        except BaseException:
            self.close()
            raise

    def _about(self) -> tuple[Manifest, list[Reject] | None]:
        about = self._file.metadata.metadata or {}
        if _MANIFEST.encode() not in about:
            why = "what pandas, DuckDB or others wrote is not: give its rows to `vlmsearch index` as JSONL"
            raise ConfigError(f"{self.name!r} was not written by `vlmsearch export`; {why}")
        try:
            form = parse_json(about[_MANIFEST.encode()].decode())
            if form["version"] not in _READ:
                raise ConfigError(
                    f"{self.name!r} is in version {form['version']!r} of this format, and this release reads "
                    f"{_VERSION}: use the release that wrote it, or a newer one"
                )
            self._count = int(form.get("documents", self._file.metadata.num_rows))
            return _manifest_of(form), _rejects_of(parse_json(about[_REJECTS.encode()].decode()))
        except (KeyError, TypeError, ValueError, AttributeError) as exc:
            if isinstance(exc, ConfigError):
                raise
            raise ConfigError(f"the manifest in {self.name!r} is damaged: {one_line(exc)}") from exc

    def _check_columns(self) -> None:
        there = self._file.schema_arrow
        for wanted in self._schema:
            place = there.get_field_index(wanted.name)
            if place < 0 or not there.field(place).type.equals(wanted.type):
                kind = "none" if place < 0 else str(there.field(place).type)
                raise ConfigError(
                    f"{self.name!r} needs a column {wanted.name} of type {wanted.type}, and has {kind}: "
                    "export the index again"
                )

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def __len__(self) -> int:
        """Return how many documents there are."""
        return self._count

    def manifest(self) -> Manifest:
        """Return what built the index, with its tuning."""
        return self._manifest

    def rejects(self) -> list[Reject] | None:
        """Return the reject list; None where the store that was exported keeps none."""
        return self._rejects

    def pages(self, count: int) -> Iterator[list[Record]]:
        """Read all documents, in the order of the file.

        Args:
            count: The most documents at a time, with their passages.

        Yields:
            Their records.

        Raises:
            ConfigError: The file is damaged, or holds what no index has.
        """
        fields = [field for space in self._manifest.spaces for field in space.fields]
        passages: dict[str, list[Record]] = {}
        for batch in self._batches(self._schema.names, count):
            strings = [batch.column(name).to_pylist() for name in _STRINGS]
            vectors = [self._rows(field, batch) for field in fields]
            page: list[Record] = []
            for cells, rows in zip(zip(*strings), zip(*vectors)):
                given = {field: row for field, row in zip(fields, rows) if row is not None}
                record = self._record(dict(zip(_STRINGS, cells)), given)
                id = document_of(record.document.id)
                if id != record.document.id:
                    passages.setdefault(id, []).append(record)
                else:
                    page.append(record_of(record, passages.pop(id, ())))
            yield page

    def unknown(self, ids: Sequence[str]) -> list[str]:
        """Return those of some ids that are not in the file. The first call reads all ids, and keeps them.

        Args:
            ids: The ids.

        Returns:
            Those that are not there, in their order.
        """
        if self._known is None:
            read = self._batches(["id"], _GROUP_ROWS)
            self._known = {id for batch in read for id in batch.column("id").to_pylist()}
        return [id for id in ids if id not in self._known]

    def _batches(self, columns: Sequence[str], count: int) -> Iterator[Any]:
        pa = _pyarrow()
        try:
            for batch in self._file.iter_batches(batch_size=count, columns=list(columns)):
                for name in set(columns) & _REQUIRED:
                    if batch.column(name).null_count:
                        raise ConfigError(f"{self.name!r} has a row without {name}: export the index again")
                yield batch
        except (pa.ArrowException, OSError, UnicodeDecodeError) as exc:
            raise ConfigError(f"{self.name!r} is damaged: {one_line(exc)}") from exc

    def _rows(self, field: Field, batch: Any) -> list[NDArray[np.float32] | None]:
        """Return the vectors of a batch; ConfigError where one is neither of length one nor zero."""
        column = batch.column(str(field))
        dim = dim_of(self.name, self._manifest.spaces, field)
        if any(count not in (None, dim) for count in column.value_lengths().unique().to_pylist()):
            raise ConfigError(f"{self.name!r} has a vector {field} that is not {dim} long: export the index again")
        vectors = column.flatten().to_numpy(zero_copy_only=False).reshape(-1, dim)
        with np.errstate(over="ignore"):
            lengths = np.linalg.norm(vectors, axis=1)
        if not np.all((np.abs(lengths - 1) <= _LENGTH_ERROR) | (lengths == 0)):  # also of what is not a number
            raise ConfigError(f"{self.name!r} has a vector {field} that is not of length one: export the index again")
        rows = iter(vectors)
        return [next(rows) if there else None for there in column.is_valid().to_pylist()]

    def _record(self, cells: dict[str, str], vectors: dict[Field, NDArray[np.float32]]) -> Record:
        try:
            if cells["escaped"] is not None:
                cells.update(_strings(parse_json(cells["escaped"]), _STRINGS[:-1]))
            metadata = parse_json(cells["metadata"])
            if not isinstance(metadata, dict):
                raise ConfigError(f"{self.name!r}: the metadata of {cells['id']!r} are not a JSON object")
        except (TypeError, ValueError) as exc:
            if isinstance(exc, ConfigError):
                raise
            raise ConfigError(f"{self.name!r}: the row of {cells['id']!r} cannot be read: {one_line(exc)}") from exc
        document = StoredDocument(cells["id"], cells["text"], cells["image"], metadata).document
        return Record(document, vectors, Stamp(cells["digest"], cells["source"]), self._manifest.fingerprint)


def _pyarrow() -> Any:
    try:
        import pyarrow as pa
        import pyarrow.parquet
    except ModuleNotFoundError as exc:
        raise MissingDependencyError(
            f"Parquet needs {exc.name}, which is not installed: {install_command('parquet')}"
        ) from exc
    return pa


def _schema(manifest: Manifest) -> pa.Schema:
    pa = _pyarrow()
    strings = [pa.field(name, pa.string(), nullable=name in _NULLABLE) for name in _STRINGS]
    # not lists of a fixed size: PyArrow before 26 writes nulls among them and cannot read them
    kind = pa.list_(pa.field("element", pa.float32()))
    vectors = [pa.field(str(field), kind) for space in manifest.spaces for field in space.fields]
    return pa.schema(strings + vectors)


def _groups(source: Store) -> Iterator[list[Record]]:
    """Yield all records and their passages as rows, a row group at a time."""
    group: list[Record] = []
    size = 0
    for page in batches(source.ids(), _READ_TOGETHER):
        for row in rows_of(source.records(page)):
            size += _size(row)
            group.append(row)
            if len(group) == _GROUP_ROWS or size > _GROUP_BYTES:
                yield group
                group, size = [], 0
    if group:
        yield group


def _size(record: Record) -> int:
    """Return about how many bytes a record takes."""
    document = record.document
    values = chain.from_iterable(map(values_of, document.metadata.values()))
    strings = sum(len(value) for value in values if isinstance(value, str))
    return len(document.text or "") + strings + sum(vector.nbytes for vector in record.vectors.values())


def _cells(record: Record) -> dict[str, str | None]:
    """Return the strings of a record, by column."""
    stored = StoredDocument.of(record.document)
    cells = {
        **stored._asdict(),
        "metadata": json.dumps(dict(stored.metadata), ensure_ascii=False),
        "source": record.stamp.source,
        "digest": record.stamp.digest,
        "escaped": None,
    }
    odd = {name: cell for name, cell in cells.items() if cell is not None and HALVES.search(cell)}
    if odd:
        cells |= {name: HALVES.sub("\ufffd", cell) for name, cell in odd.items()} | {"escaped": json.dumps(odd)}
    return cells


def _vectors(field: Field, group: Sequence[Record], schema: pa.Schema) -> Any:
    pa = _pyarrow()
    rows = [record.vectors.get(field) for record in group]
    offsets = np.cumsum([0, *(0 if row is None else len(row) for row in rows)], dtype=np.int32)
    values = np.concatenate([np.empty(0, np.float32), *(row for row in rows if row is not None)])
    absent = pa.array([row is None for row in rows])
    return pa.ListArray.from_arrays(offsets, values, type=schema.field(str(field)).type, mask=absent)


def _manifest_form(manifest: Manifest) -> dict[str, object]:
    spaces = [{"name": s.name, "dim": s.dim, "modalities": sorted(s.modalities)} for s in manifest.spaces]
    return {
        "version": _VERSION,
        "fingerprint": manifest.fingerprint,
        "spaces": spaces,
        "created": manifest.created,
        "language": manifest.language,
        "tuning": dict(manifest.tuning),
    }


def _manifest_of(form: Mapping[str, Any]) -> Manifest:
    spaces = tuple(space_of(s["name"], s["dim"], s["modalities"]) for s in form["spaces"])
    if len({space.name for space in spaces}) != len(form["spaces"]) or not spaces:
        raise ValueError("it names no space of vectors, or one twice")
    tuning = {str(name): float(value) for name, value in form["tuning"].items()}
    return Manifest(str(form["fingerprint"]), spaces, str(form["created"]), str(form["language"]), tuning)


def _rejects_of(form: list[dict[str, Any]] | None) -> list[Reject] | None:
    if form is None:
        return None
    for entry in form:
        f"{entry['id']}{entry['code']}".encode()  # no store takes half of a surrogate pair there
    stamps = [Stamp(**_strings(entry.pop("stamp"), ("digest", "source"))) for entry in form]
    return [Reject(**_strings(entry, ("id", "code", "message")), stamp=stamp) for entry, stamp in zip(form, stamps)]


def _strings(form: dict[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """Return a JSON object that has strings under some of the names and nothing else.

    ValueError for another value.
    """
    if (
        not isinstance(form, dict)
        or not form.keys() <= set(names)
        or not all(isinstance(v, str) for v in form.values())
    ):
        raise ValueError(f"expected a JSON object with strings for {', '.join(names)}: {str(form)[:80]!r}")
    return form
