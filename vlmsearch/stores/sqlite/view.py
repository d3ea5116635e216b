"""An index in memory: codes of its vectors, and the columns of metadata that filters compare."""

from __future__ import annotations

import sqlite3
import threading
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from vlmsearch.stores.filters import Filter
from vlmsearch.stores.sqlite.codes import CodeTable, Places, find
from vlmsearch.stores.sqlite.columns import Column, keys_of, passing
from vlmsearch.stores.sqlite.tables import Tables, TableState, undamaged
from vlmsearch.types import Field


@dataclass(frozen=True)
class View:
    """An index at one instant. The place of a document is that of its row among ``rows``, which are in order.

    ``alive`` says of each place whether its document is still there.
    """

    state: TableState = field(default_factory=TableState)
    rows: Places = field(default_factory=lambda: np.empty(0, np.int64))
    alive: NDArray[np.bool_] = field(default_factory=lambda: np.empty(0, np.bool_))
    codes: dict[Field, tuple[int, CodeTable]] = field(default_factory=dict)
    """By field, the codes up to a row."""
    columns: dict[str, tuple[int, Column]] = field(default_factory=dict)

    def passing(self, where: Filter | None) -> NDArray[np.bool_] | None:
        """Return for each place whether its document is there and passes a filter; None where all do."""
        if where is None:
            return None if len(self.rows) == self.state.documents else self.alive
        return self.alive & passing(where, lambda key: self.columns[key][1])

    def sample(self, asked: Field, count: int) -> Places:
        """Return the rows of documents that have a field, ``count`` at most, chosen at random.

        Adding some documents to many changes few of a sample: each has a number that is as good as random and stays.
        """
        places = self.codes[asked][1].places()
        rows = self.rows[places[self.alive[places]]]
        drawn: Places = rows[np.argsort(_drawing_numbers(rows))[:count]]
        return drawn


class Views:
    """The views of one generation, each made from the one before. May be used from several threads."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        self._guard = threading.Lock()
        self._latest = View()

    def now(self, db: sqlite3.Connection, asked: Field | None, where: Filter | None) -> View:
        """Return the view of a transaction, with the codes of one field and the columns that a filter needs.

        Of two threads, the one that begins to read later waits here for the other. Its transaction, which should not
        have read anything yet, then sees at least as much. For one that sees less, all is read again.
        """
        with self._guard:
            state = self._tables.state(db)
            view = self._latest
            if view.state.epoch != state.epoch or state < view.state:
                view = View(TableState(state.epoch))
            if view.state != state:
                view = self._advanced(db, view, state)
            if asked is not None:
                view.codes[asked] = self._codes(db, view, asked)
            for key in keys_of(where) if where is not None else ():
                view.columns[key] = self._column(db, view, key)
            self._latest = view
            return view

    def _advanced(self, db: sqlite3.Connection, view: View, state: TableState) -> View:
        if len(view.rows):
            rows = np.concatenate([view.rows, np.arange(view.state.last_row + 1, state.last_row + 1)])
        else:
            rows = self._tables.rows_of_the_epoch(db, state)
        alive = np.concatenate([view.alive, np.ones(len(rows) - len(view.rows), np.bool_)])
        places, there = find(rows, self._tables.deaths_after(db, view.state.last_death))
        alive[places[there]] = False
        return View(state, rows, alive, dict(view.codes), dict(view.columns))

    def _codes(self, db: sqlite3.Connection, view: View, asked: Field) -> tuple[int, CodeTable]:
        row, table = view.codes.get(asked, (0, CodeTable(self._tables.dims[asked])))
        if row < view.state.last_row:
            for group in self._tables.codes_after(db, asked, row):
                places, there = find(view.rows, group.numbers)
                placed = replace(group, numbers=places)
                table = table.with_rows(placed if there.all() else placed[there])
        return view.state.last_row, table

    def _column(self, db: sqlite3.Connection, view: View, key: str) -> tuple[int, Column]:
        row, column = view.columns.get(key, (0, Column()))
        if row < view.state.last_row or len(column.kinds) < len(view.rows):
            stored_values = self._tables.values_after(db, key, row)
            with undamaged():
                places, there = find(view.rows, np.array([number for number, _ in stored_values], np.int64))
            values = (value for (_, value), is_there in zip(stored_values, there) if is_there)
            column = column.with_rows(len(view.rows), places[there], values)
        return view.state.last_row, column


def _drawing_numbers(rows: Places) -> NDArray[np.uint64]:
    """Return a number for each row by which samples are drawn (the finaliser of splitmix64)."""
    mixed = rows.astype(np.uint64)
    for factor in (0xBF58476D1CE4E5B9, 0x94D049BB133111EB):
        mixed = (mixed ^ mixed >> np.uint64(31)) * np.uint64(factor)
    numbers: NDArray[np.uint64] = mixed ^ mixed >> np.uint64(31)
    return numbers
