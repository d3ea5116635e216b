"""`vlmsearch llm serve`: a process for each rank, ready when all models are, and stopped with all that was started.

Several ranks are served by stand-ins for mpirun and tritonserver; one rank by the real Triton.
"""

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.cli import ok, run
from tests.support.llm_templates import built, options, write_llmapi
from tests.support.triton_server import CACHE, free_ports
from vlmsearch.errors import ConfigError
from vlmsearch.tensorrt_llm.llmapi import write_llmapi_repository
from vlmsearch.tensorrt_llm.repository import write_llm_repository
from vlmsearch.tensorrt_llm.serve import Ranks, ranks_command
from vlmsearch.tensorrt_llm.versions import find_target
from vlmsearch.triton.server.commands import Binary, Endpoints

MPIRUN = """
import os, signal, subprocess, sys, time
arguments = sys.argv[1:]
assert arguments.pop(0) == "--allow-run-as-root"
ranks, current = [], []
for part in arguments:
    if part == ":":
        ranks.append(current)
        current = []
    else:
        current.append(part)
assert not current, "a rank without a colon after it"
children = []
for number, rank in enumerate(ranks):
    assert rank[:2] == ["-n", "1"], rank
    environment = {**os.environ, "OMPI_COMM_WORLD_RANK": str(number), "OMPI_COMM_WORLD_SIZE": str(len(ranks))}
    # as Open MPI does: each rank in a process group of its own
    children.append(subprocess.Popen(rank[2:], env=environment, preexec_fn=os.setpgrp))
def forward(number, frame):
    if os.environ.get("STUBBORN"):
        return
    for child in children:
        child.send_signal(number)
signal.signal(signal.SIGTERM, forward)
while all(child.poll() is None for child in children):
    time.sleep(0.05)
if any(child.poll() for child in children) and not os.environ.get("STUBBORN"):
    forward(signal.SIGTERM, None)  # a rank that fails takes the others with it
codes = [child.wait() for child in children]
sys.exit(max(codes))
"""
TRITON = """
import http.server, json, os, pathlib, signal, sys, time
KNOWN = '''model-repository exit-on-error http-address http-port grpc-address grpc-port metrics-address metrics-port
backend-config grpc-restricted-protocol http-restricted-api disable-auto-complete-config
model-control-mode load-model pinned-memory-pool-byte-size
enable-peer-access cuda-memory-pool-byte-size log-verbose'''.split()
flags = {}
for part in sys.argv[1:]:
    assert part.startswith("--"), part
    name, _, value = part[2:].partition("=")
    assert name in KNOWN, f"unrecognized option {part}"
    flags.setdefault(name, []).append(value)
rank = os.environ.get("OMPI_COMM_WORLD_RANK", "0")
environment = {k: v for k, v in os.environ.items() if k.startswith(("CUDA_V", "TRTLLM"))}
place = pathlib.Path(os.environ["SERVER_LOG"])
(place / f"{rank}.json").write_text(json.dumps({"pid": os.getpid(), "flags": flags, "environment": environment}))
prefix = next(v for v in flags["backend-config"] if "prefix" in v).split("=")[1]
pathlib.Path(f"/dev/shm/{prefix}x").write_text("")
if os.environ.get("STUBBORN"):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
size = int(os.environ.get("OMPI_COMM_WORLD_SIZE", "1"))
while len(list(place.glob("[0-9].json"))) < size:  # none ends, or has others ended, before all have told
    time.sleep(0.02)
if rank != "0":
    assert flags["model-control-mode"] == ["explicit"] and flags["load-model"] == ["tensorrt_llm"]
    if os.environ.get("RANK_DIES"):
        print("E0101 rank 1: cannot open rank1.engine", flush=True)
        sys.exit(7)
    time.sleep(600)
state = os.environ.get("STATE", "READY")
models = [{"name": "ensemble", "version": "1", "state": "READY"},
          {"name": "tensorrt_llm", "version": "1", "state": state, "reason": "engine needs TensorRT 10.4\\nAt:\\n x"}]
class Handler(http.server.BaseHTTPRequestHandler):
    def answer(self):
        body = json.dumps(models if "index" in self.path else {}).encode()
        self.send_response(200)
        self.end_headers()
        self.wfile.write(body)
    do_GET = do_POST = answer
    def log_message(self, *_): pass
http.server.HTTPServer(("127.0.0.1", int(flags["http-port"][0])), Handler).serve_forever()
"""


@pytest.fixture
def machine(tmp_path: Path) -> dict[str, str]:
    """The environment with the stand-ins on PATH."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name, text in (("mpirun", MPIRUN), ("tritonserver", TRITON)):
        (folder / name).write_text(f"#!{sys.executable}\n{text}")
        (folder / name).chmod(0o755)
    return {"PATH": os.pathsep.join([str(folder), os.environ["PATH"]]), "SERVER_LOG": str(tmp_path)}


def repository(tmp_path: Path, *, tp: int) -> Path:
    built(tmp_path / "built", "0.13.0", tp=tp)
    write_llm_repository(tmp_path / "R", options(tmp_path))
    return tmp_path / "R"


def ports(ends: Endpoints) -> list[str]:
    return [f"--http-port={ends.http}", f"--grpc-port={ends.grpc}", f"--metrics-port={ends.metrics}"]


@contextmanager
def serving(folder: Path, flags: Sequence[str], **environment: str) -> Iterator[subprocess.Popen[str]]:
    """The command once it says that it is ready."""
    command = [sys.executable, "-m", "vlmsearch", "llm", "serve", "R", *ports(free_ports()), *flags]
    with subprocess.Popen(
        command,
        cwd=folder,
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert line.startswith("ready: "), line + process.stdout.read()
            yield process
        finally:
            process.kill() if process.poll() is None else None


def told(tmp_path: Path, count: int) -> dict[int, dict[str, object]]:
    """What each of so many ranks was started with."""
    end = time.monotonic() + 120
    found: dict[int, dict[str, object]] = {}
    while len(found) < count and time.monotonic() < end:
        for path in tmp_path.glob("[0-9].json"):
            if text := path.read_text():
                found[int(path.stem)] = json.loads(text)
                path.unlink()
        time.sleep(0.02)
    return found


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.slow
def test_a_process_for_each_rank_and_all_of_them_stopped(tmp_path: Path, machine: dict[str, str]) -> None:
    repository(tmp_path, tp=4)
    with serving(tmp_path, ["--gpus", "0,1,2,3"], **machine) as process:
        ranks = told(tmp_path, 4)
        process.send_signal(signal.SIGINT)
        assert process.wait(120) == 0
    assert sorted(ranks) == [0, 1, 2, 3]
    for rank, started in ranks.items():
        assert started["environment"] == {"CUDA_VISIBLE_DEVICES": "0,1,2,3"}
        flags = started["flags"]
        assert isinstance(flags, dict)
        assert ("load-model" in flags) == (rank > 0)
        assert any(f"_{rank}_" in value for value in flags["backend-config"])
        assert not alive(int(str(started["pid"])))
    assert not list(Path("/dev/shm").glob(f"*vlmsearch_*_{process.pid}_*"))


def test_ranks_that_do_not_care_are_killed(tmp_path: Path, machine: dict[str, str]) -> None:
    repository(tmp_path, tp=2)
    with serving(tmp_path, [], STUBBORN="1", **machine) as process:
        ranks = told(tmp_path, 2)
        process.send_signal(signal.SIGTERM)
        time.sleep(1)
        process.send_signal(signal.SIGTERM)  # at once
        assert process.wait(120) == 0
    assert len(ranks) == 2
    assert not any(alive(int(str(started["pid"]))) for started in ranks.values())


def test_a_model_that_fails_and_a_rank_that_dies_are_named(tmp_path: Path, machine: dict[str, str]) -> None:
    repository(tmp_path, tp=2)
    flags = [*ports(free_ports()), "--no-restart"]
    done = run("llm", "serve", "R", *flags, cwd=tmp_path, STATE="UNAVAILABLE", **machine)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "Error: 1 of 2 models failed: tensorrt_llm: engine needs TensorRT 10.4\n"
    assert not any(alive(int(str(started["pid"]))) for started in told(tmp_path, 2).values())
    done = run("llm", "serve", "R", *flags, cwd=tmp_path, RANK_DIES="1", **machine)
    assert done.returncode == 1
    assert "(exit status 7): E0101 rank 1: cannot open rank1.engine" in done.stderr
    assert not any(alive(int(str(started["pid"]))) for started in told(tmp_path, 2).values())


def test_the_commands_are_those_of_nvidias_launcher(tmp_path: Path) -> None:
    ends, one = Endpoints(), Binary("tritonserver")
    alone = ranks_command(one, tmp_path, ends, Ranks())
    assert alone[:2] == ["tritonserver", f"--model-repository={tmp_path}"]
    assert "--disable-auto-complete-config" in alone
    line = ranks_command(one, tmp_path, ends, Ranks(2))
    assert line[:5] == ["mpirun", "--allow-run-as-root", "-n", "1", "tritonserver"]
    assert line.count(":") == 2
    assert line[-1] == ":"
    first, second = " ".join(line).split(" : ")
    for flag in ("--grpc-port=8001", "--http-port=8000", "--metrics-port=8002", "--disable-auto-complete-config"):
        assert flag in first
        assert flag in second
    assert "--load-model" not in first
    assert "--model-control-mode=explicit --load-model=tensorrt_llm" in second
    with pytest.raises(ConfigError, match="2 ranks need 2 GPUs, and `gpus` names 1"):
        ranks_command(one, tmp_path, ends, Ranks(2, gpus=(0,)))


def test_a_dry_run_prints_the_command(tmp_path: Path, machine: dict[str, str]) -> None:
    repository(tmp_path, tp=2)
    printed = shlex.split(ok("llm", "serve", "R", "--gpus", "0,1", "--dry-run", cwd=tmp_path, **machine))
    assert printed[:3] == ["CUDA_VISIBLE_DEVICES=0,1", "mpirun", "--allow-run-as-root"]
    assert printed.count("--load-model=tensorrt_llm") == 1
    printed = shlex.split(ok("llm", "serve", "R", "--docker", "--release", "24.09", "--dry-run", cwd=tmp_path))
    assert printed[:2] == ["docker", "run"]
    for place in ("R", "built/engine", "built/tokenizer"):
        assert f"{tmp_path / place}:{tmp_path / place}:ro" in printed
    image = printed.index("nvcr.io/nvidia/tritonserver:24.09-trtllm-python-py3")
    assert printed[image + 1 : image + 3] == ["mpirun", "--allow-run-as-root"]
    (tmp_path / "R" / "requirements.txt").write_text("torch\n")
    printed = shlex.split(ok("llm", "serve", "R", "--docker", "--release", "24.09", "--dry-run", cwd=tmp_path))
    assert printed[-3:-1] == ["bash", "-c"]
    assert printed[-1].startswith(f"pip install --quiet -r {tmp_path}/R/requirements.txt && exec mpirun ")
    done = run("llm", "serve", "R", "--docker", "--dry-run", cwd=tmp_path)
    assert "--docker needs --release" in done.stderr
    done = run("llm", "serve", "bin", "--dry-run", cwd=tmp_path, **machine)
    assert "bin serves no language model" in done.stderr
    done = run("llm", "serve", "R", "--gpus", "a", "--dry-run", cwd=tmp_path, **machine)
    assert "--gpus is numbers with a comma between them, not 'a'" in done.stderr


def test_without_mpirun_the_reason_is_given(tmp_path: Path, machine: dict[str, str]) -> None:
    repository(tmp_path, tp=2)
    (tmp_path / "bin" / "mpirun").unlink()
    done = run("llm", "serve", "R", cwd=tmp_path, **{**machine, "PATH": str(tmp_path / "bin")})
    assert done.stderr.startswith("Error: several ranks need mpirun, which is not on PATH")


def on_path(binary: Binary, folder: Path) -> dict[str, str]:
    """The environment with the real Triton on PATH, as in NVIDIA's container."""
    (folder / "bin").mkdir()
    program = folder / "bin" / "tritonserver"
    exports = "".join(f"export {name}={shlex.quote(value)}\n" for name, value in binary.environment.items())
    command = f'exec {binary.program} --backend-directory={binary.backends} "$@"'
    program.write_text(f"#!/bin/sh\n{exports}{command}\n")
    program.chmod(0o755)
    return {"PATH": os.pathsep.join([str(folder / "bin"), os.environ["PATH"]])}


def test_the_real_triton_loads_a_filled_repository(binary: Binary, tmp_path: Path) -> None:
    """All five models as Triton reads them, with Python standing for TensorRT-LLM's backend."""
    write_llm_repository(tmp_path / "R", options(tmp_path, "1.2", values={"triton_backend": "python"}))
    with serving(tmp_path, [], **on_path(binary, tmp_path)) as process:
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    assert not list(Path("/dev/shm").glob(f"*vlmsearch_*_{process.pid}_*"))


def test_the_real_triton_says_which_model_failed(binary: Binary, tmp_path: Path) -> None:
    write_llm_repository(tmp_path / "R", options(tmp_path, values={"triton_backend": "python"}))
    (tmp_path / "R" / "tensorrt_llm" / "1" / "model.py").write_text("import tensorrt_llm\n")
    done = run("llm", "serve", "R", *ports(free_ports()), cwd=tmp_path, **on_path(binary, tmp_path))
    assert (done.returncode, done.stdout) == (1, "")
    assert "models failed: " in done.stderr
    assert "tensorrt_llm: " in done.stderr
    assert "No module named 'tensorrt_llm'" in done.stderr
    assert done.stderr.startswith("Error: ")


def test_the_llm_api_is_one_process(tmp_path: Path) -> None:
    folder = write_llmapi(tmp_path / "all_models")
    write_llmapi_repository(tmp_path / "R", find_target("26.07"), "some/model", templates=folder)
    printed = shlex.split(ok("llm", "serve", "R", "--dry-run", cwd=tmp_path, VLMSEARCH_CACHE=str(tmp_path / "cache")))
    assert printed[0] == "tritonserver"
    assert not (tmp_path / "cache").exists(), "a dry run installs nothing"


def test_the_container_of_the_llm_api_gets_the_model_or_the_hubs_cache(tmp_path: Path) -> None:
    folder = write_llmapi(tmp_path / "all_models")
    (tmp_path / "hf").mkdir()
    for name in ("hf", "some/model"):
        ok("llm", "repo", name, "--platform", "llmapi", "--templates", folder, "--out", f"R-{name[:2]}", cwd=tmp_path)
    hub = {"HF_HUB_CACHE": str(tmp_path / "hub"), "HF_TOKEN": "hf_secret"}
    flags = ["--docker", "--dry-run"]
    printed = shlex.split(ok("llm", "serve", "R-hf", *flags, cwd=tmp_path, **hub))
    assert f"{tmp_path / 'hf'}:{tmp_path / 'hf'}:ro" in printed
    assert not any("hub" in part or "HF_" in part for part in printed)
    image = printed.index("nvcr.io/nvidia/tritonserver:26.07-trtllm-python-py3")
    assert printed[image + 1 :][:2] == ["bash", "-c"]
    assert printed[-1].startswith("pip install --quiet --upgrade openai; exec tritonserver ")
    text = ok("llm", "serve", "R-so", *flags, "--release", "26.07", cwd=tmp_path, **hub)
    printed = shlex.split(text)
    assert f"{tmp_path / 'hub'}:{tmp_path / 'hub'}" in printed
    assert [printed[at + 1] for at, part in enumerate(printed) if part == "-e"] == [
        f"HF_HUB_CACHE={tmp_path / 'hub'}",
        "HF_TOKEN",
    ]
    assert "hf_secret" not in text
    assert "nvcr.io/nvidia/tritonserver:26.07-trtllm-python-py3" in printed
    assert not (tmp_path / "hub").exists()


DOCKER = """
import json, os, pathlib, sys
names = [sys.argv[at + 1] for at, part in enumerate(sys.argv) if part == "-e"]
pathlib.Path("docker.json").write_text(json.dumps({name: os.environ.get(name) for name in names}))
sys.exit(3)
"""


def test_docker_gets_the_token_by_its_name(tmp_path: Path) -> None:
    folder = write_llmapi(tmp_path / "all_models")
    ok("llm", "repo", "some/model", "--platform", "llmapi", "--templates", folder, "--out", "R", cwd=tmp_path)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "docker").write_text(f"#!{sys.executable}\n{DOCKER}")
    (tmp_path / "bin" / "docker").chmod(0o755)
    place = {"PATH": os.pathsep.join([str(tmp_path / "bin"), os.environ["PATH"]])}
    hub = {"HF_HUB_CACHE": str(tmp_path / "hub"), "HF_TOKEN": "hf_secret"}
    flags = ["--docker", "--no-restart", *ports(free_ports())]
    done = run("llm", "serve", "R", *flags, cwd=tmp_path, **place, **hub)
    assert done.returncode == 1
    told = json.loads((tmp_path / "docker.json").read_text())
    assert told == {f"HF_HUB_CACHE={tmp_path / 'hub'}": None, "HF_TOKEN": "hf_secret"}
    assert (tmp_path / "hub").is_dir()


@pytest.mark.parametrize("flags", [[], ["--install"], ["--world-size", "1"]])
def test_a_server_without_tensorrt_llm_is_not_taken(binary: Binary, tmp_path: Path, flags: list[str]) -> None:
    """Though one is installed, which serves what does without."""
    folder = write_llmapi(tmp_path / "all_models")
    write_llmapi_repository(tmp_path / "R", find_target("26.07"), "some/model", templates=folder)
    done = run("llm", "serve", "R", *flags, cwd=tmp_path, VLMSEARCH_CACHE=str(CACHE))
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        "Error: the models in R need TensorRT-LLM, and there is no tritonserver on PATH that could have it: use "
        "--docker, or run this in NVIDIA's container; the last that is known to have it is "
        "nvcr.io/nvidia/tritonserver:26.07-trtllm-python-py3 (TensorRT-LLM 1.2.1)\n"
    )
