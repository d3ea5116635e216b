"""What sources give: documents, what cannot be used, and files that hold several documents."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeAlias, Union

from vlmsearch.media.limits import DEFAULT_LIMITS, ImageLimits
from vlmsearch.types import Document, Reject

if TYPE_CHECKING:
    from PIL import Image

    from vlmsearch.media.images import Preprocess


@dataclass(frozen=True)
class Sourced:
    """A document and the file that it was read from, empty for none.

    ``image`` is what `read_image` gives of the path which is the document's image, where that was read already: its
    bytes, or what the encoder takes of it. ``content`` is then the digest of those bytes; empty where they are there.
    ``digest`` is what the stamp of the document has in place of a digest of its content; empty for that.
    With ``ocr`` the text in the image is read where the document has none.
    """

    document: Document
    source: str
    image: bytes | Image.Image | None = None
    content: str = ""
    digest: str = ""
    ocr: bool = False


PartItem: TypeAlias = Union[Sourced, Reject]


@dataclass(frozen=True)
class ReadOptions:
    """How files of several documents are read.

    Attributes:
        limits: How large an image may be, and what reading a part may take.
        preprocess: How the encoder resizes images, where that is all that it does; images come in that size.
    """

    limits: ImageLimits = DEFAULT_LIMITS
    preprocess: Preprocess | None = None


@dataclass(frozen=True)
class Container:
    """A file of several documents, which is opened only where the index does not have this version of it.

    ``id`` is that of the file and of the document of the whole file, and ``source`` the file. ``version`` is a digest
    of its bytes and of all options that decide what comes of it. ``parts`` gives the documents one by one, each with an
    id that `part_of` reads, and last the document of the whole file, whose ``digest`` is the version: where the index
    has that, it has all parts. Where the file cannot be read it gives a Reject of the file instead of the latter.
    """

    id: str
    source: str
    version: str
    parts: Callable[[ReadOptions], Iterator[PartItem]]


Item: TypeAlias = Union[Sourced, Reject, Container]


@dataclass(frozen=True)
class SourceOptions:
    """Say what is taken of files; what is beside images, texts and tables costs time, so it is off by default.

    Attributes:
        pdf: Take each page of PDF files, as its text and its image. Needs the extra ``pdf``.
        video: Take a frame of each scene of films, with the subtitles that are shown meanwhile. Needs the extra
            ``video``.
        office: Take the text of office documents, e-books and web pages. Needs the extra ``office``.
        ocr: Read the text in images, pages and frames that have none beside them. Needs the extra ``ocr``.
        follow_links: Take files that are symbolic links, which may lead out of the folders, and subtitles that are one.
            Files that are named themselves are always taken. A server follows no links.

    Example:
        >>> SourceOptions(pdf=True).pdf
        True
    """

    pdf: bool = False
    video: bool = False
    office: bool = False
    ocr: bool = False
    follow_links: bool = True


NO_OPTIONS = SourceOptions()


class _HasId(Protocol):
    @property
    def id(self) -> str: ...


def id_of(item: Sourced | _HasId) -> str:
    """Return the id of what a source gives."""
    return item.document.id if isinstance(item, Sourced) else item.id
