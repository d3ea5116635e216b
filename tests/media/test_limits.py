"""What images may cost: memory is capped in processes of their own, so that a test of it cannot harm the machine."""

import json
import struct
import subprocess
import sys
import threading
import zlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from vlmsearch_mocks import MemoryStore, MockEncoder

from tests.support.cli import ok, run
from tests.support.odd_images import RED, VAST_WEBP, encoded, png, scene
from vlmsearch import ConfigError, Document, ImageLimits, InvalidInputError, Pipeline
from vlmsearch.index import add_reported
from vlmsearch.media import colour as colours, images as media, limits as image_limits
from vlmsearch.media.images import copy_image, is_within, open_image
from vlmsearch.media.limits import SERVER_LIMITS, check_directory
from vlmsearch.media.preprocess import Preprocess
from vlmsearch.triton.backend.stages import ImageStage
from vlmsearch.triton.client.protocol import error_of


def tiff(tags: dict[int, tuple[int, list[int]]], pixels: bytes) -> bytes:
    """A little-endian TIFF: tags as type (3 or 4) and values, its only strip at offset 8."""
    form = {3: "H", 4: "I"}
    at = 8 + len(pixels) + len(pixels) % 2
    tail_at, entries, tail = at + 2 + 12 * len(tags) + 4, b"", b""
    for tag, (kind, values) in sorted(tags.items()):
        packed = struct.pack(f"<{len(values)}{form[kind]}", *values)
        value = packed.ljust(4, b"\0") if len(packed) <= 4 else struct.pack("<I", tail_at + len(tail))
        tail += b"" if len(packed) <= 4 else packed
        entries += struct.pack("<HHI", tag, kind, len(values)) + value
    body = pixels.ljust(at - 8, b"\0") + struct.pack("<H", len(tags)) + entries + bytes(4) + tail
    return b"II*\0" + struct.pack("<I", at) + body


def many_strips(count: int) -> bytes:
    tags = {
        256: [1],
        257: [count],
        258: [8],
        259: [1],
        262: [1],
        273: [8] * count,
        277: [1],
        278: [1],
        279: [1] * count,
    }
    return tiff({tag: (4, values) for tag, values in tags.items()}, b"\0\0")


def segment(marker: int, body: bytes) -> bytes:
    return b"\xff" + bytes([marker]) + struct.pack(">H", len(body) + 2) + body


def jpeg_with(extra: bytes) -> bytes:
    data = encoded(scene(), "JPEG")
    return data[:2] + extra + data[2:]


def scans(count: int) -> bytes:
    """A progressive JPEG of 6,000 x 6,000 pixels whose last scan is repeated, empty."""
    data = encoded(Image.new("L", (6000, 6000)), "JPEG", progressive=True, quality=10)
    at = data.rfind(b"\xff\xda")
    return data[:-2] + data[at : at + 2 + int.from_bytes(data[at + 2 : at + 4], "big")] * count + data[-2:]


def exif_of_overlapping_tags(count: int, size: int) -> bytes:
    """Exif data whose tags all claim the same bytes."""
    entries = b"".join(struct.pack("<HHII", 1000 + i, 7, size, 0) for i in range(count))
    return b"Exif\0\0II*\0" + struct.pack("<IH", 8, count) + entries + bytes(4)


# ------------------------------------------------------------------------------------------------------- structure

COSTLY: dict[str, Callable[[], bytes]] = {
    "JPEG, 40 Exif segments": lambda: jpeg_with(segment(0xE1, b"Exif\0\0" + bytes(65_000)) * 40),
    "JPEG, fill bytes": lambda: jpeg_with(b"\xff" * 2_000_000),
    "JPEG, escaped fill bytes": lambda: jpeg_with(b"\xff\0" * 1_000_000),
    "JPEG, short segments": lambda: jpeg_with(segment(0xE5, b"") * 500_000),
    "JPEG, scans": lambda: scans(200),
    "JPEG, Exif": lambda: jpeg_with(segment(0xE1, exif_of_overlapping_tags(5000, 60_000))),
    "TIFF, strips": lambda: many_strips(400_000),
    "PNG, chunks": lambda: png(1, 1, 8, 0, b"\0", *[(b"abCd", b"")] * 200_000),
    "PNG, chunks of pixels": lambda: png(1, 1, 8, 0, b"\0").replace(
        b"\0\0\0\0IEND",
        (struct.pack(">I", 0) + b"IDAT" + struct.pack(">I", zlib.crc32(b"IDAT"))) * 200_000 + b"\0\0\0\0IEND",
    ),
    "PNG, Exif": lambda: png(1, 1, 8, 0, b"\0", (b"eXIf", exif_of_overlapping_tags(5000, 60_000)[6:])),
    "GIF, comments": lambda: (
        encoded(scene(), "GIF").replace(b"!\xf9", b"!\xfe" + b"\1c" * 300_000 + b"\0!\xf9", 1)
        if b"!\xf9" in encoded(scene(), "GIF")
        else encoded(scene(), "GIF").replace(b",\0\0\0\0", b"!\xfe" + b"\1c" * 300_000 + b"\0,\0\0\0\0", 1)
    ),
    "PPM, comment": lambda: b"P6 #" + b"a" * 2_000_000 + b"\n1 1 255\n\0\0\0",
}


@pytest.mark.parametrize("case", COSTLY)
def test_a_file_of_costly_structure_is_too_large(case: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        open_image(COSTLY[case]())
    assert caught.value.code == "too_large"


SOUND: dict[str, Callable[[], bytes]] = {
    "255 segments of a profile, 500 of XMP": lambda: jpeg_with(
        b"".join(segment(0xE2, b"ICC_PROFILE\0" + bytes([i, 255]) + bytes(2000)) for i in range(1, 256))
        + segment(0xE1, b"http://ns.adobe.com/xmp/extension/\0" + bytes(2000)) * 500
    ),
    "two Exif segments": lambda: jpeg_with(segment(0xE1, b"Exif\0\0II*\0\x08\0\0\0\0\0\0\0\0\0") * 2),
    "fill bytes": lambda: jpeg_with(b"\xff" * 300),
    "20,000 strips": lambda: many_strips(20_000),
    "chunks of 8 KiB": lambda: png(1, 1, 8, 0, b"\0", *[(b"abCd", bytes(8192))] * 2000),
    "progressive, 30 scans": lambda: scans(20),
}


@pytest.mark.parametrize("case", SOUND)
def test_what_is_only_unusual_is_read(case: str) -> None:
    assert open_image(SOUND[case]()).mode == "RGB"


@pytest.mark.parametrize("order", ["<", ">"])
def test_values_and_bytes_of_tags_are_limited_in_either_byte_order(order: str) -> None:
    def directory(kind: int, count: int, *, is_big: bool = False) -> bytes:
        start = b"II" if order == "<" else b"MM"
        if is_big:
            return start + struct.pack(f"{order}HHHQQHHQQ", 43, 8, 0, 16, 1, 273, kind, count, 0)
        return start + struct.pack(f"{order}HIHHHII", 42, 8, 1, 273, kind, count, 0)

    check_directory(directory(4, 100_000), "x")
    for kind, count in ((4, 600_000), (6, 600_000), (7, 3_000_000), (12, 200_000)):
        with pytest.raises(InvalidInputError, match="tags"):
            check_directory(directory(kind, count), "x")
    if order == "<":
        with pytest.raises(InvalidInputError, match="tags"):
            check_directory(directory(4, 2**60, is_big=True), "x")


# ---------------------------------------------------------------------------------------------------------- limits


def test_limits_hold_for_files_bytes_and_pil_images(tmp_path: Path) -> None:
    image, pixels = scene(), 48 * 32
    data = encoded(image, "PNG")
    (tmp_path / "a.png").write_bytes(data)
    sources: tuple[Any, ...] = (tmp_path / "a.png", data, image)
    exact = ImageLimits(pixels=pixels, decoded_bytes=8 * pixels, encoded_bytes=len(data))
    for source in sources:
        assert open_image(source, limits=exact).size == (48, 32)
        for less in (ImageLimits(pixels=pixels - 1), ImageLimits(decoded_bytes=8 * pixels - 1)):
            with pytest.raises(InvalidInputError, match="at most") as caught:
                open_image(source, limits=less)
            assert caught.value.code == "too_large"
        if source is not image:
            with pytest.raises(InvalidInputError, match=f"{len(data)} bytes; at most {len(data) - 1}"):
                open_image(source, limits=ImageLimits(encoded_bytes=len(data) - 1))
    with pytest.raises(InvalidInputError, match="at most"):
        copy_image(image, ImageLimits(pixels=pixels - 1))
    assert is_within(data, exact)
    assert not is_within(data, ImageLimits(encoded_bytes=10))
    assert is_within(data[:40], exact), "what is wrong with it is not its size"


def test_a_large_photograph_is_within_the_limits() -> None:
    """12,000 x 8,000 pixels in the formats of cameras and scanners; 163 megapixels of WebP are not."""
    limits = ImageLimits()
    size = struct.pack(">HH", 8000, 12_000)
    for options in ({}, {"progressive": True, "subsampling": 0}):
        jpeg = encoded(scene(), "JPEG", **options).replace(struct.pack(">HH", 32, 48), size)
        assert is_within(jpeg, limits)
        assert is_within(jpeg, SERVER_LIMITS, at_least=672) == (not options)
    for depth, colour in ((8, 2), (8, 6), (16, 0), (16, 6)):
        assert is_within(png(12_000, 8000, depth, colour, b""), limits)
    scan = {256: 8000, 257: 8000, 258: 8, 259: 5, 262: 2, 273: 8, 277: 3, 278: 16, 279: 200_000_000}
    assert is_within(tiff({tag: (4, [number]) for tag, number in scan.items()}, b"\0\0"), limits)
    assert not is_within(VAST_WEBP, limits)


def test_large_images_take_turns_and_small_ones_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    together = threading.Barrier(2, timeout=30)
    under_way, most = 0, 0
    lock = threading.Lock()
    convert = colours.as_rgb

    def counted(image: Image.Image) -> Image.Image:
        nonlocal under_way, most
        with lock:
            under_way += 1
            most = max(most, under_way)
        if image.width < 100:
            together.wait()  # two at once, or this breaks
        done = convert(image)
        with lock:
            under_way -= 1
        return done

    monkeypatch.setattr(media, "as_rgb", counted)
    large, small = (encoded(scene(side, side), "PNG") for side in (400, 40))
    limits = ImageLimits(decoded_bytes=int(1.5 * 400 * 400 * 8))
    stage = ImageStage(Preprocess(32), limits=limits, threads=4)
    _, statuses = stage.run([large] * 12)
    assert (statuses, most) == ([""] * 12, 1)
    _, statuses = stage.run([small] * 4)
    assert statuses == [""] * 4
    stage.close()


def test_a_large_image_is_not_kept_waiting_by_small_ones() -> None:
    """Those that ask later wait behind it."""
    limits = ImageLimits(decoded_bytes=1000)
    turns = image_limits.TURNS
    order: list[str] = []
    with ThreadPoolExecutor(2) as pool:

        def take(name: str, size: int) -> None:
            with turns.take(size, limits.decoded_bytes):
                order.append(name)

        with turns.take(10, limits.decoded_bytes):
            large = pool.submit(take, "large", 1000)
            while not turns._first.locked():
                assert not large.done()
            small = pool.submit(take, "small", 10)
        large.result(30)
        small.result(30)
    assert order == ["large", "small"]


def test_a_pipeline_keeps_to_its_limits() -> None:
    image = encoded(scene(), "PNG")
    limits = ImageLimits(pixels=48 * 32 - 1)
    with Pipeline(MockEncoder(), MemoryStore(), image_limits=limits) as pipeline:
        report = pipeline.add([Document("large", image=image), Document("decoded", image=scene()), Document("t", "a")])
        assert (report.added, {reject.id: reject.code for reject in report.rejects}) == (
            1,
            {"large": "too_large", "decoded": "too_large"},
        )
        with pytest.raises(InvalidInputError, match="at most 1,535"):
            pipeline.search(image=image)
    with Pipeline(MockEncoder(), MemoryStore()) as pipeline:
        assert pipeline.add(Document("large", image=image)).added == 1


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("pixels=50M", ImageLimits(pixels=50_000_000)),
        ("decoded=2Gi,encoded=100Mi", ImageLimits(decoded_bytes=2 * 2**30, encoded_bytes=100 * 2**20)),
        ("encoded=7, pixels=3k", ImageLimits(pixels=3000, encoded_bytes=7)),
        ("memory=2GiB,decoded=3GB,time=60s", ImageLimits(memory_bytes=2**31, decoded_bytes=3 * 10**9, seconds=60)),
        ("memory=2G", ImageLimits(memory_bytes=2 * 10**9)),
        ("remote,encoded=7", ImageLimits(encoded_bytes=7, remote=True)),
    ],
)
def test_limits_are_written_as_text(text: str, expected: ImageLimits) -> None:
    assert ImageLimits().replace_from(text) == expected
    assert ImageLimits().replace_from(str(expected)) == expected


def test_what_is_no_limit_is_refused() -> None:
    wrong = ("", "pixels", "pixels=", "pixels=-1", "pixels=0", "pixels=1m", "pixels=1B", "area=5", "encoded=513Mi")
    for text in (*wrong, "time=1B", "memory=1s"):
        with pytest.raises(ConfigError):
            ImageLimits().replace_from(text)


@pytest.mark.parametrize("strip", [1, 700])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_colours_are_the_same_in_strips(strip: int, orientation: int, monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.support.odd_images import textured, turned

    image = textured(60, 44)
    seen = image.convert("RGBA")
    seen.putalpha(Image.linear_gradient("L").resize(seen.size))
    files = [turned(orientation, "PNG", one) for one in (image, seen, seen.quantize(50), image.convert("L"))]
    files += [turned(orientation, "TIFF", image.convert(mode)) for mode in ("CMYK", "F", "I")]
    files.append(turned(orientation, "PNG", image, transparency=RED))
    whole = [np.asarray(open_image(data)) for data in files]
    monkeypatch.setattr(colours, "_STRIP", strip)
    for data, expected in zip(files, whole):
        np.testing.assert_array_equal(np.asarray(open_image(data)), expected)
    with Image.open(BytesIO(files[0])) as lazy:
        np.testing.assert_array_equal(np.asarray(open_image(lazy)), whole[0])


MIB = 2**20


def chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def flat(side: int, *, bits: int = 8, colour: int = 2, extra: bytes = b"") -> bytes:
    """A black PNG of ``side`` x ``side`` pixels, in few bytes."""
    row = b"\0" * (1 + (side * {0: 1, 2: 3, 3: 1, 6: 4}[colour] * bits + 7) // 8)
    deflate = zlib.compressobj(9)
    pixels = b"".join(deflate.compress(row) for _ in range(side)) + deflate.flush()
    header = struct.pack(">IIBBBBB", side, side, bits, colour, 0, 0, 0)
    body = chunk(b"IHDR", header) + extra + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + body


def saved(image: Image.Image, form: str, **options: object) -> bytes:
    out = BytesIO()
    image.save(out, form, **options)
    return out.getvalue()


SMALL_PNG = flat(8)


MEASURED: dict[str, Callable[[], bytes]] = {
    "16 bits and a key": lambda: flat(5000, bits=16, colour=0, extra=chunk(b"tRNS", b"\0\0")),
    "a palette with alpha": lambda: flat(
        5000, colour=3, extra=chunk(b"PLTE", b"\1\2\3" * 256) + chunk(b"tRNS", b"\x80" * 256)
    ),
    "RGBA": lambda: flat(5000, colour=6),
    "floats": lambda: saved(Image.fromarray(np.zeros((5000, 5000), np.float32)), "TIFF", compression="tiff_deflate"),
    "CMYK": lambda: saved(Image.new("CMYK", (5000, 5000)), "TIFF", compression="tiff_deflate"),
    "progressive": lambda: saved(Image.new("RGB", (5000, 5000)), "JPEG", progressive=True),
    "JPEG 2000": lambda: saved(Image.new("RGB", (2500, 2500)), "JPEG2000"),
    "WebP": lambda: saved(Image.new("RGBA", (5000, 5000), (1, 2, 3, 4)), "WEBP", lossless=True, quality=0, method=0),
}


DECODE = """
import resource, sys
from vlmsearch import ImageLimits, InvalidInputError
from vlmsearch.media.images import open_image
data = sys.stdin.buffer.read()
open_image(data[:0] + {small!r})  # what a first image costs is not this one's
try:
    open_image(data, limits=ImageLimits(decoded_bytes=1))
except InvalidInputError as exc:
    claimed = int(str(exc).split(" bytes")[0].split()[-1].replace(",", ""))
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
open_image(data, limits=ImageLimits(decoded_bytes=claimed))
print(claimed, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024)
"""


@pytest.mark.slow
@pytest.mark.parametrize("name", MEASURED)
def test_an_image_takes_the_memory_that_its_header_was_taken_to_mean(name: str) -> None:
    code = DECODE.format(small=SMALL_PNG)
    done = subprocess.run([sys.executable, "-c", code], input=MEASURED[name](), capture_output=True, timeout=200)
    assert done.returncode == 0, done.stderr.decode()
    claimed, taken = map(int, done.stdout.split())
    assert taken < 1.15 * claimed + 48 * MIB, (claimed / MIB, taken / MIB)


LIMITED = """
import json, resource, sys
from pathlib import Path
from vlmsearch import ImageLimits, InvalidInputError, Pipeline
good, bad = map(Path, sys.argv[1:])
with Pipeline.open(encoder="mock:", store="mock:", image_limits=ImageLimits(decoded_bytes=2**40)) as pipeline:
    pipeline.index(good)
    size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (size + 500 * 2**20,) * 2)
    report = pipeline.index(good.parent)
    print(json.dumps([report.unchanged, [[reject.code, reject.message] for reject in report.rejects]]))
    try:
        pipeline.search(image=bad)
    except InvalidInputError as exc:
        print(json.dumps([exc.code, str(exc)]))
"""


@pytest.mark.slow
def test_an_image_that_the_memory_does_not_suffice_for_ends_no_run(tmp_path: Path) -> None:
    good = tmp_path / "good"
    good.mkdir()
    for number in range(3):
        (good / f"{number}.png").write_bytes(flat(40 + number))
    bad = tmp_path / "huge.png"
    bad.write_bytes(flat(12_000))
    command = [sys.executable, "-c", LIMITED, str(good), str(bad)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stderr
    (unchanged, [[code, message]]), (query, said) = map(json.loads, done.stdout.splitlines())
    assert (unchanged, code, query) == (3, "too_large", "too_large")
    assert "memory" in message
    assert "memory" in said


def test_a_server_refuses_what_a_library_takes_and_goes_on_with_the_others() -> None:
    stage = ImageStage(Preprocess(size=32), limits=SERVER_LIMITS, threads=2)
    pixels, statuses = stage.run([VAST_WEBP, flat(50), VAST_WEBP, flat(12_000, colour=0)])
    stage.close()
    codes = [error_of(status).code if status else "" for status in statuses]
    assert codes == ["too_large", "", "too_large", "too_large"]
    assert pixels.shape == (4, 32, 32, 3)
    assert open_image(flat(12_000, colour=0)).size == (12_000, 12_000)


def test_the_limits_are_an_option_wherever_images_come_in(tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "one.png").write_bytes(flat(50))
    small = ImageLimits(pixels=49 * 50)
    with Pipeline.open(encoder="mock:", store="mock:", image_limits=small) as pipeline:
        report = pipeline.index(tmp_path / "photos")
        assert [reject.code for reject in report.rejects] == ["too_large"]
        assert [r.code for r in add_reported(pipeline, [Document("a", image=flat(50))]).rejects] == ["too_large"]
        pipeline.add([Document("b", text="a star")])
        with pytest.raises(InvalidInputError, match="2,500 pixels; at most 2,450") as caught:
            pipeline.search(image=tmp_path / "photos" / "one.png")
        assert caught.value.code == "too_large"
    command = ("index", "photos", "--encoder", "mock:", "--store", "sqlite:index")
    done = run(*command, "--json", cwd=tmp_path, VLMSEARCH_IMAGE_LIMITS="encoded=10")
    assert (done.returncode, [r["code"] for r in json.loads(done.stdout)["rejects"]]) == (1, ["too_large"])
    done = run(*command, "--image-limits", "width=3", cwd=tmp_path)
    assert done.returncode == 2
    assert "such as pixels=50M,memory=2GiB, not 'width=3'" in " ".join(done.stderr.split())


def test_limits_are_shown_with_names_and_units() -> None:
    assert str(ImageLimits()) == "pixels=178956970,decoded=1536MiB,encoded=512MiB,memory=2GiB,cpu=300s,time=300s"
    assert str(ImageLimits(pixels=50_000_000, memory_bytes=2 * 10**9, encoded_bytes=7)).startswith("pixels=50M,")
    assert "memory=2GB" in str(ImageLimits(memory_bytes=2 * 10**9))
    shown = " ".join(ok("index", "--help").split())
    assert "[default: pixels=178956970, decoded=1536MiB, encoded=512MiB, memory=2GiB, cpu=300s, time=300s]" in shown
