"""What a Triton server says of itself: models, versions, queues, batches."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass

import tritonclient.grpc as triton
from rich.live import Live
from rich.table import Table
from tritonclient.utils import InferenceServerException

from vlmsearch._util.address import has_port
from vlmsearch._util.closable import Closable
from vlmsearch._util.console import make_console, make_table
from vlmsearch.errors import BackendError, BackendUnavailableError, ConfigError
from vlmsearch.triton.client.security import Security

_SECONDS = 5.0
_REFRESH = 2.0


@dataclass(frozen=True)
class ModelStatus:
    """One version of one model; counts are since the server was started, times are means in milliseconds.

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
    at: float

    def to_json(self) -> dict[str, object]:
        """Return as JSON has it."""
        return {"address": self.address, "version": self.version, "models": [model.to_json() for model in self.models]}


class ServerStatus(Closable):
    """A server to ask; BackendUnavailableError if it is not reached."""

    def __init__(self, url: str, *, tls: bool = False) -> None:
        self.address = url.removeprefix("triton:").removeprefix("//").partition("/")[0]
        if not has_port(self.address):
            raise ConfigError(f"a Triton server is triton://HOST:PORT, such as triton://127.0.0.1:8001, not {url!r}")
        security = Security.from_environment(tls=tls, host=self.address.rpartition(":")[0])
        self._security = security
        self._headers = dict(security.headers)
        self._client = triton.InferenceServerClient(
            self.address,
            ssl=security.tls,
            root_certificates=security.root,
            private_key=security.key,
            certificate_chain=security.certificate,
        )

    def read(self) -> Status:
        """Return the server now."""
        given = {"headers": self._headers, "client_timeout": _SECONDS}
        try:
            version = self._client.get_server_metadata(**given).version
            index = self._client.get_model_repository_index(**given).models
            statistics = self._client.get_inference_statistics(**given).model_stats
        except InferenceServerException as exc:
            lost = "UNAVAILABLE" in str(exc.status()) or "DEADLINE" in str(exc.status())
            kind = BackendUnavailableError if lost else BackendError
            raise kind(f"Triton at {self.address}: {self._security.redact(exc.message())}") from exc
        found = {(one.name, one.version): one for one in statistics}
        models = tuple(_model(one, found.get((one.name, one.version))) for one in index)
        return Status(self.address, version, models, time.monotonic())

    def close(self) -> None:
        """Close the connection."""
        self._client.close()


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
        batch_sizes=tuple((int(one.batch_size), int(one.compute_infer.count)) for one in statistics.batch_stats),
    )


def table(now: Status, before: Status | None = None) -> Table:
    """Return a table of the models; with an earlier status, of what happened in between."""
    seconds = now.at - before.at if before else 0.0
    title = f"Triton {now.version} at {now.address}" + (f", the last {seconds:.0f} s" if before else "")
    rows = []
    names = ("model", "version", "state", "requests", "failed", "items/s" if before else "items", "batch", "queue ms",
             "compute ms", "batch sizes")  # fmt: skip
    earlier = {(one.name, one.version): one for one in before.models} if before else {}
    for model in now.models:
        one = _since(model, earlier.get((model.name, model.version)))
        rate = f"{one.items / seconds:.1f}" if before and seconds else str(one.items)
        sizes = " ".join(f"{count}x{size}" for size, count in one.batch_sizes if count)
        cells = (one.name, one.version, f"{one.state} {one.reason}".strip(), str(one.requests), str(one.failures), rate)
        rows.append([*cells, f"{one.mean_batch:.1f}", f"{one.queue_ms:.2f}", f"{one.compute_ms:.2f}", sizes])
    return make_table(names, rows, left=("model", "state", "batch sizes"), title=title)


def _since(now: ModelStatus, before: ModelStatus | None) -> ModelStatus:
    """Return what was done between two moments; all of it if the server was restarted in between."""
    if before is None or before.requests > now.requests:
        return now
    requests = now.requests - before.requests
    counts = dict(before.batch_sizes)

    def mean(later: float, earlier: float) -> float:
        return max(later * now.requests - earlier * before.requests, 0.0) / max(requests, 1)

    return ModelStatus(
        name=now.name,
        version=now.version,
        state=now.state,
        reason=now.reason,
        requests=requests,
        failures=now.failures - before.failures,
        items=now.items - before.items,
        batches=now.batches - before.batches,
        queue_ms=mean(now.queue_ms, before.queue_ms),
        compute_ms=mean(now.compute_ms, before.compute_ms),
        batch_sizes=tuple((size, count - counts.get(size, 0)) for size, count in now.batch_sizes),
    )


def follow_server(server: ServerStatus) -> None:
    """Show a live table until Ctrl-C; a server that is away for a while is waited for."""
    before = server.read()
    with Live(table(before), console=make_console(), auto_refresh=False) as live:
        while True:
            time.sleep(_REFRESH)
            try:
                now = server.read()
            except BackendUnavailableError as exc:
                live.update(str(exc), refresh=True)
                continue
            live.update(table(now, before), refresh=True)
            before = now
