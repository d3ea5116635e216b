"""``vlmsearch models``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import click

from vlmsearch.cli.available import WIDE, show_available
from vlmsearch.cli.common import command, is_terminal, json_option, option, print_json, short_path

if TYPE_CHECKING:
    from vlmsearch.models.bundle import Bundle
    from vlmsearch.models.reranker import RerankerBundle


@command()
@option("--available", is_flag=True, help="List the models to choose from, built or not, with their published quality.")
@json_option
def models(available: bool, as_json: bool) -> None:
    """List the models: what is built, how large, how true to the original, how fast."""
    if available:
        show_available(as_json=as_json)
        return
    from vlmsearch.models.bundle import RERANKER, built_bundles, recipe_names
    from vlmsearch.models.reranker import built_rerankers

    found, judges = built_bundles(), built_rerankers()
    rows = [row for bundle in found for row in _rows(bundle)]
    rerankers = [row for bundle in judges for row in _reranker_rows(bundle)]
    names = {*(bundle.name for bundle in found), *(bundle.name for bundle in judges)}
    missing = sorted({*recipe_names(), *recipe_names(RERANKER)} - names)
    engines = _engines()
    if as_json:
        print_json({"built": rows, "rerankers": rerankers, "not_built": missing, "engines": engines})
    elif is_terminal():
        _print_table(rows, missing)
        _print_rerankers(rerankers)
        _print_engines(engines)
    else:
        for row in rows:
            click.echo("\t".join("" if value is None else _cell(value) for value in row.values()))
        for row in rerankers:
            click.echo("\t".join(("reranker", *("" if value is None else str(value) for value in row.values()))))
        for name in missing:
            click.echo(f"{name}\tnot built")
        for engine in engines:
            click.echo("\t".join(("engine", *map(str, engine.values()))))


def _cell(value: object) -> str:
    return " ".join(map(str, value)) if isinstance(value, list) else str(value)


def _engines() -> list[dict[str, object]]:
    """Return the TensorRT engines in the cache; no GPU is asked."""
    from vlmsearch.errors import ModelUnavailableError
    from vlmsearch.tensorrt.engine.plans import open_plan, plans_folder

    found: list[dict[str, object]] = []
    for path in sorted(plans_folder().glob("*.plan")):
        try:
            plan = open_plan(path)
        except ModelUnavailableError:
            continue  # somebody writes it, or `vlmsearch doctor` tells
        if "model" in plan.report:
            found.append(
                {name: plan.report[name] for name in ("model", "tower", "precision", "mean_cosine", "overlap")}
                | {"megabytes": round(plan.size / 1e6, 1), "gpu": plan.key.machine.gpu}
                | {"tensorrt": plan.key.machine.tensorrt, "path": str(path)}
            )
    return found


def _print_engines(engines: list[dict[str, object]]) -> None:
    from vlmsearch._util.console import make_console, make_table

    if not engines:
        return
    names = ("model", "tower", "precision", "cosine", "top-10 kept", "MB", "GPU", "TensorRT")
    rows = [[str(value) for name, value in engine.items() if name != "path"] for engine in engines]
    make_console().print(make_table(names, rows, left=(*names[:3], *names[6:]), title="TensorRT engines"))


def _reranker_rows(bundle: RerankerBundle) -> list[dict[str, object]]:
    """Return one row a precision."""
    from vlmsearch.models.reranker import reranker_file

    return [
        {
            "name": bundle.name,
            "precision": precision,
            "megabytes": round(bundle.files[reranker_file(precision)].size / 1e6, 1),
            "calibration_error": _figure(bundle, f"{precision}.calibration_error"),
            "precision_at_half": _figure(bundle, f"{precision}.precision"),
            "recall_at_half": _figure(bundle, f"{precision}.recall"),
            "pairs_per_second": _rate(bundle, precision),
            "forced": bool(bundle.forced),
            "folder": str(bundle.folder),
        }
        for precision in bundle.precisions
    ]


def _figure(bundle: RerankerBundle, name: str) -> float | None:
    checks = bundle.measured.get("checks")
    check = checks.get(name) if isinstance(checks, Mapping) else None
    return round(float(check["value"]), 4) if isinstance(check, Mapping) else None


def _print_rerankers(rows: list[dict[str, object]]) -> None:
    from vlmsearch._util.console import make_console, make_table

    if not rows:
        return
    names = ("re-ranker", "precision", "MB", "calibration error", "precision at 0.5", "recall at 0.5", "pairs/s")
    cells = [["" if value is None else str(value) for value in list(row.values())[:7]] for row in rows]
    make_console().print(make_table(names, cells, left=names[:2], title="re-rankers"))


def _rows(bundle: Bundle) -> list[dict[str, object]]:
    """Return one row a precision; the figures are the worst of its towers."""
    from vlmsearch.models.bundle import model_file

    rows: list[dict[str, object]] = []
    for precision in bundle.precisions:
        size = sum(bundle.files[model_file(tower, precision)].size for tower in bundle.towers)
        figure = "cosine" if precision == "fp32" else "mean_cosine"
        rows.append(
            {
                "name": bundle.name,
                "precision": precision,
                "megabytes": round(size / 1e6, 1),
                "cosine": _worst(bundle, precision, figure),
                "overlap": None if precision == "fp32" else _worst(bundle, precision, "overlap"),
                "images_per_second": _rate(bundle, f"image.{precision}"),
                "texts_per_second": _rate(bundle, f"text.{precision}"),
                "forced": bool(bundle.forced),
                "folder": str(bundle.folder),
                "dims": [bundle.space.dim, *bundle.dims],
            }
        )
    return rows


def _worst(bundle: Bundle, precision: str, figure: str) -> float | None:
    checks = bundle.measured.get("checks")
    if not isinstance(checks, Mapping):
        return None
    found = [checks.get(f"{tower}.{precision}.{figure}") for tower in bundle.towers]
    values = [float(check["value"]) for check in found if isinstance(check, Mapping)]
    return round(min(values), 6) if values else None


def _rate(bundle: Bundle | RerankerBundle, key: str) -> float | None:
    rates = bundle.measured.get("items_per_second")
    value = rates.get(key) if isinstance(rates, Mapping) else None
    return float(value) if isinstance(value, (int, float)) else None


def _print_table(rows: list[dict[str, object]], missing: list[str]) -> None:
    from vlmsearch._util.console import make_console, make_table

    console = make_console()
    wide = console.width >= WIDE
    names = [
        "model",
        "precision",
        "MB",
        "cosine",
        "top-10",
        "images/s",
        "texts/s",
        *(("dims", "folder") if wide else ()),
    ]
    shown = []
    for row in rows:
        forced = " (forced)" if row["forced"] else ""
        cells = [f"{row['name']}{forced}", str(row["precision"]), f"{row['megabytes']:,}"]
        cells += [_rounded(row["cosine"], 5), _rounded(row["overlap"], 3)]
        cells += [_rounded(row[name], 0) for name in ("images_per_second", "texts_per_second")]
        shown.append([*cells, *((_cell(row["dims"]), short_path(str(row["folder"]))) if wide else ())])
    table = make_table(names, shown, left=("model", "precision", "folder"))
    for column in table.columns[1:7]:
        column.no_wrap = True  # rather a long name on two lines than a number
    console.print(table)
    console.print()
    lines = ["cosine: fp32 to the original, the others to fp32. top-10: the share of the 10 nearest that INT8 keeps."]
    lines += [f"Not built: {', '.join(missing)}."] if missing else []
    lines += ["Build one with `vlmsearch build MODEL`; `vlmsearch models --available` is the table to choose from."]
    for line in lines:
        console.print(line, style="dim")


def _rounded(value: object, digits: int) -> str:
    return f"{value:,.{digits}f}" if isinstance(value, (int, float)) else ""
