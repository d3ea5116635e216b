"""The encoder ``tensorrt:`` as users open it, by its URL: beside ONNX Runtime, and where memory is short."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field

from vlmsearch.encoders.base import Encoder
from vlmsearch.encoders.tensorrt import TensorRTEncoder
from vlmsearch.errors import BackendError
from vlmsearch.registry import open_encoder
from vlmsearch.tensorrt.engine.cuda import DeviceBuffer, OutOfMemoryError, current, free_memory
from vlmsearch.types import Vectors

_SHARES = (0.95, 0.9, 0.85, 0.8, 0.75, 0.7, 0.65, 0.6, 0.55, 0.5)
"""How much of the memory that an encoder holds is left to the next one, attempt by attempt."""
_SPARE = 64 * 2**20
"""What CUDA takes for itself while an engine is opened, in bytes."""


@dataclass(frozen=True)
class Short:
    """An encoder that found ``free_bytes`` of GPU memory: its batches and the least cosine to one that had enough.

    Or ``refused``, why it could not be opened.
    """

    free_bytes: int
    max_batch: Mapping[str, int] = field(default_factory=dict)
    least_cosine: float | None = None
    refused: str = ""


@dataclass(frozen=True)
class Opened:
    """An encoder: the least cosine to ONNX Runtime in float32, what it holds, and how it did with less memory."""

    url: str
    least_cosine: Mapping[str, float]
    memory_bytes: int
    max_batch: Mapping[str, int]
    short: tuple[Short, ...]

    def to_json(self) -> dict[str, object]:
        """All of it, as a report keeps it."""
        return asdict(self)


def measure_encoder(
    location: str, images: Sequence[bytes], texts: Sequence[str], *, precision: str, spare: int = _SPARE
) -> Opened:
    """Encode on both, then again with less and less memory, until the engines do not fit any more.

    ``spare`` is left on top of each share, in bytes.
    """
    with open_encoder(f"onnx:{location}?precision=fp32") as onnx:
        expected = _encode(onnx, images, texts)
    url = f"tensorrt:{location}?precision={precision}"
    with _open(url) as encoder:
        vectors = _encode(encoder, images, texts)
        memory, batches = encoder.memory, _batches(encoder)
    short = []
    for share in _SHARES:
        short.append(_starved(url, int(share * memory) + spare, images, texts, vectors))
        if short[-1].refused:
            break
    cosines = {name: _least_cosine(vectors[name], expected[name]) for name in vectors}
    return Opened(url, cosines, memory, batches, tuple(short))


def _starved(
    url: str, left: int, images: Sequence[bytes], texts: Sequence[str], vectors: Mapping[str, Vectors]
) -> Short:
    """The same encoder where only ``left`` bytes are free."""
    with current(0), DeviceBuffer(max(free_memory() - left, 1)):
        free = free_memory()
        try:
            with _open(url) as encoder:
                found = _encode(encoder, images, texts)
                batches = _batches(encoder)
        except OutOfMemoryError as exc:
            return Short(free, refused=str(exc))
    return Short(free, batches, min(_least_cosine(found[name], vectors[name]) for name in found))


def _open(url: str) -> TensorRTEncoder:
    encoder = open_encoder(url)
    if not isinstance(encoder, TensorRTEncoder):
        encoder.close()
        raise BackendError(f"{url} opened a {type(encoder).__name__}")
    return encoder


def _batches(encoder: TensorRTEncoder) -> dict[str, int]:
    return {" ".join(key): engine.max_batch for key, engine in encoder.engines.items()}


def _encode(encoder: Encoder, images: Sequence[bytes], texts: Sequence[str]) -> dict[str, Vectors]:
    """Vectors by modality and space."""
    found = {f"image {space}": v for space, v in encoder.encode_images(images).items()} if images else {}
    return found | {f"text {space}": v for space, v in encoder.encode_texts(texts).items()}


def _least_cosine(vectors: Vectors, expected: Vectors) -> float:
    return round(float((vectors * expected).sum(axis=1).min()), 6)
