"""Passages in a database: each has a row of its own beside that of its document.

The row of a passage has the id ``DOCUMENT#passage=N`` and the metadata of its document, so that filters see it. Its
text is what is encoded of it. The row of the document has the whole text, and neither vectors nor words of it. Both
have the digest of the document, and behind it how many passages there are, or which characters the passage has. Whoever
reads a document and its passages one after the other so knows whether they are of one version.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from vlmsearch.types import PASSAGE, Document, EncodedPassage, Passage, Record, Stamp, part_of

_COUNT, _PLACE = "#passages=", "#characters="
_SEALED = re.compile(rf"(.*)(?:{_COUNT}(\d+)|{_PLACE}(\d+)-(\d+))", re.DOTALL)


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


def is_of(document: Stamp, row: Stamp) -> bool:
    """Check whether a row is of the same version as that of its document. A blanked document takes any."""
    stamp = row_stamp(document).stamp
    return not stamp.digest or row_stamp(row).stamp == stamp


def blanked(digest: str) -> str:
    """Return the digest of a changed row, which still says how many passages there are."""
    return digest[digest.find(_COUNT) :] if _COUNT in digest else ""


def passage_ids(stamps: Mapping[str, Stamp]) -> list[str]:
    """Return the ids of all passages of documents, whose rows have these stamps."""
    return [f"{id}{PASSAGE}{n}" for id, stamp in stamps.items() for n in range(1, row_stamp(stamp).passages + 1)]


def rows_of(records: Iterable[Record]) -> list[Record]:
    """Return the rows of records as records: those of the passages of each document, then its own.

    Args:
        records: Records of documents.

    Returns:
        The rows, whose stamps `row_stamp` reads. The row of a document with passages has no vectors of its text.
    """
    rows: list[Record] = []
    for record in records:
        document, stamp = record.document, record.stamp
        for encoded in record.passages:
            passage = encoded.passage
            row = Document(f"{document.id}{PASSAGE}{passage.number}", passage.encoded, None, document.metadata)
            sealed = replace(stamp, digest=f"{stamp.digest}{_PLACE}{passage.start}-{passage.end}")
            rows.append(Record(row, encoded.vectors, sealed, record.fingerprint))
        if record.passages:
            stamp = replace(stamp, digest=f"{stamp.digest}{_COUNT}{len(record.passages)}")
        rows.append(Record(document, record.vectors, stamp, record.fingerprint))
    return rows


def passage_of(document: Document, stamp: Stamp) -> Passage | None:
    """Return the passage of a row with this document and stamp, if it has one."""
    part, place = part_of(document.id), row_stamp(stamp).place
    if place is None or part is None or part.passage is None:
        return None
    text = document.text or ""
    length = place[1] - place[0]
    own = text[len(text) - length :]
    return Passage(part.passage, *place, text[: len(text) - length].removesuffix("\n\n"), own)


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
    own = [(part, passage_of(part.document, part.stamp)) for part in passages]
    encoded = tuple(EncodedPassage(passage, part.vectors) for part, passage in own if passage is not None)
    is_whole = len(encoded) == count and all(is_of(row.stamp, part.stamp) for part in passages)
    return replace(row, stamp=stamp if is_whole else replace(stamp, digest=""), passages=encoded)
