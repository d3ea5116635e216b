"""Multimodal retrieval with pluggable back ends.

>>> from vlmsearch import Document, Pipeline
"""

import os

from vlmsearch.answers.prompts import AnswerStream
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
from vlmsearch.generators.base import GenerationOptions
from vlmsearch.media.limits import ImageLimits
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

os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")  # read when ONNX Runtime is loaded, here and in processes of ours

__all__ = [
    "Answer",
    "AnswerStream",
    "BackendError",
    "BackendUnavailableError",
    "Citation",
    "ConfigError",
    "Document",
    "Field",
    "GenerationOptions",
    "Hit",
    "ImageLimits",
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
