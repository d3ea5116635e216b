"""What a store has to do with documents: bind, write, replace, read, delete, close; and with a whole index."""
# ruff: noqa: S101, D102 - these are tests, and each is named by the sentence that it checks

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import datetime
from pathlib import Path

import numpy as np
import pytest

from vlmsearch.errors import IndexMismatchError, InvalidBatchError, VlmsearchError
from vlmsearch.stores.base import RejectList, Store, WordSearch
from vlmsearch.stores.filters import parse_filter
from vlmsearch.stores.listing import count_documents, documents_after, gallery_after
from vlmsearch.types import Document, Field, Record, Reject, Scalar, Space, Stamp
from vlmsearch_mocks.contracts.records import (
    CAPTION,
    IMAGE,
    SPACES,
    TEXT,
    StoreSuite,
    make_records,
    unit_vectors,
)

_ROUNDING = 1e-6
"""Difference of a number of a vector from what was written: Chroma keeps vectors normalised once more."""
MISFITS = [
    [Record(Document("x"), {}), Record(Document("x"), {})],
    [Record(Document("x"), {IMAGE: unit_vectors(1, TEXT)[0]})],
    [Record(Document("x"), {IMAGE: unit_vectors(1)})],
    [Record(Document("x"), {Field("other", "text"): unit_vectors(1)[0]})],
    [Record(Document("x\n"), {})],
    [Record(Document("x", metadata={f"k{i}": i for i in range(1001)}), {})],
    [Record(Document("x", metadata={"k": "é" * 2**19}), {})],
]
ODD_IDS = ["", "\0", "a\0b", "id-1\0", "\ud800", "id-1\udcff", "x" * 1025, "id-1\n", "id-1#passage=1\0", "#passage=1"]
OTHERS: list[tuple[str, Sequence[Space]]] = [
    ("encoder 2", SPACES),
    ("encoder 1", SPACES[:1]),
    ("encoder 1", (Space("clip", 48, frozenset({"text", "image"})), SPACES[1])),
    ("encoder 1", (Space("clip", 32, frozenset({"image"})), SPACES[1])),
]


class DocumentsSuite(StoreSuite):
    """Tests of documents alone, before any of search."""

    # ---- before there is an index

    def test_reading_what_does_not_exist_gives_nothing_and_makes_nothing(self, tmp_path: Path) -> None:
        before = sorted(tmp_path.rglob("*"))
        with self.make_store(tmp_path) as store:
            assert store.name
            assert store.manifest() is None
            assert len(store) == 0
            assert list(store.ids()) == []
            assert store.get(["a"]) == []
            assert store.stamps(["a"]) == {}
            assert store.records(["a"]) == []
            assert store.delete(["a"]) == 0
            assert store.search(IMAGE, unit_vectors(2), limit=3) == [[], []]
            assert store.sample(IMAGE, 3).shape == (0, 0)
            assert store.compare(IMAGE, unit_vectors(1), ["a"]) == []
            assert store.manifest() is None
        assert sorted(tmp_path.rglob("*")) == before

    # ---- bind

    def test_the_manifest_says_what_built_the_index(self, store: Store) -> None:
        manifest = store.manifest()
        assert manifest is not None
        assert manifest.fingerprint == "encoder 1"
        assert set(manifest.spaces) == set(SPACES)
        assert datetime.fromisoformat(manifest.created).tzinfo is not None

    # ---- documents

    def test_documents_are_counted_and_listed_once(self, store: Store) -> None:
        for _ in range(2):
            store.upsert(make_records(3))
            assert sorted(store.ids()) == ["id-0", "id-1", "id-2"]
            assert len(store) == 3

    def test_a_batch_with_a_record_that_does_not_fit_is_refused_whole(self, store: Store) -> None:
        for bad in MISFITS:
            with pytest.raises(InvalidBatchError) as caught:
                store.upsert([*make_records(2), *bad])
            assert list(caught.value.items) == [len(bad) + 1]
            assert len(store) == 0
        good, other = make_records(2)
        with pytest.raises(InvalidBatchError) as caught:
            store.upsert([*MISFITS[1], good, *MISFITS[4], other, *MISFITS[6]])
        assert {item: error.code for item, error in caught.value.items.items()} == {
            0: "invalid",
            2: "invalid",
            4: "too_large",
        }
        assert len(store) == 0
        assert store.search(IMAGE, unit_vectors(1), limit=5) == [[]]

    def test_writing_before_bind_is_refused(self, tmp_path: Path) -> None:
        with self.make_store(tmp_path) as store:
            with pytest.raises(VlmsearchError, match="bind"):
                store.upsert(make_records(1))
            assert store.manifest() is None

    def test_binding_again_keeps_everything(self, store: Store) -> None:
        created = store.manifest()
        store.upsert(make_records(3))
        store.bind("encoder 1", tuple(reversed(SPACES)))
        assert store.manifest() == created
        assert len(store) == 3

    def test_a_document_comes_back_as_it_was(self, store: Store) -> None:
        documents = [
            Document("text", text="a red star", metadata={"a": "b"}),
            Document("path", image=Path("folder") / "photo 1.jpg"),
            Document("both", text="", image=Path("/abs/ünï.png"), metadata={"x": 1}),
            Document("nothing"),
        ]
        store.upsert([Record(document, {}) for document in documents])
        assert store.get([document.id for document in documents]) == documents

    def test_an_image_that_is_no_path_is_not_kept(self, store: Store) -> None:
        store.upsert([Record(Document("a", text="t", image=b"bytes"), {IMAGE: unit_vectors(1)[0]})])
        assert store.get(["a"]) == [Document("a", text="t")]

    def test_get_keeps_the_order_and_leaves_out_unknown_ids(self, store: Store) -> None:
        store.upsert(make_records(5))
        wanted = ["id-4", "never", "id-0", "id-2", "id-4"]
        assert [document.id for document in store.get(wanted)] == ["id-4", "id-0", "id-2", "id-4"]
        assert [record.document.id for record in store.records(wanted)] == ["id-4", "id-0", "id-2", "id-4"]

    def test_ids_that_differ_in_case_or_form_are_of_different_documents(self, store: Store) -> None:
        ids = ["a", "A", "a ", "\u00e9", "e\u0301"]
        for id in ids:
            store.upsert([Record(Document(id, text=id), {})])
        assert sorted(store.ids()) == sorted(ids)
        assert [document.text for document in store.get(ids)] == ids

    def test_vectors_keep_the_precision_of_float32(self, store: Store) -> None:
        written = make_records(3)
        store.upsert(written)
        for old, read in zip(written, store.records(["id-0", "id-1", "id-2"])):
            assert np.allclose(read.vectors[IMAGE], old.vectors[IMAGE], rtol=0, atol=_ROUNDING)

    def test_a_store_shares_nothing_with_its_callers(self, store: Store) -> None:
        metadata: dict[str, Scalar] = {"x": 1}
        vector = unit_vectors(1)[0]
        store.upsert([Record(Document("a", metadata=metadata), {IMAGE: vector})])
        for _ in range(2):
            (document,), (record,) = store.get(["a"]), store.records(["a"])
            assert document.metadata == record.document.metadata == {"x": 1}
            assert np.allclose(record.vectors[IMAGE], unit_vectors(1)[0], atol=_ROUNDING)
            for values in (metadata, document.metadata, record.document.metadata):
                with suppress(TypeError):  # a mapping that cannot be changed
                    values["x"] = 2  # type: ignore[index]
            for row in (vector, record.vectors[IMAGE]):
                if row.flags.writeable:
                    row[:] = 0

    def test_a_record_replaces_all_of_the_old_one(self, store: Store) -> None:
        old, new = unit_vectors(2, seed=1)
        store.upsert([Record(Document("a", text="old", metadata={"x": 1, "y": 2}), {IMAGE: old}, Stamp("1", "s"))])
        store.upsert([Record(Document("a", image=Path("p"), metadata={"y": "3"}), {IMAGE: new}, Stamp("2"))])
        assert store.get(["a"]) == [Document("a", image=Path("p"), metadata={"y": "3"})]
        assert store.stamps(["a"]) == {"a": Stamp("2")}
        assert (len(store), list(store.ids())) == (1, ["a"])
        store.upsert([Record(Document("a"), {IMAGE: new})])
        assert store.get(["a"]) == [Document("a")]

    def test_what_is_deleted_is_gone(self, store: Store) -> None:
        store.upsert(make_records(20))
        gone = [f"id-{i}" for i in range(0, 20, 2)]
        assert store.delete([*gone, "never", gone[0]]) == 10
        assert store.delete(gone) == 0
        assert len(store) == 10
        assert set(store.ids()).isdisjoint(gone)
        assert store.get(gone) == []
        assert store.stamps(gone) == {}

    def test_delete_removes_the_given_ids_alone(self, store: Store) -> None:
        gone, left = ["a", "b_", "%"], ["A", "a#page=2", "aa", "bb"]
        store.upsert([Record(Document(id), {}) for id in (*gone, *left)])
        assert store.delete(gone) == 3
        assert sorted(store.ids()) == left

    def test_metadata_keep_their_values_and_types(self, store: Store) -> None:
        metadata: dict[str, Scalar] = {
            "int": 1, "float": 1.0, "true": True, "false": False, "zero": 0, "text": "1", "empty": "",
            "large": 2**63 - 1, "small": -(2**63) + 1, "odd": 2**53 + 1, "third": 1 / 3, "tiny": 5e-324,
            "huge": 1.7e308, "minus zero": -0.0, "lines": "a\nb\tc\0d", "quotes": "'\"\\{}$%_", "emoji": "\U0001f436",
            "true as text": "true",
        }  # fmt: skip
        store.upsert([Record(Document("a", metadata=metadata), {})])
        kept = dict(store.get(["a"])[0].metadata)
        assert kept == metadata
        assert {key: type(value) for key, value in kept.items()} == {key: type(v) for key, v in metadata.items()}

    def test_empty_batches_are_allowed(self, store: Store) -> None:
        store.upsert([])
        assert (store.get([]), store.stamps([]), store.delete([])) == ([], {}, 0)
        assert store.search(IMAGE, unit_vectors(0), limit=3) == []
        assert store.search(IMAGE, unit_vectors(2), limit=3) == [[], []]

    # ---- records

    def test_records_are_those_of_the_last_write(self, store: Store) -> None:
        first = make_records(3, (IMAGE, TEXT))
        store.upsert(first)
        store.upsert([Record(first[1].document, {TEXT: first[2].vectors[TEXT]}, Stamp("new"))])
        store.delete(["id-2"])
        records = store.records(["id-2", "id-1"])
        assert [(record.document, record.stamp) for record in records] == [(first[1].document, Stamp("new"))]
        assert records[0].vectors.keys() == {TEXT}
        assert np.allclose(records[0].vectors[TEXT], first[2].vectors[TEXT], atol=_ROUNDING)

    def test_records_can_be_written_as_they_are_read(self, store: Store) -> None:
        store.upsert(make_records(5, (IMAGE, TEXT)))
        read = store.records(list(store.ids()))
        store.upsert(read)
        again = store.records([record.document.id for record in read])
        assert [(record.document, record.stamp) for record in again] == [(r.document, r.stamp) for r in read]
        for record, old in zip(again, read):
            assert all(np.allclose(record.vectors[f], old.vectors[f], atol=_ROUNDING) for f in (IMAGE, TEXT))

    def test_the_fields_of_a_document_are_those_it_has_vectors_in(self, store: Store) -> None:
        first = make_records(3, (IMAGE, TEXT))
        store.upsert([*first, Record(Document("bare"), {})])
        store.upsert([Record(first[1].document, {TEXT: first[1].vectors[TEXT]})])
        store.delete(["id-2"])
        fields = store.fields(["id-0", "id-1", "id-2", "bare", "never"])
        assert fields == {"id-0": {IMAGE, TEXT}, "id-1": {TEXT}, "bare": set()}
        assert store.fields([]) == {}

    def test_stamps_are_those_of_the_last_write(self, store: Store) -> None:
        store.upsert(make_records(4))
        assert store.stamps(["id-1", "never", "id-3"]) == {
            "id-1": Stamp("digest 1", "source 1"),
            "id-3": Stamp("digest 3", "source 0"),
        }
        store.upsert([Record(Document("id-1"), {}, Stamp("ä", "/home/ü"))])
        assert store.stamps(["id-1"]) == {"id-1": Stamp("ä", "/home/ü")}

    def test_a_store_can_be_closed_twice(self, tmp_path: Path) -> None:
        store = self.make_store(tmp_path)
        store.close()
        store.bind("encoder 1", SPACES)
        store.upsert(make_records(1))
        store.close()
        store.close()


class IndexSuite(StoreSuite):
    """Tests of a whole index, which take all that other suites test: reopening, lists, odd ids and large values."""

    def test_another_encoder_is_refused_before_anything_is_written(self, store: Store) -> None:
        store.upsert(make_records(3))
        before = store.manifest()
        for fingerprint, spaces in OTHERS:
            with pytest.raises(IndexMismatchError, match="encoder 1"):
                store.bind(fingerprint, spaces)
            assert store.manifest() == before
        assert len(store) == 3
        assert store.search(IMAGE, make_records(3)[1].vectors[IMAGE][None], limit=1)[0][0].id == "id-1"

    def test_a_durable_store_has_everything_after_it_was_closed(self, tmp_path: Path) -> None:
        records = make_records(1200, (IMAGE, TEXT))
        with self.make_store(tmp_path) as store:
            store.bind("encoder 1", SPACES)
            store.upsert(records[:700])
            store.upsert(records[700:])
            store.delete(["id-5"])
            before = store.manifest()
        with self.make_store(tmp_path) as store:
            if not self.durable:
                assert store.manifest() is None
                return
            assert store.manifest() == before
            with pytest.raises(IndexMismatchError):
                store.bind("encoder 2", SPACES)
            assert len(store.search(IMAGE, unit_vectors(1), limit=2000)[0]) == 1199, "searching needs no bind"
            store.bind("encoder 1", SPACES)
            assert len(store) == 1199
            assert store.get(["id-1", "id-5"]) == [records[1].document]
            assert store.stamps(["id-1"]) == {"id-1": records[1].stamp}
            where = parse_filter({"number": {"$gte": 1190}})
            assert len(store.search(TEXT, unit_vectors(1, TEXT), limit=50, where=where)[0]) == 10
            store.upsert(records[5:6])
            assert len(store) == 1200

    def test_all_can_be_deleted_while_the_ids_are_listed(self, store: Store) -> None:
        store.upsert(make_records(40))
        assert sum(store.delete([id]) for id in store.ids()) == 40
        assert len(store) == 0
        assert store.search(IMAGE, unit_vectors(1), limit=5) == [[]]

    # ---- lists

    def test_documents_are_listed_page_by_page(self, store: Store) -> None:
        assert documents_after(store, "", 5) == []
        records = make_records(20, (IMAGE, TEXT))
        store.upsert(records[::-1])
        documents = sorted((record.document for record in records), key=lambda document: document.id)
        assert documents_after(store, "", 7) == documents[:7]
        assert documents_after(store, documents[6].id, 7) == documents[7:14]
        assert documents_after(store, documents[13].id, 7) == documents[14:]
        assert documents_after(store, documents[-1].id, 7) == []
        where = parse_filter({"$or": [{"number": {"$lt": 4}}, {"number": {"$gte": 15}}]})
        passing = [document for document in documents if where.matches(document.metadata)]
        assert len(passing) == 9
        assert documents_after(store, "", 5, where) == passing[:5]
        assert documents_after(store, passing[4].id, 5, where) == passing[5:]
        store.delete([passing[0].id, documents[-1].id])
        store.upsert([Record(Document(passing[1].id, text="changed", metadata={"number": 9}), records[0].vectors)])
        assert [document.id for document in documents_after(store, "", 2, where)] == [
            document.id for document in passing[2:4]
        ]

    def test_documents_are_listed_with_pictures_and_the_newest_first(self, store: Store) -> None:
        assert gallery_after(store, None, 5, "day") == []
        assert count_documents(store, ["kind"]).total == 0
        records = make_records(7, (IMAGE, TEXT))
        picture, odd = Path("a.png"), "m\u00fcnster.$ 1"
        documents = [
            Document("old", image=picture, metadata={"day": 20200101, "kind": "png", odd: 1}),
            Document("new", image=picture, metadata={"day": 20240612, "kind": "png", odd: 2}),
            Document("undated", image=picture, metadata={"day": "yesterday", "kind": True}),
            Document("film#t=1.000", image=picture, metadata={"day": 20250101}),
            Document("note", text="a note", metadata={"day": 20240612, "kind": "txt", "exact": 2**60 + 1}),
            Document("b", text="b", metadata={"kind": "txt", odd: 0.5}),
            Document("a", text="a"),
        ]
        store.upsert([Record(document, record.vectors) for document, record in zip(documents, records)])
        order = ["new", "old", "undated", "note", "a", "b", "film#t=1.000"]
        after, seen = None, list[str]()
        while page := gallery_after(store, after, 2, "day"):
            after = page[-1][0]
            seen += [document.id for _, document in page]
        assert seen == order
        where = parse_filter({"day": {"$gt": 20200101}})
        assert [document.id for _, document in gallery_after(store, None, 9, "day", where)] == [
            "new", "note", "film#t=1.000"
        ]  # fmt: skip
        counts = count_documents(store, ["kind", odd, "none"])
        assert counts.total == 7
        assert counts.values == {"kind": {"png": 2, "txt": 2, True: 1}, odd: {1: 1, 2: 1, 0.5: 1}, "none": {}}
        assert list(counts.values["kind"])[-1] is True
        assert count_documents(store, ["kind"], where).values == {"kind": {"png": 1, "txt": 1}}
        assert count_documents(store, [], where).total == 3

    # ---- extremes

    def test_an_id_that_no_document_can_have_is_unknown(self, store: Store) -> None:
        store.upsert(make_records(3, (IMAGE, TEXT)))
        ids, query = [*ODD_IDS, "id-1"], unit_vectors(1)
        assert [document.id for document in store.get(ids)] == ["id-1"]
        assert [record.document.id for record in store.records(ids)] == ["id-1"]
        assert [record.document.id for record in store.encoded(ids)] == ["id-1"]
        assert store.stamps(ids).keys() == store.fields(ids).keys() == {"id-1"}
        assert store.passages(ids) == {}
        assert [hit.id for hit in store.compare(IMAGE, query, ids)] == ["id-1"]
        assert store.compare(IMAGE, query, ODD_IDS) == []
        if isinstance(store, WordSearch):
            assert [hit.id for hit in store.compare_words("text", ids)] == ["id-1"]
            assert store.compare_words("text", ODD_IDS) == []
        if isinstance(store, RejectList):
            store.reject([Reject("id-9", "truncated", "ends early")])
            store.release(ODD_IDS)
            assert [reject.id for reject in store.rejects()] == ["id-9"]
        assert store.delete(ODD_IDS) == 0
        assert store.delete(ids) == 1
        assert len(store) == 2

    def test_any_valid_key_id_and_text_can_be_used(self, store: Store) -> None:
        ids = ["a/b.jpg", "ключ", "\U0001f436", "x" * 1024, "é" * 512, "#1", "$where", *"aA %'\","]
        keys = ["a.b", " ", "id", "_id", "m:id", "state", "é", "#x", "x" * 128, "a$", "chroma:document", "'", "0"]
        texts = ["", "\0", "\r\n", "e\u0301", "\u202eabc", "{}", "'; DROP TABLE x", "\U0001f468\u200d\U0001f469", " "]
        records = [
            Record(Document(id, text=texts[i % len(texts)], metadata=dict.fromkeys(keys, i)), {TEXT: vector})
            for i, (id, vector) in enumerate(zip(ids, unit_vectors(len(ids), TEXT)))
        ]
        store.upsert(records)
        assert sorted(store.ids()) == sorted(ids)
        assert [document.id for document in documents_after(store, "", 1000)] == sorted(ids)
        assert store.get(ids) == [record.document for record in records]
        for i, key in enumerate(keys):
            hits = store.search(TEXT, unit_vectors(1, TEXT), limit=50, where=parse_filter({key: i}))[0]
            assert [hit.id for hit in hits] == [ids[i]]
        assert store.delete(ids) == len(ids)

    def test_metadata_are_kept_up_to_their_limit(self, store: Store) -> None:
        wide: dict[str, Scalar] = {f"k{i}": i for i in range(1000)}
        long: dict[str, Scalar] = {"k": "é" * (2**19 - 1)}
        vectors = unit_vectors(2, TEXT)
        store.upsert(
            [
                Record(Document("wide", metadata=wide), {TEXT: vectors[0]}),
                Record(Document("long", metadata=long), {TEXT: vectors[1]}),
            ]
        )
        assert [document.metadata for document in store.get(["wide", "long"])] == [wide, long]
        for where, id in (({"k999": 999}, "wide"), (long, "long")):
            hits = store.search(TEXT, vectors[:1], limit=9, where=parse_filter(where))[0]
            assert [hit.id for hit in hits] == [id]

    def test_long_texts_are_kept_whole(self, store: Store) -> None:
        texts = [f"{i} " + "wörd " * 20_000 for i in range(40)]
        rows = unit_vectors(40, TEXT)
        store.upsert([Record(Document(str(i), text=text), {TEXT: rows[i]}) for i, text in enumerate(texts)])
        assert [document.text for document in store.get([str(i) for i in range(40)])] == texts
        assert store.search(TEXT, rows[7:8], limit=1)[0][0].id == "7"

    def test_records_are_what_was_written(self, store: Store) -> None:
        written = make_records(1200, (IMAGE, TEXT))
        written += [
            Record(Document("picture", image=Path("folder") / "1.jpg"), {CAPTION: unit_vectors(1, CAPTION)[0]}),
            Record(Document("bytes", text="t", image=b"bytes"), {IMAGE: unit_vectors(1)[0]}, Stamp("d", "ü")),
            Record(Document("bare"), {}, Stamp("", "s"), "encoder 1"),
            Record(Document("\U0001f436" + "é" * 510, metadata={"x": 2**63 - 1}), {TEXT: unit_vectors(1, TEXT)[0]}),
        ]
        store.upsert(written)
        ids = [record.document.id for record in written]
        wanted = ["never", *reversed(ids), ids[0]]
        records = store.records(wanted)
        assert [record.document.id for record in records] == [*reversed(ids), ids[0]]
        before = {record.document.id: record for record in written}
        assert [record.document for record in records[:-1]] == store.get(list(reversed(ids)))
        for record in records:
            old = before[record.document.id]
            assert (record.stamp, record.fingerprint) == (old.stamp, "encoder 1")
            assert record.vectors.keys() == old.vectors.keys()
            for field, vector in record.vectors.items():
                assert vector.dtype == np.float32
                assert vector.shape == old.vectors[field].shape
                assert np.abs(vector - old.vectors[field]).max() < _ROUNDING
        assert store.records([]) == []

    def test_each_record_is_of_one_version_while_others_write(self, store: Store) -> None:
        table = {field: unit_vectors(20, field) for field in (IMAGE, TEXT)}
        ids = [f"id-{i}" for i in range(10)]

        def version(number: int) -> list[Record]:
            vectors = {field: table[field][number] for field in ((IMAGE, TEXT) if number % 2 else (TEXT,))}
            return [Record(Document(id, text=f"{number}"), vectors, Stamp(f"{number}")) for id in ids]

        def write() -> None:
            for number in range(1, 20):
                store.upsert(version(number))

        store.upsert(version(0))
        with ThreadPoolExecutor(1) as pool:
            written = pool.submit(write)
            looks = 0
            while not written.done() or not looks:
                records = store.records(ids)
                looks += 1
                assert [record.document.id for record in records] == ids
                for record in records:
                    number = int(record.document.text or "")
                    assert record.stamp == Stamp(f"{number}")
                    assert record.vectors.keys() == version(number)[0].vectors.keys()
                    for field, vector in record.vectors.items():
                        assert np.allclose(vector, table[field][number], atol=_ROUNDING)
            written.result()
