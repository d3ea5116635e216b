"""``vlmsearch bench gpu``."""

from __future__ import annotations

import math
from pathlib import Path

import click

from vlmsearch.cli.common import json_option, option, print_json


@click.command("gpu")
@option("--only", metavar="LIST", help="Sections, with commas: engines, torch, load, images, serving, encoder, onnx.")
@option("--models", metavar="LIST", help="These models alone, with commas.")
@option("--engines", metavar="LIST", help="These engines alone, with commas: fp16, int8, defaults, fp32.")
@option("--folder", type=click.Path(path_type=Path), metavar="DIR", help="Where bundles are, and random ones go.")
@option("--out", type=click.Path(path_type=Path), default=Path("report-gpu.json"), show_default=True, metavar="FILE")
@option("--gpus", default="0", show_default=True, metavar="LIST", help="GPUs to build and measure on side by side.")
@option("--jobs", default=1, show_default=True, type=click.IntRange(1), help="How many engines a GPU builds at a time.")
@option("--build-seconds", type=click.FloatRange(1), help="Stop building after that time.")
@option("--load-seconds", default=180.0, show_default=True, type=click.FloatRange(1), help="How long the load lasts.")
@option("--sts", type=click.Path(path_type=Path, exists=True), metavar="FILE", help="CSV: two sentences and a score.")
@json_option
def bench_gpu(
    only: str | None, models: str | None, engines: str | None, folder: Path | None, out: Path, gpus: str, jobs: int,
    build_seconds: float | None, load_seconds: float, sts: Path | None, as_json: bool,
) -> None:  # fmt: skip
    """Build engines of all precisions on this machine's GPU and measure them beside their peers.

    CLIP gets random weights where no bundle is in --folder. What a section needs and is not installed leaves it out;
    run the command again with another Python and the same --out to add it. With --jobs above 1 engines are built
    faster and chosen worse: TensorRT times its kernels while others run.
    """
    from vlmsearch.bench.gpu.sections import KINDS, MODELS, SECTIONS, BenchTask, run_sections
    from vlmsearch.models.bundle import cache_folder
    from vlmsearch.tensorrt.builder.report import table

    task = BenchTask(
        models.split(",") if models else MODELS,
        folder or cache_folder() / "bench",
        _numbers(gpus),
        jobs,
        build_seconds or math.inf,
        load_seconds,
        sts,
        engines.split(",") if engines else KINDS,
    )
    report = run_sections(
        task, only.split(",") if only else list(SECTIONS), out, lambda text: click.echo(text, err=True)
    )
    if as_json:
        print_json(report)
        return
    found = report.get("engines")
    rows = found.get("rows", []) if isinstance(found, dict) else []
    for name in dict.fromkeys(row["model"] for row in rows):
        for cells in table([row for row in rows if row["model"] == name]):
            click.echo("\t".join((name, *cells)))
    click.echo(f"the report is in {out}")


def _numbers(text: str) -> tuple[int, ...]:
    """Numbers with commas between them."""
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError as exc:
        raise click.BadParameter(f"{text!r} is not a list of GPUs, as 0,1", param_hint="--gpus") from exc
