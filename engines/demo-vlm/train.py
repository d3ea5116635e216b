"""Train the demonstration vision-language model to answer questions about drawn scenes, or evaluate its checkpoint.

``python engines/demo-vlm/train.py`` trains a LLaVA of 7 million parameters on the prompts of `Pipeline.ask`, on a GPU
if there is one. It writes ``bundle`` beside this file: the checkpoint in the layout of transformers, and the graphs for
ONNX Runtime that read the same weights. ``--evaluate`` prints the figures of an existing checkpoint.

The bundle comes from three runs on an NVIDIA H100, all with ``--compile``. Each goes on with the last checkpoint of the
one before: 5 minutes of ``--minutes 15``, then ``--resume FOLDER --scenes 130000 --seed 1 --rate 8e-4 --minutes 6.2``,
then 2 minutes of ``--resume FOLDER --scenes 60000 --seed 2 --rate 5e-4 --minutes 4.2``. Questions with invented words
and of the kind "everyday is" came with the last run. A whole run of 15 minutes has not been measured.
"""

from __future__ import annotations

import argparse
import io
import json
import math
import os
import random
import re
import shutil
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from torch import nn
from torch.nn import functional
from transformers import (
    AutoModelForImageTextToText,
    AutoProcessor,
    CLIPVisionConfig,
    LlamaConfig,
    LlavaConfig,
    LlavaForConditionalGeneration,
)

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import questions
import training
from llava_graph import add_graphs
from questions import Gallery, Mixture, Question, describe

from vlmsearch.demo.backgrounds import BACKGROUNDS
from vlmsearch.demo.scenes import COLOURS, SHAPES, TEXTURES, Scene, make_scene

FOLDER = Path(__file__).resolve().parent
END, IMAGE = "<|endoftext|>", "<image>"
VOCABULARY = 1024
PIXELS, PATCH = 160, 16
WIDTH = 256
"""Width of the language model."""
PICTURE_TOKENS = (PIXELS // PATCH) ** 2
POSITIONS = 1024
MEAN, DEVIATION = (0.5, 0.5, 0.5), (0.25, 0.25, 0.25)
CHUNK = 1000
"""Scenes that one process draws and asks about."""
PER_SCENE = {0: 0.25, 1: 0.5, 2: 0.25, 3: 0.6, 4: 0.3}
"""Examples for each scene that there is, by the number of their pictures."""
LENGTHS = {0: 512, 1: 448, 2: 576, 3: 704, 4: 832}
"""Tokens of an example, which is filled with questions."""
BATCHES = {0: 256, 1: 320, 2: 224, 3: 192, 4: 160}
SHARES = {0: 0.1, 1: 0.15, 2: 0.15, 3: 0.35, 4: 0.25}
FIRST = 0.2
"""The share of the time in which examples have one picture.

The tower learns what is in each patch then.
"""
SIZES = (PIXELS, PIXELS, 192, 224, 256, 256)
"""Sides at which pictures are drawn, before they are reduced to ``PIXELS``."""
MAX_ITEMS = 12
PAD = 127
EVALUATION_SEED = 20_000_000
"""The first scene of the evaluation; nothing is trained on it or on later ones."""
CHAT_TEMPLATE = (
    "{% for message in messages %}{% if message['content'] is string %}{{ message['content'] }}{% else %}"
    "{% for part in message['content'] %}{% if part['type'] == 'image' %}<image>{% else %}{{ part['text'] }}{% endif %}"
    "{% endfor %}{% endif %}{% endfor %}"
)


def make_tokenizer(out: Path) -> Tokenizer:
    """Learn a byte-level BPE vocabulary, GPT-2's kind, and save it with the processor's settings."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=[END, IMAGE],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    gallery = Gallery(range(2000))
    asked = [gallery.ask(seed) for seed in range(5000)]
    asked += [gallery.ask_pictures(seed, Mixture(seed % 4))[0] for seed in range(10_000)]
    texts = (part for question in asked for part in [*question.parts(), f" {question.answer}"] if isinstance(part, str))
    tokenizer.train_from_iterator(texts, trainer)
    out.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(out / "tokenizer.json"))
    special = {"bos_token": END, "eos_token": END, "unk_token": END, "pad_token": END}
    settings = special | {"model_max_length": POSITIONS, "tokenizer_class": "PreTrainedTokenizerFast"}
    training.write_json(out / "tokenizer_config.json", settings | {"extra_special_tokens": {"image_token": IMAGE}})
    processor = {
        "processor_class": "LlavaProcessor",
        "image_token": IMAGE,
        "patch_size": PATCH,
        "num_additional_image_tokens": 1,
        "vision_feature_select_strategy": "default",
    }
    training.write_json(out / "processor_config.json", processor)
    side = {"height": PIXELS, "width": PIXELS}
    images = {
        "image_processor_type": "CLIPImageProcessor",
        "do_convert_rgb": True,
        "do_resize": True,
        "size": side,
        "resample": int(Image.Resampling.BICUBIC),
        "do_center_crop": False,
        "crop_size": side,
        "do_rescale": True,
        "rescale_factor": 1 / 255,
        "do_normalize": True,
        "image_mean": list(MEAN),
        "image_std": list(DEVIATION),
    }
    training.write_json(out / "preprocessor_config.json", images)
    (out / "chat_template.jinja").write_text(CHAT_TEMPLATE)
    return tokenizer


def make_model(tokenizer: Tokenizer) -> LlavaForConditionalGeneration:
    """Return an untrained LLaVA of 7 million parameters."""
    end = tokenizer.token_to_id(END)
    vision = CLIPVisionConfig(
        hidden_size=192,
        intermediate_size=768,
        num_hidden_layers=6,
        num_attention_heads=6,
        image_size=PIXELS,
        patch_size=PATCH,
    )
    text = LlamaConfig(
        vocab_size=tokenizer.get_vocab_size(),
        hidden_size=WIDTH,
        intermediate_size=640,
        num_hidden_layers=5,
        num_attention_heads=8,
        num_key_value_heads=8,
        max_position_embeddings=POSITIONS,
        initializer_range=0.03,
        bos_token_id=end,
        eos_token_id=end,
        pad_token_id=end,
        tie_word_embeddings=True,
    )
    config = LlavaConfig(
        vision_config=vision,
        text_config=text,
        image_token_index=int(tokenizer.token_to_id(IMAGE) or 0),
        vision_feature_layer=-1,
        vision_feature_select_strategy="default",
        image_seq_length=PICTURE_TOKENS,
        tie_word_embeddings=True,
    )
    model = LlavaForConditionalGeneration(config)
    model.generation_config.eos_token_id = end
    model.generation_config.pad_token_id = end
    return model


@dataclass
class Bucket:
    """Examples of one number of pictures.

    Attributes:
        tokens: Token ids (examples, length).
        parts: 0 for the sources, N for question N, N + 64 for its answer, ``PAD`` after the end (examples, length).
        places: Positions (examples, length). Each question follows the sources directly.
        pictures: Scenes (examples, pictures).
    """

    tokens: torch.Tensor
    parts: torch.Tensor
    places: torch.Tensor
    pictures: torch.Tensor


@dataclass
class DrawnScenes:
    """The pictures of all scenes, and what they show.

    Attributes:
        pixels: Bytes (scenes, height, width, 3).
        items: Centre and diameter of each object in shares of the side (scenes, objects, 3); 0 where there is none.
        kinds: Shape, colour, texture and size of each object (scenes, objects, 4).
        backgrounds: Background of each scene (scenes).
    """

    pixels: torch.Tensor
    items: torch.Tensor
    kinds: torch.Tensor
    backgrounds: torch.Tensor


def make_data(
    scenes: int, cache: Path, out: Path, workers: int, device: torch.device
) -> tuple[DrawnScenes, dict[int, Bucket]]:
    """Draw the scenes and ask about them in parallel, and move both to the device.

    The pictures are kept in ``cache``.
    """
    cache.mkdir(parents=True, exist_ok=True)
    begun = time.monotonic()
    jobs = [
        (first, min(first + CHUNK, scenes), str(out / "tokenizer.json"), str(cache))
        for first in range(0, scenes, CHUNK)
    ]
    parts: dict[int, list[tuple[np.ndarray, ...]]] = defaultdict(list)
    drawn: list[tuple[np.ndarray, ...]] = []
    pixels = torch.empty((scenes, PIXELS, PIXELS, 3), dtype=torch.uint8)
    with ProcessPoolExecutor(workers) as pool:
        for index, (asked, shown) in enumerate(pool.map(_chunk, jobs)):
            first, stop, *_ = jobs[index]
            pixels[first:stop] = torch.from_numpy(np.load(cache / f"{first}-{stop}.npy"))
            drawn.append(shown)
            for count, arrays in asked.items():
                parts[count].append(arrays)
            if index % 20 == 0:
                print(f"scenes {stop:,}/{scenes:,}  {stop / (time.monotonic() - begun):,.0f}/s", flush=True)
    items = (torch.from_numpy(np.concatenate(kind)).to(device) for kind in zip(*drawn))
    buckets = {
        count: Bucket(*(torch.from_numpy(np.concatenate(kind)).to(device) for kind in zip(*arrays)))
        for count, arrays in sorted(parts.items())
    }
    for count, bucket in buckets.items():
        answers = (bucket.parts >= 64).float() * (bucket.parts != PAD)
        print(f"{count} pictures: {len(bucket.tokens):,} examples, {(bucket.parts != PAD).float().mean():.2f} full, "
              f"{answers.mean():.2f} answers", flush=True)  # fmt: skip
    return DrawnScenes(pixels.to(device), *items), buckets


def _chunk(job: tuple[int, int, str, str]) -> tuple[dict[int, tuple[np.ndarray, ...]], tuple[np.ndarray, ...]]:
    """Return examples of a range of scenes, with their pictures.

    The pictures are written to the cache.
    """
    first, stop, file, cache = job
    target = Path(cache) / f"{first}-{stop}.npy"
    scenes = [make_scene(seed) for seed in range(first, stop)]
    if not target.is_file():
        scratch = target.with_suffix(f".{os.getpid()}.tmp.npy")
        np.save(scratch, np.stack([draw_pixels(scene) for scene in scenes]))
        scratch.rename(target)
    tokenizer = Tokenizer.from_file(file)
    gallery = Gallery(range(first, stop))
    asked = {count: _examples(tokenizer, gallery, first, stop, count) for count in PER_SCENE}
    return asked, _shown(scenes)


def draw_pixels(scene: Scene) -> np.ndarray:
    """Draw a scene and reduce it as the image processor does.

    It is drawn at one of several sizes. Some are JPEGs in between.
    """
    rng = random.Random(scene.seed ^ 0xBEEF)
    picture = scene.draw(SIZES[int(rng.random() * len(SIZES))])
    if rng.random() < 0.3:
        file = io.BytesIO()
        picture.save(file, "JPEG", quality=50 + int(rng.random() * 46))
        picture = Image.open(file)
    pixels: np.ndarray = np.asarray(picture.resize((PIXELS, PIXELS), Image.Resampling.BICUBIC))
    return pixels


def _shown(scenes: Sequence[Scene]) -> tuple[np.ndarray, ...]:
    """Return the arrays of `DrawnScenes` but the pixels."""
    items = np.zeros((len(scenes), MAX_ITEMS, 3), np.float32)
    kinds = np.zeros((len(scenes), MAX_ITEMS, 4), np.int64)
    for row, scene in enumerate(scenes):
        pairs = [(group, item) for group in scene.groups for item in group.items]
        for column, (group, item) in enumerate(pairs):
            items[row, column] = item.x / 256, item.y / 256, item.diameter / 256
            kinds[row, column] = (SHAPES.index(group.shape), COLOURS.index(group.colour),
                                  TEXTURES.index(group.texture), group.size == "large")  # fmt: skip
    names = list(BACKGROUNDS)
    return items, kinds, np.array([names.index(scene.background) for scene in scenes], np.int64)


def _examples(tokenizer: Tokenizer, gallery: Gallery, first: int, stop: int, count: int) -> tuple[np.ndarray, ...]:
    """Return the arrays of a `Bucket`."""
    length, end = LENGTHS[count], int(tokenizer.token_to_id(END) or 0)
    image = int(tokenizer.token_to_id(IMAGE) or 0)
    seeds = range(int(first * PER_SCENE[count]), int(stop * PER_SCENE[count]))
    tokens = np.full((len(seeds), length), end, np.int16)
    parts = np.full((len(seeds), length), PAD, np.int8)
    places = np.zeros((len(seeds), length), np.int16)
    pictures = np.zeros((len(seeds), count), np.int32)
    rng = random.Random(first)
    for row, seed in enumerate(seeds):
        asked = gallery.ask_pictures(seed * 5 + count, Mixture(count, max_sources=5 if count else 8), 10)
        asked = _with_description(rng, asked)
        ids: list[int] = []
        shown = []
        for part in [*asked[0].parts()[:-1], _before_question(asked[0].parts()[-1])]:
            if isinstance(part, str):
                ids += tokenizer.encode(part).ids
            else:
                ids += [image] * PICTURE_TOKENS
                shown.append(part.seed)
        tokens[row, : len(ids)], parts[row, : len(ids)], places[row, : len(ids)] = ids, 0, range(len(ids))
        pictures[row] = shown
        start = used = len(ids)
        for number, asked_question in enumerate(asked, 1):
            question = tokenizer.encode(f"\nQuestion: {asked_question.question}\nAnswer:").ids
            answer = [*tokenizer.encode(f" {asked_question.answer}").ids, end]
            both = len(question) + len(answer)
            if used + both > length:
                break
            here = slice(used, used + both)
            tokens[row, here] = question + answer
            parts[row, here] = [number] * len(question) + [number + 64] * len(answer)
            places[row, here] = range(start, start + both)
            used += both
    return tokens, parts, places, pictures


def _before_question(text: object) -> str:
    """Return what comes before the question in the last part of a prompt."""
    return str(text)[: str(text).rindex("\nQuestion: ")]


def _with_description(rng: random.Random, asked: list[Question]) -> list[Question]:
    """Put a question before the others that has one of the pictures described."""
    numbers = [number for number, scene in enumerate(asked[0].pictures, 1) if scene]
    if not numbers:
        return asked
    number = questions.pick(rng, numbers)
    scene = asked[0].pictures[number - 1]
    if scene is None:
        return asked
    dense = Question("describe", asked[0].sources, f"Describe picture {number}.", f"{describe(scene)} [{number}].",
                     (number,), asked[0].pictures, asked[0].own)  # fmt: skip
    return [dense, *asked]


class Patches(nn.Module):
    """A loss of what lies on each patch of a picture: the shape, its colour, texture and size, and the background."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.sizes = (len(SHAPES) + 1, len(COLOURS), len(TEXTURES), 2, len(BACKGROUNDS))
        self.head = nn.Linear(width, sum(self.sizes))

    def forward(self, features: torch.Tensor, items: torch.Tensor, kinds: torch.Tensor, behind: torch.Tensor) -> Any:
        """Return the loss of features (pictures, patches, width)."""
        side = PIXELS // PATCH
        middles = (torch.arange(side, device=features.device) + 0.5) / side
        y, x = torch.meshgrid(middles, middles, indexing="ij")
        points = torch.stack([x, y], dim=-1).view(1, -1, 1, 2)
        far = (points - items[:, None, :, :2]).norm(dim=-1)
        covers = far < items[:, None, :, 2] * 0.5
        is_covered = covers.any(dim=-1)
        chosen = covers.float().argmax(dim=-1)
        labels = kinds.gather(1, chosen[..., None].expand(-1, -1, 4))
        shape, colour, texture, size, background = self.head(features).float().split(self.sizes, dim=-1)
        loss = functional.cross_entropy(shape.flatten(0, 1), torch.where(is_covered, labels[..., 0] + 1, 0).flatten())
        for logits, column in ((colour, 1), (texture, 2), (size, 3)):
            losses = functional.cross_entropy(logits.flatten(0, 1), labels[..., column].flatten(), reduction="none")
            loss = loss + torch.sum(losses * is_covered.flatten()) / is_covered.sum()
        return loss + 0.3 * functional.cross_entropy(background.mean(dim=1), behind)


class Trainer:
    """The losses of a model on drawn scenes."""

    def __init__(self, model: LlavaForConditionalGeneration, drawn: DrawnScenes, buckets: dict[int, Bucket]) -> None:
        self.model = model
        self.drawn = drawn
        self.buckets = buckets
        self.device = drawn.pixels.device
        self.patches = Patches(WIDTH).to(self.device)
        self.centre = torch.tensor(MEAN, device=self.device).view(1, 3, 1, 1)
        self.spread = torch.tensor(DEVIATION, device=self.device).view(1, 3, 1, 1)

    def loss(self, count: int, batch: int, patch_weight: float) -> torch.Tensor:
        """Return the loss of a random batch of examples with ``count`` pictures."""
        bucket, inner = self.buckets[count], self.model.model
        rows = torch.randint(len(bucket.tokens), (batch,), device=self.device)
        ids, parts = bucket.tokens[rows].long(), bucket.parts[rows]
        embedded = inner.language_model.embed_tokens(ids)
        loss: Any = 0.0
        if count:
            pixels, items = self._pictures(bucket.pictures[rows].flatten())
            features = inner.multi_modal_projector(inner.vision_tower(pixels).last_hidden_state[:, 1:])
            is_picture = ids == self.model.config.image_token_id
            embedded = embedded.masked_scatter(is_picture[..., None], features.to(embedded.dtype))
            if patch_weight:
                scenes = bucket.pictures[rows].flatten()
                kinds, behind = self.drawn.kinds[scenes], self.drawn.backgrounds[scenes]
                loss = patch_weight * self.patches(features, items, kinds, behind)
        number = torch.where(parts >= 64, torch.where(parts == PAD, PAD, parts - 64), parts)
        earlier = torch.ones(ids.shape[1], ids.shape[1], dtype=torch.bool, device=self.device).tril()
        mask = earlier & ((number[:, None, :] == 0) | (number[:, None, :] == number[:, :, None]))
        hidden = inner.language_model(
            inputs_embeds=embedded,
            attention_mask=mask[:, None],
            position_ids=bucket.places[rows].long(),
            use_cache=False,
        ).last_hidden_state
        is_answer = (parts[:, 1:] >= 64) & (parts[:, 1:] != PAD)
        logits = self.model.lm_head(hidden[:, :-1][is_answer])
        answers: torch.Tensor = loss + functional.cross_entropy(logits.float(), ids[:, 1:][is_answer])
        return answers

    def _pictures(self, scenes: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return pixels and items of scenes.

        Half of them are shifted and stretched, all vary in brightness.
        """
        pixels = self.drawn.pixels[scenes].permute(0, 3, 1, 2).float() / 255
        items, count = self.drawn.items[scenes], len(scenes)
        changed = (torch.rand(count, 1, device=self.device) < 0.5).float()
        scale = 1 + changed * (torch.rand(count, 2, device=self.device) - 0.5) * 0.16
        shift = changed * (torch.rand(count, 2, device=self.device) - 0.5) * 0.1
        theta = torch.zeros(count, 2, 3, device=self.device)
        theta[:, 0, 0], theta[:, 1, 1], theta[:, :, 2] = scale[:, 0], scale[:, 1], shift
        grid = functional.affine_grid(theta, list(pixels.shape), align_corners=False)
        pixels = functional.grid_sample(pixels, grid, padding_mode="border", align_corners=False)
        centres = ((items[..., :2] * 2 - 1 - shift[:, None]) / scale[:, None] + 1) / 2
        items = torch.cat([centres, items[..., 2:] / scale.mean(dim=1).view(-1, 1, 1)], dim=-1)
        gain, offset, noise = (torch.randn(count, 1, 1, 1, device=self.device) for _ in range(3))
        pixels = pixels * (1 + 0.05 * gain) + 0.02 * offset + 0.01 * noise * torch.randn_like(pixels)
        return (pixels.clamp(0, 1) - self.centre) / self.spread, items


def train(options: argparse.Namespace) -> None:
    """Train a model for a number of minutes and save it now and then."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    is_cuda = device.type == "cuda"
    torch.manual_seed(options.seed)
    torch.set_float32_matmul_precision("high")
    if options.resume:
        shutil.copytree(options.resume, options.out, dirs_exist_ok=True)
        tokenizer = Tokenizer.from_file(str(options.out / "tokenizer.json"))
    else:
        tokenizer = make_tokenizer(options.out)
    drawn, buckets = make_data(options.scenes, options.cache, options.out, options.workers, device)
    model = make_model(tokenizer)
    if options.resume:
        model = LlavaForConditionalGeneration.from_pretrained(options.resume, dtype=torch.float32)
    model.to(device)  # type: ignore[arg-type]
    model.train()
    trainer = Trainer(model, drawn, buckets)
    print(f"{sum(value.numel() for value in model.parameters()):,} parameters", flush=True)
    if options.compile:
        torch._dynamo.config.recompile_limit = 64  # noqa: SLF001
        for layer in (*_vision_layers(model), *model.model.language_model.layers):
            layer.compile(dynamic=False)
    named = [*model.named_parameters(), *trainer.patches.named_parameters()]
    groups = [
        {"params": [value for _, value in named if value.ndim >= 2], "weight_decay": 0.05},
        {"params": [value for _, value in named if value.ndim < 2], "weight_decay": 0.0},
    ]
    optimiser = torch.optim.AdamW(groups, lr=options.rate, betas=(0.9, 0.98), fused=is_cuda)
    begun, saved, step = time.monotonic(), time.monotonic(), 0
    rng = random.Random(options.seed)
    while True:
        share = (time.monotonic() - begun) / (60 * options.minutes)
        if share >= 1 or (options.steps and step == options.steps):
            break
        is_first = share < FIRST and not options.resume
        count = 1 if is_first else rng.choices(list(SHARES), list(SHARES.values()))[0]
        rate = options.rate * min(1.0, (step + 1) / 400) * (0.5 + 0.5 * math.cos(math.pi * share) + 1e-3)
        for group in optimiser.param_groups:
            group["lr"] = rate
        with torch.autocast(device.type, torch.bfloat16, enabled=is_cuda):
            batch = max(2, int(BATCHES[count] * options.batch))
            loss = trainer.loss(count, batch, 0.5 if is_first else 0.1)
        optimiser.zero_grad(set_to_none=True)
        torch.autograd.backward(loss)
        nn.utils.clip_grad_norm_([value for _, value in named], 1.0)
        optimiser.step()
        step += 1
        if step % options.report == 0 or step in (5, 20):
            seconds = time.monotonic() - begun
            print(f"step {step:>6}  {share:5.1%}  {count} pictures  loss {loss.item():.4f}  rate {rate:.2e}  "
                  f"{step / seconds:.2f} steps/s", flush=True)  # fmt: skip
        if time.monotonic() - saved > 60 * options.save:
            saved = time.monotonic()
            save(model, options.out)
            if not is_first:
                evaluate(options.out, 100, verbose=False)
    save(model, options.out)
    print(f"{step} steps in {(time.monotonic() - begun) / 60:.1f} minutes", flush=True)


def _vision_layers(model: LlavaForConditionalGeneration) -> Any:
    tower: Any = model.model.vision_tower
    return getattr(tower, "vision_model", tower).encoder.layers


def save(model: LlavaForConditionalGeneration, out: Path) -> None:
    """Save a copy of a model in half precision, beside the tokenizer."""
    copy = LlavaForConditionalGeneration(model.config)
    copy.load_state_dict({name: value.detach().float().cpu() for name, value in model.state_dict().items()})
    copy.generation_config = model.generation_config
    training.save_weights(copy, out)
    config = json.loads((out / "config.json").read_text())
    for part in ("text_config", "vision_config"):
        config[part] |= {"dtype": "float32"}
    training.write_json(out / "config.json", config)
    print(f"saved to {out}", flush=True)


GOALS = {
    "how many": ("how many", "everyday count"),
    "colour": ("colour", "everyday colour"),
    "where": ("where", "everyday where"),
    "is there": ("exists", "everyday exists"),
}
"""Kinds of questions that the figures are given for."""


@torch.inference_mode()
def evaluate(out: Path, count: int = 1000, *, verbose: bool = True) -> None:
    """Print how a checkpoint answers questions about unseen scenes."""
    first = EVALUATION_SEED
    gallery = Gallery(range(first, first + 3000))
    names = {name for group in GOALS.values() for name in group}
    goals = tuple(pair for pair in (*questions.KINDS, *questions.EVERYDAY_KINDS) if pair[0] in names)
    sets = {
        "three pictures, goals": Mixture(3, max_sources=3, captioned=0.0, own=0.0, kinds=goals),
        "pictures and texts": Mixture(2, captioned=0.25, own=0.0),
        "four pictures": Mixture(4, own=0.0),
        "own picture": Mixture(2, own=1.0),
    }
    asked = {name: [gallery.ask_pictures(first + seed, mixture)[0] for seed in range(count)]
             for name, mixture in sets.items()}  # fmt: skip
    asked["texts, as demo-gpt2"] = [gallery.ask(first + seed) for seed in range(count)]
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model: Any = AutoModelForImageTextToText.from_pretrained(out, dtype=torch.float32)
    model.eval().to(device)
    processors: Any = AutoProcessor
    processor = processors.from_pretrained(out)
    for name, those in asked.items():
        if not verbose and name not in ("three pictures, goals", "texts, as demo-gpt2"):
            continue
        texts = list(_answers(model, processor, those, device))
        report(name, those, texts, verbose=verbose)


def report(name: str, asked: Sequence[Question], texts: Sequence[str], *, verbose: bool) -> None:
    """Print the shares of right answers and citations, by kind."""
    rows: dict[str, list[tuple[bool, bool, bool]]] = defaultdict(list)
    for question, text in zip(asked, texts):
        cited = {int(number) for number in re.findall(r"\[(\d+)\]", text)}
        is_right = text.strip() == question.answer
        both = (is_right, cited == set(question.citations), not question.citations)
        rows[question.kind].append(both)
        rows["all answered" if question.citations else "all without an answer"].append(both)
        rows["all"].append(both)
        if verbose and not is_right:
            print(f"  {question.question}\n    right: {question.answer}\n    given:{text}")
    for kind, answers in sorted(rows.items()):
        if verbose or kind.startswith("all"):
            exact, cites = (sum(pair[side] for pair in answers) / len(answers) for side in (0, 1))
            print(
                f"{name}: {kind:<22}{len(answers):>5} questions  exact {exact:.3f}  citations {cites:.3f}", flush=True
            )


def _answers(model: Any, processor: Any, asked: Sequence[Question], device: str) -> Iterator[str]:
    """Yield the likeliest answers, in batches."""
    processor.tokenizer.padding_side = "left"
    for first in range(0, len(asked), 50):
        prompts = [question.parts() for question in asked[first : first + 50]]
        texts = ["".join(part if isinstance(part, str) else IMAGE for part in parts) for parts in prompts]
        images = [[part.draw() for part in parts if not isinstance(part, str)] for parts in prompts]
        flat = [image for those in images for image in those]
        inputs = processor(text=texts, images=flat or None, padding=True, return_tensors="pt").to(device)
        made = model.generate(**inputs, max_new_tokens=96, do_sample=False)
        yield from processor.batch_decode(made[:, inputs["input_ids"].shape[1] :], skip_special_tokens=True)


def main() -> None:
    """Train and evaluate, or only evaluate."""
    parser = argparse.ArgumentParser(description="Train the demonstration vision-language model.",
                                     formatter_class=argparse.ArgumentDefaultsHelpFormatter)  # fmt: skip
    parser.add_argument("--scenes", type=int, default=240_000, help="number of training scenes")
    parser.add_argument("--minutes", type=float, default=20.0, help="minutes to train after drawing")
    parser.add_argument("--steps", type=int, default=0, help="number of steps; 0 for as many as the minutes allow")
    parser.add_argument("--batch", type=float, default=1.0, help="share of the usual batch size")
    parser.add_argument("--rate", type=float, default=1.2e-3, help="peak learning rate")
    parser.add_argument("--seed", type=int, default=0, help="seed of the initial weights and the batches")
    parser.add_argument("--save", type=float, default=3.0, help="minutes between two checkpoints")
    parser.add_argument("--report", type=int, default=200, help="steps between two lines of the report")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="processes that draw scenes")
    parser.add_argument(
        "--cache", type=Path, default=Path(tempfile.gettempdir()) / "demo-vlm", help="folder of the drawn pictures"
    )
    parser.add_argument("--out", type=Path, default=FOLDER / "bundle", help="folder of the checkpoint")
    parser.add_argument("--resume", type=Path, help="folder of a checkpoint to go on with")
    parser.add_argument("--evaluate", action="store_true", help="only print the figures of an existing checkpoint")
    parser.add_argument("--questions", type=int, default=1000, help="number of questions of each set of figures")
    parser.add_argument("--compile", action="store_true", help="compile the layers with torch.compile")
    options = parser.parse_args()
    if not options.evaluate:
        if not 0 < options.scenes < EVALUATION_SEED:
            parser.error(f"--scenes must be from 1 to {EVALUATION_SEED - 1}: later seeds are for evaluation")
        train(options)
        add_graphs(options.out)
    evaluate(options.out, options.questions)


if __name__ == "__main__":
    main()
