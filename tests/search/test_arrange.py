"""The order of relevant matches, other than by their scores."""

from collections.abc import Mapping

import numpy as np
import pytest

from vlmsearch import Document, Field, Match, Record, Scalar
from vlmsearch.search.arrange import MAX_PARTS, count_values, diversify, group_parts, sort_by_key

A, B = Field("clip", "image"), Field("minilm", "text")


def match(id: str, score: float = 0.5, metadata: Mapping[str, Scalar] | None = None) -> Match:
    return Match(Document(id, metadata=metadata or {}), score, {})


def ids(matches: list[Match]) -> str:
    return "".join(each.document.id for each in matches)


VALUES: dict[str, Scalar] = {"a": 3, "b": "x", "c": 1.5, "d": True, "e": "B", "f": 3.0, "g": False}


def test_values_are_sorted_within_their_kind_and_documents_without_the_key_are_last() -> None:
    given = [match("n"), *(match(id, metadata={"k": value}) for id, value in VALUES.items()), match("m")]
    assert ids(sort_by_key(given, "k")) == "cafebgdnm"
    assert ids(sort_by_key(given, "-k")) == "afcbedgnm"


def test_values_are_counted_the_most_frequent_first() -> None:
    given = [match(str(i), metadata={"year": year}) for i, year in enumerate((2019, 2020, 2020, 2020.0, 2018))]
    counts = count_values([*given, match("x", metadata={"city": "Oslo"})], ["year", "city", "none"])
    assert counts == {"year": {2020: 3, 2019: 1, 2018: 1}, "city": {"Oslo": 1}, "none": {}}
    assert list(counts["year"]) == [2020, 2018, 2019]


def record(id: str, **vectors: list[float]) -> Record:
    fields = {"a": A, "b": B}
    return Record(Document(id), {fields[name]: np.array(vector, np.float32) for name, vector in vectors.items()})


def test_the_next_match_is_relevant_and_unlike_those_before_it() -> None:
    given = [match("p", 0.9), match("q", 0.8), match("r", 0.7), match("s", 0.2)]
    records = {
        "p": record("p", a=[1, 0]),
        "q": record("q", a=[1, 0]),  # the same picture
        "r": record("r", a=[0, 1]),
        "s": record("s", a=[-1, 0]),
    }
    assert ids(diversify(given, records, 0.0)) == "pqrs"
    assert ids(diversify(given, records, 0.3)) == "prqs"
    assert ids(diversify(given, records, 0.5)) == "psrq"  # after p: q -0.1, r 0.35, s 0.6; then r 0.35, q -0.1


def test_only_fields_that_both_have_are_compared() -> None:
    given = [match("p", 0.9), match("q", 0.8), match("r", 0.7)]
    other = {"p": record("p", a=[1, 0]), "q": record("q", b=[1, 0]), "r": record("r", a=[1, 0], b=[0, 1])}
    assert ids(diversify(given, other, 0.5)) == "pqr"
    mean = {"p": record("p", a=[1, 0], b=[1, 0]), "q": record("q", a=[1, 0], b=[1, 0]), "r": other["r"]}
    assert ids(diversify(given, mean, 0.5)) == "prq"  # r resembles p by (1 + 0) / 2
    assert ids(diversify(given, {}, 0.9)) == "pqr"


def test_those_that_were_shown_come_first() -> None:
    given = [match("p", 0.9), match("q", 0.8), match("r", 0.7)]
    records = {"p": record("p", a=[1, 0]), "q": record("q", a=[0, 1]), "r": record("r", a=[1, 0])}
    assert ids(diversify(given, records, 0.5, first={"q"})) == "qpr"
    assert ids(diversify(given, records, 0.5, first={"r"})) == "rqp"


@pytest.mark.parametrize("diversity", [0.0, 0.5, 1.0])
def test_nothing_is_lost(diversity: float) -> None:
    rng = np.random.default_rng(5)
    given = [match(str(i), 1 - i / 50) for i in range(50)]
    records = {str(i): record(str(i), a=list(rng.normal(size=2))) for i in range(0, 50, 2)}
    found = diversify(given, records, diversity)
    assert sorted(ids(found)) == sorted(ids(given))
    assert found[0].document.id == "0"
    assert diversify([], {}, diversity) == []


def test_of_the_parts_of_a_file_the_best_is_kept_and_others_are_named() -> None:
    found = [
        ("a#page=2", 0.9),
        ("b", 0.8),
        ("a", 0.7),
        ("a#page=1", 0.6),
        ("b#page=1#xywh=0,0,1,1", 0.55),
        ("a#page=3", 0.2),
    ]
    kept, others = group_parts(found, 0.5)
    assert kept == [("a#page=2", 0.9), ("b", 0.8)]
    assert others == {"a#page=2": {"a": 0.7, "a#page=1": 0.6}, "b": {"b#page=1#xywh=0,0,1,1": 0.55}}


def test_a_page_is_shown_in_the_place_of_its_file_where_it_says_or_scores_nearly_as_much() -> None:
    found = [
        ("b", 0.9),
        ("c", 0.9),
        ("d", 0.9),
        ("b#page=3", 0.6),
        ("b#page=2", 0.5),
        ("c#page=1", 0.1),
        ("d#t=2.000", 0.1),
    ]
    kept, others = group_parts(
        found, 0.0, {"b": 9.0, "b#page=2": 1.0, "d": 4.0, "c": 4.0, "c#page=1": 1.5, "d#t=9.000": 2.5}
    )
    assert kept == [("b#page=3", 0.9), ("c", 0.9), ("d#t=9.000", 0.9)]
    assert others == {
        "b#page=3": {"b": 0.9, "b#page=2": 0.5},
        "c": {"c#page=1": 0.1},
        "d#t=9.000": {"d": 0.9, "d#t=2.000": 0.1},
    }


def test_messages_of_a_mailbox_are_kept_one_by_one_and_a_mail_is_shown_before_its_attachments() -> None:
    found = [("b#message=2&attachment=1", 0.9), ("b#message=1", 0.8), ("b#message=2", 0.7), ("b", 0.6)]
    kept, others = group_parts([*found, ("a", 0.5), ("a#attachment=1", 0.4)], 0.0, {"a": 2.0, "a#attachment=1": 1.9})
    assert kept == [("b#message=2&attachment=1", 0.9), ("b#message=1", 0.8), ("b", 0.6), ("a", 0.5)]
    assert others == {"b#message=2&attachment=1": {"b#message=2": 0.7}, "a": {"a#attachment=1": 0.4}}


def test_of_a_file_of_many_parts_the_first_are_named() -> None:
    many = [(f"a#page={number}", 1 - number / 1000) for number in range(1, 500)]
    kept, others = group_parts(many, 0.0)
    assert (kept, len(others["a#page=1"])) == (many[:1], MAX_PARTS)
    assert list(others["a#page=1"].items()) == many[1 : MAX_PARTS + 1]
