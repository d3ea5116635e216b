"""The words of an index in PostgreSQL: segments of postings, each written by one transaction.

A segment has the documents with words that its transaction wrote, and the numbers of those that it replaced or removed.
It is never changed, so whoever writes waits for nobody. The words of an index are those of all segments, without the
dead: the numbers that any segment lists as gone. Writers merge segments of about one size, and those with many dead.
A merge changes nothing of that: it moves documents that are alive, and drops dead ones with their entries.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from vlmsearch.stores.postgresql.connection import Session, all_rows, quoted
from vlmsearch.stores.postgresql.pages import PostingItems, packed, unpacked
from vlmsearch.stores.postings import MAX_ROWS, Postings, Rows, sorted_postings

_TIER = 6
"""Segments of about one size that become one. Each tier has so many times the documents of the one before."""
_MANY_DEAD, _WORST = 4, 8
"""The dead are dropped when there is one to so many documents.

Segments with one to so many of their own are written anew then.
"""
_FEW_DEAD = 1000
"""Dead that are never too many."""
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
    return int(math.log(size.rows + size.dead, _TIER))


def _has_many_dead(sizes: Sequence[SegmentSize]) -> bool:
    """Return whether the dead are so many that they are dropped."""
    return sum(size.dead for size in sizes) > _FEW_DEAD + sum(size.rows for size in sizes) // _MANY_DEAD


class _Segment(NamedTuple):
    number: int
    rows: Rows
    lengths: NDArray[np.uint32]
    languages: list[str]
    dead: Rows

    @classmethod
    def of(cls, number: int, rows: bytes, lengths: bytes, languages: list[str], dead: bytes) -> _Segment:
        """Return what the columns of a segment say."""
        return cls(
            number,
            np.frombuffer(rows, "<i8"),
            np.frombuffer(lengths, "<u4"),
            languages,
            np.frombuffer(dead, "<i8"),
        )


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
        for part in words or ([_NOTHING] if len(gone) else []):
            if len(part) or len(gone):
                sizes, gone = self._add(session, part, gone), gone[:0]
        return sizes

    def _add(self, session: Session, words: Postings, dead: Rows) -> list[SegmentSize]:
        own = "segment, octet_length(rows) / 8, octet_length(dead) / 8"
        query = (
            f"WITH made AS (INSERT INTO {self.segments} (rows, lengths, languages, dead) VALUES (%b, %b, %s, %b) "
            f"RETURNING {own}), paged AS (INSERT INTO {self.pages} SELECT made.segment, given.* "
            "FROM made CROSS JOIN unnest(%b::bigint[], %b::int[], %b::bytea[]) given) "
            f"SELECT {own} FROM {self.segments} UNION ALL SELECT * FROM made"
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
        query = f"SELECT segment, octet_length(rows) / 8, octet_length(dead) / 8 FROM {self.segments}"
        sizes = [SegmentSize(*row) for row in all_rows(session, query)]
        some = [] if (is_full := _has_many_dead(sizes)) else _of_one_size(sizes)
        if not is_full and not some:
            return False
        segments = self._read(session, some, is_full)
        dead = np.unique(np.concatenate([segment.dead for segment in segments]))
        if is_full:
            dead = np.intersect1d(dead, np.concatenate([segment.rows for segment in segments]))
            some = _worst(segments, dead)
        merged = [segment for segment in segments if segment.number in some]
        left = dead[~np.isin(dead, np.concatenate([dead[:0], *(segment.rows for segment in merged)]))]
        for segment in segments if is_full else ():
            kept = np.isin(segment.dead, left)
            if segment.number not in some and not kept.all():
                query = f"UPDATE {self.segments} SET dead = %b WHERE segment = %s"
                session.execute(query, (segment.dead[kept].tobytes(), segment.number))
        if merged:
            words = Postings.joined([self._alive(session, segment, dead) for segment in merged])
            for table in (self.pages, self.segments):
                session.execute(f"DELETE FROM {table} WHERE segment = ANY(%s)", (some,))
            own = np.concatenate([segment.dead for segment in merged])
            self.append(session, [words], np.intersect1d(own, left).tolist())
        return True

    def _read(self, session: Session, some: list[int], is_full: bool) -> list[_Segment]:
        """Read all segments at one moment: the documents of some alone, unless of all."""
        wanted = "CASE WHEN %s OR segment = ANY(%s) THEN {} ELSE '' END"
        query = (
            f"SELECT segment, {wanted.format('rows')}, {wanted.format('lengths')}, languages, dead "
            f"FROM {self.segments} ORDER BY segment"
        )
        return [_Segment.of(*row) for row in all_rows(session, query, (is_full, some) * 2)]

    def _alive(self, session: Session, segment: _Segment, dead: Rows) -> Postings:
        """Read the postings of the documents of a segment that are alive."""
        items = self._items(session, segment)
        words = sorted_postings(segment.rows, segment.lengths, *items, frozenset(segment.languages))
        return words.only(~np.isin(words.rows, dead))

    def _items(self, session: Session, segment: _Segment) -> PostingItems:
        query = f"SELECT body FROM {self.pages} WHERE segment = %s ORDER BY first, part"
        return unpacked(body for (body,) in all_rows(session, query, (segment.number,)))

    # ---- what a check needs

    @property
    def stray_pages(self) -> str:
        """Return the condition of pages of no segment."""
        return f"NOT EXISTS (SELECT FROM {self.segments} s WHERE s.segment = p.segment)"

    def compare(self, session: Session, documents: str) -> tuple[list[int], list[int]]:
        """Compare the words that are alive with the numbers and lengths of documents, at one moment.

        Args:
            session: The connection.
            documents: The table of documents, as SQL has it.

        Returns:
            The numbers of documents whose words are not there or not whole, and those with words of no document.
        """
        query = (
            "SELECT 0, coalesce(string_agg(int8send(row), '' ORDER BY row), ''), "
            "coalesce(string_agg(int4send(length), '' ORDER BY row), ''), '{}'::text[], ''::bytea "
            f"FROM {documents} WHERE length > 0 "
            f"UNION ALL SELECT segment, rows, lengths, languages, dead FROM {self.segments} ORDER BY 1"
        )
        (_, own, own_lengths, *_), *segments = all_rows(session, query)
        wanted = np.frombuffer(own, ">i8").astype(np.int64), np.frombuffer(own_lengths, ">i4").astype(np.int64)
        parts = [_Segment.of(*segment) for segment in segments]
        dead = np.concatenate([_NOTHING.rows, *(part.dead for part in parts)])
        rows = np.concatenate([_NOTHING.rows, *(part.rows for part in parts)])
        lengths = np.concatenate([_NOTHING.rows, *(self._counted(session, part) for part in parts)])
        is_alive = ~np.isin(rows, dead)
        rows, lengths = rows[is_alive], lengths[is_alive]
        order = np.argsort(rows, kind="stable")
        rows, lengths = rows[order], lengths[order]
        is_single = np.bincount(np.searchsorted(rows, rows), minlength=len(rows))[np.searchsorted(rows, rows)] == 1
        at = np.minimum(np.searchsorted(wanted[0], rows), len(wanted[0]) - 1)
        is_right = is_single & (wanted[0][at] == rows) & (wanted[1][at] == lengths) if len(wanted[0]) else rows < 0
        missing = wanted[0][~np.isin(wanted[0], rows[is_right])]
        return missing.tolist(), np.unique(rows[~is_right]).tolist()

    def _counted(self, session: Session, segment: _Segment) -> Rows:
        """Return the lengths of the documents of a segment, -1 where its pages have others."""
        _, places, times = self._items(session, segment)
        counted = np.bincount(places, times, len(segment.rows))[: len(segment.rows)]
        is_whole = (counted == segment.lengths) | (segment.lengths > _MAX_TIMES)
        return np.where(is_whole, segment.lengths.astype(np.int64), -1)


_NOTHING = Postings.of([], [], "")


def _worst(segments: Sequence[_Segment], dead: Rows) -> list[int]:
    """Return the segments with the largest parts of dead, as many as fit into one."""
    alive = {segment.number: int((~np.isin(segment.rows, dead)).sum()) for segment in segments if len(segment.rows)}
    worst = sorted((alive[own.number] / len(own.rows), own.number) for own in segments if own.number in alive)
    bad = [number for share, number in worst if share < 1 - 1 / _WORST]
    return [number for number, end in zip(bad, itertools.accumulate(alive[own] for own in bad)) if end <= MAX_ROWS]
