"""Documents that come more than once, in one run or in several: the last one counts, and nothing else is remembered."""

from __future__ import annotations

from pathlib import Path

import pytest
from vlmsearch_mocks import MemoryStore, MockEncoder

from vlmsearch import Document, InvalidInputError, Pipeline
from vlmsearch.demo.scenes import make_scene
from vlmsearch.index import add_reported
from vlmsearch.indexing.flow import BATCH, LOOKED_UP, STORED_TOGETHER
from vlmsearch.stores.base import reject_list_of

BETWEEN = pytest.mark.parametrize("between", [0, BATCH + 6, LOOKED_UP + 6, STORED_TOGETHER + LOOKED_UP])
"""Documents that lie between two of one id: none, a batch of them, more than are looked up or stored together."""


@pytest.fixture
def pipeline() -> Pipeline:
    return Pipeline(MockEncoder(), MemoryStore())


def _others(count: int) -> list[Document]:
    return [Document(f"other-{i}", text=f"word {i}") for i in range(count)]


def _text(pipeline: Pipeline, id: str) -> str | None:
    return next((document.text for document in pipeline.store.get([id]) if document), None)


@BETWEEN
def test_a_good_document_after_a_bad_one_of_its_id_is_indexed_and_not_rejected(
    pipeline: Pipeline, between: int
) -> None:
    pipeline.add([Document("x"), *_others(between), Document("x", text="a good text")])
    assert _text(pipeline, "x") == "a good text"
    assert not reject_list_of(pipeline.store).rejects()


@BETWEEN
def test_a_bad_document_after_a_good_one_of_its_id_is_rejected_and_found_no_longer(
    pipeline: Pipeline, between: int
) -> None:
    add_reported(pipeline, [Document("x", text="a good text"), *_others(between), Document("x")])
    assert _text(pipeline, "x") is None
    assert [(reject.id, reject.code) for reject in reject_list_of(pipeline.store).rejects()] == [("x", "empty")]


@BETWEEN
def test_what_the_index_had_already_wins_over_what_came_before_it_in_the_run(pipeline: Pipeline, between: int) -> None:
    pipeline.add([Document("x", text="second")])
    pipeline.add([Document("x", text="first"), *_others(between), Document("x", text="second")])
    assert _text(pipeline, "x") == "second"
    assert [match.document.text for match in pipeline.search("second", limit=1, min_score=0)] == ["second"]


def test_a_file_that_could_not_be_read_for_a_while_is_released_though_unchanged(
    pipeline: Pipeline, tmp_path: Path
) -> None:
    path = tmp_path / "scene.png"
    make_scene(1).draw(96).save(path)
    document, content = Document("scene", image=path), path.read_bytes()
    pipeline.add([document])
    path.unlink()
    assert [reject.code for reject in add_reported(pipeline, [document]).rejects] == ["unreadable"]
    assert [reject.code for reject in reject_list_of(pipeline.store).rejects()] == ["unreadable"]
    path.write_bytes(content)
    assert pipeline.add([document]).unchanged == 1
    assert not reject_list_of(pipeline.store).rejects()


@pytest.mark.parametrize("repeats", [BATCH, LOOKED_UP, 3 * LOOKED_UP])
def test_a_document_that_comes_again_is_counted_once(pipeline: Pipeline, repeats: int) -> None:
    ids = [f"x{number}" for number in range(repeats)] * 2
    report = pipeline.add([Document(id, text=f"version {number}") for number, id in enumerate(ids)])
    assert report.added == repeats
    assert len(list(pipeline.store.ids())) == repeats


def test_strict_raises_for_what_is_on_the_list_already(pipeline: Pipeline) -> None:
    add_reported(pipeline, [Document("x")])
    with pytest.raises(InvalidInputError, match="neither text nor image"):
        pipeline.add([Document("x")], strict=True)


def test_strict_raises_for_a_bad_document_though_a_good_one_of_its_id_follows(pipeline: Pipeline) -> None:
    with pytest.raises(InvalidInputError, match="neither text nor image"):
        pipeline.add([Document("x"), *_others(LOOKED_UP), Document("x", text="a good text")], strict=True)
