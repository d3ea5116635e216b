"""What TensorRT-LLM cannot build, found before anything is downloaded, with the nearest that it can."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from vlmsearch.errors import ConfigError
from vlmsearch.tensorrt_llm.memory import PICTURES, PlannedPictures
from vlmsearch.tensorrt_llm.plan import LlmPlan
from vlmsearch.tensorrt_llm.recipe import Dtype, find_llm_recipe
from vlmsearch.tensorrt_llm.versions import find_target, targets

_LLAMA3 = "0.12.0"
"""The first version with Llama 3.1 in its release notes."""


def make_plan(
    location: str,
    *,
    release: str | None = None,
    tp: int | None = None,
    pp: int | None = None,
    dtype: Dtype | None = None,
    calibration: bool = False,
    pictures: int | None = None,
    picture_side: int | None = None,
    gpu_memory: int = 0,
    engines: bool = False,
) -> LlmPlan:
    """Return the plan of a recipe's name or file, for its own release, parallelism and type unless others are named.

    ``pictures`` of ``picture_side`` pixels are those of a request to a vision model, ``gpu_memory`` a GPU's bytes.
    ``engines`` says that engines are to be built.

    ConfigError for a combination that cannot work: it says why, and what the nearest is that can.
    """
    recipe = find_llm_recipe(location)
    if dtype:
        recipe = dataclasses.replace(recipe, dtype=dtype)
    target = find_target(release or recipe.release)
    plan = LlmPlan(
        recipe,
        target,
        recipe.tp if tp is None else tp,
        recipe.pp if pp is None else pp,
        calibration,
        PlannedPictures(pictures or PICTURES.count, picture_side or PICTURES.side),
        gpu_memory,
    )
    if not recipe.vision and (pictures is not None or picture_side is not None):
        raise ConfigError(f"{recipe.name} reads no pictures: leave `pictures` and `picture_side` out")
    if recipe.vision and engines:
        raise ConfigError(f"{recipe.name} has no engines: `vlmsearch llm plan {recipe.name}` says how it runs without")
    for fault in _faults(plan):
        raise ConfigError(f"{recipe.name} for Triton {target.release}: {fault}")
    return plan


def _faults(plan: LlmPlan) -> Iterator[str]:
    yield from _versions(plan)
    yield from _pictures(plan)
    yield from _parallelism(plan)
    yield from _quantisation(plan)


def _versions(plan: LlmPlan) -> Iterator[str]:
    if plan.recipe.architecture.rope == "llama3" and not plan.target.since(_LLAMA3):
        version = plan.target.versions.tensorrt_llm
        yield (f"TensorRT-LLM {version} has no llama3 position scaling: the nearest that has it is {_from(_LLAMA3)}")
    if plan.calibration and not plan.calibrates:
        yield "its checkpoint is converted without calibration: leave your own calibration texts out"
    if plan.calibration and not plan.target.toolchain.calibration:
        version = plan.target.versions.tensorrt_llm
        yield f"TensorRT-LLM {version} calibrates with no texts of one's own: the nearest that can is {_from('0.11.0')}"


def _pictures(plan: LlmPlan) -> Iterator[str]:
    vision, pictures, support = plan.recipe.vision, plan.pictures, plan.support
    if not vision:
        return
    if support.since and not plan.is_served:
        version = plan.target.versions.tensorrt_llm
        yield f"TensorRT-LLM {version} has no {support.architecture}: the nearest that has it is {_from(support.since)}"
    tokens, room = pictures.count * vision.tokens(pictures.side), plan.recipe.limits.input
    if tokens >= room:
        given = f"{pictures.count} pictures of {pictures.side} pixels"
        yield f"{given} are {tokens} tokens, and a prompt has {room}: fewer `pictures`, or a smaller `picture_side`"


def _parallelism(plan: LlmPlan) -> Iterator[str]:
    shape, tp, pp = plan.recipe.architecture, plan.tp, plan.pp
    if min(tp, pp) < 1:
        yield f"tensor and pipeline parallelism are at least 1, not {tp} and {pp}"
        return
    if tp > 1 and not plan.recipe.splits:
        yield f"TensorRT-LLM does not support tensor parallelism for it: tp is 1, not {tp}"
    if shape.heads % tp or (shape.kv_heads % tp and tp % shape.kv_heads):
        yield f"{shape.heads} heads and {shape.kv_heads} key heads cannot be split in {tp}"
    if pp > 1 and shape.family == "phi":
        yield f"convert_checkpoint.py of phi has no pipeline parallelism: pp is 1, not {pp}"
    if pp > shape.layers or (shape.layers % pp and not plan.target.toolchain.uneven):
        hint = "" if pp > shape.layers else f" before {_from('0.11.0')}"
        yield f"{shape.layers} layers cannot be split in {pp}{hint}"


def _quantisation(plan: LlmPlan) -> Iterator[str]:
    quantisation, shape = plan.recipe.quantisation, plan.recipe.architecture
    method, chain = quantisation.method, plan.target.toolchain
    if shape.family in chain.single and (method, quantisation.kv_cache) != ("none", "same"):
        able = next(release.toolchain.since for release in targets() if shape.family not in release.toolchain.single)
        yield f"TensorRT-LLM {chain.since} quantises no {shape.family}: the nearest that can is {_from(able)}"
    if (
        method == "int4_awq" and shape.family != "llama"
    ):  # the support tables in examples/models/core/{gpt,phi}/README.md
        yield f"int4_awq is not supported for {shape.family}: the nearest that can are int4_wo, int8_sq and fp8"
    if plan.quantizes and method not in chain.formats:
        yield f"quantize.py takes {', '.join(chain.formats)}, not {method}"
    if method == "int4_awq":
        for name, width in (("hidden", shape.hidden), ("ffn", shape.ffn)):
            block = quantisation.block_size
            if width % (plan.tp * block):
                yield f"{name} {width} / tp {plan.tp} is not a multiple of block_size {block}"
    if quantisation.kv_cache == "fp8" and not plan.quantizes:
        yield "kv_cache fp8 comes with quantize.py: the nearest that can are method fp8 and int4_awq, or kv_cache int8"
    if quantisation.kv_cache == "int8" and shape.family == "phi" and not plan.quantizes:
        yield "kv_cache int8 of Phi comes with quantize.py: the nearest that can is method int8_sq"


def _from(version: str) -> str:
    first = next(target for target in targets() if target.since(version))
    return f"{first.release} (TensorRT-LLM {first.versions.tensorrt_llm})"
