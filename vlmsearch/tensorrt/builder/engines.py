"""Engines: a bundle's ONNX files as TensorRT plans that were measured before anybody uses them."""

from __future__ import annotations

import dataclasses

from vlmsearch.building.progress import steps
from vlmsearch.building.quantize import Report, silent
from vlmsearch.models.bundle import Bundle, Tower
from vlmsearch.models.recipe import Range, Recipe, Shapes, built_by
from vlmsearch.tensorrt.builder.builder import EngineBuilder
from vlmsearch.tensorrt.engine.plans import (
    Choice,
    EnginePrecision,
    Plan,
    all_choices,
    building,
    choose_plan,
    chosen_plan,
    read_or_discard,
)

_OF_A_RECIPE = frozenset({"batches", "gate", "lengths"})
"""The options of a choice that are a recipe's."""


def ensure_engine(
    bundle: Bundle,
    tower: Tower,
    *,
    precision: EnginePrecision = "int8",
    device: int = 0,
    profile: Range | None = None,
    level: int | None = None,
    recipe: Recipe | None = None,
    progress: Report | None = None,
) -> Plan:
    """Return the plan of one tower for a GPU: the one in the cache, or one that is built and measured now.

    ``precision`` is ``int8``, ``fp16`` or ``fp32``, or ``auto`` for the fastest of those that pass the gate, measured
    at the recipe's batch sizes. ``profile`` is the least, usual and greatest batch, by default the recipe's; ``level``
    the builder's optimization level, 0 to 5. Only one thread of one process builds, the others wait for it.

    ConfigError names the command that makes a file that the bundle lacks. QualityError has the figures where nothing
    passes the gate. BackendError is in TensorRT's own words.
    """
    given = recipe or recipe_of(bundle)
    builder = EngineBuilder(bundle, tower, device, given, profile, level, progress or silent)
    choice = builder.choice(precision)
    chosen = chosen_plan(choice)
    if chosen and read_or_discard(chosen, here=builder.machine) is not None:
        return chosen
    with building(choice) as done:
        if done:
            return done
        made = builder.fastest() if precision == "auto" else builder.make(precision)
        plan = dataclasses.replace(made.plan, attempts=tuple(builder.attempts))
        choose_plan(choice, plan)
        return plan


def find_engine(
    bundle: Bundle,
    tower: Tower,
    *,
    precision: EnginePrecision = "int8",
    device: int = 0,
    profile: Range | None = None,
    level: int | None = None,
) -> Plan | None:
    """Return what `ensure_engine` would give without building, or None.

    Of a model whose recipe is a file of the user's, what was built last: its shapes and gate are in that file.
    """
    choice = EngineBuilder(bundle, tower, device, recipe_of(bundle), profile, level).choice(precision)
    chosen = chosen_plan(choice)
    if chosen or built_by(bundle):
        return chosen
    free = _OF_A_RECIPE - {"batches"} if profile else _OF_A_RECIPE
    wanted = _but_for(choice, free)
    return next((plan for other, plan in all_choices() if _but_for(other, free) == wanted), None)


def engine_plan(
    bundle: Bundle,
    tower: Tower,
    *,
    precision: EnginePrecision,
    device: int,
    profile: Range | None,
    level: int | None,
) -> Plan:
    """Return the plan in the cache, or build it and show progress."""
    plan = find_engine(bundle, tower, precision=precision, device=device, profile=profile, level=level)
    if plan:
        return plan
    with steps(bundle.name) as progress:
        return ensure_engine(
            bundle, tower, precision=precision, device=device, profile=profile, level=level, progress=progress
        )


def _but_for(choice: Choice, free: frozenset[str]) -> Choice:
    """Return the choice without some of its options."""
    return dataclasses.replace(choice, options=tuple(option for option in choice.options if option[0] not in free))


def recipe_of(bundle: Bundle) -> Recipe:
    """Return the recipe that a bundle was built by.

    Where it has none, it is one with the defaults.
    """
    recipe = built_by(bundle)
    if recipe:
        return recipe
    max_tokens = bundle.text.max_tokens
    shapes = Shapes(text_length=(min(2, max_tokens), min(32, max_tokens), max_tokens))
    return Recipe(bundle.name, bundle.licence, bundle.space.name, source=bundle.source, shapes=shapes)
