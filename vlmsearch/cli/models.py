"""``vlmsearch models``."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from vlmsearch.cli.available import is_wide, show_available
from vlmsearch.cli.common import command, is_terminal, json_option, option, print_json, print_table, short_path
from vlmsearch.errors import ConfigError

if TYPE_CHECKING:
    from vlmsearch.models.bundle import Bundle
    from vlmsearch.models.reranker import RerankerBundle


@command()
@option("--available", is_flag=True, help="List all models with their published quality, built or not.")
@option("--remove", "removed", multiple=True, metavar="NAME", has_variable=False, help="Remove a model from the cache.")
@json_option
def models(available: bool, removed: tuple[str, ...], as_json: bool) -> None:
    """List the built models with their size, accuracy and speed, or remove some."""
    if removed and available:
        raise click.UsageError("--remove removes models and --available lists them: give one of the two")
    if removed:
        _remove(removed, as_json=as_json)
        return
    if available:
        show_available(as_json=as_json)
        return
    from vlmsearch.models.bundle import RERANKER, built_bundles, recipe_names
    from vlmsearch.models.reranker import built_rerankers

    bundles, reranker_bundles = built_bundles(), built_rerankers()
    rows = [row for bundle in bundles for row in _rows(bundle)]
    rerankers = [row for bundle in reranker_bundles for row in _reranker_rows(bundle)]
    names = {bundle.name for bundle in (*bundles, *reranker_bundles)}
    missing = sorted({*recipe_names(), *recipe_names(RERANKER)} - names)
    engines = _engines()
    if as_json:
        print_json({"built": rows, "rerankers": rerankers, "not_built": missing, "engines": engines})
        return
    _print_models(rows)
    _print_rows("re-rankers", rerankers)
    _print_rows("TensorRT engines", engines)
    if not is_terminal():
        for name in missing:
            click.echo(f"{name}\tnot built")
        return
    from vlmsearch._util.console import make_console

    console = make_console()
    console.print("\ncosine: fp32 to the original, the others to fp32. top-10: share of the nearest 10 kept by INT8.")
    for bundle in bundles:
        if words := _inputs_in_words(bundle):
            console.print(f"{bundle.name}: {words}.")
    for proof, words in _PROOFS.items():
        if any(row["proof"] == proof for row in (*rows, *rerankers)):
            console.print(f"proof {proof}: {words}.")
    if missing:
        console.print(f"Not built: {', '.join(missing)}.")
    console.print("Build one with `vlmsearch build MODEL`; `vlmsearch models --available` is the table to choose from.")


def _remove(names: tuple[str, ...], *, as_json: bool) -> None:
    """Remove what the cache holds of models, all or none, and print the sizes.

    These are bundles, completed checkpoints and TensorRT engines.
    """
    from vlmsearch._util.files import folder_in_the_making
    from vlmsearch._util.tables import suggest
    from vlmsearch.models.bundle import cache_folder

    folders = [*cache_folder().glob("bundles/[!.]*"), *cache_folder().glob("checkpoints/[!.]*")]
    paths = [(re.sub("-[0-9a-f]{12}$", "", folder.name), folder) for folder in folders]
    plans = [(str(engine["model"]), Path(str(engine["path"]))) for engine in _engines()]
    paths += [(name, plan.with_suffix(suffix)) for name, plan in plans for suffix in (".json", ".plan")]
    known = sorted({name for name, _ in paths})
    for name in sorted(set(names).difference(known)):
        raise ConfigError(
            f"no model {name!r} in the cache; {suggest(name, known)}there are {', '.join(known) or 'none'}"
        )
    sizes = dict.fromkeys(names, 0)
    for name, path in paths:
        if name in sizes:
            sizes[name] += sum(place.lstat().st_size for place in (path, *path.rglob("*")))
            with folder_in_the_making(path, "remove it as its owner, while no process uses it") as aside:
                os.replace(path, aside / path.name)  # at once: nobody opens half a model
    rows: list[dict[str, object]] = [{"name": name, "megabytes": round(sizes[name] / 1e6, 1)} for name in sizes]
    if as_json:
        print_json({"removed": rows})
    else:
        _print_rows("removed", rows)


_PROOFS = {
    "transformers": "comparison with transformers",
    "configuration": "comparison of its configuration, with random weights",
    "family": "comparison of its family, with random weights of other sizes",
}


_DIGITS = {"megabytes": 1, "cosine": 5, "overlap": 3, "images_per_second": 0, "texts_per_second": 0}
"""The digits behind the point of each figure in the table."""


def proof_in_words(bundle: Bundle | RerankerBundle) -> str:
    """Return what a bundle was proven by; those of earlier versions were all compared with transformers."""
    return _PROOFS.get(_proof(bundle), _proof(bundle))


def _proof(bundle: Bundle | RerankerBundle) -> str:
    return str(bundle.measured.get("proof", "transformers"))


def _inputs(bundle: Bundle | RerankerBundle) -> dict[str, dict[str, object]]:
    """Return what INT8 was calibrated on, by file, and relevance was fitted on, by modality."""
    calibration = {file: story["calibration"] for file, story in bundle.quantisation.items() if "calibration" in story}
    relevance = bundle.measured.get("relevance_from")
    return {"calibration": calibration, "relevance": relevance if isinstance(relevance, dict) else {}}


def _rows(bundle: Bundle) -> list[dict[str, object]]:
    """Return one row a precision; the figures are the worst of its towers."""
    from vlmsearch.models.bundle import model_file

    return [
        {
            "name": bundle.name,
            "precision": precision,
            "megabytes": _megabytes(bundle, *(model_file(tower, precision) for tower in bundle.towers)),
            "cosine": _worst(bundle, precision, "cosine" if precision == "fp32" else "mean_cosine"),
            "overlap": None if precision == "fp32" else _worst(bundle, precision, "overlap"),
            "images_per_second": _rate(bundle, f"image.{precision}"),
            "texts_per_second": _rate(bundle, f"text.{precision}"),
            "proof": _proof(bundle),
            "inputs": _inputs(bundle),
            "forced": bool(bundle.forced),
            "folder": str(bundle.folder),
            "dims": [bundle.space.dim, *bundle.dims],
            "domain": bundle.domain or None,
        }
        for precision in bundle.precisions
    ]


def _reranker_rows(bundle: RerankerBundle) -> list[dict[str, object]]:
    """Return one row a precision."""
    from vlmsearch.models.reranker import reranker_file

    return [
        {
            "name": bundle.name,
            "precision": precision,
            "megabytes": _megabytes(bundle, reranker_file(precision)),
            "calibration_error": _check(bundle, f"{precision}.calibration_error"),
            "precision_at_half": _check(bundle, f"{precision}.precision"),
            "recall_at_half": _check(bundle, f"{precision}.recall"),
            "pairs_per_second": _rate(bundle, precision),
            "proof": _proof(bundle),
            "forced": bool(bundle.forced),
            "folder": str(bundle.folder),
        }
        for precision in bundle.precisions
    ]


def _engines() -> list[dict[str, object]]:
    """Return the TensorRT engines in the cache; no GPU is asked."""
    from vlmsearch.errors import ModelUnavailableError
    from vlmsearch.tensorrt.engine.plans import open_plan, plans_folder

    engines: list[dict[str, object]] = []
    for path in sorted(plans_folder().glob("*.plan")):
        try:
            plan = open_plan(path)
        except ModelUnavailableError:
            continue  # another process writes it, or `vlmsearch doctor` reports it
        if "model" in plan.report:
            engines.append(
                {name: plan.report[name] for name in ("model", "tower", "precision", "mean_cosine", "overlap")}
                | {"megabytes": round(plan.size / 1e6, 1), "gpu": plan.key.machine.gpu}
                | {"tensorrt": plan.key.machine.tensorrt, "path": str(path)}
            )
    return engines


def _megabytes(bundle: Bundle | RerankerBundle, *files: str) -> float:
    return round(sum(bundle.files[file].size for file in files) / 1e6, 1)


def _check(bundle: Bundle | RerankerBundle, name: str) -> float | None:
    checks = bundle.measured.get("checks")
    check = checks.get(name) if isinstance(checks, Mapping) else None
    return round(float(check["value"]), 6) if isinstance(check, Mapping) else None


def _worst(bundle: Bundle, precision: str, figure: str) -> float | None:
    values = [_check(bundle, f"{tower}.{precision}.{figure}") for tower in bundle.towers]
    return min((value for value in values if value is not None), default=None)


def _rate(bundle: Bundle | RerankerBundle, key: str) -> float | None:
    rates = bundle.measured.get("items_per_second")
    rate = rates.get(key) if isinstance(rates, Mapping) else None
    return float(rate) if isinstance(rate, (int, float)) else None


def _print_models(rows: list[dict[str, object]]) -> None:
    names = ["model", "precision", "proof", "MB", "cosine", "top-10", "images/s", "texts/s"]
    lines = []
    for row in rows:
        name = f"{row['name']} (forced)" if row["forced"] else str(row["name"])
        figures = (_rounded(row[key], digits) for key, digits in _DIGITS.items())
        line = [name, str(row["precision"]), str(row["proof"]), *figures]
        if is_wide():
            dims = row["dims"] if isinstance(row["dims"], list) else []
            line += [" ".join(map(str, dims)), str(row["domain"] or ""), short_path(str(row["folder"]))]
        lines.append(line)
    print_table(
        [*names, *(("dims", "made for", "folder") if is_wide() else ())], lines,
        left=("model", "precision", "proof", "made for", "folder"),
    )  # fmt: skip


def _inputs_in_words(bundle: Bundle) -> str:
    """Return what INT8 and relevance of a bundle were made from."""
    texts = {name: dict.fromkeys(map(str, origins.values())) for name, origins in _inputs(bundle).items()}
    return ", ".join(f"{name} from {' and '.join(values)}" for name, values in texts.items() if values)


def _print_rows(title: str, rows: list[dict[str, object]]) -> None:
    """Print rows but for their files; nothing where there is no row."""
    if rows:
        keys = [key for key in rows[0] if key not in ("forced", "folder", "path")]
        lines = [["" if row[key] is None else str(row[key]) for key in keys] for row in rows]
        print_table([key.replace("_", " ") for key in keys], lines, left=("name", "model", "gpu"), title=title)


def _rounded(number: object, digits: int) -> str:
    return f"{number:,.{digits}f}" if isinstance(number, (int, float)) else ""
