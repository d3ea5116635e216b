#!/usr/bin/env bash
# pandas 2.3.3 with pyarrow 22.0.0 writes an index of consecutive numbers into Parquet as a note for pandas alone, also
# where the index has a name: others read a table without that column. In CSV it is a column, and other numbers are one.
# Seen:
#   csv: id,text
#   parquet of 0, 1: ['text']
#   parquet of 1, 0: ['text', 'id']
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check pandas==2.3.3 pyarrow==22.0.0
cd "$folder"
"$folder/venv/bin/python" - <<'PYTHON'
import sys

import pandas as pd
import pyarrow.parquet as pq

frame = pd.DataFrame({"text": ["a", "b"]}).rename_axis("id")
print("csv:", frame.to_csv().splitlines()[0])
names = []
for part in (frame, frame.iloc[[1, 0]]):
    part.to_parquet("part.parquet")
    names.append(pq.read_schema("part.parquet").names)
    print(f"parquet of {', '.join(map(str, part.index))}: {names[-1]}")
sys.exit(names != [["text"], ["text", "id"]])
PYTHON
