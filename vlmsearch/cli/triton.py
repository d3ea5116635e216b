"""``vlmsearch triton``: the command group."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from vlmsearch.cli.common import (
    Group,
    is_terminal,
    json_option,
    limits_option,
    option,
    print_json,
    release_option,
)
from vlmsearch.cli.triton_server import ServerChoice, gpu_numbers, note, server_options
from vlmsearch.media.limits import SERVER_LIMITS

if TYPE_CHECKING:
    from vlmsearch.triton.client.status import Status


@click.group(cls=Group, short_help="Make, serve and monitor Triton model repositories.")
def triton() -> None:
    """Make model repositories for NVIDIA Triton, serve them, and monitor a server."""


@triton.command()
@option("--models", default="default", show_default=True, metavar="NAMES", help="A profile, or bundles: A,B.")
@option("--reranker", default="", metavar="NAME", help="Also serve a re-ranker, at triton://HOST:8001/reranker.")
@option(
    "--platform",
    type=click.Choice(["python", "onnxruntime", "tensorrt"]),
    default="python",
    show_default=True,
    help="Triton backend of the towers. python runs ONNX Runtime or TensorRT inside the Python backend.",
)
@option(
    "--runtime",
    type=click.Choice(["onnxruntime", "tensorrt"]),
    default="onnxruntime",
    show_default=True,
    help="Runtime of the towers, with --platform python.",
)
@option("--out", type=click.Path(path_type=Path), required=True, metavar="DIR", help="The folder of the repository.")
@release_option(
    "The Triton release.  [default: for python the release of `triton install`, else the newest]", "--triton"
)
@option("--tensorrt", default="", metavar="VERSION", help="TensorRT in its container.  [default: the known one]")
@option("--precision", type=click.Choice(["fp32", "fp16", "int8", "qdq"]), help="[default: int8; on a GPU fp32]")
@option("--device", type=click.Choice(["cpu", "gpu"]), help="[default: cpu; for tensorrt gpu]")
@option("--decode", type=click.Choice(["cpu", "gpu"]), default="cpu", show_default=True, help="Decoder of JPEGs.")
@option("--gpus", metavar="N,M", default="", help="Numbers of the GPUs.  [default: all]")
@option("--plans", type=click.Path(path_type=Path, exists=True), metavar="DIR", help="A folder with TensorRT plans.")
@option("--max-batch-size", default=64, show_default=True, help="Maximum items of a request and of a batch.")
@option("--preferred-batch-size", "preferred", multiple=True, type=int, help="A preferred batch size; may be repeated.")
@option("--queue-delay-us", "delay_us", default=0, show_default=True, help="Microseconds that a batch waits for more.")
@option("--queue-limit", "limit", default=1024, show_default=True, help="Maximum queued requests; 0 for no limit.")
@option("--queue-timeout-ms", "timeout_ms", default=0, show_default=True, help="Maximum wait; 0 for no limit.")
@option("--instances", type=int, help="Instances of a tower on a device.  [default: 1; 3 if it decodes on a GPU]")
@option("--threads", default=0, show_default=True, help="Threads of a tower on the CPU; 0 for all cores.")
@option("--warmup/--no-warmup", default=True, show_default=True, help="Warm up each model before it is ready.")
@option("--response-cache", is_flag=True, help="Cache responses. Serve with --cache-mib.")
@limits_option(SERVER_LIMITS)
@option("--max-text-kib", "max_text_bytes", default=256, show_default=True, help="Maximum size of a request's texts.")
@json_option
def repo(models: str, out: Path, plans: Path | None, as_json: bool, **choices: Any) -> None:
    """Write a model repository from bundles."""
    from vlmsearch.triton.repository.options import Queue, RepoOptions
    from vlmsearch.triton.repository.writer import write_repository

    queue = Queue(**{name: choices.pop(name) for name in ("preferred", "delay_us", "limit", "timeout_ms")})
    gpus = gpu_numbers(choices.pop("gpus"))
    longest = choices.pop("max_text_bytes") * 2**10
    options = RepoOptions(queue=queue, gpus=gpus, max_text_bytes=longest, **choices)
    made = write_repository(models, out, options, plans=plans)
    if as_json:
        print_json({"folder": str(made.folder), "models": made.models, "missing": list(map(str, made.missing))})
        return
    click.echo(f"{made.folder}: {', '.join(made.models)} for Triton {options.found_release}")
    for path in made.missing:
        click.echo(f"missing, to be built on the serving GPU: {path}")
    for command in made.commands:
        click.echo(f"build it: {command}")
    click.echo(f"serve it: vlmsearch triton serve {shlex.quote(str(made.folder))}")


@triton.command()
@option("--python", metavar="PATH", help="Python for Python models, 3.10 to 3.12.  [default: this one, or one on PATH]")
def install(python: str | None) -> None:
    """Install a Triton server for trying out, without Docker or root, in the user's cache.

    It is unpatched, and `vlmsearch triton serve` lets it serve this machine only.
    """
    from vlmsearch.triton.server.install import ADVICE, install as install_server

    click.echo(install_server(python=python, report=note).program)
    note(ADVICE)


@triton.command(context_settings={"ignore_unknown_options": True})
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@click.argument("extra", nargs=-1, type=click.UNPROCESSED, metavar="[-- FLAGS OF TRITONSERVER]")
@option("--control", type=click.Choice(["none", "poll", "explicit"]), default="none", show_default=True)
@option("--cache-mib", default=0, show_default=True, type=click.IntRange(0), help="Size of the response cache.")
@server_options(seconds=600.0, flag="--triton", release="The container's release.  [default: the newest]")
@option("--gpu/--no-gpu", default=False, help="Give the GPUs to the container.")
def serve(
    folder: Path,
    extra: tuple[str, ...],
    control: str,
    cache_mib: int,
    server: ServerChoice,
    gpu: bool,
) -> None:
    """Serve a repository until Ctrl-C. A line says when it is ready.

    The server is the tritonserver on PATH, or else the one that --install or `vlmsearch triton install` has
    installed. The Python of a server on PATH needs the packages in the repository's requirements.txt.
    """
    from vlmsearch.triton.repository.releases import NEWEST_RELEASE, find_release
    from vlmsearch.triton.server.commands import INSIDE, Binary, docker_command, server_command

    flags = [*([] if control == "none" else [f"--model-control-mode={control}"]), *extra]
    if control == "explicit":
        flags.append("--load-model=*")
    if server.docker:
        image = find_release(server.release or NEWEST_RELEASE).image
        inside = server_command(Binary("tritonserver"), folder, INSIDE, cache_mib=cache_mib, extra=flags)
        command = docker_command(image, server.ends, inside, [folder], gpu=gpu)
        note(shlex.join(command))
        server.run(command)
        return
    binary = server.find()
    command = server_command(binary, folder, server.ends, cache_mib=cache_mib, extra=flags)
    server.run(command, binary.environment)


@triton.command()
@click.argument("url", default="127.0.0.1:8001", metavar="[URL]")
@option("--tls", is_flag=True, help="Use TLS. VLMSEARCH_TRITON_CA and others name the certificates.")
@json_option
def status(url: str, tls: bool, as_json: bool) -> None:
    """Show the models, queues and batches of a server. URL is HOST:PORT of its gRPC endpoint."""
    from vlmsearch.triton.client.status import read_status

    server_status = read_status(url, tls=tls)
    if as_json:
        print_json(server_status.to_json())
    else:
        _show(server_status)


def _show(server_status: Status) -> None:
    """Print a table on a terminal; in a pipe a line for each model, with tabs."""
    if is_terminal():
        from vlmsearch._util.console import make_console
        from vlmsearch.triton.client.status import table

        make_console().print(table(server_status))
        return
    for model in server_status.models:
        cells = (model.name, model.version, model.state, model.requests, model.failures, model.items, model.batches)
        click.echo("\t".join(map(str, (*cells, round(model.queue_ms, 3), round(model.compute_ms, 3)))))


@triton.command()
def dashboard() -> None:
    """Print a Grafana dashboard for a server's metrics, as JSON."""
    from vlmsearch.triton import DASHBOARD

    click.echo(DASHBOARD.read_text(encoding="utf-8"), nl=False)
