"""What the training scripts of the demonstration models share: options, data, optimisation, figures and files."""

from __future__ import annotations

import argparse
import json
import math
import os
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from tokenizers import Tokenizer
from torch import nn
from torch.nn import functional

from vlmsearch.demo.scenes import Scene, make_scene

EVALUATION_SEED = 10_000_000
PARAPHRASE_SEED = 7
STYLES = ("full",) * 5 + ("partial",) * 3 + ("short",) * 3
FULL_COLUMNS = 6
CHUNK = 250


@dataclass(frozen=True)
class Options:
    """Command-line options of a training run."""

    device: torch.device
    scenes: int
    steps: int
    batch: int
    rate: float
    seed: int
    workers: int
    out: Path
    evaluate: bool
    compile: bool


def parse_options(
    description: str, folder: Path, *, scenes: int, steps: int, batch: int, rate: float, out: str = "checkpoint"
) -> Options:
    """Read the command line; the keyword arguments are the defaults."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto", help="where to train")
    parser.add_argument("--scenes", type=int, default=scenes, help="number of training scenes")
    parser.add_argument("--steps", type=int, default=steps, help="number of optimisation steps")
    parser.add_argument("--batch", type=int, default=batch, help="scenes per step")
    parser.add_argument("--rate", type=float, default=rate, help="peak learning rate")
    parser.add_argument("--seed", type=int, default=0, help="seed of the initial weights and the batches")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="processes that draw scenes")
    parser.add_argument("--out", type=Path, default=folder / out, help="folder of the checkpoint")
    parser.add_argument("--evaluate", action="store_true", help="only print the figures of an existing checkpoint")
    parser.add_argument("--compile", action="store_true", help="compile the towers with torch.compile")
    values = vars(parser.parse_args())
    if not 0 < values["scenes"] < EVALUATION_SEED:
        parser.error(f"--scenes must be from 1 to {EVALUATION_SEED - 1}: later seeds are for evaluation")
    name = values.pop("device")
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(values["seed"])
    return Options(device=torch.device(name), **values)


def training_texts(scenes: int) -> Iterable[str]:
    """Yield captions of all styles to learn a vocabulary from."""
    for seed in range(scenes):
        scene = make_scene(seed)
        yield scene.caption()
        yield from scene.captions(6, PARAPHRASE_SEED)


@dataclass
class Corpus:
    """Training data: images as N x 3 x S x S bytes (empty for text alone) and token ids as N x captions x length."""

    images: torch.Tensor
    tokens: torch.Tensor

    def columns(self, rows: torch.Tensor, first: int, last: int) -> torch.Tensor:
        """Choose, for every given row, a random caption among the columns from ``first`` to ``last`` exclusive."""
        chosen = torch.randint(first, last, rows.shape, device=rows.device)
        return self.tokens[rows, chosen].long()


def make_corpus(options: Options, tokenizer: Path, length: int, pixels: int | None) -> Corpus:
    """Draw and describe the training scenes in parallel and move them to the device.

    Each scene has its canonical caption, paraphrases of full information, partial captions and short queries, in this
    order. Half of the images are drawn larger and reduced, so that the model meets several rasterisations.
    """
    count = options.scenes
    tokens = np.empty((count, len(STYLES) + 1, length), dtype=np.int16)
    images = np.empty((count if pixels else 0, 3, pixels or 0, pixels or 0), dtype=np.uint8)
    jobs = [(start, min(start + CHUNK, count), str(tokenizer), length, pixels) for start in range(0, count, CHUNK)]
    begun = time.monotonic()
    with ProcessPoolExecutor(options.workers) as pool:
        for index, ((start, stop, *_), (drawn, ids)) in enumerate(zip(jobs, pool.map(_describe, jobs), strict=True)):
            tokens[start:stop] = ids
            if drawn is not None:
                images[start:stop] = drawn
            if index % 100 == 0 or stop == count:
                print(f"scenes {stop:>7,}/{count:,}  {stop / (time.monotonic() - begun):,.0f}/s", flush=True)
    return Corpus(torch.from_numpy(images).to(options.device), torch.from_numpy(tokens).to(options.device))


def _describe(job: tuple[int, int, str, int, int | None]) -> tuple[np.ndarray | None, np.ndarray]:
    """Return the images and the token ids of a range of seeds."""
    start, stop, tokenizer_file, length, pixels = job
    tokenizer = Tokenizer.from_file(tokenizer_file)
    pad = "[PAD]" if tokenizer.token_to_id("[PAD]") is not None else "<|endoftext|>"
    tokenizer.enable_truncation(length)
    tokenizer.enable_padding(length=length, pad_id=tokenizer.token_to_id(pad), pad_token=pad)
    scenes = [make_scene(seed) for seed in range(start, stop)]
    texts: list[str] = []
    for scene in scenes:
        texts.append(scene.caption())
        for style in ("full", "partial", "short"):
            texts += scene.captions(STYLES.count(style), style=style)
    ids = np.array([encoding.ids for encoding in tokenizer.encode_batch(texts)], dtype=np.int16)
    drawn = np.stack([_pixels(scene, pixels) for scene in scenes]) if pixels else None
    return drawn, ids.reshape(len(scenes), -1, length)


def _pixels(scene: Scene, pixels: int) -> np.ndarray:
    """Draw a scene at a multiple of the model's resolution and reduce it as the image processor does."""
    picture = scene.draw(pixels * (2, 4)[scene.seed % 2]).resize((pixels, pixels), Image.Resampling.BICUBIC)
    channels: np.ndarray = np.asarray(picture).transpose(2, 0, 1)
    return channels


def contrastive_loss(first: torch.Tensor, second: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    """Return the symmetric InfoNCE loss of two batches of embeddings in which equal rows belong together."""
    with torch.autocast(first.device.type, enabled=False):
        logits = scale * functional.normalize(first.float()) @ functional.normalize(second.float()).T
        target = torch.arange(len(logits), device=logits.device)
        return (functional.cross_entropy(logits, target) + functional.cross_entropy(logits.T, target)) / 2


def fit(model: nn.Module, loss_of: Callable[[torch.Tensor], torch.Tensor], options: Options) -> None:
    """Minimise ``loss_of(rows)`` over random batches of scene numbers with AdamW and a cosine schedule.

    An interrupt ends the training early and keeps the weights learnt so far.
    """
    named = [(name, value) for name, value in model.named_parameters() if value.requires_grad]
    decayed = [value for _, value in named if value.ndim >= 2]
    others = [value for _, value in named if value.ndim < 2]
    groups = [{"params": decayed, "weight_decay": 0.05}, {"params": others, "weight_decay": 0.0}]
    cuda = options.device.type == "cuda"
    optimiser = torch.optim.AdamW(groups, lr=options.rate, betas=(0.9, 0.98), fused=cuda)
    warmup = max(1, min(1000, options.steps // 10))

    def share(step: int) -> float:
        after = (step - warmup) / max(1, options.steps - warmup)
        return (step + 1) / warmup if step < warmup else 0.5 * (1 + math.cos(math.pi * min(1.0, after))) + 1e-3

    schedule = torch.optim.lr_scheduler.LambdaLR(optimiser, share)
    begun = time.monotonic()
    try:
        for step in range(1, options.steps + 1):
            rows = torch.randint(options.scenes, (options.batch,), device=options.device)
            with torch.autocast(options.device.type, torch.bfloat16, enabled=cuda):
                loss = loss_of(rows)
            optimiser.zero_grad(set_to_none=True)
            torch.autograd.backward(loss)
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimiser.step()
            schedule.step()
            if step % max(1, options.steps // 60) == 0 or step == 20:
                _report(step, options, loss, float(schedule.get_last_lr()[0]), time.monotonic() - begun)
    except KeyboardInterrupt:
        print("interrupted: keeping the weights learnt so far", flush=True)


def _report(step: int, options: Options, loss: torch.Tensor, rate: float, seconds: float) -> None:
    """Print the progress of the training."""
    left = seconds / step * (options.steps - step)
    print(
        f"step {step:>6}/{options.steps}  loss {loss.item():.4f}  learning rate {rate:.2e}  "
        f"{step / seconds:.1f} steps/s  {step * options.batch / seconds:,.0f} scenes/s  ETA {left:.0f} s",
        flush=True,
    )


def recall(queries: torch.Tensor, items: torch.Tensor) -> dict[int, float]:
    """Return recall@1, @5 and @10 where query ``i`` belongs to item ``i``; ties count as misses."""
    scores = queries @ items.T
    worse = (scores < scores.diagonal().unsqueeze(1)).sum(dim=1)
    return {depth: (worse >= len(items) - depth).float().mean().item() for depth in (1, 5, 10)}


def print_recall(name: str, figures: dict[int, float]) -> None:
    """Print one line of recall figures."""
    print(f"{name:<44}" + "  ".join(f"recall@{depth} {value:.3f}" for depth, value in figures.items()), flush=True)


def evaluation_scenes(count: int = 1000) -> list[Scene]:
    """Return scenes whose seeds are never used in training."""
    return [make_scene(EVALUATION_SEED + index) for index in range(count)]


def save_weights(model: Any, out: Path) -> None:
    """Save a transformers model with weights rounded to float16; they load as float32."""
    model.float().cpu().half().save_pretrained(out)
    model.float()
    config = json.loads((out / "config.json").read_text())
    config.pop("torch_dtype", None)
    write_json(out / "config.json", config | {"dtype": "float32"})


def write_json(path: Path, value: object) -> None:
    """Write a value as indented JSON."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def print_size(model: nn.Module, out: Path) -> None:
    """Print the number of parameters and the size of every file of a checkpoint."""
    print(f"{sum(value.numel() for value in model.parameters()):,} parameters")
    files: Sequence[Path] = sorted(path for path in out.rglob("*") if path.is_file())
    for path in files:
        print(f"{path.stat().st_size:>10,} bytes  {path.relative_to(out)}")
