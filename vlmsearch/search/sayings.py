"""What texts say, word for word: the phrases that a query has in quotation marks, and the texts that it leaves out."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vlmsearch._util.cancellation import check_cancelled
from vlmsearch.stores.base import Store, WordSearch
from vlmsearch.stores.overview import Overview
from vlmsearch.stores.terms import AUTO, query_terms, query_words, separate_words, terms_of, words_of
from vlmsearch.stores.versions import read_current
from vlmsearch.types import PASSAGE

_READ = 1000
"""Documents that are read at a time."""


@dataclass(frozen=True)
class Saying:
    """The words and phrases that a text, or passage, holds if it says something.

    Attributes:
        words: The words, each held by any word of its stem; none where nothing is to be said.
        phrases: What is said word for word: separate words, with a space before and behind each.
        language: The index's; "" where it ranks no words.
    """

    words: Collection[str]
    phrases: Collection[str]
    language: str

    @classmethod
    def of(cls, text: str, phrases: Collection[str], language: str) -> Saying:
        """Return what says the words of a text that count, and phrases: one of a single word is a word."""
        parts = [separate_words(part) for part in (*query_words(text, language or AUTO), *phrases)]
        words = dict.fromkeys(word for part in parts for word in part)
        return cls(words, [_spaced(part) for part in parts if len(part) > 1], language)

    def places(self, overview: Overview) -> NDArray[np.bool_]:
        """Return which of the places that pass say it."""
        says = overview.passing & bool(self.words)
        for word in self.words if self.language else ():
            says &= overview.words(word)[0] > 0
        if not self.phrases and self.language:
            return says
        places, chosen = np.flatnonzero(says).tolist(), list[int]()
        for start in range(0, len(places), _READ):
            check_cancelled()
            block = places[start : start + _READ]
            chosen += [place for place, text in zip(block, overview.texts(block)) if self._is_in(text)]
        says = np.zeros_like(says)
        says[chosen] = True
        return says

    def rows(self, store: Store, rows: Collection[str]) -> set[str]:
        """Return which rows of a store say it."""
        rows = rows if self.words else ()
        if self.language and isinstance(store, WordSearch):
            for word in self.words:
                rows = {hit.id for hit in store.compare_words(word, rows)} if rows else rows
        if not self.phrases and self.language:
            return set(rows)
        whole = {row for row in rows if f"{row}{PASSAGE}1" not in rows}  # else its passages are what is compared
        read = read_current(store, whole).items()
        texts = ((row, part.encoded if part else words_of(document)) for row, (document, part) in read)
        return {row for row, text in texts if self._is_in(text)}

    def _is_in(self, text: str) -> bool:
        spaced = _spaced(separate_words(text))
        says = all(phrase in spaced for phrase in self.phrases)
        if self.language or not says:
            return says
        terms, language = terms_of(text, AUTO)
        return all(
            not {*terms}.isdisjoint(term.of([language])) for word in self.words for term in query_terms(word, AUTO)
        )


def _spaced(words: Sequence[str]) -> str:
    return f" {' '.join(words)} "
