"""`vlmsearch bench gpu`, on pretend GPUs: that all contenders get the same work and the figures add up."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result

from tests.support.codec_standin import pretend_gpu
from tests.support.onnx_gpu import FakeCuda, Runtime
from tests.support.paths import ENGINES
from vlmsearch._util import gpu as diagnosis
from vlmsearch.bench.gpu import GpuSetting, LeftOut, TorchTowers, measure_gpu
from vlmsearch.build.inputs import row_cosines
from vlmsearch.cli import cli
from vlmsearch.cli.bench.data import read_images
from vlmsearch.errors import BackendError, ConfigError, ModelUnavailableError
from vlmsearch.models import session as onnx_session
from vlmsearch.models.bundle import find_bundles


def bench(*arguments: str) -> Result:
    quick = ["--batches", "1,4", "--count", "6", "--seconds", "0.01"]
    return CliRunner().invoke(cli, ["bench", "gpu", *arguments, *quick])


@pytest.fixture(autouse=True)
def two_gpus(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("VLMSEARCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(diagnosis, "load_library", lambda name: FakeCuda(count=2))


@pytest.mark.slow
def test_engines_are_timed_in_batches_and_from_jpegs_decoded_on_either_side() -> None:
    with pretend_gpu():
        result = bench("demo-clip", "--runtimes", "tensorrt", "--precision", "fp32,int8", "--json")
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    rows = {(row["task"], row["contender"], row["items"]): row for row in found["timings"]}
    towers = {(task, "tensorrt fp32", batch) for task in ("images", "texts") for batch in (1, 4)}
    vectors = {("JPEG to vectors", f"tensorrt fp32{decode}", 6) for decode in ("", ", decode=gpu")}
    pixels = [contender for task, contender, _ in rows if task == "JPEG to pixels"]
    assert rows.keys() == towers | vectors | {("JPEG to pixels", each, 6) for each in pixels}
    assert pixels[0].startswith("Pillow on ")
    assert pixels[1] == "nvImageCodec, 100% on the GPU"
    for row in rows.values():
        assert row["items_per_second"] == pytest.approx(1000 * row["items"] / row["median_ms"], rel=1e-3, abs=0.1)
        assert 0 < row["median_ms"] <= row["p99_ms"]
    for key in towers | vectors:
        assert rows[key]["min_cosine"] == pytest.approx(1, abs=1e-4), key
    assert list(found["left_out"]) == ["tensorrt int8"]
    assert "has no image.qdq.onnx" in found["left_out"]["tensorrt int8"]
    assert (found["model"], found["machine"]["gpu"], found["machine"]["cuda"]) == ("demo-clip", "NVIDIA L4", "13.0")


def test_onnx_runtime_is_timed_and_what_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(onnx_session, "ort", Runtime)
    result = bench("demo-minilm", "--device", "1", "--runtimes", "tensorrt,onnx", "--precision", "fp16")
    assert result.exit_code == 0, result.output
    names, *rows = [line.split("\t") for line in result.stdout.splitlines()]
    assert [row[:3] for row in rows] == [["texts", "onnx fp32", "1"], ["texts", "onnx fp32", "4"]]
    for row in rows:
        assert float(row[names.index("least cosine")]) == pytest.approx(1, abs=1e-5)
    assert "tensorrt fp16 is left out: encoder tensorrt: needs " in result.stderr
    assert "pip install 'vlmsearch[tensorrt]'" in result.stderr


@pytest.mark.parametrize("model", ["demo-clip", "demo-minilm"])
def test_torch_gets_the_same_batches_in_half_precision(monkeypatch: pytest.MonkeyPatch, model: str) -> None:
    import torch

    from vlmsearch.build.torch import load_reference

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


def test_a_checkpoint_of_another_model_is_left_out() -> None:
    (bundle,) = find_bundles("demo-clip")
    setting = GpuSetting(runtimes=["torch"], seconds=0.01, checkpoint=ENGINES / "demo-minilm" / "checkpoint")
    said: list[str] = []
    found = list(measure_gpu(bundle, read_images(None, 2), ["a star"], setting, said.append))
    (left_out,) = [each for each in found if isinstance(each, LeftOut) and each.contender == "torch fp16"]
    assert "is not what demo-clip was built from" in left_out.reason
    assert "torch fp16" in said


def test_an_interrupted_run_prints_what_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(onnx_session, "ort", Runtime)

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("vlmsearch.bench.gpu._torch", interrupted)
    result = bench("demo-minilm", "--device", "1", "--runtimes", "onnx,torch", "--json")
    assert result.exit_code == 0, result.output
    assert [row["items"] for row in json.loads(result.stdout)["timings"]] == [1, 4]
    assert "Interrupted" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["demo-clip", "--precision", "fp16,int4"], "some of int8, fp16, fp32, auto, not int4"),
        (["demo-clip", "--runtimes", ""], "some of tensorrt, onnx, torch, not none"),
    ],
)
def test_wrong_names_are_usage_errors(arguments: Sequence[str], message: str) -> None:
    result = bench(*arguments)
    assert result.exit_code == 2
    assert message in " ".join(result.stderr.split())


def test_without_a_gpu_nothing_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    assert isinstance(bench("demo", "--device", "0").exception, ConfigError)
    with pytest.raises(ModelUnavailableError, match="there is no GPU 2: there are 2, numbered from 0"):
        CliRunner().invoke(cli, ["bench", "gpu", "demo-clip", "--device", "2"], catch_exceptions=False)
    monkeypatch.setattr(diagnosis, "load_library", lambda name: FakeCuda(status=100))
    with pytest.raises(ModelUnavailableError, match="the driver finds no GPU"):
        CliRunner().invoke(cli, ["bench", "gpu", "demo-clip"], catch_exceptions=False)
