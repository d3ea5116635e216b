"""Token ids to text, with the tensors of TensorRT-LLM's ``postprocessing``."""

import json
import sys
from pathlib import Path

import numpy as np
import triton_python_backend_utils as pb_utils

sys.path.insert(0, str(Path(__file__).parent))

from vlmsearch.generators.local.transformers import decode_tokens, load_tokenizer

WORD = " a"


class TritonPythonModel:
    """The tokenizer's second half."""

    def initialize(self, args):
        """Load the tokenizer, and see whether it drops the space before a first word."""
        self.tokenizer = load_tokenizer(json.loads(args["model_config"])["parameters"]["tokenizer_dir"]["string_value"])
        word = self.tokenizer(WORD, add_special_tokens=False)["input_ids"]
        self.before = [] if decode_tokens(self.tokenizer, word) == WORD else word
        self.dropped = len(decode_tokens(self.tokenizer, self.before))

    def execute(self, requests):
        """One response a request."""
        return [self._respond(request) for request in requests]

    def _respond(self, request):
        tokens, lengths = (
            pb_utils.get_input_tensor_by_name(request, name).as_numpy() for name in ("TOKENS_BATCH", "SEQUENCE_LENGTH")
        )
        texts = [
            [self._decode(row[:length]) for row, length in zip(beams, sizes)]
            for beams, sizes in zip(tokens, lengths)
        ]  # fmt: skip
        return pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT", np.array(texts, np.object_))])

    def _decode(self, tokens):
        """The text of one beam; of a streamed piece, with the space before it."""
        text = decode_tokens(self.tokenizer, [*self.before, *tokens.tolist()])
        return text[self.dropped :].encode()
