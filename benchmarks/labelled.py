"""Labelled collections to judge search by: documents, queries, and which document answers which query."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from vlmsearch.types import Document

OWN_QUESTIONS = Path(__file__).parent / "faq.jsonl"
_CISI_FILES = ("CISI.ALL", "CISI.QRY", "CISI.REL")


@dataclass(frozen=True)
class LabelledCollection:
    """Documents, queries by their ids, and for each query the grades of the documents that answer it.

    A grade is a whole number of at least 1, and a document without one does not answer the query. Where there is no
    document with a grade, "nothing matches" is the right answer.
    """

    documents: tuple[Document, ...]
    queries: Mapping[str, str]
    relevance: Mapping[str, Mapping[str, int]]

    @property
    def answered(self) -> tuple[str, ...]:
        """Return the ids of the queries that a document answers."""
        return tuple(id for id in self.queries if self.relevance[id])

    @property
    def unanswered(self) -> tuple[str, ...]:
        """Return the ids of the queries that no document answers."""
        return tuple(id for id in self.queries if not self.relevance[id])

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
