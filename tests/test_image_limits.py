"""Images that ask for far more memory or time than they are worth: refused before they are decoded, or in turn."""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
import threading
import zlib
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from vlmsearch import ConfigError, Document, ImageLimits, InvalidInputError, Pipeline
from vlmsearch.image_limits import SERVER_LIMITS, TURNS
from vlmsearch.media import Preprocess, open_image
from vlmsearch.serving.protocol import error_of
from vlmsearch.serving.stages import ImageStage

WEBP = bytes.fromhex("5249464626000000574542505650384c190000002ffeffc319075081540820000a1a02495bbced8f8f88e87f0000")
"""16,383 x 10,000 pixels in 46 bytes, sound and complete."""
MIB = 2**20


def chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png(side: int, *, bits: int = 8, colour: int = 2, extra: bytes = b"") -> bytes:
    """A black image of ``side`` x ``side`` pixels, in few bytes."""
    row = b"\0" * (1 + (side * {0: 1, 2: 3, 3: 1, 6: 4}[colour] * bits + 7) // 8)
    header = struct.pack(">IIBBBBB", side, side, bits, colour, 0, 0, 0)
    body = chunk(b"IHDR", header) + extra + chunk(b"IDAT", zlib.compress(row * side, 9)) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + body


def saved(image: Image.Image, form: str, **options: object) -> bytes:
    out = BytesIO()
    image.save(out, form, **options)
    return out.getvalue()


def segment(marker: int, data: bytes) -> bytes:
    return bytes([0xFF, marker]) + struct.pack(">H", len(data) + 2) + data


def strips(count: int) -> bytes:
    """A TIFF of ``count`` strips that all lie in the same byte."""
    long = struct.Struct("<HHII")
    short = [(256, 4, 1, 1), (257, 4, 1, count), (258, 3, 1, 8), (259, 3, 1, 1), (262, 3, 1, 1), (277, 3, 1, 1)]
    offsets = 8 + 2 + 12 * 9 + 4
    tags = sorted([*short, (273, 4, count, offsets), (278, 4, 1, 1), (279, 4, count, offsets + 4 * count)])
    directory = struct.pack("<H", len(tags)) + b"".join(long.pack(*tag) for tag in tags) + b"\0\0\0\0"
    return b"II*\0\x08\0\0\0" + directory + struct.pack("<I", 8) * count + struct.pack("<I", 1) * count


JPEG = saved(Image.new("RGB", (64, 64)), "JPEG")
SCANS = saved(Image.new("L", (4000, 4000)), "JPEG", progressive=True)
LAST_SCAN = SCANS[SCANS.rfind(b"\xff\xda") : -2]
SMALL_PNG = png(8)
HOSTILE = {
    "a canvas of WebP": WEBP,
    "segments of Exif": JPEG[:2] + segment(0xE1, b"Exif\0\0" + bytes(65_000)) * 20 + JPEG[2:],
    "tiny segments": JPEG[:2] + segment(0xE5, b"") * 100_000 + JPEG[2:],
    "fill bytes": JPEG[:2] + b"\xff" * 8_000_000 + JPEG[2:],
    "scans": SCANS[:-2] + LAST_SCAN * 500 + SCANS[-2:],
    "strips": strips(300_000),
    "tiny chunks": SMALL_PNG[:33] + chunk(b"abCd", b"") * 100_000 + SMALL_PNG[33:],
    "a comment": b"P6 #" + b"a" * 1_000_000,
}


@pytest.mark.parametrize("name", HOSTILE)
def test_what_costs_far_more_than_it_is_worth_is_too_large(name: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        open_image(HOSTILE[name])
    assert caught.value.code == "too_large", caught.value
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("kind", ["tiny segments", "fill bytes", "tiny chunks"])
def test_the_work_for_a_file_of_small_parts_does_not_grow_with_their_number(kind: str) -> None:
    seconds = []
    for data in (HOSTILE[kind], HOSTILE[kind] * 4):
        code = (
            "import sys, time; from vlmsearch.media import open_image\n"
            "from vlmsearch import InvalidInputError\n"
            "data = sys.stdin.buffer.read(); start = time.process_time()\n"
            "try: open_image(data)\n"
            "except InvalidInputError as exc: assert exc.code == 'too_large', exc\n"
            "print(time.process_time() - start)"
        )
        done = subprocess.run([sys.executable, "-c", code], input=data, capture_output=True, check=True, timeout=120)
        seconds.append(float(done.stdout))
    assert seconds[1] < 8 * seconds[0] + 0.5  # four times as many, and what every process pays


MEASURED = {
    "16 bits and a key": png(5000, bits=16, colour=0, extra=chunk(b"tRNS", b"\0\0")),
    "a palette with alpha": png(5000, colour=3, extra=chunk(b"PLTE", b"\1\2\3" * 256) + chunk(b"tRNS", b"\x80" * 256)),
    "RGBA": png(5000, colour=6),
    "floats": saved(Image.fromarray(np.zeros((5000, 5000), np.float32)), "TIFF", compression="tiff_deflate"),
    "CMYK": saved(Image.new("CMYK", (5000, 5000)), "TIFF", compression="tiff_deflate"),
    "progressive": saved(Image.new("RGB", (5000, 5000)), "JPEG", progressive=True),
    "JPEG 2000": saved(Image.new("RGB", (2500, 2500)), "JPEG2000"),
    "WebP": saved(Image.new("RGBA", (5000, 5000), (1, 2, 3, 4)), "WEBP", lossless=True, quality=0, method=0),
}
DECODE = """
import resource, sys
from vlmsearch import ImageLimits, InvalidInputError
from vlmsearch.media import open_image
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


@pytest.mark.parametrize("name", MEASURED)
def test_an_image_takes_the_memory_that_its_header_was_taken_to_mean(name: str) -> None:
    code = DECODE.format(small=SMALL_PNG)
    done = subprocess.run([sys.executable, "-c", code], input=MEASURED[name], capture_output=True, timeout=200)
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


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs Linux's limit of the address space")
@pytest.mark.parametrize("decoder", ["png", "webp"])
def test_an_image_that_the_memory_does_not_suffice_for_ends_no_run(tmp_path: Path, decoder: str) -> None:
    good = tmp_path / "good"
    good.mkdir()
    for number in range(3):
        (good / f"{number}.png").write_bytes(png(40 + number))
    bad = tmp_path / f"huge.{decoder}"
    bad.write_bytes(png(12_000) if decoder == "png" else WEBP)
    command = [sys.executable, "-c", LIMITED, str(good), str(bad)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stderr
    (unchanged, [[code, message]]), (query, said) = map(json.loads, done.stdout.splitlines())
    assert (unchanged, code, query) == (3, "too_large", "too_large")
    assert "memory" in message
    assert "memory" in said


def test_a_server_refuses_what_a_library_takes_and_goes_on_with_the_others() -> None:
    stage = ImageStage(Preprocess(size=32), limits=SERVER_LIMITS, threads=2)
    pixels, statuses = stage.run([WEBP, png(50), WEBP, png(12_000, colour=0)])
    stage.close()
    codes = [error_of(status, 0).code if status else "" for status in statuses]
    assert codes == ["too_large", "", "too_large", "too_large"]
    assert pixels.shape == (4, 32, 32, 3)
    assert open_image(png(12_000, colour=0)).size == (12_000, 12_000)


def test_large_images_are_decoded_one_after_the_other_and_small_ones_beside_each_other() -> None:
    def most_at_once(size: int) -> int:
        running = most = 0
        guard, all_here = threading.Lock(), threading.Barrier(3)

        def decode() -> None:
            nonlocal running, most
            all_here.wait(timeout=30)
            with TURNS.take(size, most=100):
                with guard:
                    running += 1
                    most = max(most, running)
                if size < 50:
                    beside.wait(timeout=30)  # none goes on before all are in
                with guard:
                    running -= 1

        beside = threading.Barrier(3)
        threads = [threading.Thread(target=decode) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(timeout=60)
        assert not any(thread.is_alive() for thread in threads)
        return most

    assert most_at_once(60) == 1
    assert most_at_once(30) == 3
    assert most_at_once(500) == 1  # larger than all that there is: by itself


def test_the_limits_are_an_option_wherever_images_come_in(tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "one.png").write_bytes(png(50))
    small = ImageLimits(pixels=49 * 50)
    with Pipeline.open(encoder="mock:", store="mock:", image_limits=small) as pipeline:
        report = pipeline.index(tmp_path / "photos")
        assert [reject.code for reject in report.rejects] == ["too_large"]
        assert [r.code for r in pipeline.add([Document("a", image=png(50))]).rejects] == ["too_large"]
        pipeline.add([Document("b", text="a star")])
        with pytest.raises(InvalidInputError, match="2,500 pixels; at most 2,450") as caught:
            pipeline.search(image=tmp_path / "photos" / "one.png")
        assert caught.value.code == "too_large"
    command = [sys.executable, "-m", "vlmsearch", "index", "photos", "--encoder", "mock:", "--store", "chroma:index"]
    given = os.environ | {"VLMSEARCH_IMAGE_LIMITS": "encoded=10"}
    done = subprocess.run([*command, "--json"], cwd=tmp_path, env=given, capture_output=True, text=True, check=True)
    assert [reject["code"] for reject in json.loads(done.stdout)["rejects"]] == ["too_large"]
    done = subprocess.run(
        [*command, "--image-limits", "width=3"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "limits of images are written pixels=N,decoded=N,encoded=N" in " ".join(done.stderr.split())


@pytest.mark.parametrize("wrong", [{"pixels": 0}, {"decoded_bytes": -1}, {"encoded_bytes": 2**30}])
def test_limits_that_cannot_be_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(ConfigError):
        ImageLimits(**wrong)
