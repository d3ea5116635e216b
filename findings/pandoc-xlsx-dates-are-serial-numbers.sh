#!/usr/bin/env bash
# pandoc 3.9 (pypandoc_binary 1.17) reads workbooks since 3.8.3. It gives the stored values: a date is the serial number
# of its day with a decimal point, a share is a fraction, a number has lost the form it is shown in. A cell whose text
# is formatted in part becomes several words. Comments, headers and charts are not there at all.
# Seen (a cell each: the date 2026-03-14, 12.5 %, INV-0004711, the word Photosynthesis with "synth" in bold, whose
# comment is "remark"):
#   46095.0 | 0.125 | 4711.0 | Photo synth esis
#   remark read: False
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check pypandoc_binary==1.17 xlsxwriter==3.3.1
cd "$folder"
"$folder/venv/bin/python" - <<'PYTHON'
import json
import sys
from datetime import date

import pypandoc
import xlsxwriter

book = xlsxwriter.Workbook("book.xlsx")
sheet = book.add_worksheet()
formats = {form: book.add_format({"num_format": form}) for form in ("yyyy-mm-dd", "0.0%", '"INV-"0000000')}
sheet.write_datetime("A1", date(2026, 3, 14), formats["yyyy-mm-dd"])
sheet.write_number("B1", 0.125, formats["0.0%"])
sheet.write_number("C1", 4711, formats['"INV-"0000000'])
sheet.write_rich_string("D1", "Photo", book.add_format({"bold": True}), "synth", "esis")
sheet.write_comment("D1", "remark")
book.close()

tree = json.loads(pypandoc.convert_file("book.xlsx", "json"))
cells = []


def text(node):
    if isinstance(node, list):
        return "".join(map(text, node))
    if not isinstance(node, dict):
        return ""
    return {"Str": node.get("c"), "Space": " "}.get(node["t"]) or text(node.get("c"))


table = next(block for block in tree["blocks"] if block["t"] == "Table")["c"]
rows = [row for _, head in [table[3]] for row in head] + [row for body in table[4] for row in body[2] + body[3]]
cells = [text(cell[4]) for cell in rows[0][1]]
has_comment = "remark" in json.dumps(tree)
print(" | ".join(cells))
print("remark read:", has_comment)
if cells != ["46095.0", "0.125", "4711.0", "Photo synth esis"] or has_comment:
    sys.exit("changed: other cells")
PYTHON
