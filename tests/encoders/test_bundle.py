"""What all encoders of bundles share, with the demonstration model."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Literal

import numpy as np
import pytest

from tests.support.checkpoints import make_bert, make_recipe
from vlmsearch.building.bundle import build_bundle
from vlmsearch.demo.scenes import make_scene
from vlmsearch.encoders.onnx import OnnxEncoder
from vlmsearch.errors import InvalidBatchError
from vlmsearch.media.preprocess import Preprocess
from vlmsearch.models.bundle import UNPADDED, Bundle
from vlmsearch.models.inputs import Ids, Pixels, to_pixels
from vlmsearch.models.recipe import find_recipe
from vlmsearch.models.session import TOKENS_AT_ONCE
from vlmsearch.types import ImageSource, Vectors

BATCH = 4


class WaitingEncoder(OnnxEncoder):
    """Computes its first batch only once an image of the second is being decoded."""

    def __init__(self) -> None:
        super().__init__("demo-clip", batch_size=BATCH, threads=2)
        self.is_ahead = threading.Event()

    def run_images(self, bundle: Bundle, pixels: Pixels) -> Vectors:
        assert self.is_ahead.wait(timeout=30)
        return super().run_images(bundle, pixels)


def test_images_are_decoded_while_the_model_computes_those_before(monkeypatch: pytest.MonkeyPatch) -> None:
    images = [make_scene(seed).draw(64) for seed in range(3 * BATCH)]
    with WaitingEncoder() as encoder:

        def decode(image: ImageSource, preprocess: Preprocess) -> Pixels:
            if any(image is later for later in images[BATCH:]):
                encoder.is_ahead.set()
            return to_pixels(image, preprocess)

        monkeypatch.setattr("vlmsearch.encoders.bundle.to_pixels", decode)
        found = encoder.encode_images(images)["clip"]
    with OnnxEncoder("demo-clip") as plain:
        assert np.abs(found - plain.encode_images(images)["clip"]).max() < 1e-5


@pytest.fixture(scope="module")
def long_texts_bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("long")
    checkpoint = make_bert(folder, tokens=UNPADDED + 32)
    recipe = find_recipe(str(make_recipe(folder, checkpoint, space="minilm")))
    return build_bundle(recipe, out=folder / "bundle").folder


class SeenBatches(OnnxEncoder):
    """Keeps the masks of the batches that it computes."""

    def run_text_batches(self, bundle: Bundle, batches: Sequence[tuple[Ids, Ids]]) -> Iterable[Vectors]:
        self.masks = [mask for _, mask in batches]
        return super().run_text_batches(bundle, batches)


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("precision", ["int8", "fp32"])
def test_a_vector_does_not_depend_on_the_texts_beside_it(
    long_texts_bundle: Path, threads: int, precision: Literal["int8", "fp32"]
) -> None:
    words = ["a", "red", "star", "above", "two", "small", "hearts", "on", "the", "meadow"]
    random = np.random.default_rng(0)
    counts = [0, 1, 3, 30, 60, 61, 62, 62, 62, 63, 70, 70, 94, 94, 200, *range(40, 90, 3)]
    texts = [" ".join(random.choice(words, count)) for count in counts]
    with SeenBatches(f"{long_texts_bundle}/", threads=threads, precision=precision) as encoder:
        together = encoder.encode_texts(texts)["minilm"]
        masks = encoder.masks
        alone = np.concatenate([encoder.encode_texts([text])["minilm"] for text in texts])
    assert (together * alone).sum(axis=1).min() > 0.99999
    assert np.std(together @ together.T) > 0.01, "all texts give the same vector: the comparison would show nothing"
    assert all(mask.all() for mask in masks if mask.shape[1] >= UNPADDED)
    assert all(mask.size <= TOKENS_AT_ONCE or len(mask) == 1 for mask in masks)
    assert len(masks) >= threads


@pytest.mark.parametrize("space", ["clip", "minilm"])
def test_the_tokens_of_a_text_are_those_that_it_is_decoded_from(space: str) -> None:
    texts = ["a red circle", "Two blue, green circles!", ""]
    with OnnxEncoder("demo", threads=1) as encoder:
        rows = encoder._texts[space]._token_ids(texts, ["document"] * 3)
        decoded = encoder.decode_tokens(rows, space=space)
        assert encoder._texts[space]._token_ids(decoded, ["document"] * 3) == rows
        assert encoder.count_tokens(texts, space=space) == [len(row) for row in rows]
        for given, again in zip(encoder.encode_texts(texts)[space], encoder.encode_texts(decoded)[space]):
            np.testing.assert_array_equal(given, again)


@pytest.mark.parametrize(("location", "space"), [("demo", "minilm"), ("demo-clip", "clip"), ("demo-minilm", "minilm")])
def test_a_long_document_has_the_vector_of_what_the_model_reads(location: str, space: str) -> None:
    with OnnxEncoder(location, threads=1) as encoder:
        form = next(bundle.text for bundle in encoder.bundles if bundle.space.name == space)
        assert encoder.text_window == form.max_tokens - len(form.prefix) - len(form.suffix)
        lengths = [encoder.text_window + more for more in (-1, 0, 1, 500)]
        texts = [" ".join(["star"] * length) for length in lengths]
        assert encoder.text_tokens(texts) == encoder.count_tokens(texts, space=space) == lengths
        shorter, whole, *longer = (encoder.encode_texts([text])[space] for text in texts)
        other_end = encoder.encode_texts([f"{texts[1]} two blue circles on a meadow"])[space]
    for cut in (*longer, other_end):
        np.testing.assert_array_equal(cut, whole)
    assert (shorter != whole).any()


def test_the_window_is_that_of_the_model_for_texts_alone(long_texts_bundle: Path) -> None:
    with OnnxEncoder(f"demo-clip+{long_texts_bundle}", threads=1) as encoder:
        assert encoder.text_window == UNPADDED + 30
        assert encoder.text_tokens(["a red star"]) == encoder.count_tokens(["a red star"], space="minilm")


def test_what_is_no_token_is_named() -> None:
    with OnnxEncoder("demo", threads=1) as encoder, pytest.raises(InvalidBatchError) as caught:
        encoder.decode_tokens([[1], [99_999], [2, -1]], space="minilm")
    assert {item: str(error) for item, error in caught.value.items.items()} == {
        1: "99999 is not a token of demo-minilm, which has 352",
        2: "-1 is not a token of demo-minilm, which has 352",
    }
