"""What a store has to find."""
# ruff: noqa: S101, D102 - these are tests, and each is named by the sentence that it checks

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest

from vlmsearch.errors import ConfigError
from vlmsearch.stores.base import Store
from vlmsearch.stores.filters import MAX_CONDITIONS, MAX_DEPTH, MAX_VALUES, parse_filter
from vlmsearch.stores.listing import count_documents
from vlmsearch.types import Document, Field, Record, Scalar, Stamp
from vlmsearch_mocks.contracts.records import (
    CAPTION,
    IMAGE,
    TEXT,
    TOLERANCE,
    StoreSuite,
    exact,
    make_records,
    unit_vectors,
)

FILTERS: list[tuple[Mapping[str, object], str]] = [
    ({"x": 1}, "int float"),
    ({"x": 1.0}, "int float"),
    ({"x": True}, "true"),
    ({"x": False}, "false"),
    ({"x": "1"}, "text"),
    ({"x": 0}, "zero minus"),
    ({"x": ""}, ""),
    ({"x": {"$ne": 1}}, "true false text zero minus large odd none"),
    ({"x": {"$ne": "1"}}, "int float true false zero minus large odd none"),
    ({"x": {"$ne": True}}, "int float false text zero minus large odd none"),
    ({"x": {"$gt": 0}}, "int float large odd"),
    ({"x": {"$gte": -0.0}}, "int float zero minus large odd"),
    ({"x": {"$lt": 1}}, "zero minus"),
    ({"x": {"$lte": 1, "$gt": 0.5}}, "int float"),
    ({"x": {"$gte": 2**53}}, "large odd"),
    ({"x": 2**53}, "odd"),
    ({"x": 2**63}, "large"),
    ({"x": {"$in": [1, "1"]}}, "int float text"),
    ({"x": {"$in": [True, 0, "no"]}}, "true zero minus"),
    ({"x": {"$nin": [1, True, "1"]}}, "false zero minus large odd none"),
    ({"x": {"$nin": ["no"]}}, "int float true false text zero minus large odd none"),
    ({"y": 1}, "none"),
    ({"y": {"$gt": 0}, "x": {"$ne": 5}}, "none"),
    ({"$or": [{"y": 1}, {"x": "1"}]}, "text none"),
    ({"$and": [{"x": {"$gt": 0}}, {"$or": [{"x": {"$lt": 2}}, {"y": 1}]}]}, "int float"),
    ({"z": 1}, ""),
]
LIST_FILTERS: list[tuple[Mapping[str, object], str]] = [
    ({"x": "a"}, "ab a"),
    ({"x": "b"}, "ab"),
    ({"x": "a, b"}, "odd"),
    ({"x": "\ud800"}, "odd"),
    ({"x": {"$in": ["b", "n999", "\0", 1]}}, "ab odd many number"),
    ({"x": {"$in": [f"n{i}" for i in range(150)]}}, "many"),
    ({"x": {"$ne": "a"}}, "odd many number none"),
    ({"x": {"$ne": "\0"}}, "ab a many number none"),
    ({"x": {"$nin": ["\ud800", "b"]}}, "a many number none"),
    ({"x": {"$nin": ["b", "", 1]}}, "a many none"),
    ({"x": {"$nin": [f"n{i}" for i in range(850, 1000)]}}, "ab a odd number none"),
    ({"x": {"$gt": 0}}, "number"),
    ({"x": {"$lte": 5}}, "number"),
    ({"$or": [{"x": "b"}, {"y": 1}]}, "ab none"),
    ({"$and": [{"x": "a"}, {"x": "b"}]}, "ab"),
]


class SearchSuite(StoreSuite):
    """Tests of search, filters, size and threads."""

    # ---- search

    def test_no_score_is_beyond_one(self, store: Store) -> None:
        store.upsert(make_records(200))
        for sign in (1, -1):  # sums of squares in float32 come out above 1 for some of them
            for hits in store.search(IMAGE, sign * unit_vectors(200), limit=200):
                assert all(-1 <= hit.score <= 1 for hit in hits)

    def test_there_are_as_many_hits_as_asked_for_or_as_match(self, store: Store) -> None:
        store.upsert(make_records(30))
        for limit, count in ((1, 1), (29, 29), (30, 30), (31, 30), (1000, 30)):
            assert [len(hits) for hits in store.search(IMAGE, unit_vectors(3, seed=5), limit=limit)] == [count] * 3

    def test_scores_are_the_cosines_and_the_order_is_theirs(self, store: Store) -> None:
        records = make_records(500)
        store.upsert(records)
        queries = np.concatenate([unit_vectors(5, seed=9), records[3].vectors[IMAGE][None]])
        for query, hits in zip(queries, store.search(IMAGE, queries, limit=20)):
            wanted = exact(records, IMAGE, query)[:20]
            assert [hit.id for hit in hits] == [hit.id for hit in wanted]
            assert [hit.score for hit in hits] == pytest.approx([hit.score for hit in wanted], abs=TOLERANCE)
        assert hits[0].id == "id-3"
        assert hits[0].score == pytest.approx(1.0, abs=TOLERANCE)
        assert store.search(IMAGE, -queries[-1:], limit=500)[0][-1].score == pytest.approx(-1.0, abs=TOLERANCE)
        assert all(-1.0 <= hit.score <= 1.0 for hit in store.search(IMAGE, -queries[-1:], limit=500)[0])

    def test_each_of_many_query_vectors_has_its_own_hits(self, store: Store) -> None:
        store.upsert(make_records(150))
        pages = store.search(IMAGE, unit_vectors(150), limit=1)
        assert [[hit.id for hit in hits] for hits in pages] == [[f"id-{i}"] for i in range(150)]

    def test_equal_vectors_come_in_the_order_of_their_ids(self, store: Store) -> None:
        vector = unit_vectors(1)[0]
        ids = ["aBéz"[i % 4] + f"{i:02}" for i in np.random.default_rng(1).permutation(40)]
        store.upsert([Record(Document(id), {IMAGE: vector}) for id in ids])
        assert [hit.id for hit in store.search(IMAGE, vector[None], limit=40)[0]] == sorted(ids)

    def test_a_field_finds_only_documents_that_have_it(self, store: Store) -> None:
        records = make_records(9, (IMAGE, CAPTION, TEXT))
        fields = ((IMAGE,), (CAPTION, TEXT), (IMAGE, CAPTION, TEXT))
        store.upsert([Record(r.document, {f: r.vectors[f] for f in fields[i % 3]}) for i, r in enumerate(records)])
        for field, count in ((IMAGE, 6), (CAPTION, 6), (TEXT, 6)):
            ids = {hit.id for hit in store.search(field, unit_vectors(1, field), limit=20)[0]}
            assert ids == {f"id-{i}" for i in range(9) if field in fields[i % 3]}
            assert len(ids) == count

    def test_a_document_without_vectors_is_kept_and_never_found(self, store: Store) -> None:
        store.upsert([*make_records(2), Record(Document("bare", text="t"), {}, Stamp("d"))])
        assert (len(store), store.stamps(["bare"])) == (3, {"bare": Stamp("d")})
        assert len(store.search(IMAGE, unit_vectors(1), limit=9)[0]) == 2

    def test_an_unknown_field_is_an_error_that_names_it(self, store: Store) -> None:
        field, query = Field("other", "text"), unit_vectors(1)
        for ask in (
            lambda: store.search(field, query, limit=3),
            lambda: store.compare(field, query, ["a"]),
            lambda: store.sample(field, 3),
        ):
            with pytest.raises(ConfigError, match="other/text"):
                ask()

    # ---- filters

    def test_a_filter_leaves_out_what_does_not_pass(self, store: Store) -> None:
        store.upsert(make_records(3))
        (hits,) = store.search(IMAGE, unit_vectors(1), limit=9, where=parse_filter({"number": 1}))
        assert [hit.id for hit in hits] == ["id-1"]

    @pytest.mark.parametrize("operator", ["$eq", "$ne", "$gt", "$gte", "$lt", "$lte", "$in", "$nin"])
    def test_a_document_without_the_key_passes_not_equal_alone(self, store: Store, operator: str) -> None:
        store.upsert([Record(Document("a"), {IMAGE: unit_vectors(1)[0]})])
        where = parse_filter({"x": {operator: [0] if operator in ("$in", "$nin") else 0}})
        (hits,) = store.search(IMAGE, unit_vectors(1), limit=9, where=where)
        assert len(hits) == (operator in ("$ne", "$nin"))

    def test_filters_mean_what_they_say(self, store: Store) -> None:
        values: dict[str, Scalar] = {
            "int": 1, "float": 1.0, "true": True, "false": False, "text": "1", "zero": 0, "minus": -0.0,
            "large": 2**63 - 1, "odd": 2**53 + 1,
        }  # fmt: skip
        documents = [Document(name, metadata={"x": value}) for name, value in values.items()]
        documents.append(Document("none", metadata={"y": 1}))
        store.upsert([Record(d, {IMAGE: v}) for d, v in zip(documents, unit_vectors(len(documents)))])
        for where, expected in FILTERS:
            hits = store.search(IMAGE, unit_vectors(1, seed=2), limit=50, where=parse_filter(where))[0]
            assert {hit.id for hit in hits} == set(expected.split()), where

    def test_a_list_equals_what_any_of_its_strings_equals(self, store: Store) -> None:
        many = tuple(f"n{i}" for i in range(1000))
        odd = ("\ud800", "\0", "a, b", "")
        values: dict[str, str | tuple[str, ...]] = {"ab": ("a", "b"), "a": "a", "odd": odd, "many": many}
        documents = [Document(name, metadata={"x": value}) for name, value in values.items()]
        documents += [Document("number", metadata={"x": 1}), Document("none", metadata={"y": 1})]
        vectors = unit_vectors(len(documents))
        store.upsert([Record(document, {IMAGE: vector}) for document, vector in zip(documents, vectors)])
        read = {document.id: document for document in store.get([document.id for document in documents])}
        assert read == {document.id: document for document in documents}
        for where, expected in LIST_FILTERS:
            hits = store.search(IMAGE, vectors[:1], limit=50, where=parse_filter(where))[0]
            assert {hit.id for hit in hits} == set(expected.split()), where
        assert count_documents(store, ["x"], parse_filter({"x": "a"})).values == {"x": {"a": 2, "b": 1}}
        store.upsert([Record(Document("ab", metadata={"x": ("b", "c")}), {IMAGE: vectors[0]})])
        hits = store.search(IMAGE, vectors[:1], limit=50, where=parse_filter({"x": {"$in": ["a", "c"]}}))[0]
        assert {hit.id for hit in hits} == {"ab", "a"}
        assert count_documents(store, ["x"], parse_filter({"x": "c"})).values == {"x": {"b": 1, "c": 1}}

    def test_texts_that_are_no_valid_unicode_equal_themselves_alone(self, store: Store) -> None:
        texts = ["\ud800", "\\ud800", "\ud83d\ude00", "\U0001f600", "\0escaped:\\ud800", "\0", "\\"]
        vectors = unit_vectors(len(texts))
        store.upsert([Record(Document(str(i), metadata={"x": t}), {IMAGE: vectors[i]}) for i, t in enumerate(texts)])
        for i, text in enumerate(texts):
            for where, expected in (
                ({"x": text}, {str(i)}),
                ({"x": {"$in": [text, "no"]}}, {str(i)}),
                ({"x": {"$ne": text}}, {str(j) for j in range(len(texts)) if j != i}),
            ):
                hits = store.search(IMAGE, vectors[:1], limit=50, where=parse_filter(where))[0]
                assert {hit.id for hit in hits} == expected, where

    # ---- replacing and deleting

    def test_a_record_that_loses_a_field_is_not_found_there(self, store: Store) -> None:
        first = make_records(6, (IMAGE, CAPTION, TEXT))
        store.upsert(first)
        changed = [Record(r.document, {f: v for f, v in r.vectors.items() if f != CAPTION}) for r in first[:3]]
        changed += [Record(r.document, {CAPTION: r.vectors[CAPTION]}) for r in first[3:5]]
        store.upsert(changed)
        ids = {f: {hit.id for hit in store.search(f, unit_vectors(1, f), limit=9)[0]} for f in (IMAGE, CAPTION, TEXT)}
        assert ids[CAPTION] == {"id-3", "id-4", "id-5"}
        assert ids[IMAGE] == ids[TEXT] == {"id-0", "id-1", "id-2", "id-5"}
        store.upsert(first)
        assert all(len(store.search(f, unit_vectors(1, f), limit=9)[0]) == 6 for f in (IMAGE, CAPTION, TEXT))

    def test_what_was_replaced_or_deleted_is_found_no_more(self, store: Store) -> None:
        records, (old, new) = make_records(20, (IMAGE, TEXT)), unit_vectors(2, seed=1)
        store.upsert([Record(Document("id-0", metadata={"x": 1, "y": 2}), {IMAGE: old}), *records[1:]])
        store.upsert([Record(Document("id-0", metadata={"y": "3"}), {IMAGE: new, TEXT: records[0].vectors[TEXT]})])
        (hit,) = (hit for hit in store.search(IMAGE, old[None], limit=50)[0] if hit.id == "id-0")
        assert hit.score == pytest.approx(float(old @ new), abs=TOLERANCE)
        for where, count in (({"x": 1}, 0), ({"y": 2}, 0), ({"y": "3"}, 1)):
            assert len(store.search(IMAGE, old[None], limit=50, where=parse_filter(where))[0]) == count
        gone = [f"id-{i}" for i in range(0, 20, 2)]
        store.delete(gone)
        for field in (IMAGE, TEXT):
            hits = store.search(field, records[0].vectors[field][None], limit=20)[0]
            assert len(hits) == 10
            assert {hit.id for hit in hits}.isdisjoint(gone)
        store.upsert(records[:1])
        assert store.search(IMAGE, records[0].vectors[IMAGE][None], limit=1)[0][0].id == "id-0"
        assert len(store) == 11

    # ---- threads

    def test_several_writers_lose_nothing(self, store: Store) -> None:
        batches = [make_records(200)[start : start + 20] for start in range(0, 200, 20)]
        store.upsert([Record(Document("old"), {})])
        before, deleted = sys.getswitchinterval(), 0
        sys.setswitchinterval(1e-6)  # threads take turns in the middle of a write
        try:
            with ThreadPoolExecutor(4) as pool:
                writing = [pool.submit(store.upsert, batch) for batch in batches]
                while not all(future.done() for future in writing):
                    deleted += store.delete(["old"])
        finally:
            sys.setswitchinterval(before)
        assert [future.result() for future in writing] == [None] * 10
        assert deleted + store.delete(["old"]) == 1
        assert len(store) == 200
        assert len(store.search(IMAGE, unit_vectors(1), limit=500)[0]) == 200

    def test_readers_see_whole_documents_while_a_writer_works(self, store: Store) -> None:
        fixed, stop = make_records(30, (IMAGE, TEXT)), threading.Event()
        store.upsert(fixed)

        def write() -> None:
            for turn in range(6):
                extra = make_records(60, (IMAGE, TEXT), seed=50 + turn)[30:]
                changed = [replace(r, document=replace(r.document, metadata={"turn": turn})) for r in fixed]
                store.upsert([*changed, *extra])
                time.sleep(0.01)  # so that readers come in between
                store.delete([record.document.id for record in extra])
                time.sleep(0.01)  # so that some of them read that these are gone
            stop.set()

        def read(field: Field) -> int:
            turns = 0
            while not stop.is_set() or not turns:
                turns += 1
                for record in fixed[::10]:
                    hits = store.search(field, record.vectors[field][None], limit=60)[0]
                    assert hits[0].id == record.document.id
                    assert {r.document.id for r in fixed} <= {hit.id for hit in hits}
                    assert [document.text for document in store.get([hits[0].id])] == [record.document.text]
                    assert store.stamps([hits[0].id]) == {hits[0].id: record.stamp}
                    store.get([f"id-{i}" for i in range(60)])  # some are deleted while it reads
            return turns

        with ThreadPoolExecutor(4) as pool:
            readers = [pool.submit(read, field) for field in (IMAGE, TEXT, IMAGE)]
            writer = pool.submit(write)
            try:
                writer.result()
            finally:
                stop.set()
            assert all(reader.result() for reader in readers)
        assert len(store) == 30

    # ---- given documents

    def test_given_documents_are_compared_as_they_are_now(self, store: Store) -> None:
        first = make_records(4)
        store.upsert(first)
        query = first[2].vectors[IMAGE][None]
        assert store.compare(IMAGE, query, ["id-2"])[0].score == pytest.approx(1.0, abs=TOLERANCE)
        store.upsert([replace(first[2], vectors={IMAGE: -query[0]}), replace(first[1], vectors={IMAGE: query[0]})])
        store.delete(["id-0"])
        hits = store.compare(IMAGE, query, ["id-0", "id-1", "id-2"])
        assert [hit.id for hit in hits] == ["id-1", "id-2"]
        assert [hit.score for hit in hits] == pytest.approx([1.0, -1.0], abs=TOLERANCE)

    def test_given_documents_are_compared_exactly(self, store: Store) -> None:
        records = make_records(1500, (IMAGE, TEXT))
        store.upsert([replace(r, vectors={IMAGE: r.vectors[IMAGE]}) if i % 2 else r for i, r in enumerate(records)])
        query, some = unit_vectors(1, seed=5), [f"id-{i}" for i in (7, 1400, 3, 8, 1401, 3)]
        for field, ids in ((IMAGE, some), (TEXT, ["id-1400", "id-8"])):
            vector = query if field == IMAGE else unit_vectors(1, TEXT, seed=5)
            wanted = [hit for hit in exact(records, field, vector[0]) if hit.id in ids]
            hits = store.compare(field, vector, [*some, "unknown"])
            assert [hit.id for hit in hits] == [hit.id for hit in wanted]
            assert [hit.score for hit in hits] == pytest.approx([hit.score for hit in wanted], abs=TOLERANCE)
        assert len(store.compare(IMAGE, query, [record.document.id for record in records])) == 1500
        passing = store.compare(IMAGE, query, some, parse_filter({"number": {"$lt": 8}}))
        assert {hit.id for hit in passing} == {"id-7", "id-3"}
        assert store.compare(IMAGE, query, []) == store.compare(CAPTION, query, some) == []

    # ---- samples

    def test_a_sample_is_of_all_documents_where_there_are_not_more(self, store: Store) -> None:
        assert store.sample(IMAGE, 5).shape == (0, 32)
        records = make_records(9, (IMAGE, TEXT))
        store.upsert([replace(r, vectors={TEXT: r.vectors[TEXT]}) if i % 3 else r for i, r in enumerate(records)])
        assert store.sample(CAPTION, 5).shape == (0, 32)
        assert store.sample(IMAGE, 0).shape == (0, 32)
        assert sorted(store.sample_ids(IMAGE, 100)) == ["id-0", "id-3", "id-6"]
        wanted = np.stack([record.vectors[IMAGE] for record in records[::3]])
        for count in (3, 100):
            sample = store.sample(IMAGE, count)
            assert sorted(map(tuple, sample.round(4))) == sorted(map(tuple, wanted.round(4)))
        store.delete(["id-0"])
        left = store.sample(IMAGE, 100)
        assert sorted(map(tuple, left.round(4))) == sorted(map(tuple, wanted[1:].round(4)))
        store.upsert([Record(records[3].document, {IMAGE: unit_vectors(1, seed=7)[0]})])
        assert store.sample(IMAGE, 100).round(4).tolist() != left.round(4).tolist()

    def test_a_sample_has_vectors_of_documents_and_is_the_same_again(self, store: Store) -> None:
        records = make_records(300, (IMAGE, TEXT))
        store.upsert(records)
        for field, dim in ((IMAGE, 32), (TEXT, 24)):
            sample = store.sample(field, 40)
            assert sample.shape == (40, dim)
            assert sample.dtype == np.dtype(np.float32)
            cosines = sample @ np.stack([record.vectors[field] for record in records]).T
            assert np.allclose(cosines.max(axis=1), 1, atol=TOLERANCE)
            assert len(set(cosines.argmax(axis=1).tolist())) == 40
            assert np.array_equal(store.sample(field, 40), sample)
            ids = store.sample_ids(field, 40)
            assert len(set(ids)) == 40
            assert {record.document.id for record in store.records(ids)} == set(ids)
            assert store.sample_ids(field, 40) == ids

    def test_a_sample_is_drawn_from_everywhere(self, store: Store) -> None:
        records = make_records(1600)
        store.upsert(records)
        sample = store.sample(IMAGE, 400)
        cosines = sample @ np.stack([record.vectors[IMAGE] for record in records]).T
        counts, _ = np.histogram(cosines.argmax(axis=1), bins=4, range=(0, 1600))
        assert counts.sum() == 400
        assert all(60 <= count <= 140 for count in counts), counts  # five standard deviations

    # ---- size

    def test_the_largest_filters_work(self, store: Store) -> None:
        rows: list[dict[str, Scalar]] = [{"x": i, "t": f"t{i}", f"k{i % 7}": True} for i in range(20)]
        store.upsert(make_records(20, metadata=rows))
        deep: dict[str, object] = {"x": 1}
        for level in range(MAX_DEPTH // 2 - 2):
            deep = {("$or", "$and")[level % 2]: [deep, {"x": {"$gt": level % 4}}]}
        wide: list[dict[str, object]] = [
            {"t": {"$in": [f"t{i}" for i in range(5, MAX_VALUES + 5)]}},
            {"x": {"$nin": [i * 2 for i in range(MAX_VALUES)]}},
            {"$or": [{"x": {"$gt": 10 + i}} for i in range(MAX_CONDITIONS)]},
            {"$and": [{f"k{i}": {"$ne": True}} for i in range(3, MAX_CONDITIONS + 3)]},
            {"$or": [{f"k{i}": {"$nin": [f"{j}" for j in range(10)]}} for i in range(MAX_CONDITIONS)]},
        ]
        for where in (deep, *wide):
            condition = parse_filter(where)
            hits = store.search(IMAGE, unit_vectors(1), limit=50, where=condition)[0]
            assert {hit.id for hit in hits} == {f"id-{i}" for i, row in enumerate(rows) if condition.matches(row)}

    def test_a_filter_leaves_the_nearest_of_those_that_pass(self, store: Store) -> None:
        records = make_records(2000, metadata=[{"rare": i % 400 == 7, "tenth": i % 10} for i in range(2000)])
        store.upsert(records)
        query = unit_vectors(1, seed=3)
        for where in ({"rare": True}, {"tenth": 3}, {"tenth": {"$gte": 1}}, {"tenth": {"$in": [2, 4]}, "rare": False}):
            condition = parse_filter(where)
            passing = [r for r in records if condition.matches(r.document.metadata)]
            for limit in (3, 300):
                wanted = [hit.id for hit in exact(passing, IMAGE, query[0])[:limit]]
                ids = [hit.id for hit in store.search(IMAGE, query, limit=limit, where=condition)[0]]
                assert len(ids) == len(wanted)
                assert len(set(ids) & set(wanted)) >= self.recall * len(wanted)

    def test_five_thousand_records_are_written_at_once_and_found(self, store: Store) -> None:
        records = make_records(5000)
        store.upsert(records)
        assert len(store) == 5000
        ids = list(store.ids())
        assert len(ids) == len(set(ids)) == 5000
        assert len(store.stamps(ids)) == len(store.get(ids)) == 5000
        queries, right = unit_vectors(20, seed=8), 0
        for query, hits in zip(queries, store.search(IMAGE, queries, limit=10)):
            assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)
            right += len({hit.id for hit in hits} & {hit.id for hit in exact(records, IMAGE, query)[:10]})
        assert right >= self.recall * 200
        page = store.search(IMAGE, queries[:1], limit=3000)[0]
        assert len({hit.id for hit in page}) == 3000
        page = store.search(IMAGE, queries[:1], limit=3000, where=parse_filter({"number": {"$gte": 1000}}))[0]
        assert len({hit.id for hit in page}) == 3000
        assert store.delete(ids[:4000]) == 4000
        left = store.search(IMAGE, queries[:1], limit=3000)[0]
        assert {hit.id for hit in left} == set(ids[4000:])
