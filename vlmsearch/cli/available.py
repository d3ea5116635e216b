"""``vlmsearch models --available``: all models with a recipe."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import click

from vlmsearch.cli.common import is_terminal, print_json, print_table

if TYPE_CHECKING:
    from vlmsearch.models.bundle import Bundle
    from vlmsearch.models.recipe import Recipe

Row = dict[str, object]
WIDE = 107
"""Minimum columns of a terminal that shows whole tables."""
_FLOAT_BYTES = 4
_NOTES = """
params: millions of parameters. ImageNet: zero-shot top-1 in per cent. Each figure has its source in --json.
Per second: on the machine that built it. `vlmsearch build MODEL` builds one; any other model of the hub:
`vlmsearch build ORG/NAME`, with --show to see what would be built."""


def is_wide() -> bool:
    """Check whether to show whole tables: on a wide terminal and in a pipe."""
    if not is_terminal():
        return True
    from vlmsearch._util.console import make_console

    return make_console().width >= WIDE


def show_available(*, as_json: bool) -> None:
    """Print the models: tables on a terminal, lines in a pipe, or JSON."""
    rows = available_models()
    if as_json:
        print_json({"available": rows})
        return
    names = ["model", "lang.", "params", "published", "texts/s"]
    if is_wide():
        names[3:4] = ["MB", "dim", "licence", "published", "images/s"]
    for title, modalities in (("images and texts", ["image", "text"]), ("texts", ["text"])):
        lines = [_cells(row) for row in rows if row["modalities"] == modalities]
        print_table(names, lines, left=("model", "licence", "lang.", "published"), title=title, header=False)
    if is_terminal():
        click.echo(_NOTES)


def available_models() -> list[Row]:
    """Return every recipe, and every model of the hub that was built by name.

    Those of images come first, small ones before.

    ``megabytes`` is the size of the weights in float32. ``measured`` says what the model costs on the machine that it
    was built on, None where it is not built. A recipe of a user's own may not say the number of parameters: None.
    """
    from vlmsearch.models.bundle import built_bundles, recipe_names
    from vlmsearch.models.recipe import built_by, find_recipe

    built = {bundle.name: bundle for bundle in built_bundles()}
    recipes = [find_recipe(name) for name in recipe_names()]
    others = [built_by(bundle) for name, bundle in built.items() if name not in {recipe.name for recipe in recipes}]
    choices = [*recipes, *(recipe for recipe in others if recipe is not None)]
    choices.sort(key=lambda recipe: (recipe.parameters, recipe.name))
    rows = [_row(recipe, built.get(recipe.name)) for recipe in choices]
    return sorted(rows, key=lambda row: row["modalities"] == ["text"])


def _row(recipe: Recipe, bundle: Bundle | None) -> Row:
    """Return the entry of a recipe.

    What the recipe of a user does not say comes from its bundle.
    """
    encodes_images = recipe.encodes_images or (bundle is not None and "image" in bundle.space.modalities)
    return {
        "name": recipe.name,
        "source": recipe.source,
        "revision": recipe.revision,
        "family": recipe.family,
        "modalities": ["image", "text"] if encodes_images else ["text"],
        "languages": list(recipe.languages),
        "licence": recipe.licence,
        "parameters": recipe.parameters or None,
        "megabytes": round(recipe.parameters * _FLOAT_BYTES / 1e6, 1) if recipe.parameters else None,
        "dim": recipe.dim or (bundle.space.dim if bundle else None),
        "quality": [dataclasses.asdict(figure) for figure in recipe.quality],
        "measured": None if bundle is None else _measured(bundle),
    }


def _measured(bundle: Bundle) -> Row:
    """Return the speed of the precision that a CPU takes, as `vlmsearch build` measured it."""
    rates = bundle.measured.get("items_per_second")
    given = rates if isinstance(rates, dict) else {}
    precision = "int8" if "int8" in bundle.precisions else "fp32"
    return {
        "precision": precision,
        "images_per_second": given.get(f"image.{precision}"),
        "texts_per_second": given.get(f"text.{precision}"),
        "machine": bundle.measured.get("machine"),
    }


def _cells(row: Row) -> list[str]:
    quality, parameters, size = row["quality"], row["parameters"], row["megabytes"]
    best = quality[0] if isinstance(quality, list) and quality else None
    cells = [str(row["name"]), _spoken(row["languages"])]
    cells.append(f"{parameters / 1e6:.{1 if parameters < 1e7 else 0}f} M" if isinstance(parameters, int) else "")
    if is_wide():
        cells += [f"{size:,.0f}" if isinstance(size, float) else "", str(row["dim"] or ""), str(row["licence"])]
    cells.append(f"{best['score']:.1f} {_short_name(best['benchmark'])}" if best else "")
    rates = row["measured"] if isinstance(row["measured"], dict) else {}
    names = (*(["images_per_second"] if is_wide() else []), "texts_per_second")
    return [*cells, *("" if rates.get(name) is None else f"{rates[name]:,.0f}" for name in names)]


def _spoken(languages: object) -> str:
    """Return few languages as their codes, and many as their number."""
    codes = languages if isinstance(languages, list) else []
    if codes == ["multilingual"]:
        return "many"
    return " ".join(codes) if len(codes) <= 3 else str(len(codes))


def _short_name(benchmark: str) -> str:
    """Return the name of a benchmark in a word or two: the part before brackets, or the first word."""
    name, bracket, _ = benchmark.partition(" (")
    return name if bracket else name.partition(" ")[0]
