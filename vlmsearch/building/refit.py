"""The relevance of a finished bundle, fitted anew; its models stay as they are."""

from __future__ import annotations

import os
import shutil
from dataclasses import asdict
from pathlib import Path

from vlmsearch._util.files import folder_in_the_making, publish
from vlmsearch._util.json_table import JsonTable
from vlmsearch.building.bundle import Json, fit_relevance, write_json
from vlmsearch.building.quantize import Report, silent
from vlmsearch.errors import ConfigError
from vlmsearch.models.bundle import FORMAT, Bundle, open_bundle
from vlmsearch.models.recipe import built_by


def refit_bundle(folder: Path, progress: Report | None = None) -> Bundle:
    """Fit how relevance follows from the cosines of a bundle.

    An earlier version may have built it.

    Args:
        folder: The bundle's.
        progress: Called with the step, what is done and what there is.

    Returns:
        The bundle, which is replaced at once or not at all.

    Raises:
        ModelUnavailableError: There is no bundle, or it is damaged.
        ConfigError: The recipe that built it is not known.
    """
    with folder_in_the_making(folder) as making:
        shutil.copytree(folder, making, dirs_exist_ok=True, copy_function=_link)
        description = making / "bundle.json"
        given: Json = JsonTable.read(description, format=FORMAT).plain()
        description.unlink()
        write_json(making, {**given, "relevance": {}})
        bundle = open_bundle(making)
        recipe = built_by(bundle)
        if recipe is None:
            raise ConfigError(f"the recipe of {folder} is not known: build it again")
        fits, measured = fit_relevance(recipe, bundle, progress or silent)
        relevance = {modality: asdict(fit) for modality, fit in fits.items()}
        write_json(making, {**given, "relevance": relevance, "measured": {**bundle.measured, **measured}})
        publish(making, folder)
    return open_bundle(folder)


def _link(source: str, target: str) -> None:
    """Make a hard link, or a copy where links cannot be made."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)
