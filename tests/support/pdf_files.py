"""PDF files that are drawn here: pages with texts, pictures, rotations, absurd sizes; encrypted, broken and scanned."""

from collections.abc import Sequence
from io import BytesIO
from pathlib import Path

from PIL import Image
from reportlab.lib.pdfencrypt import StandardEncryption
from reportlab.lib.utils import ImageReader
from reportlab.pdfgen.canvas import Canvas

A4 = (595.0, 842.0)
COLOURS = ((0.8, 0.1, 0.1), (0.1, 0.6, 0.2), (0.1, 0.2, 0.8), (0.9, 0.8, 0.1))


def write_pdf(
    path: Path,
    pages: Sequence[str],
    *,
    title: str = "",
    author: str | None = None,
    size: tuple[float, float] = A4,
    rotate: int = 0,
    encrypt: StandardEncryption | None = None,
) -> Path:
    """Write a PDF with a text a page, and a rectangle in the colour of its turn below the text."""
    shown = size[::-1] if rotate % 180 else size  # which is what reportlab asks for
    canvas = Canvas(str(path), pagesize=shown, encrypt=encrypt, invariant=1)
    canvas.setTitle(title)
    canvas.setAuthor(author)
    for number, text in enumerate(pages):
        canvas.setPageRotation(rotate)
        for line, said in enumerate(text.split("\n")):
            canvas.drawString(72, size[1] - 72 - 20 * line, said)
        canvas.setFillColorRGB(*COLOURS[number % len(COLOURS)])
        canvas.rect(size[0] / 4, size[1] / 4, size[0] / 2, size[1] / 3, stroke=0, fill=1)
        canvas.setFillColorRGB(0, 0, 0)
        canvas.showPage()
    canvas.save()
    return path


def write_scan(path: Path, pictures: Sequence[Image.Image], *, size: tuple[float, float] = A4) -> Path:
    """Write a PDF whose pages are pictures and no text."""
    canvas = Canvas(str(path), pagesize=size, invariant=1)
    for picture in pictures:
        data = BytesIO()
        picture.save(data, "PNG")
        canvas.drawImage(ImageReader(BytesIO(data.getvalue())), 0, 0, *size)
        canvas.showPage()
    canvas.save()
    return path


def write_odd_sizes(path: Path, sizes: Sequence[tuple[float, float]]) -> Path:
    """Write a PDF with a page of each size, in points."""
    canvas = Canvas(str(path), invariant=1)
    for number, size in enumerate(sizes):
        canvas.setPageSize(size)
        canvas.drawString(20, 20, f"page {number + 1}")
        canvas.showPage()
    canvas.save()
    return path
