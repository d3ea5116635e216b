"""``vlmsearch reindex``."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from vlmsearch.cli.common import command, json_option, limits_option, need_manifest, option, print_json, store_option
from vlmsearch.cli.index import progress
from vlmsearch.media.limits import DEFAULT_LIMITS, ImageLimits
from vlmsearch.registry import open_encoder, open_store

if TYPE_CHECKING:
    from vlmsearch.indexing.reindex import ReindexReport

_SHOWN = 20


@command()
@store_option
@click.option("--encoder", metavar="URL", help="What makes the new vectors. No environment variable sets it.")
@option("--drop-old", is_flag=True, help="Remove the index that was replaced.")
@option("--allow-missing", is_flag=True, help="Switch even where documents cannot be encoded again.")
@limits_option(DEFAULT_LIMITS)
@json_option
def reindex(
    store: str, encoder: str | None, drop_old: bool, allow_missing: bool, image_limits: ImageLimits, as_json: bool
) -> None:
    """Build an index anew with another model, from the texts and image files of its documents.

    The old index is in use until the new one is complete, and stays until --drop-old. At the end, when the two are
    compared once more, it takes no writes. Interrupt it at any time: the next run goes on from there.
    """
    from vlmsearch.indexing import reindex as reindexing

    if not encoder and not drop_old:
        raise click.UsageError(
            "name the new model with --encoder URL on the command line (VLMSEARCH_ENCODER is for all other commands), "
            "or remove a replaced index with --drop-old"
        )
    result: dict[str, object] = {}
    with open_store(store) as opened:
        need_manifest(opened)
        if encoder:
            with open_encoder(encoder) as model, progress(len(opened), quiet=as_json) as advance:
                done = reindexing.reindex(
                    opened, model, allow_missing=allow_missing, on_progress=advance, image_limits=image_limits
                )
            result = {
                "documents": done.documents,
                "encoded": done.encoded,
                "lost": list(done.lost),
                "switched": done.switched,
                "seconds": round(done.seconds, 3),
            }
            if not as_json:
                _print(done)
                if done.switched and not drop_old:
                    click.echo("in use from now on; the index before it stays until --drop-old")
        if drop_old and result.get("switched", True):
            result["dropped"] = reindexing.drop_old(opened)
            if not as_json:
                click.echo("removed the replaced index" if result["dropped"] else "there is no replaced index")
    if as_json:
        print_json(result)
    if not result.get("switched", True):
        sys.exit(1)


def _print(done: ReindexReport) -> None:
    click.echo(f"{done.documents} documents, {done.encoded} encoded in {done.seconds:.1f} s")
    for id in done.lost[:_SHOWN]:
        click.echo(f"  not encoded  {id}", err=True)
    if not done.switched:
        click.echo(
            f"{len(done.lost)} documents cannot be encoded again, so the old index stays in use: "
            "their images are not kept or not there. --allow-missing leaves them out.",
            err=True,
        )
