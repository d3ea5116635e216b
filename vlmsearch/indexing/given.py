"""The documents that a caller of `Index.add` gives: `Document`, dicts, pictures, and tables of pandas or Arrow.

A package is not imported to know its objects: who gives a table has imported it.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, Union

from vlmsearch._util.arguments import shown
from vlmsearch._util.plain import is_array, is_image_array, is_picture, plain_text, plain_value
from vlmsearch.errors import ConfigError, MissingDependencyError
from vlmsearch.types import READERS, Document

if TYPE_CHECKING:
    import numpy as np
    import PIL.Image
    from numpy.typing import NDArray


class ArrowTable(Protocol):
    """A table of pandas, pyarrow, polars or another package with Arrow's PyCapsule interface.

    Its columns ``id``, ``text`` and ``image`` are those of documents, and the others are metadata.

    Example:
        >>> import pandas
        >>> from vlmsearch import Pipeline
        >>> table: ArrowTable = pandas.DataFrame({"text": ["a dog", "a car"], "year": [2024, 2023]})
        >>> with Pipeline.open(encoder="mock:", store="mock:") as pipeline:
        ...     pipeline.add(table).added
        2
    """

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Return the table as a stream of Arrow."""


DocumentInput: TypeAlias = Union[Document, Mapping[str, object], "PIL.Image.Image", "NDArray[np.uint8]"]
"""A document as an argument: a `Document`, a dict, or an image alone.

The keys ``id``, ``text``, ``image`` and ``metadata`` of a dict are those of a `Document`. Other keys are metadata."""
_RESERVED = ("id", "text", "image", "metadata")
_DOCUMENTS = "`documents`"
_ROWS = 64
"""Rows of an Arrow table that are taken apart together."""
_ODD = (ArithmeticError, LookupError, ValueError)
"""Errors of Arrow for a year beyond 9999, an unknown zone, and bytes without text."""
_ADVICE = {
    str: "write Document(text=...) for a text, Document(image=...) for an image, or call index(path) for files",
    Path: "write Document(image=path) for an image, or call index(path) for files and folders",
    bytes: "write Document(image=data) for the bytes of an image",
}


def given_documents(documents: DocumentInput | Iterable[DocumentInput] | ArrowTable) -> Iterator[Document]:
    """Yield documents, made of what is given.

    Args:
        documents: One or several, as `Index.add` takes them.

    Returns:
        The documents, as they are needed.

    Raises:
        ConfigError: A table has two columns of one name.
        MissingDependencyError: The table is of a package that needs pyarrow.
        TypeError: Something is no document, or its id is not a string.
    """
    item: Any
    for number, item in enumerate(_items(documents), 1):
        if isinstance(item, Document):
            document = item
        elif isinstance(item, Mapping):
            document = Document(*row_parts(item))
        elif is_picture(item) or is_array(item):
            document = Document(image=item)
        else:
            raise TypeError(_refusal(item, number))
        if not isinstance(document.id, str):
            raise TypeError(f"`documents`: the id of a document is a string, not {shown(document.id)}")
        yield document


def _items(documents: Any) -> Iterable[object]:
    """Return what is given, one by one."""
    if isinstance(documents, (Document, Mapping)) or is_picture(documents) or is_image_array(documents):
        return [documents]
    pandas = sys.modules.get("pandas")
    if pandas is not None and isinstance(documents, pandas.DataFrame):
        return _pandas_rows(documents)
    is_series = pandas is not None and isinstance(documents, pandas.Series)
    if hasattr(documents, "__arrow_c_stream__") and not is_series and not isinstance(documents, type):
        return _arrow_rows(documents)
    is_several = isinstance(documents, Iterable) and not isinstance(documents, (str, bytes, bytearray, type))
    if not is_several or getattr(documents, "ndim", 1) == 0:
        raise TypeError(_refusal(documents))
    several: Iterable[object] = documents
    return several


def _refusal(item: object, number: int | None = None) -> str:
    """Return why something is no document, and what to write in its place."""
    place = f" at place {number}" if number else ""
    kinds = (advice for kind, advice in _ADVICE.items() if isinstance(item, kind))
    advice = next(kinds, "write Document(id, text=..., image=...)")
    return f"`documents`: a Document, a dict, an image or a table is added, not {type(item).__name__}{place}: {advice}"


def row_parts(row: Mapping[Any, Any]) -> tuple[Any, Any, Any, dict[Any, object]]:
    """Return the id, the text, the image and the metadata in a row of any table.

    Ids and texts that are numbers or dates are texts. A part of another type stays as it is.
    """
    nested = row.get("metadata")
    metadata = dict(nested) if isinstance(nested, Mapping) else {}
    reserved = _RESERVED if isinstance(nested, Mapping) or nested is None else _RESERVED[:3]
    own = {key: value for key, value in row.items() if key not in reserved}
    if READERS in metadata and plain_value(own.get(READERS)) is None and not hasattr(own.get(READERS), "__len__"):
        own.pop(READERS, None)  # what is missing there opens nothing
    metadata |= own
    id, text = (plain_text(row.get(key)) for key in _RESERVED[:2])
    image = plain_value(row.get("image"))
    if isinstance(image, Mapping) and not image.keys().isdisjoint(
        ("bytes", "path")
    ):  # as Hugging Face's datasets have images
        image = image.get("bytes") or image.get("path")
    id, image = (None if isinstance(value, str) and not value else value for value in (id, image))
    return id, text, image, metadata


def _pandas_rows(frame: Any) -> Iterator[Mapping[str, object]]:
    if frame.index.name == "id" and "id" not in frame.columns:
        frame = frame.reset_index()
    columns = _check_columns([str(column) for column in frame.columns])
    for values in frame.itertuples(index=False, name=None):
        yield dict(zip(columns, values))


def _arrow_rows(table: Any) -> Iterator[Mapping[str, object]]:
    try:
        import pyarrow as pa
    except ImportError as exc:
        kind = type(table).__name__
        raise MissingDependencyError(
            f"a {kind} is read by pyarrow, which is not installed: pip install 'vlmsearch[parquet]'"
        ) from exc
    try:
        reader = pa.RecordBatchReader.from_stream(table)
    except pa.ArrowInvalid as exc:  # a column
        raise TypeError(_refusal(table)) from exc
    _check_columns(reader.schema.names)
    for batch in reader:
        for start in range(0, batch.num_rows, _ROWS):
            yield from arrow_rows(batch.slice(start, _ROWS))


def arrow_rows(batch: Any, table: str = _DOCUMENTS) -> Iterator[dict[str, object]]:
    """Yield the rows of a batch of Arrow. What Python cannot hold, and lists of numbers, are ``...`` in them."""
    names = _distinct(batch.schema.names, table)
    whole = (*_RESERVED, READERS)
    columns = [_arrow_values(column, is_whole=name in whole) for name, column in zip(names, batch.columns)]
    yield from (dict(zip(names, values)) for values in zip(*columns))


def _arrow_values(column: Any, *, is_whole: bool) -> Iterable[object]:
    """Return the values of a column.

    Lists without strings are converted only where they are needed as a ``whole``: embeddings are long.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = column.type
    if pa.types.is_nested(kind) and hasattr(kind, "value_type") and not is_whole and "string" not in str(kind):
        return (... if length else None for length in pc.list_value_length(column).to_pylist())
    if getattr(kind, "unit", "") == "ns":  # nanoseconds need pandas
        short = pa.timestamp("us", kind.tz) if pa.types.is_timestamp(kind) else str(kind).replace("ns", "us")
        column = column.cast(short, safe=False)
    try:
        return column.to_pylist(maps_as_pydicts="strict")  # type: ignore[no-any-return]
    except _ODD:
        return map(_arrow_value, column)


def _arrow_value(value: Any) -> object:
    try:
        return value.as_py(maps_as_pydicts="strict")
    except _ODD:
        return ...


def _distinct(columns: Sequence[str], table: str = _DOCUMENTS) -> Sequence[str]:
    """Return the names of columns; ConfigError where two are the same."""
    if twice := [name for name, count in Counter(columns).items() if count > 1]:
        raise ConfigError(f"{table}: the table has two columns {twice[0]!r}: rename one")
    return columns


def _check_columns(columns: Sequence[str]) -> Sequence[str]:
    """Return the names of columns; ConfigError where documents cannot be made of them."""
    if not {"text", "image"} & set(_distinct(columns)):
        raise ConfigError(
            f"`documents`: the table needs a column text or image, and has {', '.join(columns) or 'none'}: rename one"
        )
    return columns
