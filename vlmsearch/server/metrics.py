"""Metrics for Prometheus, at ``/metrics``.

Every label has few values: templates of routes instead of paths, and the indexes that the operator named.
"""

from __future__ import annotations

import threading
import time
from collections import Counter as Counts
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.gc_collector import GCCollector
from prometheus_client.platform_collector import PlatformCollector
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector

from vlmsearch import __version__
from vlmsearch._util.tracing import StageTiming, listen
from vlmsearch.encoders.batching import Batch
from vlmsearch.errors import VlmsearchError
from vlmsearch.server.service import Service

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_ITEMS = (1, 2, 4, 8, 16, 32, 64, 128)
_COUNT_EVERY = 15.0
"""Seconds after which indexes are counted again."""
_COUNT_FOR = 2.0
"""Seconds that a scrape waits for the stores. The next scrape has the counts of a slow store."""


class Metrics:
    """The metrics of a service.

    Args:
        service: The service.

    Example:
        >>> from vlmsearch.server.settings import IndexSettings, ServerSettings
        >>> with Service.open(ServerSettings(indexes={"notes": IndexSettings("mock:", "mock:")})) as service:
        ...     metrics = Metrics(service)
        ...     metrics.note_request("GET", "/healthz", 200, 0.01)
        ...     b'vlmsearch_index_documents{index="notes"} 0.0' in metrics.page()
        True
    """

    def __init__(self, service: Service) -> None:
        registry = self._registry = CollectorRegistry()
        for collector in (ProcessCollector, PlatformCollector, GCCollector):
            collector(registry=registry)
        counter, histogram = partial(Counter, registry=registry), partial(Histogram, registry=registry)
        Info("vlmsearch_build", "The version that runs.", registry=registry).info({"version": __version__})
        self._requests = counter(
            "vlmsearch_http_requests", "Requests that were answered.", ("method", "route", "status")
        )
        seconds = "vlmsearch_http_request_duration_seconds"
        help = "Time from the first byte of a request to the last of its answer."
        self._request_seconds = histogram(seconds, help, ("method", "route"), buckets=_SECONDS)
        in_progress = "vlmsearch_http_requests_in_progress"
        self.in_progress = Gauge(in_progress, "Requests that are being answered.", registry=registry)
        help = "Time of a stage of the work: decode, encode, store, fuse, rerank or generate."
        stage = ("operation", "stage")
        self._stage_seconds = histogram("vlmsearch_stage_duration_seconds", help, stage, buckets=_SECONDS)
        self._stage_failures = counter("vlmsearch_stage_failures", "Stages that failed.", (*stage, "error"))
        help = "Texts or images that were encoded together."
        self._batch_items = histogram("vlmsearch_batch_items", help, ("kind",), buckets=_ITEMS)
        help = "Requests whose items were encoded together."
        self._batch_requests = histogram("vlmsearch_batch_requests", help, ("kind",), buckets=_ITEMS)
        help = "Time that the encoder took for a batch."
        self._batch_seconds = histogram("vlmsearch_batch_duration_seconds", help, ("kind",), buckets=_SECONDS)
        self._service = service
        self._indexes = _Indexes(service)
        registry.register(self._indexes)
        registry.register(_Waiting(service))

    def note_request(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count one request that was answered.

        Args:
            method: Method.
            route: Template of the route.
            status: Status of the answer; 499 if the client went before.
            seconds: Duration.
        """
        self._requests.labels(method, route, str(status)).inc()
        self._request_seconds.labels(method, route).observe(seconds)

    def note_stage(self, measured: StageTiming) -> None:
        """Count one stage that has ended.

        Args:
            measured: Measurement of the stage.
        """
        self._stage_seconds.labels(measured.operation, measured.stage).observe(measured.seconds)
        if measured.error:
            self._stage_failures.labels(measured.operation, measured.stage, measured.error).inc()

    def note_batch(self, batch: Batch) -> None:
        """Count one batch that was encoded.

        Args:
            batch: Measurement of the batch.
        """
        self._batch_items.labels(batch.kind).observe(batch.items)
        self._batch_requests.labels(batch.kind).observe(batch.requests)
        self._batch_seconds.labels(batch.kind).observe(batch.seconds)

    def page(self) -> bytes:
        """Return all metrics in Prometheus's text format. It asks the stores: call it in a thread."""
        return generate_latest(self._registry)

    @contextmanager
    def counting(self) -> Iterator[None]:
        """Count the stages of the work and the batches while the ``with`` block lasts."""
        stop = listen(self.note_stage)
        self._service.on_batch.append(self.note_batch)
        try:
            yield
        finally:
            self._service.on_batch.remove(self.note_batch)
            stop()
            self._indexes.close()


class _Waiting(Collector):
    """The queues of threads and batches, and the jobs."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def collect(self) -> Iterable[Metric]:
        busy, waiting = self._service.threads.in_use
        yield GaugeMetricFamily("vlmsearch_threads_busy", "Threads that work for a request.", busy)
        yield GaugeMetricFamily("vlmsearch_threads_waiting", "Requests that wait for a thread.", waiting)
        help = "Jobs that are not over, and the last that are."
        jobs = GaugeMetricFamily("vlmsearch_jobs", help, labels=("kind", "state"))
        for labels, count in Counts((job.kind, job.state) for job in self._service.jobs.all()).items():
            jobs.add_metric(labels, count)
        yield jobs
        stats = {encoder.fingerprint: encoder.stats() for encoder in self._service.encoders.values()}
        requests = GaugeMetricFamily("vlmsearch_queue_requests", "Requests that wait for a batch.", labels=["encoder"])
        items = GaugeMetricFamily("vlmsearch_queue_items", "Texts and images that wait for one.", labels=["encoder"])
        refused = CounterMetricFamily("vlmsearch_queue_refused", "Requests without a batch.", labels=["encoder"])
        cancelled = CounterMetricFamily("vlmsearch_queue_cancelled", "Requests given up.", labels=["encoder"])
        for encoder, queue in stats.items():
            requests.add_metric([encoder], queue.waiting)
            items.add_metric([encoder], queue.waiting_items)
            refused.add_metric([encoder], queue.refused)
            cancelled.add_metric([encoder], queue.cancelled)
        yield from (requests, items, refused, cancelled)


class _Indexes(Collector):
    """The number of documents of each index. A store that does not answer holds no scrape up."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="vlmsearch-count")
        self._counting = threading.Lock()
        self._counted: dict[str, int | None] = {}
        self._at = -_COUNT_EVERY

    def collect(self) -> Iterable[Metric]:
        if self._counting.acquire(blocking=False):
            if time.monotonic() - self._at >= _COUNT_EVERY:
                done = threading.Event()
                self._worker.submit(self._count, done.set)
                done.wait(_COUNT_FOR)
            else:
                self._counting.release()
        documents = GaugeMetricFamily("vlmsearch_index_documents", "Documents in an index.", labels=["index"])
        up = GaugeMetricFamily("vlmsearch_index_up", "1 where the store of an index answers.", labels=["index"])
        for name, count in list(self._counted.items()):
            up.add_metric([name], float(count is not None))
            if count is not None:
                documents.add_metric([name], count)
        yield documents
        yield up

    def _count(self, done: Callable[[], None]) -> None:
        try:
            for name, index in self._service.indexes.items():
                try:
                    store = index.pipeline.store
                    self._counted[name] = len(store) if store.manifest() else 0
                except VlmsearchError:
                    self._counted[name] = None
            self._at = time.monotonic()
        finally:
            self._counting.release()
            done()

    def close(self) -> None:
        self._worker.shutdown(wait=False)
