"""Texts that a causal language model of transformers continues together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional
from transformers import DynamicCache

from vlmsearch.errors import BackendError, one_line
from vlmsearch.generators.local.sampling import Scores


class Rows:
    """The texts of one batch and their keys and values.

    Shorter texts are padded on the left. Positions and masks are given to the model explicitly, so that what a text
    says does not depend on its neighbours.
    """

    def __init__(self, model: Any) -> None:
        self._model = model
        self._cache: Any = DynamicCache()
        self._mask: torch.Tensor | None = None

    def __len__(self) -> int:
        return 0 if self._mask is None else len(self._mask)

    @torch.inference_mode()
    def read(self, texts: Sequence[Sequence[int]]) -> torch.Tensor:
        """Read the next tokens of every text.

        Return float32 logits (rows, vocabulary) of what comes next, on the device. The texts may be of several lengths
        the first time.
        """
        device = self._model.device
        longest = max(map(len, texts))
        tokens = torch.tensor([[0] * (longest - len(text)) + list(text) for text in texts], device=device)
        real = torch.tensor([[0] * (longest - len(text)) + [1] * len(text) for text in texts], device=device)
        mask = real if self._mask is None else torch.cat([self._mask, real], dim=1)
        positions = (mask.cumsum(dim=1) - 1).clamp(min=0)[:, -longest:]
        out = self._model(
            input_ids=tokens,
            attention_mask=mask,
            position_ids=positions,
            past_key_values=self._cache,
            use_cache=True,
            logits_to_keep=1,
        )
        self._cache, self._mask = out.past_key_values, mask
        logits: torch.Tensor = out.logits[:, -1].float()
        return logits

    @torch.inference_mode()
    def join(self, other: Rows) -> None:
        """Take over the texts of another batch, after those that are here."""
        if other._mask is None:
            return
        if self._mask is None:
            self._cache, self._mask = other._cache, other._mask
            return
        longest = max(self._mask.shape[1], other._mask.shape[1])
        self._mask = torch.cat([_pad(self._mask, longest, 1), _pad(other._mask, longest, 1)])
        self._store(
            [
                tuple(torch.cat([_pad(a, longest, 2), _pad(b, longest, 2)]) for a, b in zip(mine, others))
                for mine, others in zip(_layers(self._cache), _layers(other._cache))
            ]
        )

    @torch.inference_mode()
    def select(self, rows: Sequence[int]) -> None:
        """Keep these texts, in this order; none may be kept, and one several times."""
        if self._mask is None or list(rows) == list(range(len(self))):
            return
        if not rows:
            self._cache, self._mask = DynamicCache(), None
            return
        index = torch.tensor(list(rows), device=self._mask.device)
        mask = self._mask[index]
        first = int(mask.any(dim=0).int().argmax())
        self._mask = mask[:, first:]
        self._store([tuple(part[index][:, :, first:] for part in layer) for layer in _layers(self._cache)])

    def _store(self, layers: Sequence[tuple[torch.Tensor, ...]]) -> None:
        self._cache = DynamicCache()
        for number, (keys, values) in enumerate(layers):
            self._cache.update(keys, values, number)


class RowsCache:
    """One text, or several of the same length; see `vlmsearch.generators.local.decoding.Cache`."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows

    def step(self, tokens: NDArray[np.int64]) -> Scores:
        """See `Cache.step`."""
        try:
            scores: Scores = self._rows.read(tokens.tolist()).cpu().numpy()
        except Exception as exc:
            raise BackendError(f"transformers failed: {one_line(exc)}") from exc
        return scores

    def select(self, rows: Sequence[int]) -> None:
        """See `Cache.select`."""
        self._rows.select(rows)


def _layers(cache: Any) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Return keys and values (rows, heads, length, size) of each layer. They are elsewhere before transformers 4.56."""
    if hasattr(cache, "layers"):
        return [(layer.keys, layer.values) for layer in cache.layers]
    return list(zip(cache.key_cache, cache.value_cache))


def _pad(tensor: torch.Tensor, length: int, dim: int) -> torch.Tensor:
    """Return a tensor with zeros before it, up to ``length`` along ``dim``."""
    missing = length - tensor.shape[dim]
    return functional.pad(tensor, (0, 0) * (tensor.ndim - 1 - dim) + (missing, 0)) if missing else tensor
