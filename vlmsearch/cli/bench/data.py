"""Images, texts and options for the commands of `vlmsearch bench`."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from vlmsearch.bench.llm import Level
    from vlmsearch.bench.triton import TritonLevel


def read_texts(path: Path | None, count: int) -> list[str]:
    """Read up to ``count`` texts: cells of a CSV file, lines of another file, or sentences of the package."""
    from vlmsearch.errors import ConfigError

    if path is None:
        from vlmsearch.building.data import sentences

        return sentences()[:count]
    try:
        with path.open(encoding="utf-8", newline="") as file:
            if path.suffix.lower() == ".csv":
                texts = [cell for row in csv.reader(file) for cell in row if " " in cell.strip()]
            else:
                texts = [line.strip() for line in file if line.strip()]
    except (OSError, UnicodeDecodeError, csv.Error) as exc:
        raise ConfigError(f"{path} cannot be read as text: {exc}") from exc
    if not texts:
        raise ConfigError(f"{path} holds no texts")
    return texts[:count]


def read_images(folder: Path | None, count: int) -> list[bytes]:
    """Read up to ``count`` JPEG files of a folder, or draw scenes."""
    from io import BytesIO

    from vlmsearch.demo.scenes import make_scene
    from vlmsearch.errors import ConfigError

    if folder is not None:
        paths = sorted(path for path in folder.rglob("*") if path.suffix.lower() in (".jpg", ".jpeg"))[:count]
        if not paths:
            raise ConfigError(f"{folder} holds no JPEG files")
        return [_sound(path) for path in paths]
    files = []
    for seed in range(count):
        file = BytesIO()
        make_scene(seed).draw(512).save(file, "JPEG", quality=90)
        files.append(file.getvalue())
    return files


def _sound(path: Path) -> bytes:
    """Return the bytes of an image after decoding it; InvalidInputError names a damaged file."""
    from vlmsearch.media.images import open_image, read_image

    open_image(path, at_least=1)
    return read_image(path)


def numbers(text: str) -> list[int]:
    """Return the numbers of a string such as ``1,4,16``, for the type of an option."""
    parts = text.split(",")
    if not all(part.isdecimal() and int(part) for part in parts):
        raise click.BadParameter(f"numbers with a comma between them, such as 1,4,16, not {text}")
    return [int(part) for part in parts]


def print_errors(levels: Sequence[Level | TritonLevel], prefix: str = "") -> None:
    """Print the errors of each level with their counts."""
    for level in levels:
        for message, times in level.errors:
            click.echo(f"{prefix}{times} times at {level.concurrency}: {message}", err=True)
