"""The domain of a model: which inputs it is made for, and whether vectors look like those of such inputs.

A bundle with a domain holds ``domain.npy``: the mean of the vectors of inputs of the domain, and a matrix that makes
their covariance the unit matrix. The length of what the two make of a vector is its Mahalanobis distance. The matrix
is scaled so that 99 of 100 vectors of the domain are shorter than 1. See Lee et al., "A Simple Unified Framework for
Detecting Out-of-Distribution Samples and Adversarial Attacks", NeurIPS 2018.

`Domain.verdict` looks at a sample of an index, not at single documents: it says that the index is outside where more
than a fifth of the documents are, and chance does not explain it.
"""

from __future__ import annotations

import io
import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from vlmsearch.errors import ConfigError
from vlmsearch.types import Modality, Vectors

if TYPE_CHECKING:
    from vlmsearch.models.bundle import Bundle

DOMAIN_FILE = "domain.npy"
MIN_DOCUMENTS = 16
"""Number of documents below which a sample says nothing."""
MAX_SHARE = 0.2
"""Share of a sample that may lie outside of a domain: a few photographs among scenes, or scenes on their side."""
_DEVIATIONS = 1.64
"""Standard deviations by which a sample may exceed `MAX_SHARE` by chance, in 95 of 100 samples."""


@dataclass(frozen=True, eq=False)
class Domain:
    """The inputs that a model is made for, and the statistics of their vectors.

    Attributes:
        name: Name of these inputs, such as "drawn scenes".
        model: Name of the model.
        statistics: Array of shape (dim + 1, dim): the mean, and the matrix that vectors less the mean are multiplied
            with.

    Example:
        >>> domain = Domain("dots", "dot-finder", np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]]))
        >>> domain.are_outside(np.array([[0.5, 0.5], [0.0, 1.5]], np.float32)).tolist()
        [False, True]
    """

    name: str
    model: str
    statistics: NDArray[np.floating] = field(repr=False)

    def are_outside(self, vectors: Vectors) -> NDArray[np.bool_]:
        """Return whether vectors are unlike those of the domain.

        Args:
            vectors: Float32 of shape (n, dim).

        Returns:
            An array of shape (n,).

        Example:
            >>> domain = Domain("dots", "dot-finder", np.vstack([np.zeros(2), np.eye(2)]))
            >>> domain.are_outside(np.zeros((1, 2), np.float32)).tolist()
            [False]
        """
        statistics = self.statistics.astype(np.float32)
        outside: NDArray[np.bool_] = np.linalg.norm((vectors - statistics[0]) @ statistics[1:], axis=1) > 1
        return outside

    def verdict(self, sample: Vectors, modality: Modality) -> str | None:
        """Return the reason why an index is outside of the domain.

        Args:
            sample: Vectors of a field of the index, of shape (n, dim).
            modality: Modality of the documents.

        Returns:
            A sentence without its full stop; None for an index that is inside, or for fewer than 16 vectors.

        Example:
            >>> domain = Domain("dots", "dot-finder", np.vstack([np.zeros(2), np.eye(2)]))
            >>> domain.verdict(np.full((20, 2), 9.0, np.float32), "image")
            'dot-finder is made for dots, and 100% of the images in this index are unlike them'
        """
        count = len(sample)
        if count < MIN_DOCUMENTS:
            return None
        share = float(self.are_outside(sample).mean())
        if share <= MAX_SHARE + _DEVIATIONS * math.sqrt(MAX_SHARE * (1 - MAX_SHARE) / count):
            return None
        return f"{self.model} is made for {self.name}, and {share:.0%} of the {modality}s in this index are unlike them"


def domain_modality(bundle: Bundle) -> Modality:
    """Return what a bundle's domain is of: its images, which a text is compared with, or the texts of one without."""
    return "image" if bundle.preprocess else "text"


def open_domain(bundle: Bundle) -> Domain | None:
    """Return the domain of a bundle, or None.

    ConfigError where its file is of another form.
    """
    if not bundle.domain:
        return None
    shape = (bundle.space.dim + 1, bundle.space.dim)
    if DOMAIN_FILE not in bundle.files:
        raise ConfigError(f"{bundle.folder} has a domain and no {DOMAIN_FILE}; build it again")
    try:
        statistics = np.load(io.BytesIO(bundle.read(DOMAIN_FILE)), allow_pickle=False)
    except (ValueError, EOFError) as exc:
        raise ConfigError(f"{bundle.folder / DOMAIN_FILE} is damaged: {exc}; build it again") from exc
    if statistics.shape != shape or statistics.dtype != np.float16 or not np.isfinite(statistics).all():
        raise ConfigError(f"{bundle.folder / DOMAIN_FILE} is not of {shape} finite float16 numbers; build it again")
    return Domain(bundle.domain, bundle.name, statistics)
