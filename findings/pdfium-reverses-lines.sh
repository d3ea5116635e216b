#!/usr/bin/env bash
# pypdfium2 5.15.2 (PDFium 159.0.8149): the catalog's /ViewerPreferences /Direction /R2L says in which order facing pages
# lie. PDFium takes it as the direction of every line, and gives its words from the end, English ones too. typst writes
# it into files in Arabic and Hebrew. FPDF_ImportPages into a new document leaves it behind.
# Seen:
#   plain: 'The area is 42.'
#   Direction R2L: '42. is area The'
#   page in a new document: 'The area is 42.'
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check pypdfium2==5.15.2 reportlab==4.4.4
cd "$folder"
"$folder/venv/bin/python" - <<'PYTHON'
import sys

from pypdfium2 import PdfDocument
from reportlab.pdfgen.canvas import Canvas


def text(document):
    return document[0].get_textpage().get_text_range()


def written(direction):
    canvas = Canvas("a.pdf")
    canvas.setViewerPreference("Direction", direction)
    canvas.drawString(80, 700, "The area is 42.")
    canvas.save()
    return PdfDocument("a.pdf")


copy = PdfDocument.new()
copy.import_pages(written("R2L"))
texts = text(written("L2R")), text(written("R2L")), text(copy)
for name, shown in zip(("plain", "Direction R2L", "page in a new document"), texts):
    print(f"{name}: {shown!r}")
if texts != ("The area is 42.", "42. is area The", "The area is 42."):
    sys.exit("changed: other texts")
PYTHON
