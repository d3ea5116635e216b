"""The language model of a bundle on ONNX Runtime, and a generator with its tokenizer."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vlmsearch._util.ort import ort
from vlmsearch._util.text import well_formed
from vlmsearch.errors import BackendError
from vlmsearch.generators.local.decoding import Cache, LanguageModel
from vlmsearch.generators.local.generator import LocalGenerator
from vlmsearch.generators.local.sampling import Scores
from vlmsearch.generators.text import open_tokenizer
from vlmsearch.models.generator import GRAPH, TOKENIZER, GeneratorBundle
from vlmsearch.models.tokenizers import no_panics


class BundleGenerator(LocalGenerator):
    """A generator whose tokenizer is that of a bundle."""

    def __init__(self, bundle: GeneratorBundle, model: LanguageModel) -> None:
        self._tokenizer = open_tokenizer(bundle.folder / TOKENIZER)
        super().__init__(bundle.name, model)

    def encode(self, prompt: str) -> list[int]:
        """Return the token ids of a prompt."""
        with no_panics(self.name):
            ids: list[int] = self._tokenizer.encode(well_formed(prompt)).ids
        return ids

    def decode(self, tokens: Sequence[int]) -> str:
        """Return the text of token ids, without special tokens."""
        with no_panics(self.name):
            text: str = self._tokenizer.decode(list(tokens))
        return text


class OnnxModel:
    """The graph of a bundle; see `vlmsearch.generators.local.decoding.LanguageModel`."""

    def __init__(self, bundle: GeneratorBundle, threads: int) -> None:
        self.context = bundle.context
        self.ends = bundle.ends
        self._session = open_session(bundle.folder / GRAPH, bundle.name, threads)
        self._empty = (1, bundle.heads, 0, bundle.size)
        self._layers = bundle.layers

    def open(self, pictures: Any = None) -> Cache:
        """Return a new text, with the pictures of its prompt."""
        return _OnnxCache(self._session, self._layers, self._empty, self.look(pictures))

    def look(self, pictures: Any) -> NDArray[np.float32] | None:
        """Return the embeddings (count, width) of all pictures; None for a graph without that input."""
        return None


class _OnnxCache:
    def __init__(
        self,
        session: ort.InferenceSession,
        layers: int,
        empty: tuple[int, ...],
        pictures: NDArray[np.float32] | None,
    ) -> None:
        parts = [f"{layer}.{kind}" for layer in range(layers) for kind in ("key", "value")]
        self._session = session
        self._inputs = [f"past.{part}" for part in parts]
        self._outputs = ["logits", *(f"present.{part}" for part in parts)]
        self._past = [ort.OrtValue.ortvalue_from_numpy(np.zeros(empty, np.float32)) for _ in parts]
        self._pictures = pictures

    def step(self, tokens: NDArray[np.int64]) -> Scores:
        """See `Cache.step`; pictures belong to the first tokens."""
        feeds = dict(zip(self._inputs, self._past))
        feeds["input_ids"] = ort.OrtValue.ortvalue_from_numpy(tokens)
        if self._pictures is not None:
            feeds["pictures"] = ort.OrtValue.ortvalue_from_numpy(self._pictures)
            self._pictures = self._pictures[:0]
        try:
            logits, *self._past = self._session.run_with_ort_values(self._outputs, feeds)
        except Exception as exc:
            raise BackendError(f"ONNX Runtime failed: {exc}") from exc
        scores: Scores = logits.numpy()
        return scores

    def select(self, rows: Sequence[int]) -> None:
        """See `Cache.select`."""
        if list(rows) != list(range(self._past[0].shape()[0])):
            self._past = [ort.OrtValue.ortvalue_from_numpy(past.numpy()[list(rows)]) for past in self._past]


def open_session(file: Path, name: str, threads: int) -> ort.InferenceSession:
    """Return a graph, ready to run; BackendError where ONNX Runtime cannot load it."""
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    try:
        return ort.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])
    except Exception as exc:
        raise BackendError(f"ONNX Runtime cannot load {name}: {exc}") from exc
