"""Files and folders that may not be written, are of others, are full, or on a network."""

import os
import random
import resource
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from vlmsearch_mocks.contracts.records import IMAGE, SPACES, TEXT, make_records

from tests.support.forks import as_nobody, forked
from tests.support.sqlite_images import Image, log_of
from vlmsearch import BackendError, ConfigError, Document, Record, VlmsearchError
from vlmsearch.stores.sqlite import tables
from vlmsearch.stores.sqlite.database import Database, network_file_system
from vlmsearch.stores.sqlite.store import SqliteStore

RECORDS = make_records(400, (IMAGE, TEXT))


def make(path: Path, count: int = 10) -> None:
    with SqliteStore(str(path)) as store:
        store.bind("e", SPACES)
        store.upsert(RECORDS[:count])


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


# ---- where nothing may be written


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that everyone may look into."""
    path = Path(tempfile.mkdtemp())
    path.chmod(0o755)
    make(path / "index")
    yield path
    path.chmod(0o755)
    shutil.rmtree(path)


def use(path: Path) -> list[object]:
    """What searching says, and then each way to write."""
    found: list[object] = []
    with SqliteStore(str(path)) as store:
        hits = store.search(IMAGE, RECORDS[3].vectors[IMAGE][None], limit=5)[0]
        found += [len(store), hits[0].id, store.search_words("3", limit=5).hits[0].id, store.check().clean]
        store.bind("e", SPACES)
        for write in (
            lambda: store.upsert(RECORDS[:2]),
            lambda: store.delete(["id-1"]),
            lambda: store.release(["id-1"]),
        ):
            with pytest.raises(BackendError, match="; it may be read here, and not written to"):
                write()
    return found


@pytest.mark.parametrize("what", ["folder", "file", "folder with an empty log"])
def test_an_index_that_may_not_be_written_can_be_searched(folder: Path, what: str) -> None:
    if what == "folder with an empty log":
        log_of(folder / "index").touch()
    before = contents(folder)
    (folder / "index").chmod(0o444)
    folder.chmod(0o777 if what == "file" else 0o555)
    assert as_nobody(lambda: use(folder / "index")) == "[10, 'id-3', 'id-3', True]"
    assert contents(folder)["index"] == before["index"]
    assert what == "file" or contents(folder) == before


def test_a_log_that_has_to_be_read_first_is_one_clear_line(folder: Path) -> None:
    with SqliteStore(str(folder / "index")) as store:
        store.bind("e", SPACES)
        store.upsert(RECORDS[:20])
        image = Image.of(folder / "index")
    image.put(folder / "killed" / "index")
    (folder / "killed").chmod(0o555)
    said = as_nobody(lambda: len(SqliteStore(str(folder / "killed" / "index"))))
    assert said.startswith("BackendError: ")
    assert said.endswith("its log (-wal) has to be read by a process that may write to the folder first")
    (folder / "killed").chmod(0o755)
    with SqliteStore(str(folder / "killed" / "index")) as store:
        assert len(store) == 20


def test_a_reader_that_may_not_write_sees_what_others_write(folder: Path) -> None:
    folder.chmod(0o755)
    go_on, written = os.pipe()

    def look() -> list[int]:
        store = SqliteStore(str(folder / "index"))
        counts = [len(store)]
        for _ in range(2):
            os.read(go_on, 1)
            counts.append(len(store))
        return counts

    def as_another() -> list[int]:
        if os.getuid() == 0:
            os.setgid(65534)
            os.setuid(65534)
        return look()

    end = forked(as_another)
    with SqliteStore(str(folder / "index")) as store:
        time.sleep(0.5)
        store.bind("e", SPACES)
        store.upsert(RECORDS[:20])
        os.write(written, b".")
        time.sleep(0.5)
        store.upsert(RECORDS[:30])
    os.write(written, b".")
    assert end() == "[10, 20, 30]"


# ---- what is not an index


def of_another_program(path: Path) -> None:
    with closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE theirs (x)")
        db.commit()


def of_another_program_with_a_log(path: Path) -> None:
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("CREATE TABLE theirs (x)")
        db.commit()


def newer(path: Path) -> None:
    make(path)
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA user_version = 99")


def of_chroma(path: Path) -> None:
    path.mkdir()
    (path / "chroma.sqlite3").touch()


OTHERS: dict[str, tuple[Callable[[Path], object], str]] = {
    "another program's": (of_another_program, "is a database of another program: give the index another name"),
    "another program's log": (of_another_program_with_a_log, "is a database of another program"),
    "text": (lambda path: path.write_text("hello\n"), "is not a database: give the index another name"),
    "long text": (lambda path: path.write_text("hello\n" * 9999), "is not a database: give the index another name"),
    "folder": (Path.mkdir, "is a folder; an index of sqlite: is a file: name one"),
    "chroma": (
        of_chroma,
        "is a folder of Chroma: start `chroma run --path .*copy --from chroma://localhost:8000/vlmsearch",
    ),
    "newer": (newer, r"was written by a newer vlmsearch \(schema 99; this one knows 3\): upgrade vlmsearch"),
}


@pytest.mark.parametrize("kind", OTHERS)
def test_what_is_not_an_index_is_refused_and_left_alone(tmp_path: Path, kind: str) -> None:
    create, message = OTHERS[kind]
    create(tmp_path / "index")
    before = contents(tmp_path)
    with SqliteStore(str(tmp_path / "index")) as store:
        for act in (store.manifest, lambda: store.bind("e", SPACES), lambda: store.get(["x"])):
            with pytest.raises(ConfigError, match=message) as caught:
                act()
            assert "\n" not in str(caught.value)
    assert contents(tmp_path) == before


def test_a_path_below_a_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(BackendError, match=f"make the database: {tmp_path / 'file'}: "):
        SqliteStore(str(tmp_path / "file" / "index")).bind("e", SPACES)


def test_an_empty_file_becomes_an_index(tmp_path: Path) -> None:
    (tmp_path / "index").touch()
    with SqliteStore(str(tmp_path / "index")) as store:
        assert store.manifest() is None
        assert (store.get(["x"]), len(store)) == ([], 0)
    assert contents(tmp_path) == {"index": b""}
    make(tmp_path / "index")
    with SqliteStore(str(tmp_path / "index")) as store:
        assert len(store) == 10


@pytest.mark.parametrize("is_replaced", [False, True])
def test_an_index_that_is_removed_or_replaced_while_it_is_open_is_told(tmp_path: Path, is_replaced: bool) -> None:
    make(tmp_path / "index", 20)
    with SqliteStore(str(tmp_path / "index")) as store:
        store.bind("e", SPACES)
        assert len(store.search(IMAGE, RECORDS[0].vectors[IMAGE][None], limit=50)[0]) == 20
        (tmp_path / "index").rename(tmp_path / "moved")
        if is_replaced:
            make(tmp_path / "index", 10)
        for act in (lambda: len(store), lambda: store.search(IMAGE, RECORDS[0].vectors[IMAGE][None], limit=50)):
            with pytest.raises(BackendError, match="was removed or replaced since it was opened: open it again"):
                act()
        with pytest.raises(VlmsearchError):
            store.upsert(RECORDS[:30])
    with SqliteStore(str(tmp_path / "index")) as store:
        assert len(store) == (10 if is_replaced else 0)


# ---- network file systems


@pytest.mark.parametrize(
    ("path", "kind"),
    [("/mnt/nas/index", "nfs4"), ("/mnt/nas/local/index", ""), ("/mnt/nas-2/index", ""), ("/home/index", "")],
)
def test_an_index_on_a_network_file_system_is_refused(path: str, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    mounts = (
        "22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n"
        "40 22 0:35 / /mnt/nas rw,relatime shared:2 - nfs4 nas:/photos rw,vers=4.2\n"
        "41 40 8:2 / /mnt/nas/local rw,relatime - xfs /dev/sdb1 rw\n"
    )
    monkeypatch.setattr(Path, "read_text", lambda *_, **__: mounts)
    monkeypatch.setattr(sys, "platform", "linux")
    assert network_file_system(Path(path)) == kind
    if kind:
        for act in (SqliteStore(path).needed, lambda: SqliteStore(path).bind("e", SPACES)):
            with pytest.raises(ConfigError):
                act()
        with pytest.raises(ConfigError, match=r"is on a network file system \(nfs4\).*put the index on a local disk"):
            SqliteStore(path).bind("e", SPACES)


# ---- power cuts


def test_every_connection_waits_until_what_it_commits_is_on_the_disk(tmp_path: Path) -> None:
    make(tmp_path / "index")
    with SqliteStore(str(tmp_path / "index")) as store:
        for use_of in (store._database.reading, store._database.writing):
            with use_of("look") as db:
                assert db.execute("PRAGMA synchronous").fetchone()[0] == 2
                assert db.execute("PRAGMA journal_mode").fetchone()[0] == "wal"


# ---- full disks


@contextmanager
def disk(folder: Path) -> Iterator[Path]:
    """A disk of 8 MiB, where file systems may be mounted; else an ordinary folder."""
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(folder)]
    mounted = os.getuid() == 0 and subprocess.run(command, capture_output=True, check=False).returncode == 0
    try:
        yield folder
    finally:
        if mounted:
            subprocess.run(["umount", "-l", str(folder)], check=True)


def write_until_full(path: Path, seed: int) -> tuple[dict[str, int], str]:
    """Write and delete until that fails; returns the turns of the documents that are there, and what was said."""
    rng, done = random.Random(seed), dict[str, int]()
    with SqliteStore(str(path)) as store:
        store.bind("e", SPACES)
        for turn in range(1000):
            ids = [*range(turn * 20, turn * 20 + rng.randint(0, 40)), *rng.sample(range(turn * 20 + 1), turn and 10)]
            with pytest.MonkeyPatch.context() as patch:
                if rng.random() < 0.3:
                    patch.setattr(tables, "_KEPT_DEATHS", -(10**6))
                    patch.setattr(tables, "_LOOSE_GROUPS", 1)
                try:
                    if rng.random() < 0.2:
                        store.delete([f"id-{i}" for i in ids])
                        done = {id: when for id, when in done.items() if int(id[3:]) not in ids}
                    else:
                        store.upsert([numbered(i, turn) for i in sorted(set(ids))])
                        done |= {f"id-{i}": turn for i in ids}
                except BackendError as exc:
                    return done, str(exc)
    raise AssertionError("it was never full")


def numbered(number: int, turn: int) -> Record:
    (record,) = make_records(1, (IMAGE, TEXT), seed=number, metadata=[{"turn": turn}])
    return Record(Document(f"id-{number}", f"text {number}", metadata={"turn": turn}), record.vectors)


def check_full(path: Path, done: dict[str, int], said: str) -> None:
    """Each document is of the turn in which it was written last; one line said what is wrong, and writing goes on."""
    print(f"{len(done)} documents, then: {said}")
    assert "\n" not in said
    assert "nothing of it was done" in said
    with SqliteStore(str(path)) as store:
        assert {document.id: document.metadata["turn"] for document in store.get(sorted(store.ids()))} == done
        assert len(store) == len(done)
        assert store.check().clean
        assert sorted(hit.id for hit in store.search_words("text", limit=10**6).hits) == sorted(done)
        store.bind("e", SPACES)
        store.upsert(RECORDS)
        assert store.check().clean
        assert len(store) == len({*done, *(record.document.id for record in RECORDS)})


SEEDS = [pytest.param(i, marks=[] if i < 3 else [pytest.mark.exhaustive]) for i in range(50)]


@pytest.mark.parametrize("seed", SEEDS)
def test_nothing_is_lost_or_doubled_where_a_database_may_not_grow(tmp_path: Path, seed: int) -> None:
    connect, pages = Database._connect, random.Random(seed).randint(60, 300)

    def limited(database: Database, how: str) -> sqlite3.Connection:
        db = connect(database, how)
        db.execute(f"PRAGMA max_page_count = {pages}")
        return db

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Database, "_connect", limited)
        done, said = write_until_full(tmp_path / "index", seed)
    check_full(tmp_path / "index", done, said)


@pytest.mark.parametrize("seed", SEEDS)
def test_nothing_is_lost_or_doubled_where_files_may_not_grow(tmp_path: Path, seed: int) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (random.Random(seed).randint(2**19, 2**21), before[1]))
    try:
        done, said = write_until_full(tmp_path / "index", seed)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    check_full(tmp_path / "index", done, said)


@pytest.mark.parametrize("seed", SEEDS)
def test_nothing_is_lost_or_doubled_on_a_full_disk(tmp_path: Path, seed: int) -> None:
    with disk(tmp_path / "disk") as place:
        if os.statvfs(place).f_blocks * os.statvfs(place).f_frsize > 2**24:
            pytest.skip("no file system may be mounted here")
        (place / "filler").write_bytes(b"x" * (2**23 - random.Random(seed).randint(2**19, 2**21)))
        done, said = write_until_full(place / "index", seed)
        (place / "filler").unlink()
        check_full(place / "index", done, said)
