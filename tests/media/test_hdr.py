"""Colours of films and pictures against the formulas of ITU-R BT.2100 and BT.2087, written again here."""

import struct
import sys
import zlib
from io import BytesIO
from pathlib import Path
from typing import Any

import av
import numpy as np
import pillow_heif
import pytest
from av.video.reformatter import ColorPrimaries, ColorTrc
from numpy.typing import NDArray
from PIL import Image

from tests.support.odd_images import encoded, png, rgb_profile, srgb_profile
from vlmsearch import ImageLimits
from vlmsearch.media import images
from vlmsearch.media.hdr import Cicp, tone_mapped
from vlmsearch.media.images import open_image
from vlmsearch.media.video import scenes

MASTER = np.array(
    [
        (200, 40, 40), (40, 160, 60), (30, 60, 200), (255, 255, 255), (186, 186, 186), (128, 128, 128), (60, 60, 60),
        (20, 20, 20), (0, 0, 0), (255, 0, 0), (250, 230, 30), (224, 172, 140), (90, 140, 220), (0, 0, 255),
        (40, 255, 40),
    ]
)  # fmt: skip
SIDE = 16
TO_2020 = np.array([(0.6274, 0.3293, 0.0433), (0.0691, 0.9195, 0.0114), (0.0164, 0.0880, 0.8956)])
PQ, HLG, SDR = 16, 18, 14
LUMA = {1: (0.2126, 0.0722), 9: (0.2627, 0.0593)}
HDR10 = {"color_primaries": 9, "transfer_characteristics": PQ, "matrix_coefficients": 9, "full_range_flag": 0}


def signal(transfer: int, light: NDArray[Any] | None = None) -> NDArray[np.float64]:
    """R'G'B' in BT.2020 of the master, or of light of which 1 is its white."""
    shares = MASTER / 255
    linear = np.where(shares <= 0.04045, shares / 12.92, ((shares + 0.055) / 1.055) ** 2.4) @ TO_2020.T
    linear = linear if light is None else light
    if transfer == PQ:
        power = (linear * 203 / 10000) ** (2610 / 16384)
        return np.asarray(((3424 / 4096 + 2413 / 128 * power) / (1 + 2392 / 128 * power)) ** (2523 / 32))
    if transfer == HLG:
        scene = linear * 0.265
        logarithm = 0.17883277 * np.log(np.maximum(12 * scene - 0.28466892, 1e-9)) + 0.55991073
        return np.where(scene <= 1 / 12, np.sqrt(3 * scene), logarithm)
    return np.where(linear <= 0.0031308, 12.92 * linear, 1.055 * np.maximum(linear, 0) ** (1 / 2.4) - 0.055)


def patches(values: NDArray[Any], bits: int = 16) -> NDArray[Any]:
    codes = np.round(values * (2**bits - 1)).astype(np.uint16 if bits > 8 else np.uint8)
    return np.ascontiguousarray(np.broadcast_to(np.repeat(codes, SIDE, axis=0), (64, SIDE * len(codes), 3)))


def errors(image: Image.Image, expected: NDArray[Any] = MASTER) -> int:
    """How many levels the worst patch is off."""
    values = np.asarray(image).astype(int)
    middle = values[values.shape[0] // 2, SIDE // 2 :: SIDE]
    return int(np.abs(middle - expected).max())


def write(
    path: Path, codec: str, pix_fmt: str, points: tuple[int, int, int], *pictures: NDArray[Any], full: bool = False
) -> None:
    """Write a film with three seconds of patches a picture, or an AVIF, by formulas of luma and colour differences."""
    options = {"libsvtav1": {"crf": "8"}, "libx264": {"qp": "0"}, "libx265": {"x265-params": "crf=2:log-level=error"}}
    bits, (of_red, of_blue) = av.VideoFormat(pix_fmt).components[0].bits, LUMA[points[2]]
    with av.open(str(path), "w") as film:
        stream = film.add_stream(codec, rate=1, options=options.get(codec, {}))
        stream.width, stream.height, stream.pix_fmt = SIDE * len(pictures[0]), 64, pix_fmt
        context = stream.codec_context
        context.color_primaries, context.color_trc, context.colorspace = points
        context.color_range = 2 if full else 1
        for second in range(1 if path.suffix == ".avif" else 3 * len(pictures)):
            values = np.repeat(pictures[second // 3], SIDE, axis=0)
            red, green, blue = np.moveaxis(np.broadcast_to(values, (64, *values.shape)), 2, 0)
            luma = of_red * red + (1 - of_red - of_blue) * green + of_blue * blue
            planes = [luma, (blue - luma) / (2 - 2 * of_blue), (red - luma) / (2 - 2 * of_red)]
            frame = av.VideoFrame(stream.width, stream.height, pix_fmt)
            for number, (plane, shares) in enumerate(zip(frame.planes, planes, strict=True)):
                kept = shares[::2, ::2] if number and "420" in pix_fmt else shares
                codes = kept * (2**bits - 1) if full else kept * (224 if number else 219) * 2 ** (bits - 8)
                codes += 2 ** (bits - 1) if number else 0 if full else 2 ** (bits - 4)
                rows = np.zeros((plane.height, plane.line_size // (2 if bits > 8 else 1)), "<u2" if bits > 8 else "u1")
                rows[:, : plane.width] = np.round(codes)
                plane.update(rows.tobytes())
            frame.pts = second
            film.mux(stream.encode(frame))
        film.mux(stream.encode(None))


@pytest.mark.parametrize(
    ("name", "codec", "pix_fmt", "transfer", "full"),
    [
        ("hevc.mp4", "libx265", "yuv420p10le", PQ, False),
        ("hevc.mov", "libx265", "yuv420p10le", HLG, False),
        ("full.mkv", "libx265", "yuv420p10le", PQ, True),
        ("av1.mkv", "libsvtav1", "yuv420p10le", PQ, False),
        ("av1.mp4", "libsvtav1", "yuv420p10le", HLG, False),
        ("ffv1.mkv", "ffv1", "yuv444p12le", PQ, False),
        ("vp9.webm", "libvpx-vp9", "yuv420p", HLG, False),
        ("prores.mov", "prores_ks", "yuv444p10le", HLG, False),  # whose frames say no colours, and the container does
        ("wide.mp4", "libx265", "yuv420p10le", SDR, False),
    ],
)
def test_films_are_within_12_levels_of_their_master(
    tmp_path: Path, name: str, codec: str, pix_fmt: str, transfer: int, full: bool
) -> None:
    write(tmp_path / name, codec, pix_fmt, (9, transfer, 9), signal(transfer), full=full)
    (frame,) = scenes(tmp_path / name)
    assert errors(frame.image) <= (8 if pix_fmt == "yuv420p" else 6)


@pytest.mark.parametrize("codec", ["libx264", "prores_ks"])
def test_the_matrix_of_a_plain_film_is_its_own_or_that_of_its_container(tmp_path: Path, codec: str) -> None:
    pix_fmt = "yuv444p" if codec == "libx264" else "yuv444p10le"
    write(tmp_path / "film.mov", codec, pix_fmt, (1, 1, 1), MASTER / 255)
    (frame,) = scenes(tmp_path / "film.mov")
    assert errors(frame.image) <= 3


@pytest.mark.parametrize("transfer", [PQ, HLG, SDR])
def test_cuts_are_those_of_the_master(tmp_path: Path, transfer: int) -> None:
    dark, bright = (signal(transfer, np.repeat(np.array([[0.05], [level]]), 3, axis=1)) for level in (0.13, 0.4))
    write(tmp_path / "film.mkv", "ffv1", "yuv420p10le", (9, transfer, 9), dark, bright, dark)
    assert [frame.seconds for frame in scenes(tmp_path / "film.mkv")] == [0, 3, 6]


def test_greys_in_pq_are_those_of_ffmpegs_own_tone_mapping(tmp_path: Path) -> None:
    greys = np.repeat(np.array([0, 0.001, 0.01, 0.05, 0.18, 0.4, 0.7, 1])[:, None], 3, axis=1)
    write(tmp_path / "film.mkv", "ffv1", "yuv444p12le", (9, PQ, 9), signal(PQ, greys))
    (frame,) = scenes(tmp_path / "film.mkv")
    with av.open(str(tmp_path / "film.mkv")) as film:
        raw = next(film.decode(video=0))
        mapped = raw.reformat(
            format="rgb24", dst_color_trc=ColorTrc.IEC61966_2_1, dst_color_primaries=ColorPrimaries.BT709
        )
    assert errors(frame.image, mapped.to_ndarray()[32, SIDE // 2 :: SIDE].astype(int)) <= 3


def test_linear_light_is_coded_and_brighter_light_keeps_its_hue() -> None:
    dim = np.array([(1, 1, 1), (0.5, 0.25, 0), (0.18, 0.18, 0.18)])
    linear = tone_mapped(patches(dim), Cicp(1, 8))[32, SIDE // 2 :: SIDE]
    assert np.abs(linear - 255 * signal(SDR, dim)).max() <= 1
    light = np.array([(1, 1, 1), (5, 5, 5), (4.9, 4.9, 4.9), (4, 2, 1), (0.5, 0.5, 0.5)])
    for transfer, brightest in ((PQ, 40), (HLG, 3.7)):
        given = np.minimum(light, brightest)
        mapped = tone_mapped(patches(signal(transfer, given)), Cicp(1, transfer))[32, SIDE // 2 :: SIDE].astype(int)
        shares = given / np.maximum(given.max(1, keepdims=True), 1)
        assert np.abs(mapped - 255 * signal(SDR, shares)).max() <= 1
        assert (mapped[:3] == 255).all()


@pytest.mark.parametrize("transfer", [PQ, HLG, SDR])
@pytest.mark.parametrize("mode", ["RGB;16", "RGBA;16"])
def test_heic_is_decoded_deep(transfer: int, mode: str) -> None:
    pixels = patches(signal(transfer))
    if mode == "RGBA;16":
        pixels = np.dstack([pixels, np.full(pixels.shape[:2], 65535, np.uint16)])
        pixels[:8, :, 3] = 0
    turned = Image.Exif()
    turned[0x112] = 3
    picture, written = pillow_heif.from_bytes(mode, pixels.shape[1::-1], pixels.tobytes()), BytesIO()
    points = HDR10 | {"transfer_characteristics": transfer}
    picture.save(written, quality=-1, chroma=444, save_nclx_profile=True, exif=turned.tobytes(), **points)
    image = open_image(written.getvalue()).rotate(180)
    assert errors(image) <= 6
    assert (image.getpixel((4, 4)) == (255, 255, 255)) == (mode == "RGBA;16")
    lazy = pillow_heif.HeifImageFile(written)  # type: ignore[no-untyped-call]
    assert errors(open_image(lazy).rotate(180), MASTER) <= 30  # in 8 bits, as Pillow decoded it


def test_avif_is_decoded_deep_where_it_can_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for transfer in (SDR, PQ, HLG):
        write(tmp_path / "picture.avif", "libsvtav1", "yuv420p10le", (9, transfer, 9), signal(transfer))
        assert errors(open_image(tmp_path / "picture.avif")) <= 3
    data = (tmp_path / "picture.avif").read_bytes()
    limits = ImageLimits(decoded_bytes=64 * SIDE * len(MASTER) * 20)
    assert 0 < errors(open_image(data, limits=limits)) <= 30
    monkeypatch.setitem(sys.modules, "av", None)
    ((_, (bmp,)),) = images.decoded_image({"name": "picture", "limits": {}}, [data])
    assert 0 < errors(open_image(bmp)) <= 30


@pytest.mark.parametrize("transfer", [PQ, HLG, SDR])
@pytest.mark.parametrize("bits", [8, 16])
def test_cicp_of_png_says_its_colours(transfer: int, bits: int) -> None:
    codes, usual = patches(signal(transfer)[:-2], bits), MASTER[:-2]
    height, width = codes.shape[:2]
    rows = codes.astype(f">u{bits // 8}").tobytes()
    profile = (b"iCCP", b"other\0\0" + zlib.compress(rgb_profile(order="grb")))
    for extra in ((), (profile,)):
        data = png(width, height, bits, 2, rows, *extra, (b"cICP", bytes((9, transfer, 0, 1))))
        assert errors(open_image(data), usual) <= 12  # and up to 20 in pure green, for which 8 bits are few
    narrow = np.round(16 + 219 * signal(transfer)[:-2]) / 255
    data = png(width, height, 8, 2, patches(narrow, 8).tobytes(), (b"cICP", bytes((9, transfer, 0, 0))))
    assert errors(open_image(data), usual) <= 12
    grey = png(
        width, height, 8, 0, patches(signal(transfer)[:-2], 8)[:, :, 1].tobytes(), (b"cICP", bytes((9, transfer, 0, 1)))
    )
    assert errors(open_image(grey).crop((SIDE * 3, 0, SIDE * 9, 64)), MASTER[3:9]) <= 6


def test_display_p3_is_converted_as_by_its_icc_profile() -> None:
    profile = bytearray(srgb_profile())
    for name, values in (
        (b"rXYZ", (0.51512, 0.24120, -0.00105)),
        (b"gXYZ", (0.29198, 0.69225, 0.04189)),
        (b"bXYZ", (0.15710, 0.06657, 0.78407)),
    ):
        (at,) = struct.unpack_from(">I", profile, profile.index(name) + 4)
        struct.pack_into(">3i", profile, at + 8, *(round(value * 65536) for value in values))
    given = Image.fromarray(patches(MASTER / 255, 8))
    by_icc = np.asarray(open_image(encoded(given, "PNG", icc_profile=bytes(profile))))[32, SIDE // 2 :: SIDE].astype(
        int
    )
    rows = given.tobytes()
    assert errors(open_image(png(*given.size, 8, 2, rows, (b"cICP", bytes((12, 13, 0, 1))))), by_icc) <= 2
    points = {"color_primaries": 12, "transfer_characteristics": 13, "matrix_coefficients": 0, "full_range_flag": 1}
    picture, written = pillow_heif.from_pillow(given), BytesIO()
    picture.save(written, quality=-1, chroma=444, save_nclx_profile=True, **points)
    assert errors(open_image(written.getvalue()), by_icc) <= 2
    avif = encoded(given, "AVIF", quality=100, subsampling="4:4:4").replace(b"nclx\0\1", b"nclx\0\x0c")
    assert errors(open_image(avif), by_icc) <= 6


def test_code_points_in_an_icc_profile_count_for_pq() -> None:
    given = Image.fromarray(patches(signal(PQ)[:-2], 8))
    profile = rgb_profile() + b"cicp\0\0\0\0" + bytes((9, PQ, 0, 1))
    for kind in ("TIFF", "WEBP"):
        assert errors(open_image(encoded(given, kind, lossless=True, icc_profile=profile)), MASTER[:-2]) <= 12


@pytest.mark.parametrize("points", [(1, 13, 0), (1, 1, 0), (2, 2, 0), (6, 6, 0)])
def test_usual_colours_are_left_as_they_are(points: tuple[int, int, int]) -> None:
    given = Image.fromarray(np.random.default_rng(1).integers(0, 256, (40, 60, 3), np.uint8))
    data = png(60, 40, 8, 2, given.tobytes(), (b"cICP", bytes((*points, 1))))
    assert open_image(data).tobytes() == given.tobytes()
    avif = encoded(given, "AVIF")
    changed = avif.replace(b"nclx\0\1\0\r", b"nclx" + struct.pack(">2H", *points[:2]))
    assert open_image(changed).tobytes() == Image.open(BytesIO(avif)).tobytes()


def test_only_the_primary_item_of_an_avif_says_its_colours() -> None:
    """As where it comes with a gain map, and a brighter picture that is derived from both."""
    given = Image.fromarray(patches(MASTER / 255, 8))
    avif = bytearray(encoded(given, "AVIF", quality=100, subsampling="4:4:4"))
    other = struct.pack(">I4s4s3HB", 19, b"colr", b"nclx", 9, PQ, 9, 0)
    at = avif.index(b"ipco") + 4
    avif[at:at] = other  # the first property, which no item has
    for box in (b"meta", b"iprp", b"ipco"):
        start = avif.index(box) - 4
        avif[start : start + 4] = struct.pack(">I", struct.unpack_from(">I", avif, start)[0] + len(other))
    links = avif.index(b"ipma") + 15
    for place in range(links, links + avif[links - 1]):
        avif[place] += 1
    data, location = avif.index(b"mdat") + 4, avif.index(b"iloc") + 18
    assert struct.unpack_from(">I", avif, location) == (data - len(other),)
    avif[location : location + 4] = struct.pack(">I", data)
    assert errors(open_image(bytes(avif))) <= 6


def test_an_ultra_hdr_picture_gives_its_base() -> None:
    base, gains = Image.fromarray(patches(MASTER / 255, 8)), Image.new("L", (60, 16), 200)
    xmp = (
        b'<x:xmpmeta xmlns:x="adobe:ns:meta/" xmlns:hdrgm="http://ns.adobe.com/hdr-gain-map/1.0/" hdrgm:Version="1.0"/>'
    )
    data = encoded(base, "MPO", save_all=True, append_images=[gains], quality=95, xmp=xmp)
    assert data.count(b"\xff\xd8\xff") == 2
    assert b"MPF\0" in data
    assert open_image(data).tobytes() == Image.open(BytesIO(encoded(base, "JPEG", quality=95))).tobytes()
