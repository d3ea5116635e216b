"""The encoder of ONNX Runtime passes the suite for all encoders."""

from __future__ import annotations

from vlmsearch_mocks.contracts import EncoderContract

from vlmsearch.encoders.base import Encoder
from vlmsearch.encoders.onnx import OnnxEncoder


class TestOnnx(EncoderContract):
    def make_encoder(self) -> Encoder:
        return OnnxEncoder("demo", batch_size=4)
