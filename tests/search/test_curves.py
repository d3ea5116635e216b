"""Curves by threshold, histograms and calibration, against ir-measures and by hand."""

import json
import pickle
import random
from collections import Counter

import pytest

from vlmsearch import Evaluation, JudgedQuery
from vlmsearch.search.curves import THRESHOLDS, calibration, curves, histogram
from vlmsearch.search.evaluation import QueryResult, measure, shown_f1

RESULTS = {"1": {"a": 0.9, "x": 0.5, "b": 0.2}, "2": {"x": 0.4}, "3": {}, "4": {"c": 0.3}}
JUDGED = {"1": {"a": 1, "b": 2}, "2": {}, "3": {"d": 1}, "4": {"c": 1}}


def test_measures_at_a_threshold_are_means_over_queries() -> None:
    found = curves(RESULTS, JUDGED, 0.3)
    assert found["threshold"] == 0.3
    assert found["at"] == {
        "precision": pytest.approx((1 / 2 + 0 + 1) / 3, abs=1e-6),
        "recall": pytest.approx((1 / 2 + 0 + 1) / 3, abs=1e-6),
        "f1": pytest.approx((1 / 2 + 0 + 0 + 1) / 4, abs=1e-6),
        "abstention": 0.25,
    }
    high = curves(RESULTS, JUDGED, 0.95)["at"]
    assert high == {"precision": None, "recall": 0, "f1": 0.25, "abstention": 1}
    assert curves({}, {}, 0.3)["at"] == {"precision": None, "recall": None, "f1": None, "abstention": None}


def test_the_curve_is_that_of_ir_measures() -> None:
    rng = random.Random(1)
    judged = {str(n): {f"d{rng.randrange(30)}": 1 for _ in range(rng.randrange(4))} for n in range(40)}
    results = {id: {f"d{n}": rng.random() for n in rng.sample(range(30), 10)} for id in judged}
    found = {
        id: QueryResult(dict(sorted(scores.items(), key=lambda pair: -pair[1])), 0.0) for id, scores in results.items()
    }
    queries = [JudgedQuery(id, grades, "a") for id, grades in judged.items()]
    curve = curves(results, judged, 0.3)["curve"]
    assert curve["threshold"] == list(THRESHOLDS)
    for number in range(0, len(THRESHOLDS), 7):
        values = shown_f1(found, judged, THRESHOLDS[number])
        assert curve["f1"][number] == pytest.approx(sum(values.values()) / len(values), abs=1e-6)
        estimates = measure(found, queries, limit=10, threshold=THRESHOLDS[number]).estimates
        assert curve["f1"][number] == pytest.approx(estimates["F1 shown"].value, abs=1e-6)
        shown = {id: result.shown(THRESHOLDS[number]) for id, result in found.items()}
        assert curve["abstention"][number] == sum(not ids for ids in shown.values()) / len(shown)
    assert curve["recall"] == sorted(curve["recall"], reverse=True)
    assert curve["abstention"] == sorted(curve["abstention"])


def test_every_score_is_in_one_bin() -> None:
    scores = [0.0, 1e-9, 0.001, 0.3, 0.5, 0.62, 0.999, 1.0]
    found = histogram({"all": scores, "none": []})
    edges, counts = found["edges"], found["counts"]["all"]
    assert (len(edges), sum(counts), found["counts"]["none"]) == (len(counts) + 1, len(scores), [0] * len(counts))
    for number, count in enumerate(counts):
        low = 0.0 if number == 0 else edges[number]
        high = 1.1 if number == len(counts) - 1 else edges[number + 1]
        assert count == sum(low <= score < high for score in scores)


def test_tenths_say_how_many_are_answers() -> None:
    found = calibration([0.95, 1.0, 0.11], [0.12, 0.19, 0.0])
    assert [(each["low"], each["documents"], each["score"], each["answers"]) for each in found] == [
        (0.0, 1, 0.0, 0.0),
        (0.1, 3, 0.14, pytest.approx(1 / 3, abs=1e-6)),
        (0.9, 2, 0.975, 1.0),
    ]
    assert calibration([], []) == []


def test_a_histogram_has_answers_and_others() -> None:
    counts = curves(RESULTS, JUDGED, 0.3)["histogram"]["counts"]
    assert Counter({name: sum(values) for name, values in counts.items()}) == {"answers": 3, "others": 2}


def test_an_evaluation_is_a_dict_with_a_short_repr() -> None:
    figure = {"value": 0.934, "low": 0.9, "high": 1.0}
    report = {"queries": 2, "fields": {"words": {"measures": {}}, "fused": {"measures": {"nDCG@10": figure}}}}
    found = Evaluation(report | {"curves": curves(RESULTS, JUDGED, 0.3)})
    assert repr(found) == "Evaluation(2 queries, nDCG@10 0.934)"
    assert json.loads(json.dumps(found)) == found == pickle.loads(pickle.dumps(found))
    assert repr(Evaluation()) == "Evaluation(0 queries)"
