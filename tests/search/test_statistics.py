"""Statistics of an index: kept with it, so that a new process does not compute them anew."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from vlmsearch_mocks import MockEncoder, MockStore

from vlmsearch import Document, Pipeline
from vlmsearch.errors import BackendUnavailableError
from vlmsearch.indexing.copy import copy
from vlmsearch.indexing.reindex import reindex
from vlmsearch.search import agreement, relevance
from vlmsearch.search.relevance import Backgrounds, kept_statistics
from vlmsearch.stores.generations import GenerationalStore
from vlmsearch.stores.sqlite.store import SqliteStore
from vlmsearch.types import Field, Matches

FIELD = Field("minilm", "text")
STORES: dict[str, Callable[[Path], GenerationalStore]] = {
    "sqlite": lambda folder: SqliteStore(str(folder / "index")),
    "mongodb+chroma": lambda _: MockStore(language="auto"),
}


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> GenerationalStore:
    return STORES[request.param](tmp_path)


def documents(first: int, last: int) -> list[Document]:
    return [Document(f"{n:04}", text=f"a dog of kind {n % 7} runs to tree {n}") for n in range(first, last)]


def weight_of(store: GenerationalStore) -> float | None:
    manifest = store.manifest()
    assert manifest is not None
    kept = kept_statistics(manifest, FIELD, store.size())
    return None if kept is None else kept.word_weight


def test_a_new_process_computes_no_weight_that_the_index_keeps(
    store: GenerationalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agreement, "word_weight", lambda *_: 2.5)
    Pipeline(MockEncoder(), store).add(documents(0, 100))
    monkeypatch.setattr(agreement, "word_weight", lambda *_: pytest.fail("it is kept"))
    assert weight_of(store) == 2.5
    assert Pipeline(MockEncoder(), store).search("a dog runs to tree 17")


def test_scores_are_the_same_whether_the_weight_is_kept_or_computed(
    store: GenerationalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = ["a dog runs to tree 17", "kind 3", "tree", "nothing of it"]

    def matches() -> list[Matches]:
        return [Pipeline(MockEncoder(), store).search(text, min_score=0.0) for text in asked]

    warm = Pipeline(MockEncoder(), store)
    warm.add(documents(0, 100))
    kept = matches()
    assert [warm.search(text, min_score=0.0) for text in asked] == kept
    monkeypatch.setattr(relevance, "kept_statistics", lambda *_: None)
    assert matches() == kept


def test_a_weight_is_of_about_the_documents_that_are_there(
    store: GenerationalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    weights = iter((1.0, 2.0, 3.0, 4.0, 5.0))
    monkeypatch.setattr(agreement, "word_weight", lambda *_: next(weights))
    pipeline = Pipeline(MockEncoder(), store)
    pipeline.add(documents(0, 40))
    assert weight_of(store) is None  # so few are computed in a moment
    pipeline.add(documents(0, 1000))
    assert weight_of(store) == 2.0
    pipeline.add(documents(1000, 1050))
    assert weight_of(store) == 2.0
    pipeline.add(documents(1050, 1200))
    assert weight_of(store) == 3.0
    pipeline.add([replace(document, text=f"other {document.text}") for document in documents(0, 1200)])
    assert weight_of(store) == 4.0
    pipeline.delete([document.id for document in documents(0, 600)])
    assert weight_of(store) is None


def test_copies_and_renewed_indexes_keep_weights_of_their_own(store: GenerationalStore, tmp_path: Path) -> None:
    Pipeline(MockEncoder(), store).add(documents(0, 100))
    copied = SqliteStore(str(tmp_path / "copy"))
    copy(store, copied)
    assert weight_of(copied) == weight_of(store) is not None
    other = MockEncoder(neighbours={"zebra": ["horse"]})
    assert reindex(store, other).switched
    assert weight_of(store) is not None
    assert Pipeline(other, store).search("a dog runs to tree 17")


def test_an_index_of_an_earlier_version_gets_its_weight_at_the_next_run(store: GenerationalStore) -> None:
    pipeline = Pipeline(MockEncoder(), store)
    pipeline.add(documents(0, 100))
    store.keep_statistics({})
    assert weight_of(store) is None
    assert Pipeline(MockEncoder(), store).add(documents(0, 100)).unchanged == 100
    assert weight_of(store) is not None


def test_a_run_succeeds_where_nothing_can_be_kept(store: GenerationalStore, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: Any) -> None:
        raise BackendUnavailableError("not now")

    monkeypatch.setattr(store, "keep_statistics", refuse)
    pipeline = Pipeline(MockEncoder(), store)
    assert pipeline.add(documents(0, 100)).added == 100
    assert weight_of(store) is None
    assert pipeline.search("a dog runs to tree 17")


def test_who_changes_the_row_need_not_begin_again(tmp_path: Path) -> None:
    store = SqliteStore(str(tmp_path / "index"))
    Pipeline(MockEncoder(), store).add(documents(0, 100))
    replace_slot = store.replace_slot

    def keep_first(slot: Any, row: Any, revision: str | None) -> bool:
        other = SqliteStore(str(tmp_path / "index"))
        other.needed()
        other.keep_statistics({"other": (1, 2)})
        return replace_slot(slot, row, revision)

    store.replace_slot = keep_first  # type: ignore[method-assign]
    store.tune({"words": 2.0})
    manifest = store.manifest()
    assert manifest is not None
    assert manifest.tuning == {"words": 2.0}


def test_few_changes_are_not_looked_at_after_every_write(
    store: GenerationalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []
    size = store.size

    def counted() -> int:
        sizes.append(size())
        return sizes[-1]

    monkeypatch.setattr(store, "size", counted)
    backgrounds = Backgrounds()
    Pipeline(MockEncoder(), store).add(documents(0, 100))
    sizes.clear()
    for _ in range(5):
        backgrounds.keep(store, 1)
    assert len(sizes) == 1
    backgrounds.keep(store, 100)
    assert len(sizes) > 1
