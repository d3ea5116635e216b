"""The metrics of the service, for Prometheus."""

from __future__ import annotations

import anyio.to_thread
from fastapi import APIRouter, Request
from fastapi.responses import Response

from vlmsearch.server.dependencies import CallerHere, check_right
from vlmsearch.server.errors import ApiError
from vlmsearch.server.metrics import CONTENT_TYPE, Metrics

router = APIRouter(tags=["health"])


@router.get("/metrics", response_class=Response, responses={200: {"content": {CONTENT_TYPE: {}}}})
async def metrics(request: Request, caller: CallerHere) -> Response:
    """Return all metrics, for tokens that see all indexes."""
    if caller.indexes is not None:
        raise ApiError(403, "forbidden", "the figures are of all indexes, and the token may not see them all")
    check_right(caller, "read", of_all=True)
    metrics: Metrics = request.app.state.metrics
    return Response(await anyio.to_thread.run_sync(metrics.page), media_type=CONTENT_TYPE)
