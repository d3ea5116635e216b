"""``vlmsearch export``."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click

from vlmsearch.cli.common import (
    command,
    json_option,
    print_json,
    quiet_option,
)
from vlmsearch.cli.opening import IndexChoice, index_options
from vlmsearch.cli.progress import progress
from vlmsearch.types import files_text


@command()
@click.argument("file", type=click.Path(path_type=Path))
@index_options()
@quiet_option
@json_option
def export(file: Path, chosen: IndexChoice, quiet: bool, as_json: bool) -> None:
    """Export an index to a Parquet file, or to a CSV file without vectors.

    FILE ends in .parquet, for pandas, DuckDB, Daft and `vlmsearch import`, or in .csv, for spreadsheets. A CSV file has
    the documents and their metadata, which `vlmsearch index` reads. The file appears when it is complete. Others may
    search and write meanwhile.
    """
    from vlmsearch.indexing.csv_file import export_csv, is_csv
    from vlmsearch.indexing.parquet import export_index, is_parquet

    if not is_csv(file) and not is_parquet(file):
        raise click.ClickException(f"{str(file)!r} ends in neither .parquet nor .csv: name the file to write")
    write = export_csv if is_csv(file) else export_index
    with chosen.open_store() as store, progress(len(store), quiet=as_json or quiet, what="exporting") as advance:
        done = write(store, file, on_progress=advance)
        files = store.count_files()
    if as_json:
        print_json({**asdict(done), "files": files, "seconds": round(done.seconds, 3)})
        return
    if quiet:
        return
    documents = f"{done.documents} documents{files_text(done.documents, files)}"
    click.echo(f"{documents} in {done.seconds:.1f} s; {file} has {done.bytes / 1e6:.1f} MB")
    if is_csv(file):
        click.echo("A CSV file has no vectors: `vlmsearch index` reads it and encodes the documents again.", err=True)
    elif done.rejects is None:
        click.echo(f"The file has no reject list: {store.name} keeps none.", err=True)
