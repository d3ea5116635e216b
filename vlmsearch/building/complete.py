"""What a repository lacks, made: tokenizer.json, the settings of pooling, weights as safetensors.

Everything that reads a checkpoint, sentence-transformers too, then finds it in the form that it reads anyway.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from pathlib import Path

from tokenizers import Tokenizer

from vlmsearch._util.extras import install_command
from vlmsearch._util.files import folder_in_the_making, publish
from vlmsearch.building.weights import read_json, unpickled
from vlmsearch.errors import ConfigError, MissingDependencyError, one_line
from vlmsearch.models.bundle import cache_folder
from vlmsearch.models.recipe import Recipe, RerankerRecipe

_MODES = {"mean": "mean_tokens", "cls": "cls_token"}
_SENTENCEPIECE = ("sentencepiece.bpe.model", "spiece.model", "tokenizer.model")
_MIN_SHARE = 0.9
"""Of the tokens that a model knows, how many its vocabulary must have: models are padded to round numbers."""


def completed(folder: Path, recipe: Recipe | RerankerRecipe) -> Path:
    """Return the checkpoint in ``folder``, or a complete one in the cache.

    That has what the folder lacks, and links to the rest.
    """
    made: dict[str, Callable[[Path], object]] = {}
    if not (folder / "tokenizer.json").is_file():
        made["tokenizer.json"] = lambda path: path.write_text(_converted(folder), encoding="utf-8")
    digest = hashlib.sha256(recipe.revision.encode())
    if isinstance(recipe, Recipe):
        if recipe.pickled and not (folder / "model.safetensors").is_file():
            made["model.safetensors"] = lambda path: _save(folder, path)
        for name, text in _settings(folder, recipe).items():
            digest.update(f"{name}{text}".encode())
            made[name] = partial(Path.write_text, data=text, encoding="utf-8")
    if not made:
        return folder
    digest.update(" ".join(sorted(made)).encode())
    target = cache_folder() / "checkpoints" / f"{recipe.name}-{digest.hexdigest()[:12]}"
    if target.is_dir():
        return target
    with folder_in_the_making(target) as making:
        for path in folder.rglob("*"):
            place = making / path.relative_to(folder)
            if path.is_file() and path.relative_to(folder).as_posix() not in made and path.suffix != ".bin":
                place.parent.mkdir(parents=True, exist_ok=True)
                _link(path.resolve(), place)
        for file, make in made.items():
            (making / file).parent.mkdir(parents=True, exist_ok=True)
            make(making / file)
        publish(making, target)
    return target


def _settings(folder: Path, recipe: Recipe) -> dict[str, str]:
    """Return the files that say what the recipe adds to the repository's own settings."""
    files: dict[str, str] = {}
    if recipe.pooling:
        if (folder / "modules.json").is_file():
            raise ConfigError(
                f"{recipe.source or folder} says itself how tokens are pooled (modules.json): leave out `pooling`"
            )
        width = read_json(folder / "config.json").get("hidden_size")
        kinds = ("Transformer", "Pooling", "Normalize")
        paths = ("", "1_Pooling", "2_Normalize")
        modules = [
            {"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{kind}"}
            for i, (kind, path) in enumerate(zip(kinds, paths))
        ]
        modes = {f"pooling_mode_{mode}": name == recipe.pooling for name, mode in _MODES.items()}
        files["modules.json"] = json.dumps(modules)
        files["1_Pooling/config.json"] = json.dumps({"word_embedding_dimension": width, **modes})
    return files


def _converted(folder: Path) -> str:
    """tokenizer.json, which transformers makes from the files of a slow tokenizer."""
    try:
        import transformers
    except ImportError as exc:
        raise MissingDependencyError(
            f"{folder} has no tokenizer.json, which transformers makes of its other files: {install_command('build')}"
        ) from exc
    is_sentencepiece = any((folder / name).is_file() for name in _SENTENCEPIECE)
    lacking = [name for name in ("sentencepiece", "google.protobuf") if find_spec(name) is None]
    if lacking and is_sentencepiece:
        needed = " ".join(name.removeprefix("google.") for name in lacking)
        raise MissingDependencyError(
            f"{folder} has no tokenizer.json, and making it from a SentencePiece model needs {needed}: "
            f"pip install {needed}"
        )
    try:
        made: Tokenizer = transformers.AutoTokenizer.from_pretrained(folder, trust_remote_code=False).backend_tokenizer
    except Exception as exc:
        mend = "; sentencepiece and protobuf may be of versions that do not fit together" if is_sentencepiece else ""
        raise ConfigError(f"{folder} has no tokenizer.json, and none can be made: {one_line(exc)}{mend}") from exc
    config = read_json(folder / "config.json")
    words = (config.get("text_config") or config).get("vocab_size", 0)
    if made.get_vocab_size() < _MIN_SHARE * words:  # transformers makes an empty one where it finds no vocabulary
        raise ConfigError(
            f"{folder} has no tokenizer.json, and none can be made: its other files have {made.get_vocab_size():,} "
            f"tokens, and the model knows {words:,}"
        )
    return str(made.to_str())


def _save(folder: Path, path: Path) -> None:
    """Save what PyTorch's own files hold as safetensors."""
    from safetensors.torch import save_file

    tensors = {name: tensor.contiguous().clone() for name, tensor in unpickled(folder).items()}
    save_file(tensors, path, metadata={"format": "pt"})


def _link(source: Path, target: Path) -> None:
    """Make a link, or a copy where links cannot be made."""
    try:
        os.symlink(source, target)
    except OSError:
        shutil.copyfile(source, target)
