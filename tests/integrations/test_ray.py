"""Indexing on Ray: the index is the one that one process builds, whatever is killed meanwhile."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
import ray
from PIL import Image

from tests.support.cli import ok, run
from tests.support.equal_stores import assert_equal_stores
from tests.support.object_storage import put_folder
from tests.support.ray_cluster import processes
from tests.support.shards import png, write_parquet, write_tar
from vlmsearch import ConfigError, Document, IndexMismatchError, Pipeline, SourceOptions
from vlmsearch.indexing.sources import Paths
from vlmsearch.integrations.ray import RayOptions, index
from vlmsearch.registry import open_encoder, open_store


def make_sources(folder: Path, count: int = 5, rows: int = 5) -> list[str]:
    """Files, tables and shards: 3 * count + rows + 2 good documents and three bad ones."""
    photos = folder / "photos"
    photos.mkdir(parents=True)
    for seed in range(count):
        (photos / f"{seed:04}.png").write_bytes(png(seed))
    (photos / "note.txt").write_text("a dog in the snow")
    (photos / "broken.jpg").write_bytes(b"\xff\xd8\xff broken")
    table: list[dict[str, object]] = [
        {"id": f"row-{number}", "text": f"word{number} and more", "year": number} for number in range(rows)
    ]
    table += [{"id": "linked", "image": "photos/0001.png"}, {"id": "nothing"}]
    table[0] |= {"unread": "1 chart", "unread_count": 1}
    (photos / "a.log").touch()
    (folder / "rows.jsonl").write_text("\n".join([*map(json.dumps, table), "no json"]))
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


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[str], str]:
    """The sources of 602 documents, which are more than are stored together, and their index of one process."""
    folder = tmp_path_factory.mktemp("many")
    sources, one = make_sources(folder, 20, 540), f"sqlite:{folder}/one"
    in_one_process(sources, one)
    return sources, one


def command(cluster: str, sources: list[str], store: str) -> list[str]:
    """The command that indexes on the cluster."""
    program = [sys.executable, "-m", "vlmsearch", "index", *sources, "--on", f"ray:{cluster}"]
    return [*program, "--encoder", "mock:", "--store", store, "--json"]


@pytest.mark.usefixtures("cluster")
def test_the_index_is_the_one_of_one_process_and_is_kept_in_step(tmp_path: Path) -> None:
    sources = make_sources(tmp_path)
    one, two = f"sqlite:{tmp_path}/one", f"sqlite:{tmp_path}/two"
    in_one_process(sources, one)
    done: list[int] = []
    report = index(sources, encoder="mock:", store=two, on_progress=done.append)
    assert (report.added, len(report.rejects), report.unchanged) == (22, 3, 0)
    assert done[-1] == report.seen
    assert (report.partly_read, report.unread, report.others) == (1, {"chart": 1}, {".log": 1})
    assert_same(one, two)
    (tmp_path / "photos/0000.png").unlink()
    (tmp_path / "photos/0001.png").write_bytes(png(999))
    report = index(sources, encoder="mock:", store=two, prune=True)
    assert (report.added, report.updated, report.unchanged, report.pruned) == (0, 2, 19, 1)
    with Pipeline.open(encoder="mock:", store=one) as pipeline:
        pipeline.index(sources, prune=True)
    assert_same(one, two)


@pytest.mark.usefixtures("cluster")
def test_several_writers_fill_an_index_that_a_server_keeps(postgres_url: str, many: tuple[list[str], str]) -> None:
    sources, one = many
    two = f"{postgres_url}?table=ray_{os.getpid()}"
    assert index(sources, encoder="mock:", store=two, options=RayOptions(writers=2)).added == 602
    assert_same(one, two, within=1e-6)


@pytest.mark.usefixtures("cluster")
def test_tables_have_their_columns_and_a_file_of_several_documents_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "note.txt").write_text("a dog in the snow")
    (tmp_path / "page.html").write_text("<p>a cat")
    sheet = Image.new("RGB", (40, 40), "navy")
    sheet.save(tmp_path / "scan.tif", save_all=True, append_images=[sheet, sheet])
    (tmp_path / "goods.csv").write_text("sku;body\n007;a red star\n")
    paths = [tmp_path / name for name in ("note.txt", "page.html", "scan.tif", "goods.csv")]
    source = Paths(paths, options=SourceOptions(columns="text=body,id=sku"))
    report = index(source, encoder="mock:", store=f"sqlite:{tmp_path}/index")
    assert (report.added, [reject.code for reject in report.rejects]) == (3, ["unreadable"])
    assert "which a cluster does not read" in report.rejects[0].message
    assert report.unread == {"page": 2}


@pytest.mark.usefixtures("cluster")
def test_readers_are_given_and_change_without_encoding(tmp_path: Path) -> None:
    (tmp_path / "note.md").write_text("---\nreaders: group:hr\n---\nA dog.")
    Image.new("RGB", (40, 40), "navy").save(
        tmp_path / "scan.tif", save_all=True, append_images=[Image.new("L", (9, 9))]
    )
    store = f"sqlite:{tmp_path}/index"
    for given, expected in (
        (["user:ann"], dict.fromkeys(("note.md", "scan.tif"), frozenset({"user:ann"}))),
        ([], dict.fromkeys(("note.md", "scan.tif"), frozenset[str]())),
    ):
        source = Paths([tmp_path / "note.md", tmp_path / "scan.tif"], options=SourceOptions(readers=given))
        assert index(source, encoder="mock:", store=store).indexed == 2
        with open_store(store) as opened:
            documents = opened.get(list(opened.ids()))
        assert {Path(document.id).name: document.readers for document in documents} == expected


@pytest.mark.usefixtures("cluster")
def test_a_page_has_the_readers_of_its_file(tmp_path: Path) -> None:
    store, rows = f"sqlite:{tmp_path}/index", tmp_path / "rows.jsonl"
    with Pipeline.open(encoder="mock:", store=store) as pipeline:
        pipeline.add(Document("a.pdf", text="all", readers=["group:hr"]))
    rows.write_text('{"id": "a.pdf#page=1", "text": "one"}')
    index(rows, encoder="mock:", store=store)
    with open_store(store) as opened:
        assert opened.get(["a.pdf#page=1"])[0].readers == frozenset({"group:hr"})


@pytest.mark.usefixtures("cluster")
def test_object_storage_is_read_by_the_workers(tmp_path: Path) -> None:
    sources = make_sources(tmp_path)
    url = put_folder(tmp_path, "ray")
    places = [source.replace(str(tmp_path), url) for source in sources]
    one, two = f"sqlite:{tmp_path}/one", f"sqlite:{tmp_path}/two"
    in_one_process(places, one)
    assert index(places, encoder="mock:", store=two).added == 22
    assert_same(one, two)


def test_workers_are_killed_and_nothing_is_lost_and_the_command_prints_its_report_alone(
    cluster: str, many: tuple[list[str], str], tmp_path: Path
) -> None:
    sources, one = many
    two = f"sqlite:{tmp_path}/two"
    killed: set[str] = set()
    with subprocess.Popen(
        command(cluster, sources, two), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as driver:
        while driver.poll() is None:
            for title in {"_Worker", "_Keeper", "_examine", "_save", "_read"} - killed:
                for victim in processes(title)[:1]:
                    with suppress(psutil.Error):
                        victim.kill()
                        killed.add(title)
            time.sleep(0.1)
        report = json.load(driver.stdout or sys.stdin)
    assert {"_Worker", "_Keeper"} <= killed
    assert report["added"] + report["unchanged"] == 602  # stored by one that was lost right after it
    assert_same(one, two)


def test_a_run_whose_driver_is_killed_is_completed_by_the_next(
    cluster: str, many: tuple[list[str], str], tmp_path: Path
) -> None:
    sources, one = many
    two = f"sqlite:{tmp_path}/two"
    driver = subprocess.Popen(command(cluster, sources, two), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    with open_store(two) as store:
        while driver.poll() is None and not (store.manifest() and len(store)):
            time.sleep(0.1)
        assert driver.poll() is None
        driver.kill()
        driver.wait()
        psutil.wait_procs(processes("_Worker", "_Keeper", "_examine", "_save", "_read"), 60)
        there = len(store)
    assert there > 0
    report = index(sources, encoder="mock:", store=two)
    assert report.unchanged >= there
    assert report.added + report.unchanged == 602
    assert_same(one, two)


@pytest.mark.usefixtures("cluster")
def test_errors_of_the_workers_are_those_of_one_process(tmp_path: Path) -> None:
    text = tmp_path / "note.txt"
    text.write_text("a dog")
    store = f"sqlite:{tmp_path}/index"
    with Pipeline(open_encoder("onnx:demo"), open_store(store)) as pipeline:
        pipeline.add(Document("a", text="a dog"))
    assert index(text, store=store).added == 1, "with the encoder that built the index"
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


def test_a_cluster_that_is_not_there_is_an_error_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "note.txt").write_text("a dog")
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    result = run("index", tmp_path, "--on", "ray:127.0.0.1:1", "--encoder", "mock:", "--store", f"sqlite:{tmp_path}/i")
    assert result.returncode == 1
    assert "Error: no Ray cluster at 127.0.0.1:1" in result.stderr
    assert "Traceback" not in result.stderr


def test_the_command_takes_what_makes_sense_on_a_cluster(tmp_path: Path) -> None:
    wrong = run("index", tmp_path, "--on", "spark")
    assert (wrong.returncode, "'spark' is neither ray nor ray:ADDRESS" in wrong.stderr) == (2, True)
    strict = run("index", tmp_path, "--on", "ray", "--strict")
    assert (strict.returncode, "leave out --server and --strict" in strict.stderr) == (2, True)


@pytest.mark.usefixtures("cluster")
def test_the_command_indexes_with_the_model_that_built_the_index_which_encodes_there_as_here(tmp_path: Path) -> None:
    sources = make_sources(tmp_path)
    one, two = f"sqlite:{tmp_path}/one", f"sqlite:{tmp_path}/two"
    in_one_process(sources, one, "onnx:demo")
    first = ok("index", sources[0], "--on", "ray", "--store", two, "--encoder", "onnx:demo", "--json")
    assert json.loads(first)["added"] == 6
    again = json.loads(ok("index", *sources, "--on", "ray", "--store", two, "--json"))
    assert (again["added"], again["unchanged"]) == (16, 6)
    assert_same(one, two, within=1e-6)


def test_a_node_is_killed_and_nothing_is_lost(many: tuple[list[str], str], tmp_path: Path) -> None:
    sources, one = many
    two = f"sqlite:{tmp_path}/two"
    program = [sys.executable, "-m", "tests.support.two_nodes", two, *sources]
    result = subprocess.run(program, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    found = json.loads(next(line for line in result.stdout.splitlines() if line.startswith("{")))
    assert (found["nodes"], found["done"]) == (2, 602)
    assert_same(one, two)
