"""A PostgreSQL whose disk is full: a clear error, nothing half-written, and it goes on when there is room again."""

import os
import pwd
import random
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import psycopg
import pytest
from vlmsearch_mocks.contracts.records import IMAGE, SPACES, TEXT, make_records

from tests.support.postgres_servers import PostgresServer, postgres_folder
from vlmsearch import BackendUnavailableError, Document, Record
from vlmsearch.registry import open_store
from vlmsearch.stores.postgresql.store import PostgresStore

Mount = Callable[[Path, int], None]
OLD = make_records(100, (IMAGE, TEXT))


def large(turn: int) -> list[Record]:
    """The same documents with long metadata of a turn, which cannot be compressed."""
    rng = random.Random(turn)
    documents = [
        Document(record.document.id, text=f"turn {turn}", metadata={"turn": turn, "long": rng.randbytes(8000).hex()})
        for record in OLD
    ]
    return [Record(document, record.vectors) for document, record in zip(documents, OLD)]


@pytest.fixture
def mount() -> Iterator[Mount]:
    """What mounts a small disk at a folder of a server's, or changes its size, in megabytes."""
    with ExitStack() as mounted:

        def at(folder: Path, megabytes: int) -> None:
            if os.path.ismount(folder):
                subprocess.run(["mount", "-o", f"remount,size={megabytes}m", str(folder)], check=True)
                return
            owner = pwd.getpwnam(folder.owner())
            options = f"size={megabytes}m,mode=700,uid={owner.pw_uid},gid={owner.pw_gid}"
            subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)], check=True)
            mounted.callback(subprocess.run, ["umount", "--lazy", str(folder)], check=True)

        yield at


@pytest.fixture
def server() -> Iterator[PostgresServer]:
    """A PostgreSQL that is not started yet."""
    with postgres_folder() as folder:
        found = PostgresServer(folder, {"fsync": "on"})
        found.prepare()
        try:
            yield found
        finally:
            found.kill()


def fill(store: PostgresStore) -> tuple[int, str]:
    """Replace all documents until the disk is full, and return the last turn that was done, and what is said then."""
    for turn in range(1, 200):
        try:
            store.upsert(large(turn))
        except BackendUnavailableError as exc:
            return turn - 1, str(exc)
    raise AssertionError("the disk was never full")


def check_turns(store: PostgresStore, turns: set[int]) -> None:
    """All documents are of one of these turns, whole, and found by their words and vectors."""
    documents = store.get([record.document.id for record in OLD])
    found = {int(str(document.metadata.get("turn", 0))) for document in documents}
    assert len(found) == 1
    assert found <= turns
    assert len(documents) == len(OLD)
    assert documents == [record.document for record in large(found.pop())]
    assert store.check().clean
    assert store.search(TEXT, OLD[7].vectors[TEXT][None], limit=1)[0][0].id == "id-7"


def may_mount() -> bool:
    """Whether this process may mount a disk, as root of a container often may not."""
    status = Path("/proc/self/status")
    lines = status.read_text().splitlines() if status.exists() else []
    effective = next((int(line.split()[1], 16) for line in lines if line.startswith("CapEff:")), 0)
    return bool(effective >> _CAP_SYS_ADMIN & 1)


_CAP_SYS_ADMIN = 21
"""The number of the capability, by linux/capability.h."""
PLACES = ("data", "log") if may_mount() else ("trigger",)
"""What is full; who may not mount a small disk has a table that is said to be on a full one."""


@pytest.mark.parametrize("place", PLACES)
def test_a_full_disk_is_said_and_nothing_is_half_written(place: str, server: PostgresServer, mount: Mount) -> None:
    small = server.data / "pg_wal" if place == "log" else server.folder / "small"
    if place != "trigger":
        before = list(small.iterdir()) if small.exists() else []
        moved = small.rename(server.folder / "before") if before else None
        small.mkdir()
        shutil.chown(small, server.data.owner(), server.data.group())
        mount(small, 64 if place == "log" else 24)
        if moved is not None:
            subprocess.run(["cp", "-a", f"{moved}/.", str(small)], check=True)
    server.start()
    where = ""
    with psycopg.connect(server.conninfo("postgres"), autocommit=True) as session:
        if place == "data":
            session.execute(f"CREATE TABLESPACE small LOCATION '{small}'".encode())
            where = "TABLESPACE small"
        session.execute(f"CREATE DATABASE index {where}".encode())
    with open_store(f"{server.conninfo('index')}?retries=1&timeout=5") as store:
        assert isinstance(store, PostgresStore)
        store.bind("e", SPACES)
        store.upsert(large(0))
        if place == "trigger":
            _do(server, _FULL, "CREATE TRIGGER full_disk BEFORE INSERT ON vlmsearch$1 EXECUTE FUNCTION full_disk()")
        done, said = fill(store)
        assert "\n" not in said
        if place != "log":  # without a log, the server ends itself, and cannot always say why
            assert "has no room left to write documents: could not extend file" in said
            assert said.endswith("nothing of it was done")
            check_turns(store, {done})
        if place == "log":
            server.kill()
            mount(small, 300)
            server.start()
        elif place == "data":
            mount(small, 200)
        else:
            _do(server, "DROP TRIGGER full_disk ON vlmsearch$1")
        check_turns(store, {done, done + 1} if place == "log" else {done})
        store.upsert(large(500))
        check_turns(store, {500})


_FULL = (
    "CREATE FUNCTION full_disk() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
    "RAISE 'could not extend file' USING ERRCODE = 'disk_full'; END $$"
)


def _do(server: PostgresServer, *statements: str) -> None:
    with psycopg.connect(server.conninfo("index"), autocommit=True) as session:
        for statement in statements:
            session.execute(statement.encode())
