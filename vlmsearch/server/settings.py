"""The settings of an operator: address, indexes and limits of a service."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from vlmsearch._util.address import is_loopback
from vlmsearch._util.arguments import check_bounds, check_counts
from vlmsearch._util.files import expand_home
from vlmsearch._util.frozen import FrozenDict
from vlmsearch._util.retry import check_seconds
from vlmsearch._util.tables import as_dataclass, read_table
from vlmsearch.errors import ConfigError
from vlmsearch.media.limits import SERVER_LIMITS, ImageLimits
from vlmsearch.registry import DEFAULT_GENERATOR, DEFAULT_STORE
from vlmsearch.server.caller import Right

DEFAULT_INDEX = "default"
"""The name of an only index without a name."""
INDEX_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
ROOT_PATH = re.compile(r"(/[\w~-][\w.~-]*)*", re.ASCII)
"""A prefix of paths: no host (``//``), no ``..`` and nothing that needs quotes."""
_KEYS_URL = re.compile(r"(https://[^\s/?#@]+|http://(localhost|127\.0\.0\.1|\[::1])(:\d+)?)(/[^\s#@]*)?")
"""A URL of https, or of http on this machine, without a name and a password."""
Log = Literal["text", "json"]


@dataclass(frozen=True)
class IndexSettings:
    """The settings of an index.

    Attributes:
        store: URL of the store.
        encoder: URL of the encoder; None for the encoder that built the index.
        generator: URL of the generator of answers; "" for no answers.
        reranker: URL of the re-ranker; None for none.
        allow: Folders of this machine that jobs may index. Uploads, indexes, the file of tokens and the key are always
            left out.

    Example:
        >>> IndexSettings(store="sqlite:./photos", allow=("photos",)).generator
        'extractive:'
    """

    store: str = DEFAULT_STORE
    encoder: str | None = None
    generator: str = DEFAULT_GENERATOR
    reranker: str | None = None
    allow: tuple[str, ...] = ()


@dataclass(frozen=True)
class OidcSettings:
    """The settings of OpenID Connect: whose tokens are taken, and who their holders are.

    Attributes:
        issuer: URL of the identity provider, as its tokens have it.
        audience: Name of this service at the provider, as tokens for it have it.
        jwks: URL or file of the provider's keys (JWKS); None for those that the provider itself names.
        role: Highest right of its users.
        indexes: Names of the indexes that its users may see; None for all.
        user_claim: Claim with the user: ``ann`` is the principal ``user:ann``.
        group_claim: Claim with the user's groups: ``hr`` is the principal ``group:hr``. Dots lead into objects.

    Raises:
        ConfigError: A setting is wrong.

    Example:
        >>> OidcSettings("https://id.example.com/realms/staff", "vlmsearch").user_claim
        'sub'
    """

    issuer: str
    audience: str
    jwks: str | None = None
    role: Right = "read"
    indexes: tuple[str, ...] | None = None
    user_claim: str = "sub"
    group_claim: str = "groups"

    def __post_init__(self) -> None:
        check_url(self.issuer, "oidc: issuer")
        if self.jwks and "://" in self.jwks:
            check_url(self.jwks, "oidc: jwks")


@dataclass(frozen=True)
class ServerSettings:
    """The settings of a service.

    Attributes:
        indexes: Indexes by name: letters, digits, ``.``, ``_`` and ``-``.
        host: Address to listen on.
        port: Port; 0 for a free one.
        root_path: Prefix of the service's URL behind a proxy, such as ``/search``.
        uploads: Folder of the images that are sent over HTTP.
        tokens: File of `vlmsearch token`; None for none. Without it and `oidc` this machine alone has access.
        oidc: Identity provider whose tokens are taken, too; None for none.
        max_body: Maximum length of a request's body, in MiB, at least 1.
        rate: Maximum number of requests of a token a second, from 0.000001 to 1,000,000; None for no limit.
        cors: Origins whose pages may call the service from a browser.
        tls_cert: Certificate for TLS; None for plain HTTP.
        tls_key: Key of the certificate.
        log: Format of log lines: ``text`` for people, or ``json`` for one object a line.
        threads: Number of requests that are handled at a time, above 0. Many make large batches for encoders.
        workers: Number of processes that search, above 0. With 1, the process of the requests does it.
        stop_seconds: Seconds for accepted requests after the service was asked to stop, from 0.001 to 1,000,000.
        image_limits: Limits of images, in requests and in files.

    Raises:
        ConfigError: A setting is wrong.

    Example:
        >>> ServerSettings(indexes={"photos": IndexSettings("sqlite:./photos")}).port
        8080
    """

    indexes: Mapping[str, IndexSettings] = field(default_factory=FrozenDict)
    host: str = "127.0.0.1"
    port: int = 8080
    root_path: str = ""
    uploads: str = "vlmsearch-uploads"
    tokens: str | None = None
    oidc: OidcSettings | None = None
    max_body: int = 64
    rate: float | None = None
    cors: tuple[str, ...] = ()
    tls_cert: str | None = None
    tls_key: str | None = None
    log: Log = "text"
    threads: int = 64
    workers: int = 1
    stop_seconds: float = 30.0
    image_limits: ImageLimits = field(default=SERVER_LIMITS, metadata={"given": False})

    def __post_init__(self) -> None:
        for name in self.indexes:
            if not INDEX_NAME.fullmatch(name):
                raise ConfigError(
                    f"an index is named by 1 to 64 letters, digits, '.', '_' and '-', which it does not begin with: "
                    f"not {name!r}"
                )
        check_bounds(0, 65535, port=self.port)
        object.__setattr__(self, "root_path", self.root_path.rstrip("/"))
        if not ROOT_PATH.fullmatch(self.root_path):
            raise ConfigError(f"`root_path` is the beginning of a path, such as /search, not {self.root_path!r}")
        check_counts(max_body=self.max_body, threads=self.threads, workers=self.workers)
        check_seconds(stop_seconds=self.stop_seconds)
        check_bounds(1e-6, 1e6, rate=self.rate)
        if (self.tls_cert is None) != (self.tls_key is None):
            raise ConfigError("TLS takes a certificate and its key: give both `tls_cert` and `tls_key`")

    def check_address(self) -> None:
        """Raise ConfigError for a service that other machines could use without a token."""
        if self.tokens is None and self.oidc is None and not is_loopback(self.host):
            raise ConfigError(
                f"`host={self.host}` can be reached from other machines: name a file of `tokens`, "
                "which `vlmsearch token add` writes, or listen on 127.0.0.1"
            )


def check_url(url: object, where: str) -> None:
    """Raise ConfigError unless a URL is one of https, or of http on this machine: keys come from there."""
    if not isinstance(url, str) or not _KEYS_URL.fullmatch(url):
        raise ConfigError(f"{where} is a URL that begins with https://, or http://localhost, not {url!r:.200}")


def read_settings(path: Path) -> ServerSettings:
    """Return the settings of a TOML file: the keys of `ServerSettings`, and a table ``[indexes.NAME]`` an index.

    ``[oidc]`` is the table of `OidcSettings`. Folders and files are relative to the file.

    Args:
        path: The file.

    Returns:
        The settings.

    Raises:
        ConfigError: The file cannot be read, or a setting is wrong; the message says which.
    """
    settings = as_dataclass(ServerSettings, read_table(path), str(path))
    folder = path.absolute().parent

    def place(given: str) -> str:
        return str(folder / expand_home(given))

    indexes = {name: replace(index, allow=tuple(map(place, index.allow))) for name, index in settings.indexes.items()}
    tokens, cert, key = (given and place(given) for given in (settings.tokens, settings.tls_cert, settings.tls_key))
    oidc = settings.oidc
    if oidc and oidc.jwks and "://" not in oidc.jwks:
        oidc = replace(oidc, jwks=place(oidc.jwks))
    return replace(
        settings, uploads=place(settings.uploads), tokens=tokens, tls_cert=cert, tls_key=key, indexes=indexes, oidc=oidc
    )
