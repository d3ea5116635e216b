"""Measurement of where the time of a call goes: the one place that spans and metrics come from.

An operation is a verb of the pipeline or a request of the service; the stages within it are `STAGES`. Both are spans
of OpenTelemetry where the application has set a tracer provider, and whoever called `listen` is told of every stage.
Where nobody listens, a stage is a look at two variables: OpenTelemetry is not even imported.

Names of attributes are those of OpenTelemetry's semantic conventions for databases (``db.*``) and generative models
(``gen_ai.*``). Where they have no name, it begins with ``vlmsearch.``. No attribute holds what a query, a document or
an answer says.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar, Union

if TYPE_CHECKING:
    from opentelemetry import trace as api

T = TypeVar("T")
Stage: TypeAlias = Literal["decode", "encode", "store", "fuse", "rerank", "generate"]
STAGES: tuple[Stage, ...] = ("decode", "encode", "store", "fuse", "rerank", "generate")
"""Reading and scaling images; their vectors and those of texts; the database; adding up what the fields say; reading
the first matches again; writing an answer."""
AttributeValue: TypeAlias = Union[str, int, float, bool, Sequence[str]]
Attributes: TypeAlias = Mapping[str, AttributeValue]
NO_ATTRIBUTES: Attributes = {}


@dataclass(frozen=True)
class StageTiming:
    """One stage that is over.

    Attributes:
        stage: Its name.
        operation: The verb or request that it was part of; "" for none.
        seconds: How long it took; of a stream, how long its pieces were waited for.
        error: The name of the exception that ended it; "" for none.
        attributes: Attributes of its span.
    """

    stage: Stage
    operation: str
    seconds: float
    error: str
    attributes: Attributes


Listener: TypeAlias = Callable[[StageTiming], None]
_listeners: tuple[Listener, ...] = ()
_listening = threading.Lock()
_operation: ContextVar[str] = ContextVar("vlmsearch_operation", default="")
_known: tuple[object, api.Tracer] | None = None
"""The application's tracer provider, and our tracer of it."""


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
    global _listeners  # noqa: PLW0603 - looked at in every stage, so it is one tuple
    with _listening:
        _listeners = (*_listeners, listener)

    def stop() -> None:
        global _listeners  # noqa: PLW0603
        with _listening:
            _listeners = tuple(known for known in _listeners if known is not listener)

    return stop


class Span:
    """One span of OpenTelemetry; without one, as where no tracer provider is set, it says nothing."""

    def __init__(self, span: api.Span | None) -> None:
        self._span = span
        self.error = ""

    def note(self, name: str, value: AttributeValue) -> None:
        """Add an attribute."""
        if self._span is not None:
            self._span.set_attribute(name, value)

    def rename(self, name: str) -> None:
        """Give the span the name that is known by now."""
        if self._span is not None:
            self._span.update_name(name)

    def fail(self, error: str) -> None:
        """Note that it failed although nothing is raised, and with what."""
        self.error = error

    def current(self) -> AbstractContextManager[object]:
        """Make it the current span in a ``with`` block."""
        if self._span is None:
            return nullcontext()
        from opentelemetry import trace

        return trace.use_span(self._span, record_exception=False, set_status_on_exception=False)

    def end(self) -> None:
        """End it, and say what ended it."""
        if self._span is not None:
            if self.error:
                from opentelemetry.trace import StatusCode

                self.note("error.type", self.error)
                self._span.set_status(StatusCode.ERROR)
            self._span.end()


Measured: TypeAlias = AbstractContextManager[Span]
_SILENCE: Measured = nullcontext(Span(None))
"""A stage without listeners."""


def _start(name: str, attributes: Attributes, **options: Any) -> Span:
    tracer = _tracer()
    return Span(None if tracer is None else tracer.start_span(name, attributes=attributes, **options))


@contextmanager
def _measured(span: Span, tell: Callable[[float, str], None] | None = None) -> Iterator[Span]:
    """Make a span the current one, end it, and tell how long it took and the error that ended it."""
    begun = time.perf_counter()
    try:
        with span.current():
            yield span
    except BaseException as exc:
        span.error = type(exc).__name__
        raise
    finally:
        seconds = time.perf_counter() - begun
        span.end()
        if tell:
            tell(seconds, span.error)


def _teller(stage: Stage, attributes: Attributes) -> Callable[[float, str], None]:
    """Return a function that tells the listeners of a stage of the current operation."""
    of = _operation.get()

    def tell(seconds: float, error: str) -> None:
        for listener in _listeners:
            listener(StageTiming(stage, of, seconds, error, attributes))

    return tell


def stage(name: Stage, attributes: Attributes = NO_ATTRIBUTES, *, what: str = "") -> Measured:
    """Measure one stage of the work, for as long as the ``with`` block lasts.

    Args:
        name: The stage.
        attributes: Attributes of the span, such as ``{"db.operation.name": "search"}``.
        what: A part of the span's name behind the stage.

    Example:
        >>> with stage("encode", {"gen_ai.operation.name": "embeddings"}) as span:
        ...     span.note("vlmsearch.count", 64)
    """
    if not _is_heard():
        return _SILENCE
    return _measured(_start(f"{name} {what}" if what else name, attributes), _teller(name, attributes))


def encoding(fingerprint: str, kind: str, count: int) -> Measured:
    """Measure one call of an encoder, with so many of a kind: ``text``, ``image`` or ``documents``."""
    if not _is_heard():
        return _SILENCE
    about: Attributes = {
        "gen_ai.operation.name": "embeddings",
        "gen_ai.request.model": fingerprint,
        "vlmsearch.count": count,
    }
    return stage("encode", about, what=kind)


def querying(store: str, call: str, field: object = "", *, count: int = 0) -> Measured:
    """Measure one call of a store: its method, the field that is searched (or ``words``), the records written."""
    if not _is_heard():
        return _SILENCE
    about: dict[str, AttributeValue] = {"db.system.name": store.partition(":")[0], "db.operation.name": call}
    about["vlmsearch.store"] = store
    if field:
        about["vlmsearch.field"] = str(field)
    if count:
        about["db.operation.batch.size"] = count
    return stage("store", about, what=call)


def operation(
    name: str, attributes: Attributes = NO_ATTRIBUTES, *, carrier: Mapping[str, str] | None = None
) -> Measured:
    """Make all stages in the ``with`` block parts of one verb or request.

    Args:
        name: The verb or the request, such as ``search``.
        attributes: Attributes of the span.
        carrier: The headers of the request that is served, in lower case, which may hold the caller's trace context;
            None for a verb.
    """
    return _operating(name, attributes, carrier) if _is_heard() else _SILENCE


@contextmanager
def _operating(name: str, attributes: Attributes, carrier: Mapping[str, str] | None) -> Iterator[Span]:
    options: dict[str, Any] = {}
    if carrier is not None and _tracer() is not None:
        from opentelemetry import propagate, trace

        options = {"context": propagate.extract(carrier), "kind": trace.SpanKind.SERVER}
    with _measured(_start(name, attributes, **options)) as span:
        before = _operation.set(name)
        try:
            yield span
        finally:
            _operation.reset(before)


def staged(name: Stage, pieces: Iterator[T], attributes: Attributes = NO_ATTRIBUTES) -> Iterator[T]:
    """Measure a stage from the first piece that is asked for to the last; to close it is to close ``pieces``."""
    if not _is_heard():
        return pieces
    options: dict[str, Any] = {}
    if _tracer() is not None:
        from opentelemetry import context

        options = {"context": context.get_current()}
    return _pieces(pieces, lambda: _start(name, attributes, **options), _teller(name, attributes))


def _pieces(pieces: Iterator[T], start: Callable[[], Span], tell: Callable[[float, str], None]) -> Iterator[T]:
    span, seconds = start(), 0.0
    try:
        while True:
            begun = time.perf_counter()
            try:
                with span.current():
                    piece = next(pieces)
            except StopIteration:
                return
            finally:
                seconds += time.perf_counter() - begun
            yield piece
    except GeneratorExit:  # whoever reads it has enough
        raise
    except BaseException as exc:
        span.error = type(exc).__name__
        raise
    finally:
        close = getattr(pieces, "close", None)
        if close:
            close()
        span.end()
        tell(seconds, span.error)


def waiting_span() -> api.Span | None:
    """Return the current span, for `together` in the thread that will do the work; None where nobody listens."""
    if _tracer() is None:
        return None
    from opentelemetry import trace

    current = trace.get_current_span()
    return current if current.get_span_context().is_valid else None


def together(name: str, attributes: Attributes, waiting: Sequence[api.Span | None]) -> Measured:
    """Make work that one thread does for several callers a span in the trace of the first, with links to the others.

    Args:
        name: Name of the work.
        attributes: Attributes of the span.
        waiting: The span of each caller, from `waiting_span`. Servers are told the trace of the first.
    """
    spans = [span for span in waiting if span is not None]
    if not spans or _tracer() is None:
        return _SILENCE
    from opentelemetry import trace

    links = [trace.Link(span.get_span_context()) for span in spans[1:]]
    return _measured(_start(name, attributes, context=trace.set_span_in_context(spans[0]), links=links))


def trace_headers() -> dict[str, str]:
    """Return the headers, such as ``traceparent``, that carry the current trace to a server; none where none is."""
    headers: dict[str, str] = {}
    if _tracer() is not None:
        from opentelemetry import propagate

        propagate.inject(headers)
    return headers


def trace_id() -> str:
    """Return the id of the current trace, 32 hexadecimal digits; "" where there is none."""
    current = waiting_span()
    return "" if current is None else f"{current.get_span_context().trace_id:032x}"


def _is_heard() -> bool:
    """Return whether anybody wants to know of a span or a stage."""
    return bool(_listeners) or _tracer() is not None


def _tracer() -> api.Tracer | None:
    """Our tracer of the application's provider; None where it has set none, and so surely where it imported nothing."""
    global _known  # noqa: PLW0603
    trace = sys.modules.get("opentelemetry.trace")
    if trace is None or not hasattr(trace, "use_span"):  # it is defined last: another thread imports it just now
        return None
    provider = trace.get_tracer_provider()
    if isinstance(provider, (trace.ProxyTracerProvider, trace.NoOpTracerProvider)):
        return None
    if _known is None or _known[0] is not provider:
        _known = provider, provider.get_tracer("vlmsearch", version("vlmsearch"))
    return _known[1]
