"""Builds over the stand-in that take little time: what they measure says nothing here."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from vlmsearch.models.bundle import Bundle, Tower, model_file
from vlmsearch.models.recipe import Calibration, Recipe

_PREPARED: dict[tuple[str, Tower, str], dict[str, Any]] = {}


def quicken(batches: Sequence[int] = (1,)) -> None:
    """Time few batches and each once; prepare what engines are compared with once a session.

    For use within `standing_in`, whose modules are new in every block: nothing is to be undone.
    """
    builder = importlib.import_module("vlmsearch.tensorrt.builder.builder")
    accuracy = importlib.import_module("vlmsearch.tensorrt.builder.accuracy")
    timing = importlib.import_module("vlmsearch.tensorrt.engine.timing")
    prepare = accuracy.prepare_check

    def remembered(bundle: Bundle, tower: Tower, recipe: Recipe, *rest: Any) -> Any:
        gate = recipe.gates.tower(tower)
        key = bundle.files[model_file(tower, "fp32")].sha256, tower, repr(recipe.calibration)
        if key not in _PREPARED:
            made = prepare(bundle, tower, replace(recipe, calibration=_few(recipe.calibration)), *rest)
            _PREPARED[key] = {name: getattr(made, name) for name in ("feeds", "reference", "origin")}
        return accuracy.AccuracyCheck(tower=tower, gate=gate, **_PREPARED[key])

    for module, name, value in (
        (builder, "prepare_check", remembered),
        (builder, "BATCHES", tuple(batches)),
        (accuracy, "_RUNS", 1),
        (timing, "_WARM_UP", 0),
    ):
        assert hasattr(module, name), f"{module.__name__} has no {name}: builds would be slow again"
        setattr(module, name, value)


def _few(samples: Calibration) -> Calibration:
    return replace(samples, images=min(samples.images, 32), held_out=min(samples.held_out, 64))
