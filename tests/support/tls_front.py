"""TLS before a PostgreSQL that was built without it: what a client sends goes on to the server, decrypted."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

_ASKS_FOR_TLS = bytes([0, 0, 0, 8, 4, 210, 22, 47])


@contextmanager
def tls_front(port: int, context: ssl.SSLContext) -> Iterator[int]:
    """The port at which the server of this machine at ``port`` is reached by TLS, and in no other way."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def accept() -> None:
            with suppress(OSError):  # it is closed at the end
                while True:
                    client, _ = listening.accept()
                    threading.Thread(target=_serve, args=(client, port, context), daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()
        yield int(listening.getsockname()[1])


def _serve(client: socket.socket, port: int, context: ssl.SSLContext) -> None:
    with suppress(OSError), client:
        if client.recv(8) != _ASKS_FOR_TLS:
            return
        client.sendall(b"S")
        with (
            context.wrap_socket(client, server_side=True) as secure,
            socket.create_connection(("127.0.0.1", port)) as server,
        ):
            back = threading.Thread(target=_pass_on, args=(server, secure), daemon=True)
            back.start()
            _pass_on(secure, server)
            back.join()


def _pass_on(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)
