"""``vlmsearch import``."""

from __future__ import annotations

from pathlib import Path

import click

from vlmsearch.cli.common import command, json_option, option
from vlmsearch.cli.copy import print_report
from vlmsearch.cli.progress import progress
from vlmsearch.registry import DEFAULT_STORE, open_store


@command("import")
@click.argument("file", type=click.Path(path_type=Path))
@option("--store", "target", default=DEFAULT_STORE, show_default=True, metavar="URL", help="The store of the index.")
@option("--prune", is_flag=True, help="Remove documents from the index that the file lacks.")
@json_option
def import_(file: Path, target: str, prune: bool, as_json: bool) -> None:
    """Import a Parquet file of `vlmsearch export` into an index of the same model, or into a new one.

    Nothing is encoded. Documents that the index already has are skipped. You may interrupt it: the next run continues.
    """
    from vlmsearch.indexing.copy import copy
    from vlmsearch.indexing.parquet import ParquetIndex

    with ParquetIndex(file) as read, open_store(target) as written:
        with progress(len(read), quiet=as_json, what="importing") as advance:
            done = copy(read, written, prune=prune, on_progress=advance)
        print_report(done, read, written, prune=prune, as_json=as_json)
