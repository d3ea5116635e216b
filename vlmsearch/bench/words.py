"""How well words, an encoder and both find what was judged: nDCG@10 on a collection in CISI's format.

``CISI.ALL`` holds the documents and ``CISI.QRY`` the queries, each of them fields after a line such as ``.I 1`` (its
number), ``.T`` (title) and ``.W`` (what it says); ``CISI.REL`` has the number of a query and of a document that answers
it in each line. The measure is that of Jarvelin and Kekalainen, "Cumulated Gain-based Evaluation of IR Techniques",
TOIS 20(4), 2002, with a gain of 1 for each judged document, which divides by the best that a page of ten can have.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from vlmsearch.encoders.base import Encoder
from vlmsearch.errors import ConfigError
from vlmsearch.pipeline import Pipeline
from vlmsearch.search.fusion import text_fields
from vlmsearch.stores.base import Store, WordSearch
from vlmsearch.types import Document

CUT = 10
"""How many documents of an answer count."""
_FILES = ("CISI.ALL", "CISI.QRY", "CISI.REL")


@dataclass(frozen=True)
class JudgedCollection:
    """Documents, the queries that were judged, by number, and for each the ids of the documents that answer it."""

    documents: tuple[Document, ...]
    queries: Mapping[str, str]
    relevant: Mapping[str, frozenset[str]]


def read_collection(folder: Path) -> JudgedCollection:
    """Read the three files of a folder; ConfigError where one is not there or holds nothing that can be used."""
    try:
        every, queries, relevance = ((folder / name).read_text("utf-8", "replace") for name in _FILES)
    except OSError as exc:
        raise ConfigError(f"{exc.filename} cannot be read: a folder needs {', '.join(_FILES)}") from exc
    documents = tuple(
        Document(number, text="\n".join(parts[field] for field in "TW" if parts.get(field)))
        for number, parts in _entries(every)
        if parts.get("T") or parts.get("W")
    )
    ids = {document.id for document in documents}
    relevant: dict[str, set[str]] = {}
    for line in relevance.splitlines():
        query, document, *_ = line.split() or ("", "")
        if document in ids:
            relevant.setdefault(query, set()).add(document)
    judged = {number: parts["W"] for number, parts in _entries(queries) if parts.get("W") and number in relevant}
    if not judged:
        raise ConfigError(f"{folder} holds no query that was judged: {', '.join(_FILES)} have another format")
    return JudgedCollection(documents, judged, {number: frozenset(relevant[number]) for number in judged})


def measure_words(collection: JudgedCollection, encoder: Encoder, store: Store) -> dict[str, float]:
    """Index a collection into an empty store and return nDCG@10 of words, of the text vectors and of `search`.

    Words are left out where the store ranks none.

    Raises:
        ConfigError: The store holds documents, or the encoder has no field for texts.
    """
    if store.manifest() is not None and len(store):
        raise ConfigError(f"{store.name} holds documents already: give an empty store")
    fields = [field for field in text_fields(encoder.spaces) if field.modality == "text"]
    if not fields:
        raise ConfigError(f"{encoder.fingerprint} compares no texts with texts: give another encoder")
    pipeline = Pipeline(encoder, store)
    report = pipeline.add(collection.documents)
    if report.rejects:
        raise ConfigError(f"{len(report.rejects)} documents cannot be indexed: {report.rejects[0].message}")
    answers: dict[str, dict[str, list[str]]] = {}
    manifest = store.manifest()
    words = isinstance(store, WordSearch) and manifest is not None and manifest.language
    for number, query in collection.queries.items():
        vectors = encoder.encode_texts([query], role="query")
        if isinstance(store, WordSearch) and words:
            answers.setdefault("words", {})[number] = [hit.id for hit in store.search_words(query, limit=CUT)]
        for field in fields:
            hits = store.search(field, vectors[field.space], limit=CUT)[0]
            answers.setdefault(str(field), {})[number] = [hit.id for hit in hits]
        found = pipeline.search(query, limit=CUT)
        answers.setdefault("search", {})[number] = [match.document.id for match in found]
    return {
        way: statistics.mean(gain(found[number], ids) for number, ids in collection.relevant.items())
        for way, found in answers.items()
    }


def gain(found: Sequence[str], relevant: Collection[str]) -> float:
    """The discounted cumulated gain of a page, as a share of the best that there is."""
    have = sum(1 / math.log2(place + 2) for place, id in enumerate(found[:CUT]) if id in relevant)
    return have / sum(1 / math.log2(place + 2) for place in range(min(CUT, len(relevant))))


def _entries(text: str) -> Iterator[tuple[str, dict[str, str]]]:
    """The number of each entry and its fields by their letters."""
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
