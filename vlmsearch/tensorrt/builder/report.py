"""What engines were measured at: a file beside the recipe, and the lines of a table."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from vlmsearch._util.files import replace_file
from vlmsearch.errors import ConfigError
from vlmsearch.models.recipe import Recipe

Row = Mapping[str, object]
_BATCHES = (1, 8, 32, 128, 256)
_TITLES = ("tower", "precision", "result", "cosine", "overlap", "in fp16", "MB", "built in s")


def report_folder(recipe: Recipe, given: Path | None) -> Path | None:
    """Return where the report goes: where it is told, else beside the recipe.

    Nowhere for one inside an installed package.
    """
    if given or "_data" not in recipe.folder.parts:
        return given or recipe.folder
    return None


def write_report(folder: Path, model: str, machine: Row, rows: Sequence[Row]) -> Path:
    """Write ``report-GPU.json``; rows of other towers and precisions that are in it already stay.

    ConfigError where such a file is there and is not a report.
    """
    path = folder / f"report-{str(machine['gpu']).lower().replace(' ', '-')}.json"
    fresh = {(row["tower"], row["precision"]) for row in rows}
    try:
        old: list[Row] = json.loads(path.read_text(encoding="utf-8"))["engines"] if path.is_file() else []
        kept = [row for row in old if (row["tower"], row["precision"]) not in fresh]
    except (KeyError, TypeError, ValueError) as exc:
        raise ConfigError(f"the engines are built, but {path} is not a report to add them to: move it away") from exc
    report = {"model": model, "machine": dict(machine), "engines": [*kept, *map(dict, rows)]}
    folder.mkdir(parents=True, exist_ok=True)
    replace_file(path, (json.dumps(report, indent=1, ensure_ascii=False) + "\n").encode())
    return path


def table(rows: Sequence[Row]) -> Iterator[tuple[str, ...]]:
    """Yield a line of titles, then one an engine.

    Accuracy, memory, build time, and by batch size ms and items a second.
    """
    yield (*_TITLES, *(f"batch {size}: ms, /s" for size in _BATCHES))
    for row in rows:
        yield tuple(_cells(row))


def _cells(row: Row) -> Iterator[str]:
    yield from (str(row.get(name, "")) for name in ("tower", "precision"))
    yield _result(row)
    yield from (str(row.get(name, "")) for name in ("mean_cosine", "overlap"))
    layers, memory, timings = row.get("fp16_layers"), row.get("memory_bytes"), row.get("timings")
    yield str(len(layers)) if isinstance(layers, list) else ""
    yield f"{memory / 2**20:.0f}" if isinstance(memory, int) else ""
    yield str(row.get("build_seconds", ""))
    by_size = {entry["batch"]: entry for entry in timings} if isinstance(timings, list) else {}
    for size in _BATCHES:
        entry = by_size.get(size)
        yield f"{entry['latency_ms']:.3f}, {1000 * size / entry['batch_ms']:.0f}" if entry else ""


def _result(row: Row) -> str:
    if row.get("failed"):
        return "not built"
    if row.get("published"):
        return "published"
    if "passed" not in row:
        return ""
    return "passed" if row["passed"] else "below the gate"
