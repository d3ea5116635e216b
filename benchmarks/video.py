"""How fast films are looked through for scenes, beside PyAV alone, which decodes the same frames."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from benchmarks.reading import ReadTiming, Report, time_reading
from vlmsearch.errors import ConfigError
from vlmsearch.media import video


def time_films(files: Sequence[Path], *, rounds: int, report: Report) -> list[ReadTiming]:
    """Time all frames of each film: decoding with PyAV alone, and `vlmsearch.media.video.scenes`.

    Raises:
        InvalidInputError: A file is not a film that can be read to its end.
        ConfigError: PyAV stops at a frame that is damaged, which `scenes` passes over.
        MissingDependencyError: PyAV is not installed.
    """
    return [
        time_reading(
            file.name, bare=partial(_bare, file), read=partial(video.scenes, file), rounds=rounds, report=report
        )
        for file in files
    ]


def _bare(file: Path) -> Iterator[object]:
    import av

    try:
        with av.open(str(file)) as film:
            stream = film.streams.video[0]
            stream.thread_type = "AUTO"
            yield from film.decode(stream)
    except av.FFmpegError as exc:
        raise ConfigError(f"{file} cannot be timed: {exc}") from exc
