"""``vlmsearch mcp``."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import click

from vlmsearch._util.address import is_loopback
from vlmsearch._util.extras import install_command
from vlmsearch._util.text import unfiltered
from vlmsearch.cli.common import (
    PORT,
    command,
    option,
)
from vlmsearch.cli.opening import IndexChoice, index_options
from vlmsearch.errors import MissingDependencyError


@command()
@index_options("encoder", "generator", "image_limits", "server", "principals")
@option("--allow-write", is_flag=True, help="Let assistants write labels into the index.")
@option("--http", is_flag=True, help="Serve many clients over HTTP at /mcp, not one over standard input.")
@option("--host", default="127.0.0.1", show_default=True, help="The address of --http, on this machine.")
@option("--port", default=8090, show_default=True, type=PORT, help="The port of --http.")
@option("--allow-host", "hosts", multiple=True, metavar="HOST", help="A name that a proxy passes on as Host to --http.")
def mcp(chosen: IndexChoice, allow_write: bool, http: bool, host: str, port: int, hosts: Sequence[str]) -> None:
    """Serve an index to AI assistants over the Model Context Protocol (MCP).

    Without --http, an assistant starts this command and talks to it over standard input and output.
    """
    if http and not is_loopback(host):
        raise click.UsageError(
            f"--http serves this machine alone, not {host}: put a proxy that asks for tokens before it"
        )
    try:
        from vlmsearch.integrations.mcp import allow_hosts, create_mcp_server
    except ModuleNotFoundError as exc:
        package = (exc.name or "mcp").partition(".")[0]
        raise MissingDependencyError(
            f"`vlmsearch mcp` needs {package}, which is not installed: {install_command('mcp')}"
        ) from exc
    security = allow_hosts(hosts)
    with chosen.open() as index:
        protocol = create_mcp_server(index, allow_write=allow_write)
        if http:
            click.echo(f"Serving at http://{host}:{port}/mcp", err=True)
            protocol.run("streamable-http", host=host, port=port, transport_security=security)
        else:
            sys.stdout = unfiltered(sys.stdout)  # the client is a program, and the bytes are its protocol's
            protocol.run("stdio")
