import os
import random
import struct
import subprocess
import sys
import threading
import warnings
import zlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from numpy.typing import NDArray
from PIL import Image, ImageFile, ImageOps, JpegImagePlugin

from tests.support.odd_images import (
    BLUE,
    CORNERS,
    GREEN,
    RED,
    YELLOW,
    OddFile,
    encoded,
    formats,
    grey_cmyk_profile,
    grey_profile,
    odd_files,
    png,
    rgb_profile,
    scene,
    srgb_profile,
    textured,
    turned,
)
from tests.support.paths import SHARED
from vlmsearch import ConfigError, ImageLimits, InvalidInputError
from vlmsearch._util.extras import install_command
from vlmsearch.media.images import (
    IMAGE_SUFFIXES,
    open_image,
    read_image,
    thumbnail,
)
from vlmsearch.media.limits import MAX_FILE_BYTES
from vlmsearch.media.preprocess import DCT_MARGIN, Interpolation, Preprocess

PHOTOS = SHARED / "photos"
WHITE, BLACK = (255, 255, 255), (0, 0, 0)
LOSSY = 60  # of 255, for the flat quadrants of a small JPEG, WebP, HEIC or AVIF


@pytest.fixture(scope="module")
def odd(tmp_path_factory: pytest.TempPathFactory) -> list[OddFile]:
    return odd_files(tmp_path_factory.mktemp("odd"), seed=1)


@pytest.fixture(scope="module")
def sound(odd: list[OddFile]) -> list[Path]:
    return [file.path for file in odd if file.expected == {"ok"}]


def pixels(image: Image.Image) -> NDArray[np.int16]:
    assert image.mode == "RGB"
    return np.asarray(image).astype(np.int16)


def corners(image: Image.Image) -> list[tuple[int, ...]]:
    right, bottom = image.width - 1, image.height - 1
    values = pixels(image)
    return [tuple(map(int, values[y, x])) for y, x in ((0, 0), (0, right), (bottom, 0), (bottom, right))]


def assert_colours(image: Image.Image, expected: Any, tolerance: int = 0) -> None:
    difference = np.abs(np.array(corners(image)) - np.array(expected)).max()
    assert difference <= tolerance, f"{corners(image)} are not {expected}"


def rejection(source: Any, **options: Any) -> InvalidInputError:
    with pytest.raises(InvalidInputError) as caught:
        open_image(source, **options)
    assert "\n" not in str(caught.value)
    return caught.value


# ---------------------------------------------------------------------------------------------------------- reading


def test_read_image_gives_the_bytes_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "a.jpg").write_bytes(b"abc")
    assert read_image(tmp_path / "a.jpg") == b"abc"


def test_a_file_that_cannot_be_read_is_named_with_the_reason(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match=r"missing\.jpg' cannot be read: No such file") as caught:
        read_image(tmp_path / "missing.jpg")
    assert caught.value.code == "unreadable"
    assert isinstance(caught.value.__cause__, FileNotFoundError)
    with pytest.raises(InvalidInputError, match="is a folder"):
        read_image(tmp_path)


def test_a_pipe_is_not_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.jpg")
    assert rejection(tmp_path / "pipe.jpg").code == "unreadable"
    assert rejection(Path(os.devnull)).code == "unreadable"


def test_a_huge_file_is_not_read(tmp_path: Path) -> None:
    with (tmp_path / "huge.jpg").open("wb") as file:
        file.truncate(MAX_FILE_BYTES + 1)
    assert rejection(tmp_path / "huge.jpg").code == "too_large"


def test_a_text_is_not_taken_for_a_path() -> None:
    with pytest.raises(TypeError, match="not str"):
        open_image("photo.jpg")  # type: ignore[arg-type]


# ---------------------------------------------------------------------------------------- orientation and DCT scale


@pytest.mark.parametrize("kind", sorted(formats() & {"JPEG", "PNG", "WEBP", "TIFF", "AVIF", "HEIC"}))
def test_images_are_upright(kind: str) -> None:
    for data in (turned(orientation, kind) for orientation in range(1, 9)):
        image = open_image(data)
        assert image.size == (48, 32)
        assert_colours(image, CORNERS, LOSSY)
        assert image.getexif().get(0x0112, 1) == 1
        if kind != "HEIC":
            with Image.open(BytesIO(data)) as lazy:
                assert_colours(ImageOps.exif_transpose(lazy).convert("RGB"), CORNERS, LOSSY)
                assert_colours(open_image(lazy), CORNERS, LOSSY)


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("mode", ["L", "RGB", "CMYK"])
def test_a_jpeg_is_scaled_down_while_both_sides_stay_large_enough(mode: str, orientation: int) -> None:
    expected = [corner if mode != "L" else (round(np.dot(corner, (0.299, 0.587, 0.114))),) * 3 for corner in CORNERS]
    data = turned(orientation, "JPEG", scene(480, 320, mode), quality=95)
    for at_least, size in ((None, (480, 320)), (321, (480, 320)), (160, (240, 160)), (80, (120, 80)), (1, (60, 40))):
        image = open_image(data, at_least=at_least)
        assert image.size == size
        assert_colours(image, expected, 6)


@settings(max_examples=25)
@given(st.integers(1, 260), st.integers(1, 260), st.integers(1, 150))
def test_scaling_keeps_both_sides_and_the_shape(width: int, height: int, at_least: int) -> None:
    data = encoded(Image.new("RGB", (width, height), RED), "JPEG")
    image = open_image(data, at_least=at_least)
    assert min(image.size) >= min(at_least, width, height)
    assert any(image.size == (-(-width // scale), -(-height // scale)) for scale in (1, 2, 4, 8))


@pytest.mark.parametrize("shape", [(2000, 1504), (2199, 1433), (1501, 2003)])
def test_the_margin_does_not_show_in_what_a_model_gets(shape: tuple[int, int]) -> None:
    data = encoded(textured(*shape), "JPEG", quality=92)
    whole = open_image(data)
    for preprocess in map(Preprocess, (64, 224)):
        assert preprocess.at_least == preprocess.size * DCT_MARGIN
        scaled = open_image(data, at_least=preprocess.at_least)
        assert max(scaled.size) < max(shape)
        difference = np.abs(preprocess.apply(scaled).astype(int) - preprocess.apply(whole))
        assert difference.mean() < 0.6
        assert difference.max() <= 8


# ----------------------------------------------------------------------------------------------------------- colours


HALF_RED = (255, 127, 127)


def with_alpha(mode: str, *, alpha: int = 128) -> Image.Image:
    image = scene(mode="RGBA")
    image.putalpha(alpha)
    return image.convert(mode)


def palette_with_alphas(alphas: bytes) -> Image.Image:
    image = Image.new("P", (4, 1))
    image.putpalette([value for colour in CORNERS for value in colour])
    image.putdata([0, 1, 2, 3])
    image.info["transparency"] = alphas
    return image


@pytest.mark.parametrize("mode", ["RGBA", "RGBa", "PA"])
def test_half_transparent_colours_are_mixed_with_white(mode: str) -> None:
    image = with_alpha("RGBA")
    if mode == "RGBa":
        image = image.convert("RGBa")
    if mode == "PA":
        palette = scene().quantize(4)
        image = Image.merge("PA", (palette, image.getchannel("A")))
        image.putpalette(palette.getpalette() or [])
    assert_colours(open_image(image), [HALF_RED, (127, 255, 127), (127, 127, 255), (255, 255, 127)], 2)


@pytest.mark.parametrize("mode", ["LA", "La"])
def test_half_transparent_greys_are_mixed_with_white(mode: str) -> None:
    image = Image.new("LA", (2, 2), (100, 128))
    assert_colours(open_image(image.convert(mode)), [(177, 177, 177)] * 4, 2)


def test_what_is_fully_transparent_is_white_whatever_colour_it_hides() -> None:
    assert_colours(open_image(with_alpha("RGBA", alpha=0)), [WHITE] * 4)
    assert_colours(open_image(with_alpha("RGBA", alpha=255)), CORNERS)


def test_palettes_and_their_transparent_entries() -> None:
    assert pixels(open_image(palette_with_alphas(b"\xff\x00\x80\xff")))[0].tolist() == [
        list(RED),
        list(WHITE),
        [127, 127, 255],
        list(YELLOW),
    ]
    key = {"transparency": 1}
    data = encoded(palette_with_alphas(b""), "PNG", **key)
    assert pixels(open_image(data))[0].tolist() == [list(RED), list(WHITE), list(BLUE), list(YELLOW)]
    assert corners(open_image(encoded(scene().quantize(4), "GIF"))) == list(CORNERS)


def test_transparent_colours_of_images_without_an_alpha_channel() -> None:
    assert_colours(open_image(encoded(scene(), "PNG", transparency=RED)), [WHITE, GREEN, BLUE, YELLOW])
    grey = Image.fromarray(np.array([[10, 200]], np.uint8))
    assert_colours(open_image(encoded(grey, "PNG", transparency=10)), [WHITE, (200,) * 3] * 2)
    bits = Image.fromarray(np.array([[False, True]]))
    assert_colours(open_image(encoded(bits, "PNG", transparency=0)), [WHITE] * 4)
    assert_colours(open_image(encoded(bits, "PNG")), [BLACK, WHITE] * 2)


def test_sixteen_bits_become_eight() -> None:
    ramp = np.array([[0, 0x4000, 0x8000, 0xFFFF]], np.uint16)
    expected = [[0] * 3, [64] * 3, [128] * 3, [255] * 3]
    for kind in ("PNG", "TIFF"):
        assert pixels(open_image(encoded(Image.fromarray(ramp), kind)))[0].tolist() == expected
    assert pixels(open_image(b"P5 4 1 65535\n" + ramp.astype(">u2").tobytes()))[0].tolist() == expected
    wide = Image.fromarray(ramp.astype(np.int32))
    assert pixels(open_image(wide))[0].tolist() == expected
    big = Image.frombytes("I;16B", (4, 1), ramp.astype(">u2").tobytes())
    assert pixels(open_image(big))[0].tolist() == expected


RAMP = np.linspace(0, 65535, 64).astype(np.uint16)[None]


def white_is_zero(values: NDArray[Any], compression: str) -> bytes:
    """A TIFF whose greys are stored inverted, and which says so."""
    data = bytearray(encoded(Image.fromarray(values), "TIFF", compression=compression))
    at = int.from_bytes(data[4:8], "little")
    tag = next(entry for entry in range(at + 2, len(data), 12) if data[entry : entry + 2] == b"\x06\x01")
    data[tag + 8] = 0
    return bytes(data)


@pytest.mark.parametrize("compression", ["raw", "tiff_lzw", "tiff_adobe_deflate", "packbits", "zstd"])
def test_a_tiff_whose_white_is_zero_is_no_negative(compression: str) -> None:
    expected = np.repeat(RAMP[0] >> 8, 3).reshape(-1, 3)
    for values in (65535 - RAMP, 4095 - (RAMP >> 4), 255 - (RAMP >> 8).astype(np.uint8), 1 - np.float32(RAMP / 65535)):
        assert np.abs(pixels(open_image(white_is_zero(values, compression)))[0] - expected).max() <= 1
    deep = white_is_zero(65535 - RAMP, compression)
    for source in (deep, Image.open(BytesIO(deep))):
        assert pixels(open_image(source))[0].tolist() == expected.tolist()
    assert pixels(open_image(white_is_zero(RAMP < 32768, compression)))[0, [0, -1], 0].tolist() == [0, 255]


@pytest.mark.parametrize("bits", [8, 10, 12])
def test_greys_of_fewer_bits_in_16_are_stretched(bits: int) -> None:
    few, expected = RAMP >> (16 - bits), RAMP[0] >> 8
    for data in (
        encoded(Image.fromarray(few), "PNG"),
        encoded(Image.fromarray(few), "TIFF"),
        encoded(Image.fromarray(few.astype(np.int32)), "TIFF"),
        b"P5 64 1 65535\n" + few.astype(">u2").tobytes(),
    ):
        assert np.abs(pixels(open_image(data))[0, :, 0] - expected).max() <= 1


def test_greys_are_as_dark_as_their_file_says() -> None:
    dark = Image.fromarray(RAMP >> 6)
    assert pixels(open_image(encoded(dark, "TIFF", tiffinfo={281: 4095})))[0, -1].tolist() == [64] * 3
    assert pixels(open_image(encoded(Image.fromarray(RAMP >> 2), "TIFF", tiffinfo={281: 16383})))[0, -1, 0] == 255
    assert pixels(open_image(encoded(Image.fromarray(RAMP >> 2), "TIFF")))[0, -1, 0] == 63
    assert pixels(open_image(strips(PACKED, {258: 12, 262: 1})))[0, -1].tolist() == [64] * 3


PACKED = int("".join(f"{value >> 6:012b}" for value in RAMP[0].tolist()), 2).to_bytes(96, "big")
"""The ramp in 12 bits a pixel, of which it takes a quarter."""


def strips(data: bytes, tags: dict[int, int], order: str = "<") -> bytes:
    """A TIFF of 64 by 1 pixels."""
    tags = {256: 64, 257: 1, 259: 1, 273: 8, 278: 1, 279: len(data)} | tags
    at = 8 + len(data)
    entries = b"".join(struct.pack(f"{order}HHIHH", tag, 3, 1, value, 0) for tag, value in sorted(tags.items()))
    head = (b"II" if order == "<" else b"MM") + struct.pack(f"{order}HI", 42, at)
    return head + data + struct.pack(f"{order}H", len(tags)) + entries + bytes(4)


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("compression", [1, 8])
def test_deep_greys_have_the_byte_order_of_their_tiff(order: str, compression: int) -> None:
    expected = RAMP[0] >> 8
    for values, photometric, sample in (
        ((65535 - RAMP).astype(f"{order}u2"), 0, 1),
        (RAMP.astype(f"{order}i4"), 1, 2),
        ((RAMP / 65535).astype(f"{order}f4"), 1, 3),
    ):
        data = zlib.compress(values.tobytes()) if compression == 8 else values.tobytes()
        tags = {258: 8 * values.itemsize, 259: compression, 262: photometric, 339: sample}
        assert np.abs(pixels(open_image(strips(data, tags, order)))[0, :, 0] - expected).max() <= 1


def test_twelve_packed_bits_whose_white_is_zero_are_read() -> None:
    assert pixels(open_image(strips(PACKED, {258: 12, 262: 0})))[0, [0, -1], 0].tolist() == [255, 255 - 64]


def test_planes_of_16_bits_are_read() -> None:
    planes = np.stack([RAMP, RAMP[:, ::-1], RAMP // 2]).astype("<u2")
    data = bytearray(strips(bytes(28) + planes.tobytes(), {258: 0, 262: 2, 273: 0, 277: 3, 279: 0, 284: 2}))
    data[8:14] = struct.pack("<3H", 16, 16, 16)
    data[14:34] = struct.pack("<3I", 36, 164, 292) + struct.pack("<4H", 128, 128, 128, 0)
    for tag, kind, place in ((258, 3, 8), (273, 4, 14), (279, 3, 26)):
        at = data.index(struct.pack("<HHI", tag, 3, 1), 36)
        data[at : at + 12] = struct.pack("<HHII", tag, kind, 3, place)
    assert pixels(open_image(bytes(data)))[0].tolist() == (planes[:, 0].T >> 8).tolist()


def test_sixteen_bit_colours_and_transparency() -> None:
    colour = png(2, 1, 16, 2, np.array([65535, 0, 0, 0, 32768, 65535], ">u2").tobytes())
    assert pixels(open_image(colour))[0].tolist() == [[255, 0, 0], [0, 128, 255]]
    clear = png(2, 1, 16, 0, np.array([7, 60000], ">u2").tobytes(), (b"tRNS", b"\0\7"))
    assert pixels(open_image(clear))[0].tolist() == [[255] * 3, [234] * 3]
    half = png(1, 1, 16, 4, np.array([0, 32768], ">u2").tobytes())
    assert pixels(open_image(half))[0].tolist() == [[127] * 3]


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([0.0, 0.5, 1.0], [0, 128, 255]),
        ([0.0, 100.0, 255.0], [0, 100, 255]),
        ([0.0, 32767.5, 65535.0], [0, 128, 255]),
        ([-1.0, 0.0, 1.0], [0, 128, 255]),
        ([0.0, 1e6, 2e6], [0, 128, 255]),
        ([0.0, float("nan"), float("inf")], [0, 0, 255]),
        ([-5.0, -5.0, -5.0], [0, 0, 0]),
    ],
)
def test_floats_are_scaled_by_the_range_they_use(values: list[float], expected: list[int]) -> None:
    image = Image.fromarray(np.array([values], np.float32))
    assert pixels(open_image(image))[0, :, 0].tolist() == pytest.approx(expected, abs=1)
    assert pixels(open_image(encoded(image, "TIFF")))[0, :, 2].tolist() == pytest.approx(expected, abs=1)


@pytest.mark.parametrize(
    ("values", "expected"),
    [([0, 100, 255], [0, 100, 255]), ([0, 10, 65535], [0, 0, 255]), ([-100, 0, 100], [0, 128, 255])],
)
def test_integers_are_scaled_by_the_range_they_use(values: list[int], expected: list[int]) -> None:
    image = open_image(Image.fromarray(np.array([values], np.int32)))
    assert pixels(image)[0, :, 0].tolist() == pytest.approx(expected, abs=1)


@pytest.mark.parametrize(("mode", "tolerance"), [("CMYK", 0), ("YCbCr", 2), ("LAB", 25), ("HSV", 3), ("RGBX", 0)])
def test_other_colour_spaces(mode: str, tolerance: int) -> None:
    assert_colours(open_image(scene(mode=mode)), CORNERS, tolerance)
    if mode not in ("HSV", "YCbCr"):  # Pillow writes no HSV, and before 13 cannot read the YCbCr that it writes
        assert_colours(open_image(encoded(scene(mode=mode), "TIFF")), CORNERS, tolerance)


def test_a_cmyk_jpeg_is_not_inverted() -> None:
    assert_colours(open_image(encoded(scene(mode="CMYK"), "JPEG", quality=95)), CORNERS, 6)


@pytest.mark.parametrize("kind", ["GIF", "WEBP", "PNG", "TIFF", "MPO"])
def test_an_animation_gives_its_first_frame(kind: str) -> None:
    data = encoded(scene(), kind, save_all=True, append_images=[Image.new("RGB", (48, 32), BLUE)])
    assert_colours(open_image(data), CORNERS, LOSSY)


def test_a_colour_profile_is_applied() -> None:
    swapped = rgb_profile(order="grb")
    for image in (scene(), scene().quantize(4), scene(mode="RGBA")):
        assert_colours(open_image(encoded(image, "PNG", icc_profile=swapped)), [GREEN, RED, BLUE, YELLOW], 2)
    half = encoded(with_alpha("RGBA"), "PNG", icc_profile=swapped)
    assert_colours(open_image(half), [(127, 255, 127), HALF_RED, (127, 127, 255), (255, 255, 127)], 2)
    jpeg = turned(6, "JPEG", scene(480, 320), icc_profile=swapped, quality=95)
    assert_colours(open_image(jpeg, at_least=100), [GREEN, RED, BLUE, YELLOW], 6)


def test_grey_and_cmyk_profiles_are_applied() -> None:
    grey = encoded(Image.new("L", (2, 2), 55), "PNG", icc_profile=grey_profile(1.0))
    assert_colours(open_image(grey), [(128,) * 3] * 4, 1)
    linear = encoded(Image.new("L", (2, 2), 55), "PNG", icc_profile=rgb_profile(1.0))
    assert_colours(open_image(linear), [(128,) * 3] * 4, 1)
    inks = encoded(scene(mode="CMYK"), "TIFF", icc_profile=grey_cmyk_profile())
    for red, green, blue in corners(open_image(inks)):
        assert max(red, green, blue) - min(red, green, blue) <= 1


@pytest.mark.parametrize(
    "profile",
    [
        b"nonsense" * 40,
        rgb_profile(order="grb")[:300],
        grey_profile(1.0),
        rgb_profile(order="grb") + bytes(2**22),
        srgb_profile(),
        b"",
    ],
    ids=["nonsense", "cut short", "for other pixels", "huge", "sRGB", "empty"],
)
def test_a_profile_that_cannot_be_used_changes_nothing(profile: bytes) -> None:
    data = encoded(scene(), "TIFF", icc_profile=profile)
    assert corners(open_image(data)) == list(CORNERS)


def test_damaged_exif_data_are_ignored() -> None:
    for exif in (
        b"Exif\0\0",
        b"Exif\0\0II*\0\xff\xff\xff\xff",
        b"Exif\0\0" + bytes(50),
        b"Exif\0\0MM\0*\0\0\0\x08\xff\xff",
    ):
        assert_colours(open_image(encoded(scene(), "JPEG", exif=exif)), CORNERS, LOSSY)
    assert_colours(open_image(turned(99, "JPEG")), CORNERS, LOSSY)
    assert_colours(open_image(encoded(scene(), "PNG", exif=b"no TIFF header")), CORNERS)
    image = scene()
    image.info["exif"] = "not even bytes"
    assert_colours(open_image(image), CORNERS)


# ------------------------------------------------------------------------------------------------------ PIL images


@pytest.mark.parametrize(
    "mode", ["1", "L", "LA", "P", "PA", "RGB", "RGBA", "RGBa", "CMYK", "YCbCr", "LAB", "HSV", "I", "F"]
)
def test_a_pil_image_is_never_changed(mode: str) -> None:
    image = scene(mode="RGBA").convert("RGBa") if mode == "RGBa" else scene(mode=mode)
    image.info |= {"icc_profile": rgb_profile(order="grb"), "transparency": 0} if mode == "P" else {"comment": "mine"}
    info, before = dict(image.info), image.tobytes()
    result = open_image(image)
    assert (image.mode, image.size, image.info, image.tobytes()) == (mode, (48, 32), info, before)
    assert mode != "P" or image.palette is None or image.palette.mode == "RGB"
    result.paste(BLACK, (0, 0, 48, 32))
    assert image.tobytes() == before


def test_opening_what_was_opened_changes_nothing(sound: list[Path]) -> None:
    for path in sound:
        image = open_image(path)
        again = open_image(image)
        assert again is not image
        assert not image.info
        assert again.size == image.size
        assert np.array_equal(pixels(again), pixels(image)), path.name


def test_a_path_its_bytes_and_its_pil_image_give_the_same(sound: list[Path]) -> None:
    for path in sound:
        image = pixels(open_image(path))
        assert np.array_equal(pixels(open_image(path.read_bytes())), image), path.name
        if "HEIC" not in path.name.upper():
            with Image.open(path) as lazy:
                assert np.array_equal(pixels(open_image(lazy)), image), path.name


def test_a_damaged_lazy_pil_image_is_rejected_by_name(tmp_path: Path) -> None:
    (tmp_path / "cut.jpg").write_bytes(encoded(textured(60, 44), "JPEG")[:700])
    with Image.open(tmp_path / "cut.jpg") as lazy:
        error = rejection(lazy)
    assert error.code == "truncated"
    assert "cut.jpg" in str(error)
    assert rejection(Image.new("RGB", (0, 5))).code == "empty"


@pytest.mark.parametrize("kind", ["PNG", "TIFF"])
def test_a_lazy_pil_image_can_be_opened_by_several_threads_at_once(kind: str) -> None:
    data = encoded(textured(800, 600), kind)
    expected = pixels(open_image(data))
    for _ in range(10):
        with Image.open(BytesIO(data)) as lazy, ThreadPoolExecutor(4) as pool:
            for opened in pool.map(open_image, [lazy] * 4):
                assert np.array_equal(pixels(opened), expected)


# ------------------------------------------------------------------------------------------------ odd and damaged


def outcome(source: Any, **options: Any) -> tuple[str, InvalidInputError | None]:
    try:
        assert open_image(source, **options).mode == "RGB"
    except InvalidInputError as error:
        return error.code, error
    return "ok", None


@pytest.mark.parametrize("at_least", [None, 8])
def test_every_odd_file_is_read_or_rejected_with_its_code(odd: list[OddFile], at_least: int | None) -> None:
    assert len(odd) > 200
    outcomes = [(file, outcome(file.path, at_least=at_least)[0]) for file in odd]
    assert not [(file.path.name, code) for file, code in outcomes if code not in file.expected]


def test_a_rejection_is_one_line_with_the_name_and_keeps_its_cause(odd: list[OddFile]) -> None:
    errors = [(file.path, error) for file in odd if (error := outcome(file.path)[1])]
    assert len(errors) > 120
    for path, error in errors:
        assert len(str(error).splitlines()) == 1
        assert repr(str(path)) in str(error)
        if error.code in ("corrupt", "truncated"):
            assert error.__cause__ is not None


SAMPLES = {kind: encoded(textured(60, 44), kind) for kind in sorted(formats())}


@pytest.mark.parametrize("kind", [kind for kind in SAMPLES if kind != "JPEG2000"])
@settings(max_examples=10)
@given(share=st.floats(0.03, 0.97))
def test_a_file_without_its_end_is_truncated(kind: str, share: float) -> None:
    data = SAMPLES[kind][: max(200, int(len(SAMPLES[kind]) * share))]
    error = rejection(data)
    assert error.code == "truncated" or (kind in ("TIFF", "GIF") and error.code == "corrupt")
    assert error.__cause__ is not None


def test_a_file_without_its_end_is_truncated_whatever_other_libraries_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("PIL.ImageFile.LOAD_TRUNCATED_IMAGES", True)  # as `import weasyprint` does

    assert rejection(SAMPLES["JPEG"][: len(SAMPLES["JPEG"]) // 2]).code == "truncated"
    assert ImageFile.LOAD_TRUNCATED_IMAGES


@pytest.mark.parametrize("kind", sorted(formats() & {"AVIF", "HEIC"}))
def test_a_file_cut_between_two_boxes_is_truncated(kind: str) -> None:
    assert rejection(SAMPLES[kind][: SAMPLES[kind].index(b"mdat") - 4]).code == "truncated"


@settings(max_examples=150)
@given(st.sampled_from(sorted(SAMPLES)), st.lists(st.tuples(st.integers(0, 4000), st.integers(0, 255)), min_size=1))
def test_changed_bytes_give_an_image_or_an_invalid_input_error(kind: str, changes: list[tuple[int, int]]) -> None:
    data = bytearray(SAMPLES[kind])
    for at, value in changes:
        data[at % len(data)] = value
    code, error = outcome(bytes(data), limits=ImageLimits(pixels=2_000_000))
    assert code in ("ok", "corrupt", "truncated", "too_large", "unsupported")
    assert "\n" not in str(error)


@settings(max_examples=60)
@given(
    st.binary(max_size=200), st.sampled_from([b"", b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n", b"GIF89a", b"II*\0", b"P6 "])
)
def test_noise_gives_an_invalid_input_error(noise: bytes, start: bytes) -> None:
    with pytest.raises(InvalidInputError) as caught:
        open_image(start + noise)
    assert caught.value.code != "unreadable"


def test_the_limit_of_pixels_is_the_largest_that_is_decoded() -> None:
    data = encoded(scene(), "PNG")
    assert open_image(data, limits=ImageLimits(pixels=48 * 32)).size == (48, 32)
    assert rejection(data, limits=ImageLimits(pixels=48 * 32 - 1)).code == "too_large"
    assert rejection(scene(), limits=ImageLimits(pixels=10)).code == "too_large"
    assert Image.MAX_IMAGE_PIXELS is not None
    assert ImageLimits().pixels <= 2 * Image.MAX_IMAGE_PIXELS


def test_a_bomb_is_rejected_before_it_is_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    def load(self: ImageFile.ImageFile) -> None:
        raise AssertionError("decoded")

    monkeypatch.setattr(JpegImagePlugin.JpegImageFile, "load", load)
    assert rejection(SAMPLES["JPEG"], limits=ImageLimits(pixels=100), at_least=4).code == "too_large"


def test_pillows_own_limit_is_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 100)
    assert rejection(SAMPLES["TIFF"]).code == "too_large"
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 60 * 44 - 1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert rejection(SAMPLES["TIFF"]).code == "too_large"


def test_interrupts_are_not_blamed_on_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    def load(self: ImageFile.ImageFile) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(JpegImagePlugin.JpegImageFile, "load", load)
    with pytest.raises(KeyboardInterrupt):
        open_image(SAMPLES["JPEG"])


@pytest.mark.parametrize("step", ["_open", "load"])
def test_lack_of_memory_is_too_large(step: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: ImageFile.ImageFile) -> None:
        raise MemoryError

    monkeypatch.setattr(JpegImagePlugin.JpegImageFile, step, fail)
    error = rejection(SAMPLES["JPEG"])
    assert (error.code, "more memory than there is" in str(error)) == ("too_large", True)
    assert isinstance(error.__cause__, MemoryError)


def test_heic_without_its_extra_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pillow_heif", None)
    error = rejection(b"\0\0\0\x18ftypheic\0\0\0\0mif1heic" + bytes(50))
    assert error.code == "unsupported"
    assert install_command("heic") in str(error)
    assert isinstance(error.__cause__, ImportError)


def test_a_container_brand_alone_does_not_make_it_heic(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pillow_heif", None)
    monkeypatch.setitem(sys.modules, "PIL.AvifImagePlugin", None)
    avif = rejection(b"\0\0\0\x1cftypmif1\0\0\0\0mif1avif" + bytes(50))
    assert (avif.code, "AVIF" in str(avif), "[heic]" in str(avif)) == ("unsupported", True, False)
    assert "HEIC" in str(rejection(b"\0\0\0\x1cftypmif1\0\0\0\0mif1heic" + bytes(50)))


def test_pillows_switches_and_the_warning_filters_are_left_alone(odd: list[OddFile]) -> None:
    before = (ImageFile.LOAD_TRUNCATED_IMAGES, Image.MAX_IMAGE_PIXELS, list(warnings.filters), sorted(Image.OPEN))
    rejection(SAMPLES["JPEG"][:500])
    if "HEIC" in formats():
        open_image(SAMPLES["HEIC"])
    assert before[:3] == (ImageFile.LOAD_TRUNCATED_IMAGES, Image.MAX_IMAGE_PIXELS, list(warnings.filters))
    assert "HEIF" not in set(Image.OPEN) - set(before[3])


def test_threads_get_what_one_thread_gets(sound: list[Path]) -> None:
    paths = [path for path in sound if path.stat().st_size < 50_000] * 2
    alone = {path: pixels(open_image(path)) for path in paths}
    barrier = threading.Barrier(4)

    def work(index: int) -> bool:
        barrier.wait(timeout=30)
        order = random.Random(index).sample(paths, len(paths))
        return all(np.array_equal(pixels(open_image(path)), alone[path]) for path in order)

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(work, range(4)))


def test_image_suffixes_are_endings_of_formats_that_are_read(tmp_path: Path) -> None:
    assert all(suffix == suffix.lower() and suffix[0] == "." for suffix in IMAGE_SUFFIXES)
    assert {
        ".jpg",
        ".jpeg",
        ".png",
        ".webp",
        ".gif",
        ".bmp",
        ".tif",
        ".heic",
        ".avif",
        ".jp2",
        ".ppm",
    } <= IMAGE_SUFFIXES
    known = Image.registered_extensions()
    for suffix in sorted(IMAGE_SUFFIXES & set(known)):
        if known[suffix] in formats():
            scene(mode="F" if suffix == ".pfm" else "RGB").save(tmp_path / f"x{suffix}")
            assert open_image(tmp_path / f"x{suffix}").size == (48, 32)


def test_importing_media_loads_nothing_heavy() -> None:
    heavy = "{'torch', 'transformers', 'pillow_heif', 'onnxruntime', 'chromadb', 'PIL.TiffImagePlugin'}"
    code = f"import sys, vlmsearch.media.images; print(sorted({heavy} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


# ------------------------------------------------------------------------------------------------------ Preprocess


def plain(image: Image.Image, size: int, resampling: Image.Resampling) -> NDArray[np.uint8]:
    """The shorter edge resized, then the middle, with all the memory that takes."""
    short, long = min(image.size), max(image.size)
    long = int(size * long / short)
    image = image.resize((size, long) if image.width <= image.height else (long, size), resampling)
    left, top = (image.width - size) // 2, (image.height - size) // 2
    return np.asarray(image.crop((left, top, left + size, top + size)))


@pytest.fixture(scope="module")
def clip() -> Callable[[Image.Image, int, int], NDArray[np.uint8]]:
    import transformers

    kind = getattr(transformers, "CLIPImageProcessorPil", None) or transformers.CLIPImageProcessor

    def process(image: Image.Image, size: int, resample: int) -> NDArray[np.uint8]:
        crop = {"height": size, "width": size}
        processor = kind(size={"shortest_edge": size}, crop_size=crop, resample=resample)
        values = processor(image, do_rescale=False, do_normalize=False, return_tensors="np")["pixel_values"][0]
        result: NDArray[np.uint8] = np.asarray(values).transpose(1, 2, 0).astype(np.uint8)
        return result

    return process


SHAPES = [(224, 224), (500, 333), (333, 500), (640, 427), (31, 47), (65, 64), (64, 65), (300, 100), (63, 900), (7, 7)]


@pytest.mark.parametrize("interpolation", ["bicubic", "bilinear", "lanczos"])
def test_preprocessing_is_that_of_clip(
    interpolation: Interpolation, clip: Callable[[Image.Image, int, int], NDArray[np.uint8]]
) -> None:
    for number, shape in enumerate(SHAPES):
        image = textured(*shape, seed=number)
        for size in (64, 224):
            expected = clip(image, size, Image.Resampling[interpolation.upper()])
            assert np.array_equal(Preprocess(size, interpolation=interpolation).apply(image), expected), (shape, size)


@pytest.mark.skipif(not PHOTOS.is_dir(), reason="the photographs in ../shared/data are not here")
def test_photographs_are_preprocessed_as_by_clip(
    clip: Callable[[Image.Image, int, int], NDArray[np.uint8]],
) -> None:
    for path in sorted(PHOTOS.glob("*.jpg"))[:60]:
        with Image.open(path) as image:
            for size in (64, 224):
                expected = clip(image, size, Image.Resampling.BICUBIC)
                assert np.array_equal(Preprocess(size).apply(open_image(path)), expected), path.name


@settings(max_examples=25)
@given(st.integers(1, 90), st.integers(1, 90), st.integers(1, 40), st.sampled_from(["bicubic", "bilinear", "lanczos"]))
def test_any_shape_becomes_a_square(width: int, height: int, size: int, interpolation: Interpolation) -> None:
    image = textured(width, height)
    for crop in (True, False):
        preprocess = Preprocess(size, crop=crop, interpolation=interpolation)
        result = preprocess.apply(image)
        assert result.shape == (size, size, 3)
        assert result.dtype == np.uint8
        assert np.array_equal(preprocess.apply(Image.fromarray(result)), result)
        if crop:
            expected = plain(image, size, Image.Resampling[interpolation.upper()]).astype(int)
            close = max(width, height) <= 16 * min(width, height)
            assert np.abs(result - expected).max() <= (0 if close else 3)


@pytest.mark.parametrize("shape", [(40, 700), (700, 40), (9, 160), (300, 5000)])
def test_elongated_images_give_the_same_without_the_memory(shape: tuple[int, int]) -> None:
    image = textured(*shape)
    for interpolation in ("bicubic", "bilinear", "lanczos"):
        expected = plain(image, 64, Image.Resampling[interpolation.upper()]).astype(int)
        assert np.abs(Preprocess(64, interpolation=interpolation).apply(image) - expected).max() <= 1


def test_a_line_of_a_million_pixels_is_no_problem() -> None:
    line = np.zeros((1, 1_000_000, 3), np.uint8)
    line[:, 499_998:500_002] = 200
    for pixel_line in (Image.fromarray(line), Image.fromarray(line.transpose(1, 0, 2).copy())):
        assert Preprocess(224).apply(pixel_line).min() == 200
        assert Preprocess(224, crop=False).apply(pixel_line).shape == (224, 224, 3)


def test_without_crop_the_image_is_squashed() -> None:
    result = Image.fromarray(Preprocess(32, crop=False, interpolation="bilinear").apply(scene(96, 32)))
    assert_colours(result, CORNERS)


def test_the_result_is_a_writable_copy() -> None:
    image = scene(32, 32)
    result = Preprocess(32).apply(image)
    assert np.array_equal(result, pixels(image))
    result[:] = 0
    assert_colours(image, CORNERS)
    assert Preprocess(16).apply(scene(32, 32, "L")).shape == (16, 16, 3)


@pytest.mark.parametrize("wrong", [{"size": 0}, {"size": 8, "interpolation": "nearest"}])
def test_an_impossible_preprocessing_is_a_config_error(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="bicubic, bilinear, lanczos"):
        Preprocess(**wrong)


# -------------------------------------------------------------------------------------------------------- thumbnail


@pytest.mark.parametrize(
    ("source", "size"),
    [
        (turned(6, "JPEG", scene(480, 320)), (120, 80)),
        (scene(320, 480), (80, 120)),
        (encoded(scene(), "GIF"), (48, 32)),
        (scene(1, 900), (1, 120)),
    ],
    ids=["turned", "pil", "small", "line"],
)
def test_a_thumbnail_is_a_small_upright_jpeg(source: bytes | Image.Image, size: tuple[int, int]) -> None:
    data = thumbnail(source, edge=120)
    with Image.open(BytesIO(data)) as image:
        assert image.format == "JPEG"
        assert image.size == size
        assert not {"exif", "icc_profile"} & set(image.info)
        if min(size) > 1:
            assert_colours(image, CORNERS, LOSSY)
    assert len(data) < 5000


def test_a_thumbnail_leaves_its_source_alone_and_rejects_as_open_image() -> None:
    image = scene(480, 320)
    thumbnail(image, edge=50)
    assert image.size == (480, 320)
    with pytest.raises(InvalidInputError):
        thumbnail(b"no image", edge=50)
