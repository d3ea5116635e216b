"""Whether a step made what the plan says: read from the files themselves, not from an exit status."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

from vlmsearch.errors import BackendError
from vlmsearch.tensorrt_llm.plan import LlmPlan, StepName
from vlmsearch.tensorrt_llm.versions import same_version

Json = Mapping[str, object]
VOCABULARIES = ("tokenizer.json", "tokenizer.model", "vocab.json")
"""Files that a tokenizer is made from: one is enough."""


def check_product(folder: Path, step: StepName, plan: LlmPlan) -> None:
    """Raise BackendError, with every fault in it, unless ``folder`` holds what the step had to make."""
    faults = [*_files(folder, step, plan)]
    if not faults and step in ("checkpoint", "engine"):
        try:
            config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError) as exc:
            faults = [f"config.json cannot be read ({exc})"]
        else:
            faults = [*(_checkpoint(config, plan) if step == "checkpoint" else _engine(config, plan))]
    if faults:
        raise BackendError(f"{step} is not what was planned: {'; '.join(faults)}")


def _files(folder: Path, step: StepName, plan: LlmPlan) -> Iterator[str]:
    if step == "tokenizer" and not any((folder / name).is_file() for name in VOCABULARIES):
        yield f"none of {', '.join(VOCABULARIES)} is there"
    for name in plan.products[step]:
        path = folder / name
        if not path.is_file():
            yield f"{name} is missing"
        elif path.stat().st_size == 0:
            yield f"{name} is empty"
    pattern = {"checkpoint": "rank*.safetensors", "engine": "rank*.engine"}.get(step)
    files = {path.name for path in folder.glob(pattern)} if pattern else set()
    for name in sorted(files - set(plan.products[step])):
        yield f"{name} is one too many for tp {plan.tp} x pp {plan.pp}"


def _checkpoint(config: Json, plan: LlmPlan) -> Iterator[str]:
    shape, quantisation = plan.recipe.architecture, plan.recipe.quantisation
    # what a checkpoint leaves out, as Phi's of 0.10 does, TensorRT-LLM takes so
    left_out = {"num_key_value_heads": config.get("num_attention_heads"), "mapping.tp_size": 1, "mapping.pp_size": 1}
    yield from _compare(
        config,
        {
            "dtype": plan.recipe.dtype,
            "num_hidden_layers": shape.layers,
            "num_attention_heads": shape.heads,
            "num_key_value_heads": shape.kv_heads,
            "hidden_size": shape.hidden,
            "mapping.tp_size": plan.tp,
            "mapping.pp_size": plan.pp,
            "quantization.quant_algo": plan.algorithm or None,
            "quantization.kv_cache_quant_algo": plan.kv_algorithm or None,
        },
        left_out,
    )
    if quantisation.method == "int4_awq":
        yield from _compare(config, {"quantization.group_size": quantisation.block_size}, {})


def _engine(config: Json, plan: LlmPlan) -> Iterator[str]:
    limits, pretrained = plan.recipe.limits, config.get("pretrained_config")
    if not isinstance(pretrained, dict) or not isinstance(config.get("build_config"), dict):
        yield "config.json has no pretrained_config and build_config"
        return
    version = plan.target.tensorrt_llm
    if not same_version(str(config.get("version")), version):
        yield f"it was built by TensorRT-LLM {config.get('version')}, not {version}"
    yield from _checkpoint(pretrained, plan)
    yield from _compare(
        config,
        {
            "build_config.max_batch_size": limits.batch,
            "build_config.max_input_len": limits.input,
            f"build_config.{plan.target.toolchain.length}": plan.longest,
            "build_config.max_beam_width": limits.beams,
            "build_config.max_num_tokens": plan.tokens,
        },
        {},
    )


def _compare(config: Json, wanted: Mapping[str, object], left_out: Mapping[str, object]) -> Iterator[str]:
    for path, value in wanted.items():
        actual: object = config
        for key in path.split("."):
            actual = actual.get(key) if isinstance(actual, dict) else None
        actual = left_out.get(path) if actual is None else actual
        if actual != value:
            yield f"{path} is {json.dumps(actual)}, not {json.dumps(value)}"
