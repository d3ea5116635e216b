"""How fast pages of PDF files are read, beside PDFium alone.

Contenders take turns on the same pages; a rate is of one core's time, since PDFium uses one.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from vlmsearch.errors import ConfigError
from vlmsearch.media import pdf

Report = Callable[[str, int, int], None]
"""Takes a step's name, how many turns of it are done, and how many there are."""


@dataclass(frozen=True)
class PageTiming:
    """Pages a second of one core's time, round by round, of the first pages of a file.

    ``bare`` is pypdfium2 alone, which draws each page in the same size and takes its text; ``read`` is
    `vlmsearch.media.pdf.read_pages`.
    """

    file: Path
    pages: int
    bare: tuple[float, ...]
    read: tuple[float, ...]

    @property
    def ratio(self) -> float:
        """The median of the rounds' ratios: 1 where nothing is added to what PDFium takes."""
        return statistics.median(one / alone for one, alone in zip(self.read, self.bare))


def time_pages(files: Sequence[Path], *, count: int, rounds: int, report: Report) -> list[PageTiming]:
    """Time the first ``count`` pages of each file.

    Raises:
        InvalidInputError: A file cannot be opened.
        ConfigError: A page cannot be read.
        MissingDependencyError: pypdfium2 is not installed.
    """
    found = []
    for file in files:
        pages = min(count, pdf.describe(file).pages)
        rates = []
        for turn in range(rounds):
            report(f"reading {file.name}", turn, rounds)
            rates.append((_rate(_bare, file, pages), _rate(_read, file, pages)))
        bare, read = zip(*rates)
        found.append(PageTiming(file, pages, bare, read))
    return found


def _rate(work: Callable[[Path, int], Iterator[object]], file: Path, pages: int) -> float:
    started = time.process_time()
    for page in work(file, pages):  # what was made before is there until the next is
        assert page  # noqa: S101
    return pages / (time.process_time() - started)


def _bare(file: Path, pages: int) -> Iterator[tuple[object, str]]:
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


def _read(file: Path, pages: int) -> Iterator[pdf.Page]:
    for page in islice(pdf.read_pages(file), pages):
        if not isinstance(page, pdf.Page):
            raise ConfigError(f"{file} cannot be timed: {page[1]}")
        yield page
