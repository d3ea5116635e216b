"""The sections of ``bench gpu`` that measure whole paths, on a pretend GPU: that they add up, not how fast they are."""

from __future__ import annotations

import json
from io import BytesIO
from pathlib import Path

import numpy as np
import PIL.Image
import pytest

from tests.support.codec_standin import pretend_gpu
from tests.support.onnx_gpu import Runtime
from tests.support.tensorrt_standin import standing_in
from vlmsearch.bench.gpu.onnx import measure_onnx
from vlmsearch.bench.photographs import draw_photographs
from vlmsearch.bench.triton import TritonLevel
from vlmsearch.encoders.onnx import OnnxEncoder
from vlmsearch.errors import ModelUnavailableError
from vlmsearch.models import session as onnx_session
from vlmsearch.models.bundle import find_bundles


def test_drawn_photographs_are_different_and_like_photographs() -> None:
    jpegs = draw_photographs(3, size=(250, 190), seed=4)
    images = [PIL.Image.open(BytesIO(jpeg)) for jpeg in jpegs]
    assert {image.size for image in images} == {(250, 190)}
    assert len(set(jpegs)) == 3
    assert draw_photographs(3, size=(250, 190), seed=4) == jpegs
    pixels = np.asarray(images[0].convert("L"), np.float64)
    assert pixels.std() > 20
    assert np.abs(np.diff(pixels)).mean() < 0.7 * pixels.std(), "neighbours are alike; of white noise it would be 1.13"


def test_onnx_runtime_is_timed_at_every_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    bundle = find_bundles("demo-clip")[0]
    pixels = np.random.default_rng(0).integers(0, 256, (3, 64, 64, 3)).astype(np.uint8)
    with OnnxEncoder("demo-clip", precision="fp32") as encoder:
        reference = encoder.run_images(bundle, pixels)
    monkeypatch.setattr(onnx_session, "ort", Runtime)
    rows = measure_onnx(bundle, pixels, reference, precisions=("fp32",), device=1, batches=(1, 4), rounds=2)
    assert [row.batch for row in rows] == [1, 4]
    for row in rows:
        assert row.cosine == pytest.approx(1, abs=1e-5)
        assert row.images_per_second == pytest.approx(1000 * row.batch / row.latency_ms)
        assert row.to_json()["contender"] == "onnx:?device=cuda:1&precision=fp32"


def test_the_stage_that_limits_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VLMSEARCH_CACHE", str(tmp_path))
    bundle = find_bundles("demo-clip")[0]
    assert bundle.preprocess is not None
    jpegs = draw_photographs(6, size=(100, 80))
    with pretend_gpu():
        from vlmsearch.bench.gpu.images import measure_images
        from vlmsearch.tensorrt.builder.engines import ensure_engine
        from vlmsearch.tensorrt.engine.engine import Engine
        from vlmsearch.tensorrt.engine.plans import read_plan
        from vlmsearch.tensorrt.engine.runtime import this_machine

        plan = ensure_engine(bundle, "image", precision="fp32")
        with Engine(read_plan(plan, here=this_machine())) as engine:
            found = measure_images(engine, bundle.preprocess, jpegs, batch=4, threads=2, rounds=1)
    assert (found.images, found.on_gpu, found.width, found.height) == (6, 6, 100, 80)
    assert found.least_cosine == pytest.approx(1, abs=1e-5)
    slowest = min(found.gpu_decode, found.engine)
    assert found.limit == ("decoding" if slowest == found.gpu_decode else "the engine")
    assert min(found.cpu_decode, found.end_to_end, found.end_to_end_cpu_decode) > 0


def test_the_best_level_is_set_beside_this_process() -> None:
    from vlmsearch.bench.gpu.serving import ServingRates

    levels = (
        TritonLevel(1, 50.0, 10, 0.1, 0.2, 0.3),
        TritonLevel(8, 90.0, 10, 0.1, 0.2, 0.4),
        TritonLevel(16, 80.0, 9, 0.1, 0.2, 0.9),
    )
    served = ServingRates("images", 32, levels, 100.0)
    assert served.share == pytest.approx(0.9)
    assert served.to_json()["best"] == levels[1].to_json()


def test_a_server_is_found_or_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from vlmsearch.bench.gpu.serving import find_binary

    monkeypatch.setenv("TRITON_HOME", str(tmp_path))
    assert find_binary().program == str(tmp_path / "bin" / "tritonserver")
    monkeypatch.delenv("TRITON_HOME")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("VLMSEARCH_CACHE", str(tmp_path))
    with pytest.raises(ModelUnavailableError, match="vlmsearch triton install"):
        find_binary()


def test_an_encoder_is_set_beside_onnx(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VLMSEARCH_CACHE", str(tmp_path))
    with standing_in("8.6") as gpu:
        from vlmsearch.bench.gpu.encoder import measure_encoder

        found = measure_encoder(
            "demo-clip", draw_photographs(3, size=(100, 80)), ["a star", "two rings"], precision="fp32"
        )
        assert gpu.used == 0
    assert found.least_cosine == {"image clip": pytest.approx(1, abs=1e-5), "text clip": pytest.approx(1, abs=1e-5)}
    assert found.max_batch == {"demo-clip image": 256, "demo-clip text": 256}


def test_an_encoder_is_given_less_memory_until_it_says_how_to_do_with_less(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VLMSEARCH_CACHE", str(tmp_path))
    with standing_in("8.6") as gpu:
        from vlmsearch.bench.gpu.encoder import measure_encoder

        found = measure_encoder("demo-minilm", (), ["a star", "two rings"], precision="fp32", spare=0)
        assert gpu.used == 0
    *smaller, refused = found.short
    assert found.memory_bytes > found.short[0].free_bytes > refused.free_bytes
    assert 1 < smaller[-1].max_batch["demo-minilm text"] <= 128
    assert all(short.least_cosine == pytest.approx(1, abs=1e-5) for short in smaller)
    assert "--profile 1,8,32" in refused.refused
    assert json.loads(json.dumps(found.to_json()))["short"][-1]["refused"] == refused.refused
