"""Whether the service is alive, and whether it can answer."""

from __future__ import annotations

import time

import anyio
from fastapi import APIRouter, Request

from vlmsearch.errors import VlmsearchError
from vlmsearch.server.dependencies import ServiceHere
from vlmsearch.server.errors import ApiError, Json
from vlmsearch.server.service import OpenIndex, Service

_PATIENCE = 5.0
"""How many seconds the back ends of an index have to answer."""
_KEPT = 1.0
"""For how many seconds what they said holds: a probe needs no token, and asks the encoder and the stores."""
router = APIRouter(tags=["health"])


@router.get("/healthz", response_model=dict[str, str])
async def alive() -> Json:
    """Say that the process answers."""
    return Json({"status": "ok"})


class Readiness:
    """Know whether the back ends of all indexes answer; they are asked once a second at most, by one request.

    Args:
        service: The service.
    """

    def __init__(self, service: Service) -> None:
        self._service = service
        self._lock = anyio.Lock()
        self._asked = -_KEPT
        self._failure: ApiError | None = None

    async def failure(self) -> ApiError | None:
        """Return what clients get while a back end does not answer; None where all do."""
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
    """Say whether the back ends of all indexes answer; 503 where one does not, or the server is stopping."""
    if service.is_stopping:
        raise ApiError(503, "shutting_down", "the server is stopping", retry_after=5)
    readiness: Readiness = request.app.state.readiness
    failure = await readiness.failure()
    if failure is not None:
        raise failure
    return Json({"status": "ok"})


def _ask_back_ends(index: OpenIndex) -> None:
    """Search for something, which asks the encoder and every part of the store."""
    store, encoder = index.pipeline.store, index.pipeline.encoder
    if not any("text" in space.modalities for space in encoder.spaces):
        len(store)
    elif store.manifest() is None:
        encoder.encode_texts(["ready"], role="query")
    else:
        index.pipeline.search("ready", limit=1)
