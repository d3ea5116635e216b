"""The images of documents: those that were sent are kept on disk, and small ones are made to be looked at."""

from __future__ import annotations

import hashlib
import re
import shutil
import threading
from collections import Counter, OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

import PIL.Image

from vlmsearch._util.files import replace_file
from vlmsearch.errors import BackendUnavailableError, InvalidInputError, VlmsearchError
from vlmsearch.media.images import file_of, format_of, named_part, open_image, read_image
from vlmsearch.media.limits import DEFAULT_LIMITS, ImageLimits
from vlmsearch.stores.base import Store
from vlmsearch.types import Document

_CACHED_BYTES = 64 << 20
_MAX_FAILED = 10_000
_QUALITY, _ORIGINAL_QUALITY = 82, 92
"""Of JPEGs: small ones, and frames of films in their size."""
_PNG_LEVEL = 3
"""A page is a tenth of its pixels in 50 ms; the best level takes ten times as long for a fifth less."""
_NAME = re.compile(r"[^A-Za-z0-9._-]+")
_MOST_NAME = 60
_TYPES = {
    "JPEG": ("image/jpeg", ".jpg"),
    "PNG": ("image/png", ".png"),
    "GIF": ("image/gif", ".gif"),
    "WebP": ("image/webp", ".webp"),
    "TIFF": ("image/tiff", ".tif"),
    "BMP": ("image/bmp", ".bmp"),
    "JPEG 2000": ("image/jp2", ".jp2"),
    "PPM": ("image/x-portable-pixmap", ".ppm"),
    "AVIF": ("image/avif", ".avif"),
    "HEIC": ("image/heic", ".heic"),
}


class Uploads:
    """Keep the images of documents that were sent, one folder a document, named by a digest of index and id.

    No part of a request names a file: the end of an id, with letters, digits, dots and dashes alone, is the file's name
    because searches by words and prompts use it.

    Args:
        folder: Where they are.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder.absolute()
        self._lock = threading.Lock()
        self._in_use: Counter[Path] = Counter()
        self._shown = re.compile(re.escape(str(self._folder)) + r"/[0-9a-f]{2}/[0-9a-f]{64}/[0-9a-f]{16}/")

    @contextmanager
    def keeping(
        self, index: str, store: Store, ids: Sequence[str], images: Mapping[str, bytes]
    ) -> Iterator[dict[str, Path]]:
        """Write images, and remove afterwards what no document of the store has any more.

        Args:
            index: The name of the index.
            store: Its store.
            ids: Those of the documents that are written meanwhile.
            images: The bytes of their images, by the ids.

        Yields:
            The files, by the ids.
        """
        folders = {id: self._folder_of(index, id) for id in ids}
        with self._lock:
            self._in_use.update(folders.values())
        try:
            yield {id: self._write(folders[id], id, data) for id, data in images.items()}
        finally:
            self._finish(store, folders)

    def _finish(self, store: Store, folders: Mapping[str, Path]) -> None:
        """Remove what no document has. Where the store fails it stays until the document is written or deleted."""
        there = {id: folder for id, folder in folders.items() if folder.is_dir()}
        kept: Mapping[str, object] | None
        try:
            kept = {document.id: document.image for document in store.get(list(there))} if there else {}
        except VlmsearchError:
            kept = None
        with self._lock:
            self._in_use.subtract(folders.values())
            for id, folder in there.items():
                if kept is not None and not self._in_use[folder]:
                    _remove_others(folder, kept.get(id))
            self._in_use = +self._in_use

    def remove(self, index: str, ids: Sequence[str]) -> None:
        """Remove the images of documents that are deleted."""
        with self._lock:
            for folder in (self._folder_of(index, id) for id in ids):
                if not self._in_use[folder]:
                    shutil.rmtree(folder, ignore_errors=True)

    def without_folders(self, message: str) -> str:
        """Return what is said of a file with its name alone."""
        return self._shown.sub("", message)

    def _folder_of(self, index: str, id: str) -> Path:
        digest = hashlib.sha256(f"{index}\0{id}".encode("utf-8", "surrogatepass")).hexdigest()
        return self._folder / digest[:2] / digest

    def _write(self, folder: Path, id: str, data: bytes) -> Path:
        suffix = _TYPES.get(format_of(data), ("", ""))[1]
        stem = _NAME.sub("-", re.split(r"[/\\]", id)[-1].removesuffix(suffix))[-_MOST_NAME:].strip(".-") or "image"
        path = folder / hashlib.sha256(data).hexdigest()[:16] / f"{stem}{suffix}"
        try:
            if not path.exists():
                path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
                replace_file(path, data)
        except OSError as exc:
            raise BackendUnavailableError(f"the folder of uploads cannot be written: {exc.strerror}") from exc
        return path


def _remove_others(folder: Path, kept: object) -> None:
    for each in folder.iterdir() if folder.is_dir() else ():
        if not isinstance(kept, Path) or each != kept.parent:
            shutil.rmtree(each, ignore_errors=True)
    if folder.is_dir() and not any(folder.iterdir()):
        folder.rmdir()


@dataclass(frozen=True)
class Picture:
    """An image as it is sent.

    Attributes:
        data: Its bytes.
        type: What a browser calls its format.
        tag: Changes whenever the image does.
    """

    data: bytes
    type: str
    tag: str


class Thumbnails:
    """Make small images of files, and keep those that were asked for last, up to 64 MiB.

    Args:
        limits: How large the files may be.
        most: How many bytes are kept.
    """

    def __init__(self, limits: ImageLimits = DEFAULT_LIMITS, most: int = _CACHED_BYTES) -> None:
        self._limits = limits
        self._most = most
        self._lock = threading.Lock()
        self._kept: OrderedDict[str, bytes] = OrderedDict()
        self._bytes = 0
        self._failed: OrderedDict[str, InvalidInputError] = OrderedDict()
        """Why images could not be made, by the file and its version: those that take long are not tried again."""

    def tag(self, path: Path, size: int) -> str:
        """Return what changes whenever the small image of a file does.

        Raises:
            InvalidInputError: There is no such file.
        """
        return _tag(path, str(size))

    def get(self, path: Path, size: int) -> Picture:
        """Return the image of a file with no side longer than ``size`` pixels, as a JPEG.

        Raises:
            InvalidInputError: The file is not there, or not an image that can be used.
        """
        tag = _tag(path, str(size))
        with self._lock:
            data = self._kept.get(tag)
            if data is not None:
                self._kept.move_to_end(tag)
        if data is None:
            data = self._make(path, size)
            self._keep(tag, data)
        return Picture(data, "image/jpeg", tag)

    def _make(self, path: Path, size: int) -> bytes:
        version = _tag(path, "")
        with self._lock:
            failed = self._failed.get(version)
        if failed is not None:
            raise InvalidInputError(failed.code, str(failed))
        try:
            image = open_image(path, at_least=size, limits=self._limits)
        except InvalidInputError as exc:
            with self._lock:
                self._failed[version] = exc
                if len(self._failed) > _MAX_FAILED:
                    self._failed.popitem(last=False)
            raise
        image.thumbnail((size, size))
        return _jpeg(image, _QUALITY)

    def _keep(self, tag: str, data: bytes) -> None:
        with self._lock:
            self._bytes += len(data) - len(self._kept.pop(tag, b""))
            self._kept[tag] = data
            while self._bytes > self._most:
                _, dropped = self._kept.popitem(last=False)
                self._bytes -= len(dropped)


def _jpeg(image: PIL.Image.Image, quality: int) -> bytes:
    written = BytesIO()
    image.save(written, "JPEG", quality=quality)
    return written.getvalue()


def original(path: Path, limits: ImageLimits) -> Picture:
    """Return an image file as it is; of a part of a file, a page as a PNG, and what is rather a photograph as a JPEG.

    Raises:
        InvalidInputError: The file is not there, or in no format of images.
    """
    tag = _tag(path, "original")
    part = named_part(path)
    if part is not None:
        image = open_image(path, limits=limits)
        if part.page is None:
            return Picture(_jpeg(image, _ORIGINAL_QUALITY), "image/jpeg", tag)
        written = BytesIO()
        image.save(written, "PNG", compress_level=_PNG_LEVEL)
        return Picture(written.getvalue(), "image/png", tag)
    data = read_image(path, limits)
    kind = format_of(data)
    if not kind:
        raise InvalidInputError("unsupported", f"{path.name!r} is not an image")
    return Picture(data, _TYPES[kind][0], tag)


def image_path(document: Document) -> Path | None:
    """Return the file of a document's image, where it has one."""
    return document.image if isinstance(document.image, Path) else None


def _tag(path: Path, of: str) -> str:
    try:
        found = file_of(path).stat()
    except OSError as exc:
        raise InvalidInputError("unreadable", f"{path.name!r} cannot be read: {exc.strerror}") from exc
    form = f"{path}\0{found.st_mtime_ns}\0{found.st_size}\0{of}"
    return hashlib.sha256(form.encode("utf-8", "surrogateescape")).hexdigest()[:32]
