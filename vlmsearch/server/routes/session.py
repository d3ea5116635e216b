"""Sessions: the page gets one for a token, so that no script has to keep the token."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Body, Depends, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from vlmsearch.server.access import SESSION_SECONDS, Sessions, session_cookie
from vlmsearch.server.caller import Caller, Right
from vlmsearch.server.errors import ApiError
from vlmsearch.server.tokens import MAX_TOKEN_CHARS

router = APIRouter(prefix="/api/v1", tags=["access"])


class SessionForm(BaseModel):
    """A request for a session."""

    model_config = ConfigDict(extra="forbid")

    token: Annotated[str, Field(max_length=MAX_TOKEN_CHARS, description="As `vlmsearch token add` printed it.")]


class SessionAnswer(BaseModel):
    """The holder of a session."""

    name: str
    role: Right
    indexes: list[str] | None


def _sessions(request: Request) -> Sessions | None:
    sessions: Sessions | None = request.app.state.sessions
    return sessions


SessionsHere = Annotated["Sessions | None", Depends(_sessions)]


@router.post("/session")
async def start_session(
    form: Annotated[SessionForm, Body()], request: Request, response: Response, sessions: SessionsHere
) -> SessionAnswer:
    """Start a session of 12 hours with a token. Scripts cannot read its cookie, and other sites cannot send it."""
    if sessions is None:
        caller = Caller()
    else:
        await sessions.tokens.prepare(form.token)
        started = sessions.start(form.token)
        if started is None:
            raise ApiError(401, "unauthenticated", "this token is not in force: `vlmsearch token add` makes one")
        session, caller = started
        response.set_cookie(
            session_cookie(request.scope),
            session,
            max_age=SESSION_SECONDS,
            path=request.scope["root_path"] or "/",
            httponly=True,
            samesite="strict",
            secure=request.url.scheme == "https",
        )
    indexes = None if caller.indexes is None else sorted(caller.indexes)
    return SessionAnswer(name=caller.name, role=caller.role, indexes=indexes)


@router.delete("/session", status_code=204)
async def end_session(request: Request, response: Response, sessions: SessionsHere) -> None:
    """End the session of the request, if there is one."""
    name, path = session_cookie(request.scope), request.scope["root_path"] or "/"
    if sessions is not None:
        sessions.end(request.cookies.get(name, ""))
    response.delete_cookie(name, path, secure=request.url.scheme == "https", httponly=True, samesite="strict")
