"""``vlmsearch build``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from vlmsearch.cli.common import is_terminal, json_option, option, print_json

if TYPE_CHECKING:
    from vlmsearch.bundles import Bundle, Precision


@click.command()
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
    force: bool,
    as_json: bool,
) -> None:
    """Build models: export to ONNX, prove that nothing changed, quantise, measure.

    A RECIPE is a model's name, as `vlmsearch models` lists them, or a recipe file. Without --from the recipe's
    checkpoint is downloaded.

    With --engine the bundles must be there, with fp16 and qdq files; --precision is then int8, fp16, fp32 or auto,
    which takes the fastest that is near enough to float32.  [default: int8]
    """
    from vlmsearch.bundles import bundle_names

    names = [name for recipe in recipes for name in bundle_names(recipe)]
    _check(engine, bool(checkpoint or calibrate or force), (profile, level, timing_cache, report))
    if engine:
        from vlmsearch.cli.build_engine import EngineOptions, build_engines

        options = EngineOptions(precision, profile, level, timing_cache, report)
        build_engines(names, out, options, as_json=as_json)
        return
    if checkpoint and len(names) > 1:
        raise click.UsageError("--from is one checkpoint: give one recipe with it")
    chosen = _precisions(precision)

    try:
        from vlmsearch.build.progress import build_with_progress
    except ImportError as exc:
        from vlmsearch.errors import MissingDependencyError

        message = f"building needs {exc.name}, which is not installed: pip install 'vlmsearch[export]'"
        raise MissingDependencyError(message) from exc
    for name in names:
        bundle = build_with_progress(
            name, checkpoint=checkpoint, parent=out, precisions=chosen, calibrate=calibrate, force=force
        )
        if as_json:
            print_json({"name": bundle.name, "folder": str(bundle.folder), **_figures(bundle)})
        else:
            _print(bundle)


def _check(engine: str | None, for_bundles: bool, for_engines: tuple[object, ...]) -> None:
    if engine and for_bundles:
        raise click.UsageError("--from, --calibrate and --force are for bundles: build those first, without --engine")
    if not engine and any(value is not None for value in for_engines):
        raise click.UsageError("--profile, --level, --timing-cache and --report are for --engine")


def _precisions(text: str | None) -> list[Precision] | None:
    known: tuple[Precision, ...] = ("fp32", "fp16", "int8", "qdq")
    if text is None:
        return None
    names = [name.strip() for name in text.split(",")]
    for name in names:
        if name not in known:
            raise click.BadParameter(f"{name!r} is none of {', '.join(known)}", param_hint="--precision")
    return [precision for precision in known if precision in names]


def _figures(bundle: Bundle) -> dict[str, object]:
    return {
        "fingerprint": bundle.fingerprint,
        "files": {name: file.size for name, file in bundle.files.items()},
        "quantisation": dict(bundle.quantisation),
        "forced": list(bundle.forced),
        "measured": dict(bundle.measured),
    }


def _print(bundle: Bundle) -> None:
    """The proof, as a table for a person and as lines for a pipe."""
    checks = bundle.measured["checks"]
    rows = [
        (name, f"{check['value']:.7g}", "" if check["gate"] is None else f"{check['gate']:g}", _verdict(check))
        for name, check in (checks.items() if isinstance(checks, dict) else ())
    ]
    if is_terminal():
        from vlmsearch.terminal import make_console, make_table

        titles = ("check", "value", "gate", "")
        make_console().print(make_table(titles, rows, left=("check", ""), title=bundle.name))
    else:
        for row in rows:
            click.echo("\t".join((bundle.name, *row)))
    for name, story in bundle.quantisation.items():
        excluded = story.get("excluded")
        names = ", ".join(map(str, excluded)) if isinstance(excluded, (list, tuple)) else ""
        kept = f", in high precision: {names}" if names else ""
        source = f", calibrated on {story['calibration']}" if story["method"] == "static" else ""
        click.echo(f"{name}: {story['method']}{source}{kept}")
    for failed in bundle.forced:
        click.echo(f"forced in spite of: {failed}")
    click.echo(f"{bundle.name} is in {bundle.folder}")


def _verdict(check: dict[str, object]) -> str:
    if check["gate"] is None:
        return ""
    return "passed" if check["passed"] else "MISSED"
