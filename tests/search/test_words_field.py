"""Words as a field of a search."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from vlmsearch_mocks import MemoryStore, MockEncoder

from vlmsearch import ConfigError, Document, Field, Filter, Hit, Pipeline, Record
from vlmsearch.generators.extractive import ExtractiveGenerator
from vlmsearch.stores.versions import HitContent, VersionedHit
from vlmsearch.types import FieldScore, RelevanceFit, Vectors, WordHits


def pipeline_of(store: MemoryStore, *documents: Document) -> Pipeline:
    pipeline = Pipeline(MockEncoder(), store, ExtractiveGenerator())
    pipeline.add(documents)
    return pipeline


DOCUMENTS = [
    Document("a", text="the serial number is AB-4711", metadata={"year": 2020}),
    Document("b", text="two dogs in the snow", metadata={"year": 2021}),
    Document("c", text="a red star above a green circle", metadata={"year": 2022}),
]


def test_a_text_asks_for_words_and_an_image_does_not(tmp_path: Path) -> None:
    pipeline = pipeline_of(MemoryStore(), *DOCUMENTS)
    fields = {m.document.id: m.fields for m in pipeline.search("dogs and serial numbers, numbers", min_score=0)}
    assert {id for id in fields if fields[id]["words"].rank} == {"a", "b"}
    assert fields["a"]["words"].rank == 1
    assert fields["a"]["words"].score > fields["b"]["words"].score > 0
    picture = Image.new("RGB", (8, 8), "red")
    assert all("words" not in match.fields for match in pipeline.search(image=picture))
    both = {match.document.id: match.fields for match in pipeline.search("dog", image=picture, min_score=0)}
    assert {id for id in both if both[id]["words"].rank} == {"b"}


def test_words_are_filtered_and_weighed() -> None:
    pipeline = pipeline_of(MemoryStore(), *DOCUMENTS)
    found = pipeline.search("number dog", where={"year": {"$lt": 2021}}, min_score=0)
    assert [(match.document.id, match.fields["words"].rank) for match in found] == [("a", 1)]
    first = [
        pipeline.search("a red circle, 4711", weights={"words": share}, min_score=0)[0].fields for share in (0.1, 5.0)
    ]
    assert all(isinstance(fields["words"], FieldScore) for fields in first)
    with pytest.raises(ConfigError, match="there are clip/image, clip/text, minilm/text, words"):
        pipeline.search("a star", weights={"word": 1.0})


def test_words_that_nothing_shares_speak_against_every_text_alike() -> None:
    with_words, without = (pipeline_of(store, *DOCUMENTS) for store in (MemoryStore(), Wordless()))
    expected = without.search("zebra", min_score=0)
    found = with_words.search("zebra", min_score=0)
    assert [match.document.id for match in found] == [match.document.id for match in expected]
    assert all(match.score < other.score for match, other in zip(found, expected))
    assert {match.fields["words"].rank for match in found} == {None}


def test_an_index_that_ranks_no_words_is_not_asked() -> None:
    found = pipeline_of(Wordless(), *DOCUMENTS).search("two dogs", min_score=0)
    assert len(found) == 3
    assert all("words" not in match.fields for match in found)


class Wordless(MemoryStore):
    """An index that was made before its store ranked words."""

    def bind(self, *arguments: Any) -> None:
        super().bind(*arguments)
        manifest = self._manifest
        assert manifest is not None
        self._manifest = type(manifest)(manifest.fingerprint, manifest.spaces, manifest.created)

    def search_words(self, query: str, *, limit: int, where: Filter | None = None) -> WordHits:
        raise AssertionError("it is not asked")


def test_a_photo_is_found_by_the_name_of_its_file(tmp_path: Path) -> None:
    names = [*(f"IMG_{i:04}.png" for i in range(40)), "golden_retriever.png"]
    for i, name in enumerate(names):
        Image.new("RGB", (8, 8), (6 * i, 255 - 6 * i, i)).save(tmp_path / name)
    photos = [Document(name, image=tmp_path / name) for name in names]
    pipeline = pipeline_of(MemoryStore(), *photos)
    plain = pipeline_of(Wordless(), *photos)
    before = {match.document.id: match.score for match in plain.search("retrievers", limit=50, min_score=0)}
    found = {match.document.id: match for match in pipeline.search("retrievers", limit=50, min_score=0)}
    assert [match.document.id for match in pipeline.search("retrievers")] == ["golden_retriever.png"]
    assert found["golden_retriever.png"].fields["words"].rank == 1
    assert found["golden_retriever.png"].score > before.pop("golden_retriever.png")
    assert {id: found[id].score for id in before} == before


def test_a_code_is_found_by_words_that_the_vectors_know_nothing_of() -> None:
    """A fit that says of each cosine that it is of unrelated texts."""

    class Blind(MockEncoder):
        def __init__(self) -> None:
            super().__init__()
            self.relevance = dict.fromkeys(self.relevance, RelevanceFit(-6.0, 0.1, 0.0, 0.0, 1.0, 0.0, 0.1))

    fillers = [Document(f"filler-{n}", text=f"note number {n} of the year {2000 + n}") for n in range(60)]
    with Pipeline(Blind(), MemoryStore(), ExtractiveGenerator()) as pipeline:
        pipeline.add([*DOCUMENTS, *fillers])
        assert [match.document.id for match in pipeline.search("AB-4711")] == ["a"]
        assert pipeline.ask("AB-4711").citations[0].id == "a"
        assert not pipeline.search("AB-4712")
        assert not pipeline.ask("AB-4712").citations


@pytest.mark.parametrize(
    ("query", "ids"), [("AB-4711", ["a"]), ("serial AB-4711", ["a"]), ("AB-4712", []), ("serial AB-4712", [])]
)
def test_vectors_do_not_show_the_neighbour_of_a_code(query: str, ids: list[str]) -> None:
    """A fit that says of each cosine that it is of what was asked for."""

    class Sure(MockEncoder):
        def __init__(self) -> None:
            super().__init__()
            self.relevance = dict.fromkeys(self.relevance, RelevanceFit(5.0, 0.1, 0.0, 0.0, 1.0, 0.0, 0.1))

    with Pipeline(Sure(), MemoryStore()) as pipeline:
        texts = (f"a serial of the year {1900 + number}" for number in range(60))
        pipeline.add([*DOCUMENTS[:1], *(Document(f"filler-{n}", text=text) for n, text in enumerate(texts))])
        assert len(pipeline.search("a serial of the year")) > 1
        assert [match.document.id for match in pipeline.search(query)] == ids


# ---- others write meanwhile


class VersionedStore(MemoryStore):
    """A store that knows versions; after each search for words, someone replaces documents."""

    def __init__(self, turns: int, replaced: int) -> None:
        super().__init__()
        self._versions: dict[str, str] = {}
        self._turns, self._replaced, self._turn = turns, replaced, 0

    def upsert(self, records: Sequence[Record]) -> None:
        super().upsert(records)
        self._turn += 1
        self._versions.update({record.document.id: str(self._turn) for record in records})

    def _versioned(self, hits: Sequence[Hit]) -> list[Hit]:
        return [VersionedHit(hit.id, hit.score, self._versions[hit.id]) for hit in hits]

    def search(self, field: Field, vectors: Vectors, *, limit: int, where: Filter | None = None) -> list[list[Hit]]:
        return [self._versioned(hits) for hits in super().search(field, vectors, limit=limit, where=where)]

    def search_words(self, query: str, *, limit: int, where: Filter | None = None) -> WordHits:
        found = super().search_words(query, limit=limit, where=where)
        found = replace(found, hits=self._versioned(found.hits))
        if self._turns:
            self._turns -= 1
            rng = np.random.default_rng(self._turns)
            self.write([int(i) for i in rng.choice(60, self._replaced, replace=False)])
        return found

    def compare(self, field: Field, vectors: Vectors, ids: Collection[str], where: Filter | None = None) -> list[Hit]:
        return self._versioned(super().compare(field, vectors, ids, where))

    def compare_words(self, query: str, ids: Collection[str], where: Filter | None = None) -> list[Hit]:
        return self._versioned(super().compare_words(query, ids, where))

    def get_versions(self, versions: Mapping[str, str]) -> dict[str, HitContent]:
        there = [id for id, version in versions.items() if self._versions.get(id) == version]
        return {document.id: HitContent(document) for document in self.get(there)}

    def write(self, numbers: Sequence[int]) -> None:
        texts = [f"{('dog', 'cat')[(i + self._turn) % 2]} number {i} of turn {self._turn}" for i in numbers]
        vectors = MockEncoder().encode_texts(texts)
        self.upsert(
            [
                Record(
                    Document(f"id-{i:02}", text=text, metadata={"dog": "dog" in text}),
                    {Field(space, "text"): rows[k] for space, rows in vectors.items()},
                )
                for k, (i, text) in enumerate(zip(numbers, texts))
            ]
        )


@pytest.mark.parametrize(("turns", "replaced"), [(1, 60), (3, 20), (1000, 5)])
@pytest.mark.parametrize("limit", [5, 60])
def test_words_are_those_of_the_document_that_is_shown(turns: int, replaced: int, limit: int) -> None:
    encoder, store = MockEncoder(), VersionedStore(turns, replaced)
    store.bind(encoder.fingerprint, encoder.spaces)
    store.write(range(60))
    pipeline = Pipeline(encoder, store)
    for _ in range(3):
        found = pipeline.search("dogs", limit=limit, min_score=0)
        assert len({match.document.id for match in found}) == len(found) == limit
        for match in found:
            is_dog = str(match.document.text).startswith("dog")
            assert match.document.metadata["dog"] == is_dog
            assert (match.fields["words"].score > 0) == is_dog, match
        ranks = {(match.fields["words"].rank, match.fields["words"].score) for match in found}
        ranks = {(rank, score) for rank, score in ranks if rank}
        assert len({rank for rank, _ in ranks}) == len(ranks), "equal scores have one rank, and others another one"
