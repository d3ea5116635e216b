"""What a Triton server says of itself: models, versions, queues, batches."""

from __future__ import annotations

from contextlib import closing
from dataclasses import asdict, dataclass

import tritonclient.grpc as triton
from rich.table import Table
from tritonclient.utils import InferenceServerException

from vlmsearch._util.address import has_port
from vlmsearch._util.console import make_table
from vlmsearch.errors import ConfigError
from vlmsearch.triton.client.connection import Connection

_SECONDS = 5.0


@dataclass(frozen=True)
class ModelStatus:
    """One version of one model.

    Counts are since the server was started, times are means in milliseconds.

    ``items`` were computed in ``batches``, which are by size in ``batch_sizes`` (where the model's backend counts
    them); ``queue_ms`` and ``compute_ms`` are per request.
    """

    name: str
    version: str
    state: str
    reason: str = ""
    requests: int = 0
    failures: int = 0
    items: int = 0
    batches: int = 0
    queue_ms: float = 0.0
    compute_ms: float = 0.0
    batch_sizes: tuple[tuple[int, int], ...] = ()

    @property
    def mean_batch(self) -> float:
        """Items a batch."""
        return self.items / self.batches if self.batches else 0.0

    def to_json(self) -> dict[str, object]:
        """Return as JSON has it."""
        return asdict(self) | {"queue_ms": round(self.queue_ms, 3), "compute_ms": round(self.compute_ms, 3)}


@dataclass(frozen=True)
class Status:
    """A server at one moment."""

    address: str
    version: str
    models: tuple[ModelStatus, ...]

    def to_json(self) -> dict[str, object]:
        """Return as JSON has it."""
        return {"address": self.address, "version": self.version, "models": [model.to_json() for model in self.models]}


def read_status(url: str, *, tls: bool = False) -> Status:
    """Return the status of a server; BackendUnavailableError if it is not reached."""
    address = url.removeprefix("triton:").removeprefix("//").partition("/")[0]
    if not has_port(address):
        raise ConfigError(f"a Triton server is triton://HOST:PORT, such as triton://127.0.0.1:8001, not {url!r}")
    with (
        Connection(address, timeout=_SECONDS, deadline=_SECONDS, tls=tls) as connection,
        closing(connection.new_client()) as client,
    ):
        given = {"headers": connection.headers, "client_timeout": _SECONDS}
        try:
            version = client.get_server_metadata(**given).version
            index = client.get_model_repository_index(**given).models
            statistics = client.get_inference_statistics(**given).model_stats
        except InferenceServerException as exc:
            raise connection.error(exc, "its models") from exc
    by_name = {(model.name, model.version): model for model in statistics}
    return Status(address, version, tuple(_model(model, by_name.get((model.name, model.version))) for model in index))


def _model(
    index: triton.service_pb2.RepositoryIndexResponse.ModelIndex, statistics: triton.service_pb2.ModelStatistics | None
) -> ModelStatus:
    if statistics is None:
        return ModelStatus(index.name, index.version, index.state or "NOT LOADED", index.reason)
    stats = statistics.inference_stats
    done = max(stats.success.count, 1)
    compute = stats.compute_input.ns + stats.compute_infer.ns + stats.compute_output.ns
    return ModelStatus(
        name=index.name,
        version=index.version,
        state=index.state,
        reason=index.reason,
        requests=stats.success.count,
        failures=stats.fail.count,
        items=statistics.inference_count,
        batches=statistics.execution_count,
        queue_ms=stats.queue.ns / done / 1e6,
        compute_ms=compute / done / 1e6,
        batch_sizes=tuple((int(batch.batch_size), int(batch.compute_infer.count)) for batch in statistics.batch_stats),
    )


def table(now: Status) -> Table:
    """Return a table of the models."""
    names = ("model", "version", "state", "requests", "failed", "items", "batch", "queue ms", "compute ms",
             "batch sizes")  # fmt: skip
    rows = []
    for model in now.models:
        sizes = " ".join(f"{count}x{size}" for size, count in model.batch_sizes if count)
        counts = (str(number) for number in (model.requests, model.failures, model.items))
        cells = (model.name, model.version, f"{model.state} {model.reason}".strip(), *counts)
        rows.append([*cells, f"{model.mean_batch:.1f}", f"{model.queue_ms:.2f}", f"{model.compute_ms:.2f}", sizes])
    title = f"Triton {now.version} at {now.address}"
    return make_table(names, rows, left=("model", "state", "batch sizes"), title=title)
