"""A recipe for a model that has none: read from its repository's own files."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

from vlmsearch._util.files import expand_home, is_path
from vlmsearch.building.checkpoint import Checkpoint
from vlmsearch.building.fetch import advice, checkpoint_folder
from vlmsearch.building.hub import SETTINGS, fetch, keep_reference, look_up, model_card
from vlmsearch.building.load import check_family, is_cross_encoder, load_checkpoint, load_cross_encoder
from vlmsearch.building.quantize import Report, silent
from vlmsearch.building.weights import is_checkpoint
from vlmsearch.errors import ConfigError
from vlmsearch.models.bundle import BundleKind, bundle_name
from vlmsearch.models.locations import is_hub_name
from vlmsearch.models.recipe import RECIPE, PoolingName, Recipe, RerankerRecipe, Shapes, find_any_recipe

_LICENCES = {"apache-2.0": "Apache-2.0", "mit": "MIT", "bsd-3-clause": "BSD-3-Clause", "bsd-2-clause": "BSD-2-Clause"}
_LANGUAGE = re.compile(r"[a-z]{2,3}|multilingual")
_USUAL_TOKENS = 512
"""More than that is read at once only where somebody asks for it in a recipe: attention costs the square of it."""
_NOT_PLAIN = re.compile(r"[^A-Za-z0-9._-]+")


def find_or_derive(
    recipe: str,
    *,
    revision: str = "",
    pooling: PoolingName = "",
    checkpoint: Path | None = None,
    kind: BundleKind | None = None,
    report: Report = silent,
) -> Recipe | RerankerRecipe:
    """Return the recipe of a name or file, or derive one from the hub's model.

    ``revision`` and ``pooling`` are for a model of the hub; with one of them the recipe is derived anew. See
    `derive_recipe`.
    """
    chosen = bool(revision or pooling)
    if chosen and not (is_hub_name(recipe) or is_path(recipe)):
        raise ConfigError(f"{recipe} has a recipe, which says its revision and pooling: leave them out")
    folder = expand_home(recipe)
    if is_path(recipe) and is_checkpoint(folder) and not (folder / RECIPE).is_file():
        return derive_recipe("", pooling=pooling, checkpoint=folder, kind=kind, report=report)
    known = None if chosen else find_any_recipe(recipe)
    if known is not None:
        return known
    return derive_recipe(recipe, revision=revision, pooling=pooling, checkpoint=checkpoint, kind=kind, report=report)


def derive_recipe(
    source: str,
    *,
    revision: str = "",
    pooling: PoolingName = "",
    checkpoint: Path | None = None,
    kind: BundleKind | None = None,
    report: Report = silent,
) -> Recipe | RerankerRecipe:
    """Derive the recipe of a model of the hub, or of a folder with a checkpoint.

    What cannot be built is found out from the small files, before the weights are downloaded.

    Args:
        source: ``ORG/NAME``, or a folder.
        revision: A branch, tag or commit; by default the main branch. The recipe has the commit.
        pooling: How tokens are pooled, where the repository does not say.
        checkpoint: A copy of the model to read instead of the hub's.
        kind: What is wanted, an encoder or a re-ranker; by default what the model is.
        report: What is told how far a download is.

    Returns:
        The recipe, pinned.

    Raises:
        ConfigError: The model is of a family that is not known, lacks safetensors, or does not say its pooling.
        ModelUnavailableError: The hub cannot be reached or has no such model.
    """
    folder, recipe = _begin(source, revision, checkpoint, report)
    named = source or str(folder)
    family, config = check_family(folder, named)
    is_judge = is_cross_encoder(config)
    if kind and is_judge != (kind == "reranker"):
        raise ConfigError(f"{named} is {'a re-ranker, not an encoder' if is_judge else 'an encoder, not a re-ranker'}")
    card = model_card(folder)
    recipe = dataclasses.replace(recipe, licence=_licence(card), pooling=pooling, family=family)
    if is_judge:
        judge = RerankerRecipe(
            recipe.name, recipe.licence, "reranker",
            source=recipe.source, revision=recipe.revision, checkpoint=recipe.checkpoint,
        )  # fmt: skip
        load_cross_encoder(checkpoint_folder(judge, report))
        return judge
    is_text = "text_config" not in config and family != "open_clip"
    if is_text and not pooling and not (folder / "modules.json").is_file():
        raise ConfigError(
            f"{named} does not say how its tokens are pooled (it has no modules.json): look it up in its README and "
            f"run `vlmsearch build {named} --pooling mean` or cls"
        )
    return _measured(recipe, load_checkpoint(checkpoint_folder(recipe, report)), card)


def _begin(source: str, revision: str, checkpoint: Path | None, report: Report) -> tuple[Path, Recipe]:
    """Return the folder with the small files, and a recipe with the model's source."""
    if checkpoint is not None:
        name = bundle_name(source) if source else _NOT_PLAIN.sub("-", checkpoint.resolve().name)
        return checkpoint, Recipe(name, "", "", checkpoint=str(checkpoint.resolve()))
    model = look_up(source, revision or "main", advice(source))
    model.check_weights()
    recipe = Recipe(bundle_name(source), "", "", source=source, revision=model.revision)
    folder = fetch(model, SETTINGS, advice(source), report)
    keep_reference(model, revision or "main")
    return folder, recipe


def _measured(recipe: Recipe, loaded: Checkpoint, card: dict[str, object]) -> Recipe:
    """Return the recipe with what the checkpoint says of itself."""
    max_tokens = min(loaded.max_tokens, _USUAL_TOKENS)
    return dataclasses.replace(
        recipe,
        max_tokens=max_tokens if max_tokens < loaded.max_tokens else 0,
        space=recipe.family if loaded.image else "sentence",
        languages=_languages(card),
        parameters=sum(loaded.weights[name].size for name in loaded.weights),
        dim=loaded.dim,
        prompts=loaded.prompts,
        shapes=Shapes(text_length=(min(2, max_tokens), min(32, max_tokens), max_tokens)),
    )


def _licence(card: dict[str, object]) -> str:
    given = card.get("license")
    if given == "other":
        given = card.get("license_name")
    if not isinstance(given, str) or not given.isprintable():
        return "not stated"
    return _LICENCES.get(given, given)


def _languages(card: dict[str, object]) -> tuple[str, ...]:
    given = card.get("language")
    listed = [given] if isinstance(given, str) else given if isinstance(given, list) else []
    return tuple(dict.fromkeys(str(code) for code in listed if _LANGUAGE.fullmatch(str(code))))
