"""Films drawn for tests: scenes of one pattern each, which move a little, with subtitles."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any

import av
import numpy as np
from av.packet import Packet
from av.stream import Disposition
from av.subtitles.stream import SubtitleStream
from numpy.typing import NDArray

FPS = 10
CODECS = {
    ".avi": "mpeg4",
    ".mpg": "mpeg2video",
    ".ts": "libx264",
    ".webm": "libvpx-vp9",
    ".wmv": "wmv2",
    ".flv": "flv1",
}
IDENTITY = struct.pack(">9i", 1 << 16, 0, 0, 0, 1 << 16, 0, 0, 0, 1 << 30)


def pattern(scene: int, width: int = 160, height: int = 96) -> NDArray[np.uint8]:
    """The picture of a scene: blocks of grey, another pattern for each number."""
    blocks = np.random.default_rng(scene).integers(0, 256, (height // 16, width // 16), np.uint8)
    return np.repeat(np.kron(blocks, np.ones((16, 16), np.uint8))[:, :, None], 3, axis=2)


def film(
    path: Path,
    lengths: Sequence[float] = (3, 3, 3),
    *,
    size: tuple[int, int] = (160, 96),
    pictures: Sequence[NDArray[np.uint8]] | None = None,
    times: Sequence[float] | None = None,
    subtitles: Sequence[tuple[float, float, str]] = (),
    shift: int = 0,
    codec: str = "",
    pix_fmt: str = "yuv420p",
    shape: Fraction | None = None,
    tags: Mapping[str, str] | None = None,
) -> Path:
    """Write a film with a scene of each length in seconds, and return its path.

    ``times`` are those of the frames, for a variable frame rate; ``shift`` is how many pixels a scene moves a frame.
    """
    width, height = size
    with av.open(str(path), "w") as container:
        container.metadata.update(tags or {})
        stream = container.add_stream(codec or CODECS.get(path.suffix, "libx264"), rate=FPS)
        stream.width, stream.height, stream.pix_fmt = width, height, pix_fmt
        stream.codec_context.gop_size = 12
        if times is not None:
            stream.codec_context.time_base = Fraction(1, 1000)
        if shape:
            stream.codec_context.sample_aspect_ratio = shape
        texts = None
        if subtitles:
            texts = container.add_stream("mov_text" if path.suffix == ".mp4" else "srt")
            texts.codec_context.subtitle_header = b""
            container.start_encoding()
            for start, end, text in subtitles:
                container.mux(_subtitle(texts, start, end, text, path.suffix))
        number = 0
        starts = np.cumsum([0, *lengths])
        for scene, (start, end) in enumerate(pairwise(starts.tolist())):
            picture = pictures[scene] if pictures is not None else pattern(scene, width, height)
            for step in range(round((end - start) * FPS)):
                frame = av.VideoFrame.from_ndarray(np.ascontiguousarray(np.roll(picture, step * shift, axis=1)))
                if times is not None:
                    if number >= len(times):
                        break
                    frame.pts, frame.time_base = round(times[number] * 1000), Fraction(1, 1000)
                container.mux(stream.encode(frame))
                number += 1
        container.mux(stream.encode(None))
    return path


def _subtitle(stream: SubtitleStream, start: float, end: float, text: str, suffix: str) -> Packet[Any]:
    data = text.encode()
    packet = Packet(len(data).to_bytes(2, "big") + data if suffix == ".mp4" else data)
    packet.stream, packet.time_base = stream, Fraction(1, 1000)
    packet.pts = packet.dts = round(start * 1000)
    packet.duration = round((end - start) * 1000)
    return packet


def sound(path: Path, *, cover: bool = False) -> Path:
    """Write a recording of sound alone, perhaps with a picture of its cover, and return its path."""
    with av.open(str(path), "w") as container:
        stream = container.add_stream("aac", rate=16000)
        if cover:
            picture = container.add_stream("mjpeg", rate=1)
            picture.width, picture.height, picture.pix_fmt = 160, 96, "yuvj420p"
            picture.disposition = Disposition.attached_pic
            image = av.VideoFrame.from_ndarray(pattern(1))
            container.mux([*picture.encode(image), *picture.encode(None)])
        for _ in range(20):
            frame = av.AudioFrame.from_ndarray(np.zeros((1, 1024), np.float32), format="fltp", layout="mono")
            frame.rate = 16000
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    return path


def turned(path: Path, matrix: tuple[int, int, int, int]) -> Path:
    """Give the pictures of an MP4 the display matrix (a, b, c, d), as phones do, and return its path."""
    data = path.read_bytes()
    at = data.index(IDENTITY, data.index(b"tkhd"))
    a, b, c, d = (each << 16 for each in matrix)
    path.write_bytes(data[:at] + struct.pack(">9i", a, b, 0, c, d, 0, 0, 0, 1 << 30) + data[at + 36 :])
    return path
