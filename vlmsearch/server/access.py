"""Access: tokens, sessions of the page, the origin of a request, and an audit line for each request."""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Callable, Collection
from dataclasses import replace
from pathlib import Path

from fastapi import FastAPI
from starlette._utils import get_route_path
from starlette.datastructures import Headers, MutableHeaders
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from vlmsearch._util.address import is_loopback, parse_address
from vlmsearch._util.extras import install_command
from vlmsearch.errors import ConfigError, MissingDependencyError, one_line
from vlmsearch.principals import HEADER, principals_text, read_principals
from vlmsearch.server.caller import Caller
from vlmsearch.server.errors import ApiError, error_answer
from vlmsearch.server.limits import BodyLimits, TokenBuckets
from vlmsearch.server.monitoring import CLIENT_GONE
from vlmsearch.server.settings import INDEX_NAME, ServerSettings
from vlmsearch.server.tokens import AccessTokens, Token, TokenFile

SESSION_SECONDS = 12 * 3600
_SESSION_COOKIE = "vlmsearch_session"
_MAX_SESSIONS = 100
"""Of one token."""
_SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
_PUBLIC = frozenset({"/", "/healthz", "/readyz", "/api/v1/session"})
_PUBLIC_FOLDER = "/page/"
_LOG = logging.getLogger(__name__)
_AUDIT = logging.getLogger("vlmsearch.audit")
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob: data:; "
    "media-src 'self'; connect-src 'self'; manifest-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
"""Headers that keep a page to this server.

Browsers run and show only what the server itself sends, and no other site can frame it.
"""


def session_cookie(scope: Scope) -> str:
    """Return the name of the session cookie.

    Over TLS, no other host of the domain can set it, unless a proxy has other services at other paths.
    """
    if scope["scheme"] != "https":
        return _SESSION_COOKIE
    return f"__{'Secure' if scope['root_path'] else 'Host'}-{_SESSION_COOKIE}"


class Sessions:
    """The sessions of users who logged in to the page with a token. A session ends with its token, or after 12 hours.

    They are kept in memory: after a restart, users log in again. A token has 100 sessions at most, so that no token
    ends the sessions of another. Tokens of an identity provider are those of one user.

    Args:
        tokens: Tokens in force.
        buckets: Request rates of tokens; a log-in counts as a request.
        clock: Function that returns the time in seconds.
    """

    def __init__(
        self, tokens: AccessTokens, buckets: TokenBuckets | None = None, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.tokens = tokens
        self._buckets = buckets
        self._clock = clock
        self._open: dict[str, tuple[str, str, float]] = {}  # with secrets: a signed token is verified each time

    def start(self, secret: str) -> tuple[str, Caller] | None:
        """Start a session, and return its id and its caller.

        The id is 32 random bytes. None for a wrong token.

        Raises:
            ApiError: The token has used up its requests.
        """
        token = self.tokens.find(secret)
        if token is None:
            return None
        refusal = self._buckets.refusal(token.name) if self._buckets else None
        if refusal is not None:
            raise refusal
        self._open = {session: entry for session, entry in self._open.items() if self._clock() < entry[-1]}
        own = [session for session, (sha256, *_) in self._open.items() if sha256 == token.sha256]
        for oldest in own[: max(0, len(own) + 1 - _MAX_SESSIONS)]:
            self.end(oldest)
        session = secrets.token_urlsafe(32)
        self._open[session] = token.sha256, secret, self._clock() + SESSION_SECONDS
        return session, token.caller

    def find(self, session: str) -> Token | None:
        """Return the token of a session, while both are in force."""
        return self.tokens.find(self.secret(session))

    def secret(self, session: str) -> str:
        """Return the secret of the token of a session that has not ended; "" for another."""
        _, secret, ends = self._open.get(session, ("", "", 0.0))
        if self._clock() < ends:
            return secret
        self.end(session)
        return ""

    def end(self, session: str) -> None:
        """End a session, if it exists."""
        self._open.pop(session, None)


def add_access(app: FastAPI, settings: ServerSettings) -> None:
    """Put an application behind tokens and limits; see `Access` and `BodyLimits`.

    Args:
        app: The application, which finds the sessions in ``app.state.sessions``.
        settings: Settings of the operator.

    Raises:
        ConfigError: The file of tokens or that of a provider's keys cannot be read.
        MissingDependencyError: OpenID Connect needs packages that are not installed.
    """
    tokens: AccessTokens | None = TokenFile(Path(settings.tokens)) if settings.tokens else None
    if isinstance(tokens, TokenFile) and not tokens.read() and not settings.oidc:
        _LOG.warning("%s holds no tokens: `vlmsearch token add` makes one, and nobody gets in before", tokens.path)
    if settings.oidc:
        try:
            from vlmsearch.server.oidc import IdentityProvider
        except ModuleNotFoundError as exc:
            raise MissingDependencyError(f"`[oidc]` needs {exc.name}: {install_command('oidc')}") from exc
        tokens = IdentityProvider(settings.oidc, tokens)
    buckets = TokenBuckets(settings.rate) if settings.rate else None
    app.state.sessions = sessions = Sessions(tokens, buckets) if tokens else None
    app.add_middleware(BodyLimits, max_bytes=settings.max_body * 2**20)
    app.add_middleware(Access, tokens=tokens, sessions=sessions, origins=settings.cors, buckets=buckets)
    if settings.cors:  # around the others, so that pages of these sites can read why they are refused
        app.add_middleware(
            CORSMiddleware,
            allow_origins=settings.cors,
            allow_methods=["GET", "POST", "DELETE"],
            allow_headers=["Authorization", "Content-Type"],
            expose_headers=["Retry-After", "X-Request-ID"],
        )


class Access:
    """ASGI middleware that refuses requests without the right to be made.

    It writes an audit line for each request.

    It stands around the whole application, so that no route can forget it. The files of the page, the health of the
    server and the start of a session need no token. Routes find the caller in ``request.state.caller``. The function
    ``request.state.find_caller`` finds the caller anew, and returns None once the token is not in force.

    Args:
        app: The application.
        tokens: Tokens in force; None for a server that only this machine reaches, where everything is allowed.
        sessions: Sessions of the page; None without tokens.
        origins: Sites whose pages may send requests with a token (CORS), such as ``https://photos.example.com``.
        buckets: Request rates of tokens; None for no limit.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        tokens: AccessTokens | None,
        sessions: Sessions | None,
        origins: Collection[str] = (),
        buckets: TokenBuckets | None = None,
    ) -> None:
        self._app = app
        self._tokens = tokens
        self._sessions = sessions
        self._origins = origins
        self._buckets = buckets

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = time.perf_counter()
        state = scope.setdefault("state", {})
        if self._tokens:
            await self._tokens.prepare(self._secret(scope))
        caller, reason = self._caller(scope)
        state["caller"] = caller
        state["find_caller"] = lambda: self._caller(scope)[0]
        status = CLIENT_GONE

        async def answer(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
                if caller is not None and caller.narrowed:  # so that the client knows that it was heard
                    headers[HEADER] = principals_text(caller.narrowed)
            await send(message)

        try:
            refusal = self._refusal(scope, caller, reason)
            app = error_answer(refusal, state.get("request_id")) if refusal else self._app
            await app(scope, receive, answer)
        except Exception:
            status = 500
            raise
        finally:
            _audit(scope, caller, status, time.perf_counter() - started)

    def _caller(self, scope: Scope) -> tuple[Caller | None, ApiError | None]:
        """Return the caller by the header of a request, or else by its session.

        None for a token not in force, with the reason where more is known: a signed token, or a malformed header that
        narrows what the caller may read.
        """
        try:
            narrowed = _narrowed(Headers(scope=scope))
            if self._tokens is None or self._sessions is None:
                return Caller(narrowed=narrowed), None
            token = self._tokens.find(self._secret(scope))
            return (replace(token.caller, narrowed=narrowed) if token else None), None
        except ApiError as exc:
            return None, exc

    def _secret(self, scope: Scope) -> str:
        """Return the secret of a request, from its header or else its session; "" for none."""
        headers = Headers(scope=scope)
        if "authorization" in headers:
            scheme, _, secret = headers["authorization"].partition(" ")
            return secret.strip() if scheme.lower() == "bearer" else ""
        return self._sessions.secret(Request(scope).cookies.get(session_cookie(scope), "")) if self._sessions else ""

    def _refusal(self, scope: Scope, caller: Caller | None, reason: ApiError | None) -> ApiError | None:
        """Return the error of a request that is refused; None for one that is allowed."""
        headers = Headers(scope=scope)
        host = headers.get("host", "")
        if self._tokens is None and not _is_local(host):
            return ApiError(
                403,
                "forbidden",
                f"this server has no tokens and answers to localhost alone, not to {host[:100]!r}: "
                "`vlmsearch serve --tokens FILE` serves it under another name",
            )
        if scope["method"] not in _SAFE_METHODS and self._is_foreign(headers):
            return ApiError(
                403,
                "forbidden",
                "a page of another site may not ask for this: `vlmsearch serve --cors SITE` allows one",
            )
        if _is_public(scope):
            return None
        if caller is None:
            given = "the token is not in force" if "authorization" in headers else "a token is needed"
            return reason or ApiError(401, "unauthenticated", f"{given}: send one as `Authorization: Bearer TOKEN`")
        return self._buckets.refusal(caller.name) if self._buckets else None

    def _is_foreign(self, headers: Headers) -> bool:
        """Check whether a browser sends this for a page of another site.

        A header that no page can set tells.

        Programs send no such header. A request with a cookie comes from a browser, and is refused from every other
        site, also from one that may use tokens.
        """
        if "authorization" in headers:  # a page has a token only from somebody who holds it
            return False
        has_session = _SESSION_COOKIE in headers.get("cookie", "")
        origin = headers.get("origin")
        if origin is None:
            return has_session
        host = headers.get("host", "").lower()
        own = (f"http://{host}", f"https://{host}")
        return origin not in (own if has_session else (*own, *self._origins))


def _narrowed(headers: Headers) -> tuple[frozenset[str], ...]:
    """Return the sets of principals that the header of a request names."""
    given = headers.getlist(HEADER)
    try:
        return read_principals(";".join(given)) if given else ()
    except (ValueError, ConfigError) as exc:
        raise ApiError(400, "invalid_request", f"{HEADER}: {one_line(exc)}", param=HEADER) from exc


def _is_local(host: str) -> bool:
    """Check whether a Host header names this machine.

    A page whose name resolves to this machine (DNS rebinding) sends that name.
    """
    address = parse_address(host)
    return address is not None and is_loopback(address[0])


def _is_public(scope: Scope) -> bool:
    path = get_route_path(scope) or "/"
    return path in _PUBLIC or (path.startswith(_PUBLIC_FOLDER) and scope["method"] in _SAFE_METHODS)


def _audit(scope: Scope, caller: Caller | None, status: int, seconds: float) -> None:
    """Write the caller and the route to the log, and nothing else of the request: unknown paths may say anything."""
    who = "-" if caller is None else caller.name or "local"
    action = f"{scope['method']} {getattr(scope.get('route'), 'path', '-')}"
    index = scope["state"].get("index") or scope.get("path_params", {}).get("index", "")
    ms = round(seconds * 1000, 1)
    named = index if INDEX_NAME.fullmatch(index) else "-"
    said = {"who": who, "action": action, "index": named, "status": status, "ms": ms}
    _AUDIT.info("%s %s %s %d %s ms", *said.values(), extra=said)
