"""`vlmsearch llm repo`: templates filled, refused and parsed; and the model of the LLM API."""

import json
import re
import shutil
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
import yaml
from google.protobuf import text_format
from tritonclient.grpc import model_config_pb2 as pb

from tests.support.cli import ok, run
from tests.support.llm_templates import RELEASES, built, options, templates, write_llmapi, write_templates
from tests.support.triton_check import faults
from vlmsearch.errors import ConfigError
from vlmsearch.tensorrt_llm.llmapi import model_yaml, write_llmapi_repository
from vlmsearch.tensorrt_llm.repository import read_repository, write_llm_repository
from vlmsearch.tensorrt_llm.templates import assign, fill, parse, placeholders
from vlmsearch.tensorrt_llm.versions import find_target


def refused(message: str) -> AbstractContextManager[pytest.ExceptionInfo[ConfigError]]:
    return pytest.raises(ConfigError, match=re.escape(message))


def config_of(out: Path, model: str) -> pb.ModelConfig:
    return text_format.Parse((out / model / "config.pbtxt").read_text(), pb.ModelConfig())


@pytest.mark.parametrize("kind", RELEASES)
def test_a_repository_of_each_version(tmp_path: Path, kind: str) -> None:
    out = tmp_path / "R"
    models = write_llm_repository(out, options(tmp_path, kind))
    assert models == ["preprocessing", "tensorrt_llm", "postprocessing", "ensemble", "tensorrt_llm_bls"]
    core = config_of(out, "tensorrt_llm")
    assert (core.backend, core.max_batch_size) == ("tensorrtllm", 16)
    assert core.model_transaction_policy.decoupled
    assert core.parameters["gpt_model_path"].string_value == str(tmp_path / "built" / "engine")
    assert core.parameters["gpt_model_type"].string_value == "inflight_fused_batching"
    assert core.parameters["exclude_input_in_output"].string_value == "true"
    assert core.parameters["decoding_mode"].string_value == "${decoding_mode}"  # left for the backend's default
    assert config_of(out, "tensorrt_llm_bls").parameters["accumulate_tokens"].string_value == "true"
    before = config_of(out, "preprocessing").parameters
    assert "engine_dir" not in before or before["engine_dir"].string_value == "${engine_dir}"
    tokenizer = before["tokenizer_dir"].string_value
    assert tokenizer == str(tmp_path / "built" / "tokenizer")
    for model in models:
        assert (out / model / "1" / "model.py").read_text().startswith(f'"""Stands for {model}."""\n')
    assert not faults([config_of(out, model) for model in models])
    kinds = {tensor.name: tensor.data_type for tensor in [*core.input, *core.output]}
    assert kinds["context_logits"] == pb.TYPE_FP32
    assert kinds.get("encoder_input_features") == (pb.TYPE_BF16 if kind in ("0.20", "1.2") else None)
    assert kinds.get("prompt_embedding_table") == (pb.TYPE_BF16 if kind == "1.2" else None)  # as the engine
    assert read_repository(out).ranks == 1


def test_values_with_commas_colons_and_quotes_are_put_in_as_they_are(tmp_path: Path) -> None:
    odd = r'C:\models\a "b",c:d;${triton_backend}'
    values = {
        "tokenizer_dir": odd,
        "tensorrt_llm.decoding_mode": "top_k,top_p",
        "preprocessing.add_special_tokens": "False",
    }
    out = tmp_path / "R"
    write_llm_repository(out, options(tmp_path, values=values))
    for model in ("preprocessing", "postprocessing"):
        assert config_of(out, model).parameters["tokenizer_dir"].string_value == odd
    assert config_of(out, "tensorrt_llm").parameters["decoding_mode"].string_value == "top_k,top_p"
    assert config_of(out, "preprocessing").parameters["add_special_tokens"].string_value == "False"


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (
            {"max_queue_delay_microsecond": "5"},
            "no template asks for 'max_queue_delay_microsecond'; did you mean 'max_queue_delay_microseconds'?",
        ),
        ({"ensemble.tokenizer_dir": "x"}, "no template asks for 'ensemble.tokenizer_dir'"),
        ({"tensorrt-llm.engine_dir": "x"}, "no model 'tensorrt-llm'; did you mean 'tensorrt_llm'?"),
        ({"triton_max_batch_size": "4, 5"}, "triton_max_batch_size is a number or a name here, not '4, 5'"),
        ({"triton_max_batch_size": "many"}, "preprocessing: the filled template is not a model configuration"),
        ({"decoupled_mode": "maybe"}, "the filled template is not a model configuration"),
        ({"triton_max_batch_size": "17"}, "triton_max_batch_size is 17, and the engine takes 16"),
        ({"max_beam_width": "4"}, "max_beam_width is 4, and the engine takes 1"),
        ({"max_beam_width": "²"}, "max_beam_width is ², and the engine takes 1"),
        ({"enable_kv_cache_reuse": "true"}, "needs an engine that was built with use_paged_context_fmha"),
        ({"enable_trt_overlap": "true"}, "no template asks for 'enable_trt_overlap'"),
    ],
)
def test_wrong_and_unknown_values_are_refused(tmp_path: Path, values: dict[str, str], message: str) -> None:
    with refused(message) as caught:
        write_llm_repository(tmp_path / "R", options(tmp_path, values=values))
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "R").exists()


def test_what_must_be_given_is_asked_for(tmp_path: Path) -> None:
    chosen = options(tmp_path)
    shutil.rmtree(tmp_path / "built" / "tokenizer")
    with refused("preprocessing: tokenizer_dir must be given in `values`, as preprocessing.tokenizer_dir="):
        write_llm_repository(tmp_path / "R", chosen)
    path = tmp_path / "templates" / "tensorrt_llm" / "config.pbtxt"
    path.write_text(path.read_text() + "version_policy { latest { num_versions: ${how_many} } }\n")
    with refused("tensorrt_llm: how_many must be given"):
        write_llm_repository(tmp_path / "R", options(tmp_path, values={"tokenizer_dir": "/t"}))
    assert write_llm_repository(tmp_path / "R", options(tmp_path, values={"tokenizer_dir": "/t", "how_many": "1"}))


@pytest.mark.parametrize(
    ("kind", "other", "message"),
    [
        ("0.13", "0.10", "tensorrt_llm/config.pbtxt is not of TensorRT-LLM 0.13.0: it has no ${max_queue_size}"),
        ("0.10", "0.13", "tensorrt_llm/config.pbtxt is not of TensorRT-LLM 0.10.0: it has ${max_queue_size}"),
        ("0.13", "1.2", "is not of TensorRT-LLM 0.13.0: it has ${logits_datatype}"),
        ("1.2", "0.13", "is not of TensorRT-LLM 1.2.1: it has no ${encoder_input_features_data_type}"),
        ("1.2", "0.20", "is not of TensorRT-LLM 1.2.1: it has no ${prompt_embedding_table_data_type}"),
    ],
)
def test_templates_of_another_version_are_refused(tmp_path: Path, kind: str, other: str, message: str) -> None:
    write_templates(tmp_path / "templates", other)
    with refused(message):
        write_llm_repository(tmp_path / "R", options(tmp_path, kind))


def test_templates_that_0_20_may_or_may_not_have_are_taken(tmp_path: Path) -> None:
    """Images before 1.1 have been built from either side of the change."""
    write_templates(tmp_path / "templates", "1.2")
    write_llm_repository(tmp_path / "R", options(tmp_path, "0.20"))
    kinds = {tensor.name: tensor.data_type for tensor in config_of(tmp_path / "R", "tensorrt_llm").input}
    assert kinds["prompt_embedding_table"] == pb.TYPE_BF16


def test_a_small_cache_and_one_request_at_once(tmp_path: Path) -> None:
    """The command of the manual for Llama 3.1 on Triton 24.09."""
    built(tmp_path / "B", "0.13.0")
    write_templates(tmp_path / "T", "0.13")
    cache = {
        "max_tokens_in_paged_kv_cache": "2560",
        "max_attention_window_size": "2560",
        "kv_cache_free_gpu_mem_fraction": "0.5",
    }
    settings = [f"--set={key}={value}" for key, value in {"triton_max_batch_size": "1", **cache}.items()]
    flags = ["--templates", "T", "--out", "R", "--models", "ensemble", "--unary", "--json"]
    models = json.loads(ok("llm", "repo", "B", *flags, *settings, cwd=tmp_path))["models"]
    assert models == ["preprocessing", "tensorrt_llm", "postprocessing", "ensemble"]
    assert {path.name for path in (tmp_path / "R").iterdir()} == set(models)
    assert read_repository(tmp_path / "R").ranks == 1
    configs = {model: config_of(tmp_path / "R", model) for model in models}
    assert {config.max_batch_size for config in configs.values()} == {1}
    core = configs["tensorrt_llm"]
    assert {key: core.parameters[key].string_value for key in cache} == cache
    assert not core.model_transaction_policy.decoupled
    tokenizer = str(tmp_path / "B" / "tokenizer")
    assert configs["preprocessing"].parameters["tokenizer_dir"].string_value == tokenizer


def test_engines_of_another_version_or_with_ranks_missing_are_refused(tmp_path: Path) -> None:
    built(tmp_path / "built", "0.10.0")
    with refused("built by TensorRT-LLM 0.10.0, and release 24.09 has 0.13.0, which cannot run it"):
        write_llm_repository(tmp_path / "R", options(tmp_path))
    shutil.rmtree(tmp_path / "built")
    built(tmp_path / "built", "0.13.0", tp=2)
    (tmp_path / "built" / "engine" / "rank1.engine").unlink()
    with refused("has not all engines: rank1.engine missing"):
        write_llm_repository(tmp_path / "R", options(tmp_path))
    (tmp_path / "built" / "engine" / "config.json").write_text("{}")
    with refused("is not an engine's configuration"):
        write_llm_repository(tmp_path / "R", options(tmp_path))


def test_a_repository_is_replaced_and_nothing_else_is(tmp_path: Path) -> None:
    out = tmp_path / "R"
    write_llm_repository(out, options(tmp_path))
    write_llm_repository(out, options(tmp_path, models="ensemble"))
    assert sorted(path.name for path in out.iterdir()) == [
        "ensemble",
        "postprocessing",
        "preprocessing",
        "tensorrt_llm",
    ]
    ok("llm", "repo", "built", "--templates", "templates", "--out", "R", "--models", "tensorrt_llm", cwd=tmp_path)
    assert [path.name for path in out.iterdir()] == ["tensorrt_llm"], "the engine alone, which reads token ids"
    assert config_of(out, "tensorrt_llm").parameters["exclude_input_in_output"].string_value == "true"
    shutil.rmtree(out / "tensorrt_llm")
    (out / "another").mkdir()
    with refused("is there and is not a repository of a language model"):
        write_llm_repository(out, options(tmp_path))


def test_the_filler_knows_quotes_and_comments() -> None:
    text = "a: ${one} # ${two}\nb: \"x ${three} ${one}\"\nc: '${four}'\n"
    assert placeholders(text) == {"one": True, "three": False, "four": False}
    filled = fill(text, {"one": "1", "two": "2", "three": 'a"b\\', "four": "it's"}, "m")
    assert filled == "a: 1 # ${two}\nb: \"x a\\\"b\\\\ 1\"\nc: 'it\\'s'\n"
    assert assign({"one": "1", "m.three": "3"}, {"m": text, "n": "a: ${one}"}) == {
        "m": {"one": "1", "three": "3"},
        "n": {"one": "1"},
    }
    with refused("the template is of a model 'x'"):
        parse('name: "x"', "m")


def test_every_template_of_the_tests_has_what_its_version_must_have() -> None:
    for kind, (release, _) in RELEASES.items():
        for model, needed in find_target(release).toolchain.mandatory.items():
            assert set(needed) <= set(placeholders(templates(kind)[model]))


def test_the_llm_api_gets_a_checked_model_yaml(tmp_path: Path) -> None:
    folder = write_llmapi(tmp_path / "all_models")
    values = {
        "tensor_parallel_size": "2",
        "kv_cache_config.free_gpu_memory_fraction": "0.8",
        "trust_remote_code": "False",
    }
    out = tmp_path / "R"
    target = find_target("26.07")
    assert write_llmapi_repository(out, target, "a: 'b' # c", templates=folder, values=values) == ["tensorrt_llm"]
    assert yaml.safe_load((out / "tensorrt_llm" / "1" / "model.yaml").read_text()) == {
        "model": "a: 'b' # c",
        "backend": "pytorch",
        "tensor_parallel_size": 2,
        "trust_remote_code": False,
        "kv_cache_config": {"free_gpu_memory_fraction": 0.8},
        "triton_config": {"max_batch_size": 0, "decoupled": True},
    }
    assert (out / "tensorrt_llm" / "1" / "helpers.py").is_file()
    assert read_repository(out).ranks == 1
    with refused("model.x: model is no table of arguments"):
        model_yaml("m", decoupled=True, values={"model.x": "2"})
    with refused("model.x.y: model.x is no table of arguments"):
        model_yaml("m", decoupled=True, values={"model.x.y": "2"})
    with refused("release 24.09 has no llmapi model on PyTorch: the nearest is 25.06"):
        write_llmapi_repository(out, find_target("24.09"), "m", templates=folder)
    with refused("give `templates`, a checkout of"):
        write_llmapi_repository(out, target, "m", templates=tmp_path / "none")


def test_what_nvidias_guides_set_is_handed_on(tmp_path: Path) -> None:
    folder = write_llmapi(tmp_path / "all_models")
    settings = (
        "moe_expert_parallel_size=4", "gpus_per_node=8", "kv_cache_config.host_cache_size=45000000000",
        "speculative_config.decoding_type=Eagle", "speculative_config.max_draft_len=3",
        'speculative_config.a.b=["A", 1]', "triton_config.multimodal=True", "max_seq_len=null", "dtype=bfloat16",
        "gpu_device_ids=0,1;2,3",
    )  # fmt: skip
    flags: list[str | Path] = ["--platform", "llmapi", "--templates", folder, "--out", "R"]
    flags += [*(f"--set={text}" for text in settings)]
    ok("llm", "repo", "some/model", *flags, cwd=tmp_path)
    assert yaml.safe_load((tmp_path / "R" / "tensorrt_llm" / "1" / "model.yaml").read_text()) == {
        "model": "some/model",
        "backend": "pytorch",
        "moe_expert_parallel_size": 4,
        "gpus_per_node": 8,
        "kv_cache_config": {"host_cache_size": 45_000_000_000},
        "speculative_config": {"decoding_type": "Eagle", "max_draft_len": 3, "a": {"b": ["A", 1]}},
        "max_seq_len": None,
        "dtype": "bfloat16",
        "triton_config": {"max_batch_size": 0, "decoupled": True, "multimodal": True},
    }
    config = config_of(tmp_path / "R", "tensorrt_llm")
    assert config.instance_group[0].count == 2
    assert config.parameters["gpu_device_ids"].string_value == "0,1;2,3"
    done = run("llm", "repo", "m", *flags[:6], "--set", "gpu_device_ids=0;", cwd=tmp_path)
    assert "gpu_device_ids is GPUs, with a semicolon between instances, such as 0,1;2,3, not '0;'" in done.stderr
    write_llmapi(tmp_path / "old", instances=False)
    with refused("does not read gpu_device_ids: it is of a version with one instance"):
        write_llmapi_repository(
            tmp_path / "S", find_target("26.07"), "m", templates=tmp_path / "old", values={"gpu_device_ids": "0"}
        )


@pytest.mark.parametrize("value", ["decoupled=false", "max_batch_size=8"])
def test_what_the_server_is_told_as_well_is_set_in_one_place(tmp_path: Path, value: str) -> None:
    folder = write_llmapi(tmp_path / "all_models")
    key, _, text = f"triton_config.{value}".partition("=")
    with refused(f"{key} cannot be set: "):
        write_llmapi_repository(tmp_path / "R", find_target("26.07"), "m", templates=folder, values={key: text})
    assert not (tmp_path / "R").exists()


def test_templates_of_engines_are_not_the_llmapi_model(tmp_path: Path) -> None:
    templates = write_templates(tmp_path / "T", "1.2")
    with refused(f"{templates / 'tensorrt_llm' / 'config.pbtxt'} is not the llmapi model: "):
        write_llmapi_repository(tmp_path / "R", find_target("26.07"), "m", templates=templates)


def test_a_local_model_is_named_by_its_whole_path(tmp_path: Path) -> None:
    folder = write_llmapi(tmp_path / "all_models")
    blobs = tmp_path / "cache" / "blobs"
    blobs.mkdir(parents=True)
    (blobs / "1").write_text("weights")
    snapshot = tmp_path / "cache" / "snapshots" / "abc"
    snapshot.mkdir(parents=True)
    (snapshot / "model.safetensors").symlink_to(blobs / "1")
    (tmp_path / "hf").symlink_to(snapshot)
    (tmp_path / "draft").mkdir()
    flags: list[str | Path] = ["--platform", "llmapi", "--templates", folder, "--out", "R"]
    ok("llm", "repo", "hf", *flags, "--set", f"speculative_config.model={tmp_path / 'draft'}", cwd=tmp_path)
    path = tmp_path / "R" / "tensorrt_llm" / "1" / "model.yaml"
    assert json.loads(path.read_text())["model"] == str(snapshot)
    served = read_repository(tmp_path / "R")
    assert (served.source, served.folders) == ("", (tmp_path / "cache", tmp_path / "draft"))
    path.write_text(f"# by hand\nmodel: '{tmp_path}/hf' # mine\nkv_cache_config: {{host_cache_size: 5}}\n")
    assert read_repository(tmp_path / "R").folders == (tmp_path / "cache",)
    path.write_text("backend: pytorch\nmodel: Qwen/Qwen2.5-VL-3B-Instruct # a comment\n")
    assert read_repository(tmp_path / "R").source == "Qwen/Qwen2.5-VL-3B-Instruct"
    path.write_text("model: /nowhere\n")
    with refused("names the model /nowhere, which is no folder here"):
        read_repository(tmp_path / "R")
    path.write_text("backend: pytorch\n")
    with refused("model.yaml names no model"):
        read_repository(tmp_path / "R")


def test_templates_of_the_llm_api_are_those_of_the_release(tmp_path: Path) -> None:
    checkout = tmp_path / "checkout"
    write_llmapi(checkout / "triton_backend" / "all_models")
    (checkout / "tensorrt_llm").mkdir()
    (checkout / "tensorrt_llm" / "version.py").write_text('__version__ = "1.4.0rc1"\n')
    with refused("config.pbtxt is of TensorRT-LLM 1.4.0rc1, and release 26.07 has 1.2.1"):
        write_llmapi_repository(tmp_path / "R", find_target("26.07"), "m", templates=checkout)
    (checkout / "tensorrt_llm" / "version.py").write_text('__version__ = "1.2.1"\n')
    assert write_llmapi_repository(tmp_path / "R", find_target("26.07"), "m", templates=checkout)
    with refused("checkout of https://github.com/NVIDIA/TensorRT-LLM at v1.4.0rc1"):
        write_llmapi_repository(tmp_path / "S", find_target("1.4.0rc1"), "m")
    newer = write_llmapi(tmp_path / "newer", ("image_url?", "STRING", "-1"))
    for release, version in (("25.06", "0.20.0"), ("26.07", "1.2.1")):
        with refused(f"is not of TensorRT-LLM {version}: it has the input image_url; give the templates of v{version}"):
            write_llmapi_repository(tmp_path / "S", find_target(release), "m", templates=newer)
    assert write_llmapi_repository(tmp_path / "S", find_target("1.4.0rc1"), "m", templates=newer)


@pytest.mark.parametrize("decoupled", [True, False])
def test_the_policy_of_the_llm_api_does_not_hang_on_model_yaml(tmp_path: Path, decoupled: bool) -> None:
    folder = write_llmapi(tmp_path / "all_models")
    write_llmapi_repository(tmp_path / "R", find_target("26.07"), "m", templates=folder, decoupled=decoupled)
    config = config_of(tmp_path / "R", "tensorrt_llm")
    assert config.model_transaction_policy.decoupled == decoupled
    assert config.max_batch_size == 0
    assert [tensor.name for tensor in config.input] == ["text_input", "streaming"]


def test_the_command_takes_the_release_from_the_build(tmp_path: Path) -> None:
    built(tmp_path / "B", "0.13.0")
    write_templates(tmp_path / "T" / "all_models" / "inflight_batcher_llm", "0.13")
    flags = ["--templates", "T", "--out", "R", "--set", "max_queue_size=5", "--json"]
    done = json.loads(ok("llm", "repo", "B", *flags, cwd=tmp_path))
    assert "tensorrt_llm_bls" in done["models"]
    core = config_of(tmp_path / "R", "tensorrt_llm")
    assert core.dynamic_batching.default_queue_policy.max_queue_size == 5
    wrong = run("llm", "repo", "B", "--release", "24.06", *flags, cwd=tmp_path)
    assert (wrong.returncode, wrong.stdout) == (1, "")
    assert "built by TensorRT-LLM 0.13.0, and release 24.06 has 0.10.0" in wrong.stderr
    assert len(wrong.stderr.splitlines()) == 1
    wrong = run("llm", "repo", "B", "--out", "R2", cwd=tmp_path)
    assert "the container of release 24.09 has no templates: `git clone --depth 1 --branch v0.13.0" in wrong.stderr
    assert "triton-inference-server/tensorrtllm_backend TEMPLATES`" in wrong.stderr
    wrong = run("llm", "repo", "T", "--out", "R2", cwd=tmp_path)
    assert "T does not say which release it was built for" in wrong.stderr


@pytest.fixture
def checkpoint(tmp_path: Path) -> None:
    """``model``: what is looked at of a checkpoint."""
    (tmp_path / "model").mkdir()
    for name, text in (("config.json", '{"model_type": "gpt2"}'), ("tokenizer.json", "{}")):
        (tmp_path / "model" / name).write_text(text)


@pytest.mark.usefixtures("checkpoint")
def test_the_python_baseline_is_written_by_the_same_command(tmp_path: Path) -> None:
    flags = ["--platform", "python", "--out", "P"]
    done = json.loads(ok("llm", "repo", "./model", *flags, "--set", "max_batch=4", "--unary", "--json", cwd=tmp_path))
    assert done["models"] == ["ensemble"]
    assert config_of(tmp_path / "P", "ensemble").max_batch_size == 4
    assert not config_of(tmp_path / "P", "ensemble").model_transaction_policy.decoupled
    wrong = run("llm", "repo", "./model", *flags, "--set", "max_batches=4", cwd=tmp_path)
    assert "--set: unknown key 'max_batches'; did you mean 'max_batch'?" in wrong.stderr
    assert read_repository(tmp_path / "P").ranks == 1


@pytest.mark.usefixtures("checkpoint")
@pytest.mark.parametrize(
    ("platform", "flags", "message"),
    [
        ("python", ["--models", "ensemble"], "--models is for --platform tensorrtllm, not python"),
        ("python", ["--templates", "/x"], "--templates is for --platform tensorrtllm and llmapi, not python"),
        ("python", ["--release", "24.10"], "--release is for --platform tensorrtllm and llmapi, not python"),
        ("llmapi", ["--models", "bls"], "--models is for --platform tensorrtllm, not llmapi"),
    ],
)
def test_options_that_a_platform_does_not_use_are_wrong_usage(
    tmp_path: Path, platform: str, flags: list[str], message: str
) -> None:
    done = run("llm", "repo", "./model", "--platform", platform, "--out", "P", *flags, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert f"Error: {message}" in done.stderr
    assert not (tmp_path / "P").exists()


@pytest.mark.usefixtures("checkpoint")
def test_the_environment_may_have_options_of_another_platform(tmp_path: Path) -> None:
    flags = ["--platform", "python", "--out", "P"]
    ok("llm", "repo", "./model", *flags, cwd=tmp_path, VLMSEARCH_MODELS="bls", VLMSEARCH_TEMPLATES="/nowhere")


@pytest.mark.usefixtures("checkpoint")
@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("max_batch=99999999999", "`max_batch` is at most 2147483647, not 99999999999"),
        ("max_batch=²", "--set: max_batch is a whole number, not '²'"),
        ("max_sequences=0", "`max_sequences` is at least 1, not 0"),
        ("gpu=2147483648", "`gpu` is at most"),
    ],
)
def test_numbers_that_cannot_be_are_one_line(tmp_path: Path, setting: str, message: str) -> None:
    done = run("llm", "repo", "./model", "--platform", "python", "--out", "P", "--set", setting, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(f"Error: {message}")
    assert len(done.stderr.splitlines()) == 1
