"""Measurement of where the time of a call goes: the one place that spans and metrics come from.

An operation is a verb of the pipeline or a request of the service; the stages within it are `STAGES`. Both are spans
of OpenTelemetry where the application has set a tracer provider, and whoever called `listen` is told of every stage.
Only the interface of OpenTelemetry is imported, once a stage may be heard of: whoever sets a provider has loaded it.
Without a provider all its spans are one object that does nothing.

Names of attributes are those of OpenTelemetry's semantic conventions for databases (``db.*``) and generative models
(``gen_ai.*``). Where they have no name, it begins with ``vlmsearch.``. No attribute holds what a query, a document or
an answer says.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache, partial
from typing import TYPE_CHECKING, Literal, TypeAlias, TypeVar

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.trace import Span, Tracer
    from opentelemetry.util.types import Attributes, AttributeValue

T = TypeVar("T")
Stage: TypeAlias = Literal["decode", "encode", "store", "fuse", "rerank", "generate"]
STAGES: tuple[Stage, ...] = ("decode", "encode", "store", "fuse", "rerank", "generate")
"""The stages of a request, in their order.

Images are read and scaled. They and texts become vectors. The database is asked. What the fields say is added up. The
first matches are read again. An answer is written.
"""


@dataclass(frozen=True)
class StageTiming:
    """One stage that is over.

    Attributes:
        stage: Its name.
        operation: The verb or request that it was part of; "" for none.
        seconds: How long it took; of a stream, how long its pieces were waited for.
        error: The name of the exception that ended it; "" for none.
    """

    stage: Stage
    operation: str
    seconds: float
    error: str


Listener: TypeAlias = Callable[[StageTiming], None]
Tell: TypeAlias = Callable[[float, str], None]
SpanContext: TypeAlias = AbstractContextManager["Span | None"]
_SILENCE: SpanContext = nullcontext()
"""A stage that nobody hears of."""
_listeners: list[Listener] = []
_operation: ContextVar[str] = ContextVar("vlmsearch_operation", default="")


def listen(listener: Listener) -> Callable[[], None]:
    """Have a function called with every stage that ends, in the thread where it ended.

    Args:
        listener: The function; it is quick and raises nothing.

    Returns:
        The function that ends it.

    Example:
        >>> stages = []
        >>> stop = listen(lambda measured: stages.append(measured.stage))
        >>> with stage("encode"):
        ...     pass
        >>> stop()
        >>> stages
        ['encode']
    """
    _listeners.append(listener)
    return partial(_listeners.remove, listener)


@cache
def _tracer() -> Tracer:
    """Return our tracer of the provider that the application sets, sooner or later."""
    from opentelemetry.trace import ProxyTracerProvider

    return ProxyTracerProvider().get_tracer("vlmsearch")


def _start(name: str, attributes: Attributes, kind: str = "INTERNAL", parent: Context | None = None) -> Span | None:
    """Start a span, unless nobody hears of it: whoever sets a provider has loaded OpenTelemetry."""
    if not _listeners and "opentelemetry.trace" not in sys.modules:
        return None
    from opentelemetry.trace import INVALID_SPAN, SpanKind

    span = _tracer().start_span(name, parent, SpanKind[kind], attributes)
    return None if span is INVALID_SPAN and not _listeners else span


def tell(stages: Iterable[StageTiming]) -> None:
    """Tell of stages of this operation that ended in another process."""
    for measured in stages:
        _tell(measured.stage, _operation.get(), measured.seconds, measured.error)


def fail(span: Span, error: str) -> None:
    """Note in a span that its work failed, and with what."""
    from opentelemetry.trace import StatusCode

    span.set_attribute("error.type", error)
    span.set_status(StatusCode.ERROR)


def _current(span: Span) -> SpanContext:
    """Make a span the current one in a ``with`` block."""
    from opentelemetry import trace

    if span is trace.INVALID_SPAN:
        return _SILENCE
    return trace.use_span(span, record_exception=False, set_status_on_exception=False)


@contextmanager
def _measured(span: Span, tell: Tell | None = None) -> Iterator[Span]:
    """Make a span the current one, end it, and tell its time and its error."""
    begun, error = time.perf_counter(), ""
    try:
        with _current(span):
            yield span
    except BaseException as exc:
        error = type(exc).__name__
        fail(span, error)
        raise
    finally:
        seconds = time.perf_counter() - begun
        span.end()
        if tell:
            tell(seconds, error)


def _tell(stage: Stage, operation: str, seconds: float, error: str) -> None:
    for listener in tuple(_listeners):
        listener(StageTiming(stage, operation, seconds, error))


def stage(name: Stage, attributes: Attributes = None, *, what: str = "") -> SpanContext:
    """Measure one stage of the work, for as long as the ``with`` block lasts.

    Args:
        name: The stage.
        attributes: Attributes of the span, such as ``{"db.operation.name": "search"}``.
        what: A part of the span's name behind the stage.

    Example:
        >>> with stage("encode", {"gen_ai.operation.name": "embeddings"}):
        ...     pass
    """
    span = _start(f"{name} {what}" if what else name, attributes)
    return _SILENCE if span is None else _measured(span, partial(_tell, name, _operation.get()))


def encoding(fingerprint: str, kind: str, count: int) -> SpanContext:
    """Measure one call of an encoder, with so many of a kind: ``text``, ``image`` or ``documents``."""
    about: Attributes = {
        "gen_ai.operation.name": "embeddings",
        "gen_ai.request.model": fingerprint,
        "vlmsearch.count": count,
    }
    return stage("encode", about, what=kind)


def querying(store: str, call: str, field: object = "", *, count: int = 0) -> SpanContext:
    """Measure one call of a store: its method, the field that is searched (or ``words``), the records written."""
    about: dict[str, AttributeValue] = {"db.system.name": store.partition(":")[0], "db.operation.name": call}
    about["vlmsearch.store"] = store
    if field:
        about["vlmsearch.field"] = str(field)
    if count:
        about["db.operation.batch.size"] = count
    return stage("store", about, what=call)


def operation(name: str, attributes: Attributes = None, *, carrier: Mapping[str, str] | None = None) -> SpanContext:
    """Make all stages in the ``with`` block parts of one verb or request.

    Args:
        name: The verb or the request, such as ``search``.
        attributes: Attributes of the span.
        carrier: The headers of the request that is served, in lower case, which may hold the caller's trace context;
            None for a verb.
    """
    parent, kind = None, "INTERNAL" if carrier is None else "SERVER"
    if carrier is not None and _is_traced():
        from opentelemetry import propagate

        parent = propagate.extract(carrier)
    span = _start(name, attributes, kind, parent)
    return _SILENCE if span is None else _operating(name, span)


@contextmanager
def _operating(name: str, span: Span) -> Iterator[Span]:
    with _measured(span):
        before = _operation.set(name)
        try:
            yield span
        finally:
            _operation.reset(before)


def staged(name: Stage, pieces: Iterator[T], attributes: Attributes = None) -> Iterator[T]:
    """Measure a stage from its first piece to its last. To close it is to close ``pieces``."""
    from opentelemetry import context

    start = partial(_tracer().start_span, name, context.get_current(), attributes=attributes)
    return _pieces(pieces, start, partial(_tell, name, _operation.get()))


def _pieces(pieces: Iterator[T], start: Callable[[], Span], tell: Tell) -> Iterator[T]:
    span, seconds, error = start(), 0.0, ""
    try:
        while True:
            begun = time.perf_counter()
            try:
                with _current(span):
                    piece = next(pieces)
            except StopIteration:
                return
            finally:
                seconds += time.perf_counter() - begun
            yield piece
    except GeneratorExit:  # whoever reads it has enough
        raise
    except BaseException as exc:
        error = type(exc).__name__
        fail(span, error)
        raise
    finally:
        close = getattr(pieces, "close", None)
        if close:
            close()
        span.end()
        tell(seconds, error)


def together(name: str, attributes: Attributes, waiting: Sequence[Span]) -> SpanContext:
    """Make work for several callers one span, in the trace of the first. It links to the others.

    Args:
        name: Name of the work.
        attributes: Attributes of the span.
        waiting: Span of each caller. Servers are told the trace of the first.
    """
    from opentelemetry.trace import INVALID_SPAN, Link, set_span_in_context

    spans = [span for span in waiting if span is not INVALID_SPAN]
    if not spans:
        return _SILENCE
    links = [Link(span.get_span_context()) for span in spans[1:]]
    return _measured(_tracer().start_span(name, set_span_in_context(spans[0]), attributes=attributes, links=links))


def trace_headers() -> dict[str, str]:
    """Return the headers, such as ``traceparent``, that carry the current trace to a server."""
    headers: dict[str, str] = {}
    if _is_traced():
        from opentelemetry import propagate

        propagate.inject(headers)
    return headers


def trace_id() -> str:
    """Return the id of the current trace, 32 hexadecimal digits; "" where there is none."""
    from opentelemetry import trace

    id = trace.get_current_span().get_span_context().trace_id
    return trace.format_trace_id(id) if id else ""


def _is_traced() -> bool:
    """Check whether the application has set a provider.

    `opentelemetry.propagate` is imported only then: the import fails where ``OTEL_PROPAGATORS`` names a package that is
    not installed.
    """
    from opentelemetry import trace

    return not isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider)
