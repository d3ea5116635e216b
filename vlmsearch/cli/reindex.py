"""``vlmsearch reindex``."""

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
    url_option,
)
from vlmsearch.cli.opening import IndexChoice, index_options
from vlmsearch.cli.progress import progress
from vlmsearch.media.limits import ImageLimits
from vlmsearch.registry import open_encoder

if TYPE_CHECKING:
    from vlmsearch.encoders.base import Encoder
    from vlmsearch.indexing.forecast import Forecast
    from vlmsearch.indexing.reindex import ReindexReport
    from vlmsearch.stores.base import Store


@command()
@index_options("image_limits")
@url_option("encoder", "--encoder", has_variable=False, help="The new encoder. No environment variable sets it.")
@option("--dry-run", is_flag=True, help="Print the time and the disk space that it would take, and stop.")
@option("--ignore-space", is_flag=True, help="Start even if the disk seems too small.")
@option("--drop-old", is_flag=True, help="Remove the replaced index.")
@option("--allow-missing", is_flag=True, help="Switch even if documents cannot be encoded again.")
@json_option
def reindex(
    chosen: IndexChoice,
    encoder: str | None,
    dry_run: bool,
    ignore_space: bool,
    drop_old: bool,
    allow_missing: bool,
    as_json: bool,
) -> None:
    """Rebuild an index with another model, from the texts and image files of its documents.

    First it encodes some documents to estimate the time and the disk space. The old index is in use until the new one
    is complete, and stays until --drop-old. The index takes no writes at the end, when both are compared. You may
    interrupt it: the next run continues.
    """
    from vlmsearch.indexing.reindex import drop_old as remove_old

    if not encoder and (dry_run or not drop_old):
        raise click.UsageError(
            "name the new model with --encoder URL on the command line (VLMSEARCH_ENCODER is for all other commands), "
            "or remove a replaced index with --drop-old"
        )
    result: dict[str, object] = {}
    limits = chosen.image_limits
    with chosen.open_store() as opened:
        if encoder:
            with open_encoder(encoder) as model:
                result = _forecast(opened, model, limits, must_fit=not ignore_space, only=dry_run, quiet=as_json)
                if dry_run:
                    return
                result |= _reindex(opened, model, limits, allow_missing=allow_missing, quiet=as_json)
            if result["switched"] and not drop_old and not as_json:
                click.echo("the new index is in use from now on; the one before it stays until --drop-old")
        if drop_old and result.get("switched", True):
            result["dropped"] = remove_old(opened)
            if not as_json:
                click.echo("removed the replaced index" if result["dropped"] else "there is no replaced index")
    if as_json:
        print_json(result)
    if not result.get("switched", True):
        sys.exit(1)


def _forecast(
    store: Store, model: Encoder, image_limits: ImageLimits, *, must_fit: bool, only: bool, quiet: bool
) -> dict[str, object]:
    """Print the forecast; ``only`` if nothing follows, so that JSON is printed now."""
    from vlmsearch.indexing.forecast import forecast

    if not only and model.fingerprint == need_manifest(store).fingerprint:
        return {}  # `reindex` reports that, and removes what an interrupted run left
    expected = forecast(store, model, image_limits=image_limits)
    result: dict[str, object] = {"forecast": {**asdict(expected), "fits": expected.fits}}
    if not quiet:
        click.echo(_described(expected))
    elif only:
        print_json(result)
    if must_fit and not expected.fits:
        raise click.ClickException(
            f"the new index would take about {_size(expected.bytes_added)} beside the old one, and {store.name} has "
            f"{_size(expected.bytes_free or 0)} left: make room, or begin all the same with --ignore-space"
        )
    return result


def _reindex(
    store: Store, model: Encoder, image_limits: ImageLimits, *, allow_missing: bool, quiet: bool
) -> dict[str, object]:
    from vlmsearch.indexing.reindex import reindex

    with progress(len(store), quiet=quiet) as advance:
        done = reindex(store, model, allow_missing=allow_missing, on_progress=advance, image_limits=image_limits)
    if not quiet:
        _print(done)
    return {**asdict(done), "seconds": round(done.seconds, 3)}


def _described(expected: Forecast) -> str:
    """Return a forecast in one line."""
    rate = f"{expected.left / expected.seconds:.0f}/s, " if expected.seconds else ""
    tried = f"{rate}tried with {expected.tried}"
    what = "" if expected.bytes_now is not None else "vectors of "
    added, after = _size(expected.bytes_added), _size(expected.bytes_after)
    parts = [
        f"{expected.left} of {expected.documents} documents to encode: about {_duration(expected.seconds)} ({tried})",
        f"{what}about {added} beside the old index, {after} once that is removed",
    ]
    parts += [f"{_size(expected.bytes_free)} free"] if expected.bytes_free is not None else []
    parts += [f"{expected.lost} of those tried cannot be encoded again"] if expected.lost else []
    return "; ".join(parts)


def _duration(seconds: float) -> str:
    """Format seconds up to two minutes, then minutes up to two hours, then hours."""
    if seconds < 120:
        return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.1f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def _size(count: int) -> str:
    """Format bytes in MiB, and from 10 GiB on in GiB."""
    return f"{count / 2**20:.1f} MiB" if count < 10 * 2**30 else f"{count / 2**30:.1f} GiB"


def _print(done: ReindexReport) -> None:
    added = "" if done.bytes_added is None else f" and {_size(done.bytes_added)}"
    click.echo(f"{done.documents} documents, {done.encoded} encoded: it took {_duration(done.seconds)}{added}")
    print_first([f"not encoded  {id}" for id in done.lost])
    if not done.switched:
        click.echo(
            f"{len(done.lost)} documents cannot be encoded again, so the old index stays in use: "
            "their images are not kept or are missing. --allow-missing leaves them out.",
            err=True,
        )
