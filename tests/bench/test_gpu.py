"""`vlmsearch bench gpu`, on pretend GPUs: that all contenders get the same work and the figures add up."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from tests.support.codec_standin import pretend_gpu
from tests.support.onnx_gpu import FakeCuda, Runtime
from vlmsearch._util import gpu as diagnosis
from vlmsearch._util.extras import install_command
from vlmsearch.bench import gpu
from vlmsearch.cli import cli
from vlmsearch.errors import ConfigError, ModelUnavailableError
from vlmsearch.models import session as onnx_session


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
    assert install_command("tensorrt") in result.stderr


def test_an_interrupted_run_prints_what_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(onnx_session, "ort", Runtime)
    time_batch = gpu._time_batch

    def interrupted(*given: Any) -> gpu.GpuTiming:
        if 4 in given:
            raise KeyboardInterrupt
        return time_batch(*given)

    monkeypatch.setattr(gpu, "_time_batch", interrupted)
    result = bench("demo-minilm", "--device", "1", "--runtimes", "onnx", "--json")
    assert result.exit_code == 0, result.output
    row = json.loads(result.stdout)["timings"][0]
    assert row["items"] == 1
    line = r"^demo-minilm: texts, onnx fp32, 1 at once: (\S+) ms, (\S+) items/s$"
    said = re.search(line, result.stderr, re.MULTILINE)
    assert said, "a figure is said when it is there"
    assert float(said[1]) == pytest.approx(row["median_ms"], abs=0.001)
    assert float(said[2]) == pytest.approx(row["items_per_second"], abs=1)
    assert "Interrupted" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["demo-clip", "--precision", "fp16,int4"], "some of int8, fp16, fp32, auto, not int4"),
        (["demo-clip", "--runtimes", ""], "some of tensorrt, onnx, not none"),
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
