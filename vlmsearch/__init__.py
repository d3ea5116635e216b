"""Multimodal retrieval with pluggable back ends.

>>> from vlmsearch import Document, Pipeline
"""

from vlmsearch.errors import (
    BackendError,
    BackendUnavailableError,
    ConfigError,
    IndexMismatchError,
    InvalidInputError,
    MissingDependencyError,
    ModelUnavailableError,
    QualityError,
    VlmsearchError,
)
from vlmsearch.pipeline import Pipeline
from vlmsearch.types import (
    Answer,
    Citation,
    Document,
    Field,
    Hit,
    IndexReport,
    Leg,
    Manifest,
    Match,
    Query,
    Record,
    Reject,
    Space,
    Stamp,
)

__version__ = "0.1.0"

__all__ = [
    "Answer",
    "BackendError",
    "BackendUnavailableError",
    "Citation",
    "ConfigError",
    "Document",
    "Field",
    "Hit",
    "IndexMismatchError",
    "IndexReport",
    "InvalidInputError",
    "Leg",
    "Manifest",
    "Match",
    "MissingDependencyError",
    "ModelUnavailableError",
    "Pipeline",
    "QualityError",
    "Query",
    "Record",
    "Reject",
    "Space",
    "Stamp",
    "VlmsearchError",
]
