"""``vlmsearch delete``."""

from __future__ import annotations

import click

from vlmsearch.cli.common import (
    ServerIndex,
    command,
    json_option,
    need_manifest,
    print_json,
    server_option,
    store_option,
)
from vlmsearch.types import is_id


@command()
@click.argument("ids", nargs=-1, required=True)
@store_option
@server_option
@json_option
def delete(ids: tuple[str, ...], store: str, server: ServerIndex | None, as_json: bool) -> None:
    """Remove documents by id; a file may be named by its path as it is from here, and takes its parts along."""
    from vlmsearch.indexing.containers import with_parts
    from vlmsearch.indexing.sources import file_id
    from vlmsearch.registry import open_store

    names = [name for name in {name for id in ids for name in (id, file_id(id))} if is_id(name)]
    if server is not None:
        with server.connect() as remote:
            count = remote.delete(names)
    else:
        with open_store(store) as opened:
            need_manifest(opened)
            count = opened.delete(with_parts(opened, names))
    if as_json:
        print_json({"deleted": count})
    else:
        click.echo(f"{count} deleted")
    if not count:
        raise click.ClickException("none of these ids is in the index")
