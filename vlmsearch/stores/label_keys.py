"""The keys of labels and readers in metadata, apart from those of a source.

A labelling has a key, such as ``label``. A document that got labels has that key with the most relevant one, and a
number for each: ``{"label": "cat", "label:cat": 0.97, "label:sofa": 0.44}``. So every store can filter on each of them
and on how relevant it is. The metadata of a source are of this form by an unlikely accident only.

The digest of a document does not change by its labels but grows by a digest of them, after a ``+``: indexing its source
again finds it unchanged, and copying an index finds that the labels are new. So it is with the readers of a document.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping

from vlmsearch.types import READERS, MetadataValue

_SEPARATOR = "+"


def split_labels(metadata: Mapping[str, MetadataValue]) -> tuple[dict[str, MetadataValue], dict[str, MetadataValue]]:
    """Return metadata without labels and readers, and these with their keys."""
    keys = [key for key, value in metadata.items() if isinstance(value, str) and _is_number(metadata, f"{key}:{value}")]
    starts = tuple(f"{key}:" for key in keys)
    labels = {
        key: value
        for key, value in metadata.items()
        if key == READERS or key in keys or (starts and key.startswith(starts) and _is_number(metadata, key))
    }
    return {key: value for key, value in metadata.items() if key not in labels}, labels


def with_labels(digest: str, labels: Mapping[str, MetadataValue]) -> str:
    """Return the digest of a document with these labels, from its digest with any."""
    digest = without_labels(digest)
    if not digest or not labels:
        return digest
    form = json.dumps(sorted(labels.items()), ensure_ascii=True)
    return f"{digest}{_SEPARATOR}{hashlib.sha256(form.encode()).hexdigest()[:16]}"


def without_labels(digest: str) -> str:
    """Return the digest that a document had before it got labels."""
    return digest.partition(_SEPARATOR)[0]


def has_labels(digest: str) -> bool:
    """Return whether a digest is that of a document with labels."""
    return _SEPARATOR in digest


def _is_number(metadata: Mapping[str, MetadataValue], key: str) -> bool:
    value = metadata.get(key)
    return isinstance(value, (int, float)) and not isinstance(value, bool)
