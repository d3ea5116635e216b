"""``vlmsearch build``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, cast

import click

from vlmsearch.cli.common import command, json_option, option, print_json, print_table

if TYPE_CHECKING:
    from vlmsearch.models.bundle import Bundle, Export, Precision
    from vlmsearch.models.recipe import PoolingName, Range, Recipe, RerankerRecipe
    from vlmsearch.models.reranker import RerankerBundle
    from vlmsearch.tensorrt.engine.plans import EnginePrecision


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
        from vlmsearch.tensorrt.builder import engines as tensorrt
    except ImportError as exc:
        raise MissingDependencyError(
            f"building engines needs {exc.name}, which is not installed: pip install 'vlmsearch[tensorrt]'"
        ) from exc
    from vlmsearch.build.progress import steps
    from vlmsearch.models.bundle import find_bundles, open_bundle, recipe_names
    from vlmsearch.models.recipe import find_recipe
    from vlmsearch.tensorrt.builder.report import report_folder, write_report

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
        _print_engines(bundle.name, rows)
        if path:
            click.echo(f"the report is in {path}")


def _precision(text: str | None) -> EnginePrecision:
    if text not in (None, *_PRECISIONS):
        raise click.BadParameter(
            f"an engine has one of {', '.join(_PRECISIONS)}, not {text!r}", param_hint="--precision"
        )
    return cast("EnginePrecision", text or "int8")


def _profile(text: str | None) -> Range | None:
    from vlmsearch.errors import ConfigError
    from vlmsearch.models.recipe import read_batches

    try:
        return None if text is None else read_batches(text)
    except ConfigError as exc:
        raise click.BadParameter(str(exc), param_hint="--profile") from exc


def _print_engines(name: str, rows: list[dict[str, object]]) -> None:
    from vlmsearch.tensorrt.builder.report import table

    names, *lines = ((name, *line) for line in table(rows))
    print_table(("model", *names[1:]), lines, left=("model", "tower", "precision", "result"))


@command()
@click.argument("recipes", nargs=-1, required=True, metavar="RECIPE...")
@option("--from", "checkpoint", type=click.Path(path_type=Path), metavar="DIR", help="Build from this checkpoint.")
@option("--precision", metavar="LIST", help="Of fp32, fp16, int8, qdq; with commas.  [default: the recipe's]")
@option("--out", type=click.Path(path_type=Path), metavar="DIR", help="Put bundles here.  [default: the cache]")
@option(
    "--calibrate", multiple=True, type=click.Path(path_type=Path), metavar="PATH",
    help="Images and texts like those that will be indexed; may be given several times.",
)  # fmt: skip
@option("--engine", type=click.Choice(["tensorrt"]), help="Build engines for this machine's GPU from the bundles.")
@option("--profile", metavar="MIN,OPT,MAX", help="Batches of an engine.  [default: the recipe's, and several profiles]")
@option("--level", type=click.IntRange(0, 5), help="TensorRT's optimization level.  [default: TensorRT's own]")
@option(
    "--timing-cache",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Kernel timings to use.  [default: the cache]",
)
@option(
    "--report",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Put an engine's report here.  [default: the recipe]",
)
@option("--revision", default="", metavar="REV", help="A branch, tag or commit of the hub.  [default: main, once]")
@option(
    "--pooling", type=click.Choice(["mean", "cls", "max", "last"]),
    help="How tokens are pooled, where a repository does not say.",
)  # fmt: skip
@option("--export", type=click.Choice(["own", "theirs"]), default="own", help="Whose ONNX graphs.  [default: our own]")
@option("--show", is_flag=True, help="Print the recipe and build nothing.")
@option("--force", is_flag=True, help="Write a bundle that misses its gates, too; the bundle says so.")
@json_option
def build(
    recipes: tuple[str, ...],
    checkpoint: Path | None,
    precision: str | None,
    out: Path | None,
    calibrate: tuple[Path, ...],
    engine: str | None,
    profile: str | None,
    level: int | None,
    timing_cache: Path | None,
    report: Path | None,
    revision: str,
    pooling: str | None,
    export: str,
    show: bool,
    force: bool,
    as_json: bool,
) -> None:
    """Build models: export to ONNX, prove that nothing changed, quantise, measure.

    A RECIPE is a model's name, as `vlmsearch models --available` lists them, a model of the Hugging Face hub
    (ORG/NAME), a folder with a checkpoint (./NAME) or a recipe file. Without --from the checkpoint is downloaded.

    A model of the hub is pinned at the commit that it is first built from; --revision builds it from another.

    With --engine the bundles must be there, with fp16 and qdq files; --precision is then int8, fp16, fp32 or auto,
    which takes the fastest that is near enough to float32.  [default: int8]
    """
    from vlmsearch.models.bundle import bundle_names

    names = [name for recipe in recipes for name in bundle_names(recipe)]
    _check(engine, bool(checkpoint or calibrate or force), (profile, level, timing_cache, report))
    if engine:
        options = EngineOptions(precision, profile, level, timing_cache, report)
        build_engines(names, out, options, as_json=as_json)
        return
    if checkpoint and len(names) > 1:
        raise click.UsageError("--from is one checkpoint: give one recipe with it")
    chosen = _precisions(precision)
    how, whose = cast("PoolingName", pooling or ""), cast("Export", export)

    try:
        from vlmsearch.build.derive import find_or_derive
        from vlmsearch.build.progress import build_with_progress
    except ImportError as exc:
        from vlmsearch.errors import MissingDependencyError

        message = f"building needs {exc.name}, which is not installed: pip install 'vlmsearch[build]'"
        raise MissingDependencyError(message) from exc
    for name in names:
        if show:
            _show(find_or_derive(name, revision=revision, pooling=how, checkpoint=checkpoint, export=whose), as_json)
            continue
        bundle = build_with_progress(
            name, checkpoint=checkpoint, parent=out, precisions=chosen, calibrate=calibrate, force=force,
            revision=revision, pooling=how, export=whose,
        )  # fmt: skip
        if as_json:
            print_json({"name": bundle.name, "folder": str(bundle.folder), **_figures(bundle)})
        else:
            _print(bundle)


def _check(engine: str | None, for_bundles: bool, for_engines: tuple[object, ...]) -> None:
    if engine and for_bundles:
        raise click.UsageError("--from, --calibrate and --force are for bundles: build those first, without --engine")
    if not engine and any(value is not None for value in for_engines):
        raise click.UsageError("--profile, --level, --timing-cache and --report are for --engine")


def _show(recipe: Recipe | RerankerRecipe, as_json: bool) -> None:
    from vlmsearch.models.recipe import to_toml

    if as_json:
        print_json({"name": recipe.name, "recipe": to_toml(recipe)})
    else:
        click.echo(to_toml(recipe), nl=False)


def _precisions(text: str | None) -> list[Precision] | None:
    known: tuple[Precision, ...] = ("fp32", "fp16", "int8", "qdq")
    if text is None:
        return None
    names = [name.strip() for name in text.split(",")]
    for name in names:
        if name not in known:
            raise click.BadParameter(f"{name!r} is none of {', '.join(known)}", param_hint="--precision")
    return [precision for precision in known if precision in names]


def _figures(bundle: Bundle | RerankerBundle) -> dict[str, object]:
    return {
        "fingerprint": bundle.fingerprint,
        "files": {name: file.size for name, file in bundle.files.items()},
        "quantisation": dict(bundle.quantisation),
        "forced": list(bundle.forced),
        "measured": dict(bundle.measured),
    }


def _print(bundle: Bundle | RerankerBundle) -> None:
    """Print the proof, as a table for a person and as lines for a pipe."""
    checks = bundle.measured["checks"]
    rows = [
        (name, f"{check['value']:.7g}", "" if check["gate"] is None else f"{check['gate']:g}", _verdict(check))
        for name, check in (checks.items() if isinstance(checks, dict) else ())
    ]
    titles = ("model", "check", "value", "gate", "")
    print_table(titles, [(bundle.name, *row) for row in rows], left=(*titles[:2], ""), header=False)
    for name, story in bundle.quantisation.items():
        excluded = story.get("excluded")
        names = ", ".join(map(str, excluded)) if isinstance(excluded, (list, tuple)) else ""
        kept = f", in high precision: {names}" if names else ""
        source = f", calibrated on {story['calibration']}" if story["method"] == "static" else ""
        missed = f", left out: {story['left_out']}" if "left_out" in story else ""
        click.echo(f"{name}: {story['method']}{source}{kept}{missed}")
    for failed in bundle.forced:
        click.echo(f"forced in spite of: {failed}")
    click.echo(f"{bundle.name} is in {bundle.folder}")


def _verdict(check: dict[str, object]) -> str:
    if check["gate"] is None:
        return ""
    return "passed" if check["passed"] else "MISSED"
