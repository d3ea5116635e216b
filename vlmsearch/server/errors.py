"""Errors as clients get them: in one form for every route, which OpenAI's clients read.

``type`` says what to do about it and ``code``, where there is one, why an input cannot be used (`InvalidInputError`).
"""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Mapping, Sequence
from typing import Any

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse

from vlmsearch.errors import (
    InvalidInputError,
    OperationCancelledError,
    VlmsearchError,
    one_line,
)
from vlmsearch.server.methods import allowed_methods
from vlmsearch.wire import ERROR_TYPES, ErrorAnswer, ErrorDetail, to_json

_log = logging.getLogger(__name__)
_PLACE_CHARS, _MESSAGE_CHARS = 100, 500
"""Characters that an error quotes of a request, which has keys and names of any length."""
RETRY_SECONDS = 1.0
"""Seconds after which to try again, where nothing better is known."""
_ENCODER = json.JSONEncoder(separators=(",", ":"), default=to_json)
_STATUS = {
    "index_mismatch": 409,
    "invalid_request": 400,
    "missing_dependency": 501,
    "model_unavailable": 501,
    "low_quality": 501,
    "overloaded": 429,
    "backend_unavailable": 503,
    "backend_failed": 502,
}
_KINDS: Sequence[tuple[type[BaseException], int, str]] = (
    (InvalidInputError, 400, "invalid_request"),
    *((kind, _STATUS[name], name) for name, kind in ERROR_TYPES.items()),
    (OperationCancelledError, 503, "shutting_down"),
    (VlmsearchError, 400, "invalid_request"),
    (TimeoutError, 504, "timeout"),
)
_HTTP = {
    400: "invalid_request",
    401: "unauthenticated",
    403: "forbidden",
    404: "not_found",
    405: "method_not_allowed",
    413: "too_large",
    415: "unsupported_media_type",
    422: "invalid_request",
    429: "rate_limited",
    503: "backend_unavailable",
}


class ApiError(Exception):
    """An error as a client gets it.

    Args:
        status: Status of the answer.
        type: Kind of the error, in one word.
        message: What was given, what is possible, what to do.
        code: Reason why an input cannot be used, in one word.
        param: Part of the request that is wrong.
        retry_after: Seconds after which to try again.
    """

    def __init__(
        self,
        status: int,
        type: str,
        message: str,
        *,
        code: str | None = None,
        param: str | None = None,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.type = type
        self.message = message
        self.code = code
        self.param = param
        self.retry_after = retry_after


def not_found(message: str) -> ApiError:
    """Return the error for a thing that is missing, or hidden from this caller."""
    return ApiError(404, "not_found", message)


def api_error(exc: BaseException) -> ApiError:
    """Return an error as a client gets it. Of a bug, clients get no details."""
    if isinstance(exc, ApiError):
        return exc
    if isinstance(exc, RequestValidationError):
        return _of_validation(exc.errors())
    if isinstance(exc, HTTPException):
        return ApiError(exc.status_code, _HTTP.get(exc.status_code, "invalid_request"), str(exc.detail))
    for kind, status, type in _KINDS:
        if isinstance(exc, kind):
            code = exc.code if isinstance(exc, InvalidInputError) else None
            retry = (getattr(exc, "retry_after", 0) or RETRY_SECONDS) if status in (429, 503) else None
            return ApiError(status, type, one_line(exc, 2000), code=code, retry_after=retry)
    return ApiError(500, "internal", "the server failed: its log says why, under this request's id")


def _of_validation(errors: Sequence[Mapping[str, Any]]) -> ApiError:
    """Return the first error in a request."""
    first = errors[0]
    parts = (f"[{part}]" if isinstance(part, int) else f".{part[:_PLACE_CHARS]}" for part in first["loc"][1:])
    place = "".join(parts).removeprefix(".") or str(first["loc"][0])
    return ApiError(422, "invalid_request", f"{place}: {first['msg'][:_MESSAGE_CHARS]}", param=place)


class Json(JSONResponse):
    """An answer in JSON, in which dataclasses can be."""

    def render(self, content: object) -> bytes:
        """Return the bytes."""
        return json_line(content).encode()


def json_line(content: object) -> str:
    """Return JSON on one line.

    What is not ASCII is escaped, so that halves of surrogate pairs can be sent, too.
    """
    return _ENCODER.encode(content)


def error_of(error: ApiError, request_id: str | None = None) -> ErrorAnswer:
    """Return an error as it is answered."""
    return ErrorAnswer(ErrorDetail(error.type, error.message, error.code, error.param, request_id))


def error_answer(exc: BaseException, request_id: str | None = None) -> Json:
    """Return the answer to a request that failed."""
    error = api_error(exc)
    if error.status == 500:
        _log.error("request %s failed", request_id, exc_info=exc)
    answer = Json(error_of(error, request_id), error.status)
    if error.retry_after is not None:
        answer.headers["Retry-After"] = str(math.ceil(error.retry_after))
    if error.status == 401:
        answer.headers["WWW-Authenticate"] = "Bearer"
    return answer


def request_id(request: Request) -> str | None:
    """Return the id of a request in the log."""
    return getattr(request.state, "request_id", None)


def add_handlers(app: FastAPI) -> None:
    """Have every error of every route answered in that form."""

    async def handle(request: Request, exc: Exception) -> Json:
        answer = error_answer(exc, request_id(request))
        if answer.status_code == 405:
            answer.headers["Allow"] = ", ".join(allowed_methods(app.routes, request.scope))
        return answer

    kinds = (ApiError, VlmsearchError, RequestValidationError, HTTPException, TimeoutError, Exception)
    for kind in kinds:
        app.add_exception_handler(kind, handle)
