"""The end of a request: an answer, also after a bug; or a client that went, whose work is cancelled."""

from __future__ import annotations

import asyncio
from collections import deque

import anyio
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from vlmsearch.server.errors import error_answer, request_id

_WITHOUT_BODY = ("GET", "HEAD", "DELETE", "OPTIONS")


class Endings:
    """ASGI middleware that cancels requests whose clients have gone.

    Those that fail by a bug get an answer.

    Args:
        app: The application.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = False
        bug: Exception | None = None

        async def write(message: Message) -> None:
            nonlocal started
            started = True
            await send(message)

        with anyio.CancelScope() as work:
            client = _Client(receive, work)
            try:
                if scope["method"] in _WITHOUT_BODY:
                    await client.read_ahead()
                await self._app(scope, client.read, write)
            except Exception as exc:  # noqa: BLE001 - whatever a bug raises
                bug = exc
            finally:
                client.leave()
        if bug is not None and started:
            raise bug  # half of an answer was sent: the connection is closed
        if bug is not None:
            await error_answer(bug, request_id(Request(scope)))(scope, receive, send)


class _Client:
    """The messages of a client. After its request is read, a task waits for it to go and then cancels the work."""

    def __init__(self, receive: Receive, work: anyio.CancelScope) -> None:
        self._receive = receive
        self._work = work
        self._waiting: deque[Message] = deque()
        self._watching: asyncio.Task[None] | None = None

    async def read_ahead(self) -> None:
        """Read a request without a body, so that its client is watched."""
        self._waiting.append(await self.read())

    async def read(self) -> Message:
        """Return the next message, as ASGI has them."""
        if self._waiting:
            return self._waiting.popleft()
        if self._watching:
            await asyncio.wait([self._watching])
            return {"type": "http.disconnect"}
        message = await self._receive()
        if not message.get("more_body"):
            # a task group of anyio takes four times as long
            self._watching = asyncio.create_task(self._watch())
        return message

    def leave(self) -> None:
        """Watch the client no longer."""
        if self._watching:
            self._watching.cancel()

    async def _watch(self) -> None:
        while (message := await self._receive())["type"] != "http.disconnect":
            self._waiting.append(message)
        self._work.cancel()
