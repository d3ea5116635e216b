#!/usr/bin/env bash
# MarkItDown 0.1.9 takes a mail (.eml) and raises nothing, but gives its bytes as they are: the text stays in base64,
# an encoded subject (RFC 2047) too, and no word of either can be found. Of a notebook (.ipynb) it gives the code and
# leaves out what the code printed.
# Seen:
#   mail: subject False, text False
#   notebook: code True, output False
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check markitdown==0.1.9
cd "$folder"
"$folder/venv/bin/python" - <<'PYTHON'
import json
import sys
from email.message import EmailMessage
from pathlib import Path

from markitdown import MarkItDown

mail = EmailMessage()
mail["From"], mail["To"], mail["Subject"] = "a@example.org", "b@example.org", "Grüße aus dem Süden"
mail.set_content("Der Leuchtturm schläft.\n", cte="base64")
Path("mail.eml").write_bytes(mail.as_bytes())
output = {"output_type": "stream", "name": "stdout", "text": ["forty-two\n"]}
cell = {"cell_type": "code", "execution_count": 1, "metadata": {}, "source": ["print(answer)"], "outputs": [output]}
notebook = {"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": [{**cell, "id": "a"}]}
Path("book.ipynb").write_text(json.dumps(notebook))

reader = MarkItDown()
text = reader.convert("mail.eml").text_content
book = reader.convert("book.ipynb").text_content
seen = ("Grüße aus" in text, "Leuchtturm" in text, "print(answer)" in book, "forty-two" in book)
print(f"mail: subject {seen[0]}, text {seen[1]}")
print(f"notebook: code {seen[2]}, output {seen[3]}")
if seen != (False, False, True, False):
    sys.exit("changed: other parts are read")
PYTHON
