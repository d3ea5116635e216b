"""The re-ranker of a repository for Triton's Python backend; see `vlmsearch.triton.backend.models`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils

from vlmsearch.rerankers.onnx import OnnxReranker
from vlmsearch.triton.backend.memory import keep_memory
from vlmsearch.triton.backend.models import parameters, refused, version_folder
from vlmsearch.triton.client.protocol import PROBABILITY, QUERY, TEXT, texts_too_large


class RerankerModel:
    """Queries and texts to probabilities. The requests of a batch are computed together."""

    def initialize(self, args: Mapping[str, str]) -> None:
        """Open the bundle that lies beside model.py."""
        keep_memory()
        given = parameters(args)
        self._max_bytes = int(given["max_text_bytes"])
        self._reranker = OnnxReranker(
            str(version_folder(args) / "bundle"),
            precision="fp32" if given["precision"] == "fp32" else "int8",
            threads=int(given["threads"]) or None,
        )

    def execute(self, requests: Sequence[Any]) -> list[Any]:
        """Return one response a request.

        Where a request cannot be computed, the others of its batch still are.
        """
        given: list[list[tuple[str, str]] | ValueError] = []
        for request in requests:
            try:
                given.append(self._pairs(request))
            except ValueError as exc:
                given.append(exc)
        pairs = [pair for item in given if not isinstance(item, ValueError) for pair in item]
        try:
            chances = iter(self._reranker.probabilities(pairs))
        except Exception as exc:  # noqa: BLE001 - of whatever kind, it is the clients' answer
            return [refused(exc) for _ in requests]
        return [
            refused(item)
            if isinstance(item, ValueError)
            else pb_utils.InferenceResponse(
                [pb_utils.Tensor(PROBABILITY, np.array([[next(chances)] for _ in item], np.float32))]
            )
            for item in given
        ]

    def finalize(self) -> None:
        """Stop the threads."""
        self._reranker.close()

    def _pairs(self, request: Any) -> list[tuple[str, str]]:
        """Return the pairs of a request; ValueError says what is wrong with them."""
        columns = [pb_utils.get_input_tensor_by_name(request, name).as_numpy()[:, 0] for name in (QUERY, TEXT)]
        if too_large := texts_too_large(sum(map(len, columns[1])), self._max_bytes):
            raise ValueError(too_large)
        try:
            queries, texts = ([raw.decode() for raw in column] for column in columns)
        except UnicodeDecodeError as exc:
            raise ValueError(f"invalid: it is not UTF-8 ({exc.reason} at byte {exc.start})") from None
        return list(zip(queries, texts))
