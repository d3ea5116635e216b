"""Server-sent events (WHATWG, HTML standard, section 9.2): answers that come piece by piece."""

from __future__ import annotations

from collections.abc import AsyncIterator

from starlette.responses import StreamingResponse

from vlmsearch.server.errors import json_line

KEEP_ALIVE = b": still here\n\n"
"""A comment, which keeps proxies from closing a connection on which nothing happens."""
KEEP_ALIVE_SECONDS = 15.0


def event(name: str, data: object) -> bytes:
    """Return one event; its data are JSON on one line."""
    return f"event: {name}\ndata: {json_line(data)}\n\n".encode()


class EventStream(StreamingResponse):
    """An answer of events.

    Args:
        content: What `event` made.
        status_code: The status of the answer.
    """

    media_type = "text/event-stream"

    def __init__(self, content: AsyncIterator[bytes], status_code: int = 200) -> None:
        super().__init__(content, status_code, {"Cache-Control": "no-store", "X-Accel-Buffering": "no"})
