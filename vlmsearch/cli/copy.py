"""``vlmsearch copy``."""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from vlmsearch.cli.common import (
    command,
    json_option,
    need_manifest,
    option,
    print_first,
    print_json,
    quiet_option,
    url_option,
)
from vlmsearch.cli.progress import progress
from vlmsearch.registry import open_store
from vlmsearch.types import files_text

if TYPE_CHECKING:
    from vlmsearch.indexing.copy import CopyReport
    from vlmsearch.indexing.parquet import ParquetIndex
    from vlmsearch.stores.base import Store


@command()
@url_option("store", "--from", "source", required=True, help="The index to read.")
@url_option("store", "--to", "target", required=True, help="The store to write.")
@option("--prune", is_flag=True, help="Remove documents from the target that the source lacks.")
@quiet_option
@json_option
def copy(source: str, target: str, prune: bool, quiet: bool, as_json: bool) -> None:
    """Copy an index to another store with its vectors. Nothing is encoded again.

    Documents that the target already has are skipped. You may interrupt it: the next run continues.
    """
    from vlmsearch.indexing import copy as copying

    with open_store(source) as read, open_store(target) as written:
        need_manifest(read)
        with progress(len(read), quiet=as_json or quiet, what="copying") as advance:
            done = copying.copy(read, written, prune=prune, on_progress=advance)
        print_report(done, read, written, prune=prune, quiet=quiet, as_json=as_json)


def print_report(
    done: CopyReport, read: Store | ParquetIndex, written: Store, *, prune: bool, quiet: bool, as_json: bool
) -> None:
    """Print the report of a copy; exit 1 if documents were refused."""
    if as_json:
        print_json({**asdict(done), "seconds": round(done.seconds, 3)})
    elif not quiet:
        parts = [f"{done.copied} copied", f"{done.unchanged} unchanged"]
        parts += [f"{done.pruned} pruned"] if prune else []
        documents = f"{done.documents} documents{files_text(done.documents, done.files)}"
        click.echo(f"{', '.join(parts)} in {done.seconds:.1f} s; {written.name} has {documents}")
        if done.rejects is None:
            click.echo("The reject list is not copied: one of the two stores keeps none.", err=True)
    if not as_json:
        print_first([f"{reject.code:<12} {reject.message}" for reject in done.refused])
    there, now = read.manifest(), need_manifest(written).language
    language = there.language if there else ""
    if language != now and language and now:
        click.echo(
            f"Note: {written.name} compares words by language={now}, {read.name} by language={language}: that is set "
            f"when an index is made, so for the same, copy to a new place with ?language={language}",
            err=True,
        )
    if done.refused:
        sys.exit(1)
