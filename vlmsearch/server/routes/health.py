"""Whether the service is alive, and whether it can answer."""

from __future__ import annotations

import anyio
from fastapi import APIRouter

from vlmsearch.errors import VlmsearchError
from vlmsearch.server.dependencies import ServiceHere
from vlmsearch.server.errors import ApiError, Json
from vlmsearch.server.forms import StatusAnswer
from vlmsearch.server.service import OpenIndex

_PATIENCE = 5.0
"""How many seconds the back ends of an index have to answer."""
router = APIRouter(tags=["health"])


@router.get("/healthz", response_model=StatusAnswer)
async def alive() -> Json:
    """Say that the process answers."""
    return Json({"status": "ok"})


@router.get("/readyz", response_model=StatusAnswer)
async def ready(service: ServiceHere) -> Json:
    """Say whether the back ends of all indexes answer; 503 where one does not, or the server is stopping."""
    if service.is_stopping:
        raise ApiError(503, "shutting_down", "the server is stopping", retry_after=5)
    for index in service.indexes.values():
        try:
            with anyio.fail_after(_PATIENCE):
                await service.call(_ask_back_ends, index)
        except (VlmsearchError, TimeoutError) as exc:
            # for a probe that has no token: what failed, and nothing of where it is
            message = f"a back end does not answer: {type(exc).__name__}"
            raise ApiError(503, "backend_unavailable", message, retry_after=5) from exc
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
