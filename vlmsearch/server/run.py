"""The HTTP server, which finishes what it accepted before it stops."""

from __future__ import annotations

import socket
import ssl
from types import FrameType

import uvicorn
from fastapi import FastAPI

from vlmsearch.errors import ConfigError, one_line
from vlmsearch.server.service import Service
from vlmsearch.server.settings import ServerSettings

_BACKLOG = 2048
_HEAD_BYTES = 65536
"""Maximum length of the request line and the headers."""


def listen(settings: ServerSettings) -> socket.socket:
    """Return a socket that listens at the address of the settings; ConfigError if that fails."""
    settings.check_address()
    _check_tls(settings)
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((settings.host.strip("[]"), settings.port))
        listening.listen(_BACKLOG)
    except OSError as exc:
        listening.close()
        raise ConfigError(f"cannot listen on {settings.host}:{settings.port}: {exc.strerror or exc}") from exc
    return listening


def _check_tls(settings: ServerSettings) -> None:
    """Raise ConfigError for a certificate and a key that cannot be used."""
    if settings.tls_cert and settings.tls_key:
        try:
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(settings.tls_cert, settings.tls_key)
        except OSError as exc:  # which errors of TLS are, too
            given = f"{settings.tls_cert} and {settings.tls_key}"
            raise ConfigError(f"`tls_cert` and `tls_key` cannot be used, {given}: {one_line(exc)}") from exc


class HttpServer(uvicorn.Server):
    """A uvicorn server that tells the service when it is asked to stop.

    Args:
        app: The application.
        service: Its service.
    """

    def __init__(self, app: FastAPI, service: Service) -> None:
        settings = service.settings
        config = uvicorn.Config(
            app,
            http="h11",  # the other, httptools, reads heads of any length
            h11_max_incomplete_event_size=_HEAD_BYTES,
            ws="none",
            log_config=None,
            access_log=False,
            server_header=False,
            # a proxy may ask from anywhere, as out of a container; who lies makes a cookie of its own unusable, no more
            forwarded_allow_ips="*",
            timeout_graceful_shutdown=max(1, round(settings.stop_seconds)),
            ssl_certfile=settings.tls_cert,
            ssl_keyfile=settings.tls_key,
        )
        super().__init__(config)
        self._service = service

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Stop accepting requests, and end streams and jobs."""
        self._service.stop()
        super().handle_exit(sig, frame)
