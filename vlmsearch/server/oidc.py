"""OpenID Connect: the tokens of an identity provider, verified by its keys and turned into principals."""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import re
import time
from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vlmsearch._util.extras import install_command
from vlmsearch._util.strict_json import parse_json
from vlmsearch.errors import ConfigError, MissingDependencyError, one_line
from vlmsearch.server.errors import ApiError
from vlmsearch.server.settings import OidcSettings, check_url
from vlmsearch.server.tokens import Token, TokenFile
from vlmsearch.stores.readers import readable

if TYPE_CHECKING:
    import jwt

MAX_TOKEN_CHARS = 16_384
ASK_SECONDS, RENEW_SECONDS = 60.0, 3600.0
"""Least time between two requests for keys: for a key that is not known, and for those that are."""
_ALGORITHMS = ("ES256", "RS256")
_TYPES = ("jwt", "at+jwt", "application/at+jwt")
"""Types of tokens that say who asks; others, such as those that end sessions, are signed by the same keys."""
_CLAIMS = ("aud", "exp", "iat", "iss", "sub")
_LEEWAY_SECONDS = 30
_FETCH_SECONDS = 10.0
_MAX_FETCHED_BYTES = 2**20
_MAX_VERIFIED = 1024
"""Tokens that are not verified again for each request, which takes milliseconds with hundreds of groups."""
_LOG = logging.getLogger(__name__)


class IdentityProvider:
    """The tokens that an identity provider signs, beside those of a file.

    Args:
        settings: Settings of the operator.
        file: File of tokens; None for none.
        clock: Function that returns the time in seconds.

    Raises:
        ConfigError: A file of keys cannot be used.
        MissingDependencyError: PyJWT or cryptography is not installed.
    """

    def __init__(
        self, settings: OidcSettings, file: TokenFile | None = None, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        try:
            import cryptography  # noqa: F401
            import jwt
        except ModuleNotFoundError as exc:
            raise MissingDependencyError(
                f"`[oidc]` needs {exc.name}, which is not installed: {install_command('oidc')}"
            ) from exc
        self._jwt = jwt
        self._settings = settings
        self._file = file
        self._clock = clock
        self._fetching = asyncio.Lock()
        self._asked = -RENEW_SECONDS
        self._keys: Mapping[str, jwt.PyJWK] = {}
        self._verified = lru_cache(_MAX_VERIFIED)(self._verify)
        if settings.jwks and "://" not in settings.jwks:
            self._keys = self._read_keys()

    async def prepare(self, secret: str) -> None:
        """Ask for the keys again, where a token needs one that is not known, or where they are old.

        Where that fails, those from before stay in force.
        """
        if not _is_signed(secret) or self._clock() - self._asked < ASK_SECONDS:
            return
        try:
            key = self._header(secret).get("kid")
        except self._jwt.PyJWTError:
            return
        if key in self._keys and self._fetching.locked():  # nobody waits for keys that are there
            return
        async with self._fetching:
            if self._clock() - self._asked < (RENEW_SECONDS if key in self._keys else ASK_SECONDS):
                return
            try:
                self._keys = await asyncio.to_thread(self._read_keys)
                self._verified.cache_clear()
            except ConfigError as exc:
                _LOG.warning("%s; %d from before stay in force", exc, len(self._keys))
            finally:
                self._asked = self._clock()

    def find(self, secret: str) -> Token | None:
        """Return the token of a secret; None for one that is not in force."""
        if not _is_signed(secret):
            return self._file.find(secret) if self._file else None
        try:
            return self._current(secret)
        except ApiError:
            return None

    def refusal(self, secret: str) -> ApiError | None:
        """Return why a signed token is not in force; None for all else."""
        try:
            if _is_signed(secret):
                self._current(secret)
        except ApiError as exc:
            return exc
        return None

    def _current(self, secret: str) -> Token:
        """Return the token that stands for a signed one. ApiError for whatever is wrong with it."""
        token, ends = self._verified(secret)
        return token if time.time() < ends else self._verify(secret)[0]

    def _verify(self, secret: str) -> tuple[Token, float]:
        """Return the token that stands for a signed one, and when it ends. ApiError as above."""
        settings, status, kind = self._settings, 401, "unauthenticated"
        if not self._keys:
            said = "the identity provider's keys are not known yet: try again later"
            raise ApiError(503, "backend_unavailable", said, retry_after=ASK_SECONDS)
        try:
            claims = self._claims(secret)
            status, kind = 403, "forbidden"
            principals = principals_of(claims, settings)
        except Exception as exc:  # whatever goes wrong opens nothing
            raise ApiError(status, kind, f"the identity provider's token cannot be used: {one_line(exc, 400)}") from exc
        subject = claims["sub"]
        digest = hashlib.sha256(json.dumps([settings.issuer, subject]).encode()).hexdigest()
        cut = re.sub(r"[^A-Za-z0-9._-]+", "-", subject)[:48]
        name = f"user:{cut}" if cut == subject else f"user:{cut}-{digest[:8]}"  # ":" is in no name of a file's token
        token = Token(name, settings.role, settings.indexes, digest, "", principals)
        return token, int(claims["exp"]) + _LEEWAY_SECONDS

    def _header(self, secret: str) -> dict[str, Any]:
        return self._jwt.get_unverified_header(secret.partition(".")[0] + "..")

    def _claims(self, secret: str) -> Mapping[str, Any]:
        if len(secret) > MAX_TOKEN_CHARS:
            raise ConfigError(f"it has more than {MAX_TOKEN_CHARS:,} characters")
        header = self._header(secret)
        if str(header.get("typ", "JWT")).lower() not in _TYPES:
            raise ConfigError("it is of a type that says not who asks")
        key = self._keys.get(header.get("kid", ""))
        if key is None:
            raise ConfigError("its key is not one of the provider's")
        claims: Mapping[str, Any] = self._jwt.decode(
            secret,
            key,
            algorithms=_ALGORITHMS,
            audience=self._settings.audience,
            issuer=self._settings.issuer,
            leeway=_LEEWAY_SECONDS,
            options={"require": list(_CLAIMS), "enforce_minimum_key_length": True},
        )
        return claims

    def _read_keys(self) -> dict[str, jwt.PyJWK]:
        """Return the provider's keys by their ids. ConfigError where there is none to verify with."""
        try:
            return self._listed_keys()
        except Exception as exc:
            raise ConfigError(f"the keys of {self._settings.issuer} cannot be read: {one_line(exc)}") from exc

    def _listed_keys(self) -> dict[str, jwt.PyJWK]:
        place, issuer = self._settings.jwks, self._settings.issuer
        if place is None:
            provider = _fetch(issuer.rstrip("/") + "/.well-known/openid-configuration")
            if provider["issuer"] != issuer:
                raise ConfigError(f"it says that its issuer is {provider['issuer']!r:.100}")
            place = provider["jwks_uri"]
            check_url(place, "`jwks_uri`")
        listed = _fetch(place) if "://" in place else parse_json(Path(place).read_bytes())
        keys = [key for key in self._jwt.PyJWKSet.from_dict(listed) if key.public_key_use != "enc"]
        named = {key.key_id: key for key in keys if key.key_id and key.algorithm_name in _ALGORITHMS}
        if not named:
            raise ConfigError(f"none of them has a `kid` and is for {' or '.join(_ALGORITHMS)}")
        return named


def principals_of(claims: Mapping[str, Any], settings: OidcSettings) -> tuple[str, ...]:
    """Return the principals that a token's claims name: its user, and each of the user's groups.

    Args:
        claims: Claims of a token that is verified.
        settings: Settings of the operator.

    Returns:
        The names, such as ``user:ann`` and ``group:hr``.

    Raises:
        ConfigError: Groups are left out, or a claim is not what it should be.

    Example:
        >>> settings = OidcSettings("https://id.example.com", "search", group_claim="realm_access.roles")
        >>> principals_of({"sub": "ann", "realm_access": {"roles": ["hr"]}}, settings)
        ('user:ann', 'group:hr')
    """
    root = settings.group_claim.partition(".")[0]
    if root in (claims.get("_claim_names") or ()) or (root == "groups" and claims.get("hasgroups")):
        raise ConfigError(
            "the groups of this user are left out of it, since there are too many: let the provider name those alone "
            "that are assigned to this service"
        )
    user, groups = (_claim(claims, name) for name in (settings.user_claim, settings.group_claim))
    groups = [] if groups is None else [groups] if isinstance(groups, str) else groups
    if not isinstance(groups, list) or not all(isinstance(name, str) and name for name in (user, *groups)):
        raise ConfigError(
            f"its claims {settings.user_claim!r} and {settings.group_claim!r} are not a name and a list of names: "
            "`user_claim` and `group_claim` of [oidc] name others"
        )
    if settings.user_claim == "email" and claims.get("email_verified") is not True:
        raise ConfigError("the address of this user is not verified: let the provider say `email_verified`")
    names = (f"user:{user}", *(f"group:{name}" for name in groups))
    readable(names)
    return names


def _claim(claims: Any, name: str) -> Any:
    """Return a claim, also one within objects: dots lead there, unless they belong to its name."""
    first, _, rest = name.partition(".")
    if claims is None or name in claims or not rest:
        return claims and claims.get(name)
    return _claim(claims.get(first), rest)


def _is_signed(secret: str) -> bool:
    """Check whether a secret is written as a JWT: those of files have no dots."""
    return secret.count(".") == 2


def _fetch(url: str) -> Any:
    """Return the JSON of a URL, which may neither lead elsewhere nor be slow or long."""
    import httpx

    ends, data = time.monotonic() + _FETCH_SECONDS, b""
    with httpx.stream("GET", url, timeout=_FETCH_SECONDS / 2, headers={"Accept-Encoding": "identity"}) as response:
        response.raise_for_status()
        for piece in response.iter_raw():
            data += piece
            if len(data) > _MAX_FETCHED_BYTES or time.monotonic() > ends:
                raise ConfigError(f"it is longer than {_MAX_FETCHED_BYTES:,} bytes, or came too slowly")
    return parse_json(data)
