#!/usr/bin/env bash
# sentence-transformers 6.2.0: `encode_document` is documented to use the first available prompt of "document", "passage" and
# "corpus". Every model has a prompt "document", though: an empty one where its settings name none. So documents of a model
# with the prompts "query" and "passage", the example of the documentation itself, are encoded without a prompt, and the
# default prompt does not take its place either.
# Seen:
#   prompts: {'query': 'query: ', 'document': '', 'passage': 'passage: '}
#   encode_document: 'document', which is ''
#   with the default prompt 'passage': 'document', which is ''
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check sentence-transformers==6.2.0 2>/dev/null
"$folder/venv/bin/python" - 2>/dev/null <<'PYTHON'
import sys

import torch
from sentence_transformers import SentenceTransformer

PROMPTS = {"query": "query: ", "passage": "passage: "}


class Told(SentenceTransformer):
    """A model that encodes nothing: it tells which prompt it was to use."""

    def encode(self, inputs, prompt_name=None, prompt=None, **options):
        return f"{prompt_name!r}, which is {self.prompts[prompt_name]!r}"


def made(**options):
    return Told(modules=[torch.nn.Identity()], prompts=dict(PROMPTS), device="cpu", **options)


seen = [made().encode_document(["a text"]), made(default_prompt_name="passage").encode_document(["a text"])]
print("prompts:", made().prompts)
print("encode_document:", seen[0])
print("with the default prompt 'passage':", seen[1])
if seen != ["'document', which is ''"] * 2:
    sys.exit("changed: another prompt")
PYTHON
