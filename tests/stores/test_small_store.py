"""A store that does what `Store` asks for and nothing more passes the suite, and the pipeline works on it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from vlmsearch_mocks import MockEncoder
from vlmsearch_mocks.contracts import StoreContract

from tests.support.small_store import SmallStore
from vlmsearch import ConfigError, Document, InvalidInputError, Pipeline
from vlmsearch.cli import cli
from vlmsearch.index import add_reported
from vlmsearch.stores.base import RejectList, Store


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
        with pytest.raises(ConfigError, match="cannot be checked: its class has no method `check`"):
            pipeline.check()


def test_info_says_that_the_store_keeps_no_list_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    store, encoder = SmallStore(), MockEncoder()
    store.bind(encoder.fingerprint, encoder.spaces)
    monkeypatch.setattr("vlmsearch.registry.open_store", lambda _: store)
    told = CliRunner().invoke(cli, ["info", "--store", "small:", "--rejects"])
    assert "\nrejected    not known: the store keeps none, or this handle is restricted\n" in told.output
    told = CliRunner().invoke(cli, ["info", "--store", "small:", "--rejects", "--json"])
    found = json.loads(told.output)
    assert (found["rejected"], found["rejects"]) == (None, [])


def test_a_document_whose_content_went_bad_is_found_no_longer() -> None:
    with Pipeline(MockEncoder(), SmallStore()) as pipeline:
        pipeline.add([Document("a", text="a red star"), Document("b", text="a ring")])
        assert add_reported(pipeline, Document("a", image=b"not an image")).rejects
        assert [match.document.id for match in pipeline.search("a red star")] == ["b"]
