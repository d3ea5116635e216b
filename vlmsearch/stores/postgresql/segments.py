"""The words of an index in PostgreSQL: segments of postings, each written by one transaction.

A segment has the documents with words that its transaction wrote, and the numbers of those that it replaced or removed.
Its documents never change, so whoever writes waits for nobody. The words of an index are those of all segments, without
the dead: the numbers that any segment lists as gone. Writers merge segments of about one size, and those with many
dead. A merge changes nothing of that: it moves documents that are alive and lists of dead, and drops both where it can.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from vlmsearch.stores.postgresql.connection import Session, all_rows, quoted
from vlmsearch.stores.postgresql.pages import packed, unpacked
from vlmsearch.stores.postings import MAX_ROWS, Postings, Rows, sorted_postings

_TIER = 6
"""Segments of about one size that become one. Each tier has so many times the documents of the one before."""
_MANY_DEAD, _WORST = 4, 8
"""The dead are dropped when there is one to so many documents.

Segments with one to so many of their own are written anew then.
"""
_FEW_DEAD = 1000
"""Dead that are never too many."""
_SIZE = "segment, octet_length(rows) / 8, octet_length(dead) / 8"
_MAX_TIMES = 65_535
"""The number of times of a term in a document up to which they are kept."""


class SegmentSize(NamedTuple):
    """A segment's number, and how many documents and dead it lists."""

    segment: int
    rows: int
    dead: int


def is_due(sizes: Sequence[SegmentSize]) -> bool:
    """Return whether there is something to merge."""
    return bool(_of_one_size(sizes)) or _has_many_dead(sizes)


def _of_one_size(sizes: Sequence[SegmentSize]) -> list[int]:
    """Return the segments of about one size that are to become one."""
    by_tier = itertools.groupby(sorted(sizes, key=lambda size: (_tier(size), size.rows)), _tier)
    for tier in (list(own) for _, own in by_tier):
        ends = itertools.accumulate(size.rows for size in tier)
        fitting = [size.segment for size, end in zip(tier, ends) if end <= MAX_ROWS]
        if len(tier) >= _TIER and len(fitting) > 1:
            return fitting
    return []


def _tier(size: SegmentSize) -> int:
    return int(math.log(max(size.rows + size.dead, 1), _TIER))


def _has_many_dead(sizes: Sequence[SegmentSize]) -> bool:
    """Return whether the dead are so many that they are dropped."""
    return sum(size.dead for size in sizes) > _FEW_DEAD + sum(size.rows for size in sizes) // _MANY_DEAD


class Segment(NamedTuple):
    """A segment without its terms.

    Attributes:
        number: Its number.
        part: Its documents.
        dead: The numbers, of documents of any segment, that it lists as gone.
    """

    number: int
    part: Postings
    dead: Rows

    @classmethod
    def of(cls, number: int, rows: bytes, lengths: bytes, languages: list[str], dead: bytes) -> Segment:
        """Return what the columns of a segment say."""
        own = np.frombuffer(rows, "<i8"), np.frombuffer(lengths, "<u4")
        part = replace(NOTHING, rows=own[0], lengths=own[1], languages=frozenset(languages))
        return cls(number, part, np.frombuffer(dead, "<i8"))


NOTHING = Postings.of([], [], "")


def rows_of(parts: Iterable[Postings]) -> Rows:
    """Return the numbers of the documents of postings, one part after another."""
    return np.concatenate([NOTHING.rows, *(part.rows for part in parts)])


def dead_of(segments: Iterable[Segment]) -> Rows:
    """Return the numbers that segments list as gone, rising."""
    return np.unique(np.concatenate([NOTHING.rows, *(segment.dead for segment in segments)]))


@dataclass(frozen=True)
class WordTables:
    """The tables of the words of one generation.

    Attributes:
        schema: The schema that they are in.
        name: The name of the table of documents.
    """

    schema: str
    name: str

    @property
    def columns(self) -> dict[str, tuple[str, ...]]:
        """Return the names of the tables, with their columns."""
        return {
            f"{self.name}$words": ("segment", "rows", "lengths", "languages", "dead"),
            f"{self.name}$pages": ("segment", "first", "part", "body"),
        }

    @property
    def segments(self) -> str:
        """Return the table of segments, as SQL has it."""
        return quoted(self.schema, f"{self.name}$words")

    @property
    def pages(self) -> str:
        """Return the table of their pages, as SQL has it."""
        return quoted(self.schema, f"{self.name}$pages")

    def create(self) -> str:
        """Return the statements that make the tables."""
        plain = "".join(f"ALTER COLUMN {name} SET STORAGE EXTERNAL, " for name in ("rows", "lengths", "dead"))
        return (
            f"CREATE TABLE IF NOT EXISTS {self.segments} (segment bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, "
            "rows bytea NOT NULL, lengths bytea NOT NULL, languages text[] NOT NULL, dead bytea NOT NULL);"
            f"ALTER TABLE {self.segments} {plain.removesuffix(', ')};"
            f"CREATE TABLE IF NOT EXISTS {self.pages} (segment bigint, first bigint, part int, body bytea NOT NULL, "
            f"PRIMARY KEY (segment, first, part)); ALTER TABLE {self.pages} ALTER COLUMN body SET STORAGE PLAIN;"
        )

    # ---- writing

    def append(self, session: Session, words: Sequence[Postings], dead: Collection[int]) -> list[SegmentSize]:
        """Add the words of a transaction, and return the sizes of all segments then.

        Args:
            session: The connection.
            words: The postings of the documents that it wrote.
            dead: The numbers of those that it replaced or removed.
        """
        sizes: list[SegmentSize] = []
        gone = np.sort(np.fromiter(dead, np.int64, len(dead)))
        for part in words or [NOTHING]:
            if len(part) or len(gone):
                sizes, gone = self.add(session, part, gone), gone[:0]
        return sizes

    def add(self, session: Session, words: Postings, dead: Rows) -> list[SegmentSize]:
        """Add a segment, which may be empty, and return the sizes of all segments then."""
        query = (
            f"WITH made AS (INSERT INTO {self.segments} (rows, lengths, languages, dead) VALUES (%b, %b, %s, %b) "
            f"RETURNING {_SIZE}), paged AS (INSERT INTO {self.pages} SELECT made.segment, given.* "
            "FROM made CROSS JOIN unnest(%b::bigint[], %b::int[], %b::bytea[]) given) "
            f"SELECT {_SIZE} FROM {self.segments} UNION ALL SELECT * FROM made"
        )
        lists = words.rows.astype("<i8").tobytes(), words.lengths.astype("<u4").tobytes(), sorted(words.languages)
        pages = list(zip(*packed(words))) or [(), (), ()]
        return [SegmentSize(*row) for row in all_rows(session, query, (*lists, dead.tobytes(), *map(list, pages)))]

    # ---- merging

    def merge(self, session: Session) -> bool:
        """Merge the segments that are due, and return whether any were. Only one transaction at a time does so."""
        lock = "SELECT pg_try_advisory_xact_lock(hashtextextended(%s, 0))"
        if not all_rows(session, lock, (self.segments,))[0][0]:
            return False
        sizes = [SegmentSize(*row) for row in all_rows(session, f"SELECT {_SIZE} FROM {self.segments}")]
        is_full = _has_many_dead(sizes)
        some = None if is_full else _of_one_size(sizes)
        if some == []:
            return False
        segments = self._read(session, some)
        dead = dead_of(segments)
        some = _worst(segments, dead) if some is None else some
        merged = [segment for segment in segments if segment.number in some]
        taken = segments if is_full else merged
        left = np.setdiff1d(dead_of(taken), rows_of(segment.part for segment in merged))
        if is_full:
            left = np.intersect1d(left, rows_of(segment.part for segment in segments))
        words = Postings.joined([NOTHING, *(self._alive(session, segment, dead) for segment in merged)])
        for table in (self.pages, self.segments):
            session.execute(f"DELETE FROM {table} WHERE segment = ANY(%s)", (some,))
        query = f"UPDATE {self.segments} SET dead = '' WHERE segment = ANY(%s) AND dead <> ''"
        session.execute(query, ([segment.number for segment in taken],))
        if not self.append(session, [words], left.tolist()):
            self.add(session, NOTHING, NOTHING.rows)  # no later state has the segments of an earlier one
        return True

    def _read(self, session: Session, some: list[int] | None = None) -> list[Segment]:
        """Read all segments at one moment: with the documents of some alone, where these are given."""
        wanted = "CASE WHEN segment = ANY(coalesce(%s::bigint[], ARRAY[segment])) THEN {} ELSE '' END"
        query = (
            f"SELECT segment, {wanted.format('rows')}, {wanted.format('lengths')}, languages, dead "
            f"FROM {self.segments} ORDER BY segment"
        )
        return [Segment.of(*row) for row in all_rows(session, query, (some, some))]

    def _alive(self, session: Session, segment: Segment, dead: Rows) -> Postings:
        """Read the postings of the documents of a segment that are alive."""
        query = f"SELECT body FROM {self.pages} WHERE segment = %s ORDER BY first, part"
        items = unpacked(body for (body,) in all_rows(session, query, (segment.number,)))
        words = sorted_postings(segment.part.rows, segment.part.lengths, *items, segment.part.languages)
        return words.only(~np.isin(words.rows, dead))

    # ---- what a check needs

    @property
    def stray_pages(self) -> str:
        """Return the condition of pages of no segment."""
        return f"NOT EXISTS (SELECT FROM {self.segments} s WHERE s.segment = p.segment)"

    def compare(self, session: Session, documents: str) -> tuple[list[int], list[int]]:
        """Compare the words that are alive with the numbers and lengths of documents.

        Args:
            session: The connection, within a transaction that sees one moment.
            documents: The table of documents, as SQL has it.

        Returns:
            The numbers of documents whose words are not there or not whole, and those with words of no document.
        """
        query = f"SELECT row, length FROM {documents} WHERE length > 0 ORDER BY row"
        wanted, lengths = np.array(all_rows(session, query), np.int64).reshape(-1, 2).T
        dead = dead_of(segments := self._read(session))
        there = [self._counted(session, segment, dead) for segment in segments]
        rows, at, times = np.unique(rows_of(part for part, _ in there), return_index=True, return_counts=True)
        counted = np.where(times == 1, np.concatenate([NOTHING.rows, *(own for _, own in there)])[at], -1)
        both, own, others = np.intersect1d(wanted, rows, assume_unique=True, return_indices=True)
        right = both[lengths[own] == counted[others]]
        return np.setdiff1d(wanted, right).tolist(), np.setdiff1d(rows, right).tolist()

    def _counted(self, session: Session, segment: Segment, dead: Rows) -> tuple[Postings, Rows]:
        """Return the documents of a segment that are alive, and their lengths: -1 where its pages have others."""
        words = self._alive(session, segment, dead)
        is_whole = (np.bincount(words.places, words.times, len(words)) == words.lengths) | (words.lengths > _MAX_TIMES)
        part = replace(NOTHING, rows=words.rows, lengths=words.lengths)
        return part, np.where(is_whole, words.lengths.astype(np.int64), -1)


def _worst(segments: Sequence[Segment], dead: Rows) -> list[int]:
    """Return the segments with the largest parts of dead, as many as fit into one."""
    alive = {own.number: int((~np.isin(own.part.rows, dead)).sum()) for own in segments}
    shares = sorted((alive[own.number] / max(len(own.part), 1), own.number) for own in segments)
    bad = [number for share, number in shares if share < 1 - 1 / _WORST]
    return [number for number, end in zip(bad, itertools.accumulate(alive[own] for own in bad)) if end <= MAX_ROWS]
