"""Ranking by words in PostgreSQL: BM25 over pages of postings, scored here as every store with postings does it.

A search is one transaction that sees one moment. It reads which segments there are, the pages of its terms, and the
documents of the best rows. What does not change is kept: the numbers and lengths of a segment's documents, by the
segment's number. So the numbers of documents that hold a term are exact at that moment.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from vlmsearch._util.batching import PAGE, batches
from vlmsearch.stores.documents import words_of_row
from vlmsearch.stores.filters import Filter, keys_of as keys_of_filter
from vlmsearch.stores.postgresql.connection import READING, SNAPSHOT, Session, all_rows
from vlmsearch.stores.postgresql.pages import terms_of_page
from vlmsearch.stores.postgresql.segments import Segment, dead_of
from vlmsearch.stores.postgresql.tables import IndexTables
from vlmsearch.stores.postgresql.values import ALWAYS, COLUMNS, Condition, RowNumbers, among, document_row, hit_of
from vlmsearch.stores.postings import Mask, Postings, Rows, WordTable, keys_of, max_score
from vlmsearch.stores.terms import AUTO, QueryTerm, query_terms
from vlmsearch.stores.versions import VersionedHit
from vlmsearch.types import READERS

ONE_MOMENT = (
    f"{READING}{SNAPSHOT}SET LOCAL enable_seqscan = off; SET LOCAL jit = off; "
    "SET LOCAL max_parallel_workers_per_gather = 0; SET LOCAL work_mem = '64MB';"
)
"""Settings of a search: a moment that all its queries see, and plans that follow the indexes."""
_MAX_SCOPES = 16
"""Restricted handles whose words are kept."""
_MAX_NAMED, _LARGE = 100_000, 2**28
"""Rows at most that a query names. They are not looked for in tables of more bytes for that alone."""
_FIRST = 300
"""Rows at least that are looked at first, where there is a filter: four for each wanted document."""
_NO_PLACES = np.empty(0, np.uint16)


@dataclass(frozen=True, eq=False)
class _RowMask:
    """Rows, rising, that are looked up as a mask. ``is_in`` is what it says of them."""

    rows: Rows
    is_in: bool

    @cached_property
    def named(self) -> str:
        """Return the rows as PostgreSQL writes an array."""
        return f"{{{','.join(map(str, self.rows.tolist()))}}}"

    def __getitem__(self, rows: Rows, /) -> Mask:
        if not len(rows):
            return np.empty(0, np.bool_)
        some = self.rows[slice(*np.searchsorted(self.rows, (rows[0], rows[-1] + 1)))]
        mask, at = np.full(len(rows), not self.is_in), np.searchsorted(rows, some)
        mask[at[rows[at] == some]] = self.is_in
        return mask


class Scope(NamedTuple):
    """The documents whose words count.

    Attributes:
        where: The filter that they pass.
        condition: The same one, as SQL has it.
    """

    where: Filter
    condition: Condition


@dataclass
class _ScopeWords:
    """The documents of a scope, and their words.

    Attributes:
        seen: The words of all documents at the time.
        alive: The rows of its documents.
        words: Their words; None until they are asked for.
    """

    seen: _Words
    alive: _RowMask
    words: _Words | None = None


class _Words(NamedTuple):
    """The segments that a transaction sees.

    Attributes:
        heads: All of them, by their numbers and those of the transactions that made them: a server that takes over
            without the last transactions may give the same numbers again.
        parts: Those with documents, in the order of their rows, by number.
        table: The same ones.
        languages: The languages of all documents.
    """

    heads: dict[str, Segment]
    parts: dict[int, Postings]
    table: WordTable
    languages: frozenset[str]

    @classmethod
    def of(cls, heads: dict[str, Segment]) -> _Words:
        """Return the words of some segments."""
        languages = frozenset[str]().union(*(head.part.languages for head in heads.values()))
        filled = sorted((head for head in heads.values() if len(head.part)), key=lambda head: int(head.part.rows[0]))
        parts = {head.number: replace(head.part, languages=languages) for head in filled}
        alive = _RowMask(dead_of(heads.values()), is_in=False)
        return cls(heads, parts, WordTable(list(parts.values()), alive), languages)


class WordRanking:
    """The words of a generation. May be used from several threads.

    Args:
        tables: Its tables.
        language: Language of the index.
    """

    def __init__(self, tables: IndexTables, language: str) -> None:
        self.documents = tables.documents
        self._segments, self._pages = tables.words.segments, tables.words.pages
        self._language = language
        self._known = _Words.of({})
        self._last: tuple[_Words, frozenset[int], WordTable] = self._known, frozenset(), self._known.table
        self._language_of: dict[int, frozenset[str]] = {}
        self._within: OrderedDict[Filter, _ScopeWords] = OrderedDict()

    def search(
        self, session: Session, query: str, limit: int, where: Condition, scope: Scope | None = None
    ) -> tuple[list[VersionedHit], float]:
        """Find the best documents, and the score that none can exceed. Equal ones are in the order of writing.

        Args:
            session: A transaction that sees one moment.
            query: The query.
            limit: Documents at most.
            where: A filter.
            scope: Which documents there are; None for all.
        """
        asked = query_terms(query, self._language)
        table = self._table(session, asked, scope)
        passing, depth = None, limit if where is ALWAYS else max(_FIRST, 4 * limit)
        while True:
            rows, scores, terms = table.best(asked, depth, passing)
            condition = Condition(f"d.row = ANY(%s) AND {where.text}", (rows.tolist(), *where.values))
            documents = self._read(session, condition)
            hits = _hits(rows, scores, documents)
            if len(hits) >= limit or len(rows) < depth:
                return hits[:limit], max_score(terms, table.texts)
            depth = 2 * limit * (depth + 1) // (len(hits) + 1)
            if where.has_index and passing is None and depth**2 > limit * sum(table.texts):  # all that pass are fewer
                passing, depth = self._passing(session, where), limit

    def compare(
        self, session: Session, query: str, ids: Sequence[str], where: Condition, scope: Scope | None = None
    ) -> list[VersionedHit]:
        """Score given documents, best first, then by id; those that share no term are left out."""
        asked = query_terms(query, self._language)
        documents = self._read(session, among(ids, where))
        rows = np.array(sorted(documents), np.int64)
        if scope is not None:
            rows = rows[self._kept(session, self._seen(session), scope).alive[rows]]
        scores, _ = self._table(session, asked, scope).scores(asked, rows)
        return sorted(_hits(rows, scores, documents), key=lambda hit: (-hit.score, hit.id))

    def count(self, session: Session, words: Sequence[str], scope: Scope | None = None) -> list[int]:
        """Count the texts that hold each word."""
        asked = [QueryTerm(word, (word,), 1, self._language) for word in words]
        return self._table(session, asked, scope).counts(words, self._language)

    def _table(self, session: Session, asked: Sequence[QueryTerm], scope: Scope | None) -> WordTable:
        """Return the words that a transaction sees, with the postings of some terms. The last ones are kept."""
        words = self._seen(session)
        words = words if scope is None else self._seen_within(session, words, scope)
        known, read, table = self._last
        keys = keys_of(asked, words.languages)
        signed = keys.view(np.int64).tolist()
        if known is words and read.issuperset(signed):
            return table
        query = (
            "SELECT s.segment, k.key, p.body FROM unnest(%s::bigint[]) s(segment) CROSS JOIN unnest(%s::bigint[]) "
            f"k(key) CROSS JOIN LATERAL (SELECT p.body FROM {self._pages} p WHERE p.segment = s.segment AND p.first = "
            f"(SELECT max(f.first) FROM {self._pages} f WHERE f.segment = s.segment AND f.first <= k.key) "
            "AND (p.part = 0 OR p.first = k.key) ORDER BY p.part) p"
        )
        of_terms: dict[tuple[int, int], list[_Some]] = defaultdict(list)
        for number, key, body in all_rows(session, query, (list(words.parts), signed)):
            of_terms[number, key].append(_some_of(body, key))
        parts = [_filled(part, keys, [of_terms[number, key] for key in signed]) for number, part in words.parts.items()]
        table = words.table.having(parts)
        self._last = words, frozenset(signed), table
        return table

    def _seen(self, session: Session) -> _Words:
        """Return the segments that a transaction sees; what is known of one is not read again."""
        known = self._known
        query = (
            "SELECT w.name, n.* FROM (SELECT concat(segment, ' ', xmin) AS name, segment, rows, lengths, languages, "
            f"dead FROM {self._segments}) w LEFT JOIN LATERAL "
            "(SELECT w.segment, w.rows, w.lengths, w.languages, w.dead WHERE w.name <> ALL(%s)) n ON true"
        )
        heads = {
            name: known.heads[name] if number is None else Segment.of(number, *columns)
            for name, number, *columns in all_rows(session, query, (list(known.heads),))
        }
        if heads.keys() != known.heads.keys():
            self._known = known = _Words.of(heads)
        return known

    def named_within(self, session: Session, scope: Scope) -> RowNumbers | None:
        """Return the rows of a scope by their numbers, in a transaction that sees one moment.

        None where they are many, or looking for them would take long.
        """
        words, kept = self._seen(session), self._within.get(scope.where)
        if kept is None or kept.seen is not words:
            size = all_rows(session, "SELECT pg_relation_size(%s::regclass)", (self.documents,))[0][0]
            if size > _LARGE:
                return None
        alive = self._kept(session, words, scope).alive
        return RowNumbers(alive.named, len(alive.rows)) if len(alive.rows) <= _MAX_NAMED else None

    def _kept(self, session: Session, words: _Words, scope: Scope) -> _ScopeWords:
        """Return what is known of a scope in a transaction that sees some words. The last scopes are kept."""
        kept = self._within.pop(scope.where, None)
        if kept is None or kept.seen is not words:
            kept = _ScopeWords(words, self._passing(session, scope.condition))
        if keys_of_filter(scope.where) == {READERS}:  # no other change of metadata makes a segment
            self._within[scope.where] = kept
        while len(self._within) > _MAX_SCOPES:
            self._within.popitem(last=False)
        return kept

    def _seen_within(self, session: Session, words: _Words, scope: Scope) -> _Words:
        """Return the words of a scope, among those that a transaction sees."""
        kept = self._kept(session, words, scope)
        if kept.words is None:
            languages = self._languages_of(session, words, kept.alive.rows)
            parts = {number: replace(part, languages=languages) for number, part in words.parts.items()}
            kept.words = _Words(words.heads, parts, WordTable(list(parts.values()), kept.alive), languages)
        return kept.words

    def _languages_of(self, session: Session, words: _Words, rows: Rows) -> frozenset[str]:
        """Return the languages of the texts of some rows.

        Where the index has several, texts are read until all these are found.
        """
        if len(words.languages) < 2 or self._language != AUTO:
            return words.languages
        languages = frozenset[str]().union(*(self._language_of.get(row, ()) for row in rows.tolist()))
        for some in batches([row for row in rows.tolist() if row not in self._language_of], PAGE):
            if languages == words.languages:
                break
            session.deadline.renew()
            query = f"SELECT row, {COLUMNS} FROM {self.documents} WHERE row = ANY(%s)"
            for row, *columns in all_rows(session, query, (some,)):
                text = words_of_row(document_row(*columns).record())
                self._language_of[row] = Postings.of([0], [text], AUTO).languages
                languages |= self._language_of[row]
        return languages

    def _read(self, session: Session, condition: Condition) -> dict[int, tuple[str, str, list[str]]]:
        query = f"SELECT d.row, d.id, d.version, d.fields FROM {self.documents} d WHERE {condition.text}"
        return {row: (id, version, fields) for row, id, version, fields in all_rows(session, query, condition.values)}

    def _passing(self, session: Session, where: Condition) -> _RowMask:
        """Return all rows that pass a filter."""
        query = f"SELECT coalesce(string_agg(int8send(d.row), ''), '') FROM {self.documents} d WHERE {where.text}"
        packed = all_rows(session, query, where.values)[0][0]
        return _RowMask(np.sort(np.frombuffer(packed, ">i8").astype(np.int64)), is_in=True)


def _hits(
    rows: Rows, scores: NDArray[np.float32], documents: dict[int, tuple[str, str, list[str]]]
) -> list[VersionedHit]:
    """Return the hits of rows that share a term, and whose documents are there."""
    ranked = ((score, documents[row]) for row, score in zip(rows.tolist(), scores.tolist()) if row in documents)
    return [hit_of(id, score, version, fields) for score, (id, version, fields) in ranked if score > 0]


_Some = tuple[NDArray[np.uint16], NDArray[np.uint16]]
"""Some places that have a term, and how often."""


def _some_of(body: bytes, key: int) -> _Some:
    """Return what a page has of a term."""
    keys, counts, places, times = terms_of_page(body)
    at = int(keys.view(np.int64).searchsorted(key))
    is_there = at < len(keys) and int(keys.view(np.int64)[at]) == key
    start = int(counts[:at].sum()) if at else 0
    end = start + int(counts[at]) if is_there else start
    return places[start:end], times[start:end]


def _filled(part: Postings, keys: NDArray[np.uint64], of_terms: list[list[_Some]]) -> Postings:
    """Return a part with the postings of terms: ``of_terms`` has those of each key."""
    starts = np.cumsum([0, *(sum(len(places) for places, _ in some) for some in of_terms)]).astype(np.uint32)
    places, times = (np.concatenate([_NO_PLACES, *(arrays[i] for some in of_terms for arrays in some)]) for i in (0, 1))
    return replace(part, keys=keys, starts=starts, places=places, times=times)
