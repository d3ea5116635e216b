"""What TensorRT-LLM cannot build, found before anything is downloaded, with the nearest that it can."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Literal

from vlmsearch.errors import ConfigError
from vlmsearch.tensorrt_llm.memory import PICTURES, PlannedPictures
from vlmsearch.tensorrt_llm.plan import LlmPlan
from vlmsearch.tensorrt_llm.recipe import Dtype, find_llm_recipe
from vlmsearch.tensorrt_llm.versions import Engines, find_target, first_with


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
    use: Literal["plan", "engines", "server"] = "plan",
) -> LlmPlan:
    """Return the plan of a recipe, given by name or file.

    Release, parallelism and type are its own unless others are named.

    ``pictures`` of ``picture_side`` pixels are those of a request to a vision model, ``gpu_memory`` a GPU's bytes.
    ``use`` says whether engines are to be built, or the LLM API shall serve it.

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
    if recipe.vision and use == "engines":
        raise ConfigError(
            f"{recipe.name} has no engines: `vlmsearch llm plan {recipe.argument}` says how it runs without"
        )
    if use == "server" and not plan.first_served:
        raise ConfigError(f"{recipe.name}: {plan.elsewhere}")
    for fault in _faults(plan, needs_engines=use != "server" and not recipe.vision):
        raise ConfigError(f"{recipe.name} for release {target.release}: {fault}")
    return plan


def _faults(plan: LlmPlan, *, needs_engines: bool) -> Iterator[str]:
    if needs_engines:
        yield from _engines(plan)
    yield from _serving(plan, needs_engines=needs_engines)
    yield from _parallelism(plan)
    if needs_engines:
        yield from _quantisation(plan)


def _engines(plan: LlmPlan) -> Iterator[str]:
    version, chain = plan.target.tensorrt_llm, plan.target.toolchain
    if plan.recipe.architecture.rope == "llama3" and not chain.llama3:
        yield (
            f"TensorRT-LLM {version} has no llama3 position scaling: the nearest that has it is "
            f"{_first_that_builds(lambda engines: engines.llama3)}"
        )
    if plan.calibration and not plan.calibrates:
        yield "its checkpoint is converted without calibration: leave your own calibration texts out"
    if plan.calibration and not chain.calibration:
        yield (
            f"TensorRT-LLM {version} calibrates with no texts of one's own: the nearest that can is "
            f"{_first_that_builds(lambda engines: engines.calibration)}"
        )


def _serving(plan: LlmPlan, *, needs_engines: bool) -> Iterator[str]:
    if not needs_engines and plan.first_served and not plan.is_served:
        version = plan.target.tensorrt_llm
        yield f"TensorRT-LLM {version} has no {plan.listed}: the nearest that has it is {plan.first_served}"
    vision, pictures = plan.recipe.vision, plan.pictures
    if not vision:
        return
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
    if pp > shape.layers:
        yield f"{shape.layers} layers cannot be split in {pp}"
    if shape.layers % pp and plan.target.engines and not plan.target.engines.uneven:
        first = _first_that_builds(lambda engines: engines.uneven)
        yield f"{shape.layers} layers cannot be split in {pp} before {first}"


def _quantisation(plan: LlmPlan) -> Iterator[str]:
    quantisation, shape = plan.recipe.quantisation, plan.recipe.architecture
    method, family = quantisation.method, shape.family
    methods = plan.target.toolchain.methods[family]
    if family in plan.target.toolchain.single and (method, quantisation.kv_cache) != ("none", "same"):
        able = _first_that_builds(lambda engines: family not in engines.single)
        yield f"TensorRT-LLM {plan.target.tensorrt_llm} quantises no {family}: the nearest that can is {able}"
    if method not in methods:
        yield f"{method} is not supported for {family}: the nearest that can are {', '.join(methods)}"
    if method == "int4_awq":
        for name, width in (("hidden", shape.hidden), ("ffn", shape.ffn)):
            block = quantisation.block_size
            if width % (plan.tp * block):
                yield f"{name} {width} / tp {plan.tp} is not a multiple of block_size {block}"
    if quantisation.kv_cache == "fp8" and not plan.quantizes:
        yield "kv_cache fp8 comes with quantize.py: the nearest that can are method fp8 and int4_awq, or kv_cache int8"
    if quantisation.kv_cache == "int8" and family == "phi" and not plan.quantizes:
        yield "kv_cache int8 of Phi comes with quantize.py: the nearest that can is method int8_sq"


def _first_that_builds(holds: Callable[[Engines], bool]) -> str:
    return first_with(lambda target: target.engines is not None and holds(target.engines))
