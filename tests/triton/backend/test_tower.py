"""Towers for Triton's Python backend: how a batch is spread over the cores changes no vector."""

from pathlib import Path

import numpy as np
import pytest

from vlmsearch.models.bundle import find_bundles
from vlmsearch.triton.backend.towers import OnnxTower
from vlmsearch.types import Vectors

SIZES = (1, 3, 4, 5, 9, 16, 17, 64)


@pytest.fixture(scope="module")
def image_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tower") / "model.onnx"
    path.write_bytes(find_bundles("demo-clip")[0].model("image", "int8"))
    return path


@pytest.fixture(scope="module")
def text_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tower") / "model.onnx"
    path.write_bytes(find_bundles("demo-clip")[0].model("text", "fp32"))
    return path


def alone(tower: OnnxTower, **inputs: np.ndarray[tuple[int, ...], np.dtype[np.generic]]) -> Vectors:
    """The vectors of items that are computed one by one."""
    count = len(next(iter(inputs.values())))
    return np.concatenate([tower.run({name: array[i : i + 1] for name, array in inputs.items()}) for i in range(count)])


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_images_have_the_same_vectors_however_they_are_dealt_out(image_model: Path, threads: int) -> None:
    tower, rng = OnnxTower(image_model, threads=threads), np.random.default_rng(0)
    size = find_bundles("demo-clip")[0].preprocess
    assert size is not None
    for count in SIZES:
        pixels = rng.integers(0, 256, (count, size.size, size.size, 3), dtype=np.uint8)
        found = tower.run({"pixels": pixels})
        assert found.shape == (count, 64)
        np.testing.assert_allclose(found, alone(tower, pixels=pixels), atol=1e-6)


def test_texts_keep_their_masks(text_model: Path) -> None:
    tower, rng = OnnxTower(text_model, threads=2), np.random.default_rng(1)
    for count in SIZES:
        ids = rng.integers(1, 60, (count, 16), dtype=np.int32)
        mask = (np.arange(16)[None] < rng.integers(3, 17, (count, 1))).astype(np.int32)
        np.testing.assert_allclose(
            tower.run({"input_ids": ids, "attention_mask": mask}),
            alone(tower, input_ids=ids, attention_mask=mask),
            atol=1e-5,
        )


def test_what_one_core_cannot_compute_is_raised(text_model: Path) -> None:
    tower = OnnxTower(text_model, threads=2)
    with pytest.raises(Exception, match=r"(?i)indices|out of (data )?bounds|range"):
        tower.run({"input_ids": np.full((16, 8), 99_999, np.int32), "attention_mask": np.ones((16, 8), np.int32)})
