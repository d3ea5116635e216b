"""Where the time of a call goes: the one place that spans and metrics come from.

An operation is a verb of the pipeline or a request of the service; the stages within it are `STAGES`. Both are spans
of OpenTelemetry where the application has set a tracer provider, and whoever called `listen` is told of every stage.
Where nobody listens, a stage is a look at two variables: OpenTelemetry is not even imported.

Names of attributes are those of OpenTelemetry's semantic conventions for databases (``db.*``) and generative models
(``gen_ai.*``), and ``vlmsearch.*`` for what they have no name for. No attribute holds what a query, a document or an
answer says.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from importlib.metadata import version
from types import TracebackType
from typing import TYPE_CHECKING, Literal, TypeAlias, TypeVar, Union

from typing_extensions import Self

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.trace import Link, Span, Tracer

T = TypeVar("T")
Stage: TypeAlias = Literal["decode", "encode", "store", "fuse", "rerank", "generate"]
STAGES: tuple[Stage, ...] = ("decode", "encode", "store", "fuse", "rerank", "generate")
"""Reading and scaling images; their vectors and those of texts; the database; adding up what the legs say; reading
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
        attributes: What else is known of it.
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
_known: tuple[object, Tracer] | None = None
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
            _listeners = tuple(each for each in _listeners if each is not listener)

    return stop


class _Silence:
    """A stage that nobody listens to."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *failure: object) -> None:
        pass

    def note(self, name: str, value: AttributeValue) -> None:
        """Add an attribute."""


class _Span:
    """An operation, or the OpenTelemetry side of a stage: ended once, and the current span meanwhile."""

    def __init__(self, name: str, attributes: Attributes, tracer: Tracer | None) -> None:
        self._name, self._attributes, self._tracer = name, attributes, tracer
        self._span: Span | None = None

    def start(self, parent: Context | None = None, links: Sequence[Link] = (), *, serves: bool = False) -> None:
        if self._tracer is not None:
            from opentelemetry.trace import SpanKind

            kind = SpanKind.SERVER if serves else SpanKind.INTERNAL
            self._span = self._tracer.start_span(self._name, parent, kind, attributes=self._attributes, links=links)

    def attach(self) -> object | None:
        """Make it the current span of this context; `detach` takes what this returns."""
        if self._span is None:
            return None
        from opentelemetry import context, trace

        return context.attach(trace.set_span_in_context(self._span))

    @staticmethod
    def detach(token: object | None) -> None:
        if token is not None:
            from opentelemetry import context

            context.detach(token)  # type: ignore[arg-type]

    def note(self, name: str, value: AttributeValue) -> None:
        """Add an attribute."""
        if self._span is not None:
            self._span.set_attribute(name, value)

    def end(self, error: str) -> None:
        if self._span is not None:
            if error:
                from opentelemetry.trace import StatusCode

                self._span.set_attribute("error.type", error)
                self._span.set_status(StatusCode.ERROR)
            self._span.end()


class _Running(_Span):
    """A stage that somebody listens to."""

    def __init__(self, stage: Stage, what: str, attributes: Attributes, tracer: Tracer | None) -> None:
        super().__init__(f"{stage} {what}" if what else stage, attributes, tracer)
        self._stage: Stage = stage
        self._of = _operation.get()

    def __enter__(self) -> Self:
        self.start()
        self._token = self.attach()
        self._begun = time.perf_counter()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, traceback: TracebackType | None) -> None:
        seconds = time.perf_counter() - self._begun
        self.detach(self._token)
        self.finish(seconds, kind)

    def finish(self, seconds: float, kind: type[BaseException] | None) -> None:
        """End the span, and tell those who listen."""
        error = "" if kind is None else kind.__name__
        self.end(error)
        measured = StageTiming(self._stage, self._of, seconds, error, self._attributes)
        for listener in _listeners:
            listener(measured)


class _Operation(_Span):
    """A verb or a request that somebody listens to."""

    def __init__(self, name: str, attributes: Attributes, carrier: Mapping[str, str] | None) -> None:
        super().__init__(name, attributes, _tracer())
        self._carrier = carrier
        self._failure = ""

    def __enter__(self) -> Self:
        parent = None
        if self._tracer is not None and self._carrier is not None:
            from opentelemetry import propagate

            parent = propagate.extract(self._carrier)
        self.start(parent, serves=self._carrier is not None)
        self._token = self.attach()
        self._before = _operation.set(self._name)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, traceback: TracebackType | None) -> None:
        _operation.reset(self._before)
        self.detach(self._token)
        self.end(self._failure if kind is None else kind.__name__)

    def fail(self, error: str) -> None:
        """Note that it failed although nothing is raised, and with what."""
        self._failure = error

    def rename(self, name: str) -> None:
        """Give the span the name that is known by now."""
        if self._span is not None:
            self._span.update_name(name)


class _Together(_Span):
    """What one thread does for several that wait: a part of the first one's trace, with links to the others."""

    def __init__(self, name: str, attributes: Attributes, tracer: Tracer, waiting: Sequence[Span]) -> None:
        super().__init__(name, attributes, tracer)
        self._waiting = waiting

    def __enter__(self) -> Self:
        from opentelemetry import trace

        first, *others = self._waiting
        self.start(trace.set_span_in_context(first), [trace.Link(each.get_span_context()) for each in others])
        self._token = self.attach()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, traceback: TracebackType | None) -> None:
        self.detach(self._token)
        self.end("" if kind is None else kind.__name__)


class _SilentOperation(_Silence):
    def fail(self, error: str) -> None:
        """Note that it failed."""

    def rename(self, name: str) -> None:
        """Give the span another name."""


_SILENCE, _SILENT_OPERATION = _Silence(), _SilentOperation()


def stage(name: Stage, attributes: Attributes = NO_ATTRIBUTES) -> _Silence | _Running:
    """Measure one stage of the work, for as long as the ``with`` block lasts.

    Args:
        name: Which.
        attributes: What to say of it, such as ``{"db.operation.name": "search"}``.

    Returns:
        A context manager, whose ``note`` adds an attribute to the span.

    Example:
        >>> with stage("encode", {"gen_ai.operation.name": "embeddings"}) as span:
        ...     span.note("vlmsearch.count", 64)
    """
    tracer = _tracer()
    return _SILENCE if tracer is None and not _listeners else _Running(name, "", attributes, tracer)


def encoding(fingerprint: str, kind: str, count: int) -> _Silence | _Running:
    """Measure the stage ``encode`` of one call of an encoder.

    Args:
        fingerprint: The encoder's.
        kind: What it encodes: ``text``, ``image`` or ``documents``.
        count: How many of them.

    Returns:
        A context manager, as `stage` does.
    """
    tracer = _tracer()
    if tracer is None and not _listeners:
        return _SILENCE
    about: Attributes = {
        "gen_ai.operation.name": "embeddings",
        "gen_ai.request.model": fingerprint,
        "vlmsearch.count": count,
    }
    return _Running("encode", kind, about, tracer)


def querying(store: str, call: str, leg: object = "", *, count: int = 0) -> _Silence | _Running:
    """Measure the stage ``store`` of one call of a store.

    Args:
        store: The store's name, such as ``mongodb://host:27017/photos``.
        call: The method of the store.
        leg: The field that is searched, or ``words``.
        count: How many records are written.

    Returns:
        A context manager, as `stage` does.
    """
    tracer = _tracer()
    if tracer is None and not _listeners:
        return _SILENCE
    about: dict[str, AttributeValue] = {
        "db.system.name": store.partition(":")[0],
        "db.operation.name": call,
        "vlmsearch.store": store,
    }
    if leg:
        about["vlmsearch.leg"] = str(leg)
    if count:
        about["db.operation.batch.size"] = count
    return _Running("store", call, about, tracer)


def operation(
    name: str, attributes: Attributes = NO_ATTRIBUTES, *, carrier: Mapping[str, str] | None = None
) -> _SilentOperation | _Operation:
    """Make all stages in the ``with`` block parts of one verb or request.

    Args:
        name: Such as ``search``.
        attributes: What to say of it.
        carrier: The headers of the request that is served, in lower case, which may hold the caller's trace context;
            None for what is no request.

    Returns:
        A context manager, whose ``note`` adds an attribute to the span, whose ``rename`` changes its name, and whose
        ``fail`` says that it failed though nothing is raised.
    """
    return _SILENT_OPERATION if _tracer() is None and not _listeners else _Operation(name, attributes, carrier)


def staged(name: Stage, pieces: Iterator[T], attributes: Attributes = NO_ATTRIBUTES) -> Iterator[T]:
    """Measure a stage that gives its result in pieces.

    It lasts from the first piece that is asked for to the last; closing the iterator closes ``pieces``.

    Args:
        name: Which stage.
        pieces: What gives the pieces.
        attributes: What to say of it.

    Returns:
        The pieces.
    """
    tracer = _tracer()
    if tracer is None and not _listeners:
        return pieces
    parent = None
    if tracer is not None:
        from opentelemetry import context

        parent = context.get_current()
    return _each(_Running(name, "", attributes, tracer), pieces, parent)


def _each(running: _Running, pieces: Iterator[T], parent: Context | None) -> Iterator[T]:
    running.start(parent)
    seconds, kind = 0.0, None
    try:
        while True:
            token, begun = running.attach(), time.perf_counter()
            try:
                piece = next(pieces)
            except StopIteration:
                return
            finally:
                seconds += time.perf_counter() - begun
                running.detach(token)
            yield piece
    except GeneratorExit:  # whoever reads it has enough
        raise
    except BaseException as exc:
        kind = type(exc)
        raise
    finally:
        close = getattr(pieces, "close", None)
        if close:
            close()
        running.finish(seconds, kind)


def waiting_span() -> Span | None:
    """Return the current span, for `together` in the thread that will do the work; None where nobody listens."""
    if _tracer() is None:
        return None
    from opentelemetry import trace

    current = trace.get_current_span()
    return current if current.get_span_context().is_valid else None


def together(name: str, attributes: Attributes, waiting: Sequence[Span | None]) -> _Silence | _Together:
    """Make work that is done for several callers at once a span.

    Args:
        name: What it is.
        attributes: What to say of it.
        waiting: What `waiting_span` gave each caller. The span is in the trace of the first, and the servers that are
            asked are told that one; it has links to the others.

    Returns:
        A context manager, as `stage` does.
    """
    spans = [span for span in waiting if span is not None]
    tracer = _tracer() if spans else None
    return _SILENCE if tracer is None else _Together(name, attributes, tracer, spans)


def trace_headers() -> dict[str, str]:
    """Return the headers, such as ``traceparent``, that carry the current trace to a server; none where none is."""
    headers: dict[str, str] = {}
    if _tracer() is not None:
        from opentelemetry import propagate

        propagate.inject(headers)
    return headers


def trace_id() -> str:
    """Return the id of the current trace, 32 hexadecimal digits; "" where there is none."""
    if _tracer() is None:
        return ""
    from opentelemetry import trace

    current = trace.get_current_span().get_span_context()
    return trace.format_trace_id(current.trace_id) if current.is_valid else ""


def _tracer() -> Tracer | None:
    """Our tracer of the application's provider; None where it has set none, and so surely where it imported nothing."""
    global _known  # noqa: PLW0603
    api = sys.modules.get("opentelemetry.trace")
    if api is None or not hasattr(api, "use_span"):  # it is defined last: another thread imports it just now
        return None
    provider = api.get_tracer_provider()
    if isinstance(provider, (api.ProxyTracerProvider, api.NoOpTracerProvider)):
        return None
    if _known is None or _known[0] is not provider:
        _known = provider, provider.get_tracer("vlmsearch", version("vlmsearch"))
    return _known[1]
