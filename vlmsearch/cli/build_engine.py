"""``vlmsearch build --engine tensorrt``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, cast

import click

from vlmsearch.cli.common import is_terminal, print_json

if TYPE_CHECKING:
    from vlmsearch.build.recipe import Range
    from vlmsearch.gpu.plans import EnginePrecision

_PRECISIONS = ("int8", "fp16", "fp32", "auto")


@dataclass(frozen=True)
class EngineOptions:
    """How engines are to be built, as the command line has it."""

    precision: str | None
    profile: str | None
    level: int | None
    timing_cache: Path | None
    report: Path | None


def build_engines(names: Sequence[str], parent: Path | None, options: EngineOptions, *, as_json: bool) -> None:
    """Build the engines of bundles that are there, and write and print what they were measured at."""
    from vlmsearch.errors import MissingDependencyError

    precision, profile = _precision(options.precision), _profile(options.profile)
    try:
        from vlmsearch.build import tensorrt
    except ImportError as exc:
        raise MissingDependencyError(
            f"building engines needs {exc.name}, which is not installed: pip install 'vlmsearch[tensorrt]'"
        ) from exc
    from vlmsearch.build.progress import steps
    from vlmsearch.build.recipe import find_recipe
    from vlmsearch.build.tensorrt_report import report_folder, write_report
    from vlmsearch.bundles import find_bundles, open_bundle, recipe_names

    for name in names:
        given = find_recipe(name) if name in recipe_names() or name.endswith(".toml") else None
        bundle = (
            open_bundle(parent / given.name) if parent and given else find_bundles(given.name if given else name)[0]
        )
        recipe = given or tensorrt.recipe_of(bundle)
        rows: list[dict[str, object]] = []
        with steps(bundle.name) as progress:
            for tower in bundle.towers:
                plan = tensorrt.ensure_engine(
                    bundle, tower, precision=precision, profile=profile, level=options.level,
                    timing_cache=options.timing_cache, recipe=recipe, progress=progress,
                )  # fmt: skip
                tried = plan.attempts or (plan.report,)
                rows.extend({**report, "published": report == plan.report} for report in tried)
        machine = cast("dict[str, object]", plan.report["machine"])
        folder = report_folder(recipe, options.report) if recipe.folder.parts or options.report else None
        path = write_report(folder, bundle.name, machine, rows) if folder else None
        if as_json:
            print_json({"name": bundle.name, "engines": rows, "report": str(path) if path else None})
            continue
        _print(bundle.name, rows)
        if path:
            click.echo(f"the report is in {path}")


def _precision(text: str | None) -> EnginePrecision:
    if text not in (None, *_PRECISIONS):
        raise click.BadParameter(
            f"an engine has one of {', '.join(_PRECISIONS)}, not {text!r}", param_hint="--precision"
        )
    return cast("EnginePrecision", text or "int8")


def _profile(text: str | None) -> Range | None:
    from vlmsearch.build.recipe import read_batches
    from vlmsearch.errors import ConfigError

    try:
        return None if text is None else read_batches(text)
    except ConfigError as exc:
        raise click.BadParameter(str(exc), param_hint="--profile") from exc


def _print(name: str, rows: list[dict[str, object]]) -> None:
    from vlmsearch.build.tensorrt_report import table

    lines = list(table(rows))
    if not is_terminal():
        for line in lines:
            click.echo("\t".join((name, *line)))
        return
    from vlmsearch.terminal import make_console, make_table

    make_console().print(make_table(lines[0], lines[1:], left=("tower", "precision", "result"), title=name))
