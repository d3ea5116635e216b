"""The optimization profiles of an engine, and the forms of its graph."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from vlmsearch.models.bundle import LENGTH_STEP, Bundle, Precision, Tower
from vlmsearch.models.recipe import Range, Recipe
from vlmsearch.tensorrt.builder.network import BuiltPrecision, strongly_typed
from vlmsearch.tensorrt.engine.plans import Machine, Profile, ShapeRange

Split = Literal["several", "three", "two", "one"]
"""Into how many optimization profiles the batches are split."""
_FEW = 8
_TOKENS = 20_480
"""The most tokens of a batch in a profile for many texts.

Attention needs memory for the square of each length.
"""


@dataclass(frozen=True)
class Form:
    """The sources of an engine: the file, whether its graph is `engine_graph`'s for 8.6, and the profiles.

    ``apart``: the first profile, that of the smallest batches, has a plan of its own, which with ``cublas`` may use
    cuBLAS. The other plan never does.
    """

    base: Precision
    spelled_out: bool
    split: Split
    apart: bool = False
    cublas: bool = False


def forms(precision: BuiltPrecision, tower: Tower, machine: Machine) -> tuple[Form, ...]:
    """Return what to try on a machine, one after the other: the fastest first, as far as it was measured.

    TensorRT 8.6 cannot compile every form of every model: with a profile for batch 1 alone the text towers of CLIP
    fail in FP16. Nor can it load all that it compiles: of CLIP ViT-L/14's images in FP16 it reads a plan of three
    profiles, and of four finds an offset missing (NVIDIA/TensorRT issue 2977); so the fourth goes into another plan.

    In FP16 on an H200, the kernels of cuBLAS 12.9 need 0.68 to 0.96 of the time for single images of CLIP: 0.68 for
    ViT-L/14, 0.85 for B/16, 0.96 for B/32. Texts, INT8 and larger batches gain nothing that counts.
    """
    if precision == "fp32":
        plain = Form("fp32", spelled_out=False, split="one")
        return (plain,) if strongly_typed() else (plain, Form("fp32", spelled_out=True, split="one"))
    if strongly_typed():
        return (Form("fp16", spelled_out=False, split="several"), Form("fp16", spelled_out=False, split="one"))
    best: Precision = "fp16" if precision == "fp16" else "fp32"  # it reads INT8 in float32 files only
    apart = Form(best, spelled_out=True, split="several", apart=True)
    gains = bool(machine.cublas) and tower == "image" and precision == "fp16"
    return (
        *([dataclasses.replace(apart, cublas=True)] if gains else []),
        Form(best, spelled_out=True, split="several"),
        apart,
        Form(best, spelled_out=True, split="three"),
        Form(best, spelled_out=True, split="two"),
        Form(best, spelled_out=True, split="one"),
        Form("fp32", spelled_out=False, split="one"),
    )


def batches(recipe: Recipe, tower: Tower, given: Range | None) -> Range:
    """Return the least, usual and greatest batch: those given, or the recipe's."""
    return given or (recipe.shapes.image_batch if tower == "image" else recipe.shapes.text_batch)


def profiles(
    bundle: Bundle, recipe: Recipe, tower: Tower, given: Range | None, split: Split = "one"
) -> tuple[Profile, ...]:
    """Return the profiles of an engine's batches.

    For ``given`` batches it is one; else there are one or several for the recipe's batches.

    Kernels for one size are faster than kernels for all of them. With a profile for batches of 256 alone, TensorRT 8.6
    computes 18 % more images of CLIP ViT-B/32 on an H200. Batch 1 takes half the time with its own. So there is a
    profile for each of the recipe's three batches, and one for everything in between. Texts differ in length: they have
    profiles for a few, for up to twice the usual batch and for the rest, where very long ones go in smaller batches.
    Each profile keeps kernels of its own, and TensorRT 8.6 part of the weights as well.
    """
    batch, wanted = batches(recipe, tower, given), "one" if given else split
    if bundle.preprocess is not None and tower == "image":
        tail = (bundle.preprocess.size, bundle.preprocess.size, 3)
        parts = {"one": [batch], "two": _halves(batch), "three": _thirds(batch, 1), "several": _sizes(batch)}[wanted]
        return tuple((_range("pixels", rows, (tail,) * 3),) for rows in parts)
    thirds = _thirds(batch, _FEW)
    parts = {"one": [batch], "two": _halves(batch), "three": thirds, "several": thirds}[wanted]
    shortest, usual, longest = recipe.shapes.columns
    made = []
    for rows in parts:
        many = rows[0] > batch[1]
        max_length = min(longest, max(usual, _TOKENS // rows[2] // LENGTH_STEP * LENGTH_STEP)) if many else longest
        tails = [(length,) for length in (shortest, usual, max_length)]
        made.append(tuple(_range(name, rows, tails) for name in ("input_ids", "attention_mask")))
    return tuple(made)


def parted(shapes: tuple[Profile, ...], form: Form) -> tuple[tuple[Profile, ...], ...]:
    """Return the profiles of each plan of an engine: all in one, or the first apart from the others."""
    return (shapes[:1], shapes[1:]) if form.apart and len(shapes) > 1 else (shapes,)


def _sizes(batch: Range) -> list[Range]:
    """Return each of the three sizes alone, and all of them."""
    single = [(rows, rows, rows) for rows in sorted(set(batch))]
    return [*single, batch] if len(single) > 1 else single


def _thirds(batch: Range, few: int) -> list[Range]:
    """Return a ``few`` times the least batch, the usual number, and many."""
    min_batch, usual, max_batch = batch
    last = min(few * min_batch, usual, max_batch)
    return (
        [(min_batch, min_batch, last), *_halves((last + 1, max(usual, last + 1), max_batch))]
        if last < max_batch
        else [batch]
    )


def _halves(batch: Range) -> list[Range]:
    """Return up to twice the usual batch, and the rest."""
    min_batch, usual, max_batch = batch
    middle = min(2 * usual, max_batch)
    return [(min_batch, usual, middle), (middle + 1, max_batch, max_batch)] if middle < max_batch else [batch]


def _range(name: str, rows: Range, tails: Sequence[tuple[int, ...]]) -> ShapeRange:
    minimum, usual, maximum = ((row, *tail) for row, tail in zip(rows, tails))
    return ShapeRange(name, minimum, usual, maximum)
