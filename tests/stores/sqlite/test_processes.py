"""Several processes at one file: readers beside a writer, writers in turns, and one that is interrupted."""

import json
import random
import signal
import sqlite3
import subprocess
import sys
import time
import weakref
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from threading import Barrier

import pytest
from vlmsearch_mocks.contracts.records import IMAGE, SPACES, TEXT, make_records

from vlmsearch import BackendUnavailableError
from vlmsearch.stores.sqlite.store import SqliteStore

COMMON = """
import json, sys, time
from vlmsearch.stores.filters import parse_filter
from vlmsearch.stores.sqlite.store import SqliteStore
from vlmsearch_mocks.contracts.records import IMAGE, SPACES, TEXT, make_records
path = sys.argv[1]
"""
READ = """
where = parse_filter({"number": {"$gte": 0}})
(query,) = make_records(1, (IMAGE,))
size, looks, seen = int(sys.argv[2]), 0, {}
with SqliteStore(path) as store:
    print("ready", flush=True)
    while len(seen) == 0 or max(seen) < size:
        count = len(store)
        assert count % 100 == 0, f"half a batch: {count}"
        seen.setdefault(count, time.time())
        found = store.search(IMAGE, query.vectors[IMAGE][None], limit=250, where=where if looks % 2 else None)[0]
        assert len(found) >= min(count, 250)
        assert len(found) in (0, 100, 200, 250)
        if count:
            hits = store.search_words("text", limit=20).hits
            assert len(hits) == 20
            assert len(store.get([hit.id for hit in hits])) == 20
        looks += 1
print(json.dumps([looks, sorted(seen.items())]))
"""
CREATE = """
number = int(sys.argv[2])
records = make_records(80, (IMAGE, TEXT))[number * 10 : number * 10 + 10]
print("ready", flush=True)
sys.stdin.readline()
with SqliteStore(path) as store:
    store.bind("e", SPACES)
    store.upsert(records)
"""
WRITE = """
records = make_records(300, (IMAGE, TEXT))
with SqliteStore(path) as store:
    store.bind("e", SPACES)
    print("ready", flush=True)
    turn = 0
    try:
        while True:
            turn += 1
            store.upsert(make_records(300, (IMAGE, TEXT), seed=turn, metadata=[{"turn": turn}] * 300))
    except KeyboardInterrupt:
        print(turn, flush=True)
        print(len(store), flush=True)
        store.upsert(make_records(10, (IMAGE, TEXT), metadata=[{"turn": 0}] * 10))
"""


@contextmanager
def process(code: str, *arguments: object) -> Iterator["subprocess.Popen[str]"]:
    """A process that has said that it is ready."""
    command = [sys.executable, "-c", COMMON + code, *map(str, arguments)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as running:
        try:
            assert running.stdout
            assert running.stdout.readline() == "ready\n", running.communicate()[1]
            yield running
        finally:
            running.kill()


def output(running: "subprocess.Popen[str]") -> str:
    out, err = running.communicate(timeout=300)
    assert running.returncode == 0, err
    return out


@pytest.mark.slow
@pytest.mark.parametrize("size", [2000, pytest.param(20_000, marks=pytest.mark.exhaustive)])
def test_readers_see_whole_batches_within_a_second_of_the_commit(tmp_path: Path, size: int) -> None:
    path, records, committed = tmp_path / "index", make_records(size, (IMAGE, TEXT)), dict[int, float]()
    with SqliteStore(str(path)) as store:
        store.bind("e", SPACES)
        with ExitStack() as ended:
            readers = [ended.enter_context(process(READ, path, size)) for _ in range(4)]
            for start in range(0, size, 100):
                store.upsert(records[start : start + 100])
                committed[start + 100] = time.time()
            answers = [json.loads(output(each)) for each in readers]
    late = [when - committed[count] for _, seen in answers for count, when in seen if count]
    assert late
    print(f"{[looks for looks, _ in answers]} looks; last seen {max(late):.3f} s after its commit")
    assert max(seen[-1][1] for _, seen in answers) - committed[size] < 1


@pytest.mark.slow
def test_processes_that_create_one_index_at_once_all_write_to_it(tmp_path: Path) -> None:
    with ExitStack() as ended:
        running = [ended.enter_context(process(CREATE, tmp_path / "index", number)) for number in range(8)]
        for each in running:
            assert each.stdin
            each.stdin.write("go\n")
            each.stdin.flush()
        for each in running:
            output(each)
    with SqliteStore(str(tmp_path / "index")) as store:
        assert sorted(store.ids()) == sorted(f"id-{i}" for i in range(80))
        assert store.check().clean


@pytest.mark.slow
def test_those_who_make_one_index_at_once_wait_for_each_other(tmp_path: Path) -> None:
    def make(path: Path, together: Barrier) -> None:
        with SqliteStore(str(path)) as store:
            together.wait()
            store.bind("e", SPACES)

    with ThreadPoolExecutor(8) as threads:
        for number in range(80):
            together = Barrier(8)
            for done in [threads.submit(make, tmp_path / str(number), together) for _ in range(8)]:
                done.result()


@pytest.mark.slow
def test_a_writer_waits_for_one_that_has_the_lock_and_says_so_where_that_is_too_long(tmp_path: Path) -> None:
    path = tmp_path / "index"
    with SqliteStore(str(path)) as store:
        store.bind("e", SPACES)
        store.upsert(make_records(10, (IMAGE, TEXT)))
        with closing(sqlite3.connect(path, isolation_level=None)) as holder, process(WRITE, path) as writer:
            holder.execute("BEGIN IMMEDIATE")
            with SqliteStore(f"{path}", timeout=0.2) as other:
                other.bind("e", SPACES)
                with pytest.raises(BackendUnavailableError, match=r"another process has been writing for 0.2 s"):
                    other.upsert(make_records(1, (IMAGE, TEXT)))
                assert len(other) in (10, 300), "reading goes on"
            time.sleep(5)
            before = store.get(["id-299"])
            holder.execute("COMMIT")
            deadline = time.monotonic() + 20
            while store.get(["id-299"]) == before and time.monotonic() < deadline:
                time.sleep(0.02)
            assert store.get(["id-299"]) != before
            assert writer.poll() is None


@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(i, marks=pytest.mark.exhaustive) for i in range(2, 20))])
def test_an_interrupted_write_is_done_whole_or_not_at_all(tmp_path: Path, seed: int) -> None:
    path = tmp_path / "index"
    with process(WRITE, path) as writer:
        time.sleep(random.Random(seed).uniform(0.05, 0.5))
        writer.send_signal(signal.SIGINT)
        turn, count = map(int, output(writer).split())
    assert count in (0, 300)
    with SqliteStore(str(path)) as store:
        turns = {document.metadata["turn"] for document in store.get([f"id-{i}" for i in range(10, 300)])}
        assert turns in (set(), {turn - 1}, {turn})
        assert store.check().clean


def test_no_code_of_python_runs_where_a_cursor_ends(tmp_path: Path) -> None:
    with SqliteStore(str(tmp_path / "index")) as store:
        store.bind("encoder 1", SPACES)
        with store._database.reading("count") as connection:
            cursors = [connection.execute("SELECT 1") for _ in range(200)]
            callbacks = {known.__callback__ for cursor in cursors for known in weakref.getweakrefs(cursor)}
            assert callbacks == {None}, "an interrupt that came in one would be lost"
        assert len(store) == 0
