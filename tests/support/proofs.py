"""Comparisons of the writers of graphs with transformers, on random weights in the sizes of published checkpoints.

``python -m tests.support.proofs NAME...`` (all by default) writes what they give into the recipes' table ``proof``, and
what transformers' image processors give into ``engines/pixels.json``.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from tests.support.checkpoints import make_clip, make_cross_encoder
from tests.support.paths import ENGINES
from tests.support.siglip import make_siglip
from tests.support.text_models import TextFamily, make_text_model
from vlmsearch.building.export import export
from vlmsearch.building.fetch import text_input
from vlmsearch.building.inputs import Feeds, pair_feeds, pixel_feeds, row_cosines, run, text_feeds
from vlmsearch.building.load import load_checkpoint, load_cross_encoder
from vlmsearch.building.proof import Pixels, configuration, preprocess_name, sampled_pixels
from vlmsearch.building.verify import tokenizer_cases
from vlmsearch.models.inputs import lower_case
from vlmsearch.models.recipe import RecordedProof
from vlmsearch.models.reranker import pair_tokenizer
from vlmsearch.models.tokenizers import TextTokenizer, read_tokenizer

Maker = Callable[[Path], Path]


def _text(family: TextFamily, pooling: str, width: int, layers: int, heads: int = 12) -> Maker:
    sizes: dict[str, Any] = {"hidden_size": width, "num_hidden_layers": layers, "num_attention_heads": heads}
    sizes["intermediate_size"] = 1152 if family == "modernbert" else 4 * width
    return partial(make_text_model, family=family, pooling=pooling, real=True, limit=128, **sizes)


def _clip(act: str, patch: int, vision: tuple[int, int, int], text: tuple[int, int, int], dim: int) -> Maker:
    width, layers, heads = vision
    return partial(
        make_clip, act=act, old_end=True, patch=patch, size=224, width=width, layers=layers, heads=heads, dim=dim,
        positions=77, text=text, inner=4, times=1.5,
    )  # fmt: skip


def _siglip(second: bool, patch: int, size: int, width: int = 768, layers: int = 12, heads: int = 12) -> Maker:
    return partial(
        make_siglip, second=second, patch=patch, size=size, width=width, layers=layers, heads=heads, inner=4 * width,
        positions=64, weaker=2.0,
    )  # fmt: skip


_BASE, _LARGE, _SMALL_TEXT = (768, 12, 12), (1024, 24, 16), (512, 12, 8)
MAKERS: Mapping[str, Maker] = {
    "all-minilm-l6-v2": _text("bert", "mean", 384, 6),
    "multilingual-e5-small": _text("bert", "mean", 384, 12),
    "bge-small-en-v1.5": _text("bert", "cls", 384, 12),
    "ms-marco-minilm-l6-v2": partial(make_cross_encoder, real=True),
    "siglip2-base-patch32-256": _siglip(True, 32, 256),
    "clip-vit-base-patch32": _clip("quick_gelu", 32, _BASE, _SMALL_TEXT, 512),
    "laion-clip-vit-base-patch32": _clip("gelu", 32, _BASE, _SMALL_TEXT, 512),
    "clip-vit-base-patch16": _clip("quick_gelu", 16, _BASE, _SMALL_TEXT, 512),
    "e5-base-v2": _text("bert", "mean", 768, 12),
    "bge-base-en-v1.5": _text("bert", "cls", 768, 12),
    "all-mpnet-base-v2": _text("mpnet", "mean", 768, 12),
    "multilingual-e5-base": _text("xlm-roberta", "mean", 768, 12),
    "gte-modernbert-base": _text("modernbert", "cls", 768, 22),
    "modernbert-embed-base": _text("modernbert", "mean", 768, 22),
    "siglip-base-patch16-224": _siglip(False, 16, 224),
    "siglip-base-patch16-256-multilingual": _siglip(False, 16, 256),
    "siglip2-base-patch16-224": _siglip(True, 16, 224),
    "siglip2-base-patch16-256": _siglip(True, 16, 256),
    "clip-vit-large-patch14": _clip("quick_gelu", 14, _LARGE, _BASE, 768),
    "datacomp-clip-vit-large-patch14": _clip("gelu", 14, _LARGE, _BASE, 768),
    "siglip2-large-patch16-256": _siglip(True, 16, 256, *_LARGE),
}
"""What makes a checkpoint of a recipe's configuration. Recipes of one configuration share a proof."""
TEXTS = tokenizer_cases(120)[::10]


def prove(make: Maker, folder: Path) -> RecordedProof:
    """Compare the writer with transformers on a checkpoint that is made in ``folder``."""
    checkpoint = load_checkpoint(make(folder))
    from vlmsearch.building.torch import load_reference

    reference = load_reference(folder)
    tokenizer = read_tokenizer((folder / "tokenizer.json").read_bytes(), str(folder))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    form = text_input(checkpoint)
    if form.lower:
        lower_case(tokenizer)
    least = 1.0
    for tower in checkpoint.towers:
        file = folder / "written.onnx"
        export(checkpoint, tower, file)
        if tower == "image":
            side = checkpoint.image.size if checkpoint.image else 0
            pixels = np.random.default_rng(0).integers(0, 256, (4, side, side, 3), np.uint8)
            pixels[1:3] //= 8
            feeds = pixel_feeds(pixels, 4)
            theirs = [reference.images(pixels)]
        else:
            feeds = text_feeds(TEXTS, form, TextTokenizer(tokenizer, str(folder)), 4)
            theirs = [reference.texts(*_ids(batch)) for batch in feeds.batches]
        ours, _ = run(file, feeds)
        file.unlink()
        least = min(least, float(row_cosines(ours[feeds.order], np.concatenate(theirs)).min()))
    return RecordedProof(configuration(checkpoint), version("transformers"), cosine=round(least, 7))


def _ids(batch: Mapping[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    return batch["input_ids"].astype(np.int32), batch["attention_mask"].astype(np.int32)


def prove_cross_encoder(make: Maker, folder: Path) -> RecordedProof:
    """Compare the writer of a re-ranker with transformers."""
    from vlmsearch.building.torch import CrossEncoderReference

    checkpoint = load_cross_encoder(make(folder))
    tokenizer = pair_tokenizer((folder / "tokenizer.json").read_bytes(), "made", checkpoint.max_tokens)
    feeds: Feeds = pair_feeds(list(zip(TEXTS, TEXTS[::-1])), tokenizer, checkpoint.pad)
    ours, _ = run(export(checkpoint, "text", folder / "written.onnx").file, feeds)
    reference = CrossEncoderReference(folder)
    theirs = np.concatenate([reference.logits(batch) for batch in feeds.batches])
    worst = float(np.abs(ours[feeds.order] - theirs).max())
    return RecordedProof(configuration(checkpoint), version("transformers"), difference=round(worst, 7))


def pixels_of(folder: Path) -> dict[str, list[int]]:
    """Return what the image processor of a checkpoint gives for the pictures of all builds, by its way."""
    from vlmsearch.building.torch import image_processor

    preprocess = load_checkpoint(folder).preprocess
    if preprocess is None:
        return {}
    processor = image_processor(folder)

    def apply(image: object) -> Pixels:
        pixels = np.asarray(processor(image, do_rescale=False, do_normalize=False)["pixel_values"][0])
        rows: Pixels = pixels.transpose(1, 2, 0).astype(np.uint8)
        return rows

    return {preprocess_name(preprocess): sampled_pixels(apply)}


def _record(name: str, proof: RecordedProof) -> None:
    path = ENGINES / name / "recipe.toml"
    text = re.sub(r"\n\[proof\][^\[]*", "\n", path.read_text(encoding="utf-8")).rstrip() + "\n"
    figure = f"cosine = {proof.cosine}" if proof.cosine is not None else f"difference = {proof.difference}"
    path.write_text(
        f"{text}\n[proof]  # with random weights of these sizes: python -m tests.support.proofs {name}\n"
        f'configuration = "{proof.configuration}"\ntransformers = "{proof.transformers}"\n{figure}\n',
        encoding="utf-8",
    )


def main(names: list[str]) -> None:
    """Prove some recipes, and record it."""
    path = ENGINES / "pixels.json"
    for name in names or MAKERS:
        folder = Path(tempfile.mkdtemp(prefix="proof-"))
        try:
            is_judge = "kind" in (ENGINES / name / "recipe.toml").read_text(encoding="utf-8").partition("[")[0]
            proof = (prove_cross_encoder if is_judge else prove)(MAKERS[name], folder)
            print(name, proof, flush=True)
            if proof.cosine is not None and proof.cosine < 0.99999:
                sys.exit(f"{name}: {proof.cosine}")
            _record(name, proof)
            if not is_judge:
                known = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
                lines = [
                    f"{json.dumps(way)}: {json.dumps(row)}" for way, row in sorted((known | pixels_of(folder)).items())
                ]
                path.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
        finally:
            shutil.rmtree(folder)


if __name__ == "__main__":
    main(sys.argv[1:])
