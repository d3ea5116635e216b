"""A BERT cross-encoder on ONNX Runtime, in process."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from vlmsearch._util.arguments import check_counts
from vlmsearch._util.machine import available_cores
from vlmsearch._util.text import utf8_bytes, well_formed
from vlmsearch.errors import BackendError
from vlmsearch.models.bundle import UNPADDED
from vlmsearch.models.inputs import BatchLimits, split_batches
from vlmsearch.models.reranker import RerankerPrecision, find_reranker, pair_arrays, pair_tokenizer
from vlmsearch.models.session import TOKENS_AT_ONCE, CoresSession, check_threads
from vlmsearch.rerankers.base import Reranker
from vlmsearch.types import Document


class OnnxReranker(Reranker):
    """A cross-encoder on ONNX Runtime: ``onnx:NAME`` or ``onnx:/folder``.

    It reads texts; a document without one is not judged. ``precision`` is that of the model, INT8 by default.
    ``threads`` are the cores for a batch (by default all that the process may use). ``batch_size`` is the maximum
    number of documents that a core reads at once.
    """

    def __init__(
        self, location: str, *, precision: RerankerPrecision = "int8", threads: int | None = None, batch_size: int = 32
    ) -> None:
        check_threads(threads)
        check_counts(batch_size=batch_size)
        self.bundle = find_reranker(location)
        self.name = f"onnx:{self.bundle.name}"
        self._tokenizer = pair_tokenizer(self.bundle.read("tokenizer.json"), self.bundle.name, self.bundle.max_tokens)
        cores = threads or available_cores()
        self._limits = BatchLimits(batch_size, tokens=TOKENS_AT_ONCE, cores=cores, unpadded=UNPADDED)
        self._session: CoresSession | None = CoresSession(
            lambda: self.bundle.mapped(precision), self.bundle.name, threads=cores
        )

    def score(self, query: str, documents: Sequence[Document]) -> list[float | None]:
        """Judge documents by their texts, those of like lengths together; see `Reranker.score`."""
        utf8_bytes(query)
        places = [place for place, document in enumerate(documents) if document.text and document.text.strip()]
        scores: list[float | None] = [None] * len(documents)
        for place, probability in zip(
            places, self.probabilities([(query, well_formed(documents[place].text or "")) for place in places])
        ):
            scores[place] = probability
        return scores

    def probabilities(self, pairs: Sequence[tuple[str, str]]) -> list[float]:
        """Return the probability of each pair of a query and a text, both in valid Unicode."""
        session = self._session
        if session is None:
            raise BackendError(f"the re-ranker {self.name} is closed")
        encodings = self._tokenizer.pairs(pairs)
        order = sorted(range(len(pairs)), key=lambda number: len(encodings[number].ids))
        logits = np.empty(len(pairs), np.float32)
        places = split_batches([len(encodings[row].ids) for row in order], self._limits)
        batches = [order[place] for place in places]
        inputs = [pair_arrays([encodings[row] for row in rows], self.bundle.pad) for rows in batches]
        for rows, numbers in zip(batches, session.run_each(inputs)):
            logits[rows] = numbers[:, 0]
        if not np.isfinite(logits).all():
            raise BackendError(f"{self.bundle.name} computes NaN or infinity: build it again")
        probabilities: list[float] = self.bundle.calibration.probabilities(logits).tolist()
        return probabilities

    def close(self) -> None:
        """Stop the threads, and let go of the model and its memory."""
        session, self._session = self._session, None
        if session is not None:
            session.close()
