"""``Pipeline.check``, ``vlmsearch fsck`` and ``vlmsearch reindex``, on real servers and on the mocks."""

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from vlmsearch_mocks import MockEncoder, MockStore
from vlmsearch_mocks.contracts.records import IMAGE, SPACES, TEXT, make_records
from vlmsearch_mocks.pair import mock_mongo_store

from vlmsearch import ConfigError, Document, IndexMismatchError, Pipeline
from vlmsearch.demo.scenes import make_scene
from vlmsearch.maintenance import CheckReport
from vlmsearch.reindexing import drop_old, reindex
from vlmsearch.stores.base import Store
from vlmsearch.stores.mongo import MongoStore
from vlmsearch.stores.mongo_chroma import MongoChromaStore

pytest_plugins = ["tests.servers", "tests.mongo_servers"]
OTHER = {"a red star": ["a blue moon"]}


@pytest.fixture
def pair(mongo_address: str, chroma_address: str, tmp_path: Path) -> Iterator[MongoChromaStore]:
    location = f"//{mongo_address}/check-{abs(hash(str(tmp_path))) % 10**9}"
    with MongoChromaStore(location, chroma=f"http://{chroma_address}") as store:
        store.bind("encoder 1", SPACES)
        store.upsert(make_records(20, (IMAGE, TEXT)))
        yield store


def test_a_check_counts_and_finds_nothing(pair: MongoChromaStore) -> None:
    report = pair.check()
    assert report == CheckReport(pair.name, 20, {"clip/image": 20, "clip/text": 0, "minilm/text": 20})
    assert report.clean


def test_each_kind_of_damage_is_named_and_repaired(pair: MongoChromaStore) -> None:
    records, rows = make_records(20, (IMAGE, TEXT)), pair.vectors()
    versions = {row["_id"]: row["version"] for page in pair.scan({"version": 1}) for row in page}
    rows.write(make_records(22, (IMAGE,))[20:], "0" * 16)
    rows.write(records[3:4], "1" * 16)
    rows.remove_from(TEXT, [("id-5", versions["id-5"])])
    pair.run("begin", lambda c: c.insert_one(_cut_off("2" * 16, ["id-7", "id-30"])), part="journal")
    rows.write(make_records(31, (IMAGE,))[30:], "2" * 16)
    tombstone = {"version": None, "fields": [], "stale": [versions["id-9"]]}
    pair.run("cut a delete off", lambda c: c.update_one({"_id": "id-9"}, {"$set": tombstone}))
    found = pair.check()
    assert found.orphans == tuple(f"clip/image id-{i} {v * 16}" for i, v in ((20, "0"), (21, "0"), (30, "2")))
    assert found.stale == tuple(
        sorted(
            [f"clip/image id-3 {'1' * 16}", f"minilm/text id-3 {'1' * 16}"]
            + [f"{field} id-9 {versions['id-9']}" for field in (IMAGE, TEXT)]
        )
    )
    assert found.missing == (f"minilm/text id-5 {versions['id-5']}",)
    assert found.unfinished == ("delete id-9", f"write of 2 documents, {'2' * 16}")
    assert (found.documents, found.clean, found.repaired) == (19, False, False)
    assert pair.check(repair=True).repaired
    assert pair.check() == CheckReport(pair.name, 19, {"clip/image": 19, "clip/text": 0, "minilm/text": 18})
    assert pair.stamps(["id-5"])["id-5"].digest == ""
    assert pair.fields(["id-5"])["id-5"] == {IMAGE}
    pair.upsert(records[5:6])
    assert pair.check().vectors["minilm/text"] == 19


def _cut_off(version: str, ids: list[str]) -> dict[str, object]:
    from datetime import datetime, timezone

    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    import socket

    owner = f"{socket.gethostname()}:{ended.pid}:abcdef00"
    return {"_id": version, "kind": "write", "ids": ids, "owner": owner, "at": datetime.now(timezone.utc)}


def test_a_write_under_way_is_neither_damage_nor_rolled_back(pair: MongoChromaStore) -> None:
    version = pair._journal.open("write", ["id-40"])
    pair.vectors().write(make_records(41, (IMAGE,))[40:], version)
    report = pair.check(repair=True)
    assert (report.clean, report.in_progress) == (True, 1)
    assert pair.vectors().among(IMAGE, [("id-40", version)])
    pair._journal.give_up(version)
    assert not pair.check(repair=True).clean
    assert pair.check().clean
    assert not pair.vectors().among(IMAGE, [("id-40", version)])


def test_a_pipeline_checks_its_store_or_says_that_it_cannot(tmp_path: Path) -> None:
    with Pipeline(MockEncoder(), MockStore()) as pipeline:
        pipeline.add([Document("a", text="a red star")])
        assert pipeline.check(repair=True).clean
        assert pipeline.check().documents == 1
    with Pipeline.open(encoder="mock:", store=f"chroma:{tmp_path / 'index'}") as pipeline:
        pipeline.add([Document("a", text="a red star")])
        with pytest.raises(ConfigError, match=r"cannot be checked; mongodb: and mongodb\+chroma: can"):
            pipeline.check()


# ---- reindexing


def reindexable(kind: str, mongo: str, chroma: str, tmp_path: Path) -> Store:
    location = f"//{mongo}/re-{abs(hash(str(tmp_path))) % 10**9}"
    makers: dict[str, Callable[[], Store]] = {
        "mock": MockStore,
        "mock mongodb": mock_mongo_store,
        "mongodb": lambda: MongoStore(location),
        "mongodb+chroma": lambda: MongoChromaStore(location, chroma=f"http://{chroma}"),
    }
    return makers[kind]()


@pytest.mark.parametrize("kind", ["mock", "mock mongodb", "mongodb", "mongodb+chroma"])
def test_reindexing_switches_to_the_other_model_in_one_step(
    kind: str, mongo_address: str, chroma_address: str, tmp_path: Path
) -> None:
    make_scene(3).draw(64).save(tmp_path / "scene.png")
    first, second = MockEncoder(), MockEncoder(neighbours=OTHER)
    with reindexable(kind, mongo_address, chroma_address, tmp_path) as store:
        pipeline = Pipeline(first, store)
        pipeline.add([Document(f"{i}", text=f"text {i}", metadata={"i": i}) for i in range(150)])
        pipeline.add([Document("moon", text="a blue moon"), Document("scene", image=tmp_path / "scene.png")])
        stamps = store.stamps(list(store.ids()))
        with pytest.raises(ConfigError, match=r"was built with mock:.* already"):
            reindex(store, first)
        report = reindex(store, second)
        assert (report.documents, report.encoded, report.lost, report.switched) == (152, 152, (), True)
        assert store.stamps(list(store.ids())) == stamps
        with pytest.raises(IndexMismatchError):
            store.bind(first.fingerprint, first.spaces)
        assert Pipeline(second, store).search("a red star", limit=1)[0].document.id == "moon"
        assert drop_old(store)
        assert not drop_old(store)
        assert len(store) == 152
        assert reindex(store, first).encoded == 152, "and back again, in a generation of its own"
        assert Pipeline(first, store).search("text 7", limit=1)[0].document.id == "7"
        assert Pipeline(first, store).check().clean


def test_reindexing_goes_on_where_it_was_interrupted() -> None:
    class Interrupted(MockEncoder):
        left = 1300

        def encode_texts(self, texts, *, role="document"):  # type: ignore[no-untyped-def]
            self.left -= len(texts)
            if self.left < 0:
                deadline = time.monotonic() + 20
                while not len(store.over("next")) and time.monotonic() < deadline:
                    time.sleep(0.01)
                raise KeyboardInterrupt
            return super().encode_texts(texts, role=role)

    store, first = MockStore(), MockEncoder()
    Pipeline(first, store).add([Document(f"{i}", text=f"text {i}") for i in range(1600)])
    with pytest.raises(KeyboardInterrupt):
        reindex(store, Interrupted(neighbours=OTHER))
    assert Pipeline(first, store).search("text 7", limit=1)[0].document.id == "7"
    Pipeline(first, store).delete(["5"])
    Pipeline(first, store).add([Document("6", text="new text"), Document("new", text="another")])
    report = reindex(store, MockEncoder(neighbours=OTHER))
    assert report.documents == 1600
    assert 300 < report.encoded < 1600
    assert store.get(["5", "6"]) == [Document("6", text="new text")]
    assert Pipeline(MockEncoder(neighbours=OTHER), store).check().clean


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


def test_a_store_that_cannot_says_what_to_do(tmp_path: Path) -> None:
    with Pipeline.open(encoder="mock:", store=f"chroma:{tmp_path / 'index'}") as pipeline:
        pipeline.add([Document("a", text="t")])
        with pytest.raises(ConfigError, match="vlmsearch index PATHS --store NEW"):
            reindex(pipeline.store, MockEncoder(neighbours=OTHER))


# ---- the command line


def vlmsearch(*arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([sys.executable, "-m", "vlmsearch", *arguments], capture_output=True, text=True, check=False)


def test_the_commands(mongo_address: str, chroma_address: str, tmp_path: Path) -> None:
    url = f"mongodb+chroma://{mongo_address}/cli?chroma=http://{chroma_address}"
    (tmp_path / "a.jsonl").write_text('{"id": "a", "text": "a red star"}\n{"id": "b", "text": "two dogs"}\n')
    assert vlmsearch("index", str(tmp_path / "a.jsonl"), "--store", url, "--encoder", "mock:").returncode == 0
    info = vlmsearch("info", "--store", url)
    assert f"search      HNSW on chroma://{chroma_address}/cli-vlmsearch" in info.stdout, info.stderr
    fine = vlmsearch("fsck", "--store", url)
    assert (fine.returncode, "unfinished  none" in fine.stdout) == (0, True)
    with MongoChromaStore(f"//{mongo_address}/cli", chroma=f"http://{chroma_address}") as store:
        space = store.needed().spaces[1]
        store.vectors().fields[space.fields[0]].upsert(
            ["0" * 16 + "x"], MockEncoder().encode_texts(["x"])["minilm"], [{"id": "x"}]
        )
    bad = vlmsearch("fsck", "--store", url, "--json")
    assert bad.returncode == 1
    assert json.loads(bad.stdout)["orphans"] == [f"minilm/text x {'0' * 16}"]
    assert vlmsearch("fsck", "--store", url, "--repair").returncode == 0
    assert json.loads(vlmsearch("fsck", "--store", url, "--json").stdout)["clean"]
    done = vlmsearch("reindex", "--store", url, "--encoder", "onnx:demo", "--json")
    assert done.returncode == 0, done.stderr
    assert {key: json.loads(done.stdout)[key] for key in ("documents", "encoded", "switched")} == {
        "documents": 2, "encoded": 2, "switched": True,
    }  # fmt: skip
    assert vlmsearch("search", "a red star", "--store", url, "--limit", "1").stdout.split("\t")[1] == "a"
    assert vlmsearch("reindex", "--store", url, "--drop-old").stdout == "removed the replaced index\n"
    assert vlmsearch("reindex", "--store", url).returncode == 2
    refused = vlmsearch("fsck", "--store", "chroma:nowhere")
    assert refused.returncode == 1
