"""The prefix of a proxy, which stands before our paths in links, cookies and redirects."""

from __future__ import annotations

from collections.abc import Sequence

from starlette._utils import get_route_path
from starlette.datastructures import Headers
from starlette.routing import BaseRoute, Match
from starlette.types import ASGIApp, Receive, Scope, Send

from vlmsearch.server.settings import ROOT_PATH

PREFIX_HEADER = "X-Forwarded-Prefix"


class ProxyPrefix:
    """ASGI middleware that puts the prefix into ``root_path`` and into the path, where Starlette expects it.

    The proxy may cut the operator's prefix off, or pass it on. The prefix of a header is one that was cut off. It
    never changes the route, since clients can send it to get around what the proxy refuses.

    Args:
        app: The application.
        root_path: Prefix that the operator set; "" for none.
        routes: Routes of the application.
    """

    def __init__(self, app: ASGIApp, root_path: str, routes: Sequence[BaseRoute]) -> None:
        self._app = app
        self._root_path = root_path
        self._routes = routes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] == "http":
            values = ",".join(Headers(scope=scope).getlist(PREFIX_HEADER)).split(",")
            given = "".join(value.strip().rstrip("/") for value in values)  # a proxy behind a proxy adds its own
            path = scope["path"]
            if self._root_path and all(route.matches(scope)[0] == Match.NONE for route in self._routes):
                path = get_route_path({**scope, "root_path": self._root_path})
            scope["root_path"] = given if given and ROOT_PATH.fullmatch(given) else self._root_path
            scope["path"] = scope["root_path"] + path
        await self._app(scope, receive, send)
