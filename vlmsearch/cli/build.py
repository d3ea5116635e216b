"""``vlmsearch build``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, cast, get_args

import click

from vlmsearch._util.extras import install_command
from vlmsearch.cli.common import command, json_option, names_of, option, print_json, print_table
from vlmsearch.cli.models import proof_in_words
from vlmsearch.errors import ConfigError, MissingDependencyError
from vlmsearch.models.bundle import Precision
from vlmsearch.models.recipe import Range, read_batches

if TYPE_CHECKING:
    from vlmsearch.models.bundle import Bundle
    from vlmsearch.models.recipe import PoolingName
    from vlmsearch.models.reranker import RerankerBundle
    from vlmsearch.tensorrt.engine.plans import EnginePrecision

_PRECISIONS = get_args(Precision)
_ENGINE_PRECISIONS = ("int8", "fp16", "fp32", "auto")


def _batches(text: str) -> Range:
    try:
        return read_batches(text)
    except ConfigError as exc:
        raise click.BadParameter(str(exc)) from exc


@command()
@click.argument("recipes", nargs=-1, required=True, metavar="RECIPE...")
@option("--from", "checkpoint", type=click.Path(path_type=Path), metavar="DIR", help="Build from this checkpoint.")
@option(
    "--precision",
    type=names_of((*_PRECISIONS, "auto")),
    metavar="LIST",
    help="Some of fp32, fp16, int8, qdq.  [default: the recipe's]",
)
@option("--out", type=click.Path(path_type=Path), metavar="DIR", help="A folder for the bundles.  [default: the cache]")
@option(
    "--calibrate", multiple=True, type=click.Path(path_type=Path), metavar="PATH",
    help="Images and texts like those that you will index. May be given several times.",
)  # fmt: skip
@option("--engine", type=click.Choice(["tensorrt"]), help="Build engines for the GPU of this machine from the bundles.")
@option(
    "--profile",
    type=_batches,
    metavar="MIN,OPT,MAX",
    help="Batch sizes of an engine.  [default: the recipe's]",
)
@option("--level", type=click.IntRange(0, 5), help="TensorRT's optimization level.  [default: TensorRT's own]")
@option("--report", type=click.Path(path_type=Path), metavar="DIR", help="Folder of an engine's report.")
@option("--revision", default="", metavar="REV", help="A branch, tag or commit on the hub.  [default: main]")
@option("--pooling", type=click.Choice(["mean", "cls"]), help="Pooling, if the repository names none.")
@option("--show", is_flag=True, help="Print the recipe and build nothing.")
@option("--refit", is_flag=True, help="Fit the relevance of finished bundles anew, and build nothing else.")
@option("--force", is_flag=True, help="Write a bundle even if it misses its gates. The bundle records that.")
@json_option
def build(
    recipes: tuple[str, ...],
    checkpoint: Path | None,
    precision: list[str] | None,
    out: Path | None,
    calibrate: tuple[Path, ...],
    engine: str | None,
    profile: Range | None,
    level: int | None,
    report: Path | None,
    revision: str,
    pooling: str | None,
    show: bool,
    refit: bool,
    force: bool,
    as_json: bool,
) -> None:
    """Build models: export to ONNX, check, quantise, measure.

    A RECIPE is a name from `vlmsearch models --available`, a Hugging Face model (ORG/NAME), a folder with a checkpoint
    (./NAME) or a recipe file. Without --from the checkpoint is downloaded. The first build pins the commit
    of a hub model; --revision builds another one.

    --refit renews how scores follow from the cosines of bundles that are built, such as by an earlier version: seconds,
    and indexes stay as they are.

    --engine needs bundles with fp16 and qdq files. --precision is then int8 (the default), fp16, fp32 or auto. auto
    takes the fastest engine that is near enough to float32.

    Where torch and transformers are installed (the extra `build`), a model is also compared with the original.
    """
    from vlmsearch.models.bundle import bundle_names

    names = [name for recipe in recipes for name in bundle_names(recipe)]
    if engine:
        if checkpoint or calibrate or force:
            raise click.UsageError(
                "--from, --calibrate and --force are for bundles: build those first, without --engine"
            )
        if len(chosen := precision or ["int8"]) > 1 or chosen[0] not in _ENGINE_PRECISIONS:
            raise click.UsageError(f"an engine has one --precision: {', '.join(_ENGINE_PRECISIONS)}")
        _build_engines(names, out, cast("EnginePrecision", chosen[0]), profile, level, report, as_json)
        return
    if any(given is not None for given in (profile, level, report)):
        raise click.UsageError("--profile, --level and --report are for --engine")
    if checkpoint and len(names) > 1:
        raise click.UsageError("--from is one checkpoint: give one recipe with it")
    if "auto" in (precision or ()):
        raise click.UsageError("--precision auto is for --engine")
    precisions = cast("list[Precision]", [name for name in _PRECISIONS if name in precision]) if precision else None
    how = cast("PoolingName", pooling or "")
    from vlmsearch.building.derive import find_or_derive
    from vlmsearch.building.progress import build_with_progress, refit_with_progress
    from vlmsearch.models.recipe import to_toml

    for name in names:
        if refit:
            bundle: Bundle | RerankerBundle = refit_with_progress(name, out)
        elif show:
            recipe = find_or_derive(name, revision=revision, pooling=how, checkpoint=checkpoint)
            text = to_toml(recipe)
            print_json({"name": recipe.name, "recipe": text}) if as_json else click.echo(text, nl=False)
            continue
        else:
            bundle = build_with_progress(
                name, checkpoint=checkpoint, parent=out, precisions=precisions, calibrate=calibrate, force=force,
                revision=revision, pooling=how,
            )  # fmt: skip
        if as_json:
            figures = {name: getattr(bundle, name) for name in ("fingerprint", "quantisation", "forced", "measured")}
            files = {name: file.size for name, file in bundle.files.items()}
            print_json({"name": bundle.name, "folder": str(bundle.folder), "files": files, **figures})
        else:
            _print(bundle)


def _build_engines(
    names: Sequence[str],
    parent: Path | None,
    precision: EnginePrecision,
    profile: Range | None,
    level: int | None,
    report: Path | None,
    as_json: bool,
) -> None:
    """Build the engines of bundles, and write and print their measurements."""
    try:
        from vlmsearch.tensorrt.builder import engines as tensorrt
    except ImportError as exc:
        raise MissingDependencyError(
            f"building engines needs {exc.name}, which is not installed: {install_command('tensorrt')}"
        ) from exc
    from vlmsearch.building.progress import steps
    from vlmsearch.models.bundle import find_bundles, open_bundle, recipe_names
    from vlmsearch.models.recipe import find_recipe
    from vlmsearch.tensorrt.builder.report import report_folder, table, write_report

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
                    bundle, tower, precision=precision, profile=profile, level=level, recipe=recipe, progress=progress
                )
                rows.extend({**row, "published": row == plan.report} for row in plan.attempts or (plan.report,))
        machine = cast("dict[str, object]", plan.report["machine"])
        folder = report_folder(recipe, report) if recipe.folder.parts or report else None
        path = write_report(folder, bundle.name, machine, rows) if folder else None
        if as_json:
            print_json({"name": bundle.name, "engines": rows, "report": str(path) if path else None})
            continue
        titles, *lines = ((bundle.name, *line) for line in table(rows))
        print_table(("model", *titles[1:]), lines, left=("model", "tower", "precision", "result"))
        if path:
            click.echo(f"the report is in {path}")


def _print(bundle: Bundle | RerankerBundle) -> None:
    """Print the checks of a bundle, and how it was quantised."""
    checks = bundle.measured["checks"]
    rows = []
    for name, check in checks.items() if isinstance(checks, dict) else ():
        gate, verdict = check["gate"], "passed" if check["passed"] else "MISSED"
        gated = ("", "") if gate is None else (f"{gate:g}", verdict)
        rows.append((bundle.name, name, f"{check['value']:.7g}", *gated))
    titles = ("model", "check", "value", "gate", "")
    print_table(titles, rows, left=(*titles[:2], ""), header=False)
    for name, story in bundle.quantisation.items():
        excluded = story.get("excluded")
        names = ", ".join(map(str, excluded)) if isinstance(excluded, (list, tuple)) else ""
        kept = f", in high precision: {names}" if names else ""
        source = f", calibrated on {story['calibration']}" if story["method"] == "static" else ""
        missed = f", left out: {story['left_out']}" if "left_out" in story else ""
        click.echo(f"{name}: {story['method']}{source}{kept}{missed}")
    relevance = bundle.measured.get("relevance_from")
    for modality, origin in relevance.items() if isinstance(relevance, dict) else ():
        click.echo(f"relevance of {modality}: fitted on {origin}")
    prompts = bundle.measured.get("prompts")
    for name, use in prompts.items() if isinstance(prompts, dict) else ():
        click.echo(f"prompt {name!r}: before {use}")
    click.echo(f"proven by: {proof_in_words(bundle)}")
    for failed in bundle.forced:
        click.echo(f"forced although it failed: {failed}")
    click.echo(f"{bundle.name} is in {bundle.folder}")
