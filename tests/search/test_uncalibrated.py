"""An index of what a model is not made for: one warning, and matches that say it."""

from __future__ import annotations

import warnings
from collections.abc import Iterator

import pytest
from vlmsearch_mocks import MemoryStore

from vlmsearch import Document, Pipeline, UncalibratedWarning
from vlmsearch.building.data import sentences
from vlmsearch.demo.scenes import make_scene
from vlmsearch.encoders.base import Encoder
from vlmsearch.encoders.batching import BatchingEncoder
from vlmsearch.encoders.onnx import OnnxEncoder
from vlmsearch.models.domain import MIN_DOCUMENTS
from vlmsearch.registry import open_generator

FIELD = "minilm/text"
UNSEEN = 50_000_000


@pytest.fixture(scope="module")
def encoder() -> Iterator[Encoder]:
    with OnnxEncoder("demo-minilm") as opened:
        yield opened


@pytest.fixture
def pipeline(encoder: Encoder) -> Pipeline:
    return Pipeline(encoder, MemoryStore())


def other(count: int, first: int = 0) -> list[Document]:
    return [Document(f"other-{i}", text=text) for i, text in enumerate(sentences()[first : first + count])]


def drawn(count: int) -> list[Document]:
    return [Document(f"scene-{i}", text=make_scene(UNSEEN + i).caption()) for i in range(count)]


def test_a_pipeline_warns_once_when_it_indexes(pipeline: Pipeline) -> None:
    with pytest.warns(UncalibratedWarning, match="demo-minilm is made for drawn scenes, and .*onnx:default") as caught:
        pipeline.add(other(40))
    assert len(caught) == 1
    assert caught[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        pipeline.add(other(40, 40))
        matches = pipeline.search("a dog", min_score=0)
    [(field, reason)] = matches.uncalibrated.items()
    assert field == FIELD
    assert "texts in this index are unlike them" in reason


def test_a_pipeline_warns_once_when_it_searches(encoder: Encoder) -> None:
    store = MemoryStore()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        Pipeline(encoder, store).add(other(40))
    again = Pipeline(encoder, store, open_generator("extractive:"))
    with pytest.warns(UncalibratedWarning) as caught:
        again.search("a dog")
    assert [warning.filename for warning in caught] == [__file__]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        again.search_many(["a cat", "a bird"])
        again.ask("Where is the dog?")


@pytest.mark.filterwarnings("error")
def test_what_a_model_is_made_for_is_calibrated_though_a_few_are_other(pipeline: Pipeline) -> None:
    pipeline.add(drawn(100))
    assert pipeline.search("a red star").uncalibrated == {}
    info = pipeline.info()
    assert (info["domains"], info["uncalibrated"]) == ({FIELD: "drawn scenes"}, {})
    pipeline.add(other(10))
    assert pipeline.search("a red star").uncalibrated == {}


@pytest.mark.filterwarnings("ignore")
def test_it_is_seen_as_soon_as_there_are_enough(pipeline: Pipeline) -> None:
    for document in other(MIN_DOCUMENTS):
        assert pipeline.search("a dog").uncalibrated == {}
        pipeline.add(document)
    assert list(pipeline.search("a dog").uncalibrated) == [FIELD]
    pipeline.delete([document.id for document in other(MIN_DOCUMENTS)])
    pipeline.add(drawn(20))
    assert pipeline.search("a dog").uncalibrated == {}


@pytest.mark.filterwarnings("ignore")
def test_an_explanation_and_the_info_say_it(pipeline: Pipeline) -> None:
    pipeline.add(other(40))
    reason = pipeline.search("a dog").uncalibrated[FIELD]
    assert pipeline.info()["uncalibrated"] == {FIELD: reason}
    assert f"Scores are uncalibrated: {reason}." in pipeline.explain("a dog", "other-0").notes
    assert pipeline.search("a dog", weights={FIELD: 0.0}).uncalibrated == {}, "a field that is not asked says nothing"


def test_an_encoder_that_makes_batches_has_the_domains_of_the_one_behind_it(encoder: Encoder) -> None:
    with BatchingEncoder(encoder) as batching:
        assert batching.domains == encoder.domains != {}
