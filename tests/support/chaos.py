"""Kill the indexing process, or a server, at random moments, and see whether anything is lost.

``python -m tests.support.chaos --seed 1 --count 200 --kill writer`` kills 200 times; ``--kill mongo`` and
``--kill chroma`` kill a server under load and start it again; ``--kill sqlite`` kills who writes to a file, which needs
no repair; ``--kill postgresql`` kills who writes to PostgreSQL, ``--kill "postgresql server"`` all processes of
that server at once, as a power cut does, and ``--kill "postgresql disk"`` stops them for longer than a writer waits.
After each, every document that a finished write left must be found by its vectors, once, with its text, by its readers;
``check --repair`` must end clean and another ``check`` find nothing.
"""

import argparse
import json
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, get_args

import httpx
import numpy as np
from vlmsearch_mocks.contracts.records import IMAGE, SPACES, TEXT, unit_vectors

from tests.support.mongo_servers import MongoServer
from tests.support.parts import check_server_mark
from tests.support.postgres_servers import PostgresServer, postgres_server
from tests.support.servers import START_SECONDS, chroma_command, free_port
from vlmsearch import BackendUnavailableError, Document, Record, Stamp
from vlmsearch.stores.base import WordSearch
from vlmsearch.stores.mongodb.connection import MongoOptions
from vlmsearch.stores.mongodb_chroma.store import MongoChromaStore
from vlmsearch.stores.postgresql.connection import PostgresOptions
from vlmsearch.stores.postgresql.store import PostgresStore
from vlmsearch.stores.readers import readable
from vlmsearch.stores.restricted import restricted_store
from vlmsearch.stores.sqlite.store import SqliteStore

Target = Literal["writer", "mongo", "chroma", "sqlite", "postgresql", "postgresql server", "postgresql disk"]
TARGETS: tuple[Target, ...] = get_args(Target)
SERVED: tuple[Target, ...] = ("writer", "mongo", "chroma")
POSTGRES: tuple[Target, ...] = ("postgresql", "postgresql server", "postgresql disk")
AnyStore = MongoChromaStore | SqliteStore | PostgresStore
IDS = [f"doc-{i}" for i in range(60)]
FINGERPRINT = "chaos"
QUERY = unit_vectors(1, TEXT)
GONE = -1
"""The turn of a document that is not there."""


def record(id: str, turn: int) -> Record:
    """What is written to a document in a turn: vectors, text and readers that tell the turn."""
    seed = turn * 1000 + int(id.partition("-")[2])
    vectors = {each: unit_vectors(1, each, seed=seed)[0] for each in (IMAGE, TEXT)}
    document = Document(id, text=f"{id} of turn {turn}", metadata={"turn": turn}, readers=[_reader(turn)])
    return Record(document, vectors, Stamp(f"{turn}"))


def _reader(turn: int) -> str:
    return f"group:{turn % 2}"


def open_index(mongo: str, chroma: str) -> AnyStore:
    """The index on two servers, or the one at a path or on one server: ``mongo`` is its scheme then."""
    if mongo == "sqlite":
        return SqliteStore(chroma)
    if mongo == "postgresql":
        return PostgresStore(f"//{chroma}/chaos", options=PostgresOptions(timeout=1, retries=6), exact_up_to=20)
    return MongoChromaStore(f"//{mongo}/chaos", chroma=f"http://{chroma}", options=MongoOptions(timeout=5, retries=6))


def work(mongo: str, chroma: str, seed: int, turn: int) -> None:
    """Write, replace and delete until stdin says to stop, telling stdout before and after."""
    rng = random.Random(seed)
    stop = threading.Event()

    def wait_for_end() -> None:
        sys.stdin.read()
        stop.set()

    threading.Thread(target=wait_for_end, daemon=True).start()
    with open_index(mongo, chroma) as store:
        store.bind(FINGERPRINT, SPACES)
        while not stop.is_set():
            turn += 1
            ids = rng.sample(IDS, rng.randint(1, 15))
            kind = "delete" if rng.random() < 0.25 else "write"
            print(json.dumps({"begin": turn, "kind": kind, "ids": ids}), flush=True)
            try:
                store.delete(ids) if kind == "delete" else store.upsert([record(id, turn) for id in ids])
            except BackendUnavailableError:
                time.sleep(0.2)
                continue
            print(json.dumps({"done": turn}), flush=True)


@dataclass
class Servers:
    """A mongod and a Chroma server that can be killed and started again."""

    folder: Path
    mongo: MongoServer = field(init=False)
    chroma: str = field(init=False)
    _running: dict[str, "subprocess.Popen[bytes]"] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.mongo = MongoServer(self.folder)
        self.chroma = f"127.0.0.1:{free_port()}"

    def start(self, name: str) -> None:
        command = self.mongo.command() if name == "mongo" else chroma_command(self.folder, self.chroma)
        with (self.folder / f"{name}.log").open("ab") as log:
            self._running[name] = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
        if name == "mongo":
            self.mongo.wait_until_ready()
            return
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            with suppress(httpx.HTTPError):
                if httpx.get(f"http://{self.chroma}/api/v2/heartbeat", timeout=5).is_success:
                    return
            time.sleep(0.1)
        raise RuntimeError("Chroma did not start")

    @contextmanager
    def stopped(self, name: str) -> Iterator[None]:
        """Stop one within the block, as a disk that hangs does."""
        self._running[name].send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self._running[name].send_signal(signal.SIGCONT)

    def kill(self, name: str) -> None:
        self._running[name].kill()
        self._running[name].wait()


@contextmanager
def servers(folder: Path) -> Iterator[Servers]:
    check_server_mark()
    both = Servers(folder)
    try:
        both.start("mongo")
        both.start("chroma")
        yield both
    finally:
        for name in list(both._running):
            both.kill(name)


@dataclass
class Writer:
    """An indexing process, and what it has said: the turns that each document may be of."""

    process: "subprocess.Popen[str]"
    may_be: dict[str, set[int]]
    _pending: dict[int, tuple[str, list[str]]] = field(default_factory=dict)
    _reader: threading.Thread = field(init=False)
    turns: int = 0

    def __post_init__(self) -> None:
        self._reader = threading.Thread(target=self._listen)
        self._reader.start()

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            with suppress(ValueError):
                said = json.loads(line)
                if "begin" in said:
                    self._pending[said["begin"]] = (said["kind"], said["ids"])
                    for id in said["ids"]:
                        self.may_be[id].add(GONE if said["kind"] == "delete" else said["begin"])
                else:
                    self.turns += 1
                    kind, ids = self._pending.pop(said["done"])
                    for id in ids:
                        self.may_be[id] = {GONE if kind == "delete" else said["done"]}

    def wait_for_turns(self, turns: int) -> None:
        deadline = time.monotonic() + 60
        while self.turns < turns and self.process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.005)

    def end(self, *, kill: bool) -> list[int]:
        """End the process; returns the turns that it had begun and not said to be done."""
        if kill:
            self.process.send_signal(signal.SIGKILL)
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(120)
        self._reader.join()
        return list(self._pending)


@dataclass
class Harness:
    """Rounds of killing against one pair of servers, or one file."""

    both: Servers | PostgresServer | Path
    seed: int
    may_be: dict[str, set[int]] = field(default_factory=lambda: {id: {GONE} for id in IDS})
    found: dict[str, int] = field(
        default_factory=lambda: dict.fromkeys(("documents", "cut off", "unfinished", "orphans", "stale"), 0)
    )

    @property
    def place(self) -> tuple[str, str]:
        """What `open_index` takes."""
        if isinstance(self.both, PostgresServer):
            return "postgresql", self.both.address
        return (
            ("sqlite", str(self.both)) if isinstance(self.both, Path) else (self.both.mongo.address, self.both.chroma)
        )

    def round(self, number: int, target: Target) -> None:
        rng = random.Random(f"{self.seed} {number}")
        start = (number + 1) * 100_000
        arguments = [*self.place, str(self.seed + number), str(start)]
        command = [sys.executable, "-m", "tests.support.chaos", "--work", *arguments]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        writer = Writer(subprocess.Popen(command, **pipes), self.may_be)  # type: ignore[call-overload]
        try:
            writer.wait_for_turns(1)
            time.sleep(rng.uniform(0.0, 0.6))
            if isinstance(self.both, PostgresServer):
                if target == "postgresql disk":
                    with self.both.stopped():
                        time.sleep(rng.uniform(1.0, 4.0))
                elif target == "postgresql server":
                    self.both.kill()
                    time.sleep(rng.uniform(0.0, 0.5))
                    self.both.start()
                if target != "postgresql":
                    writer.wait_for_turns(writer.turns + 5)
            elif not isinstance(self.both, Path) and target != "writer":
                self.both.kill(target)
                time.sleep(rng.uniform(0.0, 0.5))
                self.both.start(target)
                writer.wait_for_turns(writer.turns + 5)
        finally:
            self.found["cut off"] += len(writer.end(kill=target in ("writer", "sqlite", "postgresql")))
        assert target not in ("postgresql server", "postgresql disk") or writer.process.returncode == 0, (
            "the writer did not go on"
        )
        with open_index(*self.place) as store:
            self.check(store)
            assert isinstance(store, MongoChromaStore) or store.check().clean, "it needs a repair"
            report = store.check(repair=True)
            assert not report.missing, report.missing
            for kind in ("unfinished", "orphans", "stale"):
                self.found[kind] += len(getattr(report, kind))
            second = store.check()
            assert second.clean, second
            assert second.in_progress == 0
            self.check(store)

    def check(self, store: AnyStore) -> None:
        """Every document is of a turn that it may be of, in text, metadata and all vectors, and is there once."""
        ids = list(store.ids())
        documents = {document.id: document for document in store.get(ids)}
        assert len(ids) == len(set(ids)) == len(documents) == len(store)
        turns = {id: int(str(documents[id].text).rpartition(" ")[2]) if id in documents else GONE for id in IDS}
        for id, turn in turns.items():
            assert turn in self.may_be[id], (id, turn, self.may_be[id])
            self.may_be[id] = {turn}
        there = [record(id, turn) for id, turn in turns.items() if turn != GONE]
        for each in (IMAGE, TEXT) if there else ():
            queries = np.stack([one.vectors[each] for one in there])
            for one, hits in zip(there, store.search(each, queries, limit=len(IDS) * 2)):
                assert sorted(hit.id for hit in hits) == sorted(documents), (one.document.id, len(hits))
                assert hits[0].id == one.document.id
                assert abs(hits[0].score - 1.0) < 1e-4
                assert documents[one.document.id] == one.document
        for one in () if isinstance(store, MongoChromaStore) else there:
            found = [hit.id for hit in store.search_words(str(one.document.text), limit=len(IDS) * 2).hits]
            assert found[0] == one.document.id
            assert sorted(found) == sorted(documents)
        for number in (0, 1):
            own = sorted(id for id, turn in turns.items() if turn != GONE and turn % 2 == number)
            restricted = restricted_store(store, readable([_reader(number)]))
            seen = [restricted.ids(), (hit.id for hit in restricted.search(TEXT, QUERY, limit=len(IDS) * 2)[0])]
            if isinstance(restricted, WordSearch):
                seen.append(hit.id for hit in restricted.search_words("turn", limit=len(IDS) * 2).hits)
            assert [sorted(ids) for ids in seen] == [own] * len(seen)
        self.found["documents"] += len(there)


def run(folder: Path, seed: int, targets: Sequence[Target]) -> dict[str, int]:
    """Kill one target after the other, of `SERVED`, of `POSTGRES` or ``sqlite`` alone, and return what was found.

    AssertionError where something was lost.
    """
    with ExitStack() as running:
        place: Servers | PostgresServer | Path
        if set(targets) <= {"sqlite"}:
            place = folder / "index"
        elif set(targets) <= set(POSTGRES):
            place = running.enter_context(postgres_server(fsync="on"))
            place.make_database("chaos")
        else:
            place = running.enter_context(servers(folder))
        harness = Harness(place, seed)
        for number, target in enumerate(targets):
            harness.round(number, target)
            if number % 10 == 9:
                print(f"{target}: {number + 1} of {len(targets)} {harness.found}", flush=True)
        return harness.found


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.support.chaos", description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=10)
    parser.add_argument("--kill", choices=TARGETS, default="writer")
    parser.add_argument("--work", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work:
        mongo, chroma, seed, turn = options.work
        work(mongo, chroma, int(seed), int(turn))
        return
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        found = run(Path(folder), options.seed, [options.kill] * options.count)
    print(f"{options.kill} killed {options.count} times, seed {options.seed}: nothing lost; {found}")
    print(f"{time.monotonic() - started:.0f} s")


if __name__ == "__main__":
    main()
