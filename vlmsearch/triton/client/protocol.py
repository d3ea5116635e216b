"""What client and server agree on: the names of models, tensors and parameters, and how one bad item is reported."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import get_args

from vlmsearch.errors import ConfigError, InvalidInputError, RejectCode
from vlmsearch.media.limits import ImageLimits
from vlmsearch.media.preprocess import Preprocess
from vlmsearch.types import Modality, RelevanceFit, Role, Space

FORMAT = 6
ENSEMBLE = "vlm"
PREPROCESS = "image_preprocess"
TOKENIZE = "text_tokenize"
DEPLOYMENT = "vlmsearch"
"""The ensemble's parameter that describes it, as JSON; see `Deployment`."""
FINGERPRINT = "fingerprint"
"""The parameter of every other model: that of the bundle it was made from. In a request: what the client expects."""
MISMATCH = "this server has other models: "
"""The beginning of the error of a server that the client does not expect."""

IMAGE = "IMAGE"
"""Encoded images, BYTES [1]."""
TEXT = "TEXT"
"""UTF-8 texts, BYTES [1]."""
ROLE = "ROLE"
"""The role of a text, ``query`` or ``document``, BYTES [1]; a document without it."""
STATUS = "IMAGE_STATUS"
"""BYTES [1]: empty, or why an image has no vector; its row is then of no use."""
PARTIAL = "partial"
"""The parameter of a request that looks at ``IMAGE_STATUS``. Without it, a bad image fails its whole request."""
ENCODED = "encoded"
"""Encoded images between the models of the ensemble."""
NO_IMAGE = b"\0no image: "
"""The beginning of what stands for an encoded image where a request has none: what to tell it follows."""
PIXELS = "pixels"
IDS = "input_ids"
MASK = "attention_mask"
EMBEDDING = "embedding"
RERANKER = "reranker"
QUERY = "QUERY"
"""The query that a re-ranker compares with each text, UTF-8, BYTES [1]."""
PROBABILITY = "PROBABILITY"
"""The probability of each text from a re-ranker, FP32 [1]."""


def image_model(space: str) -> str:
    """Return the model, and in upper case the ensemble's output, of an image tower."""
    return f"{_word(space)}_image"


def text_model(space: Space) -> str:
    """Return the model, and in upper case the ensemble's output, of a text tower."""
    return f"{_word(space.name)}_text" if "image" in space.modalities else _word(space.name)


def ids_tensor(space: str) -> str:
    """Return the token ids of one space between the models of the ensemble."""
    return f"{_word(space).upper()}_IDS"


def mask_tensor(space: str) -> str:
    """Return the attention mask that goes with `ids_tensor`."""
    return f"{_word(space).upper()}_MASK"


def tokens_tensor(space: str) -> str:
    """Return the ensemble's output with the number of tokens of each whole text, INT32 [1]."""
    return f"{_word(space).upper()}_TOKENS"


def _word(space: str) -> str:
    return re.sub(r"\W", "_", space)


def status_of(error: InvalidInputError) -> str:
    """Return one refused item as the status output has it."""
    return f"{error.code}: {error}"


def texts_too_large(size: int, max_bytes: int) -> str:
    """Return why texts of ``size`` bytes in one request are refused.

    It is "" where the server takes that many.
    """
    return (
        f"too_large: the text has {size:,} bytes; this server takes {max_bytes:,} in a request"
        if size > max_bytes
        else ""
    )


def refusal(statuses: Sequence[str], parameters: str) -> str | None:
    """Return why a request fails as a whole, or None.

    ``statuses`` are those of its images, ``parameters`` its parameters as JSON.
    """
    bad = next((item for item, status in enumerate(statuses) if status), None)
    if bad is None or json.loads(parameters or "{}").get(PARTIAL):
        return None
    return f"image {bad}: {statuses[bad]} (with the parameter {PARTIAL} the other images get their vectors)"


def error_of(status: str) -> InvalidInputError:
    """Return the error that `status_of` wrote."""
    code, _, message = status.partition(": ")
    known: RejectCode = code if code in get_args(RejectCode) else "corrupt"  # type: ignore[assignment]
    return InvalidInputError(known, message)


@dataclass(frozen=True)
class Deployment:
    """The description of an ensemble, as its parameter says.

    ``dims`` are the lengths that each space's vectors may be cut to. ``rooms`` are the tokens of a text that each
    space's model reads, by role. ``towers`` are the fingerprints that the models must have. ``image_limits`` are those
    of the images that the server takes. All texts of a request have up to ``max_text_bytes``: while they are split into
    tokens, others wait.
    """

    fingerprint: str
    spaces: tuple[Space, ...]
    dims: Mapping[str, Sequence[int]]
    preprocess: Preprocess | None
    rooms: Mapping[str, Mapping[Role, int]]
    relevance: Mapping[tuple[str, Modality], RelevanceFit]
    towers: Mapping[str, str]
    image_limits: ImageLimits
    max_text_bytes: int

    def to_json(self) -> str:
        """Return the value of the parameter."""
        return json.dumps(
            {
                "format": FORMAT,
                "fingerprint": self.fingerprint,
                "spaces": [[space.name, space.dim, sorted(space.modalities)] for space in self.spaces],
                "dims": {space: list(dims) for space, dims in self.dims.items()},
                "preprocess": asdict(self.preprocess) if self.preprocess else None,
                "rooms": {space: dict(rooms) for space, rooms in self.rooms.items()},
                "relevance": [[space, modality, asdict(fit)] for (space, modality), fit in self.relevance.items()],
                "towers": dict(self.towers),
                "image_limits": asdict(self.image_limits),
                "max_text_bytes": self.max_text_bytes,
            }
        )

    @classmethod
    def from_json(cls, text: str) -> Deployment:
        """Return what `to_json` wrote; ConfigError where this version cannot read it."""
        try:
            data = json.loads(text)
            if data["format"] != FORMAT:
                raise ConfigError(
                    f"the server's models are of format {data['format']}, and this version reads {FORMAT}: make the "
                    "repository again with `vlmsearch triton repo`"
                )
            return cls(
                fingerprint=data["fingerprint"],
                spaces=tuple(Space(name, dim, frozenset(kinds)) for name, dim, kinds in data["spaces"]),
                dims=data["dims"],
                preprocess=Preprocess(**data["preprocess"]) if data["preprocess"] else None,
                rooms=data["rooms"],
                relevance={(space, kind): RelevanceFit(**fit) for space, kind, fit in data["relevance"]},
                towers=data["towers"],
                image_limits=ImageLimits(**data["image_limits"]),
                max_text_bytes=data["max_text_bytes"],
            )
        except (ValueError, KeyError, TypeError, RecursionError) as exc:
            if isinstance(exc, ConfigError):
                raise
            raise ConfigError(f"the server's description of its models cannot be read: {exc!r}") from exc
