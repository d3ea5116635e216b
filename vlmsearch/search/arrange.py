"""The order of relevant matches, other than by their scores, and what there is among them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from operator import itemgetter
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vlmsearch.stores.filters import normalise, value_order, values_of
from vlmsearch.types import PASSAGE, Document, Field, Match, Passage, Record, Scalar, document_of, group_of, part_of

MAX_PARTS = 100
"""Maximum number of other parts of a file, or passages of a document, in a match."""
_ANSWER = 0.5
"""The part of the score of a whole file that a page needs to be shown."""


def row_of(match: Match) -> str:
    """Return the id of what the scores of a match are of: its passage, or its document."""
    return f"{match.document.id}{PASSAGE}{match.passage.number}" if match.passage else match.document.id


def encoded_document(document: Document, passage: Passage | None) -> Document:
    """Return a document with what is encoded of its passage for a text."""
    return replace(document, text=passage.encoded) if passage else document


def group_parts(
    ranked: list[tuple[str, float]],
    min_score: float,
    words: Mapping[str, float] = MappingProxyType({}),
    *,
    by_file: bool = True,
) -> tuple[list[tuple[str, float]], dict[str, dict[str, float]]]:
    """Keep the best part of each file, or the best passage of each document.

    The text of a whole file is its title, and so short that it comes before the page which answers a question. A page
    or a scene that says or scores at least half as much is shown instead, with the score of the file.

    Args:
        ranked: Ids and scores, best first.
        min_score: Score that another part needs to be named.
        words: The scores by words of these and other documents that may be shown, by id.
        by_file: Whether the parts of a file are one; else only the passages of a document are.

    Returns:
        The best parts in their order, each with the score of its file; and for the id of each, the scores of the other
        best parts of its file, by id.
    """
    if not any("#" in id for id in (*words, *(id for id, _ in ranked))):
        return ranked, {}
    best: dict[str, str] = {}
    others: dict[str, dict[str, float]] = {}
    kept = []
    for id, score in ranked:
        first = best.setdefault(group_of(id) if by_file else document_of(id), id)
        if first == id:
            kept.append((id, score))
        elif score >= min_score and len(parts := others.setdefault(first, {})) < MAX_PARTS:
            parts[id] = score
    pages: dict[str, tuple[float, float, str]] = {}
    for id, score in {**dict.fromkeys(words, 0.0), **dict(ranked)}.items() if by_file else ():
        page = part_of(document_of(id))
        is_scene = page is not None and (page.page or page.seconds is not None)  # a mail is no title of its attachments
        cover = best.get(page.of, "") if page is not None and is_scene else ""
        if page is not None and document_of(cover) == page.of:
            said = words.get(id, 0.0) if 0 < _ANSWER * words.get(cover, 0.0) <= words.get(id, 0.0) else 0.0
            pages[cover] = max(pages.get(cover, (0.0, 0.0, id)), (said, score, id), key=itemgetter(0, 1))
    for place, (id, score) in enumerate(kept):
        said, page_score, page_id = pages.get(id, (0.0, 0.0, id))
        if page_id != id and (said or page_score >= _ANSWER * score):
            kept[place] = (page_id, score)
            others[page_id] = {id: score, **others.pop(id, {})}
            others[page_id].pop(page_id, None)
    return kept, others


def sort_by_key(matches: Sequence[Match], sort: str) -> list[Match]:
    """Sort by a key of the metadata; ``-KEY`` for falling values. Equal ones stay in their order.

    Numbers come before strings and strings before bools. Documents without the key are last.
    """
    key, falls = sort.removeprefix("-"), sort.startswith("-")
    groups: dict[type, list[Match]] = {float: [], str: [], bool: []}
    rest: list[Match] = []
    for match in matches:
        value = match.document.metadata.get(key)
        (rest if value is None else groups[type(normalise(value))]).append(match)
    for group in groups.values():
        # Python's sort keeps equal ones in their order, also with `reverse`
        group.sort(key=lambda match: normalise(match.document.metadata[key]), reverse=falls)
    return [*groups[float], *groups[str], *groups[bool], *rest]


def count_values(matches: Sequence[Match], keys: Collection[str]) -> dict[str, dict[Scalar, int]]:
    """Count the values of each key, the most frequent first; equally frequent ones by value."""
    counters = {key: Counter[Scalar]() for key in keys}
    for match in matches:
        for key in counters.keys() & match.document.metadata.keys():
            counters[key].update(values_of(match.document.metadata[key]))
    return {
        key: dict(sorted(counts.items(), key=lambda item: (-item[1], *value_order(item[0]))))
        for key, counts in counters.items()
    }


def diversify(
    matches: Sequence[Match], records: Mapping[str, Record], diversity: float, *, first: Collection[str] = ()
) -> list[Match]:
    """Order matches by maximal marginal relevance, so that none repeats what those before it show.

    Each next match has the highest (1 - diversity) * score - diversity * similarity. The similarity is the highest one
    with a match before it: the mean cosine over the fields that both have, 0 for none. See Carbonell and Goldstein,
    "The use of MMR, diversity-based reranking for reordering documents and producing summaries", SIGIR 1998.

    Args:
        matches: Best first.
        records: What is encoded of the matches, by the ids of their documents or passages; one without resembles
            nothing.
        diversity: From 0, which is the order of the scores, to 1.
        first: Ids of matches that come before all others.
    """
    similar = _similarities([records.get(row_of(match)) for match in matches])
    scores = (1 - diversity) * np.array([match.score for match in matches])
    highest = np.full(len(matches), 0.0)
    left = np.ones(len(matches), bool)
    order: list[int] = []
    given = [i for i, match in enumerate(matches) if match.document.id in first]
    for step in range(len(matches)):
        values = np.where(left, scores - diversity * highest, -np.inf)
        best = given[step] if step < len(given) else int(np.argmax(values))  # of equal ones the first
        row = similar[best]
        highest = np.maximum(highest, row) if order else row
        left[best] = False
        order.append(best)
    return [matches[i] for i in order]


def _similarities(records: Sequence[Record | None]) -> NDArray[np.floating[Any]]:
    """Return the mean cosine of each two over the fields that both have."""
    total = np.zeros((len(records), len(records)), np.float32)
    shared = np.zeros_like(total)
    dims: dict[Field, int] = {}
    for record in records:
        dims |= {field: len(vector) for field, vector in record.vectors.items()} if record else {}
    for field, dim in dims.items():
        vectors = np.zeros((len(records), dim), np.float32)
        has = np.zeros((len(records), 1), np.float32)
        for i, record in enumerate(records):
            if record and field in record.vectors:
                vectors[i], has[i] = record.vectors[field], 1
        total += vectors @ vectors.T
        shared += has @ has.T
    return total / np.maximum(shared, 1)
