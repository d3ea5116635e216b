"""SigLIP and SigLIP 2 give the vectors, tokens and pixels that transformers gives."""

from __future__ import annotations

import json
import math
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from tests.support.checkpoints import edit_json, make_recipe
from tests.support.graphs import assert_same, calibrate, export
from tests.support.siglip import VOCABULARY, make_siglip
from vlmsearch.building import layers
from vlmsearch.building.bundle import build_bundle
from vlmsearch.building.checkpoint import Checkpoint
from vlmsearch.building.compare import verify_images, verify_tokens
from vlmsearch.building.fetch import as_bundle
from vlmsearch.building.graph import OnnxGraph
from vlmsearch.building.inputs import Feeds, pixel_feeds, run, text_feeds
from vlmsearch.building.layers import Layers
from vlmsearch.building.load import load_checkpoint
from vlmsearch.building.relevance import sigmoid_fit
from vlmsearch.building.verify import tokenizer_cases
from vlmsearch.demo.scenes import make_scene
from vlmsearch.encoders.onnx import OnnxEncoder
from vlmsearch.errors import ConfigError, MissingDependencyError
from vlmsearch.media.preprocess import Preprocess
from vlmsearch.models.bundle import Bundle, TextPrompt, Tower
from vlmsearch.models.inputs import open_tokenizer
from vlmsearch.models.recipe import Gates, Recipe, Shapes, read_recipe
from vlmsearch.types import Vectors

TEXTS = ["a red star", "", "Two LARGE striped circles above a small heart on a meadow", "x", "ring", "star " * 60]
RNG = np.random.default_rng(0)


def described(checkpoint: Checkpoint) -> Bundle:
    return as_bundle(checkpoint, Recipe("tiny", "", "siglip", checkpoint="."))


def feeds_of(checkpoint: Checkpoint, tower: Tower) -> Feeds:
    if tower == "text":
        bundle = described(checkpoint)
        return text_feeds(TEXTS, bundle.text, open_tokenizer(bundle), 4)
    assert checkpoint.image is not None
    pixels = RNG.integers(0, 256, (6, checkpoint.image.size, checkpoint.image.size, 3), np.uint8)
    pixels[1:3] //= 8
    return pixel_feeds(pixels, 4)


def both(checkpoint: Checkpoint, tower: Tower) -> tuple[Vectors, Vectors]:
    """Vectors of the float32 tower and the reference's."""
    from vlmsearch.building.torch import load_reference

    reference, feeds = load_reference(checkpoint.folder), feeds_of(checkpoint, tower)
    ours, _ = run(export(checkpoint, tower), feeds)
    if tower == "image":
        theirs = [reference.images(batch["pixels"].astype(np.uint8)) for batch in feeds.batches]
    else:
        ids = [batch["input_ids"].astype(np.int32) for batch in feeds.batches]
        theirs = [reference.texts(batch, np.zeros_like(batch)) for batch in ids]
    return ours[feeds.order], np.concatenate(theirs)


@pytest.mark.parametrize(
    "make",
    [
        make_siglip,
        partial(make_siglip, second=False),
        partial(make_siglip, size=36, dim=24, positions=9),  # patches that leave a margin; vectors of the text's width
    ],
)
def test_towers_match_transformers(tmp_path: Path, make: partial[Path]) -> None:
    folder = make(tmp_path)
    edit_json(folder / "preprocessor_config.json", image_mean=[0.5, 0.4, 0.6], image_std=[0.5, 0.3, 0.25])
    checkpoint = load_checkpoint(folder)
    assert_same(*both(checkpoint, "image"))
    ours, theirs = both(checkpoint, "text")
    assert_same(ours, theirs)
    assert ours.shape[1] == checkpoint.dim


def test_a_table_too_large_for_one_file_is_kept_in_float16(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoint = load_checkpoint(make_siglip(tmp_path))
    whole = export(checkpoint, "text")
    monkeypatch.setattr(layers, "MAX_TABLE", 1000)
    data = export(checkpoint, "text")
    assert len(whole) - len(data) == pytest.approx(VOCABULARY * 48 * 2, abs=1000)
    assert_same(*both(checkpoint, "text"))


def test_the_head_is_quantised_by_nobody(tmp_path: Path) -> None:
    checkpoint = load_checkpoint(make_siglip(tmp_path))
    written = Layers(OnnxGraph("image"))
    checkpoint.write("image", written)
    assert sorted({name.partition("/")[2].partition("/")[0] for name in written.linear_inputs}) == ["0", "1"]


def test_every_text_is_padded_to_one_length_and_seen_whole(tmp_path: Path) -> None:
    checkpoint = load_checkpoint(make_siglip(tmp_path, positions=16))
    bundle = described(checkpoint)
    assert (bundle.text.fill, bundle.text.longest, bundle.text.pad, bundle.text.suffix) == (16, 16, 0, (1,))
    assert Shapes().of(bundle.text).text_length == (16, 16, 16)
    feeds = feeds_of(checkpoint, "text")
    assert {batch["input_ids"].shape[1] for batch in feeds.batches} == {16}
    assert all(batch["attention_mask"].all() for batch in feeds.batches)
    seen = calibrate(checkpoint, "text", feeds)
    first = seen["text/0/qkv"].inputs
    rows = sum(len(batch["input_ids"]) for batch in feeds.batches) * 16
    assert first._counts.sum() == rows * checkpoint.text.transformer.width, "padding counts like any token"


@pytest.mark.parametrize("second", [True, False])
def test_tokens_are_those_of_transformers(tmp_path: Path, second: bool) -> None:
    checkpoint = load_checkpoint(make_siglip(tmp_path, second=second, positions=64))
    bundle = described(checkpoint)
    tokenizer = open_tokenizer(bundle)
    assert verify_tokens(tmp_path, bundle.text, tokenizer).value == 0
    assert tokenizer.raw.encode("A Dog").ids == tokenizer.raw.encode("a dog").ids
    assert checkpoint.lower == second, "SigLIP's tokenizer lower-cases by itself"


def test_texts_are_lower_cased_as_transformers_does_for_siglip_2(tmp_path: Path) -> None:
    import transformers

    if not hasattr(transformers, "Siglip2Tokenizer"):
        pytest.skip("transformers has no Siglip2Tokenizer")
    bundle = described(load_checkpoint(make_siglip(tmp_path, positions=64)))
    tokenizer, theirs = open_tokenizer(bundle), transformers.Siglip2Tokenizer.from_pretrained(tmp_path)
    texts = [text for text in tokenizer_cases(500) if tokenizer.plain(text) == text]
    expected = theirs(texts, truncation=True, max_length=64, split_special_tokens=True)["input_ids"]
    found = [[*ids[:63], 1] for ids in tokenizer.ids(texts, [TextPrompt()] * len(texts))]
    assert found == [list(ids) for ids in expected]
    cased = transformers.AutoTokenizer.from_pretrained(tmp_path)(texts, truncation=True, max_length=64)["input_ids"]
    assert cased != expected, "Gemma's tokenizer would not have done it"


@pytest.mark.skipif(find_spec("sentencepiece") is not None, reason="sentencepiece is installed here")
def test_a_tokenizer_that_needs_another_package_is_named(tmp_path: Path) -> None:
    edit_json(make_siglip(tmp_path, second=False) / "tokenizer_config.json", tokenizer_class="SiglipTokenizer")
    bundle = described(load_checkpoint(tmp_path))
    with pytest.raises(MissingDependencyError, match="pip install sentencepiece protobuf"):
        verify_tokens(tmp_path, bundle.text, open_tokenizer(bundle))


def test_a_checkpoint_that_keeps_capitals_keeps_them(tmp_path: Path) -> None:
    edit_json(make_siglip(tmp_path) / "tokenizer_config.json", do_lower_case=False)
    bundle = described(load_checkpoint(tmp_path))
    tokenizer = open_tokenizer(bundle)
    assert tokenizer.raw.encode("A Dog").ids != tokenizer.raw.encode("a dog").ids
    assert verify_tokens(tmp_path, bundle.text, tokenizer).value == 0


@pytest.mark.parametrize("second", [True, False])
def test_images_are_squashed_as_transformers_does(tmp_path: Path, second: bool) -> None:
    from vlmsearch.building.torch import load_reference

    checkpoint, reference = load_checkpoint(make_siglip(tmp_path, second=second, size=64)), load_reference(tmp_path)
    expected = Preprocess(64, crop=False, interpolation="bilinear" if second else "bicubic")
    assert checkpoint.preprocess == expected
    checks = verify_images(export(checkpoint, "image"), tmp_path, expected, (), reference, Gates())
    assert all(check.passed for check in checks), checks
    cropped = verify_images(export(checkpoint, "image"), tmp_path, Preprocess(64), (), reference, Gates())
    assert not cropped[0].passed


def test_scale_and_bias_are_kept(tmp_path: Path) -> None:
    checkpoint, tensors = load_checkpoint(make_siglip(tmp_path)), load_file(tmp_path / "model.safetensors")
    assert checkpoint.logits is not None
    assert checkpoint.logits.scale == pytest.approx(math.exp(tensors["logit_scale"].item()), rel=1e-4)
    assert checkpoint.logits.bias == pytest.approx(tensors["logit_bias"].item(), rel=1e-4)


@pytest.mark.exhaustive
@pytest.mark.parametrize("second", [True, False])
def test_real_sizes_match_transformers(tmp_path: Path, second: bool) -> None:
    """The layers of google/siglip2-base-patch16-224 and google/siglip-base-patch16-224, with few tokens."""
    sizes = {"size": 224, "patch": 16, "width": 768, "heads": 12, "layers": 12, "inner": 3072, "positions": 64}
    checkpoint = load_checkpoint(make_siglip(tmp_path, second=second, weaker=2.0, **sizes))
    for tower in checkpoint.towers:
        ours, theirs = both(checkpoint, tower)
        assert (ours * theirs).sum(axis=1).min() > 0.99999


def test_what_cannot_be_exported_is_named(tmp_path: Path) -> None:
    folder = make_siglip(tmp_path)
    edit_json(folder / "preprocessor_config.json", size={"height": 32, "width": 48})
    with pytest.raises(ConfigError, match="must be resized to a square without a crop"):
        load_checkpoint(folder)
    config = json.loads((folder / "config.json").read_text())
    edit_json(folder / "config.json", vision_config=config["vision_config"] | {"vision_use_head": False})
    with pytest.raises(ConfigError, match="no pooling head"):
        load_checkpoint(folder)
    edit_json(folder / "config.json", model_type="siglip2")
    with pytest.raises(ConfigError, match=r"is SigLIP 2 NaFlex, .* SigLIP 2 of one resolution can"):
        load_checkpoint(folder)


def test_a_bundle_is_built_and_proven(tmp_path: Path) -> None:
    from vlmsearch.building.torch import TorchEncoder

    recipe = make_recipe(tmp_path, make_siglip(tmp_path / "checkpoint", positions=64), space="siglip")
    built = build_bundle(read_recipe(recipe), out=tmp_path / "b", precisions=["fp32", "fp16", "int8", "qdq"])
    checks = json.loads((tmp_path / "b" / "bundle.json").read_text())["measured"]["checks"]
    assert checks["tokens.different"]["value"] == 0
    assert checks["image.fp32.cosine"]["value"] >= 0.99999
    assert checks["text.fp32.cosine"]["value"] >= 0.99999
    assert all(check["passed"] for check in checks.values())
    assert (built.text.fill, built.text.lower) == (64, True)
    assert built.logits is not None
    assert built.relevance == {"image": sigmoid_fit(built.logits)}, "nothing was fitted: its sigmoid judges images"
    pictures = [make_scene(number).draw(96) for number in range(5)]
    reference = TorchEncoder(str(recipe))
    for precision, least in (("fp32", 0.9999), ("int8", 0.985)):
        with OnnxEncoder(f"{tmp_path}/b", precision=precision) as encoder:  # type: ignore[arg-type]
            assert encoder.fingerprint == reference.fingerprint
            for ours, theirs in (
                (encoder.encode_images(pictures), reference.encode_images(pictures)),
                (encoder.encode_texts(TEXTS), reference.encode_texts(TEXTS)),
            ):
                assert (ours["siglip"] * theirs["siglip"]).sum(axis=1).mean() > least, precision
