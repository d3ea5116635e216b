"""``vlmsearch delete``."""

from __future__ import annotations

import click

from vlmsearch.cli.common import (
    command,
    json_option,
    print_json,
)
from vlmsearch.cli.opening import IndexChoice, index_options
from vlmsearch.types import is_id


@command()
@click.argument("ids", nargs=-1, required=True)
@index_options("server", "principals")
@json_option
def delete(ids: tuple[str, ...], chosen: IndexChoice, as_json: bool) -> None:
    """Remove documents by id. A file may be named by its path and is removed with its parts."""
    from vlmsearch.indexing.containers import with_parts
    from vlmsearch.indexing.sources import file_id

    names = [name for name in {name for id in ids for name in (id, file_id(id))} if is_id(name)]
    if chosen.server:
        with chosen.connect() as remote:
            count = remote.delete(names)
    else:
        with chosen.open_store() as store:
            count = store.delete(with_parts(store, names))
    if as_json:
        print_json({"deleted": count})
    else:
        click.echo(f"{count} deleted")
    if not count:
        raise click.ClickException("none of these ids is in the index")
