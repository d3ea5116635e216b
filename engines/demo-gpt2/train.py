"""Train the demonstration language model to answer questions about drawn scenes.

``python engines/demo-gpt2/train.py`` trains a GPT-2 of 1.4 million parameters on the prompts of `Pipeline.ask`. It uses
a GPU if there is one, and writes ``bundle`` beside this file. That is the checkpoint in the layout of transformers, and
the graph for ONNX Runtime that reads the same weights. ``--evaluate`` prints the figures of an existing checkpoint.
"""

from __future__ import annotations

import re
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from torch.nn import functional
from transformers import AutoModelForCausalLM, AutoTokenizer, GPT2Config, GPT2LMHeadModel

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import training
from gpt2_graph import add_graph
from questions import Gallery, Question

from vlmsearch.answers.prompts import TEMPLATE

FOLDER = Path(__file__).resolve().parent
END = "<|endoftext|>"
VOCABULARY = 1024
POSITIONS = 1024
PER_SCENE = 12
"""Questions for each scene that there is."""
CHUNK = 2000
"""Scenes that one process draws questions from."""
LENGTHS = (192, 320, 480)
"""Examples are padded to the least of these; longer ones are left out."""
ELSEWHERE = 0.3
"""The share of examples that begin at a random position, so that every position is learnt."""
PROMPT_WEIGHT = 0.1


def prompt_of(asked: Question) -> str:
    """Return the prompt that `Pipeline.ask` makes."""
    sources = "\n".join(f"[{number}] {source}" for number, source in enumerate(asked.sources, 1))
    return TEMPLATE.substitute(sources=sources, question=asked.question)


def make_tokenizer(out: Path) -> Tokenizer:
    """Learn a byte-level BPE vocabulary, GPT-2's kind, and save it."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=[END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    gallery = Gallery(range(CHUNK))
    asked = (gallery.ask(seed) for seed in range(10_000))
    tokenizer.train_from_iterator((f"{prompt_of(question)} {question.answer}" for question in asked), trainer)
    out.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(out / "tokenizer.json"))
    special = {"bos_token": END, "eos_token": END, "unk_token": END}
    settings = special | {"model_max_length": POSITIONS, "tokenizer_class": "PreTrainedTokenizerFast"}
    training.write_json(out / "tokenizer_config.json", settings)
    return tokenizer


def make_model(tokenizer: Tokenizer) -> GPT2LMHeadModel:
    """Return an untrained GPT-2 of 1.4 million parameters."""
    end = tokenizer.token_to_id(END)
    config = GPT2Config(
        vocab_size=tokenizer.get_vocab_size(),
        n_positions=POSITIONS,
        n_embd=128,
        n_layer=6,
        n_head=4,
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
        bos_token_id=end,
        eos_token_id=end,
    )
    return GPT2LMHeadModel(config)


@dataclass
class Bucket:
    """Examples of about one length: token ids (n, length), where answers start and where they end."""

    tokens: torch.Tensor
    starts: torch.Tensor
    stops: torch.Tensor


def make_buckets(options: training.Options) -> list[Bucket]:
    """Draw and tokenise the questions in parallel and move them to the device."""
    jobs = [
        (first, min(first + CHUNK, options.scenes), str(options.out / "tokenizer.json"))
        for first in range(0, options.scenes, CHUNK)
    ]
    parts: dict[int, list[tuple[np.ndarray, ...]]] = defaultdict(list)
    begun = time.monotonic()
    with ProcessPoolExecutor(options.workers) as pool:
        for done in pool.map(_examples, jobs):
            for length, arrays in done.items():
                parts[length].append(arrays)
    buckets = []
    for _, examples in sorted(parts.items()):
        buckets.append(Bucket(*(torch.from_numpy(np.concatenate(kind)).to(options.device) for kind in zip(*examples))))
    counts = ", ".join(f"{len(b.tokens):,} of up to {b.tokens.shape[1]} tokens" for b in buckets)
    print(f"questions: {counts}; {time.monotonic() - begun:.0f} s", flush=True)
    return buckets


def _examples(job: tuple[int, int, str]) -> dict[int, tuple[np.ndarray, ...]]:
    """Return the examples of a range of scenes, by length."""
    first, stop, file = job
    tokenizer = Tokenizer.from_file(file)
    gallery = Gallery(range(first, stop))
    end = int(tokenizer.token_to_id(END) or 0)
    asked = [gallery.ask(seed) for seed in range(first * PER_SCENE, stop * PER_SCENE)]
    prompts = tokenizer.encode_batch([prompt_of(question) for question in asked])
    answers = tokenizer.encode_batch([f" {question.answer}" for question in asked])
    rows: dict[int, list[tuple[list[int], int]]] = defaultdict(list)
    for prompt, answer in zip(prompts, answers):
        ids = [*prompt.ids, *answer.ids, end]
        length = next((length for length in LENGTHS if len(ids) <= length), None)
        if length:
            rows[length].append((ids, len(prompt.ids)))
    return {length: _arrays(examples, length, end) for length, examples in rows.items()}


def _arrays(rows: Sequence[tuple[list[int], int]], length: int, end: int) -> tuple[np.ndarray, ...]:
    """Return the arrays of a `Bucket`."""
    tokens = np.full((len(rows), length), end, np.int16)
    for row, (ids, _) in zip(tokens, rows):
        row[: len(ids)] = ids
    starts, stops = ([start for _, start in rows], [len(ids) for ids, _ in rows])
    return tokens, np.array(starts, np.int16), np.array(stops, np.int16)


def train(options: training.Options) -> GPT2LMHeadModel:
    """Train a model on the answers, and a little on the prompts, and return it."""
    tokenizer = make_tokenizer(options.out)
    buckets = make_buckets(options)
    model = make_model(tokenizer)
    torch.nn.Module.to(model, options.device)
    tower: Any = torch.compile(model, dynamic=False) if options.compile else model
    words, places = model.transformer.wte, model.transformer.wpe
    shares = torch.tensor([len(bucket.tokens) for bucket in buckets], dtype=torch.float)

    def loss_of(rows: torch.Tensor) -> torch.Tensor:
        bucket = buckets[int(torch.multinomial(shares, 1))]
        chosen = torch.randint(len(bucket.tokens), rows.shape, device=rows.device)
        ids = bucket.tokens[chosen].long()
        length = ids.shape[1]
        offsets = torch.randint(POSITIONS - length, (len(ids), 1), device=ids.device)
        offsets *= torch.rand(offsets.shape, device=ids.device) < ELSEWHERE
        here = torch.arange(length, device=ids.device)
        embedded = words(ids) + places(here + offsets) - places(here)
        logits = tower(inputs_embeds=embedded, use_cache=False).logits[:, :-1].float()
        losses = functional.cross_entropy(logits.transpose(1, 2), ids[:, 1:], reduction="none")
        starts, stops = bucket.starts[chosen, None], bucket.stops[chosen, None]
        answer = (here[1:] >= starts) & (here[1:] < stops)
        prompt = here[1:] < starts
        return _mean(losses, answer) + PROMPT_WEIGHT * _mean(losses, prompt)

    training.fit(model, loss_of, options)
    return model


def _mean(losses: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    return torch.sum(losses * mask) / mask.sum()


@torch.inference_mode()
def evaluate(out: Path, count: int = 1000) -> float:
    """Print how a checkpoint answers questions about unseen scenes; return the share of right answers."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model: Any = AutoModelForCausalLM.from_pretrained(out, dtype=torch.float32)
    model.eval().to(device)
    tokenizer: Any = AutoTokenizer.from_pretrained(out, padding_side="left", pad_token=END)
    gallery = Gallery(range(training.EVALUATION_SEED, training.EVALUATION_SEED + 2000))
    asked = [gallery.ask(training.EVALUATION_SEED + number) for number in range(count)]
    right: dict[str, list[tuple[bool, bool]]] = defaultdict(list)
    for question, text in zip(asked, _answers(model, tokenizer, asked, device)):
        cited = {int(number) for number in re.findall(r"\[(\d+)\]", text)}
        right[question.kind].append((text == f" {question.answer}", cited == set(question.citations)))
        if text != f" {question.answer}":
            print(f"{question.question}\n  right: {question.answer}\n  given:{text}")
    for kind, pairs in [*sorted(right.items()), ("all", [pair for answers in right.values() for pair in answers])]:
        exact, cites = (sum(pair[side] for pair in pairs) / len(pairs) for side in (0, 1))
        print(f"{kind:<18}{len(pairs):>5} questions  exact answers {exact:.3f}  citations {cites:.3f}", flush=True)
    training.print_size(model, out)
    return sum(pair[0] for pairs in right.values() for pair in pairs) / count


def _answers(model: Any, tokenizer: Any, asked: Sequence[Question], device: str) -> Iterator[str]:
    """Yield the likeliest answers, in batches."""
    for first in range(0, len(asked), 50):
        prompts = [prompt_of(question) for question in asked[first : first + 50]]
        inputs = tokenizer(prompts, padding=True, return_tensors="pt").to(device)
        made = model.generate(**inputs, max_new_tokens=80, do_sample=False, pad_token_id=tokenizer.pad_token_id)
        yield from tokenizer.batch_decode(made[:, inputs["input_ids"].shape[1] :], skip_special_tokens=True)


def main() -> None:
    """Train and evaluate, or only evaluate."""
    options = training.parse_options(
        "Train the demonstration language model.", FOLDER, scenes=100_000, steps=13_156, batch=512, rate=2e-3,
        out="bundle",
    )  # fmt: skip
    if not options.evaluate:
        training.save_weights(train(options), options.out)
        add_graph(options.out)
    evaluate(options.out)


if __name__ == "__main__":
    main()
