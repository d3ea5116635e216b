"""Chroma, on a server, as a store.

An index ``name`` has the collections ``name.about`` (what built it, and which generation is in use) and
``name.rejects``. Each generation has ``name.N.documents``, ``name.N.passages``, one collection for the vectors of each
field and ``name.N.journal``. Passages are rows like documents, and all that is said of these holds for them, too. Their
collection is made by the first write of any.

The documents' row is written after the vectors and removed before them. It names the version of the vectors that
belongs to it. So a document is replaced at one instant, and what a killed process left behind is never a hit.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from vlmsearch._util.batching import pages
from vlmsearch.errors import BackendUnavailableError, ConfigError, InvalidInputError
from vlmsearch.stores import writers
from vlmsearch.stores.base import CheckReport, changed_records
from vlmsearch.stores.chroma.check import compare
from vlmsearch.stores.chroma.collections import (
    DEFAULT_HNSW,
    UNSEARCHED_HNSW,
    VERSION_CHARS,
    ChromaCollection,
    HnswOptions,
    connect,
    placeholders,
)
from vlmsearch.stores.chroma.connection import ChromaConnection
from vlmsearch.stores.chroma.filters import compile_filter
from vlmsearch.stores.chroma.journal import ChromaJournal
from vlmsearch.stores.chroma.vectors import ChromaVectorStore, VectorRows
from vlmsearch.stores.documents import DocumentRow, RowCount, RowPart, StoredDocument
from vlmsearch.stores.filters import Filter
from vlmsearch.stores.generations import Slot
from vlmsearch.stores.passages import rows_of
from vlmsearch.stores.rows import ANY_READERS, StoredReaders
from vlmsearch.stores.samples import sampling_key
from vlmsearch.stores.writers import is_under_way
from vlmsearch.types import (
    PASSAGE,
    READERS,
    Document,
    Field,
    Manifest,
    MetadataChange,
    Record,
    Reject,
    Space,
    Stamp,
    document_of,
)

_MARK = {"vlmsearch": "about"}
_WRITES = 1000
_PATIENCE = 30.0
"""Seconds that changes of metadata and other writes to a server wait for one another."""
_MOMENT = 0.02
_KEPT = "kept"
"""The key of a document's row that says whether its readers were the index's before."""
_MAX_BYTES = 36 * 2**20
"""Bytes of a request that one document may take: a server takes 40 MiB unless it is told otherwise."""


class ChromaStore(ChromaVectorStore):
    """Documents and vectors on a Chroma server: ``chroma://host:8000/name``.

    It needs no credentials, or a token in the environment variable VLMSEARCH_CHROMA_TOKEN. ``timeout`` is in seconds
    for one attempt, and ``retries`` is how many follow. ``hnsw`` shapes a new index; in a URL its fields are options,
    such as ``hnsw_ef_search``. Up to 1,000 vectors of a field, search is exact.
    """

    kind = "chroma"
    is_served = True

    def __init__(
        self,
        location: str | ChromaConnection,
        *,
        ssl: bool = False,
        timeout: float = 30.0,
        retries: int = 3,
        hnsw: HnswOptions = DEFAULT_HNSW,
    ) -> None:
        connection = location
        if isinstance(connection, str):
            connection = connect(connection, ssl=ssl, timeout=timeout, retries=retries)
        super().__init__(connection.name)
        self._connection = connection
        self._hnsw = hnsw
        self._slow: set[str] = set()
        self._about = ChromaCollection(connection, f"{connection.prefix}.about")
        self._rejects = ChromaCollection(connection, f"{connection.prefix}.rejects")

    # ---- what it is made of

    def read_slot(self, slot: Slot) -> dict[str, Any] | None:
        """Read the row of a slot; None where it has none."""
        about = self._about.find()
        if about is None:
            return None
        if about != _MARK:
            raise ConfigError(
                f"{self.name} has a collection {self._about.name} that vlmsearch did not make, or not this version "
                "of it; give the index another name, or upgrade"
            )
        row = self._about.get([slot], "uris").get(slot)
        content: dict[str, Any] | None = json.loads(row) if row else None
        return content

    def fill_slot(self, slot: Slot, row: Mapping[str, Any]) -> None:
        """Make the row of a slot, unless there is one."""
        self._about.create(UNSEARCHED_HNSW, _MARK)
        self._about.insert(slot, json.dumps(row))

    def replace_slot(self, slot: Slot, row: Mapping[str, Any], revision: str | None) -> bool:
        """Put another row in the place of one of this revision, at one instant: False where there is none.

        Another process may change it between the look and the write: Chroma has no conditional write.
        """
        with self._connection.writing():
            if not self._is_at(slot, revision):
                return False
            self._about.upsert([slot], placeholders([slot]), None, [json.dumps(row)])
            return True

    def clear_slot(self, slot: Slot, revision: str | None) -> None:
        """Remove the row of a slot, if it is of this revision."""
        with self._connection.writing():
            if self._is_at(slot, revision):
                self._about.delete([slot])

    def _is_at(self, slot: Slot, revision: str | None) -> bool:
        row = self.read_slot(slot)
        return row is not None and row.get("revision") == revision

    def prepare(self, spaces: Sequence[Space], generation: str) -> None:
        """Make the collections of a generation."""
        self._vectors_of(generation, spaces).create(self._hnsw)
        self._collection(generation, "documents").create(UNSEARCHED_HNSW)
        self._rejects.create(UNSEARCHED_HNSW)

    def opened(self, manifest: Manifest, generation: str) -> None:
        """Find the collections of a generation."""
        self._documents, self._passages = (self._collection(generation, name) for name in ("documents", "passages"))
        self._vectors = self._vectors_of(generation, manifest.spaces)
        self._journal = ChromaJournal(self._connection, generation)
        self._documents.needed(self.name)
        self._vectors.open(self.name)
        self._rejects.needed(self.name)

    def drop(self, generation: str, spaces: Sequence[Space]) -> None:
        """Remove everything that a generation has."""
        self._vectors_of(generation, spaces).drop()
        for content in ("documents", "passages"):
            self._collection(generation, content).drop()
        ChromaJournal(self._connection, generation).drop()

    def _collection(self, generation: str, content: str) -> ChromaCollection:
        return ChromaCollection(self._connection, f"{self._connection.prefix}.{generation}.{content}")

    def _vectors_of(self, generation: str, spaces: Sequence[Space]) -> VectorRows:
        return VectorRows(self._connection, generation, spaces)

    # ---- writing

    def write_rows(self, rows: Sequence[Record], readers: StoredReaders = ANY_READERS) -> Collection[str]:
        """Add or replace records, each at one instant, which is when its documents' row is written.

        Readers are compared right before that: Chroma has no conditional write. A writer that gives documents readers
        looks, after its own write, at those that were written meanwhile without: it writes these once more.
        """
        again: set[str] = set()
        for batch in self.batches(rows, _WRITES):
            with self._connection.writing():
                again |= self._write(batch, readers) | self._undone(batch, readers)
        return again

    def _undone(self, rows: Sequence[Record], readers: StoredReaders) -> set[str]:
        """Return the documents whose new readers another writer has undone: it looked before they had them."""
        new = {row.document.id: row.document.metadata[READERS] for row in rows if READERS in row.document.metadata}
        ids = [id for id, names in new.items() if PASSAGE not in id and readers.get(id) != names]
        others = {entry.version for entry in self._journal.entries() if not entry.is_gone} - self._slow if ids else ()
        end = time.monotonic() + _PATIENCE
        while others and (left := self._journal.versions().intersection(others)):
            if time.monotonic() > end:
                self._slow |= left
                break
            time.sleep(_MOMENT)
        there = self._documents.get_both(ids) if ids else {}
        parts = [id for id in new if PASSAGE in id and document_of(id) in there]
        there |= self._passages.get_both(parts) if parts else {}
        return {
            document_of(id)
            for id, (state, content) in there.items()
            if (now := _load_row(id, state, content).document.metadata.get(READERS)) is None
            or (state.get(_KEPT) and now != new[id])
        }

    def check_keepable(self, row: Record) -> None:
        """Raise InvalidInputError for a document that no request to the server can hold."""
        size = len(json.dumps(_dump_document(row.document), ensure_ascii=False).encode())
        if size > _MAX_BYTES:
            large = f"{row.document.id!r} has {size:,} bytes as it is sent; {self.name} takes {_MAX_BYTES:,}"
            raise InvalidInputError("too_large", large)

    def _write(self, records: Sequence[Record], readers: StoredReaders = ANY_READERS) -> set[str]:
        """Write under a version of its own. It writes again where someone took the write for cut off meanwhile.

        Documents that have other ``readers`` now are not written, and returned.
        """
        ids = [record.document.id for record in records]
        replaced, changed = set(self.read_rows(ids)), set[str]()
        while not (version := self._try_to_write(records, readers, changed)):
            replaced = set(ids)
        now = self.read_rows(ids)
        beaten = {id for id in ids if id not in now or now[id].version != version}
        self._clean(replaced | beaten)
        return changed

    def _try_to_write(self, records: Sequence[Record], readers: StoredReaders, changed: set[str]) -> str:
        """Write vectors and then the rows that name them.

        The version is returned, or "" where the entry has gone. Documents with other readers are added to ``changed``.
        """
        ids = [record.document.id for record in records]
        with self._journal.writing(
            "write", ids
        ) as version:  # before the cleaning: of two, one sees what the other left
            self._vectors.write(records, dict.fromkeys(ids, version))
            self._wait_for_changes()
            if not self._journal.has(version):
                return ""
            known = {id for id in map(document_of, ids) if id in readers}
            now = {id: row.document.metadata.get(READERS) for id, row in self.read_rows(known, "document").items()}
            changed |= {id for id in known if now.get(id) != readers[id]}
            self._name([row for row in records if document_of(row.document.id) not in changed], version, readers)
            return version if self._journal.has(version) else ""

    def change_metadata(self, changes: Sequence[MetadataChange]) -> list[str]:
        """Replace metadata, of each document at one instant.

        BackendUnavailableError where others keep writing to the server.
        """
        changed = [id for batch in self.batches(changes, _WRITES) for id in self._change_batch(batch)]
        self.remove_strays([change.document.id for change in changes])
        return changed

    def _wait_for_changes(self) -> None:
        """Return when no change of metadata is under way. So none undoes what is about to be named."""
        end = time.monotonic() + _PATIENCE
        while changes := self._journal.changes():
            over = [entry.version for entry in changes if entry.is_gone or time.monotonic() > end]
            writers.wait_for_requests() if over else time.sleep(_MOMENT)
            self._journal.remove(over)

    def _change_batch(self, changes: Sequence[MetadataChange]) -> list[str]:
        """Change metadata while no other writer names versions: see `ChromaJournal`."""
        ids = [change.document.id for change in changes]
        end = time.monotonic() + _PATIENCE
        while time.monotonic() < end:
            with self._connection.writing():
                with self._journal.writing("change", ids) as version:
                    is_alone = not self._journal.others(version)
                    changed = self._change_under(version, changes) if is_alone else []
                    is_whole = self._journal.has(version)
                if is_alone:
                    self._clean({*ids, *(row.document.id for row in changed)})
                    if changed and not is_whole:  # whoever took this for gone may have removed vectors
                        self._write(changed)
                    return [row.document.id for row in changed if PASSAGE not in row.document.id]
            time.sleep(secrets.randbelow(100) / 1000)  # of two, one comes first
        raise BackendUnavailableError(
            f"{self.name} was written to for {_PATIENCE:.0f} seconds, so no metadata were changed: try again when the "
            "others are done; a write of a process that is gone ends with `vlmsearch check --repair`"
        )

    def _change_under(self, version: str, changes: Sequence[MetadataChange]) -> list[Record]:
        """Write the rows of changed records under a version, and return those that name it."""
        rows = rows_of(changed_records(self.records([change.document.id for change in changes]), changes))
        versions = dict.fromkeys([row.document.id for row in rows], version)
        self._vectors.write(rows, versions)
        if not self._journal.has(version):
            return []  # someone took this for gone
        self._name(rows, version, only_there=True)
        named = {id for id, state in self.read_rows(list(versions)).items() if state.version == version}
        return [row for row in rows if row.document.id in named]

    def _name(
        self,
        records: Sequence[Record],
        version: str,
        readers: StoredReaders = ANY_READERS,
        *,
        only_there: bool = False,
    ) -> None:
        """Write the documents' rows, which name the version of their vectors; or ``only_there``, no new ones."""
        rows = {row.document.id: DocumentRow(row.stamp, version, frozenset(row.vectors)) for row in records}
        texts = {record.document.id: _dump_document(record.document) for record in records}
        named = {record.document.id: record.document.metadata.get(READERS) for record in records}
        kept = {id: {_KEPT: readers.get(id) == names} for id, names in named.items() if names is not None}
        if any(PASSAGE in id for id in rows) and self._passages.find() is None:
            self._passages.create(UNSEARCHED_HNSW)
        for collection, ids in self._by_collection(rows):
            metadata: list[dict[str, str | bool]] = [
                {"state": _dump_state(rows[id]), "of": document_of(id), **kept.get(id, {})} for id in ids
            ]
            if only_there and collection is self._documents:
                collection.update(ids, metadata, [texts[id] for id in ids])
            else:
                collection.upsert(ids, placeholders(ids), metadata, [texts[id] for id in ids])

    def _by_collection(self, ids: Collection[str]) -> Iterator[tuple[ChromaCollection, list[str]]]:
        """Yield the collections that are there with their ids, that of passages first."""
        passages = [id for id in ids if PASSAGE in id]
        if passages and self._passages.find() is not None:
            yield self._passages, passages
        if documents := [id for id in ids if PASSAGE not in id]:
            yield self._documents, documents

    def _clean(self, ids: Collection[str]) -> None:
        """Remove vectors of documents that no row names. Those that a write is about to name stay."""
        keys = {field: self._vectors.keys_of(field, ids) for field in self._vectors.fields} if ids else {}
        busy = self._journal.versions() if any(keys.values()) else set()  # before the rows are read
        named = {(id, state.version) for id, state in self.read_rows(ids).items()} if any(keys.values()) else set()
        for field, found_keys in keys.items():
            self._vectors.remove_from(field, [key for key in found_keys - named if key[1] not in busy])

    def remove_rows(self, ids: Collection[str], scope: Filter | None = None) -> int:
        """Remove some rows, then their vectors, also those that a killed process left.

        Those that pass are looked up right before: Chroma has no conditional delete of them.
        """
        with self._connection.writing():
            there = self.read_rows(ids) if scope is None else self.rows_within(ids, scope)
            for collection, some in self._by_collection(there):
                collection.delete(some)
            self._clean(ids)
        return len(there)

    def kept_passages(self, ids: Collection[str]) -> list[str]:
        """Return the ids of all rows of passages that name these documents."""
        there = self._passages.find() is not None and len(self._passages)
        return self._passages.ids({"of": {"$in": list(ids)}}) if there and ids else []

    # ---- reading

    def read_rows(self, ids: Collection[str], *parts: RowPart) -> dict[str, DocumentRow]:
        """Read the rows of documents, by id."""
        if "vectors" in parts:
            return self._vectors.complete(ids, lambda some: self.read_rows(some, "document"))
        rows: dict[str, DocumentRow] = {}
        for collection, some in self._by_collection(ids):
            if parts:
                rows |= {id: _load_row(id, *kept) for id, kept in collection.get_both(some).items()}
            else:
                rows |= {id: _load_row(id, kept) for id, kept in collection.get(some, "metadatas").items()}
        return rows

    def lacking(self, rows: Mapping[str, DocumentRow]) -> set[str]:
        """Return the rows that are not there or of another version, or lack a vector."""
        lacking: set[str] = set()
        for field in self._vectors.fields if rows else ():
            wanted = {(id, row.version) for id, row in rows.items() if field in row.fields}
            lacking |= {id for id, _ in wanted - self._vectors.among(field, wanted)}
        now = self.rows(lacking)  # others have been replaced, and their vectors removed
        return super().lacking(rows) | {id for id in lacking if now.get(id) == rows[id]}

    def ids(self) -> Iterator[str]:
        """Return all ids, as they were when this was called."""
        return iter(self._documents.ids() if self.as_opened() else ())

    def sample_ids_within(self, field: Field, count: int, scope: Filter) -> list[str]:
        """Return ids of documents or passages that pass a filter, chosen at random."""
        rows = self.vectors().fields[field].ids(compile_filter(scope)) if self.as_opened() else []
        chosen: list[str] = []
        for some in pages(sorted({row[VERSION_CHARS:] for row in rows}, key=lambda id: (sampling_key(id), id))):
            versions = self.versions_of(field, scope)(some)
            chosen += [id for id in some if id in versions]
            if len(chosen) >= count:
                break
        return chosen[:count]

    def count(self) -> RowCount:
        """Count the rows."""
        return RowCount(len(self._documents), 0 if self._passages.find() is None else len(self._passages))

    # ---- the reject list

    def read_rejects(self) -> list[Reject]:
        """Read the reject list."""
        return [_load_reject(id, content) for id, content in self._rejects.get(self._rejects.ids(), "uris").items()]

    def write_rejects(self, rejects: Sequence[Reject]) -> None:
        """Put inputs on the reject list, or replace their entries."""
        ids = [reject.id for reject in rejects]
        contents = [dump([r.code, r.message, r.stamp.digest, r.stamp.source]) for r in rejects]
        self._rejects.upsert(ids, placeholders(ids), None, contents)

    def remove_rejects(self, ids: list[str]) -> None:
        """Take some inputs off the reject list."""
        self._rejects.delete(ids)

    # ---- checking

    def check(self, *, repair: bool = False) -> CheckReport:
        """Check whether documents and vectors agree; with ``repair``, remove what belongs to nothing.

        A write of another machine counts as under way, and ``repair`` ends it: if its writer is still there, it writes
        once more. Missing vectors stay missing until their documents are indexed again.
        """
        self.needed()
        with self._connection.writing():
            entries = self._journal.entries()
            cut_off = [entry for entry in entries if entry.is_gone]
            if repair:
                cut_off = [entry for entry in entries if not is_under_way(entry.version)]
                self._journal.remove([entry.version for entry in cut_off])
                if cut_off:
                    writers.wait_for_requests()
            states: dict[str, DocumentRow] = {}

            def read_all() -> dict[str, DocumentRow]:
                passages = () if self._passages.find() is None else self._passages.ids()
                states.update(self.read_rows([*passages, *self._documents.ids()]))
                return states

            discrepancies = compare(self._vectors, read_all, self.read_rows, self._journal.versions)
            if repair:
                discrepancies.remove(self._vectors)
        report = discrepancies.report(
            self.name,
            unfinished=map(str, cut_off),
            in_progress=len(entries) - len(cut_off),
            repaired=repair,
        )
        return self.with_rows(report, states, self._journal)

    def close(self) -> None:
        """Close the connections to the server."""
        self._connection.close()


def _dump_state(row: DocumentRow) -> str:
    return json.dumps([row.stamp.digest, row.stamp.source, row.version, sorted(map(str, row.fields))])


def _load_row(id: str, metadata: Mapping[str, str], content: str | None = None) -> DocumentRow:
    digest, source, version, fields = json.loads(metadata["state"])
    document = None if content is None else StoredDocument(id, *json.loads(content)).document
    return DocumentRow(Stamp(digest, source), version, frozenset(map(Field.parse, fields)), document)


def _dump_document(document: Document) -> str:
    _, *strings, metadata = StoredDocument.of(document)
    return dump([*strings, dict(metadata)])


def dump(values: Sequence[object]) -> str:
    """Return JSON that can be encoded: strings with half a surrogate pair are escaped."""
    text = json.dumps(values, ensure_ascii=False)
    try:
        text.encode()
    except UnicodeEncodeError:
        return json.dumps(values)
    return text


def _load_reject(id: str, content: str) -> Reject:
    code, message, digest, source = json.loads(content)
    return Reject(id, code, message, Stamp(digest, source))
