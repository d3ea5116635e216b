"""Which fields a query goes to, and how their ranked lists become one.

=============  ===========================================  ==========================
query          fields asked                                 with the vector of
=============  ===========================================  ==========================
text           image field of every space with images       that space's text tower
text           text field of every text-only space          that space's text tower
image          both fields of every space with images       that space's image tower
=============  ===========================================  ==========================

A text also ranks documents by the words that they share with it, the leg ``words``, where the store can do that.

A text is compared with texts by the text-only spaces, which are far better at it than CLIP; where an encoder has no
such space, the text field of the image spaces is asked as well. A query of text and image at once asks the fields of
both; a field that both would ask gets the mean of the two vectors.

Lists are fused by reciprocal rank (Cormack, Clarke and Buettcher, "Reciprocal Rank Fusion outperforms Condorcet and
individual Rank Learning Methods", SIGIR 2009), with two changes. A document is measured only by the fields it has: a
photograph without a caption is not beaten by one with a caption just because it cannot be found by text. And scores
are scaled, so that 1 means first in every asked leg that the document has. A document with a text has the leg
``words``; one without, which words find by the name of its file, is raised by that and never lowered.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence

import numpy as np

from vlmsearch.errors import ConfigError
from vlmsearch.types import WORDS, Field, Hit, Leg, Space, Vectors

RRF_K = 60
"""The constant of reciprocal rank fusion: how slowly a rank loses weight. 60 is the paper's."""
DEPTH = 100
"""How many hits each leg gives at least, so that lists overlap enough to be fused."""


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


def check_legs(weights: Collection[str], spaces: Sequence[Space]) -> None:
    """Raise ConfigError for a leg that is weighed and not there."""
    known = [*sorted(str(field) for space in spaces for field in space.fields), WORDS]
    for name in weights:
        if name not in known:
            raise ConfigError(f"no leg {name!r} to weigh; each is a string, and there are {', '.join(known)}")


def fuse(
    ranked: Mapping[str, Sequence[Hit]],
    owned: Mapping[str, Collection[Field]],
    weights: Mapping[str, float] | None = None,
) -> list[tuple[str, float, dict[str, Leg]]]:
    """One list of (id, score, legs), best first; among equal scores, the higher cosine and then the id decide.

    ``ranked`` is by leg: the name of a field, or ``words``. ``owned`` says which fields each document has; a document
    that is not in it is left out. ``weights`` counts some legs more than others; a leg that it leaves out counts 1.
    """
    shares = {name: (weights or {}).get(name, 1.0) for name in ranked}
    if not all(0 <= share < math.inf for share in shares.values()) or (ranked and not sum(shares.values())):
        raise ConfigError(f"weights are numbers of at least 0 and not all 0, not {weights}")
    legs: dict[str, dict[str, Leg]] = {}
    for name, hits in ranked.items():
        for rank, hit in enumerate(hits, 1):
            if hit.id in owned:
                legs.setdefault(hit.id, {})[name] = Leg(rank, hit.score)
    scores = {id: _score(found, shares, owned[id]) for id, found in legs.items()}
    order = sorted(scores, key=lambda id: (-scores[id], -_best_cosine(legs[id]), id))
    return [(id, scores[id], legs[id]) for id in order]


def _best_cosine(legs: Mapping[str, Leg]) -> float:
    return max((leg.score for name, leg in legs.items() if name != WORDS), default=-1.0)


def _score(legs: Mapping[str, Leg], shares: Mapping[str, float], fields: Collection[Field]) -> float:
    """The reciprocal ranks of one document, weighted, as a share of what being first everywhere would give."""
    owned = {str(field) for field in fields}
    if any(field.modality == "text" for field in fields):
        return _share(legs, shares, owned | {WORDS})
    return max(_share(legs, shares, owned), _share(legs, shares, owned | {WORDS}))


def _share(legs: Mapping[str, Leg], shares: Mapping[str, float], owned: Collection[str]) -> float:
    most = sum(share for name, share in shares.items() if name in owned)
    if not most:
        return 0.0
    return sum(shares[name] * (RRF_K + 1) / (RRF_K + leg.rank) for name, leg in legs.items() if name in owned) / most
