"""Ranking by words with the text index that MongoDB itself has (``$text``, which Atlas has too).

The index holds the terms that `vlmsearch.stores.terms` makes of documents, spelt in letters and digits, so that MongoDB
takes each as it is. MongoDB finds the documents, and its ``textScore`` says which are read. It grows with how often a
term is in a document and with the part of its terms that this is. But it does not count a rare term more than a
frequent one. So the first ones, `_SPARE` more than are asked for, are scored again by BM25.

The number of documents that hold a term is exact for an index of up to `_SAMPLED` documents. In a larger one it is
exact for terms that are in fewer than a hundredth of them. For others it is estimated from a sample of `_SAMPLED`, with
a standard error of at most a third. So the idf of a term, in nats, is off by about 0.3 at worst. The mean length of
documents and the languages that they are in are those of the sample, too. The sample is read again when the number of
documents has changed by a thirtieth. Where it holds the whole index, it is read again after every change of that number
and every write of this object.

All this is of the documents that pass, where a filter says which there are.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from pymongo.errors import OperationFailure

from vlmsearch.stores.mongodb.connection import Row, Rows
from vlmsearch.stores.postings import K1, MIN_IDF, SHORT, B, Term, TextCounts, idf, usual_length
from vlmsearch.stores.terms import QueryTerm, terms_of
from vlmsearch.stores.versions import VersionedHit

T = TypeVar("T")
_INDEX = "vlmsearch_terms_2"
_EARLIER_INDEXES = frozenset({"vlmsearch_words", "vlmsearch_terms"})
_NO_ROW_HAS_THIS = "language_of_words"
_INDEX_NOT_FOUND = 27
_SPELT = "zq"
"""The start of a term that is not letters and digits of ASCII.

Its bytes in hexadecimal follow.
"""
_SAMPLED = 1000
"""Documents of the sample from which frequencies of words are estimated."""
_FREQUENT = 10
"""Documents of the sample that hold a term whose documents are not counted one by one."""
_SPARE = 100
"""Documents that are scored beyond those that are asked for."""
_STEPS = 30
"""The change of an index's size, one part in so many, that outdates its statistics."""
_MAX_COUNTS = 20_000
_MAX_BYTES = 256 * 2**10
"""Bytes of the terms of a row at most: the text index takes terms of 4 MB, and none of a longer text."""


def term_fields(words: str, language: str) -> Row:
    """Return what a row keeps of a document's words: its terms, of a long text each distinct one once, and language."""
    terms, own = terms_of(words, language)
    spelt = " ".join(map(_spelt, terms))
    if len(spelt) > _MAX_BYTES:
        spelt = " ".join(dict.fromkeys(map(_spelt, terms)))[:_MAX_BYTES]
    return {"terms": spelt, "language": own if terms else ""}


def _spelt(term: str) -> str:
    if term.isascii() and term.isalnum() and not term.startswith(_SPELT):
        return term
    return _SPELT + term.encode("utf-8", "surrogatepass").hex()


def create_text_index(rows: Rows) -> None:
    """Make the text index of a collection unless it is there; makes the collection too."""
    if _INDEX not in rows.index_information():
        options: dict[str, Any] = {"default_language": "none", "language_override": _NO_ROW_HAS_THIS}
        rows.create_index([("terms", "text")], name=_INDEX, **options)


def has_earlier_words(rows: Rows) -> bool:
    """Return whether a collection has the text index of an earlier version."""
    return not _EARLIER_INDEXES.isdisjoint(rows.index_information())


def drop_earlier_words(rows: Rows) -> None:
    """Remove the text index of an earlier version."""
    for name in _EARLIER_INDEXES.intersection(rows.index_information()):
        rows.drop_index(name)


def find_words(rows: Rows, terms: Iterable[str], limit: int, condition: Row) -> list[Row]:
    """Find the first rows that pass ``condition`` and hold spelt terms, by MongoDB's own score."""
    score: Row = {"$meta": "textScore"}
    wanted = {"$text": {"$search": " ".join(terms)}, **condition}
    cursor = rows.find(wanted, {"version": 1, "terms": 1, "score": score})
    return _without_index(lambda: list(cursor.sort([("score", score), ("_id", 1)]).limit(limit + _SPARE)), [])


class WordStatistics:
    """Frequencies of terms in the texts of an index, and their usual length.

    Args:
        sample: The terms and languages of all rows, or of `_SAMPLED` of them.
        documents: Number of all rows.
    """

    def __init__(self, sample: Sequence[Row], documents: int) -> None:
        of_rows = [terms for row in sample if (terms := row.get("terms", "").split())]
        long = [len(terms) for terms in of_rows if len(terms) > SHORT]
        self._languages = {language for row in sample if (language := row.get("language"))} or {"en"}
        self._scale = max(documents / len(sample), 1.0) if len(sample) == _SAMPLED else 1.0
        """Rows for each one of the sample."""
        self.texts = TextCounts((len(of_rows) - len(long)) * self._scale, len(long) * self._scale)
        self._length = usual_length(sum(long), len(long))
        self._in_sample = [(frozenset(terms), len(terms) > SHORT) for terms in of_rows]
        self._counts: dict[tuple[str, ...], TextCounts] = {}

    def asked(self, term: QueryTerm) -> tuple[str, ...]:
        """Return what rows have in the place of a term, spelt."""
        return tuple(map(_spelt, term.of(self._languages)))

    def holding(self, asked: tuple[str, ...], count: Callable[[], int]) -> TextCounts:
        """Return how many texts hold any of the ``asked``; ``count`` counts them, whatever their kind."""
        known = self._counts.get(asked)
        if known is None:
            kinds = [is_long for terms, is_long in self._in_sample if not terms.isdisjoint(asked)]
            seen, long = len(kinds), sum(kinds)
            total = seen * self._scale
            if seen < _FREQUENT and self._scale > 1:
                total = max(count(), seen)
            share = long / seen if seen else float(self.texts.long > self.texts.short)
            known = TextCounts(total * (1 - share), total * share)
            if len(self._counts) >= _MAX_COUNTS:
                self._counts.clear()
            self._counts[asked] = known
        return known

    def scores(
        self, rows: Iterable[Row], terms: Iterable[tuple[tuple[str, ...], Term]], min_score: float
    ) -> list[VersionedHit]:
        """Score rows by BM25, best first, then by id; those that hold no term get ``min_score``."""
        asked = [(names, term.times * idf(term.holding, self.texts) * (K1 + 1)) for names, term in terms]
        wanted = {name for names, _ in asked for name in names}
        hits: list[VersionedHit] = []
        for row in rows:
            words = row["terms"].split()
            norm = K1 * (1 - B + B * len(words) / self._length)
            held = Counter(word for word in words if word in wanted)
            counts = ((sum(held[name] for name in names), weight) for names, weight in asked)
            score = sum(weight * count / (count + norm) for count, weight in counts)
            hits.append(VersionedHit(row["_id"], score or min_score, row["version"]))
        return sorted(hits, key=lambda hit: (-hit.score, hit.id))


def read_statistics(rows: Rows, size: int, condition: Row) -> WordStatistics:
    """Read the statistics of the words of rows that pass, which are about ``size``."""
    wanted = {"terms": 1, "language": 1, "draw": 1}
    cursor = rows.find(condition, wanted).sort([("draw", 1), ("_id", 1)]).limit(_SAMPLED)
    return WordStatistics(list(cursor), size)


def size_class(size: int, writes: int) -> tuple[int, int]:
    """Return a value that is the same for collections with statistics near to each other."""
    return (size, writes) if size < _SAMPLED else (round(math.log(size) * _STEPS), -1)


def count_rows(rows: Rows, terms: Iterable[str], scope: Row) -> int:
    """Count the rows that pass and hold any of the spelt terms: none where there is no text index."""
    return _without_index(lambda: rows.count_documents({"$text": {"$search": " ".join(terms)}, **scope}), 0)


def _without_index(call: Callable[[], T], otherwise: T) -> T:
    """Call a function; return ``otherwise`` where the collection or its text index is not there."""
    try:
        return call()
    except OperationFailure as exc:
        if exc.code != _INDEX_NOT_FOUND:
            raise
        return otherwise


MIN_SCORE = MIN_IDF
"""The score of a row that MongoDB finds and that shares no term."""
