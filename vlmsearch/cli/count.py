"""``vlmsearch count``."""

from __future__ import annotations

from collections.abc import Mapping

import click

from vlmsearch.cli.common import command, json_option, print_json, where_option
from vlmsearch.cli.documents import open_documents
from vlmsearch.cli.opening import IndexChoice, index_options
from vlmsearch.types import files_text


@command()
@where_option
@index_options("server", "principals")
@json_option
def count(where: Mapping[str, object] | None, chosen: IndexChoice, as_json: bool) -> None:
    """Count the documents of an index, or those that pass a filter."""
    if where is not None:
        with open_documents(chosen, where) as documents:
            parts = [document.part for document in documents]
        facts = {"documents": len(parts), "files": parts.count(None)}
    elif chosen.server:
        with chosen.connect() as remote:
            info = remote.info()
        facts = {name: info[name] for name in ("documents", "files", "passages")}
    else:
        with chosen.open_store() as store:
            facts = {"documents": len(store), "files": store.count_files(), "passages": store.count_passages()}
    if as_json:
        print_json(facts)
        return
    click.echo(facts["documents"])
    if text := files_text(facts["documents"], facts["files"]):
        click.echo(text.strip(" ()"), err=True)
    if passages := facts.get("passages"):
        click.echo(f"and {passages:,} passages of long texts", err=True)
