"""A repository's own ONNX export: taken as it is, proven as ours is, and refused where it computes something else."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from numpy.typing import NDArray
from onnxruntime.quantization import quantize_dynamic

from tests.support.checkpoints import make_bert, make_clip
from tests.support.hub import REVISION, Hub, taken_for_the_real_one
from vlmsearch.build.bundle import build_bundle
from vlmsearch.build.derive import derive_recipe
from vlmsearch.build.load import load_checkpoint
from vlmsearch.build.theirs import wrap_export
from vlmsearch.errors import ConfigError, QualityError
from vlmsearch.models.bundle import find_bundles
from vlmsearch.models.recipe import Recipe, built_by
from vlmsearch.registry import open_encoder

if TYPE_CHECKING:
    import torch

TEXTS = ["a red star", "a blue box in the snow", "x"]


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    with taken_for_the_real_one(tmp_path, monkeypatch) as server:
        yield server


def _output(run: Any, module: torch.nn.Module) -> torch.nn.Module:
    """A module of transformers that gives one of its outputs, for inputs in a fixed order."""
    import torch

    class Output(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.module = module

        def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
            found: torch.Tensor = run(self.module, *inputs)
            return found

    return Output()


def _write(module: torch.nn.Module, given: dict[str, torch.Tensor], output: str, path: Path) -> None:
    import torch

    path.parent.mkdir(exist_ok=True)
    axes = {name: {0: "batch", 1: "length"} if tensor.ndim == 2 else {0: "batch"} for name, tensor in given.items()}
    with warnings.catch_warnings(), torch.inference_mode():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            module.eval(), tuple(given.values()), str(path), input_names=list(given), output_names=[output],
            dynamic_axes=axes | {output: {0: "batch"}}, opset_version=14, dynamo=False,
        )  # fmt: skip


def export_bert(folder: Path) -> Path:
    """Export a sentence encoder as optimum does: token types too, and the last hidden state."""
    import torch
    from transformers import AutoModel

    ids = torch.randint(5, 60, (2, 7))
    given = {"input_ids": ids, "attention_mask": torch.ones_like(ids), "token_type_ids": torch.zeros_like(ids)}

    def run(model: Any, ids: torch.Tensor, mask: torch.Tensor, types: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = model(input_ids=ids, attention_mask=mask, token_type_ids=types).last_hidden_state
        return found

    module = _output(run, AutoModel.from_pretrained(folder))
    _write(module, given, "last_hidden_state", folder / "onnx/model.onnx")
    return folder


def export_clip(folder: Path) -> Path:
    """Export the two towers of a CLIP as transformers.js takes them."""
    import torch
    from transformers import CLIPModel

    model = CLIPModel.from_pretrained(folder)

    def text(model: Any, ids: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = model.text_projection(model.text_model(input_ids=ids).pooler_output)
        return found

    def image(model: Any, pixels: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = model.visual_projection(model.vision_model(pixel_values=pixels).pooler_output)
        return found

    words: Any = model.config.text_config
    ids = torch.tensor([[words.bos_token_id, 9, words.eos_token_id]] * 2)
    _write(_output(text, model), {"input_ids": ids}, "text_embeds", folder / "onnx/text_model.onnx")
    pixels = torch.rand(2, 3, 32, 32)
    _write(_output(image, model), {"pixel_values": pixels}, "image_embeds", folder / "onnx/vision_model.onnx")
    return folder


@pytest.mark.parametrize("pooling", ["mean_tokens", "cls_token"])
def test_an_export_of_texts_is_proven_and_gives_the_vectors_of_ours(hub: Hub, tmp_path: Path, pooling: str) -> None:
    hub.models["somebody/tiny-bert"] = export_bert(make_bert(tmp_path / "served", pooling=pooling))
    with open_encoder("onnx:somebody/tiny-bert?export=theirs&precision=fp32") as encoder:
        found = encoder.encode_texts(TEXTS)["sentence"]
    (bundle,) = find_bundles("somebody/tiny-bert", export="theirs")
    assert (bundle.name, bundle.revision) == ("somebody--tiny-bert--theirs", REVISION)
    checks = bundle.measured["checks"]
    assert isinstance(checks, dict)
    assert checks["text.fp32.cosine"]["value"] >= 0.99999
    assert checks["tokens.different"]["value"] == 0
    recipe = built_by(bundle)
    assert recipe is not None
    assert recipe.export == "theirs"
    with open_encoder("torch:somebody/tiny-bert") as reference:
        np.testing.assert_allclose(found, reference.encode_texts(TEXTS)["sentence"], atol=1e-5)


def test_an_export_of_two_towers_takes_pixels(hub: Hub, tmp_path: Path) -> None:
    hub.models["else/tiny-clip"] = export_clip(make_clip(tmp_path / "served"))
    recipe = derive_recipe("else/tiny-clip", export="theirs")
    assert isinstance(recipe, Recipe)
    gates = dataclasses.replace(recipe.gates, jpeg=0.98)  # images of 32 pixels are much the same
    bundle = build_bundle(dataclasses.replace(recipe, gates=gates))
    assert bundle.precisions == ["fp32"], "what they have not quantised is not there"
    checks = bundle.measured["checks"]
    assert isinstance(checks, dict)
    assert min(checks["image.fp32.cosine"]["value"], checks["text.fp32.cosine"]["value"]) >= 0.99999
    with open_encoder("onnx:else/tiny-clip?export=theirs") as encoder:
        assert encoder.precision == "fp32"  # type: ignore[attr-defined]
        assert set(encoder.encode_texts(TEXTS)) == {"clip"}


def test_an_export_without_weights_is_proven_against_its_base_model(hub: Hub, tmp_path: Path) -> None:
    base = make_bert(tmp_path / "base")
    hub.models["maker/base"] = base
    other = tmp_path / "other"
    export_bert(base)
    other.mkdir()
    (base / "onnx").rename(other / "onnx")
    (other / "config.json").write_text((base / "config.json").read_text())
    (other / "README.md").write_text("---\nbase_model: maker/base\n---\n")
    hub.models["web/base-onnx"] = other
    (bundle,) = find_bundles("web/base-onnx", export="theirs")
    recipe = built_by(bundle)
    assert recipe is not None
    assert recipe.weights_from == f"maker/base@{REVISION}"
    (other / "README.md").write_text("no front matter")
    hub.models["web/nameless"] = other
    with pytest.raises(ConfigError, match="README names no one base_model"):
        find_bundles("web/nameless", export="theirs")


def test_an_export_of_another_model_is_not_built(hub: Hub, tmp_path: Path) -> None:
    folder = export_bert(make_bert(tmp_path / "served", seed=1))
    hub.models["somebody/tiny-bert"] = make_bert(folder, seed=2)
    with pytest.raises(QualityError, match=r"text\.fp32\.cosine is "):
        find_bundles("somebody/tiny-bert", export="theirs")


def test_their_quantised_file_is_gated_against_float32(hub: Hub, tmp_path: Path) -> None:
    folder = export_bert(make_bert(tmp_path / "served"))
    quantize_dynamic(folder / "onnx/model.onnx", folder / "onnx/model_quantized.onnx")
    hub.models["somebody/tiny-bert"] = folder
    (bundle,) = find_bundles("somebody/tiny-bert", export="theirs")
    story = bundle.quantisation["text.int8.onnx"]
    assert story["method"] == "theirs"
    assert ("left_out" in story) == ("int8" not in bundle.precisions)
    hub.models["else/spoilt"] = folder
    model = onnx.load(folder / "onnx/model.onnx")
    weights = next(each for each in model.graph.initializer if len(each.dims) == 2 and each.dims[0] == each.dims[1])
    weights.CopyFrom(onnx.numpy_helper.from_array(-onnx.numpy_helper.to_array(weights), weights.name))
    onnx.save(model, folder / "onnx/model_quantized.onnx")
    (spoilt,) = find_bundles("else/spoilt", export="theirs")
    assert spoilt.precisions == ["fp32"]
    assert "gate 0.9" in str(spoilt.quantisation["text.int8.onnx"]["left_out"])


def test_weights_beside_the_export_are_taken_in(tmp_path: Path) -> None:
    folder = export_bert(make_bert(tmp_path / "served"))
    checkpoint = load_checkpoint(folder)
    ids = np.array([[2, 9, 8, 3]], np.int32)
    feeds = {"input_ids": ids, "attention_mask": np.ones_like(ids)}
    expected = _run(wrap_export(checkpoint, "text", "fp32"), feeds)
    model = onnx.load(folder / "onnx/model.onnx")
    onnx.save(
        model, folder / "onnx/model.onnx", save_as_external_data=True, location="model.onnx_data", size_threshold=0
    )
    assert (folder / "onnx/model.onnx_data").stat().st_size > 1000
    np.testing.assert_array_equal(_run(wrap_export(checkpoint, "text", "fp32"), feeds), expected)


def _run(model: bytes | None, feeds: dict[str, NDArray[np.int32]]) -> NDArray[np.float32]:
    assert model is not None
    found: NDArray[np.float32] = ort.InferenceSession(model).run(None, feeds)[0]
    return found


def test_an_export_that_asks_for_something_else_is_one_line(tmp_path: Path) -> None:
    folder = export_bert(make_bert(tmp_path / "served"))
    model = onnx.load(folder / "onnx/model.onnx")
    model.graph.input.append(onnx.helper.make_tensor_value_info("past", onnx.TensorProto.FLOAT, [1]))
    onnx.save(model, folder / "onnx/model.onnx")
    with pytest.raises(ConfigError, match="asks for past, which is not given to a text tower"):
        wrap_export(load_checkpoint(folder), "text", "fp32")
    (folder / "onnx/model.onnx").write_bytes(b"not ONNX")
    with pytest.raises(ConfigError, match="is damaged"):
        wrap_export(load_checkpoint(folder), "text", "fp32")
    assert wrap_export(load_checkpoint(folder), "image", "fp32") is None
