"""How fast pages of PDF files are read, beside PDFium alone, which draws and reads the same pages in the same size."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import islice
from pathlib import Path

from benchmarks.reading import ReadTiming, Report, time_reading
from vlmsearch.errors import ConfigError
from vlmsearch.media import pdf


def time_pages(files: Sequence[Path], *, count: int, rounds: int, report: Report) -> list[ReadTiming]:
    """Time the first ``count`` pages of each file: pypdfium2 alone, and `vlmsearch.media.pdf.read_pages`.

    Raises:
        InvalidInputError: A file cannot be opened.
        ConfigError: A page cannot be read.
        MissingDependencyError: pypdfium2 is not installed.
    """
    found = []
    for file in files:
        pages = min(count, pdf.describe(file).pages)
        bare, read = partial(_bare, file, pages), partial(_read, file, pages)
        found.append(time_reading(file.name, bare=bare, read=read, rounds=rounds, report=report))
    return found


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
