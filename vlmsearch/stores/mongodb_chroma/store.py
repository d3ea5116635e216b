"""Documents in MongoDB, vectors in Chroma, kept consistent by a journal.

A write is noted in the journal under a new version, and as pending in the documents' rows; vectors are added to Chroma
under that version; then each row in MongoDB is changed so that it names the version, which is the instant at which the
document changes; then the vectors of the version before are removed, and the entry of the journal. Only a version that
is pending in a row can become its version. Whoever takes a writer for gone takes the version off the row first. Then
what the writer has sent or will send comes to nothing. A delete leaves a row without a version until the vectors
are gone. Search finds only vectors of the version that the document's row names.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from pymongo.operations import UpdateOne

from vlmsearch._util.batching import pages
from vlmsearch._util.files import expand_home
from vlmsearch.errors import BackendError, BackendUnavailableError, ConfigError
from vlmsearch.stores.base import CheckReport, DiskUse, changed_records
from vlmsearch.stores.chroma.collections import DEFAULT_HNSW, HnswOptions, connect as connect_chroma
from vlmsearch.stores.chroma.connection import DEFAULT_PORT, FOLDER_INDEX, ChromaConnection, run_command
from vlmsearch.stores.chroma.vectors import ChromaVectorStore, VectorRows, row_bytes
from vlmsearch.stores.documents import DocumentRow, RowPart
from vlmsearch.stores.filters import Filter
from vlmsearch.stores.mongodb.connection import (
    DEFAULT_OPTIONS,
    LIVE,
    MongoConnection,
    MongoOptions,
    Row,
    bulk,
)
from vlmsearch.stores.mongodb.index import STATE, MongoIndex
from vlmsearch.stores.mongodb.journal import MongoJournal
from vlmsearch.stores.mongodb.values import compile_filter, document_row, row_of, unchanged_readers
from vlmsearch.stores.mongodb_chroma.check import Checker
from vlmsearch.stores.passages import rows_of
from vlmsearch.stores.rows import ANY_READERS, StoredReaders
from vlmsearch.stores.terms import NONE
from vlmsearch.types import PASSAGE, Manifest, MetadataChange, Record, Space, document_of, possible_ids

_WRITES = 500
_CONTENT = ("digest", "source", "text", "image", "metadata", "exact", "terms", "language", "draw", "passage_of")


class MongoChromaStore(ChromaVectorStore, MongoIndex):
    """Documents in a database, vectors in Chroma: ``mongodb+chroma://host:27017/database?chroma=http://host:8000``.

    ``chroma`` is a server; ``index`` names the index in the database. `MongoOptions` says how both are
    reached, `HnswOptions` shapes a new index. MongoDB ranks words, too: ``language`` is how a new index compares them:
    see `vlmsearch.stores.terms`. A user and password come from VLMSEARCH_MONGO_USER and VLMSEARCH_MONGO_PASSWORD, a
    token for the Chroma server from VLMSEARCH_CHROMA_TOKEN.
    """

    kind = "mongodb+chroma"
    is_served = True

    def __init__(
        self,
        location: str | MongoConnection,
        *,
        chroma: str | ChromaConnection,
        index: str = "vlmsearch",
        language: str | None = None,
        options: MongoOptions = DEFAULT_OPTIONS,
        hnsw: HnswOptions = DEFAULT_HNSW,
    ) -> None:
        super().__init__(location, options, index, language=language)
        if isinstance(chroma, str):
            chroma = chroma_at(chroma, f"{self._connection.database}-{index}", options)
        self.name = f"{self.name.replace('mongodb:', 'mongodb+chroma:', 1)} with {chroma.name}"
        self._chroma = chroma
        self._hnsw = hnsw

    # ---- the index

    def prepare(self, spaces: Sequence[Space], generation: str) -> None:
        """Make the collections of a generation."""
        self._rows_of(generation, spaces).create(self._hnsw)

    def opened(self, manifest: Manifest, generation: str) -> None:
        """Find the collections of the vectors."""
        self._vectors = self._rows_of(generation, manifest.spaces)
        self._vectors.open(self.name)
        self._journal = MongoJournal(lambda operation, call: self.run(operation, call, part="journal"))

    def drop(self, generation: str, spaces: Sequence[Space]) -> None:
        """Remove everything that a generation has."""
        self._rows_of(generation, spaces).drop()
        for part in ("documents", "journal"):
            self.run(f"drop its {part}", lambda rows: rows.drop(), part=part, generation=generation)

    def _rows_of(self, generation: str, spaces: Sequence[Space]) -> VectorRows:
        return VectorRows(self._chroma, generation, spaces)

    def disk_use(self) -> DiskUse:
        """Measure the documents and estimate the vectors: Chroma's server does not say."""
        documents, dims = super().disk_use(), [s.dim for s in self.needed().spaces for _ in s.fields]
        return replace(documents, bytes=documents.bytes + documents.documents * sum(map(self.vector_bytes, dims)))

    def vector_bytes(self, dim: int) -> int:
        """Return about how many bytes a vector takes in Chroma."""
        return row_bytes(dim)

    # ---- writing

    def write_rows(self, rows: Sequence[Record], readers: StoredReaders = ANY_READERS) -> Collection[str]:
        """Add or replace rows, each at one instant."""
        batches = self.batches(rows, _WRITES)
        return {document_of(row.document.id) for batch in batches for row in self._write(list(batch), readers=readers)}

    def change_metadata(self, changes: Sequence[MetadataChange]) -> list[str]:
        """Replace metadata, of each document at one instant, then of its passages.

        It is a write of the same vectors, which is committed only where the version is the one that was compared.
        """
        changed: list[str] = []
        for batch in self.batches(changes, _WRITES):
            versions = self._versions([change.document.id for change in batch])  # before the records are read
            there = [change.document.id for change in batch if change.document.id in versions]
            rows = rows_of(changed_records(self.records(there), batch))
            documents = [row for row in rows if PASSAGE not in row.document.id]
            lost = {row.document.id for row in (self._write(documents, versions) if documents else ())}
            done = [row.document.id for row in documents if row.document.id not in lost]
            passages = [row for row in rows if PASSAGE in row.document.id and document_of(row.document.id) in done]
            for some in self.batches(passages, _WRITES):
                self._write(list(some))
            self.remove_strays(done)
            changed += done
        return changed

    def read_rows(self, ids: Collection[str], *parts: RowPart) -> dict[str, DocumentRow]:
        """Read the rows of documents, by id."""
        if "vectors" in parts:
            return self.vectors().complete(ids, lambda some: self.read_rows(some, "document"))
        return super().read_rows(ids, *parts)

    def _versions(self, ids: Sequence[str]) -> dict[str, str]:
        return {id: row["version"] for id, row in self.kept_rows(ids, {"version": 1}).items()}

    def _write(
        self,
        records: list[Record],
        expected: Mapping[str, str] | None = None,
        readers: StoredReaders = ANY_READERS,
    ) -> list[Record]:
        """Write records under a new version; those that another writer was faster with are returned.

        ``expected`` are the versions that they may replace, any by default; so are ``readers``.
        """
        ids = [record.document.id for record in records]
        with self._journal.writing("write", ids) as version:
            try:
                self._announce(ids, version)
                self.vectors().write(records, dict.fromkeys(ids, version))
                versions = self._versions(ids) if expected is None else expected
                replaced, lost = self._commit(records, version, versions, readers)
                self._clean(replaced, lost, version)
            except BackendError as exc:
                if not isinstance(exc, BackendUnavailableError):
                    with suppress(BackendError):
                        self.checker().roll_back(version, ids)
                raise
        return [record for record in records if record.document.id in lost]

    def _announce(self, ids: Sequence[str], version: str) -> None:
        """Note the version as pending in the rows. Documents that are not there get one like those of deleted ones."""
        new: Row = {"version": None, "fields": [], "stale": []}
        update: Row = {"$addToSet": {"pending": version}, "$setOnInsert": new}
        writes: list[Any] = [UpdateOne({"_id": id}, update, upsert=True) for id in ids]
        while self.run("begin to write documents", lambda rows: bulk(rows, writes)) < len(writes):
            continue  # another writer inserted one of them at the same moment

    def _commit(
        self, records: Sequence[Record], version: str, versions: Mapping[str, str], readers: StoredReaders
    ) -> tuple[dict[str, str], set[str]]:
        """Change the rows of these ``versions`` and ``readers``. Return what was replaced, and the other ids.

        Those were changed by another writer meanwhile, or the version is not pending any more.
        """
        ids = [record.document.id for record in records]
        before = {id: versions[id] for id in ids if id in versions}
        writes: list[Any] = []
        for record in records:
            id = record.document.id
            update: Row = {
                "$set": row_of(record, version, self.needed().language or NONE),
                "$pull": {"pending": version},
            }
            if id in before:
                update["$push"] = {"stale": before[id]}
            now = {"_id": id, "version": before.get(id), "pending": version, **unchanged_readers(id, readers)}
            writes.append(UpdateOne(now, update))
        if self.run("commit documents", lambda rows: bulk(rows, writes)) == len(records):
            return before, set()
        now = self._versions(ids)
        lost = {id for id in ids if now.get(id) != version}
        return {id: old for id, old in before.items() if id not in lost}, lost

    def _clean(self, replaced: Mapping[str, str], lost: Collection[str], version: str) -> None:
        """Remove vectors that no row names any longer, or that none will."""
        self.forget({id: [version] for id in lost})
        self.vectors().remove([*replaced.items(), *((id, version) for id in lost)])
        self.forget({id: [old] for id, old in replaced.items()})

    def forget(self, versions: Mapping[str, Sequence[str]]) -> None:
        """Take versions off rows: replaced ones whose vectors are gone, and pending ones, which cannot come any more.

        Rows of deleted documents with none left go too.
        """
        pulls: list[Any] = [
            UpdateOne({"_id": id}, {"$pull": {"stale": {"$in": [*some]}, "pending": {"$in": [*some]}}})
            for id, some in versions.items()
        ]
        if pulls:
            self.run("note what was removed", lambda rows: bulk(rows, pulls))
        for page in pages(versions):
            self._bury({"_id": {"$in": page}, "version": None, "stale": [], "pending": {"$in": [None, []]}})

    def _bury(self, condition: Row) -> None:
        self.run("end a delete", lambda rows: rows.delete_many(condition))

    def rows_within(self, ids: Collection[str], scope: Filter) -> Mapping[str, DocumentRow]:
        """Return the rows of those documents or passages that pass a filter in MongoDB."""
        rows = self.kept_rows(possible_ids(ids), STATE, {**LIVE, **compile_filter(scope)})
        return {id: document_row(row) for id, row in rows.items()}

    def remove_rows(self, ids: Collection[str], scope: Filter | None = None) -> int:
        """Remove some rows, then their vectors."""
        passing: Row = {**LIVE, **(compile_filter(scope) if scope else {})}
        before = self.kept_rows(ids, {"version": 1}, passing)
        gone: dict[str, str] = {}
        while before:
            with self._journal.writing("delete", list(before)) as version:
                some = self._unmake({id: row["version"] for id, row in before.items()})
                self._clean(some, (), version)
            gone |= some
            before = self.kept_rows([id for id in before if id not in some], {"version": 1}, passing)
        return len(gone)

    def _unmake(self, versions: Mapping[str, str]) -> dict[str, str]:
        """Turn rows into rows of deleted documents; returns those that were still of their version."""
        content: Row = {"$unset": dict.fromkeys(_CONTENT, "")}
        writes: list[Any] = [
            UpdateOne(
                {"_id": id, "version": old},
                {"$set": {"version": None, "fields": []}, "$push": {"stale": old}, **content},
            )
            for id, old in versions.items()
        ]
        if self.run("delete documents", lambda rows: bulk(rows, writes)) == len(versions):
            return dict(versions)
        deleted = self.kept_rows(list(versions), {"stale": 1}, {"version": None})
        return {id: old for id, old in versions.items() if id in deleted and old in deleted[id].get("stale", [])}

    # ---- checking

    def check(self, *, repair: bool = False) -> CheckReport:
        """Return whether documents, vectors and journal agree.

        With ``repair``, what does not is finished or rolled back.
        """
        if repair:
            self.renew_words()
        return self.checker().report(repair=repair)

    def checker(self) -> Checker:
        """Return the checker of documents, vectors and journal."""
        return Checker(self, self.vectors(), self._journal, self.forget)

    def close(self) -> None:
        """Let go of the connections."""
        super().close()
        self._chroma.close()


def chroma_at(url: str, name: str, options: MongoOptions) -> ChromaConnection:
    """Return the Chroma server that ``url`` names, such as ``http://host:8000`` or ``https://host``."""
    scheme, _, place = url.partition(":")
    scheme = scheme.lower()
    timeout, retries = options.timeout, options.retries
    if scheme in ("http", "https", "chroma") and place.startswith("//") and not place.startswith("///"):
        server, _, path = place[2:].partition("/")
        location = f"//{server}/{path.strip('/') or name}"
        return connect_chroma(location, ssl=scheme == "https", timeout=timeout, retries=retries)
    folder = url.removeprefix("chroma:")
    if not folder or scheme in ("http", "https") or folder.startswith("//") or "://" in folder:
        raise ConfigError("the option chroma is a server, such as http://host:8000")
    raise ConfigError(
        f"the option chroma is a server, such as http://host:8000, and {url} is a folder. To keep the vectors that are "
        f"there already, start {run_command(expand_home(folder))} and write "
        f"chroma=http://localhost:{DEFAULT_PORT}/{FOLDER_INDEX} in the place of the folder"
    )
