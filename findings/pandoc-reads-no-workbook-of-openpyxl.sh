#!/usr/bin/env bash
# pandoc 3.9 (pypandoc_binary 1.17): its reader of .xlsx takes the target of a relation as relative to xl/ always. openpyxl
# 3.1.5 writes absolute targets (/xl/worksheets/sheet1.xml), which the format allows, so none of its workbooks is read.
# A workbook of xlsxwriter, with relative targets, is read, but with stored numbers: 0.125 for what is shown as 12.5%.
# Seen:
#   openpyxl: Failed to parse XLSX: Entry not found: xl//xl/worksheets/sheet1.xml
#   xlsxwriter: Share 0.125
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check pypandoc_binary==1.17 openpyxl==3.1.5 xlsxwriter==3.3.1
cd "$folder"
"$folder/venv/bin/python" - <<'PYTHON'
import re
import subprocess
import sys

import openpyxl
import pypandoc
import xlsxwriter

book = openpyxl.Workbook()
book.active.append(["Share", 0.125])
book.active["B1"].number_format = "0.0%"
book.save("openpyxl.xlsx")
with xlsxwriter.Workbook("xlsxwriter.xlsx") as other:
    sheet = other.add_worksheet()
    sheet.write("A1", "Share")
    sheet.write("B1", 0.125, other.add_format({"num_format": "0.0%"}))
facts = {}
for name in ("openpyxl", "xlsxwriter"):
    command = [pypandoc.get_pandoc_path(), "--from=xlsx", "--to=plain", f"{name}.xlsx"]
    run = subprocess.run(command, capture_output=True, text=True, timeout=60)
    words = re.findall(r"Share|0\.125|12\.5%", run.stdout)
    facts[name] = " ".join(words) if run.returncode == 0 else run.stderr.strip()
    print(f"{name}: {facts[name]}")
missing = "Failed to parse XLSX: Entry not found: xl//xl/worksheets/sheet1.xml"
if facts != {"openpyxl": missing, "xlsxwriter": "Share 0.125"}:
    sys.exit("changed: another answer")
PYTHON
