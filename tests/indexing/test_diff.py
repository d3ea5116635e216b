"""``diff``: what differs between two indexes, in stores of every kind and in exports."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from vlmsearch_mocks import MemoryStore
from vlmsearch_mocks.contracts.records import CAPTION, IMAGE, SPACES, TEXT, make_records, unit_vectors

from tests.support.cli import assert_one_line, ok, run
from tests.support.small_store import SmallStore
from vlmsearch import ConfigError, Document, Pipeline, Record
from vlmsearch.indexing.diff import DocumentDifference, diff
from vlmsearch.indexing.parquet import ParquetIndex, export_index
from vlmsearch.stores.base import Store
from vlmsearch.stores.sqlite.store import SqliteStore
from vlmsearch.types import Reject, Stamp


def filled(store: Store, records: list[Record]) -> Store:
    store.bind("encoder 1", SPACES)
    store.upsert(records)
    return store


def changed(record: Record, **values: Any) -> Record:
    return replace(record, document=replace(record.document, **values))


BASE = Record(Document("id", "text", Path("a.png"), {"n": 1}), {IMAGE: unit_vectors(1, IMAGE)[0]}, Stamp("d", "s"))


@pytest.mark.parametrize(
    ("other", "what"),
    [
        (changed(BASE, text=None), ("text",)),
        (changed(BASE, image=Path("b.png")), ("image",)),
        (changed(BASE, metadata={"n": 2}), ("metadata",)),
        (changed(BASE, metadata={"n": True}), ("metadata",)),
        (changed(BASE, metadata={"n": 1.0}), ("metadata",)),
        (replace(BASE, stamp=Stamp("e", "s")), ("digest",)),
        (replace(BASE, stamp=Stamp("d", "t")), ("source",)),
        (replace(BASE, vectors={IMAGE: unit_vectors(1, IMAGE, seed=9)[0]}), ("clip/image",)),
        (replace(BASE, vectors={CAPTION: unit_vectors(1, CAPTION)[0]}), ("clip/image", "clip/text")),
        (replace(changed(BASE, text="x"), vectors={}), ("text", "clip/image")),
    ],
)
def test_each_difference_is_named(other: Record, what: tuple[str, ...]) -> None:
    with MemoryStore() as one, MemoryStore() as two:
        filled(one, [*make_records(3, (TEXT,)), BASE])
        filled(two, [*make_records(3, (TEXT,)), other])
        found = diff(one, two)
        assert (found.same, found.documents, found.index) == (False, 4, ())
        assert found.counts == dict.fromkeys(what, 1)
        assert found.differences == (DocumentDifference("id", what),)


def test_what_one_of_the_two_has_alone(tmp_path: Path) -> None:
    with MemoryStore() as one, SqliteStore(str(tmp_path / "two")) as two:
        filled(one, make_records(1300, (TEXT,)))
        filled(two, make_records(1400, (TEXT,))[600:])
        counted: list[int] = []
        found = diff(one, two, limit=650, on_progress=counted.append)
        assert found.counts == {"first only": 600, "second only": 100}
        assert (found.documents, counted[-1], len(found.differences)) == (1400, 1400, 650)
        assert diff(two, one).counts == {"first only": 100, "second only": 600}
        export_index(two, tmp_path / "two.parquet")
        with ParquetIndex(tmp_path / "two.parquet") as exported:
            assert diff(one, exported).counts == {"first only": 600, "second only": 100}
            assert diff(exported, one).counts == {"first only": 100, "second only": 600}
            assert diff(exported, two).same
            with pytest.raises(ConfigError, match="are both exports: import one of them first"):
                diff(exported, exported)


def test_vectors_may_differ_by_the_tolerance() -> None:
    vector = unit_vectors(1, IMAGE)[0]
    near = np.nextafter(vector, np.float32(2))
    with MemoryStore() as one, MemoryStore() as two:
        filled(one, [replace(BASE, vectors={IMAGE: vector})])
        filled(two, [replace(BASE, vectors={IMAGE: near})])
        assert diff(one, two).same
        assert diff(one, two, tolerance=0).counts == {"clip/image": 1}


def test_the_indexes_themselves_and_their_reject_lists() -> None:
    with MemoryStore() as one, MemoryStore() as two:
        filled(one, []).bind("encoder 1", SPACES)
        two.bind("encoder 2", SPACES[:1])
        assert diff(one, two).index == ("model", "spaces")
    with MemoryStore() as one, MemoryStore() as two, SmallStore() as small:
        for store in (one, two, small):
            filled(store, [BASE])
        one.tune({"words": 0.5})
        one.reject([Reject("a", "empty", "nothing"), Reject("b", "empty", "nothing")])
        two.reject([Reject("b", "empty", "another"), Reject("c", "empty", "nothing")])
        found = diff(one, two)
        assert (found.index, found.counts) == (("tuning",), {"rejects": 3})
        assert [each.id for each in found.differences] == ["a", "b", "c"]
        assert diff(two, small).same, "it keeps no such list"


def test_what_is_no_index_is_refused() -> None:
    with MemoryStore() as one, MemoryStore() as two:
        filled(one, [BASE])
        with pytest.raises(ConfigError, match="is not an index yet: there is nothing in it"):
            diff(one, two)


def test_the_command(tmp_path: Path) -> None:
    for name, texts in (("one", "abc"), ("two", "abd")):
        with Pipeline.open(encoder="mock:", store=f"sqlite:{tmp_path / name}") as pipeline:
            pipeline.add([Document(text, text=text) for text in texts])
    ok("export", "one.parquet", "--store", "sqlite:one", cwd=tmp_path)
    assert ok("diff", "sqlite:one", "one.parquet", "--tolerance", "0", cwd=tmp_path) == "3 documents are the same\n"
    done = run("diff", "one.parquet", "sqlite:two", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (1, "")
    assert done.stdout.splitlines() == [
        "first only   1",
        "second only  1",
        "  c: first only",
        "  d: second only",
    ]
    done = run("diff", "sqlite:one", "sqlite:two", "--json", cwd=tmp_path)
    assert done.returncode == 1
    assert json.loads(done.stdout) == {
        "same": False,
        "documents": 4,
        "index": [],
        "counts": {"first only": 1, "second only": 1},
        "differences": [{"id": "c", "what": ["first only"]}, {"id": "d", "what": ["second only"]}],
    }
    assert_one_line(run("diff", "sqlite:one", "sqlite:none", cwd=tmp_path), "no index at sqlite:none")
    assert_one_line(run("diff", "sqlite:one", "none.parquet", cwd=tmp_path), "no such file: 'none.parquet'")
