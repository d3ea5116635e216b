"""Postings as arrays: which documents hold a term, and BM25 over them.

A `Postings` holds the terms of up to `MAX_ROWS` documents, as a search engine's segment does: for each term the
documents that hold it and how often. `WordTable` ranks the documents of many of them. The work of a search is numpy's:
no step of Python's is taken for each document that holds a term.

BM25 is that of Robertson and Zaragoza, "The Probabilistic Relevance Framework: BM25 and Beyond", Foundations and
Trends in Information Retrieval 3(4), 2009. k1 is 1.2 and b is 0.75. `idf` has the lower bound of SQLite's FTS5:
https://www.sqlite.org/fts5.html#the_bm25_function. A term counts as often as the query says it.

Texts are of two kinds: names of files and captions, of up to `SHORT` terms, and longer ones. What a term and a length
are worth in one kind does not depend on how many of the other are in the index: see `idf` and `usual_length`.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Collection, Iterable, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import chain, islice
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from vlmsearch.stores.terms import AUTO, QueryTerm, stems_of, terms_of_word, words_to_find

K1 = 1.2
"""The parameter k1 of BM25: how soon more of the same term in a document adds less to its score."""
B = 0.75
"""The parameter b of BM25: how much the length of a document counts."""
MIN_IDF = 1e-6
"""The idf of a term that is in half of all documents or more."""
SHORT = 16
"""Terms of a name or a caption at most. A text with more is a long one."""
MIN_LENGTH = 32
"""The least usual length, in terms: where texts are shorter, a few words more say nothing."""
_OTHERS = 20
"""Texts without the term that are counted beside those of the index: in a small one, no word would be rare."""
MAX_ROWS = 2**16
"""Documents of one `Postings` at most: their places are 16-bit numbers."""

_SMALL = MAX_ROWS // 4
"""Documents of postings that are joined with the next ones."""
_REMEMBERED = 500_000
"""Terms whose keys are remembered."""

Rows = NDArray[np.int64]
Mask = NDArray[np.bool_]
_Scores = NDArray[np.float32]


class PlaceMask(Protocol):
    """Which of all places are meant: an array, or what is looked up as one."""

    def __getitem__(self, places: Rows, /) -> Mask:
        """Return whether each of some places, which rise, is meant."""


class TextCounts(NamedTuple):
    """Numbers of texts of each kind; estimates where a store does not count them.

    Attributes:
        short: Those of 1 to `SHORT` terms.
        long: Those of more terms.

    Example:
        >>> TextCounts(short=300, long=80)
        TextCounts(short=300, long=80)
    """

    short: float
    long: float


class Term(NamedTuple):
    """A term of a query, with the numbers of texts that hold it.

    Attributes:
        text: The term.
        times: Times that it counts.
        holding: Numbers of texts that hold it.

    Example:
        >>> Term("dog", times=2, holding=TextCounts(17, 0)).holding.short
        17
    """

    text: str
    times: int
    holding: TextCounts


def idf(holding: TextCounts, texts: TextCounts) -> float:
    """Return the inverse document frequency of a term: log-odds, in nats, that a text does not hold it.

    It is that of the kind of texts where the term is most frequent: a word that all pages say is worth nothing, however
    many captions do not. Twenty texts that do not hold it are counted beside those of the index.

    Args:
        holding: Numbers of texts that hold the term.
        texts: Numbers of all texts.

    Returns:
        The frequency, at least `MIN_IDF`.

    Example:
        >>> round(idf(TextCounts(0, 1), TextCounts(3000, 80)), 2), idf(TextCounts(0, 80), TextCounts(3000, 80))
        (4.19, 1e-06)
    """
    kinds = [kind for kind in zip(holding, texts) if kind[0]] or [(0.0, max(texts))]
    return max(min(math.log((max(n - held, 0) + _OTHERS + 0.5) / (held + 0.5)) for held, n in kinds), MIN_IDF)


def usual_length(terms: float, texts: float) -> float:
    """Return the length that BM25 compares with: the mean of the long texts, and at least `MIN_LENGTH`.

    Args:
        terms: Number of the terms of all long texts.
        texts: Number of these texts.
    """
    return max(terms / texts, MIN_LENGTH) if texts else MIN_LENGTH


def max_score(terms: Iterable[Term], texts: TextCounts) -> float:
    """Return the score by BM25 that no document can exceed: that of one that holds all terms infinitely often.

    Args:
        terms: The terms of a query, also those that no document holds.
        texts: Numbers of all texts.

    Returns:
        The score; 0 for a query without terms.

    Example:
        >>> terms = [Term(name, 1, TextCounts(0, n)) for name, n in (("dog", 1), ("photo", 900), ("zebra", 0))]
        >>> round(max_score(terms, TextCounts(0, 1000)), 1)
        31.1
    """
    return sum(term.times * idf(term.holding, texts) * (K1 + 1) for term in terms)


class _Keys(dict[str, bytes]):
    """The 64 bits by which postings know a term, a number with its low bytes first: the start of its BLAKE2b digest.

    Among ten million terms, two have the same one with a probability of 3 in a million.
    """

    def __missing__(self, term: str) -> bytes:
        if len(self) >= _REMEMBERED:
            self.clear()
        key = self[term] = hashlib.blake2b(term.encode("utf-8", "surrogatepass"), digest_size=8).digest()
        return key


_KEYS = _Keys()


class _WordKeys(dict[str, bytes]):
    """The keys of the terms of words, joined, by the words of documents: to look up each term takes as long again."""

    def __init__(self, language: str) -> None:
        self._language = language

    def __missing__(self, word: str) -> bytes:
        if len(self) >= _REMEMBERED:
            self.clear()
        keys = self[word] = b"".join(map(_KEYS.__getitem__, terms_of_word(word, self._language)))
        return keys


_keys_by = cache(_WordKeys)


def _numbers(keys: Iterable[bytes]) -> NDArray[np.uint64]:
    return np.frombuffer(b"".join(keys), "<u8")


@dataclass(frozen=True, eq=False)
class Postings:
    """The terms of some documents.

    Attributes:
        rows: Numbers of the documents, rising, int64 of shape (n,).
        lengths: Number of terms of each document, uint32 of shape (n,).
        keys: Keys of the terms, rising, uint64 of shape (t,).
        starts: Where the postings of each term begin, and where the last ones end, uint32 of shape (t + 1,).
        places: Which of the ``rows`` hold a term, rising within each term, uint16 of shape (p,).
        times: How often the term is there, uint8 or uint16 of shape (p,).
        languages: Languages that the documents are in.

    Example:
        >>> postings = Postings.of([7, 9], ["a dog", "two dogs"], "auto")
        >>> postings.rows.tolist(), postings.lengths.tolist(), sorted(postings.languages)
        ([7, 9], [2, 2], ['en'])
    """

    rows: Rows
    lengths: NDArray[np.uint32]
    keys: NDArray[np.uint64]
    starts: NDArray[np.uint32]
    places: NDArray[np.uint16]
    times: NDArray[Any]
    languages: frozenset[str] = field(default_factory=frozenset)

    @classmethod
    def of(cls, rows: Sequence[int], texts: Iterable[str], language: str) -> Postings:
        """Return the postings of documents that have terms, at most `MAX_ROWS`; ``rows`` rise."""
        keys: list[bytes] = []
        languages: set[str] = set()
        for text in texts:
            words, codes, own = words_to_find(text, language)
            keys.append(b"".join((*map(_keys_by(own).__getitem__, words), *map(_KEYS.__getitem__, codes))))
            if keys[-1]:
                languages.add(own)
        lengths = [len(of_text) // 8 for of_text in keys]
        places = np.repeat(np.arange(len(lengths)), lengths)
        order = np.argsort(all_keys := _numbers(keys), kind="stable")
        all_keys, places = all_keys[order], places[order]
        firsts = np.flatnonzero(_begins(all_keys) | _begins(places))  # of a term that is there several times
        times = np.minimum(np.diff(firsts, append=len(places)), 65_535)
        counted = np.array(lengths, np.uint32)
        made = sorted_postings(
            np.array(rows, np.int64), counted, all_keys[firsts], places[firsts], times, frozenset(languages)
        )
        return made.only(counted > 0)

    @classmethod
    def joined(cls, parts: Sequence[Postings]) -> Postings:
        """Return the postings of all parts, at least one, whose rows are others in each."""
        if len(parts) == 1:
            return parts[0]
        rows = np.concatenate([part.rows for part in parts])
        order = np.argsort(rows, kind="stable")
        ranks = np.argsort(order)
        firsts = np.cumsum([0, *(len(part) for part in parts)])
        places = np.concatenate([ranks[first + part.places] for part, first in zip(parts, firsts)])
        keys = np.concatenate([np.repeat(part.keys, np.diff(part.starts)) for part in parts])
        by_key = np.argsort(keys, kind="stable")  # takes little time, as the keys of each part rise
        by_both = by_key[np.argsort(np.cumsum(_begins(keys[by_key])) << 16 | places[by_key], kind="stable")]
        return sorted_postings(
            rows[order],
            np.concatenate([part.lengths for part in parts])[order],
            keys[by_both],
            places[by_both],
            np.concatenate([part.times for part in parts])[by_both],
            frozenset().union(*(part.languages for part in parts)),
        )

    def __len__(self) -> int:
        return len(self.rows)

    def only(self, kept: Mask) -> Postings:
        """Return the postings of some of the documents: those that ``kept``, of shape (n,), says."""
        if kept.all():
            return self
        keys, new_places = np.repeat(self.keys, np.diff(self.starts)), np.cumsum(kept) - 1
        stay = kept[self.places]
        return sorted_postings(
            self.rows[kept],
            self.lengths[kept],
            keys[stay],
            new_places[self.places[stay]],
            self.times[stay],
            self.languages,
        )

    def digest(self) -> int:
        """Return a sum that other terms, times or lengths of the same documents do not have."""
        rows = self.rows.astype(np.uint64)
        of_terms = _mixed(_mixed(rows[self.places]) + np.repeat(self.keys, np.diff(self.starts)) + self.times)
        of_lengths = _mixed(_mixed(rows) + self.lengths)
        return int(of_terms.sum(dtype=np.uint64)) + int(of_lengths.sum(dtype=np.uint64)) & 2**64 - 1

    def spans(self, keys: NDArray[np.uint64]) -> list[tuple[int, int]]:
        """Return where the postings of terms begin and end. For one that is not there, both are the same."""
        if not len(self.keys):
            return [(0, 0)] * len(keys)
        at = np.searchsorted(self.keys, keys)
        inside = np.minimum(at, len(self.keys) - 1)
        there = self.keys[inside] == keys
        return [
            (int(self.starts[i]), int(self.starts[i + 1])) if is_there else (0, 0)
            for i, is_there in zip(inside.tolist(), there.tolist())
        ]


def sorted_postings(
    rows: Rows,
    lengths: NDArray[np.uint32],
    keys: NDArray[np.uint64],
    places: NDArray[Any],
    times: NDArray[Any],
    languages: frozenset[str],
) -> Postings:
    """Return postings whose keys, places and times are given one by one. Places rise for each key."""
    order = np.argsort(keys, kind="stable")
    keys = keys[order]
    firsts = np.flatnonzero(_begins(keys))
    starts = np.concatenate([firsts, [len(keys)]]).astype(np.uint32)
    narrow = np.uint8 if int(times.max(initial=0)) < 256 else np.uint16
    return Postings(
        rows, lengths, keys[firsts], starts, places[order].astype(np.uint16), times[order].astype(narrow), languages
    )


def span_of(numbers: Rows) -> slice | Rows:
    """Return rising numbers, as a slice if one follows another: numpy takes a tenth of the time for it."""
    first, end = (int(numbers[0]), int(numbers[-1]) + 1) if len(numbers) else (0, 0)
    return slice(first, end) if end - first == len(numbers) else numbers


def _mixed(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return numbers that are as good as random (the finaliser of splitmix64)."""
    for factor in (0xBF58476D1CE4E5B9, 0x94D049BB133111EB):
        values = (values ^ values >> np.uint64(31)) * np.uint64(factor)
    mixed: NDArray[np.uint64] = values ^ values >> np.uint64(31)
    return mixed


def _begins(values: NDArray[Any]) -> Mask:
    """Return for each value whether it differs from the one before."""
    begins = np.ones(len(values), np.bool_)
    begins[1:] = values[1:] != values[:-1]
    return begins


@dataclass(frozen=True, eq=False)
class _Segment:
    """Postings, with what BM25 takes of their documents.

    ``alive`` says which documents are still there, None for all, and ``is_long`` which have long texts. ``norms`` is
    what their lengths add below the line.
    """

    postings: Postings
    alive: Mask | None
    is_long: Mask
    norms: _Scores


def grown(parts: Sequence[Postings], more: Sequence[Postings]) -> tuple[Postings, ...]:
    """Return postings with others behind them, small ones joined.

    Those that were made one by one are joined with others of their size, so that each takes part in few joins.
    """
    joined = list(parts)
    for part in more:
        joined.append(part)
        while len(joined) > 1 and len(joined[-2]) < 2 * len(joined[-1]) and len(joined[-2]) <= _SMALL:
            last = joined.pop()
            joined[-1] = Postings.joined([joined[-1], last])
    return tuple(joined)


class WordTable:
    """The words of an index at one instant, ranked by BM25. Never changed; may be used from several threads.

    Args:
        parts: Postings whose ``rows`` are places of documents, in the order of their first ones.
        alive: For each place, whether its document is still there; None for all.

    Attributes:
        texts: Numbers of the documents that have terms.

    Example:
        >>> from vlmsearch.stores.terms import query_terms
        >>> table = WordTable([Postings.of(range(2), ["a dog", "a cat"], "auto")], None)
        >>> terms = table.terms(query_terms("dogs", "auto"))
        >>> terms[0].holding, table.best(query_terms("dogs", "auto"), 5)[0].tolist()
        (TextCounts(short=1, long=0), [0])
    """

    def __init__(self, parts: Sequence[Postings], alive: PlaceMask | None) -> None:
        masks = [None if alive is None or (mask := alive[part.rows]).all() else mask for part in parts]
        long = [part.lengths > SHORT for part in parts]
        kept = [of_part if mask is None else of_part & mask for of_part, mask in zip(long, masks)]
        count = sum(len(part) if mask is None else int(np.count_nonzero(mask)) for part, mask in zip(parts, masks))
        count_long = sum(int(np.count_nonzero(of_part)) for of_part in kept)
        self.texts = TextCounts(count - count_long, count_long)
        terms = sum(int(part.lengths[of_part].sum(dtype=np.int64)) for part, of_part in zip(parts, kept))
        slope = K1 * B / usual_length(terms, count_long)
        self._holding: dict[object, TextCounts] = {}
        """Numbers of texts, by the spans of a term."""
        self._segments = [
            _Segment(part, mask, of_part, (K1 * (1 - B) + slope * part.lengths).astype(np.float32))
            for part, mask, of_part in zip(parts, masks, long)
        ]

    def having(self, parts: Sequence[Postings]) -> WordTable:
        """Return a table of the same documents, which has other terms of them."""
        table = copy(self)
        table._holding = {}  # noqa: SLF001
        table._segments = [replace(own, postings=part) for own, part in zip(self._segments, parts)]  # noqa: SLF001
        return table

    def terms(self, query: Sequence[QueryTerm]) -> list[Term]:
        """Return the terms of a query, each with the numbers of texts that hold it."""
        return self._counted(query, self._spans(query))

    def counts(self, words: Sequence[str], language: str) -> list[int]:
        """Count the texts that hold each of many words, or a word of its stem."""
        languages = frozenset[str]().union(*(segment.postings.languages for segment in self._segments))
        stems = stems_of(words, languages if language == AUTO else [language])
        distinct = list({stem for _, stem in stems})
        keys = _numbers(map(_KEYS.__getitem__, distinct))
        order = np.argsort(keys)  # keys that rise are looked up in a fraction of the time
        keys, is_held = keys[order], np.zeros(len(keys), np.bool_)
        for postings in (segment.postings for segment in self._segments):
            if len(postings.keys):
                is_held |= postings.keys.take(np.searchsorted(postings.keys, keys), mode="clip") == keys
        known = {distinct[at] for at in order[is_held].tolist()}
        held = {word for word, stem in stems if stem in known}
        asked = [QueryTerm(word, (word,), 1, language) for word in held]
        counts = {term.text: int(sum(term.holding)) for term in self.terms(asked)}
        return [counts.get(word, 0) for word in words]

    def _spans(self, query: Sequence[QueryTerm]) -> list[_TermSpans]:
        """Return where the postings of each segment have the terms of a query."""
        asked = {
            languages: [[_KEYS[term] for term in asked.of(languages)] for asked in query]
            for languages in {segment.postings.languages for segment in self._segments}
        }
        keys = {languages: _numbers(chain.from_iterable(of_terms)) for languages, of_terms in asked.items()}
        spans_by_segment = []
        for postings in (segment.postings for segment in self._segments):
            spans = iter(postings.spans(keys[postings.languages]))
            spans_by_segment.append(
                [[span for span in islice(spans, len(own)) if span[0] < span[1]] for own in asked[postings.languages]]
            )
        return spans_by_segment

    def _counted(self, query: Sequence[QueryTerm], spans_by_segment: Sequence[_TermSpans]) -> list[Term]:
        terms = []
        for asked, spans in zip(query, zip(*spans_by_segment) if spans_by_segment else [()] * len(query)):
            if (key := tuple(map(tuple, spans))) not in self._holding:
                of_segments = map(_holding, self._segments, spans)
                self._holding[key] = TextCounts(*map(sum, zip((0, 0), *of_segments)))
            terms.append(Term(asked.term, asked.times, self._holding[key]))
        return terms

    def best(
        self, query: Sequence[QueryTerm], limit: int, passing: PlaceMask | None = None
    ) -> tuple[Rows, _Scores, list[Term]]:
        """Find the places of the best documents.

        Args:
            query: The terms.
            limit: Documents at most.
            passing: For each place, whether its document counts; None that all do.

        Returns:
            The places, best first and then rising; their scores, above 0; and the terms, as `terms` gives them.
        """
        spans_by_segment = self._spans(query)
        terms = self._counted(query, spans_by_segment)
        chosen = _BestRows(limit)
        for segment, spans_of_terms in zip(self._segments, spans_by_segment):
            if not any(spans_of_terms):
                continue
            rows, scores = segment.postings.rows, self._segment_scores(segment, spans_of_terms, terms)
            wanted = chosen.better(rows, scores)
            for mask in (segment.alive, None if passing is None else passing[rows]):
                wanted = wanted if mask is None else wanted[mask[wanted]]
            chosen.add(rows[wanted], scores[wanted])
        return (*chosen.ranked(), terms)

    def all_scores(self, query: Sequence[QueryTerm], count: int) -> tuple[_Scores, list[Term]]:
        """Score all documents.

        Args:
            query: The terms.
            count: Number of places.

        Returns:
            The score at each place, 0 for a document that shares no term; and the terms, as `terms` gives them.
        """
        spans_by_segment = self._spans(query)
        terms = self._counted(query, spans_by_segment)
        scores = np.zeros(count, np.float32)
        for segment, spans_of_terms in zip(self._segments, spans_by_segment):
            if any(spans_of_terms):
                scores[span_of(segment.postings.rows)] = self._segment_scores(segment, spans_of_terms, terms)
        return scores, terms

    def _segment_scores(self, segment: _Segment, spans_of_terms: _TermSpans, terms: Sequence[Term]) -> _Scores:
        scores = np.zeros(len(segment.postings), np.float32)
        for term, spans in zip(terms, spans_of_terms):
            if spans:
                places, times = _together(segment.postings, spans)
                values, is_all = times.astype(np.float32), len(places) == len(scores)
                below = values + (segment.norms if is_all else segment.norms.take(places))
                values *= np.float32(term.times * idf(term.holding, self.texts) * (K1 + 1))
                values /= below
                np.add(scores, values, scores) if is_all else np.add.at(scores, places, values)
        return scores

    def scores(self, query: Sequence[QueryTerm], places: Rows) -> tuple[_Scores, list[Term]]:
        """Score given documents.

        Args:
            query: The terms.
            places: Their places, rising.

        Returns:
            The score of each, 0 for one that shares no term; and the terms, as `terms` gives them.
        """
        spans_by_segment = self._spans(query)
        terms = self._counted(query, spans_by_segment)
        scores = np.zeros(len(places), np.float32)
        for segment, spans_of_terms in zip(self._segments, spans_by_segment):
            rows = segment.postings.rows
            if not len(rows) or not any(spans_of_terms):
                continue
            first, last = np.searchsorted(places, (rows[0], rows[-1] + 1))
            at = np.searchsorted(rows, places[first:last])
            there = np.flatnonzero(rows[at] == places[first:last])
            if len(there):
                scores[first:last][there] = self._segment_scores(segment, spans_of_terms, terms)[at[there]]
        return scores, terms


_TermSpans = list[list[tuple[int, int]]]
"""For each term of a query, the spans of its postings that are not empty."""


def keys_of(query: Sequence[QueryTerm], languages: Collection[str]) -> NDArray[np.uint64]:
    """Return the keys, rising, of what documents in some languages have in the place of terms."""
    keys = {_KEYS[term] for asked in query for term in asked.of(languages)}
    return np.sort(_numbers(keys))  # np.unique would load masked arrays


def _holding(segment: _Segment, spans: Sequence[tuple[int, int]]) -> tuple[int, int]:
    """Count the short and the long texts that hold a term."""
    if not spans:
        return 0, 0
    places, _ = _together(segment.postings, spans)
    if segment.alive is not None:
        places = places[segment.alive.take(places)]
    long = int(np.count_nonzero(segment.is_long.take(places)))
    return len(places) - long, long


def _together(postings: Postings, spans: Sequence[tuple[int, int]]) -> tuple[NDArray[np.intp], NDArray[Any]]:
    """Return the postings of terms that are one: their places, each once, and how often any of them is there."""
    if len(spans) == 1:
        start, end = spans[0]
        return postings.places[start:end].astype(np.intp), postings.times[start:end]  # fast to look up by
    total = np.zeros(len(postings), np.uint32)
    for start, end in spans:
        total[postings.places[start:end]] += postings.times[start:end]
    places = np.flatnonzero(total)
    return places, total[places]


class _BestRows:
    """The best of what was seen so far, and a few more."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._min_score = 0.0
        """The score of the last one, once there are as many as wanted."""
        self._last = -1
        """The last place of all that were seen."""
        self._places: list[Rows] = [np.empty(0, np.int64)]
        self._scores: list[_Scores] = [np.empty(0, np.float32)]
        self._count = 0

    def better(self, places: Rows, scores: _Scores) -> Rows:
        """Return which of more documents may be among the best. Equal scores are in the order of the places."""
        is_among = self._min_score > 0 and places[0] < self._last
        self._last = max(self._last, int(places[-1]))
        return np.flatnonzero(scores >= self._min_score if is_among else scores > self._min_score)

    def add(self, places: Rows, scores: _Scores) -> None:
        """Take documents among the best."""
        self._places.append(places)
        self._scores.append(scores)
        self._count += len(places)
        if self._count > 4 * self.limit:
            self._cut()

    def _cut(self) -> None:
        places, scores = np.concatenate(self._places), np.concatenate(self._scores)
        if len(scores) > self.limit:
            last = np.partition(scores, len(scores) - self.limit)[len(scores) - self.limit]
            better = scores > last
            equal = np.flatnonzero(scores == last)
            first = np.argsort(places[equal], kind="stable")[: self.limit - int(np.count_nonzero(better))]
            better[equal[first]] = True
            places, scores, self._min_score = places[better], scores[better], float(last)
        self._places, self._scores, self._count = [places], [scores], len(places)

    def ranked(self) -> tuple[Rows, _Scores]:
        """Return places and scores of the best, best first and then by place."""
        self._cut()
        places, scores = self._places[0], self._scores[0]
        order = np.lexsort((places, -scores))[: self.limit]
        return places[order], scores[order]
