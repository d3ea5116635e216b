"""Read PDF files, films and text in pictures, beside the libraries that do it underneath.

All read the same items in turns, by the CPU time of the whole process, which other work on the machine mostly leaves
alone. A ratio of 1 means that nothing is added to what the library takes.
"""

from __future__ import annotations

import random
import re
import statistics
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import click
import numpy as np
from PIL import Image, ImageDraw, ImageFont

from benchmarks.common import print_figures, rounds_option
from vlmsearch.bench.encode import in_turns
from vlmsearch.building.progress import steps
from vlmsearch.building.quantize import Report
from vlmsearch.cli.bench.data import read_images
from vlmsearch.indexing.containers import CHILD, child_parts, kind_of
from vlmsearch.indexing.items import ReadOptions
from vlmsearch.indexing.reading import received, request_of
from vlmsearch.media import ocr, pdf, video
from vlmsearch.media.images import Preprocess, open_image

Read = Callable[[], Iterable[object]]
_TURNS = (0, 90, 180, 270)
"""Degrees, anticlockwise."""
_SIDE = 672
_SIZES = (28, 36, 48)
"""Of the letters, in pixels."""
_LINES = (2, 2, 1, 1)
"""Words of each line."""
_WORDS = (
    "anchor balcony candle dolphin elevator feather glacier hammer island jacket kettle ladder "
    "magnet needle orchard pepper quarry ribbon saddle temple umbrella violin walnut zebra"
)
_files = click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))


@click.group()
def main() -> None:
    """Time reading beside the library underneath."""


@main.command("pdf")
@_files
@rounds_option
def time_pages(files: Sequence[Path], rounds: int) -> None:
    """Time the pages of PDF files on their way to text and image, at most 200 of each, beside pypdfium2."""
    with steps("reading") as report:
        rows = []
        for file in files:
            pages = min(200, pdf.describe(file).pages)
            bare, read = partial(_bare_pages, file, pages), partial(_pages, file, pages)
            rows.append(_row(file.name, pages, bare, read, rounds, report))
    print_figures(f"{rounds} rounds, CPU time", ("file", "pages", "pypdfium2/s", "vlmsearch/s", "ratio"), rows)


@main.command("video")
@_files
@rounds_option
def time_films(files: Sequence[Path], rounds: int) -> None:
    """Time films on their way to a frame of each scene, beside PyAV, which decodes the same frames."""
    with steps("reading") as report:
        rows = []
        for file in files:
            frames = sum(1 for _ in _bare_frames(file))
            bare, read = partial(_bare_frames, file), partial(video.scenes, file)
            rows.append(_row(file.name, frames, bare, read, rounds, report))
    print_figures(f"{rounds} rounds, CPU time", ("file", "frames", "PyAV/s", "vlmsearch/s", "ratio"), rows)


@main.command("ocr")
@click.option("--over", type=click.Path(path_type=Path), metavar="DIR",
              help="Draw words over the JPEG files in a folder.  [default: drawn scenes]")  # fmt: skip
@click.option("--count", default=8, show_default=True, type=click.IntRange(1), help="How many pictures.")
@rounds_option
def time_words(over: Path | None, count: int, rounds: int) -> None:
    """Time reading words that are drawn over pictures, at four turns, beside RapidOCR with the same models.

    The words that both of them find are counted.
    """
    signs = [draw_sign(open_image(picture), seed) for seed, picture in enumerate(read_images(over, count))]
    drawn = sum(len(words) for _, words in signs)
    with steps("reading") as report:
        rows = []
        for turn in _TURNS:
            images = [image.rotate(turn, expand=True) for image, _ in signs]
            bare, read = partial(_bare_words, images), partial(_words, images)
            found = []
            for texts in (bare(), read()):
                said = (set(re.findall(r"\w+", text.lower())) for text in texts)
                found.append(sum(word in one for one, (_, words) in zip(said, signs) for word in words))
            timed = _row(f"turned by {turn}", len(images), bare, read, rounds, report)
            rows.append((*timed, str(drawn), *map(str, found)))
    names = ("pictures", "number", "RapidOCR/s", "vlmsearch/s", "ratio", "words", "RapidOCR found", "vlmsearch found")
    print_figures(f"{rounds} rounds, CPU time", names, rows)


@main.command("child")
@_files
@rounds_option
def time_child(files: Sequence[Path], rounds: int) -> None:
    """Time PDF files, films and office documents in the child process that reads them, beside reading them here.

    Both give the same documents, with images in the size of CLIP. This is wall time.
    """
    reading = ReadOptions(preprocess=Preprocess(224))
    rows = []
    with steps("reading") as report:
        for file in files:
            kind = kind_of(file.name)
            if kind is None:
                raise click.UsageError(f"{file} is no PDF, film or office document")
            value = {"option": kind.option, "path": str(file.absolute()), "id": "x", "version": "", "ocr": False}
            whole = request_of({**value, "follow_links": True}, reading)
            here = partial(child_parts, whole, ())
            there = partial(received, CHILD, {**value, "follow_links": True}, reading, name=file.name)
            parts = sum(1 for _ in there())
            rows.append(_row(file.name, parts, here, there, rounds, report, clock=time.perf_counter))
    print_figures(f"{rounds} rounds, wall time", ("file", "parts", "here/s", "child/s", "ratio"), rows)


def draw_sign(picture: Image.Image, seed: int) -> tuple[Image.Image, list[str]]:
    """Return a picture with four lines of text over it, and the words in them."""
    rng = random.Random(seed)
    image = picture.resize((_SIDE, _SIDE))
    draw = ImageDraw.Draw(image)
    words = rng.sample(_WORDS.split(), sum(_LINES))
    left = iter(words)
    for line, count in enumerate(_LINES):
        text = " ".join(next(left) for _ in range(count))
        font = ImageFont.load_default(size=rng.choice(_SIZES))
        place = (rng.randrange(20, 140), 30 + line * _SIDE // len(_LINES))
        draw.text(place, text, font=font, fill="white", stroke_width=2, stroke_fill="black")
    return image, words


def _row(
    name: str,
    items: int,
    bare: Read,
    read: Read,
    rounds: int,
    report: Report,
    clock: Callable[[], float] = time.process_time,
) -> tuple[str, ...]:
    """Items a second of both, and the median of the rounds' ratios."""
    work = {"bare": lambda: deque(bare(), maxlen=1), "read": lambda: deque(read(), maxlen=1)}
    seconds = in_turns(name, work, rounds=rounds, report=report, clock=clock)
    rates = (f"{items / statistics.median(times):.2f}" for times in seconds.values())
    ratio = statistics.median(alone / ours for alone, ours in zip(*seconds.values()))
    return name, str(items), *rates, f"{ratio:.3f}"


def _bare_pages(file: Path, pages: int) -> Iterator[object]:
    from pypdfium2 import PdfDocument

    document = PdfDocument(file)
    for number in range(pages):
        page = document[number]
        bitmap = page.render(scale=pdf.scale_of(page))
        text = page.get_textpage()
        said = text.get_text_range(errors="replace")
        text.close()
        page.close()
        yield bitmap.buffer, said
        bitmap.close()
    document.close()


def _pages(file: Path, pages: int) -> Iterator[object]:
    for page in islice(pdf.read_pages(file), pages):
        if not isinstance(page, pdf.Page):
            raise page[1]
        yield page


def _bare_frames(file: Path) -> Iterator[object]:
    import av

    with av.open(str(file)) as film:
        stream = film.streams.video[0]
        stream.thread_type = "AUTO"
        yield from film.decode(stream)


def _bare_words(images: Sequence[Image.Image]) -> Iterator[str]:
    engine: Any = ocr.shared_engine()  # what it gives depends on what it finds
    for image in images:
        found = engine(np.ascontiguousarray(np.asarray(image)[:, :, ::-1]))
        yield "\n".join(getattr(found, "txts", None) or ())


def _words(images: Sequence[Image.Image]) -> Iterator[str]:
    for image in images:
        yield "\n".join(line.text for line in ocr.read_text(image))


if __name__ == "__main__":
    main()
