"""An index in memory: codes of its vectors, its words, and the columns of metadata that filters compare."""

from __future__ import annotations

import logging
import os
import sqlite3
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence, Sized
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from vlmsearch._util.batching import batches
from vlmsearch.errors import BackendError, BackendUnavailableError, VlmsearchError
from vlmsearch.stores.filters import Comparison, Filter, keys_of
from vlmsearch.stores.postings import Postings, WordTable, grown
from vlmsearch.stores.samples import sampling_key
from vlmsearch.stores.sqlite.arrays import ArraysFile, Part, write_arrays
from vlmsearch.stores.sqlite.codes import BLOCK, CodeBlock, CodeTable, Places, find
from vlmsearch.stores.sqlite.columns import Column, passing
from vlmsearch.stores.sqlite.database import Database
from vlmsearch.stores.sqlite.tables import Buffer, Tables, TableState, arrays_of, postings, undamaged
from vlmsearch.stores.terms import words_to_find
from vlmsearch.types import READERS, WORDS, Field, document_of, group_of

MIN_KEPT = 2**17
"""Documents in fields, words and samples together, from which on a file of arrays is made."""
_GROWTH = 1.25
"""The file is made anew once there are so many times as many as it has."""
_QUICK, _LATER = 2**18, 5.0
"""Documents that are written in a moment, and seconds after which more are written between searches."""
_SCOPES = 8
"""Views of some documents that are kept with that of all: each may have words of its own."""
_MAX_READ, _REMEMBERED = 5000, 100_000
"""Documents whose texts are read to tell their languages, and rows whose languages are remembered."""
GROUPS, SAMPLES = "groups", "samples"
"""The names by which `Views.now` is asked which rows belong together, and which are drawn first."""
_Group = TypeVar("_Group")
_preloaded: dict[tuple[Path, str], tuple[View, int]] = {}
"""Views to begin with, by the path of the arrays and the creation of the index."""
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Groups:
    """The documents and files that rows belong to, by the places of the rows.

    A row that no other one belongs to has a negative number of its own.
    """

    documents: Places = field(default_factory=lambda: np.empty(0, np.int64))
    files: Places = field(default_factory=lambda: np.empty(0, np.int64))
    are_passages: NDArray[np.bool_] = field(default_factory=lambda: np.empty(0, np.bool_))
    numbers: dict[str, int] = field(default_factory=dict)
    """By the id of a document with passages, or of a file with parts. It only grows."""

    def with_rows(self, count: int) -> Groups:
        """Return copies of the arrays for so many rows. The new ones are alone."""
        alone = -1 - np.arange(len(self.files), count)
        documents, files = np.concatenate([self.documents, alone]), np.concatenate([self.files, alone])
        are_passages = np.concatenate([self.are_passages, np.zeros(len(alone), np.bool_)])
        return Groups(documents, files, are_passages, self.numbers)


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
    postings: dict[int, tuple[Postings, ...]] = field(default_factory=dict)
    """The words of the documents up to a row, whose rows are places."""
    tables: dict[TableState, WordTable] = field(default_factory=dict)
    """The table of the words of the view itself, once it was needed."""
    groups: dict[int, Groups] = field(default_factory=dict)
    """The documents and files that the rows up to one belong to."""
    keys: dict[int, tuple[NDArray[np.int32]]] = field(default_factory=dict)
    """The sampling keys of the ids of the rows up to one."""
    scopes: dict[Filter, View] = field(default_factory=dict)
    """Views of some of the documents alone, the last ones that were needed."""

    @property
    def words(self) -> WordTable:
        """Return the words, which have been asked for."""
        return self.tables[self.state]

    def passing(self, where: Filter | None) -> NDArray[np.bool_] | None:
        """Return for each place whether its document is there and passes a filter: None where all do."""
        if where is None:
            return None if len(self.rows) == self.state.documents else self.alive
        if isinstance(where, Comparison) and where.or_absent:
            return self.within(where).passing(None)
        return self.alive & passing(where, self._compared)

    def _compared(self, part: Comparison) -> NDArray[np.bool_]:
        return self.within(part).alive if part.or_absent else self.columns[part.key][1].passing(part)

    def within(self, scope: Filter) -> View:
        """Return the view that an index of only the documents which pass a filter would have."""
        view = self.scopes.pop(scope, None)
        if view is None:
            alive = self.alive & passing(scope, lambda part: self.columns[part.key][1].passing(part))
            state = self.state._replace(documents=int(np.count_nonzero(alive)))
            view = replace(self, state=state, alive=alive, tables={}, scopes={})
        self.scopes[scope] = view
        for last in [*self.scopes][:-_SCOPES]:
            self.scopes.pop(last, None)
        return view

    def places_of(self, rows: Sequence[int]) -> Places:
        """Return the places of those of some rows, in order, that are there."""
        places, there = find(self.rows, np.array(rows, np.int64))
        return places[there][self.alive[places[there]]]

    def sample(self, asked: Field, count: int) -> Places:
        """Return the rows of the documents that have a field and the smallest sampling keys.

        They are ``count``, or more where several have the last key, or as many as there are.
        """
        places = self.codes[asked][1].places()
        places = places[self.alive[places]]
        keys = self.keys[self.state.last_row][0][places]
        return self.rows[places[keys <= np.partition(keys, count - 1)[count - 1]] if count < len(keys) else places]


class Views:
    """The views of one generation, each made from the one before. May be used from several threads.

    ``path`` is the file of arrays beside the database. ``created`` tells the index from others that had its name.
    """

    def __init__(self, tables: Tables, path: Path, created: str = "") -> None:
        self._tables = tables
        self._path, self._created = path, created
        self._latest, self._from_file = _preloaded.pop((path, created), (View(), 0))
        """The view, and how many documents of fields and words were read from the file."""
        self._due = 0.0
        self._languages: dict[int, str] = {}
        """The languages of some rows, which are read for views of some documents alone."""
        self._guard = threading.Lock()

    def hand_on(self) -> None:
        """Leave the view to whoever opens the index next, also in forked processes."""
        _preloaded[self._path, self._created] = self._latest, self._from_file

    def now(
        self,
        db: sqlite3.Connection,
        asked: Collection[Field | str],
        keys: Collection[str] = (),
        scope: Filter | None = None,
    ) -> View:
        """Return the view of a transaction.

        It has the codes of the fields among ``asked``, and what `WORDS`, `GROUPS` and `SAMPLES` stand for.
        ``keys`` are those of the columns that are needed. The view is of the documents that pass ``scope`` alone. Of
        two threads, the one that begins to read later waits here for the other. Its transaction, which should not have
        read anything yet, then sees at least as much. For one that sees less, all is read again.
        """
        with self._guard:
            state = self._tables.state(db)
            view = self._latest
            if view.state.epoch != state.epoch or state < view.state:
                view, self._from_file = View(TableState(state.epoch)), 0
            if view.state != state:
                view = self._advanced(db, view, state)
            self._latest = view
            for key in {*keys, *(keys_of(scope) if scope else ())}:
                view.columns[key] = self._column(db, view, key)
            view = view.within(scope) if scope else view
            for field_or_name in asked:
                if isinstance(field_or_name, Field):
                    view.codes[field_or_name] = self._codes(db, view, field_or_name)
                elif field_or_name == WORDS and view.state not in view.tables:
                    self._read_words(db, view, is_whole=scope is None)
                elif field_or_name == GROUPS and view.state.last_row not in view.groups:
                    self._read_groups(db, view)
                elif field_or_name == SAMPLES and view.state.last_row not in view.keys:
                    self._read_keys(db, view)
            return view

    def keep(self, database: Database, *, is_last: bool = False) -> None:
        """Write a file of arrays, if there is much that only this process has.

        Much is written some seconds later or in the last call: a command answers first. A writer who is at work is not
        waited for: the next call tries again.
        """
        with self._guard:
            view, size = self._latest, _size(self._latest)
            if size < MIN_KEPT or size < _GROWTH * self._from_file:
                return
            self._due = self._due or time.monotonic() + _LATER
            if not is_last and size > _QUICK and time.monotonic() < self._due:
                return
            self._from_file, self._due = size, 0
            parts = {str(key): (row, [*map(arrays_of, table.blocks())]) for key, (row, table) in view.codes.items()}
            for row, words in view.postings.items():
                parts[WORDS] = row, [*map(arrays_of, words)]
            for row, keys in view.keys.items():
                parts[SAMPLES] = row, [[np.arange(len(keys[0])), keys[0]]]
        try:
            with database.writing("keep the arrays", waits=False) as db:
                if self._tables.state(db).epoch == view.state.epoch:
                    self._write(db, view.state, parts)
        except BackendUnavailableError:
            self._from_file = 0
        except VlmsearchError as exc:  # a reader without the right to write, a full disk
            _log.debug("no file of arrays: %s", exc)

    def _write(self, db: sqlite3.Connection, state: TableState, parts: Mapping[str, Part]) -> None:
        others: dict[str, Part] = {}
        with suppress(OSError, BackendError):
            file = ArraysFile.open(self._path, self._tables.arrays(db, state) or "")
            for name, (_, row, _) in file.parts.items():  # another process may have written more meanwhile
                if name not in parts or row >= parts[name][0]:
                    others[name] = file.read(name)
        if not others.keys() >= parts.keys():
            parts, token = {**parts, **others}, os.urandom(8).hex()
            self._tables.put_arrays(db, token, state.epoch, max(row for row, _ in parts.values()))
            write_arrays(self._path, token, state.epoch, parts)

    def _stored(
        self, db: sqlite3.Connection, view: View, name: str, group_of: Callable[..., _Group]
    ) -> tuple[int, tuple[_Group, ...]]:
        """Return up to which row the file of arrays has a part, and its groups: nothing where it is not what it was."""
        try:
            row, arrays = ArraysFile.open(self._path, self._tables.arrays(db, view.state) or "").read(name)
            with undamaged():
                count = np.searchsorted(view.rows, min(row, view.state.last_row), "right")
                places = np.concatenate([[-1], *(np.frombuffer(first, "<i8") for first, *_ in arrays), [count]])
                places.sort(kind="stable")  # groups of older versions may lie within others
                if row > view.state.last_row or (np.diff(places) == 0).any() or places[0] < -1 or places[-1] > count:
                    raise ValueError("its places are not those of rows")
            groups = tuple(group_of(*group) for group in arrays)
        except (OSError, BackendError):
            self._from_file = -sys.maxsize  # it is to be written anew
            return 0, ()
        self._from_file += len(places) - 2
        return row, groups

    def _advanced(self, db: sqlite3.Connection, view: View, state: TableState) -> View:
        if len(view.rows):
            rows = np.concatenate([view.rows, np.arange(view.state.last_row + 1, state.last_row + 1)])
        else:
            rows = self._tables.rows_of_the_epoch(db, state)
        alive = np.concatenate([view.alive, np.ones(len(rows) - len(view.rows), np.bool_)])
        places, there = find(rows, self._tables.deaths_after(db, view.state.last_death))
        alive[places[there]] = False
        held = dict(view.codes), dict(view.columns), dict(view.postings)
        return View(state, rows, alive, *held, groups=dict(view.groups), keys=dict(view.keys))

    def _codes(self, db: sqlite3.Connection, view: View, asked: Field) -> tuple[int, CodeTable]:
        if asked not in view.codes:
            row, groups = self._stored(db, view, str(asked), partial(self._tables.code_rows, asked))
            blocks = tuple(CodeBlock(group, len(group)) for group in groups)
            view.codes[asked] = row, CodeTable(self._tables.dims[asked], blocks)
        row, table = view.codes[asked]
        if row < view.state.last_row:
            for group in self._tables.codes_after(db, asked, row):
                places, there = find(view.rows, group.numbers)
                placed = replace(group, numbers=places)
                table = table.with_rows(placed if there.all() else placed[there])
        return view.state.last_row, table

    def _read_groups(self, db: sqlite3.Connection, view: View) -> None:
        last, known = view.groups.popitem() if view.groups else (0, Groups())
        groups, new = known.with_rows(len(view.rows)), dict[str, int]()

        def number_of(id: str) -> int:
            return known.numbers.get(id) or new.setdefault(id, len(known.numbers) + len(new) + 1)

        def put(rows: Iterable[tuple[int, str]]) -> None:
            for some in batches(rows, BLOCK):
                with undamaged():
                    places, there = find(view.rows, np.array([row for row, _ in some], np.int64))
                placed = zip(places[there].tolist(), (id for (_, id), is_there in zip(some, there) if is_there))
                for place, id in placed:
                    document = document_of(id)
                    groups.are_passages[place], has_parts = document != id, id in known.numbers or id in new
                    for numbers, owner in ((groups.documents, document), (groups.files, group_of(document))):
                        if owner != id or has_parts:
                            numbers[place] = number_of(owner)

        put(self._tables.named_rows(db, last, "*#*"))
        put([(int(row), id) for id, row in self._tables.columns(db, new, "row")])
        known.numbers.update(new)
        view.groups[view.state.last_row] = groups

    def _read_keys(self, db: sqlite3.Connection, view: View) -> None:
        last, parts = view.keys.popitem() if view.keys else self._stored(db, view, SAMPLES, _keys)
        keys = np.concatenate([*parts, np.zeros(len(view.rows) - sum(map(len, parts)), np.int32)])
        for some in batches(self._tables.named_rows(db, last, "*"), BLOCK):
            with undamaged():
                places, there = find(view.rows, np.array([row for row, _ in some], np.int64))
                keys[places[there]] = np.array([sampling_key(id) for _, id in some], np.int32)[there]
        view.keys[view.state.last_row] = (keys,)

    def _read_words(self, db: sqlite3.Connection, view: View, *, is_whole: bool) -> None:
        row, parts = view.postings.popitem() if view.postings else self._stored(db, view, WORDS, postings)
        if row < view.state.last_row:
            more = []
            for group in self._tables.words_after(db, row):
                places, there = find(view.rows, group.rows)
                more.append(replace(group, rows=places).only(there))
            parts = grown(parts, more)
        view.postings[view.state.last_row] = parts
        if not is_whole:
            spoken = self._spoken(db, view, parts)
            parts = tuple(replace(part, languages=spoken) for part in parts)
        view.tables[view.state] = WordTable(parts, view.passing(None))

    def _spoken(self, db: sqlite3.Connection, view: View, parts: Sequence[Postings]) -> frozenset[str]:
        """Return the languages of the documents that are there: where these are many, those of the index."""
        places = [part.rows[view.alive[part.rows]] for part in parts]
        languages = frozenset[str]().union(*(part.languages for part in parts))
        if len(languages) < 2 or sum(map(len, places)) > _MAX_READ:
            return languages
        rows = view.rows[np.concatenate(places)].tolist()
        for some in batches([row for row in rows if row not in self._languages], BLOCK):
            for row, text in self._tables.texts(self._tables.numbered(db, some)):
                self._languages[row] = words_to_find(text, self._tables.language)[2]
        with undamaged():
            spoken = frozenset(self._languages[row] for row in rows)
        if len(self._languages) > _REMEMBERED:
            self._languages.clear()
        return spoken

    def _column(self, db: sqlite3.Connection, view: View, key: str) -> tuple[int, Column]:
        row, column = view.columns.get(key, (0, Column(joins=key != READERS)))
        if row < view.state.last_row or len(column.kinds) < len(view.rows):
            stored_values = self._tables.values_after(db, key, row)
            with undamaged():
                places, there = find(view.rows, np.array([number for number, _ in stored_values], np.int64))
            values = (value for (_, value), is_there in zip(stored_values, there) if is_there)
            column = column.with_rows(len(view.rows), places[there], values)
        return view.state.last_row, column


def _size(view: View) -> int:
    """Return the number of documents in all fields, words and samples together."""
    parts: Iterable[Sized] = chain.from_iterable((*view.postings.values(), *view.keys.values()))
    return sum(len(table) for _, table in view.codes.values()) + sum(map(len, parts))


def _keys(_: Buffer, keys: Buffer) -> NDArray[np.int32]:
    return np.frombuffer(keys, "<i4")
