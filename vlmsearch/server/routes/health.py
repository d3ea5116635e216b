"""Probes: whether the service is alive, and whether it can answer."""

from __future__ import annotations

import time

import anyio
from fastapi import APIRouter, Request

from vlmsearch.errors import VlmsearchError
from vlmsearch.server.dependencies import ServiceHere
from vlmsearch.server.errors import ApiError, Json
from vlmsearch.server.service import OpenIndex, Service

_PATIENCE = 5.0
"""Seconds that the back ends of an index have to answer."""
_KEPT = 1.0
"""Seconds that an answer of the back ends holds: probes need no token, and ask the encoders and the stores."""
router = APIRouter(tags=["health"])


@router.get("/healthz", response_model=dict[str, str])
async def alive() -> Json:
    """Answer while the process is alive."""
    return Json({"status": "ok"})


class Readiness:
    """The readiness of all back ends. They are asked once a second at most, by one request.

    Args:
        service: The service.
    """

    def __init__(self, service: Service) -> None:
        self._service = service
        self._lock = anyio.Lock()
        self._asked = -_KEPT
        self._failure: ApiError | None = None

    async def failure(self) -> ApiError | None:
        """Return the error while a back end does not answer; None when all of them do."""
        async with self._lock:
            if time.monotonic() - self._asked >= _KEPT:
                self._failure = await self._ask()
                self._asked = time.monotonic()
            return self._failure

    async def _ask(self) -> ApiError | None:
        for index in self._service.indexes.values():
            try:
                with anyio.fail_after(_PATIENCE):
                    await self._service.call(_ask_back_ends, index)
            except (VlmsearchError, TimeoutError) as exc:
                # for a probe that has no token: what failed, and nothing of where it is
                message = f"a back end does not answer: {type(exc).__name__}"
                return ApiError(503, "backend_unavailable", message, retry_after=5)
        return None


@router.get("/readyz", response_model=dict[str, str])
async def ready(service: ServiceHere, request: Request) -> Json:
    """Check whether the back ends of all indexes answer.

    The status is 503 if one does not, or if the server is stopping.
    """
    if service.is_stopping:
        raise ApiError(503, "shutting_down", "the server is stopping", retry_after=5)
    readiness: Readiness = request.app.state.readiness
    failure = await readiness.failure()
    if failure is not None:
        raise failure
    return Json({"status": "ok"})


def _ask_back_ends(index: OpenIndex) -> None:
    """Search for a word, which asks the encoder and every part of the store."""
    store, encoder = index.pipeline.store, index.pipeline.encoder
    if not any("text" in space.modalities for space in encoder.spaces):
        len(store)
    elif store.manifest() is None:
        encoder.encode_texts(["ready"], role="query")
    else:
        index.pipeline.search("ready", limit=1)
