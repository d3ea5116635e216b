"""``vlmsearch info``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import click

from vlmsearch.cli.common import (
    ServerIndex,
    command,
    json_option,
    need_manifest,
    option,
    print_json,
    server_option,
    store_option,
)
from vlmsearch.types import Reject
from vlmsearch.wire import to_json

_Found: TypeAlias = tuple[Mapping[str, Any], Sequence[Reject], str]
"""What `index_info` says, the reject list, and whether it is up to the index or the store to rank words."""


@command()
@store_option
@server_option
@option("--rejects", is_flag=True, help="List the rejected files.")
@json_option
def info(store: str, server: ServerIndex | None, rejects: bool, as_json: bool) -> None:
    """Show what is in an index and what built it."""
    found, listed, ranker = _of_server(server, rejects) if server else _of_store(store, rejects)
    if as_json:
        print_json({**found, **({"rejects": [to_json(each) for each in listed]} if rejects else {})})
    else:
        _print(found, listed, ranker)


def _of_store(store: str, rejects: bool) -> _Found:
    from vlmsearch.registry import open_store
    from vlmsearch.search.info import index_info
    from vlmsearch.stores.base import RejectList, WordSearch

    with open_store(store) as opened:
        found = index_info(opened, need_manifest(opened))
        listed = opened.rejects() if rejects and isinstance(opened, RejectList) else []
        return found, listed, "index" if isinstance(opened, WordSearch) else "store"


def _of_server(server: ServerIndex, rejects: bool) -> _Found:
    with server.connect() as remote:
        return remote.info(), remote.rejects() if rejects else [], "index"


def _print(found: Mapping[str, Any], listed: Sequence[Reject], ranker: str) -> None:
    known = {"fingerprint", "created", "spaces", "words", "tuning", "relevance", "threshold", "rejected", "name", "can"}
    for name, value in found.items():
        if name not in known:
            click.echo(f"{name:<11} {value}")
    click.echo(f"built with  {found['fingerprint']}, {found['created']}")
    for space in found["spaces"]:
        click.echo(f"space       {space['name']}: {' and '.join(space['modalities'])}, {space['dim']} dimensions")
    click.echo(f"words       {found['words'] or f'not ranked by this {ranker}'}")
    for field, basis in found["relevance"].items():
        click.echo(f"relevance   {field}: {basis}")
    click.echo(f"threshold   {found['threshold']:g}")
    if found["tuning"]:
        click.echo(f"tuning      {', '.join(f'{name} {value:g}' for name, value in found['tuning'].items())}")
    codes = found["rejected"]
    rejected = "not kept by this store" if codes is None else ", ".join(f"{n} {code}" for code, n in codes.items())
    click.echo(f"rejected    {rejected or 'none'}")
    for reject in listed:
        click.echo(f"  {reject.code:<12} {reject.message}")
