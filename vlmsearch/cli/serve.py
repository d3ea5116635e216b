"""``vlmsearch serve``."""

from __future__ import annotations

from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from vlmsearch._util.extras import install_command
from vlmsearch.cli.common import PORT, SECONDS, PlainText, command, encoder_option, limits_option, option, url_option
from vlmsearch.errors import ConfigError, MissingDependencyError
from vlmsearch.media.limits import SERVER_LIMITS, ImageLimits
from vlmsearch.registry import DEFAULT_GENERATOR, DEFAULT_STORE

if TYPE_CHECKING:
    from vlmsearch.server.settings import ServerSettings


@command()
@url_option("store", "--store", help=f"The store of the index.  [default: {DEFAULT_STORE}]")
@encoder_option
@url_option("generator", "--generator", help=f"The generator, or none.  [default: {DEFAULT_GENERATOR}]")
@url_option("reranker", "--reranker", help="The re-ranker, for requests that ask for it.")
@option("--config", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE", help="Settings, in TOML.")
@option("--host", help="The address to listen on.  [default: 127.0.0.1]")
@option("--port", type=PORT, help="[default: 8080]")
@option("--root-path", metavar="PATH", help="Prefix of the URL behind a proxy, such as /search.")
@option("--allow", multiple=True, type=PlainText(), metavar="DIR", help="A folder that index jobs may read.")
@option("--uploads", metavar="DIR", help="A folder for uploaded images.  [default: vlmsearch-uploads]")
@option("--tokens", metavar="FILE", help="The token file of `vlmsearch token`. Required beyond 127.0.0.1.")
@option("--max-body", type=click.IntRange(1), metavar="MIB", help="Maximum size of a request.  [default: 64]")
@option("--rate", type=click.FloatRange(0, min_open=True), metavar="N", help="Maximum requests a second of a token.")
@option("--cors", multiple=True, metavar="ORIGIN", help="A site whose pages may call this server from a browser.")
@option("--tls-cert", metavar="FILE", help="Serve TLS with this certificate.")
@option("--tls-key", metavar="FILE", help="The key of the certificate.")
@option("--log", type=click.Choice(("text", "json")), help="Format of the log.  [default: text]")
@option("--threads", type=click.IntRange(1), metavar="N", help="Maximum number of concurrent requests.  [default: 64]")
@option("--workers", type=click.IntRange(1), metavar="N", help="Processes that search.  [default: 1]")
@option("--stop-seconds", type=SECONDS, help="Seconds to finish accepted requests when stopped.  [default: 30]")
@limits_option(SERVER_LIMITS)
def serve(config: Path | None, image_limits: ImageLimits, **given: object) -> None:
    """Serve indexes over HTTP: an API and a web page.

    --store serves one index, named "default". --config serves several named indexes. Options override the file.
    """
    try:
        from vlmsearch.server.app import create_app
        from vlmsearch.server.logs import configured
        from vlmsearch.server.run import HttpServer, listen
        from vlmsearch.server.searchers import Searchers
        from vlmsearch.server.service import Service, pipelines
    except ModuleNotFoundError as exc:
        raise MissingDependencyError(
            f"`vlmsearch serve` needs {exc.name}, which is not installed: {install_command('serve')}"
        ) from exc
    settings = _settings(config, given)
    settings = replace(settings, image_limits=image_limits)
    with ExitStack() as stack:
        stack.enter_context(configured(settings.log))
        searchers = stack.enter_context(Searchers(settings, pipelines)) if settings.workers > 1 else None
        listening = stack.enter_context(listen(settings))
        service = stack.enter_context(Service.open(settings, searchers))
        server = HttpServer(create_app(service), service)
        host, port = listening.getsockname()[:2]
        scheme = "https" if settings.tls_cert else "http"
        click.echo(f"Serving {', '.join(settings.indexes)} at {scheme}://{_in_url(host)}:{port}", err=True)
        for name, index in service.indexes.items():
            if index.pipeline.store.manifest() is None:
                click.echo(f"Note: {name} is new and empty: there is no index at {index.settings.store} yet", err=True)
        with suppress(KeyboardInterrupt):  # uvicorn raises the signal again when it is done
            server.run(sockets=[listening])


def _in_url(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _settings(config: Path | None, given: dict[str, object]) -> ServerSettings:
    """Return the settings of a file, overridden by options."""
    from vlmsearch.server.settings import DEFAULT_INDEX, IndexSettings, ServerSettings, read_settings

    named = {name: value for name, value in given.items() if value not in (None, ())}
    of_index = {
        name: named.pop(name) for name in ("store", "encoder", "generator", "reranker", "allow") if name in named
    }
    if of_index.get("generator") == "none":
        of_index["generator"] = ""
    settings = read_settings(config) if config else ServerSettings()
    if settings.indexes and of_index:
        flags = ", ".join(f"--{name}" for name in of_index)
        raise ConfigError(f"{config} names the indexes: leave out {flags}")
    indexes = settings.indexes or {DEFAULT_INDEX: IndexSettings(**of_index)}  # type: ignore[arg-type]
    return replace(settings, indexes=indexes, **named)  # type: ignore[arg-type]
