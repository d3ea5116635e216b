"""A cross-encoder on disk: a bundle whose one model reads a query and a document together and gives one number.

Its ``bundle.json`` says ``"kind": "reranker"``; beside it are ``reranker.onnx`` (``input_ids``, ``token_type_ids`` and
``attention_mask`` int32 [N, L] to ``logit`` float32 [N, 1]), its lower precisions, and ``tokenizer.json``.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from tokenizers import Encoding

from vlmsearch._util.json_table import JsonTable
from vlmsearch.errors import ConfigError, one_line
from vlmsearch.models.bundle import (
    FORMAT,
    MAX_ID,
    MAX_TOKENS,
    RERANKER,
    ModelBundle,
    built_models,
    common_fields,
    find_model,
    recipe_names,
)
from vlmsearch.models.inputs import Ids
from vlmsearch.models.mapped import MappedModel
from vlmsearch.models.tokenizers import TextTokenizer, read_tokenizer, token_row

RerankerPrecision = Literal["fp32", "int8"]
PRECISIONS: tuple[RerankerPrecision, ...] = ("fp32", "int8")
_MAX_SCALE = 1e3


@dataclass(frozen=True)
class PlattScaling:
    """The function from a model's number to a probability: sigmoid(``scale`` * number + ``shift``) (Platt, 1999)."""

    scale: float
    shift: float

    def probabilities(self, logits: NDArray[np.floating]) -> NDArray[np.float64]:
        """Return the probabilities of numbers of any shape."""
        probabilities: NDArray[np.float64] = 1 / (1 + np.exp(-(self.scale * logits.astype(np.float64) + self.shift)))
        return probabilities


@dataclass(frozen=True, kw_only=True)
class RerankerBundle(ModelBundle):
    """An opened bundle of a cross-encoder.

    ``max_tokens`` is how many tokens it reads of a query and a document together, ``pad`` what shorter ones are filled
    up with.
    """

    max_tokens: int
    pad: int
    calibration: PlattScaling

    @property
    def precisions(self) -> list[RerankerPrecision]:
        """Return the precisions that it is there in."""
        return [precision for precision in PRECISIONS if reranker_file(precision) in self.files]

    def model(self, precision: RerankerPrecision) -> bytes:
        """Return the ONNX model, checked; ConfigError names the precisions that there are."""
        return self.read_model(reranker_file(precision), precision, self.precisions)

    def mapped(self, precision: RerankerPrecision) -> MappedModel:
        """Return the same with its large tensors left on the disk."""
        return self.map_model(reranker_file(precision), precision, self.precisions)


def reranker_file(precision: RerankerPrecision) -> str:
    """Return the file name of one precision."""
    return "reranker.onnx" if precision == "fp32" else f"reranker.{precision}.onnx"


def find_reranker(location: str) -> RerankerBundle:
    """Return the bundle of a name, a model of the hub or a folder.

    One that is not here yet is built once, as encoders are.
    """
    return find_model(location, RERANKER, open_reranker_bundle)


def built_rerankers() -> list[RerankerBundle]:
    """Return every re-ranker that is built, by name.

    One that cannot be opened is left out, with a DamagedBundleWarning.
    """
    return built_models(RERANKER, open_reranker_bundle)


def open_reranker_bundle(folder: Path) -> RerankerBundle:
    """Read ``bundle.json`` and check all of it.

    ModelUnavailableError where there is none, ConfigError where it is of another kind or format or anything in it is
    not as `vlmsearch build` writes it.
    """
    given = JsonTable.read(folder / "bundle.json", format=FORMAT)
    if "kind" not in given or given.string("kind") != RERANKER:
        raise ConfigError(f"{folder} holds an encoder, not a re-ranker; there are {', '.join(recipe_names(RERANKER))}")
    text, fitted = given.table("text"), given.table("calibration")
    return RerankerBundle(
        **common_fields(given, folder),
        max_tokens=text.whole("max_tokens", 8, MAX_TOKENS),
        pad=text.whole("pad", 0, MAX_ID),
        calibration=PlattScaling(
            fitted.number("scale", 0, _MAX_SCALE), fitted.number("shift", -_MAX_SCALE, _MAX_SCALE)
        ),
    )


def pair_tokenizer(data: bytes, name: str, max_tokens: int) -> TextTokenizer:
    """Return a tokenizer of pairs that cuts the longer text first, as sentence-transformers' CrossEncoder does."""
    tokenizer = read_tokenizer(data, name)
    try:
        tokenizer.enable_truncation(max_tokens, strategy="longest_first")
    except Exception as exc:  # the library raises nothing more particular
        raise ConfigError(f"the tokenizer of {name} cannot be used: {one_line(exc)}") from exc
    tokenizer.no_padding()
    return TextTokenizer(tokenizer, name)


def pair_arrays(batch: list[Encoding], pad: int) -> dict[str, Ids]:
    """Return what a cross-encoder takes of some pairs, each int32 (n, length)."""
    shape = (len(batch), max(len(encoding.ids) for encoding in batch))
    ids, types, mask = np.full(shape, pad, np.int32), np.zeros(shape, np.int32), np.zeros(shape, np.int32)
    for row, encoding in enumerate(batch):
        count = len(encoding.ids)
        ids[row, :count], types[row, :count], mask[row, :count] = token_row(encoding.ids), encoding.type_ids, 1
    return {"input_ids": ids, "token_type_ids": types, "attention_mask": mask}
