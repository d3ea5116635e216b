"""``vlmsearch get``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import click

from vlmsearch.cli.common import command, json_option, print_json
from vlmsearch.cli.completion import complete_files
from vlmsearch.cli.opening import IndexChoice, index_options
from vlmsearch.stores.versions import named_passages
from vlmsearch.types import Document, Passage, is_id, shown_value
from vlmsearch.wire import DocumentPage, to_json


@command()
@click.argument("ids", nargs=-1, required=True, shell_complete=complete_files)
@index_options("server", "principals")
@json_option
def get(ids: tuple[str, ...], chosen: IndexChoice, as_json: bool) -> None:
    """Show documents: their text, image and metadata.

    ID is the id of a document or the path of a file, with #passage=N behind it for a passage of a long text. The exit
    status is 1 if one is not in the index.
    """
    from vlmsearch.indexing.sources import file_id

    names = {id: [name for name in dict.fromkeys((id, file_id(id))) if is_id(name)] for id in dict.fromkeys(ids)}
    wanted = [name for forms in names.values() for name in forms]
    if chosen.server:
        with chosen.connect() as remote:
            documents, passages = remote.get(wanted), remote.passages(wanted)
    else:
        with chosen.open_store() as store:
            documents, passages = store.get(wanted), named_passages(store, wanted)
    by_id = {document.id: document for document in documents}
    shown = {id: next((by_id[form] for form in forms if form in by_id), None) for id, forms in names.items()}
    missing = [id for id, document in shown.items() if document is None]
    present = [document for document in shown.values() if document is not None]
    if as_json:
        print_json(to_json(DocumentPage(tuple(present), tuple(missing), passages)))
    else:
        _print(present, passages)
    if missing:
        raise click.ClickException(f"not in the index: {', '.join(missing)}")


def _print(documents: Sequence[Document], passages: Mapping[str, Passage]) -> None:
    for document in documents:
        click.echo(document.id)
        place = passages[document.id].place if document.id in passages else None
        values = {"place": place, "text": document.text, "image": document.image, **document.metadata}
        lines = {name: shown_value(value) for name, value in values.items() if value is not None}
        width = max(map(len, lines), default=0)
        for name, value in lines.items():
            click.echo(f"  {name.ljust(width)}  {' '.join(value.split())}")
