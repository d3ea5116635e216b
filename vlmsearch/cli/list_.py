"""``vlmsearch list``."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice

import click

from vlmsearch._util.unread import HAS_UNREAD, UNREAD
from vlmsearch.cli.common import (
    command,
    is_terminal,
    json_option,
    option,
    print_json,
    print_table,
    short_path,
    where_option,
)
from vlmsearch.cli.documents import check_files_options, files_option, open_documents, print_paths
from vlmsearch.cli.opening import IndexChoice, index_options
from vlmsearch.types import shown_value
from vlmsearch.wire import DocumentPage, to_json

_ON_A_TERMINAL = 20


@command("list")
@where_option
@option(
    "--limit",
    has_variable=False,  # VLMSEARCH_LIMIT is how many matches a search shows
    type=click.IntRange(1),
    metavar="N",
    help=f"Documents of a page. No environment variable sets it.  [default: {_ON_A_TERMINAL} on a terminal, else all]",
)
@option("--page", type=click.IntRange(1), default=1, show_default=True, metavar="N", help="Number of the page.")
@option("--unread", is_flag=True, help="Only documents of files with parts that were not read, and which parts.")
@files_option
@index_options("server", "principals")
@json_option
def list_(
    where: Mapping[str, object] | None,
    limit: int | None,
    page: int,
    unread: bool,
    files: bool,
    null: bool,
    chosen: IndexChoice,
    as_json: bool,
) -> None:
    """List the documents of an index, in the order of their ids.

    In a pipe, a line has the id and the text of a document, separated by a tab; with --unread, the unread parts come
    between them.
    """
    check_files_options(files, null, {"--json": as_json})
    if limit is None and is_terminal() and not as_json:
        limit = _ON_A_TERMINAL
    if limit is None and page > 1:
        raise click.UsageError("--page needs --limit, the number of documents of a page")
    if unread:
        where = HAS_UNREAD if where is None else {"$and": [where, HAS_UNREAD]}
    start = (page - 1) * (limit or 0)
    with open_documents(chosen, where) as documents:
        shown = islice(documents, start, limit and start + limit)
        if files:
            print_paths(shown, null=null)
        elif as_json:
            print_json(to_json(DocumentPage(tuple(shown))))
        elif is_terminal():
            name, last = ("not read", _unread) if unread else ("metadata", _pairs)
            rows = [(short_path(document.id), _line(document.text), last(document.metadata)) for document in shown]
            names = ("document", "text", name)
            if rows:
                print_table(names, rows, left=names)
            else:
                click.echo("No documents.")
        else:
            for document in shown:
                parts = [_unread(document.metadata)] if unread else []
                click.echo("\t".join([document.id, *parts, _line(document.text)]))
        if is_terminal() and not as_json and next(documents, None) is not None:
            click.echo(f"More: --page {page + 1}")


def _line(text: str | None) -> str:
    shown = " ".join((text or "").split())
    return shown[:160] if is_terminal() else shown


def _unread(metadata: Mapping[str, object]) -> str:
    return str(metadata.get(UNREAD, ""))


def _pairs(metadata: Mapping[str, object]) -> str:
    return ", ".join(f"{key}={shown_value(value)}" for key, value in metadata.items())
