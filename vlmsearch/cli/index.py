"""``vlmsearch index``."""

from __future__ import annotations

import sys
from contextlib import ExitStack, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING

import click

from vlmsearch.cli.cluster import cluster_options
from vlmsearch.cli.common import (
    command,
    json_option,
    option,
    print_json,
)
from vlmsearch.cli.opening import IndexChoice, index_options
from vlmsearch.cli.progress import print_report, progress
from vlmsearch.cli.upload import upload_files
from vlmsearch.media.remote import remote_url
from vlmsearch.wire import to_json

if TYPE_CHECKING:
    from vlmsearch.integrations.ray import RayOptions


def _place(text: str) -> str | Path:
    return text if remote_url(text) else Path(text)


@command()
@click.argument("paths", nargs=-1, required=True, type=_place, metavar="PATHS...")
@index_options("encoder", "image_limits", "server")
@option("--upload", is_flag=True, help="Send files of this machine to --server, which else reads its own.")
@option("--prune", is_flag=True, help="Remove documents whose files or rows are gone from these folders and tables.")
@option("--prune-empty", is_flag=True, help="With --prune: also if a folder is empty, as an unmounted one is.")
@option("--retry-rejects", is_flag=True, help="Try rejected files again.")
@option("--no-follow", is_flag=True, help="Follow no symbolic links to files.")
@option("--strict", is_flag=True, help="Stop at the first file that cannot be used.")
@option("--pdf", is_flag=True, help="Index the pages of PDF files.")
@option("--video", is_flag=True, help="Index a frame of each scene of films, with subtitles.")
@option("--office", is_flag=True, help="Index the text of office documents, e-books and web pages.")
@option("--ocr", is_flag=True, help="Read the text in images, pages and frames that come without text.")
@cluster_options
@json_option
def index(
    paths: tuple[str | Path, ...],
    chosen: IndexChoice,
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
    cluster: RayOptions | None,
    as_json: bool,
) -> None:
    """Index images and texts: folders, files, globs, and tables in JSONL, CSV, Parquet or tar, also of s3:// and gs://.

    --pdf, --video and --office each need the extra of that name. Symbolic links to files are followed, links to
    folders are not. Unchanged files are skipped. Files that cannot be used are listed and do not stop the run. You may
    interrupt it: the next run continues.

    With --server, PATHS are paths on the server that its operator allowed; with --upload they are paths here.
    """
    from vlmsearch.indexing.items import SourceOptions
    from vlmsearch.indexing.sources import Paths

    options = SourceOptions(pdf=pdf, video=video, office=office, ocr=ocr, follow_links=not no_follow)
    is_there = bool(chosen.server)
    if cluster is not None and (is_there or strict):
        raise click.UsageError("--on runs here and stops at no file: leave out --server and --strict")
    if upload and not is_there:
        raise click.UsageError("--upload sends files to a --server")
    if upload and (prune or prune_empty):
        raise click.UsageError("--prune looks for the files of the server: leave out --upload")
    if is_there and not upload and (strict or no_follow):
        raise click.UsageError("--server follows no links and stops at no file: leave out --strict and --no-follow")
    with ExitStack() as stack:
        if is_there and not upload:
            remote, advance = stack.enter_context(chosen.connect()), stack.enter_context(progress(None, quiet=as_json))
            report = remote.index(paths, prune=prune, retry_rejects=retry_rejects, options=options, on_progress=advance)
        else:
            source = Paths(paths, options=options, limits=chosen.image_limits, prune_empty=prune_empty)
            advance = stack.enter_context(progress(source if cluster is None else None, quiet=as_json))
            if upload:
                remote = stack.enter_context(chosen.connect())
                report = upload_files(remote, source, retry_rejects=retry_rejects, strict=strict, on_progress=advance)
            elif cluster is not None:
                from vlmsearch.integrations.ray import index as index_on_ray
                from vlmsearch.registry import open_store, usual_encoder

                with open_store(chosen.store) as store:
                    url = chosen.encoder or usual_encoder(store.name, store.manifest())
                stack.enter_context(redirect_stdout(sys.stderr))  # Ray writes there
                report = index_on_ray(
                    source,
                    encoder=url,
                    store=chosen.store,
                    prune=prune,
                    retry_rejects=retry_rejects,
                    on_progress=advance,
                    image_limits=chosen.image_limits,
                    options=cluster,
                )
            else:
                pipeline = stack.enter_context(chosen.open_here(create=True))
                report = pipeline.index(
                    source, prune=prune, retry_rejects=retry_rejects, strict=strict, on_progress=advance
                )
    if as_json:
        print_json(to_json(report))
    else:
        print_report(report)
