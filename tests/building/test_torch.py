"""`torch:` is transformers itself, with the fingerprint of the bundles."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.support.checkpoints import make_bert, make_clip, make_recipe
from vlmsearch.demo.scenes import make_scene
from vlmsearch.encoders.onnx import OnnxEncoder
from vlmsearch.errors import BackendError, ConfigError, InvalidBatchError, TextTruncatedWarning
from vlmsearch.models.bundle import find_bundles
from vlmsearch.registry import open_encoder

TEXTS = ["a red star", "", "two large striped circles above a small heart", "a ring and a star " * 60]


def test_it_makes_the_vectors_of_the_demonstration_bundles() -> None:
    with open_encoder("torch:demo") as reference, OnnxEncoder("demo", precision="fp32") as encoder:
        assert reference.fingerprint == encoder.fingerprint
        assert reference.spaces == encoder.spaces
        pictures = [make_scene(i).draw(200) for i in range(6)]
        ours = {"image": encoder.encode_images(pictures), "text": encoder.encode_texts(TEXTS)}
        theirs = {"image": reference.encode_images(pictures), "text": reference.encode_texts(TEXTS)}
    assert set(theirs["text"]) == {"clip", "minilm"}
    for kind in ("image", "text"):
        for space, vectors in ours[kind].items():
            assert (vectors * theirs[kind][space]).sum(axis=1).min() > 0.99999, (kind, space)


def test_its_vectors_are_those_of_a_plain_transformers_program(tmp_path: Path) -> None:
    from transformers import AutoTokenizer, CLIPModel

    from vlmsearch.building.torch import TorchEncoder

    folder = make_clip(tmp_path / "checkpoint")
    model = CLIPModel.from_pretrained(folder)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    with TorchEncoder(str(folder)) as encoder:
        for text in TEXTS[:3]:
            found = model.get_text_features(**tokenizer(text, return_tensors="pt"))
            vector = getattr(found, "pooler_output", found).detach().numpy()[0]
            cosine = encoder.encode_texts([text])["clip"][0] @ vector / np.linalg.norm(vector)
            assert cosine > 0.99999


def test_all_that_cannot_be_used_is_named_at_once(tmp_path: Path) -> None:
    from vlmsearch.building.torch import TorchEncoder

    pictures = [make_scene(i).draw(40) for i in range(3)]
    with TorchEncoder(str(make_clip(tmp_path / "checkpoint")), batch_size=2) as encoder:
        with pytest.raises(InvalidBatchError) as caught:
            encoder.encode_images([b"", pictures[0], pictures[1], b"no image", pictures[2]])
        assert {item: error.code for item, error in caught.value.items.items()} == {0: "empty", 3: "unsupported"}
        assert caught.value.vectors is not None
        np.testing.assert_allclose(caught.value.vectors["clip"], encoder.encode_images(pictures)["clip"], atol=1e-5)
        with pytest.raises(InvalidBatchError) as caught:
            encoder.encode_texts(["\ud83d", "a star", "\udc36"])
        assert list(caught.value.items) == [0, 2]


def test_a_folder_and_a_recipe_name_the_same_model(tmp_path: Path) -> None:
    from vlmsearch.building.torch import TorchEncoder

    folder = make_bert(tmp_path / "tiny-minilm")
    recipe = make_recipe(tmp_path, folder, space="minilm")
    by_folder, by_recipe = TorchEncoder(f"{folder}/"), TorchEncoder(str(recipe))
    assert by_folder.fingerprint == by_recipe.fingerprint
    assert by_folder.fingerprint.startswith("tiny-minilm:")
    renamed = TorchEncoder(str(folder), name="other")
    assert renamed.fingerprint == by_folder.fingerprint.replace("tiny-minilm", "other")


def test_texts_are_cut_as_everywhere(tmp_path: Path) -> None:
    from vlmsearch.building.torch import TorchEncoder

    encoder = TorchEncoder(str(make_bert(tmp_path)))
    text = "a red star " * 20 + "two blue circles on a meadow " * 20
    with pytest.warns(TextTruncatedWarning, match="reads 30"):
        query = encoder.encode_texts([text], role="query")["minilm"]
    document = encoder.encode_texts([text])["minilm"]
    np.testing.assert_array_equal(document, query)
    assert encoder.text_window == 30
    assert encoder.encode_images([]) == {}


def test_what_is_no_checkpoint_is_one_clear_line(tmp_path: Path) -> None:
    from vlmsearch.building.torch import TorchEncoder, load_reference

    with pytest.raises(ConfigError, match="no recipe 'nothing'"):
        TorchEncoder("nothing")
    with pytest.raises(ConfigError, match="cannot be read"):
        TorchEncoder(f"{tmp_path}/")
    with pytest.raises(BackendError, match="transformers cannot load"):
        load_reference(tmp_path)
    with pytest.raises(ConfigError, match="encodes no images"):
        load_reference(make_bert(tmp_path)).images(np.zeros((1, 8, 8, 3), np.uint8))


def test_every_bundle_of_a_profile_is_found() -> None:
    assert [bundle.name for bundle in find_bundles("demo")] == ["demo-clip", "demo-minilm"]
