"""Checkpoints in every format are read; what cannot be exported is refused in one clear line."""

from __future__ import annotations

import base64
import json
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.support.checkpoints import edit_json, make_bert, make_clip
from tests.support.graphs import export
from vlmsearch.building.fetch import checkpoint_folder, text_input
from vlmsearch.building.load import load_checkpoint
from vlmsearch.errors import BackendError, ConfigError, ModelUnavailableError
from vlmsearch.models.recipe import Recipe


def test_every_format_of_weights_is_the_same_checkpoint(tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    from vlmsearch.building.torch import load_reference

    folder = make_clip(tmp_path / "one")
    tensors = {name: tensor.half().float() for name, tensor in load_file(folder / "model.safetensors").items()}
    save_file(tensors, folder / "model.safetensors")
    digest = load_checkpoint(folder).digest()

    half = shutil.copytree(folder, tmp_path / "half")
    save_file({name: tensor.half() for name, tensor in tensors.items()}, half / "model.safetensors")
    parts = shutil.copytree(folder, tmp_path / "parts")
    (parts / "model.safetensors").unlink()
    names, index = sorted(tensors), dict[str, str]()
    for number, chosen in enumerate((names[::2], names[1::2]), start=1):
        file = f"model-{number:05}-of-00002.safetensors"
        save_file({name: tensors[name] for name in chosen}, parts / file)
        index |= dict.fromkeys(chosen, file)
    (parts / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": index}))
    pixels = np.zeros((1, 32, 32, 3), np.uint8)
    expected = load_reference(folder).images(pixels)
    for other in (half, parts):
        assert load_checkpoint(other).digest() == digest
        np.testing.assert_allclose(load_reference(other).images(pixels), expected, atol=1e-6)

    (parts / "model-00002-of-00002.safetensors").unlink()
    with pytest.raises(ModelUnavailableError, match="model-00002-of-00002"):
        load_checkpoint(parts)


def test_pickled_weights_are_read_only_where_a_recipe_asks_for_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch
    from safetensors.torch import load_file

    monkeypatch.setenv("VLMSEARCH_CACHE", str(tmp_path / "cache"))
    folder = make_clip(tmp_path / "one")
    digest = load_checkpoint(folder).digest()
    tensors = load_file(folder / "model.safetensors")
    extra = {"text_model.embeddings.position_ids": torch.arange(32)[None]}
    torch.save(tensors | extra, folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    with pytest.raises(ConfigError, match="which is not read: load it with transformers"):
        load_checkpoint(folder)
    recipe = Recipe("tiny", "MIT", "clip", checkpoint=str(folder), pickled=True)
    assert load_checkpoint(checkpoint_folder(recipe)).digest() == digest
    assert not (folder / "model.safetensors").exists(), "the checkpoint itself is left as it is"


def test_a_pickle_that_is_more_than_tensors_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VLMSEARCH_CACHE", str(tmp_path / "cache"))
    folder = make_clip(tmp_path / "one")
    (folder / "model.safetensors").unlink()
    with (folder / "pytorch_model.bin").open("wb") as file:
        pickle.dump(_Touches(tmp_path / "RAN"), file, protocol=2)
    recipe = Recipe("tiny", "MIT", "clip", checkpoint=str(folder), pickled=True)
    with pytest.raises(ConfigError, match=r"pytorch_model\.bin is damaged"):
        checkpoint_folder(recipe)
    assert not (tmp_path / "RAN").exists()


class _Touches:
    """Makes a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __reduce__(self) -> tuple[Callable[..., object], tuple[Path]]:
        return Path.touch, (self._path,)


def test_bfloat16_weights_are_read(tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    folder = make_clip(tmp_path)
    tensors = load_file(folder / "model.safetensors")
    save_file({name: tensor.bfloat16() for name, tensor in tensors.items()}, folder / "model.safetensors")
    weights = load_checkpoint(folder).weights
    name = "visual_projection.weight"
    np.testing.assert_array_equal(weights[name], tensors[name].bfloat16().float().numpy())


def test_the_digest_is_that_of_all_that_decides_the_vectors(tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    folder = make_clip(tmp_path)
    digests = {load_checkpoint(folder).digest()}
    edit_json(folder / "preprocessor_config.json", resample=2)
    digests.add(load_checkpoint(folder).digest())
    tokenizer = folder / "tokenizer.json"
    tokenizer.write_text(tokenizer.read_text() + "\n")
    digests.add(load_checkpoint(folder).digest())
    tensors = load_file(folder / "model.safetensors")
    tensors["visual_projection.weight"][0, 0] += 1
    save_file(tensors, folder / "model.safetensors")
    digests.add(load_checkpoint(folder).digest())
    assert len(digests) == 4
    assert load_checkpoint(folder).digest() in digests


def _remove_tensor(folder: Path) -> None:
    from safetensors.torch import load_file, save_file

    tensors = load_file(folder / "model.safetensors")
    del tensors["visual_projection.weight"]
    save_file(tensors, folder / "model.safetensors")


def _damage(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


@pytest.mark.parametrize(
    ("spoil", "error", "message"),
    [
        (lambda f: edit_json(f / "config.json", model_type="resnet"), ConfigError, "'resnet'; encoders of "),
        (lambda f: (f / "tokenizer.json").unlink(), ConfigError, "no tokenizer.json"),
        (lambda f: (f / "config.json").unlink(), ModelUnavailableError, "has no config.json"),
        (lambda f: (f / "config.json").write_text("{"), ConfigError, "config.json is damaged"),
        (lambda f: (f / "config.json").write_text("[]"), ConfigError, "of the family None"),
        (lambda f: (f / "model.safetensors").unlink(), ModelUnavailableError, "no weights"),
        (lambda f: _damage(f / "model.safetensors"), ConfigError, "model.safetensors is damaged"),
        (lambda f: edit_json(f / "preprocessor_config.json", image_mean=None), ConfigError, "incomplete or damaged"),
        (lambda f: edit_json(f / "preprocessor_config.json", crop_size=16), ConfigError, "crop_size"),
        (lambda f: edit_json(f / "preprocessor_config.json", resample=0), ConfigError, "resample 0"),
        (_remove_tensor, ConfigError, "visual_projection.weight"),
    ],
)
def test_a_bad_clip_checkpoint_is_one_clear_line(
    tmp_path: Path, spoil: Callable[[Path], object], error: type[Exception], message: str
) -> None:
    folder = make_clip(tmp_path)
    spoil(folder)
    with pytest.raises(error, match=message) as caught:
        export(load_checkpoint(folder), "image")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda f: (f / "modules.json").unlink(), "no modules.json"),
        (lambda f: edit_json(f / "config.json", hidden_act="relu"), "'relu' cannot be exported"),
        (lambda f: edit_json(f / "config.json", position_embedding_type="relative_key"), "absolute positions"),
        (
            lambda f: edit_json(f / "1_Pooling" / "config.json", pooling_mode_max_tokens=True),
            "one of mean, cls",
        ),
        (
            lambda f: edit_json(f / "1_Pooling" / "config.json", pooling_mode_weightedmean_tokens=True),
            "weightedmean_tokens",
        ),
        (
            lambda f: edit_json(f / "1_Pooling" / "config.json", pooling_mode="mean_sqrt_len_tokens"),
            "mean_sqrt_len_tokens",
        ),
        (lambda f: edit_json(f / "1_Pooling" / "config.json", include_prompt=False), "include_prompt"),
        (
            lambda f: (f / "config_sentence_transformers.json").write_text('{"default_prompt_name": "sts"}'),
            "the default prompt 'sts' is not among its prompts",
        ),
        (
            lambda f: (f / "config_sentence_transformers.json").write_text('{"prompts": {"query": 3}}'),
            "prompts are texts by their names, not .*3",
        ),
        (
            lambda f: (f / "config_sentence_transformers.json").write_text('{"prompts": ["query: "]}'),
            "prompts are texts by their names, not ",
        ),
        (
            lambda f: (f / "modules.json").write_text('[{"type": "a.Transformer"}, {"type": "a.CNN", "path": ""}]'),
            "can be exported, not",
        ),
    ],
)
def test_a_bad_bert_checkpoint_is_one_clear_line(tmp_path: Path, spoil: Callable[[Path], object], message: str) -> None:
    folder = make_bert(tmp_path)
    spoil(folder)
    with pytest.raises(ConfigError, match=message) as caught:
        load_checkpoint(folder)
    assert "\n" not in str(caught.value)


def _edit(name: str, **changes: object) -> Callable[[Path], object]:
    """What changes settings of the text tower of a CLIP."""

    def spoil(folder: Path) -> None:
        path = folder / name
        data = json.loads(path.read_text())
        data.get("text_config", data).update(changes)
        path.write_text(json.dumps(data))

    return spoil


@pytest.mark.parametrize(
    "spoil",
    [
        _edit("config.json", hidden_size=10**12),
        _edit("config.json", hidden_size=2**70),
        _edit("config.json", hidden_size=-1),
        _edit("config.json", hidden_size="../../x\x1b[31m"),
        _edit("config.json", num_attention_heads=0),
        _edit("config.json", num_hidden_layers=10**12),
        _edit("config.json", num_hidden_layers=1.5),
        _edit("config.json", max_position_embeddings=10**12),
        _edit("config.json", max_position_embeddings=[]),
        _edit("config.json", layer_norm_eps=float("nan")),
        _edit("config.json", pad_token_id={}),
        _edit("config.json", eos_token_id={}),
        _edit("preprocessor_config.json", image_mean=["a", "b", "c"]),
        _edit("preprocessor_config.json", size=[1] * 10**5),
        lambda f: edit_json(f / "config.json", vision_config={"image_size": 10**12}),
        lambda f: edit_json(f / "config.json", vision_config={"patch_size": 0}),
        lambda f: (f / "config.json").write_text('{"a":' * 60_000 + "1" + "}" * 60_000),
        lambda f: (f / "config.json").write_text('{"model_type": ' + "9" * 5000 + "}"),
    ],
)
def test_settings_that_no_model_has_are_one_clear_line(tmp_path: Path, spoil: Callable[[Path], object]) -> None:
    folder = make_clip(tmp_path)
    spoil(folder)
    with pytest.raises(ConfigError) as caught:
        [export(checkpoint, tower) for checkpoint in [load_checkpoint(folder)] for tower in checkpoint.towers]
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 500


def test_whole_numbers_are_numbers_too(tmp_path: Path) -> None:
    folder = make_clip(tmp_path)
    _edit("config.json", layer_norm_eps=0)(folder)
    export(load_checkpoint(folder), "text")


def test_settings_do_not_make_transformers_take_memory_that_the_weights_do_not_need(tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    from vlmsearch.building.torch import load_reference

    folder = make_bert(tmp_path)
    tensors = load_file(folder / "model.safetensors")
    del tensors["embeddings.token_type_embeddings.weight"]
    save_file(tensors, folder / "model.safetensors")
    load_reference(folder)
    edit_json(folder / "config.json", type_vocab_size=10**12)
    with pytest.raises(BackendError, match=r"describes 48,000,\d+,\d+,\d+ weights, and its files have"):
        load_reference(folder)


def _charsmap(written: str) -> str:
    """Rules of SentencePiece that write a text; no letter leads to it."""
    return base64.b64encode((4).to_bytes(4, "little") + bytes(4) + written.encode() + b"\0").decode()


@pytest.mark.parametrize(
    "rules",
    [
        [{"type": "Replace", "pattern": {"String": "a"}, "content": "a" * 100}] * 4,
        [{"type": "Replace", "pattern": {"Regex": ""}, "content": "a" * 1000}],
        [{"type": "Prepend", "prepend": "a" * 1000}],
        [{"type": "Precompiled", "precompiled_charsmap": _charsmap("a" * 1000)}],
    ],
)
def test_a_tokenizer_that_makes_texts_far_longer_is_refused(tmp_path: Path, rules: list[dict[str, object]]) -> None:
    folder = make_bert(tmp_path)
    edit_json(folder / "tokenizer.json", normalizer={"type": "Sequence", "normalizers": rules})
    with pytest.raises(ConfigError, match=r"makes texts [\d,]+ times longer; 256 is the most"):
        text_input(load_checkpoint(folder))


def test_a_damaged_tokenizer_is_one_clear_line(tmp_path: Path) -> None:
    folder = make_bert(tmp_path)
    (folder / "tokenizer.json").write_text("{}")
    with pytest.raises(ConfigError, match=r"the tokenizer of .* is damaged"):
        text_input(load_checkpoint(folder))
