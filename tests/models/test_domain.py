"""The domain of a model: which samples of an index are unlike what it is made for."""

from __future__ import annotations

import io
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.support.paths import ENGINES, SHARED
from vlmsearch.building.bundle import file_entry
from vlmsearch.building.data import sentences
from vlmsearch.demo.scenes import make_scene
from vlmsearch.encoders.onnx import OnnxEncoder
from vlmsearch.errors import ConfigError, ModelUnavailableError, VlmsearchError
from vlmsearch.models.bundle import open_bundle
from vlmsearch.models.domain import MIN_DOCUMENTS, Domain, open_domain
from vlmsearch.types import Modality, Vectors

UNSEEN = 50_000_000
"""The first seed of scenes that nothing was fitted on."""
BALL = Domain("dots", "dot-finder", np.vstack([np.zeros(4), np.eye(4)]))
"""A domain with a mean of zero and a limit of one."""


def dots(inside: int, outside: int) -> Vectors:
    return np.array([[0.9, 0, 0, 0]] * inside + [[0, 1.1, 0, 0]] * outside, np.float32)


def encoded(model: str, inputs: list[Image.Image] | list[str], modality: Modality) -> tuple[Domain, Vectors]:
    with OnnxEncoder(model) as encoder:
        [((space, kind), domain)] = encoder.domains.items()
        assert kind == modality
        vectors = encoder.encode_images(inputs) if modality == "image" else encoder.encode_texts(inputs)  # type: ignore[arg-type]
    return domain, vectors[space]


def test_a_vector_is_outside_beyond_the_limit() -> None:
    assert BALL.are_outside(dots(2, 1)).tolist() == [False, False, True]
    moved = Domain("dots", "dot-finder", np.vstack([[0, 1, 0, 0], np.eye(4)]))
    assert moved.are_outside(dots(1, 1)).tolist() == [True, False]


def test_a_few_documents_say_nothing() -> None:
    assert BALL.verdict(dots(0, MIN_DOCUMENTS - 1), "image") is None
    assert BALL.verdict(dots(0, 0), "image") is None
    said = BALL.verdict(dots(0, MIN_DOCUMENTS), "image")
    assert said == "dot-finder is made for dots, and 100% of the images in this index are unlike them"


def test_a_part_of_an_index_must_be_outside_and_more_of_a_small_one() -> None:
    assert BALL.verdict(dots(400, 100), "text") is None
    assert BALL.verdict(dots(380, 120), "text") is not None
    assert BALL.verdict(dots(12, 4), "text") is None
    assert BALL.verdict(dots(9, 7), "text") is not None


@pytest.mark.parametrize("size", [64, 300])
def test_scenes_that_no_fit_has_seen_are_what_the_demonstration_model_is_made_for(size: int) -> None:
    domain, vectors = encoded("demo-clip", [make_scene(UNSEEN + i).draw(size) for i in range(64)], "image")
    assert (domain.name, domain.model) == ("drawn scenes", "demo-clip")
    assert domain.are_outside(vectors).mean() < 0.1
    assert domain.verdict(vectors, "image") is None


@pytest.mark.skipif(not SHARED.is_dir(), reason="../shared/data is not here")
def test_photographs_are_not() -> None:
    photos: list[Image.Image] = [Image.open(file) for file in sorted((SHARED / "photos").glob("*.jpg"))[:100]]
    domain, vectors = encoded("demo-clip", photos, "image")
    assert domain.verdict(vectors, "image") is not None


@pytest.mark.parametrize("style", ["full", "short", "partial", "mixed"])
def test_captions_of_scenes_are_what_the_demonstration_model_is_made_for(style: str) -> None:
    captions = [make_scene(UNSEEN + i).captions(1, style=style)[0] for i in range(200)]
    domain, vectors = encoded("demo-minilm", captions, "text")
    assert domain.verdict(vectors, "text") is None


def test_other_sentences_are_not() -> None:
    domain, vectors = encoded("demo-minilm", sentences(), "text")
    assert domain.are_outside(vectors).mean() > 0.8
    assert "texts in this index are unlike" in str(domain.verdict(vectors, "text"))


def test_float32_is_as_much_inside_as_int8() -> None:
    scenes = [make_scene(UNSEEN + i).draw(64) for i in range(64)]
    with OnnxEncoder("demo-clip", precision="fp32") as encoder:
        [domain] = encoder.domains.values()
        assert domain.are_outside(encoder.encode_images(scenes)["clip"]).mean() < 0.1


def _file(array: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


@pytest.mark.parametrize(
    ("data", "error", "said"),
    [
        (_file(np.zeros((97, 95), np.float16)), ConfigError, "not of .97, 96. finite float16"),
        (_file(np.zeros((97, 96), np.float32)), ConfigError, "not of"),
        (_file(np.full((97, 96), np.nan, np.float16)), ConfigError, "not of"),
        (_file(np.array([{}])), ConfigError, "is damaged"),
        (b"", ConfigError, "is damaged"),
        (None, ModelUnavailableError, "cannot be read"),
    ],
)
def test_a_file_of_another_form_is_refused(
    tmp_path: Path, data: bytes | None, error: type[VlmsearchError], said: str
) -> None:
    folder = tmp_path / "bundle"
    shutil.copytree(ENGINES / "demo-minilm" / "bundle", folder)
    (folder / "domain.npy").unlink()
    if data is not None:
        (folder / "domain.npy").write_bytes(data)
        description = json.loads((folder / "bundle.json").read_text())
        description["files"]["domain.npy"] = file_entry(folder / "domain.npy")
        (folder / "bundle.json").write_text(json.dumps(description))
    with pytest.raises(error, match=said):
        open_domain(open_bundle(folder))


def test_a_bundle_without_a_domain_has_none(tmp_path: Path) -> None:
    folder = tmp_path / "bundle"
    shutil.copytree(ENGINES / "demo-minilm" / "bundle", folder)
    description = json.loads((folder / "bundle.json").read_text())
    del description["domain"]  # as bundles were before
    (folder / "bundle.json").write_text(json.dumps(description))
    with OnnxEncoder(f"{folder}/") as encoder:
        assert encoder.domains == {}
    description["domain"] = "drawn scenes"
    del description["files"]["domain.npy"]
    (folder / "bundle.json").write_text(json.dumps(description))
    with pytest.raises(ConfigError, match=r"no domain\.npy"):
        open_domain(open_bundle(folder))
