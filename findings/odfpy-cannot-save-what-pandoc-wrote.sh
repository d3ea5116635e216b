#!/usr/bin/env bash
# odfpy 1.4.1 loads an OpenDocument text that pandoc 3.9 (pypandoc_binary 1.17) wrote, and cannot save it again, nor look
# for elements by their type: it takes every child of an element for an element, and pandoc indents its XML.
# Seen:
#   load: Text
#   save: AttributeError: 'Text' object has no attribute 'qname'
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check pypandoc_binary==1.17 odfpy==1.4.1
cd "$folder"
"$folder/venv/bin/python" - <<'PYTHON'
import sys

import pypandoc
from odf.opendocument import load

pypandoc.convert_text("It snows.\n", "odt", format="markdown", outputfile="text.odt", extra_args=["--standalone"])
document = load("text.odt")
print("load:", type(document.body.childNodes[0]).__name__)
try:
    document.save("again.odt")
except AttributeError as exc:
    print(f"save: AttributeError: {exc}")
    sys.exit(str(exc) != "'Text' object has no attribute 'qname'")
sys.exit("changed: it is saved")
PYTHON
