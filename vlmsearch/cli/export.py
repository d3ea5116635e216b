"""``vlmsearch export``."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click

from vlmsearch.cli.common import (
    command,
    json_option,
    print_json,
)
from vlmsearch.cli.opening import IndexChoice, index_options
from vlmsearch.cli.progress import progress


@command()
@click.argument("file", type=click.Path(path_type=Path))
@index_options()
@json_option
def export(file: Path, chosen: IndexChoice, as_json: bool) -> None:
    """Export an index to a Parquet file with its vectors, for pandas, DuckDB, Daft and `vlmsearch import`.

    The file appears when it is complete. Others may search and write meanwhile.
    """
    from vlmsearch.indexing.parquet import export_index

    with chosen.open_store() as store, progress(len(store), quiet=as_json, what="exporting") as advance:
        done = export_index(store, file, on_progress=advance)
    if as_json:
        print_json({**asdict(done), "seconds": round(done.seconds, 3)})
        return
    click.echo(f"{done.documents} documents in {done.seconds:.1f} s; {file} has {done.bytes / 1e6:.1f} MB")
    if done.rejects is None:
        click.echo(f"The file has no reject list: {store.name} keeps none.", err=True)
