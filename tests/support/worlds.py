"""Servers, mock and real, on which processes open stores and die at a chosen call to a server.

The servers outlive the processes, as servers do; every store that `World.open` opens is a process of its own.
"""

from __future__ import annotations

import copy
import re
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field, replace
from operator import methodcaller
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args

from chromadb.api import ServerAPI
from vlmsearch_mocks.chroma import MockChroma, MockChromaConnection
from vlmsearch_mocks.faults import OPERATIONS
from vlmsearch_mocks.mongo import MockMongo
from vlmsearch_mocks.pair import mock_connection

from vlmsearch.stores import writers
from vlmsearch.stores.chroma.collections import connect as connect_chroma
from vlmsearch.stores.chroma.connection import ChromaConnection
from vlmsearch.stores.chroma.store import ChromaStore
from vlmsearch.stores.mongodb.connection import (
    MongoAddress,
    MongoConnection,
    MongoOptions,
    Rows,
    connect as connect_mongo,
)
from vlmsearch.stores.mongodb.store import MongoStore
from vlmsearch.stores.mongodb_chroma.store import MongoChromaStore
from vlmsearch.stores.postgresql.connection import (
    PostgresAddress,
    PostgresConnection,
    PostgresOptions,
    all_rows,
    connect as connect_postgres,
)
from vlmsearch.stores.postgresql.store import PostgresStore
from vlmsearch.stores.sqlite.database import Database
from vlmsearch.stores.sqlite.store import SqliteStore

T = TypeVar("T")
AnyStore = ChromaStore | MongoStore | MongoChromaStore | PostgresStore | SqliteStore
Kind = Literal["mongodb", "mongodb+chroma", "chroma"]
KINDS: tuple[Kind, ...] = get_args(Kind)
Moment = Literal["before", "half", "after", "late"]
"""``late``: the call is sent, and the server carries it out when the process is gone."""
HALVED = ("bulk_write", "delete_many", "_upsert", "_update", "_add", "_delete")
"""The calls that a server can do half of."""
_COLUMNS = ("ids", "embeddings", "metadatas", "uris")
_NAMES = {
    "execute",
    "executemany",
    *OPERATIONS["mongo"],
    *OPERATIONS["chroma"],
    *(f"_{name}" for name in OPERATIONS["chroma"]),
}


class Died(BaseException):
    """Stands for the end of a process: nothing that it does arrives any more."""


@dataclass
class Process:
    """A process that dies at its call number ``last``, counted from 0; it never does where that is None."""

    last: int | None = None
    moment: Moment = "before"
    calls: list[str] = field(default_factory=list)
    late: list[Callable[[], object]] = field(default_factory=list)
    was_killed: bool = False
    """Whether there was such a call, and it has such a moment."""

    def call(self, name: str, do: Callable[[], T], half: Callable[[], object] | None) -> T:
        number = len(self.calls)
        self.calls.append(name)
        if self.last is None or number < self.last:
            return do()
        if number == self.last:
            self.was_killed = self.moment != "half" or half is not None
            if self.moment == "late":
                self.late.append(do)
            elif self.moment == "after":
                do()
            elif self.moment == "half" and half is not None:
                half()
        raise Died

    @contextmanager
    def until_it_dies(self) -> Iterator[None]:
        """What is done meanwhile ends with the process, and what it had under way is nobody's then."""
        try:
            with suppress(Died):
                yield
        finally:
            with writers._changing:
                writers._under_way.clear()

    def of(self, server: Any) -> Any:
        """A server, or a collection of one, whose calls are counted."""
        return _Counted(self, server)


class _Counted:
    def __init__(self, process: Process, server: Any) -> None:
        self.__dict__.update(_process=process, _server=server)

    def __setattr__(self, name: str, value: object) -> None:
        setattr(self._server, name, value)

    def __getattr__(self, name: str) -> Any:
        inner = getattr(self._server, name)
        if name not in _NAMES:
            return inner

        def call(*arguments: Any, **options: Any) -> Any:
            halved = _halve(name, arguments, options)
            half = None if halved is None else lambda: inner(*halved[0], **halved[1])
            return self._process.call(name, lambda: inner(*arguments, **options), half)

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
    if options.get("ids") and name in ("_upsert", "_update", "_add", "_delete"):
        count = len(options["ids"]) // 2
        cut = {key: options[key][:count] for key in _COLUMNS if options.get(key) is not None}
        return ((), {**options, **cut}) if count else None
    return None


def counted_chroma(inner: ChromaConnection, process: Process) -> ChromaConnection:
    """A connection whose calls to the server are those of one process."""
    connection = copy.copy(inner)

    def attempt(operation: str, call: Callable[[ServerAPI], T]) -> T:
        return inner.attempt(operation, lambda server: call(process.of(server)))

    connection.attempt, connection.retries = attempt, 0  # type: ignore[method-assign]
    return connection


class CountedMongo(MongoConnection):
    """The same for MongoDB."""

    process = Process()

    def run(self, collection: str, operation: str, call: Callable[[Rows], T]) -> T:
        return super().run(collection, operation, lambda rows: call(self.process.of(rows)))


class CountedDatabase(Database):
    """The same for SQLite: each statement is a call."""

    process = Process()

    def _connect(self, how: str) -> Any:
        return self.process.of(super()._connect(how))


class CountedPostgres(PostgresConnection):
    """The same for PostgreSQL: each message is a call, those that begin and end a transaction among them."""

    process = Process()

    def _connect(self, deadline: Any) -> Any:
        return self.process.of(super()._connect(deadline))

    def __del__(self) -> None:
        self.close()


@dataclass(frozen=True)
class World:
    """Servers, each given by what connects to it, or a folder; ``drop`` removes what is there."""

    mongo: Callable[[], MongoConnection] | None = None
    chroma: Callable[[], ChromaConnection] | None = None
    drop: Callable[[], object] = lambda: None
    sqlite: Path | None = None
    postgres: Callable[[], PostgresConnection] | None = None
    table: str = "vlmsearch"

    @property
    def is_served(self) -> bool:
        """Whether a server may still be at it when the process has died; PostgreSQL ends its transaction."""
        return self.mongo is not None or self.chroma is not None

    def open(self, process: Process | None = None) -> AnyStore:
        """The index, as a process opens it."""
        process = process or Process()
        if self.sqlite is not None:
            store = SqliteStore(str(self.sqlite))
            database = CountedDatabase(self.sqlite, timeout=5)
            database.process = process
            store._database = database
            return store
        if self.postgres is not None:
            given = self.postgres()
            counted = CountedPostgres(given.name, given.conninfo, replace(given.options, retries=0))
            counted.process = process
            return PostgresStore(counted, table=self.table, exact_up_to=4)
        chroma = counted_chroma(self.chroma(), process) if self.chroma else None
        if self.mongo is None:
            assert chroma is not None
            return ChromaStore(chroma)
        plain = self.mongo()
        mongo = CountedMongo(plain.name, plain.database, plain.make_client, 0)
        mongo.process = process
        return MongoStore(mongo) if chroma is None else MongoChromaStore(mongo, chroma=chroma)

    def collections(self) -> set[str]:
        """What there is of the index on the servers, by the ends of the names, such as ``1.documents``."""
        found = set[str]()
        if self.sqlite is not None:
            with closing(sqlite3.connect(self.sqlite)) as db:
                names = [name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
            found |= {match[1] for match in map(re.compile(r"[a-z]+_([0-9]+)").match, names) if match}
        if self.postgres is not None:
            pattern = f"^{self.table}_([0-9]+)(_[0-9]+)?$"
            query = "SELECT substring(relname FROM %s) FROM pg_class WHERE relkind = 'r' AND relname ~ %s"
            with closing(self.postgres()) as postgres:
                found |= {name for (name,) in postgres.run("list", lambda s: all_rows(s, query, (pattern, pattern)))}
        if self.mongo is not None:
            with closing(self.mongo()) as mongo:
                found |= {name.partition(".")[2] for name in mongo._connected()[mongo.database].list_collection_names()}
        if self.chroma is not None:
            with closing(self.chroma()) as chroma:
                found |= {name.removeprefix(f"{chroma.prefix}.") for name in _names_of(chroma)}
        return found


def _names_of(chroma: ChromaConnection) -> list[str]:
    if isinstance(chroma, MockChromaConnection):
        return [rows.name for rows in chroma._client.data.values()]
    listed = chroma.run("list", lambda server: server.list_collections(limit=100_000))
    return [each.name for each in listed if each.name.startswith(f"{chroma.prefix}.")]


def mock_world(kind: Kind) -> World:
    """Mock servers, and no others at them."""
    mongo, chroma = mock_connection(MockMongo(), retries=0), MockChromaConnection(MockChroma(), retries=0)
    return World((lambda: mongo) if "mongodb" in kind else None, (lambda: chroma) if "chroma" in kind else None)


def real_world(kind: Kind, mongo: str, chroma: str, name: str) -> World:
    """Real servers at two addresses; ``name`` is that of a new database on them."""

    def to_mongo() -> MongoConnection:
        return connect_mongo(MongoAddress.parse(f"//{mongo}/{name}"), MongoOptions(retries=0))

    def to_chroma() -> ChromaConnection:
        return connect_chroma(f"//{chroma}/{name}", retries=0)

    def drop() -> None:
        if "mongodb" in kind:
            with closing(to_mongo()) as connection:
                connection._connected().drop_database(name)
        if "chroma" in kind:
            with closing(to_chroma()) as server:
                for each in _names_of(server):
                    server.run("drop", methodcaller("delete_collection", each))

    return World(to_mongo if "mongodb" in kind else None, to_chroma if "chroma" in kind else None, drop)


def postgres_world(url: str, table: str) -> World:
    """A real PostgreSQL; ``table`` is the name of a new index in the database at ``url``."""
    return World(
        postgres=lambda: connect_postgres(PostgresAddress.parse(url.partition(":")[2]), PostgresOptions()), table=table
    )


def file_world(folder: Path) -> World:
    """An index of SQLite. What a process that is killed leaves is its files as they are then."""
    return World(sqlite=folder / "index", drop=lambda: shutil.rmtree(folder))
