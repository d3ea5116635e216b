"""``vlmsearch count``."""

from __future__ import annotations

from collections.abc import Mapping

import click

from vlmsearch.cli.common import command, json_option, print_json, where_option
from vlmsearch.cli.documents import open_documents
from vlmsearch.cli.opening import IndexChoice, index_options


@command()
@where_option
@index_options("server")
@json_option
def count(where: Mapping[str, object] | None, chosen: IndexChoice, as_json: bool) -> None:
    """Count the documents of an index, or those that pass a filter."""
    passages: int | None = None
    if where is not None:
        with open_documents(chosen, where) as documents:
            number = sum(1 for _ in documents)
    elif chosen.server:
        with chosen.connect() as remote:
            info = remote.info()
        number, passages = info["documents"], info["passages"]
    else:
        with chosen.open_store() as store:
            number, passages = len(store), store.count_passages()
    if as_json:
        print_json({"documents": number, **({} if passages is None else {"passages": passages})})
        return
    click.echo(number)
    if passages:
        click.echo(f"and {passages:,} passages of long texts", err=True)
