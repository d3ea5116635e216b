"""The run of a search: encode, ask every field, fuse, leave out, arrange.

A batch of queries is encoded at once and goes to the store with one call a field. A query whose page is not full, and
behind whose candidates there may be more, is asked again, deeper; so is one whose documents others replace meanwhile,
and one with a document that no field listed and that may belong on the page. So the order is that of all documents, and
the same whatever the limit, as far as fields tell that from their best `_FAR`.
"""

from __future__ import annotations

import functools
import math
import os
import sys
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from vlmsearch._util.cancellation import check_cancelled
from vlmsearch._util.options import WEIGHT_RULE
from vlmsearch._util.tracing import encoding, querying, stage
from vlmsearch.errors import ConfigError, apply_to_each
from vlmsearch.media.limits import ImageLimits
from vlmsearch.search import fusion
from vlmsearch.search.arrange import count_values, diversify, encoded_document, group_parts, row_of, sort_by_key
from vlmsearch.search.arrays import ArrayQuery, ArrayResult, search_arrays
from vlmsearch.search.options import MAX_PAGE, SearchOptions
from vlmsearch.search.pages import Cursor
from vlmsearch.search.query import PreparedQuery, Query
from vlmsearch.search.relevance import Evidence, Judge, to_relevance
from vlmsearch.search.sayings import Saying
from vlmsearch.search.spelling import nearest_words, respelt
from vlmsearch.stores.base import WordSearch
from vlmsearch.stores.listing import unknown_keys
from vlmsearch.stores.overview import HasOverview
from vlmsearch.stores.versions import HitContent, VersionedHit, compare_again, read_documents
from vlmsearch.types import (
    PASSAGE,
    WORDS,
    Field,
    FieldScore,
    Hit,
    ImageInput,
    ImageSource,
    Match,
    Matches,
    Modality,
    Record,
    RemoteImage,
    Vectors,
    document_of,
    encodes_images,
    local_image,
)

if TYPE_CHECKING:
    from vlmsearch.encoders.base import Encoder
    from vlmsearch.stores.base import Store

CLOSEST = 0.015
"""The relevance from which documents are shown as closest, where nothing matches."""
_MAX_CLOSEST = 3
_ATTEMPTS = 10
"""Number of attempts to read documents that others replace meanwhile, and to search deeper."""
_DIVERSE = 200
"""Number of best matches that `diversify` chooses from; the others follow in their order."""
_Words = Mapping[str, str]
"""Words of the index that stand for misspelt ones, by these."""
_FAR = 1000
"""Hits of each field in a search whose order is not certain yet.

A search for all relevant documents, or for a page behind the first `DEPTH`, begins with so many.
"""


def run(judge: Judge, queries: Sequence[Query], options: SearchOptions, *, image_limits: ImageLimits) -> list[Matches]:
    """Return the matches of each query, from the judge's index.

    A store on a server takes long to count many words. There, all slips are tried only where a query has no match.
    """
    if options.weights:
        fusion.check_weights(options.weights, judge.encoder.spaces)
    if options.reranker and not all(query.text for query in queries):
        raise ConfigError("`rerank` needs a text: a re-ranker reads it with each document")
    is_served = judge.store.is_served
    words = _nearest_words(judge, queries, is_thorough=not is_served)
    results = _matches(judge, queries, words, options, image_limits)
    empty = [at for at, result in enumerate(results) if is_served and not result]
    for at, other in zip(empty, _nearest_words(judge, [queries[at] for at in empty], is_thorough=True)):
        if other != words[at]:
            [results[at]] = _matches(judge, [queries[at]], [other], options, image_limits)
    if options.condition and not any(result or result.closest for result in results):
        unknown = unknown_keys(judge.store, options.condition)
        results = [replace(result, unknown_keys=unknown) for result in results]
    return results


def _matches(
    judge: Judge,
    queries: Sequence[Query],
    shown_for: Sequence[_Words],
    options: SearchOptions,
    image_limits: ImageLimits,
) -> list[Matches]:
    """Return the matches of each query, with words of the index for its misspelt ones."""
    cursors = [Cursor.start(query, options) for query in queries]
    sought = _encode(judge, queries, shown_for, image_limits, options.unasked)
    ranks_words = _ranks_words(judge, options)
    if options.unasked and not all(query.vectors or (query.text and ranks_words) for query in sought):
        raise ConfigError(f"{WEIGHT_RULE} and not all 0, not {options.weights}")
    searches = [
        _Search(judge, asked, options, cursor, hidden=_named_in(query))
        for query, asked, cursor in zip(queries, sought, cursors)
    ]
    results = _results(judge, searches, ranks_words=ranks_words)
    if options.reranker is None:
        again = SearchOptions(
            where=options.where, limit=_MAX_CLOSEST, min_score=CLOSEST, weights=options.weights, group=options.group
        )
        unsure = [at for at, search in enumerate(searches) if search.may_be_unsure and not results[at]]
        closer = [replace(searches[at], options=again) for at in unsure]
        for at, near in zip(unsure, _results(judge, closer, ranks_words=ranks_words)):
            results[at] = replace(results[at], closest=near.matches)
    return results


def _results(judge: Judge, searches: list[_Search], *, ranks_words: bool) -> list[Matches]:
    """Return the result of each search; all have the same options.

    Those that know candidates, of a search with other options, ask only where these are too few.
    """
    if not searches:
        return []
    store, options = judge.store, searches[0].options
    if isinstance(store, HasOverview) and all(_tells_texts(judge, search.asked) for search in searches):
        for search in searches:
            search.take_whole(store, ranks_words=ranks_words)
        return [search.result() for search in searches]
    for search in searches:
        if search.depth:
            search.settle(is_last=False)
    depth = max(_deeper(search.depth) if search.depth else search.min_depth for search in searches)
    pending = [search for search in searches if search.needs_more]
    for left in reversed(range(_ATTEMPTS)):
        if not pending:
            break
        answers = _ask(store, [search.asked for search in pending], depth, options, ranks_words=ranks_words)
        for search, ranked in zip(pending, answers):
            search.take(ranked, depth, is_last=not left)
        pending = [search for search in pending if search.needs_more]
        depth = _deeper(depth)
    return [search.result() for search in searches]


def _deeper(depth: int) -> int:
    """Return how many candidates each field gives where so many were too few."""
    return 4 * depth if depth >= _FAR else _FAR


def _tells_texts(judge: Judge, asked: PreparedQuery) -> bool:
    """Return whether the fields that are asked tell which documents have texts."""
    have_texts = any(field.modality == "text" for space in judge.manifest.spaces for field in space.fields)
    return not have_texts or any(field.modality == "text" for field in asked.vectors)


def _ranks_words(judge: Judge, options: SearchOptions) -> bool:
    """Return whether the search asks for words, too."""
    return bool(judge.manifest.language) and isinstance(judge.store, WordSearch) and WORDS not in options.unasked


def _named_in(query: Query) -> frozenset[str]:
    """Return the documents that a query names, which are not in its result."""
    return frozenset(query.like).union(*(excluded.like for excluded in query.without))


@dataclass(frozen=True)
class DocumentJudgement:
    """The judgement of a search of one document, whether it shows it or not.

    Attributes:
        row: The id of what was judged: the passage that fits best, or the document where it has none.
        asked: The query in the form in which the store is asked.
        max_bm25: The highest possible BM25 of words; 0 for no words.
        worth: The function from values to evidence of each field.
        weights: How much each field counts.
        owned: The fields in which the document has a vector.
        fields: What each field says of the document, also where the filter leaves it out; then none has a rank.
        log_odds: Their sum.
        counting: The fields that count.
        words_alone: The log-odds of words by themselves; None where they do not decide.
        without: How likely the document is each of the things that the query leaves out.
        says: Whether its text says the phrases of the query.
        order: The ids and scores of all candidates, best first, with no threshold.
        bm25: The BM25 of documents, by id, with which the parts of files are grouped.
    """

    row: str
    asked: PreparedQuery
    max_bm25: float
    worth: Mapping[str, Evidence]
    weights: Mapping[str, float]
    owned: frozenset[Field]
    fields: dict[str, FieldScore]
    log_odds: float
    counting: frozenset[str]
    words_alone: float | None
    without: tuple[float, ...]
    says: bool
    order: list[tuple[str, float]]
    bm25: Mapping[str, float]


def examine(
    judge: Judge, query: Query, options: SearchOptions, id: str, *, image_limits: ImageLimits, shown_for: _Words
) -> DocumentJudgement:
    """Judge one document or passage of the index, and what a deep search puts before it."""
    store = judge.store
    if options.weights:
        fusion.check_weights(options.weights, judge.encoder.spaces)
    [asked] = _encode(judge, [query], [shown_for], image_limits, options.unasked)
    asked = asked if _ranks_words(judge, options) else replace(asked, text="")
    search = _Search(judge, asked, replace(options, min_score=0.0), Cursor.start(query, options), _named_in(query))
    depth = max(_FAR, search.min_depth)
    [ranked] = _ask(store, [asked], depth, options, ranks_words=bool(asked.text))
    search.look_at(ranked, depth)
    order = search.relevant()
    if PASSAGE not in id and len(rows := row_ids_of(store, [id])) > 1:
        fused = _fused(judge, asked, _compare(store, asked, rows, ranked.max_bm25), store.fields(rows)).order
        id = next((row for row, _ in (*order, *fused) if document_of(row) == id), id)
    search.owned |= store.fields([id])
    owned = search.owned.get(id, frozenset())
    alone = _compare(store, asked, [id], ranked.max_bm25)
    worth = judge.evidence(asked, alone.max_bm25)
    has_text = any(field.modality == "text" for field in owned)
    shares = {**judge.weights, **(options.weights or {})}
    weights = {name: shares.get(name, 1.0) for name in alone.fields}
    values: dict[str, NDArray[np.float64]] = {}
    for name, hits in alone.fields.items():
        absent = 0.0 if name == WORDS and has_text else math.nan
        values[name] = np.array([hits[0].score if hits else absent])
    log_odds = fusion.add_up(values, np.array([has_text]), weights, worth)
    counting = frozenset(name for name, [part] in log_odds.parts.items() if not math.isnan(part))
    [total] = log_odds.total.tolist()
    by_words = total if log_odds.by_words[0] else None
    fields: dict[str, FieldScore] = {}
    for name, [value] in values.items():
        if not math.isnan(value):
            listed = ranked.fields.get(name, ())
            places = (int(rank) for rank, hit in zip(fusion.ranks_of(listed), listed) if hit.id == id)
            fields[name] = FieldScore(next(places, None), float(value), float(log_odds.evidence[name][0]))
    without = tuple(search.scores([id], part).get(id, 0.0) for part in asked.without)
    says = not search.wanted.words or id in search.wanted.rows(store, [id])
    return DocumentJudgement(
        id, asked, alone.max_bm25, worth, weights, owned, fields, total, counting, by_words, without, says, order,
        search.bm25,
    )  # fmt: skip


def relevance_of(judge: Judge, asked: PreparedQuery, rows: Sequence[str]) -> dict[str, float]:
    """Return how likely documents are what is asked for, by id: the scores that `run` would give them.

    ``rows`` are what `row_ids_of` gives of them.
    """
    ranked = _compare(judge.store, asked, rows)
    order = _fused(judge, asked, ranked, judge.store.fields(rows)).order
    return {document_of(row): score for row, score in reversed(order)}


def row_ids_of(store: Store, ids: Sequence[str]) -> list[str]:
    """Return the ids of documents and of all their passages."""
    passages = store.passages(ids)
    return [*ids, *(f"{id}{PASSAGE}{part.number}" for id, parts in passages.items() for part in parts)]


def _fused(
    judge: Judge, asked: PreparedQuery, ranked: Rankings, owned: Mapping[str, frozenset[Field]]
) -> fusion.FusedDocuments:
    """Return the documents that fields found, with the probability that they are what is asked for."""
    with stage("fuse"):
        evidence = judge.evidence(asked, ranked.max_bm25)
        return fusion.fuse(ranked.fields, owned, evidence, judge.weights, behind=ranked.behind)


# ---- what is asked


def _nearest_words(judge: Judge, queries: Sequence[Query], *, is_thorough: bool) -> list[dict[str, str]]:
    """Return the nearest words of the index for misspelt ones of each query.

    Who has words in quotation marks means these.
    """
    typed = ["" if query.phrases else query.text or "" for query in queries]
    return nearest_words(judge.store, typed, judge.manifest.language, judge.encoder, is_thorough=is_thorough)


def _encode(
    judge: Judge, queries: Sequence[Query], shown_for: Sequence[_Words], limits: ImageLimits, unasked: Collection[str]
) -> list[PreparedQuery]:
    """Return all queries, and all that they leave out, encoded at once.

    ``shown_for`` has the words of the index that stand for misspelt ones. Fields that are not asked have no vectors.
    """
    encoder, store = judge.encoder, judge.store
    queries = [
        replace(query, text=respelt(query.text, words)) if query.text and words else query
        for query, words in zip(queries, shown_for)
    ]
    parts = [part for query in queries for part in (query, *query.without)]
    needs_texts = any(str(field) not in unasked for field in fusion.text_fields(encoder.spaces))
    encoded = parts if needs_texts else [part for query in queries for part in query.without]
    texts = list(dict.fromkeys(part.text for part in encoded if part.text))
    images = [part.image for part in parts if part.image is not None]
    by_text: Mapping[str, Vectors] = {}
    by_image: Mapping[str, Vectors] = {}
    if texts:
        with encoding(encoder.fingerprint, "text", len(texts)):
            by_text = encoder.encode_texts(texts, role="query")
    if images and encodes_images(encoder.spaces):
        prepared = _prepared(encoder, images, limits)
        with encoding(encoder.fingerprint, "image", len(images)):
            by_image = encoder.encode_images(prepared)
    records = _records(store, {id for part in parts for id in part.like})
    texts_of = {str(field) for space in encoder.spaces for field in space.fields if field.modality == "text"}
    rows, pictures = {text: row for row, text in enumerate(texts)}, iter(range(len(images)))

    def sought(part: Query, unasked: Collection[str] = ()) -> PreparedQuery:
        words: list[Mapping[str, Vectors]] = []
        shown: list[Mapping[str, Vectors]] = []
        if part.text in rows:
            words.append(_row(by_text, rows[part.text]))
        if part.image is not None:
            shown.append(_row(by_image, next(pictures)))
        if part.like:
            alike = [records[id] for id in part.like]
            words.append(_mean_of(alike, "text"))
            shown.append(_mean_of(alike, "image"))
            if not (words[-1] or shown[-1]):
                raise ConfigError(f"there are no vectors of {', '.join(map(repr, part.like))}: nothing can be like it")
        text, image = _join(words), _join(shown)
        has_image = part.image is not None or bool(image)
        vectors = fusion.query_vectors(encoder.spaces, text or None, image if has_image else None)
        vectors = {field: vector for field, vector in vectors.items() if str(field) not in unasked}
        is_text = part.image is None and not part.like
        without = (sought(other, texts_of if other.image is None and not other.like else ()) for other in part.without)
        return PreparedQuery(part.text or "", vectors, is_text, tuple(without), tuple(part.phrases))

    return [replace(sought(query, unasked), shown_for=words) for query, words in zip(queries, shown_for)]


def check_images(encoder: Encoder, queries: Sequence[Query], limits: ImageLimits) -> None:
    """Raise InvalidInputError where an image of the queries cannot be used."""
    parts = [part for query in queries for part in (query, *query.without)]
    images = [part.image for part in parts if part.image is not None]
    if images and encodes_images(encoder.spaces):
        _prepared(encoder, images, limits)


def _prepared(encoder: Encoder, images: Sequence[ImageInput | RemoteImage], limits: ImageLimits) -> list[ImageSource]:
    """Return what the encoder takes of images that are within the limits."""
    from vlmsearch.encoders.base import prepared_image

    with stage("decode", {"vlmsearch.count": len(images)}):
        return apply_to_each(lambda image: prepared_image(encoder, local_image(image), limits), images)


def _records(store: Store, ids: Iterable[str]) -> dict[str, Record]:
    """Return the records of the documents that queries name.

    ConfigError where one is not in the index.
    """
    wanted = sorted(ids)
    records: dict[str, Record] = {}
    if wanted:
        with querying(store.name, "records"):
            records = {record.document.id: record for record in store.records(wanted)}
    missing = [id for id in wanted if id not in records]
    if missing:
        named = ", ".join(map(repr, missing[:5])) + (" and others" if len(missing) > 5 else "")
        raise ConfigError(f"{store.name} has no document {named}: `like` and `without` name ids that are in the index")
    return records


def _row(by_space: Mapping[str, Vectors], row: int) -> dict[str, Vectors]:
    return {space: vectors[row : row + 1] for space, vectors in by_space.items()}


def _mean_of(records: Sequence[Record], modality: Modality) -> dict[str, Vectors]:
    """Return the mean vector, by space, of what documents say or show."""
    by_space: dict[str, list[Vectors]] = {}
    for record in records:
        parts = (record.vectors, *(passage.vectors for passage in record.passages))
        for owned in dict.fromkeys(known for vectors in parts for known in vectors):
            if owned.modality == modality:
                of_record = fusion.mean_of([vector[None] for vector in record.vectors_of(owned)])
                by_space.setdefault(owned.space, []).append(of_record)
    return {space: fusion.mean_of(vectors) for space, vectors in by_space.items()}


def _join(parts: Sequence[Mapping[str, Vectors]]) -> dict[str, Vectors]:
    spaces = dict.fromkeys(space for part in parts for space in part)
    return {space: fusion.mean_of([part[space] for part in parts if space in part]) for space in spaces}


@dataclass
class Rankings:
    """The hits of each field for a query, best first.

    Beside them is the highest possible BM25 of words, 0 for no words.
    """

    fields: dict[str, Sequence[Hit]] = field(default_factory=dict)
    max_bm25: float = 0.0
    behind: dict[str, dict[str, Hit]] = field(default_factory=dict)
    """By id, a full field's hits of documents that other fields alone listed."""

    @property
    def hits(self) -> Iterator[Hit]:
        """Yield what all fields say of all documents."""
        for hits in (*self.fields.values(), *(hits.values() for hits in self.behind.values())):
            yield from hits

    @property
    def ids(self) -> set[str]:
        """Return the documents that any field found."""
        return {hit.id for hits in self.fields.values() for hit in hits}


def _ask(
    store: Store, queries: Sequence[PreparedQuery], depth: int, options: SearchOptions, *, ranks_words: bool
) -> list[Rankings]:
    """Return what each field finds for each query: one call a field, and one a query for words."""
    answers = [Rankings() for _ in queries]
    for asked in dict.fromkeys(asked for query in queries for asked in query.vectors):
        check_cancelled()
        asking = [i for i, query in enumerate(queries) if asked in query.vectors]
        vectors = np.concatenate([queries[i].vectors[asked] for i in asking])
        with querying(store.name, "search", asked):
            hits_of_queries = store.search(asked, vectors, limit=depth, where=options.condition)
        for i, hits in zip(asking, hits_of_queries):
            answers[i].fields[str(asked)] = hits
    if ranks_words and isinstance(store, WordSearch):
        for query, ranked in zip(queries, answers):
            if query.text:
                check_cancelled()
                with querying(store.name, "search", WORDS):
                    words = store.search_words(query.text, limit=depth, where=options.condition)
                if words.max_score > 0:
                    ranked.fields[WORDS], ranked.max_bm25 = words.hits, words.max_score
    return answers


# ---- what is found


@dataclass
class _Search:
    """One query: its candidates, which others may replace or delete before they are read, and its result."""

    judge: Judge
    asked: PreparedQuery
    options: SearchOptions
    cursor: Cursor
    hidden: Collection[str]
    depth: int = 0
    ranked: Rankings = field(default_factory=Rankings)
    owned: dict[str, frozenset[Field]] = field(default_factory=dict)
    full: set[str] = field(default_factory=set)
    """The fields that listed as many as they were asked for, and may know of more."""
    matches: list[Match] = field(default_factory=list)
    """The first `size` of the relevant documents.

    `result` adds what each field says of those that it shows.
    """
    parts: dict[str, dict[str, float]] = field(default_factory=dict)
    """The scores of the other parts of a file, by its best part."""
    fused: fusion.FusedDocuments = field(init=False)
    """All candidates with the scores of their fields."""
    is_sorted: bool = False
    """Whether the matches are in the order of the key that they are sorted by."""
    whole: ArrayResult | None = None
    """The result of a search over arrays, for stores that give them."""
    may_go_on: bool = False
    """Whether there may be relevant documents behind the candidates."""
    highest_behind: float = 0.0
    """The relevance that no document behind the candidates exceeds."""
    is_whole: bool = True
    """Whether nothing that was found is lost."""
    is_unsettled: bool = True
    """Whether documents behind the candidates may belong among the first `size`."""

    @functools.cached_property
    def wanted(self) -> Saying:
        """Return what texts have to say."""
        return Saying.of("", self.asked.phrases, self.language)

    @property
    def language(self) -> str:
        """Return the language of words; "" where the store ranks none."""
        return self.judge.manifest.language if isinstance(self.store, WordSearch) else ""

    @property
    def size(self) -> int:
        """Return how many of the best must be known."""
        return MAX_PAGE if self.options.takes_all else self.page_size

    @property
    def page_size(self) -> int:
        """Return how many of the best the page needs, where they need not be counted."""
        sizes = [self.last + 1]  # one more says whether there is another page
        sizes += [_DIVERSE] if self.options.diversity else []
        sizes += [self.last + 1 + self.options.rerank_first] if self.options.reranker else []  # all of them may fall
        return min(max(sizes), MAX_PAGE)

    @property
    def bm25(self) -> dict[str, float]:
        """Return the BM25 of documents, by id: of none where the query leaves something out."""
        return {} if self.asked.without else {hit.id: hit.score for hit in self.ranked.fields.get(WORDS, ())}

    @property
    def last(self) -> int:
        """Return the place of the last match of the page."""
        return len(self.cursor.shown) + self.options.offset + self.options.limit

    @property
    def min_depth(self) -> int:
        """Return how many candidates each field gives at first."""
        if self.options.takes_all and self.threshold:
            return _FAR
        wanted = self.size + len(self.hidden)
        return fusion.DEPTH if wanted <= fusion.DEPTH else max(_FAR, wanted)  # a little deeper seldom settles an order

    @property
    def threshold(self) -> float:
        """Return how likely a document is what was asked for before it is shown: phrases decide by themselves."""
        usual = 0.0 if self.wanted.words else self.judge.threshold
        return usual if self.options.min_score is None else self.options.min_score

    @property
    def may_be_unsure(self) -> bool:
        """Return whether what comes closest is of use where nothing matches."""
        options = self.options
        return options.min_score is None and not options.offset and not self.cursor.shown and self.threshold > CLOSEST

    @property
    def store(self) -> Store:
        """Return where the documents are."""
        return self.judge.store

    @property
    def needs_more(self) -> bool:
        """Return whether a deeper search may find what is missing in the page."""
        return (len(self.matches) < self.last and not self.is_whole) or self.is_unsettled

    def _lacks(self, best: Sequence[tuple[str, float]]) -> bool:
        """Return whether documents behind the candidates may belong among the first `size` that were found.

        Once each field has given `_FAR` hits, the search goes deeper only for a page that is not full.
        """
        if self.options.takes_all or self.depth >= _FAR:
            wanted = self.size if self.options.takes_all else min(self.last + 1, self.size)
            return len(best) < wanted and self.may_go_on
        lowest = best[self.size - 1][1] if len(best) >= self.size else self.min_score
        return bool(self.full) and lowest <= self.highest_behind

    @property
    def min_score(self) -> float:
        """Return how likely a candidate has to be.

        A re-ranker may raise those that are less likely than what is shown.
        """
        return 0.0 if self.options.reranker else self.threshold

    def look_at(self, ranked: Rankings, depth: int) -> None:
        """Learn what all fields say of the candidates."""
        self.ranked, self.depth, self.is_whole = ranked, depth, True
        self.full = {name for name, hits in ranked.fields.items() if len(hits) >= depth}
        self.owned = {
            hit.id: hit.fields for hit in ranked.hits if isinstance(hit, VersionedHit) and hit.fields is not None
        }
        if unknown := ranked.ids - self.owned.keys():
            with querying(self.store.name, "fields"):
                self.owned |= self.store.fields(list(unknown))
        self._look_behind(self.owned)

    def take(self, ranked: Rankings, depth: int, *, is_last: bool) -> None:
        """Find the best of new candidates."""
        self.look_at(ranked, depth)
        self.settle(is_last=is_last)

    def settle(self, *, is_last: bool) -> None:
        """Find the best of the candidates, each with the document that its scores are of.

        Where others may belong among them, and this is not the last attempt, their documents are not read.
        """
        documents: dict[str, HitContent] = {}
        for _ in range(_ATTEMPTS):
            check_cancelled()
            best, self.parts = group_parts(self.relevant(), self.threshold, self.bm25, by_file=self.options.group)
            best = best[: self.size]
            self.is_unsettled = self._lacks(best)
            if self.is_unsettled and not is_last:
                self.matches = []
                return
            unread = [id for id, _ in best if id not in documents]
            with querying(self.store.name, "get"):
                documents |= read_documents(self.store, unread, self.ranked.hits)
            gone = {document_of(id) for id in unread if id not in documents}
            changed = {id for id in self.ranked.ids if document_of(id) in gone}
            self.is_whole = self.is_whole and not changed and self.ranked.ids <= self.owned.keys()
            if not changed:
                break
            self._compare_again(changed)
            self.owned = {id: fields for id, fields in self.owned.items() if id not in changed}
            self.owned |= self.store.fields(list(changed & self.ranked.ids))
            self._look_behind(changed)
        read = [(*documents[id], score) for id, score in best if id in documents]
        self.matches = [Match(document, score, {}, passage=passage) for document, passage, score in read]

    def relevant(self) -> list[tuple[str, float]]:
        """Return the candidates that are likely enough, best first.

        What the query leaves out is taken off.
        """
        self._fuse()
        candidates = self.fused.order
        self.may_go_on = self._ends_among({id for id, _ in candidates})
        candidates = [(id, score) for id, score in candidates if document_of(id) not in self.hidden]
        if self.wanted.words:
            said = self.wanted.rows(self.store, [id for id, _ in candidates])
            candidates = [(id, score) for id, score in candidates if id in said]
        for part in self.asked.without:
            unwanted = self.scores([id for id, _ in candidates], part)
            candidates = [
                (id, score * (1 - unwanted.get(id, 0.0)))
                for id, score in candidates
                if unwanted.get(id, 0.0) < self.judge.threshold
            ]
        if self.asked.without:
            candidates = [(id, score) for id, score in candidates if score >= self.min_score]
            candidates.sort(key=lambda candidate: -candidate[1])
        return candidates

    def _fuse(self) -> None:
        with stage("fuse"):
            fields = self.ranked.fields
            evidence = self.judge.evidence(self.asked, self.ranked.max_bm25)
            weights = {**self.judge.weights, **(self.options.weights or {})}
            self.fused = fusion.fuse(
                fields,
                self.owned,
                evidence,
                weights,
                behind=self.ranked.behind,
                min_relevance=self.min_score,
            )
            kinds = {*self.owned.values(), *fusion.kinds_of(self.judge.manifest.spaces)}
            behind = fusion.highest_behind(fields, kinds, evidence, weights, full=self.full)
            self.highest_behind = to_relevance(behind)

    def _ends_among(self, relevant: Collection[str]) -> bool:
        """Return whether a field that has more to give still gave relevant documents at its end.

        What says a phrase is among those that share words.
        """
        fields = self.ranked.fields
        telling = [fields[WORDS]] if self.wanted.words and WORDS in fields else fields.values()
        full = (hits for hits in telling if len(hits) >= self.depth)
        return any(hit.id in relevant for hits in full for hit in hits[-max(len(hits) // 10, 1) :])

    def scores(self, ids: Sequence[str], part: PreparedQuery) -> dict[str, float]:
        """Return how likely each of these documents is what the query leaves out.

        What an excluded text says is certain to be left out, and by its image alone a document can be likely to be.
        """
        if not part.by_text:
            return dict(_fused(self.judge, part, _compare(self.store, part, ids), self.owned).order)
        shown = replace(part, text="")
        scores = dict(_fused(self.judge, shown, _compare(self.store, shown, ids), self.owned).order)
        rows = row_ids_of(self.store, list({document_of(id) for id in ids}))
        said = set(map(document_of, self.saying(part).rows(self.store, rows)))
        return scores | {id: 1.0 for id in ids if document_of(id) in said}

    def saying(self, query: PreparedQuery) -> Saying:
        """Return what says a text that the query leaves out."""
        return Saying.of(query.text, query.phrases, self.language)

    def _compare_again(self, changed: Collection[str]) -> None:
        fields = self.ranked.fields
        for name, compare in self._comparisons().items():
            with querying(self.store.name, "compare", name):
                fields[name] = compare_again(fields[name], changed, compare, is_full=name in self.full)

    def _look_behind(self, ids: Collection[str]) -> None:
        """Compare documents with the full fields that did not list them."""
        kinds = set(self.owned.values())
        for name, compare in self._comparisons().items():
            known = self.ranked.behind.setdefault(name, {})
            for id in ids if known else ():
                known.pop(id, None)
            if name not in self.full:
                continue
            having = {fields for fields in kinds if name == WORDS or name in map(str, fields)}
            listed = {hit.id for hit in self.ranked.fields[name]}
            missing = {id for id in ids if id not in listed and self.owned.get(id) in having}
            if missing:
                with querying(self.store.name, "compare", name):
                    known.update({hit.id: hit for hit in compare(missing)})

    def _comparisons(self) -> dict[str, Callable[[Collection[str]], list[Hit]]]:
        """Return how each field compares given documents."""
        where = self.options.condition
        comparisons: dict[str, Callable[[Collection[str]], list[Hit]]] = {
            str(asked): partial(self.store.compare, asked, vectors, where=where)
            for asked, vectors in self.asked.vectors.items()
        }
        if WORDS in self.ranked.fields and isinstance(self.store, WordSearch):
            comparisons[WORDS] = partial(self.store.compare_words, self.asked.text, where=where)
        return comparisons

    def _reranked(self) -> list[Match]:
        """Return the candidates in the order of the re-ranker, which reads the first of them."""
        options = self.options
        if options.reranker is None:
            return self.matches
        from vlmsearch.search.rerank import rerank

        given = [(row_of(m), m.score, encoded_document(m.document, m.passage)) for m in self.matches]
        count = min(len(given), options.rerank_first)
        with stage("rerank", {"gen_ai.request.model": options.reranker.name, "vlmsearch.count": count}):
            judged = rerank(
                self.asked.text, given, options.reranker, first=options.rerank_first, seconds=options.rerank_seconds
            )
        by_id = {row_of(match): match for match in self.matches}
        return [replace(by_id[match.id], score=match.score) for match in judged]

    def take_whole(self, store: HasOverview, *, ranks_words: bool) -> None:
        """Find the best among all documents, as arrays."""
        check_cancelled()
        options = self.options
        parts = (self.asked, *self.asked.without)
        asked = {field for part in parts for field in part.vectors} | (
            {WORDS} if self.judge.manifest.language else set()
        )
        keys = {*options.facets, *([] if options.sort == "relevance" else [options.sort.removeprefix("-")])}
        counts_all = options.takes_all and options.reranker is not None
        query = ArrayQuery(
            self.asked,
            self.wanted,
            [self.saying(part) for part in self.asked.without if part.by_text],
            {**self.judge.weights, **(options.weights or {})},
            self.min_score,
            self.threshold,
            ranks_words,
            sorted(self.hidden),
            options.group,
            MAX_PAGE if counts_all else self.page_size,
            options.count and not counts_all,
            () if counts_all else tuple(options.facets),
            "relevance" if counts_all else options.sort,
        )
        look = store.overview(asked, options.condition, keys)
        with querying(self.store.name, "search"), look as overview, stage("fuse"), _turn():
            self.whole = search_arrays(self.judge, overview, query)
        self.matches, self.parts = self.whole.matches, self.whole.parts
        self.is_sorted = not counts_all and options.sort != "relevance"

    def result(self) -> Matches:
        """Return the page that was asked for."""
        check_cancelled()
        options, judged, whole, threshold = self.options, self._reranked(), self.whole, self.threshold
        matches = [match for match in judged if match.score >= threshold]
        counted = whole if whole is not None and not (options.takes_all and options.reranker) else None
        facets = count_values(matches, options.facets) if counted is None else counted.facets
        total = len(matches) if options.takes_all else None
        if options.sort != "relevance" and not self.is_sorted:
            matches = sort_by_key(matches, options.sort)
        elif options.diversity:
            best, rest = matches[:_DIVERSE], matches[_DIVERSE:]
            with querying(self.store.name, "records"):
                records = self.store.encoded(list(map(row_of, best)))
            shown = {match.document.id for match in best if self.cursor.has(match)}
            by_id = {record.document.id: record for record in records}
            matches = [*diversify(best, by_id, options.diversity, first=shown), *rest]
        left = [match for match in matches if not self.cursor.has(match)][options.offset :]
        page = [
            Match(match.document, match.score, self._fields(row), self.parts.get(row, {}), match.passage)
            for match, row in ((match, row_of(match)) for match in left[: options.limit])
        ]
        return Matches(
            tuple(page),
            cursor=self.cursor.after([*matches[: options.offset], *page]) if len(left) > len(page) else None,
            total=total if counted is None else counted.total,
            facets=facets,
            threshold=threshold,
            closest=() if matches else self._closest(judged),
            uncalibrated=self.judge.outside(self.asked.vectors, self.asked.text if self.asked.by_text else ""),
            shown_for=self.asked.shown_for,
        )

    def _closest(self, judged: Sequence[Match]) -> tuple[Match, ...]:
        """Return what comes closest by the re-ranker; without one, another search looks for that."""
        if self.options.reranker is None or not self.may_be_unsure:
            return ()
        near = [match for match in judged if match.score >= CLOSEST][:_MAX_CLOSEST]
        return tuple(replace(match, fields=self._fields(row_of(match))) for match in near)

    def _fields(self, id: str) -> Mapping[str, FieldScore]:
        return self.fused.fields(id) if self.whole is None else self.whole.fields[id]


@contextmanager
def _turn() -> Iterator[None]:
    """Let one thread rank at a time.

    Long steps run on several cores anyway. Short ones need the lock of Python, and many threads wait longer for that
    than for each other. A free-threaded Python has no such lock.
    """
    if not getattr(sys, "_is_gil_enabled", lambda: True)():
        yield
        return
    lock = _turn_lock()
    while not lock.acquire(timeout=0.1):
        check_cancelled()
    try:
        yield
    finally:
        lock.release()


@functools.cache
def _turn_lock() -> threading.Lock:
    if hasattr(os, "register_at_fork"):  # a fork has none of the threads
        os.register_at_fork(after_in_child=_turn_lock.cache_clear)
    return threading.Lock()


def _compare(store: Store, part: PreparedQuery, ids: Sequence[str], max_bm25: float | None = None) -> Rankings:
    """Return how each field of a query sees the given documents, best first.

    ``max_bm25`` is the highest BM25 that words can have, where it is known.
    """
    with querying(store.name, "compare"):
        ranked = Rankings({str(field): store.compare(field, vectors, ids) for field, vectors in part.vectors.items()})
        if part.text and isinstance(store, WordSearch):
            max_bm25 = store.search_words(part.text, limit=1).max_score if max_bm25 is None else max_bm25
            if max_bm25 > 0:
                ranked.fields[WORDS], ranked.max_bm25 = store.compare_words(part.text, ids), max_bm25
    return ranked
