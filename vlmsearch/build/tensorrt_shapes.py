"""The optimization profiles of an engine, and the forms of its graph."""

from __future__ import annotations

from dataclasses import dataclass

from vlmsearch.build.recipe import Range, Recipe
from vlmsearch.build.tensorrt_network import BuiltPrecision, strongly_typed
from vlmsearch.bundles import Bundle, Precision, Tower
from vlmsearch.gpu.plans import Profile, ShapeRange


@dataclass(frozen=True)
class Form:
    """What an engine is made of: the file, whether its graph is `engine_graph`'s for 8.6, one profile or several."""

    base: Precision
    spelled_out: bool
    many: bool


def forms(precision: BuiltPrecision) -> tuple[Form, ...]:
    """What to try, one after the other: the fastest first, as far as it was measured.

    TensorRT 8.6 cannot compile every form of every model: with several profiles the text towers of CLIP fail in FP16.
    """
    if precision == "fp32":
        return (Form("fp32", spelled_out=False, many=False),)
    if strongly_typed():
        return (Form("fp16", spelled_out=False, many=True), Form("fp16", spelled_out=False, many=False))
    best: Precision = "fp16" if precision == "fp16" else "fp32"  # it reads INT8 in float32 files only
    return (
        Form(best, spelled_out=True, many=True),
        Form(best, spelled_out=True, many=False),
        Form("fp32", spelled_out=False, many=False),
    )


def batches(recipe: Recipe, tower: Tower, given: Range | None) -> Range:
    """The least, usual and greatest batch: those given, or the recipe's."""
    return given or (recipe.shapes.image_batch if tower == "image" else recipe.shapes.text_batch)


def profiles(bundle: Bundle, recipe: Recipe, tower: Tower, given: Range | None, *, many: bool) -> tuple[Profile, ...]:
    """One profile for the batches that are ``given``, or not ``many``; else several, for the recipe's batches.

    Kernels for one size are faster than kernels for all of them: on an H200, TensorRT 8.6 computes 18 % more images of
    CLIP ViT-B/32 with a profile for batches of 256 alone, and batch 1 takes half the time. So there is a profile for
    each of the recipe's three batches, and one for everything in between. Texts differ in length, so there only batch
    1 has its own. Each profile keeps kernels of its own, and TensorRT 8.6 part of the weights as well.
    """
    least, usual, most = batches(recipe, tower, given)
    if bundle.preprocess is not None and tower == "image":
        tail = (bundle.preprocess.size, bundle.preprocess.size, 3)
        single = [(rows, rows, rows) for rows in sorted({least, usual, most})] if many and not given else []
        between = [(least, usual, most)] if len(single) != 1 else []
        return tuple((_range("pixels", rows, (tail,) * 3),) for rows in (*single, *between))
    lengths = recipe.shapes.text_length
    tails = tuple((length,) for length in lengths)
    own = [(least, least, least)] if many and not given and least < most else []
    return tuple(
        tuple(_range(name, rows, tails) for name in ("input_ids", "attention_mask"))
        for rows in (*own, (least, usual, most))
    )


def _range(name: str, rows: Range, tails: tuple[tuple[int, ...], ...]) -> ShapeRange:
    least, usual, most = ((row, *tail) for row, tail in zip(rows, tails))
    return ShapeRange(name, least, usual, most)
