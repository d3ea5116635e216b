"""Colours of high dynamic range or wide gamut -> sRGB, 8 bits.

They are named by code points of ITU-T H.273, as the ``nclx`` of HEIF and the ``cICP`` of PNG have them. PQ and HLG are
those of ITU-R BT.2100. Reference white is SDR's white, as ITU-R BT.2408 says: 203 cd/m2, which is 58% of PQ, and 75% of
HLG. HLG is read as light of the scene, as BT.2408 maps SDR into it for matching looks, so no system gamma applies.
Brighter light keeps its hue and is as bright as white. Colours outside the gamut are clipped, as ICC profiles do.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from av.video.codeccontext import VideoCodecContext
    from av.video.frame import VideoFrame

_PQ, _HLG, _LINEAR, UNSPECIFIED = 16, 18, 8, 2
_SRGB, _BT2020 = 1, 9
_CHROMATICITIES = {  # of red, green, blue and white
    _SRGB: ((0.64, 0.33), (0.30, 0.60), (0.15, 0.06), (0.3127, 0.3290)),
    _BT2020: ((0.708, 0.292), (0.170, 0.797), (0.131, 0.046), (0.3127, 0.3290)),
    11: ((0.680, 0.320), (0.265, 0.690), (0.150, 0.060), (0.314, 0.351)),  # DCI-P3
    12: ((0.680, 0.320), (0.265, 0.690), (0.150, 0.060), (0.3127, 0.3290)),  # Display P3
}
_PNG_CHUNK = re.compile(rb"\0\0\0\x04cICP(....)", re.DOTALL)
_ICC_TAG = re.compile(rb"cicp\0{4}(....)", re.DOTALL)
_WHITE = 203.0
_FULL, _WHITE_OF_LIMITED = 2, 65280 / 65535
"""FFmpeg's AVCOL_RANGE_JPEG, and what it makes of white of other ranges in 16 bits."""
_ACCURATE = 2 | 2**18
"""FFmpeg's SWS_BILINEAR and SWS_ACCURATE_RND: without it, 8 bits come out up to 9 levels too dark."""
_STRIP = 2**16
"""Pixels that are converted at once: their light fits a processor's cache."""


class Cicp(NamedTuple):
    """Coding-independent code points of colours.

    Attributes:
        primaries: Their ColourPrimaries.
        transfer: Their TransferCharacteristics.
        matrix: MatrixCoefficients of luma and colour differences.
        black: The code of black in RGB, as a share of the largest code.
        white: The code of white in RGB, as a share of the largest code.
    """

    primaries: int
    transfer: int
    matrix: int = UNSPECIFIED
    black: float = 0.0
    white: float = 1.0

    @classmethod
    def of(cls, source: VideoCodecContext | VideoFrame) -> Cicp:
        """Return those that a frame or a container says."""
        return cls(source.color_primaries, source.color_trc, source.colorspace)

    @property
    def is_hdr(self) -> bool:
        """Whether the codes are those of PQ or HLG."""
        return self.transfer in (_PQ, _HLG)

    @property
    def is_srgb(self) -> bool:
        """Whether the codes are taken as sRGB, as those of all SDR of the usual primaries are."""
        is_sdr = not self.is_hdr and self.transfer != _LINEAR
        return is_sdr and not self.black and (self.primaries == _SRGB or self.primaries not in _CHROMATICITIES)


def cicp_of(info: Mapping[Any, Any]) -> Cicp | None:
    """Return the code points of the colours of an image that Pillow opened, None for none.

    Those in an ICC profile count for PQ and HLG, which the profile itself can only approximate.
    """
    if "cicp" in info:
        return Cicp(*info["cicp"])
    profile = info.get("icc_profile")
    if isinstance(profile, bytes):
        tag = _ICC_TAG.search(profile)
        cicp = Cicp(*tag[1][:2]) if tag else None
        return cicp if cicp and cicp.is_hdr else None
    nclx = info.get("nclx_profile")  # of pillow-heif
    return Cicp(nclx["color_primaries"], nclx["transfer_characteristics"]) if nclx else None


def encoded_cicp(kind: str, data: bytes) -> Cicp | None:
    """Return the code points in a PNG, or of the primary item of an AVIF without an ICC profile; None for none."""
    if kind == "PNG":
        chunk = _PNG_CHUNK.search(data[: data.find(b"IDAT")])
        ends = () if chunk and chunk[1][3] else (16 / 255, 235 / 255)
        return Cicp(*chunk[1][:3], *ends) if chunk else None
    try:
        return _nclx(data) if kind == "AVIF" else None
    except (LookupError, ValueError, struct.error):  # which damaged files raise
        return None


def _nclx(data: bytes) -> Cicp | None:
    """Return the code points that the primary item of a HEIF file is linked to."""
    meta = dict(_boxes(dict(_boxes(memoryview(data)))[b"meta"][4:]))
    properties = dict(_boxes(meta[b"iprp"]))
    bodies, links = [body for _, body in _boxes(properties[b"ipco"])], properties[b"ipma"]
    item_form = f">{'I' if links[0] else 'H'}B"
    form, mask = (">u2", 0x7FFF) if links[3] & 1 else (">u1", 0x7F)
    at = 8
    for _ in range(int.from_bytes(links[4:8], "big")):
        item, count = struct.unpack_from(item_form, links, at)
        places = np.frombuffer(links, form, count, at + struct.calcsize(item_form)) & mask
        at += struct.calcsize(item_form) + places.nbytes
        if item == int.from_bytes(meta[b"pitm"][4:], "big"):
            nclx = [body for body in (bodies[place - 1] for place in places) if body[:4] == b"nclx"]
            return Cicp(*struct.unpack_from(">3H", nclx[0], 4)) if nclx else None
    return None


def _boxes(data: memoryview) -> Iterator[tuple[bytes, memoryview]]:
    """Yield the types of the boxes of an ISO base media file, and what is in them."""
    at = 0
    while at + 8 <= len(data):
        length, kind = struct.unpack_from(">I4s", data, at)
        yield kind, data[at + 8 : at + length]
        at += max(length, 8)


def rgb_of(frame: VideoFrame, cicp: Cicp) -> NDArray[np.uint8]:
    """Return the sRGB of a frame of such colours."""
    if cicp.is_srgb:
        return np.asarray(frame.to_ndarray(format="rgb24", src_colorspace=cicp.matrix), np.uint8)
    matrix = _BT2020 if cicp.matrix == UNSPECIFIED and cicp.is_hdr else cicp.matrix
    deep = frame.to_ndarray(format="rgb48le", src_colorspace=matrix, interpolation=_ACCURATE)
    return tone_mapped(
        np.asarray(deep, np.uint16), cicp if frame.color_range == _FULL else cicp._replace(white=_WHITE_OF_LIMITED)
    )


def tone_mapped(codes: NDArray[np.uint8] | NDArray[np.uint16], cicp: Cicp) -> NDArray[np.uint8]:
    """Return the sRGB of codes of 8 or 16 bits, which have red, green and blue in their last axis."""
    table, matrix, to_codes = _light(cicp, 8 * codes.itemsize), _to_srgb(cicp), _srgb_codes()
    flat = codes.reshape(-1, 3)
    result = np.empty(flat.shape, np.uint8)
    for start in range(0, len(flat), _STRIP):
        light = table[flat[start : start + _STRIP]]
        if cicp.is_hdr:
            light /= np.maximum(light.max(-1, keepdims=True), 1)
        places = np.clip(light @ matrix, 0, 1) * np.float32(len(to_codes) - 1)
        result[start : start + _STRIP] = to_codes[(places + np.float32(0.5)).astype(np.uint16)]
    return result.reshape(codes.shape)


@cache
def _light(cicp: Cicp, bits: int) -> NDArray[np.float32]:
    """Return the light of each code, where that of SDR's white is 1."""
    signal = np.clip((np.linspace(0, 1, 2**bits) - cicp.black) / (cicp.white - cicp.black), 0, 1)
    if cicp.transfer == _PQ:
        root = signal ** (1 / 78.84375)
        light = (np.maximum(root - 0.8359375, 0) / (18.8515625 - 18.6875 * root)) ** (1 / 0.1593017578125)
        light *= 10000 / _WHITE
    elif cicp.transfer == _HLG:
        light = np.where(signal <= 0.5, signal**2 / 3, (np.exp((signal - 0.55991073) / 0.17883277) + 0.28466892) / 12)
        light /= (np.exp((0.75 - 0.55991073) / 0.17883277) + 0.28466892) / 12
    elif cicp.transfer == _LINEAR:
        light = signal
    else:
        light = np.where(signal <= 0.04045, signal / 12.92, ((signal + 0.055) / 1.055) ** 2.4)
    return light.astype(np.float32)


@cache
def _to_srgb(cicp: Cicp) -> NDArray[np.float32]:
    """Return the matrix that light is multiplied by, white being white."""
    primaries = _BT2020 if cicp.primaries == UNSPECIFIED and cicp.is_hdr else cicp.primaries
    matrix = np.linalg.solve(_to_xyz(_SRGB), _to_xyz(primaries if primaries in _CHROMATICITIES else _SRGB))
    return np.asarray((matrix / matrix.sum(1, keepdims=True)).T, np.float32)


def _to_xyz(primaries: int) -> NDArray[np.float64]:
    x, y = np.array(_CHROMATICITIES[primaries]).T
    columns = np.stack([x / y, np.ones(4), (1 - x - y) / y])
    return columns[:, :3] * np.linalg.solve(columns[:, :3], columns[:, 3])


@cache
def _srgb_codes() -> NDArray[np.uint8]:
    """Return the 8-bit codes of light from 0 to 1."""
    light = np.linspace(0, 1, 2**16)
    signal = np.where(light <= 0.0031308, light * 12.92, 1.055 * light ** (1 / 2.4) - 0.055)
    return (signal * 255 + 0.5).astype(np.uint8)
