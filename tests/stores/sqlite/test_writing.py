"""What writing many documents keeps of them, and what it takes."""

import json
import sqlite3
import sys
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from types import FrameType, SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from vlmsearch import Document, Encoder, Record, Space
from vlmsearch.bench.search import draw_documents
from vlmsearch.stores.sqlite.arrays import ArraysFile, write_arrays
from vlmsearch.stores.sqlite.store import SqliteStore
from vlmsearch.types import MetadataValue

SPACE = Space("s", 16, frozenset({"text"}))


def test_metadata_with_signs_of_json_are_kept_as_each_alone_would_be(tmp_path: Path) -> None:
    texts = ("},\n{", "}\n{", ",\n", '"},\n{"', "}, {", "\\n", "\n", "[", "é\u2028", "\ud800", "")
    kept: list[dict[str, MetadataValue]] = [{"key": text, "list": (text, "}")} for text in texts]
    kept = [{}, *kept, {}]
    records = [Record(Document(str(i), "a dog", metadata=values), {}) for i, values in enumerate(kept)]
    with SqliteStore(str(tmp_path / "index")) as store:
        store.bind("e", [SPACE])
        store.upsert(records)
        assert [dict(document.metadata) for document in store.get([r.document.id for r in records])] == kept
        assert store.check().clean
    with closing(sqlite3.connect(tmp_path / "index")) as db:
        rows = [row for (row,) in db.execute("SELECT metadata FROM documents_1 ORDER BY row")]
    assert rows == [json.dumps(values) for values in kept]


def test_a_document_is_written_by_few_calls_of_python(tmp_path: Path) -> None:
    encoder = cast("Encoder", SimpleNamespace(spaces=(SPACE,)))
    [records] = draw_documents(400, encoder)
    again = [replace(r, document=replace(r.document, id=f"{r.document.id}-2")) for r in records]
    calls = 0

    def count(_frame: FrameType, event: str, _argument: Any) -> None:
        nonlocal calls
        calls += event == "call"

    with SqliteStore(str(tmp_path / "index")) as store:
        store.bind("e", [SPACE])
        store.upsert(records)
        sys.setprofile(count)
        try:
            store.upsert(again)
        finally:
            sys.setprofile(None)
    assert calls < 62 * len(records), calls / len(records)


@pytest.mark.parametrize("groups", [1, 40])
def test_groups_of_arrays_are_read_as_they_were_written(tmp_path: Path, groups: int) -> None:
    path = tmp_path / "index-arrays-1"
    (tmp_path / "index").touch()
    parts = {name: (9, [[np.full(i + n, n, np.uint8) for n in range(4)] for i in range(groups)]) for name in ("a", "b")}
    write_arrays(path, "7", 1, parts)
    file = ArraysFile.open(path, "7")
    for name, (row, written) in parts.items():
        number, arrays = file.read(name)
        assert number == row
        assert [[array.tolist() for array in group] for group in arrays] == [
            [array.tolist() for array in group] for group in written
        ]
