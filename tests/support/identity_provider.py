"""A stand-in for an identity provider: it serves discovery and keys, and signs what a test wants."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from jwt.algorithms import ECAlgorithm, RSAAlgorithm

AUDIENCE = "vlmsearch"
PrivateKey = rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey


def rsa_key(bits: int = 2048) -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(public_exponent=65537, key_size=bits)


def public_jwk(name: str, key: PrivateKey, **more: str) -> dict[str, Any]:
    """The public half of a key, as a provider lists it."""
    if isinstance(key, rsa.RSAPrivateKey):
        return {**RSAAlgorithm.to_jwk(key.public_key(), as_dict=True), "kid": name, **more}
    return {**ECAlgorithm.to_jwk(key.public_key(), as_dict=True), "kid": name, **more}


@dataclass
class StandInProvider:
    """The provider: ``keys`` sign, ``listed`` is what it says of them, ``asked`` the paths that were asked for."""

    issuer: str
    keys: dict[str, PrivateKey]
    listed: list[dict[str, Any]] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    discovery: dict[str, Any] = field(default_factory=dict)
    is_away: bool = False

    def list_keys(self) -> None:
        """List the public halves of the keys that there are now."""
        self.listed = [public_jwk(name, key) for name, key in self.keys.items()]

    def claims(self, **changed: object) -> dict[str, Any]:
        """The claims of a right token of ``ann``; those that are None are left out."""
        now = int(time.time())
        right = {"iss": self.issuer, "aud": AUDIENCE, "sub": "ann", "iat": now, "exp": now + 600}
        return {name: value for name, value in {**right, **changed}.items() if value is not None}

    def token(
        self,
        kid: str | None = "first",
        *,
        key: Any = None,
        algorithm: str = "",
        headers: Mapping[str, Any] | None = None,
        **changed: object,
    ) -> str:
        """Sign the claims of a right token, with some of them changed."""
        signer = key if key is not None else self.keys[kid or "first"]
        names = {"kid": kid} if kid else {}
        usual = "ES256" if isinstance(signer, ec.EllipticCurvePrivateKey) else "RS256"
        return jwt.encode(self.claims(**changed), signer, algorithm or usual, {**names, **(headers or {})})


@contextmanager
def stand_in_provider(**keys: PrivateKey) -> Iterator[StandInProvider]:
    """A provider on a free port, with the keys of these names."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            provider.asked.append(self.path)
            answers = {"/keys": {"keys": provider.listed}, "/.well-known/openid-configuration": provider.discovery}
            found = None if provider.is_away else answers.get(self.path)
            self.send_response(503 if provider.is_away else 200 if found else 404)
            self.end_headers()
            self.wfile.write(json.dumps(found).encode())

        def log_message(self, format: str, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        issuer = f"http://127.0.0.1:{server.server_port}"
        provider = StandInProvider(issuer, keys, discovery={"issuer": issuer, "jwks_uri": f"{issuer}/keys"})
        provider.list_keys()
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield provider
        finally:
            server.shutdown()
            thread.join()
