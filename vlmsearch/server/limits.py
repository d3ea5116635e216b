"""Limits for clients: the length of a body, its speed, and requests a second."""

from __future__ import annotations

import time
from collections.abc import Callable

import anyio
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from vlmsearch.server.errors import ApiError, error_answer

WITHOUT_TOKEN = 65536
"""Maximum length of a body without a token, in bytes, such as that of a log-in."""
GRACE_SECONDS = 20.0
"""Time that a body of any length may take."""
MIN_RATE = 4096.0
"""Minimum average speed of a body beyond that time, in bytes a second."""
BURST_SECONDS = 10.0
"""Length of a burst: a page asks for all its thumbnails together."""
_GONE: Message = {"type": "http.disconnect"}


class BodyLimits:
    """ASGI middleware that refuses bodies that are too long or too slow.

    A body is counted while it is read, so that at most the limit is in memory.

    Args:
        app: The application.
        max_bytes: Maximum length of a body, in bytes.
        grace: Seconds that a body of any length may take.
        min_rate: Minimum average speed beyond that, in bytes a second.
    """

    def __init__(
        self, app: ASGIApp, *, max_bytes: int, grace: float = GRACE_SECONDS, min_rate: float = MIN_RATE
    ) -> None:
        self._app = app
        self.max_bytes = max_bytes
        self.grace = grace
        self.min_rate = min_rate

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        is_known = scope.get("state", {}).get("caller", True)
        exchange = _Exchange(self, self.max_bytes if is_known else WITHOUT_TOKEN, scope, receive, send)
        if int(Headers(scope=scope).get("content-length", "0")) > exchange.max_bytes:  # uvicorn lets only numbers pass
            await exchange.refuse_length()
        else:
            await self._app(scope, exchange.receive, exchange.send)


class _Exchange:
    """One request. After it is refused, the application is told that the client has gone, and cannot answer."""

    def __init__(self, limits: BodyLimits, max_bytes: int, scope: Scope, receive: Receive, send: Send) -> None:
        self._limits = limits
        self.max_bytes = max_bytes
        self._scope = scope
        self._receive = receive
        self._send = send
        self._received = 0
        self._started: float | None = None
        self._is_whole = self._has_begun = self._is_refused = False

    async def receive(self) -> Message:
        """Return the next message: a part of the body, or what comes after it."""
        if self._is_refused:
            return _GONE
        if self._is_whole:
            return await self._receive()
        now = time.monotonic()
        self._started = self._started or now
        allowed = self._limits.grace + self._received / self._limits.min_rate - (now - self._started)
        message: Message | None = None
        with anyio.move_on_after(max(allowed, 0)):
            message = await self._receive()
        if message is None:
            return await self._refuse(
                ApiError(408, "timeout", f"the body came at less than {self._limits.min_rate:,.0f} bytes a second")
            )
        self._received += len(message.get("body", b""))
        self._is_whole = not message.get("more_body", False)
        return await self.refuse_length() if self._received > self.max_bytes else message

    async def send(self, message: Message) -> None:
        """Send the application's answer."""
        self._has_begun = True
        if not self._is_refused:
            await self._send(message)

    async def refuse_length(self) -> Message:
        """Answer that the body is too long."""
        return await self._refuse(
            ApiError(413, "too_large", f"the body of a request has at most {self.max_bytes:,} bytes: send less at once")
        )

    async def _refuse(self, error: ApiError) -> Message:
        self._is_refused = True
        if not self._has_begun:
            answer = error_answer(error, self._scope.get("state", {}).get("request_id"))
            await answer(self._scope, self._receive, self._send)
        return _GONE


class TokenBuckets:
    """Token buckets: each name has a number of requests a second, and may save up those of ten seconds.

    Args:
        rate: Requests a second, above 0.
        clock: Function that returns the time in seconds.

    Example:
        >>> now = [0.0]
        >>> buckets = TokenBuckets(0.5, clock=lambda: now[0])
        >>> [buckets.take("page") for _ in range(6)]
        [0.0, 0.0, 0.0, 0.0, 0.0, 2.0]
        >>> now[0] = 2.0
        >>> buckets.take("page"), buckets.take("script")
        (0.0, 0.0)
        >>> buckets.refusal("page").status
        429
    """

    def __init__(self, rate: float, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate = rate
        self._capacity = max(1.0, rate * BURST_SECONDS)
        self._clock = clock
        self._left: dict[str, tuple[float, float]] = {}

    def take(self, name: str) -> float:
        """Return the seconds that a request has to wait.

        It is 0.0 for a request that may come now.
        """
        now = self._clock()
        left, since = self._left.get(name, (self._capacity, now))
        left = min(self._capacity, left + (now - since) * self._rate)
        is_free = left >= 1
        self._left[name] = (left - is_free, now)
        return 0.0 if is_free else (1 - left) / self._rate

    def refusal(self, name: str) -> ApiError | None:
        """Return the error of a request that has to wait.

        None for one that may come now.
        """
        wait = self.take(name)
        if not wait:
            return None
        said = f"{name or 'this server'} has {self._rate:g} requests a second: wait for {wait:.1f} seconds"
        return ApiError(429, "rate_limited", said, retry_after=wait)
