"""A plan for people."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence

from vlmsearch.build.llm_memory import FORMULA, gib
from vlmsearch.build.llm_plan import Plan


def plan_text(plan: Plan) -> str:
    """Everything a plan will do, as a text with commands that can be copied."""
    lines = [*_what(plan), *_steps(plan), *_memory(plan)]
    lines += [f"unverified     {note}" for note in plan.unverified]
    return "".join(f"{line}\n" for line in lines)


def _what(plan: Plan) -> Iterator[str]:
    recipe, places, versions = plan.recipe, plan.places, plan.target.versions
    where = f"{recipe.source} at {recipe.revision}" if recipe.source else recipe.checkpoint
    gated = ", after its licence was accepted on the hub" if recipe.gated else ""
    built_with = f"TensorRT-LLM {versions.tensorrt_llm}, TensorRT {versions.tensorrt}, CUDA {versions.cuda}"
    yield f"{recipe.name} for Triton {plan.target.release}"
    yield f"container      {plan.target.image}"
    yield f"versions       {built_with}, Python {versions.python}"
    yield f"model          {where} ({recipe.licence}{gated}), mounted at {places.model}"
    yield f"scripts        {plan.clone + ', mounted at ' if plan.clone else 'in the container: '}{places.scripts}"
    yield f"ranks          {plan.ranks} (tensor parallelism {plan.tp}, pipeline parallelism {plan.pp})"
    if places.calibration:
        yield f"calibration    your texts, mounted at {places.calibration}"
    if plan.calibration_set:
        own = ", or texts of your own: --own-calibration" if plan.target.toolchain.calibration else ""
        yield f"calibration    {plan.calibration_set}, which step 2 downloads from the hub{own}"


def _steps(plan: Plan) -> Iterator[str]:
    yield "step 1         tokenizer: copied from the model to /out/tokenizer"
    yield "step 2         checkpoint"
    yield f"  {_folded(plan.checkpoint_command(plan.places))}"
    yield "step 3         engine"
    yield f"  {_folded(plan.engine_command(plan.places))}"
    yield "step 4         check: one prompt, and how the engine goes on"
    yield f"  {_folded(plan.check_command(plan.places))}"
    for name, files in plan.products.items():
        yield f"afterwards     {name}/: {', '.join(files)}"


def _memory(plan: Plan) -> Iterator[str]:
    memory, limits = plan.memory, plan.recipe.limits
    most = f"{limits.batch} requests of {limits.sequence} tokens"
    yield f"GPU memory     about {gib(memory.least)} to start, {gib(memory.full)} for {most}, on each GPU"
    parts = f"weights {gib(memory.weights)}, activations {gib(memory.activations)}"
    yield f"  {parts}, KV cache {gib(memory.kv_one)} a request, other {gib(memory.overhead)}"
    for part in FORMULA.split("; "):
        yield f"  {part}"


def _folded(command: Sequence[str]) -> str:
    """A command on several lines, for a shell."""
    parts: list[list[str]] = [[]]
    for part in command:
        if part.startswith("--"):
            parts.append([])
        parts[-1].append(part)
    return " \\\n    ".join(shlex.join(part) for part in parts)
