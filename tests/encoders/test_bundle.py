"""What all encoders of bundles share, with the demonstration model."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from vlmsearch.demo.scenes import make_scene
from vlmsearch.encoders.onnx import OnnxEncoder
from vlmsearch.media.images import Preprocess
from vlmsearch.models.bundle import Bundle
from vlmsearch.models.inputs import Pixels, to_pixels
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
