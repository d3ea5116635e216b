"""What a store has to do with the passages of long texts."""
# ruff: noqa: S101, D102 - these are tests, and each is named by the sentence that it checks

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from vlmsearch.errors import InvalidBatchError
from vlmsearch.stores.base import Store, WordSearch
from vlmsearch.stores.filters import parse_filter
from vlmsearch.stores.listing import all_documents, count_documents, gallery_after
from vlmsearch.stores.versions import read_documents
from vlmsearch.types import Document, EncodedPassage, MetadataChange, Passage, Record, Stamp
from vlmsearch_mocks.contracts.records import CAPTION, IMAGE, TEXT, StoreSuite, make_records, unit_vectors

PARTS = ("The garden has a pond. ", "The safe has the code 4471. ", "The weather is fine. ")
VECTORS = unit_vectors(20, TEXT, seed=7)


def make_long(id: str = "long", parts: tuple[str, ...] = PARTS, *, first: int = 0, digest: str = "d1") -> Record:
    """Return a record with a passage for each part, and vectors from ``first`` on."""
    starts = np.cumsum([0, *map(len, parts)]).tolist()
    passages = tuple(
        EncodedPassage(
            Passage(n, starts[n - 1], starts[n], "Handbook" if n > 1 else "", part),
            {TEXT: VECTORS[first + n], CAPTION: unit_vectors(20, CAPTION)[first + n]},
        )
        for n, part in enumerate(parts, 1)
    )
    document = Document(id, "".join(parts), metadata={"kind": "book", "year": 2020})
    return Record(document, {IMAGE: unit_vectors(20)[first]}, Stamp(digest, "books/long.txt"), "encoder 1", passages)


def assert_same(record: Record, expected: Record) -> None:
    """Compare two records, and their vectors to what stores may round."""
    assert (record.document, record.stamp) == (expected.document, expected.stamp)
    assert [part.passage for part in record.passages] == [part.passage for part in expected.passages]
    own, other = ([r.vectors, *(part.vectors for part in r.passages)] for r in (record, expected))
    for vectors, wanted in zip(own, other):
        assert vectors.keys() == wanted.keys()
        for field, vector in vectors.items():
            np.testing.assert_allclose(vector, wanted[field], atol=1e-6)


class PassagesSuite(StoreSuite):
    """Passages are written, found, replaced and removed with their documents."""

    def test_a_record_comes_back_with_its_passages(self, store: Store) -> None:
        store.upsert([*make_records(2), make_long()])
        assert_same(store.records(["long"])[0], make_long())
        assert store.passages(["long", "id-1", "never"]) == {"long": tuple(p.passage for p in make_long().passages)}
        assert store.stamps(["long"]) == {"long": Stamp("d1", "books/long.txt")}

    def test_the_whole_document_is_read_and_a_passage_by_its_id(self, store: Store) -> None:
        store.upsert([make_long()])
        whole, part = store.get(["long", "long#passage=2"])
        assert whole == make_long().document
        assert (part.id, part.text, part.metadata["year"]) == ("long#passage=2", PARTS[1], 2020)
        assert store.get(["long#passage=4", "id#passage=1"]) == []
        assert store.records(["long#passage=2"]) == []
        [encoded] = store.encoded(["long#passage=2"])
        assert encoded.document.text == f"Handbook\n\n{PARTS[1]}"
        np.testing.assert_allclose(encoded.vectors[TEXT], VECTORS[2], atol=1e-6)

    def test_ids_lists_and_counts_are_of_documents(self, store: Store) -> None:
        store.upsert([*make_records(2), make_long()])
        assert sorted(store.ids()) == ["id-0", "id-1", "long"]
        assert [document.id for document in all_documents(store)] == ["id-0", "id-1", "long"]
        assert [document.id for document in all_documents(store, parse_filter({"kind": "book"}))] == ["long"]
        assert {document.id for _, document in gallery_after(store, None, 10, "year")} == {"id-0", "id-1", "long"}
        assert (len(store), store.count_files(), store.count_passages()) == (3, 3, 3)
        store.upsert([make_long("a.pdf#page=1"), make_long("a.pdf")])
        assert (len(store), store.count_files()) == (5, 4)
        store.delete(["a.pdf#page=1", "a.pdf"])
        counts = count_documents(store, ["kind"])
        assert (counts.total, counts.values) == (3, {"kind": {"book": 1}})
        assert count_documents(store, [], parse_filter({"year": 2020})).total == 1

    def test_search_finds_passages_that_pass_the_filter_of_their_document(self, store: Store) -> None:
        store.upsert([*make_records(3, (IMAGE, TEXT)), make_long()])
        [hits] = store.search(TEXT, VECTORS[2:3], limit=2)
        assert hits[0].id == "long#passage=2"
        assert hits[0].score == pytest.approx(1, abs=1e-5)
        [hits] = store.search(TEXT, VECTORS[2:3], limit=9, where=parse_filter({"kind": "book"}))
        assert sorted(hit.id for hit in hits) == ["long#passage=1", "long#passage=2", "long#passage=3"]
        [hits] = store.search(IMAGE, unit_vectors(20)[:1], limit=9, where=parse_filter({"kind": "book"}))
        assert sorted(hit.id for hit in hits) == ["long#passage=1", "long#passage=2", "long#passage=3"]
        assert store.search(TEXT, VECTORS[2:3], limit=9, where=parse_filter({"kind": "film"})) == [[]]

    def test_hits_are_read_with_their_whole_document(self, store: Store) -> None:
        store.upsert([*make_records(3, (IMAGE, TEXT)), make_long()])
        [hits] = store.search(TEXT, VECTORS[2:3], limit=9)
        contents = read_documents(store, {hit.id for hit in hits}, hits)
        assert contents["long#passage=2"] == (make_long().document, make_long().passages[1].passage)
        assert contents["id-1"].passage is None
        store.upsert([make_long(first=8, digest="d2")])
        assert not any(id.startswith("long") for id in read_documents(store, {hits[0].id}, hits[:1])) or (
            not hasattr(store, "get_versions")
        )

    def test_comparing_fields_and_samples_know_passages(self, store: Store) -> None:
        store.upsert([make_long()])
        hits = store.compare(TEXT, VECTORS[1:2], ["long", "long#passage=1", "long#passage=3", "never#passage=1"])
        assert {hit.id for hit in hits} == {"long#passage=1", "long#passage=3"}
        assert store.fields(["long", "long#passage=1"]) == {
            "long": frozenset({IMAGE}),
            "long#passage=1": frozenset({IMAGE, TEXT, CAPTION}),
        }
        assert sorted(store.sample_ids(TEXT, 10)) == [f"long#passage={n}" for n in (1, 2, 3)]
        np.testing.assert_allclose(
            np.sort(store.sample(TEXT, 10) @ VECTORS[1]), np.sort(VECTORS[1:4] @ VECTORS[1]), atol=1e-5
        )

    def test_words_are_those_of_passages_with_their_heading(self, store: Store) -> None:
        if not isinstance(store, WordSearch):
            pytest.skip("it ranks no words")
        store.upsert([*make_records(3), make_long()])
        assert [hit.id for hit in store.search_words("safe", limit=9).hits] == ["long#passage=2"]
        headed = store.search_words("handbook", limit=9).hits
        assert {hit.id for hit in headed} == {"long#passage=2", "long#passage=3"}
        assert store.search_words("safe", limit=9, where=parse_filter({"kind": "film"})).hits == []
        assert [hit.id for hit in store.compare_words("safe", ["long", "long#passage=2"])] == ["long#passage=2"]

    def test_replacing_a_document_replaces_its_passages(self, store: Store) -> None:
        store.upsert([make_long()])
        shorter = make_long(parts=("One part. ", "Another part."), first=8, digest="d2")
        store.upsert([shorter])
        assert_same(store.records(["long"])[0], shorter)
        assert store.count_passages() == 2
        [hits] = store.search(TEXT, VECTORS[2:3], limit=9)
        assert sorted(hit.id for hit in hits) == ["long#passage=1", "long#passage=2"]
        whole = Record(Document("long", "short"), {TEXT: VECTORS[0]}, Stamp("d3", "s"), "encoder 1")
        store.upsert([whole])
        assert_same(store.records(["long"])[0], whole)
        assert store.count_passages() == 0
        [hits] = store.search(TEXT, VECTORS[2:3], limit=9)
        assert [hit.id for hit in hits] == ["long"]

    def test_deleting_a_document_deletes_its_passages(self, store: Store) -> None:
        store.upsert([*make_records(2, (IMAGE, TEXT)), make_long(), make_long("other", first=8)])
        assert store.delete(["long#passage=1"]) == 0
        assert store.delete(["long", "never"]) == 1
        assert (len(store), store.count_passages()) == (3, 3)
        [hits] = store.search(TEXT, VECTORS[2:3], limit=20)
        assert not any(hit.id.startswith("long") for hit in hits)
        assert store.get(["long", "long#passage=1"]) == []

    def test_metadata_of_a_document_are_those_of_its_passages(self, store: Store) -> None:
        store.upsert([make_long()])
        read = store.records(["long"])[0]
        change = MetadataChange(read.document, read.stamp, {"kind": "novel", "label:x": 0.5}, "d1+labels")
        assert store.update_metadata([change]) == ["long"]
        expected = replace(make_long(), document=replace(read.document, metadata=change.metadata))
        assert_same(store.records(["long"])[0], replace(expected, stamp=Stamp("d1+labels", "books/long.txt")))
        [hits] = store.search(TEXT, VECTORS[2:3], limit=9, where=parse_filter({"kind": "novel"}))
        assert hits[0].id == "long#passage=2"
        assert store.search(TEXT, VECTORS[2:3], limit=9, where=parse_filter({"kind": "book"})) == [[]]
        assert read_documents(store, [hits[0].id], hits)[hits[0].id].document.metadata["kind"] == "novel"
        assert store.update_metadata([change]) == []

    def test_another_text_replaces_the_passages(self, store: Store) -> None:
        store.upsert([make_long()])
        read, new = store.records(["long"])[0], make_long(parts=("New part. ", "Newer part."))
        text, metadata = new.document.text, read.document.metadata
        change = MetadataChange(read.document, read.stamp, metadata, "d2", text, passages=new.passages)
        assert store.update_metadata([change]) == ["long"]
        assert_same(store.records(["long"])[0], replace(new, stamp=Stamp("d2", "books/long.txt")))
        read = store.records(["long"])[0]
        change = MetadataChange(read.document, read.stamp, metadata, "d3", "short", {TEXT: VECTORS[0]})
        assert store.update_metadata([change]) == ["long"]
        assert store.records(["long"])[0].passages == ()
        [hits] = store.search(TEXT, VECTORS[2:3], limit=9)
        assert [hit.id for hit in hits] == ["long"]

    def test_a_document_of_a_thousand_passages_is_whole(self, store: Store) -> None:
        parts = tuple(f"Part {n}. " for n in range(1000))
        starts = np.cumsum([0, *map(len, parts)]).tolist()
        vectors = unit_vectors(1000, TEXT)
        passages = tuple(
            EncodedPassage(Passage(n + 1, starts[n], starts[n + 1], "", parts[n]), {TEXT: vectors[n]})
            for n in range(1000)
        )
        store.upsert([Record(Document("long", "".join(parts)), {}, Stamp("d", ""), "encoder 1", passages)])
        assert len(store.records(["long"])[0].passages) == store.count_passages() == 1000
        assert store.search(TEXT, vectors[700:701], limit=1)[0][0].id == "long#passage=701"
        assert store.delete(["long"]) == 1
        assert store.count_passages() == 0

    def test_the_id_of_a_passage_alone_neither_deletes_nor_changes_it(self, store: Store) -> None:
        store.upsert([make_long()])
        assert store.delete(["long#passage=2"]) == 0
        part = store.get(["long#passage=2"])[0]
        stamp = Stamp("d1", "books/long.txt")
        assert store.update_metadata([MetadataChange(part, stamp, {"kind": "film"}, "d2")]) == []
        assert_same(store.records(["long"])[0], make_long())
        assert store.get(["long#passage=2"]) == [part]

    def test_a_document_does_not_have_the_id_of_a_passage(self, store: Store) -> None:
        with pytest.raises(InvalidBatchError, match="names a passage"):
            store.upsert([Record(Document("long#passage=2", "text"), {TEXT: VECTORS[0]})])
        assert len(store) == 0
