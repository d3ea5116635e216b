"""An encoder where sentence-transformers has its models: its search, its evaluator and its own similarity take it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.graphs import assert_same
from tests.support.text_models import make_text_model
from vlmsearch import ConfigError, Encoder, InvalidBatchError
from vlmsearch.building.data import sentences
from vlmsearch.demo.scenes import make_scene
from vlmsearch.integrations.sentence_transformers import SentenceModel
from vlmsearch.registry import open_encoder

TEXTS = ["a dog in the snow", "a blue car", "two cats on a sofa"]


@pytest.fixture(scope="module")
def encoder() -> Encoder:
    return open_encoder("onnx:demo")


@pytest.fixture
def model(encoder: Encoder) -> SentenceModel:
    return SentenceModel(encoder, space="minilm")


def test_vectors_are_those_of_the_encoder(encoder: Encoder, model: SentenceModel) -> None:
    import torch

    found = model.encode(TEXTS * 20, batch_size=7)
    assert isinstance(found, np.ndarray)
    assert found.dtype == np.float32
    assert found == pytest.approx(encoder.encode_texts(TEXTS * 20)["minilm"], abs=1e-5)
    assert model.encode(TEXTS[0]) == pytest.approx(found[0], abs=1e-5)
    queries = encoder.encode_texts(TEXTS, role="query")["minilm"]
    assert model.encode_query(TEXTS) == pytest.approx(queries, abs=1e-5)
    assert model.encode(TEXTS, prompt_name="query") == pytest.approx(queries, abs=1e-5)
    assert model.encode([]).shape == (0, model.get_sentence_embedding_dimension())
    tensor = model.encode(TEXTS, convert_to_tensor=True)
    assert isinstance(tensor, torch.Tensor)
    assert tensor.numpy() == pytest.approx(found[:3], abs=1e-5)


def test_a_prompt_and_a_shorter_vector_are_what_is_asked_for(model: SentenceModel) -> None:
    assert model.encode("dog", prompt="a ") == pytest.approx(model.encode("a dog"), abs=1e-5)
    short = model.encode(TEXTS, truncate_dim=16)
    assert isinstance(short, np.ndarray)
    assert short.shape == (3, 16)
    assert np.linalg.norm(short, axis=1) == pytest.approx(np.ones(3))


def test_prompts_mean_what_they_mean_there(tmp_path: Path) -> None:
    from sentence_transformers import SentenceTransformer

    from vlmsearch.building.torch import TorchEncoder

    folder = make_text_model(tmp_path, "bert", prompts={"query": "ask: ", "document": "tell: "})
    texts = sentences()[:10]
    theirs = SentenceTransformer(str(folder), device="cpu")
    with TorchEncoder(f"{folder}/") as encoder:
        ours = SentenceModel(encoder)
        for options in (
            {},
            {"prompt": ""},
            {"prompt": "other: "},
            {"prompt_name": "query"},
            {"prompt_name": "document"},
        ):
            for name in ("encode_query", "encode_document", "encode"):
                if options or name != "encode":  # without options, texts are documents here, and have no prompt there
                    assert_same(getattr(ours, name)(texts, **options), getattr(theirs, name)(texts, **options))
        for model in (ours, theirs):
            with pytest.raises(ValueError, match="'passage'"):
                model.encode(texts, prompt_name="passage")
    with open_encoder("mock:") as bare, pytest.raises(ConfigError, match="takes no prompt"):
        SentenceModel(bare, space="minilm").encode(texts, prompt="other: ")


def test_texts_and_images_share_a_space(encoder: Encoder, tmp_path: Path) -> None:
    model = SentenceModel(encoder, space="clip")
    scenes = [make_scene(seed) for seed in range(4)]
    pictures = [scene.draw(96) for scene in scenes]
    pictures[1].save(tmp_path / "1.png")
    mixed = model.encode([scenes[0].caption(), pictures[0], tmp_path / "1.png", (tmp_path / "1.png").read_bytes()])
    assert isinstance(mixed, np.ndarray)
    assert mixed[1:2] == pytest.approx(encoder.encode_images(pictures[:1])["clip"], abs=1e-4)
    assert mixed[2] == pytest.approx(mixed[3], abs=1e-5)
    assert model.encode(pictures[0]) == pytest.approx(mixed[1], abs=1e-4)
    cosines = model.similarity(model.encode([scene.caption() for scene in scenes]), model.encode(pictures))
    assert cosines.argmax(1).tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("as_tensor", [False, True])
def test_similarities_are_those_of_sentence_transformers(model: SentenceModel, *, as_tensor: bool) -> None:
    from sentence_transformers import util

    first = model.encode(TEXTS, convert_to_tensor=as_tensor)
    second = model.encode(TEXTS[1:], convert_to_tensor=as_tensor)
    assert np.asarray(model.similarity(first, second)) == pytest.approx(util.cos_sim(first, second).numpy(), abs=1e-5)
    pairs = model.similarity_pairwise(first[1:], second)
    assert np.asarray(pairs) == pytest.approx(util.pairwise_cos_sim(first[1:], second).numpy(), abs=1e-5)
    assert model.similarity(first[0], second).shape == (1, 2)


def test_its_search_and_its_evaluator_take_it(model: SentenceModel) -> None:
    import torch
    from sentence_transformers import util
    from sentence_transformers.sentence_transformer.evaluation import InformationRetrievalEvaluator

    queries = model.encode_query(["dog", "cats"], convert_to_tensor=True)
    documents = model.encode_document(TEXTS, convert_to_tensor=True)
    assert isinstance(queries, torch.Tensor)
    assert isinstance(documents, torch.Tensor)
    hits = util.semantic_search(queries, documents)
    assert [found[0]["corpus_id"] for found in hits] == [0, 2]
    corpus: dict[str, Any] = {str(number): text for number, text in enumerate(TEXTS)}
    options: dict[str, Any] = {"score_functions": {model.similarity_fn_name: model.similarity}}
    evaluator: Any = InformationRetrievalEvaluator(
        {"a": "dog", "b": "cats"}, corpus, {"a": {"0"}, "b": {"2"}}, **options
    )
    scores = evaluator.compute_all_metrics(model)
    assert scores["cosine"]["ndcg@k"][10] == 1.0


def test_it_has_the_methods_by_their_names() -> None:
    from sentence_transformers import SentenceTransformer

    for name in ("encode", "encode_query", "encode_document", "similarity", "similarity_pairwise"):
        assert hasattr(SentenceTransformer, name)
        assert hasattr(SentenceModel, name)


def test_what_cannot_be_encoded_is_named_by_its_place(encoder: Encoder, tmp_path: Path) -> None:
    model = SentenceModel(encoder, space="clip")
    (tmp_path / "broken.png").write_bytes(b"no image")
    with pytest.raises(InvalidBatchError) as caught:
        model.encode(["a", "b", "c", make_scene(1).draw(64), tmp_path / "broken.png"], batch_size=2)
    assert list(caught.value.items) == [4]
    with pytest.raises(ConfigError, match=r"minilm of .* has texts alone"):
        SentenceModel(encoder, space="minilm").encode(tmp_path / "broken.png")
    with pytest.raises(ConfigError, match=r"clip \(image and text, 64\), minilm \(text, 96\): not 'siglip'"):
        SentenceModel(encoder, space="siglip")
    with pytest.raises(ConfigError, match="there are several"):
        SentenceModel(encoder)


@pytest.mark.parametrize("several", [iter, np.array, lambda texts: dict.fromkeys(texts).keys()])
def test_texts_come_in_any_iterable(model: SentenceModel, several: Callable[[list[str]], Any]) -> None:
    texts = ["a dog", "two cats"]
    assert np.array_equal(model.encode(several(texts)), model.encode(texts))
