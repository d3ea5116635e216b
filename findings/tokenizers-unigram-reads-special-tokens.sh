#!/usr/bin/env bash
# tokenizers 0.23.3 and transformers 5.24.0: `encode_special_tokens = True`, or `split_special_tokens=True` of a tokenizer
# of transformers, has a special token that a text spells out read as text. For WordPiece and BPE it does. A vocabulary of
# Unigram (XLM-R, T5, SigLIP) or of whole words holds the token as one of its words, and so the text has its id all the
# same, also in wide letters where NFKC comes first. SentencePiece spells out what it calls a control symbol.
# Seen:
#   WordPiece: red < / s > blue
#   Unigram: red </s> blue
#   Unigram, wide letters: red </s> blue
#   whole words: red </s> blue
#   transformers, Unigram: red </s> blue
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check tokenizers==0.23.3 transformers==5.24.0
"$folder/venv/bin/python" - 2>/dev/null <<'PYTHON'
import sys

from tokenizers import Tokenizer, models, normalizers, pre_tokenizers
from transformers import PreTrainedTokenizerFast

WORDS = ["<unk>", "</s>", "red", "blue", "<", "/", "s", ">"]
NUMBERS = {word: number for number, word in enumerate(WORDS)}


def tokens(model, before, text):
    tokenizer = Tokenizer(model)
    tokenizer.normalizer, tokenizer.pre_tokenizer = normalizers.NFKC(), before
    tokenizer.add_special_tokens(["</s>"])
    tokenizer.encode_special_tokens = True
    return tokenizer, " ".join(tokenizer.encode(text).tokens)


words, spaces = pre_tokenizers.BertPreTokenizer(), pre_tokenizers.WhitespaceSplit()
unigram = models.Unigram([(word, -1.0) for word in WORDS], unk_id=0)
seen = {
    "WordPiece": tokens(models.WordPiece(NUMBERS, unk_token="<unk>"), words, "red </s> blue")[1],
    "Unigram": tokens(unigram, spaces, "red </s> blue")[1],
    "Unigram, wide letters": tokens(unigram, spaces, "red \uff1c/s\uff1e blue")[1],
    "whole words": tokens(models.WordLevel(NUMBERS, unk_token="<unk>"), spaces, "red </s> blue")[1],
}
theirs = PreTrainedTokenizerFast(tokenizer_object=tokens(unigram, spaces, "")[0], eos_token="</s>")
ids = theirs("red </s> blue", split_special_tokens=True)["input_ids"]
seen["transformers, Unigram"] = " ".join(theirs.convert_ids_to_tokens(ids))
for name, text in seen.items():
    print(f"{name}: {text}")
if list(seen.values()) != ["red < / s > blue"] + ["red </s> blue"] * 4:
    sys.exit("changed: other tokens")
PYTHON
