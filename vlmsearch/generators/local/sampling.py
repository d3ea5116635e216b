"""From logits to the next token, one row at a time, the same on every runtime."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from vlmsearch.generators.base import GenerationOptions

Scores = NDArray[np.float32]
Forbidden = Callable[[int], bool]
"""Whether a token may not come next."""


class Sampler:
    """Choice of the tokens of one text by `GenerationOptions`, in the steps of transformers."""

    def __init__(self, options: GenerationOptions) -> None:
        self._options = options
        self._random = np.random.default_rng(None if options.seed is None else options.seed % 2**64)

    def choose(self, logits: Scores, history: Sequence[int], forbidden: Forbidden) -> int | None:
        """Return the next token after ``history``, from logits (vocabulary,); None where every token is forbidden."""
        scores = penalised(logits, history, self._options.repetition_penalty)
        share = self._random.random() if self._options.temperature else 1.0
        while True:
            token = self._pick(scores, share)
            if not np.isfinite(scores[token]):
                return None
            if not forbidden(token):
                return token
            scores = scores.copy()
            scores[token] = -np.inf

    def _pick(self, scores: Scores, share: float) -> int:
        options = self._options
        if not options.temperature:
            return int(np.argmax(scores))
        with np.errstate(over="ignore", invalid="ignore"):  # near 0 one token is left; where all are forbidden, none
            scores = (scores - scores.max()).astype(np.float64) / options.temperature
        if options.top_k is None and options.top_p == 1:
            return _at(_softmax(scores), share)
        order = _likeliest(scores, options.top_k)
        shares = _softmax(scores[order])
        if options.top_p < 1:
            before = np.cumsum(shares) - shares
            order, shares = order[before < options.top_p], shares[before < options.top_p]
        return int(order[_at(shares, share)])


def penalised(scores: Scores, history: Sequence[int], penalty: float) -> Scores:
    """Return scores in which the tokens of ``history`` are less likely (CTRL, arXiv:1909.05858)."""
    if penalty == 1 or not history:
        return scores
    seen = np.unique(np.asarray(history, np.int64))
    changed: Scores = scores.copy()
    changed[seen] = np.where(scores[seen] > 0, scores[seen] / penalty, scores[seen] * penalty)
    return changed


def log_softmax(scores: Scores) -> Scores:
    """Return the logarithms of the probabilities that belong to scores, over the last axis."""
    shifted = scores - scores.max(axis=-1, keepdims=True)
    result: Scores = shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    return result


def _softmax(scores: Scores) -> NDArray[np.float64]:
    powers = np.exp((scores - scores.max()).astype(np.float64))
    result: NDArray[np.float64] = powers / powers.sum()
    return result


def _likeliest(scores: Scores, count: int | None) -> NDArray[np.int64]:
    """Return the ``count`` best tokens, best first; equal ones in the order of their ids."""
    if count is None or count >= len(scores):
        return np.argsort(-scores, kind="stable")
    chosen = np.sort(np.argpartition(-scores, count - 1)[:count])
    order: NDArray[np.int64] = chosen[np.argsort(-scores[chosen], kind="stable")]
    return order


def _at(shares: NDArray[np.float64], share: float) -> int:
    """Return which of ``shares`` the point ``share`` of their sum falls on."""
    sums = np.cumsum(shares)
    return min(int(np.searchsorted(sums, share * sums[-1], side="right")), len(shares) - 1)
