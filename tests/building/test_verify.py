"""The proof in a bundle notices what it is there to notice."""

from __future__ import annotations

import dataclasses
import shutil
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.support.checkpoints import edit_json, make_bert, make_clip, minilm
from tests.support.graphs import export, tokenizer_of
from tests.support.paths import ENGINES, SHARED
from vlmsearch.building.compare import verify_images, verify_tokens, verify_vectors
from vlmsearch.building.data import gather
from vlmsearch.building.fetch import text_input
from vlmsearch.building.inputs import image_feeds, pixel_feeds
from vlmsearch.building.load import load_checkpoint
from vlmsearch.building.quantize import Drift
from vlmsearch.building.verify import Check, drift_checks, tokenizer_cases
from vlmsearch.demo.scenes import make_scene
from vlmsearch.errors import ConfigError
from vlmsearch.media.images import open_image
from vlmsearch.media.preprocess import Preprocess
from vlmsearch.models.bundle import TextInput
from vlmsearch.models.recipe import Calibration, Gates, Recipe, find_recipe

GATES = Gates()


def test_the_texts_to_tokenise_are_of_all_kinds() -> None:
    texts = tokenizer_cases(2000)
    assert len(set(texts)) == 2000
    assert texts == tokenizer_cases(2000)
    joined = "".join(texts)
    assert {"", " "} <= set(texts)
    assert any(len(text.split()) == 500 for text in texts)
    assert "don't" in joined
    assert any(ord(letter) > 0x1F000 for letter in joined)
    assert any(0x4E00 <= ord(letter) < 0x5000 for letter in joined)


def test_minilm_has_the_token_ids_of_its_own_tokenizer() -> None:
    form = text_input(load_checkpoint(minilm()))
    assert (form.prefix, form.suffix, form.max_tokens) == ((101,), (102,), 256)
    assert verify_tokens(minilm(), form, tokenizer_of(minilm())).value == 0


@pytest.mark.skipif(not SHARED.is_dir(), reason="../shared/data is not here")
def test_clip_has_the_token_ids_of_its_own_tokenizer(tmp_path: Path) -> None:
    for name in ("tokenizer.json", "config.json"):
        shutil.copy(SHARED / "clip-tokenizer" / name, tmp_path)
    form = TextInput(77, (49406,), (49407,), 49407)
    assert verify_tokens(tmp_path, form, tokenizer_of(tmp_path)).value == 0


def test_another_tokenizer_is_noticed(tmp_path: Path) -> None:
    folder = ENGINES / "demo-minilm/checkpoint"
    other = tokenizer_of(folder)
    other.raw.add_tokens(["the"])
    check = verify_tokens(folder, text_input(load_checkpoint(folder)), other)
    assert check.value > 10
    assert not check.passed


def test_preprocessing_is_that_of_transformers(tmp_path: Path) -> None:
    from vlmsearch.building.torch import load_reference

    folder = make_clip(tmp_path, size=64)
    checkpoint, reference = load_checkpoint(folder), load_reference(folder)
    assert checkpoint.preprocess is not None
    model = export(checkpoint, "image")
    checks = {c.name: c for c in verify_images(model, folder, checkpoint.preprocess, (), reference, GATES)}
    assert checks["pixels.difference"].value <= 1
    assert checks["pixels.difference"].passed
    assert checks["jpeg.cosine"].passed

    wrong = Preprocess(size=64, interpolation="bilinear")
    checks = {c.name: c for c in verify_images(model, folder, wrong, (), reference, GATES)}
    assert not checks["pixels.difference"].passed

    edit_json(folder / "preprocessor_config.json", image_mean=[0.2, 0.3, 0.9])
    checks = {c.name: c for c in verify_images(model, folder, checkpoint.preprocess, (), reference, GATES)}
    assert not checks["jpeg.cosine"].passed, "colours that are normalised otherwise are noticed from end to end"


def test_pixels_agree_on_a_larger_model() -> None:
    import transformers

    name = "CLIPImageProcessorPil" if hasattr(transformers, "CLIPImageProcessorPil") else "CLIPImageProcessor"
    processor, preprocess = getattr(transformers, name)(), Preprocess(size=224)
    for number, size in enumerate(((640, 480), (333, 500), (1200, 300), (224, 224), (150, 260))):
        image = make_scene(number).draw(1200).resize(size)
        theirs = np.asarray(processor(image, do_rescale=False, do_normalize=False)["pixel_values"][0])
        difference = np.abs(theirs.transpose(1, 2, 0).astype(int) - preprocess.apply(image))
        assert difference.max() <= 1, size


def test_images_need_an_image_model(tmp_path: Path) -> None:
    from vlmsearch.building.torch import load_reference

    clip, reference = make_clip(tmp_path / "clip"), load_reference(make_bert(tmp_path / "bert"))
    model = export(load_checkpoint(clip), "image")
    with pytest.raises(ConfigError, match="encodes no images"):
        verify_images(model, clip, Preprocess(size=32), (), reference, GATES)


def test_other_weights_are_noticed(tmp_path: Path) -> None:
    from vlmsearch.building.torch import load_reference

    one, other = (load_checkpoint(make_clip(tmp_path / str(seed), seed=seed)) for seed in (1, 2))
    feeds = pixel_feeds(np.random.default_rng(0).integers(0, 256, (8, 32, 32, 3), np.uint8))
    reference = load_reference(one.folder)
    assert verify_vectors("image", export(one, "image"), feeds, reference, GATES).passed
    assert not verify_vectors("image", export(other, "image"), feeds, reference, GATES).passed


def test_checks_know_their_side() -> None:
    assert Check("a", 0.9, 0.9).passed
    assert not Check("a", 0.89, 0.9).passed
    assert Check("a", 1.0, 1.0, is_maximum=True).passed
    assert not Check("a", 1.1, 1.0, is_maximum=True).passed
    assert Check("a", -5).passed
    names = [check.name for check in drift_checks("text", "int8", Drift(1, 1, 1, 1), GATES)]
    assert names == ["text.int8.mean_cosine", "text.int8.min_cosine", "text.int8.overlap"]


def test_nan_is_never_a_pass(tmp_path: Path) -> None:
    from vlmsearch.building.torch import load_reference

    checkpoint = load_checkpoint(make_clip(tmp_path))
    weights = dict(checkpoint.weights)
    weights["visual_projection.weight"] = np.full_like(weights["visual_projection.weight"], np.nan)
    model = export(dataclasses.replace(checkpoint, weights=weights), "image")
    feeds = pixel_feeds(np.zeros((2, 32, 32, 3), np.uint8))
    assert not verify_vectors("image", model, feeds, load_reference(checkpoint.folder), GATES).passed


def test_samples_of_the_demonstration_describe_each_other() -> None:
    recipe = find_recipe("demo-clip")
    few = dataclasses.replace(recipe.calibration, images=64, texts=96, held_out=32)
    recipe = dataclasses.replace(recipe, calibration=few)
    fitted, held_out = gather(recipe, [], images=True)
    assert len(held_out.pictures) == len(held_out.texts) == len(held_out.scenes) == 32
    assert (len(fitted.pictures), len(fitted.texts)) == (64, 96)
    assert not set(fitted.texts) & set(held_out.texts)
    first = held_out.scenes[0]
    assert held_out.texts[0] == first.captions(1)[0]
    assert held_out.pictures[0] == first.draw()


def test_own_data_is_split_and_named(tmp_path: Path) -> None:
    recipe = Recipe("mine", "MIT", "mine", source="a", revision="b", calibration=Calibration(60, 100, 30))
    (tmp_path / "texts.txt").write_text("\n".join(f"line {i} of mine" for i in range(200)) + "\n\n")
    fitted, held_out = gather(recipe, [tmp_path / "texts.txt"], images=True)
    assert fitted.own == {"text"}
    assert fitted.origin == {"image": "drawn scenes", "text": "your own: texts.txt"}
    assert (len(fitted.texts), len(held_out.texts)) == (100, 30)
    assert not set(fitted.texts) & set(held_out.texts)
    assert all(text.endswith("of mine") for text in fitted.texts)
    unfitted, measured = gather(recipe, [tmp_path / "texts.txt"], images=True, fit=False)
    assert (unfitted.pictures, measured) == ((), held_out)
    for i in range(40):
        make_scene(i).draw(64).save(tmp_path / f"{i}.png")
    fitted, held_out = gather(recipe, [tmp_path], images=True)
    assert fitted.own == {"image", "text"}
    assert len(fitted.pictures) + len(held_out.pictures) == 40
    assert len(held_out.pictures) >= 13
    fitted, _ = gather(recipe, [tmp_path], images=False)
    assert fitted.pictures == ()
    assert fitted.own == {"text"}


def test_damaged_images_among_ones_own_are_left_out(tmp_path: Path) -> None:
    good = [make_scene(i).draw(64) for i in range(20)]
    feeds = image_feeds([*good, b"nothing"], Preprocess(size=32))
    assert len(feeds.order) == 20
    with pytest.raises(ConfigError, match=r"only 1 of 20 calibration images can be used: .*no format"):
        image_feeds([good[0], *[b"nothing"] * 19], Preprocess(size=32))


def test_too_little_own_data_is_refused(tmp_path: Path) -> None:
    recipe = find_recipe("demo-clip")
    (tmp_path / "few.txt").write_text("one\ntwo\n")
    with pytest.raises(ConfigError, match="holds 2 texts; 32 are needed"):
        gather(recipe, [tmp_path / "few.txt"], images=True)
    (tmp_path / "few.txt").write_text("\n")
    with pytest.raises(ConfigError, match="no images and no texts"):
        gather(recipe, [tmp_path / "few.txt"], images=True)
    with pytest.raises(ConfigError, match="no such file"):
        gather(recipe, [tmp_path / "none"], images=True)


def test_scaled_decoding_of_large_photographs_keeps_the_vector() -> None:
    from vlmsearch.building.torch import load_reference

    folder = ENGINES / "demo-clip/checkpoint"
    checkpoint = load_checkpoint(folder)
    assert checkpoint.preprocess is not None
    pictures = []
    for seed in range(8):
        file = BytesIO()
        make_scene(seed).draw(1024).save(file, "JPEG", quality=92)
        pictures.append(file.getvalue())
    assert isinstance(open_image(pictures[0], at_least=128), Image.Image)
    model, reference = export(checkpoint, "image"), load_reference(folder)
    checks = verify_images(model, folder, checkpoint.preprocess, pictures, reference, GATES)
    assert all(check.passed for check in checks), checks
