"""``vlmsearch info``."""

from __future__ import annotations

from collections import Counter

import click

from vlmsearch.cli.common import command, json_option, need_manifest, option, print_json, store_option
from vlmsearch.registry import open_store
from vlmsearch.stores.base import Described, Quarantine, WordSearch


@command()
@store_option
@option("--rejects", is_flag=True, help="List the quarantined files.")
@json_option
def info(store: str, rejects: bool, as_json: bool) -> None:
    """Show what is in an index and what built it."""
    with open_store(store) as opened:
        manifest = need_manifest(opened)
        quarantine = opened.rejects() if isinstance(opened, Quarantine) else None
        count = len(opened)
        ranks_words = isinstance(opened, WordSearch)
        details = opened.describe() if isinstance(opened, Described) else {}
    codes = None if quarantine is None else dict(sorted(Counter(reject.code for reject in quarantine).items()))
    if as_json:
        listed = [{"id": r.id, "code": r.code, "message": r.message} for r in quarantine or ()]
        print_json(
            {
                "store": opened.name,
                "documents": count,
                **details,
                "fingerprint": manifest.fingerprint,
                "created": manifest.created,
                "spaces": [{"name": s.name, "dim": s.dim, "modalities": sorted(s.modalities)} for s in manifest.spaces],
                "words": manifest.language if ranks_words and manifest.language else None,
                "tuning": dict(manifest.tuning),
                "failed": codes,
                **({"rejects": listed} if rejects else {}),
            }
        )
        return
    click.echo(f"store       {opened.name}")
    click.echo(f"documents   {count}")
    for name, value in details.items():
        click.echo(f"{name:<11} {value}")
    click.echo(f"built with  {manifest.fingerprint}, {manifest.created}")
    for space in manifest.spaces:
        click.echo(f"space       {space.name}: {' and '.join(sorted(space.modalities))}, {space.dim} dimensions")
    words = manifest.language or "not ranked by this index"
    click.echo(f"words       {words if ranks_words else 'not ranked by this store'}")
    if manifest.tuning:
        click.echo(f"tuning      {', '.join(f'{name} {value:g}' for name, value in manifest.tuning.items())}")
    failed = "not kept by this store" if codes is None else ", ".join(f"{n} {code}" for code, n in codes.items())
    click.echo(f"failed      {failed or 'none'}")
    for reject in quarantine or () if rejects else ():
        click.echo(f"  {reject.code:<12} {reject.message}")
