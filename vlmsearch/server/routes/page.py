"""The page: static files that use the API."""

from __future__ import annotations

import os
from pathlib import Path

from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

FOLDER = Path(__file__).parents[1] / "page"
_ASK_AGAIN = {"Cache-Control": "no-cache"}
"""Browsers keep the files, and ask each time whether they have changed: an upgrade leaves no old ones."""


class _Files(StaticFiles):
    def file_response(
        self, full_path: str | os.PathLike[str], stat_result: os.stat_result, scope: Scope, status_code: int = 200
    ) -> Response:
        answer = super().file_response(full_path, stat_result, scope, status_code)
        answer.headers.update(_ASK_AGAIN)
        return answer


def add_page(app: FastAPI) -> None:
    """Serve the page at ``/`` and its files below ``/page/``."""
    app.mount("/page", _Files(directory=FOLDER), name="page")
    app.add_api_route("/", _index, methods=["GET"], include_in_schema=False)


async def _index(request: Request) -> HTMLResponse:
    """Show the page. Its links have the prefix, since a proxy may show it there without a slash at the end."""
    page = (FOLDER / "index.html").read_text("utf-8")
    return HTMLResponse(page.replace('"page/', f'"{request.scope["root_path"]}/page/'), headers=_ASK_AGAIN)
