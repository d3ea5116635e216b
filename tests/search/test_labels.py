"""Labels without training: what fits drawn scenes, what is written, and what becomes of it when files change."""

import itertools
import os
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from vlmsearch_mocks import MemoryStore, MockEncoder

from tests.support.reindex_crash_points import Model
from vlmsearch import ConfigError, Document, DocumentLabels, Pipeline, Scalar
from vlmsearch._util import batching
from vlmsearch.demo.scenes import SHAPES, make_scene
from vlmsearch.indexing.copy import copy
from vlmsearch.indexing.metadata import change_metadata
from vlmsearch.indexing.reindex import reindex
from vlmsearch.registry import open_store
from vlmsearch.search.labels import PHOTO_TEMPLATES
from vlmsearch.stores.base import Store
from vlmsearch.stores.chroma.store import ChromaStore
from vlmsearch.stores.generations import GenerationalStore
from vlmsearch.stores.label_keys import split_labels
from vlmsearch.stores.mongodb.store import MongoStore
from vlmsearch.stores.mongodb_chroma.store import MongoChromaStore
from vlmsearch.stores.sqlite.store import SqliteStore

pytestmark = pytest.mark.slow

BACKGROUNDS = ("meadow", "beach", "brick wall", "night sky", "snow")
TEXTS = {"1": "a dog in the snow", "2": "a blue car", "3": "a dog in a car", "4": "nothing of these"}
KINDS = (
    "memory",
    "sqlite",
    "mongodb+chroma",
    "postgresql",
    *(pytest.param(kind, marks=pytest.mark.exhaustive) for kind in ("chroma server", "mongodb")),
)
"""The contract of the stores proves that metadata are changed in the same way on all."""
_numbers = itertools.count()


@pytest.fixture
def make(mongo_address: str, chroma_address: str, postgres_url: str, tmp_path: Path) -> Callable[[str], Store]:
    def make(kind: str) -> Store:
        name = f"labels-{os.getpid()}-{next(_numbers)}"
        if kind == "memory":
            return MemoryStore()
        if kind == "sqlite":
            return SqliteStore(str(tmp_path / name))
        if kind == "chroma server":
            return ChromaStore(f"//{chroma_address}/{name}")
        if kind == "postgresql":
            return open_store(f"{postgres_url}?table={name.replace('-', '_')}")
        if kind == "mongodb":
            return MongoStore(f"//{mongo_address}/{name}")
        return MongoChromaStore(f"//{mongo_address}/{name}", chroma=f"http://{chroma_address}")

    return make


@pytest.fixture
def small() -> Iterator[Pipeline]:
    """An index of four texts in memory."""
    with Pipeline(MockEncoder(), MemoryStore()) as pipeline:
        pipeline.add(Document(id, text=text, metadata={"n": int(id)}) for id, text in TEXTS.items())
        yield pipeline


@pytest.fixture(scope="module")
def scenes() -> Iterator[Pipeline]:
    """An index of 300 drawn scenes without captions."""
    with Pipeline.open(encoder="onnx:demo", store="mock:", generator=None) as pipeline:
        pipeline.add(Document(str(seed), image=make_scene(seed).draw()) for seed in range(40_000_000, 40_000_300))
        yield pipeline


def names(found: Iterator[DocumentLabels]) -> dict[str, list[str]]:
    return {each.document.id: list(each.labels) for each in found}


@pytest.mark.parametrize(
    ("labels", "truth", "precision", "recall"),
    [
        (SHAPES, lambda scene: {group.shape for group in scene.groups}, 0.98, 0.97),
        (BACKGROUNDS, lambda scene: {scene.background}, 0.97, 0.97),
    ],
    ids=["shapes", "backgrounds"],
)
def test_labels_fit_drawn_scenes(
    scenes: Pipeline, labels: tuple[str, ...], truth: Callable[..., set[str]], precision: float, recall: float
) -> None:
    found = {(id, label) for id, each in names(scenes.label(labels)).items() for label in each}
    ids = {id for id, _ in found}
    true = {
        (str(seed), label) for seed in range(40_000_000, 40_000_300) for label in truth(make_scene(seed)) & set(labels)
    }
    assert ids
    assert len(found & true) / len(found) >= precision
    assert len(found & true) / len(true) >= recall


def test_relevance_is_that_of_a_search_for_the_label(scenes: Pipeline, small: Pipeline) -> None:
    for pipeline, label in ((scenes, "star"), (small, "dog")):
        found = {each.document.id: each.labels for each in pipeline.label([label], min_score=0)}
        matches = pipeline.search(label, limit=50, min_score=0)
        assert len(matches) > 2
        for match in matches:
            assert found[match.document.id][label] == pytest.approx(match.score, abs=1e-6)


def test_templates_are_for_images_and_texts_are_asked_for_the_label_itself(scenes: Pipeline, small: Pipeline) -> None:
    bare = {each.document.id: each.labels["star"] for each in scenes.label(["star"], min_score=0)}
    pictured = {
        each.document.id: each.labels["star"]
        for each in scenes.label(["star"], templates=["{}", "an image of a {}"], min_score=0)
    }
    assert bare != pictured
    assert names(small.label(["dog", "car"])) == names(small.label(["dog", "car"], templates=PHOTO_TEMPLATES))


@pytest.mark.parametrize("kind", KINDS)
def test_written_labels_are_filtered_on_in_every_store(kind: str, make: Callable[[str], Store]) -> None:
    with Pipeline(MockEncoder(), make(kind)) as pipeline:
        pipeline.add(Document(id, text=text, metadata={"n": int(id)}) for id, text in TEXTS.items())
        found = list(pipeline.label(["dog", "car"], write=True))
        assert {each.document.id: (set(each.labels), each.written) for each in found} == {
            "1": ({"dog"}, True),
            "2": ({"car"}, True),
            "3": ({"dog", "car"}, True),
            "4": (set(), False),
        }
        by_label = pipeline.search("a", where={"label:dog": {"$gte": 0.3}}, min_score=0)
        assert {match.document.id for match in by_label} == {"1", "3"}
        none = pipeline.search("of", where={"label": {"$nin": ["dog", "car"]}}, min_score=0)
        assert {match.document.id for match in none} == {"4"}
        [both] = pipeline.store.get(["3"])
        assert both.metadata["n"] == 3
        assert both.metadata["label"] == max(("dog", "car"), key=lambda label: both.metadata[f"label:{label}"])
        assert not any(each.written for each in pipeline.label(["dog", "car"], write=True))
        assert {match.document.id for match in pipeline.search("dog car snow", min_score=0)} >= {"1", "2", "3"}


def test_a_run_replaces_its_key_and_leaves_others(small: Pipeline) -> None:
    list(small.label(["dog", "car"], write=True))
    list(small.label(["snow"], write=True, key="weather"))
    list(small.label(["car"], write=True))
    metadata = {document.id: dict(document.metadata) for document in small.store.get(list(TEXTS))}
    assert {id: sorted(each) for id, each in metadata.items()} == {
        "1": ["n", "weather", "weather:snow"],
        "2": ["label", "label:car", "n"],
        "3": ["label", "label:car", "n"],
        "4": ["n"],
    }
    list(small.label([], write=True))
    list(small.label([], write=True, key="weather"))
    assert all(set(document.metadata) == {"n"} for document in small.store.get(list(TEXTS)))
    assert small.add(Document(id, text=text, metadata={"n": int(id)}) for id, text in TEXTS.items()).unchanged == 4


def test_single_gives_the_most_relevant_label_alone(small: Pipeline) -> None:
    several = {each.document.id: each.labels for each in small.label(["dog", "car"])}
    single = {each.document.id: each.labels for each in small.label(["dog", "car"], single=True)}
    assert len(several["3"]) == 2
    best = max(several["3"], key=lambda label: several["3"][label])
    assert single["3"] == {best: several["3"][best]}


def test_filters_and_limits(small: Pipeline) -> None:
    assert names(small.label(["dog"], where={"n": {"$gt": 1}}, limit=2)) == {"2": [], "3": ["dog"]}
    done: list[int] = []
    assert len(names(small.label(["dog"], on_progress=done.append))) == done[-1] == 4


def test_an_interrupted_run_keeps_what_it_did_and_the_next_completes_it(
    small: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batching, "PAGE", 2)
    running = small.label(["dog", "car"], write=True)
    assert next(running).written
    running.close()  # type: ignore[attr-defined]
    there = [document.id for document in small.store.get(list(TEXTS)) if "label" in document.metadata]
    assert there == ["1", "2"]
    again = {each.document.id: each.written for each in small.label(["dog", "car"], write=True)}
    assert again == {"1": False, "2": False, "3": True, "4": False}


def test_what_another_replaces_meanwhile_is_not_written_to(small: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    upsert, stamps = small.store.upsert, small.store.stamps

    def stamps_and_then_a_new_version(ids: list[str]) -> object:
        known = stamps(ids)
        [record] = small.store.records(["1"])
        upsert(
            [replace(record, document=Document("1", text="a green tree"), stamp=replace(record.stamp, digest="new"))]
        )
        return known

    monkeypatch.setattr(small.store, "stamps", stamps_and_then_a_new_version)
    written = {each.document.id: each.written for each in small.label(["dog"], min_score=0.01, write=True)}
    assert written["3"]
    assert not written["1"]
    assert small.store.get(["1"]) == [Document("1", text="a green tree")]


def interfere(monkeypatch: pytest.MonkeyPatch, store: Store, act: Callable[[], None]) -> None:
    """Have another writer act once, right when a write of the store begins."""
    assert isinstance(store, GenerationalStore)
    check = store.check_in_use

    def begin(*, to_read: bool = False) -> None:
        if not to_read:
            monkeypatch.undo()
            act()
        check(to_read=to_read)

    monkeypatch.setattr(store, "check_in_use", begin)


@pytest.mark.parametrize("kind", KINDS[1:])
def test_labels_bring_no_deleted_document_back_and_undo_no_update(
    kind: str, make: Callable[[str], Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    with Pipeline(MockEncoder(), make(kind)) as pipeline:
        pipeline.add(Document(id, text=text, metadata={"n": int(id)}) for id, text in TEXTS.items())

        def act() -> None:
            assert pipeline.delete(["1"]) == 1
            assert pipeline.add(Document("2", text="a red bus", metadata={"n": 20})).updated == 1
            assert change_metadata(pipeline.store, ["3"], {"n": 30}) == 1

        interfere(monkeypatch, pipeline.store, act)
        found = {each.document.id: each.written for each in pipeline.label(["dog"], min_score=0.0, write=True)}
        assert found == {"1": False, "2": False, "3": False, "4": True}
        assert pipeline.store.get(["1"]) == []
        updated, changed, labelled = pipeline.store.get(["2", "3", "4"])
        assert (updated.text, updated.metadata, changed.metadata) == ("a red bus", {"n": 20}, {"n": 30})
        assert labelled.metadata["label"] == "dog"
        assert pipeline.check().clean


@pytest.mark.parametrize("kind", KINDS[1:])
def test_metadata_are_set_in_what_others_wrote_meanwhile(
    kind: str, make: Callable[[str], Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    with Pipeline(MockEncoder(), make(kind)) as pipeline:
        pipeline.add(Document(id, text=text, metadata={"n": int(id)}) for id, text in TEXTS.items())

        def act() -> None:
            assert pipeline.delete(["1"]) == 1
            assert pipeline.add(Document("2", text="a red bus", metadata={"n": 20})).updated == 1

        interfere(monkeypatch, pipeline.store, act)
        assert change_metadata(pipeline.store, ["1", "2", "3"], {"seen": True}) == 2
        assert [(each.id, each.text, each.metadata) for each in pipeline.store.get(["1", "2", "3"])] == [
            ("2", "a red bus", {"n": 20, "seen": True}),
            ("3", TEXTS["3"], {"n": 3, "seen": True}),
        ]


def test_indexing_again_keeps_labels_until_the_file_changes_and_says_so(tmp_path: Path) -> None:
    for id, text in TEXTS.items():
        (tmp_path / f"{id}.txt").write_text(text)
    with Pipeline(MockEncoder(), SqliteStore(str(tmp_path / "index"))) as pipeline:
        pipeline.index(tmp_path)
        list(pipeline.label(["dog", "car"], write=True))
        report = pipeline.index(tmp_path)
        assert (report.unchanged, report.unlabelled) == (4, 0)
        (tmp_path / "3.txt").write_text("a boat")
        report = pipeline.index(tmp_path)
        assert (report.updated, report.unchanged, report.unlabelled) == (1, 3, 1)
        labelled = [Path(d.id).stem for d in pipeline.store.get(sorted(pipeline.store.ids())) if "label" in d.metadata]
        assert labelled == ["1", "2"]


def test_copying_and_reindexing_take_labels_along(tmp_path: Path) -> None:
    documents = [Document(id, text=text, metadata={"n": int(id)}) for id, text in TEXTS.items()]
    with closing(MemoryStore()) as target, Pipeline(MockEncoder(), SqliteStore(str(tmp_path / "index"))) as pipeline:
        pipeline.add(documents)
        assert copy(pipeline.store, target).copied == 4
        list(pipeline.label(["dog", "car"], write=True))
        assert copy(pipeline.store, target).copied == 3
        assert target.get(["3"]) == pipeline.store.get(["3"])
        assert reindex(pipeline.store, Model(1)).switched
        with Pipeline(Model(1), SqliteStore(str(tmp_path / "index"))) as anew:
            assert anew.store.get(["3"]) == target.get(["3"])
            assert anew.add(documents).unchanged == 4


def test_metadata_of_a_source_are_never_overwritten() -> None:
    with Pipeline(MockEncoder(), MemoryStore()) as pipeline:
        pipeline.add(Document("1", text="a dog", metadata={"label": "mine"}))
        with pytest.raises(ConfigError, match="'1' has 'label' in its metadata: choose another `key`"):
            list(pipeline.label(["dog"], min_score=0.01, write=True))
        list(pipeline.label(["dog"], min_score=0.01, write=True, key="shows"))
        [document] = pipeline.store.get(["1"])
        assert (document.metadata["label"], document.metadata["shows"]) == ("mine", "dog")


def test_labels_are_told_from_other_metadata() -> None:
    own: dict[str, Scalar] = {"year": 2024, "label": "mine", "a:b": 1.0, "kind": "x", "kind:x": True}
    labels: dict[str, Scalar] = {"shows": "cat", "shows:cat": 0.9, "shows:a: dog": 0.5}
    assert split_labels({**own, **labels}) == (own, labels)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"labels": []}, "none only with `write`"),
        ({"labels": [" "]}, "labels are words"),
        ({"labels": ["cat"], "templates": ["a photo"]}, "has {} once"),
        ({"labels": ["cat"], "templates": []}, "has {} once"),
        ({"labels": ["cat"], "min_score": 2}, "`min_score` is from 0 to 1, not 2"),
        ({"labels": ["cat"], "limit": 0}, "at least 1, not 0"),
        ({"labels": ["cat" * 50]}, "1 to 128 characters"),
        ({"labels": ["cat"], "key": "$label"}, "cannot be written under `key`"),
    ],
)
def test_wrong_options_are_named(small: Pipeline, options: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        small.label(**options)  # type: ignore[arg-type]
