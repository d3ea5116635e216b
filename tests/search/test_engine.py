"""Searches of every kind, on several stores."""

import io
import random
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from vlmsearch_mocks import MemoryStore, MockEncoder

from vlmsearch import (
    ConfigError,
    Document,
    Field,
    Filter,
    Hit,
    InvalidInputError,
    Match,
    Matches,
    Pipeline,
    Query,
    Reranker,
    Scalar,
    Store,
)
from vlmsearch.registry import open_store
from vlmsearch.search import engine
from vlmsearch.search.fusion import DEPTH
from vlmsearch.search.relevance import THRESHOLD
from vlmsearch.stores.sqlite.overview import SqliteOverview
from vlmsearch.stores.sqlite.store import SqliteStore
from vlmsearch.types import ImageSource, Role, Vectors

COLOURS = ("red", "green", "blue", "yellow")
THINGS = ("star", "ring", "heart", "circle", "cross")


@pytest.fixture
def pipeline(store: Store) -> Pipeline:
    """Forty notes: a colour and a thing each, twice."""
    made = Pipeline(MockEncoder(), store)
    made.add(notes())
    return made


def notes() -> Iterator[Document]:
    pairs = [(colour, thing) for colour in COLOURS for thing in THINGS] * 2
    for i, (colour, thing) in enumerate(pairs):
        metadata: dict[str, Scalar] = {"colour": colour, "number": i}
        if i % 2 == 0:
            metadata["even"] = True
        yield Document(f"note-{i:02}", text=f"{colour} {thing}", metadata=metadata)


def ids(matches: Sequence[object]) -> list[str]:
    return [match.document.id for match in matches]  # type: ignore[attr-defined]


def texts(matches: Matches) -> set[str]:
    return {str(match.document.text) for match in matches}


# ---- the threshold


def test_what_is_below_the_threshold_is_not_shown(pipeline: Pipeline) -> None:
    found = pipeline.search("star", limit=40)
    assert texts(found) == {f"{colour} star" for colour in COLOURS}
    assert (len(found), found.threshold) == (8, THRESHOLD)
    assert all(match.score >= THRESHOLD for match in found)
    strict = pipeline.search("red star", min_score=0.999)
    assert texts(strict) == {"red star"}
    assert (len(strict), strict.threshold, strict.cursor) == (2, 0.999, None)
    assert list(pipeline.search("elephants")) == []
    assert len(pipeline.search("elephants", limit=40, min_score=0)) == 40


# ---- like


def test_more_like_documents_leaves_these_out(pipeline: Pipeline) -> None:
    found = pipeline.search(like="note-00", limit=40, min_score=0)
    assert found[0].document.text == "red star"
    assert len(found) == 39
    assert "note-00" not in ids(found)
    assert set(found[0].fields) == {"minilm/text", "clip/image"} & set(found[0].fields)
    assert found[0].fields["minilm/text"].score == pytest.approx(1, abs=1e-5)
    both = pipeline.search(like=["note-00", "note-06"], limit=40, min_score=0)  # red star, green ring
    assert {match.document.text for match in both[:6]} == {"red star", "green ring", "red ring", "green star"}
    mixed = pipeline.search("heart", like=["note-00"], limit=3)
    assert mixed[0].document.text == "red heart"
    assert "words" in mixed[0].fields
    assert all("words" not in match.fields for match in found)


def test_a_photo_is_like_photos_and_like_its_caption(tmp_path: Path) -> None:
    def picture(colour: str) -> bytes:
        path = tmp_path / f"{colour}.png"
        Image.new("RGB", (16, 16), colour).save(path)
        return path.read_bytes()

    with Pipeline(MockEncoder(), MemoryStore()) as pipeline:
        pipeline.add(Document(colour, image=picture(colour)) for colour in ("red", "darkred", "blue", "green"))
        pipeline.add(Document("captioned", text="a dog", image=picture("navy")))
        pipeline.add([Document("dog", text="a dog and a cat"), Document("car", text="some car")])
        fields = {match.document.id: match.fields for match in pipeline.search(like=["red"], limit=10, min_score=0)}
        assert fields["darkred"]["clip/image"].rank == 2  # itself is the first, and not in the result
        assert set(fields) == {"darkred", "blue", "green", "captioned", "dog", "car"}
        found = pipeline.search(like=["captioned"], limit=10, min_score=0)
        by = {match.document.id: match.fields for match in found}
        assert by["blue"]["clip/image"].rank == 2
        assert by["dog"]["minilm/text"].score > by["car"]["minilm/text"].score


@pytest.mark.parametrize("arguments", [{"like": ["note-00", "nobody"]}, {"text": "star", "without": ["nobody"]}])
def test_an_id_that_is_not_there_is_named(pipeline: Pipeline, arguments: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="has no document 'nobody': `like` and `without` name ids"):
        pipeline.search(**arguments)


# ---- without


def test_what_is_left_out_is_judged_in_every_candidate(pipeline: Pipeline) -> None:
    plain = pipeline.search("star", limit=40)
    assert texts(plain) == {f"{colour} star" for colour in COLOURS}
    for found in (pipeline.search("star", without="red"), pipeline.search("star -red")):
        assert texts(found) == {"green star", "blue star", "yellow star"}
        scores = {match.document.id: match.score for match in plain}
        assert all(match.score <= scores[match.document.id] for match in found)
        assert [match.score for match in found] == sorted((match.score for match in found), reverse=True)
    assert texts(pipeline.search('star -red -"green star" -blue')) == {"yellow star"}
    assert texts(pipeline.search('star -red -"green ring" -blue')) == {"green star", "yellow star"}, "near is not said"
    by_id = pipeline.search("star", without=["note-00"], limit=40)  # a red star: other stars are like it, too
    assert "note-00" not in ids(by_id)
    assert "red star" not in texts(by_id)


@pytest.mark.parametrize("language", ["auto", "en", "none", "de"])
def test_a_document_that_says_a_word_that_is_left_out_is_left_out_whatever_else_it_says(language: str) -> None:
    long = "star over the wide water with many boats, a harbour, some hills and one small red sail"
    with Pipeline(MockEncoder(), MemoryStore(language=language)) as pipeline:
        pipeline.add([Document("long", text=long), Document("short", text="star over water")])
        assert ids(pipeline.search("star over water", min_score=0)) == ["short", "long"]
        for without in ("sail", "the sail" if language in ("auto", "en") else "sail"):
            assert ids(pipeline.search("star over water", without=without, min_score=0)) == ["short"]
        assert ids(pipeline.search("star over water -sail", min_score=0)) == ["short"]
        assert ids(pipeline.search("star over water -sails", min_score=0)) == (
            ["short"] if language != "none" else ["short", "long"]
        )


def test_an_image_can_be_left_out() -> None:
    pictures = {colour: Image.new("RGB", (16, 16), colour) for colour in ("red", "darkred", "white", "pink")}
    with Pipeline(MockEncoder(), MemoryStore()) as pipeline:
        pipeline.add(Document(colour, image=picture) for colour, picture in pictures.items())
        found = pipeline.search(image=pictures["pink"], limit=4)
        assert set(ids(found)) == {"pink", "white"}
        assert ids(pipeline.search(image=pictures["pink"], without=pictures["white"], min_score=0)) == [
            "red",
            "darkred",
        ]


def test_a_page_is_full_however_many_of_the_best_are_left_out(tmp_path: Path) -> None:
    with Pipeline(MockEncoder(), SqliteStore(str(tmp_path / "index"))) as pipeline:
        pipeline.add(Document(f"best-{i:03}", text="red star") for i in range(350))
        pipeline.add(Document(f"good-{i:03}", text="star over water") for i in range(30))
        assert {id[:4] for id in ids(pipeline.search("star", limit=100))} == {"best"}
        found = pipeline.search("star", without="red", limit=20)
        assert {id[:4] for id in ids(found)} == {"good"}
        assert len(found) == 20
        assert {id[:4] for id in ids(pipeline.search("star", without="star over water"))} == {"best"}
        assert list(pipeline.search("star", without="stars")) == []


# ---- pages


@pytest.mark.parametrize(
    "options", [{}, {"sort": "-number"}, {"diversity": 0.4}, {"where": {"colour": "red"}}, {"weights": {"words": 0}}]
)
def test_pages_are_the_parts_of_one_long_one(pipeline: Pipeline, options: dict[str, Any]) -> None:
    options = {"min_score": 0} | options
    whole = pipeline.search("red star", limit=40, **options)
    assert whole.cursor is None
    pages = [pipeline.search("red star", limit=7, **options)]
    while pages[-1].cursor:
        pages.append(pipeline.search("red star", limit=7, cursor=pages[-1].cursor, **options))
    assert [match for page in pages for match in page] == list(whole)
    assert [len(page) for page in pages[:-1]] == [7] * (len(pages) - 1)
    assert pages[-1]
    passed = pipeline.search("red star", limit=3, offset=5, **options)
    assert passed.matches == whole[5:8]
    assert passed.cursor is not None
    rest = pipeline.search("red star", limit=40, cursor=passed.cursor, **options)
    assert rest.matches == whole[8:]
    assert list(pipeline.search("red star", offset=100, **options)) == []


def mixed(count: int) -> Iterator[Document]:
    """Notes, photos and photos with notes, which agree with a query in one field and not in another."""
    draw = random.Random(3)
    for i in range(count):
        words = [draw.choice(some) for some in (COLOURS, THINGS, ("on", "under", "near"), COLOURS, THINGS)]
        picture = io.BytesIO()
        Image.new("RGB", (16, 16), draw.choice(COLOURS)).save(picture, "png")
        yield Document(
            f"{draw.random():.6f}-{i:03}",
            text=None if i % 3 == 1 else " ".join(words),
            image=None if i % 3 == 0 else picture.getvalue(),
        )


def scored(matches: Sequence[Match]) -> list[tuple[str, float]]:
    return [(match.document.id, match.score) for match in matches]


@pytest.mark.parametrize("url", ["mock:", "sqlite:index"])
@pytest.mark.parametrize("options", [{}, {"min_score": 0}, {"min_score": 0, "without": "yellow"}, {"diversity": 0.3}])
def test_the_order_does_not_depend_on_the_limit(
    tmp_path: Path, url: str, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with open_store(url) as store:
        pipeline = Pipeline(MockEncoder(), store)
        pipeline.add(mixed(200))
        for text in ("red star near blue heart", "green ring"):
            whole = scored(pipeline.search(text, limit=200, **options))
            assert len(whole) > DEPTH
            pages = [pipeline.search(text, limit=23, **options)]
            while pages[-1].cursor:
                pages.append(pipeline.search(text, limit=23, cursor=pages[-1].cursor, **options))
            assert [match for page in pages for match in scored(page)] == whole
            passed = (pipeline.search(text, limit=23, offset=offset, **options) for offset in range(0, 200, 23))
            assert [match for page in passed for match in scored(page)] == whole


def test_a_search_goes_no_deeper_than_its_page_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    store: Store = MemoryStore()
    asked = list[int]()
    pipeline = Pipeline(MockEncoder(), store)
    pipeline.add(Document(f"star-{i:02}", text="red star") for i in range(20))
    pipeline.add(Document(f"other-{i:03}", text=f"green ring {i}") for i in range(200))
    search = type(store).search

    def noted(self: Store, *arguments: Any, **options: Any) -> list[list[Hit]]:
        asked.append(options["limit"])
        return search(self, *arguments, **options)

    monkeypatch.setattr(type(store), "search", noted)
    assert len(pipeline.search("red star", limit=10)) == 10
    assert max(asked) == DEPTH


@pytest.mark.parametrize("options", [{}, {"sort": "number"}, {"diversity": 0.3}])
def test_pages_repeat_and_skip_nothing_while_others_write(store: Store, options: dict[str, Any]) -> None:
    pipeline = Pipeline(MockEncoder(), store)
    words = np.random.default_rng(7).choice([*COLOURS, *THINGS], (300, 4)).tolist()
    pipeline.add(Document(f"kept-{i:03}", text=" ".join(words[i]), metadata={"number": i}) for i in range(80))
    pipeline.add(Document(f"gone-{i:03}", text="red star", metadata={"number": i}) for i in range(40))
    shown: list[str] = []
    cursor: str | None = None
    for turn in range(100):
        page = pipeline.search("red star", limit=10, cursor=cursor, min_score=0, **options)
        shown += ids(page)
        cursor = page.cursor
        if cursor is None:
            break
        pipeline.delete([f"gone-{5 * turn + i:03}" for i in range(5)])
        text = "red star" if turn % 2 else "green ring"  # before and behind what was shown
        pipeline.add(Document(f"new-{turn:03}-{i}", text=text, metadata={"number": 10 * turn}) for i in range(4))
        pipeline.add(Document(f"kept-{i:03}", text=" ".join(words[turn + i])) for i in (turn, turn + 40))
    assert cursor is None
    assert len(shown) == len(set(shown))
    assert {id for id in shown if id.startswith("kept")} == {f"kept-{i:03}" for i in range(80)}


def test_pages_are_whole_while_a_thread_writes(tmp_path: Path) -> None:
    pipeline, other = (Pipeline(MockEncoder(), SqliteStore(str(tmp_path / "index"))) for _ in range(2))
    pipeline.add(Document(f"kept-{i:03}", text=f"{COLOURS[i % 4]} star {i}") for i in range(150))
    stop = threading.Event()

    def write() -> None:
        turn = 0
        while not stop.is_set():
            turn += 1
            other.add(Document(f"kept-{(turn * 7 + i) % 150:03}", text=f"red star {turn} {i}") for i in range(3))
            other.add([Document(f"new-{turn % 20}", text=f"a red star {turn}")])

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for _ in range(3):
            shown: list[str] = []
            page = pipeline.search("red star", limit=15, min_score=0)
            shown += ids(page)
            while page.cursor:
                page = pipeline.search("red star", limit=15, cursor=page.cursor, min_score=0)
                shown += ids(page)
            assert len(shown) == len(set(shown))
            assert {id for id in shown if id.startswith("kept")} == {f"kept-{i:03}" for i in range(150)}
    finally:
        stop.set()
        writer.join()


def test_a_cursor_is_of_one_query(pipeline: Pipeline) -> None:
    cursor = pipeline.search("red star", where={"number": {"$lt": 30}}, limit=5).cursor
    assert cursor is not None
    assert len(pipeline.search("red star", where={"number": {"$lt": 30}}, limit=9, cursor=cursor)) == 9
    others: list[dict[str, Any]] = [
        {"text": "red star"},
        {"text": "red ring", "where": {"number": {"$lt": 30}}},
        {"text": "red star", "where": {"number": {"$lt": 30}}, "sort": "number"},
        {"text": "red star -ring", "where": {"number": {"$lt": 30}}},
        {"text": "red star", "like": ["note-00"], "where": {"number": {"$lt": 30}}},
    ]
    for other in others:
        with pytest.raises(ConfigError, match="the cursor is of another query: all but the limit stays the same"):
            pipeline.search(cursor=cursor, **other)
    for wrong in ("", "x", "é", "AAAA", cursor[:-1], cursor + "AAAA", "A" * len(cursor)):
        with pytest.raises(ConfigError, match="cursor"):
            pipeline.search("red star", where={"number": {"$lt": 30}}, cursor=wrong)


def test_images_have_pages_too(tmp_path: Path) -> None:
    picture = Image.new("RGB", (8, 8), "red")
    picture.save(tmp_path / "red.png")
    images: list[ImageSource] = [picture, tmp_path / "red.png", (tmp_path / "red.png").read_bytes()]
    with Pipeline(MockEncoder(), MemoryStore()) as pipeline:
        pipeline.add(Document(str(i), image=Image.new("RGB", (8, 8), (i, 0, 0))) for i in range(0, 250, 25))
        for image in images:
            first = pipeline.search(image=image, limit=6, min_score=0)
            assert first.cursor
            rest = pipeline.search(image=image, limit=6, cursor=first.cursor, min_score=0)
            assert len({*ids(first), *ids(rest)}) == 10


# ---- sorted, counted, diverse


def test_sorting_and_counting_keep_the_relevant_set(pipeline: Pipeline) -> None:
    found = pipeline.search("star", sort="-number", limit=3, facets=["colour", "even"])
    relevant = pipeline.search("star", limit=40)
    numbers = sorted((int(str(match.document.metadata["number"])) for match in relevant), reverse=True)
    assert [match.document.metadata["number"] for match in found] == numbers[:3]
    assert (found.total, len(relevant)) == (8, 8)
    assert found.facets == {"colour": dict.fromkeys(("red", "green", "blue", "yellow"), 2), "even": {True: 4}}
    assert relevant.total is None
    assert relevant.facets == {}
    counted = pipeline.search("star", limit=1, count=True)
    assert (len(counted), counted.total, counted.facets) == (1, 8, {})
    last = pipeline.search("star", sort="even", limit=40)
    assert [match.document.metadata.get("even") for match in last] == [True] * 4 + [None] * 4


def test_all_relevant_documents_are_sorted_and_counted_beyond_the_first_hundred(tmp_path: Path) -> None:
    with Pipeline(MockEncoder(), SqliteStore(str(tmp_path / "index"))) as pipeline:
        pipeline.add(Document(str(i), text=f"star {i}", metadata={"number": i % 700}) for i in range(1400))
        found = pipeline.search("star", sort="number", limit=4, facets=["number"])
        assert [match.document.metadata["number"] for match in found] == [0, 0, 1, 1]
        assert found.total == 1400
        assert set(found.facets["number"].values()) == {2}
        assert pipeline.search("star", sort="-number", limit=2)[0].document.metadata["number"] == 699


def test_documents_are_read_for_the_page_alone_however_many_are_relevant(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[int] = []
    documents = SqliteOverview.documents

    def counted(overview: SqliteOverview, places: Any) -> Any:
        read.extend(places)
        return documents(overview, places)

    monkeypatch.setattr(SqliteOverview, "documents", counted)
    with SqliteStore(str(tmp_path / "index")) as store:
        pipeline = Pipeline(MockEncoder(), store)
        pipeline.add(Document(f"{i:04}", text=f"red star {i % 7}") for i in range(1500))
        matches = pipeline.search("red star", count=True)
    assert matches.total == 1500
    assert len(set(read)) == len(read) == 11, "one more says whether there is another page"
    assert all(match.fields for match in matches)


def test_diverse_matches_repeat_nothing_early(pipeline: Pipeline) -> None:
    plain = [match.document.text for match in pipeline.search("red star", limit=2)]
    diverse = [match.document.text for match in pipeline.search("red star", limit=2, diversity=0.3)]
    assert plain == ["red star", "red star"]
    assert diverse[0] == "red star"
    assert diverse[1] != "red star"
    assert sorted(ids(pipeline.search("red star", limit=40, diversity=1))) == sorted(
        ids(pipeline.search("red star", limit=40))
    )


# ---- several queries


class Counting(MockEncoder):
    """Counts the calls."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[str, int]] = []

    def encode_texts(self, texts: Sequence[str], *, role: Role = "document") -> dict[str, Vectors]:
        self.calls.append(("texts", len(texts)))
        return super().encode_texts(texts, role=role)

    def encode_images(self, images: Sequence[ImageSource]) -> dict[str, Vectors]:
        self.calls.append(("images", len(images)))
        return super().encode_images(images)


class CountingStore(MemoryStore):
    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[str, int]] = []

    def search(self, field: Field, vectors: Vectors, *, limit: int, where: Filter | None = None) -> list[list[Hit]]:
        self.calls.append((str(field), len(vectors)))
        return super().search(field, vectors, limit=limit, where=where)


def test_a_batch_is_encoded_once_and_asks_each_field_once() -> None:
    encoder, store = Counting(), CountingStore()
    with Pipeline(encoder, store) as pipeline:
        pipeline.add(notes())
        pipeline.add(Document(f"picture-{i}", image=Image.new("RGB", (8, 8), (60 * i, 0, 0))) for i in range(4))
        pictures = [Image.new("RGB", (8, 8), colour) for colour in ("red", "black")]
        queries: list[str | Query] = [
            "red star",
            "blue ring -red",
            Query(image=pictures[0]),
            Query("red star", image=pictures[1]),
        ]
        queries.append(Query(like=["note-01"], without=[Query("red star")]))
        encoder.calls.clear()
        found = pipeline.search_many(queries, limit=6)
        assert encoder.calls == [("texts", 3), ("images", 2)]
        first, again = store.calls[:3], store.calls[3:]
        assert sorted(first) == [("clip/image", 5), ("clip/text", 2), ("minilm/text", 4)]
        unsure = sum(not matches for matches in found)
        assert all(queries <= unsure for _, queries in again), "only what matches nothing is looked for again"
        alone = [
            pipeline.search("red star", limit=6),
            pipeline.search("blue ring", without="red", limit=6),
            pipeline.search(image=pictures[0], limit=6),
            pipeline.search("red star", image=pictures[1], limit=6),
            pipeline.search(like=["note-01"], without="red star", limit=6),
        ]
        assert [ids(matches) for matches in found] == [ids(matches) for matches in alone]
        assert [m.score for each in found for m in each] == pytest.approx([m.score for each in alone for m in each])
        assert [matches.cursor for matches in found] == [matches.cursor for matches in alone]
        assert pipeline.search_many([]) == []
        with pytest.raises(TypeError, match="search_many takes a list"):
            pipeline.search_many("red star")


def test_a_query_object_takes_a_minus_as_it_is(pipeline: Pipeline) -> None:
    as_it_is, parsed = pipeline.search_many([Query("star -red"), "star -red"], limit=40)
    assert "red star" in texts(as_it_is)
    assert "red star" not in texts(parsed)


def test_a_bad_query_of_a_batch_is_refused(pipeline: Pipeline) -> None:
    with pytest.raises(InvalidInputError, match="needs a text, an image or both"):
        pipeline.search_many(["a star", ""])
    with pytest.raises(InvalidInputError, match="2 items cannot be used"):
        pipeline.search_many([Query(image=b"none"), Query(image=b"neither")])


# ---- re-ranked


class Odd(Reranker):
    """Finds odd numbers relevant and even ones not, and cannot judge a seventh."""

    name = "odd"

    def __init__(self, seconds: float = 0.0) -> None:
        self.read: list[str] = []
        self.is_closed = False
        self._seconds = seconds

    def score(self, query: str, documents: Sequence[Document]) -> list[float | None]:
        self.read += [document.id for document in documents]
        time.sleep(self._seconds)
        numbers = [int(str(document.metadata["number"])) for document in documents]
        return [None if number % 7 == 0 else 0.9 if number % 2 else 0.01 for number in numbers]

    def close(self) -> None:
        self.is_closed = True


def test_a_reranker_judges_the_first_matches(pipeline: Pipeline) -> None:
    plain, reranker = pipeline.search("red star", limit=40, min_score=0), Odd()
    found = pipeline.search("red star", rerank=reranker, rerank_first=20, limit=40, min_score=0)
    assert reranker.read == ids(plain)[:20]
    judged = {match.document.id: match.score for match in found}
    before = {match.document.id: match.score for match in plain}
    numbers = {match.document.id: int(str(match.document.metadata["number"])) for match in plain}
    assert judged.keys() == before.keys()
    assert [match.score for match in found] == sorted(judged.values(), reverse=True)
    for id in ids(plain)[:20]:
        given = 0.9 if numbers[id] % 2 else 0.01
        assert numbers[id] % 7 == 0 or min(given, before[id]) <= judged[id] <= max(given, before[id])
        assert numbers[id] % 7 == 0 or judged[id] != before[id]
    kept = set(ids(plain)[20:]) | {id for id in before if numbers[id] % 7 == 0}
    assert all(judged[id] == before[id] for id in kept)
    every = pipeline.search("red star", rerank=reranker, rerank_first=40, min_score=0, limit=40)
    strict = pipeline.search("red star", rerank=reranker, rerank_first=40, min_score=0.5, count=True, limit=40)
    assert set(ids(strict)) == {match.document.id for match in every if match.score >= 0.5} != set(ids(every))
    assert strict.total == len(strict)
    options: dict[str, Any] = {"rerank": reranker, "rerank_first": 20, "limit": 15, "min_score": 0}
    pages = [pipeline.search("red star", **options)]
    while pages[-1].cursor:
        pages.append(pipeline.search("red star", cursor=pages[-1].cursor, **options))
    assert [match for page in pages for match in page] == list(found)
    with pytest.raises(ConfigError, match="another query"):
        pipeline.search("red star", cursor=pages[0].cursor)


def test_a_reranker_ends_with_its_time(pipeline: Pipeline) -> None:
    reranker = Odd(seconds=0.3)
    found = pipeline.search("red star", rerank=reranker, rerank_seconds=0.1, limit=40, min_score=0)
    assert 0 < len(reranker.read) < 40
    assert len(found) == 40


def test_a_reranker_reads_a_text(pipeline: Pipeline) -> None:
    with pytest.raises(ConfigError, match="`rerank` needs a text"):
        pipeline.search(like=["note-00"], rerank=Odd())
    with pytest.raises(ConfigError, match=r"no reranker ('nonsense:'|is registered)"):
        pipeline.search("red star", rerank="nonsense:")
    with pytest.raises(ConfigError, match="`rerank_first` is from 1 to 10,000, not 0"):
        pipeline.search("red star", rerank=Odd(), rerank_first=0)
    with pytest.raises(ConfigError, match="`rerank_seconds` is above 0 and at most 600, not 0"):
        pipeline.search("red star", rerank=Odd(), rerank_seconds=0)


def test_a_reranker_that_a_url_names_is_opened_once_and_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[Odd] = []

    def open_odd(url: str) -> Reranker:
        assert url == "odd:"
        opened.append(Odd())
        return opened[-1]

    monkeypatch.setattr("vlmsearch.pipeline.open_reranker", open_odd)
    with Pipeline(MockEncoder(), MemoryStore()) as pipeline:
        pipeline.add(notes())
        for turn in (1, 2):
            pipeline.search("red star", rerank="odd:")
            assert len(opened[0].read) == 40 * turn
            assert not opened[0].is_closed
    assert len(opened) == 1
    assert opened[0].is_closed


@pytest.mark.parametrize("has_lock", [True, False])
def test_threads_rank_in_turns_only_where_python_has_its_lock(monkeypatch: pytest.MonkeyPatch, has_lock: bool) -> None:
    monkeypatch.setattr(sys, "_is_gil_enabled", lambda: has_lock, raising=False)
    with engine._turn():
        assert engine._turn_lock().locked() == has_lock
    assert not engine._turn_lock().locked()
