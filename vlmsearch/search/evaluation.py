"""How good a search is: measured on judged queries, compared with another, and tuned.

The measures of a ranking are those of trec_eval, computed by ir-measures (MacAvaney, Macdonald and Ounis, "Streamlining
Evaluation with ir-measures", ECIR 2022). A query that nothing in the index answers has no ranking to measure; it counts
in these:

* ``F1 shown`` of the matches that reach the threshold, by query. It is 1 if nothing is shown and nothing is right, as
  in SQuAD 2.0 (Rajpurkar, Jia and Liang, ACL 2018).
* ``precision of no match``: the share that nothing answers, of the queries for which nothing is shown.
* ``recall of no match``: the share for which nothing is shown, of the queries that nothing answers.

Intervals are percentiles of 2,000 bootstrap samples of the queries (Efron, "Bootstrap Methods", Annals of Statistics
7(1), 1979), at 95 %. Two searches are compared by Fisher's randomisation test on the differences of each query. See
Smucker, Allan and Carterette, "A Comparison of Statistical Significance Tests for Information Retrieval Evaluation",
CIKM 2007.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray
from typing_extensions import Unpack

from vlmsearch._util.extras import install_command
from vlmsearch.errors import ConfigError, MissingDependencyError
from vlmsearch.rerankers.base import Reranker
from vlmsearch.search.curves import curves
from vlmsearch.search.fusion import image_fields, text_fields
from vlmsearch.search.judged import JudgedQuery, Judgements
from vlmsearch.search.options import ManyKeywords
from vlmsearch.search.query import Query
from vlmsearch.search.relevance import THRESHOLD
from vlmsearch.types import MIN_SCORE, WORDS, Match, Matches, Space, file_of_part, part_of

FUSED = "fused"
"""Name of the search with all fields, beside each field alone."""
SIGNIFICANT = 0.05
SHOWN_F1 = "F1 shown"
NO_MATCH_PRECISION = "precision of no match"
NO_MATCH_RECALL = "recall of no match"

_SAMPLES = 2_000
_PERMUTATIONS = 20_000
_ROUNDS = 20
"""So many times a part of the permutations, to hold fewer at once."""
_FOLDS = 5
_BATCH = 64
_STEPS = {2: 10, 3: 6}
_THRESHOLDS = tuple(round(1 / (1 + math.exp(-number / 10)), 4) for number in range(-70, 71))
"""From 0.0009 to 0.9991, in even steps of log-odds: relevances crowd near 0 and 1."""

Values: TypeAlias = Mapping[str, float]
"""One measure of each query, by its id."""
Progress: TypeAlias = Callable[[], None]
"""Called after each search."""


class Searches(Protocol):
    """A pipeline that is measured."""

    def search_many(self, queries: Iterable[str | Query], **options: Unpack[ManyKeywords]) -> list[Matches]:
        """Return the best matches of each query."""


@dataclass(frozen=True)
class QueryResult:
    """The result of a query: ids with their scores, best first, and the seconds that it took."""

    scores: Mapping[str, float]
    seconds: float

    def shown(self, threshold: float) -> list[str]:
        """Return the ids that reach a threshold."""
        return [id for id, score in self.scores.items() if score >= threshold]


@dataclass(frozen=True)
class Estimate:
    """A mean over queries with its 95 % interval."""

    value: float
    low: float
    high: float
    queries: int


@dataclass(frozen=True)
class FieldMeasures:
    """The measures of one field alone, or of all of them fused.

    Attributes:
        estimates: By the name of the measure; a measure that no query has is left out.
        values: The measures of each query.
        results: What each query found.
        p50: The median time of a search, in seconds.
        p95: What 95 % of the searches do not exceed, in seconds.
    """

    estimates: Mapping[str, Estimate]
    values: Mapping[str, Values]
    results: Mapping[str, QueryResult]
    p50: float
    p95: float


@dataclass(frozen=True)
class Difference:
    """The difference of a measure between two searches, query by query.

    Attributes:
        measure: Its name.
        before: The mean of the search that it is compared with.
        after: The mean of this search.
        low: Lower end of the 95 % interval of the difference.
        high: Its upper end.
        p: Probability of a difference as large by chance, in either direction.
    """

    measure: str
    before: float
    after: float
    low: float
    high: float
    p: float


@dataclass(frozen=True)
class Tuning:
    """The setting that was chosen for an index, and its gain on other queries.

    Attributes:
        values: Values to keep with the index: weights by fields, and ``min_score``; empty if nothing is better.
        order: Change of the ranking by the best weights; None if nothing answers any of the queries.
        shown: Change of the shown matches by the best weights, if they are kept, and the best threshold.
        parts: Number of parts of the queries.
        curves: Curves of the setting that the index has now: see `vlmsearch.search.curves`.
    """

    values: Mapping[str, float]
    order: Difference | None
    shown: Difference
    parts: int
    curves: Mapping[str, Any]


def ranking_measures(limit: int) -> dict[str, str]:
    """Return the names of the measures of a ranking, and what ir-measures calls them."""
    return {
        "precision@1": "P@1",
        f"recall@{limit}": f"R@{limit}",
        f"nDCG@{limit}": f"nDCG@{limit}",
        f"MRR@{limit}": f"RR@{limit}",
    }


def order_measure(limit: int) -> str:
    """Return the measure by which rankings are tuned and judged."""
    return f"nDCG@{limit}"


def asked_fields(queries: Iterable[JudgedQuery], spaces: Sequence[Space], *, has_words: bool) -> dict[str, set[str]]:
    """Return the fields that queries ask, in a fixed order.

    Each has the ids of the queries that ask it.
    """
    fields: dict[str, set[str]] = {}
    for query in queries:
        names = [str(field) for field in text_fields(spaces)] if query.text else []
        names += [str(field) for field in image_fields(spaces)] if query.image else []
        names += [WORDS] if query.text and has_words else []
        for name in names:
            fields.setdefault(name, set()).add(query.id)
    order = [str(field) for space in spaces for field in space.fields] + [WORDS]
    return {name: fields[name] for name in order if name in fields}


def search_all(
    pipeline: Searches,
    queries: Sequence[JudgedQuery],
    *,
    limit: int,
    weights: Mapping[str, float] | None = None,
    rerank: Reranker | str | bool = False,
    only: str | None = None,
    batch: int = 1,
    on_search: Progress = lambda: None,
) -> dict[str, QueryResult]:
    """Return what each query finds, by its id, also below the threshold.

    The weights are those of the index unless others are given. ``only`` leaves out what that field did not find. The
    first query is asked once before, so that what is loaded once does not count. A minus in a query means nothing.
    Where no judgement names a part of a file, such as a page, the best part stands for the file.
    """
    sought = [Query(query.text, image=query.image) for query in queries]
    by_file = not any(part_of(id) for query in queries for id in query.relevant)

    def search(start: int, end: int) -> Sequence[Sequence[Match]]:
        return pipeline.search_many(
            sought[start:end], limit=limit, min_score=0.0, weights=weights, group=by_file, rerank=rerank
        )

    def id_of(match: Match) -> str:
        return file_of_part(match.document.id) if by_file else match.document.id

    search(0, 1)
    results = {}
    for start in range(0, len(queries), batch):
        begun = time.perf_counter()
        answers = search(start, start + batch)
        seconds = (time.perf_counter() - begun) / len(answers)
        for query, matches in zip(queries[start:], answers):
            kept = [match for match in matches if only is None or only in match.fields]
            scores: dict[str, float] = {}
            for match in kept:  # a mailbox has several, the best first
                scores.setdefault(id_of(match), match.score)
            results[query.id] = QueryResult(scores, seconds)
            on_search()
    return results


def evaluate(
    pipeline: Searches,
    queries: Sequence[JudgedQuery],
    fields: Mapping[str, Collection[str]],
    *,
    limit: int,
    threshold: float,
    weights: Mapping[str, float] | None = None,
    rerank: Reranker | str | bool = False,
    on_search: Progress = lambda: None,
) -> dict[str, FieldMeasures]:
    """Measure each field alone, on the queries that ask it, and last all of them fused.

    Args:
        pipeline: What searches.
        queries: What is asked.
        fields: What `asked_fields` gives.
        limit: How many matches of each query count.
        threshold: The score that a match needs to be shown.
        weights: Weights of the fields where all are fused; by default those of the index.
        rerank: What judges the first matches of all fields anew.
        on_search: Called after each search.

    Raises:
        MissingDependencyError: ir-measures is not installed.
    """
    load_measures()
    measured = {}
    for name, ids in fields.items():
        own = [query for query in queries if query.id in ids]
        alone = {field: float(field == name) for field in fields}
        results = search_all(pipeline, own, limit=limit, weights=alone, only=name, on_search=on_search)
        measured[name] = measure(results, own, limit=limit, threshold=threshold)
    results = search_all(pipeline, queries, limit=limit, weights=weights, rerank=rerank, on_search=on_search)
    measured[FUSED] = measure(results, queries, limit=limit, threshold=threshold)
    return measured


def measure(
    results: Mapping[str, QueryResult], queries: Sequence[JudgedQuery], *, limit: int, threshold: float
) -> FieldMeasures:
    """Measure what queries found."""
    judged = {query.id: query.relevant for query in queries}
    values = dict(ranking_values({id: list(result.scores) for id, result in results.items()}, judged, limit))
    values[SHOWN_F1] = shown_f1(results, judged, threshold)
    estimates = {name: estimate(list(numbers.values())) for name, numbers in values.items() if numbers}
    unanswered = np.array([not judged[id] for id in results])
    empty = np.array([not result.shown(threshold) for result in results.values()])
    both = np.asarray(unanswered & empty, float)
    for name, of in ((NO_MATCH_PRECISION, empty), (NO_MATCH_RECALL, unanswered)):
        if of.any():
            estimates[name] = estimate(both, of.astype(float))
    seconds = [result.seconds for result in results.values()]
    p50, p95 = (float(np.percentile(seconds, part)) for part in (50, 95))
    return FieldMeasures(estimates, values, results, p50, p95)


def ranking_values(rankings: Mapping[str, Sequence[str]], judged: Judgements, limit: int) -> dict[str, Values]:
    """Return the measures of rankings, best first, for the queries that something answers.

    A query without one has 0.
    """
    answered = {id: grades for id, grades in judged.items() if grades}
    names = ranking_measures(limit)
    values = _calculate(list(names.values()), answered, {id: rankings.get(id, ()) for id in answered})
    return {name: values[measure] for name, measure in names.items()}


def shown_f1(results: Mapping[str, QueryResult], judged: Judgements, threshold: float) -> Values:
    """Return the F1 of what is shown of each query.

    For a query that nothing answers, it is whether nothing is shown.
    """
    shown = {id: result.shown(threshold) for id, result in results.items()}
    answered = {id: judged[id] for id in results if judged[id]}
    values = _calculate(["SetF"], answered, {id: shown[id] for id in answered})["SetF"]
    return {id: values[id] if id in values else float(not shown[id]) for id in results}


def load_measures() -> None:
    """Raise MissingDependencyError where ir-measures is not installed."""
    try:
        import ir_measures  # noqa: F401
    except ModuleNotFoundError as exc:
        raise MissingDependencyError(
            f"measuring needs {exc.name}, which is not installed: {install_command('eval')}"
        ) from exc


def _calculate(measures: Sequence[str], judged: Judgements, rankings: Mapping[str, Sequence[str]]) -> dict[str, Values]:
    if not judged:
        return {name: {} for name in measures}
    load_measures()
    import ir_measures

    names, numbers = list(judged), dict[str, str]()  # pytrec_eval ends the process at half a surrogate pair
    grades = {
        str(query): {_number(id, numbers): grade for id, grade in judged[name].items()}
        for query, name in enumerate(names)
    }
    scores = {
        str(query): {_number(id, numbers): float(-place) for place, id in enumerate(rankings[name])}
        for query, name in enumerate(names)
        if rankings.get(name)
    }
    parsed = {str(measure): measure for measure in map(ir_measures.parse_measure, measures)}
    values: dict[str, dict[str, float]] = {name: dict.fromkeys(judged, 0.0) for name in measures}
    if scores:
        for metric in ir_measures.iter_calc(list(parsed.values()), grades, scores):
            values[str(metric.measure)][names[int(metric.query_id)]] = float(metric.value)
    return dict(values)


def _number(id: str, numbers: dict[str, str]) -> str:
    """Return a number for an id."""
    return numbers.setdefault(id, str(len(numbers)))


def estimate(values: Sequence[float] | NDArray[np.float64], of: NDArray[np.float64] | None = None) -> Estimate:
    """Return the mean of what each query has, with its 95 % interval.

    With ``of``, return the sum as a share of the sum of ``of``.
    """
    have = np.asarray(values, float)
    whole = np.ones_like(have) if of is None else of
    samples = np.random.default_rng(0).integers(len(have), size=(_SAMPLES, len(have)))
    sums = whole[samples].sum(1)
    shares = have[samples].sum(1)[sums > 0] / sums[sums > 0]
    low, high = np.percentile(shares, (2.5, 97.5))
    return Estimate(float(have.sum() / whole.sum()), float(low), float(high), int(whole.sum()))


def compare(measure: str, before: Values, after: Values) -> Difference:
    """Return how a measure of the same queries differs; ConfigError where they are not the same."""
    if before.keys() != after.keys():
        same = len(before.keys() & after.keys())
        raise ConfigError(
            f"{measure} was measured of {len(before)} queries before and is of {len(after)} now, of which {same} are "
            "the same: compare with a report of the same queries"
        )
    ids = sorted(after)
    first, second = (np.array([values[id] for id in ids]) for values in (before, after))
    gains = second - first
    around = estimate(gains)
    random = np.random.default_rng(0)
    by_chance = 0
    for _ in range(_ROUNDS):
        signs = random.integers(2, size=(_PERMUTATIONS // _ROUNDS, len(gains))) * 2 - 1
        by_chance += int((np.abs(signs @ gains) >= abs(gains.sum()) - 1e-9).sum())
    p = (by_chance + 1) / (_PERMUTATIONS + 1)
    return Difference(measure, float(first.mean()), float(second.mean()), around.low, around.high, p)


def drops(differences: Sequence[Difference], measures: Collection[str]) -> list[Difference]:
    """Return which of some measures dropped significantly, by Holm's correction for how many are looked at."""
    looked_at = sorted((gain for gain in differences if gain.measure in measures), key=lambda gain: gain.p)
    significant = []
    for place, difference in enumerate(looked_at):
        if difference.p > SIGNIFICANT / (len(looked_at) - place):
            break
        significant += [difference] if difference.after < difference.before else []
    return significant


def tune(
    pipeline: Searches,
    queries: Sequence[JudgedQuery],
    fields: Mapping[str, Collection[str]],
    *,
    present: Mapping[str, float],
    limit: int,
    on_search: Progress = lambda: None,
) -> Tuning:
    """Choose the weights of the fields and the threshold by cross-validation.

    The queries are divided into five parts. The other four parts choose the weights that rank best (nDCG), and then the
    threshold that shows the answers best (F1). Each part is measured with those. A setting with a better mean over all
    parts than the present one is chosen again on all queries, and kept.

    Args:
        pipeline: What searches.
        queries: What is asked.
        fields: What `asked_fields` gives.
        present: The values that the index has: `Manifest.tuning`.
        limit: How many matches of each query count.
        on_search: Called after each search.

    Raises:
        ConfigError: There are fewer queries than parts.
        MissingDependencyError: ir-measures is not installed.
    """
    if len(queries) < 2 * _FOLDS:
        raise ConfigError(f"tuning needs at least {2 * _FOLDS} queries, better a hundred; there are {len(queries)}")
    load_measures()
    own = {name: value for name, value in present.items() if name != MIN_SCORE}
    threshold = present.get(MIN_SCORE, THRESHOLD)
    settings: list[Mapping[str, float] | None] = [None, *lattice(list(fields))]
    tried = []
    for weights in settings:
        results = search_all(pipeline, queries, limit=limit, weights=weights, batch=_BATCH, on_search=on_search)
        tried.append(_TrialMeasures(results, queries, limit))
    parts = split(queries)
    answered = {query.id for query in queries if query.relevant}
    best, picks, gain = 0, [0] * len(parts), None
    if answered:
        orders = [measured.order for measured in tried]
        picks = [_best(orders, answered - part) for part in parts]
        held_out = {id: orders[pick][id] for pick, part in zip(picks, parts) for id in part & answered}
        gain = compare(order_measure(limit), orders[0], held_out)
        best = _best(orders, answered) if gain.after > gain.before else 0
    picks = picks if best else [0] * len(parts)
    every = {query.id for query in queries}
    before = tried[0].shown(threshold)
    still, moved = {}, {}
    for pick, part in zip(picks, parts):
        here, there = (tried[pick].shown(value) for value in (threshold, _best_threshold(tried[pick], every - part)))
        still.update({id: here[id] for id in part})
        moved.update({id: there[id] for id in part})
    moves = sum(moved.values()) > sum(still.values())
    kept = {**(settings[best] or own), MIN_SCORE: _best_threshold(tried[best], every) if moves else threshold}
    shown = compare(SHOWN_F1, before, moved if moves else still)
    drawn = curves(tried[best].scores, {query.id: query.relevant for query in queries}, kept[MIN_SCORE])
    return Tuning(kept if best or moves else {}, gain, shown, len(parts), drawn)


def lattice(fields: Sequence[str]) -> list[dict[str, float]]:
    """Return weights that sum to the number of fields, in even steps: equal ones first, then the nearest to these."""
    steps = _STEPS.get(len(fields), len(fields))
    shares = (counts for counts in itertools.product(range(steps + 1), repeat=len(fields)) if sum(counts) == steps)
    weights = [tuple(round(count * len(fields) / steps, 4) for count in counts) for counts in shares]
    weights.sort(key=lambda combination: sum((weight - 1) ** 2 for weight in combination))
    return [dict(zip(fields, combination)) for combination in weights]


def split(queries: Sequence[JudgedQuery], parts: int = _FOLDS) -> list[set[str]]:
    """Return the ids of queries in parts of one size.

    Each part has its share of the queries that nothing answers.
    """
    random = np.random.default_rng(0)
    groups = ([query.id for query in queries if bool(query.relevant) is answered] for answered in (True, False))
    dealt = [id for group in groups for id in (group[place] for place in random.permutation(len(group)))]
    return [set(dealt[number::parts]) for number in range(parts)]


class _TrialMeasures:
    """The results with one setting, measured: nDCG of each query, and F1 at any threshold."""

    def __init__(self, results: Mapping[str, QueryResult], queries: Sequence[JudgedQuery], limit: int) -> None:
        self._result = results
        self._judged = {query.id: query.relevant for query in queries}
        self._f1: dict[tuple[str, tuple[str, ...]], float] = {}
        rankings = {id: list(result.scores) for id, result in results.items()}
        self.order = ranking_values(rankings, self._judged, limit)[order_measure(limit)]

    @property
    def scores(self) -> dict[str, Mapping[str, float]]:
        return {id: result.scores for id, result in self._result.items()}

    def shown(self, threshold: float) -> Values:
        shown = {id: (id, tuple(result.shown(threshold))) for id, result in self._result.items()}
        new = {id: self._result[id] for id, what in shown.items() if what not in self._f1}
        self._f1 |= {shown[id]: value for id, value in shown_f1(new, self._judged, threshold).items()}
        return {id: self._f1[what] for id, what in shown.items()}


def _best(measured: Sequence[Values], ids: Collection[str]) -> int:
    """Return the place of the first setting with the highest sum over some queries."""
    return int(np.argmax([round(sum(values[id] for id in ids), 9) for values in measured]))


def _best_threshold(tried: _TrialMeasures, ids: Collection[str]) -> float:
    """Return the middle one of the thresholds with the highest F1."""
    sums = []
    for threshold in _THRESHOLDS:
        shown = tried.shown(threshold)
        sums.append(round(sum(shown[id] for id in ids), 9))
    best = [threshold for threshold, value in zip(_THRESHOLDS, sums) if value == max(sums)]
    return best[len(best) // 2]
