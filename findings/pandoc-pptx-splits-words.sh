#!/usr/bin/env bash
# pandoc 3.9 (pypandoc_binary 1.17) reads slides since 3.8.3. A word that is formatted in part becomes several words, as
# each run of text is joined to the next one by a space; and speaker notes are left out.
# Seen:
#   'Photo synth esis'
#   notes read: False
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check pypandoc_binary==1.17 python-pptx==1.0.2
cd "$folder"
"$folder/venv/bin/python" - <<'PYTHON'
import sys

import pypandoc
from pptx import Presentation
from pptx.util import Inches

deck = Presentation()
slide = deck.slides.add_slide(deck.slide_layouts[6])
paragraph = slide.shapes.add_textbox(0, 0, Inches(4), Inches(1)).text_frame.paragraphs[0]
for part, is_bold in (("Photo", False), ("synth", True), ("esis", False)):
    run = paragraph.add_run()
    run.text, run.font.bold = part, is_bold
slide.notes_slide.notes_text_frame.text = "said aloud"
deck.save("deck.pptx")

text = pypandoc.convert_file("deck.pptx", "plain", extra_args=["--wrap=none"])
shown = next(line for line in text.splitlines() if "Photo" in line).strip()
print(repr(shown))
print("notes read:", "said aloud" in text)
if shown != "Photo synth esis" or "said aloud" in text:
    sys.exit("changed: another text")
PYTHON
