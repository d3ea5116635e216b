"""An index as a CSV file: its documents and their metadata, without vectors.

The columns are ``id``, ``text`` and ``image``, then one for each key of the metadata. `vlmsearch.indexing.tables` reads
such a file: values that are written as numbers, ``true`` or ``false`` become these, and empty cells are left out.
A list of strings becomes one text, with semicolons; that of the readers becomes JSON.
"""

from __future__ import annotations

import csv
import json
import os
import re
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from vlmsearch._util.files import file_in_the_making
from vlmsearch.errors import ConfigError
from vlmsearch.indexing.parquet import ExportReport
from vlmsearch.stores.base import Store, needed_manifest
from vlmsearch.stores.listing import all_documents
from vlmsearch.types import READERS

_COLUMNS = ("id", "text", "image")
_HALVES = re.compile("[\ud800-\udc7f\udd00-\udfff]")
"""Halves of surrogate pairs that stand for no byte."""


def export_csv(source: Store, path: str | Path, *, on_progress: Callable[[int], None] | None = None) -> ExportReport:
    """Write all documents of an index into a CSV file, without vectors.

    The file appears when it is complete, and what was there stays until then. A key of the metadata that is called like
    another column gets the name ``metadata.KEY``.

    Args:
        source: The index to read.
        path: The file to write; its name ends in ``.csv``.
        on_progress: Called with the number of documents done so far.

    Returns:
        What was written; the file never has a reject list.

    Raises:
        ConfigError: The source is not an index, or the path is a folder or has another ending.

    Example:
        >>> import tempfile
        >>> from vlmsearch import Document, Pipeline
        >>> from vlmsearch.registry import open_encoder, open_store
        >>> with tempfile.TemporaryDirectory() as folder, open_store("mock:") as store:
        ...     report = Pipeline(open_encoder("mock:"), store).add(Document("a", text="cat", metadata={"year": 2024}))
        ...     written = export_csv(store, f"{folder}/index.csv")
        ...     Path(folder, "index.csv").read_text().split()
        ['id,text,image,year', 'a,cat,,2024']
    """
    started = time.monotonic()
    path = Path(path)
    needed_manifest(source)
    if not is_csv(path) or path.is_dir():
        what = "is a folder" if path.is_dir() else "does not end in .csv"
        raise ConfigError(f"{str(path)!r} {what}: name the file to write, such as index.csv")
    keys: dict[str, None] = {}
    count = 0
    with file_in_the_making(path) as making, tempfile.TemporaryFile("w+", encoding="utf-8") as rows:
        for document in all_documents(source):  # the header, which comes first, is known when all have been read
            keys |= dict.fromkeys(document.metadata)
            image = None if document.image is None else str(document.image)
            rows.write(json.dumps([[document.id, document.text, image], dict(document.metadata)]) + "\n")
            count += 1
            if on_progress:
                on_progress(count)
        rows.seek(0)
        with making.open("w", encoding="utf-8", errors="surrogateescape", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow([*_COLUMNS, *(f"metadata.{key}" if key in _COLUMNS else _cell(key) for key in keys)])
            for line in rows:
                columns, metadata = json.loads(line)
                if isinstance(names := metadata.get(READERS), (str, list)):  # names may have semicolons
                    metadata[READERS] = json.dumps([names] if isinstance(names, str) else names)
                writer.writerow(map(_cell, [*columns, *(metadata.get(key) for key in keys)]))
        size = making.stat().st_size
    return ExportReport(count, None, size, time.monotonic() - started)


def is_csv(path: str | Path) -> bool:
    """Return whether a name is that of a CSV file, by its ending."""
    return os.fspath(path).lower().endswith(".csv")


def _cell(value: object) -> str:
    """Return a value as `vlmsearch.indexing.tables` reads it."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        value = "; ".join(value)
    return _HALVES.sub("\ufffd", str(value))
