"""``reindex`` and ``drop_old``, killed before, at half of and after every call to a server.

The servers outlive the process that is killed, and so does a writer, another process with the old model, which writes
whenever the row that says which index is in use is about to be replaced. Whatever was acknowledged has to be there
afterwards, as it was written and under vectors of the model that the index names; so it has to be when the work is
taken up again, by any of several ways, and nothing may be left that no row names.
"""

from __future__ import annotations

import shutil
import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from copy import deepcopy
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args

import numpy as np
from vlmsearch_mocks import Faults, MockEncoder
from vlmsearch_mocks.chroma import MockChroma, MockChromaConnection
from vlmsearch_mocks.mongo import MockMongo
from vlmsearch_mocks.pair import mock_connection

from vlmsearch import ConfigError, Document, Pipeline, VlmsearchError
from vlmsearch.indexing.reindex import drop_old, reindex
from vlmsearch.stores import writers
from vlmsearch.stores.base import check_store
from vlmsearch.stores.chroma.connection import ChromaConnection, ServedChroma
from vlmsearch.stores.chroma.store import ChromaStore
from vlmsearch.stores.generations import GenerationalStore, Slot
from vlmsearch.stores.mongodb.connection import MongoConnection, Rows
from vlmsearch.stores.mongodb.index import MongoIndex
from vlmsearch.stores.mongodb.store import MongoStore
from vlmsearch.stores.mongodb_chroma.store import MongoChromaStore
from vlmsearch.types import Role, Vectors

T = TypeVar("T")
Moment = Literal["before", "half", "after"]
Kind = Literal["mongodb", "mongodb+chroma", "chroma"]
Action = Literal["reindex", "drop_old"]
Sequel = Literal["again", "drop old first", "another model", "give up"]
MOMENTS: tuple[Moment, ...] = get_args(Moment)
SEQUELS: tuple[Sequel, ...] = get_args(Sequel)
START = {f"{i}": f"text {i}" for i in range(6)}


class KilledError(BaseException):
    """Nothing that this process does arrives any more."""


class Model(MockEncoder):
    """A model whose vectors of a text are nothing like those of the others."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.fingerprint = f"model {number}"
        self._number = number

    def encode_texts(self, texts: Any, *, role: Role = "document") -> dict[str, Vectors]:
        found = super().encode_texts(texts, role=role)
        return {space: np.ascontiguousarray(np.roll(rows, 17 * self._number, 1)) for space, rows in found.items()}


FIRST, SECOND, THIRD = (Model(number) for number in (1, 2, 3))


class World(ABC):
    """Servers, and the calls that the process in question makes to them."""

    def __init__(self) -> None:
        self._left: int | None = None
        self._moment: Moment = "before"
        self._is_dead = False
        self._is_watched = False
        self.was_killed = False
        """Whether there was such a call, and it has such a moment."""

    @abstractmethod
    def open(self) -> GenerationalStore:
        """The index, as a process opens it."""

    @abstractmethod
    def collections(self) -> set[str]:
        """What there is on the servers."""

    @abstractmethod
    def close(self) -> None:
        """Leave nothing on servers that others use too."""

    def around(self, do: Callable[[], T], half: Callable[[], object] | None = None) -> T:
        if not self._is_watched:
            return do()
        if self._is_dead:
            raise KilledError
        if self._left is not None:
            self._left -= 1
            if self._left < 0:
                self._is_dead = True
                if self._moment == "after":
                    do()
                elif self._moment == "half" and half is not None:
                    half()
                self.was_killed = self._moment != "half" or half is not None
                raise KilledError
        return do()

    @contextmanager
    def watched(self, kill_at: int | None = None, moment: Moment = "before") -> Iterator[None]:
        """The process in question makes the calls meanwhile, and is killed at one of them."""
        self._left, self._moment, self._is_dead, self._is_watched = kill_at, moment, False, True
        self.was_killed = False
        try:
            with suppress(KilledError):
                yield
        finally:
            self._is_watched = False
            with writers._changing:  # what it had under way is nobody's now, as in a process that is gone
                writers._under_way.clear()

    @contextmanager
    def another_process(self) -> Iterator[None]:
        """The calls meanwhile are of another process."""
        was, self._is_watched = self._is_watched, False
        try:
            yield
        finally:
            self._is_watched = was


class MockWorld(World):
    """Mock servers, which can do half of a call."""

    def __init__(self, kind: Kind) -> None:
        super().__init__()
        faults = Faults()
        faults.around = lambda server, operation, do, half=None: self.around(do, half)  # type: ignore[method-assign]
        self._kind = kind
        self._mongo, self._chroma = MockMongo(faults=faults), MockChroma(faults=faults)

    def open(self) -> GenerationalStore:
        mongo, chroma = mock_connection(self._mongo, retries=0), MockChromaConnection(self._chroma, retries=0)
        if self._kind == "chroma":
            return ChromaStore.on(chroma)
        return MongoStore.on(mongo) if self._kind == "mongodb" else MongoChromaStore.on(mongo, chroma)

    def collections(self) -> set[str]:
        return {name for _, name in self._mongo.data} | {rows.name for rows in self._chroma.data.values()}

    def close(self) -> None:
        """The servers go with this."""


class RealWorld(World):
    """Real servers; ``name`` is that of a new database on them."""

    def __init__(self, kind: Kind, mongo: str, chroma: str, name: str) -> None:
        super().__init__()
        self._kind, self._mongo, self._chroma, self._name = kind, mongo, chroma, name

    def open(self) -> GenerationalStore:
        if self._kind == "chroma":
            store = ChromaStore(f"//{self._chroma}/{self._name}", retries=0)
            self._watch_chroma(store._connection)
            return store
        location = f"//{self._mongo}/{self._name}"
        if self._kind == "mongodb":
            mongodb = MongoStore(location, retries=0)
            self._watch_mongo(mongodb._connection)
            return mongodb
        pair = MongoChromaStore(location, chroma=f"http://{self._chroma}", retries=0)
        self._watch_mongo(pair._connection)
        self._watch_chroma(pair._chroma)
        return pair

    def _watch_mongo(self, connection: MongoConnection) -> None:
        run = connection._call

        def watched(collection: str, operation: str, call: Callable[[Rows], T]) -> T:
            return self.around(lambda: run(collection, operation, call))

        connection._call = watched  # type: ignore[method-assign]

    def _watch_chroma(self, connection: Any) -> None:
        assert isinstance(connection, ServedChroma)
        run = connection.run

        def watched(operation: str, call: Any, *, writes: bool = False, collection: str = "") -> Any:
            return self.around(lambda: run(operation, call, writes=writes, collection=collection))

        connection.run = watched  # type: ignore[method-assign]

    def collections(self) -> set[str]:
        with closing(self.open()) as store:
            found = {collection.name for collection in self._in_chroma(store)}
            if isinstance(store, MongoIndex):
                connection = store._connection
                found |= set(connection._connected()[connection.database].list_collection_names())
        return found

    def close(self) -> None:
        with closing(self.open()) as store:
            for collection in self._in_chroma(store):
                collection.delete()
            if isinstance(store, MongoIndex):
                connection = store._connection
                connection._connected().drop_database(connection.database)

    def _in_chroma(self, store: GenerationalStore) -> list[_Collection]:
        connection = store._connection if isinstance(store, ChromaStore) else getattr(store, "_chroma", None)
        if connection is None:
            return []
        listed = connection.run("list", lambda server: server.list_collections(limit=100_000))
        names = [each.name for each in listed if each.name.startswith(f"{connection.prefix}.")]
        return [_Collection(name, connection) for name in names]


@dataclass(frozen=True)
class _Collection:
    full_name: str
    connection: ChromaConnection

    @property
    def name(self) -> str:
        """As it is named in an index whose name has no dots."""
        return "vlmsearch" + self.full_name.removeprefix(self.connection.prefix)

    def delete(self) -> None:
        self.connection.run("drop", lambda server: server.delete_collection(self.full_name))


@dataclass
class Writer:
    """A process that adds, changes, deletes and adds again with one model; what it was told has been done is ``has``.

    What it was not told about may be there or not: ``may_be`` has the other forms of those documents.
    """

    world: World
    model: Model = FIRST
    has: dict[str, str] = field(default_factory=lambda: dict(START))
    may_be: dict[str, set[str | None]] = field(default_factory=dict)
    turns: int = 0

    def turn(self) -> None:
        """Write once of each kind."""
        self.turns += 1
        with self.world.another_process(), closing(self.world.open()) as store:
            pipeline = Pipeline(self.model, store)
            self.add(pipeline, {f"late {self.turns}": "late", "1": f"text of turn {self.turns}"})
            self.delete(pipeline, f"{self.turns + 1}")
            self.delete(pipeline, "5")
            self.add(pipeline, {"5": "text 5"})

    def add(self, pipeline: Pipeline, texts: dict[str, str]) -> bool:
        try:
            pipeline.add([Document(id, text=text) for id, text in texts.items()])
        except VlmsearchError:
            for id, text in texts.items():
                self.may_be.setdefault(id, set()).add(text)
            return False
        self._done(dict(texts))
        return True

    def delete(self, pipeline: Pipeline, id: str) -> None:
        try:
            pipeline.delete([id])
        except VlmsearchError:
            self.may_be.setdefault(id, set()).add(None)
        else:
            self._done({id: None})

    def _done(self, texts: dict[str, str | None]) -> None:
        for id, text in texts.items():
            self.may_be.pop(id, None)
            self.has.pop(id, None)
            if text is not None:
                self.has[id] = text

    def problems(self, store: GenerationalStore) -> list[str]:
        """What is not there as it should be, in the documents and under their vectors."""
        manifest = store.manifest()
        if manifest is None:
            return ["there is no index"]
        model = next(each for each in (FIRST, SECOND, THIRD) if each.fingerprint == manifest.fingerprint)
        found = {document.id: document.text for document in store.get(list(store.ids()))}
        wrong = [
            f"{id!r} is {found.get(id)!r}, not {self.has.get(id)!r}"
            for id in sorted({*found, *self.has})
            if found.get(id) not in {self.has.get(id), *self.may_be.get(id, ())}
        ]
        if len(store) != len(found):
            wrong.append(f"{len(store)} documents are counted, {len(found)} are there")
        pipeline = Pipeline(model, store)
        for text in {*found.values()} - {None}:
            matches = pipeline.search(text, limit=100)
            if {match.document.id for match in matches} != set(found):
                wrong.append(f"{text!r} finds {len(matches)} of {len(found)}")
            near = {m.document.id for m in matches if all(leg.cosine > 0.999 for leg in m.legs.values())}
            if near != {id for id, other in found.items() if other == text}:
                wrong.append(f"{text!r} of {manifest.fingerprint} is near to {sorted(near)}")
        return wrong


def start(world: World) -> Writer:
    """An index of the first model, and who writes to it."""
    with closing(world.open()) as store:
        Pipeline(FIRST, store).add([Document(id, text=text) for id, text in START.items()])
    return Writer(world)


def run_reindex(writer: Writer, model: Model = SECOND, *, others_write: bool = True) -> bool:
    """``reindex`` of a process of its own; whether it switched."""
    with closing(writer.world.open()) as store:
        replace_slot = store.replace_slot

        def write_first(slot: Slot, row: Mapping[str, Any], revision: str | None) -> bool:
            if slot == "index":
                writer.turn()
            return replace_slot(slot, row, revision)

        if others_write:
            store.replace_slot = write_first  # type: ignore[method-assign]
        return reindex(store, model).switched


def run_drop(writer: Writer) -> None:
    """``drop_old`` of a process of its own."""
    with closing(writer.world.open()) as store:
        drop_old(store)


def aftermath(writer: Writer, sequel: Sequel) -> list[str]:
    """What is wrong after the kill, and after the work has been taken up again."""
    world, wrong = writer.world, list[str]()

    def look(when: str) -> None:
        with closing(world.open()) as store:
            wrong.extend(f"{when}: {each}" for each in writer.problems(store))

    look("killed")
    with closing(world.open()) as store:
        check_store(store, repair=True)
        if not check_store(store).clean:
            wrong.append("killed: not clean after a repair")
    look("repaired")
    if sequel == "drop old first":
        run_drop(writer)
        look("dropped first")
    with closing(world.open()) as store:
        manifest = store.manifest()
    assert manifest is not None
    aim = {"another model": THIRD, "give up": FIRST}.get(sequel, SECOND)
    try:
        if not run_reindex(writer, aim, others_write=False):
            wrong.append("the second run did not switch")
    except ConfigError as exc:
        if "already" not in str(exc) or manifest.fingerprint != aim.fingerprint:
            raise
    look("taken up")
    with closing(world.open()) as store:
        if not writer.add(Pipeline(aim, store), {"new": "newer text"}):
            wrong.append("the index takes no writes afterwards")
    run_drop(writer)
    look("dropped")
    with closing(world.open()) as store:
        rows = [store.read_slot("index"), store.read_slot("next")]
    named = {"about", "rejects", *(row["generation"] for row in rows if row)}
    left = sorted(name for name in world.collections() if name.split(".")[1] not in named)
    return wrong + [f"no row names {name}" for name in left]


@dataclass
class Report:
    """How many times a process was killed, and what was wrong after which."""

    points: int = 0
    wrong: dict[str, list[str]] = field(default_factory=dict)

    def note(self, point: str, wrong: list[str]) -> None:
        self.points += 1
        if wrong:
            self.wrong[point] = wrong


def killed(world: World, action: Action, point: int, moment: Moment) -> Writer | None:
    """The writer of a world in which ``action`` was killed at a call; None where it makes no such call."""
    writer = start(world)
    if action == "drop_old":
        run_reindex(writer, others_write=False)
    with world.watched(point, moment):
        run_reindex(writer) if action == "reindex" else run_drop(writer)
    return writer if world.was_killed else None


def kill_everywhere(
    make_world: Callable[[], World], *, first: int = 0, step: int = 1, moments: tuple[Moment, ...] = MOMENTS
) -> Report:
    """Kill `reindex`, then `drop_old`, at each moment of every ``step``-th call, each time with one of the sequels."""
    report = Report()
    for action in get_args(Action):
        for number, point in enumerate(count(first, step)):
            reached = False
            for turn, moment in enumerate(moments):
                sequel = SEQUELS[(number + turn) % len(SEQUELS)]
                with closing(make_world()) as world:
                    writer = killed(world, action, point, moment)
                    if writer is not None:
                        reached = True
                        report.note(f"{action} {point} {moment}, {sequel}", aftermath(writer, sequel))
            if not reached:
                break
    return report


def kill_twice(make_world: Callable[[], World], *, first: int = 0, step: int = 1) -> Report:
    """Kill `reindex` at every ``step``-th call, and the run that takes it up at every ``step``-th of its own."""
    report = Report()
    for point in count(first, step):
        for number, second in enumerate(count(first, step)):
            with closing(make_world()) as world:
                writer = killed(world, "reindex", point, MOMENTS[number % 2 * 2])
                if writer is None:
                    return report
                with world.watched(second), suppress(ConfigError):
                    run_reindex(writer)
                if not world.was_killed:
                    break
                report.note(f"reindex {point}, then {second}", aftermath(writer, SEQUELS[number % len(SEQUELS)]))
    raise AssertionError("count ends never")


class FolderWorld(World):
    """An embedded Chroma. What a process that is killed leaves is its folder as it is then: `image` copies it."""

    def __init__(self, folder: Path, on_call: Callable[[], None] = lambda: None) -> None:
        super().__init__()
        self.folder = folder
        self._on_call = on_call

    def open(self) -> GenerationalStore:
        store = ChromaStore(str(self.folder))
        run = store._connection.run

        def watched(operation: str, call: Any, *, writes: bool = False, collection: str = "") -> Any:
            if not self._is_watched:
                return run(operation, call, writes=writes, collection=collection)
            self._on_call()
            answer = run(operation, call, writes=writes, collection=collection)
            self._on_call()
            return answer

        store._connection.run = watched  # type: ignore[method-assign]
        return store

    def collections(self) -> set[str]:
        with closing(sqlite3.connect(self.folder / "chroma.sqlite3")) as db:
            return {name for (name,) in db.execute("SELECT name FROM collections")}

    def close(self) -> None:
        shutil.rmtree(self.folder)


def image_everywhere(folder: Path, *, first: int = 0, step: int = 1) -> Report:
    """Copy the folder before and after every call of `reindex` and `drop_old`, and look at every ``step``-th copy."""
    images: list[Writer] = []
    counted = count(-first)

    def image() -> None:
        if next(counted) % step == 0:
            copied = FolderWorld(folder.parent / f"image-{len(images)}")
            shutil.copytree(folder, copied.folder)
            images.append(replace(writer, world=copied, has=dict(writer.has), may_be=deepcopy(writer.may_be)))

    world = FolderWorld(folder, image)
    writer = start(world)
    with world.watched():
        run_reindex(writer)
    with world.watched():
        run_drop(writer)
    report = Report()
    for number, each in enumerate(images):
        sequel = SEQUELS[number % len(SEQUELS)]
        report.note(f"image {number}, {sequel}", aftermath(each, sequel))
        each.world.close()
    return report
