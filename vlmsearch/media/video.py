"""Films: a frame of each scene with its time and its subtitles, and the frame at a given time.

A cut is found as FFmpeg's filter ``scdet`` does it (https://ffmpeg.org/ffmpeg-filters.html#scdet). One number is the
mean absolute difference of the luma of two neighbouring frames, in percent of the whole range. Another is the change of
that difference. The smaller one is the score, so that steady motion is no cut. Luma is compared in a grid of points,
which costs far less than decoding does.

Only regular files are read, and only as one of the containers in ``_CONTAINERS``: a playlist that names other files or
addresses is not followed. Needs the extra ``video`` (PyAV, with FFmpeg in its wheel).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import date, datetime
from functools import cache
from io import BytesIO
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from vlmsearch._util.extras import install_command
from vlmsearch._util.pillow import as_bmp
from vlmsearch._util.text import well_formed
from vlmsearch.errors import ConfigError, InvalidInputError, MissingDependencyError, one_line
from vlmsearch.media.about import About
from vlmsearch.media.decoding import decoded, language_of
from vlmsearch.media.files import open_regular
from vlmsearch.media.hdr import UNSPECIFIED, Cicp, rgb_of, tone_mapped
from vlmsearch.media.limits import DEFAULT_LIMITS, ImageLimits, check_count

if TYPE_CHECKING:
    from av.container import InputContainer
    from av.packet import Packet
    from av.subtitles.stream import SubtitleStream
    from av.video.frame import VideoFrame
    from av.video.stream import VideoStream

VIDEO_SUFFIXES = frozenset(
    ".3gp .avi .flv .m2ts .m4v .mkv .mov .mp4 .mpeg .mpg .mts .mxf .ogv .vob .webm .wmv".split()  # noqa: SIM905
)
"""Endings, in lower case, of the files that are taken as films.

``.ts`` is not among them, for most are TypeScript.
"""
_CONTAINERS = "asf,avi,flv,matroska,mov,mpeg,mpegts,mxf,ogg,webm"
"""FFmpeg's names of what is read; none of them leads to another file."""
_READERS = {".srt": "srt", ".vtt": "webvtt", ".ass": "ass", ".ssa": "ass"}
SUBTITLE_SUFFIXES = tuple(_READERS)
"""Endings of the files with subtitles; of two with the same name, the first."""
_FILE = "subtitle file"
_SUBTITLES = r"(?i){}(?:{})?(?:(?:\.\d{{1,2}})?(?:\.[^\W\d_]+(?:[-_ &()\[\]]+\w+)*[)\]]?){{1,4}}(?:\.\d{{1,2}})?)?"
"""The names of a film's subtitles: numbers around languages and kinds, such as ``film.mp4`` or ``film.2.pt-BR.sdh``."""
_PARTIAL = re.compile(r"(?i)\b(?:comment\w*|forced|foreign|lyrics|signs|songs)\b")
"""Kinds of subtitles that have but a part of what is said."""
_ENDS = ("matroska,webm", "asf")
"""FFmpeg's names of containers whose duration may be the time of their end.

So is that of an MP4 in fragments with an index of them, the box ``sidx``.
"""
_CUT = 10.0
"""The score of a cut, in percent: the default of ``scdet``, whose manual calls 8 to 14 good."""
_NEIGHBOURS = 0.2
"""Frames further apart, in seconds, as in a recording of a screen, say nothing of motion: each change is a cut."""
_GRID = 48
"""Points a side at which the luma of two frames is compared."""
_BLANK = 4.0
"""Standard deviation of the luma, of 255, below which a frame shows nothing: black, or one colour."""
_BUFFER = 2**18
_LATE = 0.001
"""Seconds by which a frame may begin after the time that names it.

That time is rounded to three decimals.
"""
_MISSING_TENTH, _MISSING_SECONDS = 0.1, 2.0
"""The share and the seconds of its duration that a film may lack.

Beyond them it counts as cut short. The header says the duration.
"""
_MIN_BITS, _MAX_BITS = 8, 16
_SUBTITLE_BYTES = 2**24
_SHOWN = 5.0
"""Seconds that a subtitle without an end is shown."""
_FRAME_BYTES = 28
"""Bytes a pixel that a decoder keeps at most: 16 frames to refer to of 1.5 bytes, and the image."""
_TEXTS = frozenset({"ass", "mov_text", "srt", "ssa", "subrip", "text", "webvtt"})
_MATRIX_BYTES = 36
_TURNS = {  # by whether the display matrix swaps the sides, and the signs of its two other numbers
    (False, False, False): None,
    (False, True, False): Image.Transpose.FLIP_LEFT_RIGHT,
    (False, False, True): Image.Transpose.FLIP_TOP_BOTTOM,
    (False, True, True): Image.Transpose.ROTATE_180,
    (True, False, True): Image.Transpose.ROTATE_270,
    (True, True, False): Image.Transpose.ROTATE_90,
    (True, False, False): Image.Transpose.TRANSPOSE,
    (True, True, True): Image.Transpose.TRANSVERSE,
}
_DAY = re.compile(r"(\d{4})(?:[-:/.]?(\d\d)[-:/.]?(\d\d))?(?:([T ]\d\d:\d\d:\d\d)[.\d]*Z)?")
_DAYS = ("com.apple.quicktime.creationdate", "date_recorded", "creation_time", "date", "date_released", "year")
"""Tags that say when a film was made, the surest first: the first has the time of the place."""
_UNSET = ("1904-01-01", "1970-01-01")
"""The days on which clocks begin."""
_LENGTHS = re.compile("(?i)libmatroska|gstreamer")
"""Programs whose duration of a Matroska file is its length.

That of FFmpeg is its end, and so it is in ASF.
"""
_DRAWING = re.compile(r"(?s)\{[^{}]*\\p[1-9].*?(?:\{[^{}]*\\p0[^{}]*\}|\Z)")
"""Commands that draw, which a subtitle may have among its words."""
_NOT_TEXT = re.compile("[\x00-\x08\x0b-\x1f\x7f]")
_MARKUP = re.compile(r"\{[^{}]*\}|<[^<>]*>")  # in linear time


@dataclass(frozen=True)
class Frame:
    """A frame of a film.

    Attributes:
        seconds: When it is shown, from the beginning of the film, rounded to milliseconds.
        image: The frame, upright, RGB, with square pixels.
        text: The subtitles shown from then until the next frame that is taken; empty for none.
    """

    seconds: float
    image: Image.Image
    text: str


@dataclass(frozen=True)
class FilmHeader:
    """The header of a film.

    Attributes:
        duration: In seconds; None where it says none.
        about: What the film says of itself.
        day: The day on which it was made; None where it does not say.
        unread: Numbers of what is not read of its subtitles, by kind.
    """

    duration: float | None
    about: About
    day: date | None
    unread: Mapping[str, int]


@dataclass(frozen=True)
class _Cue:
    start: float
    end: float
    text: str


def scenes(
    path: Path,
    *,
    min_seconds: float = 2.0,
    max_seconds: float = 30.0,
    limits: ImageLimits = DEFAULT_LIMITS,
    follow_links: bool = True,
) -> Generator[Frame, None, None]:
    """Yield a frame of each scene of a film, in the order of their times.

    One frame is in memory at a time.

    A scene begins with a cut (a score of 10 percent, see the module's docstring), or when the one before has lasted for
    ``max_seconds``. Its frame is the first one that shows something: black frames are passed over, unless the film has
    nothing else. Packets that cannot be decoded are passed over too.

    Args:
        path: A film; subtitles are taken from a file beside it (see `subtitles_beside`), or else from its first text
            stream, the default one if one is.
        min_seconds: The shortest distance of two frames; cuts that follow sooner are not taken.
        max_seconds: The longest distance of two frames.
        limits: How large a frame may be.
        follow_links: Whether the file with the subtitles may be a symbolic link.

    Yields:
        At least one frame.

    Raises:
        InvalidInputError: ``unreadable``; ``unsupported`` (no film, or one with sound alone); ``empty``; ``too_large``;
            ``corrupt`` (no frame can be decoded); ``truncated``, perhaps after the last frame, where more than a tenth
            of the duration in the header is missing.
        MissingDependencyError: PyAV is not installed.
        ConfigError: The distances are not in order.

    Example:
        >>> for frame in scenes(Path("film.mp4")):  # doctest: +SKIP
        ...     print(f"{frame.seconds:.3f}", frame.image.size, frame.text)
        0.000 (1280, 720) Good morning.
        12.480 (1280, 720) Where were you?
    """
    if not 0 < min_seconds <= max_seconds:
        raise ConfigError(
            f"`min_seconds` is above 0 and at most `max_seconds`, not {min_seconds:g} and {max_seconds:g}"
        )
    with _opened(path, limits) as film:
        cues, _ = _cues_beside(path, follow_links)
        taken: _Still | None = None
        for shot in _choose(film, min_seconds, max_seconds):
            if taken:
                yield taken.frame(film.cues if cues is None else cues, until=shot.seconds)
            taken = shot
        if taken is None:
            raise InvalidInputError("corrupt", f"{film.name} is damaged: no frame of it can be decoded")
        yield taken.frame(film.cues if cues is None else cues, until=float("inf"))
        film.check_end()


def frame_at(path: Path, seconds: float, *, limits: ImageLimits = DEFAULT_LIMITS) -> Image.Image:
    """Return the frame that a film shows at a time.

    Args:
        path: A film.
        seconds: From its beginning.
        limits: How large a frame may be.

    Returns:
        The frame, upright, RGB, with square pixels.

    Raises:
        InvalidInputError: As `scenes`; ``invalid`` where the film ends before that time.
        MissingDependencyError: PyAV is not installed.
    """
    with _opened(path, limits) as film:
        frame = film.find(seconds)
        if frame is None:  # the index in the file may be wrong: look through all of it
            film.rewind()
            frame = film.find(seconds, seek=False)
        if frame is None:
            raise InvalidInputError("invalid", f"{film.name} has no frame at {seconds:.3f} seconds: {film.end()}")
        return film.picture(frame)


def frame_image(path: Path, seconds: float, limits: ImageLimits = DEFAULT_LIMITS) -> bytes:
    """Return the frame that a film shows at a time, as `as_bmp` gives it. Errors as `frame_at`."""
    return as_bmp(frame_at(path, seconds, limits=limits))


def describe(path: Path, follow_links: bool = True) -> FilmHeader:
    """Return what the header of a film says of it. Errors as `scenes`."""
    with _opened(path, DEFAULT_LIMITS) as film:
        cues, unread = _cues_beside(path, follow_links)
        pictures = film.picture_subtitles if cues is None else 0
        return FilmHeader(film.duration, film.about, film.day, +Counter({**unread, "picture subtitle": pictures}))


def subtitles_beside(path: Path, follow_links: bool = True) -> Path | None:
    """Return the file with the subtitles of a film, None for none.

    ``film.srt`` comes before ``film.en.srt``, that before ``film.en.sdh.srt``, and all before ``film.en.forced.srt``. A
    default one comes before others. Those of ``film.extended.mkv`` beside are none of ``film.mkv``.
    """
    named = re.compile(_SUBTITLES.format(re.escape(path.stem), re.escape(path.suffix)))
    try:
        near = [file for file in path.parent.iterdir() if named.fullmatch(file.stem)]
        beside = [file for file in near if file.suffix.lower() in SUBTITLE_SUFFIXES]
        beside = [file for file in beside if follow_links or not file.is_symlink()]
    except OSError:
        return None
    others = {f"{file.stem}." for file in near if file.suffix.lower() in VIDEO_SUFFIXES and file.stem != path.stem}
    own = [file for file in beside if not file.name.startswith(tuple(others))]
    return min(own, key=lambda file: _preference(file, path.stem), default=None)


def _preference(file: Path, stem: str) -> tuple[object, ...]:
    """Return what orders the subtitles of a film."""
    kinds, suffix = file.stem[len(stem) :].lower(), SUBTITLE_SUFFIXES.index(file.suffix.lower())
    marks = bool(_PARTIAL.search(kinds)), not file.stem.startswith(stem), ".default" not in kinds
    return *marks, kinds.count("."), kinds, suffix, file


@dataclass(frozen=True)
class _Still:
    seconds: float
    image: Image.Image

    def frame(self, cues: list[_Cue], *, until: float) -> Frame:
        """Return the frame with the text that is shown from then until the next one."""
        texts = (cue.text for cue in cues if cue.start < until and cue.end > self.seconds)
        return Frame(self.seconds, self.image, "\n".join(dict.fromkeys(texts)))


def _choose(film: _Film, min_seconds: float, max_seconds: float) -> Iterator[_Still]:
    """Yield the frames that are taken of a film."""
    before: NDArray[np.int16] | None = None
    change, seen, last, first = 0.0, 0.0, -float("inf"), None
    is_waiting = True  # a scene has begun, and no frame of it is taken
    for seconds, frame in film.frames():
        luma = _luma(frame)
        if before is not None and before.shape == luma.shape:
            now = float(np.abs(luma - before).mean()) / 2.55
            steady = change if seconds - seen <= _NEIGHBOURS else 0.0
            is_waiting |= min(now, abs(now - steady)) >= _CUT
            change = now
        elif before is not None:
            is_waiting = True
        before, seen = luma, seconds
        if first is None:
            first = _Still(seconds, film.picture(frame))
        is_waiting |= seconds - last >= max_seconds
        if is_waiting and seconds - last >= min_seconds and luma.std() >= _BLANK:
            is_waiting, last = False, seconds
            yield _Still(seconds, film.picture(frame)) if seconds != first.seconds else first
    if first is not None and last == -float("inf"):
        yield first


def _luma(frame: VideoFrame) -> NDArray[np.int16]:
    """Return the luma of a frame in SDR at points of a grid, up to 255."""
    depth = _luma_bits(frame.format.name)
    if not depth:
        frame, depth = frame.reformat(format="gray"), 8
    plane, width, height = frame.planes[0], frame.width, frame.height
    rows = np.frombuffer(memoryview(plane), "<u2" if depth > 8 else np.uint8)
    rows = rows[: plane.line_size // rows.itemsize * height].reshape(height, -1)
    across, down = ceil(width / _GRID), ceil(height / _GRID)
    points, cicp = rows[down // 2 :: down, across // 2 : width : across], Cicp(UNSPECIFIED, frame.color_trc)
    if cicp.is_hdr:
        codes = points.astype(np.uint16) << (16 - depth)
        return tone_mapped(np.repeat(codes[:, :, None], 3, axis=2), cicp)[:, :, 0].astype(np.int16)
    return (points >> (depth - 8)).astype(np.int16)


@cache
def _luma_bits(name: str) -> int:
    """Return the bits of the luma of a pixel format.

    Its first plane has to be that of the luma.

    0 where it is not.
    """
    import av

    form = av.VideoFormat(name)
    bits = form.components[0].bits if form.components else 0
    is_first = form.is_planar and not (form.is_rgb or form.is_big_endian or form.has_palette)
    return bits if (is_first or name == "gray") and _MIN_BITS <= bits <= _MAX_BITS else 0


class _Film:
    """An opened film and what was seen of it so far."""

    def __init__(
        self, container: InputContainer, stream: VideoStream, name: str, limits: ImageLimits, head: bytes
    ) -> None:
        import av

        self.name = name
        self.cues: list[_Cue] = []
        self._failure: Exception | None = None
        self._container, self._stream, self._limits = container, stream, limits
        self._cicp = Cicp.of(stream.codec_context)  # of the container: some codecs say none
        self._subtitles = _text_stream(container)
        self.picture_subtitles = 0 if self._subtitles else len(container.streams.subtitles)
        tags = {key.lower(): _plain(value) for key, value in container.metadata.items()}
        self.day = _day(tags)
        self.about = About(tags.get("title", ""), tags.get("artist") or tags.get("author", ""))
        self._start = (container.start_time or 0) / av.time_base
        self._seen = -1.0
        self._step = float(1 / (stream.average_rate or stream.guessed_rate or 25))
        is_end = container.format.name in _ENDS and not _LENGTHS.search(tags.get("encoder", ""))
        is_indexed = head[4:8] in (b"ftyp", b"styp") and b"sidx" in head
        self._late = max(self._start, 0.0) if is_end or is_indexed else 0.0
        self.duration = self._length((container.duration or 0) / av.time_base)

    def _length(self, duration: float) -> float | None:
        """Return how long the film is that a header calls so long, or that ends then."""
        return duration - self._late if duration > self._late else duration if duration > 0 else None

    def frames(self) -> Iterator[tuple[float, VideoFrame]]:
        """Yield the frames that can be decoded, with their times.

        Subtitles on the way are kept in `cues`.
        """
        import av

        try:
            for packet in self._container.demux([self._stream, *([self._subtitles] if self._subtitles else [])]):
                try:
                    decoded = packet.decode()
                except (av.FFmpegError, ValueError):  # it is damaged; the next one may not be
                    continue
                if packet.stream is self._subtitles:
                    self.cues += _cues_of(packet, decoded, self._start)
                    continue
                for frame in decoded:
                    if isinstance(frame, av.VideoFrame) and not frame.is_corrupt:
                        yield self._time(frame), frame
        except av.FFmpegError as exc:  # of the container: nothing after it can be found
            self._failure = exc

    def _time(self, frame: VideoFrame) -> float:
        if frame.pts is None:
            at = self._seen + self._step if self._seen >= 0 else 0.0
        else:
            at = max(frame.time - self._start, 0.0)
        self._seen = max(self._seen, at)
        return round(at, 3)

    def find(self, seconds: float, *, seek: bool = True) -> VideoFrame | None:
        """Return the frame that is shown at a time.

        None where it is not found, as where the index of the file is wrong.
        """
        import av

        if seek:
            try:
                self._container.seek(int((max(seconds, 0.0) + self._start) * av.time_base), backward=True)
            except av.FFmpegError:
                return None
        shown = None
        for at, frame in self.frames():
            if seek and frame.pts is None:
                return None
            if at > seconds + _LATE / 2:
                return shown
            shown = frame
        return shown if seconds <= max(self.duration or 0.0, self._seen + self._step) + _LATE else None

    def rewind(self) -> None:
        """Go back to the beginning."""
        import av

        self._seen = -1.0
        try:
            self._container.seek(0, backward=True, any_frame=True)
        except av.FFmpegError:  # in FLV there is nothing before the first frame
            self._container.seek(int(self._start * av.time_base), backward=True, any_frame=True)

    def end(self) -> str:
        """Return where the film ends, in words."""
        return f"it ends at {self._seen:.3f} seconds" if self._seen >= 0 else "none of it can be decoded"

    def check_end(self) -> None:
        """Raise InvalidInputError ``truncated`` where a good part of the film is missing."""
        stream, duration = self._stream, self.duration
        length = stream.duration or 0
        if self._container.format.name == "avi":  # whose duration is that of what is there
            length = max(length, stream.frames)
        if length and stream.time_base:
            duration = self._length(float(length * stream.time_base))
        if duration and duration - self._seen > max(duration * _MISSING_TENTH, _MISSING_SECONDS):
            why = f" ({one_line(self._failure)})" if self._failure else ""
            said = f"{self.name} is cut short or damaged{why}: {self.end()} of {duration:.3f}"
            raise InvalidInputError("truncated", said)

    def picture(self, frame: VideoFrame) -> Image.Image:
        """Return a frame as an upright RGB image with square pixels."""
        self.check_size(frame.width, frame.height)
        try:
            points = zip(Cicp.of(frame), self._cicp, strict=True)
            cicp = Cicp._make(other if own == UNSPECIFIED else own for own, other in points)
            image = Image.fromarray(rgb_of(frame, cicp))
        except MemoryError as exc:
            raise InvalidInputError("too_large", f"{self.name} needs more memory than there is") from exc
        shape = self._stream.sample_aspect_ratio
        if shape and shape > 0 and shape != 1:
            self.check_size(ceil(image.width * shape), image.height)
            image = image.resize((max(round(image.width * shape), 1), image.height), Image.Resampling.BICUBIC)
        turn = _turn(frame)
        return image if turn is None else image.transpose(turn)

    def check_size(self, width: int, height: int) -> None:
        """Raise InvalidInputError ``too_large`` for a frame beyond the limits."""
        check_count(width * height, "pixels in a frame", self._limits.pixels, self.name)
        check_count(width * height * _FRAME_BYTES, "bytes in its decoder", self._limits.decoded_bytes, self.name)


def _turn(frame: VideoFrame) -> Image.Transpose | None:
    """Return the turn that makes a frame upright, by the signs in its display matrix: right angles and mirrors."""
    data: Any = frame.side_data  # which PyAV types as a dictionary
    matrix = next((bytes(item) for item in data if item.type.name == "DISPLAYMATRIX"), None)
    if not matrix or len(matrix) < _MATRIX_BYTES:
        return None
    a, b, _, c, d = (int(number) for number in np.frombuffer(matrix, "<i4", 5))
    is_turned = abs(b) + abs(c) > abs(a) + abs(d)
    return _TURNS[is_turned, (b if is_turned else a) < 0, (c if is_turned else d) < 0]


def _text_stream(container: InputContainer) -> SubtitleStream | None:
    """Return the stream whose subtitles are taken: the default one, or else the first.

    Those that are forced have but a part of what is said, and come last.
    """
    from av.stream import Disposition

    def rank(stream: SubtitleStream) -> tuple[bool, bool]:
        return Disposition.forced in stream.disposition, Disposition.default not in stream.disposition

    streams = [
        stream for stream in container.streams.subtitles if stream.codec_context and stream.codec_context.name in _TEXTS
    ]
    return min(streams, key=rank, default=None)


def _day(tags: Mapping[str, str]) -> date | None:
    """Return the day that tags say.

    It is that in this machine's time zone where the tag has a time in UTC.
    """
    for match in (_DAY.match(tags.get(key, "")) for key in _DAYS):
        with suppress(ValueError, OverflowError):
            if match is None or match[0].startswith(_UNSET):
                continue
            day = date(*(int(number or 1) for number in match.group(1, 2, 3)))
            return datetime.fromisoformat(f"{day}{match[4]}+00:00").astimezone().date() if match[4] else day
    return None


def _cues_of(packet: Packet[Any], decoded: Sequence[object], start: float) -> list[_Cue]:
    """Return the subtitle in a packet."""
    from av.subtitles.subtitle import AssSubtitle

    events = (item.dialogue.decode("utf-8", "replace") for item in decoded if isinstance(item, AssSubtitle))
    texts = (_plain(re.sub(r"\\[hn]", " ", _DRAWING.sub("", event))) for event in events)
    text = "\n".join(filter(None, texts))
    if not text or packet.pts is None or packet.time_base is None:
        return []
    begin = float(packet.pts * packet.time_base) - start
    length = float(packet.duration * packet.time_base) if packet.duration else _SHOWN
    return [_Cue(begin, begin + length, text)]


def _plain(dialogue: str) -> str:
    text = _NOT_TEXT.sub("", _MARKUP.sub("", well_formed(dialogue)))
    return "\n".join(" ".join(line.split()) for line in text.splitlines() if line.strip())


def _cues_beside(path: Path, follow_links: bool) -> tuple[list[_Cue] | None, Mapping[str, int]]:
    """Return the subtitles in a file beside a film, and what is not read of them.

    None where there is none, or none that can be read.
    """
    import av

    beside = subtitles_beside(path, follow_links)
    if beside is None:
        return None, {}
    try:
        with open_regular(beside, "a subtitle") as file:
            data = file.read(_SUBTITLE_BYTES)
        language, form = language_of(beside), _READERS[beside.suffix.lower()]
        with av.open(BytesIO(_as_utf8(data, language)), format=form) as container:
            cues = [cue for packet in container.demux() for cue in _cues_of(packet, packet.decode(), 0.0)]
        return (cues, decoded(data, language=language).unread) if cues else (None, {_FILE: 1})
    except (InvalidInputError, av.FFmpegError, ValueError):
        return None, {_FILE: 1}


def _as_utf8(data: bytes, language: str = "") -> bytes:
    """Return a text in UTF-8, from any character set of its language."""
    return decoded(data, language=language).text.encode()


@contextmanager
def _opened(path: Path, limits: ImageLimits) -> Iterator[_Film]:
    """Give a film whose header is read."""
    try:
        import av
        from av.stream import Disposition
    except ImportError as exc:
        raise MissingDependencyError(f"films need PyAV: {install_command('video')}") from exc
    name = repr(str(path))
    with open_regular(path, "a film") as file:
        head = file.read(_BUFFER)
        file.seek(0)
        try:
            container = av.open(
                file,
                "r",
                container_options={"format_whitelist": _CONTAINERS},
                buffer_size=_BUFFER,
                metadata_errors="replace",
            )
        except av.FFmpegError as exc:
            file.seek(4)
            if file.read(4) == b"ftyp":
                raise InvalidInputError("truncated", f"{name} is cut short: its index is missing or damaged") from exc
            said = f"{name} is not a film in a container that is read ({_CONTAINERS}): {one_line(exc)}"
            raise InvalidInputError("unsupported", said) from exc
        with container:
            streams = [
                stream for stream in container.streams.video if not stream.disposition & Disposition.attached_pic
            ]
            if not streams:
                raise InvalidInputError("unsupported", f"{name} has no pictures: it is a recording of sound alone")
            stream = streams[0]
            if stream.codec_context is None:
                raise InvalidInputError("unsupported", f"{name} is coded in a way that cannot be decoded")
            stream.thread_type = "AUTO"
            max_pixels = min(limits.pixels, limits.decoded_bytes // _FRAME_BYTES)
            stream.codec_context.options = {"max_pixels": str(max_pixels)}  # a frame may be larger than the header says
            film = _Film(container, stream, name, limits, head)
            if stream.width and stream.height:
                film.check_size(stream.width, stream.height)
            yield film
