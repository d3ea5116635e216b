"""Measure whether the domain of a model tells inputs of its kind from others, and which statistic does it best.

``python -m benchmarks.domains`` draws scenes that no fit has seen, changes them, and draws pictures of other kinds.
Files that are given add photographs and texts. A row is a kind of input. It has the share of the inputs that each
statistic takes for outside. Of the statistic of the bundles it also has the share of indexes that are called outside,
by their size.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping, Sequence
from io import BytesIO
from pathlib import Path

import click
import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from benchmarks.common import print_figures
from benchmarks.labelled import read_captions, read_cisi, read_sts
from vlmsearch.building.data import passages, sentences
from vlmsearch.building.domain import INSIDE, split_vectors
from vlmsearch.building.relevance import labelled_vectors
from vlmsearch.demo.scenes import make_scene
from vlmsearch.encoders.onnx import OnnxEncoder
from vlmsearch.models.domain import Domain
from vlmsearch.models.recipe import find_recipe
from vlmsearch.search.relevance import SAMPLE
from vlmsearch.types import ImageSource, Modality, Vectors

SEED = 60_000_000
"""The first of the scenes that are drawn here: everything else uses smaller seeds."""
SIZES = (16, 64)
"""Documents of the indexes that are made of each kind, at random."""
_INDEXES = 200
_NEIGHBOURS = 256
Distance = Callable[[Vectors], NDArray[np.floating]]


@click.command()
@click.option("--photos", type=click.Path(path_type=Path), metavar="DIR", help="A folder of photographs as JPEG.")
@click.option("--captions", type=click.Path(path_type=Path), metavar="FILE",
              help='Their captions: JSON lines with "file" and "captions".')  # fmt: skip
@click.option("--cisi", type=click.Path(path_type=Path), metavar="DIR", help="The CISI collection.")
@click.option("--sts", type=click.Path(path_type=Path), metavar="FILE", help="A split of the STS benchmark as CSV.")
@click.option("--questions", type=click.Path(path_type=Path), metavar="FILE",
              help='Questions of a forum: JSON lines with "question" and "answers".')  # fmt: skip
@click.option("--count", default=300, show_default=True, type=click.IntRange(16), help="Inputs of each kind at most.")
@click.option("--models", default="demo-clip,demo-minilm,all-minilm-l6-v2", show_default=True, metavar="NAMES",
              help="The models, with commas between them.")  # fmt: skip
def main(
    photos: Path | None,
    captions: Path | None,
    cisi: Path | None,
    sts: Path | None,
    questions: Path | None,
    count: int,
    models: str,
) -> None:
    """Measure the domains of models on inputs that no fit has seen."""
    for model in models.split(","):
        with OnnxEncoder(model) as encoder:
            [((space, modality), domain)] = encoder.domains.items()
            if modality == "image":
                pictures = drawn_pictures(count)
                if photos is not None:
                    files = sorted(photos.glob("*.jpg"))[:count]
                    pictures |= {"photographs": [_open(file) for file in files]}
                    pictures |= {"photographs in grey": [_open(file).convert("L").convert("RGB") for file in files]}
                vectors = {name: encoder.encode_images(images)[space] for name, images in pictures.items()}
            else:
                texts = written_texts(count) | _given_texts(captions, cisi, sts, questions)
                vectors = {name: encoder.encode_texts(kind[:count])[space] for name, kind in texts.items()}
            ways = statistics(encoder, modality)
        rows = [_row(name, kind, ways, domain, modality) for name, kind in vectors.items()]
        title = f"{model}, made for {domain.name}: {modality}s outside, and indexes called outside"
        print_figures(title, (modality, "count", *ways, *(f"{size} documents" for size in SIZES), "all"), rows)


def _row(
    name: str, vectors: Vectors, ways: Mapping[str, Callable[[Vectors], float]], domain: Domain, modality: Modality
) -> tuple[str, ...]:
    rng = np.random.default_rng(0)
    shares = [share(vectors) for share in ways.values()]
    for size in SIZES:
        indexes = (vectors[rng.permutation(len(vectors))[:size]] for _ in range(_INDEXES))
        shares.append(float(np.mean([domain.verdict(index, modality) is not None for index in indexes])))
    verdict = "outside" if domain.verdict(vectors[:SAMPLE], modality) else "inside"
    return (name, str(len(vectors)), *(f"{share:.0%}" for share in shares), verdict)


def statistics(encoder: OnnxEncoder, modality: Modality) -> dict[str, Callable[[Vectors], float]]:
    """Return the ways to tell which vectors are outside: each gives the share of some that are.

    All are made from the vectors that the model's relevance is fitted on, and 99 in 100 of those held out are inside.
    """
    [bundle] = encoder.bundles
    settings = find_recipe(bundle.name).calibration
    sets = labelled_vectors(encoder, texts_from=settings.texts_from, scenes=settings.relevance_scenes)
    fitted, held_out = split_vectors(sets[modality], modality)
    [domain] = encoder.domains.values()
    distances = {
        f"nearest of {_NEIGHBOURS}": _nearest(fitted),
        "beside the plane": _residual(fitted),
        "Mahalanobis, 0.3": _mahalanobis(fitted, 0.3),
        "0.1": _mahalanobis(fitted, 0.1),
    }
    ways = {name: _share_beyond(distance, held_out) for name, distance in distances.items()}
    return ways | {"0.01, as built": lambda vectors: float(domain.are_outside(vectors).mean())}


def _share_beyond(distance: Distance, held_out: Vectors) -> Callable[[Vectors], float]:
    limit = np.quantile(distance(held_out), INSIDE)
    return lambda vectors: float((distance(vectors) > limit).mean())


def _nearest(fitted: Vectors) -> Distance:
    """Return the mean distance from the three nearest of some vectors of the domain."""
    known = np.random.default_rng(0).permutation(fitted)[:_NEIGHBOURS]
    return lambda vectors: 1 - np.sort(vectors @ known.T, axis=1)[:, -3:].mean(axis=1)


def _residual(fitted: Vectors) -> Distance:
    """Return what a quarter of the principal components leaves of a vector."""
    mean = fitted.mean(axis=0)
    _, _, directions = np.linalg.svd(fitted - mean, full_matrices=False)
    kept = directions[: fitted.shape[1] // 4]
    return lambda vectors: np.linalg.norm((vectors - mean) - (vectors - mean) @ kept.T @ kept, axis=1)


def _mahalanobis(fitted: Vectors, shrinkage: float) -> Distance:
    mean = fitted.mean(axis=0)
    variances, directions = np.linalg.eigh(np.cov(fitted, rowvar=False))
    matrix = directions / np.sqrt((1 - shrinkage) * variances + shrinkage * variances.mean())
    return lambda vectors: np.linalg.norm((vectors - mean) @ matrix, axis=1)


def drawn_pictures(count: int) -> dict[str, list[ImageSource]]:
    """Return scenes, scenes that were changed, and pictures of other kinds, as many of each."""
    rng, first = random.Random(0), iter(range(SEED, SEED + 100 * count, count))
    changes: dict[str, Callable[[Image.Image], Image.Image]] = {
        "scenes": lambda image: image,
        "scenes, 64 pixels": lambda image: image.resize((64, 64)),
        "scenes, 640 x 400": lambda image: image.resize((640, 400)),
        "scenes as JPEG of quality 50": lambda image: _jpeg(image, 50),
        "scenes as JPEG of quality 15": lambda image: _jpeg(image, 15),
        "scenes, cropped to 80 %": lambda image: _crop(image, 0.8, rng),
        "scenes, cropped to 60 %": lambda image: _crop(image, 0.6, rng),
        "scenes, turned by 10 degrees": lambda image: image.rotate(10),
        "scenes on their side": lambda image: image.rotate(90),
        "scenes in grey": lambda image: image.convert("L").convert("RGB"),
    }
    pictures: dict[str, list[ImageSource]] = {
        name: [change(make_scene(start + number).draw()) for number in range(count)]
        for (name, change), start in zip(changes.items(), first)
    }
    pages = [passage.text for passage in passages()]
    pictures["pages of text"] = [_page(pages[number % len(pages)]) for number in range(count)]
    pictures["plain colours"] = [
        Image.new("RGB", (128, 128), (rng.randrange(256), rng.randrange(256), rng.randrange(256))) for _ in range(count)
    ]
    return pictures


def written_texts(count: int) -> dict[str, Sequence[str]]:
    """Return captions of scenes in several styles, the project's sentences, and what is no language."""
    rng = random.Random(0)
    letters = "abcdefghijklmnopqrstuvwxyz0123456789 "
    styles = ("full", "mixed", "partial", "short")
    captions: dict[str, Sequence[str]] = {
        f"captions of scenes, {style}": [
            make_scene(SEED + place * count + number).captions(1, style=style)[0] for number in range(count)
        ]
        for place, style in enumerate(styles)
    }
    return captions | {
        "English sentences": sentences(),
        "random characters": ["".join(rng.choice(letters) for _ in range(60)) for _ in range(count)],
        "names of files": [f"IMG_{rng.randrange(10_000):04d}.jpg" for _ in range(count)],
    }


def _given_texts(
    captions: Path | None, cisi: Path | None, sts: Path | None, questions: Path | None
) -> dict[str, Sequence[str]]:
    texts: dict[str, Sequence[str]] = {}
    if captions is not None:
        texts["captions of photographs"] = [document.text or "" for document in read_captions(captions).documents]
    if sts is not None:
        pairs = [document.text or "" for document in read_sts(sts).documents]
        texts["STS"] = random.Random(0).sample(pairs, len(pairs))
    if cisi is not None:
        abstracts = [document.text or "" for document in read_cisi(cisi).documents]
        texts["CISI"] = abstracts
        texts["CISI, titles"] = [abstract.partition("\n")[0] for abstract in abstracts]
    if questions is not None:
        rows = [json.loads(line) for line in questions.read_text(encoding="utf-8").splitlines()]
        texts["questions of a forum"] = [row["question"] for row in rows]
        texts["answers of a forum"] = [" ".join(row["answers"]) for row in rows]
    return texts


def _open(file: Path) -> Image.Image:
    with Image.open(file) as image:
        converted: Image.Image = image.convert("RGB")
    return converted


def _jpeg(image: Image.Image, quality: int) -> Image.Image:
    file = BytesIO()
    image.save(file, "JPEG", quality=quality)
    with Image.open(file) as opened:
        compressed: Image.Image = opened.convert("RGB")
    return compressed


def _crop(image: Image.Image, share: float, rng: random.Random) -> Image.Image:
    side = int(image.width * share)
    left, top = rng.randrange(image.width - side), rng.randrange(image.height - side)
    return image.crop((left, top, left + side, top + side))


def _page(text: str) -> Image.Image:
    """Return a page of a book: black text on white."""
    image = Image.new("RGB", (620, 877), "white")
    pen, words = ImageDraw.Draw(image), (text + " ") * 4
    for place, start in enumerate(range(0, len(words), 80)):
        pen.text((50, 40 + 18 * place), words[start : start + 80], fill="black")
    return image


if __name__ == "__main__":
    main()
