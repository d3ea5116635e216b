"""Readers change while others search, replace and delete: nothing is shown to who had lost it before the call began."""

from __future__ import annotations

import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from vlmsearch_mocks import MockEncoder

from vlmsearch import Document, Pipeline, VlmsearchError
from vlmsearch.indexing.metadata import change_metadata
from vlmsearch.registry import open_store

IDS = [f"note-{n}" for n in range(12)]
WRITER = """
import sys
from vlmsearch import Document, Pipeline
from vlmsearch.registry import open_store
from vlmsearch_mocks import MockEncoder

with Pipeline(MockEncoder(), open_store(sys.argv[1])) as pipeline:
    print("ready", flush=True)
    n = 0
    while True:
        n += 1
        pipeline.add([Document(f"note-{n % 12}", text=f"pay of other {n}")])
"""


class Ledger:
    """The readers that are known to be set: each document is changed by one thread alone."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._readers: dict[str, frozenset[str] | None] = {}
        self._turns: dict[str, int] = {}

    def note(self, id: str, readers: frozenset[str] | None) -> None:
        """Note readers that are set; None before they change."""
        with self._lock:
            self._readers[id], self._turns[id] = readers, self._turns.get(id, 0) + 1

    def hidden_from(self, name: str) -> dict[str, int]:
        """Return the documents that a principal cannot read now, with the numbers of their changes."""
        with self._lock:
            return {id: self._turns[id] for id, names in self._readers.items() if names and name not in names}

    def still(self, hidden: dict[str, int]) -> set[str]:
        """Return those that have not changed since."""
        with self._lock:
            return {id for id, turn in hidden.items() if self._turns[id] == turn}


@pytest.fixture(params=["mock:", "sqlite:"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return "mock:" if request.param == "mock:" else f"sqlite:{tmp_path / 'index'}"


@pytest.fixture
def _other_process(url: str) -> Iterator[None]:
    """Replace documents without naming readers, from another process."""
    if url == "mock:":
        yield
        return
    with subprocess.Popen([sys.executable, "-c", WRITER, url], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield
        assert process.poll() is None, "the writer ended early"
        process.kill()


@pytest.mark.parametrize("seconds", [3.0, pytest.param(120.0, marks=pytest.mark.exhaustive)])
@pytest.mark.usefixtures("_other_process")
def test_nothing_is_shown_to_who_had_lost_it(url: str, seconds: float) -> None:
    ledger, is_over = Ledger(), threading.Event()
    with Pipeline(MockEncoder(), open_store(url)) as whole:
        whole.add([Document(id, text="pay", readers=["group:a"]) for id in IDS])

        def change(ids: list[str], seed: int) -> int:
            rng, count = random.Random(seed), 0
            while not is_over.is_set():
                id, names = rng.choice(ids), frozenset(rng.choice([["group:a"], ["group:b"], ["group:c", "group:b"]]))
                ledger.note(id, None)
                try:
                    if rng.random() < 0.5:
                        change_metadata(whole.store, [id], {"readers": tuple(sorted(names))})
                    else:
                        whole.add([Document(id, text=f"pay {rng.random()}", readers=names)])
                    if whole.get(id)[0].readers == names:
                        ledger.note(id, names)
                except VlmsearchError:  # others kept changing it
                    pass
                whole.add([Document(other, text=f"pay {rng.random()}") for other in rng.sample(IDS, 2)])
                count += 1
            return count

        def look(name: str) -> int:
            handle, count = whole.restricted([name]), 0
            ways: tuple[Callable[[], Iterable[str]], ...] = (
                lambda: [match.document.id for match in handle.search("pay", limit=20, min_score=0)],
                lambda: [document.id for document in handle.get(IDS)],
                lambda: [document.id for document in handle.documents()],
                lambda: [record.document.id for record in handle.store.records(IDS)],
                lambda: [labelled.document.id for labelled in handle.label(["pay"], min_score=0)],
                lambda: [id for id in IDS if handle.explain("pay", id).outcome != "absent"],
                lambda: handle.store.stamps(IDS),
            )
            while not is_over.is_set():
                for way in ways:
                    hidden = ledger.hidden_from(name)
                    shown = {*way()}
                    assert not ledger.still(hidden) & shown, (name, shown)
                count += 1
            return count

        with ThreadPoolExecutor(5) as pool:
            changing = [pool.submit(change, IDS[n::2], n) for n in range(2)]
            looking = [pool.submit(look, f"group:{letter}") for letter in "abc"]
            end = time.monotonic() + seconds
            while time.monotonic() < end and not any(task.done() for task in (*changing, *looking)):
                time.sleep(0.05)
            is_over.set()
            assert all(task.result() for task in (*changing, *looking))
