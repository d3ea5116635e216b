"""Labelled collections to fit and judge search by: documents, queries, and how well which document answers which query.

Nothing here draws at random: the same files and numbers give the same collections.
"""

from __future__ import annotations

import csv
import itertools
import json
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from io import BytesIO
from pathlib import Path
from typing import Literal

from vlmsearch.demo.queries import SceneQuery, parse_query
from vlmsearch.demo.scenes import Scene, make_scene
from vlmsearch.types import Document

OWN_QUESTIONS = Path(__file__).parent / "faq.jsonl"
RELEVANCE_SEED = 30_000_000
"""The first of the scenes that are drawn here: training, its evaluation and the gallery use smaller seeds."""
Style = Literal["short", "partial"]
Attribute = Literal["shape", "colour", "background"]
_CISI_FILES = ("CISI.ALL", "CISI.QRY", "CISI.REL")
_EQUAL = 4.0
"""The STS benchmark's score from which two sentences mean the same but for details that do not matter."""
_SIMILAR = 3.0
"""The score from which they mean about the same, but important details differ."""
_NEARLY = 0.5
"""The share of words from which two sentences that nobody compared may mean the same."""
_LITTLE = "a an and are at by for from his her in is it its of on s some that the to was were with"
"""Words that say little."""
_UNLIKE = 2.0
"""The score below which they share a topic at most."""


@dataclass(frozen=True)
class LabelledCollection:
    """Documents, queries by their ids, and for each query the grades of the documents that answer it.

    A grade is a whole number of at least 1, and a document without one does not answer the query. Where there is no
    document with a grade, "nothing matches" is the right answer. ``judged`` has, for queries that were compared with
    some documents only, which these are: whether others answer them is not known.
    """

    documents: tuple[Document, ...]
    queries: Mapping[str, str]
    relevance: Mapping[str, Mapping[str, int]]
    judged: Mapping[str, Collection[str]] = field(default_factory=dict)

    @property
    def answered(self) -> tuple[str, ...]:
        """Return the ids of the queries that a document answers."""
        return tuple(id for id in self.queries if self.relevance[id])

    @property
    def unanswered(self) -> tuple[str, ...]:
        """Return the ids of the queries that no document answers."""
        return tuple(id for id in self.queries if not self.relevance[id])

    def is_judged(self, query: str, document: str) -> bool:
        """Return whether it is known if a document answers a query."""
        return query not in self.judged or document in self.judged[query]

    def with_unanswered(self, queries: Iterable[str]) -> LabelledCollection:
        """Return the collection with further queries that none of its documents answers, such as from another field."""
        further = {f"unanswered-{number}": text for number, text in enumerate(queries, 1)}
        return replace(
            self,
            queries={**self.queries, **further},
            relevance={**self.relevance, **{id: {} for id in further}},
        )


def read_cisi(folder: Path) -> LabelledCollection:
    """Read a collection in CISI's format; the queries that nobody judged are left out.

    ``CISI.ALL`` holds the documents and ``CISI.QRY`` the queries, each of them fields after a line such as ``.I 1``
    (its number), ``.T`` (title) and ``.W`` (what it says); ``CISI.REL`` has the number of a query and of a document
    that answers it in each line. All grades are 1.
    """
    every, queries, judgements = ((folder / name).read_text("utf-8", "replace") for name in _CISI_FILES)
    documents = tuple(
        Document(number, text="\n".join(parts[field] for field in "TW" if parts.get(field)))
        for number, parts in _cisi_entries(every)
        if parts.get("T") or parts.get("W")
    )
    ids = {document.id for document in documents}
    relevance: dict[str, dict[str, int]] = defaultdict(dict)
    for line in judgements.splitlines():
        query, document, *_ = line.split() or ("", "")
        if document in ids:
            relevance[query][document] = 1
    judged = {number: parts["W"] for number, parts in _cisi_entries(queries) if parts.get("W") and number in relevance}
    return LabelledCollection(documents, judged, {number: relevance[number] for number in judged})


def read_sts(file: Path) -> LabelledCollection:
    """Make a collection of the pairs of sentences of an STS benchmark: CSV rows of two sentences and a score of 0 to 5.

    The queries with an answer are first sentences of pairs that score at least 4, and the sentences they are paired
    with have grade 2, or 1 from a score of 3. The queries without an answer are first sentences all of whose pairs
    score below 2, and which share less than half of their words with each sentence that nobody compared them with. The
    documents are all other sentences, once each. A document that says the same as a query but for case and punctuation
    has grade 2 as well. Other pairs that nobody scored have no grade, and are not among the judged ones.
    """
    with file.open(encoding="utf-8", newline="") as pairs:
        rows = [(one, other, float(score)) for one, other, score in csv.reader(pairs)]
    scores: dict[str, dict[str, float]] = defaultdict(dict)
    for one, other, score in rows:
        if _plain(one) != _plain(other):
            scores[one][other] = scores[other][one] = score
    sentences = dict.fromkeys(itertools.chain.from_iterable((one, other) for one, other, _ in rows))
    stems = {text: _stems(text) for text in sentences}
    queries: dict[str, None] = {}
    kept: set[str] = set()
    for one, partners in ((one, scores[one]) for one, _, _ in rows):
        best = max(partners.values(), default=_SIMILAR)
        is_unanswered = best < _UNLIKE and not any(
            _share(stems[one], stems[text]) >= _NEARLY for text in sentences if text != one and text not in partners
        )
        answers = {partner for partner, score in partners.items() if score >= (0 if is_unanswered else _SIMILAR)}
        if one not in kept and (is_unanswered or best >= _EQUAL) and not answers & queries.keys():
            queries[one] = None
            kept |= answers
    documents = {text: f"sentence-{number}" for number, text in enumerate(sentences) if text not in queries}
    same: dict[str, dict[str, int]] = defaultdict(dict)
    for text, id in documents.items():
        same[_plain(text)][id] = 2
    relevance, judged = {}, {}
    for number, query in enumerate(queries, 1):
        graded = {
            documents[partner]: 2 if score >= _EQUAL else 1
            for partner, score in scores[query].items()
            if partner in documents and score >= _SIMILAR
        }
        relevance[str(number)] = graded | same[_plain(query)]
        compared = {documents[partner] for partner in scores[query] if partner in documents}
        judged[str(number)] = compared | same[_plain(query)].keys()
    return LabelledCollection(
        tuple(Document(id, text=text) for text, id in documents.items()),
        {str(number): text for number, text in enumerate(queries, 1)},
        relevance,
        judged,
    )


def read_questions(file: Path, *, left_out: float = 0.5) -> LabelledCollection:
    """Read questions with answers, each asked in several ways; nothing answers those that are left out.

    Each line of ``file`` is a JSON object with an ``id``, a ``question``, its ``answers`` and ``queries``, as the
    collection of Karan and Snajder ("Paraphrase-focused learning to rank for domain-specific frequently asked questions
    retrieval", Expert Systems with Applications 91, 2018) has them. Entries are left out whose place, times the golden
    ratio, has a fraction below ``left_out``.
    """
    documents, queries = list[Document](), dict[str, str]()
    relevance: dict[str, dict[str, int]] = {}
    for place, line in enumerate(file.read_bytes().splitlines()):
        row = json.loads(line)
        is_there = place * 0.6180339887 % 1 >= left_out
        if is_there:
            documents.append(Document(row["id"], text="\n".join([row["question"], *row["answers"]])))
        for number, query in enumerate(row["queries"]):
            queries[f"{row['id']}#{number}"] = query
            relevance[f"{row['id']}#{number}"] = {row["id"]: 1} if is_there else {}
    return LabelledCollection(tuple(documents), queries, relevance)


def own_questions() -> Iterator[LabelledCollection]:
    """Yield collections of a dozen entries each, as of a shop, with questions as people put them."""
    rows = [json.loads(line) for line in OWN_QUESTIONS.read_bytes().splitlines()]
    for topic in dict.fromkeys(row["topic"] for row in rows):
        entries = [row for row in rows if row["topic"] == topic]
        asked = [(row["id"], query) for row in entries for query in (row["queries"][0], row["queries"][2])]
        queries = {f"{id}#{number}": query for number, (id, query) in enumerate(asked)}
        yield LabelledCollection(
            tuple(Document(row["id"], text=row["text"]) for row in entries),
            queries,
            {id: {id.partition("#")[0]: 1} for id in queries},
        )


def read_captions(file: Path) -> LabelledCollection:
    """Make a collection of photographs' captions: the first of each is a document, the others are queries for it.

    Each line of ``file`` is a JSON object with the ``file`` of a photograph, which is the document's id, and its
    ``captions``. A caption that fits another photograph too counts as not relevant to it, and all are answered.
    """
    documents: list[Document] = []
    queries: dict[str, str] = {}
    relevance: dict[str, dict[str, int]] = {}
    for line in file.read_bytes().splitlines():
        row = json.loads(line)
        name, (first, *others) = row["file"], row["captions"]
        documents.append(Document(name, text=first))
        for place, caption in enumerate(others, 2):
            queries[f"{name}#{place}"] = caption
            relevance[f"{name}#{place}"] = {name: 1}
    return LabelledCollection(tuple(documents), queries, relevance)


def drawn_scenes(
    count: int = 1000,
    *,
    queries: int = 500,
    style: Style = "short",
    absent: tuple[Attribute, str] | None = None,
    first: int = RELEVANCE_SEED,
) -> LabelledCollection:
    """Make a collection of drawn scenes, every second one with its canonical caption, the others as images alone.

    The queries are captions of some of the scenes, and all scenes that they fit answer them, with grade 1. Where
    something is ``absent``, no scene has it, and as many queries again ask for it, which nothing answers.

    Args:
        count: How many scenes there are.
        queries: How many different queries to take; there can be fewer where little can be asked of few scenes.
        style: "short" for queries of a few words, "partial" for captions that leave something out.
        absent: What no scene has, such as ``("shape", "star")``, ``("colour", "red")`` or ``("background", "snow")``.
        first: The seed to begin with. Scenes that have what is absent are passed over.

    Returns:
        The collection; its images are PNG files of 256 x 256 pixels.
    """
    seeds = itertools.count(first)
    scenes: list[Scene] = []
    while len(scenes) < count:
        scene = make_scene(next(seeds))
        if absent is None or not _has(scene, *absent):
            scenes.append(scene)
    documents = tuple(
        Document(_id(scene), text=None if place % 2 else scene.caption(), image=_png(scene.seed))
        for place, scene in enumerate(scenes)
    )
    asked = _ask(scenes, queries, style)
    if absent is not None:
        passed = (scene for scene in map(make_scene, range(first, first + 100 * count)) if _has(scene, *absent))
        asked |= _ask(list(itertools.islice(passed, count)), queries, style, absent)
    found = {text: {_id(scene): 1 for scene in scenes if query.fits(scene)} for text, query in asked.items()}
    return LabelledCollection(
        documents,
        {str(number): text for number, text in enumerate(asked, 1)},
        {str(number): found[text] for number, text in enumerate(asked, 1)},
    )


def _ask(
    scenes: list[Scene], count: int, style: Style, absent: tuple[Attribute, str] | None = None
) -> dict[str, SceneQuery]:
    """Return up to ``count`` captions of scenes, some of which name what is absent, and what they say."""
    asked: dict[str, SceneQuery] = {}
    for seed, scene in itertools.product(range(20), scenes):
        if len(asked) == count:
            break
        text = scene.captions(1, seed, style=style)[0]
        query = parse_query(text)
        if absent is None or _has(query, *absent):
            asked[text] = query
    return asked


def _has(what: Scene | SceneQuery, attribute: Attribute, value: str) -> bool:
    """Return whether a scene has a shape, colour or background, or a query names it."""
    if attribute == "background":
        return what.background == value
    return any(getattr(group, attribute) == value for group in what.groups)


def _id(scene: Scene) -> str:
    return f"scene-{scene.seed}"


@lru_cache(4096)
def _png(seed: int) -> bytes:
    file = BytesIO()
    make_scene(seed).draw().save(file, "PNG", compress_level=1)
    return file.getvalue()


def _cisi_entries(text: str) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield the number of each entry and its fields by their letters."""
    for entry in f"\n{text}".split("\n.I ")[1:]:
        number, _, rest = entry.partition("\n")
        parts: dict[str, list[str]] = {}
        lines: list[str] = []
        for line in rest.splitlines():
            if len(line.strip()) == 2 and line[0] == ".":
                lines = parts.setdefault(line[1], [])
            else:
                lines.append(line)
        yield number.strip(), {letter: "\n".join(each).strip() for letter, each in parts.items()}


def _stems(text: str) -> frozenset[str]:
    """Return the beginnings of the words of a sentence, but for those that say little.

    The forms of a word are equal.
    """
    return frozenset(word[:4] for word in _plain(text).split()) - set(_LITTLE.split())


def _share(one: frozenset[str], other: frozenset[str]) -> float:
    """Return the Jaccard similarity of two sets."""
    return len(one & other) / max(1, len(one | other))


def _plain(text: str) -> str:
    """Return a sentence without case and punctuation."""
    return " ".join(re.findall(r"\w+", text.casefold()))
