"""An embedded Chroma: who may use the folder, and what a power cut, a kill or damage leaves of its vectors."""

import json
import logging
import os
import pickle
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from chromadb import Collection
from chromadb.api.rust import RustBindingsAPI
from chromadb.errors import InternalError

from tests.support.chroma import (
    IMAGE,
    LOCK,
    MANY,
    SPACES,
    TEXT,
    Died,
    check_whole,
    chroma_client,
    dying_at,
    record,
    vector_files,
    write,
)
from tests.support.chroma import writing as other_process
from tests.support.cli import run, run_process
from vlmsearch import BackendError, BackendUnavailableError, Document, Record
from vlmsearch.stores.chroma import embedded as chroma_folder
from vlmsearch.stores.chroma import log as chroma_log
from vlmsearch.stores.chroma.collections import ChromaCollection
from vlmsearch.stores.chroma.log import DATABASE
from vlmsearch.stores.chroma.store import ChromaStore

pytestmark = pytest.mark.slow

BOOT = Path("/proc/sys/kernel/random/boot_id")


def not_found(store: ChromaStore) -> list[str]:
    """Documents that a search for their own vectors does not find."""
    stamps = store.stamps(list(store.ids()))
    there = [record(*map(int, stamp.digest.split())) for stamp in stamps.values()]
    lost = []
    for field in (IMAGE, TEXT):
        pages = store.search(field, np.stack([one.vectors[field] for one in there]), limit=2)
        lost += [one.document.id for one, page in zip(there, pages) if one.document.id not in [hit.id for hit in page]]
    return lost


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An index of `MANY` records."""
    folder = tmp_path_factory.mktemp("many") / "index"
    write(folder, range(MANY))
    return folder


@pytest.fixture
def many(original: Path, tmp_path: Path) -> Path:
    """A copy of it, at ``index``."""
    return shutil.copytree(original, tmp_path / "index")


# ---- one process at a time


@pytest.mark.parametrize("backup", [False, True])
def test_a_second_process_is_told_who_has_the_folder_and_what_to_use(tmp_path: Path, backup: bool) -> None:
    with ChromaStore(str(tmp_path / "index")) as store:
        store.bind("mock", SPACES)
        store.upsert([record(1)])
        if backup:
            shutil.copytree(tmp_path / "index", tmp_path / "backup")
        refused = run_process("info", "--store", f"chroma:{tmp_path / 'index'}")
    assert refused.returncode == 1
    assert refused.stderr.count("\n") == 1
    assert f"is in use by process {os.getpid()}" in refused.stderr
    assert f"`chroma run --path {tmp_path / 'index'}` and open chroma://localhost:8000/vlmsearch" in refused.stderr
    assert run("info", "--store", f"chroma:{tmp_path / 'index'}").returncode == 0


def test_a_folder_that_another_process_is_making_is_one_clear_error(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from vlmsearch._util.locks import FolderLock;"
        "lock = FolderLock(Path(sys.argv[1])); print('locked', flush=True); sys.stdin.read()"
    )
    (tmp_path / "index").mkdir()
    command = [sys.executable, "-c", code, str(tmp_path / "index" / LOCK)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout
        assert holder.stdout.readline() == "locked\n"
        with pytest.raises(BackendUnavailableError, match=f"is in use by process {holder.pid}"):
            ChromaStore(str(tmp_path / "index")).bind("encoder", SPACES)
        holder.communicate()
    write(tmp_path / "index", [1])


def test_a_child_that_outlives_its_parent_does_not_keep_the_folder(tmp_path: Path) -> None:
    code = (
        "import os, sys; from tests.support.chroma import *; store = ChromaStore(sys.argv[1]);"
        "store.bind('encoder', SPACES); runs, begun = os.pipe(); child = os.fork();"
        "os.read(runs, 1) if child else (os.write(begun, b'.'), sys.stdin.read());"
        "print('ended', flush=True); os._exit(0)"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "index")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout
        assert parent.stdout.readline() == "ended\n"
        assert parent.wait() == 0
        write(tmp_path / "index", [1])
        parent.communicate()


@pytest.mark.parametrize("kind", ["link", "folder", "fifo"])
def test_a_lock_file_that_is_none_is_refused_and_what_it_leads_to_is_left_alone(tmp_path: Path, kind: str) -> None:
    write(tmp_path / "index", [1])
    (tmp_path / "precious").write_text("precious content")
    lock = tmp_path / "index" / LOCK
    lock.unlink()
    if kind == "link":
        lock.symlink_to(tmp_path / "precious")
    elif kind == "folder":
        lock.mkdir()
    else:
        os.mkfifo(lock)
    with pytest.raises(BackendError, match=rf"cannot be opened: .*{LOCK}"):
        ChromaStore(str(tmp_path / "index")).manifest()
    assert (tmp_path / "precious").read_text() == "precious content"


# ---- power cuts


@contextmanager
def disk_of(folder: Path, disk: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """``disk`` is what a power cut would leave of ``folder``: SQLite's file, and else only what was put on the disk."""
    shutil.copytree(folder, disk)
    fsync = os.fsync

    def noted(descriptor: int) -> None:
        fsync(descriptor)
        path = Path(f"/proc/self/fd/{descriptor}").resolve()
        if path.is_relative_to(folder):
            there = disk / path.relative_to(folder)
            if path.is_dir():
                there.mkdir(exist_ok=True)
                for gone in {each.name for each in there.iterdir()} - {each.name for each in path.iterdir()}:
                    shutil.rmtree(there / gone) if (there / gone).is_dir() else (there / gone).unlink()
            else:
                there.parent.mkdir(exist_ok=True)
                shutil.copyfile(path, there)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", noted)
        yield
        shutil.copyfile(folder / DATABASE, disk / DATABASE)
    lock = disk / LOCK
    lock.write_bytes(lock.read_bytes().replace(BOOT.read_bytes().strip(), b"0" * 36))


@pytest.mark.parametrize("end", ["closed", "open"])
def test_a_power_cut_loses_nothing_that_was_written(
    many: Path, tmp_path: Path, end: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ChromaStore(str(many)) as store, disk_of(many, tmp_path / "disk", monkeypatch):
        store.upsert([record(i) for i in range(MANY, 2 * MANY)])
        if end == "closed":
            store.close()
    for _ in range(2):
        with ChromaStore(str(tmp_path / "disk")) as store:
            assert len(store) == 2 * MANY
            assert not_found(store) == []
            assert store.check().clean


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a process that was killed left."""
    folder = tmp_path_factory.mktemp("killed") / "index"
    with other_process(folder, 0, 1500) as (process, pipe):
        assert pipe.recv() == "done"
        process.kill()
    return folder


@pytest.mark.parametrize("lock", ["as it was left", "of another boot", "of an older version", "gone"])
def test_vector_files_are_made_again_where_they_may_lack_something(
    killed: Path, tmp_path: Path, lock: str, caplog: pytest.LogCaptureFixture
) -> None:
    path = shutil.copytree(killed, tmp_path / "index") / LOCK
    if lock == "of another boot":
        path.write_bytes(path.read_bytes().replace(BOOT.read_bytes().strip(), b"0" * 36))
    elif lock == "of an older version":
        path.write_bytes(b".1234\n")
    elif lock == "gone":
        path.unlink()
    for is_first in (True, False):
        caplog.clear()
        with caplog.at_level(logging.WARNING), ChromaStore(str(tmp_path / "index")) as store:
            assert len(check_whole(store)) == 1470
            assert not_found(store) == []
        assert ("made again" in caplog.text) == (is_first and lock != "as it was left")


# ---- what SQLite names


@pytest.mark.parametrize("name", ["../victim", "absolute", "link"])
def test_only_folders_of_the_index_itself_are_ever_removed(tmp_path: Path, name: str) -> None:
    write(tmp_path / "index", range(20))
    victim = tmp_path / "victim"
    victim.mkdir()
    (victim / "thesis.txt").write_text("mine")
    segment = {"absolute": str(victim), "link": "00000000-0000-0000-0000-000000000000"}.get(name, name)
    if name == "link":
        (tmp_path / "index" / segment).symlink_to(victim)
    with closing(sqlite3.connect(tmp_path / "index" / DATABASE)) as db, db:
        found = "(SELECT id FROM collections WHERE name = 'vlmsearch.1.minilm.text')"
        db.execute(f"UPDATE segments SET id = ? WHERE scope = 'VECTOR' AND collection = {found}", [segment])
    lock = tmp_path / "index" / LOCK
    lock.write_bytes(b"W" + lock.read_bytes()[1:])
    for arguments in (["info"], ["check", "--repair"]):
        done = run(*arguments, "--store", f"chroma:{tmp_path / 'index'}")
        assert "Traceback" not in done.stderr
        assert (victim / "thesis.txt").read_text() == "mine"


# ---- damage that `check` finds


def put_back_older_files(folder: Path) -> None:
    """As after a power cut that nothing noticed: SQLite has what the vector files lack."""
    older = [(path, path.read_bytes()) for path in folder.glob("*/*")]
    write(folder, range(MANY, 2 * MANY))
    for path, content in older:
        path.write_bytes(content)


def write_beside_another_writer(folder: Path) -> None:
    """Two processes write the same files, each of which has its own graph in memory."""
    code = "import sys; from tests.support.chroma import *; write(Path(sys.argv[1]), range(2000, 2000 + MANY))"
    with ChromaStore(str(folder)) as store:
        store.upsert([record(i) for i in range(MANY, MANY + 10)])
        content = (folder / LOCK).read_bytes()
        (folder / LOCK).unlink()
        (folder / LOCK).write_bytes(content)
        subprocess.run([sys.executable, "-c", code, str(folder)], check=True)
        store.upsert([record(i) for i in range(4000, 4000 + MANY)])


@pytest.mark.parametrize("damage", [put_back_older_files, write_beside_another_writer])
def test_check_finds_vectors_that_a_search_does_not(many: Path, damage: Callable[[Path], None]) -> None:
    damage(many)
    with ChromaStore(str(many)) as store:
        lost = not_found(store)
    url = f"chroma:{many}"
    bad = run("check", "--store", url, "--json")
    report = json.loads(bad.stdout)
    assert (bad.returncode, report["clean"]) == (1, False)
    assert sorted(line.split()[1] for line in report["unindexed"]) == sorted(lost) != []
    assert run("check", "--store", url, "--repair").returncode == 0
    assert json.loads(run("check", "--store", url, "--json").stdout)["clean"]
    with ChromaStore(str(many)) as store:
        assert not_found(store) == []


def test_what_check_cannot_make_again_counts_as_changed(many: Path) -> None:
    put_back_older_files(many)
    with closing(sqlite3.connect(many / DATABASE)) as db, db:
        db.execute("DELETE FROM embeddings_queue WHERE id LIKE '%id-7'")
    with ChromaStore(str(many)) as store:
        lost = set(not_found(store))
        assert len(lost) == MANY
        assert store.check(repair=True).unindexed
        assert {id for id, stamp in store.stamps(list(lost)).items() if stamp.digest} == set()
        store.upsert([record(int(id[3:])) for id in lost])
        assert not_found(store) == []
        assert store.check().clean


# ---- graphs of deleted points


def points_of_graphs(folder: Path) -> int:
    """How many points there are in all graphs, deleted ones among them."""
    return sum(chroma_log._points(path.parent) for path in folder.glob("*/header.bin"))


def test_rewriting_does_not_make_the_graph_grow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, sizes = tmp_path / "index", []
    for look_after in (chroma_folder._LOOK_AFTER, 10**9):
        monkeypatch.setattr(chroma_folder, "_LOOK_AFTER", look_after)
        with ChromaStore(str(folder)) as store:
            store.bind("encoder", SPACES)
            for turn in range(6):
                store.upsert([record(i, turn) for i in range(1000)])
                sizes.append(points_of_graphs(folder))
            assert len(check_whole(store)) == 1000
    assert max(sizes[:6]) < 4 * sizes[0]
    assert sizes[-1] > 4 * sizes[0], "nothing looked at them"
    with ChromaStore(str(folder)) as store:
        assert len(check_whole(store)) == 1000
        assert points_of_graphs(folder) < 2 * sizes[0], "and now they have been made again"


# ---- stale vectors


def test_a_stale_vector_near_the_query_costs_no_further_search(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "index", range(30))
    query = record(7).vectors[IMAGE]
    new = record(7, 1)
    with ChromaStore(str(tmp_path / "index")) as store, dying_at(3), pytest.raises(Died):
        store.upsert([new])
    ask, asked = Collection.query, []

    def count(self: Collection, **options: Any) -> object:
        asked.append(options)
        return ask(self, **options)

    monkeypatch.setattr(Collection, "query", count)
    with ChromaStore(str(tmp_path / "index")) as store:
        hits = store.search(IMAGE, query[None], limit=5)[0]
        assert len(asked) == 1
        assert store.stamps(["id-7"])["id-7"] == new.stamp
        report = store.check()
        assert [name.split()[:2] for name in report.stale] == [["clip/image", "id-7"], ["minilm/text", "id-7"]]
        assert store.check(repair=True).repaired
        assert store.search(IMAGE, query[None], limit=5)[0] == hits


@pytest.mark.parametrize("near", [True, False])
def test_a_document_that_is_replaced_during_a_search_is_in_its_new_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, near: bool
) -> None:
    query = record(7).vectors[IMAGE]
    vector = record(99).vectors[IMAGE] if near else -query
    write(tmp_path / "index", range(30))
    with ChromaStore(str(tmp_path / "index")) as store:
        nearest, replaced = ChromaCollection.nearest, Record(Document("id-7"), {IMAGE: vector})

        def meanwhile(*arguments: object) -> object:
            found = nearest(*arguments)  # type: ignore[arg-type]
            store.upsert([replaced])
            return found

        with monkeypatch.context() as patch:
            patch.setattr(ChromaCollection, "nearest", meanwhile)
            during = store.search(IMAGE, query[None], limit=30)[0]
        after = store.search(IMAGE, query[None], limit=30)[0]
        assert [hit.id for hit in during] == [hit.id for hit in after]
        assert [hit.score for hit in during] == pytest.approx([hit.score for hit in after], abs=1e-5)


# ---- disks and databases that are full or locked


def test_a_full_disk_while_vector_files_are_made_again_is_what_the_error_says(
    many: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for path in vector_files(many):
        if path.name == "index_metadata.pickle":
            path.write_bytes(pickle.dumps(["nonsense"]))

    def fail(_: object) -> None:
        raise InternalError("(code: 13) database or disk is full")

    with ChromaStore(str(many)) as store:
        assert store.manifest()
        with monkeypatch.context() as patch:
            patch.setattr(RustBindingsAPI, "start", fail)
            for _ in range(2):
                with pytest.raises(BackendError, match="disk is full"):
                    store.search(IMAGE, record(1).vectors[IMAGE][None], limit=3)
        assert not_found(store) == []


def test_a_database_that_stays_locked_is_not_opened_without_its_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chroma_log, "_WAIT_SECONDS", 0.1)
    with chroma_client(tmp_path / "index") as client:
        client.create_collection("theirs", embedding_function=None)
    with closing(sqlite3.connect(tmp_path / "index" / DATABASE)) as db:
        db.execute("DELETE FROM embeddings_queue_config")
        db.commit()
        db.execute("BEGIN IMMEDIATE")
        with pytest.raises(BackendError, match="database is locked"):
            ChromaStore(str(tmp_path / "index")).manifest()
    write(tmp_path / "index", range(2 * MANY))
    with closing(sqlite3.connect(tmp_path / "index" / DATABASE)) as db:
        assert db.execute("SELECT count(*) FROM embeddings_queue").fetchone()[0] > 6 * MANY
