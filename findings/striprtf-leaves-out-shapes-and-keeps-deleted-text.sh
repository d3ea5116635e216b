#!/usr/bin/env bash
# striprtf 0.0.35 gives the text of a body only: text boxes (\shptxt), headers, footnotes and comments are left out, with
# no sign that they were there. Text that was deleted with changes tracked (\deleted) is given as if it was there, and of
# words that are written twice, for older readers and in Unicode (\upr), neither is.
# Seen:
#   boxword False, headword False, noteword False, commentword False, unicodeword False, deletedword True
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check striprtf==0.0.35
cd "$folder"
"$folder/venv/bin/python" - <<'PYTHON'
import sys

from striprtf.striprtf import rtf_to_text

text = rtf_to_text(
    r"{\rtf1\ansi{\header headword\par}body{\footnote noteword}{\*\annotation commentword}{\deleted deletedword}"
    r"{\shp{\*\shpinst{\shptxt boxword\par}}}{\upr{unicodeword}{\*\ud{unicodeword}}}\par}"
)
words = ("boxword", "headword", "noteword", "commentword", "unicodeword", "deletedword")
seen = ", ".join(f"{word} {word in text}" for word in words)
print(seen)
expected = "boxword False, headword False, noteword False, commentword False, unicodeword False, deletedword True"
sys.exit(seen != expected)
PYTHON
