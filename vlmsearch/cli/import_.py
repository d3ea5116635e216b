"""``vlmsearch import``."""

from __future__ import annotations

from pathlib import Path

import click

from vlmsearch.cli.common import command, json_option, option, quiet_option, url_option
from vlmsearch.cli.copy import print_report
from vlmsearch.cli.progress import progress
from vlmsearch.registry import DEFAULT_STORE, open_store


@command("import")
@click.argument("file", type=click.Path(path_type=Path))
@url_option("store", "--store", "target", default=DEFAULT_STORE, show_default=True, help="The store of the index.")
@option("--prune", is_flag=True, help="Remove documents from the index that the file lacks.")
@quiet_option
@json_option
def import_(file: Path, target: str, prune: bool, quiet: bool, as_json: bool) -> None:
    """Import a Parquet file of `vlmsearch export` into an index.

    The index is of the same model, or new.

    Nothing is encoded. Documents that the index already has are skipped. You may interrupt it: the next run continues.
    """
    from vlmsearch.indexing.copy import copy
    from vlmsearch.indexing.csv_file import is_csv
    from vlmsearch.indexing.parquet import ParquetIndex

    if is_csv(file):
        raise click.ClickException(f"a CSV file has no vectors to import: run `vlmsearch index {file}`")
    with ParquetIndex(file) as read, open_store(target) as written:
        with progress(len(read), quiet=as_json or quiet, what="importing") as advance:
            done = copy(read, written, prune=prune, on_progress=advance)
        print_report(done, read, written, prune=prune, quiet=quiet, as_json=as_json)
