import os
import re
import struct
import subprocess
import sys
import threading
import time
from datetime import date
from fractions import Fraction
from itertools import pairwise
from pathlib import Path

import av
import numpy as np
import pytest
from PIL import Image

from tests.support.films import film, pattern, sound, turned
from vlmsearch import ConfigError, ImageLimits, InvalidInputError
from vlmsearch._util.extras import install_command
from vlmsearch.media.video import VIDEO_SUFFIXES, describe, frame_at, scenes, subtitles_beside


def distance(image: Image.Image, expected: np.ndarray) -> float:
    return float(np.abs(np.asarray(image, np.int16) - expected).mean())


def code_of(path: Path, **options: object) -> str:
    with pytest.raises(InvalidInputError) as caught:
        list(scenes(path, **options))  # type: ignore[arg-type]
    assert repr(str(path)) in str(caught.value)
    return caught.value.code


def until_error(path: Path) -> tuple[list[float], InvalidInputError]:
    got: list[float] = []
    try:
        for frame in scenes(path):
            got += [frame.seconds]
    except InvalidInputError as exc:
        return got, exc
    raise AssertionError(f"no error after {got}")


@pytest.mark.parametrize("suffix", [".mp4", ".mkv", ".mov", ".avi", ".webm", ".ts", ".mpg", ".flv", ".wmv"])
def test_a_film_gives_a_frame_of_each_scene_with_its_time(tmp_path: Path, suffix: str) -> None:
    path = film(tmp_path / f"film{suffix}", (3, 4, 3), codec="mpeg2video" if suffix == ".mpg" else "")
    if suffix == ".mpg":  # MPEG-2 has no 10 frames a second
        frames = list(scenes(path, max_seconds=60))
        assert len(frames) == 3
        return
    frames = list(scenes(path))

    assert [frame.seconds for frame in frames] == pytest.approx([0, 3, 7], abs=0.11)
    for scene, frame in enumerate(frames):
        assert frame.image.mode == "RGB"
        assert distance(frame.image, pattern(scene)) < 12
        assert distance(frame_at(path, frame.seconds), np.asarray(frame.image)) < 1
        assert frame.text == ""
    assert (suffix in VIDEO_SUFFIXES) == (suffix != ".ts")


def test_every_cut_of_a_minute_is_found_though_scenes_move(tmp_path: Path) -> None:
    lengths = [2.5, 4, 3.1, 2.2, 6.4, 2.9, 5, 3.3, 4.7, 8, 2.1, 6, 3, 4.5, 2.3]
    path = film(tmp_path / "film.mp4", lengths, shift=1)

    assert [frame.seconds for frame in scenes(path)] == pytest.approx([0, *np.cumsum(lengths)[:-1]], abs=0.051)


def test_steady_motion_is_no_cut_but_a_long_scene_gives_a_frame_at_times(tmp_path: Path) -> None:
    path = film(tmp_path / "film.mp4", [20], shift=4)

    assert [frame.seconds for frame in scenes(path)] == [0]
    assert [frame.seconds for frame in scenes(path, max_seconds=6)] == [0, 6, 12, 18]


def test_cuts_that_follow_soon_give_no_frame_and_the_scene_that_stays_does(tmp_path: Path) -> None:
    path = film(tmp_path / "film.mp4", [3, *[0.2] * 5, 3])

    times = [frame.seconds for frame in scenes(path, min_seconds=2)]

    assert times == pytest.approx([0, 3, 5], abs=0.051)
    assert all(later - earlier >= 2 for earlier, later in pairwise(times))
    assert len(list(scenes(path, min_seconds=0.15))) == 7


def test_black_frames_are_passed_over_unless_there_are_no_others(tmp_path: Path) -> None:
    black = np.zeros((96, 160, 3), np.uint8)
    path = film(tmp_path / "film.mp4", [2, 4], pictures=[black, pattern(1)])
    dark = film(tmp_path / "dark.mp4", [2, 2], pictures=[black, black])

    assert [frame.seconds for frame in scenes(path)] == [2]
    assert [frame.seconds for frame in scenes(dark)] == [0]


def test_times_are_those_of_a_variable_frame_rate(tmp_path: Path) -> None:
    times = [0.0, 0.4, 0.9, 2.0, 2.207, 7.5, 7.8, 20.123, 20.4]
    pictures = [pattern(number) for number in range(9)]
    path = film(tmp_path / "film.mkv", [0.1] * 9, pictures=pictures, times=times)

    frames = list(scenes(path, min_seconds=0.2))

    assert [frame.seconds for frame in frames] == times
    for number, frame in enumerate(frames):
        assert distance(frame_at(path, frame.seconds), pictures[number]) < 12
    assert distance(frame_at(path, 5.0), pictures[4]) < 12  # what is shown between two frames


def test_times_count_from_the_beginning_where_the_stream_starts_later(tmp_path: Path) -> None:
    path = film(tmp_path / "film.ts", [3, 3], times=[100 + step / 10 for step in range(60)])

    frames = list(scenes(path))

    assert [frame.seconds for frame in frames] == pytest.approx([0, 3], abs=0.001)
    assert distance(frame_at(path, frames[1].seconds), pattern(1)) < 12


@pytest.mark.parametrize(
    ("matrix", "turn"),
    [
        ((1, 0, 0, 1), None),
        ((-1, 0, 0, 1), Image.Transpose.FLIP_LEFT_RIGHT),
        ((1, 0, 0, -1), Image.Transpose.FLIP_TOP_BOTTOM),
        ((-1, 0, 0, -1), Image.Transpose.ROTATE_180),
        ((0, 1, -1, 0), Image.Transpose.ROTATE_270),
        ((0, -1, 1, 0), Image.Transpose.ROTATE_90),
        ((0, 1, 1, 0), Image.Transpose.TRANSPOSE),
        ((0, -1, -1, 0), Image.Transpose.TRANSVERSE),
    ],
)
def test_frames_are_upright(tmp_path: Path, matrix: tuple[int, int, int, int], turn: Image.Transpose | None) -> None:
    path = film(tmp_path / "film.mp4", [1])
    if turn is not None:
        turned(path, matrix)
    upright = Image.fromarray(pattern(0))
    expected = np.asarray(upright if turn is None else upright.transpose(turn))

    (frame,) = scenes(path)

    assert frame.image.size == (expected.shape[1], expected.shape[0])
    assert distance(frame.image, expected) < 12
    assert distance(frame_at(path, 0), expected) < 12


def test_pixels_that_are_not_square_are_made_square(tmp_path: Path) -> None:
    path = film(tmp_path / "film.mp4", [1], shape=Fraction(4, 3))

    (frame,) = scenes(path)

    assert frame.image.size == (213, 96)


@pytest.mark.parametrize("pix_fmt", ["yuv420p10le", "yuv444p", "gray"])
def test_cuts_are_found_in_other_pixel_formats(tmp_path: Path, pix_fmt: str) -> None:
    path = film(tmp_path / "film.mkv", [3, 3], pix_fmt=pix_fmt, codec="libx265" if pix_fmt == "gray" else "")

    assert [frame.seconds for frame in scenes(path)] == [0, 3]


def test_cuts_are_found_in_colours_and_palettes(tmp_path: Path) -> None:
    path = film(tmp_path / "film.avi", [3, 3], codec="rawvideo", pix_fmt="bgr24")

    assert [frame.seconds for frame in scenes(path)] == [0, 3]


# ------------------------------------------------------------------------------------------------------- subtitles

CUES = [(0.5, 1.5, "Hello, <i>world</i>"), (2.5, 3.5, "over the cut"), (4, 5, "two\nlines")]


@pytest.mark.parametrize("suffix", [".mkv", ".mp4"])
def test_subtitles_are_the_text_of_the_frame_they_are_over(tmp_path: Path, suffix: str) -> None:
    path = film(tmp_path / f"film{suffix}", (3, 3, 3), subtitles=CUES)

    texts = [frame.text for frame in scenes(path)]

    assert [text.replace("<i>", "").replace("</i>", "") for text in texts] == [
        "Hello, world\nover the cut",
        "over the cut\ntwo\nlines",
        "",
    ]


SRT = "1\n00:00:00,500 --> 00:00:01,500\n{\\an8}Grüße <b>aus</b> Łódź\n\n2\n00:00:04,000 --> 00:00:05,000\nzwei\n\n"
VTT = "WEBVTT\n\nNOTE none\n\n00:00.500 --> 00:01.500 line:1\n<v Bob>Grüße aus Łódź\n\n00:04.000 --> 00:05.000\nzwei\n"


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("film.srt", SRT.encode()),
        ("film.srt", SRT.encode("utf-8-sig").replace(b"\n", b"\r\n")),
        ("film.srt", SRT.encode("utf-16")),
        ("film.en.SRT", SRT.encode()),
        ("film.vtt", VTT.encode()),
    ],
)
def test_subtitles_in_a_file_beside_the_film_come_before_its_own(tmp_path: Path, name: str, content: bytes) -> None:
    path = film(tmp_path / "film.mkv", (3, 3), subtitles=[(1, 2, "its own")])
    (tmp_path / name).write_bytes(content)

    assert subtitles_beside(path) == tmp_path / name
    assert [frame.text for frame in scenes(path)] == ["Grüße aus Łódź", "zwei"]


@pytest.mark.parametrize(
    ("name", "text", "charset"),
    [
        ("film.ru.srt", "Смотритель маяка", "koi8-r"),
        ("film.srt", "Смотритель маяка открывает дверь", "cp1251"),
        ("film.pt-BR.srt", "Não há pão", "cp1252"),
        ("film.jpn.forced.srt", "灯台守の娘", "cp932"),
    ],
)
def test_subtitles_are_read_in_any_character_set(tmp_path: Path, name: str, text: str, charset: str) -> None:
    path = film(tmp_path / "film.mkv", (3,))
    (tmp_path / name).write_bytes(f"1\n00:00:00,500 --> 00:00:01,500\n{text}\n\n".encode(charset))
    assert [frame.text for frame in scenes(path)] == [text]


def test_the_plainest_name_of_subtitles_comes_first(tmp_path: Path) -> None:
    own = (
        *("film.en.default.srt", "film.srt", "film.ass", "film.SSA", "film.de.srt", "film.en.vtt", "film.2.en.srt"),
        *("film.mkv.srt", "film.en.2.srt"),
        *("film.en.hi.srt", "film.en.sdh.srt", "film.English (SDH).srt", "film.zh-Hans.cc.srt", "FILM.en.SRT"),
        *("film.forced.srt", "film.en-419.forced.vtt", "film.en.signs & songs.ass"),
    )
    others = ("film.2.srt", "film2.srt", "film.long.mkv", "film.long.srt", "film.long.en.srt", "film.idx", "other.srt")
    for name in ("film.mkv", *own, *others):
        (tmp_path / name).touch()
    chosen = []
    while beside := subtitles_beside(tmp_path / "film.mkv"):
        chosen.append(beside.name)
        beside.unlink()
    assert sorted(chosen) == sorted(own)
    assert chosen[:5] == list(own[:5])
    assert chosen[-4:] == list(own[-4:])
    assert subtitles_beside(tmp_path / "film.long.mkv") == tmp_path / "film.long.srt"


def test_a_western_code_page_is_read_and_what_is_no_subtitle_is_not(tmp_path: Path) -> None:
    path = film(tmp_path / "film.mkv", (3,), subtitles=[(1, 2, "its own")])
    beside = tmp_path / "film.srt"
    beside.write_bytes(SRT.replace("Łódź", "Köln").encode("cp1252"))
    assert [frame.text for frame in scenes(path)] == ["Grüße aus Köln\nzwei"]

    beside.write_bytes(b"")
    assert [frame.text for frame in scenes(path)] == ["its own"]
    beside.unlink()
    os.mkfifo(beside)
    assert [frame.text for frame in scenes(path)] == ["its own"]


# ---------------------------------------------------------------------------------------------------- damaged films


def test_what_is_no_film_is_refused_with_its_reason(tmp_path: Path) -> None:
    (tmp_path / "empty.mp4").touch()
    (tmp_path / "text.mp4").write_text("no film at all " * 100)
    (tmp_path / "random.mkv").write_bytes(np.random.default_rng(1).bytes(100_000))
    os.mkfifo(tmp_path / "pipe.mp4")

    assert code_of(tmp_path / "missing.mp4") == "unreadable"
    assert code_of(tmp_path) == "unreadable"
    assert code_of(tmp_path / "pipe.mp4") == "unreadable"
    assert code_of(tmp_path / "empty.mp4") == "empty"
    assert code_of(tmp_path / "text.mp4") == "unsupported"
    assert code_of(tmp_path / "random.mkv") in ("unsupported", "corrupt")
    assert code_of(sound(tmp_path / "sound.mp4")) == "unsupported"
    assert code_of(sound(tmp_path / "cover.mp4", cover=True)) == "unsupported"


def test_a_playlist_is_not_followed(tmp_path: Path) -> None:
    film(tmp_path / "secret.ts", [1])
    (tmp_path / "list.mp4").write_text(f"ffconcat version 1.0\nfile '{tmp_path}/secret.ts'\n")
    hls = f"#EXTM3U\n#EXT-X-TARGETDURATION:2\n#EXTINF:1,\nfile://{tmp_path}/secret.ts\n#EXT-X-ENDLIST\n"
    (tmp_path / "list.ts").write_text(hls)

    assert code_of(tmp_path / "list.mp4") == "unsupported"
    assert code_of(tmp_path / "list.ts") == "unsupported"


def test_a_film_without_its_index_is_cut_short(tmp_path: Path) -> None:
    path = film(tmp_path / "film.mp4", [3, 3])
    path.write_bytes(path.read_bytes()[:4000])

    assert code_of(path) == "truncated"


@pytest.mark.parametrize("suffix", [".mkv", ".avi"])
def test_a_film_whose_end_is_missing_gives_what_is_there_and_says_so(tmp_path: Path, suffix: str) -> None:
    path = film(tmp_path / f"film{suffix}", [3] * 10)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])

    got, error = until_error(path)

    assert error.code == "truncated"
    assert re.search(r"is cut short or damaged.*of 30\.", str(error))
    assert 2 <= len(got) <= 7
    assert got == [3 * number for number in range(len(got))]


def test_damage_in_the_middle_is_passed_over(tmp_path: Path) -> None:
    path = film(tmp_path / "film.ts", [3] * 6)
    data = bytearray(path.read_bytes())
    third = len(data) // 3
    data[third : third + 3000] = np.random.default_rng(1).bytes(3000)
    path.write_bytes(data)

    times = [frame.seconds for frame in scenes(path)]

    assert times[0] == 0
    assert times[-1] >= 14.9
    assert len(times) >= 4


@pytest.mark.parametrize("suffix", [".mp4", ".mkv", ".webm", ".ts", ".flv", ".wmv"])
def test_a_film_may_begin_late(tmp_path: Path, suffix: str) -> None:
    path = film(tmp_path / f"film{suffix}", (3, 7), times=[60 + number / 10 for number in range(100)])
    assert [frame.seconds for frame in scenes(path)] == pytest.approx([0, 3], abs=0.11)
    assert describe(path).duration == pytest.approx(10, abs=0.3)
    with pytest.raises(InvalidInputError, match="has no frame at 50"):
        frame_at(path, 50)
    assert distance(frame_at(path, 9.7), pattern(1)) < 12
    if suffix in (".mkv", ".webm"):
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
        assert "of 10." in str(until_error(path)[1])


def test_a_segment_of_a_stream_begins_late(tmp_path: Path) -> None:
    path, whole = tmp_path / "segment.mp4", film(tmp_path / "film.mp4", (3, 7))
    options = {"movflags": "dash+frag_keyframe+empty_moov+delay_moov"}
    with av.open(str(whole)) as source, av.open(str(path), "w", options=options) as target:
        stream = target.add_stream_from_template(source.streams.video[0])
        for packet in source.demux(video=0):
            if packet.dts is not None and packet.pts is not None:
                packet.pts, packet.dts = (int(at + 60 / packet.time_base) for at in (packet.pts, packet.dts))
                packet.stream = stream
                target.mux(packet)
    assert [frame.seconds for frame in scenes(path)] == pytest.approx([0, 3], abs=0.11)
    assert describe(path).duration == pytest.approx(10, abs=0.3)


@pytest.mark.parametrize(
    ("suffix", "tags", "day"),
    [
        (".mp4", {"creation_time": "2019-07-04T12:30:00.000000Z"}, date(2019, 7, 4)),
        (".mkv", {"creation_time": "2019-07-04T12:30:00.000000Z"}, date(2019, 7, 4)),
        (".mp4", {"creation_time": "1904-01-01T00:00:00Z", "date": "2019-07-04"}, date(2019, 7, 4)),
        (".mp4", {"creation_time": "1970-01-01T00:00:00Z"}, None),
        (".mkv", {"date": "2019"}, date(2019, 1, 1)),
        (".mkv", {"date": "20190704"}, date(2019, 7, 4)),
        (".mkv", {"DATE_RECORDED": "2019-07-04", "creation_time": "2024-01-01T12:00:00Z"}, date(2019, 7, 4)),
        (".mkv", {"date": "2019-13-40", "year": "1970"}, date(1970, 1, 1)),
        (".mp4", {"date": "a summer"}, None),
    ],
)
def test_a_film_has_its_day(tmp_path: Path, suffix: str, tags: dict[str, str], day: date | None) -> None:
    assert describe(film(tmp_path / f"film{suffix}", (1,), tags=tags)).day == day


def test_the_day_is_that_of_the_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tags = {"creation_time": "2019-07-04T06:30:00Z"}
    apple = {"com.apple.quicktime.creationdate": "2019-07-02T23:30:00-0700", **tags}
    monkeypatch.setenv("TZ", "America/Los_Angeles")
    time.tzset()
    try:
        days = [describe(film(tmp_path / "film.mkv", (1,), tags=some)).day for some in (tags, apple)]
        assert days == [date(2019, 7, 3), date(2019, 7, 2)]
    finally:
        monkeypatch.undo()
        time.tzset()


ASS = """[Script Info]
ScriptType: v4.00+

[Events]
Format: Layer, Start, End, Style, Name, MarginL, MarginR, MarginV, Effect, Text
Comment: 0,0:00:00.50,0:00:01.50,Default,,0,0,0,,not shown
Dialogue: 0,0:00:00.50,0:00:01.50,Default,,0,0,0,,{\\an8\\k20}Ka{\\k30}ra{\\k10}oke, and\\Nmore\\hwords
Dialogue: 1,0:00:01.00,0:00:02.00,Default,,0,0,0,,{\\pos(1,2)\\p1}m 0 0 l 9 0{\\c&H00&} 9 9{\\p0}{\\b1}beside
Dialogue: 1,0:00:01.00,0:00:02.00,Default,,0,0,0,,{\\p4}m 0 0 l 100 0 100 100
"""


@pytest.mark.parametrize("name", ["film.ass", "film.en.ssa", "film.ASS"])
def test_subtitles_with_styles_give_their_words_alone(tmp_path: Path, name: str) -> None:
    path = film(tmp_path / "film.mkv", (3,))
    (tmp_path / name).write_bytes(ASS.encode("utf-8-sig"))
    assert [frame.text for frame in scenes(path)] == ["Karaoke, and\nmore words\nbeside"]
    assert describe(path).unread == {}


def test_subtitles_that_are_not_read_are_said(tmp_path: Path) -> None:
    path = film(tmp_path / "film.mkv", (3,), subtitles=[(1, 2, "its own")])
    assert describe(path).unread == {}
    (tmp_path / "film.srt").write_text("no subtitle at all")
    assert [frame.text for frame in scenes(path)] == ["its own"]
    assert describe(path).unread == {"subtitle file": 1}
    (tmp_path / "film.srt").write_bytes(SRT.replace("zwei", "ž").encode("cp1250"))
    assert set(describe(path).unread) <= {"uncertain character set"}
    (tmp_path / "film.srt").write_bytes(SRT.encode() * 20 + b"\xff")
    assert describe(path).unread == {"unreadable character": 1}
    (tmp_path / "film.srt").write_bytes(SRT.strip().encode())
    assert [frame.text for frame in scenes(path)] == ["Grüße aus Łódź\nzwei"]


def test_subtitles_that_are_pictures_are_said_where_there_are_no_others(tmp_path: Path) -> None:
    path, bare = tmp_path / "film.mkv", film(tmp_path / "bare.mkv", (3,))
    with av.open(str(bare)) as source, av.open(str(path), "w") as target:
        stream = target.add_stream_from_template(source.streams.video[0])
        target.add_stream("dvdsub")
        for packet in source.demux(video=0):
            if packet.dts is not None:
                packet.stream = stream
                target.mux(packet)
    assert describe(path).unread == {"picture subtitle": 1}
    (tmp_path / "film.srt").write_text(SRT)
    assert describe(path).unread == {}


def test_a_header_that_claims_an_absurd_duration_gives_what_is_there(tmp_path: Path) -> None:
    path = film(tmp_path / "film.mkv", [3, 3])
    data = path.read_bytes()
    at = data.index(b"\x44\x89\x88", data.index(b"\x15\x49\xa9\x66")) + 3  # Duration in Info, a double, in ms
    path.write_bytes(data[:at] + struct.pack(">d", 1e15) + data[at + 8 :])

    got, error = until_error(path)

    assert got == [0, 3]
    assert "cut short or damaged" in str(error)
    assert distance(frame_at(path, 3), pattern(1)) < 12


def test_random_damage_never_raises_anything_else(tmp_path: Path) -> None:
    whole = {suffix: film(tmp_path / f"whole{suffix}", [2, 2]).read_bytes() for suffix in (".mp4", ".mkv", ".avi")}
    rng = np.random.default_rng(5)
    results = set()
    for number in range(60):
        suffix = list(whole)[number % 3]
        data = np.frombuffer(whole[suffix], np.uint8).copy()
        places = rng.integers(0, len(data) if number % 2 else 600, 40)
        data[places] = rng.integers(0, 256, 40)
        path = tmp_path / f"bad{suffix}"
        path.write_bytes(data.tobytes()[: int(rng.integers(100, len(data)))] if number % 5 == 0 else data.tobytes())
        try:
            results.add(f"{len(list(scenes(path)))} frames")
        except InvalidInputError as exc:
            results.add(exc.code)
    assert len(results) >= 3


def test_a_frame_beyond_the_limits_is_refused_before_it_is_decoded(tmp_path: Path) -> None:
    path = film(tmp_path / "film.mp4", [1])

    assert code_of(path, limits=ImageLimits(pixels=10_000)) == "too_large"
    assert code_of(path, limits=ImageLimits(decoded_bytes=100_000)) == "too_large"


def test_distances_are_in_order(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="`min_seconds` is above 0 and at most `max_seconds`, not 5 and 2"):
        next(scenes(tmp_path / "film.mp4", min_seconds=5, max_seconds=2))


# ----------------------------------------------------------------------------------------------------- one frame


def test_a_time_after_the_end_is_refused(tmp_path: Path) -> None:
    path = film(tmp_path / "film.mp4", [3])

    assert frame_at(path, 2.95).size == (160, 96)
    with pytest.raises(InvalidInputError, match=r"no frame at 99\.000 seconds: it ends at 2\.900 seconds") as caught:
        frame_at(path, 99)
    assert caught.value.code == "invalid"


def test_the_duration_is_that_of_the_header(tmp_path: Path) -> None:
    assert describe(film(tmp_path / "film.mp4", [3, 1.5])).duration == pytest.approx(4.5, abs=0.05)


def test_frames_are_found_by_many_threads(tmp_path: Path) -> None:
    path = film(tmp_path / "film.mp4", [2] * 6)
    wrong: list[float] = []

    def look(seed: int) -> None:
        for scene in np.random.default_rng(seed).permutation(6).tolist():
            if distance(frame_at(path, scene * 2 + 1), pattern(scene)) > 12:
                wrong.extend([scene])

    threads = [threading.Thread(target=look, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_a_film_that_is_given_up_is_closed(tmp_path: Path) -> None:
    path = film(tmp_path / "film.mp4", [3, 3])
    before = len(os.listdir("/proc/self/fd"))

    for _ in range(10):
        frames = scenes(path)
        next(frames)
        frames.close()

    assert len(os.listdir("/proc/self/fd")) <= before + 1


def test_without_pyav_the_error_names_the_extra(tmp_path: Path) -> None:
    program = (
        "import sys; sys.modules['av'] = None\n"
        "from pathlib import Path\n"
        "from vlmsearch import MissingDependencyError\n"
        "from vlmsearch.media.video import scenes\n"
        "try: next(scenes(Path('film.mp4')))\n"
        "except MissingDependencyError as exc: print(exc)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert done.stdout == f"films need PyAV: {install_command('video')}\n"


def test_choosing_frames_costs_little_beside_decoding(tmp_path: Path) -> None:
    path = film(tmp_path / "film.mp4", [4] * 4, size=(640, 368), shift=3)

    def bare() -> float:
        start = time.process_time()
        with av.open(str(path)) as container:
            container.streams.video[0].thread_type = "AUTO"
            for _ in container.decode(video=0):
                pass
        return time.process_time() - start

    def ours() -> float:
        start = time.process_time()
        assert len(list(scenes(path))) == 4
        return time.process_time() - start

    pairs = [(bare(), ours()) for _ in range(5)]
    assert min(own for _, own in pairs) <= min(plain for plain, _ in pairs) / 0.6  # a film of small, easy frames
