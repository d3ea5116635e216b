"""What an explanation of a search holds: see `vlmsearch.search.explain`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from vlmsearch._util.frozen import FrozenDict
from vlmsearch._util.markup import HtmlDisplay, brief
from vlmsearch.search.relevance import PRIOR, Basis
from vlmsearch.types import Document, Passage

MIN_FALL = 0.05
"""Evidence, in nats, from which a part of a document counts as important."""
SIDE = 7
"""Number of windows of an image in a row, and of rows."""
WINDOWS = SIDE**2
Outcome = Literal[
    "shown", "absent", "rejected", "named", "filter", "phrase", "without", "threshold", "reranker", "part", "limit",
    "depth",
]  # fmt: skip
"""The fate of a document: it is shown, or the reason why not."""


@dataclass(frozen=True)
class FieldEvidence:
    """The score of a document in one field, with what it is worth.

    Attributes:
        rank: The document's place there, 1 for the best. None if the filter leaves it out, or if it shares no word with
            the query. None also if it is not among the first 1,000, or the limit if it is higher.
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
    """The part of one word of a query in the BM25 of a document.

    Attributes:
        word: The word, in lower case.
        stem: What it is compared by.
        documents: Number of documents of the index that hold it; None for more than 10,000.
        score: What it adds; 0 where the document does not hold it.
        max_score: What it could add to a document that says it often.

    Example:
        >>> WordEvidence("dogs", "dog", documents=3, score=2.5, max_score=7.1).stem
        'dog'
    """

    word: str
    stem: str
    documents: int | None
    score: float
    max_score: float


@dataclass(frozen=True)
class PassageEvidence:
    """The share of one part of a text in its evidence: a sentence, or a word of a text of one sentence.

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
    """A map of the parts of an image that mattered, window by window.

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
        return (x / steps, y / steps, (x + 2) / steps, (y + 2) / steps) if value >= MIN_FALL else None


@dataclass(frozen=True, repr=False)
class Explanation(HtmlDisplay):
    """The judgement of a search of one document: its fields, its relevance, and why it is shown or not.

    Attributes:
        id: The document's.
        outcome: ``shown``, or what took the document out of the result: it is ``absent`` from the index, in its
            reject list (``rejected``) or ``named`` in the query; its metadata do not pass the ``filter``; its text does
            not say a ``phrase`` of the query; it is what the query leaves out (``without``); its relevance is below the
            ``threshold``, or only since the ``reranker`` read it; it comes behind the ``limit``; or the search did not
            look as deep (``depth``).
        reason: The same in a sentence.
        document: The document, whole; None where it is not in the index.
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
        max_bm25: The BM25 that a document could reach.
        marked: Where its text says words of the query that add to its BM25: the beginning and the end, in characters.
        without: What the query leaves out, each with how likely the document is that, from 0 to 1.
        failed: The conditions of the filter that its metadata do not meet.
        judged: What the re-ranker gave the document, from 0 to 1; None where it did not read or judge it.
        passages: The parts of its text that mattered to the vectors; none unless asked for.
        regions: The parts of its image that mattered; None unless asked for, or without an image.
        notes: What could not be found out, in sentences.
        passage: What was judged of a document with a long text: the passage that fits best, or the one that was named.

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
    fields: Mapping[str, FieldEvidence] = field(default_factory=FrozenDict)
    lacking: tuple[str, ...] = ()
    words_alone: float | None = None
    log_odds: float = PRIOR
    words: tuple[WordEvidence, ...] = ()
    max_bm25: float = 0.0
    marked: tuple[tuple[int, int], ...] = ()
    without: tuple[tuple[str, float], ...] = ()
    failed: tuple[str, ...] = ()
    judged: float | None = None
    passages: tuple[PassageEvidence, ...] = ()
    regions: Regions | None = None
    notes: tuple[str, ...] = ()
    passage: Passage | None = None

    def __repr__(self) -> str:
        judged = f", relevance {self.relevance:.3f}" if self.relevance is not None else ""
        return f"{type(self).__name__}({brief(self.id)}: {self.outcome}{judged}, {brief(self.reason, 200)})"
