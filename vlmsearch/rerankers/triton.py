"""The re-ranker of a Triton server, as `vlmsearch triton repo --reranker` makes them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from vlmsearch._util.arguments import check_counts
from vlmsearch._util.text import utf8_bytes, well_formed
from vlmsearch.errors import BackendError
from vlmsearch.rerankers.base import Reranker
from vlmsearch.triton.client import protocol
from vlmsearch.triton.client.batches import batches, split_location
from vlmsearch.triton.client.connection import Connection
from vlmsearch.types import Document


class TritonReranker(Reranker):
    """The re-ranker that a Triton server has under a name: ``triton://host:8001/reranker``.

    It reads texts; a document without one is not judged. ``batch_size`` is the most documents of a request (the
    server's limit if that is less). An attempt may take ``timeout`` seconds, a request with all its attempts
    ``deadline``. ``tls`` encrypts; the environment has certificates, token and headers: see
    `vlmsearch.triton.client.security.Security`.
    """

    def __init__(
        self,
        location: str,
        *,
        batch_size: int = 32,
        timeout: float = 60.0,
        deadline: float = 120.0,
        tls: bool = False,
    ) -> None:
        address, self._model = split_location(location)
        check_counts(batch_size=batch_size)
        self._connection = Connection(address, timeout=timeout, deadline=deadline, tls=tls)
        self._closed = False
        try:
            config = self._connection.config(self._model)
        except BaseException:
            self.close()
            raise
        given = {name: value.string_value for name, value in config.parameters.items()}
        if protocol.PROBABILITY not in [output.name for output in config.output] or "max_text_bytes" not in given:
            self.close()
            raise BackendError(f"{self._model} of Triton at {address} is not a re-ranker that vlmsearch made")
        self._batch_size = min(batch_size, max(config.max_batch_size, 1))
        self._max_bytes = int(given["max_text_bytes"])
        self.name = f"triton:{given[protocol.FINGERPRINT]}"

    def score(self, query: str, documents: Sequence[Document]) -> list[float | None]:
        """Judge documents by their texts, those of like lengths together; see `Reranker.score`.

        Of a text with more bytes than the server takes in a request, the beginning is sent.
        """
        if self._closed:
            raise BackendError(f"the re-ranker {self.name} is closed")
        asked = utf8_bytes(query)
        texts = {
            place: self._beginning(well_formed(document.text))
            for place, document in enumerate(documents)
            if document.text and document.text.strip()
        }
        order = sorted(texts, key=lambda place: len(texts[place]))
        sizes = [len(texts[place]) for place in order]
        scores: list[float | None] = [None] * len(documents)
        for batch in batches(order, sizes, self._batch_size, total=self._max_bytes):
            inputs: dict[str, NDArray[np.generic]] = {
                protocol.QUERY: np.full((len(batch), 1), asked, np.object_),
                protocol.TEXT: np.array([[texts[place]] for place in batch], np.object_),
            }
            answer = self._connection.infer(self._model, inputs, [protocol.PROBABILITY])[protocol.PROBABILITY]
            for place, probability in zip(batch, answer[:, 0].tolist()):
                scores[place] = probability
        return scores

    def close(self) -> None:
        """Wait for requests under way, for ten seconds at most, and close the connection."""
        self._closed = True
        self._connection.close()

    def _beginning(self, text: str) -> bytes:
        return text.encode()[: self._max_bytes].decode(errors="ignore").encode()
