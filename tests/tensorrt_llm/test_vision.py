"""Vision models: what they need, how the LLM API serves them at every release, and what is refused."""

import json
import os
import re
import shlex
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support import llm_stand_in
from tests.support.cli import ok, run
from tests.support.llm_templates import write_llmapi
from tests.support.scripted_http import Answer, scripted_server
from vlmsearch._util.gpu import Device, Driver
from vlmsearch.cli import doctor
from vlmsearch.errors import ConfigError
from vlmsearch.tensorrt_llm.plan import plan_text
from vlmsearch.tensorrt_llm.recipe import find_llm_recipe
from vlmsearch.tensorrt_llm.rules import make_plan
from vlmsearch.tensorrt_llm.versions import targets

QWEN2, QWEN3, LLAVA = "qwen2.5-vl-7b-instruct", "qwen3-vl-2b-instruct", "llava-1.5-7b"
VISION = (QWEN2, QWEN3, LLAVA)
IMAGE_URL = ("image_url?", "STRING", "-1")
RELEASES = [target.release for target in targets()]


@pytest.mark.parametrize(
    ("name", "side", "tokens"),
    [
        (QWEN2, 512, 324), (QWEN2, 1024, 1369), (QWEN2, 20_000, 16_129), (QWEN2, 28, 4),
        (QWEN3, 512, 256), (QWEN3, 1024, 1024), (QWEN3, 20_000, 16_384), (QWEN3, 64, 64),
        (LLAVA, 64, 576), (LLAVA, 4096, 576),
    ],
)  # fmt: skip
def test_tokens_of_a_picture(name: str, side: int, tokens: int) -> None:
    vision = find_llm_recipe(name).vision
    assert vision
    assert vision.tokens(side) == tokens


@pytest.mark.slow
@pytest.mark.parametrize("name", VISION)
def test_the_weights_are_those_of_transformers(name: str) -> None:
    """The models are made of the recipe's widths, without memory. What a recipe has no field for is said here."""
    import torch
    import transformers

    recipe = find_llm_recipe(name)
    shape, vision = recipe.architecture, recipe.vision
    assert vision
    text = {
        "hidden_size": shape.hidden, "intermediate_size": shape.ffn, "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads, "num_key_value_heads": shape.kv_heads, "vocab_size": shape.vocab,
    }  # fmt: skip
    config: Any
    kind: Any
    tower = {"hidden_size": vision.hidden, "intermediate_size": vision.ffn, "patch_size": vision.patch}
    qwen = {**tower, "depth": vision.layers, "spatial_merge_size": vision.merge, "out_hidden_size": shape.hidden}
    if name == QWEN2:
        config = transformers.Qwen2_5_VLConfig(text_config=text, vision_config=qwen, tie_word_embeddings=False)
        kind = transformers.Qwen2_5_VLForConditionalGeneration
    elif name == QWEN3:
        layers = {"deepstack_visual_indexes": [5, 11, 17]}
        config = transformers.Qwen3VLConfig(
            text_config=text, vision_config={**qwen, **layers}, tie_word_embeddings=True
        )
        kind = transformers.Qwen3VLForConditionalGeneration
    else:
        clip = {"model_type": "clip_vision_model", "num_hidden_layers": vision.layers, "image_size": vision.side}
        config = transformers.LlavaConfig(
            text_config={"model_type": "llama", **text}, vision_config={**tower, **clip, "num_attention_heads": 16}
        )
        kind = transformers.LlavaForConditionalGeneration
    with torch.device("meta"):
        parameters = dict(kind(config).named_parameters())
    sizes = {True: 0, False: 0}
    for key, value in parameters.items():
        sizes[bool(re.search("visual|vision|projector", key))] += value.numel()
    assert (sizes[False], sizes[True]) == (shape.parameters, vision.parameters)


def test_the_memory_is_that_of_the_limits_and_the_pictures() -> None:
    memory = make_plan(QWEN2).memory
    assert memory
    assert memory.decoder + memory.tower == 16_584_333_312  # total_size of the checkpoint's index
    assert memory.cache == 8 * 9216 * 2 * 28 * 4 * 128 * 2
    halves, fewer = make_plan(QWEN2, tp=2).memory, make_plan(QWEN2, pictures=2).memory
    assert halves
    assert fewer
    assert (halves.decoder, halves.cache) == (memory.decoder // 2, memory.cache // 2)
    assert halves.tower == memory.tower
    assert fewer.activations == memory.activations // 2
    assert memory.total > memory.decoder + memory.tower + memory.cache + memory.activations


@pytest.mark.parametrize(("gib", "fits"), [("24", "yes"), ("20", "no: take fewer requests at once")])
def test_the_plan_says_whether_a_gpu_is_large_enough(tmp_path: Path, gib: str, fits: str) -> None:
    assert f"fits           a GPU of {gib}.0 GiB: {fits}" in ok("llm", "plan", QWEN2, "--gpu-memory", gib, cwd=tmp_path)
    planned = json.loads(ok("llm", "plan", QWEN2, "--gpu-memory", gib, "--json", cwd=tmp_path))
    assert planned["fits"] == (fits == "yes")


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["plan", QWEN3, "--pictures", "9"], "9 pictures of 1024 pixels are 9216 tokens, and a prompt has 8192: fewer"),
        (["plan", "gpt2-medium", "--pictures", "1"], "gpt2-medium reads no pictures: leave --pictures and"),
        (["plan", QWEN3, "--release", "25.06"], "0.20.0 has no Qwen3VLForConditionalGeneration: .* is 26.07"),
        (["plan", QWEN2, "--release", "24.09"], "has no Qwen2_5_VLForConditionalGeneration: .* is 25.06"),
        (["plan", QWEN2, "--tp", "3"], "28 heads and 4 key heads cannot be split in 3"),
        (["build", QWEN2, "--out", "x"], f"{QWEN2} has no engines: `vlmsearch llm plan {QWEN2}` says how"),
        (["serve", LLAVA, "--docker"], "lists no LlavaForConditionalGeneration: `vllm serve llava-hf/"),
        (["serve", "gpt2-medium"], "lists no GPT2LMHeadModel: `vlmsearch llm build gpt2-medium`"),
        (["serve", "llama-2-7b-chat", "--release", "24.09"], "0.13.0 has no LlamaForCausalLM: .* is 25.06"),
        (["serve", "nothing"], "no language model 'nothing'"),
        (["serve", QWEN2], "there is no trtllm-serve on PATH: use --docker"),
        (["serve", QWEN2, "--docker"], "there is no docker on PATH: install it"),
        (["serve", QWEN2, "--docker", "--wait", "5"], "--wait is for a repository, which Triton serves"),
        (
            ["repo", QWEN2, "--out", "x"],
            "/app has no llmapi/tensorrt_llm that reads pictures: no container of Triton up to 26.07",
        ),
    ],
)
def test_what_does_not_run_says_what_does(tmp_path: Path, flags: list[str], message: str) -> None:
    done = run("llm", *flags, cwd=tmp_path, PATH=str(tmp_path))
    assert (done.returncode, done.stdout) == (2 if "--wait" in flags else 1, "")
    assert re.search(message, done.stderr), done.stderr


def written_options(command: list[str]) -> dict[str, object]:
    """What the shell writes to the file of options."""
    shell, flag, text = command
    assert (shell, flag) == ("bash", "-c")
    options: dict[str, object] = yaml.safe_load(shlex.split(text.split(" && ")[1])[1])
    return options


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("name", [QWEN2, QWEN3, "llama-2-7b-chat", "llama-3.1-8b-instruct-awq"])
def test_the_servers_command_is_taken_by_its_version(name: str, release: str) -> None:
    served = ("26.07", "1.4.0rc1") if name == QWEN3 else ("25.06", "26.07", "1.4.0rc1")
    if release not in served:
        with pytest.raises(ConfigError, match=f"the nearest that has it is {served[0]}"):
            make_plan(name, release=release, use="server")
        return
    made = make_plan(name, release=release, use="server")
    flags = made.server_flags(host="0.0.0.0", port=9000)
    taken = llm_stand_in.serve_parser(made.target.tensorrt_llm).parse_args(flags[1:])
    limits = made.recipe.limits
    assert (taken.model, taken.host, taken.port, taken.backend) == (made.recipe.source, "0.0.0.0", 9000, "pytorch")
    assert (taken.max_batch_size, taken.max_seq_len, taken.max_num_tokens) == (
        limits.batch,
        limits.sequence,
        limits.tokens,
    )
    options = written_options(made.server_command())
    assert options.pop("revision") == made.recipe.revision
    assert options.pop("dtype") == made.recipe.dtype
    assert options == ({"kv_cache_config": {"enable_block_reuse": False}} if name in (QWEN2, QWEN3) else {})


def test_the_llm_api_comes_first_where_it_runs_a_model() -> None:
    for name, words in (
        (
            "llama-2-7b-chat",
            "runs it without engines, from 25.06 (TensorRT-LLM 0.20.0) on: vlmsearch llm serve llama-2",
        ),
        ("llama-3.1-8b-instruct-awq", "runs it without engines, not quantised, from 25.06 "),
        ("gpt2-medium", "lists no GPT2LMHeadModel: this model needs engines"),
        ("phi-3-mini-128k", "lists no Phi3ForCausalLM of Phi-3: this model needs engines"),
    ):
        line = plan_text(make_plan(name)).splitlines()[1]
        assert line.startswith("LLM API        ")
        assert words in line


def test_docker_runs_the_server_with_all_that_it_needs(tmp_path: Path) -> None:
    hub = {"HF_HUB_CACHE": str(tmp_path / "hub"), "HF_TOKEN": "hf_secret"}
    flags = ["--docker", "--dry-run", "--http-port", "9000", "--gpus", "1", "--release", "26.07"]
    text = ok("llm", "serve", QWEN3, *flags, "--", "--log_level", "debug", cwd=tmp_path, **hub)
    assert "hf_secret" not in text
    printed = shlex.split(text)
    image = printed.index("nvcr.io/nvidia/tritonserver:26.07-trtllm-python-py3")
    pairs = list(pairwise(printed[:image]))
    assert [value for flag, value in pairs if flag == "-p"] == ["127.0.0.1:9000:8000"]
    assert [value for flag, value in pairs if flag == "-v"] == [f"{tmp_path / 'hub'}:{tmp_path / 'hub'}"]
    assert [value for flag, value in pairs if flag == "-e"] == [
        "CUDA_VISIBLE_DEVICES=1", f"HF_HUB_CACHE={tmp_path / 'hub'}", "HF_TOKEN",
    ]  # fmt: skip
    assert ("--gpus", "all") in pairs
    assert ("--ulimit", "stack=67108864") in pairs
    assert printed[image + 1 : -1] == ["bash", "-c"]
    upgrade, serve = printed[-1].split("; exec ")
    assert upgrade == "pip install --quiet --upgrade openai", "26.07 misses a name of a newer openai"
    command = shlex.split(serve)
    assert written_options(command)["kv_cache_config"] == {"enable_block_reuse": False}
    assert "--host 0.0.0.0 --port 8000" in command[-1]
    assert command[-1].endswith("--log_level debug")
    assert not (tmp_path / "hub").exists()
    newest = ok("llm", "serve", QWEN2, "--docker", "--dry-run", "--release", "1.4.0rc1", cwd=tmp_path)
    assert "nvcr.io/nvidia/tensorrt-llm/release:1.4.0rc1 bash -c 'options=" in newest
    own = ok("llm", "serve", QWEN2, "--docker", "--dry-run", "--image", "registry.example/llm:1", cwd=tmp_path)
    assert "registry.example/llm:1 bash -c 'options=" in own, "a container of one's own is left as it is"
    done = run("llm", "serve", QWEN2, "--image", "registry.example/llm:1", cwd=tmp_path)
    assert (done.returncode, done.stderr.splitlines()[-1]) == (
        2,
        "Error: --image is the container of --docker: give both",
    )
    assert "nvcr.io/nvidia/tritonserver:26.07-" in ok("llm", "serve", QWEN2, "--docker", "--dry-run", cwd=tmp_path)


SERVER = """
import json, os, pathlib, sys
file = sys.argv[sys.argv.index("--extra_llm_api_options") + 1]
secrets = {name: value for name, value in os.environ.items() if name.endswith(("_TOKEN", "_KEY"))}
told = {"flags": sys.argv[1:], "options": json.loads(pathlib.Path(file).read_text()), "secrets": secrets}
pathlib.Path("told.json").write_text(json.dumps({**told, "gpus": os.environ["CUDA_VISIBLE_DEVICES"]}))
sys.exit(3)
"""


def test_the_server_gets_its_options_in_a_file(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / "trtllm-serve"
    program.write_text(f"#!{sys.executable}\n{SERVER}")
    program.chmod(0o755)
    path = os.pathsep.join([str(tmp_path / "bin"), os.environ["PATH"]])
    environment = {**os.environ, "PATH": path, "HF_TOKEN": "hf_secret", "OPENAI_API_KEY": "sk"}
    command = [sys.executable, "-m", "vlmsearch", "llm", "serve", QWEN3, "--gpus", "0", "--host", "0.0.0.0"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 3, done.stderr
    assert "Warning: 0.0.0.0 lets other machines in" in done.stderr
    assert f"openai:http://127.0.0.1:8000/v1?model={find_llm_recipe(QWEN3).source}" in done.stderr
    told = json.loads((tmp_path / "told.json").read_text())
    assert told["secrets"] == {"HF_TOKEN": "hf_secret"}
    assert told["gpus"] == "0"
    assert told["options"]["kv_cache_config"] == {"enable_block_reuse": False}
    llm_stand_in.serve_parser("1.2.1").parse_args(told["flags"])


@pytest.mark.parametrize("flags", [[], ["--unary"]])
def test_the_repository_reads_pictures_where_the_templates_do(tmp_path: Path, flags: list[str]) -> None:
    checkout = tmp_path / "checkout"
    write_llmapi(checkout / "triton_backend" / "all_models", IMAGE_URL)
    (checkout / "tensorrt_llm").mkdir()
    (checkout / "tensorrt_llm" / "version.py").write_text('__version__ = "1.4.0rc1"\n')
    ok("llm", "repo", QWEN2, "--templates", checkout, "--out", "R", *flags, cwd=tmp_path)
    assert yaml.safe_load((tmp_path / "R" / "tensorrt_llm" / "1" / "model.yaml").read_text()) == {
        "model": "Qwen/Qwen2.5-VL-7B-Instruct",
        "backend": "pytorch",
        "triton_config": {"max_batch_size": 0, "decoupled": not flags, "multimodal": True},
        "dtype": "bfloat16",
        "revision": find_llm_recipe(QWEN2).revision,
        "kv_cache_config": {"enable_block_reuse": False},
        "max_batch_size": 8,
        "max_seq_len": 9216,
        "max_num_tokens": 8192,
        "tensor_parallel_size": 1,
        "pipeline_parallel_size": 1,
    }
    done = run("llm", "serve", "R", "--docker", "--dry-run", cwd=tmp_path)
    assert "no container of Triton up to 26.07 (TensorRT-LLM 1.2.1) has the TensorRT-LLM of this" in done.stderr
    done = run("llm", "serve", "R", "--docker", "--release", "1.4.0rc1", "--dry-run", cwd=tmp_path)
    assert "release:1.4.0rc1 has no Triton: the nearest that has it is 26.07" in done.stderr
    own = shlex.split(
        ok("llm", "serve", "R", "--docker", "--dry-run", "--image", "registry.example/llm:1", cwd=tmp_path)
    )
    assert own[own.index("registry.example/llm:1") + 1] == "tritonserver"
    assert "tritonserver --model-repository=" in ok("llm", "serve", "R", "--dry-run", cwd=tmp_path)


def test_templates_without_the_input_are_refused_for_pictures(tmp_path: Path) -> None:
    folder = write_llmapi(tmp_path / "all_models")
    done = run("llm", "repo", QWEN2, "--templates", folder, "--out", "R", cwd=tmp_path)
    assert done.returncode == 1
    assert (
        "reads no pictures, it has no input image_url: no container of Triton up to 26.07 (TensorRT-LLM 1.2.1) does"
        in done.stderr
    )
    assert "Give --templates, a checkout of a later TensorRT-LLM" in done.stderr
    assert "`vlmsearch llm serve NAME --docker`" in done.stderr
    ok("llm", "repo", "llama-2-7b-chat", "--templates", folder, "--out", "T", cwd=tmp_path)
    text = (tmp_path / "T" / "tensorrt_llm" / "1" / "model.yaml").read_text()
    assert "multimodal" not in text
    assert yaml.safe_load(text)["max_seq_len"] == 4096


@pytest.mark.parametrize(
    ("model", "recipe", "has_pictures"),
    [
        ("Qwen2.5-VL-7B-Instruct", QWEN2, True),
        ("llava-hf/llava-1.5-7b-hf", LLAVA, True),
        ("meta-llama/Llama-2-7b-chat-hf", "llama-2-7b-chat", False),
        ("another", "", None),
    ],
)
def test_status_knows_the_recipe_of_a_served_model(
    tmp_path: Path, model: str, recipe: str, has_pictures: bool | None
) -> None:
    body = json.dumps({"object": "list", "data": [{"id": model}]}).encode()
    words = {True: "reads pictures", False: "reads texts alone", None: "not known"}[has_pictures]
    with scripted_server(Answer(200, body)) as server:
        generator = f"openai:{server.url}/v1?model={model}"
        expected = {"model": model, "generator": generator, "recipe": recipe, "has_pictures": has_pictures}
        assert json.loads(ok("llm", "status", server.url, "--json", cwd=tmp_path)) == [expected]
        assert words in ok("llm", "status", server.url, cwd=tmp_path)
        assert {path for _, path, _, _ in server.requests} == {"/v1/models"}


@pytest.mark.parametrize("names", [["text_input"], ["text_input", "image_url"], ["input_ids"]])
def test_status_reads_the_inputs_of_tritons_model(tmp_path: Path, names: list[str]) -> None:
    body = json.dumps({"name": "tensorrt_llm", "inputs": [{"name": name} for name in names]}).encode()
    with scripted_server(Answer(404), Answer(404), Answer(200, body)) as server:
        (model,) = json.loads(ok("llm", "status", server.url, "--json", cwd=tmp_path))
        assert [path for _, path, _, _ in server.requests] == [
            "/v1/models",
            "/v2/models/ensemble",
            "/v2/models/tensorrt_llm",
        ]
    url = "triton://127.0.0.1:8001/tensorrt_llm" + "?tokenizer=FOLDER" * (names == ["input_ids"])
    assert (model["generator"], model["has_pictures"]) == (url, len(names) == 2)


def test_a_server_without_language_models_is_told(tmp_path: Path) -> None:
    with scripted_server(Answer(404)) as server:
        done = run("llm", "status", server.url, cwd=tmp_path)
    assert "has no language model: neither /v1/models nor" in done.stderr


def test_the_doctor_says_which_vision_models_fit_the_gpu() -> None:
    device = Device("A GPU", (9, 0), 24 * 2**30)
    results = {result.check: result for result in doctor.vision_models(Driver((13, 0), (device,)))}
    assert {name: result.ok for name, result in results.items()} == {QWEN2: True, QWEN3: True, LLAVA: False}
    assert results[LLAVA].detail == "31.0 GiB, with 4 pictures of 1024 pixels"
    assert not any(result.required for result in results.values())
