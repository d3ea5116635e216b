"""``vlmsearch models --available``: the models there are recipes for, as a table to choose from."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import click

from vlmsearch.cli.common import is_terminal, print_json

if TYPE_CHECKING:
    from vlmsearch.models.bundle import Bundle
    from vlmsearch.models.recipe import Recipe

Row = dict[str, object]
WIDE = 107
"""From how many columns of a terminal on the whole table is shown."""
_FLOAT_BYTES = 4
_LEFT = ("model", "licence", "lang.")


def show_available(*, as_json: bool) -> None:
    """Print the models to choose from: a table for a person, lines for a pipe, or JSON."""
    rows = available_models()
    if as_json:
        print_json({"available": rows})
    elif is_terminal():
        _print_tables(rows)
    else:
        for row in rows:
            click.echo("\t".join(_cells(row, wide=True)))


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
    found = [*recipes, *(recipe for recipe in others if recipe is not None)]
    found.sort(key=lambda recipe: (recipe.parameters, recipe.name))
    rows = [_row(recipe, built.get(recipe.name)) for recipe in found]
    return sorted(rows, key=lambda row: row["modalities"] == ["text"])


def _row(recipe: Recipe, bundle: Bundle | None) -> Row:
    """Return what the recipe says, and its bundle where the recipe of a user does not say it."""
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


def _print_tables(rows: list[Row]) -> None:
    from vlmsearch._util.console import make_console, make_table

    console = make_console()
    wide = console.width >= WIDE
    names = ["model", "lang.", "params", *(("MB", "dim", "licence") if wide else ())]
    for title, is_of_images in (("images and texts", True), ("texts", False)):
        chosen = [row for row in rows if (row["modalities"] == ["image", "text"]) == is_of_images]
        titles = [*names, *(("ImageNet", "images/s", "texts/s") if is_of_images else ("published", "texts/s"))]
        cells = [_cells(row, wide=wide) for row in chosen]
        if is_of_images:
            for line in cells:
                score, _, benchmark = line[len(names)].partition(" ")
                line[len(names)] = score if benchmark == "ImageNet" else ""
        else:
            cells = [line[:-2] + line[-1:] for line in cells]
        console.print(make_table(titles, cells, left=_LEFT, title=title))
        console.print()
    for text in (
        "params: millions of parameters. ImageNet: zero-shot top-1 in per cent. Each figure has its source in --json.",
        "Per second: on the machine that built it. `vlmsearch build MODEL` builds one; any other model of the hub:",
        "`vlmsearch build ORG/NAME`, with --show to see what would be built.",
    ):
        console.print(text, style="dim")


def _cells(row: Row, *, wide: bool) -> list[str]:
    languages, quality = row["languages"], row["quality"]
    listed = [str(code) for code in languages] if isinstance(languages, list) else []
    first = quality[0] if isinstance(quality, list) and quality else None
    cells = [str(row["name"]), _spoken(listed), _counted(row["parameters"])]
    if wide:
        size, dim = row["megabytes"], row["dim"]
        cells += [f"{size:,.0f}" if size else "", str(dim or ""), str(row["licence"])]
    cells.append(f"{first['score']:.1f} {_called(first['benchmark'])}" if first else "")
    return cells + _rates(row)


def _spoken(languages: list[str]) -> str:
    """Few languages by their codes, many by their number."""
    if languages == ["multilingual"]:
        return "many"
    return " ".join(languages) if len(languages) <= 3 else str(len(languages))


def _called(benchmark: str) -> str:
    """Return a benchmark in a word or two: what stands before brackets, or the first word."""
    name, bracket, _ = benchmark.partition(" (")
    return name if bracket else name.partition(" ")[0]


def _counted(parameters: object) -> str:
    count = parameters if isinstance(parameters, int) else 0
    if not count:
        return ""
    return f"{count / 1e6:.{1 if count < 1e7 else 0}f} M"


def _rates(row: Row) -> list[str]:
    measured = row["measured"]
    given = measured if isinstance(measured, dict) else {}
    rates = (given.get("images_per_second"), given.get("texts_per_second"))
    return ["" if rate is None else f"{rate:,.0f}" for rate in rates]
