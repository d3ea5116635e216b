"""Keys of a filter that no document has: they are named where nothing matches, with those that there are."""

from pathlib import Path

import pytest
from vlmsearch_mocks import MemoryStore, MockEncoder, MockGenerator

from tests.support.service import serving
from vlmsearch import Document, Matches, Pipeline, Store, connect
from vlmsearch.answers.stream import NOTHING_FOUND
from vlmsearch.notebook import to_html
from vlmsearch.server.settings import IndexSettings, ServerSettings

DOCUMENTS = [Document(str(n), text=f"a dog of {n}", metadata={"year": n, "place": "Oslo"}) for n in (2020, 2021)]
LINE = "No document has the key 'yaer'; did you mean 'year'? there are place, year"


def test_every_store_names_the_key(store: Store) -> None:
    with Pipeline(MockEncoder(), store) as pipeline:
        pipeline.add(DOCUMENTS)
        matches = pipeline.search("dog", where={"yaer": 2020})
        assert matches.unknown_keys == {"yaer": LINE}
        assert f"{LINE}." in repr(matches)
        assert LINE.replace("'", "&#x27;") in to_html(matches)
        both = pipeline.search("dog", where={"$or": [{"yaer": 2020}, {"colour": "red"}]})
        assert list(both.unknown_keys) == ["colour", "yaer"]
        assert "did you mean" not in both.unknown_keys["colour"]
        assert pipeline.search("dog", where={"year": 1999}).unknown_keys == {}
        pipeline.generator = MockGenerator("[1]")
        assert pipeline.ask("dog", where={"yaer": 2020}).text == f"{NOTHING_FOUND} {LINE}."
        assert pipeline.ask("dog", where={"year": 1999}).text == NOTHING_FOUND
        assert pipeline.search("dog", where={"yaer": {"$ne": 2020}}, min_score=0).unknown_keys == {}


def test_a_key_that_only_a_late_document_has_is_known(store: Store) -> None:
    with Pipeline(MockEncoder(), store) as pipeline:
        pipeline.add([Document(f"{n:04}", text="a dog") for n in range(1001)])
        pipeline.add(Document("z", text="a cat", metadata={"colour": "red"}))
        assert pipeline.search("dog", where={"colour": "blue"}).unknown_keys == {}
        [line] = pipeline.search("dog", where={"size": 1}).unknown_keys.values()
        assert line == "No document has the key 'size'; documents have no metadata"


def test_a_search_that_finds_something_does_not_look_for_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    with Pipeline(MockEncoder(), MemoryStore()) as pipeline:
        pipeline.add(DOCUMENTS)
        monkeypatch.setattr("vlmsearch.search.engine.unknown_keys", lambda *_: pytest.fail("keys were read"))
        assert len(pipeline.search("dog", where={"$or": [{"year": 2020}, {"yaer": 2020}]}, min_score=0)) == 1


def test_a_service_and_its_client_name_the_key(tmp_path: Path) -> None:
    settings = IndexSettings(f"sqlite:{tmp_path}/index", "mock:")
    with serving(ServerSettings({"dogs": settings})) as running, connect(running.url, index="dogs") as remote:
        remote.add(DOCUMENTS)
        assert remote.search("dog", where={"yaer": 2020}).unknown_keys == {"yaer": LINE}
        assert remote.search("dog", where={"year": 1999}) == Matches(threshold=remote.search("dog").threshold)
