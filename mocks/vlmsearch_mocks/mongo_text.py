"""A stand-in for MongoDB's text indexes: its languages and the rows that it finds, with scores by BM25."""

from __future__ import annotations

import sqlite3
import weakref
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from bson import decode
from pymongo.errors import OperationFailure

from vlmsearch.stores.words import FullText

_BAD_VALUE = 2


class _Indexed:
    """The words of the rows of a collection."""

    def __init__(self, path: str, language: str) -> None:
        self._path = path
        self._words = FullText("words", {"nb": "no"}.get(language, language))
        self._database = sqlite3.connect(":memory:", check_same_thread=False)
        weakref.finalize(self, self._database.close)
        self._words.create(self._database)
        self._rows: dict[Any, tuple[int, bytes, str]] = {}
        self._next = 0

    def search(self, rows: Mapping[Any, bytes], query: str) -> dict[Any, float]:
        """Return the scores of those of the rows that share words with a query."""
        gone = [id for id, (_, was, _) in self._rows.items() if rows.get(id) != was]
        self._words.delete(self._database, [(number, words) for number, _, words in map(self._rows.pop, gone)])
        added = []
        for id in rows.keys() - self._rows.keys():
            words = decode(rows[id]).get(self._path)
            self._next += 1
            self._rows[id] = (self._next, rows[id], words if isinstance(words, str) else "")
            added.append((self._next, self._rows[id][2]))
        self._words.insert(self._database, added)
        ids = {number: id for id, (number, _, _) in self._rows.items()}
        return {ids[number]: score for number, score in self._words.search(self._database, query)}


@dataclass
class MockTextIndex:
    """A text index over one field. Phrases and negations are refused: nothing here knows them."""

    name: str
    keys: dict[str, str | int]
    default_language: str
    language_override: str
    _indexed: _Indexed = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        ((path, kind),) = self.keys.items()
        if kind != "text":
            raise OperationFailure(f"Unknown index plugin '{kind}'", _BAD_VALUE)
        self._indexed = _Indexed(path, self.default_language)

    def scores(self, rows: Mapping[Any, bytes], text: Mapping[str, Any]) -> dict[Any, float]:
        """Return the scores of those of the rows that ``$text`` finds."""
        query = text["$search"]
        if '"' in query or any(word.startswith("-") for word in query.split()):
            raise OperationFailure("the mock has no phrases and no negations", _BAD_VALUE)
        return self._indexed.search(rows, query)
