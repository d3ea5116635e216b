"""Documents on their way from the child process that reads a file: see `vlmsearch._util.isolation`.

They cross the pipe as JSON and bytes, several at a time where they are small. Images come in the size that the encoder
takes, where it says how it resizes them: then the pipe carries the pixels of the model, and not pages.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import PIL.Image

from vlmsearch._util.isolation import stream
from vlmsearch._util.messages import Bytes
from vlmsearch.errors import InvalidInputError
from vlmsearch.indexing.items import PartItem, ReadOptions, SourceDocument
from vlmsearch.media.limits import ImageLimits, process_limits
from vlmsearch.media.preprocess import Preprocess
from vlmsearch.models.inputs import to_pixels
from vlmsearch.types import Document, Reject, Stamp

ItemMessage: TypeAlias = "tuple[dict[str, Any], list[Bytes]]"
_TOGETHER = 64
_TOGETHER_BYTES = 2**18
_LONG_TEXT = 4096
"""Characters from which a text crosses the pipe as bytes."""


def received(function: str, value: Mapping[str, object], reading: ReadOptions, *, name: str) -> Iterator[PartItem]:
    """Yield what a function gives by `sent`, which runs in a child process.

    Args:
        function: ``module:name``.
        value: Its argument, to which ``reading`` is added.
        reading: The limits, and the size of images.
        name: What is read, for messages.

    Raises:
        InvalidInputError: As `vlmsearch._util.isolation.stream`.
        OSError: What the function raised; likewise ConfigError and MissingDependencyError.
    """
    request = request_of(value, reading)
    for items, data in stream(function, request, process_limits(reading.limits), name=name):
        blobs = iter(data)
        for item in items if isinstance(items, list) else ():
            yield _decoded(item, blobs)


def request_of(value: Mapping[str, object], reading: ReadOptions) -> dict[str, object]:
    """Return what is sent to a child process: a value, with the limits and the size of images."""
    preprocess = None if reading.preprocess is None else asdict(reading.preprocess)
    return {**value, "reading": {"limits": asdict(reading.limits), "preprocess": preprocess}}


def reading_of(value: Mapping[str, Any]) -> ReadOptions:
    """Return what `received` was given."""
    form = value["reading"]
    preprocess = form["preprocess"] and Preprocess(**form["preprocess"])
    return ReadOptions(ImageLimits(**form["limits"]), preprocess)


def sent(items: Iterable[PartItem], reading: ReadOptions) -> Iterator[tuple[list[dict[str, Any]], list[Bytes]]]:
    """Yield items as messages for `received`."""
    group: list[dict[str, Any]] = []
    blobs: list[Bytes] = []
    size = 0
    try:
        for item in items:
            form, data = _encoded(item, reading)
            text = form.get("text")
            if text and len(text) > _LONG_TEXT:  # JSON costs more than it takes to read the file
                form, data = {**form, "text": None, "long": True}, [text.encode("utf-8", "surrogatepass"), *data]
            group.append(form)
            blobs += data
            size += sum(map(len, data)) + len(form.get("text") or "")
            if len(group) >= _TOGETHER or size >= _TOGETHER_BYTES:
                yield group, blobs
                group, blobs, size = [], [], 0
    finally:  # what was read before an error, too
        if group:
            yield group, blobs


def _encoded(item: PartItem, reading: ReadOptions) -> ItemMessage:
    if isinstance(item, Reject):
        return {"reject": item.id, "code": item.code, "message": item.message, "stamp": asdict(item.stamp)}, []
    document = item.document
    form: dict[str, Any] = {"id": document.id, "text": document.text, "metadata": dict(document.metadata)}
    form |= {"source": item.source, "digest": item.digest, "ocr": item.ocr}
    if isinstance(document.image, bytes):
        return {**form, "bytes": True}, [document.image]
    form |= {"path": None if document.image is None else str(document.image)}
    if not isinstance(item.image, bytes):
        return form, []
    form |= {"content": hashlib.sha256(item.image).hexdigest()}
    if reading.preprocess is None or (item.ocr and not document.text):
        return {**form, "size": None}, [item.image]
    try:
        pixels = to_pixels(item.image, reading.preprocess, reading.limits)
    except InvalidInputError as exc:
        stamp = Stamp(item.digest or form["content"], item.source)
        return _encoded(Reject(document.id, exc.code, str(exc), stamp), reading)
    return {**form, "size": reading.preprocess.size}, [pixels.tobytes()]


def _decoded(form: dict[str, Any], blobs: Iterator[bytes]) -> PartItem:
    if "reject" in form:
        return Reject(form["reject"], form["code"], form["message"], Stamp(**form["stamp"]))
    text = next(blobs).decode("utf-8", "surrogatepass") if "long" in form else form["text"]
    path = form.get("path")
    image: Path | bytes | None = next(blobs) if "bytes" in form else path and Path(path)
    read: bytes | PIL.Image.Image | None = None
    if "size" in form:
        read, side = next(blobs), form["size"]
        if side is not None:
            read = PIL.Image.fromarray(np.frombuffer(read, np.uint8).reshape(side, side, 3))
    document = Document(form["id"], text, image, form["metadata"])
    return SourceDocument(document, form["source"], read, form.get("content", ""), form["digest"], form["ocr"])
