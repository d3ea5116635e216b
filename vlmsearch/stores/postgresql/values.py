"""Documents and filters in PostgreSQL's terms.

PostgreSQL keeps no character U+0000 and no half of a surrogate pair. Strings that have one are kept with U+001A and
four hexadecimal digits in its place. Numbers of the metadata are exact in jsonb, and compare as doubles.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import lru_cache
from typing import Any, Literal, NamedTuple, TypeGuard

import numpy as np
from numpy.typing import NDArray
from psycopg.types.json import Jsonb

from vlmsearch.errors import InvalidInputError
from vlmsearch.stores.documents import DocumentRow, StoredDocument
from vlmsearch.stores.filters import ORDERINGS, Comparison, Filter, FilterGroup
from vlmsearch.stores.samples import sampling_key
from vlmsearch.stores.versions import VersionedHit
from vlmsearch.types import READERS, Field, MetadataValue, Record, Stamp

_ODD = re.compile("[\x00\x1a\ud800-\udfff]")
_ESCAPED = re.compile("\x1a([0-9a-f]{4})")
_MAX_EXACT = 2**53
_MAX_BYTES = 64 * 2**20
"""Bytes of a text at most: longer ones do not fit into messages of the protocol together with others."""
_MAX_ALTERNATIVES = 100
"""Values of an ``$in`` that are looked up one by one in an index."""


def escape(text: str) -> str:
    """Return a string as PostgreSQL can keep it."""
    return _ODD.sub(lambda odd: f"\x1a{ord(odd[0]):04x}", text)


def unescape(text: str) -> str:
    """Return the string that `escape` was given."""
    return _ESCAPED.sub(lambda code: chr(int(code[1], 16)), text)


def check_size(record: Record) -> None:
    """Raise InvalidInputError where a text is too long for PostgreSQL."""
    text = record.document.text or ""
    if len(text) * 4 > _MAX_BYTES and len(text.encode("utf-8", "surrogatepass")) > _MAX_BYTES:
        raise InvalidInputError("too_large", f"{record.document.id!r} has more than {_MAX_BYTES:,} bytes of text")


def row_of(record: Record, version: str, length: int) -> str:
    """Return a row as JSON, without vectors.

    Args:
        record: The row.
        version: Its version.
        length: Number of its terms.
    """
    stored = StoredDocument.of(record.document)
    row = {
        "id": stored.id,
        "version": version,
        "digest": escape(record.stamp.digest),
        "source": escape(record.stamp.source),
        "text": None if stored.text is None else escape(stored.text),
        "image": None if stored.image is None else escape(stored.image),
        "fields": sorted(map(str, record.vectors)),
        "draw": sampling_key(stored.id),
        "length": length,
    }
    return f'{json.dumps(row)[:-1]}, "metadata": {metadata_json(stored.metadata)}}}'


def metadata_json(metadata: Mapping[str, MetadataValue]) -> str:
    """Return metadata as JSON whose numbers are the same ones after a time in jsonb."""
    entries = (f"{json.dumps(escape(key))}: {_json_of(value)}" for key, value in metadata.items())
    return f"{{{', '.join(entries)}}}"


def _json_of(value: MetadataValue) -> str:
    if isinstance(value, tuple):
        return json.dumps(list(map(escape, value)))
    if isinstance(value, str):
        return json.dumps(escape(value))
    is_whole = isinstance(value, float) and value.is_integer()
    return f"{int(value)}.0" if is_whole else json.dumps(value)  # 1e22 would come back as an integer


def metadata_of(row: Mapping[str, MetadataValue]) -> dict[str, MetadataValue]:
    """Return the metadata that a row has."""
    return {unescape(key): _restored(value) for key, value in row.items()}


def _restored(value: MetadataValue | list[str]) -> MetadataValue:
    if isinstance(value, str):
        return unescape(value)
    return tuple(map(unescape, value)) if isinstance(value, list) else value


STATE = "id, version, digest, source, fields"
"""The columns that `document_row` needs."""
COLUMNS = f"{STATE}, text, image, metadata"
"""The columns of a row with its document."""
DOCUMENT_OF = "split_part(id, '#passage=', 1)"
"""The id of the document of a row."""
IS_DOCUMENT = "id NOT LIKE '%%#passage=%%'"
"""The condition that a row is that of a document. The planner knows from its statistics how many there are."""


def document_row(
    id: str,
    version: str,
    digest: str,
    source: str,
    fields: Sequence[str],
    text: str | None = None,
    image: str | None = None,
    metadata: Mapping[str, MetadataValue] | None = None,
    *,
    vectors: Mapping[Field, NDArray[np.float32]] | None = None,
) -> DocumentRow:
    """Return what the columns of `COLUMNS`, or those of `STATE` alone, have of a document."""
    content = None
    if metadata is not None:
        text, image = (None if value is None else unescape(value) for value in (text, image))
        content = StoredDocument(id, text, image, metadata_of(metadata)).document
    stamp = Stamp(unescape(digest), unescape(source))
    return DocumentRow(stamp, version, _fields_of(tuple(fields)), content, vectors)


def hit_of(id: str, score: float, version: str, fields: Sequence[str]) -> VersionedHit:
    """Return the hit of a row with these fields."""
    return VersionedHit(id, score, version, _fields_of(tuple(fields)))


@lru_cache
def _fields_of(names: tuple[str, ...]) -> frozenset[Field]:
    """Return fields by their names, which few rows differ in."""
    return frozenset(map(Field.parse, names))


class Condition(NamedTuple):
    """A condition on the rows ``d`` of documents.

    Attributes:
        text: The condition.
        values: The values of its placeholders.
        has_index: Whether the index of metadata finds the documents that pass.
    """

    text: str
    values: tuple[Any, ...]
    has_index: bool = False


class RowNumbers(NamedTuple):
    """Rows by their numbers.

    Attributes:
        rows: The numbers, as PostgreSQL writes an array.
        total: How many there are.
    """

    rows: str
    total: int


ALWAYS = Condition("true", ())


def among(ids: Collection[str], where: Condition) -> Condition:
    """Return the condition that a document has one of these ids, and passes another condition."""
    return Condition(f"d.id = ANY(%s) AND {where.text}", (list(ids), *where.values))


def compile_filter(where: Filter | None, readable: Callable[[Comparison], Condition] | None = None) -> Condition:
    """Return a filter as a condition that is true or false, never null.

    It is `ALWAYS` where it passes everything.

    Args:
        where: The filter.
        readable: Compiles the comparison of `vlmsearch.stores.readers.readable`.
    """
    if where is None:
        return ALWAYS
    if not isinstance(where, Comparison):
        return _combined(where.operator, [compile_filter(part, readable) for part in where.filters])
    if readable and _is_scope(where):
        return readable(where)
    condition = _compile_comparison(where)
    absent = Condition("NOT d.metadata ? %s", (escape(where.key),))
    return _combined("$or", [absent, condition]) if where.or_absent else condition


def split_scope(where: Filter | None) -> tuple[Comparison | None, Filter | None]:
    """Return the condition that a restricted handle puts before a filter, and that filter."""
    if _is_scope(where):
        return where, None
    if isinstance(where, FilterGroup) and where.operator == "$and" and len(where.filters) == 2:
        first, rest = where.filters
        if _is_scope(first):
            return first, rest
    return None, where


def _is_scope(where: Filter | None) -> TypeGuard[Comparison]:
    """Return whether this is `vlmsearch.stores.readers.readable`."""
    return isinstance(where, Comparison) and where.key == READERS and where.or_absent


def among_lists(scope: Comparison, lists: str) -> Condition:
    """Return the condition that some principals may read a document.

    Args:
        scope: The comparison of its readers with them.
        lists: The table of lists of readers, as SQL has it.
    """
    names = scope.value if isinstance(scope.value, tuple) else (scope.value,)
    return Condition(_IS_READABLE.format(lists), ([escape(str(name)) for name in names],))


_IS_READABLE = (
    "CASE WHEN d.readers IS NULL THEN NOT d.metadata ? 'readers' ELSE d.readers IN (SELECT DISTINCT l.list "
    "FROM unnest(%s::text[]) p(name) CROSS JOIN LATERAL (SELECT list FROM {} WHERE names @> ARRAY[p.name] OFFSET 0) l) "
    "END"
)
"""The condition that everyone may read a document, or one of some names.

Lists are looked up name by name: an overlap with many names would be compared list by list. ``DISTINCT`` lets the
planner expect few of them, so that it hashes them.
"""


def _combined(operator: Literal["$and", "$or"], parts: Sequence[Condition]) -> Condition:
    is_all = operator == "$and"
    parts = [part for part in parts if not (is_all and part is ALWAYS)] or [ALWAYS]
    if len(parts) == 1:
        return parts[0]
    has_index = (any if is_all else all)(part.has_index for part in parts)
    text = (" AND " if is_all else " OR ").join(part.text for part in parts)
    return Condition(f"({text})", tuple(value for part in parts for value in part.values), has_index)


def _compile_comparison(where: Comparison) -> Condition:
    key = escape(where.key)
    if where.operator in ORDERINGS:
        sign = {"$gt": ">", "$gte": ">=", "$lt": "<", "$lte": "<="}[where.operator]
        return Condition(f"{_NUMBER} {sign} %s, false)", (key, key, where.value))
    values = where.value if isinstance(where.value, tuple) else (where.value,)
    condition = _is_among(key, values)
    is_negated = where.operator in ("$ne", "$nin")
    return Condition(f"NOT {condition.text}", condition.values) if is_negated else condition


_NUMBER = "coalesce(CASE jsonb_typeof(d.metadata->%s) WHEN 'number' THEN (d.metadata->%s)::float8 END"
"""The beginning of a comparison of a number, as a double."""


def _is_among(key: str, values: Sequence[str | bool | float]) -> Condition:
    """Return the condition that a value of the metadata equals one of these."""
    single: list[object] = list(dict.fromkeys(value for value in values if isinstance(value, bool)))
    texts = list(dict.fromkeys(escape(value) for value in values if isinstance(value, str)))
    numbers = list(dict.fromkeys(v for v in values if isinstance(v, float) and not isinstance(v, bool)))
    parts: list[Condition] = []
    small = [number for number in numbers if abs(number) < _MAX_EXACT]
    if len(texts) + len(small) <= _MAX_ALTERNATIVES:
        single += [*texts, *([text] for text in texts), *small]  # a list contains its strings as lists
        texts, numbers = [], [number for number in numbers if abs(number) >= _MAX_EXACT]
    parts += [Condition("d.metadata @> %s", (Jsonb({key: value}),), has_index=True) for value in single]
    if texts:
        parts.append(
            Condition(
                "CASE jsonb_typeof(d.metadata->%s) WHEN 'string' THEN d.metadata->>%s = ANY(%s::text[]) "
                "WHEN 'array' THEN d.metadata->%s ?| %s::text[] ELSE false END",
                (key, key, texts, key, texts),
            )
        )
    if numbers:
        parts.append(Condition(f"{_NUMBER} = ANY(%s::float8[]), false)", (key, key, numbers)))
    return _combined("$or", parts)
