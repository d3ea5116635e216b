"""``vlmsearch watch``."""

from __future__ import annotations

import json
from pathlib import Path

import click

from vlmsearch._util.text import visible
from vlmsearch.cli.common import (
    command,
    json_option,
    option,
)
from vlmsearch.cli.opening import IndexChoice, index_options
from vlmsearch.cli.progress import print_report, progress
from vlmsearch.cli.source_options import source_options
from vlmsearch.indexing.items import SourceOptions
from vlmsearch.types import IndexReport
from vlmsearch.wire import to_json


@command()
@click.argument("folders", nargs=-1, required=True, type=click.Path(readable=False, path_type=Path))
@index_options("encoder", "image_limits", "quiet")
@option("--retry-rejects", is_flag=True, help="Try rejected files again when it starts.")
@source_options
@json_option
def watch(
    folders: tuple[Path, ...],
    chosen: IndexChoice,
    retry_rejects: bool,
    source: SourceOptions,
    as_json: bool,
) -> None:
    """Index folders, then follow their changes until Ctrl-C.

    It starts like `vlmsearch index --prune`, with the same options for files. New and changed files are indexed a
    second after their last write. Deleted files are removed from the index. With --json, each step prints a line.
    """
    from vlmsearch.indexing.sources import Paths

    given = Paths(folders, options=source, limits=chosen.image_limits)
    with chosen.open_here(create=True) as pipeline:
        given.note_index(pipeline.store)
        with progress(given, quiet=as_json) as advance:
            reports = pipeline.watch(given, retry_rejects=retry_rejects, on_progress=advance)
            first = next(reports)
        _print(first, as_json)
        click.echo(f"Watching {', '.join(map(str, folders))}", err=True)
        for report in reports:
            if report.pruned or report.seen > report.unchanged:
                _print(report, as_json)


def _print(report: IndexReport, as_json: bool) -> None:
    if as_json:
        click.echo(visible(json.dumps(to_json(report))))
    else:
        print_report(report)
