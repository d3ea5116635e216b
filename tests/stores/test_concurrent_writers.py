"""What writers do to each other: on machines with other clocks, taken for dead too early, killed, or late."""

import itertools
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, TypeVar

import numpy as np
import pytest
from vlmsearch_mocks import MockEncoder
from vlmsearch_mocks.chroma import MockChroma, MockChromaConnection
from vlmsearch_mocks.contracts.records import IMAGE, SPACES, TEXT, make_records

from tests.support.hammer import DOCUMENTS, NumberEncoder, check_page, make
from tests.support.worlds import KINDS, Kind, file_world, mock_world
from vlmsearch import Document, Field, Pipeline, Record
from vlmsearch.registry import open_store
from vlmsearch.stores import writers
from vlmsearch.stores.chroma.collections import ChromaCollection
from vlmsearch.stores.chroma.store import ChromaStore
from vlmsearch.stores.mongodb.store import MongoStore
from vlmsearch.stores.mongodb_chroma.store import MongoChromaStore

T = TypeVar("T")
AT_ONCE = "import vlmsearch.stores.writers as w; w.wait_for_requests = lambda: None"
AHEAD = """
import datetime, socket, types
import vlmsearch.stores.mongodb.journal as j
class Ahead(datetime.datetime):
    @classmethod
    def now(cls, tz=None): return datetime.datetime.now(tz) + datetime.timedelta(seconds={seconds})
j.datetime = Ahead
socket.gethostname = lambda: "elsewhere"
"""


def elsewhere(code: str) -> "subprocess.CompletedProcess[str]":
    """Run code in another process."""
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)


@contextmanager
def interrupted(collection: str, first: Callable[[], object]) -> Iterator[None]:
    """Something else is done before the first write to a collection."""
    waiting = [first]

    def around(name: str) -> Callable[..., object]:
        write = getattr(ChromaCollection, name)

        def call(self: ChromaCollection, *arguments: object) -> object:
            if waiting and self.name.endswith(collection):
                waiting.pop()()
            return write(self, *arguments)

        return call

    with pytest.MonkeyPatch.context() as patch:
        for name in ("_write", "insert", "delete"):
            patch.setattr(ChromaCollection, name, around(name))
        yield


@pytest.fixture
def address(chroma_address: str, tmp_path: Path) -> str:
    return f"//{chroma_address}/writers-{abs(hash(str(tmp_path))) % 10**9}"


# ---- a Chroma server


@pytest.mark.parametrize("collection", [".documents", ".minilm.text"])
@pytest.mark.parametrize("other", ["store.check(repair=True)", "store.delete(['x'])"])
def test_what_was_added_is_found_whatever_another_machine_does_meanwhile(
    other: str, collection: str, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = (
        f"{AT_ONCE}\nfrom vlmsearch.stores.chroma.store import ChromaStore as S\nwith S({address!r}) as store: {other}"
    )
    real = time.time

    def meanwhile() -> None:
        done = elsewhere(code)
        assert done.returncode == 0, done.stderr

    with ChromaStore(address) as store:
        pipeline = Pipeline(MockEncoder(), store)
        assert pipeline.add([Document("y", text="a yellow ring")]).added == 1
        with ChromaStore(address) as other_store, interrupted(collection, meanwhile), monkeypatch.context() as patch:
            patch.setattr(time, "time", lambda: real() - 660)
            assert Pipeline(MockEncoder(), other_store).add([Document("x", text="a red star")]).added == 1
        assert pipeline.search("a red star", min_score=0)[0].document.id == "x"
        assert pipeline.add([Document("x", text="a red star")]).unchanged == 1
        report = pipeline.check()
        assert report.clean
        assert report.in_progress == 0


def test_a_repair_does_not_overwrite_what_is_written_meanwhile(address: str) -> None:
    old, new = make_records(3, (IMAGE, TEXT)), make_records(3, (IMAGE, TEXT), seed=9)
    with ChromaStore(address) as store:
        store.bind("e", SPACES)
        store.upsert(old)
        store._vectors.remove_from(TEXT, [("id-1", store.read_rows(["id-1"])["id-1"].version)])
        written: list[None] = []
        with (
            ChromaStore(address) as repairing,
            interrupted(".documents", lambda: written.append(store.upsert(new))),  # type: ignore[func-returns-value]
        ):
            assert repairing.check(repair=True).missing
        if not written:
            store.upsert(new)
        assert store.get(["id-1"]) == [new[1].document]
        assert store.search(TEXT, new[1].vectors[TEXT][None], limit=1)[0][0].score == pytest.approx(1.0, abs=1e-4)
        assert store.check().missing == ()


def test_a_document_that_lacks_a_vector_is_indexed_again(address: str) -> None:
    with ChromaStore(address) as store:
        pipeline = Pipeline(MockEncoder(), store)
        document = Document("x", text="a red star")
        pipeline.add([document, Document("y", text="a yellow ring")])
        store._vectors.remove_from(TEXT, [("x", store.read_rows(["x"])["x"].version)])
        report = pipeline.add([document, Document("y", text="a yellow ring")])
        assert (report.updated, report.unchanged) == (1, 1)
        assert pipeline.check().clean


def test_a_write_that_a_killed_process_left_is_named_and_ended(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vlmsearch.stores.writers.wait_for_requests", lambda: None)
    code = (
        "import os\n"
        "from vlmsearch.stores.chroma.store import ChromaStore\n"
        "from vlmsearch_mocks.contracts.records import IMAGE, SPACES, TEXT, make_records\n"
        f"store = ChromaStore({address!r})\n"
        "store.bind('e', SPACES)\n"
        "store._name = lambda *_, **__: os.kill(os.getpid(), 9)\n"
        "store.upsert(make_records(20, (IMAGE, TEXT)))\n"
    )
    assert elsewhere(code).returncode == -9
    with ChromaStore(address) as store:
        (unfinished,) = store.check().unfinished
        assert unfinished.startswith("write of 20 documents")
        assert store.check(repair=True).unfinished == (unfinished,)
        report = store.check()
        assert (report.clean, report.in_progress, sum(report.vectors.values())) == (True, 0, 0)


def test_two_writers_of_the_same_documents_leave_nothing_behind(address: str) -> None:
    with ChromaStore(address) as first, ChromaStore(address) as second:
        for store in (first, second):
            store.bind("e", SPACES)

        def write(store: ChromaStore, turn: int) -> None:
            for seed in range(turn, 16, 2):
                store.upsert(make_records(5, (IMAGE, TEXT), seed=seed))
                if seed % 3 == 2:
                    store.delete([f"id-{seed % 5}"])

        threads = [threading.Thread(target=write, args=(store, turn)) for turn, store in enumerate((first, second))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        report = first.check()
        assert report.clean
        assert (report.in_progress, report.missing) == (0, ())


# ---- pages and ids


@pytest.mark.parametrize("limit", [20, 150])
@pytest.mark.parametrize("kind", [*KINDS, "sqlite"])
def test_a_page_is_full_and_of_one_piece_though_its_documents_are_replaced_all_the_time(
    kind: Kind | Literal["sqlite"], limit: int, tmp_path: Path
) -> None:
    world = file_world(tmp_path) if kind == "sqlite" else mock_world(kind)
    rng = np.random.default_rng(limit)
    with world.open() as store, world.open() as other:
        for each in (store, other):
            each.bind(NumberEncoder.fingerprint, NumberEncoder.spaces)
        store.upsert([make(i, 0) for i in range(DOCUMENTS)])
        turns = itertools.count(1)

        def replacing(call: Callable[..., T]) -> Callable[..., T]:
            def answer(*arguments: Any, **options: Any) -> T:
                found = call(*arguments, **options)
                turn = next(turns)
                other.upsert([make(int(i), turn) for i in rng.choice(DOCUMENTS, 20, replace=False)])
                return found

            return answer

        for name in ("search", "compare"):
            setattr(store, name, replacing(getattr(store, name)))
        pipeline = Pipeline(NumberEncoder(), store)
        for number in range(5):
            check_page(pipeline, f"query {number}", limit)


@pytest.mark.parametrize("kind", KINDS)  # a search of `sqlite:` is one transaction, which sees no such change
def test_a_page_is_filled_from_further_down_where_documents_are_deleted_or_fall_back(kind: Kind) -> None:
    world = mock_world(kind)
    with world.open() as store, world.open() as other:
        for each in (store, other):
            each.bind(NumberEncoder.fingerprint, NumberEncoder.spaces)
        store.upsert([make(i, 0) for i in range(300)])
        (query,) = NumberEncoder().encode_texts(["a query"])["clip"]
        nearest = [hit.id for hit in store.search(Field("clip", "text"), query[None], limit=300)[0]]
        search = store.search

        def changed_meanwhile(*arguments: Any, **options: Any) -> Any:
            found = search(*arguments, **options)
            store.search = search  # type: ignore[method-assign]
            other.delete(nearest[:5])
            far = NumberEncoder().encode_texts(["a query"])["clip"][0] * -1
            moved = [make(int(id.partition("-")[2]), 1) for id in nearest[5:10]]
            other.upsert([Record(each.document, dict.fromkeys(each.vectors, far)) for each in moved])
            return found

        store.search = changed_meanwhile  # type: ignore[method-assign]
        pipeline = Pipeline(NumberEncoder(), store)
        page = [match.document.id for match in pipeline.search("a query", limit=150, min_score=0)]
        assert page == [match.document.id for match in pipeline.search("a query", limit=150, min_score=0)]
        assert len(page) == 150
        assert not {*page} & {*nearest[:10]}


def test_ids_lists_every_document_that_nobody_touches_while_others_are_deleted() -> None:
    server = Deleting()
    store = ChromaStore(MockChromaConnection(server))
    store.bind("e", SPACES)
    records = [Record(Document(f"id-{i:06}"), {}) for i in range(20_500)]
    store.upsert(records)
    server.gone = {f"id-{i:06}" for i in range(250)}
    assert set(store.ids()) >= {record.document.id for record in records} - server.gone


class Deleting(MockChroma):
    """A server on which, after each look at all rows, someone deletes some."""

    gone: Collection[str] = ()

    def _get(self, *arguments: Any, **options: Any) -> dict[str, Any]:
        answer = super()._get(*arguments, **options)
        if options["ids"] is None and self.gone:
            self._delete(options["collection_id"], list(self.gone))
        return answer


# ---- MongoDB


def write_elsewhere_and_die(url: str, seconds: int) -> None:
    """A process of another machine, whose clock is ahead by so much, is killed while it writes."""
    code = AHEAD.format(seconds=seconds) + (
        "import os\n"
        "from vlmsearch.registry import open_store\n"
        "from vlmsearch.stores.mongodb.connection import MongoConnection\n"
        "from vlmsearch_mocks.contracts.records import IMAGE, SPACES, TEXT, make_records\n"
        f"store = open_store({url!r})\n"
        "store.bind('e', SPACES)\n"
        "run = MongoConnection.run\n"
        "def dying(self, collection, operation, call):\n"
        "    if operation in ('commit documents', 'write documents'): os.kill(os.getpid(), 9)\n"
        "    return run(self, collection, operation, call)\n"
        "MongoConnection.run = dying\n"
        "store.upsert(make_records(5, (IMAGE, TEXT)))\n"
    )
    done = elsewhere(code)
    assert done.returncode == -9, done.stderr


@pytest.fixture(params=["mongodb", "mongodb+chroma"])
def url(request: pytest.FixtureRequest, mongo_address: str, chroma_address: str, tmp_path: Path) -> str:
    base = f"{request.param}://{mongo_address}/writers-{abs(hash(str(tmp_path))) % 10**9}"
    return base if request.param == "mongodb" else f"{base}?chroma=http://{chroma_address}"


@pytest.mark.parametrize("seconds", [-3600, 0, 3600])
def test_when_a_write_counts_as_cut_off_does_not_depend_on_the_clock_of_its_machine(
    seconds: int, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_elsewhere_and_die(url, seconds)
    with open_store(url) as store:
        assert isinstance(store, (MongoStore, MongoChromaStore))
        assert (store.check().in_progress, store.check().clean) == (1, True)
        monkeypatch.setattr(writers, "PATIENCE_SECONDS", 0.001)
        assert len(store.check().unfinished) == 1
        store.check(repair=True)
        monkeypatch.undo()
        assert (store.check().in_progress, store.check().clean) == (0, True)
        store.upsert(make_records(5, (IMAGE, TEXT)))
        assert store.check().documents == 5


@pytest.mark.parametrize("kind", [*KINDS, "sqlite"])
def test_those_who_have_an_index_open_see_its_tuning_at_once(kind: Kind | Literal["sqlite"], tmp_path: Path) -> None:
    world = file_world(tmp_path) if kind == "sqlite" else mock_world(kind)
    with world.open() as store, world.open() as other:
        for each in (store, other):
            each.bind("encoder 1", SPACES)
        for values in ({"words": 0.5}, {"min_score": 0.25}, {}):
            store.tune(values)
            manifest = other.manifest()
            assert manifest is not None
            assert manifest.tuning == values
        threads = [
            threading.Thread(target=each.tune, args=({"words": n},)) for n in range(4) for each in (store, other)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert store.manifest() == other.manifest()
        store.tune({"words": 9.0})
        built = store.beside("encoder 2", SPACES)
        store.freeze(built)
        store.switch(built)
        manifest, before = store.manifest(), other.manifest()
        assert manifest is not None
        assert before is not None
        assert (manifest.fingerprint, manifest.tuning) == ("encoder 2", {})
        assert before.fingerprint == "encoder 1"
