"""Indexing on Ray: the index is the one that one process builds, whatever is killed meanwhile."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from tests.support.cli import run
from tests.support.equal_stores import assert_equal_stores
from tests.support.object_storage import put_folder
from tests.support.ray_cluster import processes
from tests.support.shards import png, write_parquet, write_tar
from vlmsearch import ConfigError, Document, IndexMismatchError, Pipeline
from vlmsearch.integrations.ray import RayOptions, index
from vlmsearch.registry import open_encoder, open_store


def make_sources(folder: Path, count: int = 40) -> list[str]:
    """Files, tables and shards: 4 * count + 2 good documents and three bad ones."""
    photos = folder / "photos"
    photos.mkdir(parents=True)
    for seed in range(count):
        (photos / f"{seed:04}.png").write_bytes(png(seed))
    (photos / "note.txt").write_text("a dog in the snow")
    (photos / "broken.jpg").write_bytes(b"\xff\xd8\xff broken")
    rows = [{"id": f"row-{number}", "text": f"word{number} and more", "year": number} for number in range(count)]
    rows += [{"id": "linked", "image": "photos/0001.png"}, {"id": "nothing"}]
    (folder / "rows.jsonl").write_text("\n".join([*map(json.dumps, rows), "no json"]))
    write_parquet(folder / "rows.parquet", [{"id": f"pq-{seed}", "image": png(seed)} for seed in range(count)])
    files: dict[str, bytes | str | dict[str, object]] = {f"{seed}.png": png(seed) for seed in range(count)}
    write_tar(folder / "shard.tar", {"0.json": {"year": 2024}, **files})
    return [str(folder / name) for name in ("photos", "rows.jsonl", "rows.parquet", "shard.tar")]


def in_one_process(sources: list[str], store: str, encoder: str = "mock:") -> None:
    with Pipeline.open(encoder=encoder, store=store) as pipeline:
        pipeline.index(sources)


def assert_same(one: str, two: str, *, within: float = 0.0) -> None:
    with open_store(one) as first, open_store(two) as second:
        assert_equal_stores(first, second, within=within)


@pytest.mark.usefixtures("cluster")
def test_the_index_is_the_one_of_one_process_and_is_kept_in_step(tmp_path: Path) -> None:
    sources = make_sources(tmp_path)
    one, two = f"sqlite:{tmp_path}/one", f"sqlite:{tmp_path}/two"
    in_one_process(sources, one)
    done: list[int] = []
    report = index(sources, encoder="mock:", store=two, on_progress=done.append)
    assert (report.added, len(report.rejects), report.unchanged) == (162, 3, 0)
    assert done[-1] == report.seen
    assert_same(one, two)
    (tmp_path / "photos/0000.png").unlink()
    (tmp_path / "photos/0001.png").write_bytes(png(999))
    report = index(sources, encoder="mock:", store=two, prune=True)
    assert (report.added, report.updated, report.unchanged, report.pruned) == (0, 2, 159, 1)
    with Pipeline.open(encoder="mock:", store=one) as pipeline:
        pipeline.index(sources, prune=True)
    assert_same(one, two)


@pytest.mark.usefixtures("cluster")
def test_a_model_encodes_there_as_here(tmp_path: Path) -> None:
    sources = make_sources(tmp_path, 10)
    one, two = f"sqlite:{tmp_path}/one", f"sqlite:{tmp_path}/two"
    in_one_process(sources, one, "onnx:demo")
    assert index(sources, encoder="onnx:demo", store=two).added == 42
    assert_same(one, two, within=1e-6)


@pytest.mark.usefixtures("cluster")
@pytest.mark.parametrize(
    "kind",
    [
        "mongodb+chroma",
        "postgresql",
        *(pytest.param(kind, marks=pytest.mark.exhaustive) for kind in ("mongodb", "chroma")),
    ],
)
def test_several_writers_fill_an_index_that_servers_keep(
    kind: str, mongo_address: str, chroma_address: str, postgres_url: str, tmp_path: Path
) -> None:
    sources = make_sources(tmp_path)
    name = f"ray-{os.getpid()}-{kind.replace('+', '-')}"
    two = {
        "mongodb": f"mongodb://{mongo_address}/{name}",
        "mongodb+chroma": f"mongodb+chroma://{mongo_address}/{name}?chroma=http://{chroma_address}",
        "chroma": f"chroma://{chroma_address}/{name}",
        "postgresql": f"{postgres_url}?table=ray_{os.getpid()}",
    }[kind]
    in_one_process(sources, f"sqlite:{tmp_path}/one")
    assert index(sources, encoder="mock:", store=two, options=RayOptions(writers=2)).added == 162
    assert_same(f"sqlite:{tmp_path}/one", two, within=1e-6)
    assert index(sources, encoder="mock:", store=two, options=RayOptions(writers=2)).unchanged == 162


@pytest.mark.usefixtures("cluster")
def test_object_storage_is_read_by_the_workers(tmp_path: Path) -> None:
    sources = make_sources(tmp_path, 10)
    url = put_folder(tmp_path, "ray")
    places = [source.replace(str(tmp_path), url) for source in sources]
    one, two = f"sqlite:{tmp_path}/one", f"sqlite:{tmp_path}/two"
    in_one_process(places, one)
    assert index(places, encoder="mock:", store=two).added == 42
    assert_same(one, two)


@pytest.mark.usefixtures("cluster")
def test_workers_are_killed_again_and_again_and_nothing_is_lost(tmp_path: Path) -> None:
    sources = make_sources(tmp_path, 150)
    one, two = f"sqlite:{tmp_path}/one", f"sqlite:{tmp_path}/two"
    in_one_process(sources, one)
    killed: list[str] = []
    over = threading.Event()

    def kill() -> None:
        titles = ["_Worker", "_Keeper", "_examine", "_save", "_read"]
        while len(killed) < 12 and not over.wait(0.7):
            for victim in processes(titles[len(killed) % len(titles)])[:1]:
                with suppress(psutil.Error):
                    killed.append(victim.cmdline()[0])
                    victim.kill()

    killer = threading.Thread(target=kill)
    killer.start()
    try:
        index(sources, encoder="mock:", store=two)
    finally:
        over.set()
        killer.join()
    assert killed
    assert_same(one, two)
    assert index(sources, encoder="mock:", store=two).unchanged == 602


def test_a_run_whose_driver_is_killed_is_completed_by_the_next(tmp_path: Path) -> None:
    sources = make_sources(tmp_path, 150)
    one, two = f"sqlite:{tmp_path}/one", f"sqlite:{tmp_path}/two"
    in_one_process(sources, one)
    command = [sys.executable, "-m", "vlmsearch", "index", *sources, "--on", "ray", "--encoder", "mock:"]
    driver = subprocess.Popen([*command, "--store", two], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    with open_store(two) as store:
        while driver.poll() is None and not (store.manifest() and len(store)):
            time.sleep(0.1)
        assert driver.poll() is None
        started = psutil.Process(driver.pid).children(recursive=True)
        driver.send_signal(signal.SIGKILL)
        driver.wait()
        _, alive = psutil.wait_procs(started, 20)
        for process in alive:  # agents of Ray, which look around once in a while
            process.kill()
        there = len(store)
        assert there > 0
    result = subprocess.run([*command, "--store", two, "--json"], capture_output=True, text=True, check=False)
    report = json.loads(result.stdout)
    assert report["unchanged"] >= there
    assert report["added"] + report["unchanged"] == 602
    assert_same(one, two)


def test_the_command_prints_its_report_alone_where_a_worker_is_killed(tmp_path: Path) -> None:
    sources = make_sources(tmp_path, 150)
    command = [sys.executable, "-m", "vlmsearch", "index", *sources, "--on", "ray", "--encoder", "mock:"]
    driver = subprocess.Popen(
        [*command, "--store", f"sqlite:{tmp_path}/index", "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    while not (workers := [each for each in processes("_examine") if psutil.Process(driver.pid) in each.parents()]):
        assert driver.poll() is None
        time.sleep(0.1)
    workers[0].kill()
    output, _ = driver.communicate()
    assert json.loads(output)["added"] == 602


@pytest.mark.usefixtures("cluster")
def test_errors_of_the_workers_are_those_of_one_process(tmp_path: Path) -> None:
    text = tmp_path / "note.txt"
    text.write_text("a dog")
    store = f"sqlite:{tmp_path}/index"
    with Pipeline(open_encoder("onnx:demo"), open_store(store)) as pipeline:
        pipeline.add(Document("a", text="a dog"))
    with pytest.raises(IndexMismatchError, match="was built with demo-clip"):
        index(text, encoder="mock:", store=store)
    with pytest.raises(ConfigError, match=r"there are .*mock:"):
        index(text, encoder="onyx:demo", store=store)
    (tmp_path / "empty").mkdir()
    with pytest.raises(ConfigError, match="no images, texts or rows in"):
        index(tmp_path / "empty", encoder="mock:", store=f"sqlite:{tmp_path}/new")
    with pytest.raises(ConfigError, match="2 `workers` of 1 CPUs leave none of the cluster's 2 to read and decode"):
        index(text, encoder="mock:", store=store, options=RayOptions(workers=2, worker_cpus=1))
    with pytest.raises(ConfigError, match="any `workers` of 1 GPUs: the cluster has 0"):
        index(text, encoder="mock:", store=store, options=RayOptions(worker_gpus=1))


def test_a_cluster_that_is_not_there_is_an_error_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "note.txt").write_text("a dog")
    command = [
        sys.executable,
        "-m",
        "vlmsearch",
        "index",
        str(tmp_path),
        "--on",
        "ray:127.0.0.1:1",
        "--encoder",
        "mock:",
    ]
    result = subprocess.run([*command, "--store", f"sqlite:{tmp_path}/i"], capture_output=True, text=True, check=False)
    assert result.returncode == 1
    assert "Error: no Ray cluster at 127.0.0.1:1" in result.stderr
    assert "Traceback" not in result.stderr


def test_the_command_takes_what_makes_sense_on_a_cluster(tmp_path: Path) -> None:
    wrong = run("index", tmp_path, "--on", "spark")
    assert (wrong.returncode, "'spark' is neither ray nor ray:ADDRESS" in wrong.stderr) == (2, True)
    strict = run("index", tmp_path, "--on", "ray", "--strict")
    assert (strict.returncode, "leave out --server and --strict" in strict.stderr) == (2, True)


@pytest.mark.usefixtures("cluster")
def test_the_command_indexes_on_the_cluster_with_what_built_the_index(tmp_path: Path) -> None:
    sources = make_sources(tmp_path, 5)
    store = f"sqlite:{tmp_path}/index"
    first = run("index", sources[0], "--on", "ray", "--store", store, "--encoder", "onnx:demo", "--json")
    assert json.loads(first.stdout)["added"] == 6
    again = run("index", *sources, "--on", "ray", "--store", store, "--json")
    assert (json.loads(again.stdout)["added"], json.loads(again.stdout)["unchanged"]) == (16, 6)


def test_a_node_is_killed_and_nothing_is_lost(tmp_path: Path) -> None:
    sources = make_sources(tmp_path, 150)
    one, two = f"sqlite:{tmp_path}/one", f"sqlite:{tmp_path}/two"
    in_one_process(sources, one)
    command = [sys.executable, "-m", "tests.support.two_nodes", two, *sources]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    found = json.loads(next(line for line in result.stdout.splitlines() if line.startswith("{")))
    assert (found["nodes"], found["done"]) == (2, 602)
    assert_same(one, two)
