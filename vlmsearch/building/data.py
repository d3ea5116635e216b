"""What a build calibrates and measures on: the user's own images and texts, or what the project draws and ships."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TypeVar

from vlmsearch.demo.scenes import Scene, make_scene
from vlmsearch.errors import ConfigError
from vlmsearch.indexing.items import SourceDocument
from vlmsearch.indexing.sources import Paths
from vlmsearch.models.bundle import Tower, data_folder
from vlmsearch.models.recipe import Recipe
from vlmsearch.types import ImageSource, local_image

CALIBRATION_SEED = 20_000_000
"""The first seed of the scenes drawn here, above those of training and of evaluation."""
_MIN_ITEMS = 32
_MAX_ITEMS = 20_000
"""Files and rows of a user that are looked at."""
T = TypeVar("T")


@dataclass(frozen=True)
class Samples:
    """Images and texts, and where each kind is from.

    ``own`` are the towers that the user gave data for. ``scenes`` are what the texts describe and the images show, in
    the same order, where both are drawn scenes.
    """

    pictures: tuple[ImageSource, ...]
    texts: tuple[str, ...]
    origin: dict[Tower, str]
    own: frozenset[Tower]
    scenes: tuple[Scene, ...] = ()


@dataclass(frozen=True)
class LabelledText:
    """A labelled text: the queries that it answers, each put in another way.

    ``id`` is unique. Passages of one ``topic`` are close to each other, but only those whose ids are in ``also`` answer
    these queries as well. ``question`` and ``paraphrase`` are a sentence each, ``keywords`` two to four words.
    """

    id: str
    topic: str
    text: str
    question: str
    keywords: str
    paraphrase: str
    also: tuple[str, ...] = ()


def gather(
    recipe: Recipe, calibrate: Sequence[Path], *, images: bool, fit: bool = True, need_all: bool = True
) -> tuple[Samples, Samples]:
    """Return samples to take ranges from and, disjoint from them, samples to measure on.

    ``images`` says whether these hold images. Without ``fit`` no images are drawn to take ranges from.

    ``calibrate`` names folders, files and tables as indexing takes them; a text file counts line by line. Where they
    hold too few images or texts, ConfigError, or without ``need_all`` the project's own.
    """
    data = recipe.calibration
    own_pictures, own_texts = _own(calibrate, images=images, need_all=need_all)
    seeds = range(CALIBRATION_SEED, CALIBRATION_SEED + data.images + data.held_out)
    texts = own_texts or _texts(data.texts + data.held_out, from_scenes=data.texts_from == "scenes")
    kinds: dict[Tower, int] = {"image": len(own_pictures), "text": len(own_texts)}
    own = frozenset(tower for tower, count in kinds.items() if count)
    given = f"your own: {', '.join(path.name or str(path) for path in calibrate)}"
    default: dict[Tower, str] = {
        "image": "drawn scenes",
        "text": "captions of drawn scenes" if data.texts_from == "scenes" else "English sentences",
    }
    origin: dict[Tower, str] = {tower: given if tower in own else name for tower, name in default.items()}
    split_pictures = _split(own_pictures, data.images, data.held_out)
    if images and not own_pictures:
        fitted, held_out = _split(seeds, data.images, data.held_out)
        split_pictures = _drawn(fitted if fit else ()), _drawn(held_out)
    split_texts = _split(texts, data.texts, data.held_out)
    drawn = not own and data.texts_from == "scenes"
    scenes = tuple(make_scene(seed) for seed in _split(seeds, data.images, data.held_out)[1]) if drawn else ()
    if drawn:  # what is measured on belongs together: each text describes the image of the same place
        described = tuple(scene.captions(1)[0] for scene in scenes)
        split_texts = (tuple(text for text in split_texts[0] if text not in described), described)
    return (
        Samples(split_pictures[0], split_texts[0], origin, own),
        Samples(split_pictures[1], split_texts[1], origin, own, scenes),
    )


def sentences() -> list[str]:
    """Return the project's own English sentences."""
    return (data_folder("engines") / "calibration.txt").read_text(encoding="utf-8").splitlines()


def passages() -> list[LabelledText]:
    """Return the project's own labelled texts: four close ones a topic."""
    lines = (data_folder("engines") / "pairs.jsonl").read_text(encoding="utf-8").splitlines()
    return [LabelledText(**{**fields, "also": tuple(fields["also"])}) for fields in map(json.loads, lines)]


def unanswered() -> list[str]:
    """Questions that none of the labelled texts answers."""
    return (data_folder("engines") / "unanswered.txt").read_text(encoding="utf-8").splitlines()


def _drawn(seeds: Sequence[int]) -> tuple[ImageSource, ...]:
    return tuple(make_scene(seed).draw() for seed in seeds)


def _own(paths: Sequence[Path], *, images: bool, need_all: bool) -> tuple[list[ImageSource], list[str]]:
    if not paths:
        return [], []
    documents = [item.document for item in islice(Paths(paths), _MAX_ITEMS) if isinstance(item, SourceDocument)]
    pictures = [local_image(document.image) for document in documents if images and document.image is not None]
    lines = (line.strip() for document in documents for line in (document.text or "").splitlines())
    texts = list(dict.fromkeys(line for line in lines if line))
    if not need_all:
        return (pictures if len(pictures) >= _MIN_ITEMS else []), (texts if len(texts) >= _MIN_ITEMS else [])
    for items, what in ((pictures, "images"), (texts, "texts")):
        if 0 < len(items) < _MIN_ITEMS:
            raise ConfigError(f"`calibrate` holds {len(items)} {what}; {_MIN_ITEMS} are needed at least, or none")
    if not pictures and not texts:
        raise ConfigError(f"`calibrate` holds no {'images and no ' if images else ''}texts")
    return pictures, texts


def _texts(count: int, *, from_scenes: bool) -> list[str]:
    """Different texts: captions of scenes, or sentences, their parts and their combinations."""
    if from_scenes:
        return [make_scene(CALIBRATION_SEED + count + i).captions(1)[0] for i in range(count)]
    rng, known = random.Random(0), sentences()
    texts = dict.fromkeys(known)
    while len(texts) < count:
        together = " ".join(rng.sample(known, 1 + int(rng.random() * 4)))
        words = together.split()
        texts[" ".join(words[: 2 + int(rng.random() * len(words))])] = None
    mixed = list(texts)
    rng.shuffle(mixed)
    return mixed[:count]


def _split(items: Sequence[T], fitted: int, held_out: int) -> tuple[tuple[T, ...], tuple[T, ...]]:
    """Return the items to fit and those held out, spread evenly over all.

    There are fewer of both where there are not enough.
    """
    total = min(len(items), fitted + held_out)
    chosen = [items[i * len(items) // total] for i in range(total)]
    share = max(total * held_out // (fitted + held_out), _MIN_ITEMS // 2)
    marks = {(2 * i + 1) * total // (2 * share) for i in range(share)}
    return (
        tuple(item for i, item in enumerate(chosen) if i not in marks),
        tuple(item for i, item in enumerate(chosen) if i in marks),
    )
