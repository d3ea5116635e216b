"""A cross-encoder on disk: a bundle whose one model reads a query and a document together and gives one number.

Its ``bundle.json`` says ``"kind": "reranker"``; beside it are ``reranker.onnx`` (``input_ids``, ``token_type_ids`` and
``attention_mask`` int32 [N, L] to ``logit`` float32 [N, 1]), its lower precisions, and ``tokenizer.json``.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, cast

import numpy as np
from numpy.typing import NDArray
from tokenizers import Encoding, Tokenizer

from vlmsearch._util.files import expand_home, is_path
from vlmsearch._util.json_table import PLAIN_NAME, JsonTable
from vlmsearch.errors import ConfigError, VlmsearchError, one_line
from vlmsearch.models.bundle import (
    FORMAT,
    RERANKER,
    BundleFile,
    DamagedBundleWarning,
    build_named,
    built_folder,
    built_folders,
    bundle_file,
    bundle_name,
    read_file,
    recipe_names,
)
from vlmsearch.models.inputs import Ids
from vlmsearch.models.locations import ELSEWHERE, check_location, is_hub_name
from vlmsearch.models.tokenizers import read_tokenizer, token_row

RerankerPrecision = Literal["fp32", "int8"]
PRECISIONS: tuple[RerankerPrecision, ...] = ("fp32", "int8")
_MOST_TOKENS, _MOST_ID = 2**20, 2**31 - 1
_MOST_SCALE = 1e3


@dataclass(frozen=True)
class PlattScaling:
    """How a model's number becomes a probability: sigmoid(``scale`` * number + ``shift``) (Platt, 1999)."""

    scale: float
    shift: float

    def probabilities(self, logits: NDArray[np.floating]) -> NDArray[np.float64]:
        """Return the probabilities of numbers of any shape."""
        found: NDArray[np.float64] = 1 / (1 + np.exp(-(self.scale * logits.astype(np.float64) + self.shift)))
        return found


@dataclass(frozen=True)
class RerankerBundle:
    """One opened bundle of a cross-encoder; its model is still on disk.

    ``max_tokens`` is how many tokens it reads of a query and a document together, ``pad`` what shorter ones are filled
    up with. ``quantisation``, ``forced`` and ``measured`` are as those of `vlmsearch.models.bundle.Bundle`.
    """

    folder: Path
    name: str
    source: str
    revision: str
    licence: str
    fingerprint: str
    max_tokens: int
    pad: int
    calibration: PlattScaling
    files: Mapping[str, BundleFile]
    quantisation: Mapping[str, Mapping[str, object]]
    forced: tuple[str, ...]
    measured: Mapping[str, object]

    @property
    def precisions(self) -> list[RerankerPrecision]:
        """Return the precisions that it is there in."""
        return [precision for precision in PRECISIONS if reranker_file(precision) in self.files]

    def model(self, precision: RerankerPrecision) -> bytes:
        """Return the ONNX model, checked; ConfigError names the precisions there are."""
        name = reranker_file(precision)
        if name not in self.files:
            raise ConfigError(f"{self.name} has no precision {precision!r}; it has {', '.join(self.precisions)}")
        return self.read(name)

    def read(self, name: str) -> bytes:
        """Return one file, checked against its SHA-256."""
        return read_file(self.folder / name, self.files[name])


def reranker_file(precision: RerankerPrecision) -> str:
    """Return the file name of one precision."""
    return "reranker.onnx" if precision == "fp32" else f"reranker.{precision}.onnx"


def find_reranker(location: str) -> RerankerBundle:
    """Return the bundle of a name, a model of the hub or a folder.

    One that is not here yet is built once, as encoders are.
    """
    if is_path(location):
        return open_reranker_bundle(expand_home(location))
    name = bundle_name(location, kind=RERANKER)
    folder = built_folder(name) if PLAIN_NAME.fullmatch(name) else None
    if folder is not None:
        return _open_named(folder, name)
    check_location(location)
    known = recipe_names(RERANKER)
    if not is_hub_name(location) and location not in known:
        raise ConfigError(f"no re-ranker {location!r}; there are {', '.join(known)}, {ELSEWHERE}")
    return cast("RerankerBundle", build_named(location, RERANKER))


def built_rerankers() -> list[RerankerBundle]:
    """Return every re-ranker that is built, by name.

    One that cannot be opened is left out, with a DamagedBundleWarning.
    """
    found: dict[str, RerankerBundle] = {}
    for name, folder in built_folders(RERANKER):
        try:
            found[name] = _open_named(folder, name)
        except VlmsearchError as exc:
            warnings.warn(str(exc), DamagedBundleWarning, stacklevel=2)
    return [found[name] for name in sorted(found)]


def _open_named(folder: Path, name: str) -> RerankerBundle:
    bundle = open_reranker_bundle(folder)
    if bundle.name != name:
        raise ConfigError(f"{folder} holds a bundle called {bundle.name}, which {name} is not: remove that folder")
    return bundle


def open_reranker_bundle(folder: Path) -> RerankerBundle:
    """Read ``bundle.json`` and check all of it.

    ModelUnavailableError where there is none, ConfigError where it is of another kind or format or anything in it is
    not as `vlmsearch build` writes it.
    """
    given = JsonTable.read(folder / "bundle.json", format=FORMAT)
    if "kind" not in given or given.string("kind") != RERANKER:
        raise ConfigError(f"{folder} holds an encoder, not a re-ranker; there are {', '.join(recipe_names(RERANKER))}")
    name = given.string("name", PLAIN_NAME)
    files, stories, text = given.table("files", PLAIN_NAME), given.table("quantisation"), given.table("text")
    fitted = given.table("calibration")
    return RerankerBundle(
        folder=folder,
        name=name,
        source=given.string("source"),
        revision=given.string("revision"),
        licence=given.string("licence"),
        fingerprint=given.string("fingerprint", re.compile(rf"{re.escape(name)}:[0-9a-f]+")),
        max_tokens=text.whole("max_tokens", 8, _MOST_TOKENS),
        pad=text.whole("pad", 0, _MOST_ID),
        calibration=PlattScaling(
            fitted.number("scale", 0, _MOST_SCALE), fitted.number("shift", -_MOST_SCALE, _MOST_SCALE)
        ),
        files={file: bundle_file(files.table(file)) for file in files},
        quantisation={file: stories.table(file).plain() for file in stories},
        forced=given.strings("forced"),
        measured=given.table("measured").plain(),
    )


def pair_tokenizer(data: bytes, name: str, max_tokens: int) -> Tokenizer:
    """Return a tokenizer of pairs that cuts the longer text first, as sentence-transformers' CrossEncoder does."""
    tokenizer = read_tokenizer(data, name)
    try:
        tokenizer.enable_truncation(max_tokens, strategy="longest_first")
    except Exception as exc:  # the library raises nothing more particular
        raise ConfigError(f"the tokenizer of {name} cannot be used: {one_line(exc)}") from exc
    tokenizer.no_padding()
    return tokenizer


def pair_arrays(batch: list[Encoding], pad: int) -> dict[str, Ids]:
    """Return what a cross-encoder takes of some pairs, each int32 (n, length)."""
    shape = (len(batch), max(len(encoding.ids) for encoding in batch))
    ids, types, mask = np.full(shape, pad, np.int32), np.zeros(shape, np.int32), np.zeros(shape, np.int32)
    for row, encoding in enumerate(batch):
        count = len(encoding.ids)
        ids[row, :count], types[row, :count], mask[row, :count] = token_row(encoding.ids), encoding.type_ids, 1
    return {"input_ids": ids, "token_type_ids": types, "attention_mask": mask}
