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
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from av.video.codeccontext import VideoCodecContext
    from av.video.frame import VideoFrame

_LINEAR, _PQ, _HLG, _BT2020, UNSPECIFIED = 8, 16, 18, 9, 2
_TO_SRGB = {  # linear light of wider primaries; that of BT.2020 is in ITU-R BT.2087
    _BT2020: ((1.660491, -0.587641, -0.07285), (-0.12455, 1.1329, -0.008349), (-0.018151, -0.100579, 1.11873)),
    11: ((1.264822, -0.264822, 0), (-0.036697, 1.036697, 0), (-0.021024, -0.095989, 1.117013)),  # DCI-P3
    12: ((1.22494, -0.22494, 0), (-0.042057, 1.042057, 0), (-0.019638, -0.078636, 1.098274)),  # Display P3
}
_NCLX = ("color_primaries", "transfer_characteristics", "matrix_coefficients")
_PNG_CHUNK = re.compile(rb"\0\0\0\x04cICP(....)", re.DOTALL)
_ICC_TAG = re.compile(rb"cicp\0{4}(....)", re.DOTALL)
_WHITE = 203.0
_FULL = 2
"""FFmpeg's AVCOL_RANGE_JPEG."""
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
        """Return whether the codes are those of PQ or HLG."""
        return self.transfer in (_PQ, _HLG)

    @property
    def is_srgb(self) -> bool:
        """Return whether the codes are taken as sRGB, as in all SDR of usual primaries."""
        return not (self.is_hdr or self.transfer == _LINEAR or self.black or self.primaries in _TO_SRGB)


def cicp_of(info: Mapping[Any, Any]) -> Cicp | None:
    """Return the code points of the colours of an opened image, None for none.

    A PNG's come before an ICC profile, and those of HEIF after it. In a profile they count for PQ and HLG, which the
    rest of it can only approximate.
    """
    cicp = info.get("cicp")
    if isinstance(cicp, Cicp):
        return cicp
    if profile := info.get("icc_profile"):
        tag = _ICC_TAG.search(profile) if isinstance(profile, bytes) else None
        return Cicp(*tag[1][:2]) if tag and tag[1][1] in (_PQ, _HLG) else None
    nclx = info.get("nclx_profile")
    return Cicp(*(nclx[key] for key in _NCLX)) if nclx else None


def encoded_colours(kind: str, data: bytes) -> dict[str | tuple[int, int], Any]:
    """Return the code points of a PNG or an AVIF, which Pillow leaves out of ``Image.info``."""
    if kind == "PNG" and (chunk := _PNG_CHUNK.search(data[: data.find(b"IDAT")])):
        ends = (0.0, 1.0) if chunk[1][3] else (16 / 255, 235 / 255)
        return {"cicp": Cicp(chunk[1][0], chunk[1][1], chunk[1][2], *ends)}
    try:
        return {"nclx_profile": _nclx(data)} if kind == "AVIF" else {}
    except (LookupError, ValueError, StopIteration, struct.error):  # which damaged files raise
        return {}


def _nclx(data: bytes) -> dict[str, int]:
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
            body = next(bodies[place - 1] for place in places if bodies[place - 1][:4] == b"nclx")
            return dict(zip(_NCLX, struct.unpack_from(">3H", body, 4), strict=True))
    return {}


def _boxes(data: memoryview) -> Iterator[tuple[bytes, memoryview]]:
    """Yield the type and the content of each box of an ISO base media file."""
    at = 0
    while (length := int.from_bytes(data[at : at + 4], "big")) >= 8:  # 0: up to the end
        yield bytes(data[at + 4 : at + 8]), data[at + 8 : at + length]
        at += length


def rgb_of(frame: VideoFrame, cicp: Cicp) -> NDArray[np.uint8]:
    """Return the sRGB of a frame of such colours."""
    if cicp.is_srgb:
        return np.asarray(frame.to_ndarray(format="rgb24", src_colorspace=cicp.matrix), np.uint8)
    matrix = _BT2020 if cicp.matrix == UNSPECIFIED and cicp.is_hdr else cicp.matrix
    deep = frame.to_ndarray(format="rgb48le", src_colorspace=matrix, interpolation=_ACCURATE)
    is_full = frame.color_range == _FULL or frame.format.is_rgb
    bits = frame.format.components[0].bits if is_full else 8  # FFmpeg leaves the lower ones of white 0
    return tone_mapped(np.asarray(deep, np.uint16), cicp._replace(white=1 - 2**-bits))


def tone_mapped(codes: NDArray[np.uint8] | NDArray[np.uint16], cicp: Cicp) -> NDArray[np.uint8]:
    """Return the sRGB of red, green and blue, the last axis, in 8 or 16 bits."""
    table, to_codes = _light(cicp, 8 * codes.itemsize), _srgb_codes()
    primaries = _BT2020 if cicp.primaries == UNSPECIFIED and cicp.is_hdr else cicp.primaries
    matrix = np.array(_TO_SRGB.get(primaries, np.eye(3)), np.float32).T
    flat = codes.reshape(-1, 3)
    result = np.empty(flat.shape, np.uint8)
    for start in range(0, len(flat), _STRIP):
        light = table[flat[start : start + _STRIP]]
        if cicp.is_hdr:
            light /= np.maximum(light.max(-1, keepdims=True), 1)
        places = np.clip(light @ matrix, 0, 1) * np.float32(len(to_codes) - 1)
        result[start : start + _STRIP] = to_codes[(places + np.float32(0.5)).astype(np.uint16)]
    return result.reshape(codes.shape)


@lru_cache(maxsize=16)
def _light(cicp: Cicp, bits: int) -> NDArray[np.float32]:
    """Return the light of each code; that of SDR's white is 1."""
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
def _srgb_codes() -> NDArray[np.uint8]:
    """Return the 8-bit codes of light from 0 to 1."""
    light = np.linspace(0, 1, 2**16)
    signal = np.where(light <= 0.0031308, light * 12.92, 1.055 * light ** (1 / 2.4) - 0.055)
    return (signal * 255 + 0.5).astype(np.uint8)
