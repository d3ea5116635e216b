"""``vlmsearch reindex``."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING

import click

from vlmsearch._util.options import options_of
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
from vlmsearch.cli.search_options import flag_of
from vlmsearch.indexing.items import SourceOptions
from vlmsearch.registry import open_store, open_usual_encoder
from vlmsearch.types import files_text

if TYPE_CHECKING:
    from vlmsearch.encoders.base import Encoder
    from vlmsearch.indexing.reindex import ReindexReport
    from vlmsearch.stores.base import Store


@command()
@index_options("image_limits")
@url_option("encoder", "--encoder", has_variable=False, help="The new encoder. No environment variable sets it.")
@option("--ignore-space", is_flag=True, help="Start even if the disk seems too small.")
@option("--drop-old", is_flag=True, help="Remove the replaced index.")
@option("--allow-missing", is_flag=True, help="Switch even if documents cannot be encoded again.")
@flag_of(options_of(SourceOptions)["passages"])
@json_option
def reindex(
    chosen: IndexChoice,
    encoder: str | None,
    ignore_space: bool,
    drop_old: bool,
    allow_missing: bool,
    passages: bool,
    as_json: bool,
) -> None:
    """Rebuild an index with another model, from the texts and image files of its documents.

    Without --encoder, or with that of the index, long texts are put into passages where they are not, in the index
    itself. An index of an earlier version of vlmsearch is renewed instead, with the vectors that it has.

    The old index is in use until the new one is complete, and stays until --drop-old: the disk needs room for both. The
    index takes no writes at the end, when both are compared. You may interrupt it: the next run continues.
    """
    from vlmsearch.indexing.reindex import drop_old as remove_old, opened_earlier, reindex as reindex_store, renew

    result: dict[str, object] = {}
    with open_store(chosen.store) as opened:
        is_earlier, manifest = opened_earlier(opened), need_manifest(opened)
        if encoder or not drop_old:
            with ExitStack() as stack:
                work: Callable[..., ReindexReport] = renew
                if encoder or not is_earlier:
                    model = stack.enter_context(open_usual_encoder(encoder, opened.name, manifest))
                    if not ignore_space:
                        _check_room(opened, model)
                    work = partial(
                        reindex_store,
                        encoder=model,
                        allow_missing=allow_missing,
                        image_limits=chosen.image_limits,
                        passages=passages,
                    )
                with progress(len(opened), quiet=as_json) as advance:
                    done = work(opened, on_progress=advance)
            if not as_json:
                _print(done, encoder or "")
            result = {**asdict(done), "seconds": round(done.seconds, 3)}
            if done.switched and not drop_old and not as_json:
                click.echo("the new index is in use from now on; the one before it stays until --drop-old")
        has_failed = bool(result.get("lost")) and not result["switched"]
        if drop_old and not has_failed:
            result["dropped"] = remove_old(opened)
            if not as_json:
                click.echo("removed the replaced index" if result["dropped"] else "there is no replaced index")
    if as_json:
        print_json(result)
    if has_failed:
        sys.exit(1)


def _check_room(store: Store, model: Encoder) -> None:
    """Raise ClickException where the disk is too small for a second index."""
    from vlmsearch.indexing.room import room_needed

    room = room_needed(store, model.fingerprint, model.spaces)
    if not room.fits and model.fingerprint != need_manifest(store).fingerprint:
        raise click.ClickException(
            f"the new index would take about {_size(room.bytes_added)} beside the old one, and {store.name} has "
            f"{_size(room.bytes_free or 0)} left: make room, or begin all the same with --ignore-space"
        )


def _duration(seconds: float) -> str:
    """Format seconds up to two minutes, then minutes up to two hours, then hours."""
    if seconds < 120:
        return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.1f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def _size(count: int) -> str:
    """Format bytes in MiB, and from 10 GiB on in GiB."""
    return f"{count / 2**20:.1f} MiB" if count < 10 * 2**30 else f"{count / 2**30:.1f} GiB"


def _print(done: ReindexReport, encoder: str) -> None:
    added = "" if done.bytes_added is None else f" and {_size(done.bytes_added)}"
    documents = f"{done.documents} documents{files_text(done.documents, done.files)}"
    click.echo(f"{documents}, {done.encoded} encoded: it took {_duration(done.seconds)}{added}")
    if done.text_only:
        click.echo(
            f"{done.text_only} documents with an image are found by their texts alone: {encoder} takes no images"
        )
    print_first([f"not encoded  {id}" for id in done.lost])
    if done.lost and not done.switched:
        why = "their images are not kept or are missing"
        if done.image_only:
            why = f"{encoder} takes no images; {done.image_only} documents have only an image"
        click.echo(
            f"{len(done.lost)} documents cannot be encoded again, so the old index stays in use: {why}. "
            "--allow-missing leaves them out.",
            err=True,
        )
