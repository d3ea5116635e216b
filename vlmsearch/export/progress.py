"""Builds that show where they are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn

from vlmsearch._util.console import make_console
from vlmsearch.export.bundle import build_bundle
from vlmsearch.export.fetch import checkpoint_folder
from vlmsearch.export.quantize import Report
from vlmsearch.models.bundle import Bundle, Precision
from vlmsearch.models.recipe import find_recipe


def build_with_progress(
    recipe: str,
    *,
    checkpoint: Path | None = None,
    parent: Path | None = None,
    precisions: Sequence[Precision] | None = None,
    calibrate: Sequence[Path] = (),
    force: bool = False,
) -> Bundle:
    """What `build_bundle` gives for a recipe's name or file, with each step shown on standard error.

    The bundle's folder is put into ``parent``, by default the user's cache.
    """
    found = find_recipe(recipe)
    checkpoint = checkpoint or checkpoint_folder(found)  # the hub's library draws its own bars
    with steps(found.name) as report:
        return build_bundle(
            found,
            checkpoint=checkpoint,
            out=parent / found.name if parent else None,
            precisions=precisions,
            calibrate=calibrate,
            force=force,
            progress=report,
        )


@contextmanager
def steps(name: str) -> Iterator[Report]:
    """A line for each step: moving on a terminal, plain elsewhere."""
    console = make_console(stderr=True)
    columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), BarColumn(), TimeElapsedColumn())
    current: dict[str, TaskID] = {}
    with Progress(*columns, console=console, disable=not console.is_terminal) as bars:

        def report(step: str, done: int, total: int) -> None:
            if step not in current:
                for task in current.values():
                    bars.update(task, completed=1, total=1)
                current.clear()
                current[step] = bars.add_task(f"{name}: {step}", total=None)
                if not console.is_terminal:
                    console.print(f"{name}: {step}", soft_wrap=True)
            if done:
                bars.update(current[step], completed=done, total=total)

        yield report
        for task in current.values():
            bars.update(task, completed=1, total=1)
