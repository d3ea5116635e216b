"""Rows of documents in MongoDB, and how they are read and written."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any

from pymongo.errors import BulkWriteError, DuplicateKeyError

from vlmsearch.stores.mongodb.connection import Row, Rows, is_duplicate

LIVE: Row = {"version": {"$ne": None}}
"""What rows of documents pass that are there; others are of deleted ones whose vectors are not gone yet."""
PAGE = 1000
"""How many rows are asked for at once."""


def pages(ids: Collection[str]) -> Iterator[list[str]]:
    """The distinct ones among ``ids``, as many at a time as one query names."""
    distinct = list(dict.fromkeys(ids))
    return (distinct[start : start + PAGE] for start in range(0, len(distinct), PAGE))


def bulk(rows: Rows, writes: Sequence[Any]) -> int:
    """Do all writes, in any order; returns how many rows were there or are now.

    Upserts of rows that someone else inserted meanwhile count as not done.
    """
    try:
        done = rows.bulk_write(list(writes), ordered=False)
    except BulkWriteError as exc:
        if not is_duplicate(exc):
            raise
        details = exc.details or {}
        return int(details["nMatched"]) + int(details["nUpserted"])
    return done.matched_count + done.upserted_count


def insert_once(rows: Rows, row: Row) -> None:
    """Add a row unless there is one with its id."""
    try:
        rows.insert_one(row)
    except DuplicateKeyError:
        return
