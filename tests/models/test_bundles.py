"""Descriptions of models from elsewhere: all of one is checked, and an index opens none by a path."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
import PIL.Image
import pytest
from click.testing import CliRunner
from onnx import external_data_helper
from vlmsearch_mocks import MockEncoder

from tests.support.cli import assert_one_line, run
from tests.support.paths import ENGINES
from vlmsearch import ConfigError, Document, ModelUnavailableError, Pipeline
from vlmsearch.cli import cli
from vlmsearch.encoders.onnx import OnnxEncoder
from vlmsearch.generators.text import token_counter
from vlmsearch.models.bundle import DamagedBundleWarning, built_bundles, find_bundles, open_bundle
from vlmsearch.models.session import OnnxSession, Place
from vlmsearch.registry import open_encoder, open_generator, open_store
from vlmsearch.tensorrt.builder.graph import engine_graph

Change = Callable[[dict[str, Any]], object]


def copy(name: str, folder: Path, change: Change = dict) -> Path:
    """A shipped bundle somewhere else, with another description."""
    shutil.copytree(ENGINES / name / "bundle", folder)
    place = folder / ("generator.json" if name == "demo-gpt2" else "bundle.json")
    data = json.loads(place.read_text())
    change(data)
    place.write_text(json.dumps(data))
    return folder


def put(*path: str, value: object) -> Change:
    """What sets a value in a description."""

    def change(data: dict[str, Any]) -> None:
        for key in path[:-1]:
            data = data[key]
        data[path[-1]] = value

    return change


SPOILT = [
    (("name",), "../../../escaped"),
    (("name",), "a/b"),
    (("name",), ".."),
    (("name",), ""),
    (("name",), "a+b"),
    (("name",), 7),
    (("name",), "x" * 101),
    (("space",), "../x"),
    (("fingerprint",), "demo-minilm:da3c33b513c2"),
    (("fingerprint",), "demo-clip:da3c+demo-minilm:1"),
    (("source",), "a\x1b[31mb"),
    (("dim",), "64"),
    (("dim",), 0),
    (("dim",), 64.0),
    (("dim",), True),
    (("dim",), 10**15),
    (("image", "size"), 10**9),
    (("image", "size"), None),
    (("image", "crop"), 1),
    (("image", "interpolation"), "nearest"),
    (("image", "interpolation"), ["bicubic"]),
    (("image",), []),
    (("text", "max_tokens"), 2),
    (("text", "max_tokens"), 10**12),
    (("text", "prefix"), [-1]),
    (("text", "prefix"), [2**31]),
    (("text", "prefix"), "872"),
    (("text", "suffix"), [1.5]),
    (("text", "pad"), None),
    (("text",), None),
    (("files", "../text.onnx"), {"sha256": "0" * 64, "size": 1}),
    (("files", "/etc/passwd"), {"sha256": "0" * 64, "size": 1}),
    (("files", "text.onnx", "sha256"), "0"),
    (("files", "text.onnx", "size"), -1),
    (("files", "text.onnx"), 3),
    (("relevance", "sound"), {}),
    (("relevance", "text"), 0.4),
    (("relevance", "text", "cosine"), float("nan")),
    (("relevance", "text", "bias"), "0.4"),
    (("quantisation", "text.int8.onnx"), 4),
    (("forced",), [1]),
    (("measured",), None),
]


@pytest.mark.parametrize(("path", "value"), SPOILT, ids=lambda value: str(value)[:30])
def test_a_description_that_nobody_built_is_one_line(path: tuple[str, ...], value: object, tmp_path: Path) -> None:
    folder = copy("demo-clip", tmp_path / "b", put(*path, value=value))
    with pytest.raises(ConfigError, match=r"bundle\.json is damaged: .*; build it again$") as caught:
        open_bundle(folder)
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize(
    "text",
    ["[" * 100_000, f'{{"format": 1, "dim": 1{"0" * 5000}}}', "[]", '{"format": "1"}', "3", "", "\x00"],
    ids=lambda text: text[:20],
)
def test_what_is_no_description_is_one_line(text: str, tmp_path: Path) -> None:
    folder = copy("demo-clip", tmp_path / "b")
    (folder / "bundle.json").write_text(text)
    with pytest.raises((ConfigError, ModelUnavailableError), match=r"bundle\.json is .*build it again") as caught:
        open_bundle(folder)
    assert str(caught.value).isprintable()


def test_a_repository_of_a_bundle_stays_in_its_folder(tmp_path: Path) -> None:
    escape = put("name", value="../../../../../escaped")
    copy("demo-minilm", tmp_path / "b", escape)
    done = run("triton", "repo", "--models", "./b", "--out", "deep/er/repo", cwd=tmp_path)
    assert_one_line(done, "b/bundle.json is damaged: name has the form")
    assert not list(tmp_path.rglob("escaped"))


def test_two_models_of_one_name_are_served_by_no_repository(tmp_path: Path) -> None:
    def other(data: dict[str, Any]) -> None:
        data["space"] = "other"

    copy("demo-minilm", tmp_path / "b", other)
    done = run("triton", "repo", "--models", "demo-minilm,./b", "--out", "repo", cwd=tmp_path)
    assert_one_line(done, "these models cannot work together: demo-minilm, demo-minilm")


def test_no_bundle_passes_for_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VLMSEARCH_CACHE", str(tmp_path))
    copy("demo-minilm", tmp_path / "bundles" / "mine")
    with pytest.raises(ConfigError, match="holds a bundle called demo-minilm, which mine is not"):
        find_bundles("mine")
    with pytest.warns(DamagedBundleWarning, match="holds a bundle called demo-minilm"):
        found = {bundle.name: bundle.folder for bundle in built_bundles()}
    assert found["demo-minilm"] == ENGINES / "demo-minilm" / "bundle"


def test_vectors_of_another_length_than_was_said_are_one_line(tmp_path: Path) -> None:
    for name in ("demo-clip", "demo-minilm"):
        copy(name, tmp_path / name, lambda data: data.update(dim=65_536, domain=""))
        with (
            OnnxEncoder(f"{tmp_path}/{name}") as encoder,
            pytest.raises(ConfigError, match=f"{name} says that its vectors have 65536 numbers, and its model gives"),
        ):
            encoder.encode_texts(["a red star"])
    with OnnxEncoder(f"{tmp_path}/demo-clip") as encoder, pytest.raises(ConfigError, match="65536 numbers"):
        encoder.encode_images([PIL.Image.new("RGB", (8, 8))])


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("layers",), "6"),
        (("layers",), 10**9),
        (("heads",), 0),
        (("size",), 10**12),
        (("context",), -1),
        (("ends",), 0),
        (("files",), {}),
        (("files", "../model.onnx"), "0" * 64),
        (("files", "model.onnx"), None),
    ],
    ids=str,
)
def test_a_description_of_a_language_model_is_checked_too(path: tuple[str, ...], value: object, tmp_path: Path) -> None:
    copy("demo-gpt2", tmp_path / "b", put(*path, value=value))
    with pytest.raises(ConfigError, match=r"generator\.json is damaged: .*; build it again$"):
        open_generator(f"onnx:{tmp_path}/b")


# ---- what an index says


def make_index(folder: Path, fingerprint: str) -> None:
    encoder = MockEncoder()
    encoder.fingerprint = fingerprint
    with Pipeline(encoder, open_store(f"sqlite:{folder / 'index'}")) as pipeline:
        pipeline.add([Document("a", text="a red star")])


PATHS = ["./evil", "{}/evil", "~/evil", "./evil?threads=1", "..", "demo", "demo-clip?threads=1"]


@pytest.mark.parametrize("fingerprint", PATHS)
def test_an_index_names_no_folder_to_open(fingerprint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    copy("demo-clip", tmp_path / "evil")
    make_index(tmp_path, f"{fingerprint.format(tmp_path)}:da3c33b513c2")
    for command in (["search", "star"], ["ask", "star?"], ["index", __file__]):
        done = CliRunner().invoke(cli, [*command, "--store", "sqlite:index"])
        assert isinstance(done.exception, ConfigError)
        assert str(done.exception).endswith(":da3c33b513c2, which has no name here: give its URL with --encoder")


def test_an_index_of_a_folder_asks_for_it_and_takes_it(tmp_path: Path) -> None:
    def other(data: dict[str, Any]) -> None:
        data |= {"name": "mine", "fingerprint": "mine:da3c33b513c2"}

    copy("demo-clip", tmp_path / "elsewhere", other)
    with Pipeline(open_encoder(f"onnx:{tmp_path}/elsewhere"), open_store(f"sqlite:{tmp_path}/index")) as pipeline:
        pipeline.add([Document("a", text="a red star")])
    at = ("search", "star", "--all", "--store", "sqlite:index")
    assert_one_line(run(*at, cwd=tmp_path), "which has no name here: give its URL with --encoder")
    assert run(*at, "--encoder", "onnx:./elsewhere", cwd=tmp_path).stdout.endswith("\ta red star\n")
    shutil.copytree(tmp_path / "elsewhere", tmp_path / "cache" / "bundles" / "mine")
    assert run(*at, cwd=tmp_path, VLMSEARCH_CACHE=str(tmp_path / "cache")).stdout.endswith("\ta red star\n")


# ---- what lies in a bundle's files


def replace(folder: Path, name: str, data: bytes) -> None:
    """Put another file into a bundle, with its description."""
    (folder / name).write_bytes(data)
    found = json.loads((folder / "bundle.json").read_text())
    found["files"][name] = {"sha256": hashlib.sha256(data).hexdigest(), "size": len(data)}
    (folder / "bundle.json").write_text(json.dumps(found))


def test_a_model_reads_no_file_of_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = copy("demo-minilm", tmp_path / "b")
    model = onnx.load(folder / "text.onnx")
    largest = max(model.graph.initializer, key=lambda value: len(value.raw_data))
    (tmp_path / "weights.bin").write_bytes(largest.raw_data)
    external_data_helper.set_external_data(largest, "weights.bin")
    largest.ClearField("raw_data")
    replace(folder, "text.onnx", model.SerializeToString())
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match="reads its weights from other files, which no bundle does"):
        open_encoder("onnx:./b?precision=fp32").encode_texts(["a red star"])
    data = (folder / "text.onnx").read_bytes()
    with pytest.raises(ConfigError, match="reads its weights from other files, which no bundle does"):
        engine_graph(data, {}, [], spelled_out=True)
    with pytest.raises(ConfigError, match=r"^b reads its weights from other files, which no bundle does$"):
        OnnxSession(data, Place(1), "b")


SPLIT = {"type": "Split", "pattern": {"Regex": "(a+)+$"}, "behavior": "Isolated", "invert": False}
HARD = "a" * 60 + "b"


def test_a_tokenizer_that_gives_up_on_a_text_is_one_line(tmp_path: Path) -> None:
    for name, file in (("demo-minilm", "b"), ("demo-gpt2", "g")):
        folder = copy(name, tmp_path / file)
        data = json.loads((folder / "tokenizer.json").read_text()) | {"pre_tokenizer": SPLIT, "normalizer": None}
        raw = json.dumps(data).encode()
        (folder / "tokenizer.json").write_bytes(raw)
        if name == "demo-minilm":
            replace(folder, "tokenizer.json", raw)
        else:
            description = json.loads((folder / "generator.json").read_text())
            description["files"]["tokenizer.json"] = hashlib.sha256(raw).hexdigest()
            (folder / "generator.json").write_text(json.dumps(description))
    message = "^the tokenizer of .* cannot be used: .*retry-limit"
    with open_encoder(f"onnx:{tmp_path}/b") as encoder, pytest.raises(ConfigError, match=message):
        encoder.encode_texts([HARD])
    for url in (f"onnx:{tmp_path}/g", f"transformers:{tmp_path}/g"):
        with open_generator(url) as generator, pytest.raises(ConfigError, match=message):
            generator.generate(HARD)
    with pytest.raises(ConfigError, match=message):
        token_counter(tmp_path / "g")(HARD)


def test_a_tokenizer_with_ids_that_no_model_has_is_one_line(tmp_path: Path) -> None:
    copy("demo-minilm", tmp_path / "b")
    data = json.loads((tmp_path / "b" / "tokenizer.json").read_text())
    data["model"]["vocab"] = {word: 2**32 - 1 - number for word, number in data["model"]["vocab"].items()}
    replace(tmp_path / "b", "tokenizer.json", json.dumps(data).encode())
    with (
        open_encoder(f"onnx:{tmp_path}/b") as encoder,
        pytest.raises(ConfigError, match="token ids above 2,147,483,647"),
    ):
        encoder.encode_texts(["a red star"])


@pytest.mark.parametrize("data", [b"", b"\xff", b"{}", b'{"pre_tokenizer": {"type": "Split"}}'])
def test_a_tokenizer_that_is_none_is_one_line(data: bytes, tmp_path: Path) -> None:
    replace(copy("demo-minilm", tmp_path / "b"), "tokenizer.json", data)
    with pytest.raises(ConfigError, match=r"^the tokenizer of .* is damaged: "):
        open_encoder(f"onnx:{tmp_path}/b")
