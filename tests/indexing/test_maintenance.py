"""``Pipeline.check`` on real servers and on the mocks, and the commands ``check`` and ``reindex``."""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import datetime, timezone
from pathlib import Path

import psycopg
import pytest
from vlmsearch_mocks import MockEncoder, MockStore
from vlmsearch_mocks.contracts.records import IMAGE, SPACES, TEXT, make_records

from tests.support.cli import run
from vlmsearch import Document, Pipeline, Record
from vlmsearch.stores.base import CheckReport
from vlmsearch.stores.chroma.store import ChromaStore
from vlmsearch.stores.chroma.vectors import VectorRows
from vlmsearch.stores.mongodb_chroma.store import MongoChromaStore
from vlmsearch.stores.rows import StoredReaders
from vlmsearch.stores.writers import this_process


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
    write_under("0" * 16, make_records(22, (IMAGE,))[20:], rows)
    write_under("1" * 16, records[3:4], rows)
    rows.remove_from(TEXT, [("id-5", versions["id-5"])])
    pair.run("begin", lambda c: c.insert_one(_cut_off("2" * 16, ["id-7", "id-30"])), part="journal")
    write_under("2" * 16, make_records(31, (IMAGE,))[30:], rows)
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


def write_under(version: str, records: Sequence[Record], rows: VectorRows) -> None:
    rows.write(records, {record.document.id: version for record in records})


def _cut_off(version: str, ids: list[str]) -> dict[str, object]:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    owner = f"{this_process().rsplit(':', 2)[0]}:{ended.pid}:abcdef00"
    return {"_id": version, "kind": "write", "ids": ids, "owner": owner, "at": datetime.now(timezone.utc)}


def test_a_write_under_way_is_neither_damage_nor_rolled_back(pair: MongoChromaStore) -> None:
    with suppress(KeyboardInterrupt), pair._journal.writing("write", ["id-40"]) as version:
        write_under(version, make_records(41, (IMAGE,))[40:], pair.vectors())
        report = pair.check(repair=True)
        assert (report.clean, report.in_progress) == (True, 1)
        assert pair.vectors().among(IMAGE, [("id-40", version)])
        raise KeyboardInterrupt
    assert not pair.check(repair=True).clean
    assert pair.check().clean
    assert not pair.vectors().among(IMAGE, [("id-40", version)])


def test_a_pipeline_checks_its_store(tmp_path: Path) -> None:
    with Pipeline(MockEncoder(), MockStore()) as pipeline:
        pipeline.add([Document("a", text="a red star")])
        assert pipeline.check(repair=True).clean
        assert pipeline.check().documents == 1
    with Pipeline.open(encoder="mock:", store=f"sqlite:{tmp_path / 'index'}") as pipeline:
        pipeline.add([Document("a", text="a red star")])
        assert pipeline.check().documents == 1


# ---- Chroma alone


def chroma_at(chroma: str, tmp_path: Path) -> ChromaStore:
    return ChromaStore(f"//{chroma}/check-{abs(hash(str(tmp_path))) % 10**9}")


def test_what_is_wrong_in_chroma_is_named_and_repaired(chroma_address: str, tmp_path: Path) -> None:
    old = "0" * 16
    records = make_records(20, (IMAGE, TEXT))
    with chroma_at(chroma_address, tmp_path) as store:
        store.bind("e", SPACES)
        store.upsert(records)
        assert store.check() == CheckReport(store.name, 20, {"clip/image": 20, "clip/text": 0, "minilm/text": 20})
        version = store.read_rows(["id-5"])["id-5"].version
        write_under(old, make_records(22, (IMAGE,))[20:], store._vectors)
        write_under(old, records[3:4], store._vectors)
        store._vectors.remove_from(TEXT, [("id-5", version)])
        found = store.check()
        assert found.orphans == (f"clip/image id-20 {old}", f"clip/image id-21 {old}")
        assert found.stale == (f"clip/image id-3 {old}", f"minilm/text id-3 {old}")
        assert found.missing == (f"minilm/text id-5 {version}",)
        assert (found.documents, found.clean, found.in_progress) == (20, False, 0)
        assert store.check(repair=True).repaired
        counts = {"clip/image": 20, "clip/text": 0, "minilm/text": 19}
        assert store.check() == CheckReport(store.name, 20, counts, missing=found.missing)
        assert store.stamps(["id-5"])["id-5"].digest == ""
        assert store.get(["id-5"]) == [records[5].document]
        store.upsert(records[5:6])
        assert store.check() == CheckReport(store.name, 20, {"clip/image": 20, "clip/text": 0, "minilm/text": 20})


def test_on_a_server_what_is_being_written_is_neither_damage_nor_removed(chroma_address: str, tmp_path: Path) -> None:
    with chroma_at(chroma_address, tmp_path) as store, chroma_at(chroma_address, tmp_path) as other:
        store.bind("e", SPACES)
        store.upsert(make_records(3, (IMAGE,)))
        other.bind("e", SPACES)
        with other._journal.writing("write", ["id-0", "id-1", "id-2"]) as version:
            write_under(version, make_records(3, (IMAGE,)), other._vectors)
            report = store.check(repair=True)
            assert (report.clean, report.in_progress, report.vectors["clip/image"]) == (True, 1, 6)
            store.upsert(make_records(3, (IMAGE,), seed=8))
            store.delete(["id-0"])
            assert store.check().vectors["clip/image"] == 5, "and nobody else removes it"


@pytest.mark.parametrize("meanwhile", ["replace", "delete"])
def test_a_document_stays_whole_when_another_process_writes_it_meanwhile(
    meanwhile: str, chroma_address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = (make_records(6, (IMAGE, TEXT), seed=seed) for seed in range(2))
    with chroma_at(chroma_address, tmp_path) as store, chroma_at(chroma_address, tmp_path) as other:
        store.bind("e", SPACES)
        other.bind("e", SPACES)
        store.upsert(old)
        commit = store._name

        def others_first(records: Sequence[Record], version: str, readers: StoredReaders) -> None:
            other.upsert(new)
            ids = [record.document.id for record in records]
            other.delete(ids) if meanwhile == "delete" else other.upsert(old)
            commit(records, version, readers)

        monkeypatch.setattr(store, "_name", others_first)
        store.upsert(new)
        report = store.check()
        assert (report.documents, report.missing) == (6, ())
        for field in (IMAGE, TEXT):
            for record in new:
                hits = other.search(field, record.vectors[field][None], limit=6)[0]
                assert (hits[0].id, len(hits)) == (record.document.id, 6)
                assert hits[0].score == pytest.approx(1.0, abs=1e-4)


# ---- the command line


def test_the_commands(mongo_address: str, chroma_address: str, tmp_path: Path) -> None:
    url = f"mongodb+chroma://{mongo_address}/cli?chroma=http://{chroma_address}"
    (tmp_path / "a.jsonl").write_text('{"id": "a", "text": "a red star"}\n{"id": "b", "text": "two dogs"}\n')
    assert run("index", str(tmp_path / "a.jsonl"), "--store", url, "--encoder", "mock:").returncode == 0
    info = run("info", "--store", url)
    assert f"with chroma://{chroma_address}/cli-vlmsearch\n" in info.stdout, info.stderr
    assert "search      exact" in info.stdout
    fine = run("check", "--store", url)
    assert (fine.returncode, "unfinished  none" in fine.stdout) == (0, True)
    with MongoChromaStore(f"//{mongo_address}/cli", chroma=f"http://{chroma_address}") as store:
        space = store.needed().spaces[1]
        store.vectors().fields[space.fields[0]].upsert(
            ["0" * 16 + "x"], MockEncoder().encode_texts(["x"])["minilm"], [{"id": "x"}]
        )
    bad = run("check", "--store", url, "--json")
    assert bad.returncode == 1
    assert json.loads(bad.stdout)["orphans"] == [f"minilm/text x {'0' * 16}"]
    assert run("check", "--store", url, "--repair").returncode == 0
    assert json.loads(run("check", "--store", url, "--json").stdout)["clean"]
    done = run("reindex", "--store", url, "--encoder", "onnx:demo", "--json")
    assert done.returncode == 0, done.stderr
    assert {key: json.loads(done.stdout)[key] for key in ("documents", "encoded", "switched")} == {
        "documents": 2, "encoded": 2, "switched": True,
    }  # fmt: skip
    assert run("search", "a red star", "--store", url, "--limit", "1").stdout.split("\t")[1] == "a"
    assert run("reindex", "--store", url, "--drop-old").stdout == "removed the replaced index\n"
    assert run("reindex", "--store", url).stdout.startswith("2 documents, 0 encoded: "), "there is nothing to renew"
    refused = run("check", "--store", f"sqlite:{tmp_path / 'nowhere'}")
    assert refused.returncode == 1


def test_the_commands_on_postgresql(postgres_url: str, tmp_path: Path) -> None:
    url = f"{postgres_url}?table=commands"
    (tmp_path / "a.jsonl").write_text('{"id": "a", "text": "a red star"}\n{"id": "b", "text": "two dogs"}\n')
    assert run("index", str(tmp_path / "a.jsonl"), "--store", url, "--encoder", "mock:").returncode == 0
    info = run("info", "--store", url)
    assert "search      exact" in info.stdout, info.stderr
    assert run("check", "--store", url).returncode == 0
    with psycopg.connect(postgres_url, autocommit=True) as session:
        session.execute("DELETE FROM commands$1$2 WHERE row = (SELECT row FROM commands$1 WHERE id = 'a')")
        session.execute("UPDATE commands$1 SET fields = '{clip/image,clip/text,minilm/text}' WHERE id = 'a'")
    bad = run("check", "--store", url, "--json")
    assert bad.returncode == 1
    assert json.loads(bad.stdout)["missing"] == ["a"]
    assert "index their sources again" in run("check", "--store", url, "--repair").stderr
    again = run("index", str(tmp_path / "a.jsonl"), "--store", url, "--encoder", "mock:", "--json")
    assert json.loads(again.stdout)["updated"] == 1, again.stderr
    assert json.loads(run("check", "--store", url, "--json").stdout)["clean"]
    assert run("export", str(tmp_path / "out.parquet"), "--store", url).returncode == 0
    assert run("duplicates", "--store", url, "--encoder", "mock:").returncode == 0
    done = run("reindex", "--store", url, "--encoder", "onnx:demo", "--json")
    assert done.returncode == 0, done.stderr
    assert run("search", "a red star", "--store", url, "--limit", "1").stdout.split("\t")[1] == "a"
    assert run("reindex", "--store", url, "--drop-old").stdout == "removed the replaced index\n"


KILLED_BEFORE_THE_SWITCH = """
import os, signal
from vlmsearch.cli import main
from vlmsearch.stores.generations import GenerationalStore
GenerationalStore.switch = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
main()
"""


@pytest.mark.slow
def test_a_reindex_that_is_killed_before_the_switch_is_told_of_and_taken_up(tmp_path: Path) -> None:
    url = f"sqlite:{tmp_path / 'index'}"
    (tmp_path / "a.jsonl").write_text('{"id": "a", "text": "a red star"}\n{"id": "b", "text": "two dogs"}\n')
    (tmp_path / "c.jsonl").write_text('{"id": "c", "text": "three cats"}\n')
    assert run("index", str(tmp_path / "a.jsonl"), "--store", url, "--encoder", "mock:").returncode == 0
    arguments = ["reindex", "--store", url, "--encoder", "onnx:demo"]
    killed = subprocess.run([sys.executable, "-c", KILLED_BEFORE_THE_SWITCH, *arguments], check=False)
    assert killed.returncode == -signal.SIGKILL
    assert json.loads(run("info", "--store", url, "--json").stdout)["frozen"].startswith(f"{url} takes no writes")
    late = ["index", str(tmp_path / "c.jsonl"), "--store", url, "--encoder"]
    refused = run(*late, "mock:")
    assert refused.returncode == 1
    assert len(refused.stderr.splitlines()) == 1
    assert "if it was cut off, run it again" in refused.stderr
    assert run("search", "dogs", "--store", url, "--encoder", "mock:", "--limit", "1").stdout.split("\t")[1] == "b"
    done = json.loads(run(*arguments, "--drop-old", "--json").stdout)
    assert {key: done[key] for key in ("documents", "encoded", "switched", "dropped")} == {
        "documents": 2, "encoded": 0, "switched": True, "dropped": True,
    }  # fmt: skip
    assert "frozen" not in json.loads(run("info", "--store", url, "--json").stdout)
    assert run(*late, "onnx:demo").returncode == 0
    assert run("search", "dogs", "--store", url, "--limit", "1").stdout.split("\t")[1] == "b"
