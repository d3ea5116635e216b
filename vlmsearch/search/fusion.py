"""Which fields a query goes to, and how their ranked lists become one.

* A text asks the image field of every space with images, with the vector of that space's text tower.
* It asks the text field of every text-only space, with the vector of its text tower.
* An image asks both fields of every space with images, with the vector of that space's image tower.

A text also ranks documents by the words that they share with it, the field ``words``, where the store can do that.

A text is compared with texts by the text-only spaces, which are far better at it than CLIP; where an encoder has no
such space, the text field of the image spaces is asked as well. A query of text and image at once asks the fields of
both; a field that both would ask gets the mean of the two vectors.

What the fields say of a document is added up as evidence: see `vlmsearch.search.relevance`. A document with a text has
the field ``words``, also where it shares none with the query; one without, which words find by the name of its file, is
raised by that and never lowered.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from vlmsearch._util.options import MAX_WEIGHT, WEIGHT_RULE
from vlmsearch.encoders.base import compared_spaces
from vlmsearch.errors import ConfigError
from vlmsearch.search.relevance import CODES_KNOWN, PRIOR, Evidence, to_log_odds, to_relevance
from vlmsearch.types import WORDS, Field, FieldScore, Hit, Space, Vectors

DEPTH = 50
"""Minimum number of hits that each field is asked for."""


def text_fields(spaces: Sequence[Space]) -> list[Field]:
    """Return the fields that a text query asks."""
    pictures = [Field(space.name, "image") for space in spaces if "image" in space.modalities]
    return pictures + [Field(space.name, "text") for space in compared_spaces(spaces)]


def image_fields(spaces: Sequence[Space]) -> list[Field]:
    """Return the fields that an image query asks."""
    return [field for space in spaces if "image" in space.modalities for field in space.fields]


def kinds_of(spaces: Sequence[Space]) -> list[frozenset[Field]]:
    """Return the fields of a document with an image, with a text, and with both."""
    by_modality = [
        frozenset(field for space in spaces for field in space.fields if field.modality == modality)
        for modality in ("image", "text")
    ]
    return [*by_modality, by_modality[0] | by_modality[1]]


def query_vectors(
    spaces: Sequence[Space], text: Mapping[str, Vectors] | None, image: Mapping[str, Vectors] | None
) -> dict[Field, Vectors]:
    """Return the vector, shape (1, dim), that each field is asked for.

    ``text`` and ``image`` are by space name. ConfigError for an image that was encoded into no space.
    """
    if image is not None and not image:
        raise ConfigError("the encoder encodes no images: ask with a text")
    asked: dict[Field, list[Vectors]] = {}
    for fields, vectors in ((text_fields(spaces), text), (image_fields(spaces), image)):
        for field in fields:
            if vectors is not None and field.space in vectors:
                asked.setdefault(field, []).append(vectors[field.space])
    return {field: mean_of(vectors) for field, vectors in asked.items()}


def ranks_of(hits: Sequence[Hit]) -> NDArray[np.intp]:
    """Return the ranks of hits, best first: from 1, and the same for equal scores."""
    scores = np.array([hit.score for hit in hits])
    begins = np.ones(len(scores), np.bool_)
    begins[1:] = scores[1:] != scores[:-1]
    ranks: NDArray[np.intp] = np.maximum.accumulate(np.where(begins, np.arange(1, len(scores) + 1), 0))
    return ranks


def mean_of(vectors: Sequence[Vectors]) -> Vectors:
    """Return the mean of arrays of shape (1, dim), of length one."""
    if len(vectors) == 1:
        return vectors[0]
    total = np.sum(vectors, axis=0, dtype=np.float32)
    mean: Vectors = total / np.maximum(np.linalg.norm(total, axis=1, keepdims=True), 1e-12)
    return mean


def shares_of(names: Collection[str], weights: Mapping[str, float] | None) -> dict[str, float]:
    """Return how much each field counts, 1 for those without a weight.

    ConfigError for a weight that is none.
    """
    shares = {name: (weights or {}).get(name, 1.0) for name in names}
    if not all(0 <= share <= MAX_WEIGHT for share in shares.values()):
        raise ConfigError(f"{WEIGHT_RULE} and not all 0, not {weights}")
    return shares


def check_weights(weights: Collection[str], spaces: Sequence[Space]) -> None:
    """Raise ConfigError for a field that is weighed and not there."""
    known = [*sorted(str(field) for space in spaces for field in space.fields), WORDS]
    for name in weights:
        if name not in known:
            raise ConfigError(f"no field {name!r} to weigh; each is a string, and there are {', '.join(known)}")


@dataclass(frozen=True, eq=False)
class LogOdds:
    """The log-odds of documents: what each field adds to `PRIOR`, or words by themselves if they say more.

    Attributes:
        total: The sum for each document.
        evidence: By field, what its values say; NaN where a document has no such field.
        parts: By field, its weight times its evidence; NaN where it does not count.
        by_words: Whether the total is what words alone say.
    """

    total: NDArray[np.float64]
    evidence: Mapping[str, NDArray[np.float64]]
    parts: Mapping[str, NDArray[np.float64]]
    by_words: NDArray[np.bool_]


_OfAll: TypeAlias = tuple[NDArray[np.intp], NDArray[np.float64], NDArray[np.float64]]
"""A field's ranks, values and evidence of all documents.

Ranks are from 1 and 0 for none, values are NaN for none.
"""


@dataclass(frozen=True, eq=False)
class FusedDocuments:
    """The documents that fields found, and what each field says of them.

    Attributes:
        order: The id and the relevance of each that is relevant enough, best first; equal ones by their ids.
    """

    order: list[tuple[str, float]]
    _places: Mapping[str, int]
    _fields: Mapping[str, _OfAll]

    def fields(self, id: str) -> dict[str, FieldScore]:
        """Return what each field says of a document."""
        at = self._places[id]
        return {
            name: FieldScore(int(ranks[at]) or None, float(values[at]), float(evidence[at]))
            for name, (ranks, values, evidence) in self._fields.items()
            if not math.isnan(values[at])
        }


def fuse(
    ranked: Mapping[str, Sequence[Hit]],
    owned: Mapping[str, Collection[Field]],
    evidence: Mapping[str, Evidence],
    weights: Mapping[str, float] | None = None,
    *,
    behind: Mapping[str, Mapping[str, Hit]] | None = None,
    min_relevance: float = 0.0,
) -> FusedDocuments:
    """Make one list of what the fields found: the evidence of all documents, added up.

    ``ranked`` has the hits by the names of fields, and ``evidence`` says what a field's values are worth. ``owned``
    says which fields each document has; a document that is not in it is left out. ``weights`` multiplies the evidence
    of some fields. ``behind`` has what a field says of documents that it did not list; one that it lacks counts as
    much as the field's last hit, which it is not better than. ``min_relevance`` is the relevance that a document has to
    have.
    """
    shares = shares_of(ranked, weights)
    ids = [id for id in dict.fromkeys(hit.id for hits in ranked.values() for hit in hits) if id in owned]
    places = {id: at for at, id in enumerate(ids)}
    numbers: dict[frozenset[Field], int] = {}
    kind = np.array([numbers.setdefault(frozenset(owned[id]), len(numbers)) for id in ids], np.intp)
    has_text = np.array([any(field.modality == "text" for field in fields) for fields in numbers], np.bool_)[kind]
    ranks: dict[str, NDArray[np.intp]] = {}
    values: dict[str, NDArray[np.float64]] = {}
    for name, hits in ranked.items():
        has = np.array([any(str(field) == name for field in fields) for fields in numbers], np.bool_)[kind]
        has |= (name == WORDS) & has_text
        values[name] = np.full(len(ids), hits[-1].score if name != WORDS and hits else 0.0)
        for known in (behind or {}).get(name, {}).values(), hits:
            at = _put(values[name], places, known)
            has[at[at >= 0]] = True  # also where words find a file by its name: that is so wherever it is listed
        ranks[name] = np.zeros(len(ids), np.intp)
        ranks[name][at[at >= 0]] = ranks_of(hits)[at >= 0]
        values[name][~has] = np.nan
    log_odds = add_up(values, has_text, shares, evidence)
    total, said = log_odds.total, log_odds.evidence
    fields: dict[str, _OfAll] = {name: (ranks[name], values[name], said[name]) for name in ranked}
    near = np.flatnonzero(total >= to_log_odds(min_relevance) - 1e-6).tolist()  # rounding must lose none
    near.sort(key=ids.__getitem__)
    near.sort(key=total.tolist().__getitem__, reverse=True)  # which leaves equal ones in the order of their ids
    scored = [(ids[at], to_relevance(log_odds)) for at, log_odds in zip(near, total[near].tolist())]
    return FusedDocuments([field for field in scored if field[1] >= min_relevance], places, fields)


def highest_behind(
    ranked: Mapping[str, Sequence[Hit]],
    kinds: Collection[Collection[Field]],
    evidence: Mapping[str, Evidence],
    weights: Mapping[str, float] | None = None,
    *,
    full: Collection[str],
) -> float:
    """Return the log-odds that no document exceeds which no field listed; -inf where all are listed.

    Such a document is no better than the last hit of each field that has more to give. This is the threshold of Fagin,
    Lotem and Naor, "Optimal aggregation algorithms for middleware", 2003. ``kinds`` are the fields that it may have,
    and ``full`` the fields that have more to give; the rest is as in `fuse`.
    """
    shares = {name: (weights or {}).get(name, 1.0) for name in ranked}
    has_text = np.array([any(field.modality == "text" for field in fields) for fields in kinds], np.bool_)
    values: dict[str, NDArray[np.float64]] = {}
    may_be_found = np.zeros(len(has_text), np.bool_)
    for name, hits in ranked.items():
        has = np.array([name == WORDS or any(str(field) == name for field in fields) for fields in kinds], np.bool_)
        values[name] = np.where(has, hits[-1].score if name in full and hits else np.nan, np.nan)
        may_be_found |= has & (name in full)
        if name == WORDS and name not in full:
            values[name][has_text] = 0.0
    total = add_up(values, has_text, shares, evidence).total
    return float(total[may_be_found].max(initial=-math.inf))


def add_up(
    values: Mapping[str, NDArray[np.float64]],
    has_text: NDArray[np.bool_],
    shares: Mapping[str, float],
    evidence: Mapping[str, Evidence],
) -> LogOdds:
    """Add up what the fields say of documents, each times its share.

    Of fields that count by the best, the one that says most counts.

    Args:
        values: By field, a cosine or BM25 for each document; NaN where it has no such field.
        has_text: Whether a document has a text.
        shares: How much each field counts.
        evidence: What values are worth, by field.
    """
    said = {name: evidence[name].of(numbers) for name, numbers in values.items()}
    parts: dict[str, NDArray[np.float64]] = {}
    highest: dict[str, NDArray[np.float64]] = {}
    beside = np.zeros(len(has_text), np.bool_)
    alone = evidence[WORDS].alone if shares.get(WORDS) and WORDS in values else None
    known = np.where(has_text & (alone is not None and alone.is_code), CODES_KNOWN, 1.0)
    for name, numbers in said.items():
        if name == WORDS:  # a file's name says nothing of a document where it is not
            parts[name] = np.where(has_text, shares[name] * numbers, np.nan)
        else:
            parts[name] = shares[name] * known * numbers
            beside |= ~np.isnan(numbers)
        group = evidence[name].best_of or name
        highest[group] = np.fmax(highest[group], parts[name]) if group in highest else parts[name]
    total = np.full(len(has_text), PRIOR)
    for part in highest.values():
        np.add(total, part, out=total, where=~np.isnan(part))
    for name, part in parts.items():
        if (space := evidence[name].best_of) is not None:
            parts[name] = np.where(part < highest[space], np.nan, part)
    if alone is None:
        return LogOdds(total, said, parts, np.zeros(len(total), np.bool_))
    doubt = np.where(has_text, np.where(beside, alone.doubt[0], 0.0), alone.doubt[1])
    by_words = PRIOR + shares[WORDS] * alone.of(values[WORDS]) - doubt
    by_words = np.where(values[WORDS] >= alone.held, np.maximum(by_words, alone.held_log_odds), by_words)
    decide = ~np.isnan(by_words) & ((has_text & ~beside) | ((by_words > total) & (values[WORDS] > 0)))
    return LogOdds(np.where(decide, by_words, total), said, parts, decide)


def _put(values: NDArray[np.float64], places: Mapping[str, int], hits: Collection[Hit]) -> NDArray[np.intp]:
    """Put the scores of hits at the places of their documents.

    Return these places, -1 for one without a place.
    """
    rows = np.array([places.get(hit.id, -1) for hit in hits], np.intp)
    scores = np.array([hit.score for hit in hits], np.float64)
    values[rows[rows >= 0]] = scores[rows >= 0]
    return rows
