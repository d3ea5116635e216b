"""Labelled collections to judge search by: documents, queries, and which document answers which query."""

from __future__ import annotations

import json
import random
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from vlmsearch.types import Document

OWN_QUESTIONS = Path(__file__).parent / "faq.jsonl"
COMPANY = Path(__file__).parent / "company.json"
OWN_LANGUAGES = Path(__file__).parent / "languages"
_CISI_FILES = ("CISI.ALL", "CISI.QRY", "CISI.REL")


@dataclass(frozen=True)
class LabelledCollection:
    """Documents, queries by their ids, and the grades of the documents that answer them.

    A grade is a whole number of at least 1, and a document without one does not answer the query. Where there is no
    document with a grade, "nothing matches" is the right answer. ``language`` is a code of ISO 639-1.
    """

    documents: tuple[Document, ...]
    queries: Mapping[str, str]
    relevance: Mapping[str, Mapping[str, int]]
    language: str = "en"

    @property
    def answered(self) -> tuple[str, ...]:
        """Return the ids of the queries that a document answers."""
        return tuple(id for id in self.queries if self.relevance[id])

    @property
    def unanswered(self) -> tuple[str, ...]:
        """Return the ids of the queries that no document answers."""
        return tuple(id for id in self.queries if not self.relevance[id])

    def with_unanswered(self, queries: Iterable[str]) -> LabelledCollection:
        """Return the collection with further queries that none of its documents answers."""
        further = {f"unanswered-{number}": text for number, text in enumerate(queries, 1)}
        return replace(
            self,
            queries={**self.queries, **further},
            relevance={**self.relevance, **{id: {} for id in further}},
        )


def read_cisi(folder: Path) -> LabelledCollection:
    """Read a collection in CISI's format; the queries that nobody judged are left out.

    ``CISI.ALL`` holds the documents and ``CISI.QRY`` the queries. Fields of both come after a line such as ``.I 1``
    (the number), ``.T`` (the title) and ``.W`` (the text). ``CISI.REL`` has the number of a query and of a document
    that answers it in each line. All grades are 1.
    """
    every, queries, judgements = ((folder / name).read_text("utf-8", "replace") for name in _CISI_FILES)
    documents = tuple(
        Document(number, text="\n".join(parts[field] for field in "TW" if parts.get(field)))
        for number, parts in cisi_entries(every)
        if parts.get("T") or parts.get("W")
    )
    ids = {document.id for document in documents}
    relevance: dict[str, dict[str, int]] = defaultdict(dict)
    for line in judgements.splitlines():
        query, document, *_ = line.split() or ("", "")
        if document in ids:
            relevance[query][document] = 1
    judged = {number: parts["W"] for number, parts in cisi_entries(queries) if parts.get("W") and number in relevance}
    return LabelledCollection(documents, judged, {number: relevance[number] for number in judged})


def read_questions(file: Path, *, left_out: float = 0.5) -> LabelledCollection:
    """Read questions with answers, each asked in several ways; nothing answers those that are left out.

    Each line of ``file`` is a JSON object with an ``id``, a ``question``, its ``answers`` and ``queries``. ``left_out``
    is the share of entries to leave out. The format is that of Karan and Snajder, "Paraphrase-focused learning to rank
    for domain-specific frequently asked questions retrieval" (Expert Systems with Applications 91, 2018).
    """
    documents, queries = list[Document](), dict[str, str]()
    relevance: dict[str, dict[str, int]] = {}
    for place, line in enumerate(file.read_bytes().splitlines()):
        row = json.loads(line)
        is_there = not _is_left_out(place, left_out)
        if is_there:
            documents.append(Document(row["id"], text="\n".join([row["question"], *row["answers"]])))
        for number, query in enumerate(row["queries"]):
            queries[f"{row['id']}#{number}"] = query
            relevance[f"{row['id']}#{number}"] = {row["id"]: 1} if is_there else {}
    return LabelledCollection(tuple(documents), queries, relevance)


def read_xquad(file: Path, *, left_out: float = 0.25) -> LabelledCollection:
    """Read paragraphs and questions of XQuAD-R (Roy et al., "LAReQA", EMNLP 2020).

    ``file`` is a JSON object, named by the code of its language. Its ``docs`` are texts by ids; ``3-1`` is the second
    paragraph of the fourth article. Each of its ``queries`` has an ``id``, a ``text`` and the ``doc`` that answers it.
    ``left_out`` is the share of articles to leave out; nothing answers the questions about them.
    """
    given = json.loads(file.read_bytes())
    documents = tuple(
        Document(id, text=text)
        for id, text in given["docs"].items()
        if not _is_left_out(int(id.partition("-")[0]), left_out)
    )
    ids = {document.id for document in documents}
    return LabelledCollection(
        documents,
        {query["id"]: query["text"] for query in given["queries"]},
        {query["id"]: {query["doc"]: 1} if query["doc"] in ids else {} for query in given["queries"]},
        file.stem,
    )


def draw_company() -> LabelledCollection:
    """Draw 80 documents of a company, and ordinary queries that one of them answers.

    A kind of document has parts, each in several wordings, which pools fill with names, goods and sums. Sentences that
    say nothing of the subject make documents longer.
    """
    given = json.loads(COMPANY.read_bytes())
    rng = random.Random(0)
    documents, queries = list[Document](), dict[str, str]()
    for kind in given["kinds"]:
        pools = {name: rng.sample(pool, len(pool)) for name, pool in given["pools"].items()}
        for number in range(kind["count"]):
            id = f"{kind['name']}-{number}"
            values = {name: pool[number % len(pool)] for name, pool in pools.items()}
            values["number"] = str(rng.randrange(10_000, 100_000))
            sentences = [rng.choice(part) for part in kind["parts"]]
            sentences += rng.sample(given["further"], max(1, rng.randrange(-8, 14)))
            documents.append(Document(id, text=" ".join(sentences).format_map(values)))
            if number < len(kind["queries"]):
                queries[id] = kind["queries"][number].format_map(values)
    return LabelledCollection(tuple(documents), queries, {id: {id: 1} for id in queries})


def own_questions() -> Iterator[LabelledCollection]:
    """Yield collections of a dozen entries, with questions as people put them."""
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


def _is_left_out(place: int, share: float) -> bool:
    """Check whether an entry is left out; with the golden ratio, such entries are spread evenly."""
    return place * 0.6180339887 % 1 < share


def cisi_entries(text: str) -> Iterator[tuple[str, dict[str, str]]]:
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
        yield number.strip(), {letter: "\n".join(lines).strip() for letter, lines in parts.items()}
