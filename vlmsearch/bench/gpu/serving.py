"""The ensemble on a real Triton with engines, beside the same engines in this process."""

from __future__ import annotations

import os
import statistics
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from vlmsearch.bench.triton import Kind, TritonLevel, TritonLoad, in_process, median_level
from vlmsearch.encoders.base import Encoder
from vlmsearch.errors import ModelUnavailableError
from vlmsearch.models.bundle import Precision
from vlmsearch.triton.client.protocol import ENSEMBLE
from vlmsearch.triton.repository.options import Device, Queue, RepoOptions
from vlmsearch.triton.repository.writer import write_repository
from vlmsearch.triton.server.commands import Binary, Endpoints, on_path, server_command
from vlmsearch.triton.server.install import installed
from vlmsearch.triton.server.server import Server

_WARM_UP = 2.0


@dataclass(frozen=True)
class ServingRates:
    """What the server reached at each number of clients, and the encoder in this process in the same rounds."""

    kind: Kind
    items_per_request: int
    levels: tuple[TritonLevel, ...]
    in_process: float

    @property
    def best(self) -> TritonLevel:
        """The level with the most items a second."""
        return max(self.levels, key=lambda level: level.items_per_second)

    @property
    def share(self) -> float:
        """The best level's throughput, of that in this process."""
        return self.best.items_per_second / self.in_process

    def to_json(self) -> dict[str, object]:
        """As JSON has it."""
        return {
            "kind": self.kind,
            "items_per_request": self.items_per_request,
            "in_process_items_per_second": round(self.in_process, 1),
            "best": self.best.to_json(),
            "served_share": round(self.share, 3),
            "levels": [level.to_json() for level in self.levels],
        }


def find_binary() -> Binary:
    """The server in ``$TRITON_HOME``, on PATH or in the user's cache; ModelUnavailableError if there is none.

    The backends of ``$TRITON_HOME`` have the Python stub of the ``python3`` on PATH.
    """
    home = os.environ.get("TRITON_HOME")
    if home:
        place = Path(home)
        return Binary(str(place / "bin" / "tritonserver"), {}, place / "backends", place / "caches")
    found = on_path() or installed()
    if found is None:
        raise ModelUnavailableError("there is no Triton server: vlmsearch triton install, or name one in $TRITON_HOME")
    return found


def measure_serving(
    models: str,
    encoder: Encoder,
    data: Sequence[bytes],
    *,
    kind: Kind = "images",
    items: int = 32,
    concurrency: Sequence[int],
    seconds: float = 5.0,
    rounds: int = 1,
    max_batch_size: int = 128,
    precision: Precision | None = None,
    decode: Device = "cpu",
    instances: int = 1,
    ends: Endpoints | None = None,
) -> ServingRates:
    """The ensemble with the engines of ``models`` in Triton's Python backend, and ``encoder``, which has the same.

    ``data`` are encoded images or UTF-8 texts, sent ``items`` to a request; the server decodes on ``decode``.
    ModelUnavailableError where an engine or
    the server is not there.
    """
    where, binary = ends or Endpoints(http=18000, grpc=18001, metrics=18002), find_binary()
    with tempfile.TemporaryDirectory(prefix="vlmsearch-bench-") as folder:
        options = RepoOptions(
            runtime="tensorrt",
            decode=decode,
            instances=instances,
            max_batch_size=max_batch_size,
            queue=Queue(delay_us=500),
            precision=precision,
        )
        made = write_repository(models, Path(folder) / "repository", options)
        if made.missing:
            raise ModelUnavailableError(f"engines are missing: {'; '.join(made.commands)}")
        command = server_command(binary, made.folder, where)
        with Server(command, where, environment=binary.environment).start() as server:
            server.wait_ready()
            with TritonLoad(f"//{where.reach}:{where.grpc}/{ENSEMBLE}", kind, data, items=items) as load:
                return _measure(load, encoder, kind, data, items, concurrency, seconds=seconds, rounds=rounds)


def _measure(
    load: TritonLoad,
    encoder: Encoder,
    kind: Kind,
    data: Sequence[bytes],
    items: int,
    concurrency: Sequence[int],
    *,
    seconds: float,
    rounds: int,
) -> ServingRates:
    """All levels and the encoder, in turns; medians over rounds."""
    found: dict[int, list[TritonLevel]] = {number: [] for number in concurrency}
    alone = []
    load.run(max(concurrency), _WARM_UP)
    in_process(encoder, kind, data, 0.5)
    for _ in range(rounds):
        alone.append(in_process(encoder, kind, data, seconds))
        for number in concurrency:
            found[number].append(load.run(number, seconds))
    levels = tuple(median_level(found[number]) for number in concurrency)
    return ServingRates(kind, items, levels, statistics.median(alone))
