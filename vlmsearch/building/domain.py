"""Measure the domain of a model: the statistics of the vectors that its relevance was fitted on."""

from __future__ import annotations

import io

import numpy as np

from vlmsearch.building.relevance import LabelledVectors
from vlmsearch.types import Modality, Vectors

_SHRINKAGE = 0.01
"""Share of the mean variance that each direction has at least: with 0.1, more photographs pass for drawn scenes."""
INSIDE = 0.99
"""Share of the inputs of the domain whose vectors are inside."""


def domain_file(labelled: LabelledVectors, modality: Modality) -> bytes:
    """Return the ``domain.npy`` of a model.

    Args:
        labelled: Vectors that relevance was fitted on.
        modality: What the documents are.
    """
    fitted, held_out = split_vectors(labelled, modality)
    mean = fitted.mean(axis=0, dtype=np.float64)
    variances, directions = np.linalg.eigh(np.cov(fitted.astype(np.float64), rowvar=False))
    variances = (1 - _SHRINKAGE) * variances + _SHRINKAGE * variances.mean()
    matrix = directions / np.sqrt(variances)
    limit = np.quantile(np.linalg.norm((held_out - mean) @ matrix, axis=1), INSIDE)
    file = io.BytesIO()
    np.save(file, np.vstack([mean, matrix / limit]).astype(np.float16))
    return file.getvalue()


def split_vectors(labelled: LabelledVectors, modality: Modality) -> tuple[Vectors, Vectors]:
    """Return the vectors that make a domain's statistics, and those that set its border.

    The latter say which distance is inside. They are a third of the topics: an index need not have the topics of the
    fit. Queries belong to the domain of a model of texts, because documents may be as short.
    """
    topics = labelled.document_topics
    vectors, groups = [labelled.documents], [np.arange(len(labelled.documents)) if topics is None else topics]
    if modality == "text":
        vectors.append(labelled.queries)
        groups.append(labelled.query_topics)
    every, is_held_out = np.concatenate(vectors), np.concatenate(groups) % 3 == 0
    return every[~is_held_out], every[is_held_out]
