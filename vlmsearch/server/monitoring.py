"""The id, the span and the metrics of every request."""

from __future__ import annotations

import re
import time
import uuid

from opentelemetry.trace import get_current_span
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from vlmsearch._util.tracing import fail, operation
from vlmsearch.server.logs import REQUEST_ID
from vlmsearch.server.metrics import Metrics

ID_HEADER = "X-Request-ID"
_GIVEN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
CLIENT_GONE = 499
"""The status of a request whose client went before the answer, as in nginx."""


class Monitoring:
    """ASGI middleware, the outermost one.

    A request has the id that its client sends as ``X-Request-ID``, if that is fit for a log, and the answer repeats it.
    Its span continues the trace that the client names as ``traceparent``.

    Args:
        app: The application.
        metrics: The metrics.
    """

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        given = headers.get(ID_HEADER, "")
        id = given if _GIVEN_ID.fullmatch(given) else uuid.uuid4().hex
        scope.setdefault("state", {})["request_id"] = id
        method = scope["method"] if scope["method"] in _METHODS else "OTHER"
        status = 0

        async def answer(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                MutableHeaders(scope=message)[ID_HEADER] = id
            await send(message)

        about = {"http.request.method": method, "url.scheme": scope["scheme"]}
        begun = time.perf_counter()
        before = REQUEST_ID.set(id)
        self._metrics.in_progress.inc()
        with operation(method, about, carrier=headers):
            span = get_current_span()
            try:
                await self._app(scope, receive, answer)
            finally:
                status = status or CLIENT_GONE
                route = getattr(scope.get("route"), "path", "")
                if route:
                    span.set_attribute("http.route", route)
                    span.update_name(f"{method} {route}")
                span.set_attribute("http.response.status_code", status)
                if status >= 500:
                    fail(span, str(status))
                self._metrics.in_progress.dec()
                self._metrics.note_request(method, route or "other", status, time.perf_counter() - begun)
                REQUEST_ID.reset(before)
