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
    if where is not None:
        with open_documents(chosen, where) as documents:
            number = sum(1 for _ in documents)
    elif chosen.server:
        with chosen.connect() as remote:
            number = remote.count()
    else:
        with chosen.open_store() as store:
            number = len(store)
    if as_json:
        print_json({"documents": number})
    else:
        click.echo(number)
