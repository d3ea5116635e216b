"""Sessions: what the page gets for a token, so that no script has to keep it."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Body, Depends, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from vlmsearch.server.access import SESSION_SECONDS, Sessions, session_cookie
from vlmsearch.server.caller import Caller, Right
from vlmsearch.server.errors import ApiError

router = APIRouter(prefix="/api/v1", tags=["access"])


class SessionForm(BaseModel):
    """A request for a session."""

    model_config = ConfigDict(extra="forbid")

    token: Annotated[str, Field(max_length=256, description="As `vlmsearch token add` printed it.")]


class SessionAnswer(BaseModel):
    """Whose session it is."""

    name: str
    role: Right
    indexes: list[str] | None


def _sessions(request: Request) -> Sessions | None:
    found: Sessions | None = request.app.state.sessions
    return found


SessionsHere = Annotated["Sessions | None", Depends(_sessions)]


@router.post("/session")
async def start_session(
    form: Annotated[SessionForm, Body()], request: Request, response: Response, sessions: SessionsHere
) -> SessionAnswer:
    """Start a session of twelve hours with a token; its cookie cannot be read by scripts or sent by other sites."""
    if sessions is None:
        caller = Caller()
    else:
        started = sessions.start(form.token)
        if started is None:
            raise ApiError(401, "unauthenticated", "this token is not in force: `vlmsearch token add` makes one")
        session, caller = started
        response.set_cookie(
            session_cookie(request.url.scheme),
            session,
            max_age=SESSION_SECONDS,
            httponly=True,
            samesite="strict",
            secure=request.url.scheme == "https",
        )
    indexes = None if caller.indexes is None else sorted(caller.indexes)
    return SessionAnswer(name=caller.name, role=caller.role, indexes=indexes)


@router.delete("/session", status_code=204)
async def end_session(request: Request, response: Response, sessions: SessionsHere) -> None:
    """End the session that the request comes with, if there is one."""
    name = session_cookie(request.url.scheme)
    if sessions is not None:
        sessions.end(request.cookies.get(name, ""))
    response.delete_cookie(name, secure=request.url.scheme == "https", httponly=True, samesite="strict")
