"""Relevance: how likely a document is what was asked for, from what the fields of a search say of it.

Each field gives *evidence*: the log-odds, in nats, that its value speaks for the document. Their sum, added to the
log-odds that any document has before (`PRIOR`), is the log-odds of the relevance. A field that a document does not have
adds nothing, so it counts neither for nor against it.

* **Vectors.** The cosine is judged against an `IndexBackground`: what the query's cosines with a sample of the index
  look like. A query near to everything, such as one for the topic of all documents, has to be met better than
  others. How cosine and background make evidence was fitted on labelled pairs when the model was built
  (`RelevanceFit`). Without a fit, and for a query that is an image or a document, the distance of its cosine from the
  background decides.
* **Words.** BM25 divided by the square root of the most that a document could reach: without that, long queries would
  count more than short ones. BM25's terms are log-odds themselves (Robertson and Zaragoza, "The Probabilistic Relevance
  Framework: BM25 and Beyond", 2009), but words of one text depend on each other, hence a slope. It rises where the
  vectors of the index do not know its words (`word_slope`). Words that are met almost completely stand
  for themselves, whatever the vectors say: a code, a number or the name of a file.

No evidence goes below `FLOOR`: a caption may say nothing of what its picture shows.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from vlmsearch.stores.terms import AUTO, are_codes, has_number, query_words
from vlmsearch.types import MIN_SCORE, WORDS, Field, Manifest, RelevanceFit

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from vlmsearch.encoders.base import Encoder
    from vlmsearch.models.domain import Domain
    from vlmsearch.search.query import PreparedQuery
    from vlmsearch.stores.base import Store
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
USUAL_SLOPE = 1.2
"""The weight of words in an index with too few texts to tell: nats per BM25 divided by the root of the highest one."""
_EVEN_BM25 = 1.42
"""The BM25, by the root of the highest possible one, that speaks neither for nor against."""
_ALONE = (25.6, -2.9)
"""Slope and bias of words alone: the share of what is met."""
DOUBT, WORD_DOUBT, NAME_DOUBT = 12.0, 4.0, 4.0
"""Log-odds taken off words that decide alone.

They are taken off words if vectors of the same text say less, off a single word, and off the name of a file. Of a query
that is nothing but codes, which models do not know, none are taken off.
"""
_FEW_TEXTS, _MANY_TEXTS = 20, 60
"""Texts up to which words are doubted like a single one, and from which on fully.

Among few, it tells much that one of them has the words of a query.
"""
_OF_NUMBERS = 3.0
"""The weight of words in a query with a number: models hardly tell numbers apart."""
SAMPLE = 512
"""Number of documents in the background of an index."""
_FEW = 32
"""Number of documents up to which a background is rather the usual one."""
_SLOPE, _STANDS_OUT = 2.0, 3.0
"""Without a fit: the log-odds per standard deviation, and how many of them make relevance even odds."""
_MIN_DEVIATION = 0.02
_UNKNOWN_DEVIATION = 0.25
_FRESH_SECONDS = 10.0


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
    """

    sample: Vectors
    outside: str | None = None

    def against(self, query: NDArray[np.float32]) -> tuple[float, float]:
        """Return the median and standard deviation of the sample's cosines with a query, shape (dim,)."""
        import numpy as np

        if not len(self.sample):
            return 0.0, 0.0
        cosines = self.sample @ query
        return float(np.median(cosines)), float(cosines.std())

    @cached_property
    def within(self) -> tuple[float, float]:
        """Return the median and the standard deviation of the cosines between the documents themselves."""
        import numpy as np

        if len(self.sample) < 2:
            return 0.0, 0.0
        cosines = (self.sample @ self.sample.T)[np.triu_indices(len(self.sample), 1)]
        return float(np.median(cosines)), float(cosines.std())


@dataclass(frozen=True)
class Basis:
    """The basis on which the cosines of a field were judged.

    Attributes:
        fitted: Whether by a fit of the model; else by how far a cosine stands out from those of the index alone.
        documents: How many documents of the index were looked at; 0 where the fit needs none.
        median: The usual cosine with unrelated documents; None where the fit needs none.
        deviation: The standard deviation of those cosines; None where the fit needs none.

    Example:
        >>> Basis(fitted=True, documents=512, median=0.05, deviation=0.1).median
        0.05
    """

    fitted: bool
    documents: int = 0
    median: float | None = None
    deviation: float | None = None


@dataclass(frozen=True)
class Evidence:
    """A function from a field's value to evidence: ``slope * value + base``, above `FLOOR`, flatter beyond ``bound``.

    Attributes:
        slope: Nats per unit of the value.
        base: Nats at a value of 0.
        basis: What cosines were judged by; None for words.
        bound: Nats from which on more counts a tenth.
        doubt: Of words: what is taken off words alone beside vectors of the same text, and off the name of a file.
        weight: What all of it is multiplied by.
        rival: A space whose fields are compared with one vector: of these, a document counts by the best. None for a
            field that counts beside others.
    """

    slope: float
    base: float
    basis: Basis | None = None
    bound: float = math.inf
    doubt: tuple[float, float] = (DOUBT, NAME_DOUBT)
    weight: float = 1.0
    rival: str | None = None

    def __call__(self, value: float) -> float:
        """Return the evidence, in nats."""
        import numpy as np

        return float(self.of(np.array([value]))[0])

    def of(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the evidence of many values, in nats."""
        import numpy as np

        raw = self.slope * values + self.base
        evidence: NDArray[np.float64] = np.maximum(raw, FLOOR) + _softened(raw - FLOOR)
        if self.bound < math.inf:
            beyond = np.maximum(evidence - self.bound, 0.0) + _softened(evidence - self.bound)
            evidence = evidence - (1 - _BEYOND) * beyond
        return self.weight * evidence

    def min_value(self, evidence: float) -> float:
        """Return the value from which on there is so much evidence: -inf where every value has it."""
        if evidence <= self.weight * FLOOR or self.slope <= 0:
            return -math.inf
        low, high = (FLOOR - self.base - 40) / self.slope, (10 * abs(evidence) + 40 - self.base) / self.slope
        for _ in range(60):
            middle = (low + high) / 2
            low, high = (middle, high) if self(middle) < evidence else (low, middle)
        return low


def _softened(distance: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return what rounds the corner where a line meets a bound, by the distance from it."""
    import numpy as np

    rounded: NDArray[np.float64] = np.log1p(np.exp(-np.minimum(np.abs(distance), 700.0)))
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
    share = len(background.sample) / (len(background.sample) + _FEW)
    median, deviation = background.against(query)
    mean = share * median + (1 - share) * fit.usual_mean
    spread = share * deviation + (1 - share) * fit.usual_deviation
    basis = Basis(fitted=True, documents=len(background.sample), median=mean, deviation=spread)
    return Evidence(fit.cosine, fit.bias + fit.mean * mean + fit.deviation * spread - PRIOR, basis, MAX_EVIDENCE)


def standing_out(
    background: IndexBackground,
    query: NDArray[np.float32],
    *,
    alike: bool,
    usual: tuple[float, float] = (0.0, _UNKNOWN_DEVIATION),
    is_pure: bool = True,
) -> Evidence:
    """Return what cosines with one field are worth where nothing was fitted.

    Args:
        background: The index's, for the field.
        query: The vector, of shape (dim,).
        alike: Whether the query is of the same kind as the documents. Then their cosines with each other count as well
            as its own with the sample: one that is near to none of them has to be met as they meet each other.
        usual: The median and the deviation that count for an index with few documents.
        is_pure: Whether the vector is one of a document, or of several: then a cosine near 1 is near certainty. Not so
            of a query of a text as well.

    Returns:
        The function from cosines to evidence.
    """
    share = len(background.sample) / (len(background.sample) + _FEW)
    median, deviation = background.against(query)
    if alike:  # between what the query is to documents and what they are to each other, which may be near to it or not
        median, deviation = (sum(both) / 2 for both in zip((median, deviation), background.within))
    mean = share * median + (1 - share) * usual[0]
    spread = max(share * deviation + (1 - share) * usual[1], _MIN_DEVIATION)
    basis = Basis(fitted=False, documents=len(background.sample), median=mean, deviation=spread)
    even, slope = mean + _STANDS_OUT * spread, _SLOPE / spread
    if not (alike and is_pure):
        return Evidence(slope, -slope * even - PRIOR, basis, MAX_EVIDENCE)
    even = min(even, _NEAR)
    slope = max(slope, _SURE / (1 - even))
    return Evidence(slope, -slope * even - PRIOR, basis, MAX_EVIDENCE + _SURE)


def words_beside(
    max_bm25: float, text: str = "", language: str = AUTO, *, texts: int = SAMPLE, slope: float = USUAL_SLOPE
) -> Evidence:
    """Return what BM25 is worth beside vectors of the same text.

    Args:
        max_bm25: The highest possible one, above 0.
        text: The query.
        language: The index's.
        texts: About how many texts the index has.
        slope: How much words count beside the vectors of the index: see `word_slope`.
    """
    share = min(max((texts - _FEW_TEXTS) / (_MANY_TEXTS - _FEW_TEXTS), 0.0), 1.0)
    doubt = WORD_DOUBT + share * (DOUBT - WORD_DOUBT)
    plain = Evidence(slope / math.sqrt(max_bm25), -_EVEN_BM25 * slope, doubt=(doubt, NAME_DOUBT))
    if are_codes(text):
        return replace(plain, doubt=(0.0, 0.0))
    if has_number(text):
        return replace(plain, weight=_OF_NUMBERS)
    if len(query_words(text, language)) == 1:
        return replace(plain, doubt=(WORD_DOUBT, NAME_DOUBT))
    return plain


def words_alone(max_bm25: float) -> Evidence:
    """Return what BM25 is worth by itself: a code, or the name of a file, says all where it is met."""
    slope, bias = _ALONE
    return Evidence(slope / max_bm25, bias)


class Backgrounds:
    """The backgrounds of an index, kept while it stays about the same. Safe in several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._manifest: Manifest | None = None
        self._taken: dict[Field, tuple[IndexBackground, int, float]] = {}
        self._slopes: dict[Field, tuple[IndexBackground, float]] = {}

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
            if known is not None and now - known[2] < _FRESH_SECONDS:
                return known[0]
            documents = len(store)
            if known is None or abs(documents - known[1]) > 0.1 * known[1]:
                sample = store.sample(field, SAMPLE)
                outside = domain.verdict(sample, field.modality) if domain else None
                known = (IndexBackground(sample, outside), documents, now)
            self._taken[field] = (known[0], known[1], now)
            return known[0]

    def word_slope(self, store: Store, manifest: Manifest, field: Field) -> float:
        """Return how much words count beside a field of texts, by a sample of the index."""
        import numpy as np

        from vlmsearch.search.agreement import word_slope

        background = self.get(store, manifest, field)
        known = self._slopes.get(field)
        if known is None or known[0] is not background:
            records = store.records(sorted(store.sample_ids(field, SAMPLE)))
            read = [(r.document.text, r.vectors[field]) for r in records if r.document.text and field in r.vectors]
            texts, vectors = [text for text, _ in read], np.array([vector for _, vector in read], np.float32)
            known = self._slopes[field] = background, word_slope(texts, vectors, manifest.language) or USUAL_SLOPE
        return known[1]

    def forget(self) -> None:
        """Take new samples at the next search: the index was written to."""
        with self._lock:
            self._taken = {}


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
            rivals = not sought.by_text and sum(field.space == other.space for other in sought.vectors) > 1
            by_field[str(field)] = replace(evidence, rival=field.space) if rivals else evidence
        if max_bm25 > 0:
            texts = [len(self._background(field).sample) for field in sought.vectors if field.modality == "text"]
            by_field[WORDS] = words_beside(
                max_bm25,
                sought.text,
                self.manifest.language,
                texts=min(texts, default=SAMPLE),
                slope=self._word_slope([field for field in sought.vectors if field.modality == "text"]),
            )
        return by_field

    def outside(self, fields: Iterable[Field]) -> dict[str, str]:
        """Return which of these fields hold what their model is not made for.

        Each name has a line that says why.
        """
        known = [field for field in fields if (field.space, field.modality) in self.encoder.domains]
        reasons = {str(field): self._background(field).outside for field in known}
        return {name: reason for name, reason in reasons.items() if reason is not None}

    def _word_slope(self, fields: Sequence[Field]) -> float:
        """Return how much words count beside the text vectors of models of texts alone."""
        alone = {space.name for space in self.encoder.spaces if space.modalities == {"text"}}
        known = [field for field in fields if field.space in alone]
        return self.backgrounds.word_slope(self.store, self.manifest, known[0]) if known else USUAL_SLOPE

    def _background(self, field: Field) -> IndexBackground:
        domain = self.encoder.domains.get((field.space, field.modality))
        return self.backgrounds.get(self.store, self.manifest, field, domain)

    def _of_cosines(self, field: Field, query: NDArray[np.float32], sought: PreparedQuery) -> Evidence:
        by_text = sought.by_text
        fit = self.encoder.relevance.get((field.space, field.modality)) if by_text else None
        if fit is not None and not fit.mean and not fit.deviation:
            return Evidence(fit.cosine, fit.bias - PRIOR, Basis(fitted=True))
        background = self._background(field)
        if fit is not None:
            return fitted_evidence(fit, background, query)
        texts_alone = any(s.name == field.space and s.modalities == {"text"} for s in self.encoder.spaces)
        if texts_alone or (not by_text and field.modality == "image"):
            return standing_out(background, query, alike=True, is_pure=not sought.text)
        across = self.encoder.relevance.get((field.space, "image"))  # texts with images are as images with texts
        if across is None:
            return standing_out(background, query, alike=False)
        return standing_out(background, query, alike=False, usual=(across.usual_mean, across.usual_deviation))
