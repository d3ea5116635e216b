"""What the training scripts of the demonstration models share: options, data, optimisation, figures and files."""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import truth
from PIL import Image
from tokenizers import Tokenizer
from torch import nn
from torch.nn import functional

from vlmsearch.demo.queries import parse_query
from vlmsearch.demo.scenes import Scene, make_scene
from vlmsearch.demo.vocabulary import AGAINST, OPENINGS

EVALUATION_SEED = 10_000_000
PARAPHRASE_SEED = 7
FULL, HINTS = 5, 4
"""The numbers of paraphrases of a scene, and of its texts of each style.

The paraphrases are beside its canonical caption. The styles are those of ``STYLES``.
"""
STYLES = ("partial", "short")
CHUNK = 250
ASKED = 0.2
"""The share of the hints that are put as a question, where their words allow it."""
QUESTIONS = (
    "Which {0} show {1}?", "Which {0} show {1}?", "Which {0} have {1}?", "What {0} show {1}?", "Which {0} contain {1}?",
    "Show me {0} with {1}.", "Find {0} with {1}.", "Show me {1}.", "Is there {1}?", "Are there {1}?", "Find {1}.",
    "Is there a scene with {1}?", "Do any {0} show {1}?", "Where is {1}?", "Where are {1}?", "How many {0} show {1}?",
)  # fmt: skip
NOUNS = ("scenes", "scenes", "pictures", "images", "photos")


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
        yield put_as_question(scene.captions(1, PARAPHRASE_SEED, style="short")[0], random.Random(seed))


def put_as_question(text: str, rng: random.Random) -> str:
    """Return a question about the content of a text.

    It is the text itself where it does not go into a question.
    """
    if text.startswith((*filter(None, OPENINGS), *(f"{word} " for word in AGAINST))):
        return text
    return QUESTIONS[int(rng.random() * len(QUESTIONS))].format(NOUNS[int(rng.random() * len(NOUNS))], text)


@dataclass
class Corpus:
    """Training data of N scenes.

    Attributes:
        images: N x 3 x S x S bytes; empty for text alone.
        captions: Token ids of texts that say everything, N x texts x length.
        hints: Token ids of partial captions and short queries, N x styles x texts x length.
        asked: What `truth.forbidden` gives for each hint, N x styles x texts x 3.
        shown: What `truth.marks` gives for each scene, N x 3.
    """

    images: torch.Tensor
    captions: torch.Tensor
    hints: torch.Tensor
    asked: torch.Tensor
    shown: torch.Tensor

    def captions_of(self, rows: torch.Tensor) -> torch.Tensor:
        """Choose one caption of every given scene."""
        return self.captions[rows, torch.randint(FULL + 1, rows.shape, device=rows.device)].long()

    def hints_of(self, rows: torch.Tensor) -> tuple[torch.Tensor, list[torch.Tensor]]:
        """Choose one hint of each style for every given scene.

        Returns:
            The token ids, those of one style after those of the other. For each style, which hint fits which of the
            scenes, rows x rows.
        """
        chosen = torch.randint(HINTS, (len(STYLES), *rows.shape), device=rows.device)
        tokens = [self.hints[rows, style, chosen[style]] for style in range(len(STYLES))]
        asked = [self.asked[rows, style, chosen[style]] for style in range(len(STYLES))]
        return torch.cat(tokens).long(), [truth.fits(marks, self.shown[rows]) for marks in asked]


def make_corpus(options: Options, tokenizer: Path, length: int, pixels: int | None) -> Corpus:
    """Draw and describe the training scenes in parallel and move them to the device.

    Half of the images are drawn larger and reduced, so that the model meets several rasterisations.
    """
    jobs = [
        (start, min(start + CHUNK, options.scenes), str(tokenizer), length, pixels)
        for start in range(0, options.scenes, CHUNK)
    ]
    begun = time.monotonic()
    parts: list[tuple[np.ndarray, ...]] = []
    with ProcessPoolExecutor(options.workers) as pool:
        for index, part in enumerate(pool.map(_describe, jobs)):
            parts.append(part)
            stop = jobs[index][1]
            if index % 100 == 0 or stop == options.scenes:
                print(f"scenes {stop:>7,}/{options.scenes:,}  {stop / (time.monotonic() - begun):,.0f}/s", flush=True)
    return Corpus(*(torch.from_numpy(np.concatenate(arrays)).to(options.device) for arrays in zip(*parts, strict=True)))


def _describe(job: tuple[int, int, str, int, int | None]) -> tuple[np.ndarray, ...]:
    """Return what a `Corpus` has of a range of seeds."""
    start, stop, tokenizer_file, length, pixels = job
    tokenizer = Tokenizer.from_file(tokenizer_file)
    pad = "[PAD]" if tokenizer.token_to_id("[PAD]") is not None else "<|endoftext|>"
    tokenizer.enable_truncation(length)
    tokenizer.enable_padding(length=length, pad_id=tokenizer.token_to_id(pad), pad_token=pad)
    scenes = [make_scene(seed) for seed in range(start, stop)]
    captions = [text for scene in scenes for text in (scene.caption(), *scene.captions(FULL, style="full"))]
    hints = [text for scene in scenes for style in STYLES for text in scene.captions(HINTS, style=style)]
    asked = np.array([truth.forbidden(parse_query(text)) for text in hints])
    rng = random.Random(start)
    put = [put_as_question(text, rng) if rng.random() < ASKED else text for text in hints]
    drawn = [_pixels(scene, pixels) for scene in scenes] if pixels else np.empty((len(scenes), 0))

    def ids(texts: list[str]) -> np.ndarray:
        return np.array([encoding.ids for encoding in tokenizer.encode_batch(texts)], dtype=np.int16)

    return (
        np.asarray(drawn, dtype=np.uint8),
        ids(captions).reshape(len(scenes), -1, length),
        ids(put).reshape(len(scenes), len(STYLES), HINTS, length),
        asked.reshape(len(scenes), len(STYLES), HINTS, truth.GROUPS),
        np.array([truth.marks(scene) for scene in scenes]),
    )


def _pixels(scene: Scene, pixels: int) -> np.ndarray:
    """Draw a scene larger than the model's resolution, and reduce it.

    It is drawn at a multiple of the resolution, and reduced as the image processor does.
    """
    picture = scene.draw(pixels * (2, 4)[scene.seed % 2]).resize((pixels, pixels), Image.Resampling.BICUBIC)
    channels: np.ndarray = np.asarray(picture).transpose(2, 0, 1)
    return channels


def contrastive_loss(
    first: torch.Tensor, second: torch.Tensor, scale: torch.Tensor, fits: torch.Tensor | None = None
) -> torch.Tensor:
    """Return the symmetric InfoNCE loss of two batches of embeddings in which equal rows belong together.

    Where ``fits`` says that others belong together as well, these are left out.
    """
    with torch.autocast(first.device.type, enabled=False):
        logits = scale * functional.normalize(first.float()) @ functional.normalize(second.float()).T
        if fits is not None:
            own = torch.eye(len(logits), dtype=torch.bool, device=logits.device)
            logits = logits.masked_fill(fits & ~own, -math.inf)
        target = torch.arange(len(logits), device=logits.device)
        return (functional.cross_entropy(logits, target) + functional.cross_entropy(logits.T, target)) / 2


class Judge(nn.Module):
    """The relation of a cosine of a hint with a scene to its fit.

    It is learned.

    Attributes:
        slope: The logarithm of the log-odds per unit of cosine.
        bias: The log-odds at a cosine of 0.
        scale: The logarithm of the inverse temperature at which hints find scenes.
    """

    def __init__(self) -> None:
        super().__init__()
        self.slope = nn.Parameter(torch.tensor(math.log(20.0)))
        self.bias = nn.Parameter(torch.tensor(-8.0))
        self.scale = nn.Parameter(torch.tensor(math.log(20.0)))

    def forward(self, hints: torch.Tensor, items: torch.Tensor, fits: torch.Tensor) -> torch.Tensor:
        """Return the cross-entropy of each hint with all items.

        It is divided by the number of items that the hint fits.

        Args:
            hints: Embeddings of hints.
            items: Embeddings of the scenes.
            fits: Which hint fits which scene, hints x scenes; each fits one at least.
        """
        with torch.autocast(hints.device.type, enabled=False):
            cosines = functional.normalize(hints.float()) @ functional.normalize(items.float()).T
            logits = self.slope.exp() * cosines + self.bias
            loss = functional.binary_cross_entropy_with_logits(logits, fits.float(), reduction="none")
            return (loss.sum(dim=1) / fits.sum(dim=1)).mean()


def hint_loss(
    judge: Judge, hinted: Sequence[torch.Tensor], items: torch.Tensor, fits: Sequence[torch.Tensor], share: float
) -> torch.Tensor:
    """Return the loss of hints, whose styles all belong to the scenes in their order.

    Short queries have to find what fits among what does not. A partial caption has to find its own scene first, as the
    one that it most likely tells of. Both have to be told to fit or not by the cosine alone.

    Args:
        judge: What learns the cosine from which hints fit.
        hinted: Embeddings of one hint a scene, for each of ``STYLES``.
        items: Embeddings of the scenes.
        fits: Which hint fits which scene, hints x scenes, for each of ``STYLES``.
        share: The weight of the judge's loss.
    """
    partial, short = hinted
    scale = judge.scale.exp().clamp(max=100)
    contrast = contrastive_loss(short, items, scale, fits[1]) + contrastive_loss(partial, items, scale)
    judged: torch.Tensor = judge(partial, items, fits[0]) + judge(short, items, fits[1])
    return 0.5 * contrast + share * judged


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
    """Return recall@1, @5 and @10 where query ``i`` belongs to item ``i``.

    Ties count as misses.
    """
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
