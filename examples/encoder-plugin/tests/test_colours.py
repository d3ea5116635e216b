"""The suite that every encoder of vlmsearch passes."""

from vlmsearch_colours import ColourEncoder
from vlmsearch_mocks.contracts import EncoderContract


class TestColours(EncoderContract):
    def make_encoder(self) -> ColourEncoder:
        return ColourEncoder()
