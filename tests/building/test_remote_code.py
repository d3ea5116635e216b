"""Checkpoints bring data and no program; names are the hub's, folders are written as paths."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from io import StringIO
from pathlib import Path

import pytest

from tests.support.checkpoints import make_bert
from tests.support.paths import ENGINES
from vlmsearch import ConfigError
from vlmsearch.encoders.base import Encoder
from vlmsearch.errors import ModelUnavailableError
from vlmsearch.generators.base import Generator
from vlmsearch.registry import open_encoder, open_generator
from vlmsearch.triton.repository.transformers import LlmOptions, write_repository

PROGRAM = 'from pathlib import Path\nPath(__file__).with_name("RAN").touch()\nPath("RAN").touch()\n'


def with_program(folder: Path, kinds: dict[str, str], *, tokenizer: bool) -> Path:
    """A checkpoint that brings a program of its own for some of transformers' automatic classes."""
    (folder / "theirs.py").write_text(PROGRAM)
    for file, mapping in (("config.json", kinds), ("tokenizer_config.json", {"AutoTokenizer": [None, "theirs.Tok"]})):
        if file == "config.json" or tokenizer:
            data = json.loads((folder / file).read_text()) | {"auto_map": mapping}
            if file == "config.json":
                data["model_type"] = "theirs" if "AutoConfig" in kinds else data["model_type"]
            else:
                data["tokenizer_class"] = "TheirTokenizer"
            (folder / file).write_text(json.dumps(data))
    return folder


def gpt2(folder: Path, *, tokenizer: bool) -> Path:
    shutil.copytree(ENGINES / "demo-gpt2" / "bundle", folder)
    kinds = {} if tokenizer else {"AutoConfig": "theirs.Conf", "AutoModelForCausalLM": "theirs.Model"}
    return with_program(folder, kinds, tokenizer=tokenizer)


def bert(folder: Path, *, tokenizer: bool) -> Path:
    make_bert(folder)
    return with_program(folder, {} if tokenizer else {"AutoModel": "theirs.Model"}, tokenizer=tokenizer)


_OPENED = [
    pytest.param(gpt2, lambda: open_generator("transformers:./theirs"), id="gpt2"),
    pytest.param(bert, lambda: open_encoder("torch:./theirs"), id="bert"),
]


@pytest.mark.parametrize("tokenizer", [False, True])
@pytest.mark.parametrize(("make", "opens"), _OPENED)
def test_the_program_of_a_checkpoint_is_not_run_even_when_told_so(
    make: Callable[..., Path],
    opens: Callable[[], Encoder | Generator],
    tokenizer: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    make(tmp_path / "theirs", tokenizer=tokenizer)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.stdin", StringIO("y\n" * 4))
    if make is gpt2 and not tokenizer:  # what its own program alone can read
        with pytest.raises(ModelUnavailableError, match="transformers cannot load"):
            opens()
    else:
        opens().close()
    assert not list(tmp_path.rglob("RAN"))
    assert "[y/N]" not in "".join(capfd.readouterr())


@pytest.mark.parametrize("name", ["gpt2", "models/mine"])
def test_a_name_is_never_a_folder_that_happens_to_be_here(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    shutil.copytree(ENGINES / "demo-gpt2" / "bundle", tmp_path / name)
    message = rf"^{name} is a model of the Hugging Face hub, and there is a folder of that name here: .*\./{name} "
    with pytest.raises(ConfigError, match=message) as caught:
        open_generator(f"transformers:{name}")
    assert "\n" not in str(caught.value)
    with pytest.raises(ConfigError, match=message):
        write_repository(name, tmp_path / "repo", LlmOptions())
    for path in (f"./{name}", str(tmp_path / name)):
        with open_generator(f"transformers:{path}") as generator:
            assert generator.generate("[1] a red star\nQ: where is the star?\nA:")


def test_the_name_of_a_model_that_is_kept_here_is_that_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "demo-gpt2").mkdir()
    open_generator("transformers:demo-gpt2").close()


@pytest.mark.parametrize("path", ["./none", "/none", "../none", "~/none"])
def test_a_path_without_a_folder_is_not_looked_for_on_the_hub(
    path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match="is not a folder with a checkpoint or an engine"):
        open_generator(f"transformers:{path}")
