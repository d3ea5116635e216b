"""Dependencies of routes: the service, the caller, and an index that the caller may use.

They are coroutines although they wait for nothing: FastAPI runs other dependencies in threads.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated

from fastapi import Depends, Path, Request

from vlmsearch.server.caller import Caller, Right
from vlmsearch.server.errors import ApiError, not_found
from vlmsearch.server.service import OpenIndex, Service


async def get_service(request: Request) -> Service:
    """Return the service."""
    service: Service = request.app.state.service
    return service


ServiceHere = Annotated[Service, Depends(get_service)]


async def get_caller(request: Request) -> Caller:
    """Return the caller, whom the access middleware puts into ``state.caller``."""
    caller: Caller = request.state.caller
    return caller


CallerHere = Annotated[Caller, Depends(get_caller)]


async def get_find_caller(request: Request) -> Callable[[], Caller | None]:
    """Return a function that finds the caller anew, for streams that may outlive a token."""
    find_caller: Callable[[], Caller | None] = request.state.find_caller
    return find_caller


FindCallerHere = Annotated[Callable[[], "Caller | None"], Depends(get_find_caller)]


def find_index(service: Service, caller: Caller, name: str, right: Right) -> OpenIndex:
    """Return an index that the caller may use, with readable documents alone.

    A hidden index gives the same error as a missing one.
    """
    if name not in service.indexes or not caller.sees(name):
        raise not_found(f"no index {name!r} for you: GET /api/v1/indexes lists them")
    check_right(caller, right)
    return service.indexes[name].seen_by(caller)


def check_right(caller: Caller, right: Right, *, of_all: bool = False) -> None:
    """Raise ApiError for a caller whose role is too low.

    What is ``of_all`` documents is refused to a caller with principals.
    """
    if not caller.may(right):
        raise ApiError(403, "forbidden", f"the token {caller.name!r} has the role {caller.role}; this needs {right}")
    if of_all and caller.scopes:
        raise ApiError(403, "forbidden", "this is about all documents: it needs a token without principals")


def _with(right: Right) -> Callable[..., Awaitable[OpenIndex]]:
    async def get_index(
        service: ServiceHere, caller: CallerHere, index: Annotated[str, Path(description="The name of the index.")]
    ) -> OpenIndex:
        return find_index(service, caller, index, right)

    return get_index


ReadIndex = Annotated[OpenIndex, Depends(_with("read"))]
WriteIndex = Annotated[OpenIndex, Depends(_with("write"))]
