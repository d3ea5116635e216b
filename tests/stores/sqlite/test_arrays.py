"""The file of arrays beside an index: what a search finds does not depend on it."""

import shutil
from pathlib import Path

import numpy as np
import pytest
from vlmsearch_mocks.contracts.records import IMAGE, SPACES, TEXT, make_records

from vlmsearch import Record
from vlmsearch.stores.sqlite import view
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


def is_mapped(path: Path) -> bool:
    """Whether a store of the index takes the file."""
    with SqliteStore(str(path)) as store:
        store.search_words("star", limit=1)
        return store._views._mapped > 0 and store._views.to_keep() is None


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


def test_a_search_makes_it_and_the_next_process_maps_it(path: Path) -> None:
    assert not files(path)
    first = found(path)
    assert len(files(path)) == 1
    assert is_mapped(path)
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
    assert is_mapped(path)


@pytest.mark.parametrize("harm", ["delete", "cut", "blank", "other"])
def test_it_may_be_harmed_at_any_moment(path: Path, harm: str, monkeypatch: pytest.MonkeyPatch) -> None:
    first = found(path)
    (file,) = files(path)
    if harm == "delete":
        file.unlink()
    elif harm == "other":
        file.write_bytes(b"something else")
    else:
        held = file.read_bytes()
        file.unlink()
        file.write_bytes(held[: len(held) // 2] if harm == "cut" else bytes(len(held)))
    assert found(path) == first
    assert found(path) == without_the_file(path, monkeypatch)


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
    def refuse(self: object, path: Path) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("vlmsearch.stores.sqlite.arrays.StoredArrays.write", refuse)
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
