"""A stand-in for an identity provider, to try the set: whoever runs this is whoever they say.

``python identity_stand_in.py ann --group hr`` prints a token of an hour. The key is made on first use; a real provider
has its own, and asks its users who they are.
"""

import argparse
import json
import time
from pathlib import Path

import jwt
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from jwt.algorithms import RSAAlgorithm

ISSUER, AUDIENCE, NAME = "https://stand-in.invalid", "vlmsearch", "stand-in"
SECONDS = 3600


def signing_key(folder: Path) -> rsa.RSAPrivateKey:
    """Return the key that signs, and write the public half for the service, where there is none yet."""
    file = folder / "stand-in-key.pem"
    if not file.exists():
        made = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        encoding, form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
        file.touch(mode=0o600)
        file.write_bytes(made.private_bytes(encoding, form, serialization.NoEncryption()))
        public = {**RSAAlgorithm.to_jwk(made.public_key(), as_dict=True), "kid": NAME, "use": "sig"}
        (folder / "stand-in-keys.json").write_text(json.dumps({"keys": [public]}), encoding="utf-8")
    return serialization.load_pem_private_key(file.read_bytes(), None)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("user")
    parser.add_argument("--group", action="append", default=[], help="a group of the user; may be given again")
    parser.add_argument("--keys", type=Path, default=Path(__file__).parent / "secrets", help="folder of the keys")
    given = parser.parse_args()
    now = int(time.time())
    claims = {
        "iss": ISSUER,
        "aud": AUDIENCE,
        "sub": given.user,
        "groups": given.group,
        "iat": now,
        "exp": now + SECONDS,
    }
    print(jwt.encode(claims, signing_key(given.keys), "RS256", {"kid": NAME}))


if __name__ == "__main__":
    main()
