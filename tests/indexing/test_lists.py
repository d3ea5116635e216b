"""Lists of strings as metadata: what is written elsewhere, changed, counted, sorted and shown."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from langchain_core.documents import Document as LangchainDocument
from vlmsearch_mocks import MockStore

from tests.support.cli import run
from vlmsearch import Document, Pipeline
from vlmsearch.indexing.copy import copy
from vlmsearch.indexing.csv_file import export_csv
from vlmsearch.indexing.metadata import change_metadata
from vlmsearch.indexing.parquet import ParquetIndex, export_index
from vlmsearch.integrations.langchain import VlmsearchVectorStore
from vlmsearch.stores.base import Checkable

TAGS = {"a": ("dog", "snow, fresh"), "b": ("cat",), "c": ("cat", "dog"), "d": "dog", "e": None}


@pytest.fixture
def pipeline(tmp_path: Path) -> Iterator[Pipeline]:
    with Pipeline.open(encoder="mock:", store=f"sqlite:{tmp_path / 'index'}") as opened:
        opened.add([Document(id, text=f"a picture {id}", metadata={"tags": tags}) for id, tags in TAGS.items()])
        yield opened


def test_an_index_with_lists_is_copied_exported_and_sound(pipeline: Pipeline, tmp_path: Path) -> None:
    documents = pipeline.get(list(TAGS))
    assert [document.metadata.get("tags") for document in documents] == list(TAGS.values())
    export_index(pipeline.store, tmp_path / "index.parquet")
    with ParquetIndex(tmp_path / "index.parquet") as exported, closing(MockStore()) as other:
        copy(exported, other)
        assert other.get(list(TAGS)) == documents
    export_csv(pipeline.store, tmp_path / "index.csv")
    with (tmp_path / "index.csv").open(newline="") as file:
        assert [row["tags"] for row in csv.DictReader(file)] == ["dog; snow, fresh", "cat", "cat; dog", "dog", ""]
    assert isinstance(pipeline.store, Checkable)
    assert pipeline.store.check().clean


def test_each_string_of_a_list_counts_and_lists_are_sorted_as_their_text(pipeline: Pipeline) -> None:
    for store in (None, MockStore()):
        with Pipeline(pipeline.encoder, store or pipeline.store) as pipe:
            pipe.add(pipeline.get(list(TAGS)))
            matches = pipe.search("a picture", sort="tags", facets=["tags"], min_score=0, where={"tags": {"$ne": "x"}})
            assert [match.document.id for match in matches] == ["b", "c", "d", "a", "e"]
            assert matches.facets == {"tags": {"dog": 3, "cat": 2, "snow, fresh": 1}}
            matches = pipe.search("a picture", sort="-tags", min_score=0, where={"tags": "cat"})
            assert [match.document.id for match in matches] == ["c", "b"]
    explanation = pipeline.explain("a picture", "c", where={"tags": "snow"})
    assert "tags is 'snow', but it is 'cat', 'dog'" in str(explanation)


def test_lists_are_changed_and_a_filter_finds_the_new_ones(pipeline: Pipeline, tmp_path: Path) -> None:
    assert change_metadata(pipeline.store, ["b", "c"], {"tags": ["cat", "dog"]}) == 1
    assert change_metadata(pipeline.store, ["b"], {"tags": ["dog", "fox"]}) == 1
    store = ("--store", f"sqlite:{tmp_path / 'index'}")
    assert run("count", "--where", "tags has dog and not_there not in (x)", *store).stdout.split()[0] == "4"
    assert run("count", "--where", "tags in (fox, 'snow, fresh')", *store).stdout.split()[0] == "2"
    assert "dog, fox" in run("get", "b", *store).stdout


def test_filters_of_langchain_see_lists_of_strings(pipeline: Pipeline) -> None:
    store = VlmsearchVectorStore(pipeline)
    given = {"a": ["dog", "snow"], "b": ["cat"], "c": ["dog", "dog"], "d": ["dog", 1], "e": None}
    store.add_documents([LangchainDocument("a picture", id=id, metadata={"tags": tags}) for id, tags in given.items()])
    for where, ids in (({"tags": "dog"}, ["a", "c"]), ({"tags": {"$nin": ["dog"]}}, ["b", "d", "e"])):
        documents = store.similarity_search("picture", k=9, filter=where)
        assert sorted(document.id or "" for document in documents) == ids
        assert all(document.metadata == {"tags": given[document.id or ""]} for document in documents)
