"""What words mean, and FTS5 ranking rows by them."""

import random
import re
import sqlite3
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from PIL import Image
from vlmsearch_mocks import MemoryStore
from vlmsearch_mocks.contracts.words import HOSTILE, bm25, make_record

from vlmsearch import ConfigError, Document
from vlmsearch.stores import words
from vlmsearch.stores.words import LANGUAGES, FullText, check_language, query_words, words_of
from vlmsearch.types import Field, Space

EVERY = [*LANGUAGES, "none", "parts"]
TEXTS = [
    *HOSTILE,
    "a dog in the snow",
    "北京大学 今天",
    "AB-4711",
    "Häuser und Straßen",
    "मैं हिन्दी",
    "a dog in the snow",
]


@pytest.fixture
def database() -> Iterator[sqlite3.Connection]:
    db = sqlite3.connect(":memory:")
    yield db
    db.close()


def table(db: sqlite3.Connection, language: str, *texts: str) -> FullText:
    """A table of texts, whose rows are 0, 1, ..."""
    made = FullText("words", language)
    made.create(db)
    made.insert(db, enumerate(texts))
    return made


def found(db: sqlite3.Connection, language: str, texts: list[str], query: str) -> list[int]:
    made = table(db, language, *texts)
    rows = sorted(row for row, _ in made.search(db, query))
    made.drop(db)
    return rows


# ---- documents


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        (Document("1"), ""),
        (Document("1", text="A dog, in snow"), "A dog, in snow"),
        (Document("1", text="a dog", image=Path("cat.png")), "a dog"),
        (Document("1", text=" \n", image=Path("red_cat.png")), "red cat"),
        (Document("1", image=Path("/x/holidays/IMG_2041-beach.2019 (2).JPG")), "IMG 2041 beach 2019 2"),
        (Document("1", image=Path("goldenRetriever.jpg")), "goldenRetriever golden Retriever"),
        (Document("1", image=Path("USFlag-iPhone.jpg")), "USFlag US Flag iPhone i Phone"),
        (Document("1", image=Path("großeStraße_北京.png")), "großeStraße große Straße 北京"),
        (Document("1", image=Path("___.png")), ""),
        (Document("1", image=b"bytes of an image"), ""),
        (Document("1", image=Image.new("RGB", (1, 1))), ""),
    ],
)
def test_the_words_of_a_document(document: Document, expected: str) -> None:
    assert words_of(document) == expected


# ---- languages


def test_a_language_that_is_not_there_is_refused_with_those_that_are() -> None:
    for language in EVERY:
        assert check_language(language) == language
    for language in ("", "EN", "english", "zh", "xx"):
        with pytest.raises(ConfigError, match=r"en, eo, .* none .* parts"):
            check_language(language)
        with pytest.raises(ConfigError, match="language="):
            FullText("words", language)


@pytest.mark.parametrize("language", EVERY)
def test_every_language_finds_a_word_by_itself_in_any_case(database: sqlite3.Connection, language: str) -> None:
    samples = ["snowman", "Straßenbahn", "приветствие", "लड़कियाँ", "مكتبة", "δρόμος", "İstanbul", "cafe\u0301"]
    made = table(database, language, *samples)
    for row, word in enumerate(samples):
        assert [found for found, _ in made.search(database, word)] == [row], word
    assert [row for row, _ in made.search(database, "SNOWMAN")] == [0]
    assert [row for row, _ in made.search(database, "CAF\u00c9")] == [7]


@pytest.mark.parametrize(
    ("language", "text", "query"),
    [
        ("en", "two dogs running", "run dog"),
        ("en", "café crème", "cafe"),
        ("en", "cafe creme", "CAFÉ"),
        ("de", "die Häuser der Straße", "haus"),
        ("de", "die Häuser der Straße", "STRASSE"),
        ("fr", "les chevaux", "cheval"),
        ("ru", "собаки бегут", "собака"),
        ("es", "corriendo", "correr"),
        ("hi", "लड़कियाँ", "लड़की"),
        ("ar", "الكتاب", "كتاب"),
        ("pl", "psami", "psami"),
    ],
)
def test_stems_of_a_language_are_compared(database: sqlite3.Connection, language: str, text: str, query: str) -> None:
    assert found(database, language, [text, "0"], query) == [0]


def test_words_as_they_are_have_no_stems_and_no_stop_words(database: sqlite3.Connection) -> None:
    made = table(database, "none", "the dogs", "a dog")
    assert [row for row, _ in made.search(database, "dogs")] == [0]
    assert [row for row, _ in made.search(database, "The")] == [0]


def test_stop_words_count_where_a_query_holds_nothing_else(database: sqlite3.Connection) -> None:
    made = table(database, "en", "the man", "a dog", "To be or not to be", "DON'T")
    assert [row for row, _ in made.search(database, "the dog")] == [1]
    assert [row for row, _ in made.search(database, "The dog isn't")] == [1]
    assert [row for row, _ in made.search(database, "to be or not")] == [2]
    assert [row for row, _ in made.search(database, "the")] == [0]


# ---- parts of words


def test_every_part_of_a_word_is_found(database: sqlite3.Connection) -> None:
    rng = random.Random(0)
    texts = ["".join(rng.choices("abé北京大 -", k=rng.randint(0, 14))) for _ in range(200)]
    made = table(database, "parts", *texts)
    runs = [re.findall(r"[abé]+|[北京大]+", text) for text in texts]
    joined = [re.findall(r"[^ -]+", text) for text in texts]
    for part in {word[i:j] for each in runs for word in each for i in range(len(word)) for j in range(i + 1, i + 5)}:
        expected = {row for row, each in enumerate(joined) if any(part in word for word in each)}
        rows = {row for row, _ in made.search(database, part)}
        if part[0] in "北京大":  # may be a sentence: some of it is enough
            assert rows >= expected, part
        else:
            assert rows == expected, part
    for char in "abé北京大":
        assert {row for row, _ in made.search(database, char)} == {row for row, t in enumerate(texts) if char in t}


def test_codes_are_found_by_their_parts_and_whole_ones_come_first(database: sqlite3.Connection) -> None:
    texts = ["fab 14711 x", "AB-4711", "AB-4712", "CAB-47110", "AB 4711", "zzz"]
    made = table(database, "parts", *texts)
    scores = dict(made.search(database, "ab-4711"))
    assert next(iter(scores)) == 1
    assert {1, 3, 4} <= set(scores)
    assert 5 not in scores
    assert min(scores[1], scores[3], scores[4]) > max(scores[0], scores[2])
    assert {row for row, _ in made.search(database, "4711")} == {0, 1, 3, 4}
    assert {row for row, _ in made.search(database, "b-471")} >= {1, 2, 3, 4}
    assert {row for row, _ in made.search(database, "ＡＢ")} == {0, 1, 2, 3, 4}  # noqa: RUF001 - full width


def test_a_sentence_without_spaces_is_found_by_some_of_it(database: sqlite3.Connection) -> None:
    made = table(database, "parts", "我今天去北京大学", "上海的天气", "iPhone手机", "東京タワー")
    assert [row for row, _ in made.search(database, "北京")] == [0]
    assert {row for row, _ in made.search(database, "北京天气")} == {0, 1}
    assert [row for row, _ in made.search(database, "手机")] == [2]
    assert [row for row, _ in made.search(database, "phone")] == [2]
    assert [row for row, _ in made.search(database, "タワー")] == [3]


# ---- the table


@pytest.mark.parametrize("language", EVERY)
def test_what_was_inserted_is_deleted_without_a_trace(database: sqlite3.Connection, language: str) -> None:
    made = table(database, language, *TEXTS)
    made.check(database)
    made.delete(database, list(enumerate(TEXTS))[:-1])
    made.check(database)
    last = len(TEXTS) - 1
    assert [row for row, _ in made.search(database, "dog snow")] == [last]
    made.delete(database, [(last, TEXTS[last])])
    made.check(database)
    database.execute("CREATE VIRTUAL TABLE temp.vocabulary USING fts5vocab(main, words, row)")
    assert database.execute("SELECT * FROM temp.vocabulary").fetchall() == []


@pytest.mark.parametrize("language", ["en", "de", "none", "parts"])
@pytest.mark.parametrize("query", HOSTILE, ids=range(len(HOSTILE)))
def test_any_query_is_safe(database: sqlite3.Connection, language: str, query: str) -> None:
    made = table(database, language, "a zebra", "zzz")
    assert {row for row, _ in made.search(database, query)} <= {0}
    assert 1 not in {row for row, _ in made.search(database, f"{query} zebra")}
    assert 0 in {row for row, _ in made.search(database, f"zebra {query}")}


@pytest.mark.parametrize("language", ["en", "de", "none", "parts"])
def test_a_long_query_counts_its_first_words_and_is_fast(database: sqlite3.Connection, language: str) -> None:
    made = table(database, language, *(f"word{i} dog" for i in range(2000)), "zebra", "yak")
    start = time.perf_counter()
    rows = [row for row, _ in made.search(database, "zebra " + " ".join(f"word{i}" for i in range(10_000)) + " yak")]
    assert time.perf_counter() - start < 1
    assert 2000 in rows
    assert 2001 not in rows
    assert {row for row, _ in made.search(database, "zebra " * 10_000 + " yak")} == {2000, 2001}


@pytest.mark.parametrize("most", [20_000, 150, 1])
def test_scores_are_bm25_and_the_order_is_theirs(
    database: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    rng = random.Random(1)
    names = [f"w{i}" for i in range(50)]
    shares = [1 / (i + 1) for i in range(50)]
    texts = [" ".join(rng.choices(names, shares, k=rng.randint(1, 30))) for _ in range(400)]
    made = table(database, "none", *texts)
    monkeypatch.setattr(words, "MAX_SCORED", most)
    repeated = ["w1", "w1", "w20", "w30", "w30", "w30", "w2"]
    for query in (["w40"], ["w3", "w45"], ["w1", "w20", "w49"], ["w0", "w1"], ["w2", "w5", "w30", "w31"], repeated):
        exact, _ = bm25(texts, query)
        assert dict(made.search(database, " ".join(query))) == pytest.approx(exact)
        assert len(list(made.search(database, " ".join(query), wanted=300))) >= min(300, len(exact))
        hits = list(made.search(database, " ".join(query), wanted=1))
        assert dict(hits) == pytest.approx({row: exact[row] for row, _ in hits})
        assert hits == sorted(hits, key=lambda hit: (-hit[1], hit[0]))
        counts = {word: sum(word in text.split() for text in texts) for word in query}
        if sum(counts.values()) <= most:
            assert len(hits) == len(exact)
        else:  # the most frequent words bring no rows of their own
            rarest = min(query, key=counts.__getitem__)
            assert {row for row, _ in hits} >= {row for row, text in enumerate(texts) if rarest in text.split()}
            assert len(hits) <= max(most, counts[rarest])


@pytest.mark.parametrize(
    ("language", "query", "times"),
    [("en", "dogs, Dog, dogs", 3), ("none", "dog DOG", 2), ("de", "Hund Hunde hund", 3), ("parts", "dog dog", 1)],
)
def test_a_word_counts_as_often_as_the_query_says_it(
    database: sqlite3.Connection, language: str, query: str, times: int
) -> None:
    made = table(database, language, "dog hund", *["x"] * 9)
    once = query.rsplit(maxsplit=1)[-1]
    assert sum(term.times for term in made.terms(database, query)) == times
    assert dict(made.search(database, query)) == pytest.approx({0: times * dict(made.search(database, once))[0]})
    assert dict(made.scores(database, query, [0, 1])) == dict(made.search(database, query))


def test_the_first_words_count_5_times_at_most(database: sqlite3.Connection) -> None:
    made = table(database, "en", *(f"w{i}" for i in range(100)))
    said = " ".join(f"w{i} " * 9 for i in range(100)) + "w0"
    assert [(term.text, term.times) for term in made.terms(database, said)] == [(f'"w{i}"', 5) for i in range(64)]
    once = dict(made.search(database, " ".join(f"w{i}" for i in range(100))))
    assert dict(made.search(database, said)) == pytest.approx({row: 5 * score for row, score in once.items()})
    assert query_words(said, "en") == {f"w{i}": [f"w{i}"] * 5 for i in range(64)}


def test_equal_scores_are_in_the_order_of_the_rows(database: sqlite3.Connection) -> None:
    made = FullText("words", "en")
    made.create(database)
    made.insert(database, [(row, "the same dog") for row in (5, 3, 9, 1, 7)])
    assert [row for row, _ in made.search(database, "dog")] == [1, 3, 5, 7, 9]


def test_several_tables_share_a_database_and_a_rollback_undoes_words(database: sqlite3.Connection) -> None:
    first, second = FullText("first of two", "en"), FullText("words", "parts")
    for each in (first, second):
        each.drop(database)
        each.create(database)
    first.insert(database, [(1, "a dog")])
    database.commit()
    second.insert(database, [(1, "a dog")])
    database.rollback()
    assert [row for row, _ in first.search(database, "dogs")] == [1]
    assert list(second.search(database, "dog")) == []


def test_threads_share_a_stemmer() -> None:
    texts = [f"{word}{ending}" for word in ("haus", "lauf", "spiel", "garten") for ending in ("e", "en", "ern", "es")]
    wrong: list[object] = []
    words._stem.cache_clear()
    expected = FullText("words", "de")._encode(" ".join(texts))
    words._stem.cache_clear()

    def encode() -> None:
        for _ in range(50):
            if FullText("words", "de")._encode(" ".join(texts)) != expected:
                wrong.append(threading.get_ident())
                return

    threads = [threading.Thread(target=encode) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_the_store_in_memory_compares_words_as_it_is_told() -> None:
    space = Space("clip", 2, frozenset({"text"}))
    record = make_record("a", "die Häuser am AB-4711")
    vector = record.vectors[Field("clip", "image")][:2]
    record = type(record)(record.document, {Field("clip", "text"): vector / (vector @ vector) ** 0.5})
    for language, query in (("de", "haus"), ("parts", "471"), ("en", "4711")):
        with MemoryStore(language=language) as store:
            store.bind("encoder 1", [space])
            store.upsert([record])
            manifest = store.manifest()
            assert manifest is not None
            assert manifest.language == language
            assert [hit.id for hit in store.search_words(query, limit=3).hits] == ["a"]
    with pytest.raises(ConfigError, match="language="):
        MemoryStore(language="zz")
