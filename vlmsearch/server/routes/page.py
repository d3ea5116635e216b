"""The page to search with: static files of this package."""

from __future__ import annotations

from pathlib import Path

from fastapi import APIRouter
from starlette.responses import FileResponse
from starlette.routing import Mount
from starlette.staticfiles import StaticFiles

FOLDER = Path(__file__).parents[1] / "page"
_REVALIDATED = {"Cache-Control": "no-cache"}
router = APIRouter(include_in_schema=False)
router.routes.append(Mount("/page", StaticFiles(directory=FOLDER, check_dir=False), name="page"))


@router.get("/")
async def index() -> FileResponse:
    """Return the page."""
    return FileResponse(FOLDER / "index.html", headers=_REVALIDATED)
