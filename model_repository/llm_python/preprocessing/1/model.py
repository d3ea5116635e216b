"""Prompts and word lists to token ids, with the tensors of TensorRT-LLM's ``preprocessing``."""

import json
import sys
from pathlib import Path

import numpy as np
import triton_python_backend_utils as pb_utils

sys.path.insert(0, str(Path(__file__).parent))

from vlmsearch.generators.local.transformers import load_tokenizer
from vlmsearch.triton.client.words import to_word_list

TEXTS = ("QUERY", "BAD_WORDS_DICT", "STOP_WORDS_DICT")
LISTS = (("BAD_WORDS_DICT", "BAD_WORDS_IDS"), ("STOP_WORDS_DICT", "STOP_WORDS_IDS"))


class TritonPythonModel:
    """The tokenizer's first half."""

    def initialize(self, args):
        """Load the tokenizer."""
        given = json.loads(args["model_config"])["parameters"]
        self.tokenizer = load_tokenizer(given["tokenizer_dir"]["string_value"])
        self.max_bytes = int(given["max_text_bytes"]["string_value"])
        self.special = given["add_special_tokens"]["string_value"] == "true"
        end = self.tokenizer.eos_token_id
        self.end = 0 if end is None else end
        self.pad = self.end if self.tokenizer.pad_token_id is None else self.tokenizer.pad_token_id

    def execute(self, requests):
        """One response a request."""
        return [self._respond(request) for request in requests]

    def _respond(self, request):
        try:
            return pb_utils.InferenceResponse(self._tensors(request))
        except ValueError as exc:
            error = pb_utils.TritonError(str(exc), pb_utils.TritonError.INVALID_ARG)
            return pb_utils.InferenceResponse(error=error)

    def _tensors(self, request):
        given = {name: pb_utils.get_input_tensor_by_name(request, name) for name in TEXTS}
        texts = {name: tensor.as_numpy() for name, tensor in given.items() if tensor is not None}
        size = sum(len(item) for array in texts.values() for item in array.reshape(-1))
        if size > self.max_bytes:
            raise ValueError(f"prompt and words have {size:,} bytes; this server takes {self.max_bytes:,}")
        queries = _texts(texts["QUERY"])
        lengths = pb_utils.get_input_tensor_by_name(request, "REQUEST_OUTPUT_LEN").as_numpy()
        ends, pads = (self._given(request, name, len(queries)) for name in ("END_ID", "PAD_ID"))
        prompts = [self._encode(query[0], special=self.special) for query in queries]
        ids = np.full((len(prompts), max(map(len, prompts))), self.pad, np.int32)
        for row, prompt in zip(ids, prompts):
            row[: len(prompt)] = prompt
        sizes = np.array([[len(prompt)] for prompt in prompts], np.int32)
        tensors = {"INPUT_ID": ids, "REQUEST_INPUT_LEN": sizes, "REQUEST_OUTPUT_LEN": lengths.astype(np.int32)}
        tensors |= {"OUT_END_ID": ends, "OUT_PAD_ID": pads}
        for source, target in LISTS:
            lists = _texts(texts[source]) if source in texts else [[]] * len(prompts)
            tensors[target] = to_word_list(
                [[self._encode(word, special=False) for word in row if word] for row in lists]
            )
        return [pb_utils.Tensor(name, array) for name, array in tensors.items()]

    def _encode(self, text, *, special):
        return self.tokenizer(text, add_special_tokens=special)["input_ids"]

    def _given(self, request, name, count):
        tensor = pb_utils.get_input_tensor_by_name(request, name)
        if tensor is not None:
            return tensor.as_numpy().astype(np.int32)
        return np.full((count, 1), self.end if name == "END_ID" else self.pad, np.int32)


def _texts(array):
    """Rows of texts; ValueError for bytes that are none."""
    return [[item.decode() for item in row] for row in array.reshape(len(array), -1)]
