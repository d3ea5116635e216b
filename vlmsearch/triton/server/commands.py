"""The commands that serve a model repository with Triton: a program on this machine, or NVIDIA's container."""

from __future__ import annotations

import os
import secrets
import shlex
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from vlmsearch._util.address import is_loopback
from vlmsearch.errors import ConfigError

_STUB_SECONDS = 120
"""Seconds that a Python model may take to load."""


@dataclass(frozen=True)
class Binary:
    """A server program: what it needs in its environment, and where its backends and caches are, if not as built."""

    program: str
    environment: Mapping[str, str] = field(default_factory=dict)
    backends: Path | None = None
    caches: Path | None = None


def on_path() -> Binary | None:
    """Return the ``tritonserver`` on PATH, as in NVIDIA's containers."""
    program = shutil.which("tritonserver")
    return Binary(program) if program else None


@dataclass(frozen=True)
class Endpoints:
    """The addresses of a server."""

    host: str = "127.0.0.1"
    http: int = 8000
    grpc: int = 8001
    metrics: int = 8002

    @property
    def reach(self) -> str:
        """Return the host to connect to."""
        return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(self.host, self.host)  # noqa: S104

    def url(self, path: str) -> str:
        """Return a URL of the HTTP endpoint."""
        host = f"[{self.reach}]" if ":" in self.reach else self.reach
        return f"http://{host}:{self.http}/{path}"

    @property
    def is_local(self) -> bool:
        """Return whether only this machine reaches it."""
        return is_loopback(self.host)


def shm_prefix(ends: Endpoints) -> str:
    """Return the name of the shared memory of a server's Python models.

    It can be removed by that.

    It begins with the prefix that Triton keeps for itself: a client cannot register such memory as its own.
    """
    return f"triton_python_backend_shm_region_vlmsearch_{ends.grpc}_{os.getpid()}_"


def server_command(
    binary: Binary,
    folder: Path,
    ends: Endpoints,
    *,
    cache_mib: int = 0,
    extra: Sequence[str] = (),
) -> list[str]:
    """Return the command that serves a repository.

    ``cache_mib`` is for responses, ``extra`` are flags of the server.

    Clients cannot hand over shared memory. From 26.05 on Triton itself does not let them; older servers would let them
    register any, also that of the Python models where they do not refuse its name.
    """
    if not folder.is_dir():
        raise ConfigError(f"{folder} is not a folder; make a repository with `vlmsearch triton repo --out {folder}`")
    command = [binary.program, f"--model-repository={folder.absolute()}", "--exit-on-error=false"]
    for protocol, port in (("http", ends.http), ("grpc", ends.grpc), ("metrics", ends.metrics)):
        command += [f"--{protocol}-address={ends.host}", f"--{protocol}-port={port}"]
    command.append(f"--backend-config=python,stub-timeout-seconds={_STUB_SECONDS}")
    if binary.backends:
        command.append(f"--backend-directory={binary.backends}")
    needed = f"shared-memory:vlmsearch={secrets.token_hex()}"  # nobody is told
    command += [f"--grpc-restricted-protocol={needed}", f"--http-restricted-api={needed}"]
    if cache_mib:
        command.append(f"--cache-config=local,size={cache_mib * 2**20}")
        if binary.caches:
            command.append(f"--cache-directory={binary.caches}")
    return [*command, *extra]


INSIDE = Endpoints("0.0.0.0")  # noqa: S104 - in a container; outside it is what was asked for
"""The addresses of a server in a container."""


def docker_command(
    image: str,
    ends: Endpoints,
    serve: Sequence[str],
    folders: Sequence[Path],
    *,
    gpu: bool,
    environment: Mapping[str, str] | None = None,
    passed: Iterable[str] = (),
    cache: Path | None = None,
    has_grpc: bool = True,
    upgraded: Sequence[str] = (),
) -> list[str]:
    """Return the ``docker run`` of a server's command; one without gRPC has the port of HTTP alone.

    ``folders`` are those that it reads, the repository first, whose ``requirements.txt`` is installed before. ``cache``
    is one that it writes to. The variables named in ``passed`` have the values of docker's own environment. The
    packages in ``upgraded`` are upgraded in the container first.
    """
    places = dict.fromkeys(folder.absolute() for folder in folders)
    needed = next(iter(places)) / "requirements.txt" if places else None
    if needed and needed.is_file():
        serve = ["bash", "-c", f"pip install --quiet -r {shlex.quote(str(needed))} && exec {shlex.join(serve)}"]
    if upgraded:  # without a network the server starts all the same, and says itself what it lacks
        serve = ["bash", "-c", f"pip install --quiet --upgrade {shlex.join(upgraded)}; exec {shlex.join(serve)}"]
    ports = [(ends.http, INSIDE.http), (ends.grpc, INSIDE.grpc), (ends.metrics, INSIDE.metrics)]
    return [
        *("docker", "run", "--rm", "--init", "--shm-size=2g"),
        *("--ulimit", "memlock=-1", "--ulimit", "stack=67108864"),
        *(("--gpus", "all") if gpu else ()),
        *(part for name, value in (environment or {}).items() for part in ("-e", f"{name}={value}")),
        *(part for name in passed for part in ("-e", name)),
        *(part for outer, inner in ports[: None if has_grpc else 1] for part in ("-p", f"{ends.host}:{outer}:{inner}")),
        *(part for place in places for part in ("-v", f"{place}:{place}:ro")),
        *(("-v", f"{cache}:{cache}") if cache else ()),
        image,
        *serve,
    ]
