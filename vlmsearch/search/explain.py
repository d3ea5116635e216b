"""Why a search shows a document, or does not."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from vlmsearch._util.cancellation import check_cancelled
from vlmsearch.errors import InvalidInputError
from vlmsearch.media.limits import ImageLimits
from vlmsearch.search.arrange import encoded_document, group_parts, row_of
from vlmsearch.search.engine import DocumentJudgement, examine, run
from vlmsearch.search.explanation import (
    WINDOWS,
    Explanation,
    FieldEvidence,
    Outcome,
    PassageEvidence,
    Regions,
    WordEvidence,
)
from vlmsearch.search.occlusion import find_passages, find_regions
from vlmsearch.search.options import SearchOptions
from vlmsearch.search.query import Query
from vlmsearch.search.relevance import PRIOR, Judge, to_relevance
from vlmsearch.search.rerank import rerank
from vlmsearch.stores.base import WordSearch, reject_list_of
from vlmsearch.stores.filters import Comparison, Filter, values_of
from vlmsearch.stores.terms import query_terms, query_words, spans_of
from vlmsearch.stores.versions import HitContent, read_current
from vlmsearch.types import WORDS, Document, MetadataValue, Modality, document_of, group_of, is_id, local_image

if TYPE_CHECKING:
    from PIL import Image

    from vlmsearch.encoders.base import Encoder
    from vlmsearch.stores.base import Store

_MAX_COUNTED = 10_000
"""Documents up to which those that hold a word are counted."""


def explain(
    judge: Judge,
    query: Query,
    options: SearchOptions,
    id: str,
    *,
    image_limits: ImageLimits,
    seconds: float | None = None,
    on_progress: Callable[[int], None] | None = None,
) -> Explanation:
    """Return what a search of the judge's index makes of one document.

    Args:
        judge: The index and its encoder.
        query: What is asked for.
        options: How; the page is the first one.
        id: The document's, or a passage's. Of a document with passages, the one that fits best is judged.
        image_limits: How large images may be.
        seconds: How long to look for the parts of the document that mattered; None to leave that out.
        on_progress: Called with the number of windows of the image that are done.

    Returns:
        The explanation.
    """
    if not is_id(id) or id not in read_current(judge.store, [id]):
        return _missing(judge.store, id)
    shown = run(judge, [query], options, image_limits=image_limits)[0]
    examined = examine(judge, query, options, id, image_limits=image_limits, shown_for=shown.shown_for)
    row, threshold = examined.row, shown.threshold
    content = read_current(judge.store, [row]).get(row)
    if content is None:
        return _missing(judge.store, id)
    relevance = to_relevance(examined.log_odds) * math.prod(1 - unwanted for unwanted in examined.without)
    first, judged, order = relevance, None, examined.order
    if options.reranker is not None:
        relevance, judged, order = _reread(judge.store, query.text or "", options, examined.order, (row, relevance))
    order, _ = group_parts(list(order), 0.0, examined.bm25, by_file=options.group)
    of = group_of if options.group else document_of
    better = next((other for other, _ in order if of(other) == of(row)), row)
    place = next((place for place, (other, _) in enumerate(order, 1) if other == row), None)
    before = sum(score >= relevance for _, score in order) if place is None else place - 1
    ranks = {name: field.rank for name, field in examined.fields.items()}
    for at, match in enumerate(shown, 1):
        if row_of(match) == row:
            place, relevance = at, match.score
            ranks |= {name: field.rank for name, field in match.fields.items()}
    left_out = tuple((_name_of(part), score) for part, score in zip(query.without, examined.without))
    failed = () if options.condition is None else tuple(failed_conditions(options.condition, content.document.metadata))
    outcome, reason = _outcome(
        row, query, options, failed, left_out, judge.threshold, threshold, first, relevance, judged, place, before,
        better, is_shown=any(row_of(match) == row for match in shown), says=examined.says,
    )  # fmt: skip
    passages, regions, notes = _parts(judge.encoder, content, examined, image_limits, seconds, on_progress)
    judged_part = () if content.passage is None else (f"What is judged is its passage {content.passage.number}.",)
    notes = [*judged_part, *(f"Scores are uncalibrated: {reason}." for reason in shown.uncalibrated.values()), *notes]
    notes += [shown.spelling] if shown.shown_for else []
    words = tuple(_words(judge, examined.asked.text, row)) if examined.max_bm25 else ()
    said = " ".join(word.word for word in words if word.score)
    language = judge.manifest.language
    asked = [str(field) for field in examined.asked.vectors] + ([WORDS] if examined.max_bm25 else [])
    return Explanation(
        id,
        outcome,
        reason,
        document=content.document,
        passage=content.passage,
        relevance=relevance,
        threshold=threshold,
        place=place,
        candidates=len(order),
        prior=PRIOR,
        fields={
            name: FieldEvidence(
                ranks[name],
                field.score,
                field.evidence,
                examined.weights[name],
                name in examined.counting,
                examined.worth[name].basis,
            )
            for name, field in examined.fields.items()
        },
        lacking=tuple(name for name in asked if name not in examined.fields),
        words_alone=examined.words_alone,
        log_odds=examined.log_odds,
        words=words,
        max_bm25=examined.max_bm25,
        marked=tuple(_marked(content, said, language)) if said else (),
        without=left_out,
        failed=failed,
        judged=judged,
        passages=tuple(passages),
        regions=regions,
        notes=tuple(notes),
    )


# ---- what became of it


def _missing(store: Store, id: str) -> Explanation:
    for reject in reject_list_of(store).rejects():
        if reject.id == id:
            why = f"It could not be indexed and is in the reject list ({reject.code}): {reject.message}"
            return Explanation(id, "rejected", why)
    return Explanation(id, "absent", "There is no document with this id in the index.")


def _outcome(
    row: str,
    query: Query,
    options: SearchOptions,
    failed: Sequence[str],
    left_out: Sequence[tuple[str, float]],
    usual: float,
    threshold: float,
    first: float,
    relevance: float,
    judged: float | None,
    place: int | None,
    before: int,
    better: str,
    *,
    is_shown: bool,
    says: bool,
) -> tuple[Outcome, str]:
    below = f"{relevance:.3f} is below the threshold of {threshold:.3f}"
    unwanted = [f"{what} ({score:.2f})" for what, score in left_out if score >= usual]
    if is_shown:
        return "shown", f"It is shown at place {place}."
    if any(document_of(row) in part.like for part in (query, *query.without)):
        return "named", "The query names it, and what a query names is not in its result."
    if failed:
        return "filter", f"The filter leaves it out: {'; '.join(failed)}."
    if not says:
        return "phrase", f"Its text does not say, word for word: {', '.join(query.phrases)}."
    if unwanted:
        return "without", f"It is what the query leaves out: {', '.join(unwanted)}."
    if relevance < threshold and judged is not None and first >= threshold:
        return "reranker", f"The re-ranker gave it {judged:.3f}, and so its relevance of {below}."
    if relevance < threshold and left_out and first < threshold <= first / math.prod(1 - s for _, s in left_out):
        return "without", f"It is too likely what the query leaves out: its relevance of {below}."
    if relevance < threshold:
        return "threshold", f"Its relevance of {below}."
    if better != row:
        return "part", f"{better} is a better part of the same file, and only the best is shown."
    if place is not None and place > options.limit:
        return "limit", f"It comes at place {place}, and {options.limit} are shown."
    if place is None and before >= options.limit:
        return "limit", f"At least {before} documents come before it, and {options.limit} are shown."
    return "depth", "Each field has so many better documents that the search did not look at it; a higher limit does."


def _name_of(part: Query) -> str:
    """Return what a part of a query is called."""
    names = [part.text] if part.text else []
    names += ["the image"] if part.image is not None else []
    return " + ".join([*names, *part.like])


def failed_conditions(condition: Filter, metadata: Mapping[str, MetadataValue]) -> list[str]:
    """Return the conditions of a filter that metadata do not meet, each in words."""
    if condition.matches(metadata):
        return []
    if isinstance(condition, Comparison):
        have = ", ".join(map(repr, values_of(metadata.get(condition.key, ())))) or "missing"
        return [f"{_condition(condition)}, but it is {have}"]
    parts = [failed for part in condition.filters for failed in failed_conditions(part, metadata)]
    return parts if condition.operator == "$and" else [f"none of these holds: {', or '.join(parts)}"]


def _condition(comparison: Comparison) -> str:
    value = comparison.value
    values = list(value) if isinstance(value, tuple) else [value]
    shown = [int(number) if type(number) is float and number.is_integer() else number for number in values]
    sign = {"$eq": "is", "$ne": "is not", "$gt": "is above", "$gte": "is at least", "$lt": "is below",
            "$lte": "is at most", "$in": "is one of", "$nin": "is none of"}[comparison.operator]  # fmt: skip
    return f"{comparison.key} {sign} {', '.join(map(repr, shown))}"


def _reread(
    store: Store, text: str, options: SearchOptions, order: Sequence[tuple[str, float]], own: tuple[str, float]
) -> tuple[float, float | None, list[tuple[str, float]]]:
    """Return the relevance of a document by the re-ranker, too.

    Beside it are what the re-ranker gave, and the order of all.
    """
    assert options.reranker is not None  # noqa: S101 - the caller asks
    read = read_current(store, [id for id, _ in order[: options.rerank_first]])
    given = [(id, score, encoded_document(*read.get(id, HitContent(Document(id))))) for id, score in order]
    done = rerank(text, given, options.reranker, first=options.rerank_first, seconds=options.rerank_seconds)
    mine = [reranked for reranked in done if reranked.id == own[0]]
    relevance, judged = (mine[0].score, mine[0].judged) if mine else (own[1], None)
    return relevance, judged, [(reranked.id, reranked.score) for reranked in done]


# ---- the words and parts that mattered


def _marked(content: HitContent, said: str, language: str) -> Iterator[tuple[int, int]]:
    """Yield where a text says words: that of the passage, if there is one."""
    document, passage = content
    text, start = (document.text or "", 0) if passage is None else (passage.text, passage.start)
    for span in spans_of(text, query_terms(said, language), language):
        yield span[0] + start, span[1] + start


def _words(judge: Judge, text: str, id: str) -> list[WordEvidence]:
    """Return what each word of a query adds to the BM25 of a document: the store scores it alone, for BM25 is a sum."""
    store = judge.store
    assert isinstance(store, WordSearch)  # noqa: S101 - which the field is there for
    evidence = []
    for word in query_words(text, judge.manifest.language):
        terms = query_terms(word, judge.manifest.language)
        stem = terms[0].term if len(terms) == 1 else word
        words = store.search_words(word, limit=_MAX_COUNTED + 1)
        holding = len(words.hits) if len(terms) == 1 and len(words.hits) <= _MAX_COUNTED else None
        hits = store.compare_words(word, [id])
        evidence.append(WordEvidence(word, stem, holding, hits[0].score if hits else 0.0, words.max_score))
    return evidence


def _parts(
    encoder: Encoder,
    content: HitContent,
    examined: DocumentJudgement,
    limits: ImageLimits,
    seconds: float | None,
    on_progress: Callable[[int], None] | None,
) -> tuple[list[PassageEvidence], Regions | None, list[str]]:
    """Return the passages and regions that mattered, and what could not be found out."""
    if seconds is None:
        return [], None, []
    passages: list[PassageEvidence] = []
    regions, notes = None, []
    by_text, by_image = _counting(examined, "text"), _counting(examined, "image")
    document, passage = content
    if by_text and (text := encoded_document(*content).text):
        before = 0 if passage is None else passage.start + len(passage.text) - len(text)
        passages = [
            PassageEvidence(part.start + before, part.end + before, part.evidence)
            for part in find_passages(
                text, lambda texts: _worth(encoder.encode_texts(texts, role="document"), examined, by_text)
            )
            if passage is None or part.start + before >= passage.start  # the heading is no part of it
        ]
    if by_image and document.image is None:
        notes.append("The index does not keep its image, so the regions that mattered are not known.")
    elif by_image and document.image is not None:
        from vlmsearch.media.images import open_image

        end = time.monotonic() + seconds

        def goes_on(done: int) -> bool:
            check_cancelled()
            if on_progress is not None:
                on_progress(done)
            return time.monotonic() < end

        def worth(images: Sequence[Image.Image]) -> NDArray[np.float64]:
            return _worth(encoder.encode_images(images), examined, by_image)

        try:
            image = open_image(local_image(document.image), limits=limits)
        except InvalidInputError as exc:
            notes.append(f"Its image cannot be read now: {exc}")
        else:
            regions = find_regions(image, worth, goes_on=goes_on)
            if on_progress is not None:
                on_progress(regions.tried)
            if regions.tried < WINDOWS:
                notes.append(f"The time was over after {regions.tried} of {WINDOWS} windows of the image.")
    return passages, regions, notes


def _counting(examined: DocumentJudgement, modality: Modality) -> list[str]:
    """Return the names of the fields of a modality that count for the document."""
    return [
        str(field)
        for field in examined.asked.vectors
        if field.modality == modality and str(field) in examined.counting and examined.weights[str(field)]
    ]


def _worth(
    encoded: Mapping[str, NDArray[np.float32]], examined: DocumentJudgement, names: Sequence[str]
) -> NDArray[np.float64]:
    """Return the weighted evidence of these fields for each row of vectors."""
    total = np.zeros(len(next(iter(encoded.values()))))
    for field, vector in examined.asked.vectors.items():
        if str(field) in names:
            evidence, weight = examined.worth[str(field)], examined.weights[str(field)]
            total += [weight * evidence(float(cosine)) for cosine in encoded[field.space] @ vector[0]]
    return total
