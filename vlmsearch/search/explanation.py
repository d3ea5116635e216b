"""What an explanation of a search holds: see `vlmsearch.search.explain`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal

from vlmsearch.search.relevance import PRIOR, Basis
from vlmsearch.types import Document

LEAST_FALL = 0.05
"""What a part of a document adds to the evidence, in nats, where it mattered at all."""
SIDE = 7
"""How many windows of an image are covered in a row, and rows."""
WINDOWS = SIDE**2
Outcome = Literal[
    "shown", "absent", "rejected", "named", "filter", "without", "threshold", "reranker", "part", "limit", "depth"
]
"""What became of a document: it is shown, or what took it out of the result."""


@dataclass(frozen=True)
class FieldEvidence:
    """Tell what one field says of a document, and why.

    Attributes:
        rank: The document's place there, 1 for the best; None where the filter leaves it out, where it is behind those
            that are looked at (1,000, or the limit where that is more), or where it shares no word with the query.
        value: The cosine with the query, from -1 to 1; of words, BM25.
        evidence: How much it speaks for the document, in log-odds (nats).
        weight: What the evidence is multiplied by.
        counts: Whether it is added; the name of a file that words do not find says nothing against a picture.
        basis: What the cosine was judged by; None for words.

    Example:
        >>> field = FieldEvidence(rank=1, value=0.31, evidence=2.4, weight=0.5)
        >>> field.weight * field.evidence
        1.2
    """

    rank: int | None
    value: float
    evidence: float
    weight: float = 1.0
    counts: bool = True
    basis: Basis | None = None


@dataclass(frozen=True)
class WordEvidence:
    """Tell what one word of a query adds to the BM25 of a document.

    Attributes:
        word: The word, in lower case.
        stem: What it is compared by.
        documents: How many documents of the index hold it; None where that is half of them or more.
        score: What it adds; 0 where the document does not hold it.
        most: What it could add to a document that says it often.

    Example:
        >>> WordEvidence("dogs", "dog", documents=3, score=2.5, most=7.1).stem
        'dog'
    """

    word: str
    stem: str
    documents: int | None
    score: float
    most: float


@dataclass(frozen=True)
class PassageEvidence:
    """Tell how much the vector of a text owes to one part of it: a sentence, or a word of a text of one sentence.

    Attributes:
        start: Where the part begins in the text, in characters.
        end: Where it ends.
        evidence: By how much the weighted evidence of the text's vectors falls where the part is left out.

    Example:
        >>> part = PassageEvidence(0, 10, 1.5)
        >>> "A red star on a beach."[part.start : part.end]
        'A red star'
    """

    start: int
    end: int
    evidence: float


@dataclass(frozen=True)
class Regions:
    """Map which parts of an image mattered, window by window.

    Attributes:
        evidence: What each window adds to the weighted evidence: the mean of the fall where it is covered and of the
            rise where nothing else is shown. A row for each height from the top, from the left; None where the time was
            over before. With n windows in a row, each is 2 / (n + 1) of the width, so that half of it is in the next
            one; heights are alike.

    Example:
        >>> regions = Regions(((0.1, 2.5, None), (0.0, 0.2, 0.1), (0.0, 0.0, None)))
        >>> regions.best, regions.tried
        ((0.25, 0.0, 0.75, 0.5), 7)
    """

    evidence: tuple[tuple[float | None, ...], ...]

    @property
    def tried(self) -> int:
        """Return how many windows were tried."""
        return sum(value is not None for row in self.evidence for value in row)

    @property
    def best(self) -> tuple[float, float, float, float] | None:
        """Return the window that mattered most: left, top, right, bottom as shares of the image; None if none did."""
        cells = [(value, y, x) for y, row in enumerate(self.evidence) for x, value in enumerate(row) if value]
        value, y, x = max(cells, default=(0.0, 0, 0))
        steps = len(self.evidence) + 1
        return (x / steps, y / steps, (x + 2) / steps, (y + 2) / steps) if value >= LEAST_FALL else None


@dataclass(frozen=True)
class Explanation:
    """Tell what a search makes of one document: what each field gave it, its relevance, and what took it out.

    Attributes:
        id: The document's.
        outcome: ``shown``, or what took the document out of the result: it is ``absent`` from the index, in its
            reject list (``rejected``) or ``named`` in the query; its metadata do not pass the ``filter``; it is
            what the query leaves out (``without``); its relevance is below the ``threshold``, or only since the
            ``reranker`` read it; it comes behind the ``limit``; or the search did not look as deep (``depth``).
        reason: The same in a sentence.
        document: The document; None where it is not in the index.
        relevance: How likely it is what was asked for, from 0 to 1, as `Match.score`; None where it is not there.
        threshold: The relevance from which matches are shown.
        place: Its place among all candidates, 1 for the best; None where it is not among them.
        candidates: How many there are, of any relevance: the first 1,000 of each field, or as many as the limit.
        prior: The log-odds of any document before anything is known of it.
        fields: What each field says, by the fields' names.
        lacking: The fields that the query asks and the document does not have; they count neither for nor against it.
        words_alone: The log-odds by words alone, where these decide, whatever the vectors say.
        log_odds: The log-odds of the relevance by all fields.
        words: What each word of the query adds to the field ``words``.
        most_words: The BM25 that a document could reach.
        marked: Where its text says words of the query that add to its BM25: the beginning and the end, in characters.
        without: What the query leaves out, each with how likely the document is that, from 0 to 1.
        failed: The conditions of the filter that its metadata do not meet.
        judged: What the re-ranker gave the document, from 0 to 1; None where it did not read or judge it.
        passages: Which parts of its text mattered to the vectors; none where that was not asked.
        regions: Which parts of its image mattered; None where that was not asked, or there is no image.
        notes: What could not be found out, in sentences.

    Example:
        >>> from vlmsearch import Pipeline
        >>> with Pipeline.open(encoder="mock:", store="mock:") as pipeline:
        ...     _ = pipeline.add([Document("a", text="a dog in the snow"), Document("b", text="a blue car")])
        ...     found = pipeline.explain("dog snow", "a")
        >>> found.outcome, found.place, [word.word for word in found.words]
        ('shown', 1, ['dog', 'snow'])
    """

    id: str
    outcome: Outcome
    reason: str
    document: Document | None = None
    relevance: float | None = None
    threshold: float = 0.0
    place: int | None = None
    candidates: int = 0
    prior: float = PRIOR
    fields: Mapping[str, FieldEvidence] = field(default_factory=lambda: MappingProxyType({}))
    lacking: tuple[str, ...] = ()
    words_alone: float | None = None
    log_odds: float = PRIOR
    words: tuple[WordEvidence, ...] = ()
    most_words: float = 0.0
    marked: tuple[tuple[int, int], ...] = ()
    without: tuple[tuple[str, float], ...] = ()
    failed: tuple[str, ...] = ()
    judged: float | None = None
    passages: tuple[PassageEvidence, ...] = ()
    regions: Regions | None = None
    notes: tuple[str, ...] = ()
