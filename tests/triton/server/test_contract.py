"""The encoder over a real server passes the suite for all encoders."""

from __future__ import annotations

import pytest
from vlmsearch_mocks.contracts import EncoderContract

from tests.support.triton_server import Running
from vlmsearch.encoders.base import Encoder
from vlmsearch.registry import open_encoder


class TestOnTriton(EncoderContract):
    @pytest.fixture(autouse=True)
    def _server(self, triton: Running) -> None:
        self.url = triton.url

    def make_encoder(self) -> Encoder:
        return open_encoder(self.url)
