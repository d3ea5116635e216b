"""``vlmsearch index``."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sized
from contextlib import contextmanager, redirect_stdout
from dataclasses import replace
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from vlmsearch.cli.common import (
    ServerIndex,
    command,
    encoder_option,
    json_option,
    limits_option,
    open_index,
    option,
    print_json,
    server_option,
    store_option,
    usual_encoder,
    with_flags,
)
from vlmsearch.errors import InvalidInputError
from vlmsearch.media.limits import DEFAULT_LIMITS, ImageLimits
from vlmsearch.media.remote import remote_url
from vlmsearch.types import Document, IndexReport, Reject, local_image
from vlmsearch.wire import report_json

if TYPE_CHECKING:
    from vlmsearch.client import RemotePipeline
    from vlmsearch.indexing.items import Item, Sourced
    from vlmsearch.indexing.sources import Paths
    from vlmsearch.integrations.ray import RayOptions

_SHOWN = 20


class _Place(click.Path):
    """A path of this machine, or a URL of object storage, which stays a string."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return str(value) if remote_url(value) else super().convert(value, param, ctx)


class _Engine(click.ParamType):  # type: ignore[type-arg,unused-ignore] # generic in newer releases of click
    """Where to run: ``ray``, or ``ray:ADDRESS``; gives the address."""

    name = "engine"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        scheme, _, address = str(value).partition(":")
        if scheme != "ray":
            self.fail(f"{value!r} is neither ray nor ray:ADDRESS", param, ctx)
        return address


def _cluster_options(function: Callable[..., object]) -> Callable[..., object]:
    """Where and on how much of a cluster to run: the function gets RayOptions or None as ``cluster``."""

    @option("--on", type=_Engine(), metavar="ray[:ADDRESS]", help="Run on a Ray cluster: that at ADDRESS, or one here.")
    @option("--workers", type=click.IntRange(1), help="How many encoders, with --on.  [default: one a GPU or machine]")
    @option("--worker-cpus", type=click.FloatRange(0), default=0.0, show_default=True, help="Ray's CPUs for each.")
    @option("--worker-gpus", type=click.FloatRange(0), default=0.0, show_default=True, help="Ray's GPUs for each.")
    @option("--writers", type=click.IntRange(1), default=4, show_default=True, help="How many write to the servers.")
    @wraps(function)
    def wrapper(
        *args: object,
        on: str | None,
        workers: int | None,
        worker_cpus: float,
        worker_gpus: float,
        writers: int,
        **kwargs: object,
    ) -> object:
        if on is None:
            return function(*args, cluster=None, **kwargs)
        from vlmsearch.integrations.ray import RayOptions

        cluster = RayOptions(on or None, workers, worker_cpus, worker_gpus, writers)
        return function(*args, cluster=cluster, **kwargs)

    return wrapper


@command()
@click.argument("paths", nargs=-1, required=True, type=_Place(readable=False, path_type=Path))
@store_option
@encoder_option
@server_option
@option("--upload", is_flag=True, help="Send files that are here to --server, which reads its own otherwise.")
@option("--prune", is_flag=True, help="Remove what is in the index but no longer in these folders and tables.")
@option("--prune-empty", is_flag=True, help="With --prune: also where a folder is empty, as one that is not mounted.")
@option("--retry-failed", is_flag=True, help="Try quarantined files again.")
@option("--no-follow", is_flag=True, help="Leave out files in folders that are symbolic links.")
@option("--strict", is_flag=True, help="Stop at the first file that cannot be used.")
@option("--pdf", is_flag=True, help="Take the pages of PDF files, too.")
@option("--video", is_flag=True, help="Take a frame of each scene of films, too, with its subtitles.")
@option("--office", is_flag=True, help="Take the text of office documents, e-books and web pages, too.")
@option("--ocr", is_flag=True, help="Read the text in images, pages and frames that have none beside them.")
@limits_option(DEFAULT_LIMITS)
@_cluster_options
@json_option
def index(
    paths: tuple[str | Path, ...],
    store: str,
    encoder: str | None,
    server: ServerIndex | None,
    upload: bool,
    prune: bool,
    prune_empty: bool,
    retry_failed: bool,
    no_follow: bool,
    strict: bool,
    pdf: bool,
    video: bool,
    office: bool,
    ocr: bool,
    image_limits: ImageLimits,
    cluster: RayOptions | None,
    as_json: bool,
) -> None:
    """Index images and texts: folders, files, globs, and tables in JSONL, CSV, Parquet or tar, also of s3:// and gs://.

    With --pdf, --video and --office also pages, films and documents; each needs the extra of that name.

    A file that is a symbolic link is followed, also out of the folder; a folder that is one is not.
    Files that are in the index unchanged are skipped; files that cannot be used are listed and never stop a run.
    Interrupt it at any time: the next run goes on from there.

    With --server, PATHS are folders, files and tables of the server that its operator allowed, or with --upload those
    that are here.
    """
    from vlmsearch.indexing.items import SourceOptions
    from vlmsearch.indexing.sources import Paths

    options = SourceOptions(pdf=pdf, video=video, office=office, ocr=ocr, follow_links=not no_follow)
    if cluster is not None and (server is not None or strict):
        raise click.UsageError("--on runs here and stops at no file: leave out --server and --strict")
    if server is None and upload:
        raise click.UsageError("--upload sends files to a --server")
    if server is not None and not upload:
        if strict or no_follow:
            raise click.UsageError("--server follows no links and stops at no file: leave out --strict and --no-follow")
        with server.connect() as remote, progress(None, quiet=as_json) as advance:
            report = remote.index(paths, prune=prune, retry_failed=retry_failed, options=options, on_progress=advance)
    elif server is not None:
        if prune or prune_empty:
            raise click.UsageError("--prune looks for the files of the server: leave out --upload")
        source = Paths(paths, options=options, limits=image_limits, prune_empty=prune_empty)
        with server.connect() as remote, progress(source, quiet=as_json) as advance:
            report = _upload(remote, source, retry_failed=retry_failed, strict=strict, on_progress=advance)
    elif cluster is not None:
        from vlmsearch.integrations.ray import index as index_on_ray

        source = Paths(paths, options=options, limits=image_limits, prune_empty=prune_empty)
        url = encoder or _usual_encoder_of(store)
        with progress(None, quiet=as_json) as advance, redirect_stdout(sys.stderr):  # Ray writes there
            report = index_on_ray(
                source,
                encoder=url,
                store=store,
                prune=prune,
                retry_failed=retry_failed,
                on_progress=advance,
                image_limits=image_limits,
                options=cluster,
            )
    else:
        source = Paths(paths, options=options, limits=image_limits, prune_empty=prune_empty)
        with (
            open_index(store, encoder, create=True, image_limits=image_limits) as pipeline,
            progress(source, quiet=as_json) as advance,
        ):
            report = pipeline.index(source, prune=prune, retry_failed=retry_failed, strict=strict, on_progress=advance)
    if as_json:
        print_json(report_json(report))
    else:
        print_report(report)


def _usual_encoder_of(store: str) -> str:
    """The URL of what built an index, or of the default for a new one."""
    from vlmsearch.registry import open_store

    with open_store(store) as opened:
        return usual_encoder(opened.name, opened.manifest())


def _upload(
    remote: RemotePipeline,
    source: Paths,
    *,
    retry_failed: bool,
    strict: bool,
    on_progress: Callable[[int], None] | None,
) -> IndexReport:
    """Send what the files here hold."""
    from vlmsearch.indexing.items import Container, ReadOptions

    rejects: list[Reject] = []

    def documents(items: Iterable[Item]) -> Iterator[Document]:
        for item in items:
            if isinstance(item, Container):
                yield from documents(item.parts(ReadOptions()))
            elif not isinstance(item, Reject):
                yield _to_send(item)
            elif strict:
                raise InvalidInputError(item.code, item.message)
            else:
                rejects.append(item)

    report = remote.add(documents(source), retry_failed=retry_failed, strict=strict, on_progress=on_progress)
    return replace(report, rejects=(*report.rejects, *rejects))


def _to_send(item: Sourced) -> Document:
    """A document with what was read of it here; what is wrong with an image, the server says."""
    from vlmsearch.indexing.image_text import with_image_text

    document = item.document if item.image is None else replace(item.document, image=item.image)
    if not item.ocr or document.text or document.image is None:
        return document
    try:
        return with_image_text(document, local_image(document.image), DEFAULT_LIMITS)
    except InvalidInputError:
        return document


@contextmanager
def progress(
    total: int | Sized | None, *, quiet: bool, what: str = "indexing"
) -> Iterator[Callable[[int], None] | None]:
    """A bar with rate and time left, where there is a terminal to draw it on; elsewhere nothing is counted."""
    if quiet or not sys.stderr.isatty():
        yield None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TimeRemainingColumn
    from rich.text import Text

    from vlmsearch._util.console import make_console

    class Rate(ProgressColumn):
        def render(self, task: Task) -> Text:
            speed = task.speed or (task.completed / task.elapsed if task.elapsed else 0)  # a few have no speed yet
            return Text(f"{speed:.0f}/s")

    bar = Progress(
        what, BarColumn(), MofNCompleteColumn(), Rate(), TimeRemainingColumn(), console=make_console(stderr=True)
    )
    with bar:
        known = len(total) if isinstance(total, Sized) else total
        task = bar.add_task("", total=known)
        yield lambda done: bar.update(task, completed=done, total=known and max(known, done))  # more with their parts


def print_report(report: IndexReport) -> None:
    """What a run did, and the first of the files that failed."""
    rate = report.seen / report.seconds if report.seconds else 0.0
    parts = [f"{report.added} added", f"{report.updated} updated", f"{report.unchanged} unchanged"]
    parts += [f"{report.pruned} pruned"] if report.pruned else []
    parts += [f"{len(report.rejects)} failed"] if report.rejects else []
    click.echo(f"{', '.join(parts)} in {report.seconds:.1f} s ({rate:.0f}/s)")
    if report.unlabelled:
        click.echo(f"{report.unlabelled} changed and lost their labels: run `vlmsearch label --write` again", err=True)
    for reject in report.rejects[:_SHOWN]:
        click.echo(f"  {reject.code:<12} {with_flags(reject.message)}", err=True)
    if len(report.rejects) > _SHOWN:
        click.echo(f"  and {len(report.rejects) - _SHOWN} more: see `vlmsearch info --rejects`", err=True)
