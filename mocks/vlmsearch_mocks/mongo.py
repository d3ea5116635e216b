"""A stand-in for pymongo's client and the server behind it: the part that the stores use, with pymongo's errors."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import SimpleNamespace
from typing import Any, TypeVar

import numpy as np
from bson import decode, encode
from pymongo.errors import BulkWriteError, DuplicateKeyError, OperationFailure
from pymongo.operations import ReplaceOne, SearchIndexModel, UpdateOne
from pymongo.results import BulkWriteResult, DeleteResult, InsertOneResult, UpdateResult
from typing_extensions import Self

from vlmsearch_mocks.faults import Faults
from vlmsearch_mocks.mongo_text import MockTextIndex
from vlmsearch_mocks.mongo_values import TEXT_SCORE, Row, look_up, matches, project, updated

T = TypeVar("T")
_DUPLICATE = 11000
_NO_SEARCH = 31082
_RAW_BATCH = 100


class MockMongo:
    """Stands for a MongoClient. With ``vector_search``, the server has ``$vectorSearch``, as Atlas does.

    Rows go through BSON as they would on their way to a server, so what BSON refuses is refused here.
    """

    def __init__(self, *, faults: Faults | None = None, vector_search: bool = False) -> None:
        self.faults = faults or Faults()
        self.has_vector_search = vector_search
        self.options = SimpleNamespace(timeout=None)
        self.lock = threading.RLock()
        self.data: dict[tuple[str, str], dict[Any, bytes]] = {}
        self.search_indexes: dict[tuple[str, str], list[SearchIndexModel]] = {}
        self.text_indexes: dict[tuple[str, str], MockTextIndex] = {}
        self.indexes: dict[tuple[str, str], set[str]] = {}
        self.faults.watch("mongo", self._now)

    def __getitem__(self, name: str) -> MockDatabase:
        return MockDatabase(self, name)

    def close(self) -> None:
        """Keep what is in memory."""

    def _now(self) -> dict[tuple[str, str], dict[Any, bytes]]:
        with self.lock:
            return copy.deepcopy(self.data)


class MockDatabase:
    """Stands for a Database."""

    def __init__(self, client: MockMongo, name: str) -> None:
        self.client = client
        self.name = name

    def get_collection(self, name: str, **_: object) -> MockCollection:
        """Return a collection; it need not be there."""
        return MockCollection(self, name)

    def list_collection_names(self) -> list[str]:
        """Return the collections that are there."""
        with self.client.lock:
            return [name for database, name in self.client.data if database == self.name]

    def command(self, name: str, value: str | int = 1) -> Row:
        """``collStats`` of a collection, or ``dbStats``, which says nothing of the disk here."""
        with self.client.lock:
            rows = self.client.data.get((self.name, str(value)), {})
            if name == "dbStats":
                return {"db": self.name}
            return {"size": sum(map(len, rows.values())), "count": len(rows), "totalIndexSize": 0}

    def create_collection(self, name: str) -> MockCollection:
        """Make a collection."""
        with self.client.lock:
            self.client.data.setdefault((self.name, name), {})
        return MockCollection(self, name)


class MockCursor:
    """Stands for a Cursor."""

    def __init__(self, read: Callable[[], list[Row]]) -> None:
        self._read = read
        self._order: list[tuple[str, int | Row]] = []
        self._limit = 0

    def sort(self, key: str | list[tuple[str, int | Row]], direction: int = 1) -> Self:
        """Sort the rows; ``$meta`` is best first."""
        self._order = [(key, direction)] if isinstance(key, str) else key
        return self

    def limit(self, count: int) -> Self:
        """Limit the number of rows."""
        self._limit = count
        return self

    def __iter__(self) -> Iterator[Row]:
        rows = self._read()
        for key, direction in reversed(self._order):
            if isinstance(direction, int):
                rows = sorted(rows, key=lambda row: _as_sorted(row[key]), reverse=direction < 0)
            else:
                rows = sorted(rows, key=lambda row: -float(row[key]))
        return iter(rows[: self._limit or None])


class MockCollection:
    """Stands for a Collection."""

    def __init__(self, database: MockDatabase, name: str) -> None:
        self.database = database
        self.name = name
        self._client = database.client
        self._key = (database.name, name)

    # ---- reading

    def find(self, query: Mapping[str, Any], projection: Mapping[str, Any] | None = None) -> MockCursor:
        """Return the rows that pass, read when the cursor is."""
        return MockCursor(lambda: self._call("find", lambda: self._select(query, projection)))

    def find_one(self, query: Mapping[str, Any], projection: Mapping[str, Any] | None = None) -> Row | None:
        """Return one row that passes."""
        return self._call("find_one", lambda: next(iter(self._select(query, projection)), None))

    def find_raw_batches(self, query: Mapping[str, Any], projection: Mapping[str, Any]) -> Iterator[bytes]:
        """Yield the rows that pass, in BSON, some at a time."""
        rows = self._call("find_raw_batches", lambda: self._select(query, projection))
        for start in range(0, len(rows), _RAW_BATCH):
            yield b"".join(map(encode, rows[start : start + _RAW_BATCH]))

    def count_documents(self, query: Mapping[str, Any]) -> int:
        """Return how many rows pass."""
        return self._call("count_documents", lambda: len(self._select(query, None)))

    def estimated_document_count(self) -> int:
        """Return how many rows there are."""
        return self._call("estimated_document_count", lambda: len(self._select({}, None)))

    def _select(self, query: Mapping[str, Any], projection: Mapping[str, Any] | None) -> list[Row]:
        encode(query)
        data = self._client.faults.past("mongo")
        with self._client.lock:
            rows = (self._client.data if data is None else data).get(self._key, {})
            if "$text" in query:
                scores = self._text_index().scores(rows, query["$text"])
                query = {key: value for key, value in query.items() if key != "$text"}
                candidates = [{**decode(rows[id]), TEXT_SCORE: score} for id, score in scores.items()]
            else:
                candidates = [decode(rows[id]) for id in _candidates(rows, query)]
        return [project(row, projection) for row in candidates if matches(row, _rest(query))]

    # ---- writing

    def insert_one(self, row: Row) -> InsertOneResult:
        """Add a row."""

        def insert() -> InsertOneResult:
            rows = self._rows()
            if row["_id"] in rows:
                raise DuplicateKeyError(f"E11000 duplicate key error: {row['_id']!r}", _DUPLICATE)
            rows[row["_id"]] = encode(row)
            return InsertOneResult(row["_id"], acknowledged=True)

        return self._call("insert_one", insert)

    def replace_one(self, query: Row, row: Row, *, upsert: bool = False) -> UpdateResult:
        """Put a row in the place of one that passes."""
        return self._call("replace_one", lambda: self._write(query, lambda _: row, upsert))

    def update_one(self, query: Row, update: Row, *, upsert: bool = False) -> UpdateResult:
        """Change one row that passes."""
        return self._call("update_one", lambda: self._write(query, lambda old: updated(old, update, query), upsert))

    def delete_one(self, query: Row) -> DeleteResult:
        """Remove one row that passes."""
        return self._call("delete_one", lambda: self._delete(query, 1))

    def delete_many(self, query: Row) -> DeleteResult:
        """Remove all rows that pass."""
        return self._call("delete_many", lambda: self._delete(query, None))

    def bulk_write(self, writes: Sequence[ReplaceOne[Row] | UpdateOne], *, ordered: bool = True) -> BulkWriteResult:
        """Do several writes; BulkWriteError names those that failed."""
        half = writes[: len(writes) // 2]
        return self._call("bulk_write", lambda: self._bulk(writes, ordered), lambda: self._bulk(half, ordered))

    def drop(self) -> None:
        """Remove the collection."""

        def remove() -> None:
            self._client.data.pop(self._key, None)
            self._client.search_indexes.pop(self._key, None)
            self._client.text_indexes.pop(self._key, None)
            self._client.indexes.pop(self._key, None)

        self._call("drop", remove)

    def _bulk(self, writes: Sequence[ReplaceOne[Row] | UpdateOne], ordered: bool) -> BulkWriteResult:
        counts: dict[str, Any] = {"nMatched": 0, "nUpserted": 0, "nModified": 0, "nInserted": 0, "nRemoved": 0}
        counts |= {"upserted": [], "writeErrors": [], "writeConcernErrors": []}
        for index, write in enumerate(writes):
            try:
                done = self._apply(write)
            except DuplicateKeyError as exc:
                counts["writeErrors"].append({"index": index, "code": _DUPLICATE, "errmsg": str(exc)})
                if ordered:
                    break
                continue
            counts["nMatched"] += done.matched_count
            counts["nUpserted"] += done.upserted_id is not None
        if counts["writeErrors"]:
            raise BulkWriteError(counts)
        return BulkWriteResult(counts, acknowledged=True)

    def _apply(self, write: ReplaceOne[Row] | UpdateOne) -> UpdateResult:
        query, upsert = write._filter, bool(write._upsert)  # noqa: SLF001 - pymongo tells it in no other way
        change: Any = write._doc  # noqa: SLF001
        if isinstance(write, ReplaceOne):
            return self._write(query, lambda _: change, upsert)
        return self._write(query, lambda old: updated(old, change, query), upsert)

    def _write(self, query: Mapping[str, Any], change: Callable[[Row | None], Row], upsert: bool) -> UpdateResult:
        rows = self._rows()
        old = next((row for id in _candidates(rows, query) if matches(row := decode(rows[id]), query)), None)
        if old is None and not upsert:
            return UpdateResult({"n": 0, "nModified": 0}, acknowledged=True)
        new = {"_id": (old or query)["_id"], **change(old)}
        if old is None and new["_id"] in rows:
            raise DuplicateKeyError(f"E11000 duplicate key error: {new['_id']!r}", _DUPLICATE)
        rows[new["_id"]] = encode(new)
        added = {} if old is not None else {"upserted": new["_id"]}
        return UpdateResult({"n": 1, "nModified": int(old is not None), **added}, acknowledged=True)

    def _delete(self, query: Row, max_rows: int | None) -> DeleteResult:
        rows = self._rows()
        gone = [id for id in _candidates(rows, query) if matches(decode(rows[id]), _rest(query))][:max_rows]
        for id in gone:
            del rows[id]
        return DeleteResult({"n": len(gone)}, acknowledged=True)

    def _rows(self) -> dict[Any, bytes]:
        return self._client.data.setdefault(self._key, {})

    def _call(self, operation: str, do: Callable[[], T], half: Callable[[], object] | None = None) -> T:
        with self._client.lock:
            return self._client.faults.around("mongo", operation, do, half)

    # ---- indexes

    def index_information(self) -> dict[str, Any]:
        """Return the indexes by their names."""
        text = self._client.text_indexes.get(self._key)
        names = [*self._client.indexes.get(self._key, ()), *([] if text is None else [text.name])]
        return self._call("index_information", lambda: {name: {} for name in names})

    def create_index(
        self, keys: Sequence[tuple[str, str | int]], *, name: str, sparse: bool = False, **text: str
    ) -> str:
        """Make an index, and the collection; OperationFailure where there is another one for texts.

        A ``sparse`` one is as good as another.
        """
        del sparse

        def create() -> str:
            self._rows()
            if not text:
                self._client.indexes.setdefault(self._key, set()).add(name)
                return name
            wanted = MockTextIndex(name, dict(keys), **text)
            if self._client.text_indexes.setdefault(self._key, wanted) != wanted:
                raise OperationFailure("An equivalent index already exists with different options", 85)
            return name

        return self._call("create_index", create)

    def _text_index(self) -> MockTextIndex:
        index = self._client.text_indexes.get(self._key)
        if index is None:
            raise OperationFailure("text index required for $text query", 27)
        return index

    # ---- $vectorSearch

    def list_search_indexes(self) -> Iterator[Row]:
        """Return the vector indexes and whether they can be queried; OperationFailure where the server has none."""
        if not self._client.has_vector_search:
            raise OperationFailure("$listSearchIndexes is only allowed on MongoDB Atlas", _NO_SEARCH)
        ready = self._client.faults.is_ready()
        models = self._client.search_indexes.get(self._key, [])
        return iter([{"name": m.document["name"], "queryable": ready, "status": "READY"} for m in models])

    def create_search_indexes(self, models: Sequence[SearchIndexModel]) -> list[str]:
        """Make vector indexes."""
        if self._key not in self._client.data:
            raise OperationFailure(f"Collection '{self.name}' does not exist.", 26)
        self._client.search_indexes.setdefault(self._key, []).extend(models)
        return [str(model.document["name"]) for model in models]

    def aggregate(self, stages: Sequence[Mapping[str, Any]]) -> Iterator[Row]:
        """Return the nearest rows: ``$vectorSearch`` and then ``$project``."""
        search, projection = stages[0]["$vectorSearch"], stages[1]["$project"]
        names = [model.document["name"] for model in self._client.search_indexes.get(self._key, [])]
        if search["index"] not in names:
            return iter([])
        path, query = search["path"], np.asarray(search["queryVector"], np.float32)
        rows = self._call("aggregate", lambda: self._select({path: {"$exists": True}}, None))
        near = [float(np.frombuffer(look_up(row, path), "<f4", offset=2) @ query) for row in rows]
        order = np.argsort(-np.array(near), kind="stable")[: search["limit"]]
        return iter([project(rows[i], projection) for i in order])


def _as_sorted(value: Any) -> Any:
    return value.encode() if isinstance(value, str) else value


def _candidates(rows: Mapping[Any, bytes], query: Mapping[str, Any]) -> list[Any]:
    """Return the ids that a query names, or all.

    An index on ids would find these.
    """
    wanted = query.get("_id")
    if isinstance(wanted, str):
        return [wanted] if wanted in rows else []
    if isinstance(wanted, Mapping) and list(wanted) == ["$in"]:
        return [id for id in dict.fromkeys(wanted["$in"]) if id in rows]
    return list(rows)


def _rest(query: Mapping[str, Any]) -> dict[str, Any]:
    """Return the conditions that candidates have still to pass."""
    return {
        key: value
        for key, value in query.items()
        if key != "_id" or not isinstance(value, Mapping) or "$in" not in value
    }
