"""Which fields a query goes to, and how their ranked lists become one.

=============  ===========================================  ==========================
query          fields asked                                 with the vector of
=============  ===========================================  ==========================
text           image field of every space with images       that space's text tower
text           text field of every text-only space          that space's text tower
image          both fields of every space with images       that space's image tower
=============  ===========================================  ==========================

A text is compared with texts by the text-only spaces, which are far better at it than CLIP; where an encoder has no
such space, the text field of the image spaces is asked as well. A query of text and image at once asks the fields of
both; a field that both would ask gets the mean of the two vectors.

Lists are fused by reciprocal rank (Cormack, Clarke and Buettcher, "Reciprocal Rank Fusion outperforms Condorcet and
individual Rank Learning Methods", SIGIR 2009), with two changes. A document is measured only by the fields it has: a
photograph without a caption is not beaten by one with a caption just because it cannot be found by text. And scores
are scaled, so that 1 means first in every asked field that the document has.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence

import numpy as np

from vlmsearch.errors import ConfigError
from vlmsearch.types import Field, Hit, Leg, Space, Vectors

RRF_K = 60
"""The constant of reciprocal rank fusion: how slowly a rank loses weight. 60 is the paper's."""
DEPTH = 100
"""How many hits each field gives at least, so that lists overlap enough to be fused."""


def text_fields(spaces: Sequence[Space]) -> list[Field]:
    """The fields that a text query asks."""
    pictures = [Field(space.name, "image") for space in spaces if "image" in space.modalities]
    texts = [Field(space.name, "text") for space in spaces if space.modalities == {"text"}]
    return pictures + (texts or [Field(space.name, "text") for space in spaces if "text" in space.modalities])


def image_fields(spaces: Sequence[Space]) -> list[Field]:
    """The fields that an image query asks."""
    return [field for space in spaces if "image" in space.modalities for field in space.fields]


def query_vectors(
    spaces: Sequence[Space], text: Mapping[str, Vectors] | None, image: Mapping[str, Vectors] | None
) -> dict[Field, Vectors]:
    """The vector, shape (1, dim), that each field is asked for; ``text`` and ``image`` are by space name.

    ConfigError for an image that was encoded into no space.
    """
    if image is not None and not image:
        raise ConfigError("the encoder encodes no images: ask with a text")
    asked: dict[Field, list[Vectors]] = {}
    for fields, vectors in ((text_fields(spaces), text), (image_fields(spaces), image)):
        for field in fields:
            if vectors is not None and field.space in vectors:
                asked.setdefault(field, []).append(vectors[field.space])
    return {field: _mean(vectors) for field, vectors in asked.items()}


def _mean(vectors: Sequence[Vectors]) -> Vectors:
    if len(vectors) == 1:
        return vectors[0]
    total = np.sum(vectors, axis=0, dtype=np.float32)
    mean: Vectors = total / np.maximum(np.linalg.norm(total, axis=1, keepdims=True), 1e-12)
    return mean


def check_fields(weights: Collection[Field], spaces: Sequence[Space]) -> None:
    """Raise ConfigError for a field that is weighed and not there."""
    known = {field for space in spaces for field in space.fields}
    for field in weights:
        if field not in known:
            there = ", ".join(sorted(map(str, known)))
            raise ConfigError(f"no field {field!r} to weigh; each is a Field, and there are {there}")


def fuse(
    ranked: Mapping[Field, Sequence[Hit]],
    owned: Mapping[str, Collection[Field]],
    weights: Mapping[Field, float] | None = None,
) -> list[tuple[str, float, dict[Field, Leg]]]:
    """One list of (id, score, legs), best first; among equal scores, the higher cosine and then the id decide.

    ``owned`` says which fields each document has; a document that is not in it is left out. ``weights`` counts some
    fields more than others; a field that it leaves out counts 1.
    """
    shares = {field: (weights or {}).get(field, 1.0) for field in ranked}
    if not all(0 <= share < math.inf for share in shares.values()) or (ranked and not sum(shares.values())):
        raise ConfigError(f"weights are numbers of at least 0 and not all 0, not {weights}")
    legs: dict[str, dict[Field, Leg]] = {}
    for field, hits in ranked.items():
        for rank, hit in enumerate(hits, 1):
            if hit.id in owned:
                legs.setdefault(hit.id, {})[field] = Leg(rank, hit.score)
    scores = {id: _score(found, shares, owned[id]) for id, found in legs.items()}
    best = {id: max(leg.cosine for leg in found.values()) for id, found in legs.items()}
    order = sorted(scores, key=lambda id: (-scores[id], -best[id], id))
    return [(id, scores[id], legs[id]) for id in order]


def _score(legs: Mapping[Field, Leg], shares: Mapping[Field, float], owned: Collection[Field]) -> float:
    """The reciprocal ranks of one document, weighted, as a share of what being first everywhere would give."""
    most = sum(share for field, share in shares.items() if field in owned)
    if not most:
        return 0.0
    return sum(shares[field] * (RRF_K + 1) / (RRF_K + leg.rank) for field, leg in legs.items()) / most
