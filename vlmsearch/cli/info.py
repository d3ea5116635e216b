"""``vlmsearch info``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import click

from vlmsearch.cli.common import (
    command,
    json_option,
    need_manifest,
    option,
    print_json,
)
from vlmsearch.cli.opening import IndexChoice, index_options
from vlmsearch.types import Reject
from vlmsearch.wire import to_json


@command()
@index_options("server")
@option("--rejects", is_flag=True, help="List the rejected files.")
@json_option
def info(chosen: IndexChoice, rejects: bool, as_json: bool) -> None:
    """Show the contents, the model and the settings of an index."""
    if chosen.server:
        with chosen.connect() as remote:
            facts, listed, ranker = remote.info(), remote.rejects() if rejects else [], "index"
    else:
        from vlmsearch.search.info import index_info
        from vlmsearch.stores.base import RejectList, WordSearch

        with chosen.open_store() as store:
            facts = index_info(store, need_manifest(store))
            listed = store.rejects() if rejects and isinstance(store, RejectList) else []
            ranker = "index" if isinstance(store, WordSearch) else "store"
    if as_json:
        print_json({**facts, **({"rejects": [to_json(reject) for reject in listed]} if rejects else {})})
    else:
        _print(facts, listed, ranker)


def _print(facts: Mapping[str, Any], listed: Sequence[Reject], ranker: str) -> None:
    known = {"fingerprint", "created", "spaces", "words", "tuning", "relevance", "threshold", "rejected", "name", "can"}
    for name, value in facts.items():
        if name not in known:
            click.echo(f"{name:<11} {value}")
    click.echo(f"built with  {facts['fingerprint']}, {facts['created']}")
    for space in facts["spaces"]:
        click.echo(f"space       {space['name']}: {' and '.join(space['modalities'])}, {space['dim']} dimensions")
    click.echo(f"words       {facts['words'] or f'not ranked by this {ranker}'}")
    for field, basis in facts["relevance"].items():
        click.echo(f"relevance   {field}: {basis}")
    click.echo(f"threshold   {facts['threshold']:g}")
    if facts["tuning"]:
        click.echo(f"tuning      {', '.join(f'{name} {value:g}' for name, value in facts['tuning'].items())}")
    codes = facts["rejected"]
    rejected = "not kept by this store" if codes is None else ", ".join(f"{n} {code}" for code, n in codes.items())
    click.echo(f"rejected    {rejected or 'none'}")
    for reject in listed:
        click.echo(f"  {reject.code:<12} {reject.message}")
