"""What is known of the writers of graphs where transformers is not there to compare with.

A writer is compared with transformers once, by ``engines/prove.py``: on a model with random weights of the sizes of a
recipe's checkpoint. The recipe records it in its table ``proof``. A build without transformers then checks that its
checkpoint has that configuration. Random weights say that a graph is right; they say nothing of quantisation and of
relevance, which every build measures.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from vlmsearch.building.checkpoint import Checkpoint, TextTower
from vlmsearch.media.preprocess import Preprocess
from vlmsearch.models.bundle import data_folder
from vlmsearch.models.recipe import recorded_proofs

Proof = Literal["transformers", "configuration", "family"]
"""The comparison with transformers that proves a bundle: that of the bundle itself, or of a model with random weights.
Such a model has the configuration of the bundle, or the family alone and other sizes."""
_IDS = frozenset({"pad", "end"})
"""Fields of towers that are token ids: they belong to a vocabulary."""
_SHAPES = ((640, 480), (333, 500), (180, 200), (700, 700))
_SAMPLED = 48
Pixels = NDArray[np.uint8]


def can_compare() -> bool:
    """Return whether torch and transformers are installed."""
    try:
        import torch  # noqa: F401
        import transformers  # noqa: F401
    except ImportError:
        return False
    return True


def proof_without_transformers(checkpoint: Checkpoint) -> Proof:
    """Return what is known of the writer of a checkpoint's graphs."""
    return "configuration" if configuration(checkpoint) in recorded_proofs() else "family"


def configuration(checkpoint: Checkpoint) -> str:
    """Return all that decides a checkpoint's graphs, weights and vocabulary aside.

    Towers are classes of their family; numbers are sizes in the order of their fields.
    """
    towers = [tower for tower in (checkpoint.image, checkpoint.text) if tower is not None]
    described = [_described(tower) for tower in towers]
    if checkpoint.preprocess is not None:
        described.append(preprocess_name(checkpoint.preprocess))
    return "; ".join([*described, f"{checkpoint.dim} numbers", *(["filled"] if checkpoint.fill else [])])


def _described(tower: object) -> str:
    words = [type(tower).__name__]
    for field in dataclasses.fields(tower):  # type: ignore[arg-type]
        value = getattr(tower, field.name)
        if field.name in _IDS:
            words += ["by its end"] if field.name == "end" and value is not None else []
        elif dataclasses.is_dataclass(value):
            words += [str(getattr(value, part.name)) for part in dataclasses.fields(value)]
        elif isinstance(value, tuple):
            words.append(",".join(f"{number:g}" for number in value))
        elif not (isinstance(tower, TextTower) and field.name == "positions"):  # the length of a table
            words.append(str(value))
    return " ".join(words)


def preprocess_name(preprocess: Preprocess) -> str:
    """Return how a model prepares images, in a few words."""
    return f"{preprocess.size} {preprocess.interpolation} {'cropped' if preprocess.crop else 'whole'}"


def recorded_pixels() -> Mapping[str, list[int]]:
    """Return what transformers' image processors give for `sampled_pixels`, by `preprocess_name`."""
    recorded: dict[str, list[int]] = json.loads((data_folder("engines") / "pixels.json").read_text(encoding="utf-8"))
    return recorded


def sampled_pixels(apply: Callable[[Image.Image], Pixels]) -> list[int]:
    """Return some pixels of pictures of several shapes, as ``apply`` prepares them: uint8 (size, size, 3)."""
    values: list[int] = []
    for shape in _SHAPES:
        pixels = apply(_picture(*shape))
        places = np.linspace(0, pixels.shape[0] ** 2 - 1, _SAMPLED).astype(int) * 7919 % pixels.shape[0] ** 2
        values += pixels.reshape(-1, 3)[places].ravel().tolist()
    return values


def _picture(width: int, height: int) -> Image.Image:
    """Return a picture of waves and edges that is the same everywhere: whole numbers alone decide it."""
    y, x = np.mgrid[:height, :width]
    waves = np.stack([x * x // 97 + y, x + y * y // 131, x * y // 151], axis=2) % 512
    folded = np.where(waves < 256, waves, 511 - waves)
    edges = ((x // 37 + y // 29) % 5 == 0)[:, :, None]
    return Image.fromarray(np.where(edges, 255 - folded, folded).astype(np.uint8))
