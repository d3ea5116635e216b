"""The values that vlmsearch takes and gives: all frozen, all plain data.

Cosines are from -1 to 1; vectors are float32 and of length one, so that a dot product is a cosine. Lengths of ids and
metadata are in bytes of UTF-8 unless characters are named.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import re
import shlex
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, Union, cast, overload
from urllib.parse import quote, urlencode

from vlmsearch._util.arguments import strings
from vlmsearch._util.closable import Closable
from vlmsearch._util.frozen import FrozenDict
from vlmsearch._util.markup import HtmlDisplay, brief, plain
from vlmsearch._util.plain import CONTROLS, is_array, is_picture, is_pixels, plain_mapping, plain_value, value_problem
from vlmsearch._util.text import well_formed
from vlmsearch._util.unread import COUNT, UNREAD
from vlmsearch.errors import InvalidInputError, RejectCode

if TYPE_CHECKING:
    import numpy as np
    import PIL.Image
    from numpy.typing import NDArray

    Vectors: TypeAlias = NDArray[np.float32]
    """Embeddings: float32, shape (n, dim), every row of length one."""

Modality = Literal["text", "image"]
"""The kind of content that a vector was made of."""
Reading = Literal["picture", "text", "both", "neither"]
"""A way in which a generator read a source."""
Role = Literal["query", "document"]
"""The role of a text: some models put another prefix before each."""
Scalar: TypeAlias = Union[str, int, float, bool]
"""A single value of metadata: finite, and a whole number within 64 bits."""
MetadataValue: TypeAlias = Union[str, int, float, bool, tuple[str, ...]]
"""A value of metadata: a single one, or a list of strings."""
ImageSource: TypeAlias = Union[Path, bytes, "PIL.Image.Image"]
"""A file, the encoded bytes of one, or a decoded image."""
ImageInput: TypeAlias = Union[str, Path, bytes, "PIL.Image.Image", "NDArray[np.uint8]"]
"""An image as an argument: an `ImageSource`, the path of a file as a string, or the pixels of an image.

Pixels are of shape (height, width), or (height, width, channels) with 1, 3 or 4 channels."""

MAX_ID_BYTES = 1024
MAX_METADATA_KEYS = 1000
MAX_METADATA_BYTES = 2**20
"""Of the keys and texts of one document's metadata, in UTF-8."""
HALVES = re.compile("[\ud800-\udfff]")
"""Halves of surrogate pairs."""
_PART = re.compile(
    r"(?P<of>.+)#(?:(?P<numbers>(?:page|passage|message|(?:message=[1-9][0-9]{0,8}&)?attachment)=[1-9][0-9]{0,8})"
    r"|t=(?P<t>[0-9]{1,9}\.[0-9]{3})"
    r"|xywh=(?P<xy>[0-9]{1,9},[0-9]{1,9}),(?P<wh>[1-9][0-9]{0,8},[1-9][0-9]{0,8}))",
    re.DOTALL,
)
_NUMBERED = ("page", "passage", "message", "attachment")
"""The parts that have numbers."""
PASSAGE = "#passage="
"""The beginning of the fragment of a passage."""
_WEB = re.compile("(https?):/{1,2}(?=[^/])")
"""The beginning of a URL of the web; a path keeps only one of its slashes."""
WORDS = "words"
"""The name of the field that ranks documents by the words of a query."""
SPREAD, HIDDEN = "spread", "hidden"
"""Marks in the metadata of a field: its JSON has the fields of its value in its place, or leaves it out."""
_MAX_SHOWN = 5
"""Parts of a value that its `repr` shows."""
DESCRIBED_BY = "described_by"
"""The metadata key of the model that described a document's picture.

The description is the document's text.
"""
MIN_SCORE = "min_score"
"""The name of the lowest relevance of a match in the tuning of an index."""
READERS = "readers"
"""The metadata key of who may read a document through a restricted handle: see `Document.readers`."""
EVERYONE = "*"
"""The name in `READERS` that stands for everyone."""
_NOBODY = ""
"""The name in `READERS` that no principal has.

Stores keep no empty list.
"""
MAX_READER_BYTES = 256


@dataclass(frozen=True, order=True)
class Field:
    """The vectors of one modality in one space, written ``clip/image``.

    Attributes:
        space: Name of the space.
        modality: Kind of content that the vectors were made of.

    Example:
        >>> str(Field("clip", "image"))
        'clip/image'
    """

    space: str
    modality: Modality

    def __str__(self) -> str:
        return f"{self.space}/{self.modality}"

    @classmethod
    def parse(cls, text: str) -> Field:
        """Return the field that ``str`` wrote.

        Args:
            text: A space and a modality with a slash between them.

        Returns:
            The field.

        Raises:
            ValueError: It is not of that form.

        Example:
            >>> Field.parse("clip/image")
            Field(space='clip', modality='image')
        """
        space, _, modality = text.rpartition("/")
        if not space or modality not in ("text", "image"):
            raise ValueError(f"not a field: {text!r} (expected SPACE/text or SPACE/image)")
        return cls(space, "text" if modality == "text" else "image")


@dataclass(frozen=True)
class Space:
    """An embedding space.

    Attributes:
        name: Name in encoders, stores and fields.
        dim: Length of the vectors.
        modalities: Modalities that the encoder has a tower for.

    Example:
        >>> space = Space("clip", 512, frozenset({"text", "image"}))
        >>> [str(field) for field in space.fields]
        ['clip/image', 'clip/text']
    """

    name: str
    dim: int
    modalities: frozenset[Modality]

    @property
    def fields(self) -> tuple[Field, ...]:
        """Return the fields that documents can have in this space, image first."""
        return tuple(Field(self.name, modality) for modality in sorted(self.modalities))


def encodes_images(spaces: Iterable[Space]) -> bool:
    """Check whether there is a space for images."""
    return any("image" in space.modalities for space in spaces)


def check_id(value: str) -> None:
    """Raise InvalidInputError unless every store can keep ``value`` as an id: 1,024 bytes at most, no controls."""
    try:
        size = len(value.encode())
    except (AttributeError, UnicodeEncodeError):
        raise InvalidInputError("invalid", f"an id must be a string in valid Unicode, not {value!r}") from None
    if not 0 < size <= MAX_ID_BYTES or (not value.isprintable() and CONTROLS.search(value)):
        raise InvalidInputError("invalid", f"an id has 1 to {MAX_ID_BYTES} bytes, no controls: {value[:60]!r}")


def check_document_id(value: str) -> None:
    """Raise InvalidInputError unless a document can have ``value`` as its id: it names no passage."""
    check_id(value)
    if PASSAGE in value:
        advice = "give the document another id, or rename its file"
        raise InvalidInputError("invalid", f"{value[:60]!r} names a passage: {advice}")


def is_id(value: str) -> bool:
    """Check whether a value can be an id; see `check_id`."""
    try:
        check_id(value)
    except InvalidInputError:
        return False
    return True


def possible_ids(ids: Iterable[str]) -> list[str]:
    """Return those ids that a document or a passage can have: others are unknown, and no database meets them."""
    return [id for id in ids if isinstance(id, str) and all(map(is_id, _id_parts(id)))]


def _id_parts(id: str) -> tuple[str, ...]:
    """Return the id of a document, and behind it the fragment of a passage."""
    of = document_of(id)
    return (of, id[len(of) :]) if of != id else (id,)


def shown_value(value: object) -> str:
    """Return a value of metadata as people read it."""
    return ", ".join(value) if isinstance(value, tuple) else str(value)


def reader_names(names: str | Iterable[str], name: str = "readers") -> tuple[str, ...]:
    """Return names of readers or principals, sorted, as metadata have them.

    Args:
        names: The names, or one; an empty list for nobody.
        name: Name of the argument, for messages.

    Returns:
        The names, as a value of `READERS`.

    Raises:
        TypeError: They are no strings.

    Example:
        >>> reader_names(["user:ann", "group:hr"])
        ('group:hr', 'user:ann')
    """
    return tuple(sorted(set(strings(name, names, "names such as 'group:hr'")))) or (_NOBODY,)


def _is_some(value: Any) -> bool:
    """Return whether a value of metadata is none that is missing, such as NaN: an empty list is there."""
    return hasattr(value, "__len__") or plain_value(value) is not None


def check_readers(names: Iterable[str]) -> None:
    """Raise InvalidInputError unless each name of a reader has at most 256 bytes and no controls."""
    for name in names:
        if len(name.encode("utf-8", "surrogatepass")) > MAX_READER_BYTES or CONTROLS.search(name):
            limit = f"at most {MAX_READER_BYTES} bytes, no controls"
            raise InvalidInputError("invalid", f"the name of a reader has {limit}: {name[:60]!r}")


def check_metadata(metadata: Mapping[str, MetadataValue]) -> None:
    """Raise InvalidInputError unless every store can keep ``metadata`` and filter on it.

    ``too_large`` for more than 1,000 keys, 1,000 strings in a list, or 1 MiB of keys and texts. The two keys of unread
    parts do not count.
    """
    if len(metadata) > MAX_METADATA_KEYS and (count := len(metadata.keys() - {UNREAD, COUNT})) > MAX_METADATA_KEYS:
        raise InvalidInputError(
            "too_large", f"metadata have at most {MAX_METADATA_KEYS:,} keys, not {count:,}: leave some out"
        )
    texts = list(metadata)
    for key, value in metadata.items():
        if problem := value_problem(key, value):
            raise InvalidInputError("invalid", f"{problem}: {brief(value)}")
        if key == READERS and isinstance(value, tuple):
            check_readers(value)
        texts += value if isinstance(value, tuple) else (value,) if isinstance(value, str) else ()
    if (size := len("".join(texts).encode("utf-8", "surrogatepass"))) > MAX_METADATA_BYTES:
        raise InvalidInputError(
            "too_large",
            f"metadata have at most {MAX_METADATA_BYTES:,} bytes of keys and texts, not {size:,}: "
            "put what is long into the text",
        )


def _valid_vars(document: Document) -> dict[str, object]:
    """Return a document's fields in valid Unicode, which pydantic's JSON has to be."""
    return {name: _valid(value) for name, value in vars(document).items()}


def _valid(value: object) -> object:
    if isinstance(value, str):
        return well_formed(value)
    if isinstance(value, tuple):
        return tuple(map(_valid, value))
    return {well_formed(key): _valid(part) for key, part in value.items()} if isinstance(value, Mapping) else value


@dataclass(frozen=True)
class Part:
    """A part of a file: a page, a moment, a region, a message or an attachment; or a passage of a long text.

    One of them is set; of an attachment in a mailbox, its message too. A document that is such a part has the id of the
    file with a fragment, which `str` gives. Pages have that of RFC 8118 (``#page=3``). Moments and regions have those
    of W3C Media Fragments URI 1.0: ``#t=12.480`` in seconds, and ``#xywh=10,20,300,40`` in pixels of the upright image.
    Mail has ``#attachment=2``, ``#message=3`` and ``#message=3&attachment=2``. A passage (``#passage=3``) is no
    document of its own.

    Attributes:
        of: Id of the file, or its path; of a passage the id of its document.
        page: Number of the page, from 1.
        seconds: Time from the beginning, to the millisecond.
        region: Left and top edge, width and height.
        passage: Number of the passage, from 1.
        message: Number of the message in a mailbox, from 1.
        attachment: Number of the attachment of the mail or the message, from 1.

    Example:
        >>> str(Part("/a/film.mp4", seconds=12.48))
        '/a/film.mp4#t=12.480'
    """

    of: str
    page: int | None = None
    seconds: float | None = None
    region: tuple[int, int, int, int] | None = None
    passage: int | None = None
    message: int | None = None
    attachment: int | None = None

    def __str__(self) -> str:
        if self.seconds is not None:
            return f"{self.of}#t={self.seconds:.3f}"
        name = f"xywh={self.name}" if self.region else self.name.replace(", ", "&").replace(" ", "=")
        return f"{self.of}#{name}"

    @property
    def name(self) -> str:
        """Return the part in words: ``page 3``, ``0:12``, ``10,20,300,40`` or ``message 3, attachment 2``."""
        if self.seconds is not None:
            minutes, seconds = divmod(int(self.seconds), 60)
            hours, minutes = divmod(minutes, 60)
            return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"
        if self.region is not None:
            return ",".join(map(str, self.region))
        return ", ".join(f"{kind} {number}" for kind in _NUMBERED if (number := getattr(self, kind)) is not None)


def part_of(id: str) -> Part | None:
    """Return the part that an id or a path names.

    Args:
        id: An id. Its fragment is written exactly as `Part` writes it.

    Returns:
        The part; None for an id of a whole.

    Example:
        >>> part_of("/a/report.pdf#page=3").page
        3
        >>> part_of("/a/report.pdf") is None
        True
    """
    match = _PART.fullmatch(id) if "#" in id else None
    if match is None:
        return None
    if match["numbers"]:
        given = dict(pair.split("=") for pair in match["numbers"].split("&"))
        page, passage, message, attachment = (int(given[kind]) if kind in given else None for kind in _NUMBERED)
        return Part(match["of"], page, passage=passage, message=message, attachment=attachment)
    if match["t"]:
        return Part(match["of"], seconds=float(match["t"]))
    left, top, width, height = map(int, f"{match['xy']},{match['wh']}".split(","))
    return Part(match["of"], region=(left, top, width, height))


def file_of_part(id: str) -> str:
    """Return the id of the file that a document is a part of.

    Args:
        id: Id of the document.

    Returns:
        The id of the file; the same id where the document is no part.

    Example:
        >>> file_of_part("/a/report.pdf#page=3")
        '/a/report.pdf'
    """
    while part := part_of(id):
        id = part.of
    return id


def group_of(id: str) -> str:
    """Return the id of what a search shows once: a file with its parts, or a message of a mailbox with its attachments.

    Args:
        id: Id of a document or a passage.

    Returns:
        The id of the file or the message.

    Example:
        >>> group_of("/a/box.mbox#message=3&attachment=2"), group_of("/a/report.pdf#page=3")
        ('/a/box.mbox#message=3', '/a/report.pdf')
    """
    while part := part_of(id):
        if part.message:
            return str(Part(part.of, message=part.message))
        id = part.of
    return id


def files_text(documents: int, files: int) -> str:
    """Return how many documents are no parts of files, in brackets behind their number.

    Args:
        documents: Number of documents.
        files: Number of those that are no parts; 0 for unknown.

    Returns:
        The text; "" where all are whole.

    Example:
        >>> f"380 documents{files_text(380, 140)}"
        '380 documents (140 files or rows, 240 parts of files)'
    """
    return f" ({files:,} files or rows, {documents - files:,} parts of files)" if files not in (0, documents) else ""


def document_of(id: str) -> str:
    """Return the id of the document that a passage is of.

    Args:
        id: Id of a passage or a document.

    Returns:
        The id of the document; the same id where it names no passage.

    Example:
        >>> document_of("/a/report.pdf#page=3#passage=2")
        '/a/report.pdf#page=3'
    """
    return id[: id.rfind(PASSAGE)] if PASSAGE in id else id


@dataclass(frozen=True)
class RemoteImage:
    """The image of a document on a server. Only a `RemotePipeline` of that server fetches it.

    It is no path: an answer of a server never names a file of this machine.

    Attributes:
        server: URL of the server.
        index: Name of the index there.
        id: Id of the document.
        path: Name of the file on the server, for people to read; `str` gives it.
        principals: Principals that a restricted handle asked for, as a header has them; "" for another one.

    Example:
        >>> image = RemoteImage("http://127.0.0.1:8080", "photos", "a", "/srv/photos/a.jpg")
        >>> image.name, image.url
        ('a.jpg', 'http://127.0.0.1:8080/api/v1/indexes/photos/image?id=a')
    """

    server: str
    index: str
    id: str
    path: str
    principals: str = field(default="", repr=False)

    def __str__(self) -> str:
        return self.path

    @property
    def name(self) -> str:
        """Return the last part of the path."""
        return re.split(r"[/\\]", self.path)[-1]

    @property
    def url(self) -> str:
        """Return the URL of the bytes; a server with tokens asks for one."""
        return f"{self.server}/api/v1/indexes/{quote(self.index, safe='')}/image?{urlencode({'id': self.id})}"


def image_problem(image: object) -> str:
    """Return why an object is no `ImageInput` or `RemoteImage`, in one line.

    It is "" for one that is.
    """
    if is_array(image) and not is_pixels(image):
        form = f"{getattr(image, 'dtype', '')} of shape {getattr(image, 'shape', '')}"
        return f"an array of pixels is uint8 of shape (height, width, 3), not {form}: scale and cast it first"
    if isinstance(image, (str, Path, bytes, RemoteImage)) or is_picture(image) or is_array(image):
        return ""
    kind = type(image).__name__
    return f"an image is a path, bytes, a PIL image or an array of pixels, not {kind}: read a file with .read()"


def source_of(image: ImageInput) -> ImageSource:
    """Return a path for a string, and a decoded image for pixels.

    Any other object is returned as it is.
    """
    if isinstance(image, str):
        return Path(image)
    if is_pixels(image):
        from PIL import Image

        pixels: Any = image
        return Image.fromarray(pixels[:, :, 0] if pixels.shape[2:] == (1,) else pixels)
    return cast("ImageSource", image)


def local_image(image: ImageInput | RemoteImage) -> ImageSource:
    """Return an image that can be read here; InvalidInputError ``unreadable`` for one on a server."""
    if isinstance(image, RemoteImage):
        advice = "give the bytes that `RemotePipeline.image` of that server fetches"
        raise InvalidInputError("unreadable", f"the image of {image.id!r} is on {image.server}, not here: {advice}")
    return source_of(image)


def web_url(image: Path) -> str | None:
    """Return the URL of a file of the web that a path is, with both slashes.

    None for any other path.
    """
    parts = _WEB.match(str(image))
    return f"{parts[1]}://{str(image)[parts.end() :]}" if parts else None


def check_here(image: Path) -> None:
    """Raise InvalidInputError for a path that is the URL of a web file.

    Nothing is fetched from there.
    """
    if url := web_url(image):
        advice = f"download it first, as `curl -O {shlex.quote(url)}` does, and give the path of the file"
        raise InvalidInputError("unreadable", f"{url!r} is on the web, and nothing is fetched from there: {advice}")


@dataclass(frozen=True, init=False, repr=False)
class Document(HtmlDisplay):
    """A document that is indexed and found: a text, an image or both.

    Values are taken as people have them. Numpy scalars become Python's, dates become ISO 8601, and durations seconds.
    Lists and arrays of strings become tuples without duplicates. None, NaN, NaT and empty lists are left out. Metadata
    that no store keeps, such as bytes, are left out and counted: ``unread`` is ``1 shape value``. Nothing else is
    checked here. Indexing reports a document that stores cannot keep.

    Args:
        id: Id in an index: 1 to 1,024 bytes without control characters. By default, it is a digest of the text, the
            image and the metadata; of an image that is a file, its path counts.
        text: Text.
        image: Image: a path, encoded bytes, a PIL image or an array of pixels. Stores keep images that are paths. A
            path may name a part of a file, as `Part` writes it: a page of a PDF, or a region of an image. The image of
            a document on a server is a `RemoteImage`.
        metadata: Values that searches can filter on: strings, numbers, bools and lists of at most 1,000 strings. At
            most 1,000 keys of 128 characters, and 1 MiB of keys and strings.
        readers: Who may read the document through `Index.restricted`: at most 1,000 names of 256 bytes, such as
            ``group:hr``. They become the metadata's ``readers``. None leaves those as they are: a document without any
            is for everyone. An empty list is for nobody, ``*`` for everyone, whatever readers the index has.

    Attributes:
        id: Id.
        text: Text; None for none.
        image: Image, with strings as paths and pixels as a PIL image; None for none.
        metadata: Values that searches can filter on, by their keys.

    Example:
        >>> from datetime import date
        >>> document = Document("a", text="a dog", metadata={"day": date(2024, 5, 1), "rating": float("nan")})
        >>> dict(document.metadata), len(Document(text="a dog").id)
        ({'day': '2024-05-01'}, 32)
    """

    id: str
    text: str | None = None
    image: ImageSource | RemoteImage | None = None
    metadata: Mapping[str, MetadataValue] = field(default_factory=FrozenDict)

    def __init__(
        self,
        id: str | None = None,
        text: str | None = None,
        image: ImageInput | RemoteImage | None = None,
        metadata: Mapping[str, object] | None = None,
        readers: Iterable[str] | None = None,
    ) -> None:
        text = text if type(text) in (str, list) else plain_value(text)  # a list of texts is an error
        if not isinstance(image, (Path, bytes, RemoteImage, type(None))):
            given: Any = plain_value(image)  # a missing one in a column of a table
            image = None if given is None else source_of(given)
        if metadata is None:
            metadata = _NO_METADATA
        elif isinstance(metadata, Mapping):
            named = metadata.get(READERS)
            metadata = plain_mapping(metadata)
            if named is not None and READERS not in metadata and _is_some(named):  # what was lost opens nothing
                metadata = {**metadata, READERS: reader_names(named if isinstance(named, (set, frozenset)) else ())}
        if type(id) is not str:
            id = plain_value(id)
            id = _digest(text, image, metadata) if id is None else id
        if readers is not None:
            metadata = {**metadata, READERS: reader_names(readers)}
        vars(self).update(id=id, text=text, image=image, metadata=metadata)

    def __repr__(self) -> str:
        given = [brief(self.id)]
        given += [f"text={brief(self.text)}"] if self.text is not None else []
        given += [f"image={_brief_image(self.image)}"] if self.image is not None else []
        given += [f"metadata={_brief_mapping(self.metadata)}"] if self.metadata else []
        return f"{type(self).__name__}({', '.join(given)})"

    @classmethod
    def __get_pydantic_core_schema__(cls, *_: object) -> Mapping[str, object]:
        """Return a schema by which pydantic and FastAPI write documents.

        They read none: a path from outside would name a file of this machine.
        """
        fields = {"type": "function-plain", "function": _valid_vars, "return_schema": {"type": "dict"}}
        return {"type": "is-instance", "cls": cls, "serialization": fields}

    @property
    def part(self) -> Part | None:
        """Return the part of a file that this is.

        None for a whole file, or a document without one.
        """
        return part_of(self.id)

    @property
    def readers(self) -> frozenset[str] | None:
        """Return who may read the document through `Index.restricted`.

        None for everyone; nobody for an empty set, or where the metadata's ``readers`` are no names.
        """
        value = self.metadata.get(READERS)
        names = frozenset((value,) if isinstance(value, str) else value if isinstance(value, tuple) else ())
        return None if value is None or EVERYONE in names else names - {_NOBODY}


_NO_METADATA: Mapping[str, MetadataValue] = FrozenDict()


def _digest(text: object, image: object, metadata: object) -> str:
    """Return the id of a document that has none: 32 hexadecimal digits."""
    content = hashlib.sha256()
    if isinstance(image, bytes):
        content.update(image)
    elif is_picture(image):
        content.update(_pixels(image))
    elif image is not None:
        content.update(f"{type(image).__name__} {image}".encode("utf-8", "surrogatepass"))
    pairs = sorted(map(repr, metadata.items())) if isinstance(metadata, Mapping) else repr(metadata)
    form = json.dumps([text if isinstance(text, str) else repr(text), content.hexdigest(), pairs])
    return hashlib.sha256(form.encode()).hexdigest()[:32]


def _pixels(image: Any) -> bytes:
    """Return the pixels of a PIL image, with its form.

    It is the form alone where they cannot be read, as indexing says.
    """
    from vlmsearch._util.pillow import STRICT

    form = f"{image.mode} {image.size} {getattr(image, 'filename', '')}".encode("utf-8", "surrogatepass")
    try:
        with STRICT.held():
            return form + bytes(image.tobytes())
    except Exception:  # noqa: BLE001 - what Pillow's plugins raise
        return form


def check_types(document: Document) -> None:
    """Raise InvalidInputError where a part of a document has a wrong type."""
    if not isinstance(document.text, (str, type(None))):
        raise InvalidInputError("invalid", f"the text is a string, not {type(document.text).__name__}")
    if document.image is not None and (problem := image_problem(document.image)):
        raise InvalidInputError("invalid", problem)
    if not isinstance(document.metadata, Mapping):
        raise InvalidInputError("invalid", f"the metadata are a mapping, not {type(document.metadata).__name__}")


def _brief_image(image: object) -> str:
    size = getattr(image, "size", None)  # of an image of Pillow
    if isinstance(image, (Path, RemoteImage)):
        return brief(str(image))
    return f"<image of {size[0]} x {size[1]}>" if isinstance(size, tuple) else brief(image)


def _brief_mapping(values: Mapping[str, object]) -> str:
    """Return the first pairs of a mapping as Python writes them, cut."""
    pairs = [f"{brief(key)}: {brief(value)}" for key, value in itertools.islice(values.items(), _MAX_SHOWN)]
    more = [f"... {len(values) - _MAX_SHOWN:,} more"] if len(values) > _MAX_SHOWN else []
    return f"{{{', '.join([*pairs, *more])}}}"


@dataclass(frozen=True)
class Stamp:
    """The origin and version of a document, by which indexing skips what did not change.

    Attributes:
        digest: Checksum of the text, the metadata and the bytes or path of the image.
        source: File or table that the document was read from; "" when it was added from Python.

    Example:
        >>> Stamp("d41d8cd9", "photos/a.jpg").source
        'photos/a.jpg'
    """

    digest: str
    source: str = ""


@dataclass(frozen=True)
class Passage:
    r"""A passage of a document's text, which is longer than a model reads.

    Attributes:
        number: Number of the passage in its document, from 1.
        start: Its first character in the text, from 0.
        end: The character behind its last one.
        heading: Heading above it; "" for none. It is encoded in front of the passage.
        text: Its characters of the document's text.

    Example:
        >>> passage = Passage(2, 120, 146, "Keys", "The safe has the code 4471")
        >>> passage.encoded
        'Keys\n\nThe safe has the code 4471'
    """

    number: int
    start: int
    end: int
    heading: str
    text: str

    @property
    def encoded(self) -> str:
        """Return what is encoded of it, and whose words are compared: its heading, and its text."""
        return f"{self.heading}\n\n{self.text}" if self.heading else self.text

    @property
    def place(self) -> str:
        """Return where it is, in words: ``Keys, characters 1,200-2,050``."""
        return ", ".join(filter(None, (self.heading, f"characters {self.start:,}-{self.end:,}")))


@dataclass(frozen=True, repr=False)
class EncodedPassage:
    """A passage with its vectors.

    Attributes:
        passage: The passage.
        vectors: A vector of length one for each field of its text, of shape (dim,).

    Example:
        >>> EncodedPassage(Passage(1, 0, 5, "", "a dog"), {}).passage.number
        1
    """

    passage: Passage
    vectors: Mapping[Field, NDArray[np.float32]]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.passage.number}, {brief(self.passage.text)})"


@dataclass(frozen=True, repr=False)
class Record:
    """A document as a store keeps it.

    Attributes:
        document: The document.
        vectors: A vector of length one for each field, of shape (dim,). A document with passages has none of its text.
        stamp: Origin and version of the document.
        fingerprint: Fingerprint of the encoder that made the vectors; "" where the caller answers for it.
        passages: Passages of its text, which cover it in order; none where the text is encoded as a whole.

    Example:
        >>> import numpy as np
        >>> vector = np.array([0.6, 0.8], np.float32)
        >>> record = Record(Document("a", text="a dog"), {Field("tiny", "text"): vector})
        >>> record.vectors[Field("tiny", "text")].shape
        (2,)
    """

    document: Document
    vectors: Mapping[Field, NDArray[np.float32]]
    stamp: Stamp = Stamp("")
    fingerprint: str = ""
    passages: tuple[EncodedPassage, ...] = ()

    def __repr__(self) -> str:
        dims = {str(field): len(vector) for field, vector in self.vectors.items()}
        passages = f", passages: {len(self.passages):,}" if self.passages else ""
        return f"{type(self).__name__}({self.document!r}, dimensions of vectors: {dims}{passages})"

    def vectors_of(self, field: Field) -> list[NDArray[np.float32]]:
        """Return the vectors of a field: that of the document, and those of its passages.

        Args:
            field: The field.

        Returns:
            The vectors; none where it has none.
        """
        parts = (self.vectors, *(passage.vectors for passage in self.passages))
        return [vectors[field] for vectors in parts if field in vectors]


@dataclass(frozen=True)
class MetadataChange:
    """A change of a document's metadata, which holds while the document is as it was read.

    Attributes:
        document: The document as it was read.
        stamp: Its stamp as it was read.
        metadata: New metadata.
        digest: New digest of its stamp.
        text: New text; None leaves it as it is.
        vectors: Vectors of the new text, by field; the others stay.
        passages: Passages of the new text; without a new text, those of the document stay.

    Example:
        >>> read = Document("a", "a dog", metadata={"year": 2020})
        >>> MetadataChange(read, Stamp("1a2b"), {"year": 2021}, "1a2b+3c").metadata["year"]
        2021
    """

    document: Document
    stamp: Stamp
    metadata: Mapping[str, MetadataValue]
    digest: str
    text: str | None = None
    vectors: Mapping[Field, NDArray[np.float32]] = field(default_factory=FrozenDict)
    passages: tuple[EncodedPassage, ...] = ()

    def of(self, document: Document) -> Document:
        """Return a document as the change makes it.

        Args:
            document: Document as it was read.

        Returns:
            The document with the new metadata and text.
        """
        text = document.text if self.text is None else self.text
        return replace(document, text=text, metadata=dict(self.metadata))


@dataclass(frozen=True)
class Reject:
    """An input that could not be used, as the reject list of an index keeps it.

    Attributes:
        id: Id of the document, file or row.
        code: Reason in one word.
        message: Reason in one line.
        stamp: Version of the input that failed. It is tried again when that changes.

    Example:
        >>> Reject("photos/a.jpg", "truncated", "a.jpg ends early").code
        'truncated'
    """

    id: str
    code: RejectCode
    message: str
    stamp: Stamp = field(default=Stamp(""), metadata={HIDDEN: True})


@dataclass(frozen=True)
class Manifest:
    """The encoder and the settings that built an index.

    Attributes:
        fingerprint: Fingerprint of the encoder.
        spaces: Spaces of the encoder.
        created: Time of the first write, in ISO 8601 and UTC.
        language: Language by which words are compared: its code, ``none`` or ``parts``; "" where words are not ranked.
        tuning: Values that searches use in place of defaults: weights of fields by their names, and the lowest
            relevance of a match, ``min_score``.
        statistics: Values that were computed of the documents, by names, and that searches need.

    Example:
        >>> space = Space("minilm", 384, frozenset({"text"}))
        >>> Manifest("minilm:5b3c", (space,), "2025-01-31T12:00:00+00:00").spaces[0].dim
        384
    """

    fingerprint: str
    spaces: tuple[Space, ...]
    created: str
    language: str = ""
    tuning: Mapping[str, float] = field(default_factory=FrozenDict)
    statistics: Mapping[str, Sequence[float]] = field(default_factory=FrozenDict, compare=False)


@dataclass(frozen=True)
class Hit:
    """A document that a field found.

    Attributes:
        id: Id of the document, or of its passage.
        score: Cosine of its vector with the query's, from -1 to 1; of ``words`` the BM25, above 0.

    Example:
        >>> max([Hit("a", 0.31), Hit("b", 0.27)], key=lambda hit: hit.score).id
        'a'
    """

    id: str
    score: float


@dataclass(frozen=True)
class WordHits:
    """The documents that share words with a query, and the scale of their scores.

    Attributes:
        hits: Documents, best first, each with its BM25, which is above 0.
        max_score: Upper bound of the BM25 for this query; 0 if the query has no words. A document that says all its
            words often comes close to it. Words that are nowhere in the index count, too: a query that is half unknown
            reaches half of it.

    Example:
        >>> words = WordHits([Hit("a", 2.5)], max_score=10.0)
        >>> words.hits[0].score / words.max_score
        0.25
    """

    hits: list[Hit]
    max_score: float


@dataclass(frozen=True)
class FieldScore:
    """The score of a match in one field.

    Attributes:
        rank: Rank in the field, 1 for the best, by what the search compared: in `sqlite:` codes, whose order may differ
            for nearly equal cosines. None for a rank that was not looked at.
        score: Cosine with the query, from -1 to 1; of ``words`` the BM25, above 0.
        evidence: Log-odds (nats) that the field adds: above 0 for the match, below 0 against it.

    Example:
        >>> FieldScore(rank=1, score=0.31, evidence=2.4).evidence
        2.4
    """

    rank: int | None
    score: float
    evidence: float = 0.0


@dataclass(frozen=True, repr=False)
class Match(HtmlDisplay):
    """A document that a search found, with its scores.

    Attributes:
        document: Document, as it was when its vectors were compared.
        score: Relevance: the probability, from 0 to 1, that the document is what was asked for.
        fields: Scores in the fields, by their names, such as ``clip/image`` and ``words``.
        parts: Scores of the other relevant parts of the same file, their passages, and the file itself, by their ids,
            best first. Where the search shows every part, they are the other passages of the document.
        passage: Passage that fits best, of a document with a long text; its number, place and words are for people.

    Example:
        >>> fields = {"clip/image": FieldScore(1, 0.31, 4.9), "words": FieldScore(2, 4.7, 1.2)}
        >>> match = Match(Document("a"), 0.93, fields)
        >>> [f"{name} #{field.rank}" for name, field in match.fields.items()]
        ['clip/image #1', 'words #2']
    """

    document: Document = field(metadata={SPREAD: True})
    score: float
    fields: Mapping[str, FieldScore]
    parts: Mapping[str, float] = field(default_factory=FrozenDict)
    passage: Passage | None = None

    def __repr__(self) -> str:
        ranks = "".join(
            f", {plain(name)} #{field.rank}" for name, field in self.fields.items() if field.rank is not None
        )
        return f"{type(self).__name__}({self.score:.3f}, {self.document!r}{ranks})"


@dataclass(frozen=True, repr=False)
class Matches(Sequence[Match], HtmlDisplay):
    """The matches of a search as a sequence, best first.

    Attributes:
        matches: Matches of this page.
        cursor: Start of the next page, for ``search(..., cursor=)``; None at the end.
        closest: Up to three documents that come closest where nothing matches: one of them may be what was asked for.
            Empty on later pages, and where `min_score` is given.
        threshold: Score that a document must reach to be shown.
        total: Number of relevant documents; None without ``count``, ``facets`` or ``sort``. A store that is not
            `sqlite:`, or a re-ranker, counts up to 10,000.
        facets: Number of relevant documents by value, for each key of ``facets``.
        uncalibrated: Fields whose documents are unlike what their model is made for, with a line that says why. Scores
            still order the matches, but they are no probabilities.
        shown_for: Words of the query that no document holds, each with the word of the index that was searched for in
            its place.
        unknown_keys: Keys of the filter that no document has, each with a line that names those that there are. They
            are looked for where nothing matches.

    Example:
        >>> matches = Matches((Match(Document("a"), 0.9, {}),), threshold=0.5)
        >>> len(matches), matches[0].document.id, matches.cursor
        (1, 'a', None)
    """

    matches: tuple[Match, ...] = ()
    cursor: str | None = field(default=None, kw_only=True)
    closest: tuple[Match, ...] = field(default=(), kw_only=True)
    threshold: float = field(default=0.0, kw_only=True)
    total: int | None = field(default=None, kw_only=True)
    facets: Mapping[str, Mapping[Scalar, int]] = field(default_factory=FrozenDict, kw_only=True)
    uncalibrated: Mapping[str, str] = field(default_factory=FrozenDict, kw_only=True)
    shown_for: Mapping[str, str] = field(default_factory=FrozenDict, kw_only=True)
    unknown_keys: Mapping[str, str] = field(default_factory=FrozenDict, kw_only=True)

    @property
    def spelling(self) -> str:
        """Return a line that says which words were searched for in the place of misspelt ones.

        It also says which keys of the filter no document has. It is "" where there are neither.
        """
        words = ", ".join(f"{word} (no document has {typed})" for typed, word in self.shown_for.items())
        return " ".join([f"Shown for {words}."] * bool(words) + [f"{line}." for line in self.unknown_keys.values()])

    def __repr__(self) -> str:
        of = f" of {self.total:,}" if self.total is not None else ""
        lines = [f"{match.score:.3f} {match.document!r}" for match in self.matches[:_MAX_SHOWN]]
        lines += [f"... {len(self) - _MAX_SHOWN:,} more"] if len(self) > _MAX_SHOWN else []
        lines += [f"closest, not sure: {match.score:.3f} {match.document!r}" for match in self.closest]
        lines = [self.spelling, *lines] if self.spelling else lines
        head = f"{type(self).__name__}({len(self):,}{of}, shown from {self.threshold:.3g})"
        return "\n  ".join([head, *lines])

    def __len__(self) -> int:
        return len(self.matches)

    @overload
    def __getitem__(self, at: int) -> Match: ...

    @overload
    def __getitem__(self, at: slice) -> tuple[Match, ...]: ...

    def __getitem__(self, at: int | slice) -> Match | tuple[Match, ...]:
        return self.matches[at]


@dataclass(frozen=True)
class RelevanceFit:
    """A fit of the relevance of a document to a text, by their vectors' cosine.

    Relevance is the probability that the document is what the text asks for.

    The log-odds are ``bias + cosine * c + mean * m + rivals * r``, where c is the cosine. The others are of the text's
    cosines with documents of the index, below ``near``: m is their median, r the mean of the 2nd to the 5th highest.
    A logistic regression on labelled pairs gives the numbers (Platt, "Probabilistic outputs for support vector
    machines", 1999, with two more inputs).

    Attributes:
        bias: Constant of the log-odds.
        cosine: Weight of the cosine, above 0.
        mean: Weight of the median of the index's cosines.
        rivals: Weight of the highest of them.
        near: Cosine from which on a document is an answer rather than background.
        usual_mean: Median among the documents of the fit, for an index with few documents.
        usual_deviation: Standard deviation among them. The usual rivals are two of it above the median.

    Example:
        >>> fit = RelevanceFit(-7.0, 20.0, 0.0, 0.0, 0.5, 0.05, 0.1)
        >>> fit.bias + fit.cosine * 0.5
        3.0
    """

    bias: float
    cosine: float
    mean: float
    rivals: float
    near: float
    usual_mean: float
    usual_deviation: float


@dataclass(frozen=True)
class Citation:
    """A source that an answer refers to as ``[number]``.

    Attributes:
        number: Number in the text, from 1.
        id: Id of the document.
        passage: Id of the passage that was read first, of a document with a long text.

    Example:
        >>> Citation(1, "handbook", "handbook#passage=3").number
        1
    """

    number: int
    id: str
    passage: str | None = None


@dataclass(frozen=True)
class ReadText:
    """The part of a source's text that a generator read.

    Attributes:
        passages: Numbers of the passages that it read, of a document with a long text.
        count: Number of passages that the document has; 0 for none.
        unread: Number of characters of the text that it did not read.

    Example:
        >>> ReadText((3, 4), 12, 10_400).name
        'passages 3, 4 of 12; 10,400 characters not read'
    """

    passages: tuple[int, ...] = ()
    count: int = 0
    unread: int = 0

    @property
    def name(self) -> str:
        """Return what was read and what was not in words; "" for a whole text."""
        if not self.unread:
            return ""
        word = "passages" if len(self.passages) > 1 else "passage"
        numbers = f"{word} {', '.join(map(str, self.passages))} of {self.count:,}; " if self.passages else ""
        return f"{numbers}{self.unread:,} characters not read"


@dataclass(frozen=True, repr=False)
class Answer(HtmlDisplay):
    """The answer to a question, with its sources.

    Attributes:
        text: Text of the answer.
        citations: Sources that the text refers to, in the order of their first use.
        matches: Sources that the model read, best first.
        dropped: Weaker matches that did not fit into ``source_chars``, or into the model's context.
        removed: Numbers that the model cited and that are no source. They are not in the text.
        is_unsure: Whether nothing matches the question, so that the sources are what comes closest to it.
        read_as: How the generator read each source, by its id: as a ``picture``, as a ``text``, as ``both``, or as
            ``neither``, which is by the name of its picture alone.
        prompt_tokens: Number of tokens that the generator read, those of pictures among them; None where it is unknown.
        read: Part that the generator read of each source with a text, by its id.

    Example:
        >>> Answer("Yes [1].", (Citation(1, "a"),), (Match(Document("a"), 1.0, {}),)).citations[0].id
        'a'
    """

    text: str
    citations: tuple[Citation, ...]
    matches: tuple[Match, ...]
    dropped: tuple[Match, ...] = ()
    removed: tuple[int, ...] = ()
    is_unsure: bool = False
    read_as: Mapping[str, Reading] = field(default_factory=FrozenDict)
    prompt_tokens: int | None = None
    read: Mapping[str, ReadText] = field(default_factory=FrozenDict)

    def __repr__(self) -> str:
        cited = _brief_mapping({str(citation.number): citation.id for citation in self.citations})
        return f"{type(self).__name__}({brief(self.text, 200)}, citations={cited}, {len(self.matches)} sources)"


class AnswerParts(Closable, Iterator[Union[str, Citation]], ABC):
    """An answer as it is made: an iterator over pieces of its text, then its citations.

    `Index.ask` with ``stream=True`` makes one. Closing it, or leaving the ``with`` block, stops the generator. Use it
    from one thread.

    Attributes:
        matches: Sources, best first. They are known from the first piece of the text on.

    Example:
        >>> from vlmsearch import Document, Pipeline
        >>> with Pipeline.open(encoder="mock:", store="mock:") as pipeline:
        ...     _ = pipeline.add(Document("a", text="The dog is called Laika."))
        ...     with pipeline.ask("What is the dog called?", stream=True) as parts:
        ...         text = "".join(part for part in parts if isinstance(part, str))
        ...         answer = parts.answer()
        >>> text == answer.text, answer.citations[0].id
        (True, 'a')
    """

    matches: tuple[Match, ...]

    @abstractmethod
    def answer(self) -> Answer:
        """Return the whole answer, after reading what is left of it.

        After `close`, it is what there was until then.

        Returns:
            The answer with its sources.

        Raises:
            BackendError: The generator failed, or the server went away.
        """


@dataclass(frozen=True)
class DocumentLabels:
    """A document with the labels that fit it.

    Attributes:
        document: Document as it is in the index.
        labels: Relevance of each label, from 0 to 1, the highest first.
        written: Whether this run put other labels into the index than were there.

    Example:
        >>> next(iter(DocumentLabels(Document("a"), {"cat": 0.97, "sofa": 0.44}).labels))
        'cat'
    """

    document: Document
    labels: Mapping[str, float]
    written: bool = False


@dataclass(frozen=True)
class ImageFile:
    """The image file of a document. All numbers are 0 for a file that is gone.

    Attributes:
        id: Id of the document.
        path: Path of the file; a `RemoteImage` for a file of a server.
        width: Width in pixels, as the image lies in the file.
        height: Height in pixels, as the image lies in the file.
        bytes: Size of the file.
        modified: Time of the last write, in seconds since 1970.

    Example:
        >>> ImageFile("a", Path("photos/a.jpg"), 4032, 3024, 2_481_002, 1704067200.0).width
        4032
    """

    id: str
    path: Path | RemoteImage
    width: int
    height: int
    bytes: int
    modified: float


@dataclass(frozen=True)
class DuplicateGroup:
    """A group of duplicate images.

    Attributes:
        files: Two files or more, by falling number of pixels, then of bytes: the first is the largest.

    Example:
        >>> large = ImageFile("a", Path("a.png"), 800, 600, 90_000, 1704067200.0)
        >>> small = ImageFile("b", Path("b.jpg"), 400, 300, 20_000, 1672531200.0)
        >>> group = DuplicateGroup((large, small))
        >>> group.files[0].id, group.oldest.id
        ('a', 'b')
    """

    files: tuple[ImageFile, ...]

    @property
    def oldest(self) -> ImageFile:
        """Return the file that was written first."""
        return min(self.files, key=lambda file: (file.modified or math.inf, file.id))


@dataclass(frozen=True, repr=False)
class Duplicates(HtmlDisplay):
    """The duplicate images of an index.

    Attributes:
        groups: Groups of duplicates, the largest first.
        compared: Number of images that were compared.
        unread: Ids of documents whose images could not be compared, with the reasons: their files are gone, or were not
            kept. Vectors alone do not say whether images are duplicates.

    Example:
        >>> Duplicates((), compared=2).groups
        ()
    """

    groups: tuple[DuplicateGroup, ...]
    compared: int
    unread: tuple[tuple[str, str], ...] = ()

    def __repr__(self) -> str:
        counts = f"{len(self.groups):,} groups, {self.compared:,} compared, {len(self.unread):,} unread"
        return f"{type(self).__name__}({counts})"


@dataclass(frozen=True)
class DescribeReport:
    """The numbers of one run of `Pipeline.describe`.

    Attributes:
        described: Number of pictures that were described and written.
        unchanged: Pictures that this model described before with this prompt, and those on the reject list for it.
        left: Pictures that are still to be described.
        rejects: Pictures that were refused, whose files are gone, or whose descriptions cannot be used.
        seconds: Duration of the run.
        seconds_left: Seconds that the rest will take at this rate.
        prompt_tokens: Number of tokens that the generator read, where it counts them.
        prompt_tokens_left: Number that it will read for the rest.

    Example:
        >>> DescribeReport(described=3, unchanged=2).left
        0
    """

    described: int = 0
    unchanged: int = 0
    left: int = 0
    rejects: tuple[Reject, ...] = ()
    seconds: float = 0.0
    seconds_left: float = 0.0
    prompt_tokens: int = 0
    prompt_tokens_left: int = 0


@dataclass(frozen=True, repr=False)
class IndexReport(HtmlDisplay):
    """The numbers of documents of one run of `Pipeline.add` or `Pipeline.index`.

    Attributes:
        added: New documents.
        updated: Documents that replaced an older version.
        unchanged: Documents that are in the index with the same content, and were skipped.
        pruned: Documents that were removed because their files are gone, or have lost such a part.
        rejects: Inputs that went to the reject list, with those that were skipped because they are on it.
        seconds: Duration of the run.
        unlabelled: Updated documents that lost the labels of their older version.
        left_out: Numbers of files in the folders that an option takes, by the option: see `SourceOptions`.
        passages: Number of passages that the new and updated documents have.
        cut: Documents whose beginning alone the model read, since their passages were not asked for.
        partly_read: New and updated documents of files with parts that were not read.
        unread: Numbers of these parts, by kind, such as ``{"comment": 2, "chart": 1}``.
        partly_read_in_all: Documents of the whole index with such parts. They are counted where a run of `index` meets
            unchanged documents.
        others: Numbers of files in the folders that nothing takes, by ending, and ``(none)`` for no ending. Hidden ones
            do not count.
        files: Documents of the run that are no parts of a file: whole files, rows and what was given.
        repeated: Inputs with the id of an earlier one of the run, which they replaced: rows of tables, for example.

    Example:
        >>> IndexReport(added=3, unchanged=2).seen
        5
    """

    added: int = 0
    updated: int = 0
    unchanged: int = 0
    pruned: int = 0
    rejects: tuple[Reject, ...] = ()
    seconds: float = 0.0
    unlabelled: int = 0
    left_out: Mapping[str, int] = field(default_factory=FrozenDict)
    passages: int = 0
    cut: int = 0
    partly_read: int = 0
    unread: Mapping[str, int] = field(default_factory=FrozenDict)
    partly_read_in_all: int = 0
    others: Mapping[str, int] = field(default_factory=FrozenDict)
    files: int = 0
    repeated: int = 0

    def __repr__(self) -> str:
        counts = [f"{name}={count:,}" for name, count in self.counts().items()]
        why = [f"{brief(reject.id)} {reject.code}" for reject in self.rejects[:_MAX_SHOWN]]
        why += [f"... {len(self.rejects) - _MAX_SHOWN:,} more"] if len(self.rejects) > _MAX_SHOWN else []
        said = f": {', '.join(why)}" if why else ""
        return f"{type(self).__name__}({', '.join([*counts, f'seconds={self.seconds:.1f}'])}){said}"

    def counts(self) -> dict[str, int]:
        """Return the counts that are not 0, by the names of the fields.

        Returns:
            The counts; of a field that lists inputs, their number, and of one with numbers by kind, their sum.
            ``files`` is among them where the run met parts of files.

        Example:
            >>> IndexReport(added=3, rejects=(Reject("a.jpg", "truncated", "a.jpg ends early"),)).counts()
            {'added': 3, 'rejects': 1}
        """
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        counts = {name: len(value) if isinstance(value, tuple) else value for name, value in values.items()}
        counts |= {name: sum(value.values()) for name, value in values.items() if isinstance(value, Mapping)}
        counts["files"] = self.files if self.files != self.indexed else 0
        return {name: count for name, count in counts.items() if isinstance(count, int) and count}

    @property
    def seen(self) -> int:
        """Return the number of inputs that the run looked at."""
        return self.indexed + len(self.rejects)

    @property
    def indexed(self) -> int:
        """Return the number of documents that the index has from the run."""
        return self.added + self.updated + self.unchanged


def __getattr__(name: str) -> object:
    """Return `Vectors` when it is asked for: numpy, which it takes, is not loaded before something needs it."""
    if name == "Vectors":
        import numpy as np
        from numpy.typing import NDArray

        return NDArray[np.float32]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
