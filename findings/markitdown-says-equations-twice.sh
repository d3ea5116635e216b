#!/usr/bin/env bash
# MarkItDown 0.1.9 reads MathML in a web page or a book as if it were text, with the TeX that pandoc and others put
# beside it for programs (<annotation encoding="application/x-tex">): each equation is there twice, glued together.
# Seen:
#   'mass=1mass = 1'
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check markitdown==0.1.9 pypandoc_binary==1.17
cd "$folder"
"$folder/venv/bin/python" - <<'PYTHON'
import sys

import pypandoc
from markitdown import MarkItDown

page = ["--standalone", "--mathml", "--metadata=title:x"]
pypandoc.convert_text("$$mass = 1$$\n", "html", format="markdown", outputfile="page.html", extra_args=page)
text = MarkItDown().convert("page.html").text_content
shown = next(line for line in text.splitlines() if "mass" in line).strip()
print(repr(shown))
if shown != "mass=1mass = 1":
    sys.exit("changed: another text")
PYTHON
