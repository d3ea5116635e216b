"""OpenID Connect: the tokens of an identity provider, verified by its keys and turned into principals."""

from __future__ import annotations

import asyncio
import logging
import re
import time
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any

import jwt

from vlmsearch._util.strict_json import parse_json
from vlmsearch.errors import ConfigError, one_line
from vlmsearch.openai_api.http import HttpClient, HttpOptions
from vlmsearch.server.errors import ApiError
from vlmsearch.server.settings import OidcSettings, check_url
from vlmsearch.server.tokens import MAX_TOKEN_CHARS, AccessTokens, Token, sha256_of
from vlmsearch.stores.readers import readable

ASK_SECONDS, RENEW_SECONDS = 60.0, 3600.0
"""Least time between two requests for keys: for a key that is not known, and for those that are."""
_ALGORITHMS = ("ES256", "RS256")
_OPTIONS: Any = {"require": ["aud", "exp", "iat", "iss", "sub"], "enforce_minimum_key_length": True}
_LEEWAY = 30
"""Seconds by which the clocks of the provider and of this machine may differ."""
_FETCHING = HttpOptions(timeout=5, answer_timeout=10)
_LOG = logging.getLogger(__name__)


class IdentityProvider(AccessTokens):
    """The tokens that an identity provider signs, beside those of a file.

    Args:
        settings: Settings of the operator.
        others: Other tokens, such as those of a file; None for none.

    Raises:
        ConfigError: A file of keys cannot be used.
    """

    def __init__(self, settings: OidcSettings, others: AccessTokens | None = None) -> None:
        self._settings = settings
        self._others = others
        self._fetching = asyncio.Lock()
        self._asked = -RENEW_SECONDS
        self._keys = {} if settings.jwks is None or "://" in settings.jwks else self._read_keys()
        self._verified = lru_cache(1024)(self._verify)  # which takes milliseconds with hundreds of groups

    async def prepare(self, secret: str) -> None:
        """Ask for the keys, where a token needs an unknown one, or they are old.

        If it fails, those from before stay in force.
        """
        key = _key_id(secret)
        if key is None or (key in self._keys and self._fetching.locked()):  # nobody waits for keys that are there
            return
        async with self._fetching:
            if time.monotonic() - self._asked >= (RENEW_SECONDS if key in self._keys else ASK_SECONDS):
                try:
                    self._keys = await asyncio.to_thread(self._read_keys)
                    self._verified.cache_clear()
                except ConfigError as exc:
                    _LOG.warning("%s; %d from before stay in force", exc, len(self._keys))
                self._asked = time.monotonic()

    def find(self, secret: str) -> Token | None:
        """Return the token of a secret; None for an unknown one.

        Raises:
            ApiError: A signed one is not in force.
        """
        if _key_id(secret) is None:
            return self._others.find(secret) if self._others else None
        token, ends = self._verified(secret)
        return token if time.time() < ends else self._verify(secret)[0]

    def _verify(self, secret: str) -> tuple[Token, float]:
        """Return the token that stands for a signed one, and when it ends. ApiError for whatever is wrong with it."""
        settings = self._settings
        try:
            claims, principals = self._claims(secret)
        except Exception as exc:  # whatever goes wrong opens nothing
            raise ApiError(401, "unauthenticated", f"the provider's token cannot be used: {one_line(exc)}") from exc
        subject = claims["sub"]
        digest = sha256_of(f"{settings.issuer} {subject}")
        cut = re.sub(r"[^A-Za-z0-9._-]+", "-", subject)[:48]
        name = f"user:{cut}" if cut == subject else f"user:{cut}-{digest[:8]}"  # ":" is in no name of a file's token
        return Token(name, settings.role, settings.indexes, digest, "", principals), int(claims["exp"]) + _LEEWAY

    def _claims(self, secret: str) -> tuple[dict[str, Any], tuple[str, ...]]:
        key, audience, issuer = self._keys.get(_key_id(secret) or ""), self._settings.audience, self._settings.issuer
        if key is None or len(secret) > MAX_TOKEN_CHARS:
            raise ConfigError(f"its key is none of the provider's {len(self._keys)}, or it is too long: log in again")
        token = jwt.decode_complete(
            secret, key, _ALGORITHMS, _OPTIONS, audience=audience, issuer=issuer, leeway=_LEEWAY
        )
        # tokens that end sessions or call for an event have other types, and are signed by the same keys
        if str(token["header"].get("typ", "JWT")).lower() not in ("jwt", "at+jwt", "application/at+jwt"):
            raise ConfigError("it is of a type that does not say who asks")
        return token["payload"], principals_of(token["payload"], self._settings)

    def _read_keys(self) -> dict[str, jwt.PyJWK]:
        """Return the provider's keys by their ids. ConfigError where they cannot be read."""
        place, issuer = self._settings.jwks, self._settings.issuer
        try:
            if place is None:
                provider = _fetch(issuer.rstrip("/") + "/.well-known/openid-configuration")
                place = provider["jwks_uri"] if provider["issuer"] == issuer else ""
                check_url(place, "`jwks_uri` of a provider of this issuer")
            listed = _fetch(place) if "://" in place else parse_json(Path(place).read_bytes())
            keys = [key for key in jwt.PyJWKSet.from_dict(listed) if key.algorithm_name in _ALGORITHMS]
            return {key.key_id: key for key in keys if key.key_id and key.public_key_use != "enc"}
        except Exception as exc:
            raise ConfigError(f"the keys of {issuer} cannot be read: {one_line(exc)}") from exc


def principals_of(claims: dict[str, Any], settings: OidcSettings) -> tuple[str, ...]:
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
        raise ConfigError("the user has too many groups for it: let the provider name those of this service alone")
    user, groups = (_claim(claims, name) for name in (settings.user_claim, settings.group_claim))
    groups = [] if groups is None else [groups] if isinstance(groups, str) else groups
    if not isinstance(groups, list) or not all(isinstance(name, str) and name.encode() for name in (user, *groups)):
        raise ConfigError(f"{settings.user_claim!r} and {settings.group_claim!r} are not a name and a list of names")
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


def _key_id(secret: str) -> str | None:
    """Return the id of the key that signed a token; None for another token."""
    with suppress(jwt.PyJWTError):  # the header alone is read: what comes after it may be long
        return str(jwt.get_unverified_header(secret.partition(".")[0] + "..").get("kid", ""))
    return None


def _fetch(url: str) -> Any:
    """Return the JSON of a URL, which may neither lead elsewhere nor be slow or long."""
    *origin, path = url.split("/", 3)
    with (
        HttpClient("/".join(origin), _FETCHING, uses_proxies=True) as client,
        client.exchange("GET", f"/{path}") as said,
    ):
        return parse_json(client.read(said.raise_for_status(), 2**20))
