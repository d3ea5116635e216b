"""Relevance: how likely a document is what was asked for, from what the fields of a search say of it.

Each field gives *evidence*: the log-odds, in nats, that its value speaks for the document. Their sum, added to the
log-odds that any document has before (`PRIOR`), is the log-odds of the relevance. A field that a document does not have
adds nothing, so it counts neither for nor against it.

* **Vectors.** The cosine is judged against an `IndexBackground`: what the query's cosines with a sample of the index
  look like. What counts is its median, and the *rivals*: the nearest documents that are not answers themselves. A
  cosine from `RelevanceFit.near` on is no background. So copies make an answer no less likely, nor does a topic that
  half of the index is about. How cosine and background make evidence was fitted on labelled pairs when the model
  was built. Without a fit, and for a query that is an image or a document, the distance of its cosine from the
  background decides.
* **Words.** BM25 divided by a power of the number of the query's terms: less than the sum of what each says, and more
  than the mean. BM25's terms are log-odds
  themselves (Robertson and Zaragoza, "The Probabilistic Relevance Framework: BM25 and Beyond", 2009), but words of one
  text depend on each other, hence a slope. All of it is multiplied where the vectors of the index do not know its words
  (`word_weight`). Where they hardly know any, as in a language that the model never learnt, what they say shrinks
  (`TextStatistics.knowledge`), and words are judged by themselves: by the share of the query that a text meets, and by
  what other texts meet of it. Words that are met almost completely stand for themselves, whatever the vectors say: a
  code, a number or the name of a file. But several words say no more than their BM25: what all documents hold says
  nothing.

No evidence of a vector goes below `FLOOR`: a caption may say nothing of what its picture shows.
"""

from __future__ import annotations

import math
import threading
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field as attribute, replace
from typing import TYPE_CHECKING, NamedTuple

from vlmsearch.errors import VlmsearchError
from vlmsearch.stores.terms import (
    AUTO,
    are_codes,
    has_long_code,
    has_number,
    language_clues,
    plain_words,
    query_terms,
    query_words,
)
from vlmsearch.types import MIN_SCORE, WORDS, Field, Manifest, RelevanceFit, document_of

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from vlmsearch.encoders.base import Encoder
    from vlmsearch.models.domain import Domain
    from vlmsearch.search.query import PreparedQuery
    from vlmsearch.stores.base import Store, WordSearch
    from vlmsearch.types import Vectors

PRIOR = -3.5
"""The log-odds that a document which a field found is relevant.

Nothing else is known of it before.
"""
THRESHOLD = 0.3
"""The relevance from which matches are shown where the index has no threshold of its own."""
FLOOR = math.log(0.2)
"""The least evidence: one field in five of a relevant document says nothing of what was asked for."""
MAX_EVIDENCE = 6.0
"""The evidence from which on more of the vectors of one field counts a tenth. On collections that no fit has seen, one
in ten of the documents that a model is surest of is not what was asked for."""
_BEYOND = 0.1
"""The share that counts of evidence beyond the bound of a field: enough to keep the order."""
_SURE = 4.0
"""The log-odds of relevance where a document has the very vector of the query."""
_NEAR = 0.95
"""The cosine from which on documents are about the same.

It holds however near to each other all are.
"""
_BESIDE, _TERMS_POWER = (0.3, -0.6, 6.0), 0.75
"""Slope, base and bound of words beside vectors: nats per BM25 divided by this power of the number of terms."""
_UNKNOWN = (32.0, 28.0, -1.1)
"""Of texts that vectors do not know: nats per share of the query that a text meets, those taken off per share that its
rivals meet, and those at no share."""
_LONG, _LONG_POWER = 5, 0.4
"""Terms from which on more of them divide BM25 less, and the power for these: words of long queries tell more."""
_CHANCE = 2.0
"""Terms of a long query that a text about something else holds at the best."""
_TELLING = 4.4
"""The highest BM25 of a term that it tells something to lack: an idf of 2."""
_ALONE = (25.6, -2.9)
"""Slope and base of words alone: nats per share of what is met."""
_FULL_MATCH = _ALONE[0] / 2.2 + _ALONE[1]
"""Nats of a text of usual length that says all words once: shorter texts and more times say little more."""
_HELD, _SHORT_QUERY = 0.4, 4
"""Share of BM25 of a document with all words, and terms of a short query."""
_HELD_LOG_ODDS, _HELD_BY_FEW = -3.9, -0.75
"""The log-odds at least of what holds all words of a short query: it is among the closest, and among few documents it
is shown. A passage of one may hold them whatever else there is in it."""
_RESPELT = 0.2
"""The share of the evidence of words that is taken off where all were misspelt."""
DOUBT, WORD_DOUBT, NAME_DOUBT = 12.0, 4.0, 4.0
"""Log-odds taken off words that decide alone.

They are taken off words if vectors of the same text say less, off a single word, and off the name of a file. Of a query
that is nothing but codes, which models do not know, none are taken off.
"""
_FEW_TEXTS, _MANY_TEXTS = 20, 60
"""Texts, or documents, up to which words are doubted like one, and from which on fully.

Among few, it tells much that one of them has the words of a query, even if several have them.
"""
_OF_NUMBERS = 3.0
"""The weight of words in a query with a number: models hardly tell numbers apart."""
CODES_KNOWN = 0.1
"""The share of vectors of texts that counts: to them, neighbouring codes are alike."""
_CODE_LENGTH = 4
"""Characters at least of a code unknown to models; they know 3D and B2B."""
SAMPLE = 512
"""Number of documents in the background of an index."""
_FEW, _FEW_RIVALS = 32, 8
"""Numbers of documents up to which median and rivals are rather the usual ones."""
_RIVALS = slice(-5, -1)
"""The rivals: the second to the fifth of the nearest. The first may be an answer that is far."""
_SLOPE, _STANDS_OUT = 2.0, 3.0
"""Without a fit: the log-odds per standard deviation, and how many of them make relevance even odds."""
_MIN_DEVIATION = 0.02
_FRESH_SECONDS = 10.0
_CHANGE = 0.1
"""The share of documents by which an index may change until its statistics are computed anew."""
_FEW_CHANGES, _FEW_DOCUMENTS = 100, 48
"""Changes, and documents, that are too few to look at the statistics of an index."""
_WORD_WEIGHT, _LANGUAGE = "word weight 2", "language 1"
"""The names of `TextStatistics` among those of an index, with the numbers of their algorithms."""
_TRUSTED, _MISTRUST = 1.5, 3
"""The weight of words up to which vectors know a language, and the power beyond it."""
_CLUES = 2
"""Clues by which a query is in another language than the texts."""
_HARDLY = 0.2
"""The knowledge of texts up to which search warns."""
_SPOKEN, _MAINLY = 0.05, 0.5
"""Shares of a sample from which a language is one of many, or the main one."""


def to_relevance(log_odds: float) -> float:
    """Return the probability, from 0 to 1, that log-odds stand for."""
    return 1 / (1 + math.exp(-max(min(log_odds, 700.0), -700.0)))


def to_log_odds(relevance: float) -> float:
    """Return the log-odds of a probability; -700 and 700 for those of 0 and 1."""
    if not 0 < relevance < 1:
        return 700.0 if relevance >= 1 else -700.0
    return math.log(relevance / (1 - relevance))


@dataclass(frozen=True, eq=False)
class IndexBackground:
    """A sample of an index, to tell what a cosine is worth there.

    Attributes:
        sample: Float32 of shape (n, dim), each row of length one; n may be 0.
        outside: Why the index is outside of the domain of the model; None where it is not, or no domain is known.
        documents: Number of documents of the index, beyond 1000 about: see `Store.size`.
    """

    sample: Vectors
    outside: str | None = None
    documents: int = SAMPLE
    _within: dict[float, BackgroundCosines] = attribute(default_factory=dict, init=False)

    def against(self, query: NDArray[np.float32], near: float = math.inf) -> BackgroundCosines:
        """Return what the sample's cosines with a query, shape (dim,), look like: of those below ``near``."""
        return BackgroundCosines.of(self.sample @ query, near)

    def within(self, near: float = math.inf) -> BackgroundCosines:
        """Return what the cosines between the documents themselves look like."""
        import numpy as np

        if near not in self._within:
            cosines = (self.sample @ self.sample.T)[np.triu_indices(len(self.sample), 1)]
            self._within[near] = BackgroundCosines.of(cosines, near)
        return self._within[near]


class BackgroundCosines(NamedTuple):
    """The shape of some cosines: all are 0 where there are none.

    Attributes:
        number: How many there are.
        median: Their median.
        deviation: Their standard deviation.
        rivals: The mean of the second to the fifth highest.
    """

    number: int
    median: float
    deviation: float
    rivals: float

    @classmethod
    def of(cls, cosines: NDArray[np.float32], near: float) -> BackgroundCosines:
        """Return what the cosines below ``near`` look like."""
        import numpy as np

        known = np.sort(cosines[cosines < near])
        if not len(known):
            return cls(0, 0.0, 0.0, 0.0)
        rivals = float((known[_RIVALS] if len(known) > 1 else known).mean())
        median = float(known[(len(known) - 1) // 2 : len(known) // 2 + 1].mean())  # NumPy's loads masked arrays for it
        return cls(len(known), median, float(known.std()), rivals)


@dataclass(frozen=True)
class Basis:
    """The basis on which the cosines of a field were judged.

    Attributes:
        fitted: Whether by a fit of the model; else by how far a cosine stands out from those of the index alone.
        documents: How many documents of the index were looked at; 0 where the fit needs none.
        median: The usual cosine with unrelated documents; None where the fit needs none.
        deviation: The standard deviation of those cosines; None where the fit needs none.
        rivals: The cosine of the nearest of them; None where it does not count.

    Example:
        >>> Basis(fitted=True, documents=512, median=0.05, deviation=0.1).median
        0.05
    """

    fitted: bool
    documents: int = 0
    median: float | None = None
    deviation: float | None = None
    rivals: float | None = None


@dataclass(frozen=True)
class WordsAlone:
    """A function from BM25 to the evidence of words that decide by themselves.

    Attributes:
        slope: Nats per BM25.
        base: Nats at a BM25 of 0.
        is_bounded: Whether there is no more evidence than BM25. If not, more than that of a full match counts a tenth.
        doubt: What is taken off beside vectors of the same text, and off the name of a file.
        held: The BM25 from which on a document has the log-odds ``held_log_odds`` at least.
        held_log_odds: What it has at least; BM25 counts where it says more.
        is_code: Whether vectors of texts count `CODES_KNOWN` beside it.
    """

    slope: float
    base: float
    is_bounded: bool = False
    doubt: tuple[float, float] = (DOUBT, NAME_DOUBT)
    held: float = math.inf
    held_log_odds: float = _HELD_LOG_ODDS
    is_code: bool = False

    def of(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the evidence of many values, in nats."""
        import numpy as np

        evidence = self.slope * values + self.base
        if self.is_bounded:
            return np.minimum(evidence, values)
        return evidence - (1 - _BEYOND) * np.maximum(evidence - _FULL_MATCH, 0.0)

    def min_value(self, evidence: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the values from which on there is so much evidence."""
        import numpy as np

        if self.is_bounded:
            return np.maximum((evidence - self.base) / self.slope, evidence)
        return (evidence + (1 / _BEYOND - 1) * np.maximum(evidence - _FULL_MATCH, 0.0) - self.base) / self.slope


@dataclass(frozen=True)
class Evidence:
    """A function from a field's value to evidence: ``slope * value + base``, above ``floor``, flatter beyond ``bound``.

    Attributes:
        slope: Nats per unit of the value.
        base: Nats at a value of 0.
        basis: What cosines were judged by; None for words.
        bound: Nats from which on more counts a tenth.
        floor: The least nats; -inf for none.
        alone: Of words: what they say by themselves.
        weight: What all of it is multiplied by.
        best_of: A space whose fields are compared with one vector: of these, a document counts by the best. None for a
            field that counts beside others.
        is_upper: Whether it is an upper bound alone, which takes far less time: its corners are not rounded.
    """

    slope: float
    base: float
    basis: Basis | None = None
    bound: float = math.inf
    floor: float = FLOOR
    alone: WordsAlone | None = None
    weight: float = 1.0
    best_of: str | None = None
    is_upper: bool = False

    def __call__(self, value: float) -> float:
        """Return the evidence, in nats."""
        import numpy as np

        return float(self.of(np.array([value]))[0])

    def of(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the evidence of many values, in nats."""
        import numpy as np

        evidence: NDArray[np.float64] = self.slope * values + self.base
        if self.floor > -math.inf:
            corner = math.log(2) if self.is_upper else _softened(evidence - self.floor)
            evidence = np.maximum(evidence, self.floor) + corner
        if self.bound < math.inf:
            beyond = evidence - self.bound
            beyond = np.maximum(beyond, 0.0) + (0.0 if self.is_upper else _softened(beyond))
            evidence = evidence - (1 - _BEYOND) * beyond
        return self.weight * evidence

    def min_value(self, evidence: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the values from which on there is so much evidence: -inf where every value has it."""
        import numpy as np

        always = evidence / self.weight < self.floor + 1e-9
        said = wanted = np.maximum(evidence / self.weight, self.floor + 1e-9)
        for _ in range(6):  # steps of Newton's, to 13 digits, always from below: the function is concave
            beyond = said - self.bound
            soft = np.maximum(beyond, 0.0) + _softened(beyond)
            share = 1 - (1 - _BEYOND) * np.exp(beyond - soft)
            said = said + (wanted - said + (1 - _BEYOND) * soft) / share
        values = (said + np.log1p(-np.exp(self.floor - said)) - self.base) / (self.slope or 1.0)
        return np.where(always | (self.slope <= 0), -np.inf, values)


def _softened(distance: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return what rounds the corner where a line meets a bound, by the distance from it."""
    import numpy as np

    rounded: NDArray[np.float64] = np.log1p(np.exp(-np.abs(distance)))
    return rounded


def fitted_evidence(fit: RelevanceFit, background: IndexBackground, query: NDArray[np.float32]) -> Evidence:
    """Return what a text's cosines with one field are worth, by the fit of that field.

    Args:
        fit: The encoder's, for the field.
        background: The index's, for the field.
        query: The text's vector, of shape (dim,).

    Returns:
        The function from cosines to evidence.
    """
    known = background.against(query, fit.near)
    mean = _between(fit.usual_mean, known.median, known.number, _FEW)
    rivals = _between(fit.usual_mean + 2 * fit.usual_deviation, known.rivals, known.number, _FEW_RIVALS)
    basis = Basis(True, known.number, mean, known.deviation, rivals)
    return Evidence(fit.cosine, fit.bias + fit.mean * mean + fit.rivals * rivals - PRIOR, basis, MAX_EVIDENCE)


def _between(usual: float, known: float, count: int, few: int) -> float:
    """Return a value between the usual one, for no documents, and the known one, for many."""
    return (few * usual + count * known) / (few + count)


def standing_out(
    background: IndexBackground,
    query: NDArray[np.float32],
    *,
    alike: bool,
    usual: tuple[float, float] = (0.0, 0.25),
    near: float = math.inf,
    is_pure: bool = True,
) -> Evidence:
    """Return what cosines with one field are worth where nothing was fitted.

    Args:
        background: The index's, for the field.
        query: The vector, of shape (dim,).
        alike: Whether the query is of the same kind as the documents. Then their cosines with each other count as well
            as its own with the sample: one that is near to none of them has to be met as they meet each other.
        usual: The median and the deviation that count for an index with few documents.
        near: The cosine from which on documents of the sample are no background.
        is_pure: Whether the vector is one of a document, or of several: then a cosine near 1 is near certainty. Not so
            of a query of a text as well.

    Returns:
        The function from cosines to evidence.
    """
    count, median, deviation, _ = background.against(query, near)
    if alike:  # between what the query is to documents and what they are to each other, which may be near to it or not
        _, median_within, deviation_within, _ = background.within(near)
        median, deviation = (median + median_within) / 2, (deviation + deviation_within) / 2
    mean = _between(usual[0], median, count, _FEW)
    spread = max(_between(usual[1], deviation, count, _FEW), _MIN_DEVIATION)
    basis = Basis(False, count, mean, spread)
    even, slope = mean + _STANDS_OUT * spread, _SLOPE / spread
    if not (alike and is_pure):
        return Evidence(slope, -slope * even - PRIOR, basis, MAX_EVIDENCE)
    even = min(even, _NEAR)
    slope = max(slope, _SURE / (1 - even))
    return Evidence(slope, -slope * even - PRIOR, basis, MAX_EVIDENCE + _SURE)


def words_beside(
    max_bm25: float,
    text: str = "",
    language: str = AUTO,
    *,
    texts: int = SAMPLE,
    documents: int = SAMPLE,
    weight: float = 1.0,
    known: float = 1.0,
    rivals: float = 0.0,
    respelt: int = 0,
) -> Evidence:
    """Return what BM25 is worth beside vectors of the same text, and by itself.

    Args:
        max_bm25: The highest possible one, above 0.
        text: The query.
        language: The index's.
        texts: About how many texts the index has, passages among them.
        documents: About how many documents it has.
        weight: How much words count beside the vectors of the index: see `word_weight`.
        known: How much of the texts the vectors know, from 0 to 1: see `TextStatistics.knowledge`.
        rivals: The BM25 of the best texts of a sample; it counts where vectors do not know all.
        respelt: Number of words that stand for misspelt ones.
    """
    terms = max(len(query_terms(text, language)), 1)
    spelt = 1 - _RESPELT * min(respelt / terms, 1.0)
    is_code = are_codes(text)
    is_word = len(plain_words(text)) <= 2 and len(query_words(text, language)) == 1  # with its article at most
    share, among = (min(max((n - _FEW_TEXTS) / (_MANY_TEXTS - _FEW_TEXTS), 0.0), 1.0) for n in (texts, documents))
    doubt = WORD_DOUBT if is_word else WORD_DOUBT + share * (DOUBT - WORD_DOUBT)
    alone = WordsAlone(
        _ALONE[0] * spelt / max_bm25,
        _ALONE[1],
        is_bounded=share > 0 and not (is_word or is_code),
        doubt=(0.0, 0.0) if is_code else (doubt, NAME_DOUBT),
        held=_HELD * max_bm25 if terms <= _SHORT_QUERY else math.inf,
        held_log_odds=_HELD_BY_FEW + among * (_HELD_LOG_ODDS - _HELD_BY_FEW),
        is_code=has_long_code(text) or (is_code and (len(text.strip()) >= _CODE_LENGTH or not has_number(text))),
    )
    weight *= spelt * (_OF_NUMBERS if has_number(text) and not is_code else 1.0)
    of_mean, base, bound = _BESIDE
    slope = of_mean / min(terms, _LONG) ** _TERMS_POWER * (_LONG / max(terms, _LONG)) ** _LONG_POWER
    base *= min(max_bm25 / terms / _TELLING, 1.0)  # to lack words that most texts hold says nothing
    base -= (slope - of_mean / terms**_TERMS_POWER) * max_bm25 / terms * _CHANCE
    if known == 1:
        return Evidence(slope, base, bound=bound, floor=-math.inf, alone=alone, weight=weight)
    by_share, of_rivals, at_none = _UNKNOWN
    slope = known * weight * slope + (1 - known) * by_share / max_bm25
    base = known * weight * base + (1 - known) * (at_none - of_rivals * rivals / max_bm25)
    return Evidence(slope, base, bound=bound, floor=-math.inf, alone=alone)


class Backgrounds:
    """The backgrounds of an index, kept while it stays about the same. Safe in several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._manifest: Manifest | None = None
        self._taken: dict[Field, tuple[IndexBackground, float]] = {}
        self._statistics: dict[Field, tuple[IndexBackground, TextStatistics]] = {}
        self._ids: dict[Field, tuple[IndexBackground, list[str]]] = {}
        self._looked = -math.inf
        """The time when `keep` last looked at the index."""

    def get(self, store: Store, manifest: Manifest, field: Field, domain: Domain | None = None) -> IndexBackground:
        """Return the background of a field, with the verdict on the domain of its model.

        Every ten seconds the number of documents is looked at, and where it has changed by more than a tenth a new
        sample is taken.
        """
        with self._lock:
            if manifest != self._manifest:
                self._manifest, self._taken = manifest, {}
            known = self._taken.get(field)
            now = time.monotonic()
            if known is not None and now - known[1] < _FRESH_SECONDS:
                return known[0]
            documents = store.size()
            if known is None or abs(documents - known[0].documents) > _CHANGE * known[0].documents:
                sample = _in_order(store.sample(field, SAMPLE))
                outside = domain.verdict(sample, field.modality) if domain else None
                known = IndexBackground(sample, outside, documents), now
            self._taken[field] = known[0], now
            return known[0]

    def of_texts(self, store: Store, manifest: Manifest, field: Field, encoder: Encoder | None) -> TextStatistics:
        """Return the statistics of a field of texts: what the index keeps, else those of a sample of it."""
        background = self.get(store, manifest, field)
        if (kept := kept_statistics(manifest, field, background.documents)) is not None:
            return kept
        known = self._statistics.get(field)
        if known is None or known[0] is not background:
            known = self._statistics[field] = background, _computed(store, manifest, field, encoder)
        return known[1]

    def rivals(self, store: Store, words: WordSearch, field: Field, text: str) -> float:
        """Return the mean BM25 of the second to the fifth best of a sample of texts: of all, in a small index."""
        background = self._taken[field][0]
        known = self._ids.get(field)
        if known is None or known[0] is not background:
            known = self._ids[field] = background, store.sample_ids(field, SAMPLE)
        best = {document_of(hit.id): hit.score for hit in reversed(words.compare_words(text, known[1]))}
        return sum(sorted(best.values(), reverse=True)[1:5]) / 4

    def forget(self) -> None:
        """Take new samples at the next search: the index was written to."""
        with self._lock:
            self._taken = {}

    def keep(self, store: Store, changed: int, encoder: Encoder | None = None) -> None:
        """Keep with an index what other processes would compute, once it is of about other documents.

        ``changed`` is the number of those that were written. Few of them are not looked at more often than searches do.
        """
        from vlmsearch.stores.generations import GenerationalStore

        if changed < _FEW_CHANGES and time.monotonic() - self._looked < _FRESH_SECONDS:
            return
        self._looked = time.monotonic()
        with suppress(VlmsearchError):  # then each process computes it, as it does for an index of an earlier version
            manifest, documents = store.manifest(), store.size()
            if manifest is None or documents < _FEW_DOCUMENTS or not isinstance(store, GenerationalStore):
                return
            fields = [Field(space.name, "text") for space in manifest.spaces if space.modalities == {"text"}]
            is_kept = all(kept_statistics(manifest, field, documents) is not None for field in fields)
            if not is_kept or changed > _CHANGE * documents:
                computed = {field: _computed(store, manifest, field, encoder) for field in fields}
                weights = {f"{_WORD_WEIGHT} {field}": of.word_weight for field, of in computed.items()}
                shares = {
                    f"{_LANGUAGE} {field} {name}": share
                    for field, of in computed.items()
                    for name, share in of.languages.items()
                }
                store.keep_statistics({name: (documents, value) for name, value in (weights | shares).items()})


def _in_order(sample: Vectors) -> Vectors:
    """Return a sample in an order that its vectors alone decide: sums depend on it in the last bit."""
    rows = sample.view(f"V{sample.itemsize * sample.shape[1]}")[:, 0] if sample.size else sample
    return sample[rows.argsort(kind="stable")] if sample.size else sample


class TextStatistics(NamedTuple):
    """The statistics of a field of texts.

    Attributes:
        word_weight: How much words count beside its vectors.
        languages: The languages that its texts are in, and their shares.
    """

    word_weight: float
    languages: Mapping[str, float]

    @property
    def knowledge(self) -> float:
        """Return how much of the texts their vectors know, from 0 to 1.

        Models know English: there, words that they did not learn are a matter of `word_weight` alone.
        """
        if not self.languages or self.languages.get("English", 0) >= _MAINLY:
            return 1.0
        return min((_TRUSTED / self.word_weight) ** _MISTRUST, 1.0)


def _computed(store: Store, manifest: Manifest, field: Field, encoder: Encoder | None) -> TextStatistics:
    """Return the statistics of a field of texts, from a sample of the index."""
    import numpy as np

    from vlmsearch.search.agreement import letters_weight, word_weight

    records = store.encoded(sorted(store.sample_ids(field, SAMPLE)))
    read = [(r.document.text, r.vectors[field]) for r in records if r.document.text and field in r.vectors]
    texts, vectors = [text for text, _ in read], np.array([vector for _, vector in read], np.float32)
    weight = word_weight(texts, vectors, manifest.language)
    if encoder is not None:
        weight = max(weight, letters_weight(texts, encoder))
    best = (clues.most_common(1) for clues in map(language_clues, texts))
    names = Counter(name for [(name, count)] in filter(None, best) if count > 1)
    shares = {name: count / names.total() for name, count in names.items()}
    return TextStatistics(weight, {name: share for name, share in shares.items() if share >= _SPOKEN})


def kept_statistics(manifest: Manifest, field: Field, documents: int) -> TextStatistics | None:
    """Return the statistics of a field that an index keeps.

    None where it keeps none, or those of another number of documents.
    """
    known, weight = manifest.statistics.get(f"{_WORD_WEIGHT} {field}", (-1, 0.0))
    start = f"{_LANGUAGE} {field} "
    names = {
        name.removeprefix(start): share for name, (_, share) in manifest.statistics.items() if name.startswith(start)
    }
    return TextStatistics(weight, names) if abs(documents - known) <= _CHANGE * known else None


@dataclass(frozen=True, eq=False)
class Judge:
    """A judge of the fields of one index."""

    encoder: Encoder
    store: Store
    manifest: Manifest
    backgrounds: Backgrounds

    @property
    def threshold(self) -> float:
        """Return the relevance from which a match is shown: what the index was tuned to, or `THRESHOLD`."""
        return self.manifest.tuning.get(MIN_SCORE, THRESHOLD)

    @property
    def weights(self) -> dict[str, float]:
        """Return what fields count in this index, where it was tuned."""
        return {name: weight for name, weight in self.manifest.tuning.items() if name != MIN_SCORE}

    def evidence(self, sought: PreparedQuery, max_bm25: float) -> dict[str, Evidence]:
        """Return the function from values to evidence of each field, by the fields' names.

        ``max_bm25`` is the highest possible BM25; 0 for no words.
        """
        by_field: dict[str, Evidence] = {}
        for field, vectors in sought.vectors.items():
            evidence = self._of_cosines(field, vectors[0], sought)
            several = not sought.by_text and sum(field.space == other.space for other in sought.vectors) > 1
            by_field[str(field)] = replace(evidence, best_of=field.space) if several else evidence
        if max_bm25 > 0:
            fields = [field for field in sought.vectors if field.modality == "text"]
            known = [self._background(field) for field in fields]
            texts = min((len(background.sample) for background in known), default=SAMPLE)
            documents = min((background.documents for background in known), default=SAMPLE)
            alone, weight, share, rivals = self._text_field(fields), 1.0, 1.0, 0.0
            if alone is not None:
                statistics = self._of_texts(alone)
                weight, share = statistics.word_weight, statistics.knowledge
                from vlmsearch.stores.base import WordSearch

                if share < 1 and isinstance(self.store, WordSearch):
                    by_field[str(alone)] = replace(by_field[str(alone)], weight=share)
                    rivals = self.backgrounds.rivals(self.store, self.store, alone, sought.text)
            by_field[WORDS] = words_beside(
                max_bm25,
                sought.text,
                self.manifest.language,
                texts=texts,
                documents=documents,
                weight=weight,
                known=share,
                rivals=rivals,
                respelt=len(sought.shown_for),
            )
        return by_field

    def outside(self, fields: Iterable[Field], query: str = "") -> dict[str, str]:
        """Return which of these fields hold what their model is not made for.

        Each name has a line that says why. Words are among them where a query is in another language than the texts.
        """
        verdicts = {field: self._background(field).outside for field in fields if self._domain(field)}
        reasons = {str(field): reason for field, reason in verdicts.items() if reason is not None}
        if (alone := self._text_field(fields)) is not None:
            statistics = self._of_texts(alone)
            languages, clues = " and ".join(statistics.languages), language_clues(query)
            if statistics.knowledge <= _HARDLY:
                reasons[str(alone)] = f"{alone.space} hardly knows {languages}, which the texts of this index are in"
            [(language, count)] = clues.most_common(1) or [("", 0)]
            if languages and count - max(clues[name] for name in statistics.languages) >= _CLUES:
                reasons[WORDS] = f"the query is in {language}, and the texts of this index are in {languages}"
        return reasons

    def _text_field(self, fields: Iterable[Field]) -> Field | None:
        """Return the field of a model of texts alone, where one of these is."""
        alone = {space.name for space in self.encoder.spaces if space.modalities == {"text"}}
        return next((field for field in fields if field.space in alone), None)

    def _of_texts(self, field: Field) -> TextStatistics:
        return self.backgrounds.of_texts(self.store, self.manifest, field, self.encoder)

    def _background(self, field: Field) -> IndexBackground:
        return self.backgrounds.get(self.store, self.manifest, field, self._domain(field))

    def _domain(self, field: Field) -> Domain | None:
        return self.encoder.domains.get((field.space, field.modality))

    def _of_cosines(self, field: Field, query: NDArray[np.float32], sought: PreparedQuery) -> Evidence:
        by_text = sought.by_text
        fit = self.encoder.relevance.get((field.space, field.modality))
        if fit is not None and by_text and not fit.mean and not fit.rivals:
            return Evidence(fit.cosine, fit.bias - PRIOR, Basis(fitted=True))
        background = self._background(field)
        if fit is not None and by_text:
            return fitted_evidence(fit, background, query)
        texts_alone = any(s.name == field.space and s.modalities == {"text"} for s in self.encoder.spaces)
        if texts_alone or (not by_text and field.modality == "image"):
            near = fit.near if fit is not None and texts_alone else math.inf
            return standing_out(background, query, alike=True, near=near, is_pure=not sought.text)
        across = self.encoder.relevance.get((field.space, "image"))  # texts with images are as images with texts
        if across is None:
            return standing_out(background, query, alike=False)
        return standing_out(background, query, alike=False, usual=(across.usual_mean, across.usual_deviation))
