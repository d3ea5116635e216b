"""Samples as a model takes them, and running a model on them."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from vlmsearch._util.machine import available_cores
from vlmsearch._util.ort import ort
from vlmsearch.errors import BackendError, ConfigError, InvalidInputError
from vlmsearch.media.preprocess import Preprocess
from vlmsearch.models.bundle import TextInput
from vlmsearch.models.inputs import Pixels, pad_texts, to_pixels, token_arrays, token_rows
from vlmsearch.models.mapped import MappedModel, map_model
from vlmsearch.models.reranker import pair_arrays
from vlmsearch.models.session import session_file
from vlmsearch.models.tokenizers import TextTokenizer
from vlmsearch.types import ImageSource, Vectors

Feed = Mapping[str, NDArray[np.generic]]
BATCH = 16
_MIN_PICTURES = 8


@dataclass(frozen=True)
class Feeds:
    """Batches of one tower's inputs; row by row, ``order`` says which sample it is."""

    batches: tuple[Feed, ...]
    order: NDArray[np.intp]

    def some(self, count: int) -> tuple[Feeds, NDArray[np.intp]]:
        """Return batches from all over, and which samples they hold, ascending.

        These are ``count`` samples or a few more.
        """
        ends = np.cumsum([len(next(iter(batch.values()))) for batch in self.batches])
        number = min(-(-count * len(ends) // int(ends[-1])), len(ends))
        chosen = np.unique(np.linspace(0, len(ends) - 1, number).astype(int))
        starts = np.concatenate([[0], ends])
        items = np.concatenate([self.order[starts[i] : ends[i]] for i in chosen])
        return Feeds(tuple(self.batches[i] for i in chosen), np.argsort(np.argsort(items))), np.sort(items)


def image_feeds(pictures: Sequence[ImageSource], preprocess: Preprocess) -> Feeds:
    """Pixels of pictures, in order; damaged ones are left out. ConfigError where hardly any is left."""
    pixels, reason = [], ""
    for picture in pictures:
        try:
            pixels.append(to_pixels(picture, preprocess))
        except InvalidInputError as exc:
            reason = str(exc)
    if len(pixels) < min(_MIN_PICTURES, len(pictures)):
        raise ConfigError(f"only {len(pixels)} of {len(pictures)} calibration images can be used: {reason}")
    return pixel_feeds(np.stack(pixels))


def pixel_feeds(pixels: Pixels, batch: int = BATCH) -> Feeds:
    """Pixels in batches."""
    starts = range(0, len(pixels), batch)
    return Feeds(tuple({"pixels": pixels[i : i + batch]} for i in starts), np.arange(len(pixels)))


def text_feeds(texts: Sequence[str], form: TextInput, tokenizer: TextTokenizer, batch: int = BATCH) -> Feeds:
    """Token ids of texts, cut where they are too long, shortest first.

    Where queries and documents have different prompts, every other text is taken for a query.
    """
    documents = token_rows(texts, form, tokenizer, "document")
    queries = token_rows(texts, form, tokenizer, "query") if form.query != form.document else documents
    rows = [(queries if i % 2 else documents)[i] for i in range(len(texts))]
    order = np.array(sorted(range(len(rows)), key=lambda i: len(rows[i])), np.intp)
    batches = []
    for start in range(0, len(rows), batch):
        ids, mask = token_arrays([rows[i] for i in order[start : start + batch]], form)
        batches.append({"input_ids": ids, "attention_mask": mask})
    return Feeds(tuple(batches), order)


def pair_feeds(pairs: Sequence[tuple[str, str]], tokenizer: TextTokenizer, pad: int, batch: int = BATCH) -> Feeds:
    """Token ids of pairs, shortest first."""
    encodings = tokenizer.pairs(pairs)
    order = np.array(sorted(range(len(encodings)), key=lambda i: len(encodings[i].ids)), np.intp)
    starts = range(0, len(order), batch)
    return Feeds(tuple(pair_arrays([encodings[i] for i in order[s : s + batch]], pad) for s in starts), order)


def padded_feeds(feeds: Feeds, form: TextInput) -> Feeds:
    """Texts in the lengths in which engines get them."""
    batches = []
    for batch in feeds.batches:
        ids, mask = (batch[name].astype(np.int32) for name in ("input_ids", "attention_mask"))
        longer, seen = pad_texts(ids, mask, form)
        batches.append({"input_ids": longer, "attention_mask": seen})
    return Feeds(tuple(batches), feeds.order)


Model = bytes | Path | MappedModel
"""A model: its file in memory or on the disk, or one whose large tensors are on the disk."""


def open_session(model: Model, threads: int | None = None) -> ort.InferenceSession:
    """Return a model on ONNX Runtime, on all cores this process may use or on ``threads``.

    What is between QuantizeLinear and DequantizeLinear is computed in float32, as TensorRT means it: integers of a
    processor without VNNI overflow there. Of a file, large tensors stay on the disk.
    """
    options = ort.SessionOptions()
    options.add_session_config_entry("session.disable_quant_qdq", "1")
    options.intra_op_num_threads = threads or available_cores()
    options.log_severity_level = 3
    given = map_model(model) if isinstance(model, Path) else model
    try:
        return ort.InferenceSession(session_file(options, given), options, providers=["CPUExecutionProvider"])
    except Exception as exc:
        raise BackendError(f"ONNX Runtime cannot load what was built: {exc}") from exc


def run(model: Model, feeds: Feeds) -> tuple[Vectors, float]:
    """Return a model's output for all samples, and the samples a second.

    Rows are in the order of the samples.
    """
    session = open_session(model)
    session.run(None, {name: array[:1] for name, array in feeds.batches[0].items()})
    begun = time.perf_counter()
    rows = np.concatenate([session.run(None, batch)[0] for batch in feeds.batches])
    rate = len(rows) / (time.perf_counter() - begun)
    vectors = np.empty_like(rows)
    vectors[feeds.order] = rows
    return vectors, rate


def row_cosines(vectors: Vectors, reference: Vectors) -> NDArray[np.float32]:
    """Return the cosine of each unit vector with its row of ``reference``.

    It is -1 for a row that is not a number.
    """
    cosines: NDArray[np.float32] = np.nan_to_num((vectors * reference).sum(axis=1), nan=-1.0)
    return cosines
