"""The values that vlmsearch takes and gives: all frozen, all plain data."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal, TypeAlias, Union

import numpy as np
from numpy.typing import NDArray

from vlmsearch.errors import InvalidInputError, RejectCode

if TYPE_CHECKING:
    import PIL.Image

Modality = Literal["text", "image"]
Role = Literal["query", "document"]
Scalar: TypeAlias = Union[str, int, float, bool]
Vectors: TypeAlias = NDArray[np.float32]
"""Embeddings: float32, shape (n, dim), every row of length one."""
ImageSource: TypeAlias = Union[Path, bytes, "PIL.Image.Image"]
"""A file, encoded bytes, or a decoded image."""

MAX_ID_BYTES = 1024
MAX_KEY_CHARS = 128
MAX_METADATA_KEYS = 1000
MAX_METADATA_BYTES = 2**20
"""Of the keys and texts of one document's metadata, in UTF-8."""
CONTROLS = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
"""Characters that no id and no key has: controls, and halves of surrogate pairs."""
HALVES = re.compile("[\ud800-\udfff]")
"""Halves of surrogate pairs."""
LARGEST_INT = 2**63 - 1


@dataclass(frozen=True, order=True)
class Field:
    """Which vectors of a document: those of one modality in one space, written ``clip/image``."""

    space: str
    modality: Modality

    def __str__(self) -> str:
        return f"{self.space}/{self.modality}"

    @classmethod
    def parse(cls, text: str) -> Field:
        """The field that ``str`` wrote; ValueError for anything else."""
        space, _, modality = text.rpartition("/")
        if not space or modality not in ("text", "image"):
            raise ValueError(f"not a field: {text!r} (expected SPACE/text or SPACE/image)")
        return cls(space, "text" if modality == "text" else "image")


@dataclass(frozen=True)
class Space:
    """One embedding space: its name, the length of its vectors and the modalities that have a tower into it."""

    name: str
    dim: int
    modalities: frozenset[Modality]

    @property
    def fields(self) -> tuple[Field, ...]:
        """The fields that documents can have in this space, image first."""
        return tuple(Field(self.name, modality) for modality in sorted(self.modalities))


def check_id(value: str) -> None:
    """Raise InvalidInputError unless every store can keep ``value`` as an id: 1,024 bytes at most, no controls."""
    try:
        size = len(value.encode())
    except (AttributeError, UnicodeEncodeError):
        raise InvalidInputError("invalid", f"an id must be a text in valid Unicode, not {value!r}") from None
    if not 0 < size <= MAX_ID_BYTES or CONTROLS.search(value):
        raise InvalidInputError("invalid", f"an id has 1 to {MAX_ID_BYTES} bytes, no controls: {value[:60]!r}")


def is_id(value: str) -> bool:
    """Whether `check_id` lets it pass."""
    try:
        check_id(value)
    except InvalidInputError:
        return False
    return True


def check_metadata(metadata: Mapping[str, Scalar]) -> None:
    """Raise InvalidInputError unless every store can keep ``metadata`` and filter on it.

    ``too_large`` for more than 1,000 keys, or more than 1 MiB of keys and texts.
    """
    if len(metadata) > MAX_METADATA_KEYS:
        most = f"a document has at most {MAX_METADATA_KEYS:,}: leave some out"
        raise InvalidInputError("too_large", f"there are {len(metadata):,} keys of metadata; {most}")
    size = 0
    for key, value in metadata.items():
        if not isinstance(key, str) or not 0 < len(key) <= MAX_KEY_CHARS or key[0] == "$" or CONTROLS.search(key):
            raise InvalidInputError(
                "invalid", f"a metadata key has 1 to {MAX_KEY_CHARS} characters, no controls, no $ first: {key!r}"
            )
        if not isinstance(value, (str, int, float)):
            raise InvalidInputError("invalid", f"metadata {key!r} must be a text, number or bool, not {value!r}")
        if isinstance(value, float) and not math.isfinite(value):
            raise InvalidInputError("invalid", f"metadata {key!r} must be a finite number, not {value!r}")
        if isinstance(value, int) and abs(value) > LARGEST_INT:
            raise InvalidInputError("invalid", f"metadata {key!r} does not fit 64 bits: {value}")
        size += sum(len(part.encode("utf-8", "surrogatepass")) for part in (key, value) if isinstance(part, str))
    if size > MAX_METADATA_BYTES:
        most = f"a document has at most {MAX_METADATA_BYTES:,}: what is long goes into its text"
        raise InvalidInputError("too_large", f"the metadata have {size:,} bytes of keys and texts; {most}")


@dataclass(frozen=True)
class Document:
    """What is indexed and found: an id, a text, an image or both, and metadata to filter on.

    ``metadata`` have at most 1,000 keys of 128 characters, and 1 MiB of keys and texts.
    A document that comes out of a store has its image only where it was given as a path.
    """

    id: str
    text: str | None = None
    image: ImageSource | None = None
    metadata: Mapping[str, Scalar] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True)
class Stamp:
    """What an index remembers of a document's origin.

    ``digest`` changes whenever text, metadata or the bytes or path of the image change; ``source`` is the folder,
    file or table that the document was read from ("" when it was added from Python).
    """

    digest: str
    source: str = ""


@dataclass(frozen=True)
class Record:
    """What a store keeps of one document: the document, one vector of shape (dim,) per field, and its stamp.

    ``fingerprint`` is that of the encoder that made the vectors; "" where the caller answers for it.
    """

    document: Document
    vectors: Mapping[Field, NDArray[np.float32]]
    stamp: Stamp = Stamp("")
    fingerprint: str = ""


@dataclass(frozen=True)
class Reject:
    """An input that could not be used, as the quarantine list of an index keeps it."""

    id: str
    code: RejectCode
    message: str
    stamp: Stamp = Stamp("")


@dataclass(frozen=True)
class Manifest:
    """What built an index: the encoder's fingerprint, its spaces, and when (ISO 8601, UTC)."""

    fingerprint: str
    spaces: tuple[Space, ...]
    created: str


@dataclass(frozen=True)
class Hit:
    """One answer of one field: a document's id and the cosine of its vector with the query's, from -1 to 1."""

    id: str
    score: float


@dataclass(frozen=True)
class Leg:
    """How one field ranked a match: its rank there (1 is best) and the raw cosine."""

    rank: int
    cosine: float


@dataclass(frozen=True)
class Match:
    """A found document, its fused score from 0 to 1 (1: first in every asked field that it has), and each leg of it."""

    document: Document
    score: float
    legs: Mapping[Field, Leg]


@dataclass(frozen=True)
class Citation:
    """A source that an answer refers to as ``[number]``."""

    number: int
    id: str


@dataclass(frozen=True)
class Answer:
    """A text, the citations in it in the order of their first use, and the matches it was made from, best first.

    ``dropped`` are weaker matches that did not fit into the model's context. ``removed`` are the numbers that the model
    cited and that are no source; they are not in the text.
    """

    text: str
    citations: tuple[Citation, ...]
    matches: tuple[Match, ...]
    dropped: tuple[Match, ...] = ()
    removed: tuple[int, ...] = ()


@dataclass(frozen=True)
class IndexReport:
    """What one run of `Pipeline.add` did, in documents, and how long it took.

    ``unchanged`` had the same content as in the index; ``rejects`` are the inputs that went to quarantine, old ones
    that were skipped again included.
    """

    added: int = 0
    updated: int = 0
    unchanged: int = 0
    pruned: int = 0
    rejects: tuple[Reject, ...] = ()
    seconds: float = 0.0

    @property
    def seen(self) -> int:
        """Inputs that the run looked at."""
        return self.added + self.updated + self.unchanged + len(self.rejects)
