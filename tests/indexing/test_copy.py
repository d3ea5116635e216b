"""``copy``: an index from every kind of store to every other, cut off and taken up again, and the command."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from vlmsearch_mocks import MemoryStore, MockEncoder, MockStore
from vlmsearch_mocks.contracts.records import CAPTION, IMAGE, SPACES, TEXT, make_records, unit_vectors
from vlmsearch_mocks.pair import mock_mongo_store

from tests.support.cli import assert_one_line, ok, run
from tests.support.every_store import MakeStore
from tests.support.small_store import SmallStore
from vlmsearch import ConfigError, Document, IndexMismatchError, Pipeline, Record
from vlmsearch.indexing.copy import copy
from vlmsearch.indexing.reindex import drop_old, reindex
from vlmsearch.stores.base import RejectList, Store
from vlmsearch.stores.chroma.store import ChromaStore
from vlmsearch.stores.mongodb.store import MongoStore
from vlmsearch.stores.mongodb_chroma.store import MongoChromaStore
from vlmsearch.stores.postgresql.store import PostgresStore
from vlmsearch.stores.sqlite.store import SqliteStore
from vlmsearch.types import Reject, Stamp

KINDS = ("memory", "sqlite", "chroma server", "mongodb", "mongodb+chroma", "postgresql")


@pytest.fixture
def make(make_store: MakeStore) -> MakeStore:
    mocks: dict[str, Callable[[], Store]] = {"mock pair": MockStore, "mock mongodb": mock_mongo_store}
    return lambda kind: mocks[kind]() if kind in mocks else make_store(kind)


def some_records(number: int = 300) -> list[Record]:
    return [
        *make_records(number, (IMAGE, TEXT)),
        Record(Document("x" * 1024, image=Path("b.png")), {CAPTION: unit_vectors(1, CAPTION)[0]}, Stamp("1", "s")),
        Record(Document("bare", text="", metadata={"n": 2**63 - 1, "f": 1.0}), {}, Stamp("2")),
    ]


REJECTS = [Reject("bad", "truncated", "it ends early", Stamp("d", "s")), Reject("worse", "empty", "nothing")]


def filled(store: Store, records: Sequence[Record]) -> Store:
    store.bind("encoder 1", SPACES)
    store.upsert(records)
    if isinstance(store, RejectList):
        store.reject(REJECTS)
    return store


def assert_equal(source: Store, target: Store) -> None:
    ids = sorted(source.ids())
    assert sorted(target.ids()) == ids
    assert target.stamps(ids) == source.stamps(ids)
    for old, new in zip(source.records(ids), target.records(ids)):
        assert (new.document, new.stamp, new.fingerprint) == (old.document, old.stamp, old.fingerprint)
        assert new.vectors.keys() == old.vectors.keys()
        assert all(np.allclose(new.vectors[field], old.vectors[field], atol=1e-6) for field in old.vectors)
    there, here = source.manifest(), target.manifest()
    assert here is not None
    assert there is not None
    assert (here.fingerprint, set(here.spaces)) == (there.fingerprint, set(there.spaces))


@pytest.mark.parametrize(("kind", "other"), [*zip(KINDS, (*KINDS[1:], KINDS[0]))])
def test_an_index_is_copied_from_and_to_each_kind_of_store(kind: str, other: str, make: MakeStore) -> None:
    with make(kind) as source, make(other) as target:
        filled(source, some_records())
        counted: list[int] = []
        report = copy(source, target, on_progress=counted.append)
        assert (report.documents, report.copied, report.unchanged, report.pruned) == (302, 302, 0, 0)
        assert (report.rejects, report.refused) == (2, ())
        assert counted == [302]
        assert isinstance(target, RejectList)
        assert target.rejects() == REJECTS
        assert_equal(source, target)
        query = unit_vectors(1, TEXT)
        found = target.search(TEXT, query, limit=5)[0]
        assert [hit.id for hit in found] == [hit.id for hit in source.search(TEXT, query, limit=5)[0]]
        again = copy(source, target)
        assert (again.copied, again.unchanged) == (0, 302)


def test_a_copy_that_is_cut_off_goes_on_from_there(make: MakeStore) -> None:
    def die_half_way(done: int) -> None:
        if done >= 512:
            raise KeyboardInterrupt

    with MemoryStore() as source, make("sqlite") as target:
        filled(source, some_records(1000))
        with pytest.raises(KeyboardInterrupt):
            copy(source, target, on_progress=die_half_way)
        assert len(target) == 512
        report = copy(source, target)
        assert (report.copied, report.unchanged, report.documents) == (490, 512, 1002)
        assert_equal(source, target)


def test_a_copy_follows_the_source() -> None:
    with MemoryStore("a") as source, MockStore() as target:
        records = some_records()
        filled(source, records)
        copy(source, target)
        source.upsert([Record(Document("id-1", text="new"), {TEXT: unit_vectors(1, TEXT)[0]}, Stamp("new"))])
        source.upsert([Record(Document("bad", text="healed"), {}, Stamp("healed"))])
        source.release(["bad", "worse"])
        source.delete(["id-2", "id-3"])
        target.upsert([Record(Document("mine"), {}, Stamp("mine"))])
        report = copy(source, target)
        assert (report.copied, report.unchanged, report.pruned, report.rejects) == (2, 299, 0, 0)
        assert [document.text for document in target.get(["id-1"])] == ["new"]
        assert {"id-2", "id-3", "mine"} < set(target.ids()), "what only the target has stays there"
        assert [reject.id for reject in target.rejects()] == ["worse"]
        report = copy(source, target, prune=True)
        assert (report.copied, report.pruned, report.documents) == (0, 3, 301)
        assert target.rejects() == []
        assert_equal(source, target)


def test_the_tuning_is_copied_and_that_of_the_target_stays_where_the_source_has_none() -> None:
    def tuning(store: Store) -> dict[str, float]:
        manifest = store.manifest()
        assert manifest is not None
        return dict(manifest.tuning)

    with MemoryStore() as source, MemoryStore() as target:
        filled(source, some_records(3))
        source.tune({"words": 0.5, "min_score": 0.25})
        copy(source, target)
        assert tuning(target) == tuning(source) == {"words": 0.5, "min_score": 0.25}
        source.tune({"clip/image": 2.0})
        copy(source, target)
        source.tune({})
        copy(source, target)
        assert (tuning(source), tuning(target)) == ({}, {"clip/image": 2.0})


def test_documents_without_a_digest_are_copied_each_time() -> None:
    with MemoryStore("a") as source, MemoryStore("b") as target:
        filled(source, [Record(Document("a", text="old"), {})])
        copy(source, target)
        source.upsert([Record(Document("a", text="new"), {})])
        assert copy(source, target).copied == 1
        assert target.get(["a"]) == [Document("a", text="new")]


@pytest.mark.parametrize("kind", ["memory", "mock pair", "sqlite"])
def test_an_index_of_another_encoder_is_refused_before_anything_is_written(kind: str, make: MakeStore) -> None:
    with MemoryStore() as source, make(kind) as target:
        filled(source, some_records())
        for fingerprint, spaces in (("encoder 2", SPACES), ("encoder 1", SPACES[:1])):
            with make(kind) as target:
                target.bind(fingerprint, spaces)
                with pytest.raises(IndexMismatchError, match=f"built with {fingerprint} and mock: with encoder 1"):
                    copy(source, target, prune=True)
                assert len(target) == 0
                assert isinstance(target, RejectList)
                assert target.rejects() == []


def test_the_same_index_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "link").symlink_to(tmp_path)
    monkeypatch.chdir(tmp_path)
    with SqliteStore("index") as source:
        filled(source, some_records(3))
        for name in ("index", "./index", str(tmp_path / "index"), "link/index"):
            with SqliteStore(name) as target, pytest.raises(ConfigError, match="the same index"):
                copy(source, target)
        with pytest.raises(ConfigError, match="the same index"):
            copy(source, source)
    with MemoryStore() as source, MemoryStore() as target:
        filled(source, some_records(3))
        assert copy(source, target).copied == 5, "two of one name are two"


def test_what_is_no_index_is_refused_and_nothing_is_made() -> None:
    with MemoryStore() as source, MemoryStore() as target:
        with pytest.raises(ConfigError, match="is not an index yet"):
            copy(source, target)
        assert target.manifest() is None


def test_a_store_without_a_reject_list_says_so_and_one_without_a_tuning_is_filled() -> None:
    with MemoryStore() as source, SmallStore() as target:
        filled(source, some_records(3))
        source.tune({"words": 0.5})
        assert copy(source, target).rejects is None
        assert copy(target, source).rejects is None
        assert source.rejects() == REJECTS


def test_what_is_too_large_for_the_target_is_named_and_the_rest_is_copied() -> None:
    large = Record(Document("large", text="x" * 16_000_000), {}, Stamp("large"))
    with MemoryStore() as source, mock_mongo_store() as target:
        filled(source, [*some_records(5), large])
        report = copy(source, target)
        assert (report.copied, report.documents) == (7, 7)
        assert [(reject.id, reject.code) for reject in report.refused] == [("large", "too_large")]
        again = copy(source, target)
        assert (again.copied, again.unchanged, len(again.refused)) == (0, 7, 1)


@pytest.mark.parametrize("kind", ["mock pair", "mongodb+chroma", "chroma server"])
def test_a_document_whose_vector_was_lost_counts_as_changed_in_the_copy(kind: str, make: MakeStore) -> None:
    with make(kind) as source, MemoryStore() as target:
        filled(source, make_records(3, (IMAGE, TEXT)))
        assert isinstance(source, ChromaStore | MongoChromaStore)
        rows = source._vectors
        assert rows is not None
        rows.remove_from(TEXT, [key for key in rows.keys(TEXT) if key[0] == "id-1"])
        whole, broken = source.records(["id-0", "id-1"])
        assert (set(whole.vectors), whole.stamp) == ({IMAGE, TEXT}, Stamp("digest 0", "source 0"))
        assert (set(broken.vectors), broken.stamp) == ({IMAGE}, Stamp("", "source 1"))
        copy(source, target)
        assert target.stamps(["id-0", "id-1"]) == {"id-0": whole.stamp, "id-1": broken.stamp}


@pytest.mark.parametrize("kind", ["mongodb", "mongodb+chroma", "postgresql", "mock pair", "mock mongodb"])
def test_a_source_that_was_built_anew_and_dropped_is_not_taken_for_an_empty_one(
    kind: str, make: MakeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = MockEncoder(), MockEncoder(neighbours={"a": ["b"]})
    with make(kind) as source, MemoryStore() as target:
        Pipeline(first, source).add([Document(f"{i}", text=f"text {i}") for i in range(20)])
        assert copy(source, target).copied == 20
        with closing(_another(source)) as other:
            reindex(other, second)
            assert copy(source, target, prune=True).unchanged == 20, "the old index can be read for as long as it stays"
            drop_old(other)
        with pytest.raises(IndexMismatchError, match="built anew"):
            copy(source, target)
        monkeypatch.setattr(type(source), "ids", lambda _: iter(()))
        with pytest.raises(IndexMismatchError, match="built anew"):
            copy(source, target, prune=True)
        assert len(target) == 20


def _another(store: Store) -> MongoStore | MongoChromaStore | PostgresStore:
    """The same index, as another process opens it."""
    assert isinstance(store, MongoStore | MongoChromaStore | PostgresStore)
    return store.over("index")


def test_indexing_goes_on_with_the_copy(tmp_path: Path) -> None:
    for i in range(5):
        (tmp_path / f"{i}.txt").write_text(f"text {i}")
    (tmp_path / "bad.png").write_bytes(b"not an image")
    with MockStore() as source, MockStore() as target:
        assert Pipeline(MockEncoder(), source).index(tmp_path).added == 5
        assert copy(source, target).rejects == 1
        (tmp_path / "3.txt").write_text("another")
        (tmp_path / "4.txt").unlink()
        report = Pipeline(MockEncoder(), target).index(tmp_path, prune=True)
        assert (report.added, report.updated, report.unchanged, report.pruned) == (0, 1, 3, 1)
        assert Pipeline(MockEncoder(), target).check().clean


# ---- the command


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    with Pipeline.open(encoder="mock:", store=f"sqlite:{tmp_path / 'index'}") as pipeline:
        pipeline.add([Document(f"{i}", text=f"text {i}", metadata={"i": i}) for i in range(10)])
    return tmp_path


def test_the_command_copies_and_tells(folder: Path) -> None:
    to = ("copy", "--from", "sqlite:index", "--to", "sqlite:other")
    told = ok(*to, cwd=folder)
    assert told.startswith("10 copied, 0 unchanged in ")
    assert told.endswith("; sqlite:other has 10 documents\n")
    with SqliteStore(str(folder / "other")) as store:
        store.delete(["3"])
    with SqliteStore(str(folder / "index")) as store:
        store.delete(["4"])
    done = json.loads(ok(*to, "--prune", "--json", cwd=folder))
    assert done.pop("seconds") >= 0
    counts = {"documents": 9, "files": 9, "copied": 1, "unchanged": 8, "pruned": 1, "rejects": 0, "refused": []}
    assert done == counts
    found = ok("search", "text 7", "--store", "sqlite:other", "--encoder", "mock:", "--limit", "1", cwd=folder)
    assert found.split("\t")[1] == "7"


def test_the_command_names_its_flags_where_it_refuses(folder: Path) -> None:
    assert_one_line(
        run("copy", "--from", "sqlite:index", "--to", "sqlite:./index", cwd=folder),
        "--from and --to are the same index, sqlite:index: name another place for the copy",
    )
    assert_one_line(run("copy", "--from", "sqlite:none", "--to", "sqlite:b", cwd=folder), "no index at sqlite:none")
    assert not (folder / "b").exists()
    with SqliteStore(str(folder / "b")) as store:
        store.bind("another", SPACES)
    done = run("copy", "--from", "sqlite:index", "--to", "sqlite:b", cwd=folder)
    assert_one_line(done, "sqlite:b was built with another and sqlite:index with mock:")
    assert "give --to a place without an index" in done.stderr


@pytest.mark.slow
def test_ctrl_c_loses_nothing(tmp_path: Path) -> None:
    with SqliteStore(str(tmp_path / "index")) as source:
        source.bind("encoder 1", SPACES)
        source.upsert(make_records(4000, (IMAGE, TEXT)))
    command = [sys.executable, "-m", "vlmsearch", "copy", "--from", "sqlite:index", "--to", "sqlite:other"]
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as process:
        database = tmp_path / "other-wal"
        while process.poll() is None and not (database.exists() and database.stat().st_size > 1_000_000):
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=120)
    assert (process.returncode, errors.strip()) == (130, "Interrupted.")
    with SqliteStore(str(tmp_path / "other")) as target:
        before = len(target)
    assert 0 < before < 4000
    done = json.loads(ok("copy", "--from", "sqlite:index", "--to", "sqlite:other", "--json", cwd=tmp_path))
    assert (done["documents"], done["copied"], done["unchanged"]) == (4000, 4000 - before, before)
