"""What builds a model that is not here yet.

Reading a model depends on nothing that builds one. A builder is an entry point of the group ``vlmsearch.builders``,
which is looked up by its name at the moment that something is missing.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import entry_points
from typing import Literal

from vlmsearch.errors import ConfigError

_GROUP = "vlmsearch.builders"


def find_builder(product: Literal["bundle", "engine"]) -> Callable[..., object]:
    """Return what builds bundles or engines.

    Raises:
        ImportError: a package that building needs is not installed.
        ConfigError: vlmsearch runs from its source and is not installed, so that it has no entry points.
    """
    for point in entry_points(group=_GROUP, name=product):
        builder: Callable[..., object] = point.load()
        return builder
    raise ConfigError(
        f"no builder of {product}s is registered: vlmsearch runs from its source here and is not installed; "
        "pip install it"
    )
