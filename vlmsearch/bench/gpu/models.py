"""Models to measure a GPU with, where nothing can be downloaded: CLIP of its real sizes with random weights."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from vlmsearch.export.architectures import ClipImage, ClipText, Transformer
from vlmsearch.export.calibrate import calibrate
from vlmsearch.export.checkpoint import Checkpoint
from vlmsearch.export.data import gather
from vlmsearch.export.disk import check_target, folder_in_the_making, publish, write_description
from vlmsearch.export.fetch import as_bundle
from vlmsearch.export.inputs import Feeds, image_feeds, text_feeds
from vlmsearch.export.layers import Array
from vlmsearch.export.quantize import QuantisationPlan, Report, Subject, export, write
from vlmsearch.media.images import Preprocess
from vlmsearch.models.bundle import Bundle, Precision, Tower, data_folder, model_file, open_bundle
from vlmsearch.models.inputs import open_tokenizer
from vlmsearch.models.recipe import TowerGate, find_recipe

_WORDS, _POSITIONS = 49408, 77
_SAMPLES = 16
_MEAN, _STD = (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)


@dataclass(frozen=True)
class ClipSizes:
    """Width, layers and heads of both towers, the side of a patch, and the length of vectors."""

    image: tuple[int, int, int]
    patch: int
    text: tuple[int, int, int]
    dim: int


SIZES = {
    "clip-vit-base-patch32": ClipSizes((768, 12, 12), 32, (512, 12, 8), 512),
    "clip-vit-base-patch16": ClipSizes((768, 12, 12), 16, (512, 12, 8), 512),
    "clip-vit-large-patch14": ClipSizes((1024, 24, 16), 14, (768, 12, 12), 768),
}
"""As in Radford et al., 2021, table 20."""


def make_random_clip(name: str, folder: Path, report: Report) -> Bundle:
    """A bundle of random weights in the sizes of a CLIP of `SIZES`, in fp32, fp16 and qdq; one that is there is kept.

    ConfigError where something else is there. Its vectors mean nothing. Texts go through the demonstration model's
    tokenizer.
    """
    if (folder / "bundle.json").is_file():
        return open_bundle(folder)
    check_target(folder)
    recipe = find_recipe(name)
    with folder_in_the_making(folder) as making:
        report(f"{name}: random weights", 0, 1)
        shutil.copy(data_folder("engines") / "demo-clip" / "bundle" / "tokenizer.json", making)
        checkpoint = _checkpoint(SIZES[name], making)
        described = as_bundle(checkpoint, recipe)
        fitted, _ = gather(recipe, (), images=True)
        feeds: dict[Tower, Feeds] = {
            "image": image_feeds(fitted.pictures[:_SAMPLES], Preprocess(size=224)),
            "text": text_feeds(fitted.texts[:_SAMPLES], described.text, open_tokenizer(described)),
        }
        for tower in checkpoint.towers:
            for precision, model in _models(checkpoint, tower, feeds[tower], report):
                (making / model_file(tower, precision)).write_bytes(model)
        write_description(making, described, {}, {"weights": "random"}, {}, ())
        publish(making, folder)
    return open_bundle(folder)


def _models(checkpoint: Checkpoint, tower: Tower, feeds: Feeds, report: Report) -> Iterator[tuple[Precision, bytes]]:
    report(f"{tower}: exporting", 0, 1)
    yield "fp32", export(checkpoint, tower)
    yield "fp16", export(checkpoint, tower, np.float16)
    seen = calibrate(checkpoint, tower, feeds, lambda done, total: report(f"{tower}: calibrating", done, total))
    subject = Subject(checkpoint, tower, feeds, np.empty((0, checkpoint.dim), np.float32), TowerGate())
    yield "qdq", write(subject, "qdq", QuantisationPlan("static"), seen)


def _checkpoint(sizes: ClipSizes, folder: Path) -> Checkpoint:
    weights = dict(_weights(sizes, np.random.default_rng(0)))
    image = ClipImage(_transformer(sizes.image), 224, sizes.patch, _MEAN, _STD)
    text = ClipText(_transformer(sizes.text), _POSITIONS, None)
    return Checkpoint(folder, weights, image, text, Preprocess(size=224), _POSITIONS, 1)


def _transformer(sizes: tuple[int, int, int]) -> Transformer:
    width, layers, heads = sizes
    return Transformer(width, layers, heads, "quick_gelu", 1e-5)


def _weights(sizes: ClipSizes, rng: np.random.Generator) -> Iterator[tuple[str, Array]]:
    """Every weight by its name in the transformers library."""

    def drawn(*shape: int, spread: float) -> Array:
        values: Array = rng.standard_normal(shape, np.float32) * np.float32(spread)
        return values

    patches = (224 // sizes.patch) ** 2 + 1
    width = sizes.image[0]
    prefix = "vision_model.embeddings."
    fan = 3 * sizes.patch**2
    yield f"{prefix}patch_embedding.weight", drawn(width, 3, sizes.patch, sizes.patch, spread=2 * fan**-0.5)
    yield f"{prefix}class_embedding", drawn(width, spread=0.5)
    yield f"{prefix}position_embedding.weight", drawn(patches, width, spread=0.1)
    prefix, width = "text_model.embeddings.", sizes.text[0]
    yield f"{prefix}token_embedding.weight", drawn(_WORDS, width, spread=1.0)
    yield f"{prefix}position_embedding.weight", drawn(_POSITIONS, width, spread=0.1)
    for tower, (width, layers, _) in (("vision", sizes.image), ("text", sizes.text)):
        norms = ("pre_layrnorm", "post_layernorm") if tower == "vision" else ("final_layer_norm",)
        linears = {f"self_attn.{n}_proj": (width, width) for n in ("q", "k", "v", "out")}
        linears |= {"mlp.fc1": (4 * width, width), "mlp.fc2": (width, 4 * width)}
        blocks = [f"{tower}_model.encoder.layers.{i}." for i in range(layers)]
        for name in (f"{tower}_model.{norm}" for norm in norms):
            yield f"{name}.weight", 1 + drawn(width, spread=0.1)
            yield f"{name}.bias", drawn(width, spread=0.1)
        for block in blocks:
            for norm in ("layer_norm1", "layer_norm2"):
                yield f"{block}{norm}.weight", 1 + drawn(width, spread=0.1)
                yield f"{block}{norm}.bias", drawn(width, spread=0.1)
            for name, shape in linears.items():
                yield f"{block}{name}.weight", drawn(*shape, spread=1.2 * shape[1] ** -0.5)
                yield f"{block}{name}.bias", drawn(shape[0], spread=0.1)
        yield ("visual" if tower == "vision" else "text") + "_projection.weight", drawn(sizes.dim, width, spread=0.04)
