"""What a process leaves that is killed at any statement is a whole index: nothing lost, nothing half done."""

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from vlmsearch_mocks.contracts.records import IMAGE, SPACES, TEXT, make_records

from tests.support.crash_points import CHANGED, NEW, OLD, act, check_documents
from tests.support.sqlite_images import Image, images_of
from vlmsearch.stores.sqlite import tables
from vlmsearch.stores.sqlite.store import SqliteStore

MANY = make_records(40, (IMAGE, TEXT), seed=70)


def open_at(path: Path) -> SqliteStore:
    return SqliteStore(str(path))


def fill(path: Path) -> None:
    with open_at(path) as store:
        store.bind("encoder", SPACES)
        store.upsert(OLD)


def create(store: SqliteStore) -> None:
    store.bind("encoder", SPACES)
    store.upsert(OLD)


def damage(path: Path) -> None:
    """Leave much that a repair has to make again."""
    with open_at(path) as store, store._database.writing("damage it") as db:
        for table in ("codes_1_0", "attributes_1", "deaths_1"):
            db.execute(f"DELETE FROM {table}")


def merge(store: SqliteStore) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tables, "_LOOSE_GROUPS", 2)
        patch.setattr(tables, "BLOCK", 6)
        for record in OLD:
            store.upsert([record])


def forget(store: SqliteStore) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tables, "_KEPT_DEATHS", 0)
        for record in OLD * 3:
            store.upsert([record])


ACTIONS: dict[str, Callable[[SqliteStore], object]] = {
    "create": create,
    "add": lambda store: act(store, "add"),
    "update": lambda store: act(store, "update"),
    "relabel": lambda store: act(store, "relabel"),
    "delete": lambda store: act(store, "delete"),
    "repair": lambda store: store.check(repair=True),
    "merge": merge,
    "forget": forget,
}


def images(path: Path, name: str) -> Iterator[Image]:
    if name != "create":
        fill(path)
    if name == "repair":
        damage(path)
    with images_of(path) as found, open_at(path) as store:
        if name != "create":
            assert len(store) == len(OLD)
        ACTIONS[name](store)
    assert found.statements > 5
    return found.all()


def check_image(path: Path, name: str) -> None:
    """Each document is as it was or as it became, all of one batch alike; nothing needs a repair; writing goes on."""
    with open_at(path) as store:
        if name == "create" and store.manifest() is None:
            assert list(store.ids()) == []
            store.bind("encoder", SPACES)
        ids = set(store.ids())
        if name == "create":
            assert len(ids) in (0, len(OLD))
            store.upsert(OLD)
        changed = CHANGED[name] if name in ("add", "update", "delete") else []
        done = {NEW[i].document.id in ids and store.get([NEW[i].document.id]) == [NEW[i].document] for i in changed}
        gone = {OLD[i].document.id not in ids for i in changed if i < len(OLD)}
        labelled = (
            {"label" in store.get([OLD[i].document.id])[0].metadata for i in CHANGED["relabel"]}
            if name == "relabel"
            else ()
        )
        assert len(done) <= 1
        assert len(gone) <= 1
        assert len(labelled) <= 1
        assert store.check(repair=name == "repair").clean or name == "repair"
        check_documents(store, "relabel" if name == "relabel" else "update" if name in ("add", "update") else "delete")
        check_words(store)
        for some in (MANY[:2], MANY[2:]):
            store.upsert(some)
        assert store.check().clean
        check_words(store)
        assert store.delete([record.document.id for record in MANY]) == len(MANY)
        assert store.check().clean
        assert len(store) == 0


def check_words(store: SqliteStore) -> None:
    """Each document is found by its words and metadata, once."""
    ids = sorted(store.ids())
    every = " ".join({str(document.text) for document in store.get(ids)})
    assert sorted(hit.id for hit in store.search_words(every, limit=100).hits) == ids
    for document in store.get(ids):
        found = store.search_words(str(document.text), limit=100).hits
        assert [hit.id for hit in found].count(document.id) == 1
        assert found[0].id == document.id


def run(tmp_path: Path, name: str, step: int) -> None:
    looked = 0
    for number, image in enumerate(itertools.islice(images(tmp_path / "live", name), 0, None, step)):
        image.put(tmp_path / f"image-{number}" / "index")
        try:
            check_image(tmp_path / f"image-{number}" / "index", name)
        except Exception as exc:
            raise AssertionError(f"{name}: image {number * step}") from exc
        looked += 1
    print(f"{name}: {looked} images")
    assert looked > 1


@pytest.mark.slow
@pytest.mark.parametrize("name", ACTIONS)
def test_some_points(tmp_path: Path, name: str) -> None:
    run(tmp_path, name, {"forget": 60, "merge": 20}.get(name, 7))


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", ACTIONS)
def test_every_point(tmp_path: Path, name: str) -> None:
    run(tmp_path, name, 1)
