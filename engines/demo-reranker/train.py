"""Train the demonstration re-ranker on queries and captions of drawn scenes, or evaluate its checkpoint.

``python engines/demo-reranker/train.py`` writes ``checkpoint`` beside this file in the layout of transformers: a BERT
that reads a query and a caption together and gives one number. ``--evaluate`` prints the figures of an existing
checkpoint. The one that is there was trained on the CPU with ``--scenes 40000 --steps 2000``, a fifth of the default.
"""

from __future__ import annotations

import dataclasses
import os
import random
import shutil
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tokenizers import Tokenizer
from torch.nn import functional
from transformers import BertConfig, BertForSequenceClassification, BertModel

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import training

from vlmsearch.demo.backgrounds import BACKGROUNDS
from vlmsearch.demo.description import ShapeGroup
from vlmsearch.demo.queries import parse_query
from vlmsearch.demo.scenes import COLOURS, SHAPES, TEXTURES, Scene, make_scene

FOLDER = Path(__file__).resolve().parent
VOCABULARY = FOLDER.parent / "demo-minilm" / "checkpoint"
"""Whose tokenizer is used: the words are the same."""
POSITIONS = 96
WIDTH = 64
GROUPS = 4
"""In how many lengths a batch is computed."""
CANDIDATES = 8
ALTERED = 4
"""The number of candidates that are the query's own scene, slightly changed.

One or two things are changed.
"""
STYLES = ("partial",) * 6 + ("short",) * 3 + ("full",)
CHUNK = 500
FIRST = 50
"""The number of captions from demo-minilm that an evaluation reads again."""


def altered(scene: Scene, rng: random.Random) -> Scene:
    """Return the scene with one thing changed: of a group, of how groups lie, or the background."""
    kinds = ["shape", "colour", "size", "texture", "count"] * len(scene.groups) + ["background", "layout"]
    kinds += ["swap"] * (2 if len(scene.groups) > 1 else 0) + ["fewer"] * (len(scene.groups) > 2)
    kind = rng.choice(kinds)
    if kind == "background":
        others = [name for name in BACKGROUNDS if name != scene.background]
        return dataclasses.replace(scene, background=rng.choice(others))
    if kind == "layout":
        return _moved(scene, rng)
    if kind == "fewer":
        return dataclasses.replace(scene, groups=scene.groups[:2], place="")
    groups = list(scene.groups)
    if kind == "swap":
        first, second = rng.sample(range(len(groups)), 2)
        name = rng.choice(("shape", "colour", "size", "texture"))
        old, new = (getattr(groups[number], name) for number in (first, second))
        groups[first], groups[second] = _with(groups[first], name, new), _with(groups[second], name, old)
    else:
        number = rng.randrange(len(groups))
        groups[number] = _changed(groups[number], kind, rng)
    return dataclasses.replace(scene, groups=tuple(groups))


def _with(group: ShapeGroup, name: str, value: str) -> ShapeGroup:
    return dataclasses.replace(group, **{name: value})


def _changed(group: ShapeGroup, kind: str, rng: random.Random) -> ShapeGroup:
    """Return a group with another value of one attribute."""
    if kind == "count":
        count = rng.choice([number for number in (1, 2, 3, 4) if number != group.count])
        return dataclasses.replace(group, items=group.items[:1] * count)
    values = {"shape": SHAPES, "colour": COLOURS, "size": ("small", "large"), "texture": TEXTURES}[kind]
    return _with(group, kind, rng.choice([value for value in values if value != getattr(group, kind)]))


def _moved(scene: Scene, rng: random.Random) -> Scene:
    """Return a scene whose groups lie otherwise."""
    if len(scene.groups) == 1:
        places = ("centre", "top", "bottom", "left", "right", "top left", "top right", "bottom left", "bottom right")
        return dataclasses.replace(scene, place=rng.choice([place for place in places if place != scene.place]))
    opposite = {"left of": "right of", "right of": "left of", "above": "below", "below": "above"}
    sides = {"top": "bottom", "bottom": "top", "left": "right", "right": "left"}
    if len(scene.groups) == 3 and rng.random() < 0.5:
        return dataclasses.replace(scene, place=sides[scene.place])
    if scene.relation == "inside":
        return dataclasses.replace(scene, groups=scene.groups[::-1])
    return dataclasses.replace(scene, relation=opposite[scene.relation])


def examples(seed: int, rng: random.Random) -> tuple[str, list[str], list[bool]]:
    """Return a query of a scene, captions, and the scenes that the query fits.

    The first caption is that of the query's scene. The scenes are those of the captions.
    """
    scene = make_scene(seed)
    style = rng.choice(STYLES)
    query = scene.captions(1, rng.randrange(8, 1_000_000), style=style)[0]
    scenes = [scene]
    while len(scenes) < CANDIDATES:
        if len(scenes) <= ALTERED:
            other = altered(scene, rng)
            scenes.append(altered(other, rng) if rng.random() < 0.25 else other)
        else:
            scenes.append(make_scene(rng.randrange(training.EVALUATION_SEED)))
    asked = parse_query(query)
    texts = [other.caption() if rng.random() < 0.7 else other.captions(1, 3, style="full")[0] for other in scenes]
    return query, texts, [asked.fits(other) for other in scenes]


def _describe(job: tuple[int, int, int]) -> tuple[np.ndarray, np.ndarray]:
    """Return the token ids and the labels of a range of seeds.

    With the ids comes the place of the second text.
    """
    start, stop, seed = job
    tokenizer = Tokenizer.from_file(str(VOCABULARY / "tokenizer.json"))
    rng = random.Random(seed * 1_000_003 + start)
    pairs, labels = [], []
    for number in range(start, stop):
        query, texts, true = examples(number, rng)
        pairs += [(query, text) for text in texts]
        labels.append(true)
    return encode(tokenizer, pairs).reshape(stop - start, CANDIDATES, POSITIONS), np.array(labels)


def encode(tokenizer: Tokenizer, pairs: Sequence[tuple[str, str]]) -> np.ndarray:
    """Return the ids of pairs, int16 (n, POSITIONS); those of second texts are negative."""
    ids = np.zeros((len(pairs), POSITIONS), np.int16)
    for row, encoding in enumerate(tokenizer.encode_batch(list(pairs))):
        signs = 1 - 2 * np.array(encoding.type_ids[:POSITIONS])
        ids[row, : len(signs)] = np.array(encoding.ids[:POSITIONS]) * signs
    return ids


def make_model(vocabulary: int) -> BertForSequenceClassification:
    """Return an untrained cross-encoder of about 0.13 million parameters.

    What it has to learn first is to find a word of the query in the caption. It begins with the words of demo-minilm,
    reduced to its width, and with attention between like tokens in the lower half of its layers.
    """
    config = BertConfig(
        vocab_size=vocabulary,
        hidden_size=WIDTH,
        num_hidden_layers=4,
        num_attention_heads=4,
        intermediate_size=WIDTH,
        max_position_embeddings=POSITIONS,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        pad_token_id=0,
        num_labels=1,
    )
    model = BertForSequenceClassification(config)
    known: Any = BertModel.from_pretrained(VOCABULARY, dtype=torch.float32)
    with torch.no_grad():
        words = known.embeddings.word_embeddings.weight
        u, s, _ = torch.linalg.svd(words - words.mean(dim=0), full_matrices=False)
        reduced = u[:, :WIDTH] * s[:WIDTH]
        model.bert.embeddings.word_embeddings.weight.copy_(reduced @ _rotation(WIDTH) / reduced.std() * 0.1)
        for layer in model.bert.encoder.layer[:2]:
            for part in (layer.attention.self.query, layer.attention.self.key):
                part.weight.add_(torch.eye(WIDTH) * 0.7)
    return model


def _rotation(size: int) -> torch.Tensor:
    """Return a random rotation, which spreads the strongest directions over all heads."""
    rotation: torch.Tensor = torch.linalg.qr(torch.randn(size, size))[0]
    return rotation


def logits(model: Any, pairs: torch.Tensor) -> torch.Tensor:
    """Return the model's number for each pair, (n,); those of like lengths are computed together."""
    lengths = pairs.ne(0).sum(dim=1)
    order = torch.argsort(lengths)
    scores = []
    for rows in order.tensor_split(GROUPS):
        part = pairs[rows, : int(lengths[rows[-1]])].long()
        inputs = {"input_ids": part.abs(), "attention_mask": part.ne(0).long(), "token_type_ids": part.lt(0).long()}
        scores.append(model(**inputs).logits[:, 0].float())
    return torch.cat(scores)[torch.argsort(order)]


def train(options: training.Options) -> BertForSequenceClassification:
    """Train a model to tell the captions that a query is true of.

    Among them it tells the query's own.
    """
    options.out.mkdir(parents=True, exist_ok=True)
    for name in ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"):
        shutil.copy(VOCABULARY / name, options.out / name)
    jobs = [(at, min(at + CHUNK, options.scenes), options.seed) for at in range(0, options.scenes, CHUNK)]
    begun = time.monotonic()
    with ProcessPoolExecutor(options.workers) as pool:
        arrays = list(pool.map(_describe, jobs))
    print(f"{options.scenes:,} queries in {time.monotonic() - begun:.0f} s", flush=True)
    pairs = torch.from_numpy(np.concatenate([ids for ids, _ in arrays])).to(options.device)
    labels = torch.from_numpy(np.concatenate([true for _, true in arrays])).float().to(options.device)
    model = make_model(Tokenizer.from_file(str(VOCABULARY / "tokenizer.json")).get_vocab_size())
    torch.nn.Module.to(model, options.device)
    model.train()

    def loss_of(rows: torch.Tensor) -> torch.Tensor:
        scores = logits(model, pairs[rows].flatten(0, 1)).view(-1, CANDIDATES)
        own = functional.cross_entropy(scores, torch.zeros(len(rows), dtype=torch.long, device=options.device))
        return own + functional.binary_cross_entropy_with_logits(scores, labels[rows])

    training.fit(model, loss_of, options)
    return model


@torch.inference_mode()
def evaluate(out: Path) -> dict[str, float]:
    """Print how well a checkpoint orders what demo-minilm finds first of 1,000 unseen scenes."""
    from vlmsearch.encoders.onnx import OnnxEncoder

    model: Any = BertForSequenceClassification.from_pretrained(out, dtype=torch.float32)
    model.eval()
    tokenizer = Tokenizer.from_file(str(out / "tokenizer.json"))
    scenes = training.evaluation_scenes()
    captions = [scene.caption() for scene in scenes]
    figures: dict[str, float] = {}
    with OnnxEncoder("demo-minilm") as encoder:
        rows = encoder.encode_texts(captions)["minilm"]
        for style in ("partial", "short", "full"):
            queries = [scene.captions(1, training.PARAPHRASE_SEED, style=style)[0] for scene in scenes]
            near = encoder.encode_texts(queries, role="query")["minilm"] @ rows.T
            first = np.argsort(-near, axis=1)[:, :FIRST]
            pairs = [(query, captions[i]) for query, nearest in zip(queries, first, strict=True) for i in nearest]
            ids = torch.from_numpy(encode(tokenizer, pairs))
            scores = torch.cat([logits(model, part) for part in ids.split(1000)]).view(-1, FIRST).numpy()
            best = first[np.arange(len(first)), scores.argmax(axis=1)]
            for name, chosen in (("first", first[:, 0]), ("re-ranked", best)):
                own = float(np.mean(chosen == np.arange(len(scenes))))
                true = float(np.mean([parse_query(q).fits(scenes[i]) for q, i in zip(queries, chosen, strict=True)]))
                figures[f"{style} {name}"] = own
                print(f"{style:<8} {name:<10} its own scene {own:.3f}  a scene that fits {true:.3f}", flush=True)
    training.print_size(model, out)
    return figures


def main() -> None:
    """Train and evaluate, or only evaluate."""
    options = training.parse_options(
        "Train the demonstration re-ranker.", FOLDER, scenes=200_000, steps=10_000, batch=32, rate=1e-3
    )
    if not options.evaluate:
        training.save_weights(train(options), options.out)
    evaluate(options.out)


if __name__ == "__main__":
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    main()
