"""`build_bundle` and `vlmsearch build`: a proven bundle, or one clear line and nothing on disk."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from safetensors.numpy import load_file, save_file

from tests.support.checkpoints import make_bert, make_clip, make_recipe
from tests.support.cli import ok, run
from vlmsearch.building.bundle import build_bundle
from vlmsearch.cli import cli
from vlmsearch.demo.scenes import make_scene
from vlmsearch.encoders.onnx import OnnxEncoder
from vlmsearch.errors import ConfigError, ModelUnavailableError, QualityError
from vlmsearch.models.bundle import Bundle, DamagedBundleWarning, built_bundles, open_bundle
from vlmsearch.models.recipe import Recipe, Shapes, read_recipe

PIXELS = [make_scene(i).draw(96) for i in range(5)]
TEXTS = ["a red star", "two blue circles", "", "a very long text about rings " * 20]


@pytest.fixture(scope="module")
def recipe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tiny")
    return make_recipe(folder, make_clip(folder / "checkpoint"))


@pytest.fixture(scope="module")
def sentences(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tiny")
    return make_recipe(folder, make_bert(folder / "checkpoint"), space="minilm")


@pytest.fixture(scope="module")
def strict(recipe: Path) -> Recipe:
    """The recipe with a gate that no quantised tower reaches."""
    path = recipe.parent / "strict.toml"
    path.write_text(recipe.read_text().replace("image = { overlap = 0.5 }", "image = { mean_cosine = 1.5 }"))
    return read_recipe(path)


@pytest.fixture(scope="module")
def bundle(recipe: Path, tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    folder = tmp_path_factory.mktemp("out")
    fitted = make_recipe(folder, recipe.parent / "checkpoint", relevance_scenes=300)
    return build_bundle(read_recipe(fitted), out=folder / "tiny-clip", precisions=["fp32", "fp16", "int8", "qdq"])


def test_a_bundle_holds_what_was_asked_for_and_its_proof(bundle: Bundle) -> None:
    assert bundle.precisions == ["fp32", "fp16", "int8", "qdq"]
    assert sorted(path.name for path in bundle.folder.iterdir()) == sorted([*bundle.files, "bundle.json"])
    assert bundle.space.modalities == {"image", "text"}
    assert bundle.space.dim == 32
    assert bundle.preprocess is not None
    assert bundle.preprocess.size == 32
    assert bundle.text.max_tokens == 32
    assert set(bundle.relevance) <= {"image", "text"}
    assert bundle.forced == ()
    data = json.loads((bundle.folder / "bundle.json").read_text())
    checks = data["measured"]["checks"]
    expected = {"tokens.split_differently", "pixels.difference", "jpeg.cosine", "tokens.different"}
    expected |= {"image.fp32.cosine", "text.fp32.cosine"}
    for tower in ("image", "text"):
        for precision in ("fp16", "int8", "qdq"):
            expected |= {f"{tower}.{precision}.{figure}" for figure in ("mean_cosine", "min_cosine", "overlap")}
    assert set(checks) == expected
    assert all(check["passed"] for check in checks.values())
    assert checks["image.fp32.cosine"]["value"] >= 0.99999
    assert data["measured"]["samples"]["image"] == {"origin": "drawn scenes", "count": 24}
    assert data["quantisation"]["text.int8.onnx"]["calibration"] == "captions of drawn scenes"
    assert data["quantisation"]["image.fp16.onnx"] == {"method": "cast"}
    assert {attempt["method"] for attempt in data["quantisation"]["image.int8.onnx"]["tried"]} == {"static", "dynamic"}


def test_every_encoder_of_the_model_gives_the_same_vectors(bundle: Bundle, recipe: Path) -> None:
    from vlmsearch.building.torch import TorchEncoder

    reference = TorchEncoder(str(recipe))
    for precision, least in (("fp32", 0.9999), ("int8", 0.985)):
        with OnnxEncoder(f"{bundle.folder}/", precision=precision) as encoder:  # type: ignore[arg-type]
            assert encoder.fingerprint == reference.fingerprint
            assert encoder.spaces == reference.spaces
            for ours, theirs in (
                (encoder.encode_images(PIXELS), reference.encode_images(PIXELS)),
                (encoder.encode_texts(TEXTS), reference.encode_texts(TEXTS)),
            ):
                cosines = (ours["clip"] * theirs["clip"]).sum(axis=1)
                assert cosines.mean() > least, precision


def test_a_sentence_model_has_one_tower(sentences: Path, tmp_path: Path) -> None:
    built = build_bundle(read_recipe(sentences), out=tmp_path / "b")
    assert built.precisions == ["fp32", "int8"]
    assert built.preprocess is None
    assert built.towers == ("text",)
    assert set(built.relevance) <= {"text"}
    with OnnxEncoder(f"{tmp_path}/b") as encoder:
        assert encoder.encode_texts(TEXTS)["minilm"].shape == (4, 48)


def test_on_first_use_a_tower_below_the_gate_has_float32_alone(strict: Recipe, tmp_path: Path) -> None:
    built = build_bundle(strict, out=tmp_path / "b", is_first_use=True)
    assert built.precisions == ["fp32"]
    assert not (tmp_path / "b" / "image.int8.onnx").exists()
    assert "differs too much from float32" in str(built.quantisation["image.int8.onnx"]["left_out"])
    assert built.forced == ()
    with OnnxEncoder(f"{tmp_path}/b") as encoder:
        assert encoder.precision == "fp32"


def test_below_the_gate_nothing_is_built_unless_forced(strict: Recipe, tmp_path: Path) -> None:
    with pytest.raises(QualityError, match=r"image\.int8\.mean_cosine is 0\.\d+, gate 1\.5") as caught:
        build_bundle(strict, out=tmp_path / "b")
    assert "`force=True`" in str(caught.value)
    assert list(tmp_path.iterdir()) == []
    forced = build_bundle(strict, out=tmp_path / "b", force=True)
    assert len(forced.forced) == 1
    assert "image.int8.mean_cosine" in forced.forced[0]


def test_the_wrong_kind_of_checkpoint_is_refused(recipe: Path, sentences: Path, tmp_path: Path) -> None:
    clip = replace(read_recipe(recipe), family="clip")
    with pytest.raises(ConfigError, match="is of the family bert, and tiny-clip is clip"):
        build_bundle(clip, checkpoint=sentences.parent / "checkpoint", out=tmp_path / "b")
    long = replace(read_recipe(recipe), shapes=Shapes(text_length=(2, 8, 33)))
    with pytest.raises(ConfigError, match=r"text_length goes to 33, but .* reads 32"):
        build_bundle(long, out=tmp_path / "b")
    with pytest.raises(ModelUnavailableError, match="has no config"):
        build_bundle(read_recipe(recipe), checkpoint=tmp_path, out=tmp_path / "b")


def test_only_a_bundle_is_replaced_by_a_bundle(recipe: Path, tmp_path: Path) -> None:
    checkpoint = make_clip(tmp_path / "tiny-clip")
    before = {path.name: path.read_bytes() for path in checkpoint.iterdir()}
    with pytest.raises(ConfigError, match="tiny-clip is there and is not a bundle: name another folder"):
        build_bundle(read_recipe(recipe), checkpoint=checkpoint, out=checkpoint)
    assert {path.name: path.read_bytes() for path in checkpoint.iterdir()} == before
    (tmp_path / "file").write_text("mine")
    with pytest.raises(ConfigError, match="file is there and is not a bundle"):
        build_bundle(read_recipe(recipe), out=tmp_path / "file")
    (tmp_path / "damaged").mkdir()
    (tmp_path / "damaged" / "text.onnx").write_text("the rest of a bundle")
    assert build_bundle(read_recipe(recipe), out=tmp_path / "damaged", precisions=["fp32"]).precisions == ["fp32"]


@pytest.mark.parametrize("value", ["nan", "inf"])
def test_weights_that_are_no_numbers_are_one_clear_line(recipe: Path, tmp_path: Path, value: str) -> None:
    checkpoint = make_clip(tmp_path / "checkpoint")
    file = checkpoint / "model.safetensors"
    weights = load_file(file)
    weights["vision_model.encoder.layers.0.mlp.fc1.bias"][0] = float(value)
    save_file(weights, file, metadata={"format": "pt"})
    with pytest.raises(ConfigError, match="checkpoint: the image tower computes NaN or infinity: its weights are dam"):
        build_bundle(read_recipe(recipe), checkpoint=checkpoint, out=tmp_path / "b")
    assert not (tmp_path / "b").exists()


@pytest.mark.parametrize("step", ["image: exporting", "text: int8: dynamic", "comparing token ids"])
def test_an_interrupted_build_leaves_what_was_there(recipe: Path, tmp_path: Path, bundle: Bundle, step: str) -> None:
    def interrupt(current: str, done: int, total: int) -> None:
        if current == step:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        build_bundle(read_recipe(recipe), out=tmp_path / "b", progress=interrupt)
    assert list(tmp_path.iterdir()) == []
    shutil.copytree(bundle.folder, tmp_path / "b")
    with pytest.raises(KeyboardInterrupt):
        build_bundle(read_recipe(recipe), out=tmp_path / "b", progress=interrupt)
    assert [path.name for path in tmp_path.iterdir()] == ["b"]
    assert open_bundle(tmp_path / "b").precisions == bundle.precisions


def test_a_bundle_is_replaced_by_a_rebuild(recipe: Path, tmp_path: Path, bundle: Bundle) -> None:
    shutil.copytree(bundle.folder, tmp_path / "b")
    assert build_bundle(read_recipe(recipe), out=tmp_path / "b", precisions=["fp32"]).precisions == ["fp32"]
    assert [path.name for path in tmp_path.iterdir()] == ["b"]


_WITHOUT_TORCH = "import resource, signal, sys; sys.modules['torch'] = None; "
"""Torch takes seconds to import, and is not needed for what these processes show."""


def started(*arguments: object, limit: str = "") -> subprocess.Popen[str]:
    code = f"{_WITHOUT_TORCH}{limit}\nfrom vlmsearch.cli import main\nmain()"
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, arguments)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_command_that_is_ended_leaves_nothing_for_long(recipe: Path, tmp_path: Path, number: signal.Signals) -> None:
    process = started("build", recipe, "--out", tmp_path)
    assert process.stderr is not None
    assert any("image: exporting" in line for line in process.stderr), "its folder is there by now"
    process.send_signal(number)
    _, errors = process.communicate(timeout=600)
    if number != signal.SIGKILL:
        assert process.returncode == 130
        assert errors.splitlines()[-1] == "Interrupted."
        assert list(tmp_path.iterdir()) == []
        return
    (left,) = tmp_path.iterdir()
    assert left.name.startswith(".tiny-clip.")
    os.utime(left, (0, 0))
    build_bundle(read_recipe(recipe), out=tmp_path / "tiny-clip", precisions=["fp32"])
    assert [path.name for path in tmp_path.iterdir()] == ["tiny-clip"]


def test_a_full_disk_is_one_clear_line(recipe: Path, tmp_path: Path) -> None:
    full = (
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN); resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))"
    )
    process = started("build", recipe, "--out", tmp_path, limit=full)
    _, errors = process.communicate(timeout=600)
    assert process.returncode == 1
    assert errors.splitlines()[-1].startswith(f"Error: {tmp_path}/tiny-clip cannot be written: File too large")
    assert "Traceback" not in errors
    assert list(tmp_path.iterdir()) == []


def test_builds_at_the_same_time_do_not_collide(sentences: Path, tmp_path: Path) -> None:
    failures: list[BaseException] = []

    def work() -> None:
        try:
            build_bundle(read_recipe(sentences), out=tmp_path / "b", precisions=["fp32"])
        except BaseException as exc:  # noqa: BLE001
            failures.append(exc)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert [path.name for path in tmp_path.iterdir()] == ["b"]
    OnnxEncoder(f"{tmp_path}/b").close()


@pytest.mark.parametrize("name", ["image.onnx", "text.onnx", "tokenizer.json"])
def test_a_corrupted_bundle_is_noticed_when_it_is_opened(bundle: Bundle, tmp_path: Path, name: str) -> None:
    folder = shutil.copytree(bundle.folder, tmp_path / "b")
    data = bytearray((folder / name).read_bytes())
    data[len(data) // 2] ^= 1
    (folder / name).write_bytes(data)
    with pytest.raises(ModelUnavailableError, match=f"{name} is damaged"):
        OnnxEncoder(f"{folder}/", precision="fp32")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda data: data.pop("files"), "damaged.*files"),
        (lambda data: data.update(format=99), "is not of format"),
        (lambda data: data.update(text=None), "is damaged"),
        (lambda data: data.update(files=[]), "is damaged"),
    ],
)
def test_a_spoilt_description_is_one_clear_line(
    bundle: Bundle, tmp_path: Path, change: Callable[[dict[str, Any]], object], message: str
) -> None:
    folder = shutil.copytree(bundle.folder, tmp_path / "b")
    data = json.loads((folder / "bundle.json").read_text())
    change(data)
    (folder / "bundle.json").write_text(json.dumps(data))
    with pytest.raises((ModelUnavailableError, ConfigError), match=message):
        open_bundle(folder)


def test_the_command_builds_and_prints_the_proof(recipe: Path, tmp_path: Path) -> None:
    result = run("build", recipe, "--out", tmp_path, "--precision", "int8", "--json")
    assert result.returncode == 0, result.stderr
    data = json.loads(result.stdout)
    assert data["folder"] == str(tmp_path / "tiny-clip")
    assert data["measured"]["checks"]["text.fp32.cosine"]["passed"]
    assert "image: exporting" in result.stderr
    plain = run("build", recipe, "--out", tmp_path)
    assert "tiny-clip\ttext.fp32.cosine\t" in plain.stdout
    assert "image.int8.onnx: static, calibrated on drawn scenes" in plain.stdout
    assert plain.stdout.endswith(f"tiny-clip is in {tmp_path / 'tiny-clip'}\n")


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["build"], 2, "Missing argument"),
        (["build", "demo-clip", "demo-minilm", "--from", "x"], 2, "give one recipe"),
        (["build", "demo-clip", "--precision", "int4"], 2, "some of fp32, fp16, int8, qdq, auto, not int4"),
        (["build", "demo-klip"], 1, "did you mean 'demo-clip'"),
        (["build", "demo-clip", "--from", "/nowhere"], 1, "/nowhere is not a checkpoint"),
        (["build", "demo-clip", "--calibrate", "/nowhere"], 1, "no such file or folder"),
    ],
)
def test_wrong_usage_is_one_clear_line(tmp_path: Path, arguments: list[str], code: int, message: str) -> None:
    done = run(*arguments, VLMSEARCH_CACHE=str(tmp_path))
    assert done.returncode == code
    assert message in done.stderr.splitlines()[-1]


def test_a_hub_that_is_not_reached_is_one_clear_line(tmp_path: Path) -> None:
    cache, nobody = str(tmp_path), "http://127.0.0.1:9"
    command = ("build", "all-minilm-l6-v2")
    done = run(*command, HF_HUB_CACHE=cache, HF_ENDPOINT=nobody, VLMSEARCH_CACHE=cache)
    assert done.returncode == 1
    advice = "vlmsearch build all-minilm-l6-v2 --from DIR`; onnx:demo works offline"
    assert advice in done.stderr.splitlines()[-1]


def test_models_lists_what_is_built(bundle: Bundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VLMSEARCH_CACHE", str(tmp_path))
    shutil.copytree(bundle.folder, tmp_path / "bundles" / "tiny-clip")
    (tmp_path / "bundles" / ".tiny-clip.x.building").mkdir()
    assert {each.name for each in built_bundles()} >= {"tiny-clip", "demo-clip", "demo-minilm"}
    data = json.loads(ok("models", "--json"))
    (row,) = (row for row in data["built"] if (row["name"], row["precision"]) == ("tiny-clip", "int8"))
    assert row["cosine"] > 0.985
    assert row["megabytes"] > 0
    assert row["images_per_second"] > 0
    assert "all-minilm-l6-v2" in data["not_built"]
    (tmp_path / "bundles" / "spoilt").mkdir()
    (tmp_path / "bundles" / "spoilt" / "bundle.json").write_text("{")
    with pytest.warns(DamagedBundleWarning, match="build it again"):
        plain = CliRunner().invoke(cli, ["models"]).stdout
    assert "all-minilm-l6-v2\tnot built" in plain


def test_static_vectors_do_not_depend_on_their_batch(bundle: Bundle) -> None:
    with OnnxEncoder(f"{bundle.folder}/") as encoder:
        together = encoder.encode_images(PIXELS)["clip"]
        alone = np.concatenate([encoder.encode_images([image])["clip"] for image in PIXELS])
    np.testing.assert_allclose(together, alone, atol=1e-6)
