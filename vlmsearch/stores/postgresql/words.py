"""Ranking by words in PostgreSQL: BM25 over the terms in the rows of documents, which an inverted index (GIN) finds.

The scores are those of every store. Numbers of documents that hold a term are exact. In an index of more than `SMALL`
documents they are remembered until its size on the disk has changed by a thirtieth. So an idf is off by 0.03.

Documents that hold nothing but frequent words of a query are left out where they cannot be on the page. That is the
bound of MaxScore: Turtle and Flood, "Query evaluation: strategies and optimizations", Information Processing and
Management 31(6), 1995.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence
from typing import NamedTuple

from vlmsearch.stores.postgresql.connection import Session, all_rows
from vlmsearch.stores.postgresql.tables import SMALL, rough_size
from vlmsearch.stores.postgresql.values import Condition, among, hit_of
from vlmsearch.stores.postings import K1, SHORT, B, Term, TextCounts, max_score, term_key, usual_length
from vlmsearch.stores.terms import query_terms
from vlmsearch.stores.versions import VersionedHit

_STEPS = 30
_MAX_COUNTS = 20_000
_LIGHT = 0.4
"""The share of the rarest other term's weight that omitted terms have at most.

They are left out at first, and their weights add up to it.
"""


class _AskedTerm(NamedTuple):
    keys: tuple[int, ...]
    """Keys of what documents have in its place."""
    term: Term
    weight: float
    """The score that no number of occurrences can reach."""


class _Statistics(NamedTuple):
    texts: TextCounts
    length: float
    """The length that BM25 compares with."""
    languages: frozenset[str]
    counts: dict[tuple[int, ...], TextCounts]
    """Numbers of texts that hold any of some keys."""


class WordRanking:
    """The words of a table of documents. May be used from several threads.

    Args:
        documents: The table, as SQL has it.
        language: Language of the index.
    """

    def __init__(self, documents: str, language: str) -> None:
        self._documents = documents
        self._language = language
        self._known: tuple[int, _Statistics] | None = None
        self._counting = threading.Lock()

    def search(self, session: Session, query: str, limit: int, where: Condition) -> tuple[list[VersionedHit], float]:
        """Find the best documents, then by id, and the score that none can exceed."""
        statistics, terms = self._asked(session, query)
        if not terms:
            return [], 0.0
        hits = self._best(session, terms, statistics, where, limit)
        bound = max_score((asked.term for asked in terms), statistics.texts)
        return hits, max(bound, hits[0].score if hits else 0.0)

    def _best(
        self, session: Session, terms: Sequence[_AskedTerm], statistics: _Statistics, where: Condition, limit: int
    ) -> list[VersionedHit]:
        """Find the best documents. Those that hold only light terms are looked at where they may be among them."""
        heavy = sorted(terms, key=lambda asked: -asked.weight)
        light = 0.0
        while len(heavy) > 1 and light + heavy[-1].weight <= _LIGHT * heavy[-2].weight:
            light += heavy.pop().weight
        if light:
            hits = self._scored(session, terms, statistics, where, limit, heavy)
            if len(hits) == limit and hits[-1].score >= light:
                return hits
        return self._scored(session, terms, statistics, where, limit, terms)

    def compare(self, session: Session, query: str, ids: Sequence[str], where: Condition) -> list[VersionedHit]:
        """Score given documents, best first, then by id; those that share no term are left out."""
        statistics, terms = self._asked(session, query)
        return self._scored(session, terms, statistics, among(ids, where), len(ids), terms) if terms else []

    def _scored(
        self,
        session: Session,
        terms: Sequence[_AskedTerm],
        statistics: _Statistics,
        where: Condition,
        limit: int,
        needed: Sequence[_AskedTerm],
    ) -> list[VersionedHit]:
        """Score the documents that hold any of the ``needed`` terms, best first, then by id."""
        values: list[object] = []
        parts = []
        for keys, _, weight in terms:
            times = " + ".join("coalesce(d.times[array_position(d.terms, %s::bigint)], 0)" for _ in keys)
            parts.append(f"%s::float8 * (1 - norm.norm / ({times} + norm.norm))")  # so that times are counted once
            values += [weight, *keys]
        looked_up = sorted({key for asked in needed for key in asked.keys})
        query = (
            f"SELECT d.id, {' + '.join(parts)} AS score, d.version, d.fields FROM {self._documents} d "
            "CROSS JOIN LATERAL (SELECT %s::float8 + %s::float8 * d.length AS norm) norm "
            f"WHERE d.terms && %s::bigint[] AND {where.text} ORDER BY score DESC, d.id LIMIT %s"
        )
        values += [K1 * (1 - B), K1 * B / statistics.length, looked_up, *where.values, limit]
        return [hit_of(*row) for row in all_rows(session, query, values)]

    def _asked(self, session: Session, query: str) -> tuple[_Statistics, list[_AskedTerm]]:
        """Return statistics of the index, and the terms of a query with their numbers of documents."""
        asked = query_terms(query, self._language)
        statistics = self._statistics(session)
        keys = [tuple(map(term_key, term.of(statistics.languages or {"en"}))) for term in asked]
        known = {own: statistics.counts[own] for own in keys if own in statistics.counts}
        if unknown := [own for own in dict.fromkeys(keys) if own not in known]:
            if len(statistics.counts) > _MAX_COUNTS:
                statistics.counts.clear()
            counted_now = dict(zip(unknown, self._count(session, unknown)))
            statistics.counts.update(counted_now)
            known |= counted_now
        counted = [Term(term.term, term.times, known[own]) for own, term in zip(keys, asked)]
        return statistics, [
            _AskedTerm(own, term, max_score([term], statistics.texts)) for own, term in zip(keys, counted)
        ]

    def _statistics(self, session: Session) -> _Statistics:
        few, size = rough_size(session, self._documents)
        if few <= SMALL:
            return self._read(session)
        step = round(math.log(size) * _STEPS)
        with self._counting:
            if self._known is None or self._known[0] != step:
                self._known = step, self._read(session)
            return self._known[1]

    def _read(self, session: Session) -> _Statistics:
        query = (
            "SELECT coalesce(sum(n - long), 0)::bigint, coalesce(sum(long), 0)::bigint, "
            "coalesce(sum(total), 0)::bigint, array_agg(language) FROM ("
            "SELECT language, count(*) AS n, count(*) FILTER (WHERE length > %s) AS long, "
            f"sum(length) FILTER (WHERE length > %s) AS total FROM {self._documents} WHERE length > 0 "
            "GROUP BY language) l"
        )
        short, long, terms, languages = all_rows(session, query, [SHORT, SHORT])[0]
        return _Statistics(
            TextCounts(short, long), usual_length(terms, long), frozenset(filter(None, languages or ())), {}
        )

    def _count(self, session: Session, terms: Sequence[tuple[int, ...]]) -> list[TextCounts]:
        short, long = (f"count(*) FILTER (WHERE length {sign} {SHORT})" for sign in ("<=", ">"))
        of_term = f"(SELECT ARRAY[{short}, {long}] FROM {self._documents} WHERE terms && %s::bigint[])"
        counts = all_rows(session, f"SELECT {', '.join([of_term] * len(terms))}", list(map(list, terms)))[0]
        return [TextCounts(*of_kinds) for of_kinds in counts]
