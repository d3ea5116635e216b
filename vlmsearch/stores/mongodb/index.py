"""An index in MongoDB: its documents, words and reject list, which both stores with documents in MongoDB share.

An index ``name`` is the collections ``name.about`` (what built it, and which generation is in use), ``name.rejects``
and, for each generation, ``name.N.documents``. A generation is built beside the one in use, and takes its place when
one row of ``name.about`` is replaced.
"""

from __future__ import annotations

import threading
from collections import Counter, OrderedDict
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

from pymongo.operations import ReplaceOne, UpdateOne

from vlmsearch._util.batching import PAGE, pages
from vlmsearch.errors import ConfigError
from vlmsearch.stores.base import DiskUse, drawn_ids
from vlmsearch.stores.documents import DocumentRow, RowCount, RowPart, words_of_row
from vlmsearch.stores.filters import Filter
from vlmsearch.stores.generations import Slot
from vlmsearch.stores.listing import Outline
from vlmsearch.stores.mongodb.connection import (
    LIVE,
    PINNED,
    MongoAddress,
    MongoConnection,
    MongoOptions,
    Row,
    Rows,
    bulk,
    check_name,
    connect,
    insert_once,
)
from vlmsearch.stores.mongodb.values import (
    compile_filter,
    content_of,
    document_row,
    escape,
    outline_of,
    reject_of,
    reject_row,
    row_of,
)
from vlmsearch.stores.mongodb.words import (
    MIN_SCORE,
    WordStatistics,
    count_rows,
    create_text_index,
    drop_earlier_words,
    find_words,
    has_earlier_words,
    read_statistics,
    size_class,
    term_fields,
)
from vlmsearch.stores.passages import blanked
from vlmsearch.stores.postings import Term, max_score
from vlmsearch.stores.restricted import RestrictedStore
from vlmsearch.stores.rows import RowByRowStore
from vlmsearch.stores.terms import AUTO, MAX_QUERY_TERMS, QueryTerm, check_language, query_terms
from vlmsearch.types import Document, Field, Hit, Record, Reject, WordHits, possible_ids

T = TypeVar("T")
DOCUMENTS: Row = {**LIVE, "passage_of": None}
"""The condition that rows of documents pass, and no others."""
STATE = {"version": 1, "digest": 1, "source": 1, "fields": 1}
"""The projection of a row without its document."""
_CONTENT = {"vectors": 0, "terms": 0}
"""The projection of a row without what is only searched."""
_WHOLE = {"terms": 0}
"""The projection of a row with its vectors."""
_DRAWN = "vlmsearch_draw"
"""The index by which samples are drawn."""
_COUNTED = 900
"""Texts at most in which many words are counted."""
_SCOPES = 64
"""Filters whose words are remembered."""
_PASSAGES = "vlmsearch_passages"
"""The index of passages by their documents."""


class MongoIndex(RowByRowStore):
    """An index whose documents are in MongoDB. Where the vectors are is for the class below to say."""

    default_language = AUTO
    pinned_options = PINNED

    def __init__(
        self, location: str | MongoConnection, options: MongoOptions, name: str, *, language: str | None
    ) -> None:
        check_name(name)
        if language is not None:
            check_language(language)
        connection = location
        if isinstance(connection, str):
            connection = connect(MongoAddress.parse(connection), options)
        full = f"{connection.name}/{name}" if name != "vlmsearch" else connection.name
        super().__init__(full, language=language)
        self._connection = connection
        self._prefix = name
        self._checked_words = ""
        """The generation whose words are known to be of this version."""

    def start_at(self, slot: Slot) -> None:
        """Begin without an open index."""
        super().start_at(slot)
        self._words = MongoWords(self, None)
        self._words_within: OrderedDict[Filter, MongoWords] = OrderedDict()
        self._choosing = threading.Lock()

    # ---- what it is made of

    def read_slot(self, slot: Slot) -> Row | None:
        """Read the row of a slot; None where it has none."""
        row = self._about("look for the index", lambda rows: rows.find_one({"_id": slot}))
        return None if row is None else {key: value for key, value in row.items() if key != "_id"}

    def fill_slot(self, slot: Slot, row: Mapping[str, Any]) -> None:
        """Make the row of a slot, unless there is one."""
        self._about(f"make {self._prefix}", lambda rows: insert_once(rows, {"_id": slot, **row}))

    def replace_slot(self, slot: Slot, row: Mapping[str, Any], revision: str | None) -> bool:
        """Put another row in the place of one of this revision, at one instant: False where there is none."""
        old, new = {"_id": slot, "revision": revision}, {"_id": slot, **row}
        return self._about("change the index", lambda rows: rows.replace_one(old, new)).matched_count == 1

    def clear_slot(self, slot: Slot, revision: str | None) -> None:
        """Remove the row of a slot, if it is of this revision."""
        self._about("forget an index", lambda rows: rows.delete_one({"_id": slot, "revision": revision}))

    def wait_until_ready(self) -> None:
        """Make the indexes that are missing: of words and passages, and for drawing samples."""
        self.run("make its indexes", _create_indexes)
        if self.needed().language:
            self.check_words()
            self.run("make its text index", create_text_index)

    # ---- documents

    def check_keepable(self, row: Record) -> None:
        """Raise InvalidInputError for a row that MongoDB cannot keep."""
        row_of(row, "")

    def read_rows(self, ids: Collection[str], *parts: RowPart) -> dict[str, DocumentRow]:
        """Read the rows of documents, by id."""
        projection = _WHOLE if "vectors" in parts else _CONTENT if parts else STATE
        return {id: document_row(row) for id, row in self.kept_rows(ids, projection).items()}

    def kept_rows(self, ids: Collection[str], projection: Mapping[str, int], where: Row = LIVE) -> dict[str, Row]:
        """Read the rows of documents that pass ``where``, by id."""
        rows: dict[str, Row] = {}
        for some in pages(ids):
            page = self._find({"_id": {"$in": some}, **where}, projection, "read documents")
            rows |= {row["_id"]: row for row in page}
        return rows

    def scan(self, projection: Mapping[str, int], where: Row = LIVE) -> Iterator[list[Row]]:
        """Yield the rows of all documents that pass ``where``, some at a time, by id."""
        condition = dict(where)
        while self.as_opened() is not None:
            page = self._find(condition, projection, "list documents", limit=PAGE)
            if page:
                yield page
            if len(page) < PAGE:
                return
            condition = {**where, "_id": {"$gt": page[-1]["_id"]}}

    def _find(self, condition: Row, projection: Mapping[str, int], operation: str, limit: int = 0) -> list[Row]:
        def read(rows: Rows) -> list[Row]:
            cursor = rows.find(condition, dict(projection))
            return list(cursor.sort("_id", 1).limit(limit) if limit else cursor)

        return self.run(operation, read)

    def ids(self) -> Iterator[str]:
        """Yield all ids, in the order of their bytes."""
        for page in self.scan({"_id": 1}, DOCUMENTS):
            yield from (row["_id"] for row in page)
        if self.as_opened() is not None:
            self.check_in_use(to_read=True)  # of a collection that was dropped, a database says nothing

    def documents_after(self, id: str, count: int, where: Filter | None = None) -> list[Document]:
        """Return the next documents behind an id that pass a filter, by id."""
        if self.as_opened() is None:
            return []
        condition: Row = {**DOCUMENTS, "_id": {"$gt": id}, **(compile_filter(where) if where else {})}
        page = self._find(condition, _CONTENT, "list documents", count)
        if not page:
            self.check_in_use(to_read=True)  # of a collection that was dropped, a database says nothing
        return list(map(content_of, page))

    def outlines(self, keys: Collection[str], where: Filter | None = None) -> Iterator[Outline]:
        """Read the outlines of the documents that pass a filter."""
        names = {f"{part}.{escape(key)}": 1 for part in ("metadata", "exact") for key in keys}
        for page in self.scan({"image": 1, **names}, {**DOCUMENTS, **(compile_filter(where) if where else {})}):
            yield from map(outline_of, page)

    def count(self) -> RowCount:
        """Count the rows."""
        kinds: tuple[Row, Row] = DOCUMENTS, {"passage_of": {"$exists": True}}
        return self.run("count documents", lambda rows: RowCount(*map(rows.count_documents, kinds)))

    def kept_passages(self, ids: Collection[str]) -> list[str]:
        """Return the ids of all rows of passages that name these documents."""
        rows = self._find({"passage_of": {"$in": list(ids)}}, {"_id": 1}, "read documents")
        return [row["_id"] for row in rows]

    def blank(self, ids: Collection[str]) -> None:
        """Let documents count as changed."""
        writes = [
            UpdateOne({"_id": id, "version": row.version}, {"$set": {"digest": blanked(row.stamp.digest)}})
            for id, row in self.read_rows(ids).items()
        ]
        if writes:
            self.run("note what is missing", lambda rows: bulk(rows, writes))

    def sampled_state(self) -> Hashable:
        """Return a value that differs when a sample may have changed."""
        size = self.run("count documents", lambda rows: rows.estimated_document_count())
        return self.generation, self.writes_here, size

    def sample_ids(self, field: Field, count: int) -> list[str]:
        """Return ids of documents that are chosen at random."""
        return self._drawn(field, count, {}) or drawn_ids(self, field, count)  # rows of older indexes have no numbers

    def sample_ids_within(self, field: Field, count: int, scope: Filter) -> list[str]:
        """Return ids of documents that pass a filter, chosen at random."""
        drawn = self._drawn(field, count, compile_filter(scope))
        return drawn or drawn_ids(RestrictedStore(self, scope), field, count)

    def _drawn(self, field: Field, count: int, scope: Row) -> list[str]:
        condition: Row = {"fields": str(field), "draw": {"$exists": True}, **LIVE, **scope}

        def read(rows: Rows) -> list[str]:
            cursor = rows.find(condition, {"draw": 1}).sort([("draw", 1), ("_id", 1)]).limit(count)
            return [row["_id"] for row in cursor]

        return self.run("sample", read) if count > 0 else []

    # ---- words

    def search_words(self, query: str, *, limit: int, where: Filter | None = None) -> WordHits:
        """Find the documents that share words with a query, best first. Equal scores are in the order of the ids."""
        return self._words.search_words(query, limit=limit, where=where)

    def compare_words(self, query: str, ids: Collection[str], where: Filter | None = None) -> list[Hit]:
        """Score given documents by their words, best first, then by id."""
        return self._words.compare_words(query, ids, where)

    def count_words(self, words: Sequence[str]) -> list[int]:
        """Count the texts that hold each word: many words in the `_COUNTED` best texts."""
        return self._words.count_words(words)

    def words_within(self, scope: Filter) -> MongoWords:
        """Return the words of the documents that pass a filter; those of others count nowhere."""
        with self._choosing:
            words = self._words_within.pop(scope, None) or MongoWords(self, scope)
            self._words_within[scope] = words
            while len(self._words_within) > _SCOPES:
                self._words_within.popitem(last=False)
        return words

    def words_state(self, condition: Row) -> Hashable:
        """Return a value that differs when the words of rows that pass have changed.

        It is None where nobody knows.
        """
        return self.writes_here, self.run("count documents", lambda rows: rows.count_documents(condition))

    def check_words(self) -> None:
        """Raise ConfigError where the words are those of an earlier version."""
        if self._checked_words == self.generation:
            return
        if self.run("ask for its indexes", has_earlier_words):
            raise ConfigError(
                f"{self.name} has words as an earlier version of vlmsearch wrote them: run `vlmsearch check --repair "
                f"--store {self.name}`, which renews them"
            )
        self._checked_words = self.generation

    def renew_words(self) -> None:
        """Make the words anew where they are those of an earlier version."""
        language = self.needed().language
        if not language or not self.run("ask for its indexes", has_earlier_words):
            return
        for page in self.scan(_CONTENT):
            writes = [
                UpdateOne(
                    {"_id": row.document.id, "version": row.version},
                    {"$set": term_fields(words_of_row(row.record()), language), "$unset": {"words": ""}},
                )
                for row in map(document_row, page)
            ]
            self.run("renew its words", lambda rows, writes=writes: bulk(rows, writes))  # type: ignore[misc]
        self.run("renew its words", drop_earlier_words)  # last: it says that there is something to do
        self.run("make its text index", create_text_index)

    # ---- the disk

    def disk_use(self) -> DiskUse:
        """Measure the documents of all generations as the server does, before it compresses them."""
        statistics = [self.run("measure it", _statistics_of, generation=figures) for figures in self.kept_generations()]
        whole = self.run("ask for its disk", lambda rows: rows.database.command("dbStats"))
        free = whole["fsTotalSize"] - whole["fsUsedSize"] if "fsTotalSize" in whole else None
        return DiskUse(
            sum(int(figures["size"] + figures["totalIndexSize"]) for figures in statistics),
            sum(int(figures["count"]) for figures in statistics),
            None if free is None else int(free),
        )

    # ---- the reject list

    def read_rejects(self) -> list[Reject]:
        """Read the reject list."""
        return list(map(reject_of, self._reject_rows("list failed inputs", lambda rows: list(rows.find({})))))

    def write_rejects(self, rejects: Sequence[Reject]) -> None:
        """Put inputs on the reject list, or replace their entries."""
        writes = [ReplaceOne({"_id": reject.id}, reject_row(reject), upsert=True) for reject in rejects]
        self._reject_rows("note failed inputs", lambda rows: bulk(rows, writes))

    def remove_rejects(self, ids: list[str]) -> None:
        """Take some inputs off the reject list."""
        self._reject_rows("release inputs", lambda rows: rows.delete_many({"_id": {"$in": ids}}))

    def close(self) -> None:
        """Let go of the connections."""
        self._connection.close()

    # ---- the collections

    def run(self, operation: str, call: Callable[[Rows], T], *, part: str = "documents", generation: str = "") -> T:
        """Call a function with a collection of a generation, by default the one in use."""
        return self._connection.run(f"{self._prefix}.{generation or self.generation}.{part}", operation, call)

    def _about(self, operation: str, call: Callable[[Rows], T]) -> T:
        return self._connection.run(f"{self._prefix}.about", operation, call)

    def _reject_rows(self, operation: str, call: Callable[[Rows], T]) -> T:
        return self._connection.run(f"{self._prefix}.rejects", operation, call)


class MongoWords:
    """The words of the documents of an index that pass a filter, or of all."""

    def __init__(self, index: MongoIndex, scope: Filter | None) -> None:
        self._index = index
        self._scope: Row = {} if scope is None else compile_filter(scope)
        self._known: tuple[Hashable, WordStatistics] | None = None

    def search_words(self, query: str, *, limit: int, where: Filter | None = None) -> WordHits:
        """Find the documents that share words with a query."""
        manifest = self._index.as_opened()
        if manifest is None or not manifest.language or limit < 1:
            return WordHits([], 0.0)
        self._index.check_words()
        known, terms = self._statistics(query, manifest.language)
        if not terms:
            return WordHits([], 0.0)
        condition = self._passing(where)
        asked = [name for names, _ in terms for name in names]
        rows = self._index.run("search words", lambda rows: find_words(rows, asked, limit, condition))
        if len(rows) < limit:
            self._index.check_in_use(to_read=True)  # of a collection that was dropped, a database says nothing
        hits = known.scores(rows, terms, MIN_SCORE)[:limit]
        bound = max_score((term for _, term in terms), known.texts)
        return WordHits(list(hits), max(bound, hits[0].score if hits else 0.0))

    def _passing(self, where: Filter | None) -> Row:
        if where is None or not self._scope:
            return {**LIVE, **(compile_filter(where) if where else self._scope)}
        return {**LIVE, "$and": [self._scope, compile_filter(where)]}

    def compare_words(self, query: str, ids: Collection[str], where: Filter | None = None) -> list[Hit]:
        """Score given documents by their words."""
        manifest = self._index.as_opened()
        if manifest is None or not manifest.language:
            return []
        self._index.check_words()
        wanted = {"version": 1, "terms": 1}
        rows = self._index.kept_rows(possible_ids(ids), wanted, self._passing(where)).values()
        known, terms = self._statistics(query, manifest.language)
        return [hit for hit in known.scores(rows, terms, 0.0) if hit.score > 0]

    def _statistics(self, query: str, language: str) -> tuple[WordStatistics, list[tuple[tuple[str, ...], Term]]]:
        """Return the statistics of the words, and the terms of a query as rows have them."""
        known = self._read_statistics()

        def read(rows: Rows) -> list[tuple[tuple[str, ...], Term]]:
            asked = [(known.asked(term), term) for term in query_terms(query, language)]
            return [
                (
                    names,
                    Term(term.term, term.times, known.holding(names, partial(count_rows, rows, names, self._scope))),
                )
                for names, term in asked
            ]

        return known, self._index.run("count words", read)

    def _read_statistics(self) -> WordStatistics:
        index, condition = self._index, self._passing(None)
        if self._scope:
            seen = index.words_state(condition)
        else:
            size = index.run("count words", lambda rows: rows.estimated_document_count())
            seen = size_class(size, index.writes_here)
        state = index.generation, seen
        known = self._known
        if known is None or seen is None or known[0] != state:
            if self._scope:
                size = index.run("count words", lambda rows: rows.count_documents(condition))
            statistics = index.run("count words", lambda rows: read_statistics(rows, size, condition))
            known = self._known = state, statistics
        return known[1]

    def count_words(self, words: Sequence[str]) -> list[int]:
        """Count the texts that hold each word."""
        manifest = self._index.as_opened()
        if manifest is None or not manifest.language:
            return [0] * len(words)
        self._index.check_words()
        asked = [QueryTerm(word, (word,), 1, manifest.language) for word in words]
        known = self._read_statistics()

        def read(rows: Rows) -> list[int]:
            names = [known.asked(term) for term in asked]
            if len(names) <= MAX_QUERY_TERMS:
                counts = [known.holding(of_word, partial(count_rows, rows, of_word, self._scope)) for of_word in names]
                return [round(sum(count)) for count in counts]
            texts = find_words(rows, {name for of_word in names for name in of_word}, _COUNTED, self._passing(None))
            held = Counter(term for row in texts for term in set(row["terms"].split()))
            return [sum(held[name] for name in of_word) for of_word in names]

        return self._index.run("count words", read)


def _statistics_of(rows: Rows) -> Mapping[str, Any]:
    return rows.database.command("collStats", rows.name)


def _create_indexes(rows: Rows) -> None:
    there = rows.index_information()
    if _DRAWN not in there:
        rows.create_index([("draw", 1), ("_id", 1)], name=_DRAWN)
    if _PASSAGES not in there:
        rows.create_index([("passage_of", 1)], name=_PASSAGES, sparse=True)
