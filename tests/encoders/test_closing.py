"""Encoders that are closed."""

import gc

import numpy as np
import PIL.Image
import pytest

from vlmsearch.encoders.onnx import OnnxEncoder
from vlmsearch.errors import BackendError
from vlmsearch.models.session import OnnxSession
from vlmsearch.registry import open_encoder


@pytest.mark.parametrize("url", ["onnx:demo?threads=2", "torch:demo"])
def test_an_encoder_that_is_closed_says_so_and_keeps_no_model(url: str) -> None:
    others = models()
    encoder = open_encoder(url)
    picture = PIL.Image.new("RGB", (64, 64))
    encoder.encode_images([picture] * 20)
    assert models() > others
    encoder.close()
    for images in ([picture], [picture] * 3, []):
        with pytest.raises(BackendError, match=r"^the encoder is closed$"):
            encoder.encode_images(images)
    for texts in (["a red circle"], ["a red circle"] * 40):
        with pytest.raises(BackendError, match=r"^the encoder is closed$"):
            encoder.encode_texts(texts)
    encoder.close()
    gc.collect()
    assert models() <= others


def models() -> set[int]:
    """The models of encoders in this process."""
    from vlmsearch.building.torch import TwoTowers

    return {id(found) for found in gc.get_objects() if type(found) in (OnnxSession, TwoTowers)}


def test_a_batch_of_an_encoder_that_is_closed_meanwhile_ends_with_an_error() -> None:
    encoder = OnnxEncoder("demo", threads=2)
    bundle, pixels = encoder.bundles[0], np.zeros((1, 64, 64, 3), np.uint8)
    encoder.close()
    with pytest.raises(BackendError, match=r"^the encoder is closed$"):
        encoder.run_images(bundle, pixels)
