"""Engines of every kind of text model, over the stand-in: prompts, cut vectors and lengths as in process."""

from __future__ import annotations

import dataclasses
import warnings
from pathlib import Path

import numpy as np
import pytest

from tests.support.tensorrt_standin import standing_in
from tests.support.tensorrt_standin.quick import quicken
from tests.support.tensorrt_standin.versions import VERSIONS, Version
from tests.support.text_models import TextFamily, make_text_model
from vlmsearch.building.bundle import build_bundle
from vlmsearch.encoders.onnx import OnnxEncoder
from vlmsearch.models.bundle import Bundle
from vlmsearch.models.recipe import Calibration, Recipe, Shapes
from vlmsearch.registry import open_encoder

pytestmark = pytest.mark.slow

TEXTS = ["a red star", "two large striped circles above a small heart", "", "a ring and a star " * 30, "a <pad> x"]
RECIPE = Recipe(
    "tiny", "MIT", "words", checkpoint="checkpoint", precisions=("fp32", "fp16", "qdq"), dims=(32,),
    shapes=Shapes(text_batch=(1, 4, 8), text_length=(2, 8, 40)),
    calibration=Calibration(texts=96, held_out=64, relevance_scenes=0),
)  # fmt: skip


@pytest.fixture(scope="module", params=["modernbert", "mpnet", "xlm-roberta"])
def bundle(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    family: TextFamily = request.param
    folder = tmp_path_factory.mktemp(family)
    make_text_model(folder / "checkpoint", family, prompts={"query": "query: ", "document": "passage: "})
    recipe = dataclasses.replace(RECIPE, checkpoint=str(folder / "checkpoint"))
    return build_bundle(recipe, out=folder / "bundle")


@pytest.mark.parametrize("version", [VERSIONS[0], VERSIONS[-1]], ids=str)
@pytest.mark.parametrize("precision", ["fp32", "fp16", "int8"])
def test_an_engine_gives_the_vectors_of_the_process(
    bundle: Bundle, version: Version, precision: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VLMSEARCH_CACHE", str(tmp_path))
    with standing_in(version), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the query that is longer than the model reads
        quicken()
        url = f"tensorrt:{bundle.folder}?precision={precision}&dim=32&batch_size=8"
        with open_encoder(url) as encoder, OnnxEncoder(str(bundle.folder), precision="fp32", dim=32) as local:
            assert (encoder.fingerprint, encoder.spaces) == (local.fingerprint, local.spaces)
            for role in ("query", "document"):
                found, expected = (each.encode_texts(TEXTS, role=role)["words"] for each in (encoder, local))
                assert found.shape == (len(TEXTS), 32)
                least = {"fp32": 0.99999, "fp16": 0.9999, "int8": 0.95}[precision]
                assert (found * expected).sum(axis=1).min() > least
                assert np.std(found @ found.T) > 0.01
