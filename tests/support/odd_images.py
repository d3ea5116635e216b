"""Odd and damaged image files, made from a seed: what a folder of images holds in the worst case."""

from __future__ import annotations

import os
import random
import struct
import zlib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from io import BytesIO
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import PIL.Image
from PIL import Image, ImageCms, features

RED, GREEN, BLUE, YELLOW = (255, 0, 0), (0, 255, 0), (0, 0, 255), (255, 255, 0)
CORNERS = (RED, GREEN, BLUE, YELLOW)
"""Of `scene`: top left, top right, bottom left, bottom right."""
OK = frozenset({"ok"})
REJECTED = frozenset({"corrupt", "truncated"})
ANYTHING = frozenset({"ok", "corrupt", "truncated", "too_large", "unsupported"})
VAST_WEBP = bytes.fromhex(
    "5249464626000000574542505650384c190000002ffeffc319075081540820000a1a02495bbced8f8f88e87f0000"
)
"""A lossless WebP of 16,383 x 10,000 pixels of one colour."""
_LIES = "_ _ FLIP_LEFT_RIGHT ROTATE_180 FLIP_TOP_BOTTOM TRANSPOSE ROTATE_90 TRANSVERSE ROTATE_270".split()  # noqa: SIM905
"""By EXIF's orientation: how an upright image lies in the file."""


@dataclass(frozen=True)
class OddFile:
    """A file and what may come of it: "ok", or the codes that InvalidInputError may have."""

    path: Path
    expected: frozenset[str]


def odd_files(folder: Path, seed: int) -> list[OddFile]:
    """Write about 230 odd and damaged files to ``folder``; the same for the same seed and libraries.

    Formats, pipes and permissions that this machine cannot make are left out.
    """
    folder.mkdir(parents=True, exist_ok=True)
    made = []
    for name, data, expected in (*_sound(), *_bombs(), *_impostors(), *_damaged(random.Random(seed))):
        with suppress(OSError):  # which a file system raises that does not take the name
            (folder / name).write_bytes(data)
            made.append(OddFile(folder / name, frozenset(expected)))
    return [*made, *_special(folder)]


def scene(width: int = 48, height: int = 32, mode: str = "RGB") -> Image.Image:
    """Four flat quadrants: red, green, blue, yellow."""
    image, x, y = Image.new("RGB", (width, height), RED), width // 2, height // 2
    for colour, box in ((GREEN, (x, 0, width, y)), (BLUE, (0, y, x, height)), (YELLOW, (x, y, width, height))):
        image.paste(colour, box)
    image = image.convert(mode)
    image.info.clear()  # of LAB, a profile with the time
    return image


def textured(width: int, height: int, seed: int = 0) -> Image.Image:
    """A smooth random image with detail at several scales, as a photograph has."""
    random_ = np.random.default_rng(seed)
    total = np.full((height, width, 3), 128, np.float32)
    for power in range(1, 7):
        coarse = random_.normal(size=(2**power + 1, 2**power + 1, 3)).astype(np.float32) * 90 * 0.62**power
        planes = [Image.fromarray(coarse[..., c]).resize((width, height), Image.Resampling.BICUBIC) for c in range(3)]
        total += np.stack([np.asarray(plane) for plane in planes], -1)
    return Image.fromarray(np.clip(total, 0, 255).astype(np.uint8))


def encoded(image: Image.Image, kind: str, **options: Any) -> bytes:
    """An image as a file of Pillow's format ``kind``, or as HEIC."""
    out = BytesIO()
    if kind == "HEIC":
        import_module("pillow_heif").from_pillow(image).save(out, **options)
    else:
        image.save(out, kind, **options)
    return out.getvalue()


def turned(orientation: int, kind: str, image: Image.Image | None = None, **options: Any) -> bytes:
    """A file that is upright, as `scene` is, only when EXIF's orientation is obeyed."""
    image = image or scene()
    exif = Image.Exif()
    exif[0x0112] = orientation
    stored = image.transpose(Image.Transpose[_LIES[orientation]]) if orientation in range(2, 9) else image
    return encoded(stored, kind, exif=exif.tobytes(), **options)


def formats() -> frozenset[str]:
    """What `encoded` can write here: AVIF needs a Pillow that has it, HEIC needs pillow-heif."""
    avif = ["AVIF"] if "avif" in features.modules and features.check("avif") else []
    heic = ["HEIC"] if find_spec("pillow_heif") else []
    return frozenset(["JPEG", "PNG", "GIF", "WEBP", "TIFF", "BMP", "PPM", "JPEG2000", *avif, *heic])


def png(width: int, height: int, depth: int, colour: int, rows: bytes, *extra: tuple[bytes, bytes]) -> bytes:
    """A PNG of any depth and colour type from unfiltered rows, with extra chunks before the pixels."""
    stride = len(rows) // height or 1
    lines = b"".join(b"\0" + rows[i : i + stride] for i in range(0, len(rows), stride))
    header = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0)
    chunks = [(b"IHDR", header), *extra, (b"IDAT", zlib.compress(lines)), (b"IEND", b"")]
    packed = (struct.pack(">I", len(d)) + n + d + struct.pack(">I", zlib.crc32(n + d)) for n, d in chunks)
    return b"\x89PNG\r\n\x1a\n" + b"".join(packed)


def rgb_profile(gamma: float = 2.2, order: str = "rgb") -> bytes:
    """An ICC profile with sRGB's primaries in the given order and a plain gamma: "grb" shows red as green."""
    primaries = {"r": (0.4361, 0.2225, 0.0139), "g": (0.3851, 0.7169, 0.0971), "b": (0.1431, 0.0606, 0.7141)}
    curve = _curve(gamma)
    tags = {f"{slot}XYZ".encode(): _xyz(*primaries[source]) for slot, source in zip("rgb", order, strict=True)}
    return _profile(b"RGB ", b"XYZ ", tags | dict.fromkeys((b"rTRC", b"gTRC", b"bTRC"), curve))


def grey_profile(gamma: float) -> bytes:
    """An ICC profile for greys with a plain gamma."""
    return _profile(b"GRAY", b"XYZ ", {b"kTRC": _curve(gamma)})


def grey_cmyk_profile() -> bytes:
    """An ICC profile that shows every CMYK colour as a grey: no ink is white, all inks are black."""
    straight = bytes(range(256))
    inks = [sum(ink) for ink in product((0, 1), repeat=4)]
    table = b"".join(bytes((255 * (4 - ink) // 4, 128, 128)) for ink in inks)
    identity = struct.pack(">9i", *(65536 if i % 4 == 0 else 0 for i in range(9)))
    lut = b"mft1\0\0\0\0" + bytes((4, 3, 2, 0)) + identity + straight * 4 + table + straight * 3
    return _profile(b"CMYK", b"Lab ", {b"A2B0": lut}, kind=b"prtr")


def srgb_profile() -> bytes:
    """The ICC profile of sRGB itself, without the time at which it was made."""
    profile = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    return profile[:24] + bytes(12) + profile[36:]


def _curve(gamma: float) -> bytes:
    return b"curv\0\0\0\0" + struct.pack(">IH", 1, round(gamma * 256))


def _xyz(*values: float) -> bytes:
    return b"XYZ \0\0\0\0" + struct.pack(">3i", *(round(v * 65536) for v in values))


def _profile(space: bytes, pcs: bytes, tags: Mapping[bytes, bytes], kind: bytes = b"mntr") -> bytes:
    offset, table, body = 128 + 4 + 12 * len(tags), b"", b""
    for name, data in tags.items():
        table += name + struct.pack(">II", offset + len(body), len(data))
        body += data + bytes(-len(data) % 4)
    white = struct.pack(">3i", 63190, 65536, 54061)
    head = struct.pack(">I4sI4s4s4s12s4s", offset + len(body), b"\0\0\0\0", 0x02400000, kind, space, pcs, b"", b"acsp")
    return (head + bytes(28) + white).ljust(128, b"\0") + struct.pack(">I", len(tags)) + table + body


Case = tuple[str, bytes, "frozenset[str] | set[str]"]


def _sound() -> Iterator[Case]:
    """Unusual, but in order."""
    for name, image, kind, options in (*_modes(), *_options()):
        yield name, encoded(image, kind, **options), OK
    for size in ((1, 1), (1, 900), (900, 1), (2, 3), (7, 5), (16, 16)):
        for kind in ("JPEG", "PNG", "WEBP", "GIF"):
            yield f"{size[0]}x{size[1]}.{kind.lower()}", encoded(scene(*size), kind), OK
    whole = encoded(scene(), "JPEG")
    for name in ("ünï 图片 🐕.jpg", "two\nlines.jpg", " space .jpg", "-rf.jpg", "quote'\".jpg", "UPPER.JPG", "none"):
        yield name, whole, OK
    yield "png named.jpg", encoded(scene(), "PNG"), OK
    yield "x" * 200 + ".jpg", whole, OK
    yield "trailing.jpg", whole + b"some bytes after the end" * 9, OK
    yield "16-bit-rgba.png", png(1, 1, 16, 6, struct.pack(">4H", 65535, 0, 0, 32768)), OK
    yield "16-bit.ppm", b"P6 2 1 65535\n" + struct.pack(">6H", 65535, 0, 0, 0, 32768, 65535), OK
    yield "text.ppm", b"P3\n# a comment\n2 1\n255\n255 0 0 0 128 255\n", OK
    yield "float.pfm", b"Pf\n2 1\n-1.0\n" + struct.pack("<2f", 0.5, 1.0), OK


def _modes() -> Iterator[tuple[str, Image.Image, str, Mapping[str, Any]]]:
    """Every pixel format that each file format has."""
    modes = {
        "JPEG": "L RGB CMYK",
        "PNG": "1 L LA P RGB RGBA",
        "GIF": "L P RGB",
        "WEBP": "L RGB RGBA",
        "TIFF": "1 L LA P RGB RGBA RGBX CMYK LAB",
        "BMP": "1 L P RGB RGBA",
        "PPM": "1 L RGB",
        "JPEG2000": "L LA RGB RGBA",
        "AVIF": "L RGB RGBA",
        "HEIC": "L RGB RGBA",
    }
    seen = scene(mode="RGBA")
    seen.putalpha(Image.linear_gradient("L").resize(seen.size))
    for kind in sorted(formats()):
        for mode in modes[kind].split():
            image = seen.convert(mode) if mode.endswith("A") else scene(mode=mode)
            yield f"mode-{mode}.{kind.lower()}", image, kind, {}
    ramp = np.arange(1536).reshape(32, 48)
    yield "mode-I16.png", Image.fromarray((ramp * 42).astype(np.uint16)), "PNG", {}
    for name, deep in (("I16", np.uint16), ("I", np.int32), ("F", np.float32)):
        yield f"mode-{name}.tiff", Image.fromarray(ramp.astype(deep)), "TIFF", {}


def _options() -> Iterator[tuple[str, Image.Image, str, Mapping[str, Any]]]:
    """Transparent colours and compressions; animations, EXIF data and profiles have tests of their own."""
    base = scene()
    yield "alphas-P.png", base.quantize(4), "PNG", {"transparency": b"\x00\x80\xff\x40"}
    yield "key.gif", base.quantize(4), "GIF", {"transparency": 1}
    for compression in ("tiff_lzw", "packbits", "tiff_adobe_deflate", "jpeg"):
        yield f"{compression}.tiff", base, "TIFF", {"compression": compression}
    yield "group4.tiff", base.convert("1"), "TIFF", {"compression": "group4"}
    yield "big.tiff", base, "TIFF", {"big_tiff": True}
    yield "progressive.jpg", base, "JPEG", {"progressive": True}
    yield "codestream.j2k", base, "JPEG2000", {"no_jp2": True}


def _bombs() -> Iterator[Case]:
    """Small files that claim, or unpack to, more than anyone should decode."""
    large, some, much = {"too_large"}, zlib.compress(bytes(2**20)), zlib.compress(bytes(8 * 2**20))
    yield "bomb.png", png(60000, 60000, 8, 2, b""), large
    yield "bomb-flat.png", png(2**31 - 1, 1, 8, 0, b""), large
    yield "bomb-text.png", png(1, 1, 8, 0, b"\0", (b"zTXt", b"Comment\0\0" + much)), large
    yield "bomb-texts.png", png(1, 1, 8, 0, b"\0", *[(b"zTXt", b"Comment\0\0" + some)] * 70), large
    yield "bomb-profile.png", png(1, 1, 8, 0, b"\0", (b"iCCP", b"icc\0\0" + much)), large
    yield "bomb.ppm", b"P6 100000 100000 255\n" + bytes(100), large
    tags = {256: 200000, 257: 200000, 258: 8, 259: 1, 262: 1, 273: 8, 277: 1, 278: 200000, 279: 9}
    entries = b"".join(struct.pack("<HHII", tag, 4, 1, value) for tag, value in tags.items())
    yield "bomb.tiff", b"II*\0" + struct.pack("<IH", 8, len(tags)) + entries + bytes(4), large
    side, wide = struct.pack(">HH", 32, 48), struct.pack("<HHHH", 0, 0, 48, 32)
    files = {kind: encoded(scene(), kind) for kind in formats()}
    yield "bomb.jpg", files["JPEG"].replace(side, struct.pack(">HH", 65500, 65500)), large
    yield "bomb.gif", files["GIF"][:6] + b"\xff\xff\xff\xff" + files["GIF"][10:], large
    yield "bomb-frame.gif", files["GIF"].replace(wide, bytes(4) + b"\xff\xff\xff\xff"), large
    yield "bomb.bmp", files["BMP"][:18] + struct.pack("<ii", 100000, 100000) + files["BMP"][26:], large
    yield "bomb.jp2", files["JPEG2000"].replace(struct.pack(">II", 32, 48), struct.pack(">II", 200000, 200000)), large
    body = b"WEBPVP8X" + struct.pack("<I", 10) + b"\x10\0\0\0" + b"\xff\xff\x00" * 2 + files["WEBP"][12:]
    yield "bomb.webp", b"RIFF" + struct.pack("<I", len(body)) + body, large | REJECTED
    for kind in sorted(formats() & {"AVIF", "HEIC"}):
        at = files[kind].index(b"ispe") + 8
        claim = files[kind][:at] + struct.pack(">II", 60000, 60000) + files[kind][at + 8 :]
        yield f"bomb.{kind.lower()}", claim, large | REJECTED


def _impostors() -> Iterator[Case]:
    """Not images, whatever their names say."""
    no = {"unsupported"}
    yield "empty.jpg", b"", {"empty"}
    yield "text.jpg", b"This is not a photograph.\n" * 20, no
    yield "page.png", b"<!DOCTYPE html><title>404 Not Found</title>", no
    yield "bmw.bmp", b"BMW makes cars, and this is a text about them.", no
    yield "p6.ppm", b"P60 is not a pixmap", no
    yield "zeros.jpg", bytes(5000), no
    yield "one-byte.jpg", b"\xff", no
    yield "movie.heic", b"\0\0\0\x18ftypisom\0\0\x02\0isommp42" + bytes(100), no
    yield "archive.png", b"PK\x03\x04" + bytes(200), no
    yield "paper.jpg", b"%PDF-1.7\n" + bytes(200), no
    yield "vector.png", b'<svg xmlns="http://www.w3.org/2000/svg"/>', no
    yield "postscript.jpg", b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", no
    yield "photo.heic", b"\0\0\0\x18ftypheic\0\0\0\0mif1heic" + bytes(50), REJECTED if "HEIC" in formats() else no
    yield "header.jpg", b"\xff\xd8\xff", {"truncated"}
    yield "nothing.jpg", b"\xff\xd8\xff\xd9", {"corrupt"}
    yield "header.png", b"\x89PNG\r\n\x1a\n", {"truncated"}
    yield "header.gif", b"GIF89a", {"truncated"}
    yield "riff.webp", b"RIFF\x04\0\0\0WEBP", REJECTED


def _damaged(random_: random.Random) -> Iterator[Case]:
    """Every format with its end missing, and with bytes changed."""
    image = textured(60, 44)
    samples = {
        kind.lower(): encoded(image.quantize(32) if kind == "GIF" else image, kind) for kind in sorted(formats())
    }
    samples["progressive.jpg"] = encoded(image, "JPEG", progressive=True)
    samples["lossless.webp"] = encoded(image, "WEBP", lossless=True)
    samples["lzw.tiff"] = encoded(image, "TIFF", compression="tiff_lzw")
    samples["j2k"] = encoded(image, "JPEG2000", no_jp2=True)
    for ending, data in samples.items():
        for cut in (0.02, 0.1, 0.35, 0.6, 0.85, 0.97):
            size = max(16, int(len(data) * cut))
            yield f"cut-{size}.{ending}", data[:size], {"truncated"}
        for index in range(4):
            changed = bytearray(data)
            for _ in range(1 + 3 * index):
                changed[random_.randrange(len(data))] ^= 1 << random_.randrange(8)
            yield f"changed-{index}.{ending}", bytes(changed), ANYTHING


def _special(folder: Path) -> Iterator[OddFile]:
    """What is found in folders but is not a readable file."""
    unreadable = frozenset({"unreadable"})
    (folder / "folder.jpg").mkdir(exist_ok=True)
    for name in ("folder.jpg", "missing.jpg", "n" * 400 + ".jpg", "nul\0.jpg"):
        yield OddFile(folder / name, unreadable)
    with suppress(OSError, AttributeError):  # no links or no pipes here
        for name, target in (("dangling.jpg", "nowhere"), ("loop.jpg", "loop.jpg"), ("link.jpg", "UPPER.JPG")):
            (folder / name).symlink_to(target)
            yield OddFile(folder / name, OK if name == "link.jpg" else unreadable)
        os.mkfifo(folder / "pipe.jpg")
        yield OddFile(folder / "pipe.jpg", unreadable)
    locked = folder / "locked.jpg"
    locked.write_bytes(encoded(scene(), "JPEG"))
    locked.chmod(0)
    yield OddFile(locked, OK if os.access(locked, os.R_OK) else unreadable)


def picture(width: int, height: int, **how: object) -> bytes:
    """A JPEG with detail at every scale."""
    noise = np.random.default_rng(width * height).integers(0, 256, (height, width, 3)).astype(np.uint8)
    ramp = np.linspace(0, 255, width, dtype=np.uint8)[None, :, None]
    out = BytesIO()
    PIL.Image.fromarray(np.where(noise > 128, ramp, noise).astype(np.uint8)).save(out, "JPEG", quality=90, **how)
    return out.getvalue()
