"""`vlmsearch triton` and `vlmsearch bench triton` as a user runs them."""

import json
import signal
from pathlib import Path

import pytest

from tests.support.cli import assert_one_line, ok, run
from tests.support.triton_server import CACHE, Running, free_ports, serving, stubs
from vlmsearch.demo.scenes import make_scene
from vlmsearch.pipeline import Pipeline
from vlmsearch.triton.repository.options import RepoOptions
from vlmsearch.triton.repository.writer import write_repository
from vlmsearch.triton.server.commands import Binary

SEED = 24_000_000


def test_the_same_ids_as_in_process(binary: Binary, tmp_path: Path) -> None:
    """The commands of the README: a repository, a server, an index made and searched through it."""
    (tmp_path / "photos").mkdir()
    for i in range(60):
        make_scene(SEED + i).draw(96).save(tmp_path / "photos" / f"{i:02}.jpg")
    (tmp_path / "photos" / "broken.jpg").write_bytes(b"\xff\xd8\xff nothing")
    ok("triton", "repo", "--models", "demo", "--platform", "python", "--out", "R", cwd=tmp_path)
    with serving(tmp_path / "R") as (location, _):
        for name, encoder in (("local", "onnx:demo"), ("remote", f"triton:{location}")):
            done = run("index", "photos", "--encoder", encoder, "--store", f"sqlite:{name}", "--json", cwd=tmp_path)
            report = json.loads(done.stdout)
            assert (report["added"], len(report["rejects"])) == (60, 1), done.stderr
            assert report["rejects"][0]["code"] == "truncated"
        printed = [
            ok("search", make_scene(SEED).caption(), "--encoder", encoder, "--store", store, cwd=tmp_path)
            for encoder, store in (("onnx:demo", "sqlite:local"), (f"triton:{location}", "sqlite:remote"))
        ]
        assert printed[0] == printed[1]
        with (
            Pipeline.open(encoder="onnx:demo", store=f"sqlite:{tmp_path / 'local'}") as local,
            Pipeline.open(encoder=f"triton:{location}", store=f"sqlite:{tmp_path / 'remote'}") as remote,
        ):
            for i in range(0, 60, 6):
                ids = [
                    [match.document.id for match in one.search(make_scene(SEED + i).caption(), min_score=0)]
                    for one in (local, remote)
                ]
                assert ids[0] == ids[1]
                assert len(ids[0]) == 10
                picture = tmp_path / "photos" / f"{i:02}.jpg"
                ids = [
                    [match.document.id for match in one.search(image=picture, min_score=0)] for one in (local, remote)
                ]
                assert ids[0] == ids[1]


def test_serving_stops_cleanly(binary: Binary, repository: Path) -> None:
    for number in (signal.SIGINT, signal.SIGTERM):
        with serving(repository) as (_, process):
            group = int(Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()[0])
            assert len(stubs(group)) == 6
            process.send_signal(number)
            assert process.wait(120) == 0
        assert stubs(group) == {}
        assert not list(Path("/dev/shm").glob(f"*vlmsearch_*_{process.pid}_*"))


def test_a_model_that_fails_is_named_with_its_reason(binary: Binary, tmp_path: Path) -> None:
    folder = write_repository("demo", tmp_path / "R", RepoOptions()).folder
    (folder / "minilm" / "1" / "model.onnx").write_bytes(b"not a model")
    ends = free_ports()
    flags = [f"--http-port={ends.http}", f"--grpc-port={ends.grpc}", f"--metrics-port={ends.metrics}"]
    done = run("triton", "serve", "R", *flags, cwd=tmp_path, VLMSEARCH_CACHE=str(CACHE))
    assert (done.returncode, done.stdout) == (1, "")
    assert "1 of 5 models failed: minilm: " in done.stderr
    assert "INVALID_PROTOBUF" in done.stderr
    advice, *_, error = done.stderr.splitlines()
    assert advice.startswith("Triton 2.51.0, the newest in a wheel, is for trying out, on this machine alone: it is un")
    assert error.startswith("Error: ")


def test_a_port_that_is_taken_and_a_folder_that_is_not_there(triton: Running, repository: Path, tmp_path: Path) -> None:
    done = run("triton", "serve", repository, f"--http-port={triton.ends.http}", VLMSEARCH_CACHE=str(CACHE))
    assert done.returncode == 1
    assert "choose another --http-port" in done.stderr
    done = run("triton", "serve", "nowhere", cwd=tmp_path, VLMSEARCH_CACHE=str(CACHE))
    assert done.returncode == 1
    assert "make a repository with `vlmsearch triton repo --out nowhere`" in done.stderr


def test_a_dry_run_installs_nothing(tmp_path: Path) -> None:
    command = ok("triton", "serve", tmp_path, "--dry-run", VLMSEARCH_CACHE=str(tmp_path / "cache"))
    assert command.startswith(f"tritonserver --model-repository={tmp_path} ")
    assert not (tmp_path / "cache").exists()


@pytest.fixture
def no_triton(tmp_path: Path) -> dict[str, str]:
    """The environment of a machine that has no Triton and no package index."""
    place = {"VLMSEARCH_CACHE": str(tmp_path / "cache"), "PATH": str(tmp_path)}
    return {**place, "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": "", "PIP_CONFIG_FILE": "/dev/null"}


@pytest.mark.parametrize("group", ["triton", "llm"])
def test_without_a_triton_it_says_how_to_get_one(tmp_path: Path, no_triton: dict[str, str], group: str) -> None:
    (tmp_path / "ensemble").mkdir()
    (tmp_path / "ensemble" / "config.pbtxt").write_text('name: "ensemble"')
    done = run(group, "serve", tmp_path, cwd=tmp_path, **no_triton)
    assert_one_line(done, "there is no tritonserver on PATH, and none installed")
    assert "container with --docker" in done.stderr
    assert "--install install Triton 2.51.0, which is unpatched" in done.stderr
    assert not (tmp_path / "cache").exists()
    done = run(
        group, "serve", tmp_path, "--docker", "--install", "--release" if group == "llm" else "--triton", "24.09"
    )
    assert (done.returncode, "--install is for a server without --docker" in done.stderr) == (2, True)


def test_what_is_asked_for_by_name_is_installed_and_said_to_be_unpatched(
    tmp_path: Path, no_triton: dict[str, str]
) -> None:
    done = run("triton", "serve", tmp_path, "--install", cwd=tmp_path, **no_triton)
    advice, *steps, error = done.stderr.splitlines()
    assert "for trying out, on this machine alone: it is unpatched" in advice
    assert steps[-1] == "installing Triton 2.51.0 (nvidia-pytriton==0.7.0)"
    assert error.startswith("Error: ")
    assert "nvidia-pytriton==0.7.0" in error


def test_what_is_installed_serves_this_machine_alone(
    binary: Binary, tmp_path: Path, no_triton: dict[str, str], repository: Path
) -> None:
    refused = "is unpatched: it listens on 127.0.0.1 alone; use --docker, or put a newer tritonserver on PATH"
    for cache in (str(CACHE), str(tmp_path / "cache")):
        place = {**no_triton, "VLMSEARCH_CACHE": cache}
        for host in ("0.0.0.0", "::", "10.0.0.1", "myself"):
            assert_one_line(
                run("triton", "serve", repository, "--install", "--host", host, cwd=tmp_path, **place), refused
            )
    assert not (tmp_path / "cache").exists()
    place = {**no_triton, "VLMSEARCH_CACHE": str(CACHE)}
    assert_one_line(run("triton", "serve", repository, "--host", "0.0.0.0", cwd=tmp_path, **place), refused)
    assert_one_line(
        run("triton", "serve", repository, "--host", "0.0.0.0", "--dry-run", cwd=tmp_path, **place), refused
    )
    done = run("triton", "serve", repository, "--dry-run", cwd=tmp_path, **place)
    assert done.stdout.startswith(binary.program)
    assert "--grpc-address=127.0.0.1" in done.stdout
    (tmp_path / "tritonserver").write_text("#!/bin/sh\nexit 3\n")
    (tmp_path / "tritonserver").chmod(0o755)
    done = run("triton", "serve", repository, "--host", "0.0.0.0", "--dry-run", cwd=tmp_path, **place)
    assert done.stdout.startswith(str(tmp_path / "tritonserver"))
    assert "--grpc-address=0.0.0.0" in done.stdout
    assert "unpatched" not in done.stderr


def test_the_command_for_docker_is_exact(repository: Path) -> None:
    flags = ["--docker", "--triton", "26.07", "--gpu", "--dry-run", "--grpc-port", "9001", "--", "--log-verbose=1"]
    command = ok("triton", "serve", str(repository), *flags)
    for part in (
        "docker run --rm --init --shm-size=2g",
        "--gpus all",
        "-p 127.0.0.1:9001:8001",
        f"-v {repository}:{repository}:ro nvcr.io/nvidia/tritonserver:26.07-py3",
        f"pip install --quiet -r {repository}/requirements.txt && exec tritonserver --model-repository={repository}",
        "--log-verbose=1",
    ):
        assert part in command
    assert "no Triton release '1.1'" in run("triton", "serve", str(repository), "--docker", "--triton", "1.1").stderr


def test_status_shows_models_and_counts(triton: Running) -> None:
    triton.ask(["MINILM"], TEXT=[b"a star", b"two rings"])
    address = f"127.0.0.1:{triton.ends.grpc}"
    found = json.loads(ok("triton", "status", address, "--json"))
    assert found["version"].startswith("2.51")
    minilm = next(model for model in found["models"] if model["name"] == "minilm")
    assert (minilm["version"], minilm["state"]) == ("1", "READY")
    assert minilm["items"] >= 2
    assert minilm["batch_sizes"]
    lines = ok("triton", "status", f"triton://{address}/vlm").splitlines()
    assert [line.split("\t")[0] for line in lines] == sorted(model["name"] for model in found["models"])
    done = run("triton", "status", "127.0.0.1:1")
    assert done.returncode == 1
    assert "Triton at 127.0.0.1:1" in done.stderr


def test_the_load_generator_reports(triton: Running) -> None:
    flags = ["--concurrency", "1,4", "--seconds", "1", "--count", "16", "--compare", "onnx:demo"]
    found = json.loads(ok("bench", "triton", triton.url, *flags, "--json"))
    assert [level["concurrency"] for level in found["levels"]] == [1, 4]
    for level in found["levels"]:
        assert level["items_per_second"] > 0
        assert 0 < level["p50_ms"] <= level["p95_ms"] <= level["p99_ms"]
        assert level["errors"] == {}
    assert found["in_process"]["items_per_second"] > 0
    lines = ok("bench", "triton", triton.url, "--texts", "--concurrency", "2", "--seconds", "0.5").splitlines()
    assert lines[0].split("\t") == ["concurrency", "items/s", "p50 ms", "p95 ms", "p99 ms", "errors"]
    assert lines[1].split("\t")[-1] == "0"


@pytest.mark.parametrize("flags", [["--concurrency", "0"], ["--concurrency", "a,b"]])
def test_bad_levels_are_wrong_usage(flags: list[str]) -> None:
    assert run("bench", "triton", *flags).returncode == 2


@pytest.mark.parametrize("group", ["triton", "llm"])
def test_a_port_that_cannot_be_is_wrong_usage(tmp_path: Path, group: str) -> None:
    for port in ("80010", "0"):
        done = run(group, "serve", tmp_path, "--grpc-port", port)
        assert done.returncode == 2
        assert f"{port} is not in the range 1<=x<=65535" in done.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ("triton", "serve", ".", "--wait", "0"),
        ("llm", "serve", ".", "--wait", "-1"),
        ("bench", "triton", "--seconds", "-1"),
        ("triton", "serve", ".", "--cache-mib", "-1"),
    ],
    ids=" ".join,
)
def test_a_time_or_a_size_that_cannot_be_is_wrong_usage(arguments: tuple[str, ...]) -> None:
    done = run(*arguments)
    assert done.returncode == 2
    assert f"{arguments[-2]}': {arguments[-1]}" in done.stderr
    assert "is not in the range x>" in done.stderr


def test_the_dashboard_is_printed() -> None:
    board = json.loads(ok("triton", "dashboard"))
    titles = [panel["title"] for panel in board["panels"]]
    assert titles[:3] == ["Throughput", "Failures", "Time in the queue"]
