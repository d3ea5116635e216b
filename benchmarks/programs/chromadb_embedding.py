"""An embedding function of chromadb over the demonstration's model: it is given, and its lines are not counted.

The embedding function that chromadb has by default downloads a model, and that model reads no pictures.
"""

import json
from pathlib import Path

import numpy as np
import onnxruntime
from chromadb import EmbeddingFunction
from tokenizers import Tokenizer


class DemoEmbedding(EmbeddingFunction):
    """Vectors of texts and of pictures, which are arrays of 64 by 64 pixels."""

    def __init__(self, folder="model"):
        options = json.loads(Path(folder, "bundle.json").read_text())["text"]
        self._begin, self._end, self._pad = options["prefix"], options["suffix"], options["pad"]
        self._length = options["max_tokens"]
        self._tokenizer = Tokenizer.from_file(f"{folder}/tokenizer.json")
        self._text, self._image = (
            onnxruntime.InferenceSession(f"{folder}/{tower}.onnx") for tower in ("text", "image")
        )

    def __call__(self, input):
        return [self._encode_text(item) if isinstance(item, str) else self._encode_image(item) for item in input]

    def _encode_text(self, text):
        ids = self._tokenizer.encode(text, add_special_tokens=False).ids[: self._length - 2]
        row = np.array([[*self._begin, *ids, *self._end]], np.int32)
        return self._text.run(None, {"input_ids": row, "attention_mask": np.ones_like(row)})[0][0]

    def _encode_image(self, pixels):
        return self._image.run(None, {"pixels": np.asarray(pixels, np.uint8)[None]})[0][0]

    @staticmethod
    def name():
        return "demo"

    def get_config(self):
        return {}

    @staticmethod
    def build_from_config(config):
        return DemoEmbedding()
