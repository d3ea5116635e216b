"""How a client forms requests."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from vlmsearch._util.address import has_port
from vlmsearch._util.batching import groups
from vlmsearch.errors import ConfigError
from vlmsearch.types import ImageSource

MAX_BYTES = 16 * 2**20
"""Of inputs in one request, unless a single item has more."""


def split_location(location: str) -> tuple[str, str]:
    """Address and model of ``//host:8001/vlm``; ConfigError says how it is written."""
    address, _, model = location.removeprefix("//").partition("/")
    if not location.startswith("//") or not has_port(address) or not model or "/" in model:
        raise ConfigError(
            f"a Triton server is triton://HOST:PORT/MODEL, such as triton://127.0.0.1:8001/vlm, not {location!r}"
        )
    return address, model


def size_of(image: ImageSource) -> int:
    """Return about how many bytes an image has when it is sent."""
    if isinstance(image, bytes):
        return len(image)
    try:
        return image.stat().st_size if isinstance(image, Path) else 0
    except (OSError, ValueError):
        return 0


def batches(
    items: Sequence[int], sizes: Sequence[int], max_items: int, *, total: int = MAX_BYTES
) -> Iterator[list[int]]:
    """Return ``items`` in order, up to ``max_items`` at a time and ``total`` bytes of them together."""
    return groups(items, sizes, total=total, max_items=max_items)
