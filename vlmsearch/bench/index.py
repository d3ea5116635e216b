"""How much of the encoder's speed is left when documents are indexed."""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from vlmsearch.encoders.base import Encoder
from vlmsearch.errors import ConfigError
from vlmsearch.indexing.items import Sourced
from vlmsearch.indexing.sources import Paths
from vlmsearch.pipeline import Pipeline
from vlmsearch.registry import DEFAULT_STORE, open_encoder, open_store

_SCHEME = DEFAULT_STORE.partition(":")[0]


@dataclass(frozen=True)
class IndexSpeed:
    """Images per second of the encoder alone and of indexing, round by round."""

    images: int
    encoder: tuple[float, ...]
    index: tuple[float, ...]

    @property
    def ratio(self) -> float:
        """Return the median of the rounds' ratios: 1 where indexing costs nothing beside encoding."""
        return statistics.median(indexed / alone for indexed, alone in zip(self.index, self.encoder))


def measure_index(folder: Path, *, encoder: str, rounds: int) -> IndexSpeed:
    """Encode the images of ``folder`` from their files, then index them into the default store, in turns."""
    paths = [item.document.image for item in Paths([folder]) if isinstance(item, Sourced) and item.document.image]
    files = [path for path in paths if isinstance(path, Path)]
    if not files:
        raise ConfigError(f"{folder} holds no images")
    with open_encoder(encoder) as opened:
        opened.encode_images(files[:64])
        rates = [(_encode(opened, files), _index(opened, folder)) for _ in range(rounds)]
    alone, indexed = zip(*((len(files) / first, len(files) / second) for first, second in rates))
    return IndexSpeed(len(files), alone, indexed)


def _encode(encoder: Encoder, files: Sequence[Path]) -> float:
    started = time.perf_counter()
    encoder.encode_images(files)
    return time.perf_counter() - started


def _index(encoder: Encoder, folder: Path) -> float:
    with tempfile.TemporaryDirectory() as place, open_store(f"{_SCHEME}:{place}/index") as store:
        pipeline = Pipeline(encoder, store)
        pipeline.store.bind(encoder.fingerprint, encoder.spaces)
        started = time.perf_counter()
        pipeline.index([folder])
        return time.perf_counter() - started
