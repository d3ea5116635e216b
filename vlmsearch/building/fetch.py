"""Where a checkpoint comes from, and what it is in a bundle's terms."""

from __future__ import annotations

import hashlib
import itertools
from pathlib import Path
from typing import cast

from tokenizers import Tokenizer

from vlmsearch.building.checkpoint import Checkpoint
from vlmsearch.building.complete import completed
from vlmsearch.building.hub import SETTINGS, fetch, hub_cache, kept_folder, look_up
from vlmsearch.building.load import check_family, load_checkpoint
from vlmsearch.building.quantize import Report, silent
from vlmsearch.building.room import check_disk
from vlmsearch.building.weights import weight_files
from vlmsearch.errors import ConfigError, ModelUnavailableError
from vlmsearch.models.bundle import Bundle, BundleFile, TextInput, TextPrompt
from vlmsearch.models.recipe import Prompts, Recipe, RerankerRecipe, built_by
from vlmsearch.models.tokenizers import no_panics, read_tokenizer
from vlmsearch.types import Space

_AFTER_PROMPTS = ("", "a", "The", "7", "(", "é", "日")
"""Beginnings of texts, which the tokens of a prompt must not depend on."""


def checkpoint_folder(recipe: Recipe | RerankerRecipe, report: Report = silent) -> Path:
    """Return the folder with a recipe's checkpoint, which is downloaded where it is missing.

    ModelUnavailableError where the hub cannot be reached or has no such revision: it says what to run instead, and what
    works offline. So it is where the disk has no room. ConfigError where the repository has pickled weights alone,
    which no recipe asked for.
    """
    if recipe.checkpoint:
        return completed(recipe.folder / recipe.checkpoint, recipe)
    return completed(_downloaded(recipe, report), recipe)


def _downloaded(recipe: Recipe | RerankerRecipe, report: Report) -> Path:
    """Return the folder with a model's settings and weights."""
    kept = kept_folder(recipe.source, recipe.revision)
    if kept and _is_whole(kept):
        return kept
    model = look_up(recipe.source, recipe.revision, advice(recipe.name))
    model.check_weights(pickled=isinstance(recipe, Recipe) and recipe.pickled)
    settings = fetch(model, SETTINGS, advice(recipe.name), report)
    check_family(settings, recipe.source)  # before its weights are downloaded
    download = model.missing_bytes()
    parameters = recipe.parameters if isinstance(recipe, Recipe) else 0
    check_disk(recipe.name, download=download, weights=4 * parameters or download, hub=hub_cache())
    return fetch(model, model.weights, advice(recipe.name), report)


def advice(name: str) -> str:
    """Return what to do without the hub, in place of building ``name`` from it."""
    return f"With a copy of the checkpoint run `vlmsearch build {name} --from DIR`; onnx:demo works offline"


def _is_whole(folder: Path) -> bool:
    """Return whether a copy on this machine has its weights."""
    try:
        return bool(weight_files(folder))
    except (ConfigError, ModelUnavailableError):
        return False


def checkpoint_of(bundle: Bundle, given: Path | None = None) -> Path:
    """Return the folder of a bundle's checkpoint, ``given`` or its recipe's.

    ConfigError if it was built from another.
    """
    recipe = built_by(bundle)
    if given is None and recipe is None:
        raise ConfigError(f"{bundle.name} has no recipe: give the folder that it was built from")
    folder = given or checkpoint_folder(cast("Recipe", recipe))
    prompts = Prompts(bundle.text.query.text, bundle.text.document.text)
    if fingerprint(load_checkpoint(folder, prompts, bundle.text.max_tokens), bundle.name) != bundle.fingerprint:
        raise ConfigError(f"{folder} is not what {bundle.name} was built from")
    return folder


def fingerprint(checkpoint: Checkpoint, name: str) -> str:
    """Return what every runtime of a model carries: its name, and a digest of all that decides its vectors."""
    return f"{name}:{checkpoint.digest()[:12]}"


def text_input(checkpoint: Checkpoint) -> TextInput:
    """Return how the text tower takes its tokens, from the checkpoint's own tokenizer."""
    tokenizer = read_tokenizer((checkpoint.folder / "tokenizer.json").read_bytes(), str(checkpoint.folder))
    with no_panics(str(checkpoint.folder)):
        tokenizer.no_truncation()
        padding = tokenizer.padding
        tokenizer.no_padding()
        bare = tokenizer.encode("a", add_special_tokens=False).ids
        full = tokenizer.encode("a", add_special_tokens=True).ids
        query, document = (_prompt(tokenizer, text) for text in (checkpoint.prompts.query, checkpoint.prompts.document))
    places = [i for i in range(len(full)) if full[i : i + len(bare)] == bare]
    if not bare or not places:
        raise ConfigError(f"{checkpoint.folder / 'tokenizer.json'}: its special tokens do not surround the text")
    start, stop = places[0], places[0] + len(bare)
    pad = padding["pad_id"] if padding else checkpoint.pad
    prefix, suffix = tuple(full[:start]), tuple(full[stop:])
    lower = checkpoint.lower
    return TextInput(checkpoint.max_tokens, prefix, suffix, int(pad), checkpoint.fill, query, document, lower)


def _prompt(tokenizer: Tokenizer, text: str) -> TextPrompt:
    """Return a prompt, with the tokens that it has before whatever text.

    Those at its end may depend on the text: a byte-level BPE has the space after "query:" in the next word's token.
    """
    if not text:
        return TextPrompt()
    rows = [tokenizer.encode(text + after, add_special_tokens=False).ids for after in _AFTER_PROMPTS]
    same = (ids[0] for ids in itertools.takewhile(lambda ids: len(set(ids)) == 1, zip(*rows)))
    return TextPrompt(text, tuple(same))


def as_bundle(checkpoint: Checkpoint, recipe: Recipe) -> Bundle:
    """Return the checkpoint's own folder as a bundle without models: all that an encoder of another runtime needs."""
    tokenizer = (checkpoint.folder / "tokenizer.json").read_bytes()
    return Bundle(
        folder=checkpoint.folder,
        name=recipe.name,
        source=recipe.source,
        revision=recipe.revision,
        licence=recipe.licence,
        fingerprint=fingerprint(checkpoint, recipe.name),
        space=Space(recipe.space, checkpoint.dim, frozenset(checkpoint.towers)),
        dims=recipe.dims,
        preprocess=checkpoint.preprocess,
        text=text_input(checkpoint),
        files={"tokenizer.json": BundleFile(hashlib.sha256(tokenizer).hexdigest(), len(tokenizer))},
        relevance={},
        quantisation={},
        forced=(),
        measured={},
        logits=checkpoint.logits,
    )
