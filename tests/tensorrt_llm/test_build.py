"""`vlmsearch llm build` with stand-ins for TensorRT-LLM's commands: strict arguments, real files, every failure."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.support import llm_stand_in
from tests.support.cli import run
from tests.support.hub import REVISION, SOURCE, Hub
from vlmsearch._util.process import Command, run_logged
from vlmsearch.errors import BackendError, ConfigError
from vlmsearch.models.bundle import data_folder
from vlmsearch.tensorrt_llm.check import check_product
from vlmsearch.tensorrt_llm.checkpoint import mounted
from vlmsearch.tensorrt_llm.plan import Places, StepName
from vlmsearch.tensorrt_llm.recipe import find_llm_recipe
from vlmsearch.tensorrt_llm.rules import make_plan

GPT2 = {"n_layer": 24, "n_head": 16, "n_embd": 1024, "vocab_size": 50257, "n_positions": 1024}
LLAMA3 = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}
STEPS = ["tokenizer", "checkpoint", "engine", "check"]
DOCKER = """
import json, os, pathlib, re, shlex, subprocess, sys
arguments = sys.argv[1:]
log = pathlib.Path(os.environ["DOCKER_LOG"])
with log.open("a") as file:
    file.write(json.dumps(arguments) + "\\n")
if arguments[0] == "kill":
    raise SystemExit(0)
assert arguments[:3] == ["run", "--rm", "--init"], arguments
image = next(i for i, part in enumerate(arguments) if part.startswith("nvcr.io/"))
options, command = arguments[:image], arguments[image + 1 :]
mounts = {}
for flag, value in zip(options, options[1:]):
    if flag == "-v":
        outer, inner = value.removesuffix(":ro").split(":")
        mounts[inner] = outer
def outside(part):
    for inner in sorted(mounts, key=len, reverse=True):
        if part == inner or part.startswith(inner + "/"):
            target = pathlib.Path(mounts[inner])
            if inner.startswith("/model/"):  # the folder's name is the container's
                link = pathlib.Path(os.environ["DOCKER_LOG"]).with_name(inner[len("/model/"):])
                link.exists() or link.symlink_to(target)
                target = link
            return str(target) + part[len(inner):]
    return part
if command[:2] == ["bash", "-c"]:
    command[2] = shlex.join(map(outside, shlex.split(command[2]))).replace("'&&'", "&&")
raise SystemExit(subprocess.run([outside(part) for part in command]).returncode)
"""


@dataclass
class Machine:
    """A folder with a model, the scripts of a version, and its commands on PATH."""

    root: Path
    version: str = "0.13.0"
    release: str = "24.09"
    environment: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        llm_stand_in.install(self.root, self.version)
        model = self.root / "a-model"
        model.mkdir()
        (model / "config.json").write_text(json.dumps(GPT2))
        (model / "model.safetensors").write_bytes(b"weights")
        (model / "tokenizer.json").write_text("{}")
        path = os.pathsep.join([str(self.root / "bin"), os.environ["PATH"]])
        packages = os.pathsep.join(filter(None, [str(self.root / "packages"), os.environ.get("PYTHONPATH")]))
        self.environment = {**os.environ, "PATH": path, "PYTHONPATH": packages}

    def hold(self, recipe: str) -> None:
        """Put what is read of a recipe's checkpoint into the model's folder, as its publisher wrote it."""
        shape = find_llm_recipe(recipe).architecture
        config: dict[str, object] = {
            "num_hidden_layers": shape.layers, "num_attention_heads": shape.heads,
            "num_key_value_heads": shape.kv_heads, "hidden_size": shape.hidden,
            "intermediate_size": shape.ffn, "vocab_size": shape.vocab,
        }  # fmt: skip
        if shape.rope == "llama3":
            config["rope_scaling"] = {**LLAMA3, "rope_type": "llama3"}
        if shape.family == "phi":
            config["auto_map"] = {"AutoConfig": "configuration_phi3.Phi3Config"}
            (self.root / "a-model" / "configuration_phi3.py").write_text("class Phi3Config: ...\n")
        (self.root / "a-model" / "config.json").write_text(json.dumps(config))

    def arguments(self, *extra: str, recipe: str = "gpt2-medium", here: str = "--here") -> list[str]:
        places = ["--model", "a-model", "--out", "O", "--scripts", "scripts"]
        return ["llm", "build", recipe, "--release", self.release, *places, here, *extra]

    def command(self, *extra: str, **how: str) -> list[str]:
        """For a process of its own, which a test may stop."""
        return [sys.executable, "-m", "vlmsearch", *self.arguments(*extra, **how)]

    def build(
        self,
        *extra: str,
        faults: Mapping[str, str] | None = None,
        **how: str,
    ) -> subprocess.CompletedProcess[str]:
        environment = {**self.environment, "STAND_IN": json.dumps(faults or {})}
        return run(*self.arguments(*extra, **how), cwd=self.root, **environment)

    def docker(self) -> Path:
        """Put a stand-in for docker on PATH, and give the file that it writes its commands to."""
        docker = self.root / "bin" / "docker"
        docker.write_text(f"#!{sys.executable}\n{DOCKER}")
        docker.chmod(0o755)
        self.environment["DOCKER_LOG"] = str(self.root / "docker.log")
        return self.root / "docker.log"

    @property
    def out(self) -> Path:
        return self.root / "O"

    def is_whole(self) -> bool:
        """Nothing half-made anywhere."""
        return not list(self.out.rglob("*.building"))


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def await_pids(pids: Path) -> None:
    """Wait until a step that hangs has written the numbers of its two processes."""
    end = time.monotonic() + 60
    while not pids.exists() or len(pids.read_text().split()) < 2:
        assert time.monotonic() < end
        time.sleep(0.05)


def steps(done: subprocess.CompletedProcess[str]) -> list[str]:
    return [line.split("] ")[1].split(":")[0] for line in done.stderr.splitlines() if ": done in" in line]


def test_a_build_makes_every_rank_and_is_not_done_twice(machine: Machine) -> None:
    done = machine.build("--tp", "2", "--pp", "2")
    assert done.returncode == 0, done.stderr
    assert steps(done) == STEPS
    assert sorted(path.name for path in (machine.out / "engine").glob("*.engine")) == [
        f"rank{rank}.engine" for rank in range(4)
    ]
    config = json.loads((machine.out / "engine" / "config.json").read_text())
    assert (config["version"], config["build_config"]["max_batch_size"]) == ("0.13.0", 64)
    assert "4 engine(s) in O/engine" in done.stdout
    assert (machine.out / "tokenizer" / "tokenizer.json").is_file()
    assert "[TensorRT-LLM] engine ends" in (machine.out / "logs" / "engine.log").read_text()
    assert "[4/4] check: 'The capital of France is' goes on 'Paris,\\nand that of \"Italy\" is Rome.'" in done.stderr
    assert (machine.out / "check" / "answer.txt").read_text() == 'Paris,\nand that of "Italy" is Rome.'
    again = machine.build("--tp", "2", "--pp", "2")
    assert again.returncode == 0
    assert again.stderr.count("done before") == 4
    assert machine.is_whole()
    (machine.out / "check" / "answer.txt").write_text("")
    assert steps(machine.build("--tp", "2", "--pp", "2")) == ["check"]


def test_quantisation_and_texts_of_ones_own(tmp_path: Path) -> None:
    machine = Machine(tmp_path, "0.20.0", "25.06")
    machine.hold("llama-3.1-8b-instruct-awq")
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts" / "a.txt").write_text("a text")
    done = machine.build("--calibration", "texts", recipe="llama-3.1-8b-instruct-awq")
    assert done.returncode == 0, done.stderr
    found = json.loads((machine.out / "checkpoint" / "config.json").read_text())["quantization"]
    assert (found["quant_algo"], found["group_size"]) == ("W4A16_AWQ", 128)
    log = (machine.out / "logs" / "checkpoint.log").read_text()
    assert f"--calib_dataset {tmp_path / 'texts'}" in log
    (tmp_path / "texts" / "b.txt").write_text("another")
    assert steps(machine.build("--calibration", "texts", recipe="llama-3.1-8b-instruct-awq")) == STEPS[1:]


@pytest.mark.parametrize("here", ["--here", "--docker"])
def test_llama_31_is_read_by_a_newer_transformers_in_the_shell_of_the_step(tmp_path: Path, here: str) -> None:
    machine = Machine(tmp_path)
    machine.hold("llama-3.1-8b-instruct-awq")
    log = machine.docker()
    done = machine.build(recipe="llama-3.1-8b-instruct-awq", here=here)
    assert done.returncode == 0, done.stderr
    assert steps(done) == STEPS
    assert "quantize.py, TensorRT-LLM 0.13.0 after pip install transformers==4.44.2, log in" in done.stderr
    config = json.loads((machine.out / "checkpoint" / "config.json").read_text())
    assert (config["dtype"], config["quantization"]["quant_algo"]) == ("bfloat16", "W4A16_AWQ")
    packages = [line.split() for line in (tmp_path / "pip.log").read_text().splitlines()]
    wanted = ["tensorrt_llm==0.13.0", "wheel", "Cython<3.0", "pyyaml<6", "tensorrt_llm==0.13.0", "transformers==4.44.2"]
    assert [name for _, name in packages] == [*wanted, "transformers==4.44.2"]  # the last for the check
    assert len({shell for shell, _ in packages[:6]}) == 1
    if here == "--docker":
        commands = [json.loads(line) for line in log.read_text().splitlines()]
        assert [command[command.index("bash") + 1] for command in commands if "bash" in command] == ["-c", "-c"]
    assert machine.build(recipe="llama-3.1-8b-instruct-awq", here=here).stderr.count("done before") == 4


def test_scripts_without_the_requirements_of_quantisation_are_not_whole(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.hold("llama-3.1-8b-instruct-awq")
    (tmp_path / "scripts" / "examples" / "quantization" / "requirements.txt").unlink()
    done = machine.build(recipe="llama-3.1-8b-instruct-awq")
    assert "has no examples/quantization/requirements.txt of TensorRT-LLM 0.13.0: git clone" in done.stderr


@pytest.mark.parametrize(("version", "release"), [("0.10.0", "24.06"), ("1.2.1", "26.07")])
def test_phi_3_is_converted_by_the_script_of_each_version(tmp_path: Path, version: str, release: str) -> None:
    machine = Machine(tmp_path, version, release)
    machine.hold("phi-3-mini-128k")
    done = machine.build(recipe="phi-3-mini-128k")
    assert done.returncode == 0, done.stderr
    assert steps(done) == STEPS
    config = json.loads((machine.out / "checkpoint" / "config.json").read_text())
    assert ("mapping" in config, "num_key_value_heads" in config) == (version != "0.10.0",) * 2


def test_an_engine_that_does_not_answer_is_not_done(machine: Machine) -> None:
    for fault, message in (
        ({"check": "fail"}, "check failed: exit status 3: RuntimeError: CUDA out of memory in check"),
        ({"answer": "empty"}, "check is not what was planned: answer.txt is empty"),
    ):
        done = machine.build(faults=fault)
        assert (done.returncode, done.stdout) == (1, "")
        assert message in done.stderr.splitlines()[-1]
        assert (machine.out / "engine" / "rank0.engine").is_file()
    assert steps(machine.build()) == ["check"]


def test_a_failed_step_is_one_line_and_the_next_run_goes_on_from_there(machine: Machine) -> None:
    for step, finished in (("checkpoint", 0), ("engine", 1)):
        done = machine.build(faults={step: "fail"})
        assert (done.returncode, done.stdout) == (1, "")
        error, log = done.stderr.splitlines()[-1], f"O/logs/{step}.log"
        assert error == f"Error: {step} failed: exit status 3: RuntimeError: CUDA out of memory in {step} (log: {log})"
        assert done.stderr.count("done before") == finished
        assert machine.is_whole()
        assert not (machine.out / step).exists()
    again = machine.build()
    assert again.returncode == 0, again.stderr
    assert steps(again) == ["engine", "check"]
    for step in ("checkpoint", "engine"):
        assert (machine.out / "logs" / f"{step}.log").read_text().count("$ ") == 2, "logs of both runs are kept"


FAULTS = [
    ("checkpoint", "dtype", 'checkpoint is not what was planned: dtype is "float32", not "float16"'),
    ("checkpoint", "algorithm", 'quantization.quant_algo is "W8A16", not null'),
    ("checkpoint", "tp", "mapping.tp_size is 3, not 2"),
    ("checkpoint", "no mapping", "mapping.tp_size is 1, not 2"),
    ("checkpoint", "empty", "rank1.safetensors is empty"),
    ("checkpoint", "missing", "rank1.safetensors is missing"),
    ("checkpoint", "json", "config.json cannot be read"),
    ("engine", "dtype", 'engine is not what was planned: dtype is "float32", not "float16"'),
    ("engine", "tp", "mapping.tp_size is 3, not 2"),
    ("engine", "empty", "rank1.engine is empty"),
    ("engine", "missing", "rank1.engine is missing"),
    ("engine", "extra", "rank7.engine is one too many for tp 2 x pp 1"),
]


@pytest.mark.parametrize(("step", "fault", "message"), FAULTS)
def test_a_wrong_product_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: StepName, fault: str, message: str
) -> None:
    made = make_plan("gpt2-medium", release="24.09", tp=2)
    (tmp_path / "gpt2").mkdir()
    (tmp_path / "gpt2" / "config.json").write_text(json.dumps(GPT2))
    folders = {name: str(tmp_path / name) for name in ("checkpoint", "engine")}
    places = Places(str(tmp_path / "gpt2"), **folders)
    monkeypatch.setenv("STAND_IN", json.dumps({step: fault}))
    llm_stand_in.convert("gpt", "0.13.0", made.checkpoint_command(places)[2:])
    if step == "engine":
        llm_stand_in.build("0.13.0", made.engine_command(places)[1:])
    with pytest.raises(BackendError, match=re.escape(message)):
        check_product(tmp_path / step, step, made)


def test_a_wrong_product_is_not_published(machine: Machine) -> None:
    for step in ("checkpoint", "engine"):
        done = machine.build(faults={step: "dtype"})
        assert done.returncode == 1
        error = done.stderr.splitlines()[-1]
        assert f"{step} is not what was planned: dtype is" in error
        assert error.endswith(f"(log: O/logs/{step}.log)")
        assert not (machine.out / step).exists()
        assert machine.is_whole()


def test_what_changed_runs_again_and_what_was_damaged_too(machine: Machine) -> None:
    assert machine.build().returncode == 0
    (machine.out / "engine" / "rank0.engine").write_bytes(b"")
    assert steps(machine.build()) == ["engine"]
    shutil.rmtree(machine.out / "checkpoint")  # large, and not needed any more
    assert steps(machine.build()) == []
    (machine.root / "a-model" / "model.safetensors").write_bytes(b"other weights")
    assert steps(machine.build()) == STEPS
    assert steps(machine.build("--tp", "2")) == STEPS[1:]


@pytest.mark.parametrize(("step", "number"), [("checkpoint", signal.SIGINT), ("engine", signal.SIGTERM)])
def test_an_interrupted_build_leaves_no_process_and_nothing_half_made(
    machine: Machine, step: str, number: signal.Signals
) -> None:
    pids = machine.root / "pids"
    environment = {**machine.environment, "STAND_IN": json.dumps({step: "hang"}), "STAND_IN_PIDS": str(pids)}
    process = subprocess.Popen(machine.command(), cwd=machine.root, env=environment, stderr=subprocess.PIPE, text=True)
    await_pids(pids)
    process.send_signal(number)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert errors.splitlines()[-1] == "Interrupted."
    for pid in map(int, pids.read_text().split()):
        assert not _lives(pid)
    assert machine.is_whole()
    done = machine.build()
    assert done.returncode == 0, done.stderr


def test_what_a_killed_build_left_is_removed_by_the_next(machine: Machine) -> None:
    pids = machine.root / "pids"
    environment = {**machine.environment, "STAND_IN": '{"engine": "hang"}', "STAND_IN_PIDS": str(pids)}
    process = subprocess.Popen(machine.command(), cwd=machine.root, env=environment, stderr=subprocess.DEVNULL)
    await_pids(pids)
    process.kill()
    process.wait()
    for pid in map(int, pids.read_text().split()):
        os.kill(pid, signal.SIGKILL)
    assert not machine.is_whole()
    done = machine.build()
    assert (done.returncode, steps(done)) == (0, ["engine", "check"]), done.stderr
    assert machine.is_whole()


def _lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_the_container_gets_what_it_needs_and_is_killed_when_stopped(machine: Machine) -> None:
    log = machine.docker()
    done = machine.build(here="--docker")
    assert done.returncode == 0, done.stderr
    first, second, third = (json.loads(line) for line in log.read_text().splitlines())
    assert "nvcr.io/nvidia/tritonserver:24.09-trtllm-python-py3" in first
    for mount in (
        f"{machine.root}/a-model:/model/gpt2:ro",
        f"{machine.out}:/out",
        f"{machine.root}/scripts:/scripts:ro",
    ):
        assert mount in first
    assert first[first.index("--model_dir") + 1] == "/model/gpt2"
    assert second[second.index("--checkpoint_dir") + 1] == "/out/checkpoint"
    places = ["/scripts/examples/run.py", "--engine_dir", "/out/engine", "--tokenizer_dir", "/out/tokenizer"]
    assert third[third.index("python3") + 1 :][:5] == places
    assert f"{os.getuid()}:{os.getgid()}" in first
    pids = machine.root / "pids"
    environment = {**machine.environment, "STAND_IN": '{"engine": "hang"}', "STAND_IN_PIDS": str(pids)}
    command = machine.command("--tp", "2", here="--docker")
    process = subprocess.Popen(command, cwd=machine.root, env=environment, stderr=subprocess.DEVNULL)
    await_pids(pids)
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 130
    runs = [json.loads(line) for line in log.read_text().splitlines()]
    names = [run[run.index("--name") + 1] for run in runs if run[0] == "run"]
    assert len(set(names)) == len(names)
    assert runs[-1] == ["kill", names[-1]]


def test_a_model_of_links_is_mounted_with_what_they_lead_to(tmp_path: Path) -> None:
    snapshot = tmp_path / "models--x" / "snapshots" / "abc"
    snapshot.mkdir(parents=True)
    (tmp_path / "models--x" / "blobs").mkdir()
    (tmp_path / "models--x" / "blobs" / "1").write_text("weights")
    (snapshot / "model.safetensors").symlink_to("../../blobs/1")
    assert mounted(snapshot) == (tmp_path / "models--x", "snapshots/abc")
    assert mounted(tmp_path / "models--x") == (tmp_path / "models--x", "")
    (tmp_path / "far").write_text("weights")
    (snapshot / "other.safetensors").symlink_to(tmp_path / "far")
    with pytest.raises(ConfigError, match="has links to files in other places, which a container cannot see"):
        mounted(snapshot)


def test_a_model_is_downloaded_from_the_hub_at_its_revision(machine: Machine) -> None:
    hub = Hub(machine.root / "a-model")
    threading.Thread(target=hub.serve_forever, daemon=True).start()
    text = (data_folder("engines") / "gpt2-medium" / "recipe.toml").read_text()
    text = re.sub(r'source = ".*"', f'source = "{SOURCE}"', text)
    (machine.root / "mine.toml").write_text(re.sub(r'revision = ".*"', f'revision = "{REVISION}"', text))
    settings = {
        "HF_ENDPOINT": f"http://127.0.0.1:{hub.server_port}", "HF_HOME": str(machine.root / "hub"),
        "HF_HUB_DISABLE_XET": "1",
    }  # fmt: skip
    machine.environment = {k: v for k, v in machine.environment.items() if not k.startswith("HF_")} | settings
    start = machine.command(recipe="./mine.toml")
    command = [part for part in start if part not in ("--model", "a-model")]
    done = subprocess.run(
        command, cwd=machine.root, env=machine.environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert f"/{SOURCE}/resolve/{REVISION}/model.safetensors" in hub.asked
    assert (machine.out / "engine" / "rank0.engine").is_file()
    gone = subprocess.run(
        [part for part in machine.command(recipe="llama-2-7b-chat") if part not in ("--model", "a-model")],
        cwd=machine.root, env=machine.environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    hub.shutdown()
    hub.server_close()
    (line,) = gone.stderr.splitlines()
    assert line.startswith("Error: meta-llama/Llama-2-7b-chat-hf at f5db02db7245 cannot be downloaded")
    assert "Its licence has to be accepted on the hub first" in line


def test_what_is_wrong_beforehand_is_found_before_anything_runs(machine: Machine) -> None:
    model = machine.root / "a-model"

    def refused(message: str, *extra: str, recipe: str = "gpt2-medium") -> None:
        done = machine.build(*extra, recipe=recipe)
        assert (done.returncode, done.stdout) == (1, "")
        assert message in done.stderr
        assert len(done.stderr.splitlines()) == 1
        assert not (machine.out / "logs").exists()

    refused("is not the model of the recipe phi-3-mini-128k", recipe="phi-3-mini-128k")
    refused("here, and release 25.06 has 0.20.0", "--release", "25.06", "--scripts", str(other(machine.root, "0.20.0")))
    refused("scripts is TensorRT-LLM 0.13.0, and release 24.06 has 0.10.0", "--release", "24.06")
    (model / "config.json").write_text(json.dumps({**GPT2, "n_layer": 12}))
    refused("is not the model of the recipe gpt2-medium: n_layer is 12, not 24")
    (model / "config.json").write_text(json.dumps(GPT2))
    (model / "model.safetensors").write_bytes(b"version https://git-lfs.github.com/spec/v1\noid")
    refused("a-model is not whole: model.safetensors is a pointer of git-lfs")
    for damage in ("", "[]", '{"weight_map": 5}'):
        (model / "model.safetensors.index.json").write_text(damage)
        refused("model.safetensors.index.json is damaged")
    (model / "model.safetensors").unlink()
    refused("there are no weights")
    (model / "config.json").unlink()
    refused("a-model is not a checkpoint: config.json: No such file or directory; get openai-community/gpt2-medium at")


def other(root: Path, version: str) -> Path:
    """The scripts of another version."""
    llm_stand_in.install(root / version, version)
    return root / version / "scripts"


def test_nothing_of_the_users_is_written_over(machine: Machine) -> None:
    machine.out.mkdir()
    (machine.out / "thesis.txt").write_text("mine")
    done = machine.build()
    assert done.returncode == 1
    assert "O holds 'thesis.txt', which no build made: choose another --out" in done.stderr


def test_a_link_in_place_of_the_lock_file_is_not_written_through(machine: Machine) -> None:
    precious = machine.root / "precious"
    precious.write_text("precious content")
    machine.out.mkdir()
    (machine.out / ".lock").symlink_to(precious)
    done = machine.build()
    assert (done.returncode, precious.read_text()) == (1, "precious content")
    assert "O cannot be written to: .lock is not a regular file" in done.stderr


def test_two_builds_do_not_share_a_folder(machine: Machine) -> None:
    pids = machine.root / "pids"
    environment = {**machine.environment, "STAND_IN": '{"checkpoint": "hang"}', "STAND_IN_PIDS": str(pids)}
    first = subprocess.Popen(machine.command(), cwd=machine.root, env=environment, stderr=subprocess.DEVNULL)
    await_pids(pids)
    second = machine.build()
    first.send_signal(signal.SIGTERM)
    first.wait(60)
    assert "another build is writing to O" in second.stderr


def test_without_scripts_the_command_that_fetches_them_is_named(machine: Machine) -> None:
    arguments = [part for part in machine.arguments() if part not in ("--scripts", "scripts")]
    done = run(*arguments, cwd=machine.root, **machine.environment)
    assert "run `git clone --depth 1 --branch v0.13.0 https://github.com/NVIDIA/TensorRT-LLM SCRIPTS`" in done.stderr


@pytest.mark.parametrize("failure", [BrokenPipeError, SystemExit])
def test_a_step_runs_on_when_nobody_reads_along_any_more(tmp_path: Path, failure: type[BaseException]) -> None:
    def show(_line: str) -> None:
        raise failure

    log, command = tmp_path / "log", Command([sys.executable, "-c", "print('a line of the log\\n' * 20_000)"])
    step = threading.Thread(target=run_logged, args=(command, log), kwargs={"show": show}, daemon=True)
    step.start()
    step.join(30)
    assert not step.is_alive()
    assert log.read_text().count("a line of the log\n") == 20_000
