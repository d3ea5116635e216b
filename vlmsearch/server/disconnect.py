"""Give up what nobody waits for any more: a client that goes ends the work for its request."""

from __future__ import annotations

from collections import deque

import anyio
from starlette.types import ASGIApp, Message, Receive, Scope, Send

_WITHOUT_BODY = ("GET", "HEAD", "DELETE", "OPTIONS")


class Disconnect:
    """Cancel the handling of a request whose client has gone.

    Args:
        app: What handles it.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        waiting: deque[Message] = deque()
        gone = anyio.Event()
        watched = False

        async def watch() -> None:
            while (message := await receive())["type"] != "http.disconnect":
                waiting.append(message)
            gone.set()
            group.cancel_scope.cancel()

        async def read() -> Message:
            if waiting:
                return waiting.popleft()
            if watched:
                await gone.wait()
                return {"type": "http.disconnect"}
            message = await receive()
            if not message.get("more_body"):  # from here on, all that comes is that the client goes
                start()
            return message

        def start() -> None:
            nonlocal watched
            watched = True
            group.start_soon(watch)

        async with anyio.create_task_group() as group:
            if scope["method"] in _WITHOUT_BODY:
                message = await receive()
                waiting.append(message)
                start()
            await self._app(scope, read, send)
            group.cancel_scope.cancel()
