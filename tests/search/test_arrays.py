"""Counts, facets and orders from arrays are those that documents one by one give."""

import random
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from vlmsearch_mocks import MemoryStore, MockEncoder

from vlmsearch import Document, Matches, Pipeline, Query
from vlmsearch.search import arrays
from vlmsearch.search.fusion import LogOdds, add_up
from vlmsearch.search.relevance import Evidence
from vlmsearch.stores.sqlite import codes
from vlmsearch.stores.sqlite.store import SqliteStore

WORDS = ["red", "blue", "green", "star", "ring", "heart", "sea", "sand", "tree", "rock"]


def documents(count: int) -> list[Document]:
    rng = random.Random(3)
    made = []
    for i in range(count):
        text = " ".join(rng.choices(WORDS, k=rng.randint(1, 6))) if i % 7 else None
        metadata: dict[str, Any] = {"year": 2000 + rng.randint(0, 5), "even": i % 2 == 0, "tag": rng.choice("abc")}
        metadata |= {"mixed": [1, 1.5, "one", True][i % 4]} if i % 3 else {}
        id = f"file-{i // 4}.pdf#page={i % 4 + 1}" if i % 5 == 0 else f"id-{i:03}"
        image = np.random.default_rng(i).integers(0, 255, (16, 16, 3), np.uint8) if i % 3 == 0 or not text else None
        from PIL import Image

        made.append(Document(id, text, None if image is None else Image.fromarray(image), metadata))
    made.append(Document("file-0.pdf", text="red star", metadata={"year": 1999}))
    return made


@pytest.fixture(scope="module", params=["codes", "signs"])
def both(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> "Iterator[tuple[Pipeline, Pipeline]]":
    """The same documents in SQLite, which has an overview, and in memory, which has none."""
    path = tmp_path_factory.mktemp("whole") / "index"
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "signs":
            patch.setattr(codes, "_MANY", 1)
            patch.setattr(codes, "_FEW", 1)
        yield from opened(path)


def opened(path: Path) -> "Iterator[tuple[Pipeline, Pipeline]]":
    with Pipeline(MockEncoder(), SqliteStore(str(path))) as fast, Pipeline(MockEncoder(), MemoryStore()) as slow:
        for pipeline in (fast, slow):
            pipeline.add(documents(400))
            pipeline.add(Document(f"id-{i:03}", text="gone") for i in range(1, 40) if i % 5)
            pipeline.delete(f"id-{i:03}" for i in range(1, 40) if i % 5)
        yield fast, slow


def told(matches: Matches) -> tuple[object, ...]:
    return matches.total, {key: dict(counts) for key, counts in matches.facets.items()}


OPTIONS: list[dict[str, Any]] = [
    {},
    {"min_score": 0.0},
    {"min_score": 0.6},
    {"group": False},
    {"where": {"year": {"$gte": 2003}}},
    {"where": {"tag": {"$in": ["a", "b"]}, "even": True}},
    {"weights": {"words": 0.0}},
    {"weights": {"clip/image": 0.3, "words": 2.0}},
]


@pytest.mark.parametrize("options", OPTIONS, ids=map(str, OPTIONS))
def test_counts_and_facets_are_the_same(both: tuple[Pipeline, Pipeline], options: dict[str, Any]) -> None:
    fast, slow = both
    facets = ["year", "even", "tag", "mixed", "nothing"]
    for query in ("red star", "a ring of green hearts by the sea", "nowhere", "star -red"):
        wanted = slow.search(query, count=True, facets=facets, **options)
        found = fast.search(query, count=True, facets=facets, **options)
        assert told(found) == told(wanted), query
        assert [match.document.id for match in found] == [match.document.id for match in wanted]
        for key, counts in found.facets.items():
            assert list(counts.items()) == list(wanted.facets[key].items()), "in their order, too"


@pytest.mark.parametrize("options", OPTIONS, ids=map(str, OPTIONS))
def test_first_pages_are_the_same(both: tuple[Pipeline, Pipeline], options: dict[str, Any]) -> None:
    fast, slow = both
    pages: list[dict[str, Any]] = [{"limit": 3}, {"limit": 1, "offset": 4}, {"limit": 20}]
    for query in ("red star", "a ring of green hearts by the sea", "nowhere", "star -red"):
        for page in pages:
            wanted, found = (pipeline.search(query, **page, **options) for pipeline in (slow, fast))
            assert [match.document.id for match in found] == [match.document.id for match in wanted], (query, page)
            for match, expected in zip(found, wanted):
                assert match.score == pytest.approx(expected.score, abs=1e-5)
                assert match.parts == pytest.approx(expected.parts, abs=1e-5)
                values = {name: said.score for name, said in expected.fields.items()}
                assert {name: said.score for name, said in match.fields.items()} == pytest.approx(values, abs=1e-4)


@pytest.mark.parametrize("sort", ["year", "-year", "tag", "-mixed", "mixed", "even", "nothing"])
def test_orders_by_a_key_are_the_same_page_by_page(both: tuple[Pipeline, Pipeline], sort: str) -> None:
    fast, slow = both
    asked: list[tuple[str, dict[str, Any]]] = [
        ("red star", {}),
        ("green heart", {"min_score": 0.0, "where": {"even": False}}),
    ]
    for query, options in asked:
        wanted = slow.search(query, sort=sort, limit=1000, **options)
        pages = [fast.search(query, sort=sort, limit=17, **options)]
        while pages[-1].cursor:
            pages.append(fast.search(query, sort=sort, limit=17, cursor=pages[-1].cursor, **options))
        found = [match for page in pages for match in page]
        assert {match.document.id for match in found} == {match.document.id for match in wanted}
        key = sort.removeprefix("-")
        values = [match.document.metadata.get(key) for match in found]
        assert values == [match.document.metadata.get(key) for match in wanted]
        scores = {match.document.id: match.score for match in wanted}
        assert {match.document.id: match.score for match in found} == pytest.approx(scores, abs=1e-5)
        assert all(match.fields for match in found)
        skipped = fast.search(query, sort=sort, limit=5, offset=7, **options)
        assert [match.document.id for match in skipped] == [match.document.id for match in found[7:12]]


def test_what_a_query_names_or_leaves_out_is_not_counted(both: tuple[Pipeline, Pipeline]) -> None:
    fast, slow = both
    for query in (
        Query(like=("id-101",)),
        Query("star", without=(Query("red sea"),)),
        Query("star", without=(Query(like=("id-101", "id-102")),)),
    ):
        (wanted,), (found,) = (p.search_many([query], count=True, facets=["tag"]) for p in (slow, fast))
        assert told(found) == told(wanted)


def test_a_count_does_not_end_at_ten_thousand(tmp_path: Path) -> None:
    with Pipeline(MockEncoder(), SqliteStore(str(tmp_path / "index"))) as pipeline:
        pipeline.add(Document(str(i), text="a red star", metadata={"even": i % 2 == 0}) for i in range(10_500))
        matches = pipeline.search("red star", limit=3, facets=["even"], count=True)
        assert (matches.total, dict(matches.facets["even"])) == (10_500, {False: 5250, True: 5250})
        last = pipeline.search("red star", sort="even", limit=3)
        assert [match.document.metadata["even"] for match in last] == [False] * 3


def test_a_word_that_all_documents_say_does_not_have_all_of_them_judged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bounds tell that they cannot be among the best."""
    judged = [0]

    def counted(
        values: Mapping[str, NDArray[np.float64]],
        has_text: NDArray[np.bool_],
        shares: Mapping[str, float],
        evidence: Mapping[str, Evidence],
    ) -> LogOdds:
        judged[0] += 0 if evidence["words"].is_upper else len(has_text)
        return add_up(values, has_text, shares, evidence)

    monkeypatch.setattr(arrays, "_BLOCK", 256)
    with Pipeline(MockEncoder(), SqliteStore(str(tmp_path / "index"))) as pipeline:
        colours = ["red", "green", "blue", "white", "black", "grey"]
        pipeline.add(Document(f"{i}", text=f"a {colours[i % 6]} door, number {i % 500}") for i in range(2000))
        pipeline.search("number 77")
        monkeypatch.setattr(arrays, "add_up", counted)
        matches = pipeline.search("number 77", limit=3)
    assert {match.document.id for match in matches} < {"77", "577", "1077", "1577"}
    assert 0 < judged[0] < 500


@pytest.mark.parametrize("seed", range(40))
def test_no_document_says_more_than_its_kind(seed: int) -> None:
    rng = np.random.default_rng(seed)
    scores = (rng.gamma(0.7, 10 ** rng.uniform(-4, 3), 5000) * (rng.random(5000) < 0.6)).astype(np.float32)
    kinds, highest = arrays.kinds_of(scores)
    assert (highest[kinds] >= scores).all()
    assert ((kinds == 0) == (scores == 0)).all()
    assert (highest[np.maximum(kinds, 1) - 1] <= scores * (1 + 1e-4)).all()


def test_documents_without_words_are_of_one_kind() -> None:
    kinds, highest = arrays.kinds_of(np.zeros(7, np.float32))
    assert (highest[kinds] == 0).all()
