"""``vlmsearch index``."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from vlmsearch.cli.cluster import cluster_options
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
)
from vlmsearch.cli.progress import print_report, progress
from vlmsearch.cli.upload import upload_files
from vlmsearch.media.limits import DEFAULT_LIMITS, ImageLimits
from vlmsearch.media.remote import remote_url
from vlmsearch.wire import to_json

if TYPE_CHECKING:
    from vlmsearch.integrations.ray import RayOptions


class _Place(click.Path):
    """A path of this machine, or a URL of object storage, which stays a string."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return str(value) if remote_url(value) else super().convert(value, param, ctx)


@command()
@click.argument("paths", nargs=-1, required=True, type=_Place(readable=False, path_type=Path))
@store_option
@encoder_option
@server_option
@option("--upload", is_flag=True, help="Send files that are here to --server, which reads its own otherwise.")
@option("--prune", is_flag=True, help="Remove what is in the index but no longer in these folders and tables.")
@option("--prune-empty", is_flag=True, help="With --prune: also where a folder is empty, as one that is not mounted.")
@option("--retry-rejects", is_flag=True, help="Try rejected files again.")
@option("--no-follow", is_flag=True, help="Leave out files in folders that are symbolic links.")
@option("--strict", is_flag=True, help="Stop at the first file that cannot be used.")
@option("--pdf", is_flag=True, help="Take the pages of PDF files, too.")
@option("--video", is_flag=True, help="Take a frame of each scene of films, too, with its subtitles.")
@option("--office", is_flag=True, help="Take the text of office documents, e-books and web pages, too.")
@option("--ocr", is_flag=True, help="Read the text in images, pages and frames that have none beside them.")
@limits_option(DEFAULT_LIMITS)
@cluster_options
@json_option
def index(
    paths: tuple[str | Path, ...],
    store: str,
    encoder: str | None,
    server: ServerIndex | None,
    upload: bool,
    prune: bool,
    prune_empty: bool,
    retry_rejects: bool,
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
            report = remote.index(paths, prune=prune, retry_rejects=retry_rejects, options=options, on_progress=advance)
    elif server is not None:
        if prune or prune_empty:
            raise click.UsageError("--prune looks for the files of the server: leave out --upload")
        source = Paths(paths, options=options, limits=image_limits, prune_empty=prune_empty)
        with server.connect() as remote, progress(source, quiet=as_json) as advance:
            report = upload_files(remote, source, retry_rejects=retry_rejects, strict=strict, on_progress=advance)
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
                retry_rejects=retry_rejects,
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
            report = pipeline.index(
                source, prune=prune, retry_rejects=retry_rejects, strict=strict, on_progress=advance
            )
    if as_json:
        print_json(to_json(report))
    else:
        print_report(report)


def _usual_encoder_of(store: str) -> str:
    """Return the URL of what built an index, or of the default for a new one."""
    from vlmsearch.registry import open_store

    with open_store(store) as opened:
        return usual_encoder(opened.name, opened.manifest())
