"""The file of arrays beside an index: what a search finds does not depend on it."""

import os
import shutil
import signal
import stat
import tempfile
import time
import zlib
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from vlmsearch_mocks.contracts.records import IMAGE, SPACES, TEXT, make_records

from tests.support.forks import as_nobody, forked, in_a_child
from vlmsearch import Record
from vlmsearch.stores.sqlite import tables, view
from vlmsearch.stores.sqlite.store import SqliteStore


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(view, "MIN_KEPT", 10)


def records(first: int, last: int) -> list[Record]:
    made = make_records(last, (IMAGE, TEXT), seed=7)
    for record in made:
        number = int(str(record.document.metadata["number"]))
        object.__setattr__(record.document, "text", f"a star of kind {'abcdefgh'[number % 8]}")
    return made[first:last]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "index"
    with SqliteStore(str(path)) as store:
        store.bind("encoder", SPACES)
        store.upsert(records(0, 40))
    return path


def found(path: Path) -> object:
    """What searches find in a process of their own."""
    query = make_records(3, (IMAGE, TEXT), seed=99)
    with SqliteStore(str(path)) as store:
        hits = [store.search(field, r.vectors[field][None], limit=7)[0] for r in query for field in (IMAGE, TEXT)]
        words = [store.search_words(f"star {letter}", limit=9).hits for letter in "abch"]
        return [[(hit.id, hit.score) for hit in each] for each in (*hits, *words)]


def files(path: Path) -> list[Path]:
    return sorted(path.parent.glob(f"{path.name}-arrays-*"))


def stamps(path: Path) -> list[tuple[int, int]]:
    return [(file.stat().st_ino, file.stat().st_mtime_ns) for file in files(path)]


def is_read(path: Path) -> bool:
    """Whether a store of the index takes the file: it would write another one."""
    before = stamps(path)
    found(path)
    return bool(before) and stamps(path) == before


def without_the_file(path: Path, monkeypatch: pytest.MonkeyPatch) -> object:
    with monkeypatch.context() as patch:
        patch.setattr(view, "MIN_KEPT", 10**9)
        for file in files(path):
            file.rename(file.with_name("moved"))
        try:
            return found(path)
        finally:
            if (moved := path.with_name("moved")).exists():
                moved.rename(path.with_name(f"{path.name}-arrays-1"))


def test_a_search_makes_it_and_the_next_process_reads_it(path: Path) -> None:
    assert not files(path)
    first = found(path)
    assert len(files(path)) == 1
    assert is_read(path)
    assert found(path) == first


def test_what_is_written_later_is_found_beside_it(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found(path)
    with SqliteStore(str(path)) as store:
        store.upsert(records(36, 44))  # four of them are there already
        store.delete([record.document.id for record in records(0, 5)])
    assert found(path) == without_the_file(path, monkeypatch)
    with SqliteStore(str(path)) as store:
        store.upsert(records(44, 80))
    assert found(path) == found(path) == without_the_file(path, monkeypatch)
    assert len(files(path)) == 1
    assert is_read(path)


def harmed(held: bytes) -> dict[str, bytes]:
    """The content of a file of arrays with what may happen to it, by name."""
    start = 27 + int.from_bytes(held[19:27], "little")
    flipped = {*range(0, start + 8, 17), *range(start + 8, len(held), 197), len(held) - 1}
    deep = b"[" * 20_000
    return {
        **{f"flipped {at}": held[:at] + bytes([held[at] ^ 1 << at % 8]) + held[at + 1 :] for at in flipped},
        **{f"cut {at}": held[:at] for at in range(0, len(held), 997)},
        "blank": bytes(len(held)),
        "longer": held + b"\0",
        "another version": held.replace(b"arrays 2", b"arrays 1", 1),
        "deep": held[:19] + len(deep).to_bytes(8, "little") + deep + zlib.crc32(held[:19] + deep).to_bytes(4, "little"),
        "moved": held[:start] + held[start + 8 :] + held[start : start + 8],
    }


def test_of_one_that_is_not_what_was_written_nothing_is_used_and_a_check_says_so(path: Path) -> None:
    first = found(path)
    (file,) = files(path)
    held, index = file.read_bytes(), path.read_bytes()
    for name, content in harmed(held).items():
        file.write_bytes(content)
        with SqliteStore(str(path)) as store:
            assert store.check().unindexed == (f"{file.name}, which is not used",), name
        assert found(path) == first, name
        with SqliteStore(str(path)) as store:
            assert store.check().clean, f"{name}: the search wrote it anew"
        path.write_bytes(index)


def test_a_check_repairs_it_and_what_killed_writers_left(path: Path) -> None:
    found(path)
    beside = [path.with_name(f"{path.name}-arrays-{rest}") for rest in ("1-new", "1-0123456789abcdef", "7")]
    for file in beside:
        file.write_bytes(b"half")
    database = path.with_name(f"{path.name}-arrays-3")
    shutil.copy(path, database)  # of somebody who named an index so
    with SqliteStore(str(path)) as store:
        assert len(store.check().unindexed) == len(beside)
        before = store.disk_use().bytes
        assert not store.check(repair=True).clean
        assert files(path) == [database]
        assert store.check().clean
        assert before - store.disk_use().bytes > 2000
    assert is_read(path) is False
    assert is_read(path)


def test_it_is_overwritten_in_place_while_a_process_searches(path: Path, tmp_path: Path) -> None:
    first = found(path)
    (file,) = files(path)
    held = file.read_bytes()
    stop = tmp_path / "stop"

    def search() -> None:
        while not stop.exists():
            assert found(path) == first

    end = forked(search)
    for _ in range(30):
        for content in (b"", held[:1000], bytes(len(held)), held):
            file.write_bytes(content)
            time.sleep(0.001)
    stop.touch()
    assert end() == "None"


@pytest.mark.parametrize("mask", [0o000, 0o077])
@pytest.mark.parametrize("mode", [0o600, 0o640, 0o644])
def test_it_has_the_rights_of_the_index(path: Path, mode: int, mask: int, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    write = Path.replace

    def replace(self: Path, target: Path) -> Path:
        seen.append(stat.S_IMODE(self.stat().st_mode))
        return write(self, target)

    monkeypatch.setattr(Path, "replace", replace)
    path.chmod(mode)
    before = os.umask(mask)
    try:
        with SqliteStore(str(path)) as store:
            store.search_words("star", limit=1)
            modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in path.parent.iterdir()}
    finally:
        os.umask(before)
    assert seen == [mode]
    assert modes == dict.fromkeys(("index", "index-wal", "index-shm", "index-arrays-1"), mode)
    path.chmod(0o600)
    with SqliteStore(str(path)) as store:
        store.search_words("star", limit=1)
    assert stat.S_IMODE(files(path)[0].stat().st_mode) == 0o600


@pytest.mark.parametrize("place", ["os.fchown", "os.fchmod", "pathlib.Path.replace"])
def test_a_killed_writer_leaves_nothing_for_long(path: Path, place: str) -> None:
    def search() -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(place, lambda *_: os.kill(os.getpid(), signal.SIGKILL))
            found(path)

    for _ in range(2):
        assert in_a_child(search) == ""
        assert [file.name for file in files(path)] == ["index-arrays-1-new"]
    with SqliteStore(str(path)) as store:
        assert store.check().unindexed == ("index-arrays-1-new, which is not used",)
    found(path)
    assert [file.name for file in files(path)] == ["index-arrays-1"]
    assert is_read(path)


def test_a_command_answers_before_it_writes(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(view, "_QUICK", 10)
    with SqliteStore(str(path)) as store:
        for _ in range(3):
            store.search_words("star", limit=1)
        assert not files(path)
    assert files(path)
    files(path)[0].unlink()
    monkeypatch.setattr(view, "_LATER", -1)
    with SqliteStore(str(path)) as store:
        store.search_words("star", limit=1)
        assert files(path), "a service is closed late"


def test_a_search_does_not_wait_for_a_writer_to_write_it(path: Path) -> None:
    with SqliteStore(str(path)) as store:
        with SqliteStore(str(path)) as other, other._database.writing("hold the lock"):
            started = time.monotonic()
            store.search_words("star", limit=1)
            assert time.monotonic() - started < 5
            assert not files(path)
        store.search_words("star", limit=1)
        assert files(path)


def test_processes_that_need_different_parts_keep_those_of_the_others(path: Path) -> None:
    def ask(*, words: bool) -> None:
        with SqliteStore(str(path)) as store:
            store.search_words("star", limit=1) if words else store.search(IMAGE, vector[None], limit=1)

    vector = records(0, 1)[0].vectors[IMAGE]
    ask(words=True)
    ask(words=False)
    before = stamps(path)
    ask(words=True)
    ask(words=False)
    assert stamps(path) == before


def test_on_a_full_disk_searches_go_on(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tried = list[object]()
    monkeypatch.setattr(shutil, "disk_usage", lambda _: tried.append(1) or SimpleNamespace(free=100))  # type: ignore[func-returns-value]
    assert found(path) == without_the_file(path, monkeypatch)
    assert not files(path)
    assert len(tried) < 4, "not at each search"


@pytest.mark.parametrize(("of_folder", "of_index"), [(0o555, 0o666), (0o777, 0o444)])
def test_where_nothing_may_be_written_searches_go_on(path: Path, of_folder: int, of_index: int) -> None:
    first = found(path)
    with tempfile.TemporaryDirectory() as place:
        Path(place).chmod(of_folder)
        index = Path(shutil.copy(path, Path(place, "index")))
        index.chmod(of_index)
        assert as_nobody(lambda: found(index)) == str(first)
        assert not files(index)


def test_one_of_an_older_copy_is_not_taken(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found(path)
    copy = tmp_path / "copy"
    shutil.copy(path, copy)
    for index, last in ((path, 60), (copy, 70)):
        with SqliteStore(str(index)) as store:
            store.upsert(records(last - 20, last))
        found(index)
    (of_path,), (of_copy,) = files(path), files(copy)
    shutil.copy(of_path, of_copy)
    assert found(copy) == without_the_file(copy, monkeypatch)
    assert found(path) != found(copy)


def test_a_reader_who_may_not_write_does_without(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("vlmsearch.stores.sqlite.view.write_arrays", refuse)
    assert found(path)
    assert not files(path)


def test_it_goes_with_its_generation(path: Path) -> None:
    found(path)
    with SqliteStore(str(path)) as store:
        store.drop("1", SPACES)
    assert not files(path)


def test_writers_and_readers_at_once(path: Path) -> None:
    reader = SqliteStore(str(path))
    vector = records(0, 1)[0].vectors[IMAGE]
    with reader:
        for last in range(45, 85, 5):
            with SqliteStore(str(path)) as writer:
                writer.upsert(records(last - 5, last))
            hits = reader.search(IMAGE, vector[None], limit=100)[0]
            assert len(hits) == len({hit.id for hit in hits}) == last
            assert np.isclose(hits[0].score, 1, atol=1e-5)


def test_a_large_write_behind_a_small_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "BLOCK", 8)
    monkeypatch.setattr(tables, "_KEPT_DEATHS", 0)
    path, made = tmp_path / "index", records(0, 40)
    ids = [record.document.id for record in made]
    with SqliteStore(str(path)) as store:
        store.bind("encoder", SPACES)
        store.upsert(made[:3])
        store.upsert(made[3:])
    assert found(path)
    assert is_read(path)
    with SqliteStore(str(path)) as store:
        store.delete(ids[4:-1])
        kept = [hit.id for hit in store.search_words("star", limit=9).hits]
        assert kept == [*ids[:4], ids[-1]], "in the order of writing"
        assert {hit.id for hit in store.compare_words("star", kept)} == {*kept}


def test_a_link_to_an_index_has_no_file_of_its_own(path: Path, tmp_path: Path) -> None:
    link = tmp_path / "linked"
    link.symlink_to(path)
    assert found(link) == found(path)
    assert is_read(path)
    assert not files(link)
    with SqliteStore(str(link)) as store:
        assert files(path)[0] in store.places()


def test_in_a_folder_that_cannot_be_listed_it_is_used_and_not_counted(path: Path) -> None:
    def measure(index: Path) -> bool:
        with SqliteStore(str(index)) as store:
            return store.disk_use().bytes > 0 and "size" in store.describe() and store.places() == (index,)

    found(path)
    with tempfile.TemporaryDirectory() as place:
        for file in (path, *files(path)):
            shutil.copy(file, place)
        Path(place).chmod(0o711)
        assert as_nobody(lambda: measure(Path(place, "index"))) == "True"
    assert len(SqliteStore(f"{path}-no/folder/index").places()) == 1
