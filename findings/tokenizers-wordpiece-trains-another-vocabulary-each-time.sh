#!/usr/bin/env bash
# tokenizers 0.23.3: `WordPieceTrainer` makes another vocabulary of the same texts in each process, other pieces and not
# only other ids, and has no seed to set. `BpeTrainer`, on which it is built, makes the same one of them every time. So a
# model that is trained anew by the same script does not read texts as the one before did.
# Seen:
#   WordPiece: 6 vocabularies in 6 processes
#   BPE: 1 vocabulary in 6 processes
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check tokenizers==0.23.3 2>/dev/null
cat > "$folder/train.py" <<'PYTHON'
import hashlib
import random
import sys

from tokenizers import Tokenizer, models, pre_tokenizers, trainers

draw = random.Random(1)
words = ["".join(draw.choices("abcdefghijklmnopqrstuvwxyz", k=draw.randint(2, 9))) for _ in range(3000)]
texts = [" ".join(draw.choices(words, k=12)) for _ in range(1000)]
model, trainer = {
    "WordPiece": (models.WordPiece, trainers.WordPieceTrainer),
    "BPE": (models.BPE, trainers.BpeTrainer),
}[sys.argv[1]]
tokenizer = Tokenizer(model())
tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
tokenizer.train_from_iterator(texts, trainer(vocab_size=1000, show_progress=False))
print(hashlib.sha256("\n".join(sorted(tokenizer.get_vocab())).encode()).hexdigest())
PYTHON
count() {
  for _ in 1 2 3 4 5 6; do "$folder/venv/bin/python" "$folder/train.py" "$1"; done | sort -u | wc -l
}
wordpiece=$(count WordPiece) bpe=$(count BPE)
echo "WordPiece: $wordpiece vocabularies in 6 processes"
echo "BPE: $bpe vocabulary in 6 processes"
[[ $wordpiece -gt 1 && $bpe -eq 1 ]]
