"""A search over all documents at once, for stores that give them as arrays.

Every document gets the log-odds that `vlmsearch.search.fusion` gives it, from cosines of codes, which are known but for
a small error. Documents whose place is not certain despite that error are compared by their vectors. So the order, the
count and the facets are exact, and Python takes no step for each document that shares a word or is relevant: it makes
objects of the page alone. All is read in one transaction, so that nobody's writes change it meanwhile.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from vlmsearch.search.arrange import group_parts, row_of
from vlmsearch.search.fusion import add_up, shares_of
from vlmsearch.search.query import PreparedQuery
from vlmsearch.search.relevance import PRIOR, Evidence, Judge, WordsAlone, to_log_odds
from vlmsearch.search.sayings import Saying
from vlmsearch.stores.overview import Cosines, Overview, Places
from vlmsearch.types import WORDS, Field, FieldScore, Match, Scalar

_BLOCK = 2**13
"""Documents that are judged at a time: their numbers stay in the processor's cache."""
_KINDS = 254
"""Documents that share words are of so many kinds by their BM25."""
_ROUNDING = 1e-4
"""The error that values in 32 bits may have."""
_Numbers: TypeAlias = NDArray[np.float64]


@dataclass(frozen=True)
class ArrayQuery:
    """A search in the form that arrays are asked in.

    Attributes:
        sought: The query.
        wanted: What texts have to say.
        unwanted: What the text of no document in the result says, not even in another passage.
        shares: How much each field counts, by name; 1 for those that are not there.
        min_relevance: The relevance that a document has to have, from 0 to 1.
        threshold: The relevance that parts of a file have to have to be named.
        ranks_words: Whether words are asked.
        hidden: Ids of documents that are not in the result.
        group: Whether of the parts of a file only the best is shown; else it is so of the passages of a document.
        size: Number of the best documents that are wanted.
        counts: Whether all relevant documents are counted.
        facets: Keys of the metadata whose values are counted.
        sort: Key of the metadata to sort by, with a minus for falling values, or ``relevance``.
    """

    sought: PreparedQuery
    wanted: Saying
    unwanted: Sequence[Saying]
    shares: Mapping[str, float]
    min_relevance: float
    threshold: float
    ranks_words: bool
    hidden: Sequence[str]
    group: bool
    size: int
    counts: bool
    facets: Sequence[str]
    sort: str


@dataclass(frozen=True)
class ArrayResult:
    """The first matches in their order, without fields, and the numbers of all relevant documents.

    Attributes:
        matches: The first matches.
        fields: What each field says of them, by the ids of their documents or passages.
        parts: The scores of the other parts of their files, by the same ids.
        total: Number of relevant documents; None where they were not to be counted.
        facets: Number of relevant documents by value, for each key.
    """

    matches: list[Match]
    fields: dict[str, dict[str, FieldScore]]
    parts: dict[str, dict[str, float]]
    total: int | None = None
    facets: Mapping[str, Mapping[Scalar, int]] = field(default_factory=dict)


def search_arrays(judge: Judge, overview: Overview, query: ArrayQuery) -> ArrayResult:
    """Search all documents.

    Args:
        judge: The judge of the index.
        overview: All documents of one moment.
        query: What is to be scored.

    Returns:
        The first matches, and the counts.
    """
    if query.wanted.words:
        overview.narrow(query.wanted.places(overview))
    for saying in query.unwanted:
        passing = overview.passing.copy()
        passing[_with_passages(overview, np.flatnonzero(saying.places(overview)))] = False
        overview.narrow(passing)
    asked = _QueryValues.of(judge, overview, query.sought, query.shares, ranks_words=query.ranks_words)
    ranks_words = bool(judge.manifest.language)
    without = [
        _QueryValues.of(
            judge, overview, part, judge.weights, ranks_words=ranks_words and not part.by_text, has_text=asked.has_text
        )
        for part in query.sought.without
        if part.vectors
    ]
    groups = overview.groups(by_file=query.group)
    hidden = _with_passages(overview, overview.places_of(query.hidden))
    takes_all = query.counts or query.facets or query.sort != "relevance"
    bar = query.min_relevance if takes_all else _reached(asked, without, hidden, groups, query)
    best = _ScoredDocuments(
        asked, without, np.setdiff1d(asked.candidates(to_log_odds(bar)), hidden, assume_unique=True)
    )
    if takes_all:
        best = best.relevant(query.min_relevance)
    if groups is not None:
        best = best.best_of_groups(groups[best.places])
    first = best.first(query.size, query.min_relevance) if query.sort == "relevance" else _sorted(overview, best, query)
    first, parts = (first, {}) if groups is None else _group(first, hidden, groups, query)
    return ArrayResult(
        *_read(overview, first, asked),
        parts,
        total=len(best.places) if takes_all else None,
        facets={key: overview.facet(key, best.places) for key in query.facets},
    )


def kinds_of(scores: NDArray[np.float32]) -> tuple[NDArray[np.uint8], _Numbers]:
    """Return the kinds of documents by their BM25, and the highest BM25 of each kind."""
    highest = float(scores.max(initial=0)) or 1.0
    kinds = np.ceil(scores * np.float32(_KINDS / highest))
    return np.minimum(kinds, _KINDS).astype(np.uint8), np.linspace(0, highest, _KINDS + 1) * (1 + 1e-5)


def _with_passages(overview: Overview, places: Places) -> Places:
    """Return the places of all that belongs to the documents of these."""
    documents = overview.groups(by_file=False) if len(places) else None
    return places if documents is None else _beside(documents, places)


def _beside(groups: NDArray[np.int64], places: Places) -> Places:
    """Return these places and all others in their groups."""
    chosen = np.zeros(len(groups) + int(groups.max()) + 1, np.bool_)  # numbers below 0 count from its end
    chosen[groups[places]] = True
    return np.flatnonzero(chosen[groups])


def _reached(
    asked: _QueryValues,
    without: Sequence[_QueryValues],
    hidden: Places,
    groups: NDArray[np.int64] | None,
    query: ArrayQuery,
) -> float:
    """Return a relevance that the ``query.size`` best have at least: some that are probably among them reach it."""
    tried = np.setdiff1d(asked.leading(4 * query.size + 32), hidden, assume_unique=True)
    reached = _ScoredDocuments(asked, without, tried).between(-1)
    if groups is not None:
        order = np.argsort(-reached)
        _, firsts = np.unique(groups[tried][order], return_index=True)
        reached = reached[order[firsts]]
    if len(reached) < query.size:
        return query.min_relevance
    return max(query.min_relevance, float(np.partition(reached, -query.size)[-query.size]) - _ROUNDING)


@dataclass(frozen=True, eq=False)
class _QueryValues:
    """The values of all documents for one query."""

    overview: Overview
    query: PreparedQuery
    threshold: float
    evidence: Mapping[str, Evidence]
    shares: Mapping[str, float]
    cosines: Mapping[Field, Cosines]
    words: NDArray[np.float32] | None
    has_text: NDArray[np.bool_]
    has_vector: NDArray[np.bool_]
    compared: dict[Field, dict[int, float]] = field(default_factory=dict)
    """The cosines of vectors that were compared already, by place."""

    @classmethod
    def of(
        cls,
        judge: Judge,
        overview: Overview,
        query: PreparedQuery,
        shares: Mapping[str, float],
        *,
        ranks_words: bool,
        has_text: NDArray[np.bool_] | None = None,
    ) -> _QueryValues:
        cosines = {field: overview.cosines(field, vectors[0]) for field, vectors in query.vectors.items()}
        words, max_bm25 = overview.words(query.text) if ranks_words and query.text else (None, 0.0)
        words = words if max_bm25 > 0 else None
        has_vector = overview.has(cosines)
        if has_text is None:
            has_text = overview.has([field for field in cosines if field.modality == "text"])
        evidence = judge.evidence(query, max_bm25)
        named = shares_of(evidence, shares)
        return cls(overview, query, judge.threshold, evidence, named, cosines, words, has_text, has_vector)

    @functools.cached_property
    def held(self) -> tuple[Places, NDArray[np.float32]]:
        """Return the places of passing documents that share words with the query, and their BM25."""
        if self.words is None:
            return np.empty(0, np.int64), np.empty(0, np.float32)
        places = np.flatnonzero((self.words > 0) & self.overview.passing)
        return places, self.words[places]

    def leading(self, count: int) -> Places:
        """Return the places of documents that are probably among the best: those that lead in a field."""
        leads = np.zeros(len(self.has_text), np.bool_)
        for known in self.cosines.values():
            leads[known.leading(count)] = True
        if self.words is not None:
            held, scores = self.held
            leads[held[np.argpartition(-scores, count)[:count]] if len(held) > count else held] = True
        return np.flatnonzero(leads & self.overview.passing)

    def candidates(self, min_log_odds: float) -> Places:
        """Return the places of all documents that pass and may reach ``min_log_odds``.

        One that reaches it does so by its words alone, or has a field that says its part of what is needed at least.
        """
        needed = min_log_odds - PRIOR
        may = np.zeros(len(self.has_text), np.bool_)
        kinds, said = self._said_by_words()
        groups = {self.evidence[str(field_)].best_of or str(field_) for field_ in self.cosines}
        for field_, known in self.cosines.items():
            values = self._min_value(str(field_), (needed - said) / len(groups))
            if values.min() <= 1 + _ROUNDING:
                may[known.above(values - _ROUNDING, kinds)] = True
        if self.words is not None:
            alone = self.evidence[WORDS].alone
            assert alone is not None  # noqa: S101 - that of words
            text_doubt, name_doubt = alone.doubt
            # by the words alone: of a name, and of a text with a vector, they have to say more
            values = self._min_value(WORDS, needed + np.array([0.0, name_doubt, text_doubt]), alone)
            held_by_all = alone.held if min_log_odds <= alone.held_log_odds else math.inf
            values = np.minimum(values, min(self._min_value(WORDS, np.array([needed])).item(), held_by_all))
            values = np.maximum(values - _ROUNDING, 0.0).astype(np.float32)
            held, scores = (of_held[self.held[1] > values.min()] for of_held in self.held)
            may[held[scores > values[np.where(self.has_text[held], 2 * self.has_vector[held], 1)]]] = True
        places = np.flatnonzero(may & self.overview.passing)
        bounds = self
        if len(places) > _BLOCK:  # rougher ones take less time
            bounds = replace(self, evidence={name: replace(of, is_upper=True) for name, of in self.evidence.items()})
        return places[bounds.log_odds(places, 1) >= min_log_odds - _ROUNDING]

    def _said_by_words(self) -> tuple[NDArray[np.uint8], _Numbers]:
        """Return the kind of each document by its words, and what these add at most."""
        if self.words is None:
            return np.zeros(len(self.has_text), np.uint8), np.zeros(1)
        kinds, highest = kinds_of(self.words)
        kinds[~self.has_text] = len(highest)  # where words are of a file's name
        return kinds, np.append(self.shares[WORDS] * self.evidence[WORDS].of(highest), 0.0)

    def _min_value(self, name: str, said: _Numbers, evidence: Evidence | WordsAlone | None = None) -> _Numbers:
        """Return the values from which on a field adds ``said`` to the log-odds.

        They are -inf where nothing is needed.
        """
        share = self.shares[name]
        values = (evidence or self.evidence[name]).min_value(np.maximum(said, 0.0) / share) if share > 0 else math.inf
        return np.where(said <= 0, -math.inf, values)

    def max_error(self, places: Places) -> float:
        """Return how far log-odds from codes may be off."""
        return sum(
            abs(self.shares[str(of)] * self.evidence[str(of)].slope) * float(known.at(places)[1].max(initial=0))
            for of, known in self.cosines.items()
        )

    def log_odds(self, places: Places, side: int) -> _Numbers:
        """Return the log-odds of documents, whose places rise.

        ``side`` is -1 for the least that they may be, 1 for the highest, and 0 for about what they are.
        """
        totals = []
        for start in range(0, len(places) or 1, _BLOCK):
            block = places[start : start + _BLOCK]
            cosines = {}
            for field_, known in self.cosines.items():
                values, errors = known.at(block)
                cosines[field_] = values.astype(np.float64) + side * errors
            totals.append(self._judged(block, cosines)[0])
        return np.concatenate(totals)

    def exact(self, places: Places) -> tuple[_Numbers, dict[str, _Numbers], Mapping[str, _Numbers]]:
        """Return the exact log-odds of documents.

        Beside them are the value and the evidence of each field.
        """
        cosines = {}
        for field_ in self.cosines:
            known = self.compared.setdefault(field_, {})
            new = np.array([place for place in places.tolist() if place not in known], np.int64)
            exact = self.overview.exact(field_, self.query.vectors[field_][0], new) if len(new) else new
            known.update(zip(new.tolist(), exact.tolist()))
            cosines[field_] = np.array([known[place] for place in places.tolist()])
        return self._judged(places, cosines)

    def _judged(
        self, places: Places, cosines: Mapping[Field, _Numbers]
    ) -> tuple[_Numbers, dict[str, _Numbers], Mapping[str, _Numbers]]:
        has_text = self.has_text[places]
        values = {str(of): known for of, known in cosines.items()}
        if self.words is not None:
            of_words = self.words[places].astype(np.float64)
            values[WORDS] = np.where((of_words > 0) | has_text, of_words, np.nan)
        log_odds = add_up(values, has_text, self.shares, self.evidence)
        return log_odds.total, values, log_odds.evidence

    def ranks(self, places: Places) -> dict[str, NDArray[np.int64]]:
        """Return the rank of documents in each field, from 1.

        It is 0 where the field does not find them.
        """
        order = np.argsort(places)
        ranks = {str(field_): np.zeros(len(places), np.int64) for field_ in self.cosines}
        for field_, known in self.cosines.items():
            ranks[str(field_)][order] = known.ranks(places[order])
        if self.words is not None:
            _, scores = self.held
            of_words = [1 + np.count_nonzero(scores > score) if score > 0 else 0 for score in self.words[places]]
            ranks[WORDS] = np.array(of_words, np.int64)
        return ranks


@dataclass(frozen=True, eq=False)
class _ScoredDocuments:
    """Documents with their relevance."""

    asked: _QueryValues
    without: Sequence[_QueryValues]
    places: Places
    known: _Numbers | None = None

    @functools.cached_property
    def scores(self) -> _Numbers:
        """Return the relevance: exactly if it was compared by vectors, else an estimate."""
        return self.between(0) if self.known is None else self.known

    def between(self, side: int | None, places: Places | None = None) -> _Numbers:
        """Return the relevance of documents, below 0 for one that the query leaves out.

        ``side`` is -1 for the lowest that it may be, 1 for the highest, and 0 for an estimate. None compares vectors.
        """
        places = self.places if places is None else places
        scores = _relevance(self.asked, places, side)
        for part in self.without:
            unwanted = _relevance(part, places, None if side is None else -side)
            if part.query.by_text:  # by its image alone
                unwanted = np.where(part.has_vector[places], unwanted, 0.0)
            scores = np.where(unwanted < self.asked.threshold, scores * (1 - unwanted), -1.0)
        return scores

    @property
    def margin(self) -> float:
        """Return how far an estimate may be off: a relevance changes by a quarter of what its log-odds do, at most."""
        return math.inf if self.without else 0.3 * self.asked.max_error(self.places)

    def relevant(self, min_relevance: float) -> _ScoredDocuments:
        """Return those that are relevant; uncertain ones are compared by their vectors."""
        scores = self.scores.copy()
        unsure = np.flatnonzero(np.abs(scores - min_relevance) <= self.margin)
        low, high = self.between(-1, self.places[unsure]), self.between(1, self.places[unsure])
        unsure = unsure[(low < min_relevance) & (high >= min_relevance)]
        scores[unsure] = self.between(None, self.places[unsure])
        return self.only(scores >= min_relevance, scores)

    def only(self, chosen: NDArray[np.bool_] | Places, scores: _Numbers | None = None) -> _ScoredDocuments:
        """Return some of them, with other scores where these are given."""
        scores = self.scores if scores is None else scores
        return _ScoredDocuments(self.asked, self.without, self.places[chosen], scores[chosen])

    def best_of_groups(self, groups: NDArray[np.int64]) -> _ScoredDocuments:
        """Return the best of each group."""
        order = np.lexsort((self.places, -self.scores))
        _, firsts = np.unique(groups[order], return_index=True)
        return self.only(np.sort(order[firsts]))

    def first(self, size: int, min_relevance: float) -> _ScoredDocuments:
        """Return the ``size`` best with their exact relevance, best first, and equal ones by their ids."""
        places = self.places
        if len(places) > 2 * size:  # estimates tell which are compared by their vectors
            places = places[self.scores >= np.partition(self.scores, -size)[-size] - 2 * self.margin]
            places = places[self.between(1, places) >= np.partition(self.between(-1, places), -size)[-size]]
        exact = self.between(None, places)
        places, exact = places[exact >= min_relevance], exact[exact >= min_relevance]
        ids = self.asked.overview.ids(places.tolist())
        order = sorted(range(len(ids)), key=lambda at: (-exact[at], ids[at]))[:size]
        chosen = np.array(order, np.int64)
        return _ScoredDocuments(self.asked, self.without, places[chosen], exact[chosen])


def _relevance(asked: _QueryValues, places: Places, side: int | None) -> _Numbers:
    log_odds = asked.exact(places)[0] if side is None else asked.log_odds(places, side)
    return 1 / (1 + np.exp(-np.clip(log_odds, -700.0, 700.0)))


def _sorted(overview: Overview, best: _ScoredDocuments, query: ArrayQuery) -> _ScoredDocuments:
    """Return the first by a key of the metadata.

    Equal ones are in the order of their relevance.
    """
    keys = overview.sort_keys(query.sort.removeprefix("-"), best.places, falls=query.sort.startswith("-"))
    order = np.lexsort((best.places, -best.scores, *keys))[: query.size]
    return replace(best, places=best.places[order], known=best.between(None, best.places[order]))


def _group(
    first: _ScoredDocuments, hidden: Places, groups: NDArray[np.int64], query: ArrayQuery
) -> tuple[_ScoredDocuments, dict[str, dict[str, float]]]:
    """Return the matches, and the scores of the next best parts of their files, by id: see `group_parts`."""
    overview, asked, threshold = first.asked.overview, first.asked, query.threshold
    words = np.zeros(len(groups), np.float32) if asked.words is None else asked.words
    of_these = _beside(groups, first.places) if len(first.places) else first.places
    of_these = of_these[overview.passing[of_these] & (asked.has_vector[of_these] | (words[of_these] > 0))]
    others = _ScoredDocuments(
        asked, first.without, np.setdiff1d(of_these, [*hidden, *first.places], assume_unique=True)
    )
    scores, near = others.scores.copy(), np.flatnonzero(others.between(1) >= threshold)
    scores[near] = others.between(None, others.places[near])
    may_be_shown = (scores >= 0) & (words[others.places] > 0) & query.group
    others = others.only((scores >= threshold) | may_be_shown, scores)
    others = others.only(np.lexsort((others.places, -others.scores)))
    places = np.concatenate([first.places, others.places])
    ids = overview.ids(places.tolist())
    ranked = list(zip(ids, np.concatenate([first.scores, others.scores]).tolist()))
    kept, parts = group_parts(ranked, threshold, dict(zip(ids, words[places].tolist())), by_file=query.group)
    by_id = dict(zip(ids, places.tolist()))
    return replace(first, places=np.array([by_id[id] for id, _ in kept], places.dtype)), parts


def _read(
    overview: Overview, first: _ScoredDocuments, asked: _QueryValues
) -> tuple[list[Match], dict[str, dict[str, FieldScore]]]:
    """Return the matches, and what each field says of them."""
    places = first.places
    contents = zip(overview.documents(places.tolist()), first.scores.tolist())
    matches = [Match(document, score, {}, passage=passage) for (document, passage), score in contents]
    _, values, said = asked.exact(places)
    ranks = asked.ranks(places)
    fields: dict[str, dict[str, FieldScore]] = {}
    for i, match in enumerate(matches):
        fields[row_of(match)] = {
            name: FieldScore(int(ranks[name][i]) or None, float(values[name][i]), float(said[name][i]))
            for name in values
            if not math.isnan(values[name][i])
        }
    return matches, fields
