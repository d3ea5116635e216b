"""``reindex``: another model beside the one in use, and then in its place, on real servers and on the mocks."""

import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from vlmsearch_mocks import MemoryStore, MockEncoder, MockStore
from vlmsearch_mocks.pair import mock_chroma_store, mock_mongo_store

from vlmsearch import ConfigError, Document, IndexMismatchError, Pipeline, VlmsearchError
from vlmsearch.demo.scenes import make_scene
from vlmsearch.reindexing import drop_old, reindex
from vlmsearch.stores.base import Store
from vlmsearch.stores.chroma import ChromaStore
from vlmsearch.stores.generations import GenerationalStore
from vlmsearch.stores.mongo import MongoStore
from vlmsearch.stores.mongo_chroma import MongoChromaStore
from vlmsearch.types import Record, Stamp

OTHER = {"a red star": ["a blue moon"]}


def reindexable(kind: str, mongo: str, chroma: str, tmp_path: Path) -> Store:
    location = f"//{mongo}/re-{abs(hash(str(tmp_path))) % 10**9}"
    makers: dict[str, Callable[[], Store]] = {
        "mock": MockStore,
        "mock mongodb": mock_mongo_store,
        "mock chroma": mock_chroma_store,
        "chroma": lambda: ChromaStore(str(tmp_path / "index")),
        "chroma server": lambda: ChromaStore(f"//{chroma}/re-{abs(hash(str(tmp_path))) % 10**9}"),
        "mongodb": lambda: MongoStore(location),
        "mongodb+chroma": lambda: MongoChromaStore(location, chroma=f"http://{chroma}"),
    }
    return makers[kind]()


@pytest.mark.parametrize(
    "kind", ["mock", "mock mongodb", "mock chroma", "chroma", "chroma server", "mongodb", "mongodb+chroma"]
)
def test_reindexing_switches_to_the_other_model_in_one_step(
    kind: str, mongo_address: str, chroma_address: str, tmp_path: Path
) -> None:
    make_scene(3).draw(64).save(tmp_path / "scene.png")
    first, second = MockEncoder(), MockEncoder(neighbours=OTHER)
    with reindexable(kind, mongo_address, chroma_address, tmp_path) as store:
        pipeline = Pipeline(first, store)
        pipeline.add([Document(f"{i}", text=f"text {i}", metadata={"i": i}) for i in range(150)])
        pipeline.add([Document("moon", text="a blue moon"), Document("scene", image=tmp_path / "scene.png")])
        stamps = store.stamps(list(store.ids()))
        with pytest.raises(ConfigError, match=r"was built with mock:.* already"):
            reindex(store, first)
        report = reindex(store, second)
        assert (report.documents, report.encoded, report.lost, report.switched) == (152, 152, (), True)
        assert store.stamps(list(store.ids())) == stamps
        with pytest.raises(IndexMismatchError):
            store.bind(first.fingerprint, first.spaces)
        assert Pipeline(second, store).search("a red star", limit=1)[0].document.id == "moon"
        assert drop_old(store)
        assert not drop_old(store)
        assert len(store) == 152
        assert reindex(store, first).encoded == 152, "and back again, in a generation of its own"
        assert Pipeline(first, store).search("text 7", limit=1)[0].document.id == "7"
        assert Pipeline(first, store).check().clean


@pytest.mark.parametrize("kind", ["chroma server", "mongodb", "mongodb+chroma"])
def test_who_has_the_old_index_open_is_told(kind: str, mongo_address: str, chroma_address: str, tmp_path: Path) -> None:
    first, second = MockEncoder(), MockEncoder(neighbours=OTHER)
    with (
        reindexable(kind, mongo_address, chroma_address, tmp_path) as store,
        reindexable(kind, mongo_address, chroma_address, tmp_path) as other,
    ):
        Pipeline(first, store).add([Document(f"{i}", text=f"text {i}") for i in range(20)])
        pipeline = Pipeline(first, other)
        assert len(pipeline.search("text 7")) == 10
        assert reindex(store, second).switched
        assert len(pipeline.search("text 7")) == 10
        for write in (lambda: pipeline.add([Document("new", text="new")]), lambda: pipeline.delete(["7"])):
            with pytest.raises(IndexMismatchError, match=f"built anew with {second.fingerprint} since it was opened"):
                write()
        assert store.get(["7", "new"]) == [Document("7", text="text 7")]
        assert drop_old(store)
        with pytest.raises(VlmsearchError):
            pipeline.search("text 7")
    with reindexable(kind, mongo_address, chroma_address, tmp_path) as again:
        assert Pipeline(second, again).search("text 7", limit=1)[0].document.id == "7"


@pytest.mark.parametrize("kind", ["mock", "chroma", "chroma server", "mongodb", "mongodb+chroma"])
def test_what_is_written_until_the_switch_is_in_the_new_index(
    kind: str, mongo_address: str, chroma_address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = MockEncoder(), MockEncoder(neighbours=OTHER)
    with reindexable(kind, mongo_address, chroma_address, tmp_path) as store:
        assert isinstance(store, GenerationalStore)
        switch, pipeline = store.switch, Pipeline(first, store)
        pipeline.add([Document(f"{i}", text=f"text {i}") for i in range(20)])

        def switch_late() -> Store:
            pipeline.add([Document("late", text="late"), Document("3", text="new text")])
            pipeline.delete(["5", "6"])
            old = switch()
            with pytest.raises(IndexMismatchError):
                pipeline.add([Document("too late", text="too late")])
            Pipeline(second, store).add([Document("newer", text="newer"), Document("7", text="newer text")])
            Pipeline(second, store).delete(["8"])
            return old

        monkeypatch.setattr(store, "switch", switch_late)
        report = reindex(store, second)
        assert (report.documents, report.encoded, report.switched) == (19, 22, True)
        found = {document.id: document.text for document in store.get([*map(str, range(20)), "late", "newer"])}
        changed = {"3": "new text", "7": "newer text", "late": "late", "newer": "newer"}
        assert found == {f"{i}": f"text {i}" for i in range(20) if i not in (5, 6, 8)} | changed
        assert Pipeline(second, store).search("late", limit=1)[0].document.id == "late"
        assert Pipeline(second, store).check().clean


@pytest.mark.parametrize("at_once", [False, True], ids=["before it writes", "while it writes"])
@pytest.mark.parametrize("kind", ["chroma server", "mongodb", "mongodb+chroma"])
def test_a_reindex_that_another_one_replaces_writes_nothing_into_it(
    kind: str, at_once: bool, mongo_address: str, chroma_address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def opened() -> GenerationalStore:
        store = reindexable(kind, mongo_address, chroma_address, tmp_path)
        assert isinstance(store, GenerationalStore)
        return store

    encoder = MockEncoder()
    with opened() as store, opened() as other:
        Pipeline(encoder, store).add([Document("a", text="text")])
        mine = store.beside("X@1", encoder.spaces)
        assert isinstance(mine, GenerationalStore)
        check = mine.check_in_use

        def check_and_lose() -> None:
            monkeypatch.undo()
            check()
            other.beside("Y@1", encoder.spaces)

        if at_once:
            monkeypatch.setattr(mine, "check_in_use", check_and_lose)
        else:
            other.beside("Y@1", encoder.spaces)
        vectors = {
            field: encoder.encode_texts(["b"])[space.name][0] for space in encoder.spaces for field in space.fields
        }
        record = Record(Document("b", text="b"), vectors, Stamp("b"))
        with pytest.raises(VlmsearchError):
            mine.upsert([record])
        theirs = other.beside("Y@1", encoder.spaces)
        assert list(theirs.ids()) == []
        theirs.upsert([record])
        with pytest.raises(IndexMismatchError, match="built anew with Y@1 since it was opened"):
            mine.delete(["b"])
        other.switch()
        assert list(other.ids()) == ["b"]


@pytest.mark.parametrize("kind", ["mock", "chroma"])
def test_reindexing_goes_on_where_it_was_interrupted(kind: str, tmp_path: Path) -> None:
    store, first = reindexable(kind, "", "", tmp_path), MockEncoder()
    assert isinstance(store, (MockStore, ChromaStore))
    new = store.over("next")

    class Interrupted(MockEncoder):
        left = 1300

        def encode_texts(self, texts, *, role="document"):  # type: ignore[no-untyped-def]
            self.left -= len(texts)
            if self.left < 0:
                deadline = time.monotonic() + 20
                while not len(new) and time.monotonic() < deadline:
                    time.sleep(0.01)
                raise KeyboardInterrupt
            return super().encode_texts(texts, role=role)

    Pipeline(first, store).add([Document(f"{i}", text=f"text {i}") for i in range(1600)])
    with pytest.raises(KeyboardInterrupt):
        reindex(store, Interrupted(neighbours=OTHER))
    assert Pipeline(first, store).search("text 7", limit=1)[0].document.id == "7"
    Pipeline(first, store).delete(["5"])
    Pipeline(first, store).add([Document("6", text="new text"), Document("new", text="another")])
    report = reindex(store, MockEncoder(neighbours=OTHER))
    assert report.documents == 1600
    assert 300 < report.encoded < 1600
    assert store.get(["5", "6"]) == [Document("6", text="new text")]
    assert Pipeline(MockEncoder(neighbours=OTHER), store).check().clean
    store.close()


def test_reindexing_does_not_switch_where_a_document_would_be_lost(tmp_path: Path) -> None:
    make_scene(3).draw(64).save(tmp_path / "gone.png")
    store = MockStore()
    pipeline = Pipeline(MockEncoder(), store)
    pipeline.add([Document("a", text="t"), Document("b", image=make_scene(1).draw(64))])
    pipeline.add([Document("gone", image=tmp_path / "gone.png")])
    (tmp_path / "gone.png").unlink()
    report = reindex(store, MockEncoder(neighbours=OTHER))
    assert (report.switched, report.lost) == (False, ("b", "gone"))
    assert len(store) == 3
    assert store.rejects() == []
    assert reindex(store, MockEncoder(neighbours=OTHER), allow_missing=True).switched
    assert list(store.ids()) == ["a"]


def test_a_store_that_cannot_says_what_to_do() -> None:
    with Pipeline(MockEncoder(), MemoryStore()) as pipeline:
        pipeline.add([Document("a", text="t")])
        with pytest.raises(ConfigError, match="vlmsearch index PATHS --store NEW"):
            reindex(pipeline.store, MockEncoder(neighbours=OTHER))


def test_a_replaced_index_leaves_the_files_of_a_folder(tmp_path: Path) -> None:
    location, first, second = str(tmp_path / "index"), MockEncoder(), MockEncoder(neighbours=OTHER)
    with ChromaStore(location) as store:
        Pipeline(first, store).add([Document(f"{i}", text=f"text {i}") for i in range(300)])
        assert reindex(store, second).switched
        with ChromaStore(location) as other:
            assert other.manifest() == store.manifest()
        assert drop_old(store)
    with closing(sqlite3.connect(tmp_path / "index" / "chroma.sqlite3")) as db:
        names = {name for (name,) in db.execute("SELECT name FROM collections")}
        (logged,) = db.execute("SELECT count(*) FROM embeddings_queue").fetchone()
        segments = {segment for (segment,) in db.execute("SELECT id FROM segments")}
    assert {name for name in names if ".1." in name} == set()
    assert "vlmsearch.2.documents" in names
    assert {place.name for place in (tmp_path / "index").iterdir() if place.is_dir()} <= segments
    assert logged == 3 * 300 + 2, "documents and vectors of two fields, and the rows that name the index"
