"""``reindex``: another model beside the one in use, and then in its place, on real servers and on the mocks."""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from itertools import count, repeat
from pathlib import Path
from typing import Any, Literal, get_args

import pytest
from vlmsearch_mocks import MemoryStore, MockEncoder, MockStore, faults
from vlmsearch_mocks.faults import Server
from vlmsearch_mocks.pair import mock_chroma_store, mock_mongo_store

from tests.support.reindex_crash_points import (
    FIRST,
    SECOND,
    Model,
    image_everywhere,
    kill_everywhere,
    kill_twice,
    run_reindex,
    start,
)
from tests.support.threads import in_this_thread
from tests.support.worlds import KINDS, Kind, mock_world, postgres_world, real_world
from vlmsearch import (
    BackendUnavailableError,
    ConfigError,
    Document,
    ImageLimits,
    IndexMismatchError,
    Pipeline,
    VlmsearchError,
)
from vlmsearch.demo.scenes import make_scene
from vlmsearch.indexing import reindex as reindexing
from vlmsearch.indexing.reindex import drop_old, reindex
from vlmsearch.registry import open_encoder, open_store
from vlmsearch.stores.base import Store, check_store
from vlmsearch.stores.chroma.store import ChromaStore
from vlmsearch.stores.generations import GenerationalStore
from vlmsearch.stores.mongodb.store import MongoStore
from vlmsearch.stores.mongodb_chroma.store import MongoChromaStore
from vlmsearch.stores.sqlite.store import SqliteStore
from vlmsearch.types import Field, Record, Role, Stamp, Vectors

OTHER = {"a red star": ["a blue moon"]}
TEXT = Field("minilm", "text")
SERVED = (
    "mongodb+chroma",
    "postgresql",
    *(pytest.param(kind, marks=pytest.mark.exhaustive) for kind in ("chroma server", "mongodb")),
)
"""The pair builds both of its parts anew."""


def reindexable(kind: str, mongo: str, chroma: str, tmp_path: Path, postgres: str = "") -> Store:
    if kind == "postgresql":
        return open_store(f"{postgres}?table=re_{abs(hash(str(tmp_path))) % 10**9}")
    location = f"//{mongo}/re-{abs(hash(str(tmp_path))) % 10**9}"
    makers: dict[str, Callable[[], Store]] = {
        "mock": MockStore,
        "mock mongodb": mock_mongo_store,
        "mock chroma": mock_chroma_store,
        "sqlite": lambda: SqliteStore(str(tmp_path / "index.db")),
        "chroma server": lambda: ChromaStore(f"//{chroma}/re-{abs(hash(str(tmp_path))) % 10**9}"),
        "mongodb": lambda: MongoStore(location),
        "mongodb+chroma": lambda: MongoChromaStore(location, chroma=f"http://{chroma}"),
    }
    return makers[kind]()


@pytest.mark.parametrize("kind", ["mock", "mock mongodb", "mock chroma", "sqlite", *SERVED])
def test_reindexing_switches_to_the_other_model_in_one_step(
    kind: str, mongo_address: str, chroma_address: str, postgres_url: str, tmp_path: Path
) -> None:
    make_scene(3).draw(64).save(tmp_path / "scene.png")
    first, second = MockEncoder(), MockEncoder(neighbours=OTHER)
    with reindexable(kind, mongo_address, chroma_address, tmp_path, postgres_url) as store:
        pipeline = Pipeline(first, store)
        pipeline.add([Document(f"{i}", text=f"text {i}", metadata={"i": i}) for i in range(150)])
        pipeline.add([Document("moon", text="a blue moon"), Document("scene", image=tmp_path / "scene.png")])
        stamps = store.stamps(list(store.ids()))
        same = reindex(store, first)
        assert (same.documents, same.encoded, same.lost, same.switched) == (152, 0, (), False)
        report = reindex(store, second)
        assert (report.documents, report.encoded, report.lost, report.switched) == (152, 152, (), True)
        assert store.stamps(list(store.ids())) == stamps
        with pytest.raises(IndexMismatchError):
            store.bind(first.fingerprint, first.spaces)
        assert Pipeline(second, store).search("a red star", limit=1, min_score=0)[0].document.id == "moon"
        assert drop_old(store)
        assert not drop_old(store)
        assert len(store) == 152
        assert reindex(store, first).encoded == 152, "and back again, in a generation of its own"
        assert Pipeline(first, store).search("text 7", limit=1, min_score=0)[0].document.id == "7"
        assert Pipeline(first, store).check().clean


@pytest.mark.parametrize("kind", ["sqlite", *SERVED])
def test_who_has_the_old_index_open_is_told(
    kind: str, mongo_address: str, chroma_address: str, postgres_url: str, tmp_path: Path
) -> None:
    first, second = MockEncoder(), MockEncoder(neighbours=OTHER)
    with (
        reindexable(kind, mongo_address, chroma_address, tmp_path, postgres_url) as store,
        reindexable(kind, mongo_address, chroma_address, tmp_path, postgres_url) as other,
    ):
        Pipeline(first, store).add([Document(f"{i}", text=f"text {i}") for i in range(20)])
        pipeline = Pipeline(first, other)
        assert len(pipeline.search("text 7", min_score=0)) == 10
        assert reindex(store, second).switched
        assert len(pipeline.search("text 7", min_score=0)) == 10
        for write in (lambda: pipeline.add([Document("new", text="new")]), lambda: pipeline.delete(["7"])):
            with pytest.raises(IndexMismatchError, match=f"built anew with {second.fingerprint} since it was opened"):
                write()
        assert store.get(["7", "new"]) == [Document("7", text="text 7")]
        assert drop_old(store)
        with pytest.raises(VlmsearchError):
            pipeline.search("text 7")
    with reindexable(kind, mongo_address, chroma_address, tmp_path, postgres_url) as again:
        assert Pipeline(second, again).search("text 7", limit=1, min_score=0)[0].document.id == "7"


@pytest.mark.parametrize("kind", ["mock", "sqlite", *SERVED])
def test_what_is_written_until_the_switch_is_in_the_new_index(
    kind: str,
    mongo_address: str,
    chroma_address: str,
    postgres_url: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first, second = MockEncoder(), MockEncoder(neighbours=OTHER)
    with reindexable(kind, mongo_address, chroma_address, tmp_path, postgres_url) as store:
        assert isinstance(store, GenerationalStore)
        freeze, pipeline = store.freeze, Pipeline(first, store)
        pipeline.add([Document(f"{i}", text=f"text {i}") for i in range(20)])

        def freeze_late(built: Store) -> None:
            pipeline.add([Document("late", text="late"), Document("3", text="new text")])
            pipeline.delete(["5", "6"])
            freeze(built)
            frozen = f"takes no writes while `vlmsearch reindex` puts an index built with {second.fingerprint}"
            for write in (lambda: pipeline.add([Document("too late", text="too late")]), lambda: pipeline.delete("7")):
                with pytest.raises(BackendUnavailableError, match=frozen):
                    write()
            assert len(pipeline.search("late", limit=20, min_score=0)) == 19, "and it is searched all the time"

        monkeypatch.setattr(store, "freeze", freeze_late)
        report = reindex(store, second)
        assert (report.documents, report.encoded, report.switched) == (19, 22, True)
        with pytest.raises(IndexMismatchError):
            pipeline.add([Document("too late", text="too late")])
        pipeline = Pipeline(second, store)
        pipeline.add([Document("newer", text="newer"), Document("7", text="newer text")])
        pipeline.delete(["8"])
        found = {document.id: document.text for document in store.get([*map(str, range(20)), "late", "newer"])}
        changed = {"3": "new text", "7": "newer text", "late": "late", "newer": "newer"}
        assert found == {f"{i}": f"text {i}" for i in range(20) if i not in (5, 6, 8)} | changed
        assert pipeline.search("late", limit=1, min_score=0)[0].document.id == "late"
        assert pipeline.check().clean


@pytest.mark.parametrize("kind", ["mock", "mock mongodb", "mock chroma", "sqlite", *SERVED[::3], "postgresql"])
def test_removing_the_old_index_while_another_process_reindexes_loses_nothing(
    kind: str,
    mongo_address: str,
    chroma_address: str,
    postgres_url: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with reindexable(kind, mongo_address, chroma_address, tmp_path, postgres_url) as store:
        assert isinstance(store, GenerationalStore)
        switch, other, second = store.switch, store.over("index"), MockEncoder(neighbours=OTHER)
        Pipeline(MockEncoder(), store).add([Document(f"{i}", text=f"text {i}") for i in range(50)])

        def switch_then_drop(*built: Store) -> object:
            done = switch(*built)
            assert drop_old(other)
            return done

        monkeypatch.setattr(store, "switch", switch_then_drop)
        assert reindex(store, second).documents == 50
        assert sorted(map(int, store.ids())) == list(range(50))
        assert Pipeline(second, store).search("text 7", limit=1, min_score=0)[0].document.id == "7"


@pytest.mark.parametrize("kind", ["mock", "mock mongodb", "mock chroma", "sqlite"])
def test_a_reindex_that_another_run_overtakes_changes_nothing_any_more(kind: str, tmp_path: Path) -> None:
    store = reindexable(kind, "", "", tmp_path)
    assert isinstance(store, GenerationalStore)
    faster, second = store.over("index"), MockEncoder(neighbours=OTHER)

    class Overtaken(MockEncoder):
        def encode_texts(self, texts: Sequence[str], *, role: Role = "document") -> dict[str, Vectors]:
            if not overtook:
                overtook.append(True)
                assert reindex(faster, second).switched
                assert drop_old(faster)
                Pipeline(second, faster).add([Document("new", text="newer")])
            return super().encode_texts(texts, role=role)

    overtook: list[bool] = []
    Pipeline(MockEncoder(), store).add([Document(f"{i}", text=f"text {i}") for i in range(20)])
    with pytest.raises(IndexMismatchError, match="since it was opened"):
        reindex(store, Overtaken(neighbours=OTHER))
    now = store.over("index")
    assert {*now.ids()} == {"new", *map(str, range(20))}
    assert Pipeline(second, now).search("newer", limit=1, min_score=0)[0].document.id == "new"
    assert check_store(now).clean


@pytest.mark.parametrize("kind", ["mock", "mock mongodb", "mock chroma", "sqlite"])
def test_what_is_deleted_after_the_last_look_and_added_again_is_in_the_new_index(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = reindexable(kind, "", "", tmp_path)
    assert isinstance(store, GenerationalStore)
    pipeline = Pipeline(MockEncoder(), store.over("index"))
    pipeline.add([Document(f"{i}", text=f"text {i}") for i in range(20)])
    gone, replace_slot, looks = reindexing._gone, store.replace_slot, list[Store]()

    def look(old: Store, new: Store) -> list[str]:
        looks.append(new)
        if len(looks) == 2:
            assert pipeline.delete(["7"]) == 1
        return gone(old, new)

    def replace_late(slot: Literal["index", "next"], *rest: Any) -> Any:
        if slot == "index" and looks and "7" not in pipeline.store.ids():
            assert pipeline.add([Document("7", text="text 7")]).added == 1
        return replace_slot(slot, *rest)

    monkeypatch.setattr(reindexing, "_gone", look)
    monkeypatch.setattr(store, "replace_slot", replace_late)
    assert reindex(store, MockEncoder(neighbours=OTHER)).documents == 20
    assert store.get(["7"]) == [Document("7", text="text 7")]


@pytest.mark.parametrize("kind", ["mock", "mock mongodb", "mock chroma", "sqlite"])
def test_a_deleted_document_whose_image_has_changed_does_not_come_back(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = reindexable(kind, "", "", tmp_path)
    assert isinstance(store, GenerationalStore)
    pipeline, replace_slot = Pipeline(MockEncoder(), store.over("index")), store.replace_slot
    make_scene(3).draw(64).save(tmp_path / "a.png")
    pipeline.add([Document("a", image=tmp_path / "a.png"), Document("b", text="b")])
    make_scene(4).draw(64).save(tmp_path / "a.png")

    def replace_late(slot: Literal["index", "next"], *rest: Any) -> Any:
        if slot == "index" and "a" in pipeline.store.ids():
            assert pipeline.delete(["a"]) == 1
        return replace_slot(slot, *rest)

    monkeypatch.setattr(store, "replace_slot", replace_late)
    assert reindex(store, MockEncoder(neighbours=OTHER)).switched
    assert list(store.ids()) == ["b"]


@pytest.mark.parametrize("kind", ["mock", "mock mongodb", "mock chroma", "sqlite"])
def test_a_store_that_is_shared_takes_no_vectors_of_the_model_before(kind: str, tmp_path: Path) -> None:
    first, second = Model(1), Model(2)
    has_begun, may_end, failed = threading.Event(), threading.Event(), list[BaseException]()

    def documents() -> Iterator[Document]:
        yield from (Document(f"{i}", text=f"text {i}") for i in range(64))
        has_begun.set()
        may_end.wait(60)
        yield Document("more", text="more")

    def write() -> None:
        try:
            Pipeline(first, store).add(documents())
        except VlmsearchError as exc:
            failed.append(exc)

    with reindexable(kind, "", "", tmp_path) as store:
        writer = threading.Thread(target=write)
        writer.start()
        assert has_begun.wait(60)
        assert reindex(store, second).switched
        Pipeline(second, store).add([Document("newer", text="newer")])
        may_end.set()
        writer.join()
        assert [type(exc) for exc in failed] == [IndexMismatchError]
        assert f"takes no vectors of {first.fingerprint}" in str(failed[0])
        matches = Pipeline(second, store).search("newer", limit=100, min_score=0)
        assert [m.document.id for m in matches if m.fields[str(TEXT)].score > 0.999] == ["newer"]
        for match in matches:
            (same,) = Pipeline(second, store).search(str(match.document.text), limit=1, min_score=0)
            assert same.fields[str(TEXT)].score > 0.999
        Pipeline(second, store).add(Document("more", text="more"))


def test_a_store_that_was_switched_takes_no_records_until_it_is_bound_again() -> None:
    store, first, second = MockStore(), MockEncoder(), Model(2)
    Pipeline(first, store).add([Document("a", text="a")])
    vectors = {TEXT: first.encode_texts(["b"])["minilm"][0]}
    store.upsert([Record(Document("b", text="b"), vectors)])
    assert reindex(store, second).switched
    with pytest.raises(IndexMismatchError, match="bind it to that encoder"):
        store.upsert([Record(Document("c", text="c"), vectors)])
    store.bind(second.fingerprint, second.spaces)
    store.upsert([Record(Document("c", text="c"), {TEXT: second.encode_texts(["c"])["minilm"][0]})])
    assert sorted(store.ids()) == ["a", "b", "c"]


@pytest.mark.parametrize("kind", ["mock", "mock mongodb", "mock chroma", "sqlite"])
@pytest.mark.parametrize("second", [Model(2), MockEncoder(neighbours=OTHER)], ids=["as long", "longer"])
def test_a_search_that_meets_the_switch_of_a_shared_store_gives_no_matches_of_the_other_model(
    kind: str, second: MockEncoder, tmp_path: Path
) -> None:
    class Switching(MockEncoder):
        def encode_texts(self, texts: Sequence[str], *, role: Role = "document") -> dict[str, Vectors]:
            if role == "query":
                assert reindex(store, second).switched
            return super().encode_texts(texts, role=role)

    with reindexable(kind, "", "", tmp_path) as store:
        pipeline = Pipeline(Switching(), store)
        pipeline.add([Document(f"{i}", text=f"text {i}") for i in range(20)])
        with pytest.raises(IndexMismatchError, match="was built with"):
            pipeline.search("text 7")


@pytest.mark.parametrize("kind", ["mock mongodb", "mock", "mock chroma", "sqlite"])
def test_everything_that_writers_were_told_is_done_is_in_the_new_index(kind: str, tmp_path: Path) -> None:
    store = reindexable(kind, "", "", tmp_path)
    assert isinstance(store, GenerationalStore)
    done: list[dict[str, str | None]] = [{} for _ in range(3)]
    ends: list[BaseException] = []

    def write(number: int, has: dict[str, str | None]) -> None:
        pipeline = Pipeline(MockEncoder(), store.over("index"))
        try:
            for turn in range(10_000):
                id, other = (f"{number} {(turn * 7 + i) % 30}" for i in (0, 3))
                has.pop(id, None)
                pipeline.add(Document(id, text=f"turn {turn}"))
                has[id] = f"turn {turn}"
                has.pop(other, None)
                pipeline.delete(other)
                has[other] = None
        except VlmsearchError as exc:
            ends.append(exc)

    Pipeline(MockEncoder(), store).add([Document(f"{n} {i}", text="text") for n in range(3) for i in range(30)])
    threads = [threading.Thread(target=write, args=each) for each in enumerate(done)]
    for thread in threads:
        thread.start()
    while not all(done):
        time.sleep(0.01)
    assert reindex(store, MockEncoder(neighbours=OTHER)).switched
    for thread in threads:
        thread.join()
    assert {type(exc) for exc in ends} <= {BackendUnavailableError, IndexMismatchError}
    found = {document.id: document.text for document in store.get(list(store.ids()))}
    for has in done:
        assert {id: found.get(id) for id in has} == has
    assert check_store(store, repair=True).missing == ()


@pytest.mark.parametrize("write", ["upsert", "delete"])
@pytest.mark.parametrize("kind", ["mock mongodb", "mock", "mock chroma", "sqlite"])
def test_a_write_that_began_before_the_switch_and_ends_after_it_fails(
    kind: str, write: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = reindexable(kind, "", "", tmp_path)
    assert isinstance(store, GenerationalStore)
    Pipeline(FIRST, store).add([Document(f"{i}", text=f"text {i}") for i in range(20)])
    other = store.over("index")
    check = other.check_in_use

    def check_and_lose() -> None:
        monkeypatch.undo()
        check()
        assert reindex(store, SECOND).switched

    monkeypatch.setattr(other, "check_in_use", check_and_lose)
    record = Record(Document("late", text="late"), {TEXT: FIRST.encode_texts(["late"])["minilm"][0]})
    with pytest.raises(IndexMismatchError, match="since it was opened"):
        other.upsert([record]) if write == "upsert" else other.delete(["7"])
    assert {*store.ids()} == {*map(str, range(20))}


@pytest.mark.parametrize("kind", ["mock mongodb", "mock", "mock chroma", "sqlite"])
def test_a_write_to_a_shared_store_does_not_go_on_in_the_new_index(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = reindexable(kind, "", "", tmp_path)
    assert isinstance(store, GenerationalStore)
    Pipeline(FIRST, store).add([Document(f"{i}", text=f"text {i}") for i in range(20)])
    other, check = store.over("index"), store.check_in_use
    thread = threading.Thread(target=reindex, args=(store, SECOND))

    def check_and_lose() -> None:
        monkeypatch.undo()
        check()
        thread.start()
        while (other.read_slot("index") or {})["fingerprint"] != SECOND.fingerprint:
            time.sleep(0.01)
        thread.join(0.5)
        assert thread.is_alive(), "it waits for this write before the store becomes the new index"

    monkeypatch.setattr(store, "check_in_use", check_and_lose)
    record = Record(Document("late", text="late"), {TEXT: FIRST.encode_texts(["late"])["minilm"][0]})
    with pytest.raises(IndexMismatchError, match="since it was opened"):
        store.upsert([record])
    thread.join()
    assert {*store.ids()} == {*map(str, range(20))}


@pytest.mark.parametrize("kind", ["mock mongodb", "mock", "mock chroma", "sqlite"])
def test_of_two_runs_that_build_the_same_index_the_last_to_begin_goes_on(kind: str, tmp_path: Path) -> None:
    store = reindexable(kind, "", "", tmp_path)
    assert isinstance(store, GenerationalStore)
    pipeline = Pipeline(FIRST, store)
    pipeline.add([Document(f"{i}", text=f"text {i}") for i in range(20)])
    mine = store.beside(SECOND.fingerprint, SECOND.spaces)
    store.freeze(mine)
    other = store.over("index")
    theirs = other.beside(SECOND.fingerprint, SECOND.spaces)
    assert pipeline.add(Document("new", text="new")).added == 1, "what the first had frozen takes writes again"
    vectors = {TEXT: SECOND.encode_texts(["x"])["minilm"][0]}
    acts: list[Callable[[], None]] = [
        lambda: mine.upsert([Record(Document("x"), vectors)]),
        lambda: store.freeze(mine),
        lambda: store.switch(mine),
    ]
    for act in acts:
        with pytest.raises(IndexMismatchError):
            act()
    assert list(theirs.ids()) == []
    other.freeze(theirs)
    other.switch(theirs)
    assert store.over("index").needed().fingerprint == SECOND.fingerprint


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_a_killed_reindex_or_removal_loses_nothing(kind: Kind) -> None:
    report = kill_everywhere(lambda: mock_world(kind), first=len(kind) % 6, step=6)
    assert report.points >= 20
    assert report.wrong == {}


@pytest.mark.slow
def test_a_reindex_that_is_killed_and_killed_again_loses_nothing() -> None:
    report = kill_twice(lambda: mock_world("mongodb+chroma"), first=5, step=17)
    assert report.points >= 10
    assert report.wrong == {}


@pytest.mark.exhaustive
@pytest.mark.parametrize("kind", KINDS)
def test_no_crash_point_of_a_reindex_or_removal_loses_anything(kind: Kind) -> None:
    assert kill_everywhere(lambda: mock_world(kind)).wrong == {}


@pytest.mark.exhaustive
@pytest.mark.parametrize("kind", KINDS)
def test_no_second_crash_point_of_a_reindex_loses_anything(kind: Kind) -> None:
    assert kill_twice(lambda: mock_world(kind), step=3).wrong == {}


@pytest.mark.exhaustive
@pytest.mark.parametrize("kind", KINDS)
def test_no_crash_point_on_real_servers_loses_anything(kind: Kind, mongo_address: str, chroma_address: str) -> None:
    names = map("crash-{}".format, count())
    report = kill_everywhere(
        lambda: real_world(kind, mongo_address, chroma_address, next(names)), moments=("before", "after")
    )
    assert report.wrong == {}


@pytest.mark.parametrize("step", [149, pytest.param(1, marks=pytest.mark.exhaustive)])
def test_no_crash_point_on_postgresql_loses_anything(postgres_url: str, step: int) -> None:
    names = map("crash_{}_{}".format, repeat(step), count())
    report = kill_everywhere(
        lambda: postgres_world(postgres_url, next(names)), first=3, step=step, moments=("before", "after")
    )
    print(f"{report.points} points")
    assert report.points > 1
    assert report.wrong == {}


@pytest.mark.parametrize("step", [101, pytest.param(1, marks=pytest.mark.exhaustive)])
def test_no_crash_point_of_sqlite_loses_anything(tmp_path: Path, step: int) -> None:
    report = image_everywhere(tmp_path / "index", step=step)
    print(f"{report.points} images")
    assert report.points > 3
    assert report.wrong == {}


@pytest.mark.parametrize("server", get_args(Server))
@pytest.mark.parametrize("fault", ["unreachable", "lost reply", "partial write"])
def test_a_single_failure_of_a_call_changes_nothing_of_a_reindex(
    server: Server, fault: faults.FaultKind, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("time.sleep", in_this_thread(lambda _: None))
    nth = 0
    while True:
        nth += 5
        store, encoder = MockStore(), MockEncoder(neighbours=OTHER)
        Pipeline(MockEncoder(), store).add([Document(f"{i}", text=f"text {i}") for i in range(10)])
        store.faults.clear()
        store.faults.fail(server, kind=fault, nth=nth)
        report = reindex(store, encoder)
        assert (report.documents, report.switched) == (10, True)
        assert Pipeline(encoder, store).search("text 7", limit=1, min_score=0)[0].document.id == "7"
        assert drop_old(store)
        assert store.check().clean
        if sum(call.startswith(server) for call in store.faults.calls) < nth:
            break


def test_the_model_that_an_index_has_takes_back_what_a_killed_reindex_left() -> None:
    world = mock_world("mongodb+chroma")
    writer = start(world)
    with closing(world.open()) as store:
        assert isinstance(store, MongoChromaStore)
        store.freeze(store.beside(SECOND.fingerprint, SECOND.spaces))
        assert f"with {SECOND.fingerprint} in its place" in store.describe()["frozen"]
    pipeline = Pipeline(FIRST, world.open())
    with pytest.raises(BackendUnavailableError, match=r"takes no writes .* if it was cut off, run it again"):
        pipeline.add(Document("new", text="new"))
    assert reindex(world.open(), FIRST).encoded == 0
    assert pipeline.add(Document("new", text="new")).added == 1
    assert run_reindex(writer)


def test_a_build_of_the_version_before_this_one_goes_on() -> None:
    store = mock_mongo_store()
    Pipeline(FIRST, store).add([Document(f"{i}", text=f"text {i}") for i in range(20)])
    new = store.beside(SECOND.fingerprint, SECOND.spaces)
    Pipeline(SECOND, new).add([Document(f"{i}", text=f"text {i}") for i in range(15)])
    row = store.read_slot("next") or {}
    plain = {name: row[name] for name in ("format", "kind", "generation", "created", "fingerprint", "spaces")}
    assert store.replace_slot("next", plain, row.get("revision"))
    assert reindex(store, SECOND).encoded == 5
    assert len(store) == 20


@pytest.mark.parametrize("at_once", [False, True], ids=["before it writes", "while it writes"])
@pytest.mark.parametrize("kind", ["sqlite", *SERVED])
def test_a_reindex_that_another_one_replaces_writes_nothing_into_it(
    kind: str,
    at_once: bool,
    mongo_address: str,
    chroma_address: str,
    postgres_url: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def opened() -> GenerationalStore:
        store = reindexable(kind, mongo_address, chroma_address, tmp_path, postgres_url)
        assert isinstance(store, GenerationalStore)
        return store

    encoder = MockEncoder()
    with opened() as store, opened() as other:
        Pipeline(encoder, store).add([Document("a", text="text")])
        mine = store.beside("X@1", encoder.spaces)
        assert isinstance(mine, GenerationalStore)
        check = mine.check_in_use

        def check_and_lose() -> None:
            monkeypatch.undo()
            check()
            other.beside("Y@1", encoder.spaces)

        if at_once:
            monkeypatch.setattr(mine, "check_in_use", check_and_lose)
        else:
            other.beside("Y@1", encoder.spaces)
        vectors = {
            field: encoder.encode_texts(["b"])[space.name][0] for space in encoder.spaces for field in space.fields
        }
        record = Record(Document("b", text="b"), vectors, Stamp("b"))
        with pytest.raises(VlmsearchError):
            mine.upsert([record])
        theirs = other.beside("Y@1", encoder.spaces)
        assert list(theirs.ids()) == []
        theirs.upsert([record])
        with pytest.raises(IndexMismatchError, match="built anew with Y@1 since it was opened"):
            mine.delete(["b"])
        other.freeze(theirs)
        other.switch(theirs)
        assert list(other.ids()) == ["b"]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["mock", "sqlite"])
def test_reindexing_goes_on_where_it_was_interrupted(kind: str, tmp_path: Path) -> None:
    store, first = reindexable(kind, "", "", tmp_path), MockEncoder()
    assert isinstance(store, (MockStore, SqliteStore))
    new = store.over("next")

    class Interrupted(MockEncoder):
        left = 1300

        def encode_texts(self, texts, *, role="document"):  # type: ignore[no-untyped-def]
            self.left -= len(texts)
            if self.left < 0:
                deadline = time.monotonic() + 20
                while not len(new) and time.monotonic() < deadline:
                    time.sleep(0.01)
                raise KeyboardInterrupt
            return super().encode_texts(texts, role=role)

    Pipeline(first, store).add([Document(f"{i}", text=f"text {i}") for i in range(1600)])
    with pytest.raises(KeyboardInterrupt):
        reindex(store, Interrupted(neighbours=OTHER))
    assert Pipeline(first, store).search("text 7", limit=1, min_score=0)[0].document.id == "7"
    Pipeline(first, store).delete(["5"])
    Pipeline(first, store).add([Document("6", text="new text"), Document("new", text="another")])
    report = reindex(store, MockEncoder(neighbours=OTHER))
    assert report.documents == 1600
    assert 300 < report.encoded < 1600
    assert store.get(["5", "6"]) == [Document("6", text="new text")]
    assert Pipeline(MockEncoder(neighbours=OTHER), store).check().clean
    store.close()


def test_reindexing_does_not_switch_where_a_document_would_be_lost(tmp_path: Path) -> None:
    make_scene(3).draw(64).save(tmp_path / "gone.png")
    store = MockStore()
    pipeline = Pipeline(MockEncoder(), store)
    pipeline.add([Document("a", text="t"), Document("b", image=make_scene(1).draw(64))])
    pipeline.add([Document("gone", image=tmp_path / "gone.png")])
    (tmp_path / "gone.png").unlink()
    report = reindex(store, MockEncoder(neighbours=OTHER))
    assert (report.switched, report.lost) == (False, ("b", "gone"))
    assert len(store) == 3
    assert store.rejects() == []
    assert reindex(store, MockEncoder(neighbours=OTHER), allow_missing=True).switched
    assert list(store.ids()) == ["a"]


def test_a_document_that_is_left_out_is_not_in_the_new_index_as_it_was_before(tmp_path: Path) -> None:
    make_scene(3).draw(64).save(tmp_path / "gone.png")
    store, second = MockStore(), MockEncoder(neighbours=OTHER)
    pipeline = Pipeline(MockEncoder(), store)
    pipeline.add(
        [Document("a", text="text"), Document("b", text="other"), Document("gone", image=make_scene(1).draw(64))]
    )
    assert not reindex(store, second).switched
    pipeline.add(Document("a", image=make_scene(1).draw(64)))
    report = reindex(store, second, allow_missing=True)
    assert (report.switched, report.lost) == (True, ("a", "gone"))
    assert list(store.ids()) == ["b"]


def test_what_a_model_without_images_leaves_out_is_said(tmp_path: Path) -> None:
    make_scene(3).draw(64).save(tmp_path / "scene.png")
    store = MockStore()
    Pipeline(MockEncoder(), store).add(
        [
            Document("text", text="t"),
            Document("both", text="t", image=tmp_path / "scene.png"),
            Document("not kept", text="t", image=make_scene(1).draw(64)),
            Document("image", image=tmp_path / "scene.png"),
        ]
    )
    with open_encoder("onnx:demo-minilm") as encoder:
        refused, done = reindex(store, encoder), reindex(store, encoder, allow_missing=True)
    assert (refused.switched, refused.lost, refused.image_only, refused.text_only) == (False, ("image",), 1, 0)
    assert (done.switched, done.lost, done.image_only, done.text_only) == (True, ("image",), 1, 2)
    assert sorted(store.ids()) == ["both", "not kept", "text"]


def test_images_that_an_index_took_are_taken_again(tmp_path: Path) -> None:
    make_scene(3).draw(64).save(tmp_path / "scene.png")
    store, second = MockStore(), MockEncoder(neighbours=OTHER)
    Pipeline(MockEncoder(), store).add(Document("a", image=tmp_path / "scene.png"))
    assert reindex(store, second, image_limits=ImageLimits(pixels=64 * 64 - 1)).lost == ("a",)
    assert reindex(store, second, image_limits=ImageLimits(pixels=64 * 64)).switched


def test_a_store_that_cannot_says_what_to_do() -> None:
    with Pipeline(MockEncoder(), MemoryStore()) as pipeline:
        pipeline.add([Document("a", text="t")])
        with pytest.raises(ConfigError, match="vlmsearch index PATHS --store NEW"):
            reindex(pipeline.store, MockEncoder(neighbours=OTHER))


def test_progress_counts_what_an_interrupted_run_did() -> None:
    documents, seen = [Document(f"{i}", text=f"text {i}") for i in range(300)], list[int]()
    store = MockStore()
    Pipeline(FIRST, store).add(documents)
    Pipeline(SECOND, store.beside(SECOND.fingerprint, SECOND.spaces)).add(documents[:100])
    assert reindex(store, SECOND, on_progress=seen.append).encoded == 200
    assert seen == sorted(seen)
    assert (seen[0] > 100, seen[-1]) == (True, 300)
