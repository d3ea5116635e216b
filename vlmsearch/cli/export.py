"""``vlmsearch export``."""

from __future__ import annotations

from pathlib import Path

import click

from vlmsearch.cli.common import command, json_option, need_manifest, print_json, store_option
from vlmsearch.cli.progress import progress
from vlmsearch.registry import open_store


@command()
@click.argument("file", type=click.Path(path_type=Path))
@store_option
@json_option
def export(file: Path, store: str, as_json: bool) -> None:
    """Write an index into a Parquet file, vectors included, for pandas, DuckDB and Daft and for `vlmsearch import`.

    The file appears when it is complete. Others may search and write meanwhile.
    """
    from vlmsearch.indexing.parquet import export_index

    with open_store(store) as opened:
        need_manifest(opened)
        with progress(len(opened), quiet=as_json, what="exporting") as advance:
            done = export_index(opened, file, on_progress=advance)
        name = opened.name
    if as_json:
        print_json(
            {
                "documents": done.documents,
                "rejected": done.rejects,
                "bytes": done.bytes,
                "seconds": round(done.seconds, 3),
            }
        )
        return
    click.echo(f"{done.documents} documents in {done.seconds:.1f} s; {file} has {done.bytes / 1e6:.1f} MB")
    if done.rejects is None:
        click.echo(f"There is no reject list in it: {name} keeps none.", err=True)
