"""Log lines on the error output, each with the id of its request.

Lines hold no queries, documents or answers. `vlmsearch.server.access` writes the audit lines.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import datetime, timezone

from vlmsearch._util.text import visible
from vlmsearch._util.tracing import trace_id
from vlmsearch.server.settings import Log

REQUEST_ID: ContextVar[str] = ContextVar("vlmsearch_request_id", default="")
"""The id of the request that is being answered; "" for none."""
_USUAL = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
_KEPT = ("vlmsearch", "uvicorn")
_MAX_CHARS = 2**16
"""Characters of a message and of a traceback: the error of a bug may quote what a client sent."""
_INDENT = "    "
"""Indent of the lines after the first, so that they do not look like other records."""


class _AboutRequest(logging.Filter):
    """A filter that adds the ids of the request and of the trace to a record."""

    def filter(self, record: logging.LogRecord) -> bool:
        record.request_id = REQUEST_ID.get()
        record.trace_id = trace_id()
        return True


class JsonLines(logging.Formatter):
    """A JSON object for each record: ``time``, ``level``, ``logger``, ``message`` and its other fields."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line.

        Args:
            record: The record.

        Returns:
            The object, in ASCII.
        """
        said: dict[str, object] = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": _shortened(record.getMessage()),
        }
        said |= {
            name: value
            for name, value in vars(record).items()
            if name not in _USUAL and not name.startswith("_") and value != ""  # Ray adds one of its own
        }
        if record.exc_info:
            said["exception"] = _shortened(self.formatException(record.exc_info))
        return json.dumps(said, default=str)


class TextLines(logging.Formatter):
    """Lines for people."""

    def __init__(self) -> None:
        super().__init__("%(levelname)s %(message)s")

    def format(self, record: logging.LogRecord) -> str:
        """Return the line, and after it the traceback of a failure.

        Args:
            record: The record.

        Returns:
            The time, the level, the message and the id of the request. Control characters are escaped.
        """
        first, *rest = visible(_shortened(super().format(record))).split("\n")
        about = getattr(record, "request_id", "")
        return "\n".join(
            [f"{_time(record)} {first}" + (f" [{about}]" if about else ""), *(_INDENT + line for line in rest)]
        )


@contextmanager
def configured(form: Log) -> Iterator[None]:
    """Log to the error output until the end: all of the service and uvicorn, and warnings of other packages.

    Args:
        form: Format of the lines.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines() if form == "json" else TextLines())
    handler.addFilter(_AboutRequest())
    root = logging.getLogger()
    before = {name: logging.getLogger(name).level for name in _KEPT}
    level, handlers = root.level, root.handlers[:]
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    for name in _KEPT:
        logging.getLogger(name).setLevel(logging.INFO)
    try:
        yield
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)
        for name, was in before.items():
            logging.getLogger(name).setLevel(was)


def _shortened(text: str) -> str:
    """Return a long text without its middle: the end of a traceback says what went wrong."""
    half = _MAX_CHARS // 2
    return text if len(text) <= _MAX_CHARS else f"{text[:half]}\n... {len(text):,} characters ...\n{text[-half:]}"


def _time(record: logging.LogRecord) -> str:
    """Return the time of a record, in UTC and ISO 8601, to the millisecond."""
    return (
        datetime.fromtimestamp(record.created, timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    )
