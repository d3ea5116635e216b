"""Passages in a database: each has a row of its own beside that of its document.

The row of a passage has the id ``DOCUMENT#passage=N`` and the metadata of its document, so that filters see it. Its
text is what is encoded of it. The row of the document has the whole text, and neither vectors nor words. Both
have the digest of the document, and behind it how many passages there are, or which characters of the text the passage
has. Whoever reads a document and its passages one after the other so knows whether they are of one version.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from vlmsearch.types import PASSAGE, Document, EncodedPassage, Field, Passage, Record, Stamp, document_of

_COUNT, _PLACE = "#passages=", "#characters="
_SEALED = re.compile(rf"(.*)(?:{_COUNT}(\d+)|{_PLACE}(\d+)-(\d+))", re.DOTALL)


class AnyRow(Protocol):
    """A row in any form."""

    @property
    def stamp(self) -> Stamp:
        """Return its stamp."""


class RowStamp(NamedTuple):
    """The stamp of a row.

    Attributes:
        stamp: The stamp of the document.
        passages: The number of passages of a document; 0 for none.
        place: The first character of a passage, and the one behind its last; None in the row of a document.
    """

    stamp: Stamp
    passages: int = 0
    place: tuple[int, int] | None = None


def row_stamp(stamp: Stamp) -> RowStamp:
    """Return what the stamp of a row says."""
    sealed = _SEALED.fullmatch(stamp.digest) if "#" in stamp.digest else None
    if sealed is None:
        return RowStamp(stamp)
    digest, count, start, end = sealed.groups()
    place = None if start is None else (int(start), int(end))
    return RowStamp(replace(stamp, digest=digest), int(count or 0), place)


def has_own_words(stamp: Stamp) -> bool:
    """Check whether the words of a row's text count: those of a document with passages are in these."""
    return _COUNT not in stamp.digest


def is_of(document: AnyRow, row: AnyRow | None) -> bool:
    """Check whether a row is of the same version as that of its document. A blanked document takes any, or none."""
    stamp = row_stamp(document.stamp).stamp
    return not stamp.digest or (row is not None and row_stamp(row.stamp).stamp == stamp)


def blanked(digest: str) -> str:
    """Return the digest of a changed row, which still says how many passages there are."""
    return digest[digest.find(_COUNT) :] if _COUNT in digest else ""


def passage_ids(rows: Mapping[str, AnyRow]) -> list[str]:
    """Return the ids of all passages of documents with these rows."""
    return [f"{id}{PASSAGE}{n}" for id, row in rows.items() for n in range(1, row_stamp(row.stamp).passages + 1)]


def compare_passages(rows: Mapping[str, AnyRow]) -> tuple[set[str], set[str]]:
    """Return the passages of no document, and those that documents lack.

    They lack those of another version, too. Documents that count as changed lack none.

    Args:
        rows: The rows of documents and of passages, by id.
    """
    documents = {id: row for id, row in rows.items() if PASSAGE not in id}
    wanted = set(passage_ids(documents))
    lacking = {id for id in wanted if not is_of(documents[document_of(id)], rows.get(id))}
    return rows.keys() - documents.keys() - wanted, lacking


def rows_of(records: Iterable[Record]) -> list[Record]:
    """Return the rows of records as records: those of the passages of each document, then its own.

    Args:
        records: Records of documents.

    Returns:
        The rows, whose stamps `row_stamp` reads. The row of a document with passages has no vectors: that of its image
        is in the rows of its passages, so that a search adds up what both say.
    """
    rows: list[Record] = []
    for record in records:
        document, stamp = record.document, record.stamp
        for encoded in record.passages:
            passage = encoded.passage
            row = Document(f"{document.id}{PASSAGE}{passage.number}", passage.encoded, None, document.metadata)
            sealed = replace(stamp, digest=f"{stamp.digest}{_PLACE}{passage.start}-{passage.end}")
            rows.append(Record(row, {**record.vectors, **encoded.vectors}, sealed, record.fingerprint))
        if record.passages:
            stamp = replace(stamp, digest=f"{stamp.digest}{_COUNT}{len(record.passages)}")
        rows.append(Record(document, {}, stamp, record.fingerprint) if record.passages else record)
    return rows


def passage_of(document: Document, stamp: Stamp) -> Passage | None:
    """Return the passage of a row with this document and stamp, if it has one."""
    place, text = row_stamp(stamp).place, document.text or ""
    if place is None:
        return None
    first, number = len(text) - (place[1] - place[0]), int(document.id.rpartition(PASSAGE)[2])
    return Passage(number, *place, text[:first].removesuffix("\n\n"), text[first:])


def shown_document(row: Record) -> Document:
    """Return the document of a row; a passage has its characters of the text alone."""
    passage = passage_of(row.document, row.stamp)
    return row.document if passage is None else replace(row.document, text=passage.text)


def record_of(row: Record, passages: Sequence[Record]) -> Record:
    """Return a record, made of the row of a document and those of its passages.

    Args:
        row: The row of the document.
        passages: The rows of its passages, in their order.

    Returns:
        The record. It counts as changed where a passage is missing, or of another version.
    """
    stamp, count, _ = row_stamp(row.stamp)
    if not count:
        return replace(row, stamp=stamp)
    vectors, encoded = dict[Field, NDArray[np.float32]](), list[EncodedPassage]()
    for part in passages:
        passage = passage_of(part.document, part.stamp) if is_of(row, part) else None
        if passage is not None:
            vectors |= {field: vector for field, vector in part.vectors.items() if field.modality == "image"}
            own = {field: vector for field, vector in part.vectors.items() if field.modality == "text"}
            encoded.append(EncodedPassage(passage, own))
    stamp = stamp if len(encoded) == count else replace(stamp, digest="")
    return Record(row.document, vectors, stamp, row.fingerprint, tuple(encoded))


def passages_of(records: Iterable[Record]) -> dict[str, tuple[Passage, ...]]:
    """Return the passages of records, by the ids of those that have any."""
    return {
        record.document.id: tuple(encoded.passage for encoded in record.passages)
        for record in records
        if record.passages
    }
