"""Secrets: who is not given them, and where they are not shown."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from urllib.parse import quote

from vlmsearch._util.address import is_loopback
from vlmsearch.errors import ERRNO, ConfigError

_SECRET_NAME = re.compile(
    r"(TOKEN|KEYS?|SECRETS?|PASSWORDS?|PASSWD|PASSPHRASE|CREDENTIALS?|HEADERS|AUTHORIZATION|COOKIE)(_|$)"
    r"|(^|_)(PASS|PAT|PWD)(_|$)|PASSFILE",
    re.IGNORECASE,
)
"""``TOKEN`` and not ``TOKENS``, which are counted."""
_FOLDERS = frozenset({"PWD", "OLDPWD"})
_SECRET_VALUE = re.compile(r"://[^/\s@]*:[^/\s@]+@")
"""A URL with a password."""
_HUB_TOKENS = ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN")


def child_environment() -> dict[str, str]:
    """Return this process's environment without its secrets, for a program that has no use for them.

    Variables are left out whose names say that they hold a secret, such as ``OPENAI_API_KEY`` and
    ``OTEL_EXPORTER_OTLP_HEADERS``. So are those whose values are URLs with a password, except those of proxies. All
    others stay: MPI, CUDA, NCCL and the loader are set up by more variables than a list of what is allowed could know.
    ``ORT_DISABLE_TELEMETRY`` is added: Triton may load ONNX Runtime itself.
    """
    kept = {name: value for name, value in os.environ.items() if not _is_secret(name, value)}
    return {"ORT_DISABLE_TELEMETRY": "1", **kept}


def hub_tokens() -> dict[str, str]:
    """Return the variables with a token of the Hugging Face hub, for programs that download models."""
    return {name: os.environ[name] for name in _HUB_TOKENS if name in os.environ}


def is_secret_header(name: str) -> bool:
    """Return whether a header holds a secret, by its name: ``authorization``, ``x-api-key``, ``cookie``."""
    return _SECRET_NAME.search(name.replace("-", "_")) is not None


def check_unencrypted(variable: str, host: str, advice: str) -> None:
    """Raise ConfigError where the secret in ``variable`` would leave this machine unencrypted.

    Args:
        variable: The environment variable that the secret comes from.
        host: Where a connection without TLS goes to.
        advice: How to encrypt it.
    """
    if not is_loopback(host):
        raise ConfigError(f"{variable} would cross the network to {host} unencrypted: {advice}")


def redact(said: str, secrets: Iterable[str], *, max_chars: int | None = None) -> str:
    """Return a server's message on one line, with stars for each secret: some servers repeat what they are sent.

    Args:
        said: The server's words.
        secrets: The secrets that it was sent; they are found percent-encoded, too.
        max_chars: Characters of the line that are kept. It is redacted before it is cut, so no part of a secret stays.
    """
    for secret in filter(None, secrets):
        for form in (secret, quote(secret, safe="")):
            said = said.replace(form, "***")
    return " ".join(ERRNO.sub("", said).split())[:max_chars]


def _is_secret(name: str, value: str) -> bool:
    if name in _FOLDERS:
        return False
    if _SECRET_NAME.search(name):
        return True
    return _SECRET_VALUE.search(value) is not None and not name.lower().endswith("_proxy")
