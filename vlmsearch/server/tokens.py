"""Access tokens: made once, kept as hashes in a file, and found again in constant time."""

from __future__ import annotations

import hashlib
import hmac
import json
import logging
import os
import re
import secrets
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import get_args

from vlmsearch._util.files import replace_file
from vlmsearch._util.locks import take_lock
from vlmsearch.errors import ConfigError, one_line
from vlmsearch.principals import principal_names
from vlmsearch.server.caller import Caller, Right

ROLES: tuple[Right, ...] = get_args(Right)
MAX_TOKEN_CHARS = 16_384
"""Of a token from outside: one that an identity provider signs names hundreds of groups."""
_PREFIX = "vlms_"
"""The prefix by which secret scanners find tokens."""
_RANDOM_BYTES = 32
_NAME = re.compile(r"[A-Za-z0-9._-]{1,64}")
_DIGEST = re.compile(r"[0-9a-f]{64}")
_VERSION = 1
_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class Token:
    """A token as the file has it, without its secret.

    Attributes:
        name: Name of its holder, also in audit lines.
        role: Highest right.
        indexes: Names of the indexes that it may see; None for all, also future ones.
        sha256: SHA-256 of the secret in hexadecimal digits. A secret is 32 random bytes, which cannot be guessed. Slow
            hashes are for passwords that people choose.
        created: Time when it was made, in UTC and ISO 8601.
        principals: Principals whose documents it may read; None for all documents.
    """

    name: str
    role: Right
    indexes: tuple[str, ...] | None
    sha256: str
    created: str
    principals: tuple[str, ...] | None = None

    @property
    def caller(self) -> Caller:
        """Return the caller that has this token."""
        indexes, principals = (None if given is None else frozenset(given) for given in (self.indexes, self.principals))
        return Caller(self.name, self.role, indexes, self.sha256, principals)


class AccessTokens(ABC):
    """The tokens in force."""

    async def prepare(self, secret: str) -> None:  # noqa: B027 - tokens of a file need nothing
        """Get what is needed to find a token and takes time, such as keys from elsewhere."""

    @abstractmethod
    def find(self, secret: str) -> Token | None:
        """Return the token of a secret; None for a wrong secret."""


class TokenFile(AccessTokens):
    """A JSON file of tokens, which is replaced as a whole at each change.

    Args:
        path: The file, which need not exist.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     file = TokenFile(Path(folder, "tokens.json"))
        ...     secret = file.add("page", role="read", indexes=["photos"])
        ...     caller = file.find(secret).caller
        >>> caller.name, caller.sees("photos"), caller.sees("letters"), caller.may("write")
        ('page', True, False, False)
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._state: tuple[int, ...] | None = None
        self._tokens: tuple[Token, ...] = ()

    def read(self) -> tuple[Token, ...]:
        """Return the tokens, in the order in which they were added; none without a file.

        Raises:
            ConfigError: The file cannot be read, or holds something else.
        """
        try:
            text = self.path.read_text(encoding="utf-8")
        except FileNotFoundError:
            return ()
        except (OSError, UnicodeDecodeError) as exc:
            raise ConfigError(f"the file of tokens {self.path} cannot be read: {one_line(exc)}") from exc
        try:
            return _parse(text)
        except (ValueError, RecursionError) as exc:
            raise ConfigError(f"{self.path} is not a file of tokens: {exc}; `vlmsearch token add` writes one") from exc

    def current(self) -> tuple[Token, ...]:
        """Return the tokens in force, which are read again when the file has changed.

        With a damaged file, the tokens before stay in force, and the log has an error. Without a file there are none.
        """
        try:
            stat = self.path.stat()
        except OSError:
            state = None
        else:
            state = (stat.st_mtime_ns, stat.st_size, stat.st_ino)
        if state != self._state:
            try:
                self._tokens = self.read()
            except ConfigError as exc:
                _LOG.error("%s; the tokens from before stay in force", exc)
            self._state = state
        return self._tokens

    def find(self, secret: str) -> Token | None:
        """Return the token of a secret; None for a wrong secret. The time depends on neither."""
        given = sha256_of(secret)
        match = None
        for token in self.current():
            if hmac.compare_digest(token.sha256, given):
                match = token
        return match

    def add(
        self,
        name: str,
        *,
        role: Right,
        indexes: Sequence[str] | None = None,
        principals: Sequence[str] | None = None,
    ) -> str:
        """Make a token.

        Args:
            name: Name of its holder: 1 to 64 letters, digits, dots, dashes and underscores.
            role: Highest right.
            indexes: Names of the indexes that it may see; None for all.
            principals: Principals whose documents it may read, such as ``group:hr``; None for all documents.

        Returns:
            The secret, which is kept nowhere.

        Raises:
            ConfigError: The name is taken, a value is wrong, or the file cannot be written.
        """
        secret = _PREFIX + secrets.token_urlsafe(_RANDOM_BYTES)
        created = datetime.now(timezone.utc).isoformat(timespec="seconds")
        token = _checked(Token(name, role, indexes, sha256_of(secret), created, principals))  # type: ignore[arg-type]
        with self._changing() as tokens:
            if any(token.name == name for token in tokens):
                raise ConfigError(f"there is a token {name!r}: remove it first, or give the new one another name")
            self._write([*tokens, token])
        return secret

    def remove(self, name: str) -> None:
        """Remove a token, which a running server refuses from then on.

        Args:
            name: Name of the token.

        Raises:
            ConfigError: There is no such token, or the file cannot be written.
        """
        with self._changing() as tokens:
            left = [token for token in tokens if token.name != name]
            if len(left) == len(tokens):
                known = ", ".join(token.name for token in tokens) or "none"
                raise ConfigError(f"there is no token {name!r} in {self.path}; there are: {known}")
            self._write(left)

    @contextmanager
    def _changing(self) -> Iterator[tuple[Token, ...]]:
        """Yield the tokens, while no other process changes them.

        A process that adds must not bring back what another one removed.
        """
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            lock = take_lock(self.path.with_name(f".{self.path.name}.lock"), wait=False)
        except TimeoutError as exc:
            raise ConfigError(f"another process is changing {self.path}: try again") from exc
        except OSError as exc:
            raise ConfigError(f"{self.path} cannot be changed: {exc.strerror}") from exc
        with lock:
            yield self.read()

    def _write(self, tokens: Iterable[Token]) -> None:
        rows = [asdict(token) for token in tokens]
        for row in rows:
            if row["principals"] is None:  # as in a file from before there were any
                del row["principals"]
        text = json.dumps({"version": _VERSION, "tokens": rows}, indent=2) + os.linesep
        try:
            replace_file(self.path, text.encode())
        except OSError as exc:
            raise ConfigError(f"{self.path} cannot be written: {exc.strerror}") from exc


def sha256_of(secret: str) -> str:
    """Return the SHA-256 of a secret in hexadecimal digits."""
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


def _parse(text: str) -> tuple[Token, ...]:
    """Return the tokens of a file; ValueError for another file."""
    parsed = json.loads(text)
    if not isinstance(parsed, dict) or parsed.get("version") != _VERSION or not isinstance(parsed.get("tokens"), list):
        raise ValueError(f"it has no version {_VERSION} and a list of tokens")
    tokens = []
    for row in parsed["tokens"]:
        try:
            token = Token(**row)
        except TypeError as exc:
            raise ValueError(f"a token has name, role, indexes, sha256 and created: {row!r}") from exc
        tokens.append(_checked(token))
    if len({token.name for token in tokens}) < len(tokens):
        raise ValueError("two tokens have one name")
    return tuple(tokens)


def _checked(token: Token) -> Token:
    """Return a token with tuples for its lists; ConfigError for one with a wrong value."""
    if not isinstance(token.name, str) or not _NAME.fullmatch(token.name):
        raise ConfigError(f"a token's name has 1 to 64 letters, digits, dots, - and _, not {token.name!r}")
    if token.role not in ROLES:
        raise ConfigError(f"a token's role is one of {', '.join(ROLES)}, not {token.role!r}")
    for kind, names in (("indexes", token.indexes), ("principals", token.principals)):
        if names is not None and (
            not isinstance(names, (list, tuple)) or not all(isinstance(name, str) and name for name in names or [None])
        ):
            raise ConfigError(f"the {kind} of a token are a list of names, or null for all, not {names!r}")
    principal_names(token.principals or ())
    if not isinstance(token.sha256, str) or not _DIGEST.fullmatch(token.sha256):
        raise ConfigError(f"the sha256 of token {token.name!r} is not 64 hexadecimal digits")
    indexes, principals = (None if names is None else tuple(names) for names in (token.indexes, token.principals))
    return replace(token, indexes=indexes, principals=principals)
