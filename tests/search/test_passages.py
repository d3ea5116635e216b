"""Searches of long texts: each document is one match, with the passage that fits best."""

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import PIL.Image
import pytest
from vlmsearch_mocks import MemoryStore, MockEncoder, MockReranker

from vlmsearch import Document, Matches, Pipeline, Query, Store
from vlmsearch.rerankers.base import Reranker
from vlmsearch.search.arrange import row_of
from vlmsearch.stores.sqlite.store import SqliteStore
from vlmsearch.types import EncodedPassage, Field, MetadataChange, Passage, Record, Stamp

ENCODER = MockEncoder()
PARTS = (
    "The garden has a pond with fish and frogs. ",
    "The safe in the office has the code 4471. ",
    "Lunch is served at noon in the hall. ",
    "The office is locked at night. ",
)
OTHERS = ("red star on sand", "blue ring by the sea", "green heart under a tree", "a rock", "grey cloud above the hill")


def long_record(
    id: str, parts: Sequence[str] = PARTS, *, metadata: dict[str, Any] | None = None, image: Path | None = None
) -> Record:
    """Return a document with a passage for each part, all but the first under a heading."""
    starts = np.cumsum([0, *map(len, parts)]).tolist()
    passages = [
        Passage(n, starts[n - 1], starts[n], "Handbook" if n > 1 else "", part) for n, part in enumerate(parts, 1)
    ]
    encoded = ENCODER.encode_texts([passage.encoded for passage in passages])
    vectors = [{Field(space, "text"): rows[at] for space, rows in encoded.items()} for at in range(len(parts))]
    own = {Field("clip", "image"): ENCODER.encode_images([image])["clip"][0]} if image else {}
    document = Document(id, "".join(parts), image, metadata)
    return Record(document, own, Stamp(id), "", tuple(map(EncodedPassage, passages, vectors)))


def store_of(kind: str, tmp_path: Path, records: Sequence[Record]) -> Store:
    store: Store = MemoryStore() if kind == "mock" else SqliteStore(str(tmp_path / "index"))
    store.bind(ENCODER.fingerprint, ENCODER.spaces)
    store.upsert(records)
    return store


@pytest.fixture(params=["mock", "sqlite"])
def pipeline(request: pytest.FixtureRequest, tmp_path: Path) -> "Any":
    records = [
        long_record("handbook", metadata={"kind": "book", "year": 2020}),
        long_record("manual", ("The pump has a valve. ", "A valve of steel. ", "Oil. "), metadata={"kind": "book"}),
        long_record("f.pdf#page=2", ("Safe doors. ", "The office has a safe door. "), metadata={"kind": "page"}),
    ]
    with Pipeline(ENCODER, store_of(request.param, tmp_path, records), reranker=MockReranker()) as opened:
        opened.add(Document(f"note-{n}", text, metadata={"kind": "note"}) for n, text in enumerate(OTHERS))
        opened.add([Document("f.pdf", "Doors"), Document("f.pdf#page=1", "The office has a wooden door")])
        yield opened


def shown(matches: Matches) -> list[str]:
    return [row_of(match) for match in matches]


def test_a_fact_in_a_long_text_is_shown_with_its_passage(pipeline: Pipeline) -> None:
    [match] = pipeline.search("code of the safe 4471", limit=1)
    assert match.document == long_record("handbook", metadata={"kind": "book", "year": 2020}).document
    assert match.passage == long_record("handbook").passages[1].passage
    assert (match.passage.heading, match.document.text[match.passage.start : match.passage.end]) == (  # type: ignore[index]
        "Handbook",
        PARTS[1],
    )
    assert match.fields["words"].rank == 1
    assert match.fields["minilm/text"].rank == 1
    assert match.score > 0.5


def test_a_document_without_passages_has_none(pipeline: Pipeline) -> None:
    [match] = pipeline.search("blue ring by the sea", limit=1)
    assert (match.document.id, match.passage, dict(match.parts)) == ("note-1", None, {})


@pytest.mark.parametrize("group", [True, False])
def test_passages_are_one_match_and_the_others_are_named(pipeline: Pipeline, group: bool) -> None:
    matches = pipeline.search("valve", group=group)
    assert [match.document.id for match in matches] == ["manual"]
    assert {row_of(matches[0]), *matches[0].parts} == {"manual#passage=1", "manual#passage=2"}
    assert next(iter(matches[0].parts.values())) <= matches[0].score
    assert len(pipeline.search("valve", min_score=0.0, limit=50, group=group)[0].parts) == 2


def test_parts_of_a_file_are_one_match_unless_they_are_kept_apart(pipeline: Pipeline) -> None:
    grouped = pipeline.search("a safe door", min_score=0.0, limit=50)
    apart = pipeline.search("a safe door", min_score=0.0, limit=50, group=False)
    assert [match.document.id for match in grouped if match.document.id.startswith("f.pdf")] == ["f.pdf#page=2"]
    [match] = [match for match in grouped if match.document.id == "f.pdf#page=2"]
    assert match.passage == long_record("", ("Safe doors. ", "The office has a safe door. ")).passages[1].passage
    assert match.parts.keys() == {"f.pdf", "f.pdf#page=1", "f.pdf#page=2#passage=1"}
    ids = [match.document.id for match in apart]
    assert sorted(id for id in ids if id.startswith("f.pdf")) == ["f.pdf", "f.pdf#page=1", "f.pdf#page=2"]
    assert len(set(ids)) == len(ids)


def test_counts_facets_and_orders_are_of_documents(pipeline: Pipeline) -> None:
    options: dict[str, Any] = {"min_score": 0.0, "limit": 50, "count": True, "facets": ["kind"]}
    matches = pipeline.search("the office has a door", group=False, **options)
    assert matches.total == len(matches) == 10
    assert matches.facets["kind"] == {"note": 5, "book": 2, "page": 1}
    assert pipeline.search("the office has a door", **options).total == 8
    by_kind = pipeline.search("the office has a door", sort="kind", group=False, **options)
    assert [match.document.metadata.get("kind") for match in by_kind][:4] == ["book", "book", "note", "note"]
    assert {row_of(match) for match in by_kind} == {row_of(match) for match in matches}
    books = pipeline.search("valve", where={"kind": "book"}, count=True, facets=["kind"])
    assert (books.total, books.facets["kind"]) == (1, {"book": 1})


def test_pages_show_each_document_once(pipeline: Pipeline) -> None:
    for group in (True, False):
        options: dict[str, Any] = {"min_score": 0.0, "group": group}
        wanted = pipeline.search("the office has a pond", limit=50, **options)
        matches = pipeline.search("the office has a pond", limit=2, **options)
        pages = [matches]
        while pages[-1].cursor:
            pages.append(pipeline.search("the office has a pond", limit=2, cursor=pages[-1].cursor, **options))
        assert [row_of(match) for page in pages for match in page] == shown(wanted)


def test_the_row_of_a_document_with_passages_never_comes_up_itself(pipeline: Pipeline) -> None:
    for query in ("handbook", "office", "pump valve", "nothing of all this"):
        for match in pipeline.search(query, min_score=0.0, limit=50, group=False):
            if match.document.id in ("handbook", "manual", "f.pdf#page=2"):
                assert match.passage is not None
                assert all("#passage=" in id for id in match.parts)


def test_like_a_long_document_is_like_the_mean_of_its_passages(pipeline: Pipeline) -> None:
    field = Field("minilm", "text")
    vectors = [passage.vectors[field] for passage in long_record("manual", ("pump valve ", "steel valve ")).passages]
    pipeline.store.upsert([long_record("two", ("pump valve ", "steel valve "))])
    mean = np.sum(vectors, axis=0) / np.linalg.norm(np.sum(vectors, axis=0))
    matches = pipeline.search(like="two", min_score=0.0, limit=50)
    assert "two" not in {match.document.id for match in matches}
    assert matches[0].document.id == "manual"
    for match in matches:
        [hit] = pipeline.store.compare(field, mean[None], [row_of(match)])
        assert match.fields["minilm/text"].score == pytest.approx(hit.score, abs=1e-5)


def test_what_a_query_leaves_out_is_left_out_whole(pipeline: Pipeline) -> None:
    assert "handbook" in {match.document.id for match in pipeline.search("pond with fish", min_score=0.0)}
    for excluded in ("lunch", "code"):  # which other passages say
        matches = pipeline.search(f"pond with fish -{excluded}", min_score=0.0, limit=50)
        assert matches
        assert "handbook" not in {match.document.id for match in matches}
    [without] = pipeline.search_many([Query("pond with fish", without=(Query(like=("handbook",)),))], min_score=0.0)
    assert "handbook" not in {match.document.id for match in without}


def test_a_re_ranker_reads_the_passage(pipeline: Pipeline) -> None:
    texts: dict[str, str | None] = {}

    class Reader(Reranker):
        name = "reader"

        def score(self, query: str, documents: Sequence[Document]) -> list[float | None]:
            texts.update((document.id, document.text) for document in documents)
            return [float("4471" in (document.text or "")) for document in documents]

    reader = Reader()
    matches = pipeline.search("a safe door", rerank=reader, min_score=0.0, limit=3)
    assert texts["f.pdf#page=2"] == "Handbook\n\nThe office has a safe door. "
    assert texts["handbook"] == f"Handbook\n\n{PARTS[1]}"
    assert (matches[0].document.id, matches[0].document.text) == ("handbook", "".join(PARTS))
    explained = pipeline.explain("a safe door", "handbook", rerank=reader)
    assert (explained.judged, explained.outcome) == (1.0, "shown")


def test_diversity_compares_passages(pipeline: Pipeline) -> None:
    pipeline.store.upsert([long_record("twin", ("Nothing else. ", PARTS[1], "Not at all. "))])
    plain = pipeline.search("the safe in the office has the code", limit=2)
    assert {match.document.id for match in plain} == {"handbook", "twin"}
    varied = pipeline.search("the safe in the office has the code", limit=2, diversity=0.9, min_score=0.0)
    assert len({match.document.id for match in varied} & {"handbook", "twin"}) == 1


def test_the_best_passage_is_explained_and_one_that_is_named(pipeline: Pipeline) -> None:
    [match] = pipeline.search("code of the safe", limit=1)
    best = pipeline.explain("code of the safe", "handbook", parts=True)
    assert (best.outcome, best.place, best.passage, best.relevance) == ("shown", 1, match.passage, match.score)
    assert best.document == match.document
    text = str(best.document.text)
    assert {text[start:end] for start, end in best.marked} == {"safe", "code"}
    assert "safe" in text[best.passages[0].start : best.passages[0].end] or "safe" in {
        text[part.start : part.end] for part in best.passages
    }
    assert "What is judged is its passage 2." in best.notes
    named = pipeline.explain("code of the safe", "handbook#passage=4")
    assert (named.passage, named.document) == (long_record("handbook").passages[3].passage, best.document)
    assert named.outcome in ("threshold", "part")
    assert pipeline.explain("code of the safe", "handbook#passage=9").outcome == "absent"
    other = pipeline.explain("valve", "manual#passage=1")
    second = pipeline.explain("valve", "manual#passage=2")
    assert {other.outcome, second.outcome} == {"shown", "part"}


def test_labels_are_those_of_the_best_passage(pipeline: Pipeline) -> None:
    labelled = {item.document.id: item.labels for item in pipeline.label(["valve", "frogs"], write=True)}
    assert labelled["manual"].keys() == {"valve"}
    assert labelled["handbook"].keys() == {"frogs"}
    assert [m.document.id for m in pipeline.search("valve", where={"label": "valve"}, min_score=0.0)] == ["manual"]


def test_an_image_and_a_long_text_are_one_match(tmp_path: Path) -> None:
    path = tmp_path / "valve.png"
    PIL.Image.fromarray(np.random.default_rng(1).integers(0, 255, (16, 16, 3), np.uint8)).save(path)
    for kind in ("mock", "sqlite"):
        records = [long_record("picture", image=path), long_record("text")]
        with Pipeline(ENCODER, store_of(kind, tmp_path / kind, records)) as pipeline:
            by_image = pipeline.search(image=path, min_score=0.0)
            assert by_image[0].document.id == "picture"
            assert by_image[0].fields["clip/image"].score == pytest.approx(1, abs=1e-5)
            by_text = pipeline.search("the safe has the code 4471", min_score=0.0)
            assert sorted(shown(by_text)) == ["picture#passage=2", "text#passage=2"]
            both = pipeline.search("the safe has the code 4471", image=path, min_score=0.0)
            assert shown(both)[0] == "picture#passage=2"
            assert both[0].fields.keys() >= {"clip/image", "minilm/text"}, "what both say is added up"
            assert both[0].score > both[1].score
            assert not pipeline.search("valve"), "the name of its file is none of it"
            diverse = pipeline.search(image=path, diversity=0.5, min_score=0.0)
            assert diverse[0].document.id == "picture"


def test_numbers_of_documents_follow_what_is_written(tmp_path: Path) -> None:
    """Groups of rows are kept, and those of new rows are added."""
    store = store_of("sqlite", tmp_path, [Record(Document("f.pdf", "Doors"), {}, Stamp("f"))])
    with Pipeline(ENCODER, store) as pipeline:
        options: dict[str, Any] = {"min_score": 0.0, "limit": 50}
        for parts in (PARTS, PARTS[:2], PARTS[::-1]):
            store.upsert([long_record("a", parts), long_record("f.pdf#page=1", parts)])
            pipeline.add(Document("f.pdf", "the office"))
            matches = pipeline.search("the office", **options)
            assert sorted(match.document.id for match in matches) == ["a", "f.pdf#page=1"]
            apart = pipeline.search("the office", group=False, count=True, **options)
            assert sorted(match.document.id for match in apart) == ["a", "f.pdf", "f.pdf#page=1"]
            assert apart.total == len(apart) == 3
            read = store.records(["a"])[0]
            store.update_metadata([MetadataChange(read.document, read.stamp, {"year": 1}, "changed")])
            assert len(pipeline.search("the office", where={"year": 1}, **options)) == 1
        store.upsert([replace(long_record("a"), document=Document("a", "the office"), passages=())])
        pipeline.delete(["f.pdf#page=1"])
        assert {match.document.id: match.passage for match in pipeline.search("the office", **options)} == {
            "f.pdf": None,
            "a": None,
        }


def test_among_few_documents_a_passage_with_all_words_of_a_short_query_is_shown() -> None:
    vectors_say_nothing = {"minilm/text": 0.01, "clip/image": 0.0}
    for others, is_shown in ((10, True), (80, False)):
        rng = random.Random(1)
        texts = [[" ".join(rng.choices(WORDS, k=30)) + " " for _ in range(8)] for _ in range(others)]
        texts[3][6] += "safe code office accounting "
        with Pipeline(ENCODER, MemoryStore()) as pipeline:
            pipeline.store.bind(ENCODER.fingerprint, ENCODER.spaces)
            pipeline.store.upsert([long_record(f"id-{n}", parts) for n, parts in enumerate(texts)])
            matches = pipeline.search("safe code office accounting", weights=vectors_say_nothing)
            assert shown(matches) == (["id-3#passage=7"] if is_shown else [])
            assert shown(pipeline.search("safe red sunken galleon", weights=vectors_say_nothing)) == []


WORDS = ["red", "blue", "green", "star", "ring", "heart", "sea", "sand", "tree", "rock"]
OPTIONS: list[dict[str, Any]] = [
    {},
    {"min_score": 0.0},
    {"group": False},
    {"group": False, "min_score": 0.6},
    {"where": {"even": True}},
    {"sort": "number", "group": False},
]


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[tuple[Pipeline, Pipeline]]":
    """Open the same texts in memory, which ranks lists, and in SQLite, which ranks arrays."""
    rng = random.Random(5)
    path = tmp_path_factory.mktemp("both")
    pixels = np.random.default_rng(2).integers(0, 255, (16, 16, 3), np.uint8)
    PIL.Image.fromarray(pixels).save(path / "a.png")
    records = []
    for n in range(120):
        parts = [" ".join([*rng.choices(WORDS, k=4), f"n{n}", f"p{at}. "]) for at in range(rng.randint(1, 6))]
        id = f"file-{n // 3}.pdf#page={n % 3 + 1}" if n % 2 else f"id-{n}"
        image = path / "a.png" if n % 10 == 0 else None
        records.append(long_record(id, parts, metadata={"even": n % 2 == 0, "number": n % 7}, image=image))
    with (
        Pipeline(ENCODER, store_of("mock", path, records)) as slow,
        Pipeline(ENCODER, store_of("sqlite", path, records)) as fast,
    ):
        for pipeline in (slow, fast):
            pipeline.add(Document(f"file-{n}.pdf", " ".join(WORDS[n % 5 : n % 5 + 3])) for n in range(0, 40, 3))
            pipeline.add(Document(f"short-{n}", " ".join(WORDS[n % 9 :])) for n in range(20))
        yield slow, fast


@pytest.mark.parametrize("options", OPTIONS, ids=map(str, OPTIONS))
def test_stores_with_arrays_and_without_say_the_same(both: tuple[Pipeline, Pipeline], options: dict[str, Any]) -> None:
    queries = ["red star", "a ring of green hearts by the sea n7", "nowhere", "star -red", "sand -p3"]
    asked = [*({"text": text} for text in queries), {"like": "id-30"}, {"text": "sea", "without": ["id-4"]}]
    for query in asked:
        pages: list[dict[str, Any]] = [{"limit": 200, "count": True, "facets": ["even", "number"]}, {"limit": 3}]
        for page in pages:
            wanted, matches = (pipeline.search(**query, **options, **page) for pipeline in both)  # type: ignore[arg-type]
            scores = sorted(match.score for match in wanted)
            if "sort" not in options or page["limit"] > 3:
                assert sorted(match.score for match in matches) == pytest.approx(scores, abs=1e-4), query
            if page["limit"] == 3:
                continue  # of the hits in lists, not all passages are there
            assert matches.total == wanted.total
            if not options.get("group", True):
                assert matches.facets == wanted.facets
            expected = {match.document.id: match for match in wanted}
            for match in matches:
                other = expected[match.document.id]
                if row_of(other) == row_of(match):
                    assert match.parts == pytest.approx(other.parts, abs=1e-4), (query, row_of(match))
                    assert match.passage == other.passage
                else:
                    assert other.parts[row_of(match)] == pytest.approx(match.score, abs=1e-3)
