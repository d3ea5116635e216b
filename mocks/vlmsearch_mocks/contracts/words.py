"""What a store that ranks documents by words has to do."""
# ruff: noqa: S101, D102 - these are tests, and each is named by the sentence that it checks

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from vlmsearch.stores.base import CountsWords, Store, WordSearch
from vlmsearch.stores.filters import parse_filter
from vlmsearch.types import Document, Hit, Record, Scalar
from vlmsearch_mocks.contracts.records import IMAGE, SPACES, StoreSuite, unit_vectors

_VECTOR = {IMAGE: unit_vectors(1)[0]}
HOSTILE = [
    "",
    " \n\t",
    '"',
    "\"quoted\" 'and' `so`",
    "AND OR NOT NEAR(a b, 2) -dog +dog dog* ^dog words:dog {words}: dog",
    "($where) $text {'$ne': 1} \\\\ \\\" %s ?1 ;--",
    "\U0001f436\U0001f3fd\u200d\u2764\ufe0f",
    "\x00dog\x00",
    "\ud800 \udfff",
    "!?.,;:-_()[]{}<>|/\\~@#$%^&*+=",
    "the of and to",
    "x" * 100_000,
    "\u0301\u0301\u0301",
    "\u202edog\u202c",
]


SCRIPTS = [
    ("我们今天去北京大学的图书馆学习", "图书馆", "医院"),
    ("東京タワーの写真を海辺で撮りました", "東京タワー", "神戸"),
    ("부산에서 바다를 보았습니다", "부산", "인천"),
    ("กรุงเทพมหานครเป็นเมืองหลวงของประเทศไทย", "เมืองหลวง", "ฝฒฬ"),
    ("собаки бегают по глубокому снегу", "собака", "кошка"),
    ("οι γάτες κοιμούνται στον κήπο", "γάτα", "σκύλος"),
    ("الكتاب على الطاولة في المكتبة", "كتاب", "سيارة"),
    ("लड़कियाँ बगीचे में खेल रही हैं", "लड़की", "घोड़ा"),
    ("שני כלבים רצים ביער", "כלבים", "חתול"),
    ("die Häuser stehen am See und im Wald", "Haus am See", "Brücke"),
    ("les chevaux courent dans la forêt", "cheval", "maison"),
]
"""A text, a query that finds it, and one that finds nothing."""
CODE_TEXTS = {
    "order": "order 7731.22.05 of today",
    "price": "it costs 1,204.50 in all",
    "phone": "call +49 30 5557 1234",
    "name": "runs parseHttpResponse twice",
    "c++": "written in C++",
    "c#": "written in C#",
    "c": "written in C",
    "net": "a fishing net",
    ".net": "built with .NET",
}
CODES: tuple[tuple[str, list[str]], ...] = (
    ("77312205", ["order"]),
    ("7731 22 05", ["order"]),
    ("7731.22.06", []),
    ("1204.50", ["price"]),
    ("030/5557-1234", ["phone"]),
    ("parse_http_response", ["name"]),
    ("C++", ["c++"]),
    ("C#", ["c#"]),
    ("C", ["c"]),
    ("nets", ["net"]),
    (".NET", [".net"]),
)
"""Queries, and the documents of `CODE_TEXTS` that they find."""


def make_record(id: str, text: str | None, metadata: Mapping[str, Scalar] | None = None) -> Record:
    """Return a record whose vectors do not matter."""
    return Record(Document(id, text=text, metadata=metadata or {}), _VECTOR)


def bm25(texts: Sequence[str], query: Sequence[str]) -> tuple[dict[int, float], float]:
    """Return the BM25 of texts, and the highest possible one.

    Here k1 is 1.2, b is 0.75, and an idf is at least 1e-6: that of the kind of texts, up to 16 words or more, where the
    word is most frequent. For an idf, 20 texts without the term count beside those of the index. Lengths are compared
    with the mean of the texts of more than 16 words, and with 32 at least.

    The words of texts are apart, and equal where their stems are. One that the query repeats counts as often, up to 5
    times.
    """
    rows = [Counter(text.split()) for text in texts]
    long = [row.total() for row in rows if row.total() > 16]
    length = max(sum(long) / len(long), 32) if long else 32
    kinds = [[row for row in rows if (row.total() > 16) == is_long and row] for is_long in (False, True)]
    scores: dict[int, float] = {}
    max_score = 0.0
    for word, times in Counter(query).items():
        counts = [(sum(word in row for row in kind), len(kind)) for kind in kinds]
        held = [pair for pair in counts if pair[0]] or [(0, max(n for _, n in counts))]
        idf = min(times, 5) * max(min(math.log((n - count + 20.5) / (count + 0.5)) for count, n in held), 1e-6)
        max_score += 2.2 * idf
        for i, row in enumerate(rows):
            if word in row:
                rise = row[word] * 2.2 / (row[word] + 1.2 * (0.25 + 0.75 * row.total() / length))
                scores[i] = scores.get(i, 0.0) + idf * rise
    return scores, max_score


def words_of_store(store: Store) -> WordSearch:
    """Return the store as one that ranks words."""
    assert isinstance(store, WordSearch), f"{store.name} ranks no words"
    return store


def search_words(store: Store, query: str, *, limit: int = 100, where: Mapping[str, object] | None = None) -> list[Hit]:
    """Find documents by words, and check their scores."""
    condition = parse_filter(where) if where else None
    ranked = words_of_store(store).search_words(query, limit=limit, where=condition)
    hits = ranked.hits
    assert all(0 < hit.score <= ranked.max_score for hit in hits)
    assert hits == sorted(hits, key=lambda hit: -hit.score)
    assert len({hit.id for hit in hits}) == len(hits) <= max(limit, 0)
    return hits


def ids_of(store: Store, query: str, *, limit: int = 100, where: Mapping[str, object] | None = None) -> list[str]:
    """Return the ids of what the store finds by words."""
    return [hit.id for hit in search_words(store, query, limit=limit, where=where)]


class WordsContract(StoreSuite):
    """Every sentence of `WordSearch`: subclass it beside `StoreContract` for a store that ranks words.

    The store that ``make_store`` gives compares words by the language of each document, which is the default.
    """

    def test_what_does_not_exist_holds_no_words(self, tmp_path: Path) -> None:
        with self.make_store(tmp_path) as store:
            assert ids_of(store, "dog") == []
            assert not isinstance(store, CountsWords) or store.count_words(["dog"]) == [0]
            assert words_of_store(store).compare_words("dog", ["a"]) == []
            assert store.manifest() is None

    def test_texts_that_hold_words_are_counted(self, store: Store) -> None:
        if not isinstance(store, CountsWords):
            pytest.skip("the store counts no words")
        texts = ["a red dog", "two dogs", "a bicycle by the sea", "ein Fahrrad und ein Hund", "велосипед и собака"]
        store.upsert([make_record(f"id-{i}", text) for i, text in enumerate(texts)])
        words = ["dog", "dogs", "bicycles", "bycicle", "fahrrad", "велосипеды", "zebra"]
        assert store.count_words(words) == [2, 2, 1, 0, 1, 1, 0]
        nonsense = [f"zz{first}{second}zz" for first in "abcdefghijklm" for second in "abcdefghijklm"]
        assert store.count_words([*words, *nonsense]) == [2, 2, 1, 0, 1, 1, *[0] * (len(nonsense) + 1)]
        store.delete(["id-0"])
        assert store.count_words(["dog", "red"]) == [1, 0]
        assert store.count_words([]) == []

    def test_the_manifest_says_how_words_are_compared(self, tmp_path: Path) -> None:
        with self.make_store(tmp_path) as store:
            store.bind("encoder 1", SPACES)
            manifest = store.manifest()
            assert manifest is not None
            assert manifest.language == "auto"
        if self.durable:
            with self.make_store(tmp_path) as store:
                assert store.manifest() == manifest

    def test_documents_that_share_a_word_are_found_and_no_others(self, store: Store) -> None:
        store.upsert([make_record("a", "a dog in the snow"), make_record("b", "two red cars"), make_record("c", None)])
        assert ids_of(store, "dog") == ["a"]
        assert ids_of(store, "the red dog") in (["a", "b"], ["b", "a"])
        assert ids_of(store, "zebra") == []

    def test_stems_are_compared_and_case_is_not(self, store: Store) -> None:
        store.upsert([make_record("a", "a Dog in the snow"), make_record("b", "two cars, running")])
        assert ids_of(store, "dogs") == ids_of(store, "DOG") == ["a"]
        assert ids_of(store, "a car runs") == ["b"]

    def test_pictures_and_captions_do_not_change_what_words_of_pages_are_worth(self, store: Store) -> None:
        pages = [f"page {n} of the report: " + "the garden behind the house is large " * 5 for n in range(30)]
        records = [make_record(f"page-{n:02}", text) for n, text in enumerate([*pages[:29], pages[29] + "Zanzibar"])]
        store.upsert(records)
        before = words_of_store(store).search_words("Zanzibar garden", limit=40)
        pictures = [Document(f"p-{n}", image=Path(f"IMG_{n}-beach.jpg")) for n in range(40)]
        captions = [Document(f"c-{n}", text=f"a dog on beach {n}", image=Path(f"{n}.jpg")) for n in range(40)]
        store.upsert([Record(document, _VECTOR) for document in (*pictures, *captions)])
        after = words_of_store(store).search_words("Zanzibar garden", limit=40)
        assert after.hits[0].id == "page-29"
        assert [hit.score for hit in after.hits] == pytest.approx([hit.score for hit in before.hits], rel=1e-5)
        assert after.max_score == pytest.approx(before.max_score)

    def test_more_words_in_common_come_first(self, store: Store) -> None:
        texts = ["red star over sea", "blue star over sand", "red circle under trees", "green square under rocks"]
        store.upsert([make_record(f"id-{i}", text) for i, text in enumerate(texts)])
        hits = search_words(store, "red star")
        assert hits[0].id == "id-0"
        assert {hit.id for hit in hits} == {"id-0", "id-1", "id-2"}
        assert hits[0].score > hits[1].score

    def test_scores_are_bm25_and_so_is_the_maximum_of_a_query(self, store: Store) -> None:
        rng = random.Random(1)
        names = ["w" + chr(97 + i // 26) + chr(97 + i % 26) + "q" for i in range(40)]
        texts = [
            " ".join(rng.choices(names, [1 / (i + 1) for i in range(40)], k=rng.randint(1, 30))) for _ in range(90)
        ]
        store.upsert([make_record(f"id-{i:02}", text) for i, text in enumerate(texts)])
        words = words_of_store(store)
        asked = [[30], [0, 1], [2, 9, 25], [39], [9, 2, 9, 25, 9, *[12] * 7]]
        queries = [[names[i] for i in numbers] for numbers in asked]
        queries[3] += ["zebra", "lion"]
        queries[4] += ["zebra", "zebra"]
        for query in queries:
            scores, max_score = bm25(texts, query)
            hits = words.search_words(" ".join(query), limit=90)
            assert {hit.id: hit.score for hit in hits.hits} == pytest.approx(
                {f"id-{i:02}": score for i, score in scores.items()}, rel=1e-5
            )
            assert hits.max_score == pytest.approx(max_score, rel=1e-5)
            compared = words.compare_words(" ".join(query), ["id-07", "none", *(f"id-{i:02}" for i in range(40))])
            assert {hit.id: hit.score for hit in compared} == pytest.approx(
                {hit.id: hit.score for hit in hits.hits if hit.id < "id-40"}
            )
            assert compared == sorted(compared, key=lambda hit: (-hit.score, hit.id))
        assert words.search_words("!?", limit=9).max_score == 0
        unknown = words.search_words("zebra", limit=9)
        assert unknown.hits == []
        longer = sum(len(text.split()) > 16 for text in texts)
        rarest = math.log((max(longer, 90 - longer) + 20.5) / 0.5)
        assert unknown.max_score == pytest.approx(2.2 * rarest, rel=1e-5), "as in the larger kind"

    def test_a_word_counts_as_often_as_the_query_says_it_by_its_stem(self, store: Store) -> None:
        store.upsert([make_record(f"id-{i}", text) for i, text in enumerate(["dog", "cat", *["bird"] * 8])])
        words = words_of_store(store)

        def scores(query: str) -> list[float]:
            hits = words.search_words(query, limit=2)
            ranked = {hit.id: hit.score for hit in hits.hits}
            compared = words.compare_words(query, ["id-0", "id-1"])
            assert {hit.id: hit.score for hit in compared} == pytest.approx(ranked)
            return [hits.max_score, ranked["id-0"], ranked["id-1"]]

        max_score, dog, cat = scores("dog cat")
        assert dog == pytest.approx(cat, rel=1e-5)
        for query, times in (("a dog and the dogs, cat", 2), ("Dog " * 3 + "cat", 3), ("cat " + "dog " * 5, 5)):
            assert scores(query) == pytest.approx([max_score * (times + 1) / 2, dog * times, cat], rel=1e-5), query
        assert scores("cat " + "dog " * 1000) == pytest.approx(scores("cat " + "dog " * 5), rel=1e-5)
        assert ids_of(store, "cat cat dog") == ["id-1", "id-0"]

    def test_given_documents_are_compared_as_they_are_now_and_filtered(self, store: Store) -> None:
        words = words_of_store(store)
        assert words.compare_words("dog", ["a"]) == []
        texts = ["a dog", "dog dog", "a cat", None]
        store.upsert([make_record(f"id-{i}", text, {"even": i % 2 == 0}) for i, text in enumerate(texts)])
        store.upsert([make_record(f"other-{i}", f"number {i}") for i in range(20)])
        every = [f"id-{i}" for i in range(4)]
        assert [hit.id for hit in words.compare_words("dogs", every)] == ["id-1", "id-0"]
        assert [hit.id for hit in words.compare_words("dogs", every[:1])] == ["id-0"]
        assert [hit.id for hit in words.compare_words("dogs", every, parse_filter({"even": True}))] == ["id-0"]
        assert words.compare_words("dogs", []) == words.compare_words("the", []) == []
        store.upsert([make_record("id-0", "a cat"), make_record("id-2", "dog")])
        store.delete(["id-1"])
        assert [hit.id for hit in words.compare_words("dogs", every)] == ["id-2"]

    def test_equal_scores_keep_one_order_whatever_the_limit(self, store: Store) -> None:
        for id in ("m", "z", "a", "é", "B", "k"):
            store.upsert([make_record(id, "the same dog")])
        hits = search_words(store, "dog")
        assert {hit.id for hit in hits} == {"m", "z", "a", "é", "B", "k"}
        assert len({hit.score for hit in hits}) == 1
        for limit in range(1, 7):
            assert search_words(store, "dog", limit=limit) == hits[:limit]

    @pytest.mark.parametrize(("text", "query", "other"), SCRIPTS)
    def test_words_are_found_in_any_script(self, store: Store, text: str, query: str, other: str) -> None:
        texts = [text for text, _, _ in SCRIPTS]
        store.upsert([make_record(f"id-{i:02}", text) for i, text in enumerate(texts)])
        store.upsert([make_record("dog", "a dog in the snow")])
        assert ids_of(store, query)[0] == f"id-{texts.index(text):02}"
        assert ids_of(store, other) == []

    def test_codes_are_found_whole_and_by_their_parts(self, store: Store) -> None:
        texts = {"a": "order AB-4711 today", "b": "order AB 4712", "c": "XY4711", "d": "no code"}
        store.upsert([make_record(id, text) for id, text in texts.items()])
        for query in ("AB-4711", "ab4711", "AB 4711"):
            assert ids_of(store, query)[0] == "a", query
        assert set(ids_of(store, "4711")) == {"a", "c"}
        assert ids_of(store, "4712") == ["b"]
        assert ids_of(store, "AB-4713") == []

    @pytest.mark.parametrize(("query", "ids"), CODES)
    def test_a_code_is_found_in_all_its_forms_and_apart_from_others(
        self, store: Store, query: str, ids: list[str]
    ) -> None:
        store.upsert([make_record(id, text) for id, text in CODE_TEXTS.items()])
        assert ids_of(store, query) == ids

    def test_limit_is_the_maximum(self, store: Store) -> None:
        store.upsert([make_record(f"id-{i:02}", "dog " * (i + 1) + "cat") for i in range(20)])
        ranked = search_words(store, "dog")
        assert len(ranked) == 20
        for limit in (0, 1, 7, 20, 1000):
            assert search_words(store, "dog", limit=limit) == ranked[:limit]

    def test_a_filter_is_applied_before_the_best_are_taken(self, store: Store) -> None:
        texts = ["dog dog dog", "dog and cat and bird"]
        store.upsert([make_record(f"id-{i:03}", texts[i // 190], {"number": i, "odd": i % 2 == 1}) for i in range(200)])
        assert ids_of(store, "dog", limit=5, where={"number": {"$gte": 195}}) == [f"id-{i}" for i in range(195, 200)]
        odd = [id for id in ids_of(store, "dog", limit=200) if int(id[3:]) % 2]
        assert ids_of(store, "dog", limit=200, where={"odd": True}) == odd
        assert len(odd) == 100
        assert ids_of(store, "dog", where={"number": -1}) == []
        assert ids_of(store, "zebra", where={"odd": True}) == []

    def test_a_replaced_document_is_found_by_its_new_words_alone(self, store: Store) -> None:
        store.upsert([make_record("a", "a dog in the snow", {"old": True}), make_record("b", "a dog")])
        store.upsert([make_record("a", "two red cars")])
        assert ids_of(store, "dog snow") == ["b"]
        assert ids_of(store, "car") == ["a"]
        assert ids_of(store, "car", where={"old": True}) == []
        store.upsert([make_record("a", None)])
        assert ids_of(store, "car") == []

    def test_a_deleted_document_is_not_found(self, store: Store) -> None:
        store.upsert([make_record(id, "a dog") for id in "abc"])
        store.delete(["b", "unknown"])
        assert ids_of(store, "dog") == ["a", "c"]
        store.upsert([make_record("b", "a cat")])
        assert ids_of(store, "dog") == ["a", "c"]
        assert ids_of(store, "cat") == ["b"]

    def test_an_unchanged_document_can_be_written_again(self, store: Store) -> None:
        for _ in range(3):
            store.upsert([make_record("a", "a dog"), make_record("b", "a cat")])
        assert ids_of(store, "dog") == ["a"]

    def test_an_image_without_text_is_found_by_the_name_of_its_file(self, store: Store) -> None:
        photo = make_record("a", None)
        image = Path("holidays/IMG_2041-golden_retriever.jpeg")
        blank = replace(photo, document=Document("blank", text=" \n", image=Path("beach.png")))
        captioned = replace(photo, document=Document("b", text="two cars", image=Path("dog.png")))
        store.upsert([replace(photo, document=Document("a", image=image)), blank, captioned])
        assert ids_of(store, "retrievers") == ["a"]
        assert ids_of(store, "2041") == ["a"]
        assert ids_of(store, "beach") == ["blank"]
        assert ids_of(store, "cars") == ["b"]
        for query in ("holidays", "jpeg", "png", "dog"):
            assert ids_of(store, query) == []
        store.upsert([replace(photo, document=Document("a", image=Path("cat.jpeg")))])
        assert ids_of(store, "retriever") == []
        assert ids_of(store, "cat") == ["a"]

    @pytest.mark.parametrize("query", HOSTILE, ids=range(len(HOSTILE)))
    def test_any_string_is_a_safe_query(self, store: Store, query: str) -> None:
        store.upsert([make_record("a", "a dog"), make_record("b", "a cat")])
        assert set(ids_of(store, query)) <= {"a"}
        assert ids_of(store, f"{query} cat") in (["b"], ["a", "b"], ["b", "a"])
        assert ids_of(store, "dog") == ["a"]

    def test_operators_in_a_query_mean_nothing(self, store: Store) -> None:
        store.upsert([make_record("a", "a dog"), make_record("b", "a cat"), make_record("c", "a bird")])
        for query in ("dog -cat", '"dog cat"', "dog NOT cat", "dog AND cat", "+dog +cat", "(dog) | cat*"):
            assert sorted(ids_of(store, query)) == ["a", "b"], query

    def test_a_query_of_10000_words_is_answered(self, store: Store) -> None:
        store.upsert([make_record("a", "a dog"), make_record("b", "a cat")])
        assert ids_of(store, "dog " + " ".join(f"word{i}" for i in range(10_000))) == ["a"]

    def test_any_text_can_be_kept(self, store: Store) -> None:
        texts = [text for text in HOSTILE if not any("\ud800" <= char <= "\udfff" for char in text)]
        store.upsert([make_record(f"id-{i}", text) for i, text in enumerate(texts)])
        store.upsert([make_record("z", "a zebra")])
        assert ids_of(store, "zebra") == ["z"]
        store.delete([f"id-{i}" for i in range(len(texts))])
        assert ids_of(store, "dog") == ids_of(store, "quoted") == []
        assert ids_of(store, "zebra") == ["z"]

    def test_a_durable_store_finds_words_after_it_was_closed(self, tmp_path: Path) -> None:
        with self.make_store(tmp_path) as store:
            store.bind("encoder 1", SPACES)
            store.upsert([make_record("a", "a dog"), make_record("b", "a cat")])
        with self.make_store(tmp_path) as store:
            assert ids_of(store, "dogs") == (["a"] if self.durable else [])
