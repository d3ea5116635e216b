#!/usr/bin/env bash
# python-pptx 1.0.2: PowerPoint wraps a text box in mc:AlternateContent as soon as it has an equation, and so it does with
# other shapes of newer versions. `slide.shapes` has neither that shape nor its fallback, without an error, so that a
# reader of a deck loses all their words (https://github.com/scanny/python-pptx/issues/621).
# Seen:
#   shapes: ['Plain words'], in the XML: ['Plain words', 'Words beside an equation']
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check python-pptx==1.0.2
cd "$folder"
"$folder/venv/bin/python" - <<'PYTHON'
import sys

from lxml import etree
from pptx import Presentation

MC = "http://schemas.openxmlformats.org/markup-compatibility/2006"
A14 = "http://schemas.microsoft.com/office/drawing/2010/main"
deck = Presentation()
slide = deck.slides.add_slide(deck.slide_layouts[6])
for text in ("Plain words", "Words beside an equation"):
    box = slide.shapes.add_textbox(0, 0, 9, 9)
    box.text_frame.text = text
alternatives = etree.SubElement(slide.shapes._spTree, f"{{{MC}}}AlternateContent", nsmap={"mc": MC, "a14": A14})
etree.SubElement(alternatives, f"{{{MC}}}Choice", Requires="a14").append(box._element)
deck.save("deck.pptx")

slide = Presentation("deck.pptx").slides[0]
shapes = [shape.text_frame.text for shape in slide.shapes if shape.has_text_frame]
texts = [str(text) for text in slide._element.xpath("//a:t/text()")]
print(f"shapes: {shapes}, in the XML: {texts}")
if (shapes, texts) != (["Plain words"], ["Plain words", "Words beside an equation"]):
    sys.exit("changed: other shapes")
PYTHON
