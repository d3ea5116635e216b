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
    quiet_option,
)
from vlmsearch.cli.completion import complete_files
from vlmsearch.cli.opening import IndexChoice, index_options
from vlmsearch.cli.progress import print_rejects, print_report, progress
from vlmsearch.cli.source_options import source_options
from vlmsearch.cli.upload import upload_files
from vlmsearch.indexing.items import SourceOptions
from vlmsearch.media.remote import remote_url
from vlmsearch.wire import to_json

if TYPE_CHECKING:
    from vlmsearch.integrations.ray import RayOptions


def _place(text: str) -> str | Path:
    return text if remote_url(text) else Path(text)


@command()
@click.argument("paths", nargs=-1, required=True, type=_place, shell_complete=complete_files, metavar="PATHS...")
@index_options("encoder", "image_limits", "server")
@option("--upload", is_flag=True, help="Send files of this machine to --server, which else reads its own.")
@option("--prune", is_flag=True, help="Remove documents whose files or rows are gone from these folders and tables.")
@option("--prune-empty", is_flag=True, help="With --prune: also if a folder is empty, as an unmounted one is.")
@option("--retry-rejects", is_flag=True, help="Try rejected files again.")
@option("--strict", is_flag=True, help="Stop at the first file that cannot be used.")
@source_options
@cluster_options
@option("--verbose", is_flag=True, help="Name every file that cannot be used, not only the first 20.")
@quiet_option
@json_option
def index(
    paths: tuple[str | Path, ...],
    chosen: IndexChoice,
    upload: bool,
    prune: bool,
    prune_empty: bool,
    retry_rejects: bool,
    strict: bool,
    source: SourceOptions,
    cluster: RayOptions | None,
    verbose: bool,
    quiet: bool,
    as_json: bool,
) -> None:
    """Index images and texts: folders, files, globs, and tables in JSONL, CSV, Parquet or tar, also of s3:// and gs://.

    --pdf, --video and --office take such files of folders; one that you name is read without them. Each kind needs the
    extra of that name. Symbolic links to files are followed, links to folders are not. Unchanged files are skipped.
    Files that cannot be used are listed and do not stop the run; if there are no others, the exit code is 1. You may
    interrupt it: the next run continues.

    With --server, PATHS are paths on the server that its operator allowed; with --upload they are paths here.
    """
    from vlmsearch.indexing.sources import Paths

    is_there, is_quiet = bool(chosen.server), as_json or quiet
    if cluster is not None and (is_there or strict):
        raise click.UsageError("--on runs here and stops at no file: leave out --server and --strict")
    if upload and not is_there:
        raise click.UsageError("--upload sends files to a --server")
    if upload and (prune or prune_empty):
        raise click.UsageError("--prune looks for the files of the server: leave out --upload")
    if is_there and not upload and (strict or not source.follow_links):
        raise click.UsageError("--server follows no links and stops at no file: leave out --strict and --no-follow")
    with ExitStack() as stack:
        if is_there and not upload:
            remote, advance = stack.enter_context(chosen.connect()), stack.enter_context(progress(None, quiet=is_quiet))
            report = remote.index(paths, prune=prune, retry_rejects=retry_rejects, options=source, on_progress=advance)
        else:
            given = Paths(paths, options=source, limits=chosen.image_limits, prune_empty=prune_empty)
            if upload:
                advance = stack.enter_context(progress(given, quiet=is_quiet))
                remote = stack.enter_context(chosen.connect())
                report = upload_files(remote, given, retry_rejects=retry_rejects, strict=strict, on_progress=advance)
            elif cluster is not None:
                from vlmsearch.integrations.ray import index as index_on_ray

                advance = stack.enter_context(progress(None, quiet=is_quiet))
                stack.enter_context(redirect_stdout(sys.stderr))  # Ray writes there
                report = index_on_ray(
                    given,
                    encoder=chosen.encoder,
                    store=chosen.store,
                    prune=prune,
                    retry_rejects=retry_rejects,
                    on_progress=advance,
                    image_limits=chosen.image_limits,
                    options=cluster,
                )
            else:
                pipeline = stack.enter_context(chosen.open_here(create=True, seen=paths))
                given.note_index(pipeline.store)
                advance = stack.enter_context(progress(given, quiet=is_quiet))
                report = pipeline.index(
                    given, prune=prune, retry_rejects=retry_rejects, strict=strict, on_progress=advance
                )
    if as_json:
        print_json(to_json(report))
    elif not quiet:
        print_report(report, verbose=verbose)
    elif report.rejects:
        print_rejects(report, verbose=verbose)
    if report.rejects and not (report.indexed or report.pruned):
        sys.exit(1)
