"""Documents, vectors and filters in MongoDB's terms.

A document's row has the fields ``_id version digest source text image metadata exact fields terms language draw`` and,
where vectors are kept in MongoDB too, ``vectors``, always last. Numbers in ``metadata`` compare as doubles; an integer
that no double can hold has its exact value in ``exact``. Keys are escaped, so that none is a path or an operator.
``terms`` is what the text index takes, ``draw`` the number by which samples are drawn. The row of a passage has
the id of its document in ``passage_of``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import chain
from typing import Any

import numpy as np
from bson.binary import Binary, BinaryVectorDtype
from bson.int64 import Int64
from numpy.typing import NDArray

from vlmsearch.errors import InvalidInputError
from vlmsearch.stores.documents import DocumentRow, StoredDocument, words_of_row
from vlmsearch.stores.filters import Comparison, Filter, values_of
from vlmsearch.stores.listing import Outline
from vlmsearch.stores.mongodb.words import term_fields
from vlmsearch.stores.samples import sampling_key
from vlmsearch.stores.terms import NONE
from vlmsearch.types import (
    PASSAGE,
    READERS,
    Document,
    Field,
    MetadataValue,
    Record,
    Reject,
    Scalar,
    Stamp,
    document_of,
)

_ESCAPED = re.compile(r"[%.$\x00-\x1f\x7f-\x9f\ud800-\udfff]")
_ESCAPE = re.compile(r"%([0-9a-f]{4})")
_MAX_EXACT = 2**53
_MAX_BYTES = 15 * 2**20
_HALF_SURROGATES = 128
"""The subtype of strings that are not valid Unicode, kept as bytes."""


def row_of(record: Record, version: str, language: str = NONE) -> dict[str, Any]:
    """Return the row of a record, without vectors; InvalidInputError where MongoDB cannot keep it.

    ``language`` is that of the index, by which words are compared.
    """
    stored = StoredDocument.of(record.document)
    exact = {key: value for key, value in stored.metadata.items() if isinstance(value, int) and _is_large(value)}
    row = {
        "version": version,
        "digest": _string(record.stamp.digest),
        "source": _string(record.stamp.source),
        "text": None if stored.text is None else _string(stored.text),
        "image": None if stored.image is None else _string(stored.image),
        "metadata": {escape(key): _value(value) for key, value in stored.metadata.items()},
        "exact": {escape(key): Int64(value) for key, value in exact.items()},
        "fields": sorted(map(str, record.vectors)),
        **term_fields(words_of_row(record), language),
        "draw": sampling_key(stored.id),
    }
    if PASSAGE in stored.id:
        row["passage_of"] = document_of(stored.id)
    if _size(row) > _MAX_BYTES:
        large = f"{stored.id!r} has more than {_MAX_BYTES:,} bytes of text and metadata"
        raise InvalidInputError("too_large", large)
    return row


def metadata_row(record: Record, version: str) -> dict[str, Any]:
    """Return the part of a record's row that other metadata change."""
    row = row_of(record, version)
    return {name: row[name] for name in ("version", "digest", "metadata", "exact")}


def outline_of(row: Mapping[str, Any]) -> Outline:
    """Return the outline of the document in a row. The row needs only the keys that were asked for."""
    return Outline(row["_id"], row["image"] is not None, _metadata_of(row))


def _metadata_of(row: Mapping[str, Any]) -> dict[str, MetadataValue]:
    exact: Mapping[str, int] = row.get("exact", {})
    return {_unescape(key): _kept(exact.get(key, value)) for key, value in row.get("metadata", {}).items()}


def content_of(row: Mapping[str, Any]) -> Document:
    """Return the document of a row."""
    text, image = (None if row[name] is None else _text(row[name]) for name in ("text", "image"))
    return StoredDocument(row["_id"], text, image, _metadata_of(row)).document


def stamp_of(row: Mapping[str, Any]) -> Stamp:
    """Return the stamp in a row."""
    return Stamp(_text(row["digest"]), _text(row["source"]))


def fields_of(row: Mapping[str, Any]) -> frozenset[Field]:
    """Return the fields that the document of a row has vectors in."""
    return frozenset(map(Field.parse, row["fields"]))


def document_row(row: Mapping[str, Any]) -> DocumentRow:
    """Return what a row has of a document, as far as it was read."""
    fields, kept, vectors = fields_of(row), row.get("vectors"), None
    if kept is not None:
        vectors = {field: unpack(kept[name]) for field in fields if (name := escape(str(field))) in kept}
    content = content_of(row) if "metadata" in row else None
    return DocumentRow(stamp_of(row), row["version"], fields, content, vectors)


def reject_row(reject: Reject) -> dict[str, Any]:
    """Return the row of an entry of the reject list."""
    stamp = {"digest": _string(reject.stamp.digest), "source": _string(reject.stamp.source)}
    return {"code": reject.code, "message": _string(reject.message), **stamp}


def reject_of(row: Mapping[str, Any]) -> Reject:
    """Return the entry of the reject list in a row."""
    return Reject(row["_id"], row["code"], _text(row["message"]), stamp_of(row))


def pack(vector: NDArray[np.float32]) -> Binary:
    """Return a vector as BSON keeps it: float32, little endian."""
    return Binary.from_vector(np.asarray(vector, "<f4"), BinaryVectorDtype.FLOAT32)


def unpack(value: Binary) -> NDArray[np.float32]:
    """Return the vector that `pack` packed."""
    return np.frombuffer(value, "<f4", offset=2)


def vector_path(field: Field) -> str:
    """Return where a row has the vector of ``field``."""
    return f"vectors.{escape(str(field))}"


def compile_filter(where: Filter) -> dict[str, Any]:
    """Return the filter in MongoDB's terms, over rows as `row_of` gives them."""
    if isinstance(where, Comparison):
        values = list(map(_value, where.value)) if isinstance(where.value, tuple) else _value(where.value)
        path = f"metadata.{escape(where.key)}"
        condition = {path: {where.operator: values}}
        return {"$or": [{path: {"$exists": False}}, condition]} if where.or_absent else condition
    flat: list[Filter] = []
    left = list(reversed(where.filters))
    while left:
        part = left.pop()
        if not isinstance(part, Comparison) and part.operator == where.operator:
            left += reversed(part.filters)
        else:
            flat.append(part)
    return {where.operator: [compile_filter(part) for part in flat]}


def unchanged_readers(id: str, readers: Mapping[str, MetadataValue | None]) -> dict[str, Any]:
    """Return the condition that a document has the readers which were read, where they are given."""
    if id not in readers:
        return {}
    value = readers[id]
    return {f"metadata.{READERS}": {"$exists": False} if value is None else _value(value)}


def escape(key: str) -> str:
    """Return a key as a single step of a path. It has no character that means anything to MongoDB."""
    return _ESCAPED.sub(lambda odd: f"%{ord(odd[0]):04x}", key)


def _unescape(key: str) -> str:
    return _ESCAPE.sub(lambda code: chr(int(code[1], 16)), key)


def _is_large(value: Scalar) -> bool:
    return type(value) is int and abs(value) > _MAX_EXACT


def _value(value: MetadataValue) -> Any:
    """Return a value as it compares."""
    if isinstance(value, tuple):
        return list(map(_string, value))
    if isinstance(value, str):
        return _string(value)
    return float(value) if isinstance(value, int) and _is_large(value) else value


def _kept(value: object) -> MetadataValue:
    if isinstance(value, list):
        return tuple(map(_text, value))
    if isinstance(value, (bool, float)):
        return value
    return int(value) if isinstance(value, int) else _text(value)


def _string(text: str) -> str | Binary:
    try:
        text.encode()
    except UnicodeEncodeError:
        packed: Binary = Binary(text.encode("utf-8", "surrogatepass"), _HALF_SURROGATES)
        return packed
    return text


def _text(value: object) -> str:
    return value.decode("utf-8", "surrogatepass") if isinstance(value, bytes) else str(value)


def _size(row: Mapping[str, Any]) -> int:
    lists = ([value] if isinstance(value, (str, bytes)) else values_of(value) for value in row["metadata"].values())
    texts = [text for text in chain([row["text"]], *lists) if isinstance(text, (str, bytes))]
    if sum(map(len, texts)) * 4 <= _MAX_BYTES:
        return 0
    return sum(len(text.encode() if isinstance(text, str) else text) for text in texts)
