"""Metadata without the facts about files, for tests that are not about these."""

from __future__ import annotations

from collections.abc import Mapping

from vlmsearch.indexing.facts import DATE, FOLDER, TYPE
from vlmsearch.types import MetadataValue


def own(metadata: Mapping[str, MetadataValue]) -> dict[str, MetadataValue]:
    """Return the metadata that come from the content of a file or from its owner."""
    return {key: value for key, value in metadata.items() if key not in (TYPE, FOLDER, DATE)}
