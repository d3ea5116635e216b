"""Checkpoints in OpenCLIP's layout give what the same model in transformers' layout gives."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from tests.support.checkpoints import make_clip, make_recipe
from vlmsearch.building.bundle import build_bundle
from vlmsearch.building.load import load_checkpoint, read_config
from vlmsearch.encoders.onnx import OnnxEncoder
from vlmsearch.errors import ConfigError
from vlmsearch.media.preprocess import Preprocess
from vlmsearch.models.recipe import read_recipe

RNG = np.random.default_rng(0)


def make_open_clip(folder: Path, original: Path) -> Path:
    """The same model as a checkpoint of transformers, in the layout in which OpenCLIP saves it."""
    folder.mkdir()
    given = json.loads((original / "config.json").read_text())
    old, text, vision = load_file(original / "model.safetensors"), given["text_config"], given["vision_config"]
    new = {"logit_scale": old["logit_scale"]}
    for tower, ours in (("vision_model", "visual.transformer"), ("text_model", "transformer")):
        for number in range(2):
            theirs, mine = f"{tower}.encoder.layers.{number}.", f"{ours}.resblocks.{number}."
            for kind in ("weight", "bias"):
                parts = [old[f"{theirs}self_attn.{role}_proj.{kind}"] for role in "qkv"]
                new[f"{mine}attn.in_proj_{kind}"] = np.concatenate(parts)
                for mine_name, name in (
                    ("attn.out_proj", "self_attn.out_proj"),
                    ("ln_1", "layer_norm1"),
                    ("ln_2", "layer_norm2"),
                    ("mlp.c_fc", "mlp.fc1"),
                    ("mlp.c_proj", "mlp.fc2"),
                ):
                    new[f"{mine}{mine_name}.{kind}"] = old[f"{theirs}{name}.{kind}"]
    for kind in ("weight", "bias"):
        new[f"visual.ln_pre.{kind}"] = old[f"vision_model.pre_layrnorm.{kind}"]
        new[f"visual.ln_post.{kind}"] = old[f"vision_model.post_layernorm.{kind}"]
        new[f"ln_final.{kind}"] = old[f"text_model.final_layer_norm.{kind}"]
    new["visual.conv1.weight"] = old["vision_model.embeddings.patch_embedding.weight"]
    new["visual.class_embedding"] = old["vision_model.embeddings.class_embedding"]
    new["visual.positional_embedding"] = old["vision_model.embeddings.position_embedding.weight"]
    new["visual.proj"] = np.ascontiguousarray(old["visual_projection.weight"].T)
    new["token_embedding.weight"] = old["text_model.embeddings.token_embedding.weight"]
    new["positional_embedding"] = old["text_model.embeddings.position_embedding.weight"]
    new["text_projection"] = np.ascontiguousarray(old["text_projection.weight"].T)
    save_file(new, folder / "open_clip_model.safetensors")
    config = {
        "embed_dim": given["projection_dim"],
        "quick_gelu": text["hidden_act"] == "quick_gelu",
        "vision_cfg": {
            "image_size": vision["image_size"],
            "layers": 2,
            "width": vision["hidden_size"],
            "head_width": vision["hidden_size"] // vision["num_attention_heads"],
            "mlp_ratio": vision["intermediate_size"] / vision["hidden_size"],
            "patch_size": vision["patch_size"],
        },
        "text_cfg": {
            "context_length": text["max_position_embeddings"],
            "vocab_size": text["vocab_size"],
            "width": text["hidden_size"],
            "heads": text["num_attention_heads"],
            "mlp_ratio": text["intermediate_size"] / text["hidden_size"],
            "layers": 2,
        },
    }
    prep = json.loads((original / "preprocessor_config.json").read_text())
    images = {"mean": prep["image_mean"], "std": prep["image_std"], "interpolation": "bicubic"}
    (folder / "open_clip_config.json").write_text(json.dumps({"model_cfg": config, "preprocess_cfg": images}))
    for name in ("tokenizer.json", "tokenizer_config.json"):
        if (original / name).is_file():
            shutil.copy(original / name, folder)
    return folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a checkpoint in OpenCLIP's layout."""
    return make_open_clip(tmp_path / "open", make_clip(tmp_path / "original"))


def change(folder: Path, part: str, **settings: Any) -> None:
    """Change settings of ``model_cfg``, of a tower in it, or of ``preprocess_cfg``."""
    data = json.loads((folder / "open_clip_config.json").read_text())
    places = {"model_cfg": data["model_cfg"], "preprocess_cfg": data["preprocess_cfg"]}
    (places.get(part) or data["model_cfg"][part]).update(settings)
    (folder / "open_clip_config.json").write_text(json.dumps(data))


@pytest.mark.parametrize(("act", "heads", "dim"), [("gelu", 3, 32), ("quick_gelu", 6, 40)])
def test_the_layout_makes_no_difference(tmp_path: Path, act: str, heads: int, dim: int) -> None:
    from vlmsearch.building.torch import load_reference

    original = make_clip(tmp_path / "original", act=act, old_end=True, heads=heads, dim=dim)
    folder = make_open_clip(tmp_path / "open", original)
    one, other = load_checkpoint(original), load_checkpoint(folder)
    assert (one.image, one.text, one.preprocess, one.max_tokens) == (
        other.image,
        other.text,
        other.preprocess,
        other.max_tokens,
    )
    assert set(other.weights) == set(one.weights)
    for name, array in other.weights.items():
        assert np.array_equal(array, one.weights[name]), name
    pixels = RNG.integers(0, 256, (4, 32, 32, 3), np.uint8)
    np.testing.assert_allclose(
        load_reference(folder).images(pixels), load_reference(original).images(pixels), atol=1e-6
    )
    ids = RNG.integers(3, 800, (4, 20)).astype(np.int32)
    mask = np.ones_like(ids)
    ours, theirs = (load_reference(each).texts(ids, mask) for each in (folder, original))
    np.testing.assert_allclose(ours, theirs, atol=1e-6)


def test_a_bundle_is_built_and_proven(tmp_path: Path) -> None:
    from vlmsearch.building.torch import TorchEncoder

    folder = make_open_clip(tmp_path / "open", make_clip(tmp_path / "original", old_end=True))
    recipe = make_recipe(tmp_path, folder)
    built = build_bundle(read_recipe(recipe), out=tmp_path / "b", precisions=["fp32"])
    checks = json.loads((tmp_path / "b" / "bundle.json").read_text())["measured"]["checks"]
    assert all(check["passed"] for check in checks.values())
    assert built.preprocess == Preprocess(32)
    with OnnxEncoder(f"{tmp_path}/b", precision="fp32") as encoder:
        reference = TorchEncoder(f"{folder}/", name="tiny-clip")
        assert (encoder.fingerprint, encoder.spaces) == (reference.fingerprint, reference.spaces)
        ours, theirs = (one.encode_texts(["a red star", ""])["clip"] for one in (encoder, reference))
        assert (ours * theirs).sum(axis=1).min() > 0.99999


def test_tensors_of_a_text_tower_of_its_own_are_found(folder: Path) -> None:
    before = load_checkpoint(folder).weights
    tensors = load_file(folder / "open_clip_model.safetensors")
    text = ("transformer.", "token_embedding.", "positional_embedding", "ln_final.", "text_projection")
    renamed = {f"text.{name}" if name.startswith(text) else name: array for name, array in tensors.items()}
    save_file(renamed | {"attn_mask": np.zeros((32, 32), np.float32)}, folder / "open_clip_model.safetensors")
    change(folder, "model_cfg", custom_text=True)
    assert set(load_checkpoint(folder).weights) == set(before)


def test_images_are_squashed_where_it_says_so(folder: Path) -> None:
    change(folder, "preprocess_cfg", resize_mode="squash", interpolation="bilinear", size=[32, 32])
    assert load_checkpoint(folder).preprocess == Preprocess(32, crop=False, interpolation="bilinear")


def test_transformers_own_layout_goes_first(folder: Path) -> None:
    original = folder.parent / "original"
    assert read_config(folder)[0] == "open_clip"
    shutil.copy(original / "config.json", folder)
    assert read_config(folder)[0] == "open_clip", "there is a configuration, and no weights for it"
    shutil.copy(original / "model.safetensors", folder)
    assert read_config(folder)[0] == "clip"


@pytest.mark.parametrize(
    ("part", "settings", "named"),
    [
        ("vision_cfg", {"timm_model_name": "vit_base"}, r"vision_cfg\.timm_model_name is 'vit_base'"),
        ("vision_cfg", {"pool_type": "avg"}, r"vision_cfg\.pool_type is 'avg'"),
        ("text_cfg", {"hf_model_name": "xlm-roberta-base"}, r"text_cfg\.hf_model_name is 'xlm-roberta-base'"),
        ("text_cfg", {"hf_tokenizer_name": "bert"}, r"text_cfg\.hf_tokenizer_name is 'bert'"),
        ("text_cfg", {"no_causal_mask": True}, r"text_cfg\.no_causal_mask is True"),
        ("model_cfg", {"multimodal_cfg": {"width": 8}}, r"multimodal_cfg is \{'width': 8\}"),
        ("preprocess_cfg", {"resize_mode": "longest"}, "by their shortest edge or squashed"),
    ],
)
def test_what_cannot_be_exported_is_named(folder: Path, part: str, settings: dict[str, Any], named: str) -> None:
    change(folder, part, **settings)
    with pytest.raises(ConfigError, match=named):
        load_checkpoint(folder)


def test_what_changes_nothing_is_no_hindrance(folder: Path) -> None:
    change(folder, "vision_cfg", patch_dropout=0.5, pool_type="tok", timm_model_name=None)
    change(folder, "text_cfg", pool_type="argmax", embed_cls=False)
    assert load_checkpoint(folder).dim == 32
