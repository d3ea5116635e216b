#!/usr/bin/env bash
# lxml 6.1.3: a parser with recover=True does not always give what it could read, in two ways. Of a member of an office
# document without any element it gives None and no error; of an empty one it raises, although it was told to recover.
# Seen:
#   'no XML': None
#   '<a><b>': <a><b/></a>
#   '': XMLSyntaxError
#   '\x00': XMLSyntaxError
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check lxml==6.1.3
"$folder/venv/bin/python" - <<'PYTHON'
import sys

from lxml import etree

facts = {}
for text in ("no XML", "<a><b>", "", "\x00"):
    try:
        root = etree.fromstring(text.encode(), etree.XMLParser(recover=True))
        facts[text] = None if root is None else etree.tostring(root).decode()
    except etree.XMLSyntaxError as exc:
        facts[text] = type(exc).__name__
    print(f"{text!r}: {facts[text]}")
if facts != {"no XML": None, "<a><b>": "<a><b/></a>", "": "XMLSyntaxError", "\x00": "XMLSyntaxError"}:
    sys.exit("changed: another result")
PYTHON
