#!/usr/bin/env bash
# chromadb 1.5.9: `upsert` of pictures with their URIs works in some processes and fails in others, with the same records.
# Documents, images and URIs are a set of names, whose first member that a record has is embedded. Python orders a set of
# strings anew in each process, so a collection without a data loader takes the pictures, or asks for a loader of URIs.
# Seen, for PYTHONHASHSEED from 0 to 15: some of "added 1", the others "You must set a data loader on the collection if
# loading from URIs. in upsert."
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check chromadb==1.5.9 numpy==2.3.5
cat >"$folder/add.py" <<'PYTHON'
import chromadb
import numpy as np


class Mean(chromadb.EmbeddingFunction):
    def __init__(self):
        pass

    def __call__(self, input):
        return [np.full(4, np.mean(picture), np.float32) for picture in input]


collection = chromadb.EphemeralClient().create_collection("pictures", embedding_function=Mean())
try:
    collection.upsert(ids=["a"], images=[np.ones((8, 8, 3), np.uint8)], uris=["a.png"])
    print("added", collection.count())
except ValueError as error:
    print(error)
PYTHON
for seed in {0..15}; do PYTHONHASHSEED=$seed "$folder/venv/bin/python" "$folder/add.py"; done | sort | uniq -c | tee "$folder/seen"
[[ $(grep -c . "$folder/seen") == 2 ]] && grep -q 'added 1' "$folder/seen" && grep -q 'data loader' "$folder/seen" || {
  echo "changed: all processes do the same" >&2
  exit 1
}
