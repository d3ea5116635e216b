"""A text that a model of transformers continues from a prompt with pictures."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any
from weakref import WeakKeyDictionary

import torch
from typing_extensions import override

from vlmsearch.generators.local.rows import Rows

_LOCKS: WeakKeyDictionary[Any, threading.Lock] = WeakKeyDictionary()
_LOCKS_GUARD = threading.Lock()


class SightedRows(Rows):
    """A text that begins with a prompt with pictures, or several that beams make of it.

    The model numbers the positions of pictures by itself. Qwen's keeps the difference to the number of tokens in an
    attribute, which is put back before every step.
    """

    def __init__(self, model: Any, inputs: Any) -> None:
        super().__init__(model)
        self._inputs = {name: _moved(value, model) for name, value in inputs.items()}
        self._deltas: Any = None
        with _LOCKS_GUARD:
            self._lock = _LOCKS.setdefault(model, threading.Lock())

    @override
    @torch.inference_mode()
    def read(self, texts: Sequence[Sequence[int]]) -> torch.Tensor:
        given = self._inputs
        if self._mask is not None:
            tokens = torch.tensor(texts, device=self._model.device)
            given = {"input_ids": tokens, "attention_mask": torch.cat([self._mask, torch.ones_like(tokens)], dim=1)}
        with self._lock:
            if self._deltas is not None:
                self._model.model.rope_deltas = self._deltas
            out = self._model(**given, past_key_values=self._cache, use_cache=True, logits_to_keep=1)
            self._deltas = getattr(self._model.model, "rope_deltas", None)
        self._cache, self._mask, self._inputs = out.past_key_values, given["attention_mask"], {}
        logits: torch.Tensor = out.logits[:, -1].float()
        return logits

    @override
    @torch.inference_mode()
    def select(self, rows: Sequence[int]) -> None:
        if self._deltas is not None and list(rows) != list(range(len(self))):
            self._deltas = self._deltas[torch.tensor(list(rows), device=self._deltas.device)]
        super().select(rows)


def _moved(value: Any, model: Any) -> Any:
    """Return an input on the device of the model; pixels in its type."""
    if not isinstance(value, torch.Tensor):
        return value
    return value.to(model.device, dtype=model.dtype if value.is_floating_point() else None)
