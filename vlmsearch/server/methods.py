"""The methods of HTTP: HEAD works where GET does, and a refused method gets the list of those that work."""

from __future__ import annotations

from collections.abc import Iterable

from starlette.routing import BaseRoute, Match
from starlette.types import ASGIApp, Message, Receive, Scope, Send

_METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")


class HeadAsGet:
    """ASGI middleware that answers HEAD with the headers of GET.

    Args:
        app: The application, whose routes need not know HEAD.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] != "http" or scope["method"] != "HEAD":
            await self._app(scope, receive, send)
            return

        async def write(message: Message) -> None:
            if message["type"] == "http.response.start":
                scope["method"] = "HEAD"  # the server looks here before it checks the length of the body
                await send(message)
                await send({"type": "http.response.body"})

        scope["method"] = "GET"
        try:
            await self._app(scope, receive, write)
        finally:
            scope["method"] = "HEAD"


def allowed_methods(routes: Iterable[BaseRoute], scope: Scope) -> list[str]:
    """Return the methods that work at the path of a request. Starlette names those of one route alone."""
    allowed = {
        method
        for method in _METHODS
        for route in routes
        if route.matches({**scope, "method": method})[0] == Match.FULL and not _takes_all(route, scope)
    }
    if not allowed or "GET" in allowed:  # folders of files are for reading
        allowed |= {"GET", "HEAD"}
    return sorted(allowed)


def _takes_all(route: BaseRoute, scope: Scope) -> bool:
    return route.matches({**scope, "method": "NONE"})[0] == Match.FULL
