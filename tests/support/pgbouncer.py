"""pgbouncer before a PostgreSQL, in the mode in which each transaction may be on another connection."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
import pytest

from tests.support.parts import check_server_mark
from tests.support.postgres_servers import ADMIN, PostgresServer, owner
from tests.support.servers import START_SECONDS, free_port


@contextmanager
def pgbouncer(server: PostgresServer, *, connections: int) -> Iterator[str]:
    """The address of a pgbouncer that has so many connections to a server."""
    check_server_mark()
    program = shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin:/usr/local/sbin")
    if program is None:
        pytest.fail("PostgreSQL is tested behind pgbouncer: apt-get install pgbouncer")
    port = free_port()
    settings = {
        "listen_addr": "127.0.0.1",
        "listen_port": port,
        "unix_socket_dir": "",
        "auth_type": "any",
        "pool_mode": "transaction",
        "default_pool_size": connections,
        "max_client_conn": 500,
    }
    lines = [f"* = host=127.0.0.1 port={server.port} user={ADMIN}", "[pgbouncer]"]
    path = server.folder / "pgbouncer.ini"
    path.write_text("\n".join(["[databases]", *lines, *(f"{name} = {value}" for name, value in settings.items()), ""]))
    with (server.folder / "pgbouncer.log").open("wb") as log:
        process = subprocess.Popen([program, str(path)], stdout=log, stderr=log, user=owner(), cwd=server.folder)
    try:
        deadline = time.monotonic() + START_SECONDS
        while True:
            try:
                psycopg.connect(f"postgresql://{ADMIN}@127.0.0.1:{port}/postgres", connect_timeout=5).close()
                break
            except psycopg.OperationalError:
                if time.monotonic() > deadline or process.poll() is not None:
                    pytest.fail(f"pgbouncer did not start: {(server.folder / 'pgbouncer.log').read_text()[-2000:]}")
                time.sleep(0.05)
        yield f"{ADMIN}@127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()
