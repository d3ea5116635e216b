#!/usr/bin/env bash
# WeasyPrint 70.0 turns Pillow's check for images that are cut off off, for the whole process and as soon as it is
# imported: a program that makes PDFs and reads pictures gets a grey half of a torn JPEG, where Pillow raised before.
# Seen (Pillow 12.3.0; half of the bytes of a JPEG):
#   before: OSError
#   after: (64, 64)
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check weasyprint==70.0 pillow==12.3.0
cd "$folder"
"$folder/venv/bin/python" - <<'PYTHON'
import sys
from io import BytesIO

from PIL import Image

written = BytesIO()
Image.effect_noise((64, 64), 80).save(written, "JPEG")
torn = written.getvalue()[: len(written.getvalue()) // 2]


def seen():
    try:
        return str(Image.open(BytesIO(torn)).convert("RGB").size)
    except OSError as exc:
        return type(exc).__name__


before = seen()
import weasyprint  # noqa: E402, F401

after = seen()
print("before:", before)
print("after:", after)
if (before, after) != ("OSError", "(64, 64)"):
    sys.exit("changed: another outcome")
PYTHON
