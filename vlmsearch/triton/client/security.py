"""Certificates, tokens and headers for a Triton server that is protected."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from vlmsearch._util.credentials import check_unencrypted, is_secret_header, redact
from vlmsearch.errors import ConfigError

_TLS = "add tls=true to the URL"


@dataclass(frozen=True)
class Security:
    """Certificates and headers for a server that is protected, from the environment.

    ``VLMSEARCH_TRITON_CA`` is a file with the certificates to trust, ``VLMSEARCH_TRITON_CERT`` and
    ``VLMSEARCH_TRITON_KEY`` are the client's own (mutual TLS), ``VLMSEARCH_TRITON_TOKEN`` becomes ``authorization:
    Bearer ...``, and ``VLMSEARCH_TRITON_HEADERS`` has further headers, ``name: value``, one a line.
    """

    tls: bool
    root: str | None
    certificate: str | None
    key: str | None
    headers: Mapping[str, str] = field(repr=False)

    @classmethod
    def from_environment(cls, *, tls: bool, host: str) -> Security:
        """Return the settings for a host.

        ConfigError for an unreadable file or a token that anybody can read.
        """
        root, certificate, key = (_file(f"VLMSEARCH_TRITON_{name}") for name in ("CA", "CERT", "KEY"))
        if bool(certificate) != bool(key):
            raise ConfigError("VLMSEARCH_TRITON_CERT and VLMSEARCH_TRITON_KEY go together")
        headers = {}
        for line in os.environ.get("VLMSEARCH_TRITON_HEADERS", "").splitlines():
            header, colon, value = line.partition(":")
            if not colon or not re.fullmatch(r"[\w.-]+", header.strip(), re.ASCII):
                raise ConfigError("VLMSEARCH_TRITON_HEADERS has a line that is not of the form name: value")
            headers[header.strip().lower()] = _sendable("VLMSEARCH_TRITON_HEADERS", value)
        token = _sendable("VLMSEARCH_TRITON_TOKEN", os.environ.get("VLMSEARCH_TRITON_TOKEN", ""))
        if not tls and any(map(is_secret_header, headers)):
            check_unencrypted("VLMSEARCH_TRITON_HEADERS", host, _TLS)
        if token and not tls:
            check_unencrypted("VLMSEARCH_TRITON_TOKEN", host, _TLS)
        if token:
            headers["authorization"] = f"Bearer {token}"
        return cls(tls, root, certificate, key, headers)

    def redact(self, text: str) -> str:
        """Return what a server says without the secrets that it was sent."""
        secret = (value for name, value in self.headers.items() if is_secret_header(name))
        return redact(text, [value.removeprefix("Bearer ") for value in secret])


def _sendable(variable: str, text: str) -> str:
    """Return a header's value without the space around it.

    A token from a file comes with the end of its line.
    """
    stripped = text.strip()
    if not (stripped.isascii() and stripped.isprintable()):
        raise ConfigError(f"{variable} holds characters that no header has")
    return stripped


def _file(variable: str) -> str | None:
    path = os.environ.get(variable) or None
    try:
        if path:
            Path(path).read_bytes()
    except OSError as exc:
        raise ConfigError(f"{variable} is {path}, which cannot be read: {exc.strerror}") from exc
    return path
