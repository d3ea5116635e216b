"""Builds that show where they are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn

from vlmsearch._util.console import make_console
from vlmsearch.building.bundle import build_bundle
from vlmsearch.building.derive import find_or_derive
from vlmsearch.building.fetch import checkpoint_folder
from vlmsearch.building.quantize import Report
from vlmsearch.building.refit import refit_bundle
from vlmsearch.building.reranker import build_reranker
from vlmsearch.errors import ConfigError
from vlmsearch.models.bundle import Bundle, BundleKind, Precision, built_folder, bundle_name
from vlmsearch.models.recipe import PoolingName, RerankerRecipe
from vlmsearch.models.reranker import PRECISIONS, RerankerBundle, RerankerPrecision


def build_with_progress(
    recipe: str,
    *,
    checkpoint: Path | None = None,
    parent: Path | None = None,
    precisions: Sequence[Precision] | None = None,
    calibrate: Sequence[Path] = (),
    is_first_use: bool = False,
    force: bool = False,
    revision: str = "",
    pooling: PoolingName = "",
    kind: BundleKind | None = None,
) -> Bundle | RerankerBundle:
    """Build a bundle of an encoder or a re-ranker, and report each step on standard error.

    It is what `build_bundle` or `build_reranker` makes of a recipe or a model. The bundle's folder is put into
    ``parent``, by default the user's cache. The other arguments are those of `build_bundle` and `find_or_derive`.
    """
    with steps(bundle_name(recipe)) as report:
        chosen = find_or_derive(
            recipe, revision=revision, pooling=pooling, checkpoint=checkpoint, kind=kind, report=report
        )
        checkpoint = checkpoint or checkpoint_folder(chosen, report)
    out = parent / chosen.name if parent else None
    with steps(chosen.name) as report:
        if isinstance(chosen, RerankerRecipe):
            return build_reranker(
                chosen,
                checkpoint=checkpoint,
                out=out,
                precisions=_of_rerankers(chosen.name, precisions, () if is_first_use else calibrate),
                force=force,
                progress=report,
            )
        return build_bundle(
            chosen,
            checkpoint=checkpoint,
            out=out,
            precisions=precisions,
            calibrate=calibrate,
            is_first_use=is_first_use,
            force=force,
            progress=report,
        )


def refit_with_progress(name: str, parent: Path | None = None) -> Bundle:
    """Fit the relevance of a bundle anew: one in a folder, in ``parent`` or in the user's cache."""
    path = Path(name)
    folder = path if path.is_dir() else parent / bundle_name(name) if parent else built_folder(bundle_name(name))
    if folder is None or not (folder / "bundle.json").is_file():
        raise ConfigError(f"no bundle of {name} is built: run `vlmsearch build {name}`")
    with steps(folder.name) as report:
        return refit_bundle(folder, report)


def _of_rerankers(
    name: str, precisions: Sequence[Precision] | None, calibrate: Sequence[Path]
) -> list[RerankerPrecision] | None:
    """Return the precisions of a re-ranker; ConfigError for options of encoders only."""
    if calibrate:
        raise ConfigError(f"{name} is a re-ranker, which is not calibrated on texts and images: leave out `calibrate`")
    if precisions and not set(precisions) <= set(PRECISIONS):
        raise ConfigError(f"{name} is a re-ranker: it can have {' and '.join(PRECISIONS)}, not {', '.join(precisions)}")
    return [known for known in PRECISIONS if known in precisions] if precisions else None


@contextmanager
def steps(name: str) -> Iterator[Report]:
    """Give a line for each step: moving on a terminal, plain elsewhere."""
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
