"""Turn bytes or a path into an upright 8-bit RGB image, and then into pixels.

All failures are InvalidInputError with a code. Pillow's switches are left as they are, and any thread may call this.
"""

from __future__ import annotations

import os
import re
import threading
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from importlib import import_module
from io import BytesIO
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import numpy as np
from PIL import Image

from vlmsearch._util.extras import install_command
from vlmsearch._util.isolation import call
from vlmsearch._util.messages import Bytes
from vlmsearch._util.pillow import STRICT, as_bmp
from vlmsearch.errors import InvalidInputError, one_line
from vlmsearch.media.colour import as_rgb
from vlmsearch.media.files import open_regular, read_regular
from vlmsearch.media.hdr import cicp_of, encoded_colours, rgb_of, tone_mapped
from vlmsearch.media.limits import (
    DEFAULT_LIMITS,
    TURNS,
    ImageBytes,
    ImageLimits,
    check_count,
    check_image,
    check_structure,
    pixel_bytes,
    process_limits,
)
from vlmsearch.media.remote import remote_url
from vlmsearch.media.tiff import page_offsets
from vlmsearch.types import ImageSource, Part, check_here, part_of

_FORMATS = {  # how it begins, what reads it, and how its files end
    "JPEG": (rb"\xff\xd8\xff", "PIL.JpegImagePlugin.JpegImageFile", "jpg jpeg jpe jfif"),
    "PNG": (rb"\x89PNG", "PIL.PngImagePlugin.PngImageFile", "png apng"),
    "GIF": (rb"GIF8[79]a", "PIL.GifImagePlugin.GifImageFile", "gif"),
    "WebP": (rb"RIFF....WEBP", "PIL.WebPImagePlugin.WebPImageFile", "webp"),
    "TIFF": (rb"II[*+]\0|MM\0[*+]", "vlmsearch.media.tiff_image.TiffImage", "tif tiff"),
    "BMP": (rb"BM.{12}[\x0c\x28\x34\x38\x40\x6c\x7c]\0\0\0", "PIL.BmpImagePlugin.BmpImageFile", "bmp dib"),
    "JPEG 2000": (rb"\0\0\0\x0cjP  |\xff\x4f\xff\x51", "PIL.Jpeg2KImagePlugin.Jpeg2KImageFile", "jp2 j2k j2c jpx"),
    "PPM": (rb"P[1-6Ff]\s", "PIL.PpmImagePlugin.PpmImageFile", "pbm pgm ppm pnm pfm"),
    "AVIF": (rb"....ftyp(?:avi[fs]|m[is]f1(?:.{4}){1,12}?avi[fs])", "PIL.AvifImagePlugin.AvifImageFile", "avif"),
    "HEIC": (rb"....ftyp(?:he[iv][cmsx]|m[is]f1)", "pillow_heif.HeifImageFile", "heic heif hif"),
}
IMAGE_SUFFIXES = frozenset(f".{ending}" for _, _, endings in _FORMATS.values() for ending in endings.split())
"""Endings, in lower case, of the files that indexing a folder picks up.

How one is read depends on what is in it.
"""
_SIGNATURES = {kind: re.compile(start, re.DOTALL) for kind, (start, _, _) in _FORMATS.items()}
_END = {"PNG": b"IEND\xaeB`\x82", "GIF": b";", "JPEG": b"\xff\xd9", "JPEG 2000": b"\xff\xd9"}
_HEAD = 2**6
"""Bytes that say which format a file has."""
_COPYING = tuple(threading.Lock() for _ in range(61))
"""One of them is held while an image is copied, chosen by which image that is."""
_VIDEO_CODED = frozenset({"AVIF", "HEIC"})
"""Formats whose headers do not bound what decoding costs: the frames inside may be of any size."""
_DEEP_BYTES = 30
"""Bytes a pixel that decoding them with more than 8 bits takes, as measured."""
_TOO_MUCH = re.compile(r"(?i)too (large|much)|memory|alloc|exceed")
_NO_DECODER = re.compile(r"not (available|installed)|nsupported|cannot handle|unknown pixel")


def read_image(path: Path, limits: ImageLimits = DEFAULT_LIMITS) -> bytes:
    """Return the bytes of an image file.

    Of the part of a file that a path names, they are those of a BMP; of an attachment its own. See `part_of`.

    Errors as `read_regular`, ``unreadable`` also for one in object storage without ``limits.remote``; for a part also
    those of `open_image`.
    """
    check_here(path)
    part = named_part(path)
    if part is not None:
        return _read_part(part, limits)
    url = remote_url(path)
    if url and not limits.remote:
        only = "images of there are read only where `image_limits` have `remote`"
        raise InvalidInputError("unreadable", f"{url!r} is in object storage: {only}")
    data = read_regular(path, "an image")
    check_count(len(data), "bytes", limits.encoded_bytes, repr(str(path)))
    return data


def named_part(path: Path) -> Part | None:
    """Return the part of a file that a path names.

    None for a path that names a file.
    """
    part = part_of(str(path))
    return None if part is None or os.path.lexists(path) else part


def file_of(path: Path) -> Path:
    """Return the file that an image is in: its path, or the one whose part that names."""
    part = named_part(path)
    return path if part is None else file_of(Path(part.of))


def _read_part(part: Part, limits: ImageLimits) -> bytes:
    """Return the image of a page, a moment, an attachment or a region."""
    path = Path(part.of)
    if part.region is None:
        value = {**asdict(part), "limits": asdict(limits)}
        return call(f"{__name__}:drawn_part", value, process_limits(limits), name=repr(part.of))[1][0]
    left, top, width, height = part.region or (0, 0, 0, 0)
    with opened_image(path, limits=limits) as image:
        right, bottom = min(left + width, image.width), min(top + height, image.height)
        if right <= left or bottom <= top:
            size = f"{image.width} by {image.height}"
            raise InvalidInputError("invalid", f"the region {left},{top} is not in {str(path)!r}, which is {size}")
        return as_bmp(image.crop((left, top, right, bottom)))


def drawn_part(value: Mapping[str, Any], _: Sequence[Bytes]) -> Iterator[tuple[None, list[bytes]]]:
    """Draw a page or a frame of a film as a BMP, or read an attachment.

    This runs in a child process.
    """
    path, limits = Path(value["of"]), ImageLimits(**value["limits"])
    if value["attachment"] is not None:
        from vlmsearch.media.mail import attachment_bytes

        yield None, [attachment_bytes(path, value["message"], value["attachment"])]
    elif value["page"] is not None:
        yield None, [page_image(path, value["page"], limits)]
    elif value["seconds"] is not None:
        from vlmsearch.media.video import frame_image

        yield None, [frame_image(path, value["seconds"], limits)]
    else:
        raise InvalidInputError("invalid", f"a message of {str(path)!r} has no image: name an attachment")


def page_image(path: Path, number: int, limits: ImageLimits) -> bytes:
    """Return a page of a TIFF or a PDF as a BMP.

    Raises InvalidInputError as `open_image`, or where the file has no such page.
    """
    with open_regular(path, "an image") as file:
        kind = format_of(file.read(_HEAD))
    if kind != "TIFF":
        from vlmsearch.media import pdf

        return pdf.page_image(path, number, limits)
    draw = next(islice(tiff_pages(path, limits), number - 1, None), None)
    if draw is None:
        raise InvalidInputError("invalid", f"{str(path)!r} has no page {number}")
    return draw()


def tiff_pages(path: Path, limits: ImageLimits) -> Iterator[Callable[[], bytes]]:
    """Yield a function for each page of a TIFF: it draws the page as a BMP, before the next one is asked for.

    Raises InvalidInputError as `read_image`; the functions as `open_image`.
    """
    data = read_image(path, limits)
    pages, file = list(page_offsets(BytesIO(data))), ImageBytes(data, repr(str(path)))
    del data  # so that the file is in memory once
    for number, page in enumerate(pages, start=1):
        file.turn_to(page)
        yield partial(_decoded_bmp, file, f"page {number} of {str(path)!r}", limits)


def format_of(data: bytes) -> str:
    """Return the image format that a file begins as; empty for none that is read here."""
    return next((kind for kind, signature in _SIGNATURES.items() if signature.match(data)), "")


def open_image(
    source: ImageSource, *, at_least: int | None = None, limits: ImageLimits = DEFAULT_LIMITS
) -> Image.Image:
    """Return an upright 8-bit RGB image in sRGB, on white where it was transparent.

    Of an animation, it is the first frame.

    ``at_least``: a JPEG may come out at 1/2, 1/4 or 1/8 of its size, as long as both sides keep that many pixels.
    ``limits`` are checked before anything is decoded. An image given as a PIL image is copied, never changed.

    Raises InvalidInputError: ``unsupported`` (no format that is read here), ``corrupt``, ``truncated``, ``too_large``
    (also where the memory does not suffice), ``empty`` or ``unreadable``; the cause is kept, and the message has the
    file's name.
    """
    with opened_image(source, at_least=at_least, limits=limits) as image:
        return image


@contextmanager
def opened_image(
    source: ImageSource, *, at_least: int | None = None, limits: ImageLimits = DEFAULT_LIMITS
) -> Iterator[Image.Image]:
    """Give what `open_image` gives, and its share of the memory for decoding until this is left.

    Lack of memory in between raises InvalidInputError, too.
    """
    if isinstance(source, Image.Image):
        with TURNS.take(_check_given(source, limits), limits.decoded_bytes), _rejecting(_name_of(source), "", b""):
            upright = as_rgb(_copied(source))
        with _lacking_memory(_name_of(source)):
            yield upright
        return
    if isinstance(source, Path):
        name, data = repr(str(source)), read_image(source, limits)
    elif isinstance(source, bytes):
        name, data = "the image", source
        check_count(len(data), "bytes", limits.encoded_bytes, name)
    else:
        raise TypeError(f"an image is a Path, bytes or a PIL image, not {type(source).__name__}")
    with _rejecting(name, format_of(data), data):
        header = _read_header(data, name, at_least, limits)
    with TURNS.take(header.size, limits.decoded_bytes):
        with _rejecting(name, header.kind, data):
            upright = header.decode()
        with _lacking_memory(name):
            yield upright


def image_size(path: Path, limits: ImageLimits = DEFAULT_LIMITS) -> tuple[int, int]:
    """Return the width and the height of an image file in pixels, before any turning.

    Errors as `open_image`.
    """
    return encoded_size(read_image(path, limits), repr(str(path)), limits)


def encoded_size(data: bytes, name: str, limits: ImageLimits = DEFAULT_LIMITS) -> tuple[int, int]:
    """Return the width and the height of an image in memory, as `image_size` does."""
    with _rejecting(name, format_of(data), data):
        return _read_header(data, name, None, limits).image.size


def is_within(data: bytes, limits: ImageLimits, *, at_least: int | None = None) -> bool:
    """Return whether `open_image` would not find a file too large, as far as its header says."""
    try:
        check_count(len(data), "bytes", limits.encoded_bytes, "the image")
        with _rejecting("the image", format_of(data), data):
            _read_header(data, "the image", at_least, limits)
    except InvalidInputError as exc:
        return exc.code != "too_large"
    return True


def copy_image(image: Image.Image, limits: ImageLimits = DEFAULT_LIMITS) -> Image.Image:
    """Return a copy of an image that is perhaps not read yet.

    Pillow leaves that to one thread at a time.

    Raises InvalidInputError as `open_image` does.
    """
    with TURNS.take(_check_given(image, limits), limits.decoded_bytes), _rejecting(_name_of(image), "", b""):
        return _copied(image)


def _check_given(image: Image.Image, limits: ImageLimits) -> int:
    """Return the memory that a copy and its conversion take; InvalidInputError for more than the limits."""
    name, pixels = _name_of(image), image.width * image.height
    check_count(pixels, "pixels", limits.pixels, name)
    size = pixels * (pixel_bytes(image.mode) + pixel_bytes("RGB"))
    check_count(size, "bytes when it is converted", limits.decoded_bytes, name)
    return size


def _copied(image: Image.Image) -> Image.Image:
    with _COPYING[id(image) % len(_COPYING)]:
        copied = image.copy()
        vars(copied).update(tag_v2=getattr(image, "tag_v2", {}))  # which says what is black
        return copied


def _name_of(image: Image.Image) -> str:
    return repr(filename) if (filename := str(getattr(image, "filename", ""))) else "the image"


@dataclass
class _Header:
    """An image whose header is read and whose pixels are not; it can be decoded once."""

    kind: str
    image: Image.Image
    size: int
    """The memory that decoding takes."""
    box: tuple[float, float, float, float] | None
    """The part of the decoded pixels that is the image.

    Its last column or row may be only part of a pixel.
    """

    def decode(self) -> Image.Image:
        """Return the image as `open_image` gives it."""
        image = self.image
        del self.image  # so that its memory is free as soon as it is converted
        return as_rgb(image.resize(image.size, Image.Resampling.BICUBIC, self.box) if self.box else image)


def _read_header(data: bytes, name: str, at_least: int | None, limits: ImageLimits) -> _Header:
    """Return the header of an image within the limits; ``unsupported`` if nothing here reads its format."""
    kind = format_of(data)
    if kind in _VIDEO_CODED:
        _reader_of(kind, name)
        value = {"name": name, "limits": asdict(limits)}
        data = call(f"{__name__}:decoded_image", value, process_limits(limits), name=name, data=[data])[1][0]
    file = ImageBytes(data, name)
    if kind == "TIFF" and (page := next(page_offsets(BytesIO(data)), None)):
        file.turn_to(page)
    return _parse_header(file, name, at_least, limits)


def decoded_image(value: Mapping[str, Any], data: Sequence[bytes]) -> Iterator[tuple[None, list[bytes]]]:
    """Decode an image to a BMP that is upright; runs in a child process."""
    yield None, [_decoded_bmp(ImageBytes(data[0], value["name"]), value["name"], ImageLimits(**value["limits"]))]


def _decoded_bmp(file: ImageBytes, name: str, limits: ImageLimits) -> bytes:
    data = file.getvalue()
    with _rejecting(name, format_of(data), data):
        return as_bmp(_parse_header(file, name, None, limits).decode())


def _parse_header(file: ImageBytes, name: str, at_least: int | None, limits: ImageLimits) -> _Header:
    data = file.getvalue()
    kind = format_of(data)
    if not kind:
        raise InvalidInputError("unsupported", f"{name} is in no format that can be read: {', '.join(_FORMATS)}")
    reader = _reader_of(kind, name)
    structure = check_structure(kind, data, name)
    image = reader(file)
    stored = image.size
    drafted = image.draft(None, (at_least, at_least)) if at_least and kind == "JPEG" else None
    size = check_image(image, kind, structure, limits, name, stored=stored)
    image.info |= encoded_colours(kind, data)
    if kind in _VIDEO_CODED:  # in a child process
        image = _tone_mapped(image, kind, data, limits)
    return _Header(kind, image, size, drafted[1] if drafted and drafted[1] != (0, 0, *image.size) else None)


def _tone_mapped(image: Image.Image, kind: str, data: Bytes, limits: ImageLimits) -> Image.Image:
    """Return an AVIF or HEIC in HDR or wide gamut as sRGB, and others unchanged.

    Of its 10 bits Pillow keeps 8, which are off by up to 23 levels in SDR. They have to do for the largest ones, and
    where what decodes frames is not installed.
    """
    cicp = cicp_of(image.info)
    if cicp is None or cicp.is_srgb or image.width * image.height * _DEEP_BYTES > limits.decoded_bytes:
        return image
    try:
        if kind == "HEIC":
            pixels = np.asarray(import_module("pillow_heif").open_heif(data, convert_hdr_to_8bit=False))
            pixels = tone_mapped(np.ascontiguousarray(pixels[..., :3]), cicp)
        else:
            with import_module("av").open(BytesIO(data)) as container:
                pixels = rgb_of(next(container.decode(container.streams.best("video"))), cicp)
    except Exception:  # noqa: BLE001 - which PyAV raises where Pillow does not
        return image
    mapped = Image.fromarray(pixels)
    if mapped.size != image.size:  # it is a tile
        return image
    if image.has_transparency_data:
        mapped.putalpha(image.getchannel("A"))
    mapped.info["exif"] = image.info.get("exif", b"")
    return mapped


def _reader_of(kind: str, name: str) -> Callable[[BytesIO], Image.Image]:
    """Return what reads a format; InvalidInputError where it is not installed."""
    module, _, cls = _FORMATS[kind][1].rpartition(".")
    try:
        reader: Callable[[BytesIO], Image.Image] = getattr(import_module(module), cls)
    except ImportError as exc:
        fix = install_command("heic") if kind == "HEIC" else "pip install --upgrade pillow"
        raise InvalidInputError("unsupported", f"{name} is {kind}, and what reads that is missing: {fix}") from exc
    return reader


@contextmanager
def _lacking_memory(name: str) -> Iterator[None]:
    try:
        yield
    except MemoryError as exc:
        raise InvalidInputError("too_large", f"{name} needs more memory than there is") from exc


@contextmanager
def _rejecting(name: str, kind: str, data: bytes) -> Iterator[None]:
    """Whatever Pillow's plugins raise for a damaged file, or for lack of memory, as InvalidInputError."""
    try:
        with _lacking_memory(name), STRICT.held():
            yield
    except InvalidInputError:
        raise
    except Exception as exc:
        said, what = one_line(exc), kind or "image"
        if "DecompressionBomb" in type(exc).__name__ or _TOO_MUCH.search(said):
            raise InvalidInputError("too_large", f"{name} is too large: {said}") from exc
        if _end_is_missing(kind, data) or (kind in ("PPM", "TIFF", "") and re.search(r"runcated|EOF|not enough", said)):
            raise InvalidInputError("truncated", f"{name} is cut short: the end of its {what} data is missing") from exc
        if isinstance(exc, NameError) or _NO_DECODER.search(said):
            raise InvalidInputError("unsupported", f"{name} is a kind of {what} that cannot be read: {said}") from exc
        raise InvalidInputError("corrupt", f"{name} is damaged, its {what} data cannot be decoded: {said}") from exc


def _end_is_missing(kind: str, data: bytes) -> bool:
    """Return whether a file that could not be decoded lacks its end.

    Its format says where it ends.
    """
    if kind in _END:
        return not data[-64:].rstrip(b"\0").endswith(_END[kind])
    if kind in ("WebP", "BMP"):  # the header has the length
        at, more = (4, 8) if kind == "WebP" else (2, 0)
        return int.from_bytes(data[at : at + 4], "little") + more > len(data)
    if kind == "TIFF":
        order: Literal["little", "big"] = "little" if data[:1] == b"I" else "big"
        at = int.from_bytes(data[4:8], order)  # where the directory is
        return at + 2 + 12 * int.from_bytes(data[at : at + 2], order) > len(data)
    at = 0
    while kind in ("AVIF", "HEIC") and at + 8 <= len(data):  # a chain of boxes, each with its length
        length = int.from_bytes(data[at : at + 4], "big") or len(data) - at
        at += max(8, length if length > 1 else int.from_bytes(data[at + 8 : at + 16], "big"))
    return kind in ("AVIF", "HEIC") and (at != len(data) or b"mdat" not in data)


def shrunk_image(source: ImageSource, *, edge: int, limits: ImageLimits = DEFAULT_LIMITS) -> Image.Image:
    """Return an upright RGB image whose longer side has ``edge`` pixels at most; errors as `open_image`."""
    with opened_image(source, at_least=edge, limits=limits) as image:
        image.thumbnail((edge, edge), Image.Resampling.LANCZOS)
    return image


def thumbnail(source: ImageSource, *, edge: int, limits: ImageLimits = DEFAULT_LIMITS) -> bytes:
    """Return a small JPEG in sRGB whose longer side has at most ``edge`` pixels.

    Errors as `open_image`.
    """
    out = BytesIO()
    image = shrunk_image(source, edge=edge, limits=limits)
    image.save(out, "JPEG", quality=80, optimize=True, progressive=True)
    return out.getvalue()


def data_url(source: ImageSource, *, edge: int) -> str:
    """Return an image as a JPEG's data URL, with at most ``edge`` pixels a side.

    Colours have the resolution of the pixels, as models for small images need. Errors as `open_image`.
    """
    out = BytesIO()
    shrunk_image(source, edge=edge).save(out, "JPEG", quality=90, subsampling=0)
    return f"data:image/jpeg;base64,{b64encode(out.getvalue()).decode()}"
