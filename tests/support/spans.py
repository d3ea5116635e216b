"""What an application's tracer provider is given."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from vlmsearch._util import tracing


class Spans:
    """The spans that have ended, in that order."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self._exporter))

    @property
    def all(self) -> tuple[ReadableSpan, ...]:
        return self._exporter.get_finished_spans()

    def named(self, name: str) -> list[ReadableSpan]:
        return [span for span in self.all if span.name == name]

    def wait_for(self, name: str) -> ReadableSpan:
        """The only span of a name; that of a request ends after its client has the answer."""
        end = time.monotonic() + 60
        while not self.named(name) and time.monotonic() < end:
            time.sleep(0.01)
        [span] = self.named(name)
        return span

    def parent(self, span: ReadableSpan) -> str:
        """The name of the span that this one is in; "" for none."""
        return next((each.name for each in self.all if span.parent and id_of(each) == span.parent.span_id), "")


def id_of(span: ReadableSpan) -> int:
    assert span.context is not None
    return int(span.context.span_id)


def trace_of(span: ReadableSpan) -> str:
    assert span.context is not None
    return trace.format_trace_id(span.context.trace_id)


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Iterator[Spans]:
    """The spans of a test; a process has one provider for good, so that it is put in its place for the test alone."""
    found = Spans()
    monkeypatch.setattr(tracing, "_tracer", lambda: found.provider.get_tracer("vlmsearch"))
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: found.provider)
    yield found
    found.provider.shutdown()
