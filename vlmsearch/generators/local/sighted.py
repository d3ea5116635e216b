"""A text that a model of transformers continues from a prompt with pictures."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import DynamicCache

from vlmsearch.errors import BackendError, one_line
from vlmsearch.generators.local.sampling import Scores

_LOCKS: WeakKeyDictionary[Any, threading.Lock] = WeakKeyDictionary()
_LOCKS_GUARD = threading.Lock()


class SightedCache:
    """One text, or several of the same length; see `vlmsearch.generators.local.decoding.Cache`.

    The model numbers the positions of pictures by itself. Qwen's keeps the difference to the number of tokens in an
    attribute, which is put back before every step.
    """

    def __init__(self, model: Any, inputs: Any) -> None:
        self._model = model
        self._inputs: dict[str, Any] | None = dict(inputs)
        self._cache: Any = DynamicCache()
        self._mask: torch.Tensor = inputs["attention_mask"]
        self._deltas: Any = None
        with _LOCKS_GUARD:
            self._lock = _LOCKS.setdefault(model, threading.Lock())

    @torch.inference_mode()
    def step(self, tokens: NDArray[np.int64]) -> Scores:
        """See `Cache.step`; the first tokens are the prompt."""
        device = self._model.device
        if self._inputs is not None:
            given = {name: _moved(value, self._model) for name, value in self._inputs.items()}
            self._inputs = None
        else:
            self._mask = torch.cat([self._mask, torch.ones(tokens.shape, dtype=self._mask.dtype)], dim=1)
            given = {"input_ids": torch.from_numpy(tokens).to(device), "attention_mask": self._mask.to(device)}
        try:
            with self._lock:
                if self._deltas is not None:
                    self._model.model.rope_deltas = self._deltas
                out = self._model(**given, past_key_values=self._cache, use_cache=True, logits_to_keep=1)
                self._deltas = getattr(self._model.model, "rope_deltas", None)
        except Exception as exc:
            raise BackendError(f"transformers failed: {one_line(exc)}") from exc
        self._cache = out.past_key_values
        scores: Scores = out.logits[:, -1].float().cpu().numpy()
        return scores

    @torch.inference_mode()
    def select(self, rows: Sequence[int]) -> None:
        """See `Cache.select`."""
        if list(rows) == list(range(len(self._mask))):
            return
        index = torch.tensor(list(rows))
        self._cache.reorder_cache(index.to(self._model.device))
        self._mask = self._mask[index]
        if self._deltas is not None:
            self._deltas = self._deltas[index.to(self._deltas.device)]


def _moved(value: Any, model: Any) -> Any:
    """Return an input on the device of the model; pixels in its type."""
    if not isinstance(value, torch.Tensor):
        return value
    return value.to(model.device, dtype=model.dtype if value.is_floating_point() else None)
