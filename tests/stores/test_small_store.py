"""A store that does what `Store` asks for and nothing more: it passes the suite, and the pipeline works on it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner
from vlmsearch_mocks import MockEncoder
from vlmsearch_mocks.contracts import StoreContract
from vlmsearch_mocks.store import MemoryStore

from vlmsearch import ConfigError, Document, InvalidInputError, Pipeline
from vlmsearch.cli import cli
from vlmsearch.stores.base import RejectList, Store
from vlmsearch.stores.filters import Filter
from vlmsearch.types import Field, Hit, Manifest, MetadataChange, Record, Space, Stamp, Vectors


class SmallStore(Store):
    """Hands everything to another store, and has none of the methods that `Store` does not ask for."""

    def __init__(self) -> None:
        self._kept = MemoryStore()
        self.name = "small"

    def bind(self, fingerprint: str, spaces: Sequence[Space]) -> None:
        self._kept.bind(fingerprint, spaces)

    def manifest(self) -> Manifest | None:
        return self._kept.manifest()

    def upsert(self, records: Sequence[Record]) -> None:
        self._kept.upsert(records)

    def update_metadata(self, changes: Sequence[MetadataChange]) -> list[str]:
        return self._kept.update_metadata(changes)

    def search(self, field: Field, vectors: Vectors, *, limit: int, where: Filter | None = None) -> list[list[Hit]]:
        return self._kept.search(field, vectors, limit=limit, where=where)

    def get(self, ids: Sequence[str]) -> list[Document]:
        return self._kept.get(ids)

    def records(self, ids: Sequence[str]) -> list[Record]:
        return self._kept.records(ids)

    def stamps(self, ids: Sequence[str]) -> dict[str, Stamp]:
        return self._kept.stamps(ids)

    def fields(self, ids: Sequence[str]) -> dict[str, frozenset[Field]]:
        return self._kept.fields(ids)

    def delete(self, ids: Sequence[str]) -> int:
        return self._kept.delete(ids)

    def ids(self) -> Iterator[str]:
        return self._kept.ids()

    def __len__(self) -> int:
        return len(self._kept)


class TestSmallStore(StoreContract):
    def make_store(self, tmp_path: Path) -> Store:
        return SmallStore()


def test_inputs_that_cannot_be_used_are_reported_in_each_run(tmp_path: Path) -> None:
    (tmp_path / "good.txt").write_text("a red star")
    (tmp_path / "bad.png").write_bytes(b"not an image")
    store = SmallStore()
    assert not isinstance(store, RejectList)
    with Pipeline(MockEncoder(), store) as pipeline:
        for added in (1, 0):
            report = pipeline.index(tmp_path)
            assert report.added == added
            assert [(Path(reject.id).name, reject.code) for reject in report.rejects] == [("bad.png", "unsupported")]
        with pytest.raises(InvalidInputError, match=r"bad\.png"):
            pipeline.index(tmp_path, strict=True)
        (tmp_path / "bad.png").unlink()
        report = pipeline.index(tmp_path, prune=True)
        assert (report.unchanged, report.rejects, len(store)) == (1, (), 1)
        with pytest.raises(ConfigError, match="cannot be checked; sqlite:, chroma:"):
            pipeline.check()


def test_info_says_that_the_store_keeps_no_list_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    store, encoder = SmallStore(), MockEncoder()
    store.bind(encoder.fingerprint, encoder.spaces)
    monkeypatch.setattr("vlmsearch.registry.open_store", lambda _: store)
    told = CliRunner().invoke(cli, ["info", "--store", "small:", "--rejects"])
    assert "\nrejected    not kept by this store\n" in told.output
    told = CliRunner().invoke(cli, ["info", "--store", "small:", "--rejects", "--json"])
    found = json.loads(told.output)
    assert (found["rejected"], found["rejects"]) == (None, [])


def test_a_document_whose_content_went_bad_is_found_no_longer() -> None:
    with Pipeline(MockEncoder(), SmallStore()) as pipeline:
        pipeline.add([Document("a", text="a red star"), Document("b", text="a ring")])
        assert pipeline.add(Document("a", image=b"not an image")).rejects
        assert [match.document.id for match in pipeline.search("a red star")] == ["b"]
