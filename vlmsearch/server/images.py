"""The images of documents: uploads are kept on disk, and thumbnails are made and cached."""

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
"""Qualities of JPEGs: thumbnails, and frames of films in full size."""
_PNG_LEVEL = 3
"""A page shrinks to a tenth in 50 ms. The best level takes ten times as long and saves another fifth."""
_NAME = re.compile(r"[^A-Za-z0-9._-]+")
_MAX_NAME = 60
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
    """The uploaded images of documents: a folder for each document, named by a checksum of index and id.

    The file has the end of the id as its name, because words and prompts use it. The name has only letters, digits,
    dots and dashes: no request names another file.

    Args:
        folder: Folder of all uploads.
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
            index: Name of the index.
            store: Store of the index.
            ids: Ids of the documents that are written meanwhile.
            images: Bytes of their images, by id.

        Yields:
            The files, by id.
        """
        folders = {id: self._folder_of(index, id) for id in ids}
        with self._lock:
            self._in_use.update(folders.values())
        try:
            yield {id: self._write(folders[id], id, data) for id, data in images.items()}
        finally:
            self._finish(store, folders)

    def _finish(self, store: Store, folders: Mapping[str, Path]) -> None:
        """Remove files without a document. If the store fails, they stay until the document is written or deleted."""
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

    def without_folders(self, message: str) -> str:
        """Return a message about a file without its folders."""
        return self._shown.sub("", message)

    def _folder_of(self, index: str, id: str) -> Path:
        digest = hashlib.sha256(f"{index}\0{id}".encode("utf-8", "surrogatepass")).hexdigest()
        return self._folder / digest[:2] / digest

    def _write(self, folder: Path, id: str, data: bytes) -> Path:
        suffix = _TYPES.get(format_of(data), ("", ""))[1]
        stem = _NAME.sub("-", re.split(r"[/\\]", id)[-1].removesuffix(suffix))[-_MAX_NAME:].strip(".-") or "image"
        path = folder / hashlib.sha256(data).hexdigest()[:16] / f"{stem}{suffix}"
        try:
            if not path.exists():
                path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
                replace_file(path, data)
        except OSError as exc:
            raise BackendUnavailableError(f"the folder of uploads cannot be written: {exc.strerror}") from exc
        return path


def _remove_others(folder: Path, kept: object) -> None:
    for child in folder.iterdir() if folder.is_dir() else ():
        if not isinstance(kept, Path) or child != kept.parent:
            shutil.rmtree(child, ignore_errors=True)
    if folder.is_dir() and not any(folder.iterdir()):
        folder.rmdir()


@dataclass(frozen=True)
class SentImage:
    """An image as it is sent.

    Attributes:
        data: Bytes.
        type: Media type.
        tag: Version tag, which changes with the image.
    """

    data: bytes
    type: str
    tag: str


class Thumbnails:
    """Thumbnails of files, with a cache of the last 64 MiB.

    Args:
        limits: Limits of the files.
        max_bytes: Size of the cache.
    """

    def __init__(self, limits: ImageLimits = DEFAULT_LIMITS, max_bytes: int = _CACHED_BYTES) -> None:
        self._limits = limits
        self._max_bytes = max_bytes
        self._lock = threading.Lock()
        self._kept: OrderedDict[str, bytes] = OrderedDict()
        self._bytes = 0
        self._failed: OrderedDict[str, InvalidInputError] = OrderedDict()
        """Errors of images that failed, by file and version: slow ones are not tried again."""

    def tag(self, path: Path, size: int) -> str:
        """Return the version tag of a thumbnail.

        Raises:
            InvalidInputError: The file does not exist.
        """
        return _tag(path, str(size))

    def get(self, path: Path, size: int) -> SentImage:
        """Return the thumbnail of a file as a JPEG, with no side longer than ``size`` pixels.

        Raises:
            InvalidInputError: The file does not exist, or is no usable image.
        """
        tag = _tag(path, str(size))
        with self._lock:
            data = self._kept.get(tag)
            if data is not None:
                self._kept.move_to_end(tag)
        if data is None:
            data = self._make(path, size)
            self._keep(tag, data)
        return SentImage(data, "image/jpeg", tag)

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
            while self._bytes > self._max_bytes:
                _, dropped = self._kept.popitem(last=False)
                self._bytes -= len(dropped)


def _jpeg(image: PIL.Image.Image, quality: int) -> bytes:
    written = BytesIO()
    image.save(written, "JPEG", quality=quality)
    return written.getvalue()


def original(path: Path, limits: ImageLimits) -> SentImage:
    """Return an image file, or an attachment, as it is. A page becomes a PNG, another part of a file a JPEG.

    Raises:
        InvalidInputError: The file does not exist, or is no image.
    """
    tag = _tag(path, "original")
    part = named_part(path)
    if part is not None and part.attachment is None:
        image = open_image(path, limits=limits)
        if part.page is None:
            return SentImage(_jpeg(image, _ORIGINAL_QUALITY), "image/jpeg", tag)
        written = BytesIO()
        image.save(written, "PNG", compress_level=_PNG_LEVEL)
        return SentImage(written.getvalue(), "image/png", tag)
    data = read_image(path, limits)
    kind = format_of(data)
    if not kind:
        raise InvalidInputError("unsupported", f"{path.name!r} is not an image")
    return SentImage(data, _TYPES[kind][0], tag)


def image_path(document: Document) -> Path | None:
    """Return the file of a document's image; None without one."""
    return document.image if isinstance(document.image, Path) else None


def _tag(path: Path, of: str) -> str:
    try:
        stat = file_of(path).stat()
    except OSError as exc:
        raise InvalidInputError("unreadable", f"{path.name!r} cannot be read: {exc.strerror}") from exc
    form = f"{path}\0{stat.st_mtime_ns}\0{stat.st_size}\0{of}"
    return hashlib.sha256(form.encode("utf-8", "surrogateescape")).hexdigest()[:32]
