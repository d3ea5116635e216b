"""The documents of an index on the command line: all of them, and the files that they come from."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import chain, islice
from pathlib import Path

import click

from vlmsearch._util.text import unfiltered
from vlmsearch._util.unread import HAS_UNREAD
from vlmsearch.cli.common import add_options, is_terminal, option
from vlmsearch.cli.opening import IndexChoice
from vlmsearch.media.remote import remote_url
from vlmsearch.types import Document, RemoteImage, part_of

files_option = add_options(
    [
        option("--files", is_flag=True, help="Print only the paths of files, one a line."),
        option("--null", is_flag=True, help="With --files: end each path with a NUL, as `xargs -0` reads them."),
    ]
)


@contextmanager
def open_documents(chosen: IndexChoice, where: Mapping[str, object] | None) -> Iterator[Iterator[Document]]:
    """Open an index, and yield those of its documents that pass a filter.

    They are in the order of their ids.
    """
    from vlmsearch.stores.filters import parse_filter
    from vlmsearch.stores.listing import all_documents, unknown_keys

    condition = parse_filter(where) if where is not None else None
    if chosen.server:
        with chosen.connect() as remote:
            documents = remote.documents()
            yield (document for document in documents if condition is None or condition.matches(document.metadata))
    else:
        with chosen.open_store() as store:
            documents = all_documents(store, condition)
            first = [*islice(documents, 1)]
            unknown = unknown_keys(store, condition) if condition and not first else {}
            for key in unknown.keys() - HAS_UNREAD.keys():
                click.echo(f"{unknown[key]}.", err=True)
            yield chain(first, documents)


def path_of(document: Document) -> str | None:
    """Return the file of a document, which for a part is the whole.

    None for one that was not read from a file.
    """
    from vlmsearch.indexing.sources import file_name

    if document.part:
        return document.part.of if remote_url(document.part.of) else file_name(document.part.of)
    if isinstance(document.image, (Path, RemoteImage)):
        path = document.image.path if isinstance(document.image, RemoteImage) else str(document.image)
        part = part_of(path)
        return part.of if part else path
    if remote_url(document.id):
        return document.id
    return file_name(document.id) if os.path.isabs(document.id) else None


def check_files_options(files: bool, null: bool, others: Mapping[str, object]) -> None:
    """Raise UsageError where the options of `files_option` do not go together, or with others."""
    if null and not files:
        raise click.UsageError("--null ends the paths of --files: give both")
    if files and (given := [name for name, value in others.items() if value]):
        raise click.UsageError(f"give --files or {given[0]}")


def print_paths(documents: Iterable[Document], *, null: bool) -> None:
    """Print the files of documents, each once.

    A pipe gets the bytes that the file system knows. A terminal gets escapes in place of characters that steer it.
    """
    seen: set[str] = set()
    without = 0
    output = unfiltered(sys.stdout)
    for document in documents:
        path = path_of(document)
        if path is None:
            without += 1
        elif path not in seen:
            seen.add(path)
            if is_terminal():
                click.echo(path)
            else:
                output.buffer.write(path.encode("utf-8", "surrogateescape") + (b"\0" if null else b"\n"))
    if without:
        click.echo(f"{without} documents have no file", err=True)
