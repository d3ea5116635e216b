"""BM25 over arrays: exact, whatever the parts are, and without a step of Python's for each document."""

import gc
import random
import sys
from collections import Counter
from types import FrameType
from typing import Any

import numpy as np
import pytest
from vlmsearch_mocks.contracts.words import bm25

from vlmsearch.stores.postings import Postings, TextCounts, WordTable, grown, idf, max_score
from vlmsearch.stores.terms import query_terms

NAMES = ["w" + chr(97 + i // 26) + chr(97 + i % 26) + "q" for i in range(50)]


def draw_texts(count: int, seed: int = 1) -> list[str]:
    rng = random.Random(seed)
    shares = [1 / (i + 1) for i in range(50)]
    return [" ".join(rng.choices(NAMES, shares, k=rng.randint(1, 30))) for _ in range(count)]


def parts_of(texts: list[str], size: int) -> list[Postings]:
    return [
        Postings.of(range(start, min(start + size, len(texts))), texts[start : start + size], "none")
        for start in range(0, len(texts), size)
    ]


def same(first: Postings, second: Postings) -> bool:
    names = ("rows", "lengths", "keys", "starts", "places", "times")
    return all(np.array_equal(getattr(first, name), getattr(second, name)) for name in names)


@pytest.mark.parametrize("size", [1, 7, 400])
def test_scores_are_bm25_whatever_the_parts_are(size: int) -> None:
    texts = draw_texts(400)
    table = WordTable(parts_of(texts, size), None)
    for words in ([40], [3, 45], [1, 20, 49], [0, 1], [2, 5, 30, 31], [1, 1, 20, 30, 30, 30, 2]):
        said = [NAMES[i] for i in words]
        exact, highest = bm25(texts, said)
        asked = query_terms(" ".join(said), "none")
        places, scores, terms = table.best(asked, 400)
        assert dict(zip(places.tolist(), scores.tolist())) == pytest.approx(exact, rel=1e-5)
        assert max_score(terms, table.texts) == pytest.approx(highest)
        order = list(zip((-scores).tolist(), places.tolist()))
        assert order == sorted(order), "equal scores are in the order of the places"
        for limit in (1, 3, 50):
            assert table.best(asked, limit)[0].tolist() == places[:limit].tolist()
        some = np.arange(0, 400, 3)
        compared, _ = table.scores(asked, some)
        assert compared.tolist() == pytest.approx([exact.get(int(place), 0.0) for place in some], rel=1e-5)


def test_what_is_not_there_any_more_counts_for_nothing() -> None:
    texts = draw_texts(300)
    alive = np.random.default_rng(0).random(300) < 0.6
    left = [text for text, is_there in zip(texts, alive) if is_there]
    table = WordTable(parts_of(texts, 64), alive)
    anew = WordTable(parts_of(left, 64), None)
    asked = query_terms(" ".join(NAMES[:4]), "none")
    (places, scores, terms), (_, wanted, other_terms) = table.best(asked, 300), anew.best(asked, 300)
    assert terms == other_terms
    assert scores.tolist() == pytest.approx(wanted.tolist(), rel=1e-5)
    assert alive[places].all()
    passing = np.arange(300) % 2 == 0
    places, _, filtered = table.best(asked, 300, passing)
    assert filtered == terms, "a filter does not change what a word is worth"
    assert (places % 2 == 0).all()


def test_parts_that_are_joined_are_those_made_at_once() -> None:
    texts = draw_texts(500)
    whole = Postings.of(range(500), texts, "none")
    parts = parts_of(texts, 9)
    assert same(Postings.joined(parts), whole)
    joined = grown((), parts)
    assert len(joined) < 10
    assert same(Postings.joined(joined), whole)
    assert sum(part.digest() for part in parts) % 2**64 == whole.digest()


def test_what_is_left_out_is_as_if_it_had_never_been_there() -> None:
    texts = draw_texts(120)
    kept = np.arange(120) % 3 != 0
    rows = np.flatnonzero(kept)
    anew = Postings.of(rows.tolist(), [texts[row] for row in rows], "none")
    assert same(Postings.of(range(120), texts, "none").only(kept), anew)


@pytest.mark.parametrize("change", ["a word more", "a word less", "another word", "another row"])
def test_a_digest_tells_every_change(change: str) -> None:
    texts = draw_texts(50)
    whole = Postings.of(range(50), texts, "none").digest()
    other = list(texts)
    other[20] = {"a word more": texts[20] + " more", "a word less": texts[20][5:], "another word": "x" + texts[20]}.get(
        change, texts[20]
    )
    rows = [*range(20), 99, *range(21, 50)] if change == "another row" else range(50)
    order = sorted(range(50), key=rows.__getitem__)
    assert Postings.of([rows[i] for i in order], [other[i] for i in order], "none").digest() != whole


def test_a_word_that_is_there_more_than_255_times_counts_as_often() -> None:
    texts = ["dog " * 1000 + "cat " * 9000, "dog cat", *["bird"] * 5]
    scores, _ = bm25(texts, ["dog"])
    places, values, _ = WordTable(parts_of(texts, 3), None).best(query_terms("dog", "none"), 9)
    assert dict(zip(places.tolist(), values.tolist())) == pytest.approx(scores, rel=1e-5)


def test_stems_of_several_languages_are_one_term() -> None:
    texts = ["zwei Häuser und ein Haus sind am See", "the hauser family", "nothing here", *["x"] * 6]
    table = WordTable([Postings.of(range(len(texts)), texts, "auto")], None)
    places, _, terms = table.best(query_terms("Häuser", "auto"), 9)
    assert sorted(places.tolist()) == [0, 1]
    assert [term.holding for term in terms] == [TextCounts(2, 0)]


def test_documents_without_words_count_for_nothing() -> None:
    table = WordTable([Postings.of(range(3), ["", "dog", "!"], "auto")], None)
    places, _, terms = table.best(query_terms("dog", "auto"), 9)
    assert places.tolist() == [1]
    assert (terms[0].holding, table.texts) == (TextCounts(1, 0), TextCounts(1, 0))
    assert idf(TextCounts(1, 0), TextCounts(3, 0)) == pytest.approx(np.log(22.5 / 1.5)), "with 20 others"
    empty = WordTable([], None)
    assert empty.best(query_terms("dog", "auto"), 9)[0].tolist() == []
    assert empty.scores(query_terms("dog", "auto"), np.array([], np.int64))[0].tolist() == []


def test_the_work_of_a_search_in_python_does_not_grow_with_the_postings() -> None:
    def steps(count: int) -> int:
        texts = ["a dog in the snow", "a cat in the rain"] * (count // 2)
        table = WordTable([Postings.of(range(count), texts, "auto")], None)
        asked = query_terms("dog cat snow", "auto")
        seen = Counter[str]()

        def trace(frame: FrameType, event: str, argument: object) -> Any:
            seen[event] += 1
            return trace

        before = sys.gettrace()
        gc.disable()  # a collection calls what other tests' libraries have it call, and that would be counted
        sys.settrace(trace)
        try:
            table.best(asked, 10)
        finally:
            sys.settrace(before)
            gc.enable()
        return seen.total()

    assert steps(20_000) <= steps(200) + 10


def test_joined_parts_whose_rows_lie_between_each_other_are_those_of_one() -> None:
    texts = draw_texts(90)
    parts = [Postings.of(range(i, 90, 4), texts[i::4], "none") for i in range(4)]
    assert same(Postings.joined(parts), Postings.of(range(90), texts, "none"))


def test_a_document_of_known_words_takes_few_calls_of_python() -> None:
    texts = [f"The dogs and {text} run on the beach of a town." for text in draw_texts(50)]
    Postings.of(range(50), texts, "auto")
    calls = 0

    def count(_frame: FrameType, event: str, _argument: Any) -> None:
        nonlocal calls
        calls += event == "call"

    sys.setprofile(count)
    try:
        Postings.of(range(50), texts, "auto")
    finally:
        sys.setprofile(None)
    assert calls < 10 * 50
