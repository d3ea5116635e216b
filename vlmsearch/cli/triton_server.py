"""The Triton server that `vlmsearch triton serve` and `vlmsearch llm serve` start."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import TYPE_CHECKING, Any

import click

from vlmsearch.cli.common import PORT, SECONDS, add_options, option, release_option

if TYPE_CHECKING:
    from vlmsearch.triton.server.commands import Binary, Endpoints


@dataclass(frozen=True)
class ServerChoice:
    """The options of a Triton server: its addresses, its program, and how it runs."""

    ends: Endpoints
    seconds: float
    restart: bool
    verbose: bool
    dry_run: bool
    install: bool
    docker: bool
    release: str | None

    def find(self) -> Binary:
        """Return the tritonserver on PATH, or else the one in the user's cache.

        The latter serves this machine only.

        A dry run installs nothing; without a server it returns the name of the program.

        Raises:
            ModelUnavailableError: There is no server, and --install is missing or fails.
            ConfigError: The server in the cache would listen on an address that other machines reach.
        """
        from vlmsearch.errors import ConfigError, ModelUnavailableError
        from vlmsearch.triton.server.commands import Binary, on_path

        if binary := on_path():
            return binary
        from vlmsearch.triton.server.install import ADVICE, SERVER, ensure_installed, find_installed, installed

        binary = installed() if self.dry_run else find_installed(report=note)
        if binary is None and not self.install:
            if self.dry_run:
                return Binary("tritonserver")
            raise ModelUnavailableError(
                "there is no tritonserver on PATH, and none installed that has the packages of this environment: run "
                "NVIDIA's container with --docker, or, for trying out, let --install install "
                f"Triton {SERVER}, which is unpatched"
            )
        if not self.ends.is_local:
            raise ConfigError(
                f"--host {self.ends.host} lets other machines in, and Triton {SERVER} from the wheel is unpatched: it "
                "listens on 127.0.0.1 alone; use --docker, or put a newer tritonserver on PATH"
            )
        note(ADVICE)
        return binary or (Binary("tritonserver") if self.dry_run else ensure_installed(report=note))

    def run(self, command: Sequence[str], environment: Mapping[str, str] | None = None) -> None:
        """Run the command of the server in the foreground, or print it."""
        from vlmsearch.triton.server.supervise import SupervisedCommand, supervise

        variables = dict(environment or {})
        if not self.ends.is_local:
            note(
                f"Warning: {self.ends.host} lets other machines in, and Triton asks for no password: whoever reaches "
                "the ports can use the models and change what is loaded. Keep them behind a firewall, or a proxy that "
                "does ask"
            )
        if self.dry_run:
            shown = [f"{name}={value}" for name, value in variables.items() if name.startswith(("CUDA_", "TRTLLM_"))]
            click.echo(shlex.join([*shown, *command]))
            return
        show = note if self.verbose else None
        supervised = SupervisedCommand(command, variables, self.ends, self.seconds)
        supervise(supervised, restart=self.restart, show=show, say=click.echo)


def server_options(
    *, seconds: float, flag: str, release: str
) -> Callable[[Callable[..., object]], Callable[..., object]]:
    """Return a decorator that adds the options of a Triton server: the function gets a `ServerChoice` as ``server``.

    Args:
        seconds: Default of --wait.
        flag: Flag of the container's release.
        release: Help for this flag.
    """
    options = [
        option("--host", default="127.0.0.1", show_default=True, help="Address to listen on; 0.0.0.0 for all."),
        option("--http-port", default=8000, show_default=True, type=PORT),
        option("--grpc-port", default=8001, show_default=True, type=PORT),
        option("--metrics-port", default=8002, show_default=True, type=PORT),
        option(
            "--wait",
            "seconds",
            default=seconds,
            show_default=True,
            type=SECONDS,
            help="Seconds to load the models.",
        ),
        option("--restart/--no-restart", default=True, help="Restart a server that dies.  [default: restart]"),
        option("--verbose", is_flag=True, help="Show the server's log."),
        option("--dry-run", is_flag=True, help="Print the command and do not run it."),
        option(
            "--install",
            is_flag=True,
            help="Install a server if there is none: unpatched, for this machine only.",
        ),
        option("--docker", is_flag=True, help="Run NVIDIA's container."),
        release_option(release, flag),
    ]

    def decorate(function: Callable[..., object]) -> Callable[..., object]:
        @wraps(function)
        def wrapper(*args: object, **kwargs: Any) -> object:
            from vlmsearch.triton.server.commands import Endpoints

            ends = Endpoints(*(kwargs.pop(name) for name in ("host", "http_port", "grpc_port", "metrics_port")))
            names = ("seconds", "restart", "verbose", "dry_run", "install", "docker", "release")
            server = ServerChoice(ends, **{name: kwargs.pop(name) for name in names})
            if server.docker and server.install:
                raise click.UsageError("--install is for a server without --docker: a container brings its own")
            return function(*args, server=server, **kwargs)

        return add_options(options)(wrapper)

    return decorate


def gpu_numbers(text: str) -> tuple[int, ...]:
    """Return the numbers in the text of --gpus.

    Raises:
        ConfigError: The text holds anything else.
    """
    from vlmsearch.errors import ConfigError

    parts = text.split(",") if text else []
    if not all(part.strip().isdecimal() for part in parts):
        raise ConfigError(f"--gpus is numbers with a comma between them, not {text!r}")
    return tuple(map(int, parts))


def note(line: str) -> None:
    """Print a line on standard error."""
    click.echo(line, err=True)
