"""Language models on ONNX Runtime, in process."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from vlmsearch._util.ort import ort
from vlmsearch.errors import BackendError
from vlmsearch.generators.local.decoding import Cache
from vlmsearch.generators.local.generator import LocalGenerator
from vlmsearch.generators.local.sampling import Scores
from vlmsearch.generators.text import open_tokenizer
from vlmsearch.models.generator import GRAPH, TOKENIZER, GeneratorBundle, open_generator_bundle
from vlmsearch.models.session import check_threads
from vlmsearch.models.tokenizers import no_panics


class OnnxGenerator(LocalGenerator):
    """A GPT-2 on ONNX Runtime: ``onnx:demo-gpt2``, or ``onnx:/folder`` with a bundle.

    ``threads`` is how many cores one step is spread over.
    """

    def __init__(self, location: str, *, threads: int = 1) -> None:
        check_threads(threads)
        bundle = open_generator_bundle(location)
        self._tokenizer = open_tokenizer(bundle.folder / TOKENIZER)
        super().__init__(bundle.name, OnnxModel(bundle, threads))

    def encode(self, prompt: str) -> list[int]:
        """Return the token ids of a prompt."""
        with no_panics(self.name):
            ids: list[int] = self._tokenizer.encode(prompt).ids
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
        options = ort.SessionOptions()
        options.intra_op_num_threads = threads
        options.log_severity_level = 3
        try:
            self._session = ort.InferenceSession(
                str(bundle.folder / GRAPH), options, providers=["CPUExecutionProvider"]
            )
        except Exception as exc:
            raise BackendError(f"ONNX Runtime cannot load {bundle.name}: {exc}") from exc
        self._empty = (1, bundle.heads, 0, bundle.size)
        self._layers = bundle.layers

    def open(self) -> Cache:
        """Return a new text."""
        return _OnnxCache(self._session, self._layers, self._empty)


class _OnnxCache:
    def __init__(self, session: ort.InferenceSession, layers: int, empty: tuple[int, ...]) -> None:
        parts = [f"{layer}.{kind}" for layer in range(layers) for kind in ("key", "value")]
        self._session = session
        self._inputs = [f"past.{part}" for part in parts]
        self._outputs = ["logits", *(f"present.{part}" for part in parts)]
        self._past = [ort.OrtValue.ortvalue_from_numpy(np.zeros(empty, np.float32)) for _ in parts]

    def step(self, tokens: NDArray[np.int64]) -> Scores:
        """See `Cache.step`."""
        feeds = dict(zip(self._inputs, self._past))
        feeds["input_ids"] = ort.OrtValue.ortvalue_from_numpy(tokens)
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
