"""uvicorn's HTTP/1.1 protocol with limits that it does not have: for the head of a request, and for slow readers."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

HEAD_BYTES = 65536
"""Of the request line and the headers."""
HEAD_SECONDS = 20.0
"""For the head of a request to arrive, from the connection or from its first byte on."""
READER_SECONDS = 60.0
"""For a reader that is behind to take the 48 KiB between the marks of the write buffer."""


class GuardedProtocol(HttpToolsProtocol):
    """Close the connections of clients that send their head, or read their answer, too slowly to be real.

    uvicorn has a limit only for the time between two requests, so that a few thousand connections that never send
    their headers, or never read, would hold a few thousand places for ever (Slowloris).
    """

    head_bytes = HEAD_BYTES
    head_seconds = HEAD_SECONDS
    reader_seconds = READER_SECONDS

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._in_head = False
        self._head_length = 0
        self._head_timer: asyncio.TimerHandle | None = None
        self._reader_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the time for the first head."""
        super().connection_made(transport)
        self._expect_head()

    def data_received(self, data: bytes) -> None:
        """Count what belongs to a head that is not complete."""
        super().data_received(data)
        if self._in_head:
            self._head_length += len(data)
            if self._head_length > self.head_bytes:
                self.send_400_response(f"The head of the request has more than {self.head_bytes} bytes.")
        if self._in_head or self._is_idle():  # uvicorn's own timer for idle connections has been stopped by the data
            self._expect_head()

    def on_message_begin(self) -> None:
        """Start the time for the head of this request."""
        super().on_message_begin()
        self._in_head, self._head_length = True, 0
        self._stop_head_timer()
        self._expect_head()

    def on_headers_complete(self) -> None:
        """Stop the time for the head."""
        self._in_head = False
        self._stop_head_timer()
        super().on_headers_complete()

    def pause_writing(self) -> None:
        """Give a reader that is behind some time."""
        super().pause_writing()
        self._reader_timer = self.loop.call_later(self.reader_seconds, self.transport.abort)

    def resume_writing(self) -> None:
        """Go on with a reader that has caught up."""
        self._stop_reader_timer()
        super().resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the timers."""
        self._stop_head_timer()
        self._stop_reader_timer()
        super().connection_lost(exc)

    def _is_idle(self) -> bool:
        return self.cycle is None or (self.cycle.response_complete and not self.pipeline)

    def _expect_head(self) -> None:
        if self._head_timer is None and not self.transport.is_closing():
            self._head_timer = self.loop.call_later(self.head_seconds, self.transport.close)

    def _stop_head_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _stop_reader_timer(self) -> None:
        if self._reader_timer is not None:
            self._reader_timer.cancel()
            self._reader_timer = None
