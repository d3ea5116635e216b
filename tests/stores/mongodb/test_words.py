"""Ranking by words in MongoDB: languages, what an index takes, indexes made before, and indexes built beside."""

from collections.abc import Iterator
from typing import Any

import pytest
from pymongo import MongoClient
from vlmsearch_mocks.contracts.records import SPACES
from vlmsearch_mocks.contracts.words import bm25, ids_of, make_record

from vlmsearch import ConfigError, IndexMismatchError
from vlmsearch.indexing.reindex import opened_earlier, renew
from vlmsearch.registry import open_store
from vlmsearch.stores import generations, terms
from vlmsearch.stores.filters import parse_filter
from vlmsearch.stores.generations import EarlierWordsWarning
from vlmsearch.stores.mongodb import words as mongo_words
from vlmsearch.stores.mongodb.store import MongoStore
from vlmsearch.stores.mongodb.words import term_fields
from vlmsearch.stores.mongodb_chroma.store import MongoChromaStore
from vlmsearch.stores.versions import VersionedHit

DOCUMENTS = "vlmsearch.1.documents"


@pytest.fixture
def client(mongo_address: str) -> "Iterator[MongoClient[dict[str, Any]]]":
    opened: MongoClient[dict[str, Any]] = MongoClient(f"mongodb://{mongo_address}/")
    with opened:
        yield opened


# ---- languages


@pytest.mark.parametrize(
    ("language", "text", "query", "others"),
    [
        ("en", "two dogs running", "a dog runs", "twofold"),
        ("de", "zwei Häuser am See", "haus", "hau"),
        ("no", "tre hunder", "hund", "tr"),
        ("ru", "две собаки", "собака", "два"),
        ("none", "the dogs", "the", "dog"),
    ],
)
def test_words_are_compared_by_the_language_of_the_index(
    language: str, text: str, query: str, others: str, mongo_address: str
) -> None:
    location = f"//{mongo_address}/words-{language}"
    with MongoStore(location, language=language) as store:
        store.bind("e", SPACES)
        store.upsert([make_record("a", text, {"language": "klingon"})])
        assert ids_of(store, query) == ["a"]
        assert ids_of(store, others) == []
    with MongoStore(location) as store:
        manifest = store.manifest()
        assert manifest is not None
        assert manifest.language == language
        assert ids_of(store, query) == ["a"]
    wrong = "en" if language != "en" else "de"
    with MongoStore(location, language=wrong) as store, pytest.raises(ConfigError, match=f"language={language}, not"):
        store.bind("e", SPACES)


@pytest.mark.parametrize("scheme", ["mongodb://host/db?", "mongodb+chroma://host/db?chroma=http://vec&"])
def test_a_language_that_is_not_there_is_refused(scheme: str) -> None:
    with pytest.raises(ConfigError, match=r"language=klingon: it is auto .*, ar, "):
        open_store(f"{scheme}language=klingon")


# ---- words and queries


def test_codes_and_odd_strings_are_found(mongo_address: str) -> None:
    with MongoStore(f"//{mongo_address}/odd") as store:
        store.bind("e", SPACES)
        texts = {"code": "part AB-4711", "nul": "zebra\0lion", "half": "crane \ud800", "name": "O'Hara foo_bar"}
        store.upsert([make_record(id, text) for id, text in texts.items()])
        for query, id in (("4711", "code"), ("ab-4711", "code"), ("lion", "nul"), ("crane", "half"), ("bar", "name")):
            assert ids_of(store, query) == [id], query
        assert store.get(["nul"])[0].text == "zebra\0lion"


def test_a_long_text_is_kept_whole_and_found_by_any_of_its_words(mongo_address: str) -> None:
    with MongoStore(f"//{mongo_address}/long-words") as store:
        store.bind("e", SPACES)
        repeated = "the sea and the sky " * 20_000 + "lighthouse"
        distinct = " ".join(f"{number:x}q" for number in range(100_000))
        store.upsert([make_record("repeated", repeated), make_record("distinct", distinct)])
        assert [document.text for document in store.get(["repeated", "distinct"])] == [repeated, distinct]
        assert ids_of(store, "lighthouse") == ["repeated"]
        assert ids_of(store, "0q") == ["distinct"]
    for long in (distinct, "ü" * 300_000, "大" * 300_000):
        assert len(term_fields(long, "auto")["terms"].encode()) <= 256 * 1024


def test_filters_and_versions_are_of_the_same_row(mongo_address: str, chroma_address: str) -> None:
    where = parse_filter({"$or": [{"number": {"$lt": 2}}, {"odd": True}]})
    pair = MongoChromaStore(f"//{mongo_address}/p", chroma=f"http://{chroma_address}")
    for store in (MongoStore(f"//{mongo_address}/w"), pair):
        with store:
            store.bind("e", SPACES)
            store.upsert([make_record(f"id-{i}", "a dog", {"number": i, "odd": i % 2 == 1}) for i in range(6)])
            hits = store.search_words("dog", limit=9, where=where).hits
            assert [hit.id for hit in hits] == ["id-0", "id-1", "id-3", "id-5"]
            versions = {hit.id: hit.version for hit in hits if isinstance(hit, VersionedHit)}
            assert store.get_versions(versions).keys() == versions.keys() == {hit.id for hit in hits}
            store.upsert([make_record("id-3", "a cat")])
            assert "id-3" not in store.get_versions(versions)


# ---- scores


def test_of_a_large_index_rare_words_are_counted_and_others_estimated(
    mongo_address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mongo_words, "_SAMPLED", 200)
    names = ["w" + str(i).translate(str.maketrans("0123456789", "abcdefghij")) for i in range(1500)]
    texts = [
        f"{'dog' if i % 4 else 'cat'} {'bird ' if i % 300 == 7 else ''}in the {name}" for i, name in enumerate(names)
    ]
    with MongoStore(f"//{mongo_address}/estimated") as store:
        store.bind("e", SPACES)
        store.upsert([make_record(f"id-{i:04}", text) for i, text in enumerate(texts)])
        for words in (["bird"], [names[7]], ["zebra"]):
            scores, highest = bm25(texts, words)
            ids_of = store.search_words(words[0], limit=10)
            assert ids_of.max_score == pytest.approx(highest, rel=1e-6)
            assert len(ids_of.hits) == len(scores)
        known, terms = store._words._statistics("dogs, cats, the birds", "auto")
        holding = {term.text: sum(term.holding) for _, term in terms}
        assert (sum(known.texts), holding["bird"]) == (1500, 5)
        assert holding["cat"] == pytest.approx(375, abs=5 * 1500 * (0.25 * 0.75 / 200) ** 0.5)
        assert holding["dog"] + holding["cat"] == pytest.approx(1500)
        assert store._words._statistics("dogs", "auto")[0] is known
        store.upsert([make_record(f"more-{i}", "dog") for i in range(200)])
        assert sum(store._words._statistics("dogs", "auto")[0].texts) == 1700


# ---- the index


def test_words_of_an_earlier_version_are_refused_until_they_are_renewed(
    mongo_address: str, client: "MongoClient[dict[str, Any]]", chroma_address: str
) -> None:
    for location in (f"//{mongo_address}/earlier", f"//{mongo_address}/earlier-pair"):
        pair = location.endswith("pair")

        def opened(location: str = location, pair: bool = pair) -> MongoStore | MongoChromaStore:
            return MongoChromaStore(location, chroma=f"http://{chroma_address}") if pair else MongoStore(location)

        with opened() as store:
            store.bind("e", SPACES)
            store.upsert([make_record("a", "two dogs"), make_record("b", "ein Haus am See")])
        earlier = "vlmsearch_terms" if pair else "vlmsearch_words"
        rows = client[location.rpartition("/")[2]][DOCUMENTS]
        rows.drop_index(mongo_words._INDEX)
        for row in rows.find():
            rows.update_one(
                {"_id": row["_id"]}, {"$set": {"words": row["text"]}, "$unset": {"terms": "", "language": ""}}
            )
        rows.create_index([("words", "text")], name=earlier, default_language="en")
        with opened() as store:
            with pytest.raises(ConfigError, match="run `vlmsearch check --repair --store mongodb"):
                store.search_words("dog", limit=3)
            with pytest.raises(ConfigError, match="earlier version"):
                store.bind("e", SPACES)
            assert store.check(repair=True).clean
            assert ids_of(store, "dog") == ["a"]
            assert ids_of(store, "Häuser") == ["b"]
            store.bind("e", SPACES)
            assert not any("words" in row for row in rows.find())
        assert earlier not in rows.index_information()


def test_words_of_another_stemmer_are_told_and_renewed(mongo_address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    location = f"//{mongo_address}/stemmer"
    with monkeypatch.context() as earlier, MongoStore(location) as store:
        earlier.setattr(generations, "rules_of", lambda _: "snowballstemmer 1.0")
        earlier.setattr(terms, "_codes", lambda *_: [])
        store.bind("e", SPACES)
        store.upsert([make_record("part", "the valve 7731.22.05 leaks")])
    with MongoStore(location) as store:
        with pytest.warns(EarlierWordsWarning, match="made by snowballstemmer 1.0, and here is .*vlmsearch reindex"):
            assert ids_of(store, "77312205") == []
        assert "made by snowballstemmer 1.0" in store.describe()["terms"]
        assert opened_earlier(store)
        assert renew(store).switched
    with MongoStore(location) as store:
        assert not opened_earlier(store)
        assert "terms" not in store.describe()
        assert ids_of(store, "77312205") == ["part"]


def test_an_index_made_before_ranks_no_words_until_it_is_built_anew(
    mongo_address: str, client: "MongoClient[dict[str, Any]]"
) -> None:
    location = f"//{mongo_address}/before"
    with MongoStore(location) as store:
        store.bind("e", SPACES)
        store.upsert([make_record("a", "a dog")])
    client["before"][DOCUMENTS].drop_index(mongo_words._INDEX)
    client["before"][DOCUMENTS].update_many({}, {"$unset": {"terms": ""}})
    client["before"]["vlmsearch.about"].update_many({}, {"$unset": {"language": ""}})
    with MongoStore(location) as store:
        store.bind("e", SPACES)
        manifest = store.manifest()
        assert manifest is not None
        assert manifest.language == ""
        store.upsert([make_record("b", "a dog")])
        assert ids_of(store, "dog") == []
        assert list(client["before"][DOCUMENTS].index_information()) == ["_id_", "vlmsearch_draw", "vlmsearch_passages"]
        built = store.beside("e2", SPACES)
        built.upsert([make_record("a", "a dog")])
        store.freeze(built)
        store.switch(built)
        assert ids_of(store, "dogs") == ["a"]


def test_an_index_built_beside_another_has_its_language(mongo_address: str) -> None:
    location = f"//{mongo_address}/beside"
    with MongoStore(location, language="de") as store, MongoStore(location) as late:
        store.bind("e", SPACES)
        store.upsert([make_record("a", "ein Hund")])
        assert ids_of(late, "hunde") == ["a"]
        built = late.beside("e2", SPACES)
        built.upsert([make_record("a", "zwei Hunde"), make_record("b", "Katzen")])
        assert ids_of(late, "katze") == []
        late.freeze(built)
        late.switch(built)
        assert ids_of(late, "katze") == ["b"]
        assert ids_of(store, "hund") == ["a"]
        assert late.drop_old()
        with pytest.raises(IndexMismatchError, match="has been built anew"):
            store.search_words("hund", limit=3)


def test_a_text_index_that_was_not_made_in_time_is_made_by_the_next_bind(
    mongo_address: str, client: "MongoClient[dict[str, Any]]", monkeypatch: pytest.MonkeyPatch
) -> None:
    location = f"//{mongo_address}/cut-off"
    with MongoStore(location, language="fr") as store:
        store.bind("e", SPACES)
        store.upsert([make_record("a", "un chien"), make_record("b", "un oiseau")])
    client["cut-off"][DOCUMENTS].drop_index(mongo_words._INDEX)
    monkeypatch.setattr(mongo_words, "_SAMPLED", 1)
    with MongoStore(location) as store:
        assert ids_of(store, "chiens chats") == []
        store.bind("e", SPACES)
        assert ids_of(store, "chiens") == ["a"]
