"""Models of the hub, by recipes and by names: derived, pinned, completed, built, or refused before a download."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
from huggingface_hub import constants

from tests.support import cli
from tests.support.checkpoints import edit_json, make_bert, make_clip
from tests.support.hub import REVISION, Hub, taken_for_the_real_one
from tests.support.paths import ENGINES
from tests.support.siglip import make_siglip
from tests.support.text_models import TEXT_FAMILIES, TextFamily, make_text_model
from vlmsearch.building import complete, derive
from vlmsearch.building.derive import derive_recipe, find_or_derive
from vlmsearch.building.fetch import checkpoint_folder
from vlmsearch.building.load import load_checkpoint
from vlmsearch.errors import ConfigError, MissingDependencyError, ModelUnavailableError
from vlmsearch.generators.base import GenerationOptions
from vlmsearch.models.bundle import find_bundles, open_bundle
from vlmsearch.models.locations import check_location, split_location
from vlmsearch.models.recipe import Calibration, PairCalibration, Prompts, Recipe, RerankerRecipe, built_by, read_recipe
from vlmsearch.models.reranker import find_reranker
from vlmsearch.registry import open_encoder, open_generator

CARD = "---\nlicense: apache-2.0\nlanguage:\n- en\n- de\ntags:\n- sentence-similarity\n---\n# A small model\n"


FEW = Calibration(images=32, texts=48, held_out=24, relevance_scenes=0)
FEW_PAIRS = PairCalibration(queries=40, held_out=40, candidates=10)


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """Serve a hub whose models get recipes with little calibration."""
    monkeypatch.setattr(derive, "Recipe", partial(Recipe, calibration=FEW))
    monkeypatch.setattr(derive, "RerankerRecipe", partial(RerankerRecipe, calibration=FEW_PAIRS))
    with taken_for_the_real_one(tmp_path, monkeypatch) as server:
        yield server


def put_bert(hub: Hub, folder: Path, source: str = "somebody/tiny-bert") -> Path:
    hub.models[source] = make_bert(folder / source)
    (folder / source / "README.md").write_text(CARD)
    return folder / source


def run(*arguments: str) -> str:
    result = cli.run(*arguments)
    assert result.returncode == 0, result.stderr
    return result.stdout


def pinned(folder: Path, revision: str) -> Path:
    """Write a recipe file for a revision of the small BERT."""
    recipe = folder / "recipe.toml"
    recipe.write_text(
        f'name = "tiny"\nsource = "somebody/tiny-bert"\nrevision = "{revision}"\nlicence = "MIT"\nspace = "minilm"\n'
        "[shapes]\ntext_length = [2, 8, 32]\n[calibration]\ntexts = 48\nheld_out = 24\nrelevance_scenes = 0\n"
        "[gates]\ntext = { overlap = 0.5 }\n"
    )
    return recipe


def test_the_revision_of_a_recipe_is_downloaded_once_and_built(hub: Hub, tmp_path: Path) -> None:
    (put_bert(hub, tmp_path) / "weights.bin.backup").write_bytes(b"not needed")
    recipe = str(pinned(tmp_path, REVISION))
    run("build", recipe)
    bundle = open_bundle(tmp_path / "cache/bundles/tiny")
    assert (bundle.source, bundle.revision) == ("somebody/tiny-bert", REVISION)
    assert f"/somebody/tiny-bert/resolve/{REVISION}/model.safetensors" in hub.asked
    assert not any("backup" in path for path in hub.asked), "only what a model needs is downloaded"
    hub.asked.clear()
    run("build", recipe)
    assert not any("/resolve/" in path for path in hub.asked), "what is in the hub's cache is not downloaded again"


def test_a_revision_that_is_not_there_is_one_clear_line(hub: Hub, tmp_path: Path) -> None:
    put_bert(hub, tmp_path)
    done = cli.run("build", pinned(tmp_path, "f" * 40))
    cli.assert_one_line(done, f"somebody/tiny-bert at {'f' * 12} cannot be downloaded")
    assert done.stdout == ""
    assert "vlmsearch build tiny --from DIR" in done.stderr
    assert not (tmp_path / "cache").exists()


def test_a_language_model_is_downloaded_once_and_needs_no_hub_then(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    source = "somebody/tiny-gpt2"
    hub.models[source] = ENGINES / "demo-gpt2" / "bundle"
    with pytest.raises(ModelUnavailableError, match=f"^{source}-2 .*transformers:demo-gpt2 works offline"):
        open_generator(f"transformers:{source}-2")
    asked = [path for path in hub.asked if f"{source}-2" in path]
    assert asked == [f"/api/models/{source}-2"], "asked once, not for a minute"
    url = f"transformers:{source}?revision={REVISION}"

    def generated(url: str) -> str:
        with open_generator(url) as generator:
            return generator.generate("[1] a red star", GenerationOptions(max_tokens=8))

    first = generated(url)
    assert f"/{source}/resolve/{REVISION}/model.safetensors" in hub.asked
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:1")
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:1")
    assert generated(url) == generated("transformers:demo-gpt2") == first
    assert first
    for is_offline in (False, True):
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", is_offline)
        with pytest.raises(ModelUnavailableError, match=r"^else/gpt2 is not on this machine and cannot be fetched"):
            open_generator("transformers:else/gpt2")


def test_a_name_is_a_recipe_pinned_at_a_commit(hub: Hub, tmp_path: Path) -> None:
    from safetensors.torch import load_file

    put_bert(hub, tmp_path)
    text = run("build", "somebody/tiny-bert", "--show")
    path = tmp_path / "recipe.toml"
    path.write_text(text)
    recipe = read_recipe(path)
    assert (recipe.name, recipe.source) == ("somebody--tiny-bert", "somebody/tiny-bert")
    assert recipe.revision == REVISION, "the branch main, as the commit that it is at"
    assert (recipe.licence, recipe.languages, recipe.family) == ("Apache-2.0", ("en", "de"), "bert")
    weights = load_file(tmp_path / "somebody/tiny-bert/model.safetensors")
    assert recipe.parameters == sum(tensor.numel() for tensor in weights.values() if tensor.is_floating_point())
    assert (recipe.dim, recipe.shapes.text_length) == (48, (2, 32, 32))
    assert not (tmp_path / "cache/bundles").exists(), "--show builds nothing"


def test_what_was_built_by_name_needs_no_hub_and_is_built_again_the_same(hub: Hub, tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    folder = put_bert(hub, tmp_path)
    with open_encoder("onnx:somebody/tiny-bert?precision=fp32") as encoder:
        found = encoder.encode_texts(["a red star", "a blue box"])["sentence"]
        fingerprint = encoder.fingerprint
    (bundle,) = find_bundles("somebody/tiny-bert")
    assert (bundle.source, bundle.revision, bundle.licence) == ("somebody/tiny-bert", REVISION, "Apache-2.0")
    recipe = built_by(bundle)
    assert recipe is not None
    assert (recipe.revision, recipe.shapes.text_length[2]) == (REVISION, 32)
    with open_encoder("torch:somebody/tiny-bert") as reference:
        assert reference.fingerprint == fingerprint
        expected = reference.encode_texts(["a red star", "a blue box"])["sentence"]
    np.testing.assert_allclose(found, expected, atol=1e-5)

    tensors = load_file(folder / "model.safetensors")
    save_file({name: tensor + 1 for name, tensor in tensors.items()}, folder / "model.safetensors")
    hub.asked.clear()
    assert find_or_derive("somebody/tiny-bert") == recipe, "main may have moved: the next build is the same"
    run("build", "somebody/tiny-bert")
    assert find_bundles("somebody/tiny-bert")[0].fingerprint == fingerprint
    assert hub.asked == []
    run("build", "somebody/tiny-bert", "--show", "--revision", "main")
    assert hub.asked, "which asks where the branch is now"


def test_an_image_model_and_a_text_model_work_together(hub: Hub, tmp_path: Path) -> None:
    put_bert(hub, tmp_path)
    hub.models["else/tiny-clip"] = make_clip(tmp_path / "else/tiny-clip")
    location = "else/tiny-clip+somebody/tiny-bert"
    for name in ("else/tiny-clip", "somebody/tiny-bert"):
        run("build", name, "--precision", "fp32", "--force")
    with open_encoder(f"onnx:{location}") as encoder:
        assert {space.name: space.dim for space in encoder.spaces} == {"clip": 32, "sentence": 48}
        assert set(encoder.encode_texts(["a star"])) == {"clip", "sentence"}
    run("triton", "repo", "--models", location, "--out", str(tmp_path / "repo"), "--precision", "fp32")
    assert (tmp_path / "repo" / "clip_image" / "config.pbtxt").is_file()
    table = tmp_path / "texts.jsonl"
    table.write_text('{"id": "one", "text": "a red star"}\n')
    store = f"sqlite:{tmp_path / 'index'}"
    run("index", str(table), "--store", store, "--encoder", f"onnx:{location}")
    assert "\tone\ta red star" in run("search", "a red star", "--store", store, "--all"), "the index names its models"


def test_a_model_that_a_recipe_ships_for_is_that_model() -> None:
    recipe = find_or_derive("sentence-transformers/all-MiniLM-L6-v2")
    assert recipe.name == "all-minilm-l6-v2"
    judge = find_or_derive("cross-encoder/ms-marco-MiniLM-L6-v2")
    assert isinstance(judge, RerankerRecipe)


def _pickled(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (_pickled, r"^somebody/tiny-bert has its weights in PyTorch's pickled format alone.*save_pretrained"),
        (lambda f: (f / "model.safetensors").unlink(), "has no weights that can be read"),
        (lambda f: edit_json(f / "config.json", model_type="qwen3"), "^somebody/tiny-bert is of the family 'qwen3'; "),
        (
            lambda f: edit_json(f / "config.json", model_type="nomic", auto_map={"AutoModel": "org/x--modeling.Net"}),
            r"'nomic' with a program of its own \(modeling\.py\), which is never run; encoders of ",
        ),
        (lambda f: (f / "modules.json").unlink(), "does not say how its tokens are pooled.*--pooling mean"),
    ],
)
def test_what_cannot_be_built_is_one_line_before_its_weights_are_downloaded(
    hub: Hub, tmp_path: Path, spoil: Callable[[Path], object], message: str
) -> None:
    spoil(put_bert(hub, tmp_path))
    with pytest.raises(ConfigError, match=message) as caught:
        find_bundles("somebody/tiny-bert")
    assert "\n" not in str(caught.value)
    assert not any("model.safetensors" in path or ".bin" in path for path in hub.asked)


@pytest.mark.parametrize("listed", ["[]", "{}", '{"weight_map": []}', '{"weight_map": {"a": 5}}'])
def test_a_damaged_index_of_weights_is_one_line_each_time(hub: Hub, tmp_path: Path, listed: str) -> None:
    folder = put_bert(hub, tmp_path)
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors.index.json").write_text(listed)
    for _ in range(2):  # the second time it is on this machine
        with pytest.raises(ConfigError, match=r"model\.safetensors\.index\.json is damaged: its weight_map") as caught:
            derive_recipe("somebody/tiny-bert")
        assert "\n" not in str(caught.value)


def test_a_card_that_is_nested_without_end_says_nothing(hub: Hub, tmp_path: Path) -> None:
    (put_bert(hub, tmp_path) / "README.md").write_text(f"---\nlicense: {'[' * 50_000}\n---\n")
    assert derive_recipe("somebody/tiny-bert").licence == "not stated"


@pytest.mark.parametrize("family", [*TEXT_FAMILIES, "siglip"])
def test_every_family_has_a_recipe_by_its_name(
    hub: Hub, tmp_path: Path, family: TextFamily | Literal["siglip"]
) -> None:
    is_siglip, folder = family == "siglip", tmp_path / "served"
    hub.models["somebody/tiny"] = make_siglip(folder) if family == "siglip" else make_text_model(folder, family)
    recipe = derive_recipe("somebody/tiny")
    assert isinstance(recipe, Recipe)
    space = "siglip" if is_siglip else "sentence"
    assert (recipe.family, recipe.space, recipe.encodes_images) == (family, space, is_siglip)
    assert recipe.revision == REVISION
    assert load_checkpoint(checkpoint_folder(recipe)).dim == recipe.dim


def test_a_name_that_the_hub_does_not_have_is_one_line(hub: Hub) -> None:
    with pytest.raises(ModelUnavailableError, match=r"^no/such cannot be downloaded .*--from DIR"):
        find_bundles("no/such")
    assert hub.asked == ["/api/models/no/such/revision/main"]


@pytest.mark.parametrize("pooling", ["mean", "cls"])
def test_pooling_is_said_where_the_repository_does_not(hub: Hub, tmp_path: Path, pooling: str) -> None:
    from vlmsearch.building.torch import load_reference

    folder = put_bert(hub, tmp_path)
    expected = make_bert(tmp_path / "whole", pooling={"mean": "mean_tokens", "cls": "cls_token"}[pooling])
    (folder / "modules.json").unlink()
    shutil.rmtree(folder / "1_Pooling")
    run("build", "somebody/tiny-bert", "--pooling", pooling, "--precision", "fp32", "--force")
    ids, mask = np.array([[2, 9, 8, 3]], np.int32), np.ones((1, 4), np.int32)
    with open_encoder("onnx:somebody/tiny-bert") as encoder:
        found = encoder.run_texts(encoder.bundles[0], ids, mask)  # type: ignore[attr-defined]
    np.testing.assert_allclose(found, load_reference(expected).texts(ids, mask), atol=1e-5)
    recipe = built_by(find_bundles("somebody/tiny-bert")[0])
    assert recipe is not None
    assert recipe.pooling == pooling
    assert not list((tmp_path / "hub").rglob("modules.json")), "the hub's own cache is left as it is"


def test_a_repository_that_says_its_pooling_is_not_overruled(hub: Hub, tmp_path: Path) -> None:
    put_bert(hub, tmp_path)
    with pytest.raises(ConfigError, match=r"says itself how tokens are pooled \(modules\.json\)"):
        derive_recipe("somebody/tiny-bert", pooling="cls")


def test_tokenizer_json_is_made_from_a_slow_tokenizer(hub: Hub, tmp_path: Path) -> None:
    folder = put_bert(hub, tmp_path)
    fast = json.loads((folder / "tokenizer.json").read_text())
    vocabulary = sorted(fast["model"]["vocab"], key=fast["model"]["vocab"].get)
    (folder / "vocab.txt").write_text("\n".join(vocabulary) + "\n")
    (folder / "tokenizer.json").unlink()
    recipe = derive_recipe("somebody/tiny-bert")
    made = checkpoint_folder(recipe)
    assert json.loads((made / "tokenizer.json").read_text())["model"]["vocab"] == fast["model"]["vocab"]
    assert checkpoint_folder(recipe) == made


def test_a_tokenizer_is_not_made_of_nothing(hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = put_bert(hub, tmp_path)
    (folder / "tokenizer.json").unlink()
    with pytest.raises(ConfigError, match="its other files have 5 tokens, and the model knows"):
        derive_recipe("somebody/tiny-bert")
    (folder / "sentencepiece.bpe.model").write_bytes(b"")
    hub.models["else/tiny-bert"] = folder
    monkeypatch.setattr(complete, "find_spec", lambda _: None)
    with pytest.raises(MissingDependencyError, match=r"pip install sentencepiece protobuf$"):
        derive_recipe("else/tiny-bert")


def test_prompts_are_those_of_the_repository(hub: Hub, tmp_path: Path) -> None:
    folder = put_bert(hub, tmp_path)
    settings = {"prompts": {"query": "query: ", "document": "passage: "}, "default_prompt_name": None}
    (folder / "config_sentence_transformers.json").write_text(json.dumps(settings))
    recipe = derive_recipe("somebody/tiny-bert")
    assert isinstance(recipe, Recipe)
    assert recipe.prompts == Prompts("query: ", "passage: ")
    assert '[prompts]\nquery = "query: "\ndocument = "passage: "\n' in run("build", "somebody/tiny-bert", "--show")


def test_a_build_says_what_prompts_stand_before(hub: Hub, tmp_path: Path) -> None:
    settings = {"prompts": {"query": "query: ", "passage": "passage: "}, "default_prompt_name": "passage"}
    (put_bert(hub, tmp_path) / "config_sentence_transformers.json").write_text(json.dumps(settings))
    told = run("build", "somebody/tiny-bert", "--precision", "fp32")
    assert "prompt 'query': before queries\nprompt 'passage': before no text\n" in told
    assert "\tprompts.cosine\t" in told
    recipe = run("build", "somebody/tiny-bert", "--show").replace(
        'query = "query: "', 'query = ""\ndocument = "passage: "'
    )
    (tmp_path / "own.toml").write_text(recipe)
    told = run("build", str(tmp_path / "own.toml"), "--precision", "fp32")
    assert "prompt 'document': before documents\nproven by: " in told


def test_a_cross_encoder_by_name_is_a_reranker(hub: Hub) -> None:
    hub.models["somebody/judge"] = ENGINES / "demo-reranker" / "checkpoint"
    with pytest.raises(ConfigError, match=r"^somebody/judge is a re-ranker, not an encoder"):
        find_bundles("somebody/judge")
    assert not any("model.safetensors" in path for path in hub.asked)
    run("build", "somebody/judge", "--force")  # it judges drawn scenes, and is measured on passages
    hub.asked.clear()
    judge = find_reranker("somebody/judge")
    assert (judge.name, judge.source, judge.revision) == ("somebody--judge", "somebody/judge", REVISION)
    assert find_or_derive("somebody/judge", kind="reranker").revision == REVISION
    assert hub.asked == []


def test_a_folder_with_a_checkpoint_is_built_too(hub: Hub, tmp_path: Path) -> None:
    make_bert(tmp_path / "here" / "mine")
    recipe = find_or_derive("./mine")
    assert isinstance(recipe, Recipe)
    assert (recipe.name, recipe.source, recipe.dim) == ("mine", "", 48)
    assert checkpoint_folder(recipe) == tmp_path / "here" / "mine"
    assert hub.asked == []


@pytest.mark.parametrize(
    ("location", "message"),
    [("a/b/c", "is not a model of the hub"), ("mine/", "write a folder as ./mine/"), ("here/too", "write ./here/too")],
)
def test_a_folder_is_written_as_a_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, location: str, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "here/too").mkdir(parents=True)
    with pytest.raises(ConfigError, match=message):
        check_location(location)
    with pytest.raises(ConfigError, match=message):
        open_encoder(f"onnx:{location}")


def test_a_plus_joins_models_and_is_part_of_a_folder_that_is_there(tmp_path: Path) -> None:
    (tmp_path / "a+b").mkdir()
    assert split_location(f"{tmp_path}/a+b") == (f"{tmp_path}/a+b",)
    assert split_location("./c+org/d+e") == ("./c", "org/d", "e")
