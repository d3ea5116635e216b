"""What sources give: documents, what cannot be used, and files that hold several documents."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol, TypeAlias, Union

from vlmsearch._util.options import Options, local, several
from vlmsearch._util.plain import MAX_ENTRIES
from vlmsearch.indexing.columns import Columns
from vlmsearch.media.limits import DEFAULT_LIMITS, ImageLimits
from vlmsearch.types import MAX_READER_BYTES, READERS, Document, Reject

if TYPE_CHECKING:
    from PIL import Image

    from vlmsearch.media.preprocess import Preprocess


@dataclass(frozen=True)
class SourceDocument:
    """A document and the file that it was read from, empty for none.

    Attributes:
        document: The document.
        source: The id of the file.
        image: The image at the document's path, if it was read already: its bytes, or the pixels for the encoder.
        content: The digest of the image's bytes, if only its pixels are here; else empty.
        digest: The digest for the stamp of the document; empty to make one of the content.
        ocr: Whether to read the text in the image of a document without text.
    """

    document: Document
    source: str
    image: bytes | Image.Image | None = None
    content: str = ""
    digest: str = ""
    ocr: bool = False


PartItem: TypeAlias = Union[SourceDocument, Reject]


@dataclass(frozen=True)
class ReadOptions:
    """Options for reading files of several documents.

    Attributes:
        limits: The largest images, and the most memory and time to read a part.
        preprocess: The resizing of the encoder, if it does nothing else; images then come in that size.
    """

    limits: ImageLimits = DEFAULT_LIMITS
    preprocess: Preprocess | None = None


@dataclass(frozen=True)
class Container:
    """A file of several documents.

    It is opened only where the index does not have this version of it.

    Attributes:
        id: The id of the file, and of the document of the whole file.
        source: The file.
        version: A digest of its bytes and of the options that change its documents.
        parts: A function that yields the documents, each with an id that `part_of` reads. The document of the whole
            file comes last. Its ``digest`` is the version, so that an index which has it has all parts. A file that
            cannot be read ends with a Reject instead.
        readers: The readers that were given for the file, which its documents have; None where none were.
    """

    id: str
    source: str
    version: str
    parts: Callable[[ReadOptions], Iterator[PartItem]]
    readers: tuple[str, ...] | None = None


Item: TypeAlias = Union[SourceDocument, Reject, Container]


@dataclass(frozen=True)
class SourceOptions(Options):
    """Options of what is read in files. All but images, texts and tables costs time, so it is off by default.

    ``pdf``, ``video`` and ``office`` are about folders. A file that is named, also by a glob, is read without them.

    Attributes:
        pdf: Take each page of PDF files, as its text and its image. Needs the extra ``pdf``.
        video: Take a frame of each scene of films, with the subtitles that are shown meanwhile. Needs the extra
            ``video``.
        office: Take the text of office documents, e-books, web pages and mails, and attachments of mails. Needs the
            extra ``office``.
        ocr: Read the text in images, pages and frames that have none beside them. Needs the extra ``ocr``.
        passages: Encode a text that is longer than the model reads in passages. Otherwise its beginning alone is
            encoded.
        columns: Columns of tables that hold ids, texts and images, such as ``text=body,image=photo,id=sku``. It may be
            a mapping. Several columns of a text, as in ``text=title,text=body``, are joined. A field of a field in JSON
            is a path such as ``text=message.content``.
        readers: Names of who may read the documents, such as ``group:hr``; ``*`` for everyone. They take the place of
            those that front matter or a column ``readers`` names; an empty list is nobody. With None those count, and
            else the readers that the index has for the documents.
        follow_links: Take files and subtitles that are symbolic links, which may lead out of the folders. Files that
            are named themselves are always taken. A server follows no links.

    Example:
        >>> SourceOptions(pdf=True).pdf
        True
    """

    pdf: bool = False
    video: bool = False
    office: bool = False
    ocr: bool = False
    passages: bool = True
    columns: str | Mapping[str, str | Sequence[str]] | None = None
    readers: Sequence[str] | None = several(None, MAX_ENTRIES, MAX_READER_BYTES)
    follow_links: bool = local(True)

    def __post_init__(self) -> None:
        object.__setattr__(self, "columns", str(Columns(self.columns)) or None)
        super().__post_init__()


NO_OPTIONS = SourceOptions()


class _HasId(Protocol):
    @property
    def id(self) -> str: ...


def id_of(item: SourceDocument | _HasId) -> str:
    """Return the id of what a source gives."""
    return item.document.id if isinstance(item, SourceDocument) else item.id


def with_readers(item: PartItem, readers: tuple[str, ...]) -> PartItem:
    """Return a document with these readers in the place of its own."""
    if isinstance(item, Reject):
        return item
    return replace(item, document=replace(item.document, metadata={**item.document.metadata, READERS: readers}))
