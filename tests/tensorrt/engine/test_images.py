"""JPEGs to pixels on the GPU: the kernels' own source on a pretend GPU, against Pillow."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import PIL.Image
import pytest
from PIL import ImageCms

from tests.support.codec_standin import SOURCE, Decoder, pretend_gpu
from tests.support.odd_images import picture
from tests.support.tensorrt_standin.gpu import STATE
from tests.support.tensorrt_standin.quick import quicken
from vlmsearch.errors import BackendError, InvalidInputError
from vlmsearch.media.images import open_image
from vlmsearch.media.limits import ImageLimits
from vlmsearch.media.preprocess import Preprocess
from vlmsearch.models.bundle import find_bundles
from vlmsearch.tensorrt.engine.jpeg import read_header
from vlmsearch.triton.backend.stages import ImageStage
from vlmsearch.types import ImageSource

if TYPE_CHECKING:
    from vlmsearch.tensorrt.engine.cuda import DeviceArray
    from vlmsearch.tensorrt.engine.images import GpuImages

SIZES = [(100, 75), (75, 100), (64, 64), (64, 90), (40, 30), (641, 479), (33, 520), (520, 33), (1, 9), (150, 420)]


def turned(width: int, height: int, orientation: int) -> bytes:
    exif = PIL.Image.Exif()
    exif[0x0112] = orientation
    return picture(width, height, exif=exif)


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(2) as threads:
        yield threads


@pytest.fixture
def gpu(pool: ThreadPoolExecutor) -> Iterator[type[GpuImages]]:
    with pretend_gpu() as driver:
        from vlmsearch.tensorrt.engine.images import GpuImages

        Decoder.decoded = 0
        yield GpuImages
        assert driver.loaded == 0
        assert STATE.used == 0, "memory of the GPU was not given back"


def fetched(array: DeviceArray) -> np.ndarray:
    size = int(np.prod(array.shape))
    return np.array(STATE.bytes_at(array.pointer, size).reshape(array.shape))


def pixels_of(images: GpuImages, given: list[ImageSource]) -> np.ndarray:
    refused: dict[int, InvalidInputError] = {}
    pixels = np.concatenate([fetched(batch) for batch in images.batches(given, refused)])
    assert not refused
    return pixels


@pytest.mark.parametrize(
    "preprocess",
    [Preprocess(64), Preprocess(64, crop=False), Preprocess(48, interpolation="bilinear"), Preprocess(224)],
    ids=str,
)
def test_pixels_are_those_of_pillow(gpu: type[GpuImages], pool: ThreadPoolExecutor, preprocess: Preprocess) -> None:
    """Bit for bit, for what was decoded alike."""
    data = [picture(width, height) for width, height in SIZES]
    with gpu(preprocess, pool=pool, batch=4) as images:
        found = pixels_of(images, list(data))
        elongated = sum(max(size) > 16 * min(size) for size in SIZES) * preprocess.crop
        assert images.counts == {"gpu": len(SIZES) - elongated, "cpu": elongated}
    for one, size, expected in zip(found, SIZES, data):
        np.testing.assert_array_equal(one, preprocess.apply(open_image(expected)), err_msg=str(size))


@pytest.mark.parametrize("orientation", range(1, 9))
def test_images_come_out_upright(gpu: type[GpuImages], pool: ThreadPoolExecutor, orientation: int) -> None:
    data = [turned(90, 61, orientation), turned(50, 80, orientation)]
    preprocess = Preprocess(32)
    with gpu(preprocess, pool=pool) as images:
        found = pixels_of(images, list(data))
        assert images.counts["gpu"] == 2
    for one, expected in zip(found, data):
        np.testing.assert_array_equal(one, preprocess.apply(open_image(expected)))


def test_what_the_gpu_cannot_do_goes_the_way_of_the_cpu(
    gpu: type[GpuImages], pool: ThreadPoolExecutor, tmp_path: Path
) -> None:
    (tmp_path / "a.jpg").write_bytes(picture(80, 60))
    out = BytesIO()
    PIL.Image.new("RGB", (70, 50), "teal").save(out, "PNG")
    given: list[ImageSource] = [
        picture(99, 70),
        out.getvalue(),
        tmp_path / "a.jpg",
        picture(90, 80, progressive=True),
        PIL.Image.new("RGB", (30, 40), "red"),
        picture(64, 64),
    ]
    preprocess = Preprocess(32)
    with gpu(preprocess, pool=pool, batch=8) as images:
        found = pixels_of(images, given)
        assert images.counts == {"gpu": 3, "cpu": 3}
    for one, expected in zip(found, given):
        np.testing.assert_array_equal(one, preprocess.apply(open_image(expected)))


def test_all_images_that_cannot_be_used_are_named_and_black(gpu: type[GpuImages], pool: ThreadPoolExecutor) -> None:
    good = picture(80, 60)
    given: list[ImageSource] = [b"no image", good, good, good[: len(good) // 2], good]
    refused: dict[int, InvalidInputError] = {}
    with gpu(Preprocess(32), pool=pool, batch=2) as images:
        found = np.concatenate([fetched(batch) for batch in images.batches(given, refused)])
        expected = pixels_of(images, [good])[0]
    assert {item: error.code for item, error in refused.items()} == {0: "unsupported", 3: "truncated"}
    for item, pixels in enumerate(found):
        np.testing.assert_array_equal(pixels, np.zeros_like(expected) if item in refused else expected)


def test_a_batch_is_valid_until_the_next_is_asked_for(gpu: type[GpuImages], pool: ThreadPoolExecutor) -> None:
    data = [picture(60 + number, 60) for number in range(23)]
    preprocess = Preprocess(32)
    with gpu(preprocess, pool=pool, batch=2) as images:
        for number, batch in enumerate(images.batches(data, {})):
            threading.Event().wait(0.01)  # the next ones are decoded meanwhile
            expected = [preprocess.apply(open_image(one)) for one in data[2 * number : 2 * number + 2]]
            np.testing.assert_array_equal(fetched(batch), np.stack(expected))
        assert Decoder.decoded == 23


def test_a_caller_that_stops_early_leaves_no_work_behind(gpu: type[GpuImages], pool: ThreadPoolExecutor) -> None:
    data = [picture(60, 60)] * 9
    with gpu(Preprocess(32), pool=pool, batch=2) as images:
        batches = images.batches(data, {})
        next(batches)
        batches.close()  # type: ignore[attr-defined]
        assert len(pixels_of(images, list(data))) == 9


def test_who_waits_for_images_is_told_that_it_is_closed(
    gpu: type[GpuImages], pool: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, go_on, decode = threading.Event(), threading.Event(), Decoder._one

    def held(decoder: Decoder, data: bytes, stream: int) -> Any:
        begun.set()
        assert go_on.wait(60)
        return decode(decoder, data, stream)

    monkeypatch.setattr(Decoder, "_one", held)
    images, given = gpu(Preprocess(32), pool=pool, batch=1), [picture(60, 60)] * 9
    with ThreadPoolExecutor(2) as callers:
        waiting = callers.submit(pixels_of, images, list(given))
        assert begun.wait(60)
        closing = callers.submit(images.close)
        while not images._threads._shutdown:
            threading.Event().wait(0.01)
        go_on.set()
        with pytest.raises(BackendError, match="the image decoder is closed"):
            waiting.result()
        closing.result()
    with pytest.raises(BackendError, match="the image decoder is closed"):
        pixels_of(images, list(given))


def test_many_threads_are_served_one_after_another(gpu: type[GpuImages], pool: ThreadPoolExecutor) -> None:
    preprocess = Preprocess(32)
    sets = [[picture(50 + number, 40 + k) for k in range(5)] for number in range(4)]
    with gpu(preprocess, pool=pool, batch=2) as images, ThreadPoolExecutor(4) as callers:
        for given, found in zip(sets, callers.map(lambda one: pixels_of(images, list(one)), sets)):
            np.testing.assert_array_equal(found, np.stack([preprocess.apply(open_image(one)) for one in given]))


def test_the_stage_in_triton_is_that_of_the_cpu(gpu: type[GpuImages]) -> None:
    """Same pixels and same words for images that cannot be used, whose batch mates are not harmed."""
    from vlmsearch.triton.backend.gpu import GpuImageStage

    out = BytesIO()
    PIL.Image.new("RGB", (70, 50), "teal").save(out, "PNG")
    good = picture(80, 60)
    given = [good, good[:400], out.getvalue(), b"", picture(300, 300), b"GIF89a", picture(64, 90, progressive=True)]
    preprocess = Preprocess(32)
    limits = ImageLimits(encoded_bytes=len(given[4]) - 1)
    on_cpu = ImageStage(preprocess, limits=limits, threads=2)
    with GpuImageStage(preprocess, limits=limits, device=0, threads=2) as on_gpu:
        for batch in (given, [good], [b"x"], given[::-1]):
            pixels, statuses = on_gpu.run(batch)
            expected, said = on_cpu.run(batch)
            assert statuses == said
            np.testing.assert_array_equal(pixels, expected)
    on_cpu.close()


def test_a_tower_in_triton_decodes_and_encodes(gpu: type[GpuImages], tmp_path: Path, monkeypatch: Any) -> None:
    """The vectors of one that gets the CPU's pixels, in the words of the CPU for images that cannot be used."""
    from vlmsearch.tensorrt.builder.engines import ensure_engine
    from vlmsearch.triton.backend import gpu as backend
    from vlmsearch.triton.backend.engine import open_engine

    quicken()
    monkeypatch.setenv("VLMSEARCH_CACHE", str(tmp_path))
    monkeypatch.setattr(backend, "_PIECE", 2)
    bundle = find_bundles("demo-clip")[0]
    assert bundle.preprocess is not None
    plan = ensure_engine(bundle, "image", precision="fp32").path
    out = BytesIO()
    PIL.Image.new("RGB", (70, 50), "teal").save(out, "PNG")
    good, large = picture(80, 60), picture(500, 400)
    given = [good, good[:400], out.getvalue(), b"", large, picture(99, 64), b"GIF89a", picture(64, 90)]
    limits = ImageLimits(encoded_bytes=len(large) - 1)
    on_cpu = ImageStage(bundle.preprocess, limits=limits, threads=2)
    with (
        open_engine(plan) as tower,
        backend.EncodedTower(plan, bundle.preprocess, limits=limits, device=0, threads=2) as both,
    ):
        for batch in (given, [good], [b"x"], [large], given[::-1]):
            vectors, statuses = both.run(batch)
            pixels, said = on_cpu.run(batch)
            assert statuses == said
            usable = [number for number, status in enumerate(said) if not status]
            expected = tower.run({"pixels": pixels})
            np.testing.assert_allclose(vectors[usable], expected[usable], atol=1e-5)
            if len(batch) == len(given):
                assert len(usable) == 4
    on_cpu.close()


def test_memory_for_decoded_images_is_bounded(
    gpu: type[GpuImages], pool: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    import sys

    monkeypatch.setattr(sys.modules["vlmsearch.tensorrt.engine.images"], "_MAX_DECODED", 100 * 100)
    data = [picture(100, 100)] * 6
    with gpu(Preprocess(16), pool=pool, batch=6) as images:
        pixels_of(images, list(data))
        before = STATE.used
        STATE.peak = before
        pixels_of(images, list(data))
        assert STATE.peak - before < 2 * 100 * 320 + 256


def test_the_shipped_ptx_is_that_of_the_source() -> None:
    first = SOURCE.with_suffix(".ptx").read_text().splitlines()[0]
    assert first == f"// {hashlib.sha256(SOURCE.read_bytes()).hexdigest()}", "run python engines/compile_kernels.py"


def profile(name: str) -> bytes:
    return ImageCms.ImageCmsProfile(ImageCms.createProfile(name)).tobytes()  # type: ignore[arg-type]


def cmyk() -> bytes:
    out = BytesIO()
    PIL.Image.new("CMYK", (20, 20)).save(out, "JPEG")
    return out.getvalue()


def grey() -> bytes:
    out = BytesIO()
    PIL.Image.new("L", (20, 20)).save(out, "JPEG")
    return out.getvalue()


def without(data: bytes, marker: bytes) -> bytes:
    """A JPEG without the segments of a kind."""
    at = data.index(b"\xff" + marker)
    return data[:at] + data[at + 2 + int.from_bytes(data[at + 2 : at + 4], "big") :]


@pytest.mark.parametrize(
    ("data", "usable"),
    [
        (picture(20, 10), True),
        (without(picture(20, 10), b"\xe0"), True),
        (picture(20, 10, progressive=True), True),
        (picture(20, 10, icc_profile=profile("sRGB")), True),
        (picture(20, 10, icc_profile=profile("LAB")), True),  # made for other pixels: ignored
        (picture(20, 10, comment=b"\xff\xd8" * 40), True),
        (picture(20, 10, keep_rgb=True), False),
        (without(picture(20, 10, keep_rgb=True), b"\xee"), False),
        (cmyk(), False),
        (grey(), False),
        (picture(20, 10)[:-9], False),
        (picture(20, 10) + b"\0" * 8, True),
        (b"\xff\xd8\xff\xd9", False),
        (b"\xff\xd8\xff\xe0\0\2\xff\xd9", False),
        (b"", False),
        (b"GIF89a", False),
    ],
)
def test_headers_decide_who_decodes(data: bytes, usable: bool) -> None:
    header = read_header(data)
    assert (header is not None) == usable
    if header:
        assert (header.width, header.height, header.orientation) == (20, 10, 1)
