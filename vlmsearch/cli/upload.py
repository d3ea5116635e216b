"""Send files of this machine to a service."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from vlmsearch.errors import InvalidInputError
from vlmsearch.index import add_reported
from vlmsearch.media.limits import DEFAULT_LIMITS
from vlmsearch.types import Document, IndexReport, Reject, local_image

if TYPE_CHECKING:
    from vlmsearch.index import Index
    from vlmsearch.indexing.items import Item, SourceDocument
    from vlmsearch.indexing.sources import Paths


def upload_files(
    remote: Index,
    source: Paths,
    *,
    retry_rejects: bool,
    strict: bool,
    on_progress: Callable[[int], None] | None,
) -> IndexReport:
    """Send the documents of files here."""
    from vlmsearch.indexing.items import Container, ReadOptions

    rejects: list[Reject] = []

    def documents(items: Iterable[Item]) -> Iterator[Document]:
        for item in items:
            if isinstance(item, Container):
                yield from documents(item.parts(ReadOptions()))
            elif not isinstance(item, Reject):
                yield _to_send(item)
            elif strict:
                raise InvalidInputError(item.code, item.message)
            else:
                rejects.append(item)

    report = add_reported(
        remote,
        documents(source),
        passages=source.options.passages,
        retry_rejects=retry_rejects,
        strict=strict,
        on_progress=on_progress,
    )
    in_all = (remote.info().get("partly_read") or 0) if report.unchanged else 0
    report = replace(report, rejects=(*report.rejects, *rejects), partly_read_in_all=in_all)
    return replace(report, left_out=source.left_out(), others=source.others())


def _to_send(item: SourceDocument) -> Document:
    """Return a document with its image and OCR text. The server reports images that cannot be read."""
    from vlmsearch.indexing.image_text import with_image_text

    document = item.document if item.image is None else replace(item.document, image=item.image)
    if not item.ocr or document.text or document.image is None:
        return document
    try:
        return with_image_text(document, local_image(document.image), DEFAULT_LIMITS)
    except InvalidInputError:
        return document
