"""A stand-in for MongoDB's text indexes: the rows that hold any of the words, with a score that grows with them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bson import decode
from pymongo.errors import OperationFailure

_BAD_VALUE = 2
_WORD = re.compile("[a-z0-9]+")


@dataclass
class MockTextIndex:
    """A text index over one field, without stems. Phrases and negations are refused: nothing here knows them."""

    name: str
    keys: dict[str, str | int]
    default_language: str
    language_override: str

    def __post_init__(self) -> None:
        if list(self.keys.values()) != ["text"]:
            raise OperationFailure(f"Unknown index plugin in {self.keys}", _BAD_VALUE)
        if self.default_language != "none":
            raise OperationFailure(f"the mock has no stems of {self.default_language!r}", _BAD_VALUE)

    def scores(self, rows: Mapping[Any, bytes], text: Mapping[str, Any]) -> dict[Any, float]:
        """Return the scores of those of the rows that ``$text`` finds."""
        query = text["$search"]
        if '"' in query or any(word.startswith("-") for word in query.split()):
            raise OperationFailure("the mock has no phrases and no negations", _BAD_VALUE)
        wanted = set(_WORD.findall(query.lower()))
        (path,) = self.keys
        scores: dict[Any, float] = {}
        for id, row in rows.items():
            said = Counter(_WORD.findall(str(decode(row).get(path) or "").lower()))
            shared = [said[word] for word in wanted & said.keys()]
            if shared:
                scores[id] = sum(1 + 0.1 * min(times, 9) for times in shared) * (1 + 1 / said.total())
        return scores
