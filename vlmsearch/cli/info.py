"""``vlmsearch info``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

import click

from vlmsearch.cli.common import command, json_option, need_manifest, option, print_json, store_option
from vlmsearch.registry import open_store
from vlmsearch.search.info import index_info
from vlmsearch.stores.base import Described, Quarantine, WordSearch
from vlmsearch.types import Manifest, Reject
from vlmsearch.wire import reject_json


@command()
@store_option
@option("--rejects", is_flag=True, help="List the quarantined files.")
@json_option
def info(store: str, rejects: bool, as_json: bool) -> None:
    """Show what is in an index and what built it."""
    with open_store(store) as opened:
        manifest = need_manifest(opened)
        found = index_info(opened, manifest)
        listed = opened.rejects() if rejects and isinstance(opened, Quarantine) else []
        ranks_words = isinstance(opened, WordSearch)
        details = opened.describe() if isinstance(opened, Described) else {}
    if as_json:
        print_json({**found, **({"rejects": [reject_json(each) for each in listed]} if rejects else {})})
    else:
        _print(found, manifest, details, listed, ranks_words=ranks_words)


def _print(
    found: Mapping[str, object],
    manifest: Manifest,
    details: Mapping[str, str],
    listed: Sequence[Reject],
    *,
    ranks_words: bool,
) -> None:
    click.echo(f"store       {found['store']}")
    click.echo(f"documents   {found['documents']}")
    for name, value in details.items():
        click.echo(f"{name:<11} {value}")
    click.echo(f"built with  {manifest.fingerprint}, {manifest.created}")
    for space in manifest.spaces:
        click.echo(f"space       {space.name}: {' and '.join(sorted(space.modalities))}, {space.dim} dimensions")
    words = manifest.language or "not ranked by this index"
    click.echo(f"words       {words if ranks_words else 'not ranked by this store'}")
    for field, basis in cast("Mapping[str, str]", found["relevance"]).items():
        click.echo(f"relevance   {field}: {basis}")
    click.echo(f"threshold   {found['threshold']:g}")
    if manifest.tuning:
        click.echo(f"tuning      {', '.join(f'{name} {value:g}' for name, value in manifest.tuning.items())}")
    codes = cast("Mapping[str, int] | None", found["failed"])
    failed = "not kept by this store" if codes is None else ", ".join(f"{n} {code}" for code, n in codes.items())
    click.echo(f"failed      {failed or 'none'}")
    for reject in listed:
        click.echo(f"  {reject.code:<12} {reject.message}")
