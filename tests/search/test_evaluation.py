"""Measures against figures that were computed by hand or by scipy; comparing and tuning on planted searches."""

import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
from typing_extensions import Unpack

from vlmsearch.errors import ConfigError
from vlmsearch.search import evaluation
from vlmsearch.search.evaluation import (
    FUSED,
    NO_MATCH_PRECISION,
    NO_MATCH_RECALL,
    SHOWN_F1,
    Difference,
    QueryResult,
    compare,
    estimate,
    measure,
    ranking_values,
)
from vlmsearch.search.judged import JudgedQuery
from vlmsearch.search.options import ManyKeywords
from vlmsearch.search.query import Query
from vlmsearch.types import WORDS, Document, FieldScore, Match, Matches, Space

SPACES = (Space("clip", 4, frozenset({"text", "image"})), Space("minilm", 3, frozenset({"text"})))
VECTORS = "minilm/text"


def _text_of(query: str | Query) -> str:
    return query if isinstance(query, str) else str(query.text)


class Planted:
    """Finds what it is told: a value by query, field and id; scores are the weighted means of a document's fields."""

    def __init__(self, values: Mapping[str, Mapping[str, Mapping[str, float]]]) -> None:
        self.values = values
        self.asked: list[tuple[str, Mapping[str, float] | None]] = []

    def search_many(self, queries: Iterable[str | Query], **options: Unpack[ManyKeywords]) -> list[Matches]:
        assert options["min_score"] == 0, "what is not shown is measured too"
        return [self._search(_text_of(query), options["limit"], options["weights"]) for query in queries]

    def _search(self, text: str, limit: int, weights: Mapping[str, float] | None) -> Matches:
        self.asked.append((text, weights))
        fields = self.values[text]
        shares = {field: (weights or {}).get(field, 1.0) for field in fields}
        matches = []
        for id in {id for found in fields.values() for id in found}:
            score = sum(share * fields[field].get(id, 0.0) for field, share in shares.items()) / sum(shares.values())
            found = {
                field: FieldScore(1, fields[field][id]) for field in fields if shares[field] and id in fields[field]
            }
            matches.append(Match(Document(id), score, found))
        return Matches(tuple(sorted(matches, key=lambda match: (-match.score, match.document.id))[:limit]))


def test_measures_of_a_ranking_are_those_computed_by_hand() -> None:
    rankings = {"1": ["b", "x", "a"], "2": ["x", *"yzuvwrst", "q", "a"], "3": [], "4": ["a"]}
    judged: dict[str, dict[str, int]] = {"1": {"a": 2, "b": 1}, "2": {"a": 1}, "3": {"a": 1}, "4": {}}
    values = ranking_values(rankings, judged, 10)
    assert {name: set(each) for name, each in values.items()} == {
        name: {"1", "2", "3"} for name in ("precision@1", "recall@10", "nDCG@10", "MRR@10")
    }, "what nothing answers has no ranking"
    assert values["nDCG@10"]["1"] == pytest.approx((1 + 2 / 2) / (2 + 1 / math.log2(3)))
    assert [values[name]["1"] for name in ("precision@1", "recall@10", "MRR@10")] == [1, 1, 1]
    assert {name: values[name]["2"] for name in values} == dict.fromkeys(values, 0.0), "only ten count"
    assert {name: values[name]["3"] for name in values} == dict.fromkeys(values, 0.0)
    assert ranking_values({"1": ["x", "b"]}, judged, 2)["MRR@2"]["1"] == pytest.approx(0.5)


def test_trec_eval_sees_numbers_in_place_of_ids(monkeypatch: pytest.MonkeyPatch) -> None:
    calculate = Mock(return_value=[])
    monkeypatch.setattr("ir_measures.iter_calc", calculate)
    ranking_values({"é": ["b", "ö"]}, {"é": {"ö": 2}}, 10)
    seen = calculate.call_args.args[1:]
    assert seen == ({"0": {"0": 2}}, {"0": {"1": 0.0, "0": -1.0}}), "ids that are no text end the process there"


def test_what_is_shown_is_measured_on_queries_with_and_without_an_answer() -> None:
    queries = [
        JudgedQuery("both", {"a": 1, "b": 1}, "x"),
        JudgedQuery("none shown", {"a": 1}, "x"),
        JudgedQuery("rightly none", {}, "x"),
        JudgedQuery("wrongly some", {}, "x"),
    ]
    found = {
        "both": QueryResult({"a": 0.9, "x": 0.6, "b": 0.4}, 0.1),
        "none shown": QueryResult({"a": 0.3}, 0.2),
        "rightly none": QueryResult({"a": 0.49}, 0.3),
        "wrongly some": QueryResult({"a": 0.5}, 0.4),
    }
    got = measure(found, queries, limit=10, threshold=0.5)
    assert got.values[SHOWN_F1] == {
        "both": pytest.approx(2 * 0.5 * 0.5 / (0.5 + 0.5)),
        "none shown": 0,
        "rightly none": 1,
        "wrongly some": 0,
    }
    assert got.estimates[SHOWN_F1].value == pytest.approx(1.5 / 4)
    assert got.estimates[NO_MATCH_PRECISION].value == pytest.approx(1 / 2)
    assert got.estimates[NO_MATCH_RECALL].value == pytest.approx(1 / 2)
    assert got.estimates["recall@10"].queries == 2
    assert [got.p50, got.p95] == pytest.approx([0.25, 0.385])
    answered = measure({"both": found["both"]}, queries[:1], limit=10, threshold=0.5)
    assert not {NO_MATCH_PRECISION, NO_MATCH_RECALL} & answered.estimates.keys(), "nothing to measure"


def test_an_interval_is_as_wide_as_theory_has_it() -> None:
    got = estimate([0.0, 1.0] * 200)
    error = 1.96 * math.sqrt(0.25 / 400)
    assert (got.value, got.queries) == (0.5, 400)
    assert [got.low, got.high] == pytest.approx([0.5 - error, 0.5 + error], abs=0.006)
    same = estimate([0.25] * 7)
    assert (same.value, same.low, same.high) == (0.25, 0.25, 0.25)
    share = estimate([1.0, 0.0, 0.0], np.array([1.0, 1.0, 0.0]))
    assert (share.value, share.queries) == (0.5, 2)


@pytest.mark.parametrize(("gain", "is_significant"), [(0.0, False), (0.03, False), (0.15, True)])
def test_a_difference_has_the_p_of_the_randomisation_test(gain: float, is_significant: bool) -> None:
    from scipy import stats

    random = np.random.default_rng(1)
    first = random.random(60)
    second = first + random.normal(gain, 0.2, 60)
    got = compare("m", *({str(n): float(value) for n, value in enumerate(each)} for each in (first, second)))
    theirs = stats.permutation_test(
        (second - first,), np.mean, permutation_type="samples", n_resamples=20_000, rng=np.random.default_rng(2)
    )
    assert got.p == pytest.approx(theirs.pvalue, abs=0.01)
    assert (got.p < 0.05) is is_significant
    assert got.low <= got.after - got.before <= got.high
    assert (got.low > 0) is is_significant


def test_queries_are_compared_by_their_ids() -> None:
    same = compare("m", {"b": 0.0, "a": 1.0}, {"a": 1.0, "b": 0.0})
    assert (same.before, same.after, same.p) == (0.5, 0.5, 1.0)
    with pytest.raises(
        ConfigError, match="m was measured of 2 queries before and is of 2 now, of which 1 are the same"
    ):
        compare("m", {"a": 0, "b": 0}, {"a": 0, "c": 0})


def test_drops_are_corrected_for_how_many_are_looked_at() -> None:
    def difference(measure: str, after: float, p: float) -> Difference:
        return Difference(measure, 0.5, after, 0, 0, p)

    lower = [difference("a", 0.4, 0.03), difference("b", 0.4, 0.04)]
    assert evaluation.drops(lower, ["a", "b"]) == []
    assert evaluation.drops(lower, ["a"]) == lower[:1], "the other is not looked at"
    both = [difference("a", 0.4, 0.04), difference("b", 0.4, 0.02)]
    assert evaluation.drops(both, ["a", "b"]) == [both[1], both[0]]
    assert evaluation.drops([difference("a", 0.6, 0.001)], ["a"]) == [], "a gain"


def test_each_field_is_measured_alone_on_the_queries_that_ask_it() -> None:
    queries = [JudgedQuery("1", {"a": 1}, "one"), JudgedQuery("2", {"b": 1}, "two")]
    fields = evaluation.asked_fields(queries, SPACES, has_words=True)
    assert {field: sorted(ids) for field, ids in fields.items()} == {
        "clip/image": ["1", "2"],
        VECTORS: ["1", "2"],
        WORDS: ["1", "2"],
    }
    planted = Planted(
        {
            "one": {VECTORS: {"b": 0.9, "a": 0.1}, WORDS: {"a": 1.0}},
            "two": {VECTORS: {"b": 0.9}, WORDS: {"b": 0.2, "a": 1.0}},
        }
    )
    found = evaluation.evaluate(planted, queries, {VECTORS: {"1", "2"}, WORDS: {"2"}}, limit=10, threshold=0.5)
    assert list(found) == [VECTORS, WORDS, FUSED]
    assert found[VECTORS].values["MRR@10"] == {"1": 0.5, "2": 1}
    assert found[WORDS].values["MRR@10"] == {"2": 0.5}
    assert found[FUSED].values["precision@1"] == {"1": 1, "2": 1}, "0.55 before 0.45 and 0.5"
    assert set(found[WORDS].results["2"].scores) == {"a", "b"}
    assert ("two", {VECTORS: 0.0, WORDS: 1.0}) in planted.asked
    assert ("one", {VECTORS: 0.0, WORDS: 1.0}) not in planted.asked
    assert ("one", None) in planted.asked, "fused as the index has it"


def test_what_another_field_found_is_left_out_of_a_field() -> None:
    planted = Planted({"one": {VECTORS: {"b": 0.9}, WORDS: {"a": 1.0}}})
    queries = [JudgedQuery("1", {"a": 1}, "one")]
    found = evaluation.search_all(planted, queries, limit=10, weights={VECTORS: 1, WORDS: 0}, only=VECTORS)
    assert list(found["1"].scores) == ["b"]


def test_queries_are_asked_as_they_are_in_batches_or_one_by_one() -> None:
    planted = Planted({"a -b": {VECTORS: {"a": 0.9}}, "c": {VECTORS: {"c": 0.8}}, "d": {VECTORS: {}}})
    queries = queries_of({"a -b": "a", "c": "c", "d": None})
    one_by_one = evaluation.search_all(planted, queries, limit=10)
    batches = evaluation.search_all(planted, queries, limit=10, batch=2)
    expected = {"a -b": {"a": 0.9}, "c": {"c": 0.8}, "d": {}}
    assert {id: found.scores for id, found in one_by_one.items()} == expected
    assert {id: found.scores for id, found in batches.items()} == expected
    asked = [text for text, _ in planted.asked]
    assert asked == ["a -b", "a -b", "c", "d", "a -b", "a -b", "c", "d"], "the first once more before"


def test_an_image_asks_other_fields() -> None:
    queries = [JudgedQuery("1", {}, None, Path("a.png")), JudgedQuery("2", {}, "two")]
    assert evaluation.asked_fields(queries, SPACES, has_words=False) == {
        "clip/image": {"1", "2"},
        "clip/text": {"1"},
        VECTORS: {"2"},
    }


def test_weights_to_try_sum_to_the_number_of_fields_with_equal_ones_first() -> None:
    assert evaluation.lattice(["a"]) == [{"a": 1}]
    two = evaluation.lattice(["a", "b"])
    assert two[0] == {"a": 1, "b": 1}
    assert {(each["a"], each["b"]) for each in two} == {(round(n / 5, 4), round(2 - n / 5, 4)) for n in range(11)}
    for count in (3, 4, 5):
        tried = evaluation.lattice([str(field) for field in range(count)])
        assert set(tried[0].values()) == {1}
        assert all(sum(each.values()) == pytest.approx(count) for each in tried)
        assert (
            len({tuple(each.values()) for each in tried})
            == len(tried)
            == math.comb({3: 6}.get(count, count) + count - 1, count - 1)
        )


def test_every_part_has_its_share_of_queries_without_an_answer() -> None:
    queries = [JudgedQuery(str(n), {} if n % 4 == 0 else {"a": 1}, "x") for n in range(40)]
    parts = evaluation.split(queries)
    assert sorted(id for part in parts for id in part) == sorted(query.id for query in queries)
    assert [len(part) for part in parts] == [8] * 5
    assert [sum(int(id) % 4 == 0 for id in part) for part in parts] == [2] * 5


def queries_of(answers: Mapping[str, str | None]) -> list[JudgedQuery]:
    return [JudgedQuery(text, {answer: 1} if answer else {}, text) for text, answer in answers.items()]


def test_tuning_takes_the_field_that_misleads_out_and_moves_the_threshold() -> None:
    """Words put a wrong document first by far; what nothing answers is found with up to 0.6, the rest with 0.8."""
    right = {f"q{n}": f"right{n}" for n in range(30)}
    none = [f"n{n}" for n in range(20)]
    planted = Planted(
        {text: {VECTORS: {answer: 0.8, "wrong": 0.1}, WORDS: {"wrong": 1.0}} for text, answer in right.items()}
        | {text: {VECTORS: {"wrong": 0.6}, WORDS: {"other": 1.0}} for text in none}
    )
    queries = queries_of({**right, **dict.fromkeys(none)})
    fields = {VECTORS: {query.id for query in queries}, WORDS: {query.id for query in queries}}
    searches: list[None] = []
    got = evaluation.tune(planted, queries, fields, present={}, limit=10, on_search=lambda: searches.append(None))
    assert got.order is not None
    assert got.order.before == pytest.approx(1 / math.log2(3)), "second, behind what words found"
    assert got.order.after == 1
    assert got.order.p < 0.001
    assert got.values[VECTORS] > got.values[WORDS]
    share = got.values[VECTORS] / 2
    assert max(share * 0.6, 1 - share) < got.values["min_score"] <= share * 0.8
    assert (got.shown.after, got.parts) == (1, 5)
    assert got.shown.before < 0.5
    assert len(searches) == len(queries) * (1 + len(evaluation.lattice(list(fields))))


def test_tuning_leaves_what_cannot_be_bettered() -> None:
    right = {f"q{n}": f"right{n}" for n in range(10)}
    planted = Planted({text: {VECTORS: {answer: 0.9}, WORDS: {answer: 0.9}} for text, answer in right.items()})
    fields = {VECTORS: set(right), WORDS: set(right)}
    got = evaluation.tune(planted, queries_of(right), fields, present={}, limit=10)
    assert got.values == {}
    assert got.order is not None
    assert got.order.p == got.shown.p == 1


def test_tuning_by_chance_alone_gains_nothing_on_queries_left_out() -> None:
    """Which of the fields is right is drawn for each query."""
    random = np.random.default_rng(0)
    values = {}
    for number in range(60):
        first = bool(random.integers(2))
        high, low = {"right": 0.9, "wrong": 0.5}, {"right": 0.5, "wrong": 0.9}
        values[f"q{number}"] = {VECTORS: high if first else low, WORDS: low if first else high}
    queries = queries_of(dict.fromkeys(values, "right"))
    fields = {VECTORS: set(values), WORDS: set(values)}
    got = evaluation.tune(Planted(values), queries, fields, present={}, limit=1)
    assert got.order is not None
    assert abs(got.order.after - got.order.before) < 0.2
    assert got.order.p > 0.01


def test_a_threshold_alone_keeps_the_weights_that_are_there() -> None:
    right = {f"q{n}": f"right{n}" for n in range(20)}
    planted = Planted({text: {VECTORS: {answer: 0.3}} for text, answer in right.items()})
    present = {VECTORS: 0.7, "min_score": 0.9}
    got = evaluation.tune(planted, queries_of(right), {VECTORS: set(right)}, present=present, limit=10)
    assert got.values.keys() == {VECTORS, "min_score"}
    assert got.values[VECTORS] == 0.7
    assert 0.01 < got.values["min_score"] < 0.1, "the middle one of those up to 0.3, in log-odds"


def test_tuning_needs_some_queries() -> None:
    with pytest.raises(ConfigError, match="tuning needs at least 10 queries, better a hundred; there are 1"):
        evaluation.tune(Planted({}), queries_of({"a": "b"}), {}, present={}, limit=10)
