#!/usr/bin/env bash
# langchain-core 1.8.3: `VectorStore.add_texts` takes an `Iterable[str]`. It makes a list of it to count the texts, and then
# goes through the iterable itself once more: of a generator nothing is left, nothing is added, and nothing is said. So it
# is in every store that has `add_documents` alone, LangChain's own InMemoryVectorStore among them, and in `aadd_texts`.
# Seen:
#   of a list: 2
#   of a generator: 0
#   of a generator, awaited: 0
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check langchain-core==1.8.3 numpy 2>/dev/null
"$folder/venv/bin/python" - <<'PYTHON'
import asyncio
import sys

from langchain_core.embeddings import DeterministicFakeEmbedding
from langchain_core.vectorstores import InMemoryVectorStore

TEXTS = ["a dog", "a car"]
store = InMemoryVectorStore(DeterministicFakeEmbedding(size=4))
seen = {
    "a list": len(store.add_texts(TEXTS)),
    "a generator": len(store.add_texts(text for text in TEXTS)),
    "a generator, awaited": len(asyncio.run(store.aadd_texts(text for text in TEXTS))),
}
for name, added in seen.items():
    print(f"of {name}: {added}")
if list(seen.values()) != [2, 0, 0]:
    sys.exit("changed: a generator is added")
PYTHON
