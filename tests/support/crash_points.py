"""Every point at which a writing process can die: before, at half of and after every call that it makes to a server."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar, get_args

import numpy as np
import pytest
from chromadb.api import ServerAPI
from vlmsearch_mocks.chroma import MockChroma, MockChromaConnection
from vlmsearch_mocks.contracts.records import IMAGE, SPACES, TEXT, make_records
from vlmsearch_mocks.faults import OPERATIONS
from vlmsearch_mocks.mongo import MockMongo
from vlmsearch_mocks.pair import mock_connection

from vlmsearch import Record, Stamp
from vlmsearch.stores.base import CheckReport
from vlmsearch.stores.chroma.connection import ChromaConnection, Subindex
from vlmsearch.stores.chroma.store import ChromaStore
from vlmsearch.stores.mongodb.connection import MongoConnection, Rows
from vlmsearch.stores.mongodb.store import MongoStore
from vlmsearch.stores.mongodb_chroma.store import MongoChromaStore

T = TypeVar("T")
AnyStore = ChromaStore | MongoStore | MongoChromaStore
Mode = Literal["before", "half", "after", "late"]
"""``late``: the call is sent, and the server carries it out after another process has repaired the index."""
Action = Literal["add", "update", "delete", "repair"]
ACTIONS: tuple[Action, ...] = get_args(Action)
_COLUMNS = ("ids", "embeddings", "metadatas", "uris")
_NAMES = {*OPERATIONS["mongo"], *OPERATIONS["chroma"], *(f"_{name}" for name in OPERATIONS["chroma"])}


def stamped(records: Sequence[Record]) -> list[Record]:
    return [Record(r.document, r.vectors, Stamp(str(r.document.metadata["number"]))) for r in records]


OLD = stamped(make_records(6, (IMAGE, TEXT)))
NEW = stamped(make_records(8, (IMAGE, TEXT), seed=40, metadata=[{"number": -i - 1} for i in range(8)]))
CHANGED = {"add": [6, 7], "update": [1, 2, 3], "delete": [1, 2, 3], "repair": [1, 2, 3, 6, 7]}
"""The numbers of the documents that an action writes or deletes; all others stay as they are in OLD."""


class Died(BaseException):
    """Stands for the end of the process."""


@dataclass
class Life:
    """A process that dies at its call number ``last``, counted from 0; it never does where that is None."""

    last: int | None = None
    mode: Mode = "before"
    calls: list[str] = field(default_factory=list)
    late: list[Callable[[], object]] = field(default_factory=list)

    def call(self, name: str, do: Callable[[], T], half: Callable[[], object]) -> T:
        number = len(self.calls)
        self.calls.append(name)
        if self.last is None or number < self.last:
            return do()
        if number == self.last:
            if self.mode == "late":
                self.late.append(do)
            elif self.mode != "before":
                do() if self.mode == "after" else half()
        raise Died

    def of(self, server: Any) -> Any:
        """A server, or a collection of one, whose calls are counted."""
        return _Counted(self, server)


class _Counted:
    def __init__(self, life: Life, server: Any) -> None:
        self._life = life
        self._server = server

    def __getattr__(self, name: str) -> Any:
        inner = getattr(self._server, name)
        if name not in _NAMES:
            return inner

        def call(*arguments: Any, **options: Any) -> Any:
            def half() -> None:
                halved = _halve(name, arguments, options)
                if halved is not None:
                    inner(*halved[0], **halved[1])

            return self._life.call(name, lambda: inner(*arguments, **options), half)

        return call


def _halve(name: str, arguments: tuple[Any, ...], options: dict[str, Any]) -> tuple[tuple[Any, ...], Any] | None:
    """The arguments of a call that does the first half only; None where that is nothing."""
    if name == "bulk_write":
        writes = arguments[0][: len(arguments[0]) // 2]
        return ((writes, *arguments[1:]), options) if writes else None
    if name == "delete_many":
        query = arguments[0]
        ids = query.get("_id", {}).get("$in", [])
        return (({**query, "_id": {"$in": ids[: len(ids) // 2]}},), options)
    if options.get("ids") and name in ("_upsert", "_add", "_delete"):
        count = len(options["ids"]) // 2
        cut = {key: options[key][:count] for key in _COLUMNS if options.get(key) is not None}
        return ((), {**options, **cut}) if count else None
    return None


class CountedChroma(Subindex):
    """A connection whose calls to the server are those of one life."""

    def __init__(self, inner: ChromaConnection, life: Life) -> None:
        super().__init__(inner, "")
        self.is_shared, self.most_bytes = inner.is_shared, inner.most_bytes
        self._life = life

    def run(self, operation: str, call: Callable[[ServerAPI], T], *, writes: bool = False, collection: str = "") -> T:
        def counted(server: ServerAPI) -> T:
            return call(self._life.of(server))

        return self._inner.run(operation, counted, writes=writes, collection=collection)


class CountedMongo(MongoConnection):
    """The same for MongoDB."""

    life = Life()

    def run(self, collection: str, operation: str, call: Callable[[Rows], T]) -> T:
        return super().run(collection, operation, lambda rows: call(self.life.of(rows)))


@dataclass
class World:
    """Servers, which outlive processes; stores are opened on them, one a process."""

    mongo: MongoConnection | None = None
    chroma: ChromaConnection | None = None

    @property
    def is_served(self) -> bool:
        """Whether a server may still be at it when the process has died."""
        return self.mongo is not None or (self.chroma is not None and self.chroma.is_shared)

    def open(self, life: Life | None = None) -> AnyStore:
        life = life or Life()
        chroma = CountedChroma(self.chroma, life) if self.chroma else None
        if self.mongo is None:
            assert chroma is not None
            return ChromaStore.on(chroma)
        mongo = CountedMongo(self.mongo.name, self.mongo.database, self.mongo.make_client, 0)
        mongo.life = life
        if chroma is None:
            return MongoStore.on(mongo)
        return MongoChromaStore.on(mongo, chroma)


def mock_world(kind: str) -> World:
    """Mock servers: ``chroma``, ``mongodb`` or ``mongodb+chroma``."""
    chroma = MockChromaConnection(MockChroma(), retries=0) if "chroma" in kind else None
    return World(mock_connection(MockMongo(), retries=0) if "mongodb" in kind else None, chroma)


def filled(world: World) -> None:
    with world.open() as store:
        store.bind("encoder", SPACES)
        store.upsert(OLD)


def act(store: AnyStore, action: Action) -> None:
    if action == "delete":
        store.delete([NEW[i].document.id for i in CHANGED["delete"]])
    elif action == "repair":
        store.check(repair=True)
    else:
        store.upsert([NEW[i] for i in CHANGED[action]])


def break_off(world: World) -> None:
    """Leave what a repair has to do: a write and a delete that were cut off."""
    for action, last in (("update", 6), ("add", 5), ("delete", 5)):
        life = Life(last)
        with suppress(Died):
            act(world.open(life), action)  # type: ignore[arg-type]


def points(make: Callable[[], World], action: Action) -> Iterator[tuple[int, Mode]]:
    """Every point of an action: the number of a call, and how the process dies there."""
    world = ready(make, action)
    life = Life()
    act(world.open(life), action)
    for number, name in enumerate(life.calls):
        yield number, "before"
        if name in ("bulk_write", "delete_many", "_upsert", "_add", "_delete"):
            yield number, "half"
        yield number, "after"
        if world.is_served:
            yield number, "late"


def ready(make: Callable[[], World], action: Action) -> World:
    world = make()
    filled(world)
    if action == "repair":
        break_off(world)
    return world


def check_point(make: Callable[[], World], action: Action, number: int, mode: Mode) -> None:
    """Die at a point; nothing that was there may be lost, a repair ends clean, and the action can be done again."""
    world, life = ready(make, action), Life(number, mode)
    with pytest.raises(Died):
        act(world.open(life), action)
    with world.open() as store:
        check_documents(store, action)
        assert not repaired(store).missing
        for call in life.late:
            with suppress(Exception):
                call()
            check_documents(store, action)
            if not isinstance(store, ChromaStore):
                assert not store.check().missing
            repaired(store)
        check_documents(store, action)
        act(store, action)
        if action == "repair":
            act(store, "update")
        assert store.check() == CheckReport(store.name, len(store), expected_counts(store))
        check_documents(store, action)


def repaired(store: AnyStore) -> CheckReport:
    report = store.check(repair=True)
    after = store.check()
    assert after.in_progress == 0
    assert not [*after.orphans, *after.stale, *after.unfinished], after
    return report


def expected_counts(store: AnyStore) -> dict[str, int]:
    count = len(store)
    return {"clip/image": count, "clip/text": 0, "minilm/text": count}


def check_documents(store: AnyStore, action: Action) -> None:
    """Each document is as it was or as it became, found by all its vectors, or, if written late, counts as changed."""
    there = {document.id: document for document in store.get(list(store.ids()))}
    stamps = store.stamps(list(there))
    changed = {NEW[i].document.id for i in CHANGED[action]}
    for record in OLD:
        id = record.document.id
        assert id in changed or there.get(id) == record.document, f"{id} is lost"
    for id, document in there.items():
        assert document in [r.document for r in (*OLD, *NEW) if r.document.id == id]
        if stamps[id].digest == "" and id in changed:
            continue  # indexing its source again writes it
        (record,) = [r for r in (*OLD, *NEW) if r.document == document]
        assert stamps[id] == record.stamp
        for each in (IMAGE, TEXT):
            hits = store.search(each, record.vectors[each][None], limit=20)[0]
            assert hits, (id, each)
            assert hits[0].id == id, (id, each, hits)
            assert np.isclose(hits[0].score, 1.0, atol=1e-4)
            assert [hit.id for hit in hits].count(id) == 1


@contextmanager
def no_waiting() -> Iterator[None]:
    """A repair does not wait for what a killed writer may have sent: here nothing is on its way."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("vlmsearch.stores.chroma.store._LAST_GASP", 0.0)
        yield
