"""PyTorch gets the same batches as the engines."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from benchmarks.gpu import TorchTowers
from tests.support.paths import ENGINES
from vlmsearch.building.inputs import row_cosines
from vlmsearch.errors import BackendError, ConfigError
from vlmsearch.models.bundle import find_bundles


@pytest.mark.parametrize("model", ["demo-clip", "demo-minilm"])
def test_torch_gets_the_same_batches_in_half_precision(monkeypatch: pytest.MonkeyPatch, model: str) -> None:
    import torch

    from vlmsearch.building.torch import load_reference

    compiled: list[dict[str, Any]] = []

    def keep(step: Any, **how: Any) -> Any:
        compiled.append(how)
        return step

    monkeypatch.setattr(torch, "compile", keep)
    folder, (bundle,) = ENGINES / model / "checkpoint", find_bundles(model)
    towers, reference = TorchTowers(folder, "cpu"), load_reference(folder)
    assert compiled == [{"mode": "max-autotune", "dynamic": False}] * 2
    ids, mask = np.array([[1, 5, 9, 2], [1, 7, 2, 0]], np.int32), np.array([[1, 1, 1, 1], [1, 1, 1, 0]], np.int32)
    assert row_cosines(towers.run_texts(bundle, ids, mask), reference.texts(ids, mask)).min() > 0.9999
    pixels = np.random.default_rng(0).integers(0, 256, (2, 64, 64, 3)).astype(np.uint8)
    if bundle.preprocess:
        assert row_cosines(towers.run_images(bundle, pixels), reference.images(pixels)).min() > 0.9999
    else:
        with pytest.raises(ConfigError, match="encodes no images"):
            towers.run_images(bundle, pixels)

    def fail(*tensors: object) -> None:
        raise RuntimeError("CUDA out of memory.\nTried to allocate 2 GiB")

    monkeypatch.setattr(towers, "_texts", fail)
    with pytest.raises(BackendError, match=r"PyTorch fails: CUDA out of memory\. Tried"):
        towers.run_texts(bundle, ids, mask)
    towers.close()
