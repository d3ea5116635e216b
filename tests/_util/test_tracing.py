"""Stages and operations: who is told of them, and that they cost nothing where nobody is."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
import timeit
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from unittest.mock import Mock

import pytest
from opentelemetry import trace
from opentelemetry.trace import SpanKind, StatusCode
from vlmsearch_mocks import MockEncoder, MockReranker

from tests.support.openai_server import OpenAIServer
from tests.support.scripted_triton import serve_script
from tests.support.spans import Spans, trace_of
from vlmsearch import BackendError, Document, Pipeline
from vlmsearch._util import tracing
from vlmsearch._util.threads import Workers
from vlmsearch._util.tracing import StageTiming, listen, operation, stage, staged, trace_headers, trace_id
from vlmsearch.demo.scenes import make_scene
from vlmsearch.encoders.batching import BatchingEncoder
from vlmsearch.registry import open_encoder
from vlmsearch.stores.chroma.connection import Address, ChromaConnection
from vlmsearch.types import Role, Vectors

LATE = """
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from vlmsearch import Document, Pipeline
with Pipeline.open(encoder="mock:", store="mock:") as pipeline:
    pipeline.add(Document("a", text="a dog"))
    spans = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(spans))
    trace.set_tracer_provider(provider)
    pipeline.search("dog")
names = {span.name for span in spans.get_finished_spans()}
scopes = {span.instrumentation_scope.name for span in spans.get_finished_spans()}
print("search" in names, "index" in names, scopes)
"""

UNSET = """
from vlmsearch._util.tracing import listen, operation, stage, staged, trace_headers, trace_id
stages = []
listen(lambda timing: stages.append((timing.operation, timing.stage)))
with operation("POST", carrier={"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}):
    with stage("encode") as span:
        span.set_attribute("vlmsearch.count", 1)
    assert list(staged("generate", iter("ab"))) == ["a", "b"]
    assert (trace_headers(), trace_id()) == ({}, "")
print(stages)
"""


@pytest.fixture
def heard() -> Iterator[list[StageTiming]]:
    found: list[StageTiming] = []
    stop = listen(found.append)
    yield found
    stop()


@pytest.fixture
def pipeline() -> Iterator[Pipeline]:
    with Pipeline.open(encoder="mock:", store="mock:") as opened:
        opened.add(Document(str(n), text=f"dog {n}", metadata={"n": n}) for n in range(3))
        yield opened


def test_a_provider_may_be_set_after_a_pipeline_was_used() -> None:
    done = subprocess.run([sys.executable, "-c", LATE], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "True False {'vlmsearch'}"


def test_a_wrong_setting_does_no_harm_where_no_provider_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_PROPAGATORS", "absent")
    done = subprocess.run([sys.executable, "-c", UNSET], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[('POST', 'encode'), ('POST', 'generate')]"


def test_a_stage_that_nobody_listens_to_is_always_the_same_object(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracing, "_listeners", ())  # a service of another test may run
    assert stage("encode") is stage("store") is tracing.querying("sqlite:x", "get") is tracing.encoding("x", "text", 1)
    assert trace_headers() == {}
    assert trace_id() == ""


def test_a_listener_hears_every_stage_of_a_search(pipeline: Pipeline, heard: list[StageTiming], spans: Spans) -> None:
    pipeline.search("dog 1", rerank=MockReranker())
    stages = [measured.stage for measured in heard]
    assert stages[0] == "encode"
    assert stages[-1] == "rerank"
    assert set(stages) == {"encode", "store", "fuse", "rerank"}
    assert {measured.operation for measured in heard} == {"search"}
    assert all(measured.seconds >= 0 and not measured.error for measured in heard)
    calls = {span.name for span in spans.all if span.name.startswith("store")}
    assert calls == {"store search", "store fields", "store get"}


def test_a_listener_is_told_of_the_stages_of_indexing(heard: list[StageTiming], spans: Spans) -> None:
    with Pipeline.open(encoder="onnx:demo", store="mock:") as pipeline:
        pipeline.add(Document("a", image=make_scene(1).draw(64)))
        pipeline.search(image=make_scene(1).draw(64))
    by_operation = {(measured.operation, measured.stage) for measured in heard}
    assert {("index", each) for each in ("decode", "encode", "store")} <= by_operation
    assert {("search", each) for each in ("decode", "encode", "store", "fuse")} <= by_operation
    [upsert] = spans.named("store upsert")
    assert upsert.attributes is not None
    assert upsert.attributes["db.operation.batch.size"] == 1
    assert upsert.attributes["db.system.name"] == "mock"


def test_an_answer_is_a_stage_whether_it_streams_or_not(pipeline: Pipeline, heard: list[StageTiming]) -> None:
    pipeline.ask("Which dog?")
    assert [each.operation for each in heard if each.stage == "generate"] == ["ask"]
    with pipeline.ask("Which dog?", stream=True) as parts:
        assert [each.stage for each in heard].count("generate") == 1, "it has not begun"
        parts.answer()
    assert [each.operation for each in heard if each.stage == "generate"] == ["ask", "ask"]


def test_a_stage_that_fails_says_with_what(heard: list[StageTiming], spans: Spans) -> None:
    with pytest.raises(BackendError), operation("search"), stage("encode"):
        raise BackendError("about a secret picture")
    assert heard[0].error == "BackendError"
    for span in spans.all:
        assert span.status.status_code is StatusCode.ERROR
        assert span.attributes is not None
        assert span.attributes["error.type"] == "BackendError"
        assert "secret" not in span.to_json()


def test_listening_ends(heard: list[StageTiming]) -> None:
    others: list[StageTiming] = []
    stop = listen(others.append)
    with stage("fuse"):
        pass
    stop()
    with stage("fuse"):
        pass
    assert (len(others), len(heard)) == (1, 2)


def test_a_stream_that_is_closed_early_has_not_failed(heard: list[StageTiming], spans: Spans) -> None:
    closed = threading.Event()

    def pieces() -> Iterator[str]:
        try:
            yield "one"
            yield "two"
        finally:
            closed.set()

    with operation("ask"):
        stream = staged("generate", pieces())
    assert next(stream) == "one"
    assert trace_id() == "", "between the pieces the stage is not current"
    stream.close()  # type: ignore[attr-defined]
    assert closed.is_set()
    assert [each.error for each in heard] == [""]
    assert spans.parent(spans.named("generate")[0]) == "ask"


def test_the_spans_of_a_search_are_one_trace(pipeline: Pipeline, spans: Spans) -> None:
    pipeline.search("dog 1")
    assert len({trace_of(span) for span in spans.all}) == 1
    assert {spans.parent(span) for span in spans.all if span.name != "search"} == {"search"}
    [encoded] = spans.named("encode text")
    assert encoded.attributes is not None
    assert encoded.attributes["gen_ai.operation.name"] == "embeddings"
    assert encoded.attributes["gen_ai.request.model"] == pipeline.encoder.fingerprint
    assert all("dog" not in span.to_json() for span in spans.all), "no contents"


def test_the_threads_of_an_index_run_are_in_its_trace(pipeline: Pipeline, spans: Spans) -> None:
    pipeline.add(Document(f"new {n}", text=f"cat {n}") for n in range(100))
    names = {span.name for span in spans.all}
    assert {"index", "decode", "encode documents", "store upsert", "store stamps"} <= names
    assert {spans.parent(span) for span in spans.all if span.name != "index"} == {"index"}


def test_a_request_goes_on_with_the_trace_of_its_caller(spans: Spans) -> None:
    caller = "0af7651916cd43dd8448eb211c80319c"
    with operation("POST", carrier={"traceparent": f"00-{caller}-b7ad6b7169203331-01"}) as span:
        assert span is not None
        span.update_name("POST /search")
        span.set_attribute("http.route", "/search")
        assert trace_id() == caller
        assert trace_headers()["traceparent"].startswith(f"00-{caller}-")
    [served] = spans.named("POST /search")
    assert (trace_of(served), served.kind) == (caller, SpanKind.SERVER)


def test_workers_have_the_trace_of_whoever_submits(spans: Spans) -> None:
    workers = Workers(1, name="test", owner="the test")
    with operation("search"):
        here = trace_id()
        assert workers.submit(trace_id).result() == here != ""
    workers.close()


def test_triton_is_told_the_trace(spans: Spans) -> None:
    with serve_script() as place, open_encoder(f"triton:{place.location}") as encoder:
        with stage("encode"):
            here = trace_id()
            encoder.encode_texts(["a dog"])
        assert [each["traceparent"].split("-")[1] for each in place.scripted.headers] == [here]
        encoder.encode_texts(["a dog"])
        assert "traceparent" not in place.scripted.headers[-1]


class GatedEncoder(MockEncoder):
    """It encodes when it is let to, and notes the trace that a server would be told."""

    def __init__(self) -> None:
        super().__init__()
        self.entered, self.gate = threading.Event(), threading.Event()
        self.told: list[str] = []

    def encode_texts(self, texts: Sequence[str], *, role: Role = "document") -> dict[str, Vectors]:
        self.told.append(trace_headers()["traceparent"].split("-")[1])
        self.entered.set()
        assert self.gate.wait(60)
        return super().encode_texts(texts, role=role)


def test_a_batch_is_in_the_trace_of_one_request_and_linked_to_the_others(spans: Spans) -> None:
    gated = GatedEncoder()

    def ask(text: str) -> str:
        with operation("search"):
            encoder.encode_texts([text], role="query")
            return trace_id()

    with BatchingEncoder(gated, delay=0.0) as encoder, ThreadPoolExecutor(3) as threads:
        first = threads.submit(ask, "one")
        assert gated.entered.wait(60)
        others = [threads.submit(ask, text) for text in ("two", "three")]
        while encoder.stats().waiting < 2:
            time.sleep(0.01)
        gated.gate.set()
        traces = {each.result() for each in others}
        alone, together = spans.named("batch")
    assert trace_of(alone) == first.result() == gated.told[0]
    assert not alone.links
    assert {trace_of(together)} | {trace.format_trace_id(link.context.trace_id) for link in together.links} == traces
    assert len(traces) == 2
    assert gated.told[1] == trace_of(together)
    assert spans.parent(together) == "search"


def test_a_server_with_openais_interface_is_told_the_trace(pipeline: Pipeline, spans: Spans) -> None:
    with (
        OpenAIServer() as server,
        Pipeline.open(encoder="mock:", store="mock:", generator=f"openai:{server.url}?model=tiny") as asked,
    ):
        asked.add(Document("a", text="a red star"))
        asked.ask("Which star?")
        [ask] = spans.named("ask")
        assert server.script.headers[-1]["traceparent"].split("-")[1] == trace_of(ask)


def test_chroma_is_told_the_trace(chroma_address: str, spans: Spans) -> None:
    host, _, port = chroma_address.partition(":")
    connection = ChromaConnection(Address(host, int(port), "traced"), ssl=False, timeout=10, retries=0)
    sent: list[str] = []
    try:
        session = connection._server()._session  # type: ignore[attr-defined]
        session.event_hooks["response"].append(lambda answer: sent.append(answer.request.headers.get("traceparent")))
        with operation("search"):
            here = trace_id()
            connection.run("look", lambda server: server.heartbeat())
        assert [each.split("-")[1] for each in sent] == [here]
    finally:
        connection.close()


def test_silent_stages_take_less_than_a_hundredth_of_a_search(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracing, "_listeners", ())
    tracer = Mock(start_span=Mock(return_value=trace.INVALID_SPAN))
    with Pipeline.open(encoder="mock:", store=f"sqlite:{tmp_path}/index") as pipeline:
        pipeline.add(Document(str(n), text=f"dog {n}") for n in range(500))
        with monkeypatch.context() as patched:
            patched.setattr(tracing, "_tracer", lambda: tracer)
            pipeline.search("dog 1")
        search = min(timeit.repeat(lambda: pipeline.search("dog 1"), number=1, repeat=30))
    querying = partial(tracing.querying, "sqlite:index", "search", "clip/image")
    silent = min(timeit.repeat(lambda: querying().__enter__(), number=1000, repeat=10)) / 1000
    assert 3 < tracer.start_span.call_count < 30
    assert tracer.start_span.call_count * silent < search / 100
