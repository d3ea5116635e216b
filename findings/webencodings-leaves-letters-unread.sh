#!/usr/bin/env bash
# webencodings 0.6.1 (of tinyhtml5 and WeasyPrint) knows the labels of the Encoding Standard, and not its decoders. Behind
# the labels are Python's codecs, which lack letters that every browser reads: the euro of gbk (0x80), the circled digits
# of euc-jp (0xADA1), and the control U+0081 of windows-1252 (0x81). In a page they become U+FFFD.
# Seen:
#   gbk: '\ufffd 12', in browsers '\u20ac 12'
#   euc-jp: '\ufffd\ufffd', in browsers '\u2460'
#   windows-1252: '\ufffd', in browsers '\x81'
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check webencodings==0.6.1
"$folder/venv/bin/python" - <<'PYTHON'
import sys

import webencodings

browsers = {"gbk": (b"\x80 12", "€ 12"), "euc-jp": (b"\xad\xa1", "①"), "windows-1252": (b"\x81", "\x81")}
read = {label: webencodings.decode(data, label)[0] for label, (data, _) in browsers.items()}
for label, text in read.items():
    print(f"{label}: {ascii(text)}, in browsers {ascii(browsers[label][1])}")
if not all("\ufffd" in text for text in read.values()):
    sys.exit("changed: other texts")
PYTHON
