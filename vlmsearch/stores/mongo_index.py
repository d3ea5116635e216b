"""What the stores that keep documents in MongoDB share: the index itself, its documents and its quarantine list.

An index ``name`` is the collections ``name.about`` (what built it, and which generation is in use), ``name.rejects``
and, for each generation, ``name.N.documents``. A generation is built beside the one in use, and takes its place when
one row of ``name.about`` is replaced.
"""

from __future__ import annotations

import threading
from abc import abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from datetime import datetime, timezone
from typing import Any, Literal, TypeVar

from pymongo.operations import ReplaceOne
from typing_extensions import Self

from vlmsearch.errors import ConfigError
from vlmsearch.stores.base import Store, check_manifest
from vlmsearch.stores.mongo_connection import MongoConnection, Row, Rows, check_name
from vlmsearch.stores.mongo_rows import LIVE, PAGE, bulk, insert_once, pages
from vlmsearch.stores.mongo_values import document_of, fields_of, reject_of, reject_row, stamp_of
from vlmsearch.types import Document, Field, Manifest, Reject, Space, Stamp

T = TypeVar("T")
Slot = Literal["index", "next"]
_FORMAT = 1


class MongoIndex(Store):
    """An index whose documents are in MongoDB; where the vectors are is for the class below to say."""

    kind: str
    """The scheme; an index is opened with the one that made it."""

    def __init__(self, connection: MongoConnection, name: str, slot: Slot = "index") -> None:
        check_name(name)
        self.name = f"{connection.name}/{name}" if name != "vlmsearch" else connection.name
        self._connection = connection
        self._prefix = name
        self._slot = slot
        self._row: Mapping[str, Any] | None = None
        self._opened: Manifest | None = None
        self._opening = threading.RLock()

    # ---- the index

    def bind(self, fingerprint: str, spaces: Sequence[Space]) -> None:
        """Make the index ready, creating it the first time; IndexMismatchError if another encoder filled it."""
        with self._opening:
            if self.manifest() is None:
                now = datetime.now(timezone.utc).isoformat()
                described = [[space.name, space.dim, sorted(space.modalities)] for space in spaces]
                row = {"format": _FORMAT, "kind": self.kind, "generation": self._next_generation(), "created": now}
                row |= {"fingerprint": fingerprint, "spaces": described}
                self.prepare(tuple(spaces), str(row["generation"]))
                self._about(f"make {self._prefix}", lambda rows: insert_once(rows, {"_id": self._slot, **row}))
            manifest = self.manifest()
            if manifest is not None:
                check_manifest(self.name, manifest, fingerprint, spaces)
                self.wait_until_ready()

    @abstractmethod
    def prepare(self, spaces: Sequence[Space], generation: str) -> None:
        """Make what a new generation needs."""

    @abstractmethod
    def opened(self, manifest: Manifest, generation: str) -> None:
        """The index is there: get what searching and writing need."""

    def wait_until_ready(self) -> None:
        """Return when what was written can be found."""

    def manifest(self) -> Manifest | None:
        """What built this index, or None where there is none."""
        with self._opening:
            if self._opened is None:
                row = self._about("look for the index", lambda rows: rows.find_one({"_id": self._slot}))
                if row is not None:
                    manifest = self._read(row)
                    self.opened(manifest, row["generation"])
                    self._row, self._opened = row, manifest
            return self._opened

    def _read(self, row: Row) -> Manifest:
        if row.get("format") != _FORMAT:
            raise ConfigError(f"{self.name} is of a format that this version of vlmsearch cannot read; upgrade")
        if row["kind"] != self.kind:
            raise ConfigError(f"{self.name} was made by {row['kind']}:, so it is opened with that, not {self.kind}:")
        spaces = tuple(Space(name, dim, frozenset(kinds)) for name, dim, kinds in row["spaces"])
        return Manifest(row["fingerprint"], spaces, row["created"])

    def needed(self) -> Manifest:
        """What built the index; ConfigError where there is none."""
        manifest = self.manifest()
        if manifest is None:
            raise ConfigError(f"{self.name} is no index yet: bind it to an encoder before writing")
        return manifest

    # ---- generations

    @abstractmethod
    def over(self, slot: Slot) -> Self:
        """Another store over the same connections."""

    @abstractmethod
    def drop(self, generation: str, spaces: Sequence[Space]) -> None:
        """Remove everything that a generation has."""

    def beside(self, fingerprint: str, spaces: Sequence[Space]) -> Store:
        """The index for another encoder that is built beside this one; the same again until `switch`."""
        other = self.over("next")
        manifest = other.manifest()
        if manifest is not None and (other.generation == self.generation or not _is_of(manifest, fingerprint, spaces)):
            self._abandon(other)
            other = self.over("next")
        other.bind(fingerprint, spaces)
        return other

    def _abandon(self, other: MongoIndex) -> None:
        if other.generation != self.generation:
            other.drop(other.generation, other.needed().spaces)
        self._about("forget an unfinished index", lambda rows: rows.delete_one({"_id": "next"}))

    def switch(self) -> None:
        """Put the index that was built beside this one in its place, in one step; the old one is kept."""
        built = self._about("look for the new index", lambda rows: rows.find_one({"_id": "next"}))
        if built is None:
            raise ConfigError(f"{self.name} has no other index beside it")
        now = self._about("look for the index", lambda rows: rows.find_one({"_id": "index"})) or {}
        if built["generation"] == now.get("generation"):
            raise ConfigError(f"{self.name} has been switched already")
        self.drop_old()
        old = {key: value for key, value in now.items() if key not in ("_id", "old")}
        row = {**built, "_id": "index", "old": old}
        with self._opening:
            self._about("switch to the new index", lambda rows: rows.replace_one({"_id": "index"}, row))
            self._row = self._opened = None
            self._about("close the switch", lambda rows: rows.delete_one({"_id": "next"}))

    def drop_old(self) -> bool:
        """Remove the index that the last `switch` replaced; False where there is none."""
        row = self._about("look for the index", lambda rows: rows.find_one({"_id": "index"}))
        old = (row or {}).get("old")
        if not old:
            return False
        self.drop(old["generation"], self._read(old).spaces)
        self._about("forget the old index", lambda rows: rows.update_one({"_id": "index"}, {"$unset": {"old": ""}}))
        return True

    @property
    def generation(self) -> str:
        """The generation in use."""
        self.needed()
        return str((self._row or {})["generation"])

    def _next_generation(self) -> str:
        found = self._about("look for indexes", lambda rows: list(rows.find({})))
        used = [int(each["generation"]) for row in found for each in (row, row.get("old") or row)]
        return str(max(used, default=0) + 1)

    # ---- documents

    def get(self, ids: Sequence[str]) -> list[Document]:
        """The documents with these ids, in the order of ``ids``; unknown ids are left out."""
        rows = self.rows(ids, {"vectors": 0})
        return [document_of(rows[id]) for id in ids if id in rows]

    def get_versions(self, versions: Mapping[str, str]) -> dict[str, Document]:
        """Those documents that are still of the version that is given for their id."""
        rows = self.rows(list(versions), {"vectors": 0})
        return {id: document_of(row) for id, row in rows.items() if row["version"] == versions[id]}

    def stamps(self, ids: Sequence[str]) -> dict[str, Stamp]:
        """The stamps of those documents among ``ids`` that are in the store."""
        return {id: stamp_of(row) for id, row in self.rows(ids, {"digest": 1, "source": 1}).items()}

    def fields(self, ids: Sequence[str]) -> dict[str, frozenset[Field]]:
        """The fields that each of those documents among ``ids`` that are in the store has a vector in."""
        return {id: fields_of(row) for id, row in self.rows(ids, {"fields": 1}).items()}

    def rows(self, ids: Collection[str], projection: Mapping[str, int], where: Row = LIVE) -> dict[str, Row]:
        """The rows of documents that pass ``where``, by id."""
        if self.manifest() is None:
            return {}
        found: dict[str, Row] = {}
        for some in pages(ids):
            page = self._find({"_id": {"$in": some}, **where}, projection, "read documents")
            found |= {row["_id"]: row for row in page}
        return found

    def scan(self, projection: Mapping[str, int], where: Row = LIVE) -> Iterator[list[Row]]:
        """The rows of all documents that pass ``where``, some at a time, in the order of their ids."""
        condition = dict(where)
        while self.manifest() is not None:
            page = self._find(condition, projection, "list documents", limit=PAGE)
            if page:
                yield page
            if len(page) < PAGE:
                return
            condition = {**where, "_id": {"$gt": page[-1]["_id"]}}

    def _find(self, condition: Row, projection: Mapping[str, int], operation: str, limit: int = 0) -> list[Row]:
        def read(rows: Rows) -> list[Row]:
            found = rows.find(condition, dict(projection))
            return list(found.sort("_id", 1).limit(limit) if limit else found)

        return self.run(operation, read)

    def ids(self) -> Iterator[str]:
        """All ids, in the order of their bytes."""
        return (row["_id"] for page in self.scan({"_id": 1}) for row in page)

    def __len__(self) -> int:
        if self.manifest() is None:
            return 0
        return self.run("count documents", lambda rows: rows.count_documents(LIVE))

    # ---- the quarantine list

    def rejects(self) -> list[Reject]:
        """The quarantine list, by id."""
        if self.manifest() is None:
            return []
        return [
            reject_of(row) for row in self._quarantine("list failed inputs", lambda c: list(c.find({}).sort("_id", 1)))
        ]

    def quarantine(self, rejects: Sequence[Reject]) -> None:
        """Put inputs on the quarantine list, or replace their entries."""
        self.needed()
        rows = {reject.id: reject_row(reject) for reject in rejects}
        if rows:
            replaces = [ReplaceOne({"_id": id}, row, upsert=True) for id, row in rows.items()]
            self._quarantine("note failed inputs", lambda c: bulk(c, replaces))

    def release(self, ids: Sequence[str]) -> None:
        """Take inputs off the quarantine list; unknown ids are ignored."""
        if self.manifest() is not None:
            for some in pages(ids):
                self._release({"_id": {"$in": some}})

    def _release(self, condition: Row) -> None:
        self._quarantine("release inputs", lambda rows: rows.delete_many(condition))

    def close(self) -> None:
        """Let go of the connections."""
        self._connection.close()

    # ---- the collections

    def run(self, operation: str, call: Callable[[Rows], T], *, part: str = "documents", generation: str = "") -> T:
        """What ``call`` returns on a collection of a generation, the one in use by default."""
        return self._connection.run(f"{self._prefix}.{generation or self.generation}.{part}", operation, call)

    def _about(self, operation: str, call: Callable[[Rows], T]) -> T:
        return self._connection.run(f"{self._prefix}.about", operation, call)

    def _quarantine(self, operation: str, call: Callable[[Rows], T]) -> T:
        return self._connection.run(f"{self._prefix}.rejects", operation, call)


def _is_of(manifest: Manifest, fingerprint: str, spaces: Sequence[Space]) -> bool:
    return manifest.fingerprint == fingerprint and set(manifest.spaces) == set(spaces)
