"""How large images may be, and what decoding one takes, by what its file claims.

An image of a few bytes can ask for gigabytes. So the structure of a file is checked before Pillow reads it, in time and
memory in proportion to the file. The memory for decoding is estimated from the header.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from io import BytesIO
from typing import TYPE_CHECKING

from vlmsearch.errors import ConfigError, InvalidInputError

if TYPE_CHECKING:
    from PIL import Image

    from vlmsearch._util.isolation import ProcessLimits

MAX_FILE_BYTES = 512 * 2**20
"""The largest file of any kind that is read."""
_FACTORS = {"": 1, "k": 1000, "M": 1000**2, "G": 1000**3, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30}
_NAMES = {
    "pixels": "pixels",
    "decoded": "decoded_bytes",
    "encoded": "encoded_bytes",
    "memory": "memory_bytes",
    "cpu": "cpu_seconds",
    "time": "seconds",
}
_UNITS = {"pixels": "", "cpu": "s", "time": "s"}
"""Units that may stand behind a number; bytes are the unit of all others."""
_OPTION = re.compile(rf"(?P<name>{'|'.join(_NAMES)})=(?P<number>[0-9]+)(?P<factor>{'|'.join(_FACTORS)})(?P<unit>B|s|)")


@dataclass(frozen=True)
class ImageLimits:
    """The limits of images, and of reading files of other kinds.

    A larger image is rejected as ``too_large`` before it is decoded. Images in AVIF and HEIC, PDF, films, office
    documents and tables are read in a child process with the last three limits. These count anew for every page, scene
    or 64 rows. A file beyond them is rejected as ``too_large`` or ``timeout``.

    Attributes:
        pixels: Its width times its height.
        decoded_bytes: The memory that decoding and converting it takes at its peak. It is also the most that images
            under way take together: where several threads decode, large images take turns.
        encoded_bytes: The length of its file, at most 512 MiB.
        memory_bytes: The private memory of the child process. Linux alone enforces it.
        cpu_seconds: The processor time in the child process. Not enforced on Windows.
        seconds: The time to wait for the child process.
        remote: Whether images are read from object storage, with the credentials of this process, because an index, a
            table or a document names them there. Those of a folder or a table of object storage that is indexed are.

    Raises:
        ConfigError: A limit is below 1, or ``encoded_bytes`` above 512 MiB.

    Example:
        >>> ImageLimits(pixels=50_000_000).replace_from("encoded=100Mi").encoded_bytes
        104857600
    """

    pixels: int = 178_956_970  # Pillow's own hard limit
    decoded_bytes: int = 3 * 2**29
    encoded_bytes: int = MAX_FILE_BYTES
    memory_bytes: int = 2**31
    cpu_seconds: int = 300
    seconds: int = 300
    remote: bool = False

    def __post_init__(self) -> None:
        if min(getattr(self, field) for field in _NAMES.values()) < 1:
            raise ConfigError(f"the limits of images are at least 1, not {self}")
        if self.encoded_bytes > MAX_FILE_BYTES:
            raise ConfigError(f"files of more than {MAX_FILE_BYTES:,} bytes are not read: {self}")

    def __str__(self) -> str:
        given = [f"{name}={_amount(name, getattr(self, field))}" for name, field in _NAMES.items()]
        return ",".join([*given, "remote"] if self.remote else given)

    def replace_from(self, text: str) -> ImageLimits:
        """Return these limits with those that a string names.

        Args:
            text: Such as ``pixels=50M,memory=2GiB,time=60s,remote``, or some of these; k, M and G are
                powers of 1000, Ki, Mi and Gi of 1024, and the unit may be left out.

        Returns:
            New limits.

        Raises:
            ConfigError: It is not of that form, or a limit is out of range.
        """
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        for part in text.split(","):
            if part.strip() == "remote":
                values["remote"] = True
                continue
            option = _OPTION.fullmatch(part.strip())
            name = option["name"] if option else ""
            if not option or option["unit"] not in ("", _UNITS.get(name, "B")):
                raise ConfigError(
                    f"limits are pixels=N, {'=SIZE, '.join(name for name in _NAMES if name not in _UNITS)}=SIZE, "
                    f"cpu=SECONDS, time=SECONDS and remote, with commas between them, such as "
                    f"pixels=50M,memory=2GiB, not {part.strip()!r}"
                )
            values[_NAMES[name]] = int(option["number"]) * _FACTORS[option["factor"]]
        return ImageLimits(**values)


def _amount(name: str, number: int) -> str:
    """Return a limit with its unit, exactly."""
    unit = _UNITS.get(name, "B")
    if unit == "s":
        return f"{number}s"
    shortest = max((factor for factor in _FACTORS if number % _FACTORS[factor] == 0), key=lambda f: _FACTORS[f])
    return f"{number // _FACTORS[shortest]}{shortest}{unit}"


def process_limits(limits: ImageLimits) -> ProcessLimits:
    """Return the limits of a child process."""
    from vlmsearch._util.isolation import ProcessLimits

    return ProcessLimits(limits.memory_bytes, limits.cpu_seconds, limits.seconds)


DEFAULT_LIMITS = ImageLimits()
"""For one's own photographs: 100 megapixels in every format that cameras and scanners write."""
SERVER_LIMITS = ImageLimits(
    pixels=120_000_000, decoded_bytes=2**29, encoded_bytes=2**25, memory_bytes=2**30, cpu_seconds=60, seconds=60
)
"""For a server, which takes images from anyone."""


class _Turns:
    """A divider of the memory for decoding among the threads of the process.

    They get it in the order in which they ask.
    """

    def __init__(self) -> None:
        self._first = threading.Lock()
        self._freed = threading.Condition()
        self._used = 0

    @contextmanager
    def take(self, size: int, limit: int) -> Iterator[None]:
        """Wait until all sizes in use are at most ``limit``, or there are no others.

        ``size`` is counted in, and freed at the end.
        """
        with self._first, self._freed:
            self._freed.wait_for(lambda: not self._used or self._used + size <= limit)
            self._used += size
        try:
            yield
        finally:
            with self._freed:
                self._used -= size
                self._freed.notify_all()


TURNS = _Turns()


def check_count(count: int, unit: str, limit: int, name: str) -> None:
    """Raise InvalidInputError ``empty`` for nothing, ``too_large`` for more than the limit."""
    if count < 1:
        raise InvalidInputError("empty", f"{name} is empty: 0 {unit}")
    if count > limit:
        raise InvalidInputError("too_large", f"{name} has {count:,} {unit}; at most {limit:,} are read")


# ----------------------------------------------------------------------------------------- structure, before Pillow

_FEW_READS = 20_000
_BYTES_A_READ = 256
"""Bytes that Pillow reads at once on average, at least: less means countless chunks, segments or fill bytes."""
_JPEG_SEGMENTS = 10_000
_JPEG_SCANS = 20
"""Scans of the largest image; smaller images may have more."""
_EXIF_BYTES = 2**20
_SIGNED_BYTES = 6
"""The one type of single bytes that Pillow makes numbers of."""
_TAG_VALUES = 2**19
"""Numbers in all tags of a TIFF: offsets and lengths of a quarter of a million strips or tiles."""
_FILL = re.compile(rb"\xff+")
_NO_PAYLOAD = frozenset((0, 0xC8, *range(0xD0, 0xDA), *range(0xF0, 0xFE)))
_SEQUENTIAL = frozenset((0xC0, 0xC1, 0xC3, 0xC9, 0xCB))
_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}


class ImageBytes(BytesIO):
    """A file in memory that cannot be read in countless small steps.

    These cost Pillow time and memory.
    """

    def __init__(self, data: bytes, name: str) -> None:
        super().__init__(data)
        self._name = name
        self._left = self._allowed = _FEW_READS + len(data) // _BYTES_A_READ

    def read(self, size: int | None = -1, /) -> bytes:
        """Return the next bytes; InvalidInputError ``too_large`` after too many calls."""
        self._left -= 1
        if self._left < 0:
            raise InvalidInputError("too_large", f"{self._name} has too many small parts for its size")
        return super().read(size)

    def turn_to(self, page: int) -> None:
        """Make a page of a TIFF, by the place of its directory, the first one: that which is read."""
        head = self.getvalue()[:4]
        size = 8 if b"+" in head else 4
        place = page.to_bytes(size, "little" if head[:1] == b"I" else "big")
        if self.getvalue()[size : 2 * size] != place:
            self.getbuffer()[size : 2 * size] = place
        self.seek(0)
        self._left = self._allowed


@dataclass(frozen=True)
class Structure:
    """The structure of a file, before Pillow has read its header.

    Attributes:
        scans: The scans of a JPEG; 1 where one pass gives the whole image.
        tile: The width and height of the largest tile of a JPEG 2000.
    """

    scans: int = 1
    tile: tuple[int, int] | None = None


def check_structure(kind: str, data: bytes, name: str) -> Structure:
    """Return the structure of a file.

    InvalidInputError ``too_large`` where Pillow would take too much to read it.

    Damaged files are left to Pillow, which says how they are damaged.
    """
    if kind == "TIFF":
        check_directory(data, name)
    if kind == "JPEG 2000":
        return Structure(tile=_jpeg2000_tile(data))
    return Structure(scans=_jpeg_scans(data, name)) if kind == "JPEG" else Structure()


def check_directory(data: bytes, name: str) -> None:
    """Raise InvalidInputError ``too_large`` where a TIFF's tags claim far more than there is.

    So it is for Exif data.

    Tags may share bytes, and each gets a copy.
    """
    if data[:2] not in (b"II", b"MM"):
        return
    import numpy as np

    order, is_big = "<" if data[:1] == b"I" else ">", data[2:3] == b"+"
    short, pointer, counter = f"{order}u2", f"{order}u{8 if is_big else 4}", f"{order}u{8 if is_big else 2}"
    form = np.dtype([("tag", short), ("type", short), ("count", pointer), ("value", pointer)])
    start = _number(data, 8 if is_big else 4, pointer)
    count = _number(data, start, counter)
    start += np.dtype(counter).itemsize
    count = min(count, max(len(data) - start, 0) // form.itemsize)
    tags = np.frombuffer(data, form, count, start) if count else np.empty(0, form)
    sizes = np.array([0, 1, 1, 2, 4, 8, 1, 1, 2, 4, 8, 4, 8, 4, 0, 0, 8, 8, 8], np.float64)
    size = np.where(tags["type"] < len(sizes), sizes[np.minimum(tags["type"], len(sizes) - 1)], 0)
    values = np.where((size > 1) | (tags["type"] == _SIGNED_BYTES), tags["count"], 0).astype(np.float64)
    if values.sum() > _TAG_VALUES or (size * tags["count"]).sum() > len(data) + _EXIF_BYTES:
        raise InvalidInputError("too_large", f"{name} has tags with too many values, or with more bytes than it has")


def _number(data: bytes, at: int, form: str) -> int:
    import numpy as np

    size = np.dtype(form).itemsize
    return int(np.frombuffer(data, form, 1, at)[0]) if at + size <= len(data) else 0


def _jpeg_scans(data: bytes, name: str) -> int:
    """Return how many scans a JPEG may have.

    Its segments are counted, and its Exif data checked.

    Pillow puts all Exif segments together, one after the other.
    """
    at, segments, exif, frame = 2, 0, b"", b""
    while (fill := _FILL.search(data, at)) and fill.end() + 3 <= len(data):
        at, marker = fill.end() - 1, data[fill.end()]
        segments += 1
        check_count(segments, "segments", _JPEG_SEGMENTS, name)
        if marker in _NO_PAYLOAD:
            at += 2
            continue
        body = at + 4
        at += 2 + int.from_bytes(data[at + 2 : body], "big")
        if marker == 0xE1 and data[body : body + 6] == b"Exif\0\0":
            exif += data[body + 6 : at]
            check_count(max(len(exif), 1), "bytes of Exif data", _EXIF_BYTES, name)
        if marker in _FRAMES:
            frame = bytes([marker]) + data[body:at]
        if marker == 0xDA:
            check_directory(exif, name)
            is_whole = frame[:1] and frame[0] in _SEQUENTIAL and data[body : body + 1] == frame[6:7]
            return 1 if is_whole else 1 + data.count(b"\xff\xda", at)
    check_directory(exif, name)
    return 1


def _jpeg2000_tile(data: bytes) -> tuple[int, int]:
    """Width and height of the largest tile that any header in the file names."""
    headers = re.finditer(rb"\xff\x4f\xff\x51.{20}(.{4})(.{4})", data, re.DOTALL)
    sizes = [(0, 0), *((int.from_bytes(header[1], "big"), int.from_bytes(header[2], "big")) for header in headers)]
    return max(width for width, _ in sizes), max(height for _, height in sizes)


# ---------------------------------------------------------------------------------------- memory, before it is used

_DECODERS = {"WebP": 12, "AVIF": 8, "HEIC": 6}
"""Bytes a pixel that a decoder has beside Pillow's image, as measured."""
_JPEG2000_BYTES = 5.25
"""Bytes a pixel and channel, as measured."""
_RESULT = 4
"""Bytes a pixel of an RGB image."""


def pixel_bytes(mode: str) -> int:
    """Bytes that Pillow keeps for a pixel."""
    return 1 if mode in ("1", "L", "P") else 2 if mode.startswith("I;16") else 4


def check_image(
    image: Image.Image, kind: str, structure: Structure, limits: ImageLimits, name: str, *, stored: tuple[int, int]
) -> int:
    """Return the memory for decoding an image and making RGB of it.

    The header alone is read so far.

    ``stored`` is its size in the file; a JPEG may be decoded at a fraction of that. Raises InvalidInputError
    ``too_large`` for more than the limits.
    """
    full, pixels = stored[0] * stored[1], image.width * image.height
    check_count(full, "pixels", limits.pixels, name)
    check_count(structure.scans * full, "pixels in all its scans", _JPEG_SCANS * limits.pixels, name)
    decoder: float = _DECODERS.get(kind, 0) * pixels
    if structure.scans > 1:  # the coefficients of the whole image, 2 bytes each
        layers = [(across, down) for _, across, down, _ in getattr(image, "layer", [])]
        largest = max((across for across, _ in layers), default=1) * max((down for _, down in layers), default=1)
        decoder += 2 * full * sum(across * down for across, down in layers) / largest
    if structure.tile:
        width, height = (min(side, largest) for side, largest in zip(structure.tile, image.size))
        decoder += _JPEG2000_BYTES * len(image.getbands()) * width * height
    if kind == "TIFF":
        decoder += _strip_bytes(image)
    own = pixels * pixel_bytes(image.mode)
    size = int(own + max(decoder, pixels * _RESULT))
    check_count(size, "bytes when it is decoded", limits.decoded_bytes, name)
    return size


def _strip_bytes(image: Image.Image) -> int:
    """Return what libtiff has in memory of a compressed TIFF: one strip, or one tile."""
    import numpy as np

    tags = getattr(image, "tag_v2", {})

    def tag(number: int, default: int) -> int:
        return int(np.max(tags.get(number, default)))

    width, height = min(tag(322, image.width), image.width), min(tag(323, tag(278, image.height)), image.height)
    return 0 if tag(259, 1) == 1 else width * height * tag(258, 1) * tag(277, 1) // 8
