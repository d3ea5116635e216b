"""What TensorRT-LLM cannot build, found before anything is downloaded, with the nearest that it can."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from vlmsearch.errors import ConfigError
from vlmsearch.tensorrt_llm.memory import estimate, gib
from vlmsearch.tensorrt_llm.plan import LlmPlan
from vlmsearch.tensorrt_llm.recipe import Dtype, LlmRecipe, find_llm_recipe
from vlmsearch.tensorrt_llm.versions import find_gpu, find_target, matrix, targets

_LLAMA3 = "0.14.0"
"""The first that converts Llama 3.1, which 0.12.0 supports: 0.12 and 0.13 pin transformers <= 4.42.4."""
_GIB = 2**30
_MOST_TP = 8
"""What is proposed at most to those who have not named more: the GPUs of one machine."""


def make_plan(
    location: str,
    *,
    release: str | None = None,
    tp: int | None = None,
    pp: int | None = None,
    gpu: str | None = None,
    dtype: Dtype | None = None,
    calibration: bool = False,
) -> LlmPlan:
    """Return the plan of a recipe's name or file, for its own release, parallelism and type unless others are named.

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
        gpu.lower() if gpu else "",
        calibration,
    )
    for fault in _faults(plan):
        raise ConfigError(f"{recipe.name} for Triton {target.release}: {fault}")
    return plan


def _faults(plan: LlmPlan) -> Iterator[str]:
    yield from _versions(plan)
    yield from _parallelism(plan)
    yield from _quantisation(plan)
    if plan.gpu:
        yield from _gpu(plan)


def _versions(plan: LlmPlan) -> Iterator[str]:
    if plan.recipe.architecture.rope == "llama3" and not plan.target.since(_LLAMA3):
        version = plan.target.versions.tensorrt_llm
        yield (
            f"TensorRT-LLM {version} cannot convert llama3 position scaling: its transformers refuse the model's "
            f"configuration; the nearest that can is {_from(_LLAMA3)}"
        )
    if plan.calibration and not plan.calibrates:
        yield "its checkpoint is converted without calibration: leave your own calibration texts out"
    if plan.calibration and not plan.target.toolchain.calibration:
        version = plan.target.versions.tensorrt_llm
        yield f"TensorRT-LLM {version} calibrates with no texts of one's own: the nearest that can is {_from('0.11.0')}"


def _parallelism(plan: LlmPlan) -> Iterator[str]:
    shape, tp, pp = plan.recipe.architecture, plan.tp, plan.pp
    if min(tp, pp) < 1:
        yield f"tensor and pipeline parallelism are at least 1, not {tp} and {pp}"
        return
    if tp > 1 and not plan.recipe.splits:
        yield f"TensorRT-LLM does not support tensor parallelism for it: the nearest that can is tp 1, not {tp}"
    allowed = _allowed(plan.recipe, shape.heads)
    if tp not in allowed:
        near = min(allowed, key=lambda number: abs(number - tp))
        yield f"{shape.heads} heads and {shape.kv_heads} key heads cannot be split in {tp}: the nearest tp is {near}"
    if pp > 1 and shape.family == "phi":
        yield f"convert_checkpoint.py of phi has no pipeline parallelism: the nearest that can is pp 1, not {pp}"
    if pp > shape.layers or (shape.layers % pp and not plan.target.toolchain.uneven):
        near = min((n for n in range(1, shape.layers + 1) if shape.layers % n == 0), key=lambda n: abs(n - pp))
        hint = "" if pp > shape.layers else f", or {_from('0.11.0')}"
        yield f"{shape.layers} layers cannot be split in {pp}: the nearest pp is {near}{hint}"


def _quantisation(plan: LlmPlan) -> Iterator[str]:
    quantisation, shape = plan.recipe.quantisation, plan.recipe.architecture
    method, chain = quantisation.method, plan.target.toolchain
    if shape.family in chain.single and (method, quantisation.kv_cache) != ("none", "same"):
        able = next(one.toolchain.since for one in targets() if shape.family not in one.toolchain.single)
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
                near = _divisor(width // plan.tp, block)
                yield f"{name} {width} / tp {plan.tp} is not a multiple of block_size {block}: the nearest is {near}"
    if quantisation.kv_cache == "fp8" and not plan.quantizes:
        yield "kv_cache fp8 comes with quantize.py: the nearest that can are method fp8 and int4_awq, or kv_cache int8"
    if quantisation.kv_cache == "int8" and shape.family == "phi" and not plan.quantizes:
        yield "kv_cache int8 of Phi comes with quantize.py: the nearest that can is method int8_sq"


def _gpu(plan: LlmPlan) -> Iterator[str]:
    gpu, chain, quantisation = find_gpu(plan.gpu), plan.target.toolchain, plan.recipe.quantisation
    name = f"{plan.gpu} (compute capability {gpu.sm // 10}.{gpu.sm % 10})"
    if not chain.least_sm <= gpu.sm <= chain.most_sm:
        able = [one for one in targets() if one.toolchain.least_sm <= gpu.sm <= one.toolchain.most_sm]
        near = able[-1] if gpu.sm < chain.least_sm else able[0]
        version = plan.target.versions.tensorrt_llm
        yield f"TensorRT-LLM {version} does not run on {name}: the nearest that does is {near.release}"
    if "fp8" in (quantisation.method, quantisation.kv_cache) and gpu.sm < 89:
        able_gpus = ", ".join(one for one, data in matrix().gpus.items() if data.sm >= 89)
        yield f"{name} has no FP8: the nearest that can is int8_sq with kv_cache int8, or {able_gpus}"
    if plan.recipe.dtype == "bfloat16" and gpu.sm < 80:
        yield f"{name} has no bfloat16: use float16"
    if plan.memory.least > gpu.gib * _GIB:
        able_tp = _allowed(plan.recipe, max(_MOST_TP, plan.recipe.tp, plan.tp))
        fits = [n for n in able_tp if estimate(plan.recipe, n, plan.pp).least <= gpu.gib * _GIB]
        near_tp = f"the nearest that fits is tp {fits[0]}" if fits else "use a lower precision or smaller limits"
        yield f"each GPU needs about {gib(plan.memory.least)}, and {plan.gpu} has {gpu.gib} GiB: {near_tp}"


def _allowed(recipe: LlmRecipe, most: int) -> list[int]:
    """Tensor parallelism of up to ``most`` that the heads allow."""
    shape = recipe.architecture
    numbers = range(1, (most if recipe.splits else 1) + 1)
    return [n for n in numbers if shape.heads % n == 0 and (shape.kv_heads % n == 0 or n % shape.kv_heads == 0)]


def _divisor(width: int, block: int) -> int:
    return max(size for size in (128, 64, 32, 16, 8, 4, 2, 1) if width % size == 0 and size <= max(block, 1))


def _from(version: str) -> str:
    first = next(target for target in targets() if target.since(version))
    return f"{first.release} (TensorRT-LLM {first.versions.tensorrt_llm})"
