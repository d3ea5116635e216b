"""What the stores do when their servers fail: on the mocks, told to fail at every single call."""

import inspect
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
import vlmsearch_mocks
from chromadb.errors import ChromaError
from vlmsearch_mocks import Faults, MockEncoder, MockStore
from vlmsearch_mocks.contracts.records import IMAGE, SPACES, TEXT, make_records, unit_vectors
from vlmsearch_mocks.faults import OPERATIONS, FaultKind, Server
from vlmsearch_mocks.pair import mock_chroma_store, mock_mongo_store

from tests.support.threads import in_this_thread
from vlmsearch import BackendError, BackendUnavailableError, ConfigError, Document, Pipeline, Record
from vlmsearch.stores.mongodb_chroma.store import MongoChromaStore

pytest_plugins = ["vlmsearch_mocks.fixtures"]
OLD = make_records(4, (IMAGE, TEXT))
NEW = make_records(6, (IMAGE, TEXT), seed=40, metadata=[{"number": -i - 1} for i in range(6)])


def filled(*, retries: int = 2) -> MockStore:
    store = MockStore(retries=retries)
    store.bind("encoder 1", SPACES)
    store.upsert(OLD)
    store.faults.clear()
    return store


def change(store: MongoChromaStore) -> None:
    store.upsert(NEW)


def remove(store: MongoChromaStore) -> None:
    store.delete(["id-1", "id-2"])


def check_whole(store: MongoChromaStore) -> None:
    """Every document is there as it was or as it became, in the vectors, the text and the metadata alike."""
    for id in list(store.ids()):
        (document,) = store.get([id])
        number = int(id.partition("-")[2])
        candidates = [r for r in (*OLD[number : number + 1], NEW[number]) if r.document.metadata == document.metadata]
        for record in candidates:
            for field in (IMAGE, TEXT):
                hits = store.search(field, record.vectors[field][None], limit=10)[0]
                assert [hit.id for hit in hits].count(id) == 1
                assert hits[0].id == id
                assert hits[0].score == pytest.approx(1.0, abs=1e-5)


def calls_of(action: Callable[[MongoChromaStore], None]) -> list[str]:
    store = filled()
    action(store)
    return list(store.faults.calls)


@pytest.mark.parametrize("action", [change, remove])
@pytest.mark.parametrize("kind", ["unreachable", "lost reply", "partial write", "timeout"])
def test_a_single_failure_of_any_call_changes_nothing_of_the_outcome(
    action: Callable[[MongoChromaStore], None], kind: FaultKind, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("time.sleep", in_this_thread(lambda _: None))
    for nth, call in enumerate(calls_of(action), 1):
        store = filled()
        server: Server = "mongo" if call.startswith("mongo") else "chroma"
        before = [each.split(".")[0] for each in calls_of(action)[:nth]].count(server)
        store.faults.fail(server, kind=kind, nth=before)
        action(store)
        assert len(store) == (6 if action is change else 2), call
        check_whole(store)
        assert store.check().clean, call


@pytest.mark.parametrize("action", [change, remove])
@pytest.mark.parametrize("kind", ["unreachable", "lost reply", "partial write", "refused"])
def test_after_a_failure_for_good_at_any_call_all_documents_are_whole_and_repair_ends_clean(
    action: Callable[[MongoChromaStore], None], kind: FaultKind
) -> None:
    for nth, call in enumerate(calls_of(action), 1):
        store = filled(retries=0)
        server: Server = "mongo" if call.startswith("mongo") else "chroma"
        before = [each.split(".")[0] for each in calls_of(action)[:nth]].count(server)
        store.faults.fail(server, kind=kind, nth=before, times=1000)
        with pytest.raises(BackendError, match=r"mock"):
            action(store)
        store.faults.clear()
        check_whole(store)
        report = store.check(repair=True)
        assert not report.missing, call
        assert store.check().clean, call
        check_whole(store)
        action(store)
        assert len(store) == (6 if action is change else 2)
        assert store.check().clean


@pytest.mark.parametrize("server", ["mongo", "chroma"])
def test_after_a_failure_at_any_call_the_next_run_takes_out_what_went_bad(server: Server, tmp_path: Path) -> None:
    good, bad = tmp_path / "good.txt", tmp_path / "bad.txt"

    def gone_bad() -> tuple[Pipeline, MockStore]:
        store = MockStore(retries=0)
        good.write_text("a star")
        bad.write_text("a ring")
        pipeline = Pipeline(MockEncoder(), store)
        pipeline.index(tmp_path)
        bad.write_bytes(b"\xff\xfe")
        store.faults.clear()
        return pipeline, store

    pipeline, store = gone_bad()
    pipeline.index(tmp_path)
    for nth in range(1, 1 + sum(call.startswith(server) for call in store.faults.calls)):
        pipeline, store = gone_bad()
        store.faults.fail(server, nth=nth, times=1000)
        with pytest.raises(BackendUnavailableError):
            pipeline.index(tmp_path)
        store.faults.clear()
        pipeline.index(tmp_path)
        assert list(store.ids()) == [str(good)], nth
        assert [reject.id for reject in store.rejects()] == [str(bad)], nth


def test_unavailable_says_where_and_what(vlmsearch_store: MockStore, vlmsearch_faults: Faults) -> None:
    vlmsearch_store.bind("encoder 1", SPACES)
    vlmsearch_faults.fail("mongo", "find", times=100)
    with pytest.raises(BackendUnavailableError, match=r"mongodb://mock/test could not be reached to read documents"):
        vlmsearch_store.get(["a"])
    vlmsearch_faults.clear()
    vlmsearch_faults.fail("chroma", "upsert", kind="timeout", times=100)
    with pytest.raises(BackendUnavailableError, match=r"mock chroma did not answer in time to write 1 rows"):
        vlmsearch_store.upsert(OLD[:1])


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"server": "mongodb"}, r"no server 'mongodb' can fail; there are mongo, chroma"),
        ({"operation": "upsret"}, r"no operation 'upsret' can fail; there are add, .*upsert"),
        ({"operation": "bulk_write"}, r"no operation 'bulk_write' can fail"),
        ({"kind": "time out"}, r"no kind 'time out' can fail; there are unreachable, timeout, "),
    ],
)
def test_a_fault_that_could_never_happen_is_refused(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        Faults().fail(**{"server": "chroma", "operation": "upsert", **given})


def test_stale_reads_need_a_mock_to_read_from() -> None:
    with pytest.raises(ConfigError, match=r"no mock of 'mongo' has these faults; there are none"):
        Faults().read_stale("mongo", 1)


@pytest.mark.parametrize("server", OPERATIONS)
def test_all_that_the_mocks_do_can_fail(server: Server) -> None:
    source = Path(inspect.getfile(vlmsearch_mocks)).with_name(f"{server}.py").read_text(encoding="utf-8")
    assert sorted(set(re.findall(r'self\._call\("(\w+)"', source))) == list(OPERATIONS[server])


def test_every_fault_counts_the_calls_since_it_was_ordered() -> None:
    faults, failed = Faults(), []
    faults.fail("chroma", "upsert", nth=1)
    faults.fail("chroma", nth=3, kind="timeout")
    faults.fail("chroma", "upsert", nth=2, kind="refused")
    for operation in ("upsert", "upsert", "query", "query", "upsert"):
        try:
            faults.around("chroma", operation, lambda: None)
        except (httpx.HTTPError, ChromaError) as exc:
            failed.append(type(exc).__name__)
        else:
            failed.append("")
    assert failed == ["ConnectError", "AuthorizationError", "ReadTimeout", "", ""]


def test_a_search_that_reads_stale_vectors_gives_no_mixed_version(
    vlmsearch_store: MockStore, vlmsearch_faults: Faults
) -> None:
    vlmsearch_store.bind("encoder 1", SPACES)
    vlmsearch_store.upsert(OLD)
    vlmsearch_faults.read_stale("chroma", 3)
    vlmsearch_store.upsert(NEW[:4])
    hits = vlmsearch_store.search(IMAGE, NEW[2].vectors[IMAGE][None], limit=4)[0]
    assert len(hits) == 4
    assert hits[0].id == "id-2"
    assert hits[0].score == pytest.approx(1.0, abs=1e-5)


def test_an_index_of_the_server_is_waited_for_and_given_up_in_time() -> None:
    faults = Faults()
    faults.index_not_ready(3)
    store = mock_mongo_store(faults=faults, vector_search=True)
    store.bind("encoder 1", SPACES)
    assert store.describe()["search"].startswith("$vectorSearch")
    store.upsert(OLD)
    assert store.search(IMAGE, OLD[1].vectors[IMAGE][None], limit=1)[0][0].id == "id-1"
    assert "mongo.aggregate" in faults.calls
    impatient = mock_mongo_store(faults=faults, vector_search=True, index_timeout=0.1)
    faults.index_not_ready(10**9)
    with pytest.raises(BackendUnavailableError, match=r"vector index of clip/image.* in 0.1 s; .*index_timeout"):
        impatient.bind("encoder 1", SPACES)


def test_two_writers_on_one_id_end_in_one_of_the_two_states() -> None:
    store = filled()
    first, second = MongoChromaStore.over(store, "index"), MongoChromaStore.over(store, "index")
    inner = first.vectors().write

    def overtaken(records: list[Record], versions: dict[str, str]) -> None:
        inner(records, versions)
        if len(calls) < 3:
            calls.append(versions)
            second.upsert([Record(Document("id-0", text=f"other {len(calls)}"), {IMAGE: unit_vectors(1, seed=9)[0]})])

    calls: list[dict[str, str]] = []
    first.vectors().write = overtaken  # type: ignore[method-assign,assignment]
    first.upsert(NEW[:2])
    assert store.get(["id-0", "id-1"]) == [NEW[0].document, NEW[1].document]
    assert store.search(IMAGE, NEW[0].vectors[IMAGE][None], limit=1)[0][0].score == pytest.approx(1, abs=1e-5)
    assert store.check().clean


def test_a_writer_that_was_taken_for_dead_writes_once_more() -> None:
    store = filled()
    inner = store.vectors().write
    rounds: list[str] = []

    def slow(records: list[Record], versions: dict[str, str]) -> None:
        inner(records, versions)
        (version,) = set(versions.values())
        if not rounds:
            store.checker().roll_back(version, list(versions))
        rounds.append(version)

    store.vectors().write = slow  # type: ignore[method-assign,assignment]
    store.upsert(NEW)
    assert len(rounds) == 2
    check_whole(store)
    assert len(store) == 6
    assert store.check().clean


@pytest.mark.parametrize("kind", ["unreachable", "timeout", "lost reply", "partial write"])
def test_a_chroma_server_that_fails_for_a_moment_is_asked_again(
    kind: FaultKind, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("time.sleep", in_this_thread(lambda _: None))
    faults = Faults()
    store = mock_chroma_store(faults=faults)
    store.bind("encoder 1", SPACES)
    for operation in ("upsert", "get", "delete", "query", "count"):
        faults.fail("chroma", operation, kind=kind, times=2)
    store.upsert(NEW)
    assert store.delete([NEW[0].document.id]) == 1
    assert len(store.search(IMAGE, NEW[1].vectors[IMAGE][None], limit=99)[0]) == len(NEW) - 1
    assert store.check().missing == ()
    faults.fail("chroma", "upsert", kind=kind, times=100)
    with pytest.raises(BackendUnavailableError, match=r"mock chroma .* to write"):
        store.upsert(NEW)
